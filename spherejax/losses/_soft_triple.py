"""SoftTriple, and the similarity of an example to several proxies of one class."""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics, distances
from spherejax.losses import _batch, _classes
from spherejax.losses._batch import Normalization

Reduction = Literal["soft", "max", "logsumexp"]


def multi_proxy(
  similarities: Float[ArrayLike, "*batch classes per_class"],
  *,
  reduction: Reduction = "soft",
  temperature: Real[ArrayLike, ""] = 0.1,
  where: Bool[ArrayLike, "*batch"] | None = None,
) -> Float[Array, "*batch classes"]:
  """Similarity to a class from the similarities to its proxies.

      S_c = sum_k softmax_k(S_ck / t) S_ck              "soft"
      S_c = max_k S_ck                                  "max"
      S_c = t (log sum_k exp(S_ck / t) - log K)         "logsumexp"

  Each reduction lies between the mean and the maximum; "soft" and "logsumexp" move from
  the mean to the maximum as the temperature t falls. Use the result in place of the
  cosines in any loss over classes.

  Args:
    similarities: [..., classes, per_class], floating.
    reduction: "soft" (SoftTriple's), "max" or "logsumexp". Static.
    temperature: positive, divides the similarities; may be traced. Not used by "max".
    where: [...], boolean, True keeps. None keeps all.

  Returns:
    [..., classes], dtype of `similarities`; 0 in masked rows.

  Raises:
    TypeError: similarities are not floating, where not boolean.
    ValueError: fewer than two axes, no proxy, a mask of another shape, an unknown
      `reduction`, or a static temperature that is not positive.

  Differentiable in: similarities ("max": ties go to the lowest index), temperature.
  Cost: O(size).

  Source: DML 3.3.2.1; Qian et al. 2019, "SoftTriple loss", eq. 5 ("soft").

  Example:
    >>> similarities = jnp.array([[1.0, 0.0], [0.5, 0.5]])
    >>> spherejax.losses.multi_proxy(similarities, reduction="max")
    Array([1. , 0.5], dtype=float32)
  """
  _checks.one_of("reduction", reduction, Reduction)
  _checks.positive("temperature", temperature)
  entries = _checks.array("similarities", similarities, "floating")
  if entries.ndim < 2 or entries.shape[-1] == 0:
    raise ValueError(
      "similarities must have shape (..., classes, per_class) with a proxy, got "
      f"{entries.shape}"
    )
  wide = _numerics.upcast(entries)
  if where is not None:
    mask = _checks.array("where", where)
    _checks.mask(mask, entries.shape[:-2])
    wide = jnp.where(mask[..., None, None], wide, 0)
  t = _checks.scalar("temperature", temperature, wide.dtype)
  return _reduce(wide.swapaxes(-1, -2), reduction, t).astype(entries.dtype)


def _reduce(similarities: Array, reduction: Reduction, t: Array) -> Array:
  """[..., classes] from the similarities to proxies, [..., per_class, classes]."""
  if reduction == "max":
    return _classes.highest(_parts(similarities))
  if reduction == "soft":
    return _soft(similarities, t)
  shares, top = _shares(similarities, t)
  mean = _total(shares) / jnp.asarray(shares.shape[-2], top.dtype)
  return top + t * jnp.log(mean)


def _parts(array: Array) -> list[Array]:
  return [array[..., k, :] for k in range(array.shape[-2])]


def _total(array: Array) -> Array:
  """Sums over the proxies of a class: adding arrays is faster than along an axis."""
  return functools.reduce(jnp.add, _parts(array))


def _shares(similarities: Array, t: Array) -> tuple[Array, Array]:
  """Exponentials relative to the largest of each class, and the largest."""
  top = jax.lax.stop_gradient(jnp.max(similarities, axis=-2))
  return jnp.exp((similarities - top[..., None, :]) / t), top


@jax.custom_jvp
def _soft(similarities: Array, t: Array) -> Array:
  return _softened(similarities, t)[0]


def _softened(similarities: Array, t: Array) -> tuple[Array, Array]:
  """Weighted mean, and its weights."""
  shares, _ = _shares(similarities, t)
  total = _total(shares)
  return _total(shares * similarities) / total, shares / total[..., None, :]


@_soft.defjvp
def _(
  primals: tuple[Array, Array], tangents: tuple[ArrayLike, ArrayLike]
) -> tuple[Array, Array]:
  # JAX's own derivative goes through the proxies one by one and compiles longer.
  (similarities, t), (change, heating) = primals, map(jnp.asarray, tangents)
  mean, weights = _softened(similarities, t)
  lead = (similarities - mean[..., None, :]) / t
  moved = jnp.sum(weights * (1 + lead) * change, axis=-2)
  return mean, moved - jnp.sum(weights * lead * lead, axis=-2) * heating


