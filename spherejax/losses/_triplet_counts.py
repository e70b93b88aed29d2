"""Counts the triplets that each pair belongs to, without forming triplets."""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

from spherejax import _numerics
from spherejax.losses import _batch, _extremes, _positives, _selection

Kind = Literal["all", "hard", "semihard", "easy"]
NEAREST = ("semihard_one", "semihard_one or easiest")

# Up to this number of positives in a row, a pass over the matrix for each is faster
# than sorting the rows; the counts are the same. Measured with 128 to 1,776 references.
_FEW, _FEW_ON_CPU = 24, 96


def count_triplets(
  values: Array,
  margin: Array,
  positives: Array,
  negatives: Array,
  kind: str,
  strict: bool,
) -> tuple[Array, Array]:
  """[rows, references] each: triplets of each positive, and of each negative.

  A triplet counts if `is_counted`. With weights it counts as much as the product of
  its two weights.

  Args:
    values: [rows, references], distances; not differentiated.
    margin: scalar.
    positives: [rows, references], boolean or weights.
    negatives: [rows, references], boolean or weights.
    kind: a `Kind`, one of `NEAREST`, or "violating". Static.
    strict: whether triplets on and beyond the margin do not count. Static.
  """
  values, margin = map(jax.lax.stop_gradient, (values, margin))
  arguments = values, values + margin, positives, negatives
  by_loop, by_sort = (
    functools.partial(count, kind=kind, strict=strict) for count in (_by_loop, _by_sort)
  )
  weighted = positives.dtype != jnp.bool_ or negatives.dtype != jnp.bool_
  if weighted or kind in NEAREST:
    return by_loop(*arguments)
  most = jnp.max(jnp.sum(positives, axis=1, dtype=jnp.int32), initial=0)
  few = jax.lax.platform_dependent(cpu=lambda: _FEW_ON_CPU, default=lambda: _FEW)
  return _numerics.either(most <= few, by_loop, by_sort, *arguments)


def is_counted(
  values: Array, near: Array, limit: Array, negatives: Array, kind: str, strict: bool
) -> Array:
  """Mask of the negatives, at `values`, that form a triplet with a positive at `near`.

  "all" and "violating" are those with values < limit (`strict`) or values <= limit; for
  "hard" also values <= near, for "semihard" values > near. "easy" are the others,
  values > limit. "semihard_one" is the smallest of values > near, `strict` only if it
  is below the limit. Where no value is above near, "semihard_one" takes none and
  "semihard_one or easiest" the largest. NaN counts.

  Args:
    values: [rows, references], distances of negatives.
    near: [rows, 1], distance of the positive.
    limit: [rows, 1], `near` plus the margin.
    negatives: [rows, references], boolean.
    kind: a `Kind`, one of `NEAREST`, or "violating".
    strict: see above.
  """
  # Written with the opposite of every comparison, so that NaN counts.
  inside = ~(values >= limit) if strict else ~(values > limit)
  if kind in NEAREST:
    nearest = _extremes.where_smallest(values, negatives & ~(values <= near))
    if kind == "semihard_one or easiest":
      easiest = _extremes.where_largest(values, negatives)
      nearest = jnp.where(nearest < values.shape[1], nearest, easiest)
    chosen = _extremes.one_hot(nearest, values.shape[1])
    return chosen & inside if strict else chosen
  if kind == "easy":
    return negatives & ~(values <= limit)
  if kind == "hard":
    return negatives & inside & ~(values > near)
  return (
    negatives & inside & ~(values <= near)
    if kind == "semihard"
    else (negatives & inside)
  )


