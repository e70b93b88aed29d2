"""Runs several attacks, each on the samples that still resist; diagnoses attacks."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.attacks import _auto, _box, _fab, _gradient, _problem, _square, _track
from spherejax.attacks._problem import AttackResult
from spherejax.attacks._track import Aim, where
from spherejax.distances._lp import Norm


class Diagnosis(NamedTuple):
  """Signs that an attack was too weak for the model, one row per sample."""

  stronger: Bool[Array, " batch"]
  """Not broken by the attack, but by a stronger one."""
  random: Bool[Array, " batch"]
  """Not broken by the attack, but by draws that ask for no gradient."""
  unbounded: Bool[Array, " batch"]
  """Broken when only the box bounds the attack. All should be."""
  zero_gradients: Float[Array, " batch"]
  """Share of the stronger attack's gradients that were zero."""
  saturated: Float[Array, " batch"]
  """Share of the stronger attack's evaluations where the label's probability is 1 in
  float32."""


def ensemble(
  logits_fn: Callable[[Array], Array],
  x: Float[ArrayLike, "batch ..."],
  labels: Integer[ArrayLike, " batch"],
  *,
  key: Array,
  epsilon: Real[ArrayLike, "..."],
  norm: Norm = "linf",
  steps: int = 100,
  queries: int = 5000,
  target_count: int = 9,
  low: Real[ArrayLike, "..."] = 0.0,
  high: Real[ArrayLike, "..."] = 1.0,
  index: Integer[ArrayLike, " batch"] | None = None,
) -> AttackResult:
  """Runs four attacks in turn, each on the samples that no attack has broken yet.

  First comes `apgd` on the cross-entropy. Then `apgd` aims at the rival classes by the
  difference of logits ratio, or by the margin with fewer than 4 classes. Then `fab`
  aims at them; its points count if they lie within epsilon. Last comes `square`, for
  images in linf and l2. In l1 `apgd` begins in larger balls if `steps` is 5 or more.
  Once all samples of a batch are broken, the remaining attacks are skipped.

  Args:
    logits_fn: maps [batch, ...] to [batch, classes], pure, in evaluation mode. A new
      function compiles again: see `spherejax.attacks`.
    x: [batch, ...], floating, in the box.
    labels: [batch], integer in [0, classes).
    key: a typed PRNG key.
    epsilon: radius, at least 0, one number or [batch]; may be traced.
    norm: "linf", "l2" or "l1". Static.
    steps: static. Steps of each gradient attack.
    queries: static. Queries of the square attack; 0 leaves it out.
    target_count: static. Rival classes, the highest logits at x first.
    low: least value of an entry; broadcasts to x.
    high: largest value; likewise.
    index: [batch], the samples' numbers, for the keys.

  Returns:
    AttackResult of the first attack that broke the sample, else of the largest margin,
    with `stage`. The queries add up over all attacks that the sample went through; the
    shares are the largest of any attack. The share of `(stage < 0) | (stage > s)` is
    the accuracy after attack s; it never rises.

  Raises:
    TypeError: as `pgd`, or an `Expectation`.
    ValueError: as `pgd`.

  Verified on: the four attacks, see each of them. `converged` comes from the attack
  whose point is returned.

  Differentiable in: nothing. Cost: (1 + 2 target_count) x steps gradients and about
  target_count x steps + queries evaluations.

  Source: Croce and Hein 2020, "Reliable evaluation of adversarial robustness with an
  ensemble of diverse parameter-free attacks" (AutoAttack, standard).

  Example:
    >>> logits_fn = lambda x: x @ jnp.array([[1.0, -1.0], [0.0, 0.5]])
    >>> x = jnp.array([[0.7, 0.5], [0.9, 0.1], [0.1, 0.9]])
    >>> labels = jnp.array([0, 0, 0])
    >>> found = spherejax.attacks.ensemble(
    ...   logits_fn, x, labels, key=jax.random.key(0), epsilon=0.5, steps=10)
    >>> found.stage
    Array([ 1, -1,  0], dtype=int32)
  """
  _checks.key("key", key)
  _problem.deterministic("ensemble", logits_fn)
  _checks.count("target_count", target_count)
  _checks.count("queries", queries, 0)
  problem = _problem.setup(
    logits_fn, x, labels, key=key, index=index, low=low, high=high
  )
  region = _problem.ball(problem, epsilon, norm)
  box = {"low": low, "high": high, "index": index}
  fixed = {"epsilon": epsilon, "norm": norm, **box}
  wide = norm == "l1" and steps >= _auto.WIDE_STEPS
  all_rivals = {"targets": "all", "target_count": target_count}
  loss = "dlr" if problem.classes >= 4 else "margin"

  def by_distance(key):
    closest = _fab.fab(
      logits_fn, x, labels, key=key, norm=norm, steps=steps, **all_rivals, **box
    )
    near = closest.norm <= region.epsilon
    points = where(near, closest.x_adv.reshape(problem.clean.shape), problem.clean)
    points = region.seal(points, problem.clean)
    evaluation = _track.value(problem, Aim("margin"), points)
    return closest._replace(
      x_adv=points.reshape(problem.shape),
      success=evaluation.success,
      margin=evaluation.margin,
      norm=region.size(points, problem.clean),
      queries=closest.queries + 1,
    )

  def climb(key, **keywords):
    return _auto.apgd(
      logits_fn, x, labels, key=key, steps=steps, larger_radii=wide, **fixed, **keywords
    )

  stages: list[Callable[[Array], AttackResult]] = [
    lambda key: climb(key, loss="ce"),
    lambda key: climb(key, loss=loss, **all_rivals),
    by_distance,
  ]
  if queries and norm != "l1" and len(problem.shape) == 4:
    stages.append(
      lambda key: _square.square(
        logits_fn, x, labels, key=key, queries=queries, **fixed
      )
    )
  return _in_turn(problem, stages, key)


