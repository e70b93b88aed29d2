"""DeepFool: steps to the nearest decision boundary of the linearised classes."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.attacks import _minimal, _problem, _track
from spherejax.attacks._problem import AttackResult
from spherejax.attacks._track import Aim, where
from spherejax.distances._lp import Norm


def deepfool(
  logits_fn: Callable[[Array], Array],
  x: Float[ArrayLike, "batch ..."],
  labels: Integer[ArrayLike, " batch"],
  *,
  norm: Norm = "l2",
  steps: int = 50,
  overshoot: Real[ArrayLike, ""] = 0.02,
  low: Real[ArrayLike, "..."] = 0.0,
  high: Real[ArrayLike, "..."] = 1.0,
) -> AttackResult:
  """DeepFool: finds an approximately least move across the nearest boundary.

      d_k = argmin |d|_p  with  f_k + <grad f_k, d> = 0  and  low <= x_i + d <= high,
      f_k = z_k - z_y,    l = argmin_k |d_k|_p
      r <- r + d_l,       x_{i+1} = clip(x + (1 + overshoot) r)

  until the decision changes. With affine logits and no overshoot the first step is the
  least move, also where the box binds.

  Args:
    logits_fn: maps [batch, ...] to [batch, classes], pure, in evaluation mode. A new
      function compiles again: see `spherejax.attacks`.
    x: [batch, ...], floating, in the box.
    labels: [batch], integer in [0, classes).
    norm: "linf", "l2" or "l1", the norm to minimise. Static.
    steps: static. Largest number of steps; a sample stops once across the boundary.
    overshoot: at least 0, may be traced.
    low: least value of an entry; broadcasts to x.
    high: largest value; likewise.

  Returns:
    AttackResult; x itself with norm inf where no move was found. `converged` is
    `success`: the search ends by itself where it crosses a boundary.

  Raises:
    TypeError: x not floating, labels not integers, or an `Expectation`.
    ValueError: shapes do not match, an unknown norm, a static overshoot below 0, and,
      where known, x outside the box, low > high or labels out of range.

  Differentiable in: nothing. Cost: a gradient of every class per step, and memory for
  all of them.

  Source: Moosavi-Dezfooli et al. 2016, "DeepFool: a simple and accurate method to fool
  deep neural networks"; DIST 3.1. Each step is lengthened by 1e-6 of the lead, or of
  min(1, |slope|) if that is larger, and at least by a rounding of the sample. Differs
  from the paper: steps end within the box, while the paper's steps run against its
  faces.

  Verified on: 256 samples of affine models of 3 and 10 classes, with half of the
  entries on faces of the box. In every norm the defaults cross the boundary at (1 +
  overshoot) times the least move or less.

  Example:
    >>> logits_fn = lambda x: x @ jnp.array([[1.0, -1.0], [0.0, 0.5]])
    >>> x, labels = jnp.array([[0.5, 0.5]]), jnp.array([0])
    >>> result = spherejax.attacks.deepfool(
    ...   logits_fn, x, labels)
    >>> result.norm.round(3), result.success
    (Array([0.371], dtype=float32), Array([ True], dtype=bool))
  """
  _problem.deterministic("deepfool", logits_fn)
  problem = _problem.setup(
    logits_fn, x, labels, key=None, index=None, low=low, high=high
  )
  _checks.one_of("norm", norm, Norm)
  _checks.count("steps", steps)
  _checks.between("overshoot", overshoot, 0)
  _checks.single("overshoot", overshoot)
  nearest, evaluation = _minimal.begin(problem, Aim("margin"))
  reach = 1 + jnp.asarray(overshoot, problem.clean.dtype)

  def advance(state):
    step, points, total, running, nearest = state
    z, gradients = _minimal.jacobian(problem, points)
    lead, slope = _minimal.nearest_plane(z, gradients, points, problem, norm)
    zero = jnp.all(slope == 0, axis=1)
    nearest = _minimal.count(nearest, zero, running)
    beyond = _minimal.beyond(lead, slope, points, norm)
    total = total + _minimal.to_plane(points, beyond, slope, problem, norm).value
    moved = jnp.clip(problem.clean + reach * total, problem.low, problem.high)
    points = where(running, moved, points)
    evaluation = _track.value(problem, Aim("margin"), points)
    norms = _minimal.distance(problem, points, norm)
    nearest = _minimal.keep(nearest, points, norms, evaluation, running)
    return step + 1, points, total, running & ~evaluation.success & ~zero, nearest

  start, running = problem.clean, ~evaluation.success
  state = _numerics.varying((0, start, jnp.zeros_like(start), running, nearest))
  *_, nearest = jax.lax.while_loop(
    lambda state: jnp.any(state[3]) & (state[0] < steps), advance, state
  )
  return _minimal.finish(problem, nearest)
