"""Tracks the best evaluation; decides when to stop or lower the learning rate."""

import math
import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import optax
from optax import contrib

from spherejax import _checks

Mode = Literal["max", "min"]


class Monitor(NamedTuple):
  """Rules by which `fit` acts on the results of the evaluations.

  The best evaluation decides which state is kept as the best. A result that is NaN or
  infinite is never better than another, nor the best one. Patience counts evaluations,
  not steps.

  Attributes:
    metric: name of the metric in what `evaluate` returns.
    mode: "max" or "min".
    margin: not negative; a value counts as better if it is better by more than this.
    patience: number of evaluations without a better one after which to stop; None never
      stops.
    plateau: `optax.contrib.reduce_on_plateau(...)`, which scales the learning rate down
      when the metric stops improving; None never scales it. With `mode` "max" it sees
      the negated metric, and then needs `rtol=0` and a positive `atol`.

  Example:
    >>> import optax
    >>> monitor = spherejax.training.Monitor(
    ...     "MAP@R",
    ...     margin=1e-5,
    ...     patience=15,
    ...     plateau=optax.contrib.reduce_on_plateau(0.5, patience=4, rtol=0, atol=1e-3),
    ... )
  """

  metric: str
  mode: Mode = "max"
  margin: float = 0.0
  patience: int | None = None
  plateau: optax.GradientTransformationExtraArgs | None = None


class MonitorState(NamedTuple):
  """State of a monitor; numbers only, so that it is stored as JSON."""

  best: float | None = None
  best_step: int | None = None
  stale: int = 0
  """Evaluations since the best one."""
  plateau: tuple[int | float, ...] = ()
  """Fields of optax's state, the scale first."""


def check(monitor: Monitor):
  """Raises for settings that cannot work."""
  _checks.instance("monitor", monitor, Monitor)
  _checks.one_of("mode", monitor.mode, Mode)
  _checks.between("margin", monitor.margin, 0)
  _checks.single("margin", monitor.margin)
  if monitor.patience is not None:
    _checks.count("patience", monitor.patience)
  if monitor.plateau is None or monitor.mode == "min":
    return
  # A relative tolerance on a negative best value lowers the bar instead of raising it,
  # so an equal value would count as an improvement for ever.
  state: Any = monitor.plateau.init(jnp.zeros(()))
  state = state._replace(best_value=jnp.float32(-1))
  _, state = monitor.plateau.update({}, state, value=jnp.float32(-1))
  if int(state.plateau_count) == 0 and float(state.scale) == 1:
    raise ValueError(
      "plateau must be optax.contrib.reduce_on_plateau(..., rtol=0, atol=...) with "
      "accumulation_size=1 for mode='max'"
    )


def start(monitor: Monitor) -> MonitorState:
  """State before the first evaluation."""
  if monitor.plateau is None:
    return MonitorState()
  return MonitorState(plateau=_numbers(monitor.plateau.init(jnp.zeros(()))))


def observe(
  monitor: Monitor, state: MonitorState, step: int, value: float
) -> tuple[MonitorState, bool]:
  """State after an evaluation, and whether it was the best so far."""
  sign = -1 if monitor.mode == "max" else 1
  bar = math.inf if state.best is None else sign * state.best - monitor.margin
  finite = math.isfinite(value)  # otherwise an infinity would stay the best for ever
  improved = finite and sign * value < bar
  if improved:
    state = state._replace(best=value, best_step=step, stale=0)
  else:
    state = state._replace(stale=state.stale + 1)
  if monitor.plateau is not None:
    before = _plateau_state(state.plateau)
    observed = jnp.float32(sign * value if finite else math.nan)
    _, after = monitor.plateau.update({}, before, value=observed)
    state = state._replace(plateau=_numbers(after))
  return state, improved


def should_stop(monitor: Monitor, state: MonitorState) -> bool:
  """True once the patience is used up."""
  return monitor.patience is not None and state.stale >= monitor.patience


def learning_rate_scale(state: MonitorState) -> float:
  """Factor on the learning rate, 1 without a plateau rule."""
  return state.plateau[0] if state.plateau else 1.0


def watched(monitor: Monitor | None) -> dict[str, Any] | None:
  """Settings of a monitor on which its state depends, as JSON values."""
  if monitor is None:
    return None
  plateau = monitor.plateau is not None
  return {"metric": monitor.metric, "mode": monitor.mode, "plateau": plateau}


def check_record(
  record: Mapping[str, Any], monitor: Monitor | None, directory: os.PathLike[str]
):
  """Raises if a checkpoint's monitor depends on other settings than this one."""
  now = watched(monitor)
  stored = record.get("monitor", now)  # older checkpoints do not name it
  if stored != now:
    raise ValueError(
      f"the checkpoint in {os.fspath(directory)} belongs to a run with another "
      f"monitor: {stored}, got {now}"
    )


def _numbers(state: Any) -> tuple[int | float, ...]:
  return (
    state.scale.item(),
    state.best_value.item(),
    state.plateau_count.item(),
    state.cooldown_count.item(),
    state.count.item(),
    state.avg_value.item(),
  )


def _plateau_state(numbers: tuple[int | float, ...]) -> Any:
  scale, best_value, plateau_count, cooldown_count, count, avg_value = numbers
  return contrib.ReduceLROnPlateauState(
    scale=jnp.float32(scale),
    best_value=jnp.float32(best_value),
    plateau_count=jnp.int32(plateau_count),
    cooldown_count=jnp.int32(cooldown_count),
    count=jnp.int32(count),
    avg_value=jnp.float32(avg_value),
  )
