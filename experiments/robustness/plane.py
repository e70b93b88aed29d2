"""Eight points in the plane: regions, and the accuracy of the nearest neighbour."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.frame import pictures
from experiments.frame.study import Claim, NotMeasured, Table
from experiments.robustness.settings import Norm
from spherejax import metrics, prototypes, voronoi

# DIST, article III, figures 1 and 2. The text names the coordinates of three sites; all
# eight sites reproduce the three exceptional points that it names.
SITES = np.array(
  [[-1, -1], [-2, 1], [2, -2], [1, 1], [2, -1], [0, 0], [2, 1], [1, -1]], np.float32
)
LABELS = np.array([0, 0, 0, 0, 0, 1, 1, 1], np.int32)
ORDERS: dict[Norm, float] = {"l2": 2, "linf": np.inf, "l1": 1}
# Least distances that change the nearest neighbour's answer, by hand.
MINIMAL = {
  "l2": (0.5**0.5, 1.25**0.5, 0.5**0.5, 0.5, 0.5, 0.5**0.5, 0.5, 0.5),
  "linf": (0.5, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5),
  "l1": (1.0, 1.5, 1.0, 0.5, 0.5, 1.0, 0.5, 0.5),
}
BUDGETS = (0.5, 1.0, 3.5)
# Accuracies in l2 of the nearest neighbour and of the best classifier, at budgets
# between the distances at which they change.
SHARES = {0.4: (1.0, 1.0), 0.6: (0.5, 0.75), 0.8: (0.125, 0.625), 1.2: (0.0, 0.625)}
# Points where the two kinds of regions differ at 0.5: midpoints of sites at distance 1.
MIDDLES = ((1.5, -1.0), (1.5, 1.0), (2.0, -1.5))
SIDE = 6.0
_QUARTERS = np.arange(-3, 3.25, 0.25, dtype=np.float32)
SAA, BEST = "SAA of 1-NN", "best SAA of all"
TIES = "SAA of 1-NN, ties to the first class"
DIFFERING = "points where regions differ, but for three"
COLORS = ("tab:blue", "tab:orange", "dimgray", "white")  # A, B, both, none


def nearest_neighbour_survives(key: jax.Array, norm: Norm) -> np.ndarray:
  """VAA of 1-NN at each budget."""

  def scores(x):
    return prototypes.neighbour_logits(x, SITES, LABELS, num_classes=2, norm=norm)

  @jax.jit
  def broken(epsilon):
    result = voronoi.voronoi_pgd(
      scores, SITES, LABELS, jnp.arange(len(SITES)), SITES, key=key, epsilon=epsilon,
      norm=norm, neighbours=len(SITES) - 1, restarts=4, low=-SIDE, high=SIDE,
    )  # fmt: skip
    return _nearest(result.x_adv, norm) != LABELS

  curve = [broken(jnp.float32(budget)) for budget in BUDGETS]
  return np.asarray(jax.jit(metrics.accuracy_curve)(jnp.array(curve)))


def _nearest(points, norm: Norm) -> jax.Array:
  return prototypes.nearest_neighbours(points, SITES, LABELS, num_classes=2, norm=norm)


def _grid(axis: np.ndarray = _QUARTERS) -> np.ndarray:
  """Points of the plane around the sites."""
  return np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)


def _pairwise_distances(
  points: np.ndarray, sites: np.ndarray, norm: Norm
) -> np.ndarray:
  """Distances [points, sites]; equal distances of grid points are exactly equal."""
  return np.linalg.norm(points[:, None] - sites[None], ORDERS[norm], axis=-1)


def tied_accuracy(norm: Norm) -> float:
  """SAA of 1-NN at 0.5, where balls meet; ties go to the first class."""
  grid = _grid()
  wrong = np.asarray(_nearest(grid, norm))[:, None] != LABELS[None]
  near = _pairwise_distances(grid, SITES, norm) <= 0.5
  return float(1 - np.mean((wrong & near).any(0)))


def add(table: Table, key: jax.Array, norms: Sequence[Norm]) -> None:
  """Adds accuracies of the nearest neighbour, and the best possible ones."""
  budgets = np.array(list(SHARES), np.float32)
  for norm in norms:
    curve = nearest_neighbour_survives(key, norm)
    by_budget = zip((f"VAA at {x:g}" for x in BUDGETS), curve, strict=True)
    table.add_all(f"toy, 1-NN, {norm}", dict(by_budget))
    minimal = np.array(MINIMAL[norm], np.float32)
    if norm == "l2":
      minimal = prototypes.nearest_neighbour_distance(SITES, LABELS, SITES, LABELS)
    standard = np.mean(np.asarray(minimal) > budgets[:, None], axis=1)
    best = metrics.best_accuracy(SITES, LABELS, budgets, norm=norm)
    for budget, standard_accuracy, most in zip(budgets, standard, best, strict=True):
      table.add(f"toy, {norm}, budget {budget:g}", SAA, standard_accuracy)
      table.add(f"toy, {norm}, budget {budget:g}", BEST, most)
    table.add(f"toy, {norm}, budget 0.5", TIES, tied_accuracy(norm))
  if "l2" in norms:
    grid = _grid()
    in_balls, in_cells = (regions(grid, 0.5, cells=x) for x in (False, True))
    differing = map(tuple, grid[in_balls != in_cells].tolist())
    wrong = len({*differing} ^ {*MIDDLES})
    table.add("toy, l2, budget 0.5", DIFFERING, wrong, listed=False)


def _rows(table: Table, measure: str, name: str) -> list[np.ndarray]:
  """Measured rows, for the norms that the run has."""
  rows = [name.format(norm) for norm in MINIMAL]
  variants = {*table.variants(measure)}
  if not (series := [table.values(measure, x) for x in rows if x in variants]):
    raise NotMeasured(f"{measure} of {name} was not measured")
  return series


def _above(table: Table) -> np.ndarray:
  """Smallest difference of the best SAA and that of the nearest neighbour."""
  names = [f"toy, {{}}, budget {x:g}" for x in SHARES]
  gaps = [np.subtract(_rows(table, BEST, x), _rows(table, SAA, x)) for x in names]
  return np.min(gaps, axis=(0, 1))


def _shares(measure: str, place: int) -> Callable[[Table], np.ndarray]:
  """1e-6 less the largest error of accuracies in l2, which are known by hand."""
  return lambda t: min(
    1e-6 - abs(t.values(measure, f"toy, l2, budget {budget:g}") - shares[place])
    for budget, shares in SHARES.items()
  )


CLAIMS = Claim.of_rows([
  ("X2-vaa", "VAA of 1-NN is 1, every norm and budget",
   lambda t: (
     np.min([_rows(t, f"VAA at {x:g}", "toy, 1-NN, {}") for x in BUDGETS]) - 1 + 1e-6
   )),
  ("X2-best", "no SAA of 1-NN above the best of all", lambda t: _above(t) + 1e-6),
  ("X2-saa", "SAA of 1-NN, l2: 1 below 0.5, 1/2 below 0.7071, 1/8 below 1.1180, then 0",
   _shares(SAA, 0)),
  ("X2-ties", "SAA of 1-NN, l2, at 0.5 with ties to one class: 3/4",
   lambda t: 1e-6 - abs(t.values(TIES, "toy, l2, budget 0.5") - 3 / 4)),
  ("X2-best-saa", "the best SAA of all, l2: 1 below 0.5, 3/4 below 0.7071, then 5/8",
   _shares(BEST, 1)),
  ("X2-regions",
   "at 0.5, l2, the regions of VAA and SAA differ, on a grid of quarters, at (1.5, 1), "
   "(1.5, -1) and (2, -1.5) alone",
   lambda t: 0.5 - t.values(DIFFERING, "toy, l2, budget 0.5")),
], every_seed=True)  # fmt: skip


def regions(points: np.ndarray, budget: float, *, cells: bool) -> np.ndarray:
  """Class whose region contains each point; 2 for both, -1 for none."""
  distances = _pairwise_distances(points, SITES, "l2")
  inside = distances <= budget
  if cells:  # without borders, which are equally near to two sites
    nearest = distances <= distances.min(axis=1, keepdims=True)
    inside &= nearest & (nearest.sum(axis=1, keepdims=True) == 1)
  first, second = (inside[:, label == LABELS].any(axis=1) for label in (0, 1))
  return np.where(first & second, 2, np.where(first, 0, np.where(second, 1, -1)))


def draw() -> pictures.Figure:
  """Regions of SAA and VAA at growing budgets."""
  from matplotlib.colors import ListedColormap

  panels = {f"{x}, budget {y:g}": (x, y) for x in ("SAA", "VAA") for y in BUDGETS}
  figure, cells = pictures.panels(panels, 3, 2.55, framed=True)
  grid = _grid(np.linspace(-4, 4, 240, dtype=np.float32))  # misses borders of cells
  for axes, (measure, budget) in zip(cells, panels.values(), strict=True):
    labels = regions(grid, budget, cells=measure == "VAA").reshape(240, 240)
    values = np.where(labels < 0, 3, labels)
    axes.imshow(
      values, origin="lower", extent=(-4, 4, -4, 4), cmap=ListedColormap(COLORS),
      vmin=0, vmax=3, alpha=0.45,
    )  # fmt: skip
    for label in (0, 1):
      sites = SITES[label == LABELS]
      axes.scatter(*sites.T, s=18, color=COLORS[label], label=f"class {'AB'[label]}")
    axes.set(xticks=[], yticks=[])
  cells[0].legend(fontsize=8.5, loc="upper left")
  return figure
