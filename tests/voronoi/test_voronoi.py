"""The Voronoi adversary: its points, its projection and its limits, in three norms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from spherejax import attacks, distances, metrics, prototypes, voronoi
from tests import programs
from tests.balls import lengths

NORMS = ["l1", "l2", "linf"]
SLOW = functools.partial(pytest.param, marks=pytest.mark.slow)
RANDOM = np.random.default_rng(0)
NUMBER, DIM, CLASSES = 48, 6, 3
SITES = RANDOM.random((NUMBER, DIM)).astype(np.float32)
SITES[1] = SITES[0] + np.float32(2e-3) * np.eye(DIM, dtype=np.float32)[0]  # near
SITES[2, :3] = 0, 1, 1  # on the box
LABELS = RANDOM.integers(0, CLASSES, NUMBER)
LABELS[:2] = 0, 1
WEIGHTS = [RANDOM.normal(size=s).astype(np.float32) for s in ((DIM, 16), (16, CLASSES))]
OWN = np.arange(NUMBER)
FREE = np.full(NUMBER, np.inf, np.float32)
KEY = jax.random.key(0)
MOSTLY_L2 = pytest.mark.parametrize("norm", ["l2", SLOW("l1"), SLOW("linf")])


def net(x):
  return jnp.tanh(3 * (x - 0.5) @ WEIGHTS[0]) @ WEIGHTS[1]


@functools.partial(jax.jit, static_argnames="norm")
def compiled(rows, epsilon, by_sites, sites, site_labels, norm):
  """On a network or on the nearest neighbour's scores, all sites at once."""

  def logits_fn(x):
    near = prototypes.neighbour_logits(
      x, SITES, LABELS, num_classes=CLASSES, sharpness=50.0, norm=norm
    )
    return jnp.where(by_sites, near, net(x))

  options = {"epsilon": epsilon, "norm": norm, "site_labels": site_labels}
  options |= {"index": rows, "key": KEY, "steps": 10, "restarts": 1, "sweeps": 5}
  options |= {"neighbours": 4, "block_size": 16}
  labels = jnp.asarray(LABELS)[rows]
  return voronoi.voronoi_pgd(logits_fn, sites[rows], labels, rows, sites, **options)


def attack(rows, epsilon, by_sites, norm, sites=SITES, site_labels=OWN):
  """One program of a norm; of labels that all differ every site bounds a cell."""
  found = compiled(rows, epsilon, by_sites, sites, site_labels, norm)
  return jax.tree.map(np.asarray, found)


@functools.partial(jax.jit, static_argnames=("norm", "neighbours", "sweeps"))
def bring_back(points, rows, sites, norm, **options):
  """Points projected onto the cells without a budget, and what these say."""
  x, box = sites[rows], {"low": -9.0, "high": 9.0}
  cells = voronoi.voronoi_cells(x, rows, sites, norm=norm, **box, **options)
  return cells.project(points, x), cells.complete, cells.ball.epsilon


def margins(points, norm, own=OWN):
  d = lengths(np.asarray(points, np.float64)[:, None] - SITES[None], norm)
  mine = d[np.arange(len(points)), own]
  d[np.arange(len(points)), own] = np.inf
  return d.min(1) - mine


@MOSTLY_L2
def test_every_point_is_in_its_region(norm):
  between = lengths(SITES[:, None] - SITES[None], norm) + np.diag([np.inf] * NUMBER)
  found = {}
  for budget in (0.0, 0.1, 0.3, 1e3, np.inf):
    for by_sites in (False, True):
      epsilon = np.full(NUMBER, budget, np.float32)
      result = attack(OWN, epsilon, by_sites, norm)
      margin, complete = result.cell_margin, result.complete
      x = result.x_adv.astype(np.float64)
      assert (lengths(x - SITES, norm) <= np.float64(np.float32(budget))).all()
      assert ((x >= 0) & (x <= 1)).all()
      exact = margins(x, norm)
      assert (exact > 0).all()
      np.testing.assert_allclose(margin, exact, rtol=1e-3, atol=1e-6)
      bound = (between <= 2 * budget).sum(1)
      assert (complete == (bound < 4)).mean() > 0.9
      assert complete[bound < 4].all()
      if not by_sites:
        found[budget] = result
  natural = np.asarray(net(SITES)).argmax(1) != LABELS
  np.testing.assert_array_equal(found[0.0].success, natural)
  np.testing.assert_array_equal(found[0.0].x_adv, SITES)
  curve = metrics.accuracy_curve(np.stack([r.success for r in found.values()]))
  assert curve[0] == 1 - natural.mean()
  assert curve[-1] < curve[0]
  # Beyond half the distance to the nearest site, most regions still grow.
  assert (found[np.inf].norm > between.min(1) / 2)[~natural].mean() > 0.5