def soft_triple(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  centres: Float[ArrayLike, "classes per_class dim"],
  *,
  scale: Real[ArrayLike, ""] = 20.0,
  temperature: Real[ArrayLike, ""] = 0.1,
  margin: Real[ArrayLike, ""] = 0.01,
  regularization: Real[ArrayLike, ""] = 0.2,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  block_size: int | None = None,
) -> Float[Array, " batch"]:
  """SoftTriple loss: several centres per class, and a regulariser that merges them.

      S_ic = sum_k softmax_k(<x_i, w_ck> / temperature) <x_i, w_ck>
      R = 1 / (C K (K - 1)) sum_c sum_{k < l} |w_ck - w_cl|     0 for K = 1
      loss_i = -log softmax_c(scale (S_ic - margin 1[c = y_i]))_{y_i}
               + regularization R

  x and w are normalised as `normalize` says. With one centre per class it is `cosface`.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    centres: [classes, per_class, dim], floating.
    scale: positive, multiplies the similarities; may be traced.
    temperature: positive, of the choice among centres; may be traced.
    margin: in units of a cosine, may be traced.
    regularization: weight of R, at least 0, may be traced.
    normalize: "l2", "unit_ball" or "none", for embeddings and centres. Static.
    where: [batch], boolean, True keeps. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x classes per_class. None takes all at once.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar: R, one number, is part of every kept row. Rows do not depend on each
    other.

  Raises:
    TypeError: embeddings or centres are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), an unknown
      `normalize`, or a static number out of range.

  Differentiable in: embeddings, centres, scale, temperature, margin, regularization;
  derivative 0 of a distance between equal centres.
  Cost: O(batch classes per_class dim + classes per_class^2 dim).

  Source: DML 2.1.3 and 3.3.2.1; Qian et al. 2019, "SoftTriple loss: deep metric
  learning without triplet sampling", eq. 5-9. The original adds 1e-5 under the root of
  the distance; here the derivative at 0 is defined instead.

  Example:
    >>> x, labels, centres = jnp.eye(2), jnp.array([0, 1]), jnp.eye(2)[:, None]
    >>> spherejax.losses.soft_triple(x, labels, centres, scale=1.0, margin=1.0)
    Array([0.6931472, 0.6931472], dtype=float32)
  """
  for name, value in (("scale", scale), ("temperature", temperature)):
    _checks.positive(name, value)
  _checks.between("regularization", regularization, 0)
  rows, labels, mask, dtype = _batch.rows_and_labels(embeddings, labels, where, "none")
  table = _classes.proxies(centres, rows, 3, name="centres")
  # Rows and centres at once: a smaller program, faster to compile.
  both = jnp.concatenate([rows, table.reshape(-1, table.shape[-1])])
  both = _batch.normalize_rows(both, normalize)
  rows, table = both[: len(rows)], both[len(rows) :].reshape(table.shape)
  s, t, m, weight = (
    _checks.scalar(name, value, rows.dtype)
    for name, value in (
      ("scale", scale),
      ("temperature", temperature),
      ("margin", margin),
      ("regularization", regularization),
    )
  )
  # All first centres of the classes, then all second ones: each part is contiguous.
  columns = table.swapaxes(0, 1).reshape(-1, table.shape[-1])
  spread = weight * _spread(table)

  def terms(rows: Array, class_mask: Array) -> Array:
    products = distances.pairwise_dot(rows, columns)
    close = _soft(products.reshape(len(rows), table.shape[1], -1), t)
    target = _numerics.masked_sum(close, class_mask)[:, None] - m
    loss = _classes.cross_entropy(close, class_mask, s, target=target)
    return loss + jnp.where(jnp.any(class_mask, axis=1), spread, 0)

  loss = _classes.over_rows(terms, rows, labels, mask, len(table), block_size)
  return loss.astype(dtype)


def _spread(centres: Array) -> Array:
  """Sum of the distances between centres of a class, divided by classes K (K - 1)."""
  classes, per_class, _ = centres.shape
  twice = jnp.concatenate([centres, centres], axis=1)

  # Compares each centre with the one some places further on: the differences of all
  # pairs would take per_class times the memory of the centres.
  @functools.partial(jax.checkpoint, prevent_cse=False)
  def step(total: Array, shift: Array) -> tuple[Array, None]:
    others = jax.lax.dynamic_slice_in_dim(twice, shift, per_class, axis=1)
    squares = jnp.sum((centres - others) ** 2, axis=-1)
    return total + jnp.sum(_numerics.sqrt(squares)), None

  zero = _numerics.varying_zero(centres)
  total, _ = jax.lax.scan(step, zero, jnp.arange(1, per_class, dtype=jnp.int32))
  pairs = max(classes * per_class * (per_class - 1), 1)
  return total / (2 * pairs)
