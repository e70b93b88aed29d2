"""The best evaluation, patience and the plateau rule, against plain loops."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import training
from spherejax.training import _monitor

VALUES = [0.1, 0.2, 0.2, 0.2004, 0.19, 0.25, np.nan, 0.25, 0.24, 0.1, *[0.3] * 4]


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("margin", [0.0, 1e-3])
def test_best_and_patience(mode, margin):
  sign = 1 if mode == "max" else -1
  values = [sign * value for value in VALUES]
  monitor = training.Monitor("score", mode=mode, margin=margin, patience=3)
  state = _monitor.start(monitor)
  best, since = None, 0
  for index, value in enumerate(values):
    since += 1
    if best is None or sign * (value - values[best]) > margin:
      best, since = index, 0
    state, improved = _monitor.observe(monitor, state, index, value)
    assert state.best_step == best
    assert state.best == values[best]
    assert state.stale == since
    assert improved == (since == 0)
    assert _monitor.should_stop(monitor, state) == (since >= 3)


def test_scale_of_a_metric_that_is_to_rise():
  rule = optax.contrib.reduce_on_plateau(0.5, patience=2, rtol=0, atol=1e-3, cooldown=1)
  monitor = training.Monitor("score", plateau=rule)
  _monitor.check(monitor)
  state = _monitor.start(monitor)
  assert _monitor.learning_rate_scale(state) == 1
  scale, best, bad, wait = 1.0, -np.inf, 0, 0
  for index, value in enumerate(VALUES):
    state, _ = _monitor.observe(monitor, state, index, value)
    bad += 1
    if value > best + 1e-3:
      best, bad = value, 0
    if wait:
      wait, bad = wait - 1, 0
    elif bad == 2:
      scale, bad, wait = scale * 0.5, 0, 1
    assert _monitor.learning_rate_scale(state) == scale
  assert scale < 1


def test_settings_that_cannot_work():
  # With a relative tolerance, an equal value of a negative cost counts as better.
  rule = optax.contrib.reduce_on_plateau(0.5, patience=2)
  for wrong, message in (
    ({"plateau": rule}, "rtol=0"),
    ({"mode": "up"}, "mode must be one of 'max', 'min', got 'up'"),
    ({"margin": -1.0}, "margin must be in"),
    ({"patience": 0}, "patience must be at least 1, got 0"),
  ):
    with pytest.raises(ValueError, match=message):
      _monitor.check(training.Monitor("score", **wrong))
  _monitor.check(training.Monitor("score", mode="min", plateau=rule))
  assert jnp.isfinite(_monitor.learning_rate_scale(_monitor.MonitorState()))


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 2, 3])
def test_what_is_no_finite_number_is_never_the_best(mode, bad, place):
  values = [0.1, 0.3, 0.2] if mode == "max" else [-0.1, -0.3, -0.2]
  values.insert(place, bad)
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
