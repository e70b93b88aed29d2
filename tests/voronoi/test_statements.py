"""Statements of the thesis and its third article, on sets where all can be computed."""

import numpy as np
import pytest
from scipy.special import ndtr

from spherejax import distances, metrics, prototypes, voronoi
from tests.balls import NORMS, lengths
from tests.metrics.test_robustness import CLASS, TOY

OWN = np.arange(8)
AXIS = np.linspace(-3, 3, 61)
GRID = np.stack(np.meshgrid(AXIS, AXIS), -1).reshape(-1, 2)


@pytest.mark.parametrize(
  ("norm", "minimal", "tied"),
  [
    ("l1", [1, 1.5, 1, 0.5, 0.5, 1, 0.5, 0.5], 0.051),
    ("l2", np.sqrt([0.5, 1.25, 0.5, 0.25, 0.25, 0.5, 0.25, 0.25]), 0.0045),
    ("linf", [0.5, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], 0.30),
  ],
)
def test_the_toy_set(norm, minimal, tied):
  axis = np.linspace(-6, 6, 601)
  grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
  d = lengths(grid[:, None] - TOY[None], norm)
  ordered = np.sort(d, axis=1)
  clear = ordered[:, 1] - ordered[:, 0] > 1e-9
  # Boundaries have volume in l1 and l-infinity.
  np.testing.assert_allclose(1 - clear.mean(), tied, rtol=0.05)
  # In every cell the nearest neighbour is right: its VAA is 1 at every budget.
  cell = d.argmin(1)
  decision = CLASS[cell]
  some, options = np.float32(grid[::7]), {"norm": norm, "block_size": 601}
  by_ours = prototypes.nearest_neighbours(some, TOY, CLASS, num_classes=2, **options)
  assert (by_ours == decision[::7])[clear[::7]].all()
  # Half the distance to another class is sure, and here nearly always all.
  sure = prototypes.nearest_neighbour_radius(TOY, CLASS, TOY, CLASS, norm=norm)
  wrong = decision[:, None] != CLASS[None]
  found = np.where(wrong & clear[:, None], d, np.inf).min(0)
  np.testing.assert_allclose(found, minimal, atol=0.03)
  assert (np.asarray(sure) <= np.asarray(minimal) + 1e-6).all()
  # Below half the least distance of different classes the classifier is robust.
  apart = metrics.separation(TOY, CLASS, norm=norm)
  assert np.min(apart.nearest_other_class) / 2 <= min(minimal) + 1e-6
  budgets = np.array([0.4, 0.6, 0.8, 1.2, 1.6], np.float32)
  curve = metrics.accuracy_curve_from_distances(np.float32(minimal), budgets)
  best = metrics.best_accuracy(TOY, CLASS, budgets, norm=norm)
  assert (np.asarray(curve) <= best + 1e-6).all()
  if norm == "l2":
    # The nearest neighbour has the best VAA and not the best SAA.
    np.testing.assert_allclose(curve[2], 0.125)
    np.testing.assert_allclose(best[2], 0.625)
  middle = np.float32([[1.5, 1]])  # between two sites
  margin = voronoi.cell_margin(middle, np.array([3]), TOY, norm=norm, block_size=8)
  np.testing.assert_array_equal(margin, 0)


def decided(sites, labels, norm):
  """Decisions of the nearest neighbour on the grid and on the toy set."""
  points = np.concatenate([GRID, TOY]).astype(np.float32)
  near = prototypes.nearest_neighbours(points, sites, labels, num_classes=2, norm=norm)
  return np.asarray(near)


@pytest.mark.parametrize("norm", NORMS)
def test_near_points_of_two_classes_are_not_both_robust(norm):
  """S7, of any classifier; a robust point costs the other one its own class."""
  places, budget = np.concatenate([GRID, TOY]), 1.0
  apart = lengths(TOY[:, None] - TOY[None], norm)
  near = (apart <= budget) & (CLASS[:, None] != CLASS)
  inside = lengths(places[:, None] - TOY[None], norm) <= budget + 1e-9
  robust_ones = 0
  for labels in (CLASS, 1 - CLASS, 0 * CLASS, 1 + 0 * CLASS, 1 * (TOY[:, 0] > 0)):
    decision = decided(TOY, labels, norm)
    robust = (~inside | (decision[:, None] == CLASS)).all(0)
    assert not (near & robust[:, None] & robust).any()
    wrong = decision[len(GRID) :] != CLASS
    assert (wrong | ~(near & robust[:, None])).all()
    robust_ones += (near & robust[:, None]).sum()
  assert near.any()
  assert robust_ones > 0


@pytest.mark.parametrize("norm", NORMS)
def test_robust_to_half_the_distance_of_classes_is_the_nearest_neighbour(norm):
  """S6: in the balls there is no other choice, also where sites of a class are near."""
  sites = np.concatenate([TOY, [[-1.1, -1]]]).astype(np.float32)
  labels = np.append(CLASS, 0)
  apart = metrics.separation(sites, labels, norm=norm)
  half = float(np.min(apart.nearest_other_class)) / 2
  assert np.min(apart.nearest) < half  # of one class
  decision = decided(sites, labels, norm)[: len(GRID)]
  d = lengths(GRID[:, None] - sites[None], norm)
  inside = d < half - 1e-6
  asked = inside.any(1)
  assert asked.mean() > 0.03
  np.testing.assert_array_equal(inside[asked] @ labels > 0, decision[asked] == 1)
  for near, meet in ((inside, False), (d < 1.2 * half, True)):
    assert ((near @ labels > 0) & (near @ (1 - labels) > 0)).any() == meet


