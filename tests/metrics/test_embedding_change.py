"""Diagnostics of an update against loops, and where they are known."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import metrics

RNG = np.random.default_rng(0)
BEFORE = RNG.normal(size=(3, 5, 4)) + 3
AFTER = BEFORE + 0.1 * RNG.normal(size=BEFORE.shape)
SHOTS = 2


def oracle(before, after, centre="points", representative="mean", shots=SHOTS):
  """Loops over points and pairs."""
  x, y = (np.concatenate(list(points)) for points in (before, after))
  axis, keep = (0, False) if centre == "points" else (1, True)
  x, y = (points - points.mean(axis, keepdims=keep) for points in (x, y))
  alpha = sum((x * y).ravel()) / sum((x * x).ravel())
  ratio = np.linalg.norm(y - alpha * x) / np.linalg.norm(y - x)
  logs = {True: [], False: []}
  ways, rows = before.shape[:2]
  for i, j, k in itertools.product(range(ways), range(shots, rows), range(ways)):
    ends = []
    nearest = np.argmin([np.linalg.norm(before[i, j] - s) for s in before[k, :shots]])
    for points in (before, after):
      supports = points[k, :shots]
      target = supports.mean(0) if representative == "mean" else supports[nearest]
      ends.append(np.linalg.norm(points[i, j] - target))
    if min(ends) > 0:
      logs[i == k].append(np.log(ends[1] / ends[0]))
  con, div = (np.exp(np.mean(logs[same])) for same in (True, False))
  return [ratio, alpha, con, div, con / alpha, div / alpha, con / div]


@pytest.mark.parametrize("centre", ["points", "features"])
@pytest.mark.parametrize("representative", ["mean", "nearest"])
def test_against_loops(centre, representative):
  fixed = {"centre": centre, "representative": representative}
  short = BEFORE.astype(np.float32), AFTER.astype(np.float32)
  found = metrics.embedding_change(*short, num_shots=SHOTS, **fixed)
  np.testing.assert_allclose(found[:-1], oracle(BEFORE, AFTER, **fixed), rtol=2e-5)
  assert found.left_out == 0


def test_small_updates_keep_their_digits_and_half_precision_its_type():
  """An update of a millionth of the size, as in training."""
  before = BEFORE.astype(np.float32)
  after = before + np.float32(2.0**-16) * np.sign(before - 3)
  found = metrics.embedding_change(before, after, num_shots=SHOTS)
  expected = oracle(before.astype(float), after.astype(float))
  np.testing.assert_allclose(found.norm_ratio, expected[0], rtol=1e-4)
  half = (jnp.bfloat16(points) for points in (BEFORE, AFTER))
  assert metrics.embedding_change(*half, num_shots=SHOTS).scaling.dtype == jnp.bfloat16


def test_known_changes():
  moved = metrics.embedding_change(BEFORE, 1.3 * BEFORE + 5, num_shots=SHOTS)
  np.testing.assert_allclose(moved[1:-1], [1.3, 1.3, 1.3, 1, 1, 1], rtol=1e-5)
  assert moved.norm_ratio < 1e-5
  flat, turn = RNG.normal(size=(4, 6, 2)), 0.7
  rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
  turned = metrics.embedding_change(flat, flat @ rotation.T, num_shots=3)
  np.testing.assert_allclose(turned.scaling, np.cos(turn), rtol=1e-5)
  np.testing.assert_allclose(turned.norm_ratio, np.cos(turn / 2), rtol=1e-5)
  np.testing.assert_allclose(turned.con_div, 1, rtol=1e-5)
  mirrored = metrics.embedding_change(flat, -flat, num_shots=3)
  np.testing.assert_allclose(mirrored[:4], [0, -1, 1, 1], atol=1e-5)
  assert np.isnan([mirrored.con_alpha, mirrored.div_alpha]).all()
  np.testing.assert_allclose(mirrored.con_div, 1, rtol=1e-5)


def test_undefined_figures():
  still = metrics.embedding_change(BEFORE, BEFORE, num_shots=SHOTS)
  assert np.isnan(still.norm_ratio)
  np.testing.assert_array_equal(still[1:-1], np.ones(6))
  points = np.ones((3, 5, 4))
  one = metrics.embedding_change(points, points + 1, num_shots=SHOTS)
  assert np.isnan(one[:-1]).all()
  assert one.left_out == 3 * 3 * 3
  # A query that is its class's support: its pair is left out, the others count.
  same = BEFORE.copy()
  same[1, 3] = same[1, 0]
  found = metrics.embedding_change(same, AFTER, num_shots=1)
  assert found.left_out == 1
  expected = oracle(same, AFTER, shots=1)[2]
  np.testing.assert_allclose(found.own_ratio, expected, rtol=1e-5)


def test_drift():
  before, after = BEFORE.reshape(-1, 4), AFTER.reshape(-1, 4)
  moved = ((after - before) ** 2).sum(1)
  drift = metrics.embedding_drift(before, after)
  assert drift == pytest.approx(moved.mean(), rel=1e-5)
  where = np.arange(len(before)) % 3 > 0
  hidden = np.where(where[:, None], after, np.nan)
  part = metrics.embedding_drift(before, hidden, where=where)
  assert part == pytest.approx(moved[where].mean(), rel=1e-5)
  slope = jax.grad(lambda x: metrics.embedding_drift(before, x, where=where))(hidden)
  expected = np.where(where[:, None], 2 * (after - before) / where.sum(), 0)
  np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-6)
  assert np.isnan(metrics.embedding_drift(before, after, where=np.zeros(15, bool)))
  half = jnp.bfloat16(before)
  assert metrics.embedding_drift(half, half).dtype == jnp.bfloat16
