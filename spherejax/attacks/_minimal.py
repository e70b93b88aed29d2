"""Shared parts of minimal-norm attacks: gradients, and the nearest wrong point."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from spherejax import _numerics, distances
from spherejax.attacks import _ball, _losses, _track
from spherejax.attacks._problem import AttackResult, Problem
from spherejax.attacks._track import SETTLED, Aim, Evaluation, where
from spherejax.distances._lp import Norm
from spherejax.solvers import HalfspaceResult, project_halfspace

# Step past the boundary, as a share of the lead, or of min(1, |slope|) if larger.
_BEYOND = 1e-6


class Nearest(NamedTuple):
  """Nearest success so far, and the counts of the diagnostics; [batch] each."""

  point: Array
  norm: Array
  margin: Array
  queries: Array
  gradients: Array
  zeros: Array
  evaluations: Array
  saturated: Array
  early: Array
  """The least norm of a success before the last quarter of an attempt's steps."""


def begin(problem: Problem, aim: Aim) -> tuple[Nearest, Evaluation]:
  """Starts with the samples, which may be successes, and returns their evaluation."""
  evaluation = _track.value(problem, aim, problem.clean)
  none = jnp.zeros_like(problem.labels, jnp.int32)
  norm = jnp.where(evaluation.success, 0, jnp.inf).astype(problem.clean.dtype)
  ones = none + 1
  nearest = Nearest(
    problem.clean,
    norm,
    evaluation.margin,
    ones,
    none,
    none,
    ones,
    ones * evaluation.saturated,
    norm,
  )
  return _numerics.varying(nearest, problem.operands), evaluation


def distance(problem: Problem, points: Array, norm: Norm) -> Array:
  """Distances [batch] of points from the samples."""
  return _ball.sizes(points - problem.clean, norm)


def keep(
  nearest: Nearest,
  points: Array,
  norms: Array,
  evaluation: Evaluation,
  running: Array,
  late: Array | bool = False,
) -> Nearest:
  """Keeps the points that are nearer successes, where the attack still runs."""
  reached = running & evaluation.success
  nearer = reached & (norms < nearest.norm)
  before = reached & ~jnp.asarray(late)
  return nearest._replace(
    point=where(nearer, points, nearest.point),
    norm=jnp.where(nearer, norms, nearest.norm),
    margin=jnp.where(nearer, evaluation.margin, nearest.margin),
    queries=nearest.queries + running,
    evaluations=nearest.evaluations + running,
    saturated=nearest.saturated + (running & evaluation.saturated),
    early=jnp.where(before, jnp.minimum(norms, nearest.early), nearest.early),
  )


def count(nearest: Nearest, zero: Array, running: Array) -> Nearest:
  """Counts gradients that are zero, where the attack still runs."""
  return nearest._replace(
    gradients=nearest.gradients + running, zeros=nearest.zeros + (running & zero)
  )


def jacobian(problem: Problem, points: Array) -> tuple[Array, Array]:
  """Logits [batch, classes] and their gradients [classes, batch, n], finite."""
  z, pull = jax.vjp(problem.scores, points)
  rows = _numerics.varying(jnp.eye(problem.classes, dtype=z.dtype), z)
  every = jnp.broadcast_to(rows[:, None], (problem.classes, *z.shape))
  gradients = jax.vmap(lambda row: pull(row)[0])(every)
  return z, jnp.where(jnp.isfinite(gradients), gradients, 0)


def dual_size(gradients: Array, norm: Norm) -> Array:
  """Dual norm over the last axis."""
  dual: dict[Norm, Norm] = {"linf": "l1", "l2": "l2", "l1": "linf"}
  return distances.lp_norm(gradients, norm=dual[norm])


def beyond(lead: Array, slope: Array, points: Array, norm: Norm) -> Array:
  """Lengthens leads [batch], so that a move to the plane crosses it when rounded."""
  steep = dual_size(slope, norm)
  more = _BEYOND * jnp.maximum(jnp.abs(lead), jnp.minimum(1, steep))
  unit = jnp.finfo(points.dtype).eps * jnp.max(jnp.abs(points), axis=-1, initial=0)
  more = jnp.maximum(more, unit * steep)
  return lead + jnp.where(lead > 0, more, -more)


def to_plane(
  points: Array, lead: Array, slope: Array, problem: Problem, norm: Norm
) -> HalfspaceResult:
  """Least moves [batch, n] onto lead + <slope, move> = 0 in the box, from either side.

  The result holds the moves, not the points.
  """

  def solve_sample(lead, slope, low, high):
    side = jnp.where(lead > 0, -1, 1)
    return project_halfspace(
      jnp.zeros_like(slope), side * slope, side * lead, norm=norm, low=low, high=high
    )

  return jax.vmap(solve_sample)(
    lead, slope, problem.low - points, problem.high - points
  )


def nearest_plane(
  z: Array, gradients: Array, points: Array, problem: Problem, norm: Norm
) -> tuple[Array, Array]:
  """Lead [batch] and gradient [batch, n] of the nearest linear boundary in the box.

  The leads of the other classes over the label are linearised by their gradients. Where
  no boundary meets the box, the box is ignored.
  """
  labels = problem.labels
  mine = _losses.chosen(z, labels)
  leads = z - _losses.pick(z, labels)[:, None]
  base = jnp.sum(jnp.where(mine.T[:, :, None], gradients, 0), axis=0)
  slopes = gradients - base[None]
  sizes = dual_size(slopes, norm).T
  usable = ~mine & (sizes > 0)
  ratio = jnp.where(usable, jnp.abs(leads) / jnp.where(usable, sizes, 1), jnp.inf)
  inside = jax.vmap(lambda lead, slope: to_plane(points, lead, slope, problem, norm))(
    leads.T, slopes
  )
  reach = jnp.where(usable, inside.distance.T, jnp.inf)  # inf where the box ends first
  met = jnp.any(jnp.isfinite(reach), axis=1, keepdims=True)
  nearest = jnp.argmin(jnp.where(met, reach, ratio), axis=1)
  there = _losses.chosen(z, nearest)
  slope = jnp.sum(jnp.where(there.T[:, :, None], slopes, 0), axis=0)
  reachable = jnp.any(usable, axis=1)
  return _losses.pick(leads, nearest), jnp.where(reachable[:, None], slope, 0)


def finish(problem: Problem, nearest: Nearest) -> AttackResult:
  """Result of the attack; x itself with norm inf where no success was found."""
  success, dtype = jnp.isfinite(nearest.norm), nearest.norm.dtype
  nearest = jax.lax.stop_gradient(nearest)
  return AttackResult(
    nearest.point.reshape(problem.shape),
    success,
    nearest.margin,
    nearest.margin,
    nearest.norm,
    nearest.queries,
    _track.share(nearest.zeros, nearest.gradients, dtype),
    _track.share(nearest.saturated, nearest.evaluations, dtype),
    success & (nearest.norm >= (1 - SETTLED) * nearest.early),
  )
