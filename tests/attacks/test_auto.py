"""Auto-PGD against a loop in NumPy; checkpoints; what every sample decides alone."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import attacks
from spherejax.attacks import _auto
from tests import balls

RANDOM = np.random.default_rng(0)
BATCH, SIZE, HIDDEN, CLASSES = 8, 6, 10, 4
FIRST = RANDOM.normal(size=(SIZE, HIDDEN))
SECOND = RANDOM.normal(size=(HIDDEN, CLASSES))
X = RANDOM.uniform(0.1, 0.9, (BATCH, SIZE))
EPSILON = RANDOM.uniform(0.3, 0.6, BATCH)
SLOW = pytest.mark.slow


def network(x):
  return jnp.sin(3 * x @ FIRST.astype(x.dtype)) @ SECOND.astype(x.dtype)


def margin(x, y):
  """Value and gradient of one sample, by hand."""
  z = np.sin(3 * x @ FIRST) @ SECOND
  k = max((k for k in range(CLASSES) if k != y), key=lambda k: z[k])
  inner = 3 * np.cos(3 * x @ FIRST) * (SECOND[:, k] - SECOND[:, y])
  return z[k] - z[y], FIRST @ inner


Y = np.argmax(np.sin(3 * X @ FIRST) @ SECOND, axis=1)


def test_checkpoints_are_the_papers():
  assert _auto.checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
  assert _auto.checkpoints(10) == [3, 5, 6, 7, 8, 9]
  assert _auto.checkpoints(20) == [5, 9, 12, 14, 16, 18, 19]
  share, last = [0, 0.22], 0.22
  while last < 1:
    last += max(share[-1] - share[-2] - 0.03, 0.06)
    share.append(last)
  marks = [int(np.ceil(round(p * 1000, 6))) for p in share[1:] if p < 1]
  assert _auto.checkpoints(1000) == marks


def projected(z, x, epsilon, norm):
  """Onto ball and box."""
  return balls.projected(z[None], x[None], epsilon, norm, 0, 1)[0]


def by_loop(x0, x, y, epsilon, steps, norm):
  """One sample; the best loss, the sizes of the steps, the best point."""
  move = functools.partial(projected, x=x, epsilon=epsilon, norm=norm)
  marks, size = [0, *_auto.checkpoints(steps)], 2 * epsilon
  now = old = x0
  f, g = margin(now, y)
  best, rises, halved, at_mark = (f, now, g), 0, False, None
  sizes = []
  for k in range(steps):
    direction = np.sign(g) if norm == "linf" else g / np.linalg.norm(g)
    straight = move(now + size * direction)
    share = 0.25 if k else 0  # the first step has none before it
    ahead = move(now + (1 - share) * (straight - now) + share * (now - old))
    old, f_old, now = now, f, ahead
    f, g = margin(now, y)
    rises += f > f_old
    if f > best[0]:
      best = (f, now, g)
    if k + 1 in marks:
      window = k + 1 - marks[marks.index(k + 1) - 1]
      stuck = at_mark is not None and not halved and best[0] == at_mark
      halved = rises < 0.75 * window or stuck
      if halved:
        size, (f, now, g) = size / 2, best
      at_mark, rises = best[0], 0
    sizes.append(size)
  return best[0], sizes, best[1]


def sparse_by_loop(x0, x, y, epsilon, steps):
  """One sample in l1; the best loss, the sizes of the steps, the best point."""

  def move(now, size, count, g):
    chosen = np.argsort(-np.abs(g), kind="stable")[:count]
    ahead = now.copy()
    ahead[chosen] += size * np.sign(g[chosen]) / count
    return projected(ahead, x, epsilon, "l1")

  every, count, old_moved = max(int(0.04 * steps), 1), max(1, int(0.2 * SIZE)), SIZE
  size, now, best, sizes = epsilon, x0, (-np.inf, None, None), []
  for k in range(steps + 1):
    f, g = margin(now, y)
    best = (f, now, g) if f > best[0] else best
    sizes.append(size)
    if k > 0 and k % every == 0:
      moved = np.sum(best[1] != x)
      if moved < 0.95 * old_moved:
        size, (f, now, g) = epsilon, best
      else:
        size = max(size / 1.5, epsilon / 10)
      count, old_moved = int(max(moved / 1.5, 1)), moved
    now = move(now, size, count, g)
  return best[0], sizes, best[1]


def widening_by_loop(x0, x, y, epsilon, steps):
  """Climbs through balls of 3 and 2 epsilon first, 0.3 of the steps in each."""
  wide = int(np.ceil(0.3 * steps))
  for factor in (3, 2):
    x0 = sparse_by_loop(x0, x, y, factor * epsilon, wide)[2]
    x0 = projected(x0, x, (factor - 1) * epsilon, "l1")
  return sparse_by_loop(x0, x, y, epsilon, steps - 2 * wide)


# The sparse climb is a part of the one through larger balls.
@pytest.mark.parametrize(
  ("norm", "wide", "climb"),
  [
    pytest.param("l1", False, sparse_by_loop, marks=SLOW),
    ("l1", True, widening_by_loop),
    ("linf", False, functools.partial(by_loop, norm="linf")),
    pytest.param("l2", False, functools.partial(by_loop, norm="l2"), marks=SLOW),
  ],
)
def test_climbs_like_a_loop(norm, wide, climb, x64):
  """All iterates of eight samples, in float64; the starts are those of one step."""
  sparse = norm == "l1"
  epsilon, steps = (2 * EPSILON, 30) if sparse else (EPSILON, 20)

  @jax.jit
  def run(x, key):
    options = {"norm": norm, "larger_radii": wide, "loss": "margin", "mode": "train"}
    ball = {"key": key, "epsilon": epsilon, "steps": steps}
    radius, zeros = (3 if wide else 1) * epsilon, jnp.zeros_like(x)
    fold = jax.vmap(lambda b: jax.random.fold_in(jax.random.fold_in(key, b), 0))
    region = attacks.Ball(norm, radius, zeros, zeros + 1)
    start = region.start(fold(jnp.arange(BATCH)), x)  # of the first restart
    return attacks.apgd(network, x, Y, **ball, **options), start

  found, start = run(X, jax.random.key(5))
  again = halvings = 0
  for b in range(BATCH):
    best, sizes, point = climb(np.asarray(start[b]), X[b], Y[b], epsilon[b], steps)
    again += np.sum(np.diff(sizes) > 0)
    halvings += np.log2(sizes[0] / sizes[-1])
    np.testing.assert_allclose(found.loss[b], best, rtol=1e-7)
    np.testing.assert_allclose(found.x_adv[b], point, atol=1e-7)
  assert again > 0 or wide or not sparse, "no size was ever taken back to epsilon"
  assert halvings > BATCH or sparse
  assert np.all(found.norm <= epsilon)
  np.testing.assert_array_equal(found.queries, steps + (3 if wide else 1))


@pytest.mark.parametrize(
  ("norm", "steps", "larger"), [("l1", 5, True), ("l1", 4, False), ("linf", 5, False)]
)
def test_the_ensemble_begins_in_larger_balls_in_l1(norm, steps, larger, monkeypatch):
  apgd = mock.Mock(wraps=_auto.apgd)
  monkeypatch.setattr(_auto, "apgd", apgd)
  fixed = {"key": jax.random.key(0), "epsilon": 0.1, "norm": norm, "steps": steps}
  jax.eval_shape(lambda x: attacks.ensemble(network, x, Y, **fixed), X)
  assert {call.kwargs["larger_radii"] for call in apgd.call_args_list} == {larger}


def test_sparse_ball_is_climbed_to_its_corner():
  """Linear and l1: the best is the whole budget on the steepest entry."""
  weights = RANDOM.normal(size=(SIZE, 3)).astype(np.float32)
  x = X.astype(np.float32)
  labels = np.argmax(x @ weights, axis=1)

  ball = {"epsilon": 0.5, "norm": "l1", "low": -9.0, "high": 9.0}
  aim = {"key": jax.random.key(1), "loss": "margin", "targets": "all", "steps": 60}
  found = attacks.apgd(lambda x: x @ weights, x, labels, **ball, **aim)
  reach = np.abs(weights[:, None] - weights[:, labels, None]).max(0)
  best = balls.margins(x @ weights + 0.5 * reach, labels)
  np.testing.assert_allclose(found.margin, best, rtol=2e-2, atol=1e-2)
  assert (found.margin <= best + 1e-5).all()
