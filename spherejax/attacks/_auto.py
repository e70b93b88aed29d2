"""Auto-PGD: projected gradient ascent with automatic step sizes."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.attacks import _attempts, _gradient, _problem, _track
from spherejax.attacks._losses import Loss
from spherejax.attacks._problem import AttackResult, Mode, Model, Problem
from spherejax.attacks._region import Ball, steps_of
from spherejax.attacks._track import Aim, Track, where
from spherejax.distances._lp import Norm

_PERCENT = (22, 41, 57, 70, 80, 87, 93, 99)
_RISES = 0.75  # share of the steps between two checkpoints that must raise the loss
_MOMENTUM = 0.75
_FIRST_SHARE = 0.2  # share of the entries that the first l1 steps move
_DENSER = 0.95
_SLOWER, _SLOWEST = 1.5, 10.0
WIDE_STEPS = 5  # at least one within epsilon


def checkpoints(steps: int) -> list[int]:
  """Steps after which step sizes may be halved."""
  marks = sorted({-(-percent * steps // 100) for percent in _PERCENT})
  return [step for step in marks if step < steps]


class _Best(NamedTuple):
  point: Array
  loss: Array
  gradient: Array


class _Climb(NamedTuple):
  """[batch] each, except the points and gradients, [batch, n]."""

  point: Array
  previous: Array
  loss: Array
  best: _Best
  size: Array
  rises: Array
  halved: Array
  checked: Array
  """The best loss at the last checkpoint; for l1 the entries moved then."""
  moves: Array
  track: Track


def apgd(
  logits_fn: Model,
  x: Float[ArrayLike, "batch ..."],
  labels: Integer[ArrayLike, " batch"],
  *,
  key: Array,
  epsilon: Real[ArrayLike, "..."],
  norm: Norm = "linf",
  steps: int = 100,
  restarts: int = 1,
  loss: Loss = "ce",
  targets: _attempts.Targets = None,
  target_count: int | None = None,
  larger_radii: bool = False,
  low: Real[ArrayLike, "..."] = 0.0,
  high: Real[ArrayLike, "..."] = 1.0,
  mode: Mode = "evaluate",
  index: Integer[ArrayLike, " batch"] | None = None,
) -> AttackResult:
  """Auto-PGD: PGD with momentum, and steps that halve when the loss stops rising.

      y = P(x_k + size s(grad))
      x_{k+1} = P(x_k + 3/4 (y - x_k) + 1/4 (x_k - x_{k-1}))

  from a random start, with size 2 epsilon. Checkpoints lie after 22, 41, 57, ...
  percent of the steps. There the size halves and the attack returns to the best point
  so far, if fewer than three quarters of the steps since the last checkpoint raised the
  loss. The same happens if the last checkpoint did not halve the size and the best loss
  has not changed since. In l1 there is no momentum; the step moves as many entries as
  the sparsity of the best point suggests.

  Each sample has its own step size, checkpoint decisions and best point.

  Args:
    logits_fn: maps [batch, ...] to [batch, classes]; or an `Expectation`. A new
      function compiles again: see `spherejax.attacks`.
    x: [batch, ...], floating, in the box.
    labels: [batch], integer in [0, classes).
    key: a typed PRNG key.
    epsilon: radius, at least 0, one number or [batch]; may be traced; inf for the box.
    norm: "linf", "l2" or "l1". Static.
    steps: static.
    restarts: static.
    loss: "ce", "margin", "dlr" or "kl", see `attack_loss`. Static.
    targets: as in `pgd`. The paper's targeted form uses "all", with `loss="dlr"`.
    target_count: with "all": the number of targets, highest logits at x first; 9 in the
      paper. None for all. Static.
    larger_radii: whether the climb begins in larger balls: three tenths of the steps
      within 3 epsilon, as many within 2 epsilon, each from the best point of the
      previous ball, projected. Only points within epsilon count. Helps in l1. Static.
    low: least value of an entry; broadcasts to x.
    high: largest value; likewise.
    mode: as in `pgd`. Static.
    index: as in `pgd`.

  Returns:
    AttackResult.

  Raises:
    TypeError: as `pgd`, larger_radii not boolean.
    ValueError: as `pgd`; fewer than 5 steps with `larger_radii`.

  Verified on: 128 samples of affine models of 3 classes, half of the entries on faces
  of the box, epsilon 1.02 times the least move: the defaults break 76 % (linf), 59 %
  (l2) and 73 % (l1). For the rest use targets "all": more steps do not leave a corner.

  Differentiable in: nothing. Cost: restarts x targets x (steps + 1) gradients, two more
  with `larger_radii`, and one evaluation.

  Source: Croce and Hein 2020, "Reliable evaluation of adversarial robustness with an
  ensemble of diverse parameter-free attacks", algorithm 1; 2021, "Mind the box" (l1).
  The released code differs: it counts steps that raise the loss with "<=", compares the
  first step with 0, and rounds the checkpoints differently.

  Example:
    >>> logits_fn = lambda x: x @ jnp.array([[1.0, -1.0], [0.0, 0.5]])
    >>> x, labels = jnp.array([[0.7, 0.5]]), jnp.array([0])
    >>> found = spherejax.attacks.apgd(
    ...   logits_fn, x, labels, key=jax.random.key(0), epsilon=0.25, steps=10)
    >>> found.x_adv.round(2)
    Array([[0.45, 0.75]], dtype=float32)
  """
  _checks.key("key", key)
  _checks.flag("larger_radii", larger_radii)
  problem = _problem.setup(
    logits_fn, x, labels, key=key, index=index, low=low, high=high
  )
  _checks.count("steps", steps)
  _checks.count("restarts", restarts)
  _checks.one_of("mode", mode, Mode)
  if larger_radii and steps < WIDE_STEPS:
    raise ValueError(
      f"steps must be at least {WIDE_STEPS} with larger_radii, got {steps}"
    )
  region = _problem.ball(problem, epsilon, norm)
  climb = _climb_l1 if norm == "l1" else _climb_momentum
  wide = -(-3 * steps // 10)  # steps within each of the larger balls
  factors = (3, 2) if larger_radii else ()
  last = steps - len(factors) * wide

  def run(aim: Aim, keys: Array | None, track: Track) -> Track:
    assert keys is not None
    now = problem._replace(keys=keys)
    balls = [region._replace(epsilon=k * region.epsilon) for k in factors] + [region]
    start = balls[0].start(keys, problem.clean)
    for ball, smaller in itertools.pairwise(balls):
      outside = climb(now, ball, aim, start, track, wide, mode)
      track = _track.counted(track, outside.track)
      start = smaller.project(outside.best.point, problem.clean)
    state = climb(now, region, aim, start, track, last, mode)
    if mode != "last":
      return state.track
    # A method that goes back to its best point ends with that point.
    evaluation = _track.value(problem, aim, state.best.point, last + 1)
    return _track.keep(state.track, state.best.point, evaluation, mode=mode, final=True)

  return _gradient.attack_all(
    problem, region, run, restarts, loss, targets, target_count, mode
  )


def _begin(start: Array, size: Array, checked: Array, track: Track) -> _Climb:
  lowest = jnp.full_like(size, -jnp.inf)
  none = jnp.zeros(size.shape, jnp.int32)
  best = _Best(start, lowest, jnp.zeros_like(start))
  return _Climb(
    start, start, -lowest, best, size, none, none > 0, checked, none + 1, track
  )


def _arrive(
  problem: Problem, aim: Aim, climb: _Climb, step: Array, steps: int, mode: Mode
) -> tuple[_Climb, Array]:
  """Evaluates the point, and keeps it where it is the best so far."""
  evaluation, gradient = _track.value_and_gradient(problem, aim, climb.point, step)
  late = _track.late(step, steps)
  track = _track.keep(
    climb.track, climb.point, evaluation, mode=mode, gradient=gradient, late=late
  )
  better = evaluation.loss > climb.best.loss
  new = _Best(climb.point, evaluation.loss, gradient)
  best = _Best(*(where(better, a, b) for a, b in zip(new, climb.best, strict=True)))
  rises = climb.rises + (
    evaluation.loss > climb.loss
  )  # no loss is above the first, inf
  climb = climb._replace(loss=evaluation.loss, best=best, rises=rises, track=track)
  return climb, gradient


def _climb_momentum(
  problem: Problem,
  region: Ball,
  aim: Aim,
  start: Array,
  track: Track,
  steps: int,
  mode: Mode,
) -> _Climb:
  marks = checkpoints(steps)
  windows = np.zeros(steps + 1, np.int32)
  windows[marks] = np.diff([0, *marks])
  first = np.arange(steps + 1) == (marks[0] if marks else -1)

  def advance(climb, now):
    step, window, first = now
    climb, gradient = _arrive(problem, aim, climb, step, steps, mode)
    best = climb.best
    few = climb.rises < _RISES * window
    stuck = ~climb.halved & (best.loss == climb.checked) & ~first
    check = window > 0
    halve = check & (few | stuck)
    size = jnp.where(halve, climb.size / 2, climb.size)
    point = where(halve, best.point, climb.point)
    gradient = where(halve, best.gradient, gradient)
    weight = jnp.where(step == 0, 1.0, _MOMENTUM)
    straight = region.project(
      point + size[:, None] * region.ascend(gradient), problem.clean
    )
    onward = weight * (straight - point) + (1 - weight) * (point - climb.previous)
    climb = climb._replace(
      point=region.project(point + onward, problem.clean),
      previous=point,
      loss=jnp.where(halve, best.loss, climb.loss),
      size=size,
      rises=jnp.where(check, 0, climb.rises),
      halved=jnp.where(check, halve, climb.halved),
      checked=jnp.where(check, best.loss, climb.checked),
    )
    return climb, None

  climb = _begin(start, 2 * region.epsilon, region.epsilon, track)
  climb = _numerics.varying(climb)
  return jax.lax.scan(advance, climb, (jnp.arange(steps + 1), windows, first))[0]


def _climb_l1(
  problem: Problem,
  region: Ball,
  aim: Aim,
  start: Array,
  track: Track,
  steps: int,
  mode: Mode,
) -> _Climb:
  entries = start.shape[1]
  every = max(int(0.04 * steps), 1)

  def advance(climb, step):
    climb, gradient = _arrive(problem, aim, climb, step, steps, mode)
    best = climb.best
    check = (step > 0) & (step % every == 0)
    moved = jnp.sum(best.point != problem.clean, axis=1).astype(climb.checked.dtype)
    sparser = check & (moved < _DENSER * climb.checked)
    slower = jnp.maximum(climb.size / _SLOWER, region.epsilon / _SLOWEST)
    size = jnp.where(check, jnp.where(sparser, region.epsilon, slower), climb.size)
    fewer = jnp.maximum(moved / _SLOWER, 1).astype(climb.moves.dtype)
    count = jnp.where(check, fewer, climb.moves)
    point = where(sparser, best.point, climb.point)
    gradient = where(sparser, best.gradient, gradient)
    ahead = point + size[:, None] * steps_of(gradient, "l1", count)
    climb = climb._replace(
      point=region.project(ahead, problem.clean),
      size=size,
      moves=count,
      checked=jnp.where(check, moved, climb.checked),
    )
    return climb, None

  climb = _begin(start, region.epsilon, jnp.full_like(region.epsilon, entries), track)
  share = jnp.full_like(climb.moves, max(1, int(_FIRST_SHARE * entries)))
  climb = _numerics.varying(climb._replace(moves=share))
  return jax.lax.scan(advance, climb, jnp.arange(steps + 1))[0]
