"""Solver of the smoothed transport problem, which has a single scalar unknown.

The solution is a_j sigmoid(theta + score_j). The score of feature j is its soft-min
cost times minus the inverse temperature; theta makes the transported mass right. The
search works with differences of scores to a feature near the cut, formed from
differences of costs. With a large inverse temperature, theta and the scores themselves
would cancel to nothing in float32.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from spherejax.pooling import _tokens

_MAX_STEPS = 64


class Problem(NamedTuple):
  """Problems of all images; masked entries are finite and never count."""

  cheapest: Array  # [batch, n] least cost of each feature
  spread: Array  # [batch, n] log sum_i exp(-b (c_ij - cheapest_j)), in [0, log m]
  mass: Array  # [batch] in (0, 1]
  inverse_temperature: Array  # [batch] >= 0
  mask: Array  # [batch, n] boolean


class Solution(NamedTuple):
  """Solution of the search for theta: arguments of the sigmoids, error and steps."""

  logits: Array  # [batch, n] x_j = theta + score_j
  differences: Array  # [batch, n] score_j - score of one feature near the cut
  mass_error: Array  # [batch] |attained mass / mass - 1|
  converged: Array  # [batch] boolean
  steps: Array  # [batch] evaluations


class Weights(NamedTuple):
  """Pooling weights, and the parts of their derivatives, each [batch, n]."""

  weights: Array  # p
  residual: Array  # a - mass p, formed without cancellation
  slope: Array  # u = p (1 - mass p / a)
  share: Array  # v = u / sum(u), defined even where u underflows


class _Search(NamedTuple):
  offset: Array
  low: Array
  high: Array
  checked_width: Array
  active: Array
  steps: Array
  step: Array


def per_feature(x: Array) -> Array:
  """[batch] to [batch, 1]."""
  return x[:, None]


def mean_over(x: Array, mask: Array) -> Array:
  """Mean over the kept features [batch]; 0 over none."""
  number = _tokens.count(mask, x.dtype)
  return jnp.sum(jnp.where(mask, x, 0), axis=1) / number


def softmax_over(x: Array, mask: Array) -> Array:
  """Softmax over the kept features; 0 over none."""
  largest = jnp.max(jnp.where(mask, x, -jnp.inf), axis=1, keepdims=True)
  exponentials = jnp.where(mask, jnp.exp(x - jnp.where(mask, largest, 0)), 0)
  total = jnp.sum(exponentials, axis=1, keepdims=True)
  return exponentials / jnp.where(total == 0, 1, total)


def _sigmoids(x: Array) -> tuple[Array, Array, Array]:
  """sigmoid(x), sigmoid(-x) and their product, none of them by subtraction."""
  e = jnp.exp(-jnp.abs(x))
  near = 1 / (1 + e)
  far = e * near
  positive = x >= 0
  return jnp.where(positive, near, far), jnp.where(positive, far, near), near * far


def _logit(mass: Array) -> Array:
  return jnp.log(mass) - jnp.log1p(-mass)


def _pick(x: Array, index: Array) -> Array:
  """x[b, index[b]] as [batch, 1]."""
  return jnp.take_along_axis(x, index[:, None], axis=1)


def _differences(problem: Problem, index: Array) -> Array:
  """Scores minus the score of the feature `index`, from differences of costs."""
  cost = problem.cheapest - _pick(problem.cheapest, index)
  spread = problem.spread - _pick(problem.spread, index)
  scores = spread - per_feature(problem.inverse_temperature) * cost
  return jnp.where(problem.mask, scores, 0)


def _root(
  differences: Array,
  mask: Array,
  logit: Array,
  start: Array,
  low: Array,
  high: Array,
  searched: Array,
) -> tuple[Array, Array]:
  """Offset y for which the mean of sigmoid(y + differences) is mass, and the steps.

  Images that are not `searched` keep their start.

  Newton steps solve logit(mean) = logit(mass), which is nearly linear in y. Bisection
  replaces a step that leaves the bracket, or follows when three steps have not halved
  it.
  """
  eps = float(jnp.finfo(start.dtype).eps)

  def advance(s: _Search) -> _Search:
    taken, left, product = (
      mean_over(part, mask) for part in _sigmoids(per_feature(s.offset) + differences)
    )
    gap = jnp.log(taken) - jnp.log(left) - logit
    low = jnp.where(gap < 0, s.offset, s.low)
    high = jnp.where(gap > 0, s.offset, s.high)
    width = high - low
    newton = s.offset - gap * (taken * left / product)
    inside = (low < newton) & (newton < high)  # False for NaN
    check = s.step % 3 == 2
    stalled = check & (width > s.checked_width / 2)
    offset = jnp.where(inside & ~stalled, newton, low + width / 2)
    done = jnp.abs(gap) <= 4 * eps * (1 + jnp.abs(logit))
    moved = jnp.abs(offset - s.offset) > 2 * eps * jnp.maximum(1, jnp.abs(offset))
    return _Search(
      jnp.where(s.active & ~done, offset, s.offset),
      low,
      high,
      jnp.where(check, width, s.checked_width),
      s.active & ~done & moved,
      s.steps + s.active,
      s.step + 1,
    )

  zero = jnp.zeros((), jnp.int32)
  search = _Search(
    start,
    low,
    high,
    high - low,
    # Not the mask alone: under shard_map the loop's start must vary like its end.
    searched & ~jnp.isnan(start),
    0 * start.astype(jnp.int32),
    zero,
  )
  end = jax.lax.while_loop(
    lambda s: jnp.any(s.active) & (s.step < _MAX_STEPS), advance, search
  )
  return end.offset, end.steps


def solve(problem: Problem) -> Solution:
  """Finds the logits x_j at which the transported mass is right. Not differentiable."""
  mask, dtype = problem.mask, problem.cheapest.dtype
  eps = float(jnp.finfo(dtype).eps)
  # At mass 1 there is no root, and none is searched.
  searched = jnp.any(mask, axis=1) & (problem.mass < 1)
  mass = jnp.minimum(problem.mass, 1 - eps / 2)
  logit = _logit(mass)
  rough = problem.spread - per_feature(problem.inverse_temperature) * problem.cheapest
  first = jnp.argmax(jnp.where(mask, rough, -jnp.inf), axis=1)
  differences = _differences(problem, first)
  low, high = logit - jnp.max(differences, 1), logit - jnp.min(differences, 1)
  margin = 1e-2 + 8 * eps * jnp.maximum(jnp.abs(low), jnp.abs(high))
  low, high = low - margin, high + margin
  start = jnp.clip(logit - mean_over(differences, mask), low, high)
  offset, steps = _root(differences, mask, logit, start, low, high, searched)

  # Repeats from the feature nearest to the cut, where differences are exact.
  logits = per_feature(offset) + differences
  nearest = jnp.argmin(jnp.where(mask, jnp.abs(logits), jnp.inf), axis=1)
  start = _pick(logits, nearest)[:, 0]
  differences = _differences(problem, nearest)
  largest = jnp.max(jnp.where(mask, jnp.abs(rough), 0), axis=1)
  reach = 1e-2 + 16 * eps * (largest + jnp.abs(start))
  low, high = start - reach, start + reach
  offset, more = _root(differences, mask, logit, start, low, high, searched)

  logits = per_feature(offset) + differences
  attained = mean_over(_sigmoids(logits)[0], mask)
  error = jnp.where(searched, jnp.abs(attained / mass - 1), 0)
  converged = error <= 64 * eps * (1 + jnp.abs(logit))
  return Solution(logits, differences, error, converged, steps + more)


@jax.custom_jvp
def transport_weights(
  score: Array, mass: Array, mask: Array, solution: Solution
) -> Weights:
  """Weights at the solution, differentiable in `score` [batch, n], `mass` [batch].

  The value of `score` is not used, since the solution belongs to it; only its tangent
  enters. With D the mean of sigmoid(x) sigmoid(-x), u and v as in `Weights`:

      dp_j = u_j (dscore_j - sum_l v_l dscore_l) + (v_j - p_j) dmass / mass
  """
  del score
  full = per_feature(mass >= 1)
  share = 1 / _tokens.count(mask, mass.dtype)
  even = jnp.where(mask, per_feature(share), 0)
  _, left, _ = _sigmoids(solution.logits)
  taken, remaining = (
    jax.nn.log_sigmoid(solution.logits),
    jax.nn.log_sigmoid(-solution.logits),
  )
  weights = jnp.where(full, even, softmax_over(taken, mask))
  return Weights(
    weights,
    jnp.where(full, 0, even * left),
    jnp.where(full, 0, weights * left),
    softmax_over(jnp.where(full, -solution.differences, taken + remaining), mask),
  )


@transport_weights.defjvp
def _transport_weights_jvp(primals, tangents):
  score, mass, mask, solution = primals
  d_score, d_mass = tangents[:2]
  out = transport_weights(score, mass, mask, solution)
  p, u, v = out.weights, out.slope, out.share
  m, relative = per_feature(mass), per_feature(d_mass / mass)

  def centred(x: Array) -> Array:
    return x - jnp.sum(v * x, axis=1, keepdims=True)

  d_logits = centred(d_score)
  d_p = u * d_logits + (v - p) * relative
  number = _tokens.count(mask, mass.dtype)
  taken = m * p * per_feature(number)  # sigmoid(x)
  # (1 - sigmoid(x)) / D, which stays finite where D vanishes.
  left = jnp.where(p > 0, v / (m * jnp.where(p > 0, p, 1)), 0)
  d_residual = -m * (d_p + p * relative)
  d_u = (1 - 2 * taken) * d_p - p * taken * relative
  d_v = v * centred((1 - 2 * taken) * d_logits + 2 * left * per_feature(d_mass))
  return out, Weights(d_p, d_residual, d_u, d_v)
