"""Few-shot classification of queries, by a few supports of each class."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int, Integer

from spherejax import _checks, _numerics, distances

Representative = Literal["mean", "nearest"]
Transform = Literal["none", "l2", "centred_l2"]


def support_squared_distances(
  queries: Float[ArrayLike, "queries dim"],
  supports: Float[ArrayLike, "ways shots dim"],
  *,
  representative: Representative = "mean",
) -> Float[Array, "queries ways"]:
  """Squared distances of queries to classes, each given by its supports.

      "mean":     d_iy^2 = ||z_i - mean_k s_yk||^2
      "nearest":  d_iy^2 = min_k ||z_i - s_yk||^2

  With `losses.squared_distance_softmax` they make a prototypical network, with
  `losses.distance_ratio` its scale-free form. They are computed from differences, since
  the distance ratio depends on small distances, which matrix products lose.

  Args:
    queries: [queries, dim], floating.
    supports: [ways, shots, dim], floating.
    representative: "mean", or "nearest" (1-NN; the gradient goes to the nearest
      support, the first among equals). Static.

  Returns:
    [queries, ways], dtype of `queries`.

  Raises:
    TypeError: an array is not floating.
    ValueError: axes or widths do not match, no support, or an unknown representative.

  Differentiable in: queries, supports. Cost: O(queries ways dim), "nearest" times
  shots.

  Source: DIST II eq. 2 and appendix D; Snell et al. 2017, "Prototypical networks for
  few-shot learning".

  Example:
    >>> supports = jnp.array([[[0.0], [2.0]], [[5.0], [9.0]]])
    >>> spherejax.prototypes.support_squared_distances(jnp.array([[4.0]]), supports)
    Array([[9., 9.]], dtype=float32)
  """
  queries = _checks.array("queries", queries)
  supports = _checks.array("supports", supports)
  _check(queries, supports, representative)
  points = _numerics.upcast(queries)
  known = supports.astype(points.dtype)
  if representative == "mean":
    squares = distances.pairwise_squared_euclidean(
      points, jnp.mean(known, axis=1), method="difference"
    )
    return squares.astype(queries.dtype)
  squares = distances.pairwise_squared_euclidean(
    points, known.reshape(-1, known.shape[-1]), method="difference"
  ).reshape(len(points), *known.shape[:2])
  nearest = jnp.argmin(squares, axis=2, keepdims=True)
  return jnp.take_along_axis(squares, nearest, axis=2)[..., 0].astype(queries.dtype)


def simple_shot(
  queries: Float[ArrayLike, "queries dim"],
  supports: Float[ArrayLike, "ways shots dim"],
  *,
  transform: Transform = "none",
  centre: Float[ArrayLike, " dim"] | None = None,
  representative: Representative = "mean",
) -> Int[Array, " queries"]:
  """Nearest class of each query, by transformed features (SimpleShot).

      "none": x = f,    "l2": x = f / ||f||,    "centred_l2": x = (f - c) / ||f - c||
      class = argmin_y ||x_i - mean_k x_yk||,   the lowest among equals

  The mean is not normalised again, so with several supports this is not a cosine
  classifier. Distances come from a matrix product around the mean of the supports.
  Rounding decides between two classes if their squared distances from a query differ by
  less than about (4 + sqrt(dim)) eps times the squared distance of the query from that
  mean. `support_squared_distances` takes differences instead.

  Args:
    queries: [queries, dim], floating.
    supports: [ways, shots, dim], floating.
    transform: "none", "l2" or "centred_l2"; a zero vector stays zero. Static.
    centre: [dim], the mean of all features of the base classes (not of the episode);
      for "centred_l2" alone.
    representative: "mean", or "nearest" for the nearest support (1-NN). Static.

  Returns:
    [queries], int32, in [0, ways). A class whose mean ("mean") or whose every support
    ("nearest") is not finite is never chosen. -1 for a query that is not finite, and
    for all queries if no class can be chosen.

  Raises:
    TypeError: an array is not floating.
    ValueError: shapes do not match, no support, an unknown name, a centre without
      "centred_l2" or the reverse.

  Differentiable in: nothing. Cost: O(queries ways dim), "nearest" times shots.

  Source: Wang et al. 2019, "SimpleShot: revisiting nearest-neighbor classification for
  few-shot learning"; NCH 4.1.

  Example:
    >>> supports = jnp.array([[[1.0, 0.0]], [[0.0, 9.0]]])
    >>> query = jnp.array([[1.0, 2.0]])
    >>> spherejax.prototypes.simple_shot(query, supports)
    Array([0], dtype=int32)
    >>> spherejax.prototypes.simple_shot(query, supports, transform="l2")
    Array([1], dtype=int32)
  """
  queries = _checks.array("queries", queries)
  supports = _checks.array("supports", supports)
  _check(queries, supports, representative)
  points = _transformed(queries, transform, centre)
  known = _transformed(supports, transform, centre)
  return _nearest_class(points, known, representative)


def episode_accuracies(
  features: Float[ArrayLike, "count dim"],
  episodes: Integer[ArrayLike, "episodes ways rows"],
  *,
  num_shots: int,
  transform: Transform = "none",
  centre: Float[ArrayLike, " dim"] | None = None,
  representative: Representative = "mean",
  block_size: int = 8,
) -> Float[Array, " episodes"]:
  """Accuracy of `simple_shot` on the queries of many episodes.

  Features are computed and transformed once; an episode only picks rows of them. With
  the transform "none" this is also the accuracy of a prototypical network, whatever its
  loss.

  Args:
    features: [count, dim], floating.
    episodes: [episodes, ways, rows], integer in [0, count): the supports of each class,
      then its queries, as `data.sample_episode` draws them.
    num_shots: static, below rows. Supports of each class.
    transform: as in `simple_shot`. Static.
    centre: likewise.
    representative: likewise. Static.
    block_size: static. Episodes at once; memory is block_size x ways x rows x dim.

  Returns:
    [episodes], dtype of `features`, in [0, 1]. Its mean with
    `metrics.mean_interval` is what papers report.

  Raises:
    TypeError: features not floating, episodes not integers.
    ValueError: shapes do not match, no query is left, a known index outside
      [0, count), or an unknown name.

  Differentiable in: nothing. Cost: O(episodes ways rows ways dim), and the rows are
  read once.

  Source: DIST II 3.1; NCH 4.1; Wang et al. 2019, "SimpleShot".

  Example:
    >>> features = jnp.array([[0.0], [1.0], [7.0], [9.0]])
    >>> episodes = jnp.array([[[0, 1], [3, 2]]])  # two classes, a support, a query
    >>> spherejax.prototypes.episode_accuracies(features, episodes, num_shots=1)
    Array([1.], dtype=float32)
  """
  features = _checks.array("features", features, "floating", rank=2)
  episodes = _checks.integers("episodes", episodes)
  _checks.expect("episodes", episodes, "integer", rank=3)
  _checks.count("num_shots", num_shots)
  _checks.count("block_size", block_size)
  _checks.one_of("representative", representative, Representative)
  if num_shots >= episodes.shape[2]:
    raise ValueError(
      f"num_shots must leave a query of the {episodes.shape[2]} rows of a class in"
      f" episodes {episodes.shape}, got {num_shots}"
    )
  _checks.known_labels(episodes, len(features), name="episodes")
  rows = _transformed(features, transform, centre)

  def accuracy(episode: Array) -> Array:
    drawn = rows[episode]
    supports, queries = drawn[:, :num_shots], drawn[:, num_shots:]
    predicted = _nearest_class(
      queries.reshape(-1, queries.shape[-1]), supports, representative
    )
    right = predicted.reshape(queries.shape[:2]) == jnp.arange(len(episode))[:, None]
    return jnp.mean(right, dtype=rows.dtype)

  accuracies = jax.lax.map(accuracy, episodes, batch_size=block_size)
  return accuracies.astype(features.dtype)


def _nearest_class(
  points: Array, supports: Array, representative: Representative
) -> Array:
  """[queries], int32: argmax of (z - c).(p_y - c) - |p_y - c|^2 / 2, c the mean of all.

  -1 for a query that is not finite, and for all if no centre is finite. Products round
  less when the queries' norms are left out and the prototypes' mean is the origin.
  """
  known = supports
  if representative == "mean":
    known = jnp.mean(supports, axis=1, keepdims=True)
  ways, shots, dim = known.shape
  centres = known.reshape(-1, dim)
  usable = jnp.all(jnp.isfinite(centres), axis=1)
  middle = jnp.mean(centres, axis=0, where=usable[:, None])
  away = jnp.where(usable[:, None], centres - middle[None], 0)
  unit = _numerics.unit(away)  # squares neither overflow nor vanish
  away, moved = away / unit, (points - middle[None]) / unit
  near = _numerics.product(moved, away.T)
  closeness = near - jnp.sum(away**2, axis=1)[None] / 2
  closeness = jnp.where(usable[None], closeness, -jnp.inf)
  closeness = closeness.reshape(len(points), ways, shots)
  chosen = jnp.argmax(jnp.max(closeness, axis=2), axis=1).astype(jnp.int32)
  decided = jnp.all(jnp.isfinite(points), axis=1) & jnp.any(usable)
  return jnp.where(decided, chosen, -1)


def _transformed(
  features: Array, transform: Transform, centre: ArrayLike | None
) -> Array:
  _checks.one_of("transform", transform, Transform)
  if (transform == "centred_l2") != (centre is not None):
    raise ValueError(
      "centre must be given for transform='centred_l2' and for no other, got"
      f" {transform!r} with {'no' if centre is None else 'a'} centre"
    )
  rows = _numerics.upcast(features)
  if centre is not None:
    origin = jnp.asarray(centre)
    _checks.expect("centre", origin, "floating")
    _checks.shape("centre", origin, features.shape[-1:], f"features {features.shape}")
    rows = rows - jnp.broadcast_to(origin.astype(rows.dtype), rows.shape)
  return rows if transform == "none" else distances.l2_normalize(rows)


def _check(queries: Array, supports: Array, representative: Representative) -> None:
  for name, array, axes in (("queries", queries, 2), ("supports", supports, 3)):
    _checks.expect(name, array, "floating", rank=axes)
  if not supports.size:
    raise ValueError(f"supports must not be empty, got shape {supports.shape}")
  if queries.shape[-1] != supports.shape[-1]:
    raise ValueError(
      f"supports must have the {queries.shape[-1]} columns of queries {queries.shape},"
      f" got shape {supports.shape}"
    )
  _checks.one_of("representative", representative, Representative)
