"""Measures how well points cover each class, and chooses points that cover better."""

from typing import Literal

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer

from spherejax import _checks, _numerics, distances
from spherejax.prototypes import _fixed

Space = Literal["raw", "unit_ball"]


def renew_proxies(
  pools: Float[ArrayLike, "classes pool dim"],
  proxies: Float[ArrayLike, "classes old dim"],
  *,
  num_proxies: int | None = None,
  space: Space = "raw",
  where: Bool[ArrayLike, "classes pool"] | None = None,
) -> Float[Array, "classes num_proxies dim"]:
  """Chooses new proxies of each class from a pool, where the old ones cover it least.

  In each class the next new proxy is the pool's point farthest from all proxies, old
  and new (`greedy_k_centre`). Old proxies only keep new ones away.

  Args:
    pools: [classes, pool, dim], floating: embeddings of some images of each class
      (`data.class_pools`), before any normalisation.
    proxies: [classes, old, dim], floating: the converged proxies. With one row of zeros
      per class, the longest embeddings are picked first.
    num_proxies: static, at most the pool. None takes as many as there are old proxies.
    space: static. Space of the distances: "raw" as in the paper's code, or "unit_ball"
      as in its losses (`distances.unit_ball`). The chosen proxies stay raw.
    where: [classes, pool], boolean, True keeps; masked points may be NaN and are
      chosen when no other is left. None keeps all.

  Returns:
    [classes, num_proxies, dim], dtype of `pools`, in the order of their choice; equal
    distances go to the first of the pool. A pool of `num_proxies` points is taken
    whole.

  Raises:
    TypeError: pools or proxies not floating, where not boolean.
    ValueError: shapes do not match, num_proxies above the pool, an unknown `space`.

  Not differentiable. Cost: O(classes pool (old + num_proxies) dim) time.

  Source: DML algorithm 2.

  Example:
    >>> pools = jnp.array([[[0.0], [1.0], [5.0], [6.0]]])
    >>> spherejax.prototypes.renew_proxies(pools, jnp.array([[[0.5], [4.0]]])).ravel()
    Array([6., 5.], dtype=float32)
  """
  pools = _checks.array("pools", pools, "floating", rank=3)
  proxies = _checks.array("proxies", proxies, "floating", rank=3)
  classes, pool, dim = pools.shape
  wanted = (classes, proxies.shape[1], dim)
  _checks.shape("proxies", proxies, wanted, "the pools")
  number = proxies.shape[1] if num_proxies is None else num_proxies
  _checks.count("num_proxies", number)
  if number > pool:
    raise ValueError(
      f"num_proxies must be at most the pool's {pool} points, got {number}"
    )
  mask = _checks.where_mask(where, (classes, pool))
  _checks.one_of("space", space, Space)
  inputs, centres = pools, proxies
  if space == "unit_ball":
    inputs, centres = map(distances.unit_ball, (pools, proxies))

  def of_class(points: Array, old: Array, where: Array) -> Array:
    return _fixed.greedy_k_centre(points, number, initial=old, where=where).indices

  rows = jax.vmap(of_class)(inputs, centres, mask)
  return jax.lax.stop_gradient(jnp.take_along_axis(pools, rows[..., None], axis=1))


