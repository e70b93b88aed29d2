"""k-means clusters: k-means++ seeding, then Lloyd's steps until nothing moves."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Key

from spherejax import _checks, _compiled, _numerics
from spherejax.distances import _split


class KMeansResult(NamedTuple):
  """Result of `k_means`."""

  centres: Float[Array, "k dim"]
  """Means of the clusters; for an empty cluster, the centre that was drawn."""
  assignment: Int[Array, " n"]
  """Cluster of each point; -1 where masked."""
  inertia: Float[Array, ""]
  """Sum of the squared distances of the points from the means of their clusters."""
  steps: Int[Array, ""]
  """Number of steps."""
  converged: Bool[Array, ""]
  """True if the last step left every point in its cluster."""


def k_means(
  points: Float[ArrayLike, "n dim"],
  k: int,
  *,
  key: Key[ArrayLike, ""],
  where: Bool[ArrayLike, " n"] | None = None,
  max_steps: int = 100,
  block_size: int = 1024,
) -> KMeansResult:
  """Clusters points around means, by k-means++ and Lloyd's iteration.

      min  sum_i |x_i - mu_{a_i}|^2

  The first centre is a random point. Each further centre is a point drawn with
  probability proportional to its squared distance from the nearest centre so far. Then
  every point goes to its nearest centre, as exactly as in `metrics.nearest`, and
  centres move to the means, until no point changes its cluster. An empty cluster takes
  the point that is farthest from the mean of its cluster. It stays empty where all
  points lie on their means, as with fewer different points than clusters.

  Args:
    points: [n, dim], floating; normalise them first for cosine distances. Their rows
      may be split over devices by a `jax.NamedSharding` of a mesh with automatic axes;
      each device keeps its own rows. The means are then summed in another order. A
      memory-mapped file is read as a whole.
    k: static. Number of clusters, at least 1.
    key: a typed key for the first centres.
    where: [n], boolean, True keeps. None keeps all.
    max_steps: static, at least 1.
    block_size: static. Points compared with all centres at once.

  Returns:
    KMeansResult(centres, assignment, inertia, steps, converged), dtype of `points`.
    The inertia is NaN if a kept point is.

  Raises:
    TypeError: points not floating, where not boolean, k or max_steps not static
      integers.
    ValueError: shapes do not match, no point, a number below 1, or points that are
      split over two axes of devices, or along their columns.

  Differentiable in: nothing. Cost: O(n k dim) time a step, block_size x k memory.

  Source: Lloyd 1982, "Least squares quantization in PCM"; Arthur, Vassilvitskii 2007,
  "k-means++: the advantages of careful seeding".

  Example:
    >>> points = jnp.array([[0.0], [1.0], [10.0], [11.0]])
    >>> result = spherejax.solvers.k_means(points, 2, key=jax.random.key(0))
    >>> jnp.sort(result.centres[:, 0]), result.inertia
    (Array([ 0.5, 10.5], dtype=float32), Array(1., dtype=float32))
  """
  sharding = _compiled.peek(_split.over, "points", points)
  points = _checks.array("points", points, "floating", rank=2, empty=False)
  _checks.count("k", k)
  _checks.key("key", key)
  _checks.count("max_steps", max_steps)
  _checks.count("block_size", block_size)
  mask = _checks.where_mask(where, points.shape[:1])
  wide = jax.lax.stop_gradient(_numerics.upcast(points))
  result = _cluster(
    jnp.where(mask[:, None], wide, 0), mask, key, k, max_steps, block_size, sharding
  )
  return result._replace(
    centres=result.centres.astype(points.dtype),
    inertia=result.inertia.astype(points.dtype),
  )


@functools.partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _cluster(
  points: Array,
  mask: Array,
  key: Array,
  k: int,
  max_steps: int,
  block_size: int,
  sharding: jax.NamedSharding | None,
) -> KMeansResult:
  shrink = _numerics.shrinking(points)
  points = points * shrink
  # Relative to one of the points, so that points far from the origin keep their digits.
  origin = _row(points, jnp.argmax(mask))
  points = jnp.where(mask[:, None], points - origin[None], 0)
  grow = _numerics.shrinking(points, grow=True)
  points = points * grow

  def nearest(centres: Array) -> Array:
    closest = _split.closest(points, centres, sharding=sharding, block_size=block_size)
    return jnp.where(mask, closest, -1)

  def step(state: tuple[Array, Array, Array, Array]):
    centres, before, _, steps = state
    assignment = _without_empty(points, mask, nearest(centres), k)
    moved = jnp.any(assignment != before)
    return _means(points, assignment, centres), assignment, moved, steps + 1

  start = (
    _drawn(points, mask, key, k),
    jnp.full(len(points), -1, jnp.int32),
    jnp.bool_(True),
    jnp.int32(0),
  )
  start = _numerics.varying(start, points, mask)
  centres, assignment, moved, steps = jax.lax.while_loop(
    lambda state: state[2] & (state[3] < max_steps), step, start
  )
  inertia = jnp.sum(_squares_from_own(points, mask, assignment, centres))
  centres = (centres / grow + origin[None]) / shrink
  back = 1 / (grow * shrink)
  inertia = inertia * back * back
  return KMeansResult(centres, assignment, inertia, steps, ~moved)


def _row(points: Array, index: Array) -> Array:
  """Gathers a row: a slice of split points would bring all of them to every device."""
  return points[index[None]][0]


def _drawn(points: Array, mask: Array, key: Array, k: int) -> Array:
  """Draws the first centres."""

  def draw(key: Array, weights: Array) -> Array:
    # Where all points are centres, any point is drawn.
    weights = jnp.where(jnp.any(weights > 0), weights, mask.astype(points.dtype))
    reached = jnp.cumsum(weights)
    level = jax.random.uniform(key, dtype=points.dtype) * reached[-1]
    index = jnp.searchsorted(reached, level, side="right")
    return _row(points, jnp.minimum(index, len(points) - 1))

  def add(number: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
    centres, nearest = state
    weights = jnp.where(mask, jnp.where(number > 0, nearest, 1), 0)
    centre = draw(jax.random.fold_in(key, number), weights)
    squares = jnp.sum((points - centre[None]) ** 2, axis=1)
    return centres.at[number].set(centre), jnp.minimum(nearest, squares)

  start = (
    jnp.zeros((k, points.shape[1]), points.dtype),
    jnp.full(len(points), jnp.inf, points.dtype),
  )
  return jax.lax.fori_loop(0, k, add, _numerics.varying(start, points, mask, key))[0]


def _means(points: Array, assignment: Array, centres: Array) -> Array:
  """Means of the clusters; an empty cluster keeps its centre."""
  k = len(centres)
  cluster = jnp.where(assignment < 0, k, assignment)
  sizes = jax.ops.segment_sum(jnp.ones_like(points[:, 0]), cluster, k)[:, None]
  # Relative to the centre, so that points far from the origin keep their digits.
  differences = points - centres[jnp.minimum(cluster, k - 1)]
  sums = jax.ops.segment_sum(differences, cluster, k)
  return centres + sums / jnp.maximum(sizes, 1)


def _squares_from_own(
  points: Array, mask: Array, assignment: Array, centres: Array
) -> Array:
  differences = points - centres[jnp.maximum(assignment, 0)]
  return jnp.where(mask, jnp.sum(differences**2, axis=1), 0)


def _without_empty(points: Array, mask: Array, assignment: Array, k: int) -> Array:
  """Gives each empty cluster, lowest first, the point farthest from its own mean."""
  number = jnp.arange(len(points))

  def sizes(assignment: Array) -> Array:
    cluster = jnp.where(assignment < 0, k, assignment)
    return jax.ops.segment_sum(jnp.ones_like(cluster), cluster, k)

  def farthest(assignment: Array) -> tuple[Array, Array]:
    zero = jnp.zeros((k, points.shape[1]), points.dtype)
    means = _means(points, assignment, _means(points, assignment, zero))
    # A single point is its own mean, however the mean rounds.
    alone = sizes(assignment)[jnp.maximum(assignment, 0)] < 2
    squares = _squares_from_own(points, mask & ~alone, assignment, means)
    index = jnp.argmax(squares)
    return index, jnp.max(squares)

  def give(state: tuple[Array, Array]) -> tuple[Array, Array]:
    assignment, _ = state
    index, square = farthest(assignment)
    empty = jnp.argmin(sizes(assignment)).astype(jnp.int32)
    moves = (number == index) & (square > 0)
    return jnp.where(moves, empty, assignment), square > 0

  return jax.lax.while_loop(
    lambda state: state[1] & jnp.any(sizes(state[0]) == 0),
    give,
    _numerics.varying((assignment, jnp.bool_(True)), points, mask),
  )[0]
