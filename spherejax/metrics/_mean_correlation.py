"""Rank correlation of two sets of distances, such as prototypes' and a class tree's."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics, distances
from spherejax.distances._lp import Norm


class MeanCorrelation(NamedTuple):
  """Result of `mean_correlation`."""

  mean: Float[Array, ""]
  """tanh of the mean of artanh(r_c) over the classes that count; NaN without one."""
  correlations: Float[Array, " classes"]
  """Rank correlation of each class, NaN where it does not count; not clipped
  away from 1."""
  counted: Bool[Array, " classes"]
  """True if the class is kept and neither of its columns is constant."""


def mean_correlation(
  distances: Float[ArrayLike, "classes classes"],
  class_distances: Real[ArrayLike, "classes classes"],
  *,
  include_diagonal: bool = True,
  z_clip: Real[ArrayLike, ""] | None = 1e-6,
  where: Bool[ArrayLike, " classes"] | None = None,
) -> MeanCorrelation:
  """Mean rank correlation of learned and given distances between classes.

      r_c = Spearman's correlation of column c of both matrices
      mean = tanh(1/C sum_c artanh(r_c))

  Ties have their average rank. A tree has few different distances while learned
  distances do not tie, so not even a perfect order reaches 1. Always report
  `mean_correlation_ceiling` too; without it, values of different trees are not
  comparable.

  Args:
    distances: [classes, classes], floating: of learned proxies, or of the means of
      classes (chords in the article).
    class_distances: [classes, classes], such as `hierarchy.path_distances`.
    include_diagonal: True includes the zeros of the diagonal, as in the article; they
      raise the correlation even of random distances above 0. Static.
    z_clip: distance from -1 and 1 at which correlations are clipped before artanh, in
      [0, 1], may be traced. Without clipping a single perfect class makes the mean 1.
      None clips nothing, as in the article: the mean is then 1 with a class at 1, -1
      with a class at -1, and NaN with both.
    where: [classes], boolean, True keeps a class as column and as row. None keeps all.

  Returns:
    MeanCorrelation(mean, correlations, counted), dtype of `distances`. A class with a
    NaN or infinite distance does not count.

  Raises:
    TypeError: distances not floating, where not boolean, include_diagonal not boolean.
    ValueError: shapes do not match, or a static z_clip outside [0, 1].

  Differentiable in: nothing. Cost: O(classes^2 log classes).

  Source: DIST IV. Differs from the article in the clipping.

  Example:
    >>> given = jnp.array([[0, 1, 2], [1, 0, 2], [2, 2, 0]])
    >>> found = spherejax.metrics.mean_correlation(
    ...   jnp.array([[0, 0.3, 0.9], [0.3, 0, 0.8], [0.9, 0.8, 0]]), given)
    >>> found.correlations
    Array([1.       , 1.       , 0.8660254], dtype=float32)
    >>> spherejax.metrics.mean_correlation_ceiling(given)
    Array(0.99994713, dtype=float32)
  """
  _checks.flag("include_diagonal", include_diagonal)
  learned, target, mask = _matrices(
    distances, class_distances, include_diagonal, where, "distances"
  )
  return _correlate(
    learned, target, mask, _clip(z_clip), dtype=jnp.asarray(distances).dtype
  )


def mean_correlation_ceiling(
  class_distances: Real[ArrayLike, "classes classes"],
  *,
  include_diagonal: bool = True,
  z_clip: Real[ArrayLike, ""] | None = 1e-6,
  where: Bool[ArrayLike, " classes"] | None = None,
) -> Float[Array, ""]:
  """Largest mean correlation: that of distances without ties in perfect order.

      r_c = Spearman's correlation of column c with itself, its ties broken

  How the ties are broken makes no difference. The ceiling is 1 only without ties.

  Args:
    class_distances: [classes, classes], such as `hierarchy.path_distances`.
    include_diagonal: as in `mean_correlation`. Static.
    z_clip: as in `mean_correlation`.
    where: [classes], boolean, True keeps. None keeps all.

  Returns:
    Scalar in the default type; NaN where every column is constant.

  Raises:
    TypeError: where not boolean, include_diagonal not boolean.
    ValueError: shapes do not match, or a static z_clip outside [0, 1].

  Differentiable in: nothing. Cost: O(classes^2 log classes).

  Source: none; the proxies that DIST IV builds from its trees reach it.

  Example:
    >>> given = jnp.array([[0, 1, 2], [1, 0, 2], [2, 2, 0]])
    >>> spherejax.metrics.mean_correlation_ceiling(given)
    Array(0.99994713, dtype=float32)
  """
  _checks.flag("include_diagonal", include_diagonal)
  target = _checks.array("class_distances", class_distances, "real")
  target = target.astype(jnp.result_type(float))
  _, target, mask = _matrices(
    target, target, include_diagonal, where, "class_distances"
  )
  untied = _untied(target, mask)
  return _correlate(untied, target, mask, _clip(z_clip), dtype=target.dtype).mean


def distance_correlation(
  inputs: Float[ArrayLike, "n dim"],
  features: Float[ArrayLike, "n channels"],
  *,
  norm: Norm = "l2",
  include_diagonal: bool = True,
  z_clip: Real[ArrayLike, ""] | None = 1e-6,
  rows: Integer[ArrayLike, " rows"] | None = None,
  where: Bool[ArrayLike, " n"] | None = None,
  block_size: int = 16,
) -> MeanCorrelation:
  """Mean rank correlation of the distances between inputs and between features.

      r_i = Spearman's correlation over j of ||x_i - x_j|| and |f_i - f_j|
      mean = tanh(1/n sum_i artanh(r_i))

  Equals `mean_correlation` of the two matrices of distances, without forming them.
  Euclidean distances come from matrix products: move points that are far from the
  origin, such as by their mean, or rounding changes their order.

  Args:
    inputs: [n, dim], floating. For l-infinity give 8-bit images as 0 to 255: for
      fractions, rounding breaks the many exact ties.
    features: [n, channels], floating, not normalised in the paper.
    norm: of the inputs' distances: "linf", "l2" or "l1"; those of features are
      Euclidean. Static.
    include_diagonal: True includes each point's distance 0 from itself. Static.
    z_clip: as in `mean_correlation`.
    rows: [rows], integer, the points that are compared with all points; None takes all.
      The standard error of a subset's mean artanh is std(artanh(r)) / sqrt(rows).
    where: [n], boolean, True keeps. None keeps all. Masked points may be NaN.
    block_size: static. Rows at once; memory is a few times block_size x n.

  Returns:
    MeanCorrelation(mean, correlations [rows], counted [rows]), dtype of `features`;
    points count as classes do in `mean_correlation`.

  Raises:
    TypeError: inputs or features not floating, rows not integers, where not boolean,
      include_diagonal not boolean.
    ValueError: shapes do not match, an unknown norm, a known row out of range, or a
      static z_clip outside [0, 1].

  Differentiable in: nothing. Cost: O(rows n (dim + channels + log n)).

  Source: DIST 5.1 and tables 5.1, 5.2. Differs from the article in the clipping.

  Example:
    >>> x = jnp.array([[0.0], [1.0], [3.0], [9.0]])
    >>> spherejax.metrics.distance_correlation(x, 2 - x).correlations
    Array([1., 1., 1., 1.], dtype=float32)
  """
  _checks.flag("include_diagonal", include_diagonal)
  inputs = _checks.array("inputs", inputs)
  features = _checks.array("features", features)
  for name, array in (("inputs", inputs), ("features", features)):
    _checks.expect(name, array, "floating", rank=2)
  number = len(features)
  _checks.shape("inputs", inputs, (number, inputs.shape[1]), "the features")
  mask = _checks.where_mask(where, (number,))
  chosen = jnp.arange(number) if rows is None else _checks.integers("rows", rows)
  _checks.expect("rows", chosen, "integer", rank=1)
  _checks.known_labels(chosen, number, name="rows")
  _checks.count("block_size", block_size)
  inputs, wide = (
    jnp.where(mask[:, None], _numerics.upcast(x), 0) for x in (inputs, features)
  )
  # A correlation does not depend on the units, but squares overflow or vanish.
  inputs, wide = inputs / _numerics.unit(inputs), wide / _numerics.unit(wide)

  def block(indices: Array) -> tuple[Array, Array]:
    target = (
      distances.pairwise_squared_euclidean(inputs, inputs[indices])
      if norm == "l2"
      else distances.pairwise_lp(inputs[indices], inputs, norm=norm).T
    )
    learned = distances.pairwise_squared_euclidean(wide, wide[indices])
    is_self = jnp.arange(number)[:, None] == indices[None]
    entries = mask[:, None] & mask[indices][None]
    entries &= include_diagonal | ~is_self
    # A point is at distance 0 from itself, whatever the products round to.
    target, learned = (
      jnp.where(is_self, 0, d).astype(wide.dtype) for d in (target, learned)
    )
    return _by_column(learned, target, entries)

  blocks = -(-len(chosen) // block_size)
  padded = jnp.pad(chosen, (0, blocks * block_size - len(chosen)))
  results = jax.lax.map(block, padded.reshape(blocks, block_size))
  r, counted = (array.reshape(-1)[: len(chosen)] for array in results)
  return _average(r, counted, _clip(z_clip), features.dtype)


@jax.jit
def _untied(values: Array, mask: Array) -> Array:
  """Ranks of the kept entries in their columns, ties broken by index."""
  keys = jnp.where(mask, values, jnp.inf)
  return jnp.argsort(jnp.argsort(keys, axis=0), axis=0).astype(values.dtype)


def _matrices(
  distances: ArrayLike,
  class_distances: ArrayLike,
  include_diagonal: bool,
  where: ArrayLike | None,
  name: str,
) -> tuple[Array, Array, Array]:
  """Distances of both kinds, and a mask of the entries that count."""
  learned = _checks.array(name, distances, "floating", rank=2)
  size = len(learned)
  _checks.shape(name, learned, (size, size), "its rows")
  target = _checks.array("class_distances", class_distances, "real")
  _checks.shape("class_distances", target, learned.shape, name)
  rows = _checks.where_mask(where, (size,))
  mask = rows[:, None] & rows[None]
  if not include_diagonal:
    mask &= ~jnp.eye(size, dtype=bool)
  wide = _numerics.upcast(learned)
  return wide, target.astype(wide.dtype), mask


def _ranks(values: Array, mask: Array) -> Array:
  """[rows, columns], average ranks among the kept entries of a column, centred."""
  # Masked entries sort last, so that searching finds kept entries only.
  keys = jnp.sort(jnp.where(mask, values, jnp.inf), axis=0)

  def of_column(ordered: Array, column: Array) -> Array:
    before = jnp.searchsorted(ordered, column, side="left")
    until = jnp.searchsorted(ordered, column, side="right")
    return (before + until).astype(column.dtype) / 2

  ranks = jax.vmap(of_column, 1, 1)(keys, values)
  number = jnp.sum(mask, axis=0, dtype=jnp.int32).astype(values.dtype)
  return jnp.where(mask, ranks - number[None] / 2, 0)


@functools.partial(jax.jit, static_argnames=("dtype",))
def _correlate(
  learned: Array, target: Array, mask: Array, clip: ArrayLike, *, dtype: jnp.dtype
) -> MeanCorrelation:
  return _average(*_by_column(learned, target, mask), clip, dtype)


def _by_column(learned: Array, target: Array, mask: Array) -> tuple[Array, Array]:
  """Rank correlation of each column, and whether it counts."""
  finite = jnp.all(jnp.where(mask, jnp.isfinite(learned + target), True), axis=0)
  first, second = _ranks(learned, mask), _ranks(target, mask)
  product, left, right = (
    jnp.sum(a * b, axis=0)
    for a, b in ((first, second), (first, first), (second, second))
  )
  counted = finite & (left > 0) & (right > 0)
  # In this order equal ranks give exactly 1 and reversed ranks exactly -1.
  r = _numerics.divide(product, left) * jnp.sqrt(_numerics.divide(left, right))
  return jnp.clip(r, -1, 1), counted


def _clip(z_clip: ArrayLike | None) -> ArrayLike:
  if z_clip is None:
    return 0.0
  _checks.between("z_clip", z_clip, 0, 1)
  return z_clip


def _average(
  r: Array, counted: Array, clip: ArrayLike, dtype: jnp.dtype
) -> MeanCorrelation:
  clip = _checks.scalar("z_clip", clip, r.dtype)
  angles = jnp.arctanh(jnp.clip(r, clip - 1, 1 - clip))
  total = _numerics.masked_sum(angles, counted)
  number = jnp.sum(counted, dtype=jnp.int32)
  mean = jnp.tanh(total / jnp.maximum(number, 1).astype(total.dtype))
  return MeanCorrelation(
    jnp.where(number > 0, mean, jnp.nan).astype(dtype),
    jnp.where(counted, r, jnp.nan).astype(dtype),
    counted,
  )
