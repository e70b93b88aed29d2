"""Histograms of local features on prototypes, which average pooling computes."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from spherejax import _checks, _numerics


class PrototypeHistogram(NamedTuple):
  """Result of `prototype_histogram`."""

  histogram: Float[Array, "batch prototypes"]
  """Weight of the features on each prototype; sums to 1."""
  error: Float[Array, " batch"]
  """Mean distance of the features to their prototypes (quantisation error)."""
  assignment: Int[Array, "batch *positions"]
  """The prototype of each feature."""


def prototype_histogram(
  features: Float[ArrayLike, "batch *positions dim"],
  prototypes: Float[ArrayLike, "prototypes dim"],
  *,
  weights: Float[ArrayLike, "batch *positions"] | None = None,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> PrototypeHistogram:
  """Share of an image's features on each prototype, by nearest assignment.

      c_ij = |v_i - x_j|,    assignment_j = argmin_i c_ij
      histogram_i = sum_j a_j [assignment_j = i],    error = sum_j a_j min_i c_ij

  Among all distributions over the prototypes, the histogram is nearest to the image's
  features in optimal transport; the error is this transport distance.

  Args:
    features: [batch, tokens, dim] or [batch, height, width, dim], floating.
    prototypes: [prototypes, dim], floating. Neither prototypes nor features are
      normalised here.
    weights: not negative, the shape of `features` without dim, such as
      `GSPResult.weights`; a_j is a weight divided by the sum of the kept weights. None
      gives all kept positions the same weight.
    where: boolean, the shape of `features` without dim, True keeps; masked positions
      may be NaN. None keeps all.

  Returns:
    PrototypeHistogram: histogram [batch, prototypes] and error [batch], dtype of
    `features`; assignment in the layout of the features, int32, ties to the lowest
    index, -1 where masked. An image without weight has histogram and error 0.

  Raises:
    TypeError: features, prototypes or weights not floating, where not boolean.
    ValueError: shapes do not match, features or prototypes without entries.

  Differentiable in: weights; features and prototypes through the error, with derivative
  0 where a feature is its prototype (the histogram is piecewise constant in both).
  Cost: O(batch tokens prototypes dim) time, one prototype after another; memory of a
  few numbers per position besides the features.

  Source: DML eq. 4.2.5 and claim 4.2.1.

  Example:
    >>> features = jnp.array([[[0.0], [0.2], [0.9], [1.0]]])
    >>> result = spherejax.prototypes.prototype_histogram(
    ...   features, jnp.array([[0.0], [1.0], [5.0]])
    ... )
    >>> result.histogram, result.error
    (Array([[0.5, 0.5, 0. ]], dtype=float32), Array([0.075], dtype=float32))
    >>> result.assignment
    Array([[0, 0, 1, 1]], dtype=int32)
  """
  features = _checks.array("features", features)
  prototypes = _checks.array("prototypes", prototypes)
  parts = _parts(features, prototypes, weights, where)
  counted = parts.chosen[..., None] == jnp.arange(len(prototypes))[None, None]
  histogram = _numerics.masked_sum(parts.weights[..., None], counted, axis=1)
  error = jnp.sum(parts.weights * _distances(parts), axis=1)
  assignment = jnp.where(parts.mask, parts.chosen, -1)
  return PrototypeHistogram(
    histogram.astype(features.dtype),
    error.astype(features.dtype),
    assignment.reshape(features.shape[:-1]),
  )


def prototype_convex_combination(
  features: Float[ArrayLike, "batch *positions dim"],
  prototypes: Float[ArrayLike, "prototypes dim"],
  *,
  weights: Float[ArrayLike, "batch *positions"] | None = None,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch dim"]:
  """Average of the features after each is replaced by its nearest prototype.

      pcc = sum_i histogram_i v_i = sum_j a_j v_assignment(j)

  The result lies in the convex hull of the prototypes that the image uses, and near the
  average of the features themselves:

      |pcc - sum_j a_j x_j| <= error <= covering radius of the prototypes

  with the histogram and the error of `prototype_histogram`, and `covering_radius`
  over any points that contain the features.

  Args:
    features: [batch, tokens, dim] or [batch, height, width, dim], floating.
    prototypes: [prototypes, dim], floating. Neither prototypes nor features are
      normalised here.
    weights: not negative, the shape of `features` without dim; divided by the sum of
      the kept ones. None gives all kept positions the same weight.
    where: boolean, the shape of `features` without dim, True keeps; masked positions
      may be NaN. None keeps all.

  Returns:
    [batch, dim], dtype of `features`. 0 for an image without weight.

  Raises:
    TypeError: features, prototypes or weights not floating, where not boolean.
    ValueError: shapes do not match, features or prototypes without entries.

  Differentiable in: prototypes, weights (piecewise constant in the features). Cost:
  that of `prototype_histogram`.

  Source: DML 4.2.2, proposition 4.2.1 and figure 4.4. Differs from the paper, whose
  bound is |pcc - gap|^2 <= covering radius: that is false beyond a radius of 1.

  Example:
    >>> features = jnp.array([[[0.1, 0.0], [0.9, 0.0]]])
    >>> corners = jnp.array([[0.0, 0.0], [1.0, 0.0]])
    >>> spherejax.prototypes.prototype_convex_combination(features, corners)
    Array([[0.5, 0. ]], dtype=float32)
  """
  features = _checks.array("features", features)
  prototypes = _checks.array("prototypes", prototypes)
  parts = _parts(features, prototypes, weights, where)
  nearest = parts.prototypes[parts.chosen]
  # A feature that is NaN has no nearest prototype.
  unknown = jnp.any(jnp.isnan(parts.tokens), axis=2, keepdims=True)
  nearest = jnp.where(unknown, jnp.nan, nearest)
  return jnp.sum(parts.weights[..., None] * nearest, axis=1).astype(features.dtype)


def covering_radius(
  points: Float[ArrayLike, "n dim"],
  prototypes: Float[ArrayLike, "prototypes dim"],
  *,
  where: Bool[ArrayLike, " n"] | None = None,
) -> Float[Array, ""]:
  """Largest distance of a point to its nearest prototype.

      max_j min_i |x_j - v_i|

  Args:
    points: [n, dim], floating.
    prototypes: [prototypes, dim], floating; `greedy_k_centre` chooses prototypes with a
      small radius.
    where: [n], boolean, True keeps; masked points may be NaN. None keeps all.

  Returns:
    Scalar, dtype of `points`. 0 where nothing is kept.

  Raises:
    TypeError: points or prototypes not floating, where not boolean.
    ValueError: shapes do not match, points or prototypes without entries.

  Differentiable in: points, prototypes; ties go to the first; derivative 0 at radius
  0. Cost: O(n prototypes dim) time, one prototype after another; memory of a few
  numbers per point.

  Source: DML 4.2.2; Sener, Savarese 2018, "Active learning for convolutional neural
  networks: a core-set approach", where it bounds the loss of a choice of points.

  Example:
    >>> points = jnp.array([[0.0], [1.0], [5.0], [6.0]])
    >>> spherejax.prototypes.covering_radius(points, points[:3:2])
    Array(1., dtype=float32)
  """
  points = _checks.array("points", points, "floating", rank=2, empty=False)
  prototypes = _checks.array("prototypes", prototypes)
  mask = None if where is None else _checks.array("where", where)
  if mask is not None:
    _checks.mask(mask, points.shape[:1])
    mask = mask[None]
  parts = _parts(points[None], prototypes, None, mask, "points")
  lengths = jnp.where(parts.mask, _distances(parts), 0)[0]
  return lengths[jnp.argmax(lengths)].astype(points.dtype)


class _Parts(NamedTuple):
  """Checked arguments in their computing type, one axis of positions."""

  tokens: Array  # [batch, n, dim], 0 where masked
  prototypes: Array
  weights: Array  # [batch, n], sum 1 over an image, 0 where masked
  mask: Array
  chosen: Array  # [batch, n], int32


def _parts(
  features: Array,
  prototypes: Array,
  weights: ArrayLike | None,
  where: ArrayLike | None,
  name: str = "features",
) -> _Parts:
  _checks.expect(name, features, "floating", rank=(3, 4))
  _checks.expect("prototypes", prototypes, "floating")
  batch, *positions, dim = features.shape
  if 0 in features.shape[1:]:
    raise ValueError(f"{name} must have positions and channels, got {features.shape}")
  if prototypes.ndim != 2 or prototypes.shape[0] == 0 or prototypes.shape[1] != dim:
    raise ValueError(
      f"prototypes must have shape (prototypes, {dim}) to match {name} "
      f"{features.shape}, got {prototypes.shape}"
    )
  layout = (batch, *positions)
  mask = _checks.where_mask(where, layout)
  number = math.prod(positions)
  mask = mask.reshape(batch, number)
  tokens = _numerics.upcast(features.reshape(batch, number, dim))
  tokens = jnp.where(mask[..., None], tokens, 0)
  centres = prototypes.astype(tokens.dtype)
  weights = jnp.ones(layout, tokens.dtype) if weights is None else weights
  raw_weights = _checks.array("weights", weights, "floating")
  _checks.shape("weights", raw_weights, layout, f"the positions of {name}")
  raw = jnp.where(mask, raw_weights.reshape(batch, number).astype(tokens.dtype), 0)
  shares = _numerics.divide(raw, jnp.sum(raw, axis=1, keepdims=True))
  return _Parts(tokens, centres, shares, mask, _nearest(tokens, centres))


def _nearest(tokens: Array, prototypes: Array) -> Array:
  """Index of each token's nearest prototype, ties to the lowest: [batch, n].

  Computed by differences, so that a feature that is a prototype is found at any norm.
  """
  power = _numerics.shrinking(tokens, prototypes, grow=True)
  tokens, prototypes = (
    jax.lax.stop_gradient(power * rows) for rows in (tokens, prototypes)
  )

  def closer(carry, indexed):
    least, chosen = carry
    index, prototype = indexed
    squares = jnp.sum((tokens - prototype[None, None]) ** 2, axis=-1)
    better = squares < least
    return (jnp.where(better, squares, least), jnp.where(better, index, chosen)), None

  start = (
    jnp.full(tokens.shape[:2], jnp.inf, tokens.dtype),
    jnp.zeros(tokens.shape[:2], jnp.int32),
  )
  start = _numerics.varying(start, tokens, prototypes)
  numbers = jnp.arange(len(prototypes), dtype=jnp.int32)
  return jax.lax.scan(closer, start, (numbers, prototypes))[0][1]


def _distances(parts: _Parts) -> Array:
  """Distance of each token to its prototype: [batch, n]."""
  return _numerics.norm(parts.tokens - parts.prototypes[parts.chosen])
