"""The best evaluation, patience and the plateau rule, against plain loops."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import training
from spherejax.training import _monitor

VALUES = [0.1, 0.2, 0.2, 0.2004, 0.19, 0.25, np.nan, 0.25, 0.24, 0.1, *[0.3] * 4]


def best_oracle(values, mode, margin):
  """Index of the best value so far and the number since, after each value."""
  rows, best, since = [], None, 0
  for index, value in enumerate(values):
    gain = np.inf
    if best is not None:
      gain = value - values[best] if mode == "max" else values[best] - value
    if gain > margin:
      best, since = index, 0
    else:
      since += 1
    rows.append((best, since))
  return rows


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("margin", [0.0, 1e-3])
def test_best_and_patience(mode, margin):
  values = VALUES if mode == "max" else [-value for value in VALUES]
  monitor = training.Monitor("score", mode=mode, margin=margin, patience=3)
  state = _monitor.start(monitor)
  for index, (best, since) in enumerate(best_oracle(values, mode, margin)):
    state, improved = _monitor.observe(monitor, state, index, values[index])
    assert state.best_step == best
    assert state.best == values[best]
    assert state.stale == since
    assert improved == (since == 0)
    assert _monitor.should_stop(monitor, state) == (since >= 3)


def plateau_oracle(values, factor, patience, margin, cooldown):
  scale, best, bad, wait, scales = 1.0, -np.inf, 0, 0, []
  for value in values:
    if value > best + margin:
      best, bad = value, 0
    else:
      bad += 1
    if wait:
      wait, bad = wait - 1, 0
    elif bad == patience:
      scale, bad, wait = scale * factor, 0, cooldown
    scales.append(scale)
  return scales


def test_scale_of_a_metric_that_is_to_rise():
  rule = optax.contrib.reduce_on_plateau(0.5, patience=2, rtol=0, atol=1e-3, cooldown=1)
  monitor = training.Monitor("score", plateau=rule)
  _monitor.check(monitor)
  state = _monitor.start(monitor)
  assert _monitor.learning_rate_scale(state) == 1
  scales = []
  for index, value in enumerate(VALUES):
    state, _ = _monitor.observe(monitor, state, index, value)
    scales.append(_monitor.learning_rate_scale(state))
  assert scales == plateau_oracle(VALUES, 0.5, 2, 1e-3, 1)
  assert scales[-1] < 1


def test_settings_that_cannot_work():
  # With a relative tolerance, an equal value of a negative cost counts as better.
  rule = optax.contrib.reduce_on_plateau(0.5, patience=2)
  with pytest.raises(ValueError, match="rtol=0"):
    _monitor.check(training.Monitor("score", plateau=rule))
  _monitor.check(training.Monitor("score", mode="min", plateau=rule))
  with pytest.raises(ValueError, match="mode must be one of 'max', 'min', got 'up'"):
    _monitor.check(training.Monitor("score", mode="up"))
  with pytest.raises(ValueError, match="margin must be in"):
    _monitor.check(training.Monitor("score", margin=-1.0))
  with pytest.raises(ValueError, match="patience must be at least 1, got 0"):
    _monitor.check(training.Monitor("score", patience=0))
  assert jnp.isfinite(_monitor.learning_rate_scale(_monitor.MonitorState()))


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("order", ["first", "between", "last"])
def test_what_is_no_finite_number_is_never_the_best(mode, bad, order):
  values = [0.1, 0.3, 0.2] if mode == "max" else [-0.1, -0.3, -0.2]
  values.insert({"first": 0, "between": 2, "last": 3}[order], bad)
  rule = optax.contrib.reduce_on_plateau(0.5, patience=9, rtol=0, atol=1e-3)
  monitor = training.Monitor("score", mode=mode, plateau=rule)
  state = _monitor.start(monitor)
  for index, value in enumerate(values):
    state, improved = _monitor.observe(monitor, state, index, value)
    assert not (improved and not np.isfinite(value))
  best = next(i for i, value in enumerate(values) if abs(value) == 0.3)
  assert (state.best, state.best_step) == (values[best], best)
  assert _monitor.learning_rate_scale(state) == 1
  # The rule, too, waits for a value better than 0.3, and not than infinity.
  assert abs(state.plateau[1]) == np.float32(0.3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nothing_is_the_best_of_no_finite_number(bad):
  monitor = training.Monitor("score", patience=3)
  state = _monitor.start(monitor)
  assert _monitor.learning_rate_scale(state) == 1  # without a rule
  for index in range(3):
    assert not _monitor.should_stop(monitor, state)
    state, improved = _monitor.observe(monitor, state, index, bad)
    assert not improved
  assert state.best is None
  assert state.best_step is None
  assert _monitor.should_stop(monitor, state)