def _in_turn(
  problem: _problem.Problem, stages: list[Callable[[Array], AttackResult]], key: Array
) -> AttackResult:
  evaluation = _track.value(problem, Aim("margin"), problem.clean)
  none = jnp.zeros_like(evaluation.loss)
  result = AttackResult(
    problem.clean.reshape(problem.shape),
    evaluation.success,
    evaluation.margin,
    evaluation.margin,
    none,
    jnp.ones_like(problem.labels, jnp.int32),
    none,
    evaluation.saturated.astype(none.dtype),
    evaluation.success,
  )
  stage = jnp.where(evaluation.success, 0, -1).astype(jnp.int32)

  def attack(number, attempt, carry):
    result, stage = carry
    attempted = attempt(jax.random.fold_in(key, number))
    open_ = stage < 0
    better = open_ & (attempted.success | (attempted.margin > result.margin))
    taken = jax.tree.map(functools.partial(where, better), attempted, result)
    spent = result.queries + jnp.where(open_, attempted.queries, 0)
    zeros, saturated = (
      jnp.where(open_, jnp.maximum(a, b), b)
      for a, b in (
        (attempted.zero_gradients, result.zero_gradients),
        (attempted.saturated, result.saturated),
      )
    )
    taken = taken._replace(
      loss=taken.margin, queries=spent, zero_gradients=zeros, saturated=saturated
    )
    return taken, jnp.where(open_ & attempted.success, number, stage).astype(jnp.int32)

  carry: tuple[AttackResult, Array] = (result, stage)
  for number, attempt in enumerate(stages, 1):
    carry = _numerics.either(
      jnp.any(carry[1] < 0),
      lambda carry, number=number, attempt=attempt: attack(number, attempt, carry),
      lambda carry: carry,
      carry,
    )
  result, stage = carry
  return jax.lax.stop_gradient(result._replace(stage=stage))