@pytest.mark.parametrize(
  ("norm", "dtype"), [*((n, jnp.float32) for n in NORMS), ("l1", jnp.bfloat16)]
)
def test_a_budget_of_python_is_kept_without_tolerance(norm, dtype):
  """0.1, 0.3 and 0.6 are more in float32 than in float64."""
  sites, rows = jnp.asarray(SITES[2:12], dtype), np.tile(np.arange(10), 4)
  budgets = np.repeat([0.1, 0.3, 0.6, 8 / 255], 10)

  @jax.jit
  def run(far, sites):
    x = sites[rows]
    cells = voronoi.voronoi_cells(x, rows, sites, epsilon=budgets, norm=norm)
    return voronoi.confine(far, cells, rows, sites).points

  # Downwards, where differences of near numbers are exact and hide nothing.
  clean = np.asarray(sites, np.float64)[rows]
  moved = np.asarray(run((clean - 9).astype(np.float32), sites), np.float64) - clean
  assert (lengths(moved, norm) <= budgets).all()
  assert (lengths(moved, norm) > 0.9 * budgets).any()


@pytest.mark.parametrize("norm", NORMS)
def test_an_empty_batch_has_an_empty_result(norm):
  x, rows, options = SITES[:0], OWN[:0], {"key": KEY, "norm": norm, "steps": 2}

  def run(x):
    result = voronoi.voronoi_pgd(net, x, LABELS[:0], rows, SITES, **options)
    return result, voronoi.cell_margin(x, rows, SITES, norm=norm)

  result, margin = jax.eval_shape(run, x)
  assert result.x_adv.shape == (0, DIM)
  for each in (result.success, result.cell_margin, result.complete, margin):
    assert each.shape == (0,)
  # What is known is checked, and nothing of it is wrong.
  nearest = distances.Neighbours(np.zeros((0, 1), int), np.zeros((0, 1), np.float32))
  cells = voronoi.voronoi_cells(x, rows, SITES, norm=norm, nearest=nearest)
  assert cells.towards.shape == (0, 1, DIM)


@pytest.mark.parametrize("norm", [SLOW("l1"), "l2", "linf"])
def test_it_is_the_plain_attack_in_small_balls(norm):
  near = np.sort(lengths(SITES[:, None] - SITES[None], norm), axis=1)[:, 1]
  epsilon = (0.49 * near).astype(np.float32)
  result = attack(OWN, epsilon, False, norm)
  # Sites of one label bound nothing.
  others = [attack(OWN, epsilon, False, norm, site_labels=0 * OWN)]
  if norm == "linf":
    ball = {"key": KEY, "epsilon": epsilon, "steps": 10}
    others.append(attacks.pgd(net, SITES, LABELS, **ball))
  for other in others:
    np.testing.assert_allclose(result.x_adv, other.x_adv, atol=1e-6)
    np.testing.assert_array_equal(result.success, other.success)


def test_a_sample_does_not_depend_on_the_others():
  for norm in NORMS:
    result = attack(OWN, FREE, False, norm)
    few = np.where(OWN % 2, 7, 5)  # one sample alone, and so of any batch
    for rows in (few, RANDOM.permutation(NUMBER)):
      again = attack(rows, FREE, False, norm)
      np.testing.assert_array_equal(again.x_adv, result.x_adv[rows])
      np.testing.assert_array_equal(again.success, result.success[rows])
    np.testing.assert_array_equal(again.cell_margin, result.cell_margin[rows])


