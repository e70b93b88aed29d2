"""Regions that an attack may not leave: their interface, and the ball in a box."""

from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array

from spherejax.attacks import _ball
from spherejax.distances._lp import Norm
from spherejax.solvers import project_ball


@runtime_checkable
class Region(Protocol):
  """Interface of the set around each sample, for attacks of a fixed budget.

  Points, samples and gradients are [batch, n], flattened. No method may mix samples.
  """

  @property
  def epsilon(self) -> Array:
    """[batch]: the radius; sets the size of the steps."""
    ...

  def start(self, keys: Array, clean: Array) -> Array:
    """A random point of the region for each sample; `keys` is [batch]."""
    ...

  def project(self, points: Array, clean: Array) -> Array:
    """Nearest, or near, points of the region; inside it in exact arithmetic."""
    ...

  def ascend(self, gradients: Array) -> Array:
    """Steps of size 1 along the gradients; zero where a gradient is zero."""
    ...

  def size(self, points: Array, clean: Array) -> Array:
    """Distances [batch] of the points from the samples."""
    ...


@runtime_checkable
class Paced(Region, Protocol):
  """Region with its own step sizes, for `pgd` without a `step_size`."""

  def paces(self, steps: int) -> Array:
    """[steps, batch]: the sizes."""
    ...


class Ball(NamedTuple):
  """Norm ball around each sample, cut by a box."""

  norm: Norm
  """"linf", "l2" or "l1"."""
  epsilon: Array
  """[batch], finite."""
  low: Array
  """[batch, n]."""
  high: Array
  """[batch, n]."""
  share: float = 0.0
  """For l1: the share of the entries that a step moves; at least one does."""

  def start(self, keys: Array, clean: Array) -> Array:
    """Draws uniformly from the ball, then projects."""

    def draw(key):
      return _ball.uniform_ball(key, clean.shape[1:], norm=self.norm, dtype=clean.dtype)

    return self.project(clean + self.epsilon[:, None] * jax.vmap(draw)(keys), clean)

  def project(self, points: Array, clean: Array) -> Array:
    """Projects exactly, then seals the points."""
    points = jnp.where(jnp.isfinite(points), points, clean)
    if self.norm != "linf":  # sealing is the projection there

      def nearest(point, center, epsilon, low, high):
        return project_ball(point, center, epsilon, norm=self.norm, low=low, high=high)

      points = jax.vmap(nearest)(points, clean, self.epsilon, self.low, self.high)
    return self.seal(points, clean)

  def seal(self, points: Array, clean: Array) -> Array:
    """Moves inside the points that rounding left just outside."""

    def inside(point, center, epsilon, low, high):
      return _ball.seal(point, center, epsilon, norm=self.norm, low=low, high=high)

    return jax.vmap(inside)(points, clean, self.epsilon, self.low, self.high)

  def ascend(self, gradients: Array) -> Array:
    """Steepest directions; for l1 on the largest entries."""
    count = max(1, round(self.share * gradients.shape[1]))
    return steps_of(gradients, self.norm, jnp.full(len(gradients), count))

  def size(self, points: Array, clean: Array) -> Array:
    """Norm of the moves."""
    return _ball.sizes(points - clean, self.norm)


def steps_of(gradients: Array, norm: Norm, count: Array) -> Array:
  """Steepest directions; for l1 on `count` [batch] entries of each sample."""

  def step(gradient, count):
    return _ball.steepest_ascent(gradient, norm=norm, count=count)

  return jax.vmap(step)(gradients, count)
