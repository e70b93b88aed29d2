"""Losses that arrange class representatives to match given distances."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Key, Real

from spherejax import _checks, _compiled, _numerics
from spherejax import distances as _distances
from spherejax.losses import _batch, _blocks
from spherejax.losses._batch import Normalization


def _square(
  name: str, values: ArrayLike, class_distances: ArrayLike, where: ArrayLike | None
) -> tuple[Array, Array, Array, jnp.dtype]:
  """Checked matrix between classes, their distances, the mask and the matrix's type."""
  matrix = _checks.array(name, values, "floating", rank=2, empty=False)
  _checks.shape(name, matrix, (len(matrix), len(matrix)))
  mask = _batch.keep_all(where, matrix)
  both = mask[:, None] & mask[None]
  wide = jnp.where(both, _numerics.upcast(matrix), 0)
  targets = _checks.array("class_distances", class_distances, "real")
  _checks.shape("class_distances", targets, matrix.shape, name)
  targets = jax.lax.stop_gradient(jnp.where(both, targets.astype(wide.dtype), 0))
  return wide, targets, mask, matrix.dtype


def _check_apart(class_distances: ArrayLike, where: ArrayLike | None) -> None:
  """Raises for two classes at distance 0."""
  known = np.asarray(class_distances)
  mask = np.ones(len(known), bool) if where is None else np.asarray(where)
  others = known[~np.eye(len(known), dtype=bool) & mask[:, None] & mask[None]]
  wrong = others[~(others > 0)]
  if wrong.size:
    raise ValueError(
      f"class_distances must be positive between classes, got {wrong[0]:g}"
    )


def _points(
  prototypes: ArrayLike, where: ArrayLike | None, normalize: Normalization
) -> tuple[Array, jnp.dtype]:
  points = _checks.array("prototypes", prototypes, "floating", rank=2, empty=False)
  mask = _batch.keep_all(where, points)[:, None]
  wide = jnp.where(mask, _numerics.upcast(points), 0)
  return _batch.normalize_rows(wide, normalize), points.dtype


def distortion(
  prototypes: Float[ArrayLike, "classes dim"],
  class_distances: Real[ArrayLike, "classes classes"],
  *,
  scale: Real[ArrayLike, ""] | None = None,
  normalize: Normalization = "none",
  where: Bool[ArrayLike, " classes"] | None = None,
) -> Float[Array, " classes"]:
  """Distortion between given class distances and the Euclidean distances of prototypes.

      r_kl = |w_k - w_l| / d_kl,    s = sum r / sum r^2
      loss_k = sum_{l != k} (s r_kl - 1)^2 / (C - 1)

  The sums run over all pairs of different classes. s is the scale that fits best, so
  the loss does not depend on the size of the prototypes. The loss is 0 where the
  distances are proportional. With the best s its mean is at most 1, reached only where
  all prototypes coincide.

  Args:
    prototypes: [classes, dim], floating.
    class_distances: [classes, classes], floating or integer, positive off the
      diagonal; a traced pair at distance 0 is left out. Not differentiated.
    scale: a fixed s, may be traced. None takes the best.
    normalize: "none", "l2" or "unit_ball". Static.
    where: [classes], boolean, True keeps. None keeps all.

  Returns:
    [classes], dtype of `prototypes`; 0 for masked classes. `loss.mean()` is
    1 - (sum r)^2 / (#{pairs} sum r^2), the paper's scalar. Add it, weighted, to a
    classification loss with these prototypes.

  Raises:
    TypeError: prototypes are not floating, `where` is not boolean.
    ValueError: shapes do not match, an unknown `normalize`, known classes at distance
      0, or a static scale that is not positive.

  Differentiable in: prototypes, scale. Cost: O(classes^2 dim).

  Source: DIST 4.2; Garnot and Landrieu 2021, "Leveraging class hierarchies with
  metric-guided prototype learning", eq. 5.

  Example:
    >>> line = jnp.array([[0.0], [1.0], [3.0]])
    >>> spherejax.losses.distortion(line, jnp.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]]))
    Array([0.0743163 , 0.10107015, 0.0315101 ], dtype=float32)
  """
  points, dtype = _points(prototypes, where, normalize)
  unit = _numerics.unit(points)  # squares neither overflow nor vanish
  lengths = unit * _distances.pairwise_euclidean(points / unit)
  loss = distortion_from_distance(lengths, class_distances, scale=scale, where=where)
  return loss.astype(dtype)


