"""Contract of every attack: arguments, evaluations and the result."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from spherejax import _checks, _compiled, _numerics
from spherejax.attacks import _ball, _losses
from spherejax.attacks._box import box, check_radius
from spherejax.attacks._region import Ball, Region
from spherejax.distances._lp import Norm

Mode = Literal["evaluate", "train", "last"]
# Offset of the keys of views, beyond the numbers of restarts and of starts.
_VIEWS = 2**32 - 1


class AttackResult(NamedTuple):
  """Result of every attack: the points and their scores, one row per sample.

  The last three fields belong to one attack each and are None for the others.
  """

  x_adv: Float[Array, "batch ..."]
  """The points; they lie in the region in exact arithmetic, even after a failure."""
  success: Bool[Array, " batch"]
  """True if the decision (the lowest index among equals) is wrong, or is the target."""
  loss: Float[Array, " batch"]
  """The attack's loss there."""
  margin: Float[Array, " batch"]
  """Largest wrong logit minus the label's; or the target's minus the largest other."""
  norm: Float[Array, " batch"]
  """Size of the move; inf where an attack of least norm found nothing."""
  queries: Int[Array, " batch"]
  """Number of points of this sample at which the model decided, x included if it was
  evaluated. The extra cost of gradients, or of an `Expectation`'s draws, is not
  counted."""
  zero_gradients: Float[Array, " batch"]
  """Share of the gradients that were zero or not finite in every entry."""
  saturated: Float[Array, " batch"]
  """Share of the evaluations where the probability of the label is 1 in float32."""
  converged: Bool[Array, " batch"]
  """True if more steps promise no improvement. With a fixed budget: a success, or an
  attack whose gradients were not all zero and in which the last quarter of the steps
  raised the loss by less than 0.1 %. With minimal norm: a success that the last quarter
  of the steps brought nearer by less than 0.1 %. This is no proof: another start may
  succeed."""
  stage: Any = None
  """From `ensemble`, [batch], integer: number of the attack that broke the sample,
  from 1; 0 for a wrong decision at x; -1 for none."""
  cell_margin: Any = None
  """From `voronoi_pgd`, [batch], floating: distance to the nearest other site minus the
  distance to the own site; above 0, or 0 at a site that occurs twice."""
  complete: Any = None
  """From `voronoi_pgd`, [batch], boolean: whether no site that can bind was left out of
  the projection. The points are in their cells even if a site was left out, but the
  attack may be weaker."""

  @property
  def result(self) -> "AttackResult":
    """Returns the result itself; before version 0.2, `ensemble` had this field."""
    return self

  @property
  def attack(self) -> "AttackResult":
    """Returns the result itself; before version 0.2, `voronoi_pgd` had this field."""
    return self


class Expectation(NamedTuple):
  """Model behind a random transformation, to be attacked on average.

      loss(x) = mean_{j <= draws} loss(logits_fn(transform(k_j, x)))

  Pass it as `logits_fn` to `pgd`, its special cases and `apgd`. Every step draws anew;
  the mean probability over `judging_draws` further draws decides about success.
  """

  logits_fn: Callable[[Array], Array]
  """Maps [batch, ...] to [batch, classes]."""
  transform: Callable[[Array, Array], Array]
  """Maps a key and a sample to a sample, perhaps of another shape."""
  draws: int = 10
  """Number of transformations that a gradient averages. Static."""
  judging_draws: int = 10
  """Number of transformations that decide about success. Static."""


Model = Callable[[Array], Array] | Expectation


def deterministic(attack: str, model: Model) -> None:
  """Raises for an `Expectation` in an attack that does not average over draws."""
  if isinstance(model, Expectation):
    raise TypeError(
      f"logits_fn of {attack} must be a function, got an Expectation: pgd, bim, fgsm,"
      " mi_fgsm and apgd take one"
    )


class Problem(NamedTuple):
  """Checked operands; points are [batch, n]."""

  model: Model
  shape: tuple[int, ...]
  clean: Array
  labels: Array
  low: Array
  high: Array
  keys: Array | None
  classes: int
  sides: tuple[ArrayLike | None, ArrayLike | None] = (None, None)
  """The lower and the upper side of the box as given, where they are known."""

  @property
  def operands(self) -> tuple[Array | None, ...]:
    """The arrays that every step uses."""
    return self.clean, self.labels, self.low, self.high, self.keys

  def scores(self, points: Array) -> Array:
    """Logits [batch, classes] of the model itself."""
    assert not isinstance(self.model, Expectation)
    return logits(self.model, points.reshape(self.shape))

  def views(self, points: Array, step: Array | int, draws: int) -> Array:
    """Logits [batch, draws, classes] of transformed points."""
    model, keys = self.model, self.keys
    assert isinstance(model, Expectation)
    assert keys is not None

    def transformed(key, point):
      key = jax.random.fold_in(jax.random.fold_in(key, _VIEWS), step)
      drawn = jax.random.split(key, draws)
      sample = point.reshape(self.shape[1:])
      return jax.vmap(model.transform, (0, None))(drawn, sample)

    views_of_points = jax.vmap(transformed)(keys, points)
    scores = logits(
      model.logits_fn, views_of_points.reshape(-1, *views_of_points.shape[2:])
    )
    return scores.reshape(len(points), draws, self.classes)

  def judged(self, points: Array, step: Array | int = 0) -> Array:
    """Scores [batch, classes] by which success is decided."""
    if not isinstance(self.model, Expectation):
      return self.scores(points)
    views = self.views(points, 2 * step + 1, self.model.judging_draws)
    return _numerics.logsumexp(_numerics.log_softmax(views), axis=1) - math.log(
      self.model.judging_draws
    )