def exact_projection(point, site, others, radius):
  """By sequential quadratic programming, in float64."""
  v = np.delete(SITES, site, 0)[others].astype(np.float64) - SITES[site]
  given = point - SITES[site]
  lowest, highest = -SITES[site].astype(np.float64), 1 - SITES[site].astype(np.float64)
  return minimize(
    lambda d: ((d - given) ** 2).sum(),
    np.zeros(DIM),
    jac=lambda d: 2 * (d - given),
    bounds=list(zip(lowest, highest, strict=True)),
    constraints=[
      {"type": "ineq", "fun": lambda d: (v**2).sum(1) / 2 - v @ d, "jac": lambda d: -v},
      {"type": "ineq", "fun": lambda d: radius**2 - d @ d, "jac": lambda d: -2 * d},
    ],
    options={"ftol": 1e-12, "maxiter": 200},
  ).x


def test_projection_in_l2_is_the_nearest_point():
  rows = np.arange(2, 18)
  x = jnp.asarray(SITES[rows])
  cells = functools.partial(voronoi.voronoi_cells, x, rows, SITES)
  points = (SITES[rows] + RANDOM.normal(size=x.shape) * 0.6).astype(np.float32)

  @jax.jit
  def project(points, radius):
    onto = cells(epsilon=radius, neighbours=47, sweeps=300).project(points, x)
    few = cells(epsilon=radius, neighbours=8)
    bound = voronoi.confine(onto, few, rows, SITES, exact=False).margin
    return onto, bound, few.complete

  for radius in (0.25, 0.45, np.inf):
    found, bound, complete = project(points, np.full(16, radius, np.float32))
    found = np.asarray(found, np.float64)
    # Without looking at all sites: a lower bound of the margin, which is above 0.
    exact = margins(found, "l2", rows)
    assert complete.all() == (radius == 0.25)
    assert (np.asarray(bound) > 0).all()
    assert (np.asarray(bound) <= exact + 1e-6).all()
    assert (margins(found, "l2", rows) > 0).all()
    for row, point, z in zip(rows, points.astype(np.float64), found, strict=True):
      best = SITES[row] + exact_projection(point, row, slice(None), min(radius, 9))
      # No farther than the exact one, up to the distance kept from the boundary.
      excess = np.linalg.norm(z - point) - np.linalg.norm(best - point)
      assert excess < 2e-3
      assert np.linalg.norm(z - best) < 2e-2


@pytest.mark.parametrize("norm", NORMS)
def test_the_way_back_is_as_short_as_possible(norm):
  moves = np.random.default_rng(1).normal(size=SITES.shape)
  points = (SITES + moves).astype(np.float32)
  every = {"neighbours": NUMBER, "sweeps": 0}
  back, complete, budgets = bring_back(points, OWN, SITES, norm, **every)
  assert np.asarray(complete).all()
  assert np.isinf(budgets).all()
  delta = np.asarray(back, np.float64) - SITES
  # The first two are 0.002 apart, and what is kept from the boundary is rounded away.
  assert (margins(SITES + delta, norm)[2:] > 0).all()
  assert (margins(SITES + delta, norm) > -1e-7).all()
  cut = lengths(delta, "l2") / lengths(points - SITES, "l2") < 1 - 1e-6
  assert cut.sum() > 20
  # In l1 and l-infinity a ray may run along the boundary.
  assert (margins(SITES + 1.001 * delta, norm)[cut] < 1e-9).all()
  np.testing.assert_allclose((SITES + delta)[~cut], points[~cut], atol=1e-6)


def test_no_site_is_in_another_cell():
  others, block = (OWN + 5) % NUMBER, {"block_size": NUMBER}
  for norm in NORMS:
    margin = voronoi.cell_margin(SITES, others, SITES, norm=norm, **block)
    np.testing.assert_allclose(margin, margins(SITES, norm, others), atol=1e-6)
    assert (np.asarray(margin) < 0).all()
  # Bounded by other classes alone, cells are larger.
  point = np.tile(SITES[:1] * 0.5 + SITES[1:2] * 0.5, (NUMBER, 1))
  alone = voronoi.cell_margin(point, 0 * OWN, SITES, site_labels=0 * OWN, **block)
  assert np.isinf(alone).all()


@MOSTLY_L2
def test_a_move_below_the_root_of_the_smallest_number_stays(norm):
  x = np.zeros((2, DIM), np.float32)
  sites, own = np.concatenate([x[:1], SITES[3:]]), np.zeros(2, int)
  points = x.copy()
  points[0, 0], points[1] = 1e-22, 10.0  # one of the two leaves its cell
  found, complete, _ = bring_back(points, own, sites, norm)
  assert found[0, 0] == pytest.approx(1e-22, rel=1e-5)
  assert np.isfinite(found).all()
  # Without a budget all of the 45 others can bind, of which 32 were kept.
  assert not np.asarray(complete).any()


