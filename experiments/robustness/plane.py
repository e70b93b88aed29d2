"""Eight points in the plane: regions, and what the nearest neighbour attains there."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from experiments.frame import pictures
from experiments.robustness import draws
from experiments.robustness.draws import Figures, Part, Statements
from spherejax import attacks, metrics, prototypes, voronoi
from spherejax.distances._lp import Norm

if TYPE_CHECKING:
  import matplotlib.figure

# DIST, article III, figures 1 and 2. The text names three of the coordinates; all
# eight give the three exceptional points that it names.
SITES = np.array(
  [[-1, -1], [-2, 1], [2, -2], [1, 1], [2, -1], [0, 0], [2, 1], [1, -1]], np.float32
)
LABELS = np.array([0, 0, 0, 0, 0, 1, 1, 1], np.int32)
PAPER = "DIST, article III"
# Least distances that change the nearest neighbour's answer, by hand.
MINIMAL = {
  "l2": (0.5**0.5, 1.25**0.5, 0.5**0.5, 0.5, 0.5, 0.5**0.5, 0.5, 0.5),
  "linf": (0.5, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5),
  "l1": (1.0, 1.5, 1.0, 0.5, 0.5, 1.0, 0.5, 0.5),
}
# Shares of a grid's points with two nearest sites, and half a unit of the last digit.
TIED = {"l2": (0.0045, 5e-5), "l1": (0.051, 5e-4), "linf": (0.30, 5e-3)}
BUDGETS = (0.5, 1.0, 3.5)
# Between the distances at which they change, l2: of the nearest neighbour, of the best.
SHARES = {0.4: (1.0, 1.0), 0.6: (0.5, 0.75), 0.8: (0.125, 0.625), 1.2: (0.0, 0.625)}
# Where both regions differ at 0.5: in the middle of two sites at a distance of 1.
MIDDLES = ((1.5, -1.0), (1.5, 1.0), (2.0, -1.5))
SIDE = 6.0
COLORS = ("tab:blue", "tab:orange", "dimgray", "white")  # A, B, both, none


@functools.cache
def _attacked(norm: Norm):
  """Attacked sites, of a budget: of the nearest neighbour, or of a constant answer."""

  @jax.jit
  def attacked(epsilon, key, constant):
    def scores(x):
      near = prototypes.neighbour_logits(x, SITES, LABELS, num_classes=2, norm=norm)
      return jnp.where(constant, jnp.array([[1.0, 0.0]]), near)

    return _moved(scores, key, epsilon, norm).x_adv

  return attacked


def _moved(scores, key, epsilon, norm: Norm = "l2") -> attacks.AttackResult:
  """All sites, attacked within their cells."""
  return voronoi.voronoi_pgd(
    scores,
    SITES,
    LABELS,
    jnp.arange(len(SITES)),
    SITES,
    key=key,
    epsilon=epsilon,
    norm=norm,
    neighbours=len(SITES) - 1,
    restarts=4,
    low=-SIDE,
    high=SIDE,
  )


def nearest_neighbour_survives(key: jax.Array, norm: Norm) -> np.ndarray:
  """VAA of the nearest neighbour at each budget."""
  broken = []
  for budget in BUDGETS:
    x = _attacked(norm)(jnp.float32(budget), key, False)
    found = prototypes.nearest_neighbours(x, SITES, LABELS, num_classes=2, norm=norm)
    broken.append(np.asarray(found) != LABELS)
  return np.asarray(jax.jit(metrics.accuracy_curve)(np.array(broken)))


def constant_survives(key: jax.Array) -> float:
  """VAA without a budget of the classifier that always names the first class."""
  x = _attacked("l2")(jnp.float32(np.inf), key, True)
  return float(np.mean(np.zeros(len(x)) == LABELS))


def linear_gap(key: jax.Array) -> float:
  """Largest |VAA - SAA| of five random linear classifiers below half of d_min."""
  budgets = jnp.array([0.1, 0.3, 0.49], jnp.float32)
  weights = jax.random.normal(key, (5, 3, 2))

  @jax.jit
  def accuracies(weight, epsilon):
    def scores(x):
      return x @ weight[:2] + weight[None, 2]

    return 1 - jnp.mean(_moved(scores, key, epsilon).success)

  gaps = []
  for weight in weights:
    across = np.asarray(weight[:, 1] - weight[:, 0], np.float64)
    lead = (SITES @ across[:2] + across[2]) * np.where(LABELS == 1, 1, -1)
    moves = np.maximum(lead, 0) / np.linalg.norm(across[:2])
    for epsilon in budgets:
      standard = np.mean(moves > float(epsilon))
      gaps.append(abs(float(accuracies(weight, epsilon)) - standard))
  return max(gaps)


def _grid() -> np.ndarray:
  """Points of the plane about the sites, a quarter apart."""
  axis = np.arange(-3, 3.25, 0.25, dtype=np.float32)
  return np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)


def _apart(points: np.ndarray, sites: np.ndarray, norm: Norm) -> np.ndarray:
  """[points, sites]: distances; of multiples of one number equal where they are."""
  away = np.abs(points[:, None] - sites[None])
  if norm == "l2":
    return np.sqrt((away**2).sum(-1))
  return away.sum(-1) if norm == "l1" else away.max(-1)


def tied(norm: Norm) -> float:
  """Share of 601 x 601 points of [-6, 6]^2 that are as near to two sites."""
  axis = np.arange(-300, 301)
  grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
  away = _apart(grid, np.round(SITES * 50).astype(int), norm)
  return float(np.mean((away == away.min(1, keepdims=True)).sum(1) > 1))


def tied_accuracy(norm: Norm) -> float:
  """SAA of 1-NN at 0.5, where balls meet: what is tied goes to the first class."""
  grid = _grid()
  found = prototypes.nearest_neighbours(grid, SITES, LABELS, num_classes=2, norm=norm)
  wrong = np.asarray(found)[:, None] != LABELS[None]
  return float(1 - np.mean((wrong & (_apart(grid, SITES, norm) <= 0.5)).any(0)))


def least_distances(norm: Norm) -> np.ndarray:
  """[2, sites], lower and upper bounds of what changes the nearest neighbour's answer.

  Half of what parts a site from the other class, and the nearest of the points of a
  grid that are as near to the other class; the middles of pairs lie on it.
  """
  apart = metrics.separation(SITES, LABELS, norm=norm).nearest_other_class
  away = _apart(_grid(), SITES, norm)
  nearest = np.stack([away[:, label == LABELS].min(1) for label in (0, 1)], 1)
  lost = nearest[:, 1 - LABELS] <= nearest[:, LABELS]
  return np.array([np.asarray(apart) / 2, np.where(lost, away, np.inf).min(0)])


def _in_l2(
  key: jax.Array, exact: np.ndarray, best: np.ndarray, tied_at_half: float
) -> Statements:
  """What is worked out by hand in l2 alone.

  Of the distances that change the nearest neighbour's answer, the best SAA at the
  budgets of `SHARES`, and the nearest neighbour's at 0.5 with ties to one class.
  """
  own, most = np.transpose(list(SHARES.values()))
  budgets = np.array(list(SHARES), np.float32)
  found = np.mean(exact[None] > budgets[:, None], axis=1)
  return {
    "X2-saa": (
      "SAA of 1-NN, l2: 1 below 0.5, 1/2 below 0.7071, 1/8 below 1.1180, then 0",
      1e-6 - float(np.abs(found - own).max()),
    ),
    "X2-ties": (
      "SAA of 1-NN, l2, at 0.5 with ties to one class: 3/4",
      1e-6 - abs(tied_at_half - 3 / 4),
    ),
    "X2-best-saa": (
      "the best SAA of all, l2: 1 below 0.5, 3/4 below 0.7071, then 5/8",
      1e-6 - float(np.abs(best - most).max()),
    ),
    "X2-linear": (
      "VAA = SAA of five random linear classifiers at 0.1, 0.3 and 0.49, l2",
      1e-6 - linear_gap(key),
    ),
    "X2-regions": (
      "at 0.5, l2, the regions of VAA and SAA differ, on a grid of quarters, at "
      "(1.5, 1), (1.5, -1) and (2, -1.5) alone",
      0.5 - float(len(differing(0.5) ^ set(MIDDLES))),
    ),
    "X2-constant": (
      "VAA without a budget of a constant classifier, l2: its share of sites, 5/8",
      1e-6 - abs(constant_survives(key) - 5 / 8),
    ),
  }


def rows_and_claims(key: jax.Array, norms: Sequence[Norm]) -> Part:
  """Accuracies of the nearest neighbour, and the best that there is."""
  if not norms:
    return [], []
  figures: Figures = {}
  made: Statements = {}
  survived, gaps, least, shares = [], [], [], []
  budgets = np.array(list(SHARES), np.float32)
  for norm in norms:
    curve = nearest_neighbour_survives(key, norm)
    survived.append(curve.min())
    for budget, value in zip(BUDGETS, curve, strict=True):
      figures[f"toy, 1-NN, {norm}", f"VAA at {budget:g}"] = float(value)
    minimal = np.array(MINIMAL[norm])
    standard = np.asarray(
      jax.jit(metrics.accuracy_curve_from_distances)(
        minimal.astype(np.float32), budgets
      )
    )
    best = metrics.best_accuracy(SITES, LABELS, budgets, norm=norm)
    gaps.append((best - standard).min())
    for budget, own, most in zip(budgets, standard, best, strict=True):
      name = f"toy, {norm}, budget {budget:g}"
      figures[name, "SAA of 1-NN"] = float(own)
      figures[name, "best SAA of all"] = float(most)
    at_half = f"toy, {norm}, budget 0.5", "SAA of 1-NN, ties to the first class"
    figures[at_half] = tied_accuracy(norm)
    share, unit = TIED[norm]
    figures["toy, 601 x 601 points", f"share tied, {norm}"] = found = tied(norm)
    shares.append(unit - abs(found - share))
    least.append(np.abs(least_distances(norm) - minimal).max())
    if norm == "l2":
      exact = prototypes.nearest_neighbour_distance(SITES, LABELS, SITES, LABELS)
      least.append(np.abs(exact - minimal).max())
      made = _in_l2(key, np.asarray(exact), best, figures[at_half])
  return draws.once(
    figures,
    {
      "X2-vaa": (
        "VAA of 1-NN is 1, every norm and budget",
        float(min(survived)) - 1 + 1e-6,
      ),
      "X2-least": ("least distances as by hand, to 1e-5", 1e-5 - float(max(least))),
      "X2-best": ("no SAA of 1-NN above the best of all", float(min(gaps)) + 1e-6),
      "X2-tied": (
        "shares of the plane as near to two sites: 0.0045 (l2), 0.051 (l1), 0.30 "
        "(l-infinity), of the norms there are",
        min(shares),
      ),
      **made,
    },
    PAPER,
  )


def regions(points: np.ndarray, budget: float, *, cells: bool) -> np.ndarray:
  """For each point the class whose region it is in; 2 for both, -1 for none."""
  apart = _apart(points, SITES, "l2")
  inside = apart <= budget
  if cells:  # without their borders, which are as near to another site
    nearest = apart <= apart.min(axis=1, keepdims=True)
    inside &= nearest & (nearest.sum(axis=1, keepdims=True) == 1)
  first, second = (inside[:, label == LABELS].any(axis=1) for label in (0, 1))
  return np.where(first & second, 2, np.where(first, 0, np.where(second, 1, -1)))


def differing(budget: float) -> set[tuple[float, ...]]:
  """Points of the grid whose region is another within cells."""
  grid = _grid()
  both = [regions(grid, budget, cells=cells) for cells in (False, True)]
  return set(map(tuple, grid[both[0] != both[1]].tolist()))


def draw() -> "matplotlib.figure.Figure":
  """Regions of SAA and VAA at growing budgets."""
  from matplotlib.colors import ListedColormap

  shown = [("SAA", 0.5), ("SAA", 1.0), ("VAA", 0.5), ("VAA", 1.0), ("VAA", 3.5)]
  figure = pictures.new_figure(2.3 * len(shown), 2.7)
  axis = np.linspace(-4, 4, 240, dtype=np.float32)  # misses the borders of cells
  grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
  for number, (measure, budget) in enumerate(shown):
    axes = figure.add_subplot(1, len(shown), number + 1)
    found = regions(grid, budget, cells=measure == "VAA").reshape(240, 240)
    axes.imshow(
      np.where(found < 0, 3, found),
      cmap=ListedColormap(COLORS),
      vmin=0,
      vmax=3,
      alpha=0.45,
      origin="lower",
      extent=(-4, 4, -4, 4),
    )
    for label in (0, 1):
      own = SITES[label == LABELS]
      axes.scatter(*own.T, s=18, color=COLORS[label], label=f"class {'AB'[label]}")
    axes.set_title(f"{measure}, budget {budget:g}", fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
  figure.axes[0].legend(fontsize=7, loc="upper left")
  return figure
