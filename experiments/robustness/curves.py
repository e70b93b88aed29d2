"""Accuracy on images under both adversaries, by budget."""

import functools
import math
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from jax import Array

from experiments.frame import kept
from experiments.frame.kept import Finished
from experiments.frame.study import Table
from experiments.robustness.cell_settings import Config
from experiments.robustness.images import BUDGETS, CLASSES, Points
from experiments.robustness.settings import Norm
from spherejax import attacks, distances, metrics, prototypes, training, voronoi

NEIGHBOUR, LINEAR = "1-NN", "ridge"
EXACT = "digits, 1-NN, SAA exactly, l2"
FLIPPED = "lost by one wrong label, less that site"
MARGIN = "least by which an attacked point is nearer to its own site"
Remember = Callable[[str, Callable[[], Finished]], Finished]
"""Function that reads the outcome under a name, or makes it by a call and stores it."""


def ridge(x, labels, penalty: float = 1.0) -> tuple[Array, Array]:
  """Weights [dim, classes] and offsets of a regression on the classes' indicators."""
  rows = np.c_[np.asarray(x, np.float64), np.ones(len(x))]
  targets = np.eye(CLASSES)[np.asarray(labels)]
  gram = rows.T @ rows + penalty * np.eye(rows.shape[1])
  solved = np.linalg.solve(gram, rows.T @ targets)
  return jnp.asarray(solved[:-1], jnp.float32), jnp.asarray(solved[-1], jnp.float32)


class Classifier(NamedTuple):
  """A classifier of operands and images: scores to attack, decisions to judge by."""

  operands: tuple[Array, ...]
  scores: Callable[..., Array]
  decide: Callable[..., Array]


def classifier(name: str, sites, labels, norm: Norm) -> Classifier:
  """The nearest neighbour, or a linear classifier."""

  def near(sites, labels, x):
    if norm == "l2":  # the borders are planes, and gradients lead to them
      return prototypes.nearest_neighbour_scores(x, sites, labels, num_classes=CLASSES)
    return prototypes.neighbour_logits(x, sites, labels, num_classes=CLASSES, norm=norm)

  def nearest(sites, labels, x):
    return prototypes.nearest_neighbours(
      x, sites, labels, num_classes=CLASSES, norm=norm
    )

  def scores(weights, offset, x):
    return x @ weights + offset[None]

  if name == LINEAR:
    parts = ridge(sites, labels)
    return Classifier(parts, scores, lambda *x: jnp.argmax(scores(*x), axis=1))
  return Classifier((jnp.asarray(sites), jnp.asarray(labels)), near, nearest)


class Task(NamedTuple):
  """Sites under attack, and the kind of attack."""

  config: Config
  sites: Points
  norm: Norm

  @property
  def budgets(self) -> tuple[float, ...]:
    """Budgets of the attacks; the last one is infinite."""
    return (*BUDGETS[self.config.images][self.norm], math.inf)


def remembering(config: Config, folder: pathlib.Path, progress: tqdm.tqdm) -> Remember:
  """Returns a function that stores results and reads those of earlier runs."""
  settings = {"made with": kept.digest(config)}

  def remember(name: str, make: Callable[[], Finished]) -> Finished:
    progress.set_postfix_str(name)
    outcome = kept.once(folder / name, made_with=settings, make=make)
    progress.update()
    return outcome

  return remember


def add(table: Table, task: Task, remember: Remember) -> None:
  """Adds VAA and SAA of each classifier at each budget; SAA only at finite ones."""
  images = task.config.images
  margins, place = [], f"{images}, {task.norm}"
  for name in task.config.classifiers:
    judged, run = classifier(name, *task.sites, task.norm), f"{name}-{task.norm}"
    attack = _adversaries(task, judged)
    mistakes = functools.partial(_mistakes, task, judged)
    wrong = remember(f"{run}-0", mistakes).arrays["wrong"]
    broken = {"VAA": [wrong], "SAA": [wrong]}
    for number, budget in enumerate(task.budgets, 1):
      of_budget = functools.partial(attack, budget, judged.operands)
      part = remember(f"{run}-{number}", of_budget)
      margins.append(part.figures["margin"])
      for measure, wrong in part.arrays.items():
        broken[measure].append(wrong)
    for measure, success in broken.items():
      values = jax.jit(metrics.accuracy_curve)(np.array(success))
      for budget, value in zip((0, *task.budgets), values, strict=False):
        row = f"{images}, {name}, {measure}, {task.norm}"
        table.add(row, f"at {budget:g}", value)
    if name == NEIGHBOUR:
      sites, labels = judged.operands
      operands = sites, labels.at[0].set((labels[0] + 1) % CLASSES)
      of_flipped = functools.partial(attack, np.inf, operands)
      part = remember(f"{run}-flipped", of_flipped)
      lost = np.mean(part.arrays["VAA"]) - 1 / len(task.sites.y)
      table.add(place, FLIPPED, lost, listed=False)
  table.add(place, MARGIN, min(margins), listed=False)


