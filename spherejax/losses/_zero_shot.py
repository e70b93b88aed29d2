"""Zero-shot prediction of the classes of one half of a batch from the other half."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _classes


def split_by_class(
  labels: Integer[ArrayLike, " batch"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> tuple[Bool[Array, " batch"], Bool[Array, " batch"]]:
  """Splits a batch into halves of disjoint classes, as two masks.

  The distinct labels are taken in the order of their first kept row. The first half of
  them (one more when their number is odd) goes to `a`, the rest to `b`.

  Args:
    labels: [batch], integer.
    where: [batch], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the batch is spread; the halves are those of
      the batch of all devices.

  Returns:
    Two [batch] boolean masks `a` and `b`, disjoint, together the kept rows. With one
    class `b` is empty.

  Raises:
    TypeError: labels are not integers, `where` is not boolean.
    ValueError: shapes do not match.

  Cost: O(batch^2) comparisons.

  Source: DML 5.2.3.

  Example:
    >>> a, b = spherejax.losses.split_by_class(jnp.array([7, 7, 2, 2, 5]))
    >>> a
    Array([ True,  True,  True,  True, False], dtype=bool)
  """
  (labels,) = _checks.names(("labels", labels))
  _checks.expect("labels", labels, "integer", rank=1)
  mask = _batch.keep_all(where, labels)
  if not labels.size:
    return mask, mask
  all_labels, all_kept = (_batch.gather(x, axis_name) for x in (labels, mask))
  same = (all_labels[:, None] == all_labels[None]) & all_kept[None]
  first_row = jnp.argmax(same, axis=1)
  starts = all_kept & (first_row == jnp.arange(len(all_labels)))
  order = jnp.cumsum(starts) - 1
  rank = order[first_row]
  classes = jnp.sum(starts)
  in_a = rank < (classes + 1) // 2
  start = _batch.first_row(len(labels), axis_name)
  in_a = jax.lax.dynamic_slice_in_dim(in_a, start, len(labels))
  return mask & in_a, mask & ~in_a


def ridge_attribute_embeddings(
  attributes: Float[ArrayLike, "batch prototypes"],
  targets: Float[ArrayLike, "batch dim"],
  *,
  ridge: Real[ArrayLike, ""] = 0.05,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, "prototypes dim"]:
  """Ridge regression from attributes to embeddings, without intercept.

      A = argmin_A |Z A - Y|_F^2 + ridge |A|_F^2 = Z^T (Z Z^T + ridge I)^{-1} Y

  Solved by a Cholesky factor of the smaller of the two Gram matrices.

  Args:
    attributes: [batch, prototypes], floating, the rows of Z.
    targets: [batch, dim], floating, the rows of Y.
    ridge: positive, may be traced. A ridge below the rounding errors of the Gram matrix
      is raised to them.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [prototypes, dim], dtype of `attributes`; zero when no row is kept.

  Raises:
    TypeError: attributes or targets are not floating.
    ValueError: shapes do not match, or a static ridge that is not positive.

  Differentiable in: attributes, targets, ridge.
  Cost: O(min(batch, prototypes)^3 + batch prototypes (dim + min(batch, prototypes))).

  Source: DML 5.2.3, problem P3.

  Example:
    >>> spherejax.losses.ridge_attribute_embeddings(jnp.eye(2), jnp.eye(2), ridge=1.0)
    Array([[0.5, 0. ],
           [0. , 0.5]], dtype=float32)
  """
  attributes = _checks.array("attributes", attributes)
  targets = _checks.array("targets", targets)
  for name, array in (("attributes", attributes), ("targets", targets)):
    _checks.expect(name, array, "floating", rank=2)
  _checks.shape("targets", targets, (len(attributes), targets.shape[1]), "attributes")
  _checks.positive("ridge", ridge)
  mask = _batch.keep_all(where, attributes)[:, None]
  z = jnp.where(mask, _numerics.upcast(attributes), 0)
  y = jnp.where(mask, _numerics.upcast(targets), 0).astype(z.dtype)
  return _ridge(z, y, _checks.scalar("ridge", ridge, z.dtype)).astype(attributes.dtype)


def _ridge(z: Array, y: Array, ridge: Array) -> Array:
  rows, columns = z.shape
  if not rows:
    return jnp.zeros((columns, y.shape[1]), y.dtype)
  wide = rows <= columns
  gram = _numerics.product(z, z.T) if wide else _numerics.product(z.T, z)
  if wide:
    return _numerics.product(z.T, _numerics.solve_ridge(gram, ridge, y))
  return _numerics.solve_ridge(gram, ridge, _numerics.product(z.T, y))


def zero_shot_prediction(
  attributes_a: Float[ArrayLike, "batch_a prototypes"],
  labels_a: Integer[ArrayLike, " batch_a"],
  attributes_b: Float[ArrayLike, "batch_b prototypes"],
  labels_b: Integer[ArrayLike, " batch_b"],
  label_embeddings: Float[ArrayLike, "classes dim"],
  *,
  ridge: Real[ArrayLike, ""] = 0.05,
  scale: Real[ArrayLike, ""] = 1.0,
  where_a: Bool[ArrayLike, " batch_a"] | None = None,
  where_b: Bool[ArrayLike, " batch_b"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch_a+batch_b"]:
  """Cross-batch zero-shot prediction loss (L_ZS).

  The two halves of a batch have disjoint classes. On each half a regression from
  attributes to label embeddings is fitted; it predicts the label embeddings of the
  other half.

      A_k = ridge regression from the attributes z to U[y] on half k
      loss_i = -log softmax_c(scale <U_c, z_i A_other>)_{y_i}     over all classes c

  Args:
    attributes_a: [batch_a, prototypes], floating, attributes of the first half.
    labels_a: [batch_a], integer in [0, classes). A traced label out of range masks its
      row.
    attributes_b: [batch_b, prototypes], floating, attributes of the second half.
    labels_b: [batch_b], integer in [0, classes). The classes of the halves should
      be disjoint (`split_by_class`); otherwise the prediction is not zero-shot.
    label_embeddings: [classes, dim], floating, U, learned.
    ridge: positive, may be traced.
    scale: positive, multiplies the logits, may be traced. 1 in the paper's equation,
      9.5 in its released code.
    where_a: [batch_a], boolean, True keeps. None keeps all.
    where_b: [batch_b], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which both halves are spread; the regressions use
      the rows of all devices.

  Returns:
    [batch_a + batch_b], dtype of `attributes_a`, the first half first; 0 for masked
    rows. The paper's scalar is the mean over the kept rows of the first half plus
    the mean over those of the second. A half whose other half is empty is predicted
    by zero: value log(classes), gradient 0.

  Raises:
    TypeError: attributes or label embeddings are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), or a static
      ridge or scale that is not positive.

  Differentiable in: attributes (fit and prediction), label_embeddings (target and
  classifier), ridge, scale.
  Cost: that of two `ridge_attribute_embeddings` and O(batch classes dim), where batch
  counts both halves.

  Source: DML 5.2.3, eq. 5.2.4. The printed log(1 + sum over all classes) counts the
  target twice; this function is the cross-entropy that the text names.

  Example:
    >>> z, u = jnp.eye(2), jnp.eye(4)
    >>> spherejax.losses.zero_shot_prediction(
    ...   z, jnp.array([0, 1]), z, jnp.array([2, 3]), u, ridge=1.0
    ... )
    Array([1.5365921, 1.5365921, 1.5365921, 1.5365921], dtype=float32)
  """
  _checks.positive("ridge", ridge)
  table = _checks.array(
    "label_embeddings", label_embeddings, "floating", rank=2, empty=False
  )
  z_a, own_a, dtype = _half(attributes_a, labels_a, where_a, table, "a")
  z_b, own_b, _ = _half(attributes_b, labels_b, where_b, table, "b")
  if z_a.shape[1] != z_b.shape[1]:
    raise ValueError(
      "attributes_a and attributes_b must have rows of one length, got shapes "
      f"{z_a.shape} and {z_b.shape}"
    )
  embeddings = _numerics.upcast(table).astype(z_a.dtype)
  strength = _checks.scalar("ridge", ridge, z_a.dtype)
  _checks.positive("scale", scale)
  multiplier = _checks.scalar("scale", scale, z_a.dtype)

  def fit(z: Array, class_mask: Array) -> Array:
    z, class_mask = _batch.gather(z, axis_name), _batch.gather(class_mask, axis_name)
    return _ridge(
      z, _numerics.product(class_mask.astype(z.dtype), embeddings), strength
    )

  def predict(z: Array, class_mask: Array, predictor: Array) -> Array:
    scores = _numerics.product(_numerics.product(z, predictor), embeddings.T)
    return _classes.cross_entropy(scores, class_mask, multiplier)

  from_a, from_b = fit(z_a, own_a), fit(z_b, own_b)
  losses = [predict(z_a, own_a, from_b), predict(z_b, own_b, from_a)]
  return jnp.concatenate(losses).astype(dtype)


def _half(
  attributes: ArrayLike,
  labels: ArrayLike,
  where: ArrayLike | None,
  label_embeddings: Array,
  name: str,
) -> tuple[Array, Array, jnp.dtype]:
  """Checked attributes (0 in rows of no class) and the class mask of one half."""
  z = _checks.array(f"attributes_{name}", attributes, "floating", rank=2)
  labels = _checks.integers(f"labels_{name}", labels)
  _checks.labels(labels, z, f"labels_{name}")
  mask = _batch.keep_all(where, z, f"where_{name}")
  class_mask = _batch.class_mask(labels, len(label_embeddings), mask, f"labels_{name}")
  mask = jnp.any(class_mask, axis=1)[:, None]
  return jnp.where(mask, _numerics.upcast(z), 0), class_mask, z.dtype