@pytest.mark.parametrize(
  ("norm", "ball_norm"), [("l1", "linf"), SLOW("l2", "l1"), SLOW("linf", "l2")]
)
def test_cells_of_one_norm_are_cut_by_balls_of_another(norm, ball_norm):
  random = np.random.default_rng(3)
  points = (SITES + random.normal(size=SITES.shape)).astype(np.float32)
  # Outwards along the diagonals, where sites beyond twice the budget bind.
  points[::2] = SITES[::2] + np.sign(points[::2] - SITES[::2])
  options = {"norm": norm, "ball_norm": ball_norm, "neighbours": NUMBER}
  options |= {"low": -9.0, "high": 9.0}

  @jax.jit
  def run(points, budget):
    x = jnp.asarray(SITES)
    cells = voronoi.voronoi_cells(x, OWN, SITES, epsilon=budget, **options)
    onto = cells.project(points, x)
    confined = voronoi.confine(onto, cells, OWN, SITES, block_size=NUMBER)
    return cells.ball.project(points, x), onto, *confined, cells.complete

  for share in (0.05, 0.3):
    budget = np.full(NUMBER, share * lengths(np.ones(DIM), ball_norm), np.float32)
    plain, onto, found, margin, complete = map(np.asarray, run(points, budget))
    moved = found.astype(np.float64) - SITES
    assert (lengths(moved, ball_norm) <= budget).all()
    exact = margins(found, norm)
    assert (exact > 0).all()
    np.testing.assert_allclose(margin, exact, rtol=1e-3, atol=1e-6)
    # What the cells bring back is inside of them, but for rounding.
    assert (margins(onto, norm) > -1e-6).all()
    assert complete.all()
    # The nearest point of the ball, where that is in the cell.
    inside = margins(plain, norm) > 1e-3
    assert 0 < inside.sum() < NUMBER
    np.testing.assert_allclose(found[inside], plain[inside], atol=1e-5)


def test_sixty_thousand_sites_fit():
  shape = jax.ShapeDtypeStruct
  points, sites = (shape((number, 784), np.float32) for number in (256, 60_000))
  own = shape((256,), np.int32)
  assert programs.temporary_bytes(voronoi.cell_margin, points, own, sites) < 2**29


@pytest.mark.parametrize("norm", NORMS)
def test_a_site_of_two_classes_has_no_cell(norm):
  sites, labels = SITES.copy(), np.arange(NUMBER)
  sites[7], labels[[5, 7]] = sites[5], (0, 1)
  rows = np.array([4, 5, 6])

  def cells(labels):
    options = {"norm": norm, "site_labels": labels}
    return voronoi.voronoi_cells(sites[rows], rows, sites, **options)

  with pytest.raises(ValueError, match=r"got 0 and 1 for \[.*\] in rows 5 and 7"):
    cells(labels)
  # Of traced sites nothing is known: the point stays, and its margin says so.
  result = attack(OWN, FREE, False, norm, sites, labels)
  twice = np.isin(OWN, (5, 7))
  np.testing.assert_array_equal(result.cell_margin[twice], 0)
  np.testing.assert_array_equal(result.x_adv[twice], sites[twice])
  assert (result.cell_margin[~twice] > 0).all()
  # Of one class they are one site, of unknown classes they are refused.
  labels[7] = 0
  result = attack(OWN, FREE, False, norm, sites, labels)
  assert (result.cell_margin > 0).all()
  cells(labels)
  with pytest.raises(ValueError, match=r"different points, got .* in rows 5 and 7"):
    voronoi.voronoi_cells(sites[:1], OWN[:1], sites, norm=norm)


def test_a_row_that_is_not_its_site_is_named():
  sites = SITES[:6].reshape(6, 2, -1)  # images: one number of row 4 differs
  x = sites.copy()
  x[4, 1, 0] += 0.5
  with pytest.raises(ValueError, match="site of own_index, row 4 is not 4"):
    voronoi.voronoi_cells(x, np.arange(6), sites)
  with pytest.raises(ValueError, match="row 1 is not 3"):
    voronoi.voronoi_cells(sites[:2], np.array([0, 3]), sites)