def class_covering_radii(
  points: Float[ArrayLike, "n dim"],
  labels: Integer[ArrayLike, " n"],
  centres: Float[ArrayLike, "classes m dim"],
  *,
  where: Bool[ArrayLike, " n"] | None = None,
) -> Float[Array, " classes"]:
  """Covering radius of each class: largest distance of a point to its nearest centre.

      delta_c = max_{i: y_i = c} min_j |x_i - s_cj|

  The largest entry is the delta of the bounds on proxies. A small radius means that the
  centres represent the whole class.

  Args:
    points: [n, dim], floating.
    labels: [n], integer in [0, classes). A traced label out of range masks its row.
    centres: [classes, m, dim], floating, such as proxies.
    where: [n], boolean, True keeps; masked points may be NaN. None keeps all.

  Returns:
    [classes], dtype of `points`; 0 for a class without a point.

  Raises:
    TypeError: points or centres not floating, labels not integer.
    ValueError: shapes do not match, or a known label outside [0, classes).

  Differentiable in: points, centres; ties go to the first; derivative 0 at distance
  0. Cost: O(n m dim).

  Source: DML proposition 3.2.2 and corollary 3.2.2.1, read for each class; see errata.

  Example:
    >>> points, labels = jnp.array([[0.0], [1.0], [9.0]]), jnp.array([0, 0, 1])
    >>> centres = jnp.array([[[0.0]], [[5.0]]])
    >>> spherejax.prototypes.class_covering_radii(points, labels, centres)
    Array([1., 4.], dtype=float32)
  """
  points = _checks.array("points", points, "floating", rank=2)
  labels = _checks.integers("labels", labels)
  centres = _checks.array("centres", centres, "floating", rank=3)
  classes, number, dim = centres.shape
  _checks.shape("points", points, (len(points), dim), "the centres")
  _checks.labels(labels, points)
  mask = _checks.where_mask(where, (len(points),))
  mask &= _checks.inside(labels, classes, mask)
  rows = jnp.where(mask[:, None], _numerics.upcast(points), 0)
  known = _numerics.upcast(centres).astype(rows.dtype)
  power = _numerics.shrinking(rows, known, grow=True)
  rows, known = rows * power, known * power
  index = jnp.clip(labels, 0, classes - 1)

  def squares(j: Array) -> Array:
    # Computed by differences, so that a point that is a centre is at distance 0.
    return jnp.sum((rows - known[index, j]) ** 2, axis=1)

  def nearer(carry: tuple[Array, Array], j: Array) -> tuple[tuple[Array, Array], None]:
    least, chosen = carry
    squared = jax.lax.stop_gradient(squares(j))
    better = squared < least
    return (jnp.where(better, squared, least), jnp.where(better, j, chosen)), None

  start = jnp.full(len(rows), jnp.inf, rows.dtype), jnp.zeros(len(rows), jnp.int32)
  places = jnp.arange(number, dtype=jnp.int32)
  start = _numerics.varying(start, rows, index, known)
  (_, chosen), _ = jax.lax.scan(nearer, start, places)
  least = jnp.where(mask, squares(chosen), 0)
  lengths = jnp.where(mask, _numerics.sqrt(least) / power, 0)
  # The first of the farthest points of a class gets the whole derivative.
  size = jax.lax.stop_gradient(lengths)
  widest = jnp.zeros(classes, rows.dtype).at[index].max(size)
  farthest = mask & ((size == widest[index]) | jnp.isnan(size))
  row = jnp.where(farthest, jnp.arange(len(rows)), len(rows))
  first = jnp.full(classes, len(rows)).at[index].min(row)
  return lengths.at[first].get(mode="fill", fill_value=0).astype(points.dtype)


def covering_curve(
  points: Float[ArrayLike, "n dim"], *, where: Bool[ArrayLike, " n"] | None = None
) -> Float[Array, " n"]:
  """Covering radius of the first k greedily chosen points, for every k.

      r_k = max_i min_{s <= k} |x_i - x_{i_s}|,   i_1 = argmin_i max_j |x_i - x_j|

  Each further centre is the point farthest from the centres before it. The radius is at
  most twice the least that k of the points can reach; it is the least at k = 1 and k =
  n.

  Args:
    points: [n, dim], floating, at least one.
    where: [n], boolean, True keeps; masked points may be NaN. None keeps all.

  Returns:
    [n], dtype of `points`, non-increasing to 0; 0 from the number of kept points on.

  Raises:
    TypeError: points not floating, where not boolean.
    ValueError: shapes do not match, no point.

  Not differentiable. Cost: O(n^2 dim) time, O(n) memory beyond the points.

  Source: DML figure 3.3; the "minimum cover" there is NP-hard; the greedy cover is
  within a factor of 2 (Gonzalez 1985).

  Example:
    >>> points = jnp.array([[0.0], [1.0], [5.0], [6.0]])
    >>> spherejax.prototypes.covering_curve(points)
    Array([5., 1., 1., 0.], dtype=float32)
  """
  points = _checks.array("points", points, "floating", rank=2, empty=False)
  number = len(points)
  mask = _checks.where_mask(where, (number,))
  rows = jax.lax.stop_gradient(_numerics.upcast(points))
  rows = jnp.where(mask[:, None], rows, 0)
  power = _numerics.shrinking(rows, grow=True)
  rows = rows * power

  def radius(row: Array) -> Array:
    return jnp.max(jnp.where(mask, jnp.sum((rows - row[None]) ** 2, axis=1), 0))

  radii = jnp.where(mask, jax.lax.map(radius, rows), jnp.inf)
  first = jnp.argmin(radii)
  start = jnp.where(jnp.any(mask), jnp.sqrt(radii[first]), 0)[None]
  rest = start[:0]
  if number > 1:
    chosen = _fixed.greedy_k_centre(
      rows, number - 1, initial=rows[first][None], where=mask
    )
    rest = chosen.radii
  return (jnp.concatenate([start, rest]) / power).astype(points.dtype)


