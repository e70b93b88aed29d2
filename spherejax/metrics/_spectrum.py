"""Singular values of features: spectrum, principal axes, re-weighted directions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Real

from spherejax import _checks, _numerics

# A direction below this share of the largest is mostly rounding.
_NO_DIRECTION = 1e-6
# A singular value counts as above the mean from this share on: rounding spreads a flat
# spectrum, in float32 by 3e-5 after re-weighting.
_ABOVE = 1e-4


class FeatureTriangle(NamedTuple):
  """Triangular factor of all features so far; it has their singular values."""

  triangle: Float[Array, "dim dim"]
  rows: Int[Array, ""]


class Spectrum(NamedTuple):
  """Result of `spectrum`."""

  values: Float[Array, " components"]
  """Decreasing singular values over their sum; 0 beyond the number of features."""
  rho: Float[Array, ""]
  """KL(uniform || this spectrum): 0 if flat, inf if a value is 0."""
  density: Int[Array, ""]
  """d_DoV: number of singular values (or their powers) above the mean."""


class PrincipalAxes(NamedTuple):
  """Result of `principal_axes`."""

  mean: Float[Array, " dim"]
  axes: Float[Array, "rank dim"]
  """Orthonormal rows, by decreasing singular value; of arbitrary sign."""
  singular_values: Float[Array, " rank"]


def triangle_init(dim: int) -> FeatureTriangle:
  """Factor of an empty set of features.

  Args:
    dim: static.

  Returns:
    FeatureTriangle of zeros.

  Raises:
    TypeError: dim is not a static integer.
    ValueError: dim below 1.

  Differentiable in: nothing.

  Source: DIST 2.4.

  Example:
    >>> spherejax.metrics.triangle_init(2).rows
    Array(0, dtype=int32)
  """
  _checks.count("dim", dim)
  return FeatureTriangle(jnp.zeros((dim, dim)), jnp.zeros((), jnp.int32))


def triangle_update(
  state: FeatureTriangle,
  features: Float[ArrayLike, "batch dim"],
  *,
  normalize: bool = False,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> FeatureTriangle:
  """Adds a block of features to the triangular factor.

      R <- the R of QR([R; F])

  The singular values of R are those of all features. The matrix F^T F would square
  their ratios. Blocks of at least `dim` rows are cheapest.

  Args:
    state: from `triangle_init` or the last update.
    features: [batch, dim], floating; not centred.
    normalize: True divides rows by their norm first. Static.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    FeatureTriangle.

  Raises:
    TypeError: features not floating, where not boolean, normalize not boolean.
    ValueError: shapes do not match.

  Differentiable in: nothing. Cost: O((batch + dim) dim^2).

  Source: Demmel et al. 2012, "Communication-optimal parallel and sequential QR and LU
  factorizations"; DIST 2.4.

  Example:
    >>> state = spherejax.metrics.triangle_init(2)
    >>> state = spherejax.metrics.triangle_update(state, jnp.array([[3.0, 4.0]]))
    >>> abs(state.triangle[0])
    Array([3., 4.], dtype=float32)
  """
  _checks.flag("normalize", normalize)
  _checks.instance("state", state, FeatureTriangle)
  features = _checks.array("features", features)
  dim = len(state.triangle)
  _checks.expect("features", features, "floating")
  _checks.batched("features", features)
  _checks.shape("features", features, (len(features), dim), "the triangle")
  mask = _checks.where_mask(where, (len(features),))
  rows = jnp.where(mask[:, None], features.astype(state.triangle.dtype), 0)
  rows = _numerics.normalize(rows) if normalize else rows
  stacked = jax.lax.stop_gradient(jnp.concatenate([state.triangle, rows]))
  return FeatureTriangle(
    _numerics.triangle(stacked), state.rows + jnp.sum(mask, dtype=jnp.int32)
  )


def spectrum(
  state: FeatureTriangle, *, components: int | None = None, power: int = 1
) -> Spectrum:
  """Distribution of the singular values of all features.

      S_i = sigma_i / sum_{j <= m} sigma_j,    m = min(components, features)
      rho = KL(uniform || S) = -log m - 1/m sum_i log S_i
      d_DoV = #{i: S_i > (1 + 1e-4) / m}

  The margin of 1e-4 exceeds the rounding of float32, so a flat spectrum has d_DoV 0.

  Args:
    state: of `triangle_update`.
    components: static. Number of largest singular values used; None takes dim - 1.
    power: static. 2 counts d_DoV with squared singular values, divided by their sum.

  Returns:
    Spectrum(values [components], rho, density). Singular values that rounding cannot
    tell from 0 are 0.

  Raises:
    ValueError: components outside [1, dim], power not 1 or 2.
    TypeError: components is not a static integer.

  Differentiable in: nothing. Cost: O(dim^3).

  Source: DIST eq. 2.9 and tables 5.4, 5.5; Roth et al. 2020, "Revisiting training
  strategies and generalization performance in deep metric learning" (rho, and the d - 1
  components). Differs from DIST eq. 2.9, which has all d components (`components=dim`),
  and from both sources in the 1e-4; see errata.

  Example:
    >>> state = spherejax.metrics.triangle_init(3)
    >>> state = spherejax.metrics.triangle_update(
    ...   state, jnp.diag(jnp.array([3.0, 1.0, 0.0])))
    >>> spherejax.metrics.spectrum(state).values
    Array([0.75, 0.25], dtype=float32)
  """
  _checks.instance("state", state, FeatureTriangle)
  dim = len(state.triangle)
  components = max(dim - 1, 1) if components is None else components
  _checks.count("components", components)
  if components > dim:
    raise ValueError(f"components must be at most {dim}, got {components}")
  if power not in (1, 2):
    raise ValueError(f"power must be 1 or 2, got {power!r}")
  values = jnp.linalg.svd(state.triangle, compute_uv=False)
  noise = dim**0.5 * jnp.finfo(values.dtype).eps * values[0]
  values = jnp.where(values <= noise, 0, values)[:components]  # NaN stays NaN
  number = jnp.minimum(components, state.rows)
  used = jnp.arange(components) < number
  values = jnp.where(used, values, 0)
  shares = _numerics.divide(values, jnp.sum(values))
  size = number.astype(values.dtype)
  logs = _numerics.masked_sum(_numerics.log(shares), used)
  rho = -jnp.log(size) - logs / size
  powers = _numerics.divide(shares**power, jnp.sum(shares**power))
  above = used & (powers * size > 1 + _ABOVE)
  return Spectrum(shares, rho, jnp.sum(above, dtype=jnp.int32))


def principal_axes(features: Float[ArrayLike, "batch dim"]) -> PrincipalAxes:
  """Principal axes of features.

      F - mean = U S V^T,    axes = V^T

  Args:
    features: [batch, dim], floating, of the training set.

  Returns:
    PrincipalAxes(mean [dim], axes [rank, dim], singular_values [rank]), rank the
    smaller of batch and dim.

  Raises:
    TypeError: features not floating.
    ValueError: features not a matrix, or without a row.

  Differentiable in: nothing. Cost: O(batch dim rank).

  Source: DIST 6.2.3.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [3.0, 0.0]])
    >>> spherejax.metrics.principal_axes(x).mean
    Array([2., 0.], dtype=float32)
  """
  features = _checks.array("features", features, "floating", rank=2, empty=False)
  rows = _numerics.upcast(features)
  mean = jnp.mean(rows, axis=0)
  _, values, axes = jnp.linalg.svd(rows - mean[None], full_matrices=False)
  return PrincipalAxes(mean, axes, values)


def reweight(
  features: Float[ArrayLike, "batch dim"],
  principal: PrincipalAxes,
  *,
  exponent: Real[ArrayLike, ""] = 0.0,
  weights: Float[ArrayLike, " rank"] | None = None,
  keep_mean: bool = False,
) -> Float[Array, "batch dim"]:
  """Re-weights the principal directions of features.

      f_new = sum_i w_i <f - mean, u_i> u_i,    w_i = weights_i (S_i / S_1)^-exponent

  An exponent of 1 makes the spectrum of the training set flat; a negative exponent
  amplifies the leading directions. Weights of 1 for the first k directions and 0 for
  the rest give the projection of a PCA.

  Args:
    features: [batch, dim], floating; not only those that gave the axes.
    principal: of `principal_axes`. Directions at or below 1e-6 of the largest singular
      value are dropped.
    exponent: may be traced.
    weights: [rank], floating, at least 0; None is all ones. Give equal weights to
      directions of equal singular value: their axes are arbitrary.
    keep_mean: True adds the mean back. Static.

  Returns:
    [batch, dim], dtype of `features`.

  Raises:
    TypeError: features or weights not floating, keep_mean not boolean.
    ValueError: shapes do not match, or a known weight below 0.

  Differentiable in: features, exponent, weights. Cost: O(batch dim rank).

  Source: DIST 6.2.3.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [3.0, 0.0]])
    >>> principal = spherejax.metrics.principal_axes(x)
    >>> spherejax.metrics.reweight(x, principal)
    Array([[-1.,  0.],
           [ 1.,  0.]], dtype=float32)
  """
  _checks.flag("keep_mean", keep_mean)
  features = _checks.array("features", features, "floating")
  _checks.batched("features", features)
  _checks.instance("principal", principal, PrincipalAxes)
  mean, axes, values = principal
  _checks.shape("features", features, (len(features), len(mean)), "the axes")
  if weights is not None:
    weights = _checks.array("weights", weights, "floating")
    _checks.not_negative("weights", weights)
    _checks.shape("weights", weights, values.shape, "the axes")
  mask = values > _NO_DIRECTION * values[0]
  shares = jnp.where(mask, values / jnp.where(mask, values[0], 1), 1)
  factors = shares ** -_checks.scalar("exponent", exponent, values.dtype)
  if weights is not None:
    factors *= weights.astype(values.dtype)
  rows = features.astype(mean.dtype) - mean[None]
  along = _numerics.product(rows, axes.T)
  along *= jnp.where(mask, factors, 0)[None]
  new = _numerics.product(along, axes)
  return (new + mean[None] if keep_mean else new).astype(features.dtype)
