"""Images: accuracy under both adversaries over budgets, with closed forms beside."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame.digits import CLASSES, Points
from experiments.frame.kept import Finished
from experiments.robustness import draws
from experiments.robustness import linear as voronoi_linear
from experiments.robustness.draws import Figures, Part, Statements
from spherejax import attacks, distances, metrics, prototypes, training, voronoi
from spherejax.distances._lp import Norm

PAPER = "DIST, article III"
NEIGHBOUR, LINEAR = "1-NN", "ridge"

Remember = Callable[[str, Callable[[], Finished]], Finished]
"""What was kept under a name; else it is made, and kept."""


class Judged(NamedTuple):
  """A classifier of operands and images: scores to attack, decisions to judge by."""

  operands: tuple[Array, ...]
  scores: Callable[..., Array]
  decide: Callable[..., Array]


def classifier(name: str, sites, labels, norm: Norm) -> Judged:
  """The nearest neighbour, or a linear classifier."""
  options: dict[str, Any] = {"num_classes": CLASSES, "norm": norm}

  def near(sites, labels, x):
    if norm == "l2":  # the borders are planes, to which gradients lead
      return prototypes.nearest_neighbour_scores(x, sites, labels, num_classes=CLASSES)
    return prototypes.neighbour_logits(x, sites, labels, **options)

  def nearest(sites, labels, x):
    return prototypes.nearest_neighbours(x, sites, labels, **options)

  def linear(weights, offset, x):
    return x @ weights + offset[None]

  def largest(weights, offset, x):
    return jnp.argmax(linear(weights, offset, x), axis=1)

  if name == LINEAR:
    return Judged(voronoi_linear.ridge(sites, labels), linear, largest)
  return Judged((jnp.asarray(sites), jnp.asarray(labels)), near, nearest)


class Task(NamedTuple):
  """Which sites are attacked, and how."""

  sites: Points
  norm: Norm
  budgets: tuple[float, ...]
  steps: int
  neighbours: int
  batch: int
  seed: int

  def finite(self) -> list[float]:
    """The budgets of balls."""
    return [x for x in self.budgets if math.isfinite(x)]

  def mapped(self, fn: Callable) -> Callable:
    """A function of rows, over all of them: on all devices, by batches if need be."""
    if len(self.sites.y) <= self.batch:
      whole = jax.jit(fn)
      return lambda given, rows: jax.tree.map(np.asarray, whole(given, rows))
    return training.parallel_map(fn, batch_size=self.batch)


class Curves(NamedTuple):
  """Accuracies of both classifiers under both adversaries."""

  accuracy: dict[str, np.ndarray]
  """For each classifier and measure, at budget 0 and at each budget (SAA: finite)."""
  margin: float
  """The least by which an attacked point is nearer to its own site."""
  flipped: float
  """VAA without a budget of the nearest neighbour that has one wrong label."""


def curves(task: Task, names: Sequence[str], remember: Remember) -> Curves:
  """VAA and SAA of each classifier at each budget."""
  found, margins, flipped = {}, [], math.nan
  for name in names:
    own = classifier(name, *task.sites, task.norm)
    attack = _adversaries(task, own)
    clean = remember(f"{name}-{task.norm}-0", lambda own=own: _mistakes(task, own))
    broken = {"VAA": [clean.arrays["wrong"]], "SAA": [clean.arrays["wrong"]]}
    for number, budget in enumerate(task.budgets):
      part = remember(
        f"{name}-{task.norm}-{number + 1}",
        lambda budget=budget, attack=attack, own=own: attack(budget, own.operands),
      )
      margins.append(part.figures["margin"])
      for measure, wrong in part.arrays.items():
        broken[measure].append(wrong)
    for measure, success in broken.items():
      curve = jax.jit(metrics.accuracy_curve)(np.array(success))
      found[f"{name}, {measure}"] = np.asarray(curve)
    if name == NEIGHBOUR:
      sites, labels = own.operands
      operands = sites, labels.at[0].set((labels[0] + 1) % CLASSES)
      part = remember(
        f"{name}-{task.norm}-flipped",
        lambda attack=attack, operands=operands: attack(np.inf, operands),
      )
      flipped = 1 - float(np.mean(part.arrays["VAA"]))
  return Curves(found, min(margins), flipped)


def _mistakes(task: Task, own: Judged) -> Finished:
  """Sites that a classifier has wrong as they are."""
  decided = jax.jit(own.decide)(*own.operands, jnp.asarray(task.sites.x))
  return Finished({}, {"wrong": np.asarray(decided) != np.asarray(task.sites.y)})


def _adversaries(task: Task, own: Judged) -> Callable[[float, tuple], Finished]:
  """Both attacks of a classifier, of a budget and of the classifier's operands."""
  # Cross-entropy of the nearest neighbour is flat at its own sites.
  options: dict[str, Any] = {"norm": task.norm, "steps": task.steps, "loss": "margin"}
  options["key"] = jax.random.key(task.seed)
  count = len(task.sites.y)

  @functools.cache
  def rows() -> dict[str, Any]:
    index = np.arange(count)
    near = distances.k_nearest(
      *(task.sites.x, task.sites.x),
      k=min(task.neighbours, count - 1),
      norm=task.norm,
      exclude=index,
    )
    points = dict(zip("xy", map(np.asarray, task.sites), strict=True))
    return points | {"index": index, "near": near._asdict()}

  def in_cells(given, rows):
    epsilon, sites, operands = given
    found = voronoi.voronoi_pgd(
      functools.partial(own.scores, *operands),
      rows["x"],
      rows["y"],
      rows["index"],
      sites,
      epsilon=epsilon,
      nearest=distances.Neighbours(**rows["near"]),
      neighbours=rows["near"]["indices"].shape[1],
      index=rows["index"],
      restarts=1,  # as in the balls
      **options,
    )
    wrong = own.decide(*operands, found.x_adv) != rows["y"]
    return {"VAA": wrong, "margin": found.cell_margin}

  def in_balls(given, rows):
    epsilon, operands = given
    found = attacks.pgd(
      functools.partial(own.scores, *operands),
      rows["x"],
      rows["y"],
      epsilon=epsilon,
      index=rows["index"],
      **options,
    )
    return {"SAA": own.decide(*operands, found.x_adv) != rows["y"]}

  cells, balls = task.mapped(in_cells), task.mapped(in_balls)

  def attack(budget: float, operands) -> Finished:
    epsilon = jnp.float32(budget)
    found = cells((epsilon, jnp.asarray(task.sites.x), operands), rows())
    arrays = {"VAA": found["VAA"]}
    if math.isfinite(budget):
      arrays |= balls((epsilon, operands), rows())
    return Finished({"margin": float(found["margin"].min())}, arrays)

  return attack


