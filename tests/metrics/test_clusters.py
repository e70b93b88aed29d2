"""Distances between classes, against loops."""

import jax
import numpy as np
import pytest

from spherejax import metrics


def test_the_mean_distance_of_classes():
  x = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
  x[1] = x[0]  # a duplicate in another class
  labels = np.array([2, 0, 0, 1, 1, 2, 2, 2, 0])
  pairs = np.linalg.norm(x[:, None] - x, axis=2)[labels[:, None] != labels]
  mean = metrics.mean_interclass_distance(x, labels)
  assert mean == pytest.approx(np.mean(pairs), rel=1e-5)
  where = np.arange(9) != 4
  hidden = np.where(where[:, None], x, np.nan)
  kept = metrics.mean_interclass_distance(x[where], labels[where])
  masked = metrics.mean_interclass_distance(hidden, labels, where=where)
  assert masked == pytest.approx(float(kept), rel=1e-6)
  gradient = jax.grad(metrics.mean_interclass_distance)(x, labels)
  assert np.isfinite(gradient).all()
  assert np.abs(gradient[1]).sum() > 0
  step = np.zeros_like(x)
  step[3, 1] = 1e-2
  ends = [metrics.mean_interclass_distance(x + s * step, labels) for s in (1, -1)]
  assert gradient[3, 1] == pytest.approx(float(ends[0] - ends[1]) / 2e-2, rel=0.05)

  assert np.isnan(metrics.mean_interclass_distance(x, np.zeros(9, int)))