def test_merging():
  x = np.array([[0, 1], [2, 3], [-0.0, 1], [2, 3], [4, 5]], np.float32)
  y = np.array([1, 2, 1, 2, 3])
  sites = voronoi.merge_sites(x, y)
  np.testing.assert_array_equal(sites.points, x[[0, 1, 4]])
  np.testing.assert_array_equal(sites.labels, [1, 2, 3])
  np.testing.assert_array_equal(sites.rows, [0, 1, 0, 1, 2])
  y[3] = 0
  with pytest.raises(ValueError, match="got 2 and 0 in rows 1 and 3"):
    voronoi.merge_sites(x, y)
  sites = voronoi.merge_sites(x, y, conflicts="drop")
  np.testing.assert_array_equal(sites.points, x[[0, 4]])
  np.testing.assert_array_equal(sites.rows, [0, -1, 0, -1, 1])
  nobody = voronoi.merge_sites(x[:0], y[:0])
  assert [len(part) for part in nobody] == [0, 0, 0]
  assert nobody.points.shape == (0, 2)
  x[4, 1] = np.nan
  with pytest.raises(ValueError, match="nan"):
    voronoi.merge_sites(x, y)


def test_no_end_of_budget_and_box_is_for_cells_that_have_an_end():
  corners = np.array([[0, 0], [2, -1], [-2, -1], [0, 3], [0, 1]], np.float32)

  def cell(row: int, sites: np.ndarray = corners, **options):
    options |= {"low": -np.inf, "high": np.inf}
    return voronoi.voronoi_cells(sites[[row]], np.array([row]), sites, **options)

  # Half the way to (0, 1) is the highest point.
  start = jnp.asarray(corners[:1])
  far = cell(0).project(start + jnp.array([[0, 50]]), start)
  np.testing.assert_allclose(far, [[0, 0.5]], atol=1e-5)
  assert cell(1, epsilon=3.0).ball.epsilon == 3
  for row, options in (
    *((row, {}) for row in (1, 2, 3)),
    # A middle of three on a line has an end along it alone.
    (0, {"sites": np.array([[0, 0], [1, 0], [-1, 0]], np.float32)}),
    # Sites of the same class do not bound it.
    (0, {"site_labels": np.array([0, 1, 1, 0, 0])}),
  ):
    with pytest.raises(ValueError, match="an infinite one in row 0"):
      cell(row, **options)


@pytest.mark.parametrize("norm", NORMS)
def test_float32_stays_where_64_bits_are_enabled(norm, x64):
  options = {"key": KEY, "norm": norm, "steps": 2}
  found = voronoi.voronoi_pgd(net, SITES[:4], LABELS[:4], OWN[:4], SITES, **options)
  types = {each.dtype.name for each in found if each is not None}
  assert types <= {"float32", "int32", "bool"}


def test_neighbours_of_others_are_refused(unchecked):
  near = distances.k_nearest(SITES, SITES, k=4, exclude=OWN)

  def cells(nearest):
    return voronoi.voronoi_cells(SITES, OWN, SITES, nearest=nearest)

  cells(near)
  for wrong, message in (
    (distances.k_nearest(SITES, SITES, k=4), "must exclude the site of each point"),
    (near._replace(indices=near.indices + 100), r"must be in \[0, 48\), got 1"),
    (near._replace(indices=near.indices.astype(jnp.float32)), "must be integer"),
    (near._replace(distances=near.distances * np.nan), "must be numbers, got nan"),
    (jax.tree.map(lambda x: x[:5], near), r"must have shape \(48, 4\)"),
  ):
    with pytest.raises((TypeError, ValueError), match=f"nearest.*{message}"):
      cells(wrong)


def test_cells_are_those_of_the_samples(unchecked):
  cells = voronoi.voronoi_cells(SITES, OWN, SITES)
  with pytest.raises(ValueError, match=r"region\.epsilon must have shape \(3,\)"):
    attacks.pgd(net, SITES[:3], LABELS[:3], key=KEY, region=cells)
  with pytest.raises(ValueError, match=r"cells\.epsilon must have shape \(3,\)"):
    voronoi.confine(SITES[:3], cells, OWN[:3], SITES)
