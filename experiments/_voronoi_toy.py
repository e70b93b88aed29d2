"""Eight points in the plane: regions, and what the nearest neighbour attains there."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import _figure, _report
from spherejax import distances, metrics, prototypes, voronoi

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
}
BUDGETS = (0.5, 1.0, 3.5)
# Between the distances at which they change, l2: of the nearest neighbour, of the best.
SHARES = {0.4: (1.0, 1.0), 0.6: (0.5, 0.75), 0.8: (0.125, 0.625), 1.2: (0.0, 0.625)}
SIDE = 6.0
COLORS = ("tab:blue", "tab:orange", "dimgray", "white")  # A, B, both, none


def nearest_neighbour_survives(key: jax.Array, norm: str) -> np.ndarray:
  """VAA of the nearest neighbour at each budget."""
  options: dict[str, Any] = {"num_classes": 2, "norm": norm}
  return survives(
    key,
    lambda x: prototypes.neighbour_logits(x, SITES, LABELS, **options),
    lambda x: prototypes.nearest_neighbours(x, SITES, LABELS, **options),
    BUDGETS,
    norm,
  )


def constant_survives(key: jax.Array) -> float:
  """VAA without a budget of the classifier that always names the first class."""

  def scores(x):
    return jnp.tile(jnp.array([[1.0, 0.0]]), (len(x), 1))

  def decide(x):
    return jnp.argmax(scores(x), axis=1)

  return float(survives(key, scores, decide, (np.inf,), "l2")[0])


def survives(
  key: jax.Array,
  scores: Callable[[Array], Array],
  decide: Callable[[Array], Array],
  budgets: Sequence[float],
  norm: str,
) -> np.ndarray:
  """VAA of a classifier at each budget."""

  @jax.jit
  def attacked(epsilon):
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
    ).attack.x_adv

  broken = [
    np.asarray(decide(attacked(jnp.float32(budget))) != LABELS) for budget in budgets
  ]
  return np.asarray(metrics.accuracy_curve(np.array(broken)))


def least_distances(norm: str) -> np.ndarray:
  """[2, sites], lower and upper bounds of what changes the nearest neighbour's answer.

  Half of what parts a site from the other class, and the nearest of the points of a
  grid that are as near to the other class; the middles of pairs lie on it.
  """
  apart = metrics.separation(SITES, LABELS, norm=norm).nearest_other_class
  axis = np.arange(-3, 3.25, 0.25, dtype=np.float32)
  grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
  away = np.asarray(distances.pairwise_lp(grid, SITES, norm=norm))
  nearest = np.stack([away[:, label == LABELS].min(1) for label in (0, 1)], 1)
  lost = nearest[:, 1 - LABELS] <= nearest[:, LABELS]
  return np.array([np.asarray(apart) / 2, np.where(lost, away, np.inf).min(0)])


def rows_and_claims(
  key: jax.Array, norms: Sequence[str]
) -> tuple[list[Any], list[Any]]:
  """Accuracies of the nearest neighbour, and the best that there is."""
  rows, survived, gaps, least = [], [], [], []
  made: dict[str, tuple[str, float]] = {}
  budgets = np.array(list(SHARES), np.float32)
  for norm in norms:
    curve = nearest_neighbour_survives(key, norm)
    survived.append(curve.min())
    rows += [
      _report.row(f"toy, 1-NN, {norm}", f"VAA at {budget:g}", [value])
      for budget, value in zip(BUDGETS, curve, strict=True)
    ]
    minimal = np.array(MINIMAL[norm])
    standard = np.asarray(
      metrics.accuracy_curve_from_distances(minimal.astype(np.float32), budgets)
    )
    best = metrics.best_accuracy(SITES, LABELS, budgets, norm=norm)
    gaps.append((best - standard).min())
    for budget, own, most in zip(budgets, standard, best, strict=True):
      name = f"toy, {norm}, budget {budget:g}"
      rows += [
        _report.row(name, "SAA of 1-NN", [own]),
        _report.row(name, "best SAA of all", [most]),
      ]
    least.append(np.abs(least_distances(norm) - minimal).max())
    if norm == "l2":
      exact = prototypes.nearest_neighbour_distance(SITES, LABELS, SITES, LABELS)
      least.append(np.abs(exact - minimal).max())
      own, most = np.transpose(list(SHARES.values()))
      found = metrics.accuracy_curve_from_distances(exact.astype(np.float32), budgets)
      made |= {
        "X2-saa": (
          "SAA of 1-NN, l2: 1 below 0.5, 1/2 below 0.7071, 1/8 below 1.1180, then 0",
          1e-6 - float(np.abs(found - own).max()),
        ),
        "X2-best-saa": (
          "the best SAA of all, l2: 1 below 0.5, 3/4 below 0.7071, then 5/8",
          1e-6 - float(np.abs(best - most).max()),
        ),
        "X2-constant": (
          "VAA without a budget of a constant classifier, l2: its share of sites, 5/8",
          1e-6 - abs(constant_survives(key) - 5 / 8),
        ),
      }
  if norms:
    made = {
      "X2-vaa": ("VAA of 1-NN is 1, every norm and budget", min(survived) - 1 + 1e-6),
      "X2-least": ("least distances as by hand, to 1e-5", 1e-5 - max(least)),
      "X2-best": ("no SAA of 1-NN above the best of all", min(gaps) + 1e-6),
      **made,
    }
  return rows, [
    _report.claim(name, text, [value], paper=PAPER, every_seed=True)
    for name, (text, value) in made.items()
  ]


def regions(points: np.ndarray, budget: float, *, cells: bool) -> np.ndarray:
  """For each point the class whose region it is in; 2 for both, -1 for none."""
  apart = np.asarray(distances.pairwise_euclidean(jnp.asarray(points), SITES))
  inside = apart <= budget
  if cells:
    inside &= apart <= apart.min(axis=1, keepdims=True)
  first, second = (inside[:, label == LABELS].any(axis=1) for label in (0, 1))
  return np.where(first & second, 2, np.where(first, 0, np.where(second, 1, -1)))


def draw() -> "matplotlib.figure.Figure":
  """Regions of SAA and VAA at growing budgets."""
  from matplotlib.colors import ListedColormap

  shown = [("SAA", 0.5), ("SAA", 1.0), ("VAA", 0.5), ("VAA", 1.0), ("VAA", 3.5)]
  figure = _figure.new_figure(2.3 * len(shown), 2.7)
  axis = np.linspace(-4, 4, 241, dtype=np.float32)
  grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
  for number, (measure, budget) in enumerate(shown):
    axes = figure.add_subplot(1, len(shown), number + 1)
    found = regions(grid, budget, cells=measure == "VAA").reshape(241, 241)
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
