"""Combined ball and convex hull of an l1 and an l-infinity ball, as regions."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from spherejax import _checks, _numerics, distances
from spherejax.attacks import _ball, _box


class CombinedBall(NamedTuple):
  """A `Region`: a combined ball, or a hull, around each sample, cut by a box."""

  epsilon_1: Array
  """[]: radius of the l1 ball."""
  epsilon_inf: Array
  """[]: of the l-infinity ball."""
  low: Array
  """[batch, n]."""
  high: Array
  """[batch, n]."""
  hull: bool
  """True for the hull. Static."""

  @property
  def epsilon(self) -> Array:
    """[batch]: 1, since sizes are in units of the region."""
    return jnp.ones(len(self.low), self.low.dtype)

  def start(self, keys: Array, clean: Array) -> Array:
    """Draws uniformly from the l-infinity ball, which both regions contain."""

    def draw(key):
      return _ball.uniform_ball(key, clean.shape[1:], norm="linf", dtype=clean.dtype)

    return self.project(clean + self.epsilon_inf * jax.vmap(draw)(keys), clean)

  def project(self, points: Array, clean: Array) -> Array:
    """The nearest point of the ball or the hull, clipped to the box; sealed."""
    move = jnp.where(jnp.isfinite(points), points, clean) - clean
    onto = distances.project_hull if self.hull else distances.project_combined
    move = onto(move, **self._radii)
    # Shrunk by more than the rounding of the size, as `seal` does for l1.
    unit = jnp.finfo(move.dtype).eps / 2
    slack = 4 * unit * (math.ceil(math.log2(move.shape[1])) + 8)
    size = self.size(clean + move, clean)[:, None]
    shrink = jnp.where(size > 1 - slack, (1 - slack) / jnp.where(size > 0, size, 1), 1)
    return jnp.clip(_ball.toward(clean, move * shrink), self.low, self.high)

  def ascend(self, gradients: Array) -> Array:
    """Points of the region around 0 that are farthest along the gradients."""
    if self.hull:
      return distances.hull_direction(gradients, **self._radii)
    return self.epsilon_1 * distances.combined_direction(gradients, **self._radii)

  def size(self, points: Array, clean: Array) -> Array:
    """Norm of the moves; the region is its unit ball."""
    if self.hull:
      return distances.hull_gauge(points - clean, **self._radii)
    return distances.combined_norm(points - clean, **self._radii) / self.epsilon_1

  @property
  def _radii(self) -> dict[str, Array]:
    return {"epsilon_1": self.epsilon_1, "epsilon_inf": self.epsilon_inf}


def combined_ball(
  x: Float[ArrayLike, "batch ..."],
  *,
  epsilon_1: Real[ArrayLike, ""],
  epsilon_inf: Real[ArrayLike, ""],
  hull: bool = False,
  low: Real[ArrayLike, "..."] = 0.0,
  high: Real[ArrayLike, "..."] = 1.0,
) -> CombinedBall:
  """Region of moves that are small in l1 and in l-infinity together.

      {z: beta |z - x|_1 + (1 - beta) |z - x|_inf <= epsilon_1, low <= z <= high},
      beta = (epsilon_1 - epsilon_inf) / (epsilon_inf (n - 1))

  or with `hull` the convex hull of the l1 and the l-infinity ball, which is smaller for
  n > 2. Both contain the two balls. Robustness to the combined ball implies robustness
  in every norm, within `distances.inscribed_radius`. Pass the result to `pgd` as
  `region`.

  Args:
    x: [batch, ...], floating, in the box; n entries each, at least 2.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: radius of the l-infinity ball, epsilon_inf < epsilon_1 < n epsilon_inf;
      may be traced.
    hull: static.
    low: least value of an entry; broadcasts to x.
    high: largest value; likewise.

  Returns:
    CombinedBall. Projected points lie in it in exact arithmetic; where the box binds,
    they are not always the nearest. Radius and sizes are in
    units of the region: 1 is its border.

  Raises:
    TypeError: x not floating, hull not boolean.
    ValueError: fewer than 2 entries, or, where known, radii out of order, x outside
      the box, or low > high.

  Differentiable in: nothing. Cost: about a hundred passes of O(n) for each projection.

  Source: DIST appendix A; the steepest direction and the projection are not in the
  paper.

  Example:
    >>> x, labels = jnp.full((1, 4), 0.5), jnp.array([0])
    >>> region = spherejax.attacks.combined_ball(x, epsilon_1=0.5, epsilon_inf=0.2)
    >>> logits_fn = lambda x: x @ jnp.array([[1.0, -1.0]] + 3 * [[0.1, -0.1]])
    >>> found = spherejax.attacks.pgd(
    ...   logits_fn, x, labels, key=jax.random.key(0), region=region)
    >>> found.norm.round(2)
    Array([1.], dtype=float32)
  """
  _checks.flag("hull", hull)
  _checks.limits(low, high)
  samples = _checks.array("x", x, "floating")
  _checks.batched("x", samples)
  clean = _numerics.flat_rows(_numerics.upcast(samples))
  distances.inscribed_radius(  # checks the radii
    clean.shape[1], epsilon_1=epsilon_1, epsilon_inf=epsilon_inf, norm="l2"
  )
  least, most = (side.reshape(clean.shape) for side in _box.box(samples, low, high))
  # Smaller radii give a subset of the region.
  radius = _ball.radii(epsilon_1, (), clean.dtype, "epsilon_1")
  top = _ball.radii(epsilon_inf, (), clean.dtype, "epsilon_inf")
  return CombinedBall(radius, top, least, most, hull)
