"""Random miners: each row of a batch has its own key, whatever block it is in."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Integer, Key, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _mining, _positives, _selection
from spherejax.losses._batch import Measure

Fallback = Literal["skip", "uniform"]


def mine_distance_weighted(
  matrix: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  key: Key[ArrayLike, ""],
  dim: int,
  cutoff: Real[ArrayLike, ""] = 0.5,
  limit: Real[ArrayLike, ""] = 1.4,
  fallback: Fallback = "skip",
  of: Measure = "distance",
  rows: Integer[ArrayLike, " queries"] | None = None,
) -> tuple[_selection.Selected, _selection.Selected]:
  """Draws a negative for every positive of an anchor, evenly over the distances.

  Most pairs on a sphere are about sqrt(2) apart; each negative is drawn with a
  probability inverse to the density of its distance.

      q(D) = D^(dim - 2) (1 - D^2 / 4)^((dim - 3) / 2)
      P(n | i) = 1 / q(max(D_in, cutoff)) / sum,   n negative, D_in < limit

  Args:
    matrix: [queries, references], floating; of unit vectors.
    positives: [queries, references], boolean, or weights (which do not count here).
    negatives: [queries, references], boolean, or weights (which do not count here).
    key: a typed key.
    dim: length of the embeddings, at least 2. Static.
    cutoff: distance below which all negatives are equally likely, in (0, limit); may
      be traced.
    limit: distance from which negatives are never drawn, in (0, 2); may be traced.
    fallback: treatment of an anchor whose negatives are all beyond the limit: "skip"
      keeps none of its pairs, "uniform" draws among all of its negatives. Static.
    of: what the matrix holds: "distance", "squared_distance" or "similarity". Static;
      a loss that mines sets it.
    rows: [queries], integer: which rows of the batch these are; the draws of a row
      depend on the key and on this number. None takes 0, 1, ... A loss that mines sets
      it.

  Returns:
    The kept part of `positives`, and how often each negative was drawn, floating.

  Raises:
    TypeError: the matrix is not floating, a mask neither boolean nor floating.
    ValueError: shapes do not match, dim is below 2, an unknown `fallback` or `of`, or
      a static `limit` or `cutoff` out of range.

  Not differentiated. Cost: O(queries references) for each positive of a query. The
  weights are normalised row by row in the log domain, so that no row underflows.

  Source: Wu et al. 2017, "Sampling matters in deep embedding learning", section 4.

  Example:
    >>> same = jnp.array([[True, True, False, False]])
    >>> d = jnp.array([[0.1, 0.4, 0.5, 1.4]])
    >>> key = jax.random.key(0)
    >>> spherejax.losses.mine_distance_weighted(d, same, ~same, key=key, dim=8)[1]
    Array([[0., 0., 2., 0.]], dtype=float32)
  """
  _checks.one_of("fallback", fallback, Fallback)
  _checks.count("dim", dim, 2)
  _checks.one_of("of", of, Measure)
  _checks.between("limit", limit, 0, 2, low_open=True, high_open=True)
  for most in (limit, 2):  # the first may be traced
    _checks.between("cutoff", cutoff, 0, most, low_open=True, high_open=True)
  block, _ = _batch.matrix(matrix, positives, negatives, None, "matrix")
  dtype = block.values.dtype
  d, limit, cutoff = jax.lax.stop_gradient(
    (
      _numerics.sqrt(_mining.squared_distances(block.values, of)),
      _checks.scalar("limit", limit, dtype),
      _checks.scalar("cutoff", cutoff, dtype),
    )
  )
  near, far = map(_selection.chosen, (block.positives, block.negatives))
  eligible = far & (d < limit)
  clipped = jnp.maximum(d, cutoff)
  flatness = jnp.where(eligible, 1 - clipped**2 / 4, 1)
  clipped = jnp.where(eligible, clipped, 1)
  log_weights = (2 - dim) * jnp.log(clipped) - (dim - 3) / 2 * jnp.log(flatness)
  if fallback == "uniform":
    none = ~jnp.any(eligible, axis=1, keepdims=True)
    eligible |= far & none
    log_weights = jnp.where(none, 0, log_weights)
  eligible_rows = jnp.any(eligible, axis=1, keepdims=True)
  highest = jnp.max(jnp.where(eligible, log_weights, -jnp.inf), 1, keepdims=True)
  weights = jnp.where(eligible, jnp.exp(log_weights - highest), 0)
  keys = _row_keys(key, rows, len(d))
  drawn = _draw(weights, eligible, near & eligible_rows, keys)
  return _selection.part(block.positives, eligible_rows), drawn


def _row_keys(key: ArrayLike, rows: ArrayLike | None, count: int) -> Array:
  """[count], a key of its own for each row."""
  _checks.key("key", key)
  index = jnp.arange(count) if rows is None else _checks.integers("rows", rows)
  _checks.expect("rows", index, "integer")
  _checks.shape("rows", index, (count,), "the rows of the matrix")
  return _numerics.row_keys(key, index)


def _draw(weights: Array, eligible: Array, draws: Array, keys: Array) -> Array:
  """Number of draws of each column, with one draw for every True of `draws`."""
  dtype = weights.dtype
  # Only eligible columns may step up, however the sums are rounded.
  steps = jax.lax.cummax(
    jnp.where(eligible, jnp.cumsum(weights, axis=1), 0), axis=weights.ndim - 1
  )
  total = steps[:, -1]
  below_total = jnp.nextafter(total, jnp.zeros_like(total))

  def step(state: tuple[Array, Array], index: Array) -> tuple[Array, Array]:
    number, counts = state
    fresh = jax.vmap(jax.random.fold_in, (0, None))(keys, number)
    uniform = jax.vmap(lambda key: jax.random.uniform(key, (), dtype))(fresh)
    point = jnp.minimum(uniform * total, below_total)
    column = jnp.sum(steps <= point[:, None], axis=1, dtype=jnp.int32)
    column = jnp.where(_positives.exists(index, steps), column, steps.shape[1])
    row = jnp.arange(len(column))
    return number + 1, counts.at[row, column].add(1, mode="drop", unique_indices=True)

  state = jnp.zeros((), jnp.int32), jnp.zeros_like(weights)
  state = _numerics.varying(state, steps, keys)
  return _positives.fold(step, state, draws)[1]


def mine_uniform_histogram(
  matrix: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  key: Key[ArrayLike, ""],
  bins: int = 100,
  positives_per_bin: int = 10,
  negatives_per_bin: int = 10,
  rows: Integer[ArrayLike, " queries"] | None = None,
) -> tuple[_selection.Selected, _selection.Selected]:
  """Draws pairs of every anchor evenly over the range of their distances.

  The range of the positives, and that of the negatives, is cut into equal bins, the
  last of them closed; from each bin that holds a pair, a fixed number is drawn with
  replacement.

  Args:
    matrix: [queries, references], floating; distances or similarities.
    positives: [queries, references], boolean, or weights (which do not count here).
    negatives: [queries, references], boolean, or weights (which do not count here).
    key: a typed key.
    bins: number of bins of each range. Static.
    positives_per_bin: positives drawn from each bin. Static.
    negatives_per_bin: negatives drawn from each bin. Static.
    rows: [queries], integer: which rows of the batch these are; the draws of a row
      depend on the key and on this number. None takes 0, 1, ... A loss that mines sets
      it.

  Returns:
    How often each positive and each negative was drawn, [queries, references] each.

  Raises:
    TypeError: the matrix is not floating, a mask neither boolean nor floating, or a
      number not a static integer.
    ValueError: shapes do not match, or a number below 1.

  Not differentiated. Cost: O(queries references log references).

  Source: Musgrave et al. 2020, "PyTorch metric learning". Differs from that library:
  the ranges are those of each anchor, not of the batch, so blocks of rows and several
  devices give the same result.

  Example:
    >>> same = jnp.array([[True, True, False, False]])
    >>> d = jnp.array([[0.1, 0.4, 0.5, 1.4]])
    >>> key = jax.random.key(0)
    >>> spherejax.losses.mine_uniform_histogram(d, same, ~same, key=key, bins=2)[0]
    Array([[10., 10.,  0.,  0.]], dtype=float32)
  """
  for name, number in (
    ("bins", bins),
    ("positives_per_bin", positives_per_bin),
    ("negatives_per_bin", negatives_per_bin),
  ):
    _checks.count(name, number)
  block, _ = _batch.matrix(matrix, positives, negatives, None, "matrix")
  shape = (bins, positives_per_bin + negatives_per_bin)
  keys = _row_keys(key, rows, len(block.values))
  dtype = block.values.dtype
  uniform = jax.vmap(lambda key: jax.random.uniform(key, shape, dtype))(keys)

  def drawn(selection: Array, points: Array) -> Array:
    return jax.vmap(_from_bins)(block.values, _selection.chosen(selection), points)

  return (
    drawn(block.positives, uniform[..., :positives_per_bin]),
    drawn(block.negatives, uniform[..., positives_per_bin:]),
  )


def _from_bins(values: Array, chosen: Array, uniform: Array) -> Array:
  """[references]: draws from the bins of one row; `uniform` is [bins, draws]."""
  bins = uniform.shape[0]
  low = jnp.min(jnp.where(chosen, values, jnp.inf))
  high = jnp.max(jnp.where(chosen, values, -jnp.inf))
  place = jnp.floor(_numerics.divide(values - low, high - low) * bins)
  place = jnp.where(chosen, jnp.minimum(place, bins - 1), bins).astype(jnp.int32)
  order = jnp.argsort(place)
  # The members of a bin lie side by side.
  edges = jnp.searchsorted(place[order], jnp.arange(bins + 1))
  first, size = edges[:-1, None], jnp.diff(edges)[:, None]
  member = jnp.minimum((uniform * size).astype(jnp.int32), size - 1)
  column = jnp.where(size > 0, order[first + member], values.shape[0])
  counts = jnp.zeros(values.shape, jnp.int32).at[column.ravel()].add(1, mode="drop")
  return counts.astype(values.dtype)
