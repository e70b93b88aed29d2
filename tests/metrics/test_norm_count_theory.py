"""Norm and count as mathematics: what NCH proves, and where its statements fail."""

import functools

import jax
import numpy as np
import pytest
from scipy import signal

from spherejax import metrics, models

# Two channels, two types of objects and their detector; taps lie along x.
OBJECTS = np.array([[[1, 1], [0, 1]], [[0, -1], [1, -1]]], float)[..., None]
KERNELS = np.array([[[1, -1], [0, 1]], [[0, -1], [1, 1]]], float)[..., None]
SIZE = (12, 6)


def convolve(image, kernels):
  """Full convolution, eq. 6: [channels, x, y] with [out, channels, x, y]."""
  return np.stack([sum(map(signal.convolve2d, image, row)) for row in kernels])


def relu(x, alpha=0.0):
  return np.where(x > 0, x, alpha * x)


def place(objects, counts, rng):
  """A sum of objects at random places, eq. 12, overlaps allowed."""
  image = np.zeros((objects.shape[1], *SIZE))
  for object_, count in zip(objects, counts, strict=True):
    for _ in range(count):
      x = rng.integers(SIZE[0] - object_.shape[1] + 1)
      y = rng.integers(SIZE[1])
      image[:, x : x + object_.shape[1], y : y + object_.shape[2]] += object_
  return image


def violations(f, draw, trials=300, seed=0):
  """Share of pairs with |f(a + b)| > |f(a) + f(b)| somewhere: eq. 5 is broken."""
  rng = np.random.default_rng(seed)
  pairs = ((draw(rng), draw(rng)) for _ in range(trials))
  broken = [np.any(np.abs(f(a + b)) > np.abs(f(a) + f(b)) + 1e-9) for a, b in pairs]
  return np.mean(broken)


def normal(rng):
  return rng.normal(size=(2, 6, 1))


def test_objects_are_seen_as_single_points():
  expected = np.pad(np.eye(2)[..., None, None], [(0, 0), (0, 0), (0, 2), (0, 0)])
  points = [convolve(object_, KERNELS) for object_ in OBJECTS]
  np.testing.assert_array_equal(points, expected)


def test_a_linear_detector_counts(x64):
  """Corollary 1.2, result 1, and the norms between their bounds."""
  rng = np.random.default_rng(0)
  positions = (SIZE[0] + 1) * SIZE[1]
  pairs = []
  for _ in range(200):
    counts = rng.integers(0, 6, 2)
    z = convolve(place(OBJECTS, counts, rng), KERNELS).mean((1, 2))
    np.testing.assert_allclose(z, counts / positions, rtol=0, atol=1e-12)
    n, types = counts.sum(), max(1, np.count_nonzero(counts))
    length = positions * np.linalg.norm(z)
    assert n / np.sqrt(types) - 1e-9 <= length <= n + 1e-9
    pairs.append((np.abs(z).sum(), n))
  lengths, totals = np.transpose(pairs)
  fit = metrics.norm_count_regression(lengths, totals.astype(int), standardize=False)
  np.testing.assert_allclose(fit.slopes, 1 / positions, rtol=1e-9)
  # One type only: the angle is the type, the norm the count.
  for number, count in ((0, 1), (0, 7), (1, 4)):
    counts = np.eye(2, dtype=int)[number] * count
    z = convolve(place(OBJECTS, counts, rng), KERNELS).mean((1, 2))
    np.testing.assert_allclose(z * positions, counts, atol=1e-12)


def test_a_relaxed_detector_is_bounded_by_the_counts():
  """Theorem 1 with the detector max(0, convolution), also of objects that overlap."""
  rng = np.random.default_rng(1)
  for _ in range(100):
    counts = rng.integers(0, 9, 2)
    z = relu(convolve(place(OBJECTS, counts, rng), KERNELS)).mean((1, 2))
    assert np.all(np.abs(z) <= counts / ((SIZE[0] + 1) * SIZE[1]) + 1e-12)
  # A convolution and one ReLU behind it satisfy eq. 5 whatever the kernels.
  kernels = rng.normal(size=(3, 2, 3, 1))
  assert violations(lambda i: relu(convolve(i, kernels)), normal) == 0
  again = rng.normal(size=(2, 3, 2, 1))
  assert violations(lambda i: convolve(convolve(i, kernels), again), normal) == 0