def attacked_linear(task: Task, weights, offset) -> dict[str, np.ndarray]:
  """SAA of the linear classifier without a box, by attacks towards every class."""
  options: dict[str, Any] = {"norm": task.norm, "loss": "margin", "targets": "all"}
  options |= {"low": -jnp.inf, "high": jnp.inf}
  key = jax.random.key(task.seed)

  def attack(given, rows):
    epsilon, weights, offset = given
    seen = voronoi_linear.scores(weights, offset), rows["x"], rows["y"]
    drawn: dict[str, Any] = {"key": key, "index": rows["index"], "steps": 20}
    found = {
      "FGSM": attacks.fgsm(*seen, epsilon=epsilon, **options),
      "BIM": attacks.bim(*seen, epsilon=epsilon, steps=5, **options),
      # By larger steps than its own it comes nearer to a border that is a plane.
      "PGD-20": attacks.pgd(
        *seen, epsilon=epsilon, step_size=epsilon / 2, **drawn, **options
      ),
    }
    return {name: result.success for name, result in found.items()}

  mapped = task.mapped(attack)
  x, y = map(np.asarray, task.sites)
  rows = {"x": x, "y": y, "index": np.arange(len(y))}
  budgets = [jnp.float32(budget) for budget in task.finite()]
  found = [mapped((budget, weights, offset), rows) for budget in budgets]
  return {
    name: np.array([1 - each[name].mean() for each in found]) for name in found[0]
  }


# SAA of 1-NN on the first 1297 digits in l2, between bounds found by other means.
BRACKETS = {
  0.7: (0.979, 0.979),
  0.8: (0.878, 0.881),
  0.9: (0.667, 0.675),
  1.0: (0.329, 0.353),
  1.2: (0.004, 0.078),
}


def exact_neighbour(task: Task, found: Curves) -> tuple[np.ndarray, Part]:
  """SAA of 1-NN in l2 by its exact least moves, at finite budgets; rows and claims."""
  x, y = map(np.asarray, task.sites)
  moves = prototypes.nearest_neighbour_distance(x, y, x, y, low=0.0, high=1.0)
  finite = task.finite()
  exact = np.array([np.mean(moves > budget) for budget in finite])
  made: Statements = {}
  if f"{NEIGHBOUR}, SAA" in found.accuracy:
    attacked = found.accuracy[f"{NEIGHBOUR}, SAA"][1:]
    made["X3-unbeaten-l2"] = (
      "no attack of 1-NN finds more than its exact least moves allow",
      float((attacked - exact).min()) + 1e-6,
    )
  if len(x) == 1297:
    inside = [
      min(exact[finite.index(e)] - low, high - exact[finite.index(e)]) + 5e-4
      for e, (low, high) in BRACKETS.items()
    ]
    made["X3-bracket-l2"] = (
      "SAA of 1-NN is within its known bounds, l2",
      float(min(inside)),
    )
  figures: Figures = {
    ("digits, 1-NN, SAA exactly, l2", f"at {budget:g}"): float(value)
    for budget, value in zip(finite, exact, strict=True)
  }
  return exact, draws.once(figures, made, PAPER)