def _by_loop(
  values: Array,
  limits: Array,
  positives: Array,
  negatives: Array,
  kind: str,
  strict: bool,
) -> tuple[Array, Array]:
  dtype = values.dtype
  chosen, eligible = _selection.chosen(positives), _selection.chosen(negatives)
  weighted = positives.dtype != jnp.bool_ or negatives.dtype != jnp.bool_
  weights = negatives.astype(dtype)

  def step(sums: tuple[Array, Array], index: Array) -> tuple[Array, Array]:
    near, limit = (_positives.pick(x, index) for x in (values, limits))
    counted = is_counted(values, near, limit, eligible, kind, strict)
    counted &= _positives.exists(index, values)[:, None]
    if not weighted:
      number = jnp.sum(counted, axis=1, dtype=jnp.int32).astype(dtype)
      return _added(sums, index, number, counted.astype(dtype))
    weight = _positives.pick(positives.astype(dtype), index)
    terms = jnp.where(counted, weight * weights, 0)
    return _added(sums, index, jnp.sum(terms, axis=1), terms)

  start = _numerics.varying((jnp.zeros_like(values),) * 2, limits, negatives)
  return _positives.fold(step, start, chosen)


def _added(
  sums: tuple[Array, Array], index: Array, of_positive: Array, of_negatives: Array
) -> tuple[Array, Array]:
  """Adds the triplets of one positive of each row to the sums."""
  pulled, pushed = sums
  rows = jnp.arange(len(index))
  return (
    pulled.at[rows, index].set(of_positive, mode="drop", unique_indices=True),
    pushed + of_negatives,
  )


def _by_sort(
  values: Array,
  limits: Array,
  positives: Array,
  negatives: Array,
  kind: str,
  strict: bool,
) -> tuple[Array, Array]:
  # NaN counts: as the nearest negative, and as the farthest limit.
  far = jnp.where(jnp.isnan(values), -jnp.inf, values)

  def counts(limits: Array, equal: bool) -> Array:
    """[2, rows, references]: negatives within each limit, limits beyond a negative."""
    # The limits are negated, so that one sort and one search do both.
    beyond = jnp.where(jnp.isnan(limits), -jnp.inf, -limits)
    ordered = jnp.sort(
      jnp.stack(
        [jnp.where(negatives, far, jnp.inf), jnp.where(positives, beyond, jnp.inf)]
      )
    )
    search = functools.partial(jnp.searchsorted, side="right" if equal else "left")
    numbers = jax.vmap(jax.vmap(search))(ordered, jnp.stack([limits, -far]))
    return jnp.where(jnp.stack([positives, negatives]), numbers, 0)

  inside, within = counts(limits, not strict)
  if kind == "easy":
    available = jnp.sum(negatives, axis=1, keepdims=True, dtype=jnp.int32)
    present = jnp.sum(positives, axis=1, keepdims=True, dtype=jnp.int32)
    inside = jnp.where(positives, available - inside, 0)
    within = jnp.where(negatives, present - within, 0)
  if kind in ("hard", "semihard"):
    nearer, beyond = counts(values, True)
    hard, hard_within = jnp.minimum(inside, nearer), jnp.minimum(within, beyond)
    if kind == "hard":
      inside, within = hard, hard_within
    else:
      inside, within = inside - hard, within - hard_within
  return inside.astype(values.dtype), within.astype(values.dtype)


def count_wide(
  squares: Array,
  from_each: Callable[[Array], Array],
  tangent: Array,
  block: _batch.Block,
) -> tuple[Array, Array]:
  """Triplets of each pair that open an angle: |a - p| > 2 tangent |n - (a + p) / 2|.

  Args:
    squares: [rows, references], squared distances.
    from_each: maps references [rows] to squared distances from them, [rows,
      references].
    tangent: scalar.
    block: which pairs count.
  """
  chosen, eligible = map(_selection.chosen, (block.positives, block.negatives))

  def step(sums: tuple[Array, Array], index: Array) -> tuple[Array, Array]:
    near = _positives.pick(squares, index)
    to_positive = from_each(jnp.minimum(index, squares.shape[1] - 1))
    to_middle = (squares + to_positive) / 2 - near / 4
    wide = near > 4 * tangent**2 * jnp.maximum(to_middle, 0)
    wide &= eligible & _positives.exists(index, squares)[:, None]
    number = jnp.sum(wide, axis=1, dtype=jnp.int32).astype(squares.dtype)
    return _added(sums, index, number, wide.astype(squares.dtype))

  first = from_each(jnp.zeros(len(squares), jnp.int32))
  start = _numerics.varying((jnp.zeros_like(squares),) * 2, first, tangent, eligible)
  return _positives.fold(step, start, chosen)
