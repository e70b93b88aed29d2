"""Scales that adapt during training: AdaCos, and the scale of vanishing curvature.

Both measure how far the embeddings of a batch are from their classes. Neither scale is
differentiated: a training step updates it first and then uses it.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _classes

Geometry = Literal["cosine", "chordal", "angular"]


def adacos_scale(num_classes: int, *, least: float | None = None) -> float:
  """Fixed scale of AdaCos, a function of the number of classes alone.

      scale = sqrt(2) log(num_classes - 1)

  At this scale the true class has probability 1/2 at an angle of pi/4, if all other
  classes are at pi/2.

  Args:
    num_classes: static.
    least: lower bound of the result; needed for fewer than three classes, for which no
      positive scale exists.

  Returns:
    A Python number, for `normface` and as the start of `adacos_update`.

  Raises:
    TypeError: num_classes is not a static integer.
    ValueError: fewer than three classes without `least`, or `least` not positive.

  Differentiable in: nothing.

  Source: DIST 2.2 and eq. 2.5; Zhang et al. 2019, "AdaCos: adaptively scaling cosine
  logits".

  Example:
    >>> round(spherejax.losses.adacos_scale(100), 4)
    6.4985
  """
  if least is None:
    _checks.count("num_classes", num_classes, 3)
    return math.sqrt(2) * math.log(num_classes - 1)
  _checks.count("num_classes", num_classes)
  _checks.positive("least", least)
  return max(math.sqrt(2) * math.log(max(num_classes - 1, 1)), float(least))


def adacos_update(
  scale: Real[ArrayLike, ""],
  cosines: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  least: Real[ArrayLike, ""] = 0.01,
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, ""]:
  """Next scale of AdaCos, computed from the batch whose loss will use it.

      B = 1/n sum_i sum_{c != y_i} exp(scale cos_ic)
      scale <- max(log B / cos(min(pi/4, median_i angle_{i y_i})), least)

  Args:
    scale: the scale so far; `adacos_scale` at the start.
    cosines: [batch, classes], floating; `distances.pairwise_cosine` makes them.
      Known values must be in [-1, 1] up to rounding; traced values are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    least: lower bound of the scale, positive, may be traced. Without the bound, few
      classes with cosines near -1 would make the scale negative.
    where: [batch], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the batch is spread; the result is the same on
      all devices.

  Returns:
    A scalar, dtype of `cosines` in at least float32, for `normface`; the old scale
    where no row is kept.

  Raises:
    TypeError: cosines are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), or a static
      `least` or scale that is not positive.

  Differentiable in: nothing (gradients are stopped). Cost: O(batch classes).

  Source: DIST 2.2 and eq. 2.5; Zhang et al. 2019, "AdaCos: adaptively scaling cosine
  logits", eq. 15. The median of an even number of angles is the mean of the two in the
  middle; the lower bound is not in the paper.

  Example:
    >>> cosines, labels = jnp.eye(4), jnp.arange(4)
    >>> scale = spherejax.losses.adacos_scale(4)
    >>> spherejax.losses.adacos_update(scale, cosines, labels)
    Array(1.0986123, dtype=float32)
  """
  _checks.positive("least", least)
  _checks.positive("scale", scale)
  batch = _classes.scores("cosines", cosines, labels, where)
  before = _checks.scalar("scale", scale, batch.values.dtype)
  values, before, least = jax.lax.stop_gradient((batch.values, before, least))
  batch = batch._replace(values=values)
  floor = _checks.scalar("least", least, batch.values.dtype)
  log_b, rows = _log_mean_of_others(before * batch.values, batch.class_mask, axis_name)
  angle = _median_angle(_arccos(_classes.own_score(batch)), batch.class_mask, axis_name)
  scale = jnp.maximum(log_b / jnp.cos(jnp.minimum(angle, math.pi / 4)), floor)
  return jnp.where(rows > 0, scale, before)


def _arccos(cosines: Array) -> Array:
  return jnp.arccos(jnp.clip(cosines, -1, 1))


def _log_mean_of_others(
  logits: Array, class_mask: Array, axis_name: str | None, others: Array | bool = True
) -> tuple[Array, Array]:
  """log(1/n sum_i sum_{c != y_i} exp(logits_ic)) over all devices, and n."""
  mask = jnp.any(class_mask, axis=1)
  of_rows = _numerics.logsumexp(logits, others & ~class_mask & mask[:, None])[:, None]
  total = _batch.logsumexp(of_rows, of_rows != -jnp.inf, axis_name, 0)[0]
  rows = _batch.number(mask[:, None], axis_name, logits.dtype)
  total = _numerics.replicated(total, axis_name)
  return total - jnp.log(jnp.maximum(rows, 1)), rows


def _median_angle(angles: Array, class_mask: Array, axis_name: str | None) -> Array:
  """Mean of the two middle angles [batch, 1] of all kept rows; inf over none."""
  angles = jnp.where(jnp.any(class_mask, axis=1), angles[:, 0], jnp.inf)
  gathered = _batch.gather(angles, axis_name)
  ordered = jnp.sort(_numerics.replicated(gathered, axis_name))
  rows = jnp.sum(ordered < jnp.inf, dtype=jnp.int32)
  return (ordered[jnp.maximum(rows - 1, 0) // 2] + ordered[rows // 2]) / 2


class DynamicScale(NamedTuple):
  """A scale and the Adam moments that move it.

  Example:
    >>> state = spherejax.losses.dynamic_scale_init(100)
    >>> round(float(state.scale), 3)
    5.794
  """

  log_scale: Array
  """Logarithm of the scale."""
  first_moment: Array
  """Running mean of the gradient."""
  second_moment: Array
  """Running mean of the squared gradient."""
  steps: Array
  """Number of updates, an integer."""

  @property
  def scale(self) -> Array:
    """The scale of `normface`, or the exponent of `distance_ratio`."""
    return jnp.exp(self.log_scale)


def _curvature(
  scale: Array, log_b: Array, angle: Array, geometry: Geometry
) -> tuple[Array, Array]:
  """Curvature of the probability at `angle`, up to a positive factor, and its slope.

  The slope is the derivative with respect to the logarithm of the scale, divided by the
  same factor.
  """
  if geometry == "cosine":
    cos, sin2 = jnp.cos(angle), jnp.sin(angle) ** 2
    probability = jax.nn.sigmoid(scale * cos - log_b)
    value = cos + scale * sin2 * (2 * probability - 1)
    slope = (
      cos**2 * probability
      + sin2 * (2 * probability - 1)
      + scale * sin2 * cos * probability
    )
    return value, scale * slope
  log_distance = jnp.log(2 * jnp.sin(angle / 2) if geometry == "chordal" else angle)
  others = jax.nn.sigmoid(log_b + scale * log_distance)
  value = (scale + 1) * others - (scale - 1) * (1 - others)
  slope = others * (1 + (scale + 1) * log_distance) - (1 - others)
  return value, scale * slope


def dynamic_scale_init(
  num_classes: int, *, geometry: Geometry = "cosine"
) -> DynamicScale:
  """Scale at which the class probability has no curvature at an angle of pi/4.

  All other classes are assumed to be at a right angle. With fewer than 23 classes no
  such scale exists for cosines; the scale then starts at 10.

  Args:
    num_classes: at least 2. Static.
    geometry: "cosine", "chordal" or "angular": the kind of scores that
      `dynamic_scale_update` gets. Static.

  Returns:
    The initial state for `dynamic_scale_update`, float32 (float64 where that is JAX's
    default).

  Raises:
    TypeError: num_classes is not a static integer.
    ValueError: fewer than two classes, or an unknown `geometry`.

  Differentiable in: nothing. Cost: a bisection on the host.

  Source: DIST IV eq. 10 and appendix S1; for "chordal", with the chords of these
  angles.

  Example:
    >>> state = spherejax.losses.dynamic_scale_init(10, geometry="chordal")
    >>> round(float(state.scale), 3)
    4.343
  """
  _checks.count("num_classes", num_classes, 2)
  _checks.one_of("geometry", geometry, Geometry)
  zero = jnp.zeros(())
  log_scale = jnp.full((), math.log(_first_scale(num_classes, geometry)))
  return DynamicScale(log_scale, zero, zero, jnp.zeros((), jnp.int32))


def _first_scale(num_classes: int, geometry: Geometry) -> float:
  """Largest root of the curvature at pi/4, in float64 on the host."""
  others = math.log(num_classes - 1)

  def logistic(x: float) -> float:
    return 0.5 * (1 + math.tanh(x / 2))

  def of_cosines(s: float) -> float:
    return math.sqrt(0.5) + s / 2 * (2 * logistic(s * math.sqrt(0.5) - others) - 1)

  near = 2 * math.sin(math.pi / 8) if geometry == "chordal" else math.pi / 4
  far = math.sqrt(2) if geometry == "chordal" else math.pi / 2

  def of_distances(s: float) -> float:
    share = logistic(others + s * math.log(near / far))
    return (s - 1) * (1 - share) - (s + 1) * share

  grid = np.linspace(0.1, 30 + 2 * others, 3000)
  curvature: Callable[[float], float] = (
    of_cosines if geometry == "cosine" else of_distances
  )
  below = [s for s in grid if curvature(float(s)) < 0]
  if not below:
    return 10.0
  low, high = below[-1], grid[-1]
  for _ in range(100):
    middle = (low + high) / 2
    low, high = (middle, high) if curvature(middle) < 0 else (low, middle)
  return float(low)


def dynamic_scale_update(
  state: DynamicScale,
  scores: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  geometry: Geometry = "cosine",
  learning_rate: Real[ArrayLike, ""] = 1e-4,
  classes: _classes.Chosen | None = None,
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> DynamicScale:
  """Moves a scale to where the probability of the true class has no curvature.

  Takes one Adam step on the logarithm of the scale, to reduce the square of

      psi = cos a (E + B) + s sin(a)^2 (E - B),  E = exp(s cos a)        "cosine"
      psi = B (s + 1) d^s - s + 1                         "chordal", "angular"

  divided by a positive factor that is held constant. Here a is the median angle to the
  true class, at most pi/4, and d the distance at that angle. B is the batch mean, at
  the current scale s, of the sum of exp(logit) over the other classes. Where psi = 0
  the probability is steepest, so it responds most to a change of the angle.

  With cosines the zero exists only while log B is large enough for the angle (3.05 at
  pi/4, 9.1 at 0.4). Later in training it is not, and the scale collapses. For distances
  there is exactly one zero.

  Args:
    state: from `dynamic_scale_init`.
    scores: [batch, classes], floating: cosines for `normface`, squared chordal
      distances or squared angles for `distance_ratio`.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    geometry: "cosine", "chordal" or "angular". Static.
    learning_rate: of Adam, positive, may be traced.
    classes: [classes] or [batch, classes], boolean, True for classes that take part,
      such as those of an episode. None for all. A row whose class takes no part is a
      masked row.
    where: [batch], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the batch is spread; the result is the same on
      all devices.

  Returns:
    The next state; the unchanged state if no row is kept or only one class takes part.

  Raises:
    TypeError: scores are not floating, labels not integers, a mask not boolean.
    ValueError: shapes do not match, a known label outside [0, classes), an unknown
      `geometry`, or a static learning rate that is not positive.

  Differentiable in: nothing (gradients are stopped). Cost: O(batch classes).

  Source: DIST IV eq. 10 and appendix S1. For chords psi is a function of the chord, as
  in the released code. That code computes B with the square root of the scale as
  exponent; this function uses the scale.

  Example:
    >>> state = spherejax.losses.dynamic_scale_init(4, geometry="chordal")
    >>> squares = 2 - 2 * jnp.cos(jnp.eye(4) * -0.8 + 1.5)
    >>> state = spherejax.losses.dynamic_scale_update(
    ...   state, squares, jnp.arange(4), geometry="chordal"
    ... )
    >>> int(state.steps)
    1
  """
  _checks.instance("state", state, DynamicScale)
  _checks.one_of("geometry", geometry, Geometry)
  _checks.positive("learning_rate", learning_rate)
  batch = _classes.scores("scores", scores, labels, where)
  operands = state, batch.values, learning_rate
  state, values, rate = jax.lax.stop_gradient(operands)
  batch = batch._replace(values=values)
  others = _classes.taking_part(batch, classes)
  batch = batch._replace(class_mask=batch.class_mask & others)
  values, class_mask, dtype = batch.values, batch.class_mask, batch.values.dtype
  scale = jnp.exp(state.log_scale.astype(dtype))
  if geometry == "cosine":
    logits, angles = scale * values, _arccos(_classes.own_score(batch))
  else:
    # A squared distance that underflows counts as the smallest normal number.
    squares = jnp.maximum(values, jnp.finfo(dtype).tiny)
    logits = -scale / 2 * jnp.log(squares)
    angles = jnp.sqrt(_classes.own_score(batch._replace(values=squares)))
    if geometry == "chordal":
      angles = 2 * jnp.arcsin(jnp.minimum(angles / 2, 1))
  log_b, rows = _log_mean_of_others(logits, class_mask, axis_name, others)
  angle = jnp.minimum(_median_angle(angles, class_mask, axis_name), math.pi / 4)
  value, slope = _curvature(scale, log_b, angle, geometry)
  moved = _adam(state, value * slope, _checks.scalar("learning_rate", rate, dtype))
  changes = (rows > 0) & (log_b > -jnp.inf)
  return jax.tree.map(lambda new, old: jnp.where(changes, new, old), moved, state)


def _adam(state: DynamicScale, gradient: Array, rate: Array) -> DynamicScale:
  kind = state.log_scale.dtype
  moments = _numerics.AdamMoments(state.first_moment, state.second_moment)
  steps = state.steps + 1
  direction, moments = _numerics.adam(
    gradient.astype(kind), moments, steps.astype(kind)
  )
  moved = state.log_scale - rate.astype(kind) * direction
  return DynamicScale(moved, moments.mean, moments.square, steps)