def apart(name: str, sites: Points, norm: Norm) -> tuple[metrics.Separation, Figures]:
  """How far the sites are from each other and from other classes."""
  found = metrics.separation(*sites, norm=norm)
  least = np.min(found.nearest), np.min(found.nearest_other_class)
  measures = "least distance of two", "least distance of two classes"
  return found, {
    (f"{name}, {norm}", measure): float(value)
    for measure, value in zip(measures, least, strict=True)
  }


def study(
  name: str, task: Task, tests: Points, curve: Curves
) -> tuple[Figures, Statements]:
  """Curves beside closed forms: theorems of article III, and least moves."""
  separation, figures = apart(name, task.sites, task.norm)
  for measure, values in curve.accuracy.items():
    for budget, value in zip((0.0, *task.budgets), values, strict=False):
      figures[f"{name}, {measure}, {task.norm}", f"at {budget:g}"] = float(value)
  made = claims(task, curve, separation)
  if f"{LINEAR}, VAA" in curve.accuracy:
    more = beside_linear(name, task, tests, curve)
    figures, made = figures | more[0], made | more[1]
  return figures, {
    f"X3-{key}-{task.norm}": (f"{text}, {task.norm}", value)
    for key, (text, value) in made.items()
  }


def beside_linear(
  name: str, task: Task, tests: Points, curve: Curves
) -> tuple[Figures, Statements]:
  """The linear classifier's accuracies and its least moves, and attacks of it."""
  weights, offset = voronoi_linear.ridge(*task.sites)
  moves = voronoi_linear.least_linear_moves(weights, offset, *task.sites, task.norm)
  closed = np.array([np.mean(moves > budget) for budget in task.finite()])
  reached = attacked_linear(task, weights, offset)
  natural = voronoi_linear.accuracy(weights, offset, task.sites)
  figures: Figures = {
    (f"{name}, ridge", "accuracy of the sites"): natural,
    (f"{name}, ridge", "accuracy of the test images"): voronoi_linear.accuracy(
      weights, offset, tests
    ),
  }
  beside = {"least moves": closed} | {f"no box, {k}": v for k, v in reached.items()}
  for measure, values in beside.items():
    for budget, value in zip(task.finite(), values, strict=True):
      figures[f"{name}, ridge, {measure}, {task.norm}", f"at {budget:g}"] = float(value)
  made = linear_claims(closed, reached, len(task.sites.y))
  made["global"] = (
    "VAA of the linear classifier without a budget <= its accuracy",
    natural - float(curve.accuracy[f"{LINEAR}, VAA"][-1]) + 1e-6,
  )
  return figures, made


def linear_claims(
  closed: np.ndarray, reached: dict[str, np.ndarray], count: int
) -> Statements:
  """Whether attacks without a box find the least moves."""
  missed = {key: float(np.abs(x - closed).max()) for key, x in reached.items()}
  return {
    "closed-form": (
      "without a box FGSM and BIM towards every class find the linear classifier's "
      "least moves, to one of the images",
      1.5 / count - max(missed["FGSM"], missed["BIM"]),
    ),
    "pgd-20": (
      "likewise 20 steps of PGD from a random start, to 0.01 of the images",
      0.01 - missed["PGD-20"],
    ),
  }


def claims(task: Task, curve: Curves, separation: metrics.Separation) -> Statements:
  """Theorems of article III."""
  half, other = (float(np.min(x)) / 2 for x in separation)
  small = [n for n, x in enumerate(task.finite()) if x < half]
  sure = [n for n, x in enumerate(task.finite()) if x < other]
  made: Statements = {
    "inside": ("attacked points are nearer to their own site", curve.margin)
  }
  if f"{LINEAR}, VAA" in curve.accuracy:
    vaa, saa = (curve.accuracy[f"{LINEAR}, {name}"] for name in ("VAA", "SAA"))
    above = vaa[: len(saa)] - saa
    made |= {
      "vaa-above-saa": (
        "VAA >= SAA of the linear classifier",
        float(above.min()) + 1e-6,
      ),
      "observation-1": (
        "VAA = SAA below half the distance of the two nearest points",
        1e-6 - float(np.abs(above[1:][small]).max(initial=0)),
      ),
    }
  if f"{NEIGHBOUR}, VAA" in curve.accuracy:
    vaa, saa = (curve.accuracy[f"{NEIGHBOUR}, {name}"] for name in ("VAA", "SAA"))
    made |= {
      "theorem-1": (
        "VAA of 1-NN is 1 at every budget",
        float(vaa.min()) - 1 + 1e-6,
      ),
      "unique": (
        "1-NN with one label changed: VAA without a budget loses that site alone",
        1e-9 - abs(curve.flipped - (1 - 1 / len(task.sites.y))),
      ),
      "sure": (
        "SAA of 1-NN is 1 below half the distance of the two nearest classes",
        float(saa[1:][sure].min(initial=1)) - 1 + 1e-6,
      ),
    }
  return made