def distortion_from_distance(
  distances: Float[ArrayLike, "classes classes"],
  class_distances: Real[ArrayLike, "classes classes"],
  *,
  scale: Real[ArrayLike, ""] | None = None,
  where: Bool[ArrayLike, " classes"] | None = None,
) -> Float[Array, " classes"]:
  """Distortion between given class distances and a matrix of distances.

  The matrix form of `distortion`, for angles, geodesics of the Poincare ball or any
  other distance.

      r_kl = distances_kl / class_distances_kl,    s = sum r / sum r^2
      loss_k = sum_{l != k} (s r_kl - 1)^2 / (C - 1)

  Args:
    distances: [classes, classes], floating; the diagonal is not looked at.
    class_distances: [classes, classes], floating or integer, positive off the
      diagonal; a traced pair at distance 0 is left out. Not differentiated.
    scale: a fixed s, may be traced. None takes the best.
    where: [classes], boolean, True keeps. None keeps all.

  Returns:
    [classes], dtype of `distances`; 0 for masked classes. `loss.mean()` is the
    paper's scalar.

  Raises:
    TypeError: distances are not floating, `where` is not boolean.
    ValueError: shapes do not match, known classes at distance 0, or a static scale
      that is not positive.

  Differentiable in: distances, scale. Cost: O(classes^2).

  Source: DIST 4.2; Garnot and Landrieu 2021, eq. 5.

  Example:
    >>> d = jnp.array([[0.0, 1.0], [3.0, 0.0]])
    >>> spherejax.losses.distortion_from_distance(d, 1 - jnp.eye(2))
    Array([0.36      , 0.04000002], dtype=float32)
  """
  if scale is not None:
    _checks.positive("scale", scale)
  lengths, wanted, mask, dtype = _square("distances", distances, class_distances, where)
  _compiled.known(_check_apart, class_distances, where)
  pairs = ~jnp.eye(len(lengths), dtype=bool) & (wanted > 0)
  ratios = _numerics.divide(jnp.where(pairs, lengths, 0), wanted)
  if scale is None:  # neither the loss nor its derivative depends on the unit
    ratios = ratios / _numerics.unit(ratios)
    best = _numerics.divide(jnp.sum(ratios), jnp.sum(ratios**2))
  else:
    best = _checks.scalar("scale", scale, lengths.dtype)
  squares = _numerics.masked_sum((best * ratios - 1) ** 2, pairs)
  classes = jnp.sum(mask, dtype=jnp.int32).astype(lengths.dtype)
  share = _numerics.divide(classes, _batch.number(pairs, None, lengths.dtype))
  return (squares * share).astype(dtype)


def class_ranking(
  prototypes: Float[ArrayLike, "classes dim"],
  class_distances: Real[ArrayLike, "classes classes"],
  *,
  normalize: Normalization = "l2",
  samples: int | None = None,
  key: Key[Array, ""] | None = None,
  where: Bool[ArrayLike, " classes"] | None = None,
  block_size: int | None = None,
) -> Float[Array, " classes"]:
  """Ranking loss of class triplets: prototypes in the order of given distances.

      o_ijk = <w_i, w_j> - <w_i, w_k>
      t_ijk = 1 if d_ij < d_ik, 0 if d_ij > d_ik, 1/2 if equal
      loss_i = mean over j != k, both != i, of
               t_ijk log(1 + exp(-o_ijk)) + (1 - t_ijk) log(1 + exp(o_ijk))

  Args:
    prototypes: [classes, dim], floating.
    class_distances: [classes, classes], floating or integer; only the order within a
      row matters. Not differentiated.
    normalize: "l2", "unit_ball" or "none". Static.
    samples: pairs (j, k) drawn uniformly for every class, with replacement; needs
      `key`. None takes all, which is meant for up to a few hundred classes. Static.
    key: typed key of the draws.
    where: [classes], boolean, True keeps. None keeps all.
    block_size: static. Classes i per block; memory is block_size x classes^2 (or
      block_size x samples). None takes all.

  Returns:
    [classes], dtype of `prototypes`; 0 for masked classes, and for all when fewer
    than three are kept. `loss.mean()` is the paper's scalar.

  Raises:
    TypeError: prototypes are not floating, `where` is not boolean.
    ValueError: shapes do not match, an unknown `normalize`, `samples` or block_size
      below 1, or `samples` and `key` not given together.

  Differentiable in: prototypes.
  Cost: O(classes^2 dim + classes^3), or O(classes^2 dim + classes samples).

  Source: DIST 4.2; Mettes et al. 2019, "Hyperspherical prototype networks", eq. 6. In
  the paper a tie has the target 1 in both orders of (j, k); the sum over all triplets
  is the same.

  Example:
    >>> line = jnp.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]])
    >>> spherejax.losses.class_ranking(jnp.eye(3), line)
    Array([0.6931472, 0.6931472, 0.6931472], dtype=float32)
  """
  if key is not None:
    _checks.key("key", key)
  points, dtype = _points(prototypes, where, normalize)
  loss = class_ranking_from_similarity(
    _distances.pairwise_dot(points),
    class_distances,
    samples=samples,
    key=key,
    where=where,
    block_size=block_size,
  )
  return loss.astype(dtype)


