"""Bounds the distances of a cell's points, and sizes steps accordingly."""

import jax.numpy as jnp
from jax import Array

from spherejax import attacks, distances
from spherejax.distances._lp import Norm

_FALL = 0.8  # least ratio of the sizes of consecutive steps


def reach(ball: attacks.Ball, clean: Array, neighbours: Array) -> Array:
  """Largest distance [batch] that ball and box allow; finite.

  In an infinite box, whose cells are finite, it is the distance of the farthest known
  site.
  """
  far = jnp.maximum(clean - ball.low, ball.high - clean)
  corner = ball.size(far, jnp.zeros_like(far))
  known = jnp.where(jnp.isinf(neighbours), 0, neighbours)
  others = jnp.max(known, axis=1, initial=0)
  return jnp.minimum(ball.epsilon, jnp.where(jnp.isinf(corner), others, corner))


def free(radius: Array, closest: Array) -> Array:
  """[batch]: whether the ball is finite, and no other site can bind in it."""
  return jnp.isfinite(radius) & (radius <= closest / 2)


def sizes(radius: Array, closest: Array, reach: Array, steps: int) -> Array:
  """Sizes of steps, [steps, batch]; those of a ball where no other site can bind.

  Where a site can bind, the cell may end near on one side and far on another. Then
  sizes fall from half the reach towards a hundredth of the nearest distance, by at most
  a fifth per step.
  """
  first, last = reach / 2, jnp.minimum(closest, reach) / 100
  rate = (last / jnp.where(first > 0, first, 1)) ** (1 / max(steps - 1, 1))
  falls = jnp.maximum(rate, _FALL)[None] ** jnp.arange(steps)[:, None]
  constant = 2.5 * radius / steps
  return jnp.where(free(radius, closest)[None], constant[None], first[None] * falls)


def nearest_size(lengths: Array, towards: Array, norm: Norm) -> Array:
  """Distance [batch] of the nearest site in another norm; inf without a site."""
  place = jnp.argmin(lengths, axis=1)[:, None, None]
  sizes = distances.lp_norm(jnp.take_along_axis(towards, place, 1)[:, 0], norm=norm)
  return jnp.where(jnp.isinf(jnp.min(lengths, axis=1, initial=jnp.inf)), jnp.inf, sizes)