def logits(logits_fn: Callable[[Array], Array], x: Array) -> Array:
  """Checked scores of a model, in the type of the points."""
  scores = _checks.array("what logits_fn returns", logits_fn(x))
  _checks.expect("logits", scores, "floating")
  if scores.ndim != 2 or len(scores) != len(x):
    raise ValueError(
      f"logits_fn must return [batch, classes] for {x.shape}, got {scores.shape}"
    )
  return scores.astype(x.dtype)


def setup(
  model: Model,
  x: ArrayLike,
  labels: ArrayLike,
  *,
  key: Array | None,
  index: ArrayLike | None,
  low: ArrayLike,
  high: ArrayLike,
) -> Problem:
  """Checks the arguments that all attacks share, and flattens the samples."""
  if not isinstance(model, Expectation):
    _checks.function("logits_fn", model)
  clean = _checks.array("x", x, "floating")
  labels = _checks.integers("labels", labels)
  _checks.batched("x", clean)
  _checks.labels(labels, clean)
  _checks.limits(low, high)
  dtype = _numerics.compute_dtype(clean.dtype)
  sides = low, high
  low, high = box(clean, low, high)
  shape = clean.shape
  count, size = len(clean), math.prod(shape[1:])
  keys = None
  rows = jnp.arange(count) if index is None else _checks.integers("index", index)
  _checks.labels(rows, clean, "index")
  if key is not None:
    keys = _numerics.row_keys(key, rows)
  elif isinstance(model, Expectation):
    raise ValueError("an Expectation needs a key, got None")
  clean = jax.lax.stop_gradient(clean).astype(dtype)
  clean, low, high = (v.reshape(count, size) for v in (clean, low, high))
  problem = Problem(model, shape, clean, labels, low, high, keys, 0, sides)
  problem = problem._replace(
    classes=jax.eval_shape(lambda: _classes(problem)).shape[-1]
  )
  _checks.known_labels(labels, problem.classes)
  return problem


def _classes(problem: Problem) -> Array:
  model, keys = problem.model, problem.keys
  if not isinstance(model, Expectation):
    return problem.scores(problem.clean)
  assert keys is not None
  samples = problem.clean.reshape(problem.shape)
  return logits(model.logits_fn, jax.vmap(model.transform)(keys, samples))


def ball(
  problem: Problem, epsilon: ArrayLike | None, norm: Norm, share: float = 0.0
) -> Ball:
  """Ball from an attack's arguments."""
  _checks.one_of("norm", norm, Norm)
  if epsilon is None:
    raise ValueError("epsilon must be given where no region is, got None")
  radius = _ball.radii(epsilon, problem.labels.shape, problem.clean.dtype)
  low, high = problem.sides
  check_radius(epsilon, low, high, problem.shape, norm)
  finite = _compiled.known(_all_finite, epsilon)
  if not finite:
    bounded = [_compiled.known(_all_finite, side) for side in problem.sides]
    if finite is not None and False in bounded:
      raise ValueError("epsilon must be finite where the box is not, got inf")
    # A radius that binds nowhere; an infinite step would leave nothing to compute with.
    far = jnp.maximum(problem.clean - problem.low, problem.high - problem.clean)
    radius = jnp.where(jnp.isinf(radius), 2 * _ball.sizes(far, norm), radius)
  return Ball(norm, radius, problem.low, problem.high, share)


def targets_of(problem: Problem, targets: ArrayLike) -> Array:
  """Checked targets [batch]."""
  aims = _checks.integers("targets", targets)
  _checks.labels(aims, problem.clean, "targets")
  _checks.known_labels(aims, problem.classes, name="targets")
  _compiled.known(_check_different, aims, problem.labels)
  return aims


def _check_different(targets: ArrayLike, labels: ArrayLike) -> None:
  aims, known = np.asarray(targets), np.asarray(labels)
  if np.any(aims == known):
    row = int(np.argmax(aims == known))
    raise ValueError(f"targets must differ from labels, both {known[row]} at {row}")


def _all_finite(value: ArrayLike | None) -> bool:
  return value is None or bool(np.isfinite(np.asarray(value)).all())


def rivals(scores: Array, labels: Array) -> Array:
  """Other classes [batch, classes - 1], highest score first."""
  others = jnp.where(_losses.chosen(scores, labels), -jnp.inf, scores)
  # A second sort key puts the label last, also among scores of -inf.
  order = jnp.lexsort((-others, _losses.chosen(scores, labels)), axis=1)
  return order[:, :-1]


def region_of(
  problem: Problem,
  epsilon: ArrayLike | None,
  norm: Norm,
  share: float,
  region: Region | None,
) -> Region:
  """Returns the given region, or the ball."""
  if region is None:
    return ball(problem, epsilon, norm, share)
  if epsilon is not None:
    raise ValueError(f"a region has its own epsilon, got epsilon {epsilon} too")
  _checks.shape("region.epsilon", region.epsilon, problem.labels.shape, "the batch")
  return region
