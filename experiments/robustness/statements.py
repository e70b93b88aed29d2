"""Distances of images against their meaning, and trade-offs in closed form."""

import functools
from collections.abc import Iterable

import numpy as np
from scipy import special

from experiments.frame.digits import Points
from experiments.robustness import draws
from experiments.robustness.draws import Figures, Part, Statements
from spherejax import distances, metrics
from spherejax.distances._lp import Norm

SHARE = 0.95
PAIRS = {"odd or even": (), "3 or 8": (3, 8)}
# Of y = +-1, a feature that is y with probability p and `dims` of N(eta y, 1): with a
# weight a for the strong one; and Tsipras et al.'s own, the weak alone and the strong.
WEAK = {"dims": 25, "eta": 0.4, "p": 0.8}
TOY = {"dims": 100, "eta": 0.3, "p": 0.95}
WEIGHTS = (0, 1, 5, 10, 20, 100)
PRINTED = {0.0: (0.99865, 0.00135), np.inf: (0.95, 0.95)}  # accuracy, robust
# Two Gaussian classes: entries, and budgets of each norm.
DIMS = 10
MOVES = {"l2": (0.0, 0.5), "linf": (0.1, 0.3), "l1": (0.5, 1.5)}
SAMPLES = 100_000


def shifts(name: str, x: np.ndarray, y: np.ndarray) -> Part:
  """Images [n, height, width, channels] shifted by a pixel (DIST fig. 1.1).

  Each against the nearest of another class.
  """
  moved = np.zeros_like(x)
  moved[:, :, 1:] = x[:, :, :-1]
  step, flat = (v.reshape(len(x), -1) for v in (moved - x, x))
  figures: Figures = {}
  shares = {}
  orders: dict[Norm, float] = {"l2": 2, "linf": np.inf}
  for norm, order in orders.items():
    own = np.linalg.norm(step, order, axis=1)
    other = distances.k_nearest(flat, flat, k=1, norm=norm, apart=(y, y)).distances
    other = np.asarray(other)[:, 0]
    shares[norm] = float(np.mean(own > other))
    figures |= {
      (f"{name}, {norm}", "distance of a shift by a pixel"): float(own.mean()),
      (f"{name}, {norm}", "distance to another class"): float(other.mean()),
      (f"{name}, {norm}", "share that a shift moves further"): shares[norm],
    }
  made: Statements = {}
  if name == "digits":
    made = {
      f"X1-{norm}": (
        "a shift by a pixel moves 95 % of the digits further than the nearest of "
        f"another class is, {norm}",
        share - SHARE,
      )
      for norm, share in shares.items()
    }
  else:
    made = {
      f"X1-{name}-some": (
        f"a shift by a pixel moves images of {name} further than the nearest of "
        "another class is, l2: the share of them",
        shares["l2"],
      ),
      f"X1-{name}-half": (
        f"a shift by a pixel moves half of {name} further than the nearest of another "
        "class is, l2",
        shares["l2"] - 0.5,
      ),
    }
  return draws.once(figures, made, "DIST fig. 1.1")


def best_binary(train: Points) -> Figures:
  """What no classifier of two classes of digits can exceed."""
  x, y = map(np.asarray, train)
  budgets = np.array([0.7, 0.8, 1.0, 1.5])
  found: Figures = {}
  for name, pair in PAIRS.items():
    kept = np.isin(y, pair) if pair else np.ones(len(y), bool)
    labels = (y == pair[0]).astype(int) if pair else y % 2
    best = metrics.best_accuracy(x[kept], labels[kept], budgets)
    for budget, value in zip(budgets, best, strict=True):
      measure = f"best SAA of all at {budget:g}, l2"
      found[f"digits, {name}", measure] = float(value)
  return found


def trade_offs(seeds: Iterable[int], samples: int) -> Part:
  """A strong feature and many weak ones, and the formula of linear classifiers.

  DIST 3.3, after Tsipras et al. 2019.
  """
  both = functools.partial(_both, samples=samples)
  return draws.over(seeds, both, "DIST 3.3")


def _both(seed: int, samples: int) -> tuple[Figures, Statements]:
  rng = np.random.default_rng(seed)
  first, second = _features(rng, samples), _gaussians(rng, samples)
  return first[0] | second[0], first[1] | second[1]


