"""Losses that attacks ascend, exact decisions above scores, and votes under noise."""

from functools import partial as call

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_digits

from spherejax import attacks, losses, prototypes
from tests import balls, refusals

RANDOM = np.random.default_rng(0)
Z = 3 * RANDOM.normal(size=(40, 5))
Y = RANDOM.integers(0, 5, 40)
T = (Y + RANDOM.integers(1, 5, 40)) % 5
OTHER = RANDOM.normal(size=(40, 5))
ROWS, FALLING = np.arange(40), -np.sort(-Z, axis=1)


def log_p(z):
  return z - np.log(np.exp(z).sum(1, keepdims=True))


# By the loss, and whether it aims at a class.
FORMULAS = {
  ("kl", False): (np.exp(log_p(OTHER)) * (log_p(OTHER) - log_p(Z))).sum(1),
  ("ce", False): -log_p(Z)[ROWS, Y],
  ("ce", True): log_p(Z)[ROWS, T],
  ("margin", False): balls.margins(Z, Y),
  ("margin", True): -balls.margins(Z, T),
  ("dlr", False): balls.margins(Z, Y) / (FALLING[:, 0] - FALLING[:, 2]),
  ("dlr", True): (Z[ROWS, T] - Z[ROWS, Y]) / (FALLING[:, 0] - FALLING[:, 2:4].mean(1)),
}


@pytest.mark.parametrize(("loss", "aimed"), FORMULAS)
def test_losses_are_their_formulas(loss, aimed, x64):
  more = {"targets": T if aimed else None, "reference": OTHER if loss == "kl" else None}
  found = attacks.attack_loss(Z, Y, loss=loss, **more)
  np.testing.assert_allclose(found, FORMULAS[loss, aimed], rtol=1e-9, atol=1e-12)


def test_what_saturates_and_what_does_not():
  """Float32: a label ahead by 40 leaves the cross-entropy a gradient, by 120 none."""
  z = jnp.array([[40.0, 0.0, -1.0], [120.0, 0.0, -1.0]])
  labels = jnp.zeros(2, int)

  def slopes(loss):
    return jax.grad(lambda z: attacks.attack_loss(z, labels, loss=loss).sum())(z)

  ce = jax.jit(lambda: slopes("ce"))()
  np.testing.assert_allclose(ce[0, 1], np.exp(-40.0), rtol=1e-5)
  assert not np.any(ce[1])
  for loss in ("margin", "dlr"):
    assert np.all(jax.jit(lambda loss=loss: slopes(loss))()[:, 0] < 0)


def test_an_impossible_class_adds_nothing():
  """0 log 0 = 0, in the value and in both gradients, as in `losses.trades`."""
  z, reference = np.float32([[1, 0, -np.inf]]), np.float32([[2, 0, -np.inf]])
  labels = np.zeros(1, int)

  def kl(z, reference):
    return attacks.attack_loss(z, labels, loss="kl", reference=reference).sum()

  def trades(z, reference):
    options = {"weight": 1.0, "divergence": "kl"}
    both = losses.trades(reference, z, labels, **options)
    return (both - losses.trades(reference, z, labels, weight=0.0)).sum()

  of_kl, of_trades = (jax.value_and_grad(f, (0, 1)) for f in (kl, trades))
  kept, kept_slopes = jax.jit(of_kl)(z[:, :2], reference[:, :2])
  for function in (of_kl, of_trades):
    value, slopes = jax.jit(function)(z, reference)
    np.testing.assert_allclose(value, kept, rtol=1e-5)
    for slope, expected in zip(slopes, kept_slopes, strict=True):
      np.testing.assert_allclose(slope[:, :2], expected, atol=1e-6)
      assert not np.any(slope[:, 2])
  possible = np.float32([[2, 0, 0]])
  assert np.isinf(jax.jit(kl)(z, possible))
  assert np.isfinite(jax.jit(kl)(possible, z))
  assert np.isnan(jax.jit(kl)(possible, np.float32([[np.nan, 0, 0]])))


