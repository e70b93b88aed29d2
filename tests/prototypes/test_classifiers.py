"""Nearest neighbour classifiers and few supports: decisions, scores and distances."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from spherejax import prototypes
from tests import programs
from tests.balls import NORMS, lengths
from tests.metrics.test_robustness import CLASS, TOY
from tests.prototypes.test_optimized import unit

classify = prototypes.nearest_neighbours
border_scores = prototypes.nearest_neighbour_scores
least_distance = prototypes.nearest_neighbour_distance
RANDOM = np.random.default_rng(0)
SITES = RANDOM.normal(size=(30, 4)).astype(np.float32)
LABELS = RANDOM.integers(0, 3, 30)
POINTS = RANDOM.normal(size=(25, 4)).astype(np.float32)


def vote(d, labels, k):
  near = np.argsort(d, kind="stable")[:k]
  votes = [(labels[near] == c).sum() for c in range(4)]
  totals = [d[near][labels[near] == c].sum() for c in range(4)]
  return min(range(4), key=lambda c: (-votes[c], totals[c], c))


def by_class(reduce, values):
  return np.stack([reduce(values[:, c == LABELS], axis=1) for c in range(3)], 1)


def soft_scores(d, k, b):
  """Of three classes, in float64; 0 where no site has a term."""
  near = np.sort(d, axis=1)
  middle = (near[:, k - 1] + near[:, k])[:, None] / 2
  terms = np.exp(-b * d) if k == 1 else 1 / (1 + np.exp(b * (d - middle)))
  total = by_class(np.sum, terms)
  return np.log(np.where(total > 0, total, 1)) / (b if k == 1 else 1)


@pytest.mark.parametrize("norm", NORMS)
def test_decisions_and_scores(norm):
  d = lengths(POINTS[:, None] - SITES[None], norm)

  @functools.partial(jax.jit, static_argnames="k")
  def both(points, sharpness, k):
    kind = {"num_classes": 4, "k": k, "norm": norm}
    return (
      classify(points, SITES, LABELS, block_size=25, **kind),
      prototypes.neighbour_logits(points, SITES, LABELS, sharpness=sharpness, **kind),
    )

  b = 8.0
  for k in (1, 4):
    decisions, scores = map(np.asarray, both(POINTS, b, k))
    np.testing.assert_array_equal(decisions, [vote(row, LABELS, k) for row in d])
    expected = soft_scores(d, k, b)
    np.testing.assert_allclose(scores[:, :3], expected, rtol=2e-4, atol=2e-5)
    assert (scores[:, 3] <= -1e30).all()
  # Sharp scores are the distances to the classes, and decide alike.
  decisions, scores = map(np.asarray, both(POINTS, 1e4, 1))
  least = by_class(np.min, d)
  np.testing.assert_allclose(scores[:, :3], -least, atol=5e-4)
  clear = np.diff(np.sort(least, 1)[:, :2])[:, 0] > np.log(30) / b
  soft = np.asarray(both(POINTS, b, 1)[1]).argmax(1)
  assert clear.sum() > 3
  np.testing.assert_array_equal(soft[clear], decisions[clear])


def test_votes_of_equal_number_and_sites_that_are_left_out():
  """The rule of DIST, article I: among equals the lowest label, as in scikit-learn."""
  where = LABELS != 1
  broken = np.where(where[:, None], SITES, np.nan)

  @functools.partial(jax.jit, static_argnames="k")
  def both(points, sites, where, k):
    kind = {"num_classes": 3, "k": k, "block_size": 25}
    return (
      classify(points, SITES, LABELS, ties="label", **kind),
      classify(points, sites, LABELS, ties="label", where=where, **kind),
    )

  differ = False
  for k in (1, 4, 30):
    decisions, some = map(np.asarray, both(POINTS, broken, where, k))
    for decided, rows in ((decisions, where | True), (some, where)):
      judge = KNeighborsClassifier(min(k, rows.sum()), algorithm="brute")
      judge.fit(SITES[rows], LABELS[rows])
      np.testing.assert_array_equal(decided, judge.predict(POINTS))
    d = lengths(POINTS[:, None] - SITES[None], "l2")
    differ |= (decisions != [vote(row, LABELS, k) for row in d]).any()
    assert (np.asarray(both(POINTS, broken, where & False, k)[1]) == -1).all()
  assert differ  # the two rules are not the same
  # Coincident sites of two classes: the lowest index, then the lowest label.
  same = np.zeros((2, 1), np.float32)
  for k in (1, 2):
    kind = {"num_classes": 2, "k": k, "ties": "label"}
    assert classify(same[:1], same, np.array([1, 0]), **kind).tolist() == [2 - k]


def test_the_nearest_centroid_is_not_the_nearest_direction():
  rng = np.random.default_rng(3)
  points = rng.normal(size=(60, 5)).astype(np.float32)
  points /= np.linalg.norm(points, axis=1, keepdims=True)
  labels = rng.integers(0, 3, 60)
  labels[labels == 1] = 3  # two of five classes have no reference
  means, counts = prototypes.class_means(points, labels, 5, normalize="none")
  found = classify(points, means, np.arange(5), num_classes=5, where=counts > 0)
  rows, scores = np.float64(points), np.full((60, 5), -np.inf)
  for c in (0, 2, 3):
    centre = rows[labels == c].mean(0)
    scores[:, c] = rows @ centre - centre @ centre / 2
  np.testing.assert_array_equal(found, scores.argmax(1))
  cosines = rows @ np.asarray(means).T / np.maximum(np.linalg.norm(means, axis=1), 1e-9)
  cosines[:, [1, 4]] = -np.inf
  assert (cosines.argmax(1) != found).any()


def test_scores_with_linear_borders():
  """Squared distances in float64 but for what all classes share; decisions of 1-NN."""
  far = np.float32(10)  # from the origin the products would round more
  points, sites = POINTS + far, SITES + far
  of_sites = {"sites": sites, "labels": LABELS, "num_classes": 4}
  scores = np.asarray(border_scores(points, **of_sites))
  decisions = classify(points, **of_sites)
  slope = jax.grad(lambda x: border_scores(x[None], **of_sites)[0, 1])
  slopes = np.asarray(jax.jit(jax.vmap(slope))(points))
  sites, points = np.float64(sites), np.float64(points)
  squares = lengths(points[:, None] - sites[None], "l2") ** 2
  centre = sites.mean(0)
  expected = ((points - centre) ** 2).sum(1)[:, None] - by_class(np.min, squares)
  np.testing.assert_allclose(scores[:, :3], expected, rtol=2e-5, atol=1e-5)
  near = sites[np.where(LABELS == 1, squares, np.inf).argmin(1)]
  np.testing.assert_allclose(slopes, 2 * (near - centre), rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(scores[:, 3], np.float32(-1e30))
  np.testing.assert_array_equal(np.argmax(scores, axis=1), decisions)


def test_ties_go_to_the_lowest():
  sites = np.array([[1.0], [-1.0], [1.0], [-1.0]], np.float32)
  point, labels = np.zeros((1, 1), np.float32), np.array([2, 1, 1, 2])
  for k, label in ((1, 2), (2, 1), (4, 1)):
    assert classify(point, sites, labels, num_classes=3, k=k).tolist() == [label]


@pytest.mark.parametrize("norm", NORMS)
def test_least_distances(norm):
  axis = np.linspace(-3, 3, 601)
  grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
  to_sites = lengths(grid[:, None] - TOY[None], "l2")
  near = CLASS[to_sites.argmin(1)]
  points = np.concatenate([TOY, np.float32([[0.4, -0.1], [1.5, -1.4]])])
  classes = np.append(CLASS, [1, 0])
  found = least_distance(points, classes, TOY, CLASS, norm=norm, low=-3, high=3)
  for x, c, distance in zip(points, classes, found, strict=True):
    moves = lengths(grid[near != c] - x, norm)
    assert -1e-6 <= moves.min() - distance < 0.03
  if norm == "l2":
    expected = np.sqrt([0.5, 1.25, 0.5, 0.25, 0.25, 0.5, 0.25, 0.25])
    np.testing.assert_allclose(found[:8], expected, rtol=1e-6)
    sure = prototypes.nearest_neighbour_radius(points, classes, TOY, CLASS)
    assert (np.asarray(sure) <= found + 1e-6).all()
    np.testing.assert_allclose(sure[:8], found[:8], rtol=1e-6)
  wrong = least_distance(TOY, 1 - CLASS, TOY, CLASS, norm=norm)
  np.testing.assert_array_equal(wrong, 0)
  alone = least_distance(TOY, 0 * CLASS, TOY, 0 * CLASS, norm=norm)
  assert np.isinf(alone).all()
  # In a box that holds no other class, none can be reached.
  given = TOY[:1], CLASS[:1], TOY, CLASS
  assert np.isinf(least_distance(*given, norm=norm, low=-1.2, high=-0.8))


def test_a_least_distance_of_many_planes_in_a_box():
  """Where nonnegative least squares of scipy 1.17.1 stop 3 % too far away."""
  images, digits = load_digits(return_X_y=True)
  images = images / 16
  x, label, sites, labels = images[1345], digits[1345], images[:300], digits[:300]
  own, near = sites[labels == label], sites[101]
  assert labels[101] != label
  found = least_distance(x[None], digits[1345:1346], sites, labels, low=0, high=1)
  planes = {
    "type": "ineq",
    "fun": lambda z: ((z - own) ** 2).sum(1) - ((z - near) ** 2).sum(),
    "jac": lambda z: 2 * (near - own),
  }
  expected = minimize(
    lambda z: (((z - x) ** 2).sum(), 2 * (z - x)), near, jac=True,
    bounds=[(0, 1)] * 64, constraints=[planes],
    method="SLSQP", options={"ftol": 1e-12, "maxiter": 300},
  )  # fmt: skip
  assert expected.success
  np.testing.assert_allclose(found, np.sqrt(expected.fun), rtol=1e-5)


def test_votes_take_no_table_of_neighbours_and_classes():
  batch, k, classes = 512, 20, 1000
  votes = functools.partial(classify, num_classes=classes, k=k)
  given = np.ones((batch, 2), "f"), np.ones((40, 2), "f"), np.zeros(40, np.int32)
  assert programs.temporary_bytes(votes, *given) < batch * k * classes


def test_labels_that_are_traced_and_outside_get_no_vote():
  sites = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)
  vote = jax.jit(functools.partial(classify, num_classes=2, k=4))
  decided = vote(np.zeros((1, 1), np.float32), sites, np.array([-1, -2, 7, 0]))
  np.testing.assert_array_equal(decided, [0])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("k", [1, 3, None])
def test_scores_leave_out_what_is_not_finite(k, value):
  """In float64, by the finite sites; `None` for `nearest_neighbour_scores`."""
  points, sites = POINTS.copy(), SITES.copy()
  points[3, 1], sites[[4, 7], 2], sites[LABELS == 2] = value, value, value
  usable = np.isfinite(sites).all(1)
  d = lengths(np.float64(POINTS)[:, None] - np.where(usable[:, None], sites, 0), "l2")
  d[:, ~usable] = np.inf
  b = 6.0
  if k is None:
    to_centre = POINTS - np.float64(sites[usable]).mean(0)
    expected = (to_centre**2).sum(1, keepdims=True) - by_class(np.min, d) ** 2
    call = border_scores
  else:
    expected = soft_scores(d, k, b)
    call = functools.partial(prototypes.neighbour_logits, k=k, sharpness=b)

  def scores(points, sites):
    found = call(points, sites, LABELS, num_classes=4)
    return found[:, :2].sum(), found

  whole = np.arange(len(points)) != 3
  slopes_of = jax.jit(jax.grad(scores, argnums=(0, 1), has_aux=True))
  slopes, found = slopes_of(points[whole], sites)
  np.testing.assert_allclose(found[:, :2], expected[whole, :2], rtol=2e-4, atol=2e-4)
  assert (np.asarray(found[:, 2:]) <= -1e30).all()
  assert all(np.isfinite(slope).all() for slope in slopes)
  np.testing.assert_array_equal(slopes[1][~usable], 0)
  together = scores(points, sites)[1]
  assert np.isnan(together[3]).all()
  np.testing.assert_allclose(together[whole], found, rtol=1e-5, atol=1e-5)
  if k != 3:
    decisions = classify(points[whole], sites, LABELS, num_classes=4)
    clear = np.diff(np.sort(expected[whole, :2], 1))[:, 0] > np.log(30) / b
    assert clear.sum() > 3
    np.testing.assert_array_equal(found.argmax(1)[clear], decisions[clear])


@pytest.mark.parametrize("usable", [0, 1, 2])
def test_too_few_finite_sites_all_vote(usable):
  sites = np.where(np.arange(4)[:, None] < usable, SITES[:4], np.nan)

  def scores(b):
    options = {"num_classes": 4, "k": 3, "sharpness": b}
    return prototypes.neighbour_logits(POINTS, sites, np.arange(4), **options)

  found = scores(2.0)
  np.testing.assert_array_equal(found[:, :usable], 0)
  assert (np.asarray(found[:, usable:]) <= -1e30).all()
  assert jax.grad(lambda b: scores(b).sum())(2.0) == 0


@pytest.mark.parametrize("exponent", [-50, 63])
def test_scores_are_right_where_their_terms_overflow(exponent):
  sites, point = np.float32([[-1.75], [1.75]]), np.float32([[1.5]])
  scale = np.float32(2.0**exponent)
  found = border_scores(point * scale, sites * scale, np.arange(2), num_classes=2)
  squares = (np.float64(point) ** 2 - (point - sites.T) ** 2) * 4.0**exponent
  assert found[0, 0] < found[0, 1]  # the lower one may be -inf
  np.testing.assert_allclose(found[0, 1], squares[0, 1], rtol=1e-6)


def test_a_huge_point_changes_no_other_score():
  sites, points = np.eye(2, dtype=np.float32), np.float32([[2, 0], [1e30, 0]])
  scores, alone = (
    border_scores(x * 1e-8, sites * 1e-8, np.arange(2), num_classes=2)
    for x in (points, points[:1])
  )
  np.testing.assert_allclose(alone[0, 0] - alone[0, 1], 4e-16, rtol=1e-6)
  np.testing.assert_array_equal(scores[:1], alone)


def test_a_programme_that_ends_otherwise_is_no_infeasible_one(monkeypatch):
  stopped = mock.Mock(status=4, message="numerical difficulties", fun=None)
  monkeypatch.setattr("scipy.optimize.linprog", lambda *a, **k: stopped)
  with pytest.raises(RuntimeError, match="status 4: numerical difficulties"):
    least_distance(TOY[:1], CLASS[:1], TOY, CLASS, norm="linf")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["points", "sites"])
def test_a_distance_needs_finite_points_and_sites(name, wrong, norm):
  given = {"points": TOY.copy(), "sites": TOY.copy()}
  given[name][2, 1] = wrong
  with pytest.raises(ValueError, match=rf"^{name} must be finite, got {wrong}$"):
    least_distance(given["points"], CLASS, given["sites"], CLASS, norm=norm)


squared = prototypes.support_squared_distances
RNG = np.random.default_rng(0)
SUPPORTS = RNG.normal(size=(4, 3, 5))
QUERIES = RNG.normal(size=(7, 5))


def squares(queries, supports, representative):
  """[queries, classes], with NumPy."""
  if representative == "mean":
    supports = supports.mean(1, keepdims=True)
  return ((queries[:, None, None] - supports[None]) ** 2).sum(3).min(2)


def transformed(features, transform, centre):
  if transform == "none":
    return features
  rows = features - (centre if transform == "centred_l2" else 0)
  return unit(rows)


@pytest.mark.parametrize("representative", ["mean", "nearest"])
def test_squared_distances_and_gradients(representative, x64):
  distances = jax.jit(functools.partial(squared, representative=representative))
  expected = squares(QUERIES, SUPPORTS, representative)
  np.testing.assert_allclose(distances(QUERIES, SUPPORTS), expected, rtol=1e-12)
  options = {"rtol": 1e-6, "atol": 1e-6, "eps": 1e-6}
  check_grads(distances, (QUERIES, SUPPORTS), 1, ["rev"], **options)


def test_the_first_of_equally_near_supports_has_the_gradient():
  query, supports = jnp.zeros((1, 1)), jnp.array([[[1.0], [1.0]]])
  slopes = jax.grad(lambda s: squared(query, s, representative="nearest").sum())
  np.testing.assert_array_equal(slopes(supports), [[[2.0], [0.0]]])


def test_small_distances_keep_their_digits():
  query = np.full((1, 3), 100, np.float32)
  near = query[None] + np.array([0, 0, 2.0**-10], np.float32)
  np.testing.assert_array_equal(squared(query, near), [[2.0**-20]])


@pytest.mark.parametrize("transform", ["none", "l2", "centred_l2"])
@pytest.mark.parametrize("representative", ["mean", "nearest"])
def test_simple_shot_takes_the_nearest_class(transform, representative):
  base = np.array([0.5, -0.3, 0.2, 0.0, 0.1])
  for far in (1.0, 1000.0):  # from the origin
    supports, queries = ((a + far).astype(np.float32) for a in (SUPPORTS, QUERIES))
    centre = np.float32(base + far) if transform == "centred_l2" else None
    supports[0, 0] = queries[0] = 0 if centre is None else centre
    kind = {"transform": transform, "representative": representative}
    found = prototypes.simple_shot(queries, supports, centre=centre, **kind)
    wide = (np.float64(a) for a in (queries, supports))
    x, s = (transformed(a, transform, centre) for a in wide)
    expected = squares(x, s, representative)
    best = np.sort(expected, axis=1)
    clear = best[:, 1] - best[:, 0] > 1e-5 * far * best[:, 1]
    np.testing.assert_array_equal(found[clear], expected.argmin(1)[clear])
    assert clear.sum() > 4


def test_with_several_supports_it_is_no_cosine_classifier():
  spread = np.array([[[1.0, 3.0], [1.0, -3.0]], [[0.5, 1.0], [0.5, 1.0]]])
  query = np.array([[2.0, 0.9]])
  assert prototypes.simple_shot(query, spread, transform="l2")[0] == 1
  cosine = transformed(transformed(spread, "l2", None).mean(1), "l2", None)
  assert np.argmax(cosine @ query[0]) == 0


def test_features_far_from_the_origin_keep_their_digits():
  random = np.random.default_rng(1)
  far = random.normal(size=64) * 100
  supports = (far + random.normal(size=(5, 1, 64)) * 1e-2).astype(np.float32)
  queries = supports[:, 0] + random.normal(size=(5, 64)).astype(np.float32) * 1e-2
  expected = squares(queries.astype(float), supports.astype(float), "mean").argmin(1)
  for representative in ("mean", "nearest"):
    found = prototypes.simple_shot(queries, supports, representative=representative)
    np.testing.assert_array_equal(found, expected)


def test_equals_go_to_the_lowest_class():
  supports = np.array([[[1.0, 0.0]], [[-1.0, 0.0]], [[1.0, 0.0]]])
  found = prototypes.simple_shot(np.array([[0.0, 3.0], [2.0, 1.0]]), supports)
  np.testing.assert_array_equal(found, [0, 0])


@pytest.mark.parametrize("representative", ["mean", "nearest"])
def test_accuracies_of_many_episodes_are_those_of_each(representative):
  features = RNG.normal(size=(40, 6)) + np.repeat(np.eye(4, 6), 10, 0)
  episodes = [[10 * c + RNG.permutation(10)[:5] for c in RNG.permutation(4)[:3]]
              for _ in range(21)]  # fmt: skip
  episodes = np.int32(episodes)
  kind = {"transform": "centred_l2", "centre": features.mean(0)}
  kind |= {"representative": representative, "block_size": 4}
  found = prototypes.episode_accuracies(features, episodes, num_shots=2, **kind)
  rows = transformed(features, "centred_l2", features.mean(0))
  expected = []
  for episode in episodes:
    right = []
    for y, own in enumerate(episode):
      near = squares(rows[own[2:]], rows[episode[:, :2]], representative)
      right += list(near.argmin(1) == y)
    expected.append(np.mean(right))
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  assert len(set(expected)) > 3


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("representative", ["mean", "nearest"])
def test_a_class_without_a_finite_centre_is_never_chosen(representative, value):
  supports, queries = SUPPORTS.copy(), np.concatenate([QUERIES, SUPPORTS[:, 1]])
  supports[2, :, 0], supports[1, 0, 3] = value, value
  expected = squares(queries, supports, representative)
  if representative == "nearest":  # the other supports of class 1 count
    pairs = ((queries[:, None, None] - supports[None]) ** 2).sum(3)
    expected = np.where(np.isfinite(pairs), pairs, np.inf).min(2)
  expected = np.where(np.isfinite(expected), expected, np.inf).argmin(1)
  assert set(expected) == {0, 3} | ({1} if representative == "nearest" else set())
  kind = {"representative": representative}
  found = prototypes.simple_shot(queries, supports, **kind)
  np.testing.assert_array_equal(found, expected)
  none = prototypes.simple_shot(queries, np.full((2, 1, 5), value), **kind)
  np.testing.assert_array_equal(none, -1)
  features = np.array([[0], [10], [value], [0], [10], [5]])
  episodes = np.array([[[0, 3], [1, 4], [2, 5]]])
  found = prototypes.episode_accuracies(features, episodes, num_shots=1, **kind)
  np.testing.assert_allclose(found, [2 / 3], rtol=1e-6)