def _features(rng, samples: int) -> tuple[Figures, Statements]:
  """The classifier sign(a x_1 + sum of the weak), attacked in two norms."""
  figures: Figures = {}
  bound, exclusive, closed, toy = [], [], [], []
  for setting, weights in ((WEAK, WEIGHTS), (TOY, tuple(PRINTED))):
    dims, eta, p = setting["dims"], setting["eta"], setting["p"]
    away, size = dims * eta, dims**0.5
    y = rng.choice([-1, 1], samples)
    strong = np.where(rng.random(samples) < p, y, -y)
    weak = away * y + size * rng.normal(size=samples)
    for a in weights:
      # By l-infinity 2 eta the weak features turn round; by l1 2 the strong one does.
      values = a * strong + weak, a * strong + weak - 2 * away * y, weak - a * y
      drawn = np.array([np.mean(np.sign(v) * y > 0) for v in values])
      exact = np.array(
        [
          p * special.ndtr((a + away) / size)
          + (1 - p) * special.ndtr((away - a) / size),
          p * special.ndtr((a - away) / size)
          + (1 - p) * special.ndtr(-(a + away) / size),
          special.ndtr((away - a) / size),
        ]
      )
      name = f"{dims} weak and strong, a = {a:g}"
      measures = "accuracy", f"accuracy under linf {2 * eta:g}", "accuracy under l1 2"
      for measure, sampled, value in zip(measures, drawn, exact, strict=True):
        figures[name, measure] = float(value)
        figures[name, f"{measure}, sampled"] = float(sampled)
      # What follows is about probabilities: the samples only check them.
      bound.append(p / (1 - p) * (1 - exact[0]) - exact[1] + 1e-9)
      exclusive.append(1 - exact[1] - exact[2] + 1e-9)
      closed.append(3 / samples**0.5 - np.abs(drawn - exact).max())
      if setting is TOY:
        toy.append(np.abs(exact[:2] - PRINTED[a]).max())
  return figures, {
    "X5-accuracy": ("accuracies are those of the closed forms", float(min(closed))),
    "X5-bound": (
      "robust <= p / (1 - p) (1 - accuracy), every a",
      float(min(bound)),
    ),
    "X5-exclusive": (
      "robust to linf and robust to l1 <= 1, every a",
      float(min(exclusive)),
    ),
    "X5-toy": (
      "100 weak features alone: right 0.99865, robust 0.00135; the strong one 0.95 and "
      "0.95",
      5e-6 - float(max(toy)),
    ),
  }


def _gaussians(rng, samples: int) -> tuple[Figures, Statements]:
  """A linear classifier of N(+-mu, 1), each point moved the worst way."""
  mean, noise = rng.normal(size=(2, DIMS))
  mean *= 2 / np.linalg.norm(mean)
  w = mean + noise / 2
  y = rng.choice([-1, 1], samples)
  x = y[:, None] * mean + rng.normal(size=(samples, DIMS))
  steepest = np.where(np.abs(w) == np.abs(w).max(), np.sign(w), 0)
  worst = {
    "l2": (w / np.linalg.norm(w), np.linalg.norm(w)),
    "linf": (np.sign(w), np.abs(w).sum()),
    "l1": (steepest, np.abs(w).max()),
  }
  figures: Figures = {}
  gaps = []
  for norm, budgets in MOVES.items():
    towards, slope = worst[norm]
    for budget in budgets:
      moved = x - budget * y[:, None] * towards
      sampled = float(np.mean((moved @ w) * y > 0))
      value = float(special.ndtr((mean @ w - budget * slope) / np.linalg.norm(w)))
      name = "two Gaussians, linear", f"accuracy under {norm} {budget:g}"
      figures[name] = value
      figures[name[0], f"{name[1]}, sampled"] = sampled
      gaps.append(abs(sampled - value))
  near = 0.005 * max(1.0, (SAMPLES / samples) ** 0.5)
  return figures, {
    "X5-gaussian": (
      f"robust accuracy of linear classifiers is that of the formula, to {near:.2g}",
      near - max(gaps),
    )
  }