SCORES = [
  [0.3, 0.2, 0.1],  # decided already
  [0.3, 0.2, 0.1],  # the least is decided
  [0.3, 0.3, 0.3],  # the last of a tie
  [0.0, -0.0, -1.0],  # a tie at 0, where the next number is no normal one
  [-np.inf, 5.0, 4.0],
  [-np.inf, -np.inf, -np.inf],
]
DECIDED = np.array([0, 2, 2, 1, 0, 2], np.int32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_decided_class_is_on_top_by_the_least_that_can_be(dtype):
  z = jnp.asarray(SCORES, dtype)
  model = attacks.with_decision(lambda x: x, lambda x: jnp.asarray(DECIDED))
  found = jax.jit(model)(z)
  assert found.dtype == dtype
  np.testing.assert_array_equal(jnp.argmax(found, axis=1), DECIDED)
  own = DECIDED[:, None] == np.arange(3)
  rest = [np.where(own, 0, v.astype(float)) for v in (found, z)]
  np.testing.assert_array_equal(*rest)
  np.testing.assert_array_equal(found[0], z[0])  # nothing to raise
  above = found[jnp.arange(5), DECIDED[:5]].astype(float)
  others = np.where(own, -np.inf, z.astype(float)).max(1)[:5]
  assert (above > others).all()
  np.testing.assert_allclose(above[1:], others[1:], rtol=0.01, atol=1e-30)


def test_with_decision_keeps_the_gradients_of_the_scores():
  z = jnp.asarray(SCORES[:4], jnp.float32)
  weights = np.random.default_rng(0).normal(size=z.shape).astype(np.float32)
  decided = jnp.asarray(DECIDED[:4])
  model = attacks.with_decision(jnp.sin, lambda x: decided)
  slopes = jax.jit(jax.grad(lambda x: jnp.sum(weights * model(x))))(z)
  np.testing.assert_allclose(slopes, weights * np.cos(z), rtol=1e-6)


def test_votes_of_neighbours_judge_what_smooth_scores_guide():
  """Success is the exact decision's; without it scores and votes disagree."""
  images, digits = load_digits(return_X_y=True)
  images = (images / 16).astype(np.float32)
  sites, labels = images[:100], digits[:100]
  x, y = images[1300:1332], digits[1300:1332]
  options = {"num_classes": 10, "k": 5}

  def smooth(x):
    return prototypes.neighbour_logits(x, sites, labels, sharpness=5.0, **options)

  def votes(x):
    return prototypes.nearest_neighbours(x, sites, labels, **options)

  def run(model):
    ball = {"epsilon": 0.8, "step_size": 0.2, "norm": "l2", "loss": "margin"}
    found = attacks.pgd(model, x, y, key=jax.random.key(0), steps=10, **ball)
    return map(np.asarray, (found.success, votes(found.x_adv) != y))

  success, wrong = run(attacks.with_decision(smooth, votes))
  right = np.asarray(votes(x) == y)
  np.testing.assert_array_equal(success, wrong)
  assert success[right].mean() > 0.1
  assert not success[right].all()
  success, wrong = run(smooth)
  assert (success != wrong).any()


# --- votes under noise ---

W, B, SIGMA = np.array([3.0, -4.0, 1.0], np.float32), 0.5, 0.7
X = np.array([[0.3, 0.1, 0.2], [0.0, 0.2, 0.1], [1.0, 0.0, 0.0]], np.float32)
bounds = attacks.clopper_pearson


def linear(x):
  height = x @ W + B
  return jnp.stack([height, -height], axis=1)


def votes_of(x, key, block_size=1000, index=None):
  """Votes of 4,000 draws."""
  options = {"draws": 4000, "block_size": block_size, "index": index}
  votes = attacks.smoothed_votes(linear, x, key=key, sigma=SIGMA, **options)
  return np.asarray(votes)


def test_votes_are_those_of_the_noise():
  """The share of a half-space under normal noise, whatever the blocks."""
  key = jax.random.key(1)
  votes = votes_of(X, key)
  assert np.all(votes.sum(axis=1) == 4000)
  probability = stats.norm.cdf((X @ W + B) / (SIGMA * np.linalg.norm(W)))
  for i in range(3):
    assert stats.binomtest(int(votes[i, 0]), 4000, probability[i]).pvalue > 1e-3
  np.testing.assert_array_equal(votes_of(X, key, 900), votes)
  alone = votes_of(X[2:], key, index=np.array([2], np.int32))
  np.testing.assert_array_equal(alone[0], votes[2])


def test_no_draws_abstain_and_nan_votes_for_nobody():
  noise = {"key": jax.random.key(0), "sigma": 1.0}
  none = attacks.smoothed_votes(linear, X, **noise, draws=0)
  assert not np.any(none)
  assert np.all(attacks.smoothed_prediction(none) == -1)
  certificate = attacks.smoothed_certificate(none, none, sigma=1.0)
  assert np.all(certificate.label == -1)
  assert np.all(certificate.radius == 0)
  broken = attacks.smoothed_votes(lambda x: linear(x) * jnp.nan, X, **noise, draws=10)
  assert not np.any(broken)


def test_bounds_are_those_of_clopper_and_pearson():
  for total, alpha in (
    (1, 0.1),
    (17, 0.05),
    (40, 0.05),
    (1000, 0.001),
    (100_000, 0.001),
  ):
    count = np.unique(np.linspace(0, total, 30).astype(int))
    lower, upper = bounds(count, total, alpha=alpha)
    for k, low, high in zip(count, lower, upper, strict=True):
      # A two-sided interval at 1 - 2 alpha has both bounds at alpha.
      exact = stats.binomtest(int(k), total).proportion_ci(1 - 2 * alpha, "exact")
      np.testing.assert_allclose([low, high], exact, rtol=1e-9, atol=1e-12)
  lower, _ = bounds(1000, 1000, alpha=0.001)
  np.testing.assert_allclose(lower, 0.001 ** (1 / 1000), rtol=1e-12)


def test_prediction_is_the_binomial_test():
  random = np.random.default_rng(0)
  votes = random.multinomial(60, [0.5, 0.3, 0.2], size=50)
  votes[:3] = [[30, 30, 0], [60, 0, 0], [0, 0, 0]]
  predicted = attacks.smoothed_prediction(votes, alpha=0.05)
  for row, label in zip(votes, predicted, strict=True):
    second, first = np.sort(row)[-2:]
    sure = row.any() and stats.binomtest(int(first), int(first + second)).pvalue <= 0.05
    assert label == (np.argmax(row) if sure else -1)
  assert 5 < np.sum(predicted == -1) < 45
  assert attacks.smoothed_prediction(np.array([[7]])) == [-1]


def test_radius_of_a_linear_model_is_the_distance_to_its_border():
  """With the true probability it is exact; from votes it stays below."""
  key = jax.random.key(3)
  votes = votes_of(X, key)
  distance = np.abs(X @ W + B) / np.linalg.norm(W)
  one, two = (
    attacks.smoothed_certificate(votes, votes, sigma=SIGMA, two_sided=both)
    for both in (False, True)
  )
  sides = np.where(X @ W + B > 0, 0, 1)
  for found in (one, two):
    certified = found.label >= 0
    assert np.sum(certified) >= 2
    np.testing.assert_array_equal(found.label[certified], sides[certified])
    assert np.all(found.radius <= distance)
    assert np.all(found.radius[~certified] == 0)
  for counts, radius in zip(votes, one.radius, strict=True):
    low = stats.binomtest(int(counts.max()), 4000).proportion_ci(0.998, "exact").low
    np.testing.assert_allclose(radius, max(SIGMA * stats.norm.ppf(low), 0), rtol=1e-9)
  # Of two classes the other's upper bound is what the one's lower leaves, at alpha / 2.
  assert np.all(two.radius <= one.radius)
  assert np.all(two.radius[0::2] > 0.9 * one.radius[0::2])
  many = np.array([[100_000, 0]])
  largest = attacks.smoothed_certificate(np.array([[9, 0]]), many, sigma=1.0)
  np.testing.assert_allclose(largest.radius, 3.81, atol=5e-3)


VOTES, NONE = np.array([[60, 40]]), np.zeros((2, 0), int)
TWO, STATIC = np.array([0.1, 0.2]), "TypeError: alpha must be a static number"
CONCRETE = "TypeError: {} must be concrete, got a traced int32"
certificate = call(attacks.smoothed_certificate, sigma=1.0)
certify = call(certificate, VOTES, VOTES)


def test_draws_are_at_least_the_votes():
  """Draws whose scores were not finite count against the class."""
  votes = np.array([[90, 10]])
  summed, exact, more = (certificate(votes, votes, draws=n) for n in (None, 100, 130))
  np.testing.assert_array_equal(exact.radius, summed.radius)
  assert 0 < more.radius < exact.radius


@refusals.table(
  [
    (call(certify, draws=60), "draws must be at least 100, .* got 60"),
    (call(certify, draws=99), "draws must be at least 100, .* got 99"),
    (call(certify, sigma=TWO), "TypeError: sigma must be a static number, got array"),
    (call(certify, alpha=TWO), "TypeError: alpha must be a static number, got array"),
    (call(attacks.smoothed_prediction, VOTES, alpha=TWO), STATIC),
    (call(bounds, 1, 2, alpha=TWO), STATIC),
    (call(attacks.smoothed_prediction, NONE), r"votes must have a class, .*\(2, 0\)"),
    (call(certificate, NONE, NONE), r"selection must have a class, got shape \(2, 0\)"),
    (call(attacks.smoothed_prediction, -VOTES), "votes must be at least 0, got -60"),
    (
      call(bounds, np.array([1, 2]), np.array([3, 4, 5])),
      r"total must broadcast to count, of shape \(2,\), got shape \(3,\)",
    ),
    (call(jax.jit(lambda k: bounds(k, 5)[0]), 3), CONCRETE.format("count")),
    (call(jax.jit(lambda n: bounds(3, n)[0]), 5), CONCRETE.format("total")),
    (call(jax.jit(lambda a: bounds(3, 5, alpha=a)), 0.1), STATIC),
  ]
)
def test_what_has_no_bound_is_refused(call, message, unchecked):
  refusals.check(call, message)
