"""Projected gradient ascent (PGD) with steps of a fixed size."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.attacks import _attempts, _losses, _problem, _track
from spherejax.attacks._attempts import Targets
from spherejax.attacks._losses import Loss
from spherejax.attacks._problem import AttackResult, Expectation, Mode, Model, Problem
from spherejax.attacks._region import Paced, Region
from spherejax.attacks._track import Aim, Track
from spherejax.distances._lp import Norm


def pgd(
  logits_fn: Model,
  x: Float[ArrayLike, "batch ..."],
  labels: Integer[ArrayLike, " batch"],
  *,
  key: Array | None,
  epsilon: Real[ArrayLike, "..."] | None = None,
  norm: Norm = "linf",
  steps: int = 40,
  step_size: Real[ArrayLike, "..."] | None = None,
  restarts: int = 1,
  random_start: bool = True,
  loss: Loss = "ce",
  targets: Targets = None,
  target_count: int | None = None,
  share: float = 0.05,
  decay: Real[ArrayLike, ""] | None = None,
  low: Real[ArrayLike, "..."] = 0.0,
  high: Real[ArrayLike, "..."] = 1.0,
  mode: Mode = "evaluate",
  index: Integer[ArrayLike, " batch"] | None = None,
  region: Region | None = None,
) -> AttackResult:
  """Projected gradient ascent (PGD) in a norm ball, from random starts.

      x_0 = P(x + uniform draw),   x_{i+1} = P(x_i + step_size s(grad loss(x_i)))

  P is the exact projection onto ball and box, s the steepest direction of the norm. The
  result of a sample depends neither on other samples nor on its batch.

  Args:
    logits_fn: maps [batch, ...] to [batch, classes]: pure, in evaluation mode; or an
      `Expectation`. A new function compiles again: see `spherejax.attacks`.
    x: [batch, ...], floating, in the box. The attack computes in float32 (float64 for
      float64) whatever the type of the model.
    labels: [batch], integer in [0, classes).
    key: a typed PRNG key; None without random starts. Sample b draws from
      fold_in(key, index[b]).
    epsilon: radius, at least 0, one number or [batch]; may be traced; inf leaves only
      the box, which then must be finite. A known finite epsilon larger than the extent
      of a known box is an error, such as 8 instead of 8/255 on images in [0, 1].
    norm: "linf", "l2" or "l1", over all entries of a sample. Static.
    steps: static.
    step_size: one number or [batch], may be traced; inf stands for the radius. None is
      2.5 epsilon / steps.
    restarts: static. Number of starts, one after another.
    random_start: static. True draws the first point; False starts at x.
    loss: the loss to maximise, see `attack_loss`. Static. "kl" compares with the
      model's own predictions; it has no slope at x and needs a random start.
    targets: [batch] integers, the classes to reach, not the labels; None for any wrong
      class; "all" to attack towards each wrong class in turn.
    target_count: with "all": the number of targets, highest logits at x first. Static.
    share: for l1: share of the entries that a step moves, in [0, 1]; at least one entry
      moves. Static.
    decay: factor on the accumulated gradient, see `mi_fgsm`; may be traced. None does
      not accumulate.
    low: least value of an entry; broadcasts to x.
    high: largest value; likewise.
    mode: "evaluate" returns the success of largest loss, else the point of largest
      loss, over all iterates and restarts, and x itself if it is misclassified already.
      "train" returns the point of largest loss, "last" the last iterate. Static.
    index: [batch], the samples' numbers, for the keys. None counts from 0.
    region: a `Region` in place of the ball of epsilon and norm. It has its own box:
      `low` and `high` then bound x alone, not the points. With a step_size of None, a
      region with a method `paces(steps)` sets the step sizes, [steps, batch].

  Returns:
    AttackResult. Under `jax.jit` a wrong label, a wrong target or an x outside the box
    goes unnoticed, and the result is undefined.

  Raises:
    TypeError: x not floating, labels or targets not integers, random_start not boolean.
    ValueError: shapes do not match; an unknown name; share outside [0, 1];
      target_count below 1 or without "all"; "dlr" with too few classes; random starts
      without a key; "kl" without random starts; and, where the values are known: x
      outside the box, low > high, epsilon or step_size below 0, epsilon beyond the box,
      or inf in an infinite box, labels or targets out of range, a target that is
      the label.

  Verified on: 128 samples of affine models of 3 classes, half of the entries on faces
  of the box, epsilon 1.02 times the least move: the defaults break 75 % (linf), 32 %
  (l2) and 55 % (l1). With targets "all", 60 steps and a step size of epsilon / 2 PGD
  breaks all in l2.

  Differentiable in: nothing; no gradient reaches the parameters of the model. Cost:
  restarts x targets x (steps gradients + 1 evaluation), and one evaluation of x in the
  mode "evaluate".

  Source: Madry et al. 2018, "Towards deep learning models resistant to adversarial
  attacks"; DIST 3.1.

  Example:
    >>> logits_fn = lambda x: x @ jnp.array([[1.0, -1.0], [0.0, 0.5]])
    >>> x, labels = jnp.array([[0.7, 0.5]]), jnp.array([0])
    >>> result = spherejax.attacks.pgd(
    ...   logits_fn, x, labels, key=jax.random.key(0), epsilon=0.75)
    >>> result.x_adv.round(2), result.success
    (Array([[0., 1.]], dtype=float32), Array([ True], dtype=bool))
  """
  if key is not None:
    _checks.key("key", key)
  _checks.flag("random_start", random_start)
  problem = _problem.setup(
    logits_fn, x, labels, key=key, index=index, low=low, high=high
  )
  _checks.count("steps", steps)
  _checks.count("restarts", restarts)
  _checks.one_of("mode", mode, Mode)
  _checks.share("share", share)
  if decay is not None:
    _checks.between("decay", decay, 0)
    _checks.single("decay", decay)
  if random_start and key is None:
    raise ValueError("random starts need a key, got None")
  if loss == "kl" and not random_start and not isinstance(logits_fn, Expectation):
    raise ValueError('"kl" has no slope at x: it needs random starts')
  region = _problem.region_of(problem, epsilon, norm, share, region)
  if step_size is None and isinstance(region, Paced):
    size = region.paces(steps)
  elif step_size is None:
    size = 2.5 * region.epsilon / steps
  else:
    _checks.not_negative("step_size", step_size)
    size = jnp.asarray(step_size, problem.clean.dtype)
    if size.ndim:
      _checks.shape("step_size", size, problem.labels.shape, "the batch")
    size = jnp.where(jnp.isinf(size), region.epsilon, size)

  def run(aim: Aim, keys: Array | None, track: Track) -> Track:
    start = problem.clean
    if random_start and keys is not None:
      start = region.start(keys, problem.clean)
    ahead = problem._replace(keys=keys)
    return _ascend(ahead, region, aim, start, track, steps, size, decay, mode)

  return attack_all(problem, region, run, restarts, loss, targets, target_count, mode)


def _ascend(
  problem: Problem,
  region: Region,
  aim: Aim,
  start: Array,
  track: Track,
  steps: int,
  size: Array,
  decay: ArrayLike | None,
  mode: Mode,
) -> Track:
  """Runs PGD from one start."""

  def advance(carry, now):
    step, size = now
    points, velocity, track = carry
    evaluation, gradient = _track.value_and_gradient(problem, aim, points, step)
    late = _track.late(step, steps)
    track = _track.keep(
      track, points, evaluation, mode=mode, gradient=gradient, late=late
    )
    if velocity is None:
      direction = gradient
    else:
      total = jnp.sum(jnp.abs(gradient), axis=1, keepdims=True)
      velocity = direction = decay * velocity + _numerics.divide(gradient, total)
    moved = points + size[:, None] * region.ascend(direction)
    return (region.project(moved, problem.clean), velocity, track), None

  velocity = None if decay is None else jnp.zeros_like(start)
  carry = _numerics.varying((start, velocity, track))
  sizes = jnp.broadcast_to(size, (steps, *problem.labels.shape))
  (points, _, track), _ = jax.lax.scan(advance, carry, (jnp.arange(steps), sizes))
  evaluation = _track.value(problem, aim, points, steps)
  return _track.keep(track, points, evaluation, mode=mode, final=True)


def attack_all(
  problem: Problem,
  region: Region,
  run: Callable[[Aim, Array | None, Track], Track],
  restarts: int,
  loss: Loss,
  targets: Targets,
  target_count: int | None,
  mode: Mode,
) -> AttackResult:
  """Runs every restart against every target, and keeps the best of each sample."""
  _losses.check_classes(loss, problem.classes, targets is not None)
  aim = _attempts.aim_of(problem, loss, targets, target_count)
  clean = None
  order = None
  if mode == "evaluate" or aim.leave or loss == "kl":
    z = problem.judged(problem.clean)
    if loss == "kl":
      aim = aim._replace(reference=jax.lax.stop_gradient(z))
    if aim.leave:
      order = _problem.rivals(z, problem.labels).T[:target_count]
    plain = aim if order is None or not len(order) else aim._replace(targets=order[0])
    if mode == "evaluate" and (not aim.leave or plain.targets is not None):
      clean = _track.value(problem, plain, problem.clean, judged=z)

  def attempt(track, aim, number):
    keys = problem.keys
    if keys is not None:
      keys = jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)
    return run(aim, keys, track)

  track = _numerics.varying(_track.first_track(problem), region, aim)
  track = _attempts.in_turn(attempt, track, aim, order, restarts)
  return _track.finish(problem, track, region.size, clean)