class Rows(NamedTuple):
  """Sites to attack, with their numbers and their nearest sites."""

  x: Array
  y: Array
  number: np.ndarray
  near: distances.Neighbours


def _mistakes(task: Task, judged: Classifier) -> Finished:
  """Sites that a classifier misclassifies without an attack."""
  decided = jax.jit(judged.decide)(*judged.operands, jnp.asarray(task.sites.x))
  return Finished({}, {"wrong": np.asarray(decided) != np.asarray(task.sites.y)})


def _adversaries(task: Task, judged: Classifier) -> Callable[[float, tuple], Finished]:
  """Returns both attacks on a classifier, as a function of budget and operands."""
  # Cross-entropy of the nearest neighbour is flat at the sites.
  loss, key, steps = "margin", jax.random.key(task.config.seed), task.config.steps
  count = len(task.sites.y)

  @functools.cache
  def rows() -> Rows:
    x, index = task.sites.x, np.arange(count)
    k = min(task.config.neighbours, count - 1)
    near = distances.k_nearest(x, x, k=k, norm=task.norm, exclude=index)
    return Rows(x, task.sites.y, index, near)

  def in_cells(operands_of_budget, rows: Rows):
    epsilon, sites, operands = operands_of_budget
    scores, (x, y, index, near) = functools.partial(judged.scores, *operands), rows
    result = voronoi.voronoi_pgd(
      scores, x, y, index, sites, key=key, epsilon=epsilon, norm=task.norm, steps=steps,
      loss=loss, index=index, nearest=near, neighbours=near.indices.shape[1],
      restarts=1,  # as in the balls
    )  # fmt: skip
    wrong = judged.decide(*operands, result.x_adv) != y
    return {"VAA": wrong, "margin": result.cell_margin}

  def in_balls(operands_of_budget, rows: Rows):
    epsilon, operands = operands_of_budget
    scores, (x, y, index, _) = functools.partial(judged.scores, *operands), rows
    result = attacks.pgd(
      scores, x, y, key=key, epsilon=epsilon, norm=task.norm, steps=steps, loss=loss,
      index=index,
    )  # fmt: skip
    return {"SAA": judged.decide(*operands, result.x_adv) != y}

  size = min(count, task.config.batch)
  cells = training.parallel_map(in_cells, batch_size=size)
  balls = training.parallel_map(in_balls, batch_size=size)

  def attack(budget: float, operands) -> Finished:
    epsilon = jnp.float32(budget)
    result = cells((epsilon, jnp.asarray(task.sites.x), operands), rows())
    arrays = {"VAA": result["VAA"]}
    if math.isfinite(budget):
      arrays |= balls((epsilon, operands), rows())
    return Finished({"margin": float(result["margin"].min())}, arrays)

  return attack


def add_exact(table: Table, task: Task) -> None:
  """Adds SAA of 1-NN in l2 from exact least distances, at finite budgets."""
  x, y = map(np.asarray, task.sites)
  moves = prototypes.nearest_neighbour_distance(x, y, x, y, low=0.0, high=1.0)
  for budget in task.budgets[:-1]:
    table.add(EXACT, f"at {budget:g}", np.mean(moves > budget))


def add_distances(table: Table, name: str, sites: Points, norm: Norm) -> None:
  """Adds how far the sites are from each other and from other classes."""
  separation = metrics.separation(*sites, norm=norm)
  for measure, values in (
    ("least distance of two", separation.nearest),
    ("least distance of two classes", separation.nearest_other_class),
  ):
    table.add(f"{name}, {norm}", measure, np.min(values))


def add_natural(table: Table, name: str, sites: Points, tests: Points) -> None:
  """Adds accuracies of the linear classifier without an attack."""
  weights, offset = map(np.asarray, ridge(*sites))
  for which, points in (("sites", sites), ("test images", tests)):
    right = (np.asarray(points.x) @ weights + offset).argmax(1) == np.asarray(points.y)
    table.add(f"{name}, {LINEAR}", f"accuracy of the {which}", np.mean(right))