def diagnose(
  logits_fn: Callable[[Array], Array],
  x: Float[ArrayLike, "batch ..."],
  labels: Integer[ArrayLike, " batch"],
  success: Bool[ArrayLike, " batch"],
  *,
  key: Array,
  epsilon: Real[ArrayLike, "..."],
  norm: Norm = "linf",
  steps: int = 100,
  draws: int = 100,
  low: Real[ArrayLike, "..."] = 0.0,
  high: Real[ArrayLike, "..."] = 1.0,
  index: Integer[ArrayLike, " batch"] | None = None,
) -> Diagnosis:
  """Tells whether an attack failed because the model is strong or the attack is weak.

  It runs `apgd` on the margin, which does not saturate, with three starts; draws from
  the ball without a gradient; and runs PGD with no bound but the box. An evaluation is
  suspect if any of `stronger` or `random` is true, if not all of `unbounded` are, or if
  gradients are often zero.

  Args:
    logits_fn: maps [batch, ...] to [batch, classes], pure, in evaluation mode. A new
      function compiles again: see `spherejax.attacks`.
    x: [batch, ...], floating, in the box.
    labels: [batch], integer in [0, classes).
    success: [batch], boolean: the samples that the attack in question broke.
    key: a typed PRNG key.
    epsilon: radius, at least 0, one number or [batch]; may be traced.
    norm: "linf", "l2" or "l1". Static.
    steps: static. Steps of each gradient attack.
    draws: static.
    low: least value of an entry, finite; broadcasts to x.
    high: largest value; likewise.
    index: [batch], the samples' numbers, for the keys.

  Returns:
    Diagnosis, all [batch].

  Raises:
    TypeError: as `pgd`, success not boolean, or an `Expectation`.
    ValueError: as `pgd`, or an infinite box, where it is known.

  Differentiable in: nothing. Cost: 4 x steps gradients and `draws` evaluations.

  Source: Carlini et al. 2019, "On evaluating adversarial robustness", section 5;
  Athalye et al. 2018, "Obfuscated gradients give a false sense of security".

  Example:
    >>> logits_fn = lambda x: x @ jnp.array([[1.0, -1.0], [0.0, 0.5]])
    >>> x, labels = jnp.array([[0.7, 0.5]]), jnp.array([0])
    >>> broken = jnp.array([False])
    >>> found = spherejax.attacks.diagnose(
    ...   logits_fn, x, labels, broken, key=jax.random.key(0), epsilon=0.5)
    >>> found.stronger, found.unbounded
    (Array([ True], dtype=bool), Array([ True], dtype=bool))
  """
  _checks.key("key", key)
  _problem.deterministic("diagnose", logits_fn)
  _box.finite_box(low, high)
  keys = jax.random.split(key, 3)
  problem = _problem.setup(
    logits_fn, x, labels, key=keys[2], index=index, low=low, high=high
  )
  broken = _checks.array("success", success)
  _checks.mask(broken, problem.labels.shape, "success")
  _checks.count("draws", draws, 0)
  region = _problem.ball(problem, epsilon, norm)
  box = {"low": low, "high": high, "index": index}
  strong = _auto.apgd(
    logits_fn,
    x,
    labels,
    key=keys[0],
    epsilon=epsilon,
    norm=norm,
    loss="margin",
    steps=steps,
    restarts=3,
    **box,
  )

  def ask(broken_already, number):
    now = jax.vmap(lambda key: jax.random.fold_in(key, number))(problem.keys)
    points = region.start(now, problem.clean)
    return broken_already | _track.value(problem, Aim("margin"), points).success, None

  start = _numerics.varying(jnp.zeros_like(broken), strong.success)
  drawn, _ = jax.lax.scan(ask, start, jnp.arange(draws))
  span = jnp.max(problem.high - problem.low, axis=1, initial=0)
  anywhere = _gradient.pgd(
    logits_fn,
    x,
    labels,
    key=keys[1],
    epsilon=span,
    norm="linf",
    loss="margin",
    steps=steps,
    **box,
  )
  return Diagnosis(
    strong.success & ~broken,
    drawn & ~broken,
    anywhere.success,
    strong.zero_gradients,
    strong.saturated,
  )