def test_leaky_relu_is_no_relaxed_detector():
  """Proposition 3 holds for the slopes 0 and 1 only."""

  def rate(alpha):
    return violations(lambda x: relu(x, alpha), lambda rng: rng.normal(), 4000)

  for alpha in (0.01, 0.1, 0.5, 0.9):
    a, b = 1.0, -1 / alpha
    assert abs(relu(a + b, alpha)) > 0 == abs(relu(a, alpha) + relu(b, alpha))
    assert 0.002 < rate(alpha) < 0.3
  assert rate(0.0) == rate(1.0) == 0


def test_a_convolution_behind_a_relu_breaks_it_but_for_positive_kernels():
  step = np.array([1, -1])

  def f(x):
    return np.convolve(step, relu(np.array(x, float)))

  np.testing.assert_array_equal(f([1, 0]), [1, -1, 0])
  np.testing.assert_array_equal(f([1, 1]) + f([0, -1]), [1, 0, -1])
  rng = np.random.default_rng(2)
  first, second = rng.normal(size=(3, 2, 3, 1)), rng.normal(size=(2, 3, 2, 1))

  def deep(last, kernels):
    return lambda i: last(convolve(relu(convolve(i, first)), kernels))

  assert violations(deep(lambda x: x, second), normal) > 0.7
  assert violations(deep(relu, second), normal) > 0.5
  assert violations(deep(relu, np.abs(second)), normal) == 0


def test_biases_break_it_unless_positive_before_the_last_relu():
  kernels = np.random.default_rng(3).normal(size=(3, 2, 3, 1))
  rates = {
    bias: violations(lambda i, b=bias: relu(convolve(i, kernels) + b), normal)
    for bias in (-0.5, 0.0, 0.5)
  }
  assert rates[-0.5] > 0.5
  assert rates[0.0] == rates[0.5] == 0
  assert violations(lambda i: convolve(i, kernels) + 0.5, normal) > 0.5


def test_maximum_pooling_needs_maps_that_are_not_negative():
  def pool(x):
    return x.reshape(-1, 2).max(1)

  a, b = np.array([1.0, -10.0]), np.array([-10.0, 1.0])
  assert abs(pool(a + b)) == 9 > abs(pool(a) + pool(b)) == 2
  assert violations(pool, lambda rng: rng.normal(size=8)) > 0.01
  assert violations(pool, lambda rng: np.abs(rng.normal(size=8))) == 0
  # Moved by a multiple of the stride the result moves, else it changes.
  x = np.array([0.0, 3, 1, 0, 0, 0])
  np.testing.assert_array_equal(pool(np.roll(x, 2)), np.roll(pool(x), 1))
  assert sorted(pool(np.roll(x, 1))) != sorted(pool(x))
  # The maximum of a map is no global pooling: eq. 8 would bound it by a sum of 0.
  signed = np.array([1.0, -1.0])
  assert signed.max() > abs(signed.sum())


def test_a_linear_network_has_room_for_as_many_types_as_channels():
  rng = np.random.default_rng(4)
  for channels in (1, 2, 3):
    first = rng.normal(size=(5, channels, 3, 2))
    second = rng.normal(size=(8, 5, 2, 3))
    z = [
      convolve(convolve(rng.normal(size=(channels, 5, 4)), first), second).mean((1, 2))
      for _ in range(12)
    ]
    assert np.linalg.matrix_rank(np.array(z), tol=1e-10) == channels
  # One channel: no image makes a point of a kernel with two taps, however long it is.
  kernel = np.array([1.0, 0.5])
  matrix = np.stack([np.convolve(row, kernel) for row in np.eye(6)], axis=1)
  point = np.eye(7)[0]
  nearest = matrix @ np.linalg.lstsq(matrix, point, rcond=None)[0]
  assert np.linalg.norm(nearest - point) > 1e-3


