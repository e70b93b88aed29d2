"""Student's intervals against tabulated quantiles and scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from spherejax import metrics


def test_interval_by_hand():
  # s = 1, t_{0.975, 2} = 4.30265: 2 -+ 4.30265 / sqrt(3).
  interval = metrics.mean_interval(np.float32([1, 2, 3]))
  np.testing.assert_allclose(interval, [2, -0.484138, 4.484138, 3], rtol=1e-5)
  assert [type(field) for field in interval] == [float, float, float, int]
  assert metrics.mean_interval([0.3]) == (0.3, -math.inf, math.inf, 1)
  assert metrics.mean_interval([0.5, 0.5]) == (0.5, 0.5, 0.5, 2)


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


@pytest.mark.parametrize("values", [[math.nan], [1.0, math.nan, 2.0]])
def test_nan_supports_no_claim(values):
  assert np.isnan(metrics.mean_interval(values)[:3]).all()


@pytest.mark.parametrize("confidence", [np.array([0.9, 0.95]), [0.9]])
def test_confidence_is_a_number(confidence, unchecked):
  for interval, samples in ((metrics.mean_interval, 1), (metrics.paired_interval, 2)):
    with pytest.raises(TypeError, match="confidence must be a static number, got"):
      interval(*[[1.0, 2.0, 3.0]] * samples, confidence=confidence)
