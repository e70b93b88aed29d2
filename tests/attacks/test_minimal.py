"""DeepFool, FAB and Carlini-Wagner where the least distance is known."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

from spherejax import attacks, prototypes
from tests import balls
from tests.balls import DUAL

RANDOM = np.random.default_rng(3)
BATCH, SIZE, CLASSES = 8, 5, 4
W = RANDOM.normal(size=(SIZE, CLASSES)).astype(np.float32)
X = RANDOM.uniform(0.05, 0.95, (BATCH, SIZE)).astype(np.float32)
Y = np.argmax(X @ W, axis=1)
Y[-1] = (Y[-1] + 1) % CLASSES  # wrong already
RIGHT = slice(0, BATCH - 1)
SLOW = functools.partial(pytest.param, marks=pytest.mark.slow)
IMAGES, DIGITS = load_digits(return_X_y=True)
IMAGES = (IMAGES / 16).astype(np.float32)


def linear(x):
  return x @ W


def least_moves(x, weights, offset, labels, norm, boxed=True):
  """Least moves of samples to any other class of an affine model, within [0, 1]."""
  z = x.astype(np.float64) @ weights + offset
  least = np.full(z.shape, np.inf)
  for b, k in np.argwhere(np.arange(z.shape[1]) != labels[:, None]):
    slope = np.float64(weights[:, k] - weights[:, labels[b]])
    lead = z[b, k] - z[b, labels[b]]
    if boxed:
      least[b, k] = balls.least_move(x[b], slope, lead - slope @ x[b], norm, 0, 1)
    else:
      least[b, k] = -lead / np.linalg.norm(slope, DUAL[norm])
  return least.min(1)


def check(found, norm):
  """Asserts what every attack of least norm guarantees for any model."""
  success = np.asarray(found.success)
  moved = np.asarray(found.x_adv, np.float64) - X
  sizes = balls.sizes(moved, norm)
  np.testing.assert_allclose(np.where(success, sizes, np.inf), found.norm, rtol=1e-5)
  np.testing.assert_array_equal(moved[~success], 0)
  decided = np.argmax(np.asarray(found.x_adv) @ W, axis=1)
  np.testing.assert_array_equal((decided != Y)[success], True)
  assert found.success[-1]
  assert found.norm[-1] == 0
  np.testing.assert_array_equal(found.x_adv[-1], X[-1])


@pytest.mark.parametrize("norm", DUAL)
def test_linear_models_are_crossed_at_the_least_distance(norm):
  free = {"low": -50.0, "high": 50.0}
  deepfool = attacks.deepfool(linear, X, Y, norm=norm, overshoot=0.0, **free)
  fab = attacks.fab(linear, X, Y, norm=norm, steps=40, **free)
  near = {"norm": norm, "steps": 1, "overshoot": 1.0001, "targets": "all"}
  by_target = attacks.fab(linear, X, Y, **near)
  least = least_moves(X, W, 0, Y, norm, boxed=False)[RIGHT]
  np.testing.assert_allclose(deepfool.norm[RIGHT], least, rtol=1e-4)
  np.testing.assert_allclose(fab.norm[RIGHT], least, rtol=1e-2)
  assert np.all(fab.norm[RIGHT] >= least * (1 - 1e-5))
  # Within the box, one step for each target is the least move to that target.
  least = least_moves(X, W, 0, Y, norm)[RIGHT]
  np.testing.assert_allclose(by_target.norm[RIGHT], least, rtol=2e-3)
  assert np.isfinite(least).sum() > 3
  for found in (deepfool, fab, by_target):
    check(found, norm)
  assert np.all(deepfool.queries[RIGHT] <= 4)
  np.testing.assert_array_equal(deepfool.queries[-1], 1)


# Of all norms, linear models and the tests of each attack.
@pytest.mark.parametrize("norm", ["linf", SLOW("l2"), SLOW("l1")])
def test_binding_boxes_cost_no_steps(norm):
  """With 50 and 100 steps as with 1,000, of models of 3 classes; and at any scale."""
  random = np.random.default_rng(0)
  weights = random.normal(size=(4, 3)).astype(np.float32)
  x = random.random((32, 4))
  # Half of the entries are on faces of the box.
  x = np.where(random.random(x.shape) < 0.5, np.round(x), x).astype(np.float32)
  offset = np.float32(random.normal(size=3) * 0.3 * 4**0.5 - x.mean(0) @ weights)
  y = np.argmax(x.astype(np.float64) @ weights + offset, axis=1)
  least = least_moves(x, weights, offset, y, norm)
  free = least_moves(x, weights, offset, y, norm, boxed=False)
  assert min(free / least) < 0.8  # the box binds

  @jax.jit
  @jax.vmap
  def runs(scale):
    def model(x):
      return scale * (x @ weights + offset[None])

    return [run(model, x, y, norm=norm) for run in (attacks.deepfool, attacks.fab)]

  found = runs(np.float32([1, 1e-25, 2e19]))
  for result, tolerance in zip(found, (0.021, 0.01), strict=True):
    assert np.all(result.converged)
    excess = np.asarray(result.norm) / least - 1
    assert excess.max() < tolerance, np.argwhere(excess >= tolerance)
    assert excess.min() > -1e-4


def test_carlini_wagner_finds_the_least_l2_move():
  targets = (Y + 1) % CLASSES
  wide = {"low": -2.0, "high": 3.0}
  free = attacks.carlini_wagner(linear, X, Y, learning_rate=2e-3, **wide)
  wide |= {"steps": 100, "rounds": 5, "first_weight": 1.0}
  sure = attacks.carlini_wagner(linear, X, Y, confidence=0.3, **wide)
  aimed = attacks.carlini_wagner(linear, X, Y, targets=targets, **wide)
  least = least_moves(X, W, 0, Y, "l2", boxed=False)[RIGHT]
  np.testing.assert_allclose(free.norm[RIGHT], least, rtol=1e-2)
  check(free, "l2")
  assert np.all(sure.margin[RIGHT] >= 0.3)
  assert np.all(sure.norm[RIGHT] > free.norm[RIGHT])
  reached = np.argmax(np.asarray(aimed.x_adv) @ W, axis=1) == targets
  np.testing.assert_array_equal(reached, aimed.success)
  assert np.sum(reached) >= BATCH - 2


def test_pgd_succeeds_exactly_beyond_the_least_distance():
  """The curve of a fixed budget equals that of the least distances."""
  least = least_moves(X, W, 0, Y, "l2")
  budgets = np.unique(np.concatenate([0.98 * least[RIGHT], 1.02 * least[RIGHT]]))
  budgets = budgets[np.isfinite(budgets)].astype(np.float32)

  @jax.jit
  @jax.vmap
  def curve(epsilon):
    ball = {"epsilon": epsilon, "step_size": epsilon / 2, "norm": "l2"}
    aim = {"loss": "margin", "targets": "all", "steps": 60}
    return attacks.pgd(linear, X, Y, key=jax.random.key(0), **ball, **aim).success

  found = np.asarray(curve(budgets))
  np.testing.assert_array_equal(found, least[None] < budgets[:, None])


@pytest.mark.slow
@pytest.mark.parametrize(
  ("number", "restarts", "starts", "steps", "share"),
  [(16, 4, 1, 40, 0.8), (50, 16, 10, 200, 0.95)],
)
def test_nearest_neighbours_are_left_at_the_least_distance(
  number, restarts, starts, steps, share
):
  """Digits, on scores whose borders are planes, against the quadratic programmes.

  The more starts, the nearer are FAB and PGD to all of them.
  """
  sites, labels = IMAGES[:300], DIGITS[:300]
  x, y = IMAGES[1297:1397], DIGITS[1297:1397]
  least = prototypes.nearest_neighbour_distance(x, y, sites, labels, low=0, high=1)
  x, y, least = (v[least > 0][:number] for v in (x, y, least))

  def scores(x):
    return prototypes.nearest_neighbour_scores(x, sites, labels, num_classes=10)

  close, key = {"overshoot": 1.001, "restarts": restarts}, jax.random.key(0)
  many = {"steps": 500, "first_weight": 0.1, "rounds": 7}
  # Closer and farther than the least distance.
  epsilon = np.concatenate([0.99 * least, 1.01 * least]).astype(np.float32)
  aim = {"loss": "margin", "targets": "all", "restarts": starts, "steps": steps}
  size = {"epsilon": epsilon, "step_size": epsilon / 10, "norm": "l2"}
  twice, both = np.concatenate([x, x]), np.concatenate([y, y])
  within = attacks.pgd(scores, twice, both, key=key, **size, **aim).success
  below, beyond = np.split(np.asarray(within), 2)
  for found, median, least_share in (
    # Others end at another site of the class.
    (attacks.fab(scores, x, y, key=key, steps=40, **close), 1.004, share),
    (attacks.carlini_wagner(scores, x, y, **many), 1.01, 0.5),
    # Its moves add up where the nearest site changes.
    (attacks.deepfool(scores, x, y, overshoot=0.0), 1.1, 0.2),
  ):
    ratio = np.asarray(found.norm) / least
    assert ratio.min() > 1 - 1e-4
    assert np.median(ratio) < median
    assert np.mean(ratio < 1.01) >= least_share
  assert not np.any(below)
  assert np.mean(beyond) >= share


@pytest.mark.parametrize("norm", ["l1", SLOW("l2"), SLOW("linf")])
def test_nearest_prototypes_are_left_at_the_least_distance(norm):
  """Digits and their class means: one plane to each other class."""
  means = np.stack([IMAGES[:1000][DIGITS[:1000] == k].mean(0) for k in range(10)])
  own = ((IMAGES[1000:, None] - means) ** 2).sum(2).argmin(1) == DIGITS[1000:]
  x, y = (v[1000:][own][:16] for v in (IMAGES, DIGITS))

  def scores(x):
    return prototypes.nearest_neighbour_scores(x, means, np.arange(10), num_classes=10)

  # Squared distances differ as affine functions do.
  slopes, offset = 2 * np.float64(means).T, -(np.float64(means) ** 2).sum(1)
  least = least_moves(x, slopes, offset, y, norm, boxed=False)

  free, key = {"low": -9.0, "high": 9.0}, jax.random.key(0)
  epsilon = np.concatenate([0.99 * least, 1.01 * least]).astype(np.float32)
  twice, labels = np.concatenate([x, x]), np.concatenate([y, y])
  ball = {"epsilon": epsilon, "step_size": epsilon / 4, "norm": norm, **free}
  aim = {"loss": "margin", "targets": "all", "share": 0.0, "steps": 100}
  within = attacks.pgd(scores, twice, labels, key=key, **ball, **aim)
  np.testing.assert_array_equal(within.success, np.arange(32) >= 16)
  deepfool = attacks.deepfool(scores, x, y, norm=norm, overshoot=0.0, **free)
  np.testing.assert_allclose(deepfool.norm, least, rtol=1e-2)
  fab = attacks.fab(scores, x, y, norm=norm, **free)
  np.testing.assert_allclose(fab.norm, least, rtol=1e-2)


def test_zero_gradients_stop_and_restarts_go_on():
  def flat(x):
    z = jnp.where(x[:, :1] > 0.7, 1.0, -1.0)
    return jnp.concatenate([0 * z, z], axis=1)

  x = jnp.array([[0.5, 0.5], [0.65, 0.1]])
  labels = jnp.zeros(2, int)

  seeded = {"key": jax.random.key(0), "steps": 3}
  deepfool = attacks.deepfool(flat, x, labels)
  fab = attacks.fab(flat, x, labels, **seeded)
  restarted = attacks.fab(flat, x, labels, **seeded, restarts=20, epsilon=0.6)
  cw = attacks.carlini_wagner(flat, x, labels, steps=3, rounds=2)
  for found in (deepfool, fab, cw):
    assert not np.any(found.success)
    assert np.all(np.isinf(found.norm))
    np.testing.assert_array_equal(found.x_adv, x)
    np.testing.assert_array_equal(found.zero_gradients, 1)
    assert not np.any(found.converged)
  np.testing.assert_array_equal(deepfool.queries, 2)
  assert np.all(restarted.success)
  assert np.all(restarted.norm <= 0.31)


@pytest.mark.parametrize("scale", [1, 1e6])
@pytest.mark.parametrize("norm", DUAL)
def test_samples_on_a_border_or_beside_it_are_left(norm, scale):
  """A rounding from the border, where a move in proportion to the lead is none."""
  random = np.random.default_rng(0)
  x = random.random((64, 16)).astype(np.float32)
  weights = random.normal(size=(64, 16, 3)).astype(np.float32)
  z = np.einsum("bi,bik->bk", x.astype(np.float64), weights)
  offset = np.where(np.arange(3) < 2, -z, -z - 5)  # the first two are level
  offset = offset.astype(np.float32)

  def logits_fn(x):
    product = jnp.einsum("bi,bik->bk", x, weights, precision="highest")
    return scale * (product + offset)

  labels = np.asarray(jnp.argmax(logits_fn(x), axis=1))
  for attack in (attacks.deepfool, attacks.fab):
    found = attack(logits_fn, x, labels, norm=norm)
    assert found.success.all(), attack
    assert found.norm.max() < 1e-5
