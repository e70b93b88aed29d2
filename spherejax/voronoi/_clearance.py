"""Bounds moves that stay clear of the boundary of a Voronoi cell."""

import jax
import jax.numpy as jnp
from jax import Array

from spherejax import _numerics, distances
from spherejax.distances._lp import Norm

# Clearance from the boundary in float32, relative to the distance to the nearest other
# site and to the distance moved; above the rounding of both.
OF_NEAREST = 1e-6
OF_MOVE = 1e-5
# Limits of Newton's steps along a ray: their number, and the least useful step.
_MOST_STEPS = 40
_STEP = 1e-6


def stay(
  delta: Array, towards: Array, present: Array, nearest: Array, norm: Norm
) -> Array:
  """[batch]: the largest share in [0, 1] of a move that stays clear of the boundary.

      |t delta - v| - t |delta| >= 1e-6 nearest + 1e-5 t |delta|    for all v

  The left side is convex and falls with t in every norm. Newton's steps from 0 stay on
  the near side, and for l1 and l-infinity end at the root. In l2 the share is a root of
  a quadratic.
  """
  if not present.shape[1]:
    return jnp.ones_like(nearest)
  if norm == "l2":
    inner = _numerics.einsum("bkn,bn->bk", towards, delta)
    return stay_l2(delta, inner, jnp.sum(towards**2, axis=2), present, nearest)
  size = distances.lp_norm(delta, norm=norm)
  slope = size * (1 + OF_MOVE)
  floor = _floor(nearest)

  def advance(carry):
    count, t, active = carry
    gap = t[:, None, None] * delta[:, None] - towards
    if norm == "l1":
      length = jnp.sum(jnp.abs(gap), axis=2)
      rate = jnp.sum(jnp.sign(gap) * delta[:, None], axis=2)
    else:
      length = jnp.max(jnp.abs(gap), axis=2)
      place = jnp.argmax(jnp.abs(gap), axis=2)[..., None]
      sign = jnp.sign(jnp.take_along_axis(gap, place, 2)[..., 0])
      rate = sign * jnp.take_along_axis(delta, place[..., 0], 1)
    left = length - (t * slope + floor)[:, None]
    fall = slope[:, None] - rate
    ahead = jnp.where(fall > 0, left / jnp.where(fall > 0, fall, 1), jnp.inf)
    step = jnp.min(jnp.where(present, ahead, jnp.inf), axis=1)
    new = jnp.clip(t + step, 0, 1)
    going = active & (new > t + _STEP)
    return count + 1, jnp.where(active, jnp.maximum(new, t), t), going

  start = (0, jnp.zeros_like(size), size > 0)
  t = jax.lax.while_loop(
    lambda c: (c[0] < _MOST_STEPS) & jnp.any(c[2]), advance, start
  )[1]
  return jnp.where(size > 0, t, 1)


def _floor(nearest: Array) -> Array:
  return jnp.where(jnp.isfinite(nearest), OF_NEAREST * nearest, 0)


def required(nearest: Array, moved: Array) -> Array:
  """Margin that stays above the rounding of both distances."""
  return _floor(nearest) + OF_MOVE * moved


def stay_l2(
  delta: Array, inner: Array, squares: Array, present: Array, nearest: Array
) -> Array:
  """Largest safe share of a move in l2; `inner` is <v, delta>, `squares` is |v|^2."""
  size = _numerics.norm(delta)
  scale = jnp.where(size > 0, size, 1)[:, None]
  # In the unit of the move: V - 2 t a + t^2 >= (t c + m)^2.
  c, m = 1 + OF_MOVE, _floor(nearest)[:, None] / scale
  lead, half, last = c**2 - 1, inner / scale**2 + c * m, squares / scale**2 - m**2
  root = jnp.sqrt(jnp.maximum(half**2 + lead * last, 0))
  # The form without cancellation on either side.
  ahead = jnp.where(
    half > 0, last / jnp.where(half > 0, half + root, 1), (root - half) / lead
  )
  share = jnp.min(jnp.where(present, jnp.maximum(ahead, 0), 1), axis=1, initial=1)
  # Squares of a much shorter move underflow.
  free = size <= nearest * (0.5 - OF_MOVE)
  return jnp.where(free, 1, jnp.minimum(share, 1))