@pytest.mark.parametrize("norm", NORMS)
def test_only_the_nearest_neighbour_is_right_in_every_cell(norm):
  """Theorem 1: each place without a tie is in one cell, whose class it must have."""
  points = GRID.astype(np.float32)
  margins = np.stack(
    [voronoi.cell_margin(points, np.full(len(points), i), TOY, norm=norm) for i in OWN]
  )
  d = lengths(points[:, None].astype(np.float64) - TOY[None], norm)
  ordered = np.sort(d, axis=1)
  clear = ordered[:, 1] - ordered[:, 0] > 1e-5
  cells = margins > 1e-5
  np.testing.assert_array_equal(cells.sum(0), clear)
  np.testing.assert_array_equal(cells.argmax(0)[clear], d.argmin(1)[clear])

  def robust(decision):
    return (~cells | (decision == CLASS[:, None])).all(1)

  decision = decided(TOY, CLASS, norm)[: len(GRID)]
  assert robust(decision).all()
  for place in np.flatnonzero(clear)[::211]:
    other = decision.copy()
    other[place] = 1 - other[place]
    assert robust(other).mean() == 1 - 1 / 8
  flipped = CLASS.copy()
  flipped[3] = 1 - flipped[3]
  assert robust(decided(TOY, flipped, norm)[: len(GRID)]).mean() == 1 - 1 / 8


@pytest.mark.parametrize("norm", NORMS)
def test_cells_are_convex_in_l2_alone(norm):
  """S11: a middle of two points of a cell may be outside."""
  random = np.random.default_rng(1)
  ends = random.uniform(-3, 3, (2, 4000, 2)).astype(np.float32)
  own = np.full(4000, 0)
  first, last, middle = (
    np.asarray(voronoi.cell_margin(points, own, TOY[[1, 5]], norm=norm))
    for points in (*ends, ends.mean(0))
  )
  both = (first > 1e-4) & (last > 1e-4)
  assert both.sum() > 300
  assert (middle[both] < -1e-4).any() == (norm != "l2")


@pytest.mark.parametrize("norm", NORMS)
def test_the_distance_to_a_class_has_slope_one(norm):
  """T4: divided by r it is 1/r-Lipschitz; the nearest class holds below r."""
  random = np.random.default_rng(2)
  r = float(np.min(metrics.separation(TOY, CLASS, norm=norm).nearest_other_class)) / 2
  ends = random.uniform(-3, 3, (2, 500, 2)).astype(np.float32)
  moved = lengths(ends[0] - ends[1], norm)
  for label in (0, 1):
    near = [distances.k_nearest(x, TOY[label == CLASS], k=1, norm=norm) for x in ends]
    first, last = (np.asarray(x.distances)[:, 0] for x in near)
    slopes = np.abs(first - last) / r / moved
    assert slopes.max() <= (1 + 1e-4) / r
    assert slopes.max() > 0.95 / r
  delta = random.normal(size=(200, 8, 2))
  points = TOY + 0.999 * r * delta / lengths(delta, norm)[..., None]
  points = np.float32(points.reshape(-1, 2))
  found = prototypes.nearest_neighbours(points, TOY, CLASS, num_classes=2, norm=norm)
  np.testing.assert_array_equal(found, np.tile(CLASS, 200))


@pytest.mark.parametrize("norm", NORMS)
def test_cells_are_star_shaped(norm):
  """S10: along a ray the margin falls, of two sites in a convex curve."""
  random = np.random.default_rng(0)
  t = np.linspace(0, 1.5, 31)[:, None, None]
  delta, v = random.normal(size=(2, 200, 5)).astype(np.float32)
  points = (t * delta).astype(np.float32).reshape(-1, 5)
  own = np.zeros(len(points), int)

  def margins(others):
    sites = np.concatenate([np.zeros((1, 5), np.float32), others])
    margin = np.asarray(voronoi.cell_margin(points, own, sites, norm=norm))
    return margin.reshape(31, 200)

  among_all = margins(v)
  assert (np.diff(among_all, axis=0) <= 1e-5).all()
  # Until it is left: the site's own cell, and farther on that of another one.
  assert (among_all[0] > 0).all()
  assert (among_all[-1] < 0).any()
  for other in v[:4]:
    found = margins(other[None])
    assert (np.diff(found, axis=0) <= 1e-5).all()
    assert (np.diff(found, 2, axis=0) >= -1e-5).all()
    # A site farther than twice the move is never nearer.
    far = lengths(other, norm) > 2.0001 * t[..., 0] * lengths(delta, norm)
    assert (found[far] > 0).all()
    assert far.any()


def test_a_linear_classifier_of_two_gaussians():
  random = np.random.default_rng(0)
  w, mu, s, budget = random.normal(size=6), np.full(6, 0.5), 0.7, 0.2
  x = mu + s * random.normal(size=(200_000, 6))
  for dual in NORMS:  # of the norm of the budget
    size = float(distances.lp_norm(w.astype(np.float32), norm=dual))
    expected = ndtr((w @ mu - budget * size) / (s * np.linalg.norm(w)))
    np.testing.assert_allclose(np.mean(x @ w > budget * size), expected, atol=5e-3)