def test_an_upper_bound_is_no_monotone_relation():
  """Single pixels are objects of max(0, convolution with (1, -1))."""
  sums = []
  for places in ([0], [0, 2], [0, 1, 2], [0, 1, 2, 3, 4]):
    image = np.zeros(6)
    image[places] = 1
    sums.append(relu(np.convolve(image, [1.0, -1.0])).sum())
    assert sums[-1] <= len(places)
  assert sums == [1, 2, 1, 1]


def test_only_the_l1_norm_forgets_the_types():
  counts = np.array([[4.0, 0.0], [2.0, 2.0]])
  np.testing.assert_array_equal(np.abs(counts).sum(1), [4, 4])
  np.testing.assert_allclose(np.linalg.norm(counts, axis=1), [4, np.sqrt(8)])


def test_borders_and_strides_lose_objects():
  def response(start):
    image = np.eye(12)[start] + np.eye(12)[start + 1]
    return np.convolve(image, [1.0, -1.0, 1.0, -1.0])

  for start in (0, 5, 10):
    assert response(start).sum() == 0
    assert np.abs(response(start)).sum() == 2
  cropped = response(10)[:12]  # an output of the input's size
  assert np.abs(cropped).sum() == 1
  # A stride of 2 sees a point at even places only.
  point = convolve(OBJECTS[0], KERNELS)[0, :, 0]
  seen = [np.concatenate([np.zeros(s), point])[::2].sum() for s in range(4)]
  assert seen == [1, 0, 1, 0]


@functools.cache
def simple6():
  network = models.Simple6((4,) * 6, use_bias=False, convolution="patches")
  drawn = jax.jit(network.init)(jax.random.key(0), np.zeros((1, 8, 8, 2)))
  return jax.jit(lambda images: network.apply(drawn, images).sum((1, 2)))


def totals(*places):
  """Features of both objects at once, then of each alone."""
  drawn = np.random.default_rng(5).normal(size=(2, 4, 4, 2))
  images = np.zeros((3, 64, 112, 2))
  for number, (row, column) in enumerate(places):
    for shown in (0, 1 + number):
      images[shown, row : row + 4, column : column + 4] += drawn[number]
  return np.asarray(simple6()(images))


def error(both, first, second):
  assert np.linalg.norm(first) > 0 < np.linalg.norm(second)
  return np.linalg.norm(both - first - second) / np.linalg.norm(both)


@pytest.mark.usefixtures("x64")
class TestSeparation:
  """Without biases, features of objects that no output sees together add up."""

  def test_far_apart_they_add_up(self):
    # An output position of Simple-6 sees 36 pixels.
    both, *alone = totals((28, 28), (32, 28 + 4 + 36))
    assert error(both, *alone) < 1e-12
    # So every component, and with it every norm, grows with each object.
    assert np.all(both >= np.max(alone, axis=0) - 1e-12)

  def test_touching_they_do_not(self):
    assert error(*totals((28, 28), (28, 32))) > 1e-3

  def test_a_shift_must_be_a_multiple_of_the_stride(self):
    places = (28, 28), (28, 36), (28, 29), (0, 0)
    here, there, off, corner = (totals(place, (28, 28))[1] for place in places)
    np.testing.assert_allclose(here, there, rtol=1e-12)
    assert np.linalg.norm(off - here) > 0.01 * np.linalg.norm(here)
    # At the border something is lost.
    assert np.linalg.norm(here - corner) > 1e-3


def test_eq_5_for_two_is_not_eq_5_for_three():
  """Responses to what three objects give together; f({}) = 0."""
  f = {"a": 3, "b": 3, "c": -4, "ab": -6, "ac": 1, "bc": 1, "abc": 4}
  for whole, *parts in (
    ("ab", "a", "b"), ("ac", "a", "c"), ("bc", "b", "c"),
    ("abc", "a", "bc"), ("abc", "b", "ac"), ("abc", "c", "ab"),
  ):  # fmt: skip
    assert abs(f[whole]) <= abs(sum(f[part] for part in parts))
  alone = [f[name] for name in "abc"]
  assert abs(f["abc"]) > abs(sum(alone))
  assert abs(f["abc"]) <= np.abs(alone).sum()  # which is what the bound needs
