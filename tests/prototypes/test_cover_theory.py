"""Proxies bound the loss of all samples: DML's bounds of appendix A as they hold."""

import jax
import numpy as np
import pytest

from spherejax import prototypes
from spherejax.losses import contrastive_from_distance

BETA, ALPHA = 0.5, 0.2
RADII = jax.jit(prototypes.class_covering_radii)


def pairs(points, labels, anchors, own):
  """[anchors, points]: distances, and whether the classes are the same."""
  distance = np.linalg.norm(anchors[:, None] - points[None], axis=-1)
  return distance, own[:, None] == labels[None]


def losses(*given):
  """[anchors, points]: the generalised contrastive loss, eq. 3.2.2 with its hinge."""
  distance, same = pairs(*given)
  excess = np.where(same, 1, -1) * (distance - BETA)
  return np.maximum(excess + ALPHA, 0), excess >= 0


def instance(seed):
  random = np.random.default_rng(seed)
  labels = np.sort(random.integers(0, 4, 40))
  labels[:4] = range(4)
  points = random.normal(size=(40, 3)) * random.uniform(0.1, 1)
  rows = [random.choice(np.flatnonzero(labels == c), 2) for c in range(4)]
  return points, labels, points[np.ravel(rows)], np.repeat(np.arange(4), 2)


@pytest.mark.parametrize("seed", range(40))
def test_all_samples_against_anchors(seed):
  points, labels, anchors, own = instance(seed)
  centres = anchors.reshape(4, 2, 3)
  radii = RADII(points.astype(np.float32), labels, centres.astype(np.float32))
  delta = float(radii.max()) * (1 + 1e-5)
  every = losses(points, labels, points, labels)[0].mean()
  of_anchor = losses(points, labels, anchors, own)[0].mean(1)
  distance, same = pairs(points, labels, anchors, own)
  nearest = np.where(same, distance, np.inf).argmin(0)  # of the sample's class
  shares = np.bincount(nearest, minlength=8) / len(points)
  # The loss is 1-Lipschitz in one of its points: the identity is the network.
  assert abs(every - shares @ of_anchor) <= delta
  mean = of_anchor.mean()
  factor = max(1, 8 * shares.max() - 1)
  assert abs(every - mean) <= delta + factor * mean


@pytest.mark.parametrize("number", [10, 100])
def test_unequal_cells_need_the_factor(number):
  # Two classes of many samples at one point, the others far apart, one sample each.
  labels = np.repeat(np.arange(number), [1000, 1000, *[1] * (number - 2)])
  points = 100.0 * np.maximum(labels - 1, 0)[:, None]
  first = np.unique(labels, return_index=True)[1]
  of_anchor = losses(points, labels, points[first], np.arange(number))[0].mean(1)
  shares = np.bincount(labels) / len(labels)
  every, mean = shares @ of_anchor, of_anchor.mean()
  factor = number * shares.max() - 1
  assert (every - mean) / mean == pytest.approx(factor, rel=0.02)
  assert factor > 3  # the printed bound has 1


@pytest.mark.parametrize("seed", range(20))
def test_a_mean_bounds_a_mean_and_not_the_worst(seed):
  values, violated = losses(*instance(seed))
  chance, surrogate = violated.mean(1), values.mean() / ALPHA
  assert chance.mean() <= surrogate  # Markov
  assert chance.max() <= len(chance) * surrogate
  for t in (1.5, 2, 4):
    assert np.mean(chance > t * surrogate) <= 1 / t


def test_one_anchor_may_be_as_bad_as_all_are_good():
  """A mean below the bound leaves an anchor above it: eq. 3.2.6 is of the mean."""
  points = np.array([[0.0]] * 9 + [[0.4]])
  anchors = np.array([[0.6]] + [[0.2]] * 99)
  same = np.zeros(100, int)
  values, violated = losses(points, same[:10], anchors, same)
  chance, surrogate = violated.mean(1), values.mean() / ALPHA
  assert chance[0] == 0.9
  assert not chance[1:].any()
  assert chance.mean() == pytest.approx(0.009)
  assert surrogate == pytest.approx(0.0135)
  assert chance.mean() <= surrogate < chance[0] <= len(anchors) * surrogate


@pytest.mark.parametrize("seed", range(5))
def test_the_generalised_loss_is_that_of_the_library(seed):
  distance, same = pairs(*instance(seed))
  margins = {"positive_margin": BETA - ALPHA, "negative_margin": BETA + ALPHA}
  of_library = contrastive_from_distance(
    distance.astype(np.float32), same, ~same, average="all", **margins
  )
  wanted = losses(*instance(seed))[0].mean(1)
  np.testing.assert_allclose(of_library, wanted, rtol=2e-5, atol=1e-6)


def test_norms_of_layers():
  random = np.random.default_rng(0)
  for shape in ((1, 16), (16, 1), (5, 7)):
    weights = random.normal(size=shape)
    sums = np.abs(weights).sum(0).max(), np.abs(weights).sum(1).max()
    assert np.linalg.norm(weights, 2) <= np.sqrt(np.prod(sums)) + 1e-12
  ones = np.ones((16, 1))  # into each neuron a sum of 1
  assert np.linalg.norm(ones, 2) == pytest.approx(4)
  assert (np.array([1, 1]) @ np.array([1, 1])) ** 2 > 2


@pytest.mark.parametrize("seed", range(10))
def test_the_loss_is_as_steep_as_its_network(seed):
  random = np.random.default_rng(seed)
  x, y, u, v = random.normal(size=(4, 30, 3))

  def loss(a, b):
    sign = np.array([[1], [-1]])
    return np.maximum(sign * (np.linalg.norm(a - b, axis=1) - BETA) + ALPHA, 0)

  first = np.abs(loss(x, y) - loss(u, y)) / np.linalg.norm(x - u, axis=1)
  assert first.max() <= 1 + 1e-12
  both = np.sqrt(((x - u) ** 2 + (y - v) ** 2).sum(1))
  assert (np.abs(loss(x, y) - loss(u, v)) / both).max() <= np.sqrt(2) + 1e-12


@pytest.mark.parametrize("number", [1000, 10000])
def test_learned_weights_deviate_as_far_as_their_cells_allow(number):
  """A loss of 1 exactly where the anchors are too few: Proposition 3.2.1, delta 0."""
  anchors = int(number * (np.log(number) + 5))
  counts = np.random.default_rng(0).multinomial(anchors, np.full(number, 1 / number))
  assert counts.min() > 0  # every point is covered
  few = counts < anchors / number
  deviation = few.mean() - counts[few].sum() / anchors
  free = np.sqrt(np.log(20) / anchors)
  assert deviation > 5 * free  # more than for weights that do not know the anchors
  assert deviation <= np.sqrt((2 * number * np.log(2) + 2 * np.log(20)) / anchors)


def test_anchors_of_other_classes_cover_nothing():
  """Corollary 3.2.2.1: every sample is at an anchor, and the means yet differ."""
  points, labels = np.array([[0.0], [10.0], [10.0]]), np.array([0, 0, 1])
  anchors, own = points[[0, 2]], labels[[0, 2]]
  of_any = np.abs(points[:, None] - anchors[None])[..., 0].min(1).max()
  every = losses(points, labels, points, labels)[0].mean()
  weighted = np.array([2, 1]) / 3 @ losses(points, labels, anchors, own)[0].mean(1)
  assert abs(every - weighted) > 0.05 > of_any == 0
  of_class = RADII(np.float32(points), labels, np.float32(anchors)[:, None])
  assert of_class.tolist() == [10, 0]