def mean_covering_radius(
  points: Float[ArrayLike, "n dim"], labels: Integer[ArrayLike, " n"]
) -> Float[Array, ""]:
  """Average covering radius of the classes, over all numbers of centres.

      mean over classes of (1 / n_c) sum_k r_k,   r the covering curve of the class

  The radius falls as the embeddings of a class move together. Its ratio to the mean
  distance of different classes (`metrics.mean_interclass_distance`) does not depend on
  the scale.

  Args:
    points: [n, dim], floating, may be traced.
    labels: [n], integer, not traced: they decide shapes.

  Returns:
    Scalar, dtype of `points`.

  Raises:
    TypeError: points not floating, labels not integer or traced.
    ValueError: shapes do not match, no point.

  Not differentiable. Cost: O(classes M^2 dim) time for classes of at most M points.

  Source: DML figure 3.3.

  Example:
    >>> points = jnp.array([[0.0], [2.0], [7.0]])
    >>> spherejax.prototypes.mean_covering_radius(points, jnp.array([0, 0, 1]))
    Array(0.5, dtype=float32)
  """
  points = _checks.array("points", points, "floating", rank=2, empty=False)
  names = _checks.host("labels", labels)  # they decide the shapes of the classes
  _checks.labels(names, points)
  _, index, counts = np.unique(names, return_inverse=True, return_counts=True)
  order = np.argsort(index, kind="stable")
  starts = np.cumsum(counts) - counts
  place = np.arange(counts.max())[None, :]
  mask = place < counts[:, None]
  table = order[np.where(mask, starts[:, None] + place, 0)]
  wide = _numerics.upcast(points)
  curves = _curves(wide[table], jnp.asarray(mask))
  means = jnp.sum(curves, axis=1) / counts.astype(wide.dtype)
  return jnp.mean(means).astype(points.dtype)


@jax.jit
def _curves(points: Array, where: Array) -> Array:
  return jax.lax.map(lambda row: covering_curve(row[0], where=row[1]), (points, where))


def proxy_spread(proxies: Float[ArrayLike, "classes m dim"]) -> Float[Array, ""]:
  """Mean distance between the proxies of a class, averaged over the classes.

      mean_c mean_{i < j} |p_ci - p_cj|

  During one long training the proxies of a class merge, and the spread falls towards 0.

  Args:
    proxies: [classes, m, dim], floating, m at least 2.

  Returns:
    Scalar, dtype of `proxies`.

  Raises:
    TypeError: proxies not floating.
    ValueError: fewer than two proxies per class, no class.

  Differentiable in: proxies; derivative 0 of a distance of 0.
  Cost: O(classes m^2 dim).

  Source: DML figure 3.2.

  Example:
    >>> spherejax.prototypes.proxy_spread(jnp.array([[[0.0], [2.0], [4.0]]]))
    Array(2.6666667, dtype=float32)
  """
  proxies = _checks.array("proxies", proxies, "floating", rank=3)
  classes, number, _ = proxies.shape
  if number < 2 or not classes:
    raise ValueError(
      f"proxies must have at least one class of two, got shape {proxies.shape}"
    )
  first, second = np.triu_indices(number, 1)
  rows = _numerics.upcast(proxies)
  lengths = _numerics.norm(rows[:, first] - rows[:, second])
  return jnp.mean(lengths).astype(proxies.dtype)
