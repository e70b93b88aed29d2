"""Votes under noise, exact bounds against scipy, certificates of a linear model."""

from functools import partial as call

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from spherejax import attacks
from tests import refusals

W, B, SIGMA = np.array([3.0, -4.0, 1.0], np.float32), 0.5, 0.7
X = np.array([[0.3, 0.1, 0.2], [0.0, 0.2, 0.1], [1.0, 0.0, 0.0]], np.float32)


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
  for total, alpha in ((1, 0.1), (17, 0.05), (1000, 0.001), (100_000, 0.001)):
    count = np.unique(np.linspace(0, total, 30).astype(int))
    lower, upper = attacks.clopper_pearson(count, total, alpha=alpha)
    for k, low, high in zip(count, lower, upper, strict=True):
      # A two-sided interval at 1 - 2 alpha has both bounds at alpha.
      exact = stats.binomtest(int(k), total).proportion_ci(1 - 2 * alpha, "exact")
      np.testing.assert_allclose([low, high], exact, rtol=1e-9, atol=1e-12)
  lower, _ = attacks.clopper_pearson(1000, 1000, alpha=0.001)
  np.testing.assert_allclose(lower, 0.001 ** (1 / 1000), rtol=1e-12)


def test_bounds_cover():
  """Exactly, from the binomial distribution: never too often wrong."""
  n, alpha = 40, 0.05
  lower, upper = attacks.clopper_pearson(np.arange(n + 1), n, alpha=alpha)
  for p in np.linspace(0.01, 0.99, 37):
    mass = stats.binom.pmf(np.arange(n + 1), n, p)
    assert mass[lower > p].sum() <= alpha + 1e-12
    assert mass[upper < p].sum() <= alpha + 1e-12


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
certify = call(attacks.smoothed_certificate, VOTES, VOTES, sigma=1.0)


def test_draws_are_at_least_the_votes():
  """Draws whose scores were not finite count against the class."""
  votes = np.array([[90, 10]])
  summed, exact, more = (
    attacks.smoothed_certificate(votes, votes, sigma=1.0, draws=draws)
    for draws in (None, 100, 130)
  )
  np.testing.assert_array_equal(exact.radius, summed.radius)
  assert 0 < more.radius < exact.radius


@refusals.table(
  [
    (call(certify, draws=60), "draws must be at least 100, .* got 60"),
    (call(certify, draws=99), "draws must be at least 100, .* got 99"),
    (call(certify, sigma=TWO), "TypeError: sigma must be a static number, got array"),
    (call(certify, alpha=TWO), "TypeError: alpha must be a static number, got array"),
    (call(attacks.smoothed_prediction, VOTES, alpha=TWO), STATIC),
    (call(attacks.clopper_pearson, 1, 2, alpha=TWO), STATIC),
    (call(attacks.smoothed_prediction, NONE), r"votes must have a class, .*\(2, 0\)"),
    (
      call(attacks.smoothed_certificate, NONE, NONE, sigma=1.0),
      r"selection must have a class, got shape \(2, 0\)",
    ),
    (call(attacks.smoothed_prediction, -VOTES), "votes must be at least 0, got -60"),
    (
      call(attacks.clopper_pearson, np.array([1, 2]), np.array([3, 4, 5])),
      r"total must broadcast to count, of shape \(2,\), got shape \(3,\)",
    ),
    (
      call(jax.jit(lambda k: attacks.clopper_pearson(k, 5)[0]), 3),
      "TypeError: count must be concrete, got a traced int32",
    ),
    (
      call(jax.jit(lambda n: attacks.clopper_pearson(3, n)[0]), 5),
      "TypeError: total must be concrete, got a traced int32",
    ),
    (call(jax.jit(lambda a: attacks.clopper_pearson(3, 5, alpha=a)), 0.1), STATIC),
  ]
)
def test_what_has_no_bound_is_refused(call, message, unchecked):
  refusals.check(call, message)
