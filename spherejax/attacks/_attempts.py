"""Targets and restarts of an attack, attempted one after another."""

from collections.abc import Callable
from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Integer

from spherejax import _checks
from spherejax.attacks import _problem
from spherejax.attacks._losses import Loss
from spherejax.attacks._problem import Problem
from spherejax.attacks._track import Aim

Rivals = Literal["all"]
Targets = Integer[ArrayLike, " batch"] | Rivals | None
"""None for any wrong class, a class for each sample, or "all"."""

_Found = TypeVar("_Found")


def aim_of(
  problem: Problem, loss: Loss, targets: Targets, target_count: int | None
) -> Aim:
  """Returns the aim of the first attempts: leave the label, or reach given targets."""
  if isinstance(targets, str):
    _checks.one_of("targets", targets, Rivals)
    if target_count is not None:
      _checks.count("target_count", target_count)
    return Aim(loss, leave=True)
  if target_count is not None:
    raise ValueError(f'target_count is for targets "all", got {target_count}')
  if targets is None:
    return Aim(loss)
  return Aim(loss, _problem.targets_of(problem, targets))


def in_turn(
  attempt: Callable[[_Found, Aim, Array | int], _Found],
  best: _Found,
  aim: Aim,
  order: Array | None,
  restarts: int,
) -> _Found:
  """Runs `restarts` attempts for each of the targets in order; returns the best found.

  The attempts are numbered consecutively. `order` is [targets, batch]; None takes the
  aim's own targets.
  """

  def run_next(best, number):
    now = aim if order is None else aim._replace(targets=order[number // restarts])
    return attempt(best, now, number), None

  count = restarts * (1 if order is None else len(order))
  if count == 1:
    return run_next(best, 0)[0]
  if count:
    best, _ = jax.lax.scan(run_next, best, jnp.arange(count))
  return best