def _triplet_terms(lead: Array, first: Array, second: Array) -> Array:
  """Loss t log(1 + exp(-lead)) + (1 - t) log(1 + exp(lead)), with target t."""
  signed = jnp.where(first > second, -lead, lead)
  # log(1 + exp(u)) = log(1 + exp(-u)) + u: half of each at a tie.
  return jax.nn.softplus(-signed) + jnp.where(first == second, signed / 2, 0)


def _draw_pairs(key: Array, samples: int, itself: Array, mask: Array) -> Array:
  """[2, samples]: two different kept classes other than `itself`, by index."""
  first_key, second_key = jax.random.split(key)
  others = mask & (jnp.arange(len(mask)) != itself)
  number = jnp.sum(others, dtype=jnp.int32)
  columns = jnp.argsort(~others, stable=True)
  first = jax.random.randint(first_key, (samples,), 0, jnp.maximum(number, 1))
  second = jax.random.randint(second_key, (samples,), 0, jnp.maximum(number - 1, 1))
  return columns[jnp.stack([first, second + (second >= first)])]


def class_ranking_from_similarity(
  similarities: Float[ArrayLike, "classes classes"],
  class_distances: Real[ArrayLike, "classes classes"],
  *,
  samples: int | None = None,
  key: Key[Array, ""] | None = None,
  where: Bool[ArrayLike, " classes"] | None = None,
  block_size: int | None = None,
) -> Float[Array, " classes"]:
  """Ranking loss of class triplets from a matrix of similarities.

  The matrix form of `class_ranking`; negative distances serve as similarities.

      o_ijk = similarities_ij - similarities_ik
      t_ijk = 1 if d_ij < d_ik, 0 if d_ij > d_ik, 1/2 if equal
      loss_i = mean over j != k, both != i, of
               t_ijk log(1 + exp(-o_ijk)) + (1 - t_ijk) log(1 + exp(o_ijk))

  Args:
    similarities: [classes, classes], floating; the diagonal is not looked at.
    class_distances: [classes, classes], floating or integer. Not differentiated.
    samples: pairs (j, k) drawn uniformly for every class, with replacement; needs
      `key`. None takes all. Static.
    key: typed key of the draws.
    where: [classes], boolean, True keeps. None keeps all.
    block_size: static. Classes i per block. None takes all.

  Returns:
    [classes], dtype of `similarities`; 0 for masked classes, and for all when fewer
    than three are kept. `loss.mean()` is the paper's scalar.

  Raises:
    TypeError: similarities are not floating, `where` is not boolean.
    ValueError: shapes do not match, `samples` or block_size below 1, or `samples`
      and `key` not given together.

  Differentiable in: similarities. Cost: O(classes^3), or O(classes samples).

  Source: DIST 4.2; Mettes et al. 2019, eq. 6.

  Example:
    >>> s = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    >>> line = jnp.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]])
    >>> spherejax.losses.class_ranking_from_similarity(s, line)
    Array([0.6931472 , 0.81326175, 0.3132617 ], dtype=float32)
  """
  if key is not None:
    _checks.key("key", key)
  if (samples is None) != (key is None):
    raise ValueError(
      f"samples and key must come together, got samples={samples} and key={key}"
    )
  similar, targets, mask, dtype = _square(
    "similarities", similarities, class_distances, where
  )
  index = jnp.arange(len(similar))

  def of_class(rows: tuple[Array, Array, Array]) -> Array:
    similarity, distance, itself = rows
    if samples is not None and key is not None:
      draws = jax.random.fold_in(key, itself)
      first, second = _draw_pairs(draws, samples, itself, mask)
      lead = similarity[first] - similarity[second]
      return jnp.mean(_triplet_terms(lead, distance[first], distance[second]))
    others = mask & (index != itself)
    terms = _triplet_terms(
      similarity[:, None] - similarity[None], distance[:, None], distance[None]
    )
    pairs = others[:, None] & others[None] & (index[:, None] != index[None])
    number = jnp.sum(pairs, dtype=jnp.int32).astype(terms.dtype)
    return _numerics.divide(_numerics.masked_sum(terms, pairs, None), number)

  if samples is not None:
    _checks.count("samples", samples)
  rows = (similar, targets, index)
  loss = _blocks.map_rows(jax.vmap(of_class), rows, block_size)
  enough = jnp.sum(mask, dtype=jnp.int32) > 2
  return jnp.where(mask & enough, loss, 0).astype(dtype)
