"""The square attack: windows, budgets, what it accepts, and the ensemble it ends."""

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import attacks
from spherejax.attacks import _square
from tests import balls

RANDOM = np.random.default_rng(0)
BATCH, HEIGHT, WIDTH, CHANNELS = 6, 7, 6, 2
SHAPE = (HEIGHT, WIDTH, CHANNELS)
X = RANDOM.random((BATCH, *SHAPE)).astype(np.float32)
W = RANDOM.normal(size=(HEIGHT * WIDTH * CHANNELS, 3)).astype(np.float32)


def linear(x):
  return x.reshape(len(x), -1) @ W


Y = np.argmax(X.reshape(BATCH, -1) @ W, axis=1)


def test_windows_shrink_by_the_schedule():
  """Halved areas after 10, 50, 200, ... of 10,000; shorter runs compress it."""
  sides = _square.window_sides(10_000, 32, 32, 0.8, "linf")
  steps = {0: 0.8, 10: 0.8, 11: 0.4, 51: 0.2, 201: 0.1, 8001: 0.8 / 512}
  for step, share in steps.items():
    assert sides[step] == max(1, round(np.sqrt(share * 1024)))
  short = _square.window_sides(100, 32, 32, 0.8, "linf")
  np.testing.assert_array_equal(short, sides[::100])
  odd = _square.window_sides(1000, 8, 9, 0.8, "l2")
  assert set(odd % 2) == {1}
  assert odd.max() == 7
  assert odd.min() == 3


def tile(side):
  """The pyramids of one window, rectangle by rectangle."""
  parts = []
  for sign, height in ((1, side // 2), (-1, side - side // 2)):
    part = np.zeros((height, side))
    for ring in range(max(height // 2, side // 2) + 1):
      rows = slice(max(height // 2 - ring, 0), height // 2 + ring + 1)
      columns = slice(max(side // 2 - ring, 0), side // 2 + ring + 1)
      part[rows, columns] += 1 / (ring + 1) ** 2
    parts.append(sign * part / max(np.linalg.norm(part), 1e-30))
  whole = np.concatenate(parts)
  return whole / np.linalg.norm(whole)


def test_pyramids_are_sums_of_rectangles():
  place = jnp.arange(9)
  draw = jax.jit(lambda side: _square._pyramids(place[:, None], place[None], side, 9))
  for side in (1, 2, 3, 5, 9):
    found = np.asarray(draw(side))
    np.testing.assert_allclose(found[:side, :side], tile(side), atol=1e-6)
    assert np.count_nonzero(found) <= side * side


def test_moves_are_what_they_should_be():
  """Windows anywhere inside, signs a channel, the l2 budget kept."""

  @jax.jit
  @jax.vmap
  def draws(key):
    first, second, third = jax.random.split(key, 3)
    start = _square._grid(first, jnp.zeros(SHAPE), jnp.float32(0.5))
    return (
      _square._stripes(first, jnp.zeros(SHAPE), jnp.float32(0.5)),
      _square._recolour(second, jnp.zeros(SHAPE), jnp.float32(0.5), jnp.int32(3)),
      start,
      _square._shift_budget(third, start, jnp.float32(0.5), jnp.int32(3)),
    )

  keys = jax.random.split(jax.random.key(0), 300)
  stripes, window, start, moved = map(np.asarray, draws(keys))
  assert np.all(np.abs(stripes) == 0.5)
  assert np.all(stripes == stripes[:, :1])
  assert np.abs(stripes.mean()) < 0.05
  touched = np.any(window != 0, axis=3)
  np.testing.assert_array_equal(touched.sum((1, 2)), 9)
  assert np.all(touched.any(0))  # the last row and column too
  corners = {tuple(np.argwhere(image)[0]) for image in touched}
  assert len(corners) == (HEIGHT - 2) * (WIDTH - 2)
  for image, channels in zip(touched, window, strict=True):
    assert all(len(np.unique(channels[image][:, c])) == 1 for c in range(CHANNELS))
  for image in (start, moved):
    np.testing.assert_allclose(balls.sizes(image, "l2"), 0.5, rtol=1e-5)
  changed = np.any(np.abs(moved - start) > 1e-6, axis=3).sum((1, 2))
  assert changed.min() >= 9
  assert changed.max() == 18  # two windows, and nothing outside of them
  emptied = np.all(np.abs(moved) < 1e-7, axis=3).sum((1, 2))
  assert np.median(emptied) >= 3


def test_queries_raise_the_margin_and_end_with_success():
  options = {"key": jax.random.key(0), "queries": 300}
  clean = balls.margins(X.reshape(BATCH, -1) @ W, Y)
  for norm, epsilon in (("linf", 0.02), ("l2", 0.2)):
    result = attacks.square(linear, X, Y, epsilon=epsilon, norm=norm, **options)
    failed = ~np.asarray(result.success)
    assert np.any(failed)
    assert np.all((result.margin - clean)[failed] > 0.05)
    np.testing.assert_array_equal(result.queries[failed], 302)
    assert np.all(result.queries[~failed] < 302)


def test_ensemble_goes_on_with_what_is_left():
  """Stages, and budgets kept; where no gradient is, the last wins."""
  labels = Y.copy()
  labels[0] = (Y[0] + 1) % 3

  def stairs(x):
    return jnp.round(4 * linear(x)) / 4

  epsilon = np.array([0.05, 0.5, 0.05, 0.001, 0.05, 0.5], np.float32)
  few = {"key": jax.random.key(0), "steps": 6, "queries": 150, "target_count": 2}
  few["epsilon"] = epsilon
  plain, flat = (attacks.ensemble(m, X, labels, **few) for m in (linear, stairs))
  for found, model in ((plain, linear), (flat, stairs)):
    stage = np.asarray(found.stage)
    assert stage[0] == 0
    assert stage[3] == -1
    np.testing.assert_array_equal(found.success, stage >= 0)
    assert found.queries[0] == 1
    moved = np.abs(np.asarray(found.x_adv, np.float64) - X).max((1, 2, 3))
    assert np.all(moved <= epsilon)
    decided = np.argmax(model(np.asarray(found.x_adv)), axis=1)
    np.testing.assert_array_equal(decided != labels, found.success)
  assert plain.stage[1] == plain.stage[5] == 1
  assert plain.queries[1] == 1 + 8
  assert plain.queries[3] > 1 + 8 + 150
  assert np.any(flat.stage == 4)
  assert np.all(flat.zero_gradients[1:] == 1)
  assert np.all(plain.zero_gradients[1:] < 0.5)
