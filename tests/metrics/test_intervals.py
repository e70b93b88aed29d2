"""Student's intervals against tabulated quantiles and scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from spherejax import metrics


def test_interval_by_hand():
  # s = 1, t_{0.975, 2} = 4.30265: 2 -+ 4.30265 / sqrt(3).
  interval = metrics.mean_interval([1.0, 2.0, 3.0])
  np.testing.assert_allclose(interval, [2, -0.484138, 4.484138, 3], rtol=1e-5)


def test_confidence_against_scipy():
  values = np.random.default_rng(0).normal(size=7)
  expected = stats.t.interval(0.8, 6, values.mean(), stats.sem(values))
  interval = metrics.mean_interval(values, confidence=0.8)
  np.testing.assert_allclose(interval[1:3], expected, rtol=1e-12)


def test_pairing_removes_what_runs_share():
  shared = np.array([0.1, 0.5, 0.9, 0.3])
  gain = np.array([0.02, 0.03, 0.025, 0.027])
  interval = metrics.paired_interval(shared + gain, shared)
  np.testing.assert_allclose(interval, metrics.mean_interval(gain), rtol=1e-10)
  assert interval.low > 0


def test_one_value_and_equal_values():
  assert metrics.mean_interval([0.3]) == (0.3, -math.inf, math.inf, 1)
  assert metrics.mean_interval([0.5, 0.5]) == (0.5, 0.5, 0.5, 2)


@pytest.mark.parametrize("values", [[math.nan], [1.0, math.nan, 2.0]])
def test_nan_supports_no_claim(values):
  interval = metrics.mean_interval(values)
  assert all(np.isnan([interval.mean, interval.low, interval.high]))


def test_fields_are_plain_numbers():
  interval = metrics.mean_interval(np.float32([1, 2]))
  assert [type(field) for field in interval] == [float, float, float, int]


@pytest.mark.parametrize("confidence", [np.array([0.9, 0.95]), [0.9]])
def test_confidence_is_a_number(confidence, unchecked):
  values = [1.0, 2.0, 3.0]
  message = "confidence must be a static number, got"
  with pytest.raises(TypeError, match=message):
    metrics.mean_interval(values, confidence=confidence)
  with pytest.raises(TypeError, match=message):
    metrics.paired_interval(values, values, confidence=confidence)
