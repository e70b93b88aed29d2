"""Nearest negatives of contrastive learning: distances in the encoder, and labels."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _compiled, _numerics

_FARTHEST = 2.0  # distance of opposite unit vectors


class NegativeDistances(NamedTuple):
  """Result of `nearest_negative_distance`."""

  values: Float[Array, " batch"]
  """In [0, 2]; 0 where not counted."""
  counted: Bool[Array, " batch"]
  """True if the example is kept and has a kept nearest negative."""


class DistanceHistogram(NamedTuple):
  """Result of `distance_histogram`."""

  shares: Float[Array, " bins"]
  """Shares of the kept distances; they sum to 1."""
  edges: Float[Array, " edges"]
  """From 0 to 2, one more than bins."""


def nearest_negative_distance(
  first: Float[ArrayLike, "batch dim"],
  second: Float[ArrayLike, "batch dim"],
  nearest: Integer[ArrayLike, " batch"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> NegativeDistances:
  """Distance, in the encoder, of the nearest negative in the projector.

      distance_i = | h_i / |h_i| - h_i* / |h_i*| |

  with h the encoder's vectors and i* the nearest negative in the projector's space.

  Args:
    first: [batch, dim], floating, the encoder's vectors of the first views, the
      anchors.
    second: [batch, dim], floating, vectors of the second views, row by row.
    nearest: [batch], integer, from `losses.info_nce_bound` of projected views: first
      views from 0, second ones from batch on, -1 for none.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    NegativeDistances(values [batch], dtype of `first`; counted [batch]), for
    `mean_where`. Masked rows do not count, nor do rows whose nearest is masked, -1, or
    a traced index out of range. A zero vector has distance 1 from nonzero vectors.

  Raises:
    TypeError: views not floating, nearest not integers, where not boolean.
    ValueError: shapes do not match, or a known nearest of 2 batch or more.

  Differentiable in: nothing. Cost: O(batch dim).

  Source: SSL figure 5; the normalisation is inferred from its caption.

  Example:
    >>> x = jnp.eye(2)
    >>> spherejax.metrics.nearest_negative_distance(x, x, jnp.array([3, 0])).values
    Array([1.4142135, 1.4142135], dtype=float32)
  """
  first = _checks.array("first", first, "floating", rank=2)
  second = _checks.array("second", second, "floating")
  _checks.shape("second", second, first.shape, "first")
  nearest = _checks.integers("nearest", nearest)
  _checks.labels(nearest, first, "nearest")
  mask = _checks.where_mask(where, (len(first),))
  counted, index = _negatives(nearest, mask)
  views = (jnp.where(mask[:, None], _numerics.upcast(x), 0) for x in (first, second))
  both = jnp.concatenate([_numerics.normalize(view) for view in views])
  lengths = _numerics.norm(both[: len(first)] - both[index])
  values = jnp.where(counted, jnp.minimum(lengths, _FARTHEST), 0)
  return NegativeDistances(values.astype(first.dtype), counted)


def distance_histogram(
  distances: Float[ArrayLike, " batch"],
  *,
  bins: int = 50,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> DistanceHistogram:
  """Shares of distances of unit vectors in equal bins from 0 to 2.

  Args:
    distances: [batch], floating, in [0, 2]; values beyond count in the nearest bin.
    bins: static. Only the last bin contains its right edge.
    where: [batch], boolean, True keeps, such as `counted` from
      `nearest_negative_distance`. None keeps all.

  Returns:
    DistanceHistogram(shares [bins], edges [bins + 1]), at least float32. NaN shares if
    none is kept, or a kept one is NaN.

  Raises:
    TypeError: distances not floating, bins not a static integer, where not boolean.
    ValueError: distances with other than one axis, bins below 1, shapes that do not
      match.

  Differentiable in: nothing. Cost: O(batch (bins + log bins)).

  Source: SSL figure 5.

  Example:
    >>> x = jnp.array([0.1, 0.2, 1.3, 2.0])
    >>> spherejax.metrics.distance_histogram(x, bins=2).shares
    Array([0.5, 0.5], dtype=float32)
  """
  distances = _checks.array("distances", distances, "floating", rank=1)
  _checks.count("bins", bins)
  mask = _checks.where_mask(where, distances.shape)
  values = jnp.where(mask, _numerics.upcast(distances), 0)
  edges = jnp.linspace(0, _FARTHEST, bins + 1, dtype=values.dtype)
  # Only inner edges count: a value beyond the outer edges falls into the nearest bin.
  index = jnp.searchsorted(edges[1:-1], values, side="right")
  member = (index[:, None] == jnp.arange(bins)[None]) & mask[:, None]
  counts = jnp.sum(member, axis=0, dtype=jnp.int32).astype(values.dtype)
  shares = counts / jnp.sum(mask, dtype=jnp.int32)
  return DistanceHistogram(
    jnp.where(jnp.any(jnp.isnan(values)), jnp.nan, shares), edges
  )


def label_sharing(
  nearest: Integer[ArrayLike, " batch"],
  labels: Integer[ArrayLike, " batch"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, ""]:
  """Share of examples whose nearest negative has the same label.

      share = mean_i 1[y_i* = y_i]

  Use it once with fine and once with coarse labels to see whether the projector pushes
  away examples that belong together.

  Args:
    nearest: [batch], integer, from `losses.info_nce_bound` of projected views: first
      views from 0, second ones from batch on, -1 for none.
    labels: [batch], integer, of both views. Only their equality matters.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    Scalar, float32 (float64 under x64), over the kept examples that have a nearest
    negative among the kept ones; NaN without any.

  Raises:
    TypeError: nearest or labels not integers, where not boolean.
    ValueError: shapes do not match, or a known nearest of 2 batch or more.

  Differentiable in: nothing. Cost: O(batch).

  Source: SSL figure 6.

  Example:
    >>> spherejax.metrics.label_sharing(jnp.array([1, 3, 4]), jnp.array([5, 5, 2]))
    Array(0.6666667, dtype=float32)
  """
  nearest = _checks.integers("nearest", nearest)
  (labels,) = _checks.names(("labels", labels))
  _checks.expect("labels", labels, "integer", rank=1)
  _checks.labels(nearest, labels, "nearest")
  mask = _checks.where_mask(where, labels.shape)
  counted, index = _negatives(nearest, mask)
  same = counted & (jnp.tile(labels, 2)[index] == labels)
  number = jnp.sum(same, dtype=jnp.int32).astype(jnp.result_type(float))
  return number / jnp.sum(counted, dtype=jnp.int32)


def contrastive_collapse(
  invariance: Float[ArrayLike, "*shape"],
  repulsion: Float[ArrayLike, "*shape"],
  *,
  threshold: Real[ArrayLike, ""] = 0.999,
) -> Bool[Array, "*shape"]:
  """Detects collapse: True if all projected vectors have become equal.

      collapsed = (repulsion > threshold) and (invariance < -threshold)

  with the means over the batch. Report collapsed runs; do not average them with others.

  Args:
    invariance: [...], floating, mean of `losses.info_nce_invariance`; of many steps or
      runs at once.
    repulsion: [...], floating, mean of `losses.info_nce_repulsion`.
    threshold: a cosine in (0, 1]; may be traced.

  Returns:
    [...], boolean; False where either is NaN.

  Raises:
    TypeError: arrays not floating.
    ValueError: shapes do not match, or a static threshold outside (0, 1].

  Differentiable in: nothing. Cost: one read.

  Source: SSL 3 (both terms of its bound); the threshold is not from the paper.

  Example:
    >>> spherejax.metrics.contrastive_collapse(
    ...   jnp.array([-0.7, -1.0]), jnp.array([1.0, 1.0]))
    Array([False,  True], dtype=bool)
  """
  invariance = _checks.array("invariance", invariance, "floating")
  repulsion = _checks.array("repulsion", repulsion, "floating")
  _checks.shape("repulsion", repulsion, invariance.shape, "invariance")
  _checks.between("threshold", threshold, 0, 1, low_open=True)
  # In half precision the threshold itself would round to 1.
  invariance, repulsion = _numerics.upcast(invariance), _numerics.upcast(repulsion)
  bound = _checks.scalar("threshold", threshold, repulsion.dtype)
  return (repulsion > bound) & (invariance < -bound.astype(invariance.dtype))


def _check_nearest(rows: int, nearest: ArrayLike, mask: ArrayLike) -> None:
  index = np.asarray(nearest)
  _checks.known_labels(index, rows, np.asarray(mask) & (index >= 0), "nearest")


def _negatives(nearest: Array, mask: Array) -> tuple[Array, Array]:
  """Mask of rows with a kept nearest negative, and its index, 0 for other rows."""
  batch = len(mask)
  _compiled.known(functools.partial(_check_nearest, 2 * batch), nearest, mask)
  inside = (nearest >= 0) & (nearest < 2 * batch)
  index = jnp.where(inside, nearest, 0)
  return mask & inside & jnp.tile(mask, 2)[index], index
