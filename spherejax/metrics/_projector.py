"""Column space of a projector, and its affine form near a vector."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Real

from spherejax import _checks, _numerics
from spherejax.metrics import _singular_values

_WORD = 32  # activations compared at a time


class LocalAffine(NamedTuple):
  """Result of `local_affine`: projector(h) = weights^T h + bias near the given h."""

  weights: Float[Array, "dim outputs"]
  bias: Float[Array, " outputs"]


def unexplained_variance(
  displacements: Float[ArrayLike, "batch dim"],
  weights: Float[ArrayLike, "dim outputs"],
  *,
  threshold: Real[ArrayLike, ""] | None = None,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, ""]:
  """Share of the displacements that lies outside the column space of a projector.

      unexplained = sum_i |d_i - Q Q^T d_i|^2 / sum_i |d_i|^2

  Q holds the left singular vectors of the weights whose singular value is not 0, so
  scaling the weights changes nothing. For isotropic displacements the share is 1 -
  rank(weights) / dim on average.

  Args:
    displacements: [batch, dim], floating: a second view minus the nearest negative.
    weights: [dim, outputs], floating, of the projector h -> weights^T h.
    threshold: in [0, 1); may be traced. Singular values of at most this share of the
      largest count as 0. None takes the larger side of the weights times the machine
      epsilon of the calculation (float32 or finer). Set it for weights that were
      rounded to half precision.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    Scalar in [0, 1], dtype of `displacements`. 0 if all displacements are 0; otherwise
    1 for weights of 0.

  Raises:
    TypeError: arrays not floating, where not boolean.
    ValueError: shapes do not match, an empty axis of the weights, or a static
      threshold outside [0, 1).

  Differentiable in: nothing. Cost: O(dim outputs min(dim, outputs)
  + batch dim min(dim, outputs)).

  Source: SSL eq. 10. SSL eq. 9 takes W W^T in place of Q Q^T, which is no projection
  unless the columns of W are orthonormal.

  Example:
    >>> w = jnp.array([[2.0], [0.0]])
    >>> spherejax.metrics.unexplained_variance(jnp.array([[3.0, 1.0]]), w)
    Array(0.1, dtype=float32)
  """
  displacements = _checks.array("displacements", displacements, rank=2)
  weights = _checks.array("weights", weights, rank=2)
  rows = _kept_rows(displacements, weights, where)
  outside = _outside(rows, column_space(weights, threshold, rows.dtype))
  return outside.astype(displacements.dtype)


def displacement_alignment(
  displacements: Float[ArrayLike, "batch dim"],
  weights: Float[ArrayLike, "batch dim outputs"],
  *,
  threshold: Real[ArrayLike, ""] | None = None,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """Share of each displacement that lies in the column space of its projector.

      alignment_i = |Q_i^T d_i|^2 / |d_i|^2

  Use it with the weights of `local_affine` at each example. For a single displacement
  it is 1 minus `unexplained_variance`.

  Args:
    displacements: [batch, dim], floating: a second view minus the nearest negative.
    weights: [batch, dim, outputs], floating.
    threshold: in [0, 1); may be traced. Singular values of at most this share of the
      largest count as 0. None takes the larger side of the weights times the machine
      epsilon of the calculation (float32 or finer). Set it for weights that were
      rounded to half precision.
    where: [batch], boolean, True keeps; masked rows and their weights may be NaN. None
      keeps all.

  Returns:
    [batch] in [0, 1], dtype of `displacements`: 1 for a displacement of 0, which leaves
    nothing to explain; otherwise 0 for weights of 0; 0 for masked rows.

  Raises:
    TypeError: arrays not floating, where not boolean.
    ValueError: shapes do not match, an empty axis of the weights, or a static
      threshold outside [0, 1).

  Differentiable in: nothing. Cost: O(batch dim outputs min(dim, outputs)).

  Source: SSL eqs. 10 and 11.

  Example:
    >>> w = jnp.array([[[2.0], [0.0]]])
    >>> spherejax.metrics.displacement_alignment(jnp.array([[3.0, 1.0]]), w)
    Array([0.9], dtype=float32)
  """
  displacements = _checks.array("displacements", displacements, rank=2)
  weights = _checks.array("weights", weights, rank=3)
  _checks.shape("weights", weights, (len(displacements), *weights.shape[1:]))
  rows = _kept_rows(displacements, weights, where)
  mask = jnp.ones(len(rows), bool) if where is None else _checks.array("where", where)
  weights = jnp.where(mask[:, None, None], weights, 0)

  def inside(row: Array, weight: Array) -> Array:
    return 1 - _outside(row[None], column_space(weight, threshold, row.dtype))

  shares = jnp.where(mask, jax.vmap(inside)(rows, weights), 0)
  return shares.astype(displacements.dtype)


def local_affine(
  projector: Callable[[Array], Array], h: Float[ArrayLike, " dim"]
) -> LocalAffine:
  """Affine map that equals a projector near a vector.

      projector(h) = W^T h + b,    W^T the Jacobian at h

  For a perceptron with ReLU or leaky ReLU and without biases, b is 0 and W is constant
  along the ray from 0 through h. Use `jax.vmap` for batches. At a kink the derivative
  is JAX's: the slope of `jax.nn.relu` at 0 is 0, so the value is right there too.

  Args:
    projector: maps one vector [dim] to [outputs]; differentiable by JAX. Static.
    h: [dim], floating.

  Returns:
    LocalAffine(weights [dim, outputs], bias [outputs]), dtype of the projector's value.
    For a projector that is not piecewise affine the result is the tangent.

  Raises:
    TypeError: h not floating.
    ValueError: h or the projector's value not a vector.

  Differentiable in: h, where the projector is twice differentiable. Cost: min(dim,
  outputs) passes through the projector.

  Source: SSL eq. 11; Balestriero & Baraniuk 2018, "A spline theory of deep learning".

  Example:
    >>> found = spherejax.metrics.local_affine(jax.nn.relu, jnp.array([2.0, -1.0]))
    >>> found.weights
    Array([[1., 0.],
           [0., 0.]], dtype=float32)
  """
  _checks.function("projector", projector)
  h = _checks.array("h", h, "floating", rank=1)
  value = jax.eval_shape(projector, h)
  if value.ndim != 1:
    raise ValueError(f"projector(h) must have 1 axis, got shape {value.shape}")
  if len(value) <= len(h):
    value, pull = jax.vjp(projector, h)
    rows = _numerics.varying(jnp.eye(len(value), dtype=value.dtype), value)
    weights = jax.vmap(lambda row: pull(row)[0], out_axes=1)(rows)
  else:
    value, push = jax.linearize(projector, h)
    weights = jax.vmap(push)(_numerics.varying(jnp.eye(len(h), dtype=h.dtype), h))
  wide = _numerics.upcast(value)
  part = _numerics.product(h.astype(wide.dtype), weights.astype(wide.dtype))
  return LocalAffine(weights.astype(value.dtype), (wide - part).astype(value.dtype))


def count_regions(
  patterns: Bool[ArrayLike, "batch units"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Int[Array, ""]:
  """Counts distinct activation patterns: the affine regions that examples lie in.

  Args:
    patterns: [batch, units], boolean: whether each hidden unit of a ReLU or leaky ReLU
      network is active, its input above 0; all layers side by side. Without units, as
      in a linear projector, there is one region.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    Scalar, int32; at most the number of kept rows, 0 if no row is kept. The count is
    exact, but covers only regions that hold an example.

  Raises:
    TypeError: patterns or where not boolean.
    ValueError: shapes do not match.

  Differentiable in: nothing. Cost: O(batch log batch units / 32).

  Source: SSL 5 and eq. 11.

  Example:
    >>> h = jnp.array([[1.0, 2.0], [3.0, 1.0], [1.0, -2.0]])
    >>> spherejax.metrics.count_regions(h > 0)
    Array(2, dtype=int32)
  """
  patterns = _checks.array("patterns", patterns, "boolean", rank=2)
  batch, units = patterns.shape
  mask = _checks.where_mask(where, (batch,))
  if batch == 0:
    return jnp.zeros((), jnp.int32)
  bits = jnp.where(mask[:, None], patterns, False).astype(jnp.uint32)
  bits = jnp.pad(bits, ((0, 0), (0, -units % _WORD)))
  shifts = jnp.arange(_WORD, dtype=jnp.uint32)[None, None]
  words = jnp.sum(
    bits.reshape(batch, -(-units // _WORD), _WORD) << shifts, axis=2, dtype=jnp.uint32
  )

  def refine(groups: Array, word: Array) -> tuple[Array, None]:
    """Splits groups whose rows differ in this word."""
    order = jnp.lexsort((word, groups))
    ordered, of_word = groups[order], word[order]
    new = (ordered[1:] != ordered[:-1]) | (of_word[1:] != of_word[:-1])
    numbers = jnp.cumsum(jnp.concatenate([jnp.zeros(1, bool), new]), dtype=jnp.int32)
    return jnp.zeros(batch, jnp.int32).at[order].set(numbers), None

  # Masked rows are a group by themselves from the start.
  start = _numerics.varying(mask.astype(jnp.int32), words)
  groups, _ = jax.lax.scan(refine, start, words.T)
  ordered = jnp.sort(groups)
  number = 1 + jnp.sum(ordered[1:] != ordered[:-1], dtype=jnp.int32)
  return number - jnp.any(~mask).astype(jnp.int32)


def column_space(
  weights: Array, threshold: ArrayLike | None, dtype: jnp.dtype
) -> Array:
  """Orthonormal columns [dim, smaller side] that span the weights, and zeros."""
  if 0 in weights.shape:
    raise ValueError(f"weights must have no empty axis, got shape {weights.shape}")
  if threshold is None:
    threshold = max(weights.shape) * float(jnp.finfo(dtype).eps)
  _checks.between("threshold", threshold, 0, 1, high_open=True)
  share = _checks.scalar("threshold", threshold, dtype)
  vectors, values, _ = _singular_values.thin_svd(weights.astype(dtype))
  # In this order, columns of weights with NaN stay NaN.
  return jnp.where((values <= share * values[0])[None], 0, vectors)


def _kept_rows(displacements: Array, weights: Array, where: ArrayLike | None) -> Array:
  """Checked rows in the type of the calculation, masked ones 0."""
  _checks.expect("displacements", displacements, "floating")
  _checks.expect("weights", weights, "floating")
  number, dim = displacements.shape
  if weights.shape[-2] != dim:
    raise ValueError(
      f"weights must have {dim} rows to match displacements {displacements.shape}, got "
      f"{weights.shape}"
    )
  mask = _checks.where_mask(where, (number,))
  dtype = _numerics.compute_dtype(jnp.promote_types(displacements.dtype, weights.dtype))
  return jnp.where(mask[:, None], displacements.astype(dtype), 0)


def _outside(rows: Array, space: Array) -> Array:
  """Share of the squared lengths of the rows outside the space."""
  # In units of the largest entry: squares neither overflow nor vanish.
  rows = _numerics.divide(rows, jnp.max(jnp.abs(rows), initial=0))
  parts = _numerics.product(rows, space)
  rest = rows - _numerics.product(parts, space.T)
  share = _numerics.divide(jnp.sum(rest**2), jnp.sum(rows**2))
  return jnp.minimum(share, 1)
