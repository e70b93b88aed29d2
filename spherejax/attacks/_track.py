"""Evaluations of the model at an attack's points, and the best point so far."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from spherejax import _numerics
from spherejax.attacks import _losses
from spherejax.attacks._losses import Loss
from spherejax.attacks._problem import AttackResult, Expectation, Mode, Problem

SETTLED = 1e-3  # largest relative change over the last quarter of the steps


class Aim(NamedTuple):
  """Objective that the attack maximises."""

  loss: Loss
  targets: Array | None = None
  """[batch]; None for any wrong class."""
  reference: Array | None = None
  """[batch, classes], logits that "kl" departs from."""
  leave: bool = False
  """True if any wrong decision is a success, and targets are only a means to it."""


class Evaluation(NamedTuple):
  """Results of one evaluation of each sample, all [batch]."""

  loss: Array
  margin: Array
  success: Array
  saturated: Array


class Track(NamedTuple):
  """Best point so far, and the counts of the diagnostics."""

  point: Array
  loss: Array
  margin: Array
  success: Array
  gradients: Array
  zeros: Array
  evaluations: Array
  saturated: Array
  early: Array
  """The largest loss before the last quarter of an attempt's steps."""


def late(step: Array | int, steps: int) -> Array:
  """True if step number `step` lies in the last quarter of all steps."""
  return jnp.asarray(4 * step > 3 * steps)


def assess(z: Array, loss: Array, labels: Array, aim: Aim) -> Evaluation:
  """Judges the scores that decide; the loss is -inf where scores are not finite."""
  targets = None if aim.leave else aim.targets
  margin, success = _losses.margin_and_success(z, labels, targets)
  lead = _losses.best_other(z, labels) - _losses.pick(z, labels)
  saturated = lead < math.log(jnp.finfo(jnp.float32).eps / 2)
  sound = jnp.all(jnp.isfinite(z), axis=1) & ~jnp.isnan(loss)
  return Evaluation(jnp.where(sound, loss, -jnp.inf), margin, success, saturated)


def value(
  problem: Problem,
  aim: Aim,
  points: Array,
  step: Array | int = 0,
  *,
  judged: Array | None = None,
) -> Evaluation:
  """Evaluates points without a gradient; `judged` are the scores if already known."""
  z, loss = _objective(problem, aim, points, step, judged)
  z = problem.judged(points, step) if z is None else z
  return assess(z, loss, problem.labels, aim)


def value_and_gradient(
  problem: Problem, aim: Aim, points: Array, step: Array | int = 0
) -> tuple[Evaluation, Array]:
  """Evaluates points and the gradient of each loss; infinite or NaN counts as 0."""

  def total(points):
    z, loss = _objective(problem, aim, points, step)
    return jnp.sum(loss), (z, loss)

  (_, (z, loss)), gradient = jax.value_and_grad(total, has_aux=True)(points)
  z = problem.judged(points, step) if z is None else z
  evaluation = assess(z, loss, problem.labels, aim)
  return evaluation, jnp.where(jnp.isfinite(gradient), gradient, 0)


def _objective(
  problem: Problem,
  aim: Aim,
  points: Array,
  step: Array | int,
  judged: Array | None = None,
) -> tuple[Array | None, Array]:
  """Scores that decide, if known already, and the loss to ascend, [batch].

  For an `Expectation` the loss is the mean over draws, and other draws decide.
  """

  def loss(z):
    return _losses.of_scores(
      z, problem.labels, aim.loss, aim.targets, aim.reference, against_label=aim.leave
    )

  if isinstance(problem.model, Expectation):
    views = problem.views(points, 2 * step, problem.model.draws)
    return judged, jnp.mean(jax.vmap(loss, 1, 1)(views), axis=1)
  z = problem.scores(points) if judged is None else judged
  return z, loss(z)


def first_track(problem: Problem) -> Track:
  """Starts a track at the samples themselves."""
  batch, dtype = problem.labels.shape, problem.clean.dtype
  lowest, none = jnp.full(batch, -jnp.inf, dtype), jnp.zeros(batch, jnp.int32)
  failed = jnp.zeros(batch, bool)
  track = Track(problem.clean, lowest, lowest, failed, none, none, none, none, lowest)
  return _numerics.varying(track, problem.operands)


def keep(
  track: Track,
  points: Array,
  evaluation: Evaluation,
  *,
  mode: Mode,
  gradient: Array | None = None,
  final: bool = False,
  late: Array | bool = True,
) -> Track:
  """Keeps better points and counts evaluations; `late` comes from the function `late`.

  A success is better than a failure; among equals a larger loss is better. The mode
  "train" compares only losses; "last" keeps only final points.
  """
  better = evaluation.loss > track.loss
  if mode == "evaluate":
    better = (better & (evaluation.success == track.success)) | (
      evaluation.success & ~track.success
    )
  if mode == "last" and not final:
    better = jnp.zeros_like(better)
  old = (track.point, track.loss, track.margin, track.success)
  new = (points, evaluation.loss, evaluation.margin, evaluation.success)
  point, loss, margin, success = (
    where(better, a, b) for a, b in zip(new, old, strict=True)
  )
  gradients, zeros = track.gradients, track.zeros
  if gradient is not None:
    gradients = gradients + 1
    zeros = zeros + jnp.all(gradient == 0, axis=1)
  return Track(
    point,
    loss,
    margin,
    success,
    gradients,
    zeros,
    track.evaluations + 1,
    track.saturated + evaluation.saturated,
    jnp.where(late, track.early, jnp.maximum(evaluation.loss, track.early)),
  )


def counted(track: Track, later: Track) -> Track:
  """Copies the diagnostic counts of `later` into `track`; the best point stays."""
  counts = ("gradients", "zeros", "evaluations", "saturated")
  return track._replace(**{name: getattr(later, name) for name in counts})


def where(rows: Array, new: Array, old: Array) -> Array:
  """Chooses by rows of [batch, ...]."""
  return jnp.where(rows.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def finish(
  problem: Problem,
  track: Track,
  size: Callable[[Array, Array], Array],
  clean: Evaluation | None,
) -> AttackResult:
  """Result of the attack; samples that are wrong already stay, if `clean` is given."""
  track, clean = jax.lax.stop_gradient((track, clean))
  queries, point = track.evaluations, track.point
  loss, margin, success = track.loss, track.margin, track.success
  if clean is not None:
    done = clean.success
    point = where(done, problem.clean, point)
    queries = jnp.where(done, 1, queries + 1)
    success = success | done
    loss, margin = (
      jnp.where(done, a, b) for a, b in ((clean.loss, loss), (clean.margin, margin))
    )
  rising = loss > track.early + SETTLED * jnp.abs(track.early)
  blind = (track.zeros == track.gradients) & (track.gradients > 0)
  norm = size(point, problem.clean)
  return AttackResult(
    point.reshape(problem.shape),
    success,
    loss,
    margin,
    norm,
    queries,
    share(track.zeros, track.gradients, norm.dtype),
    share(track.saturated, track.evaluations, norm.dtype),
    success | ~(rising | blind),
  )


def share(part: Array, whole: Array, dtype: jnp.dtype) -> Array:
  """Quotient of two counts; 0 for a total of 0."""
  return _numerics.divide(part.astype(dtype), whole.astype(dtype))
