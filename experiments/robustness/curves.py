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


def ridge(x: Array, labels: Array) -> tuple[Array, Array]:
  """Weights [dim, classes] and offsets of a regression on the classes' indicators."""
  rows = np.c_[np.asarray(x, np.float64), np.ones(len(x))]
  targets = np.eye(CLASSES)[np.asarray(labels)]
  gram = rows.T @ rows + np.eye(rows.shape[1])
  solved = np.linalg.solve(gram, rows.T @ targets)
  return jnp.asarray(solved[:-1], jnp.float32), jnp.asarray(solved[-1], jnp.float32)


class Classifier(NamedTuple):
  """A classifier of images and operands: scores to attack, decisions to judge by."""

  operands: tuple[Array, ...]
  scores: Callable[..., Array]
  decide: Callable[..., Array]


def classifier(name: str, sites: Points, norm: Norm) -> Classifier:
  """The nearest neighbour, or a linear classifier."""

  def scores(x, weights, offset):
    return x @ weights + offset[None]

  if name == LINEAR:
    weights = ridge(*sites)
    return Classifier(weights, scores, lambda *x: jnp.argmax(scores(*x), axis=1))
  partial = functools.partial
  near = partial(prototypes.neighbour_logits, num_classes=CLASSES, norm=norm)
  if norm == "l2":  # the borders are planes, and gradients lead to them
    near = partial(prototypes.nearest_neighbour_scores, num_classes=CLASSES)
  nearest = partial(prototypes.nearest_neighbours, num_classes=CLASSES, norm=norm)
  return Classifier(sites, near, nearest)


class Task(NamedTuple):
  """Sites under attack, and the kind of attack."""

  config: Config
  sites: Points
  norm: Norm

  @property
  def budgets(self) -> tuple[float, ...]:
    """Budgets of the attacks; the last one is infinite."""
    return (*BUDGETS[self.config.images][self.norm], math.inf)


def add(table: Table, task: Task, folder: pathlib.Path, progress: tqdm.tqdm) -> None:
  """Adds VAA and SAA of each classifier at each budget; SAA only at finite ones.

  Results of earlier runs with the same settings are read from the folder.
  """
  images, made_with = task.config.images, {"made with": kept.digest(task.config)}
  margins, place = [], f"{images}, {task.norm}"

  def remembered(name: str, make: Callable[..., Finished], *of: object) -> Finished:
    progress.set_postfix_str(name)
    call = functools.partial(make, *of)
    outcome = kept.once(folder / name, made_with=made_with, make=call)
    progress.update()
    return outcome

  for name in task.config.classifiers:
    judged, run = classifier(name, task.sites, task.norm), f"{name}-{task.norm}"
    attack = _adversaries(task, judged)
    wrong = remembered(f"{run}-0", _mistakes, task, judged).arrays["wrong"]
    broken = {"VAA": [wrong], "SAA": [wrong]}
    for number, budget in enumerate(task.budgets, 1):
      part = remembered(f"{run}-{number}", attack, budget, judged.operands)
      margins.append(part.figures["margin"])
      for measure, wrong in part.arrays.items():
        broken[measure].append(wrong)
    for measure, success in broken.items():
      values = jax.jit(metrics.accuracy_curve)(np.array(success))
      at = zip((f"at {x:g}" for x in (0, *task.budgets)), values, strict=False)
      table.add_all(f"{images}, {name}, {measure}, {task.norm}", dict(at))
    if name == NEIGHBOUR:
      labels = task.sites.y
      flipped = task.sites._replace(y=labels.at[0].set((labels[0] + 1) % CLASSES))
      part = remembered(f"{run}-flipped", attack, np.inf, flipped)
      lost = np.mean(part.arrays["VAA"]) - 1 / len(task.sites.y)
      table.add(place, FLIPPED, lost, listed=False)
  table.add(place, MARGIN, min(margins), listed=False)


def _mistakes(task: Task, judged: Classifier) -> Finished:
  decided = jax.jit(judged.decide)(task.sites.x, *judged.operands)
  return Finished({}, {"wrong": np.asarray(decided) != np.asarray(task.sites.y)})


def _adversaries(task: Task, judged: Classifier) -> Callable[[float, tuple], Finished]:
  """Returns both attacks on a classifier, as a function of budget and operands."""
  # Cross-entropy of the nearest neighbour is flat at the sites.
  loss, key, steps = "margin", jax.random.key(task.config.seed), task.config.steps
  count = len(task.sites.y)

  @functools.cache
  def rows() -> tuple[Array, Array, np.ndarray, distances.Neighbours]:
    x, index = task.sites.x, np.arange(count)
    k = min(task.config.neighbours, count - 1)
    near = distances.k_nearest(x, x, k=k, norm=task.norm, exclude=index)
    return x, task.sites.y, index, near

  def in_cells(operands_of_budget, rows):
    epsilon, sites, operands = operands_of_budget
    x, y, index, near = rows
    result = voronoi.voronoi_pgd(
      lambda x: judged.scores(x, *operands), x, y, index, sites, key=key,
      epsilon=epsilon, norm=task.norm, steps=steps, loss=loss, index=index,
      nearest=near, neighbours=near.indices.shape[1], restarts=1,  # as in the balls
    )  # fmt: skip
    wrong = judged.decide(result.x_adv, *operands) != y
    return {"VAA": wrong, "margin": result.cell_margin}

  def in_balls(operands_of_budget, rows):
    epsilon, operands = operands_of_budget
    x, y, index, _ = rows
    result = attacks.pgd(
      lambda x: judged.scores(x, *operands), x, y, key=key, epsilon=epsilon,
      norm=task.norm, steps=steps, loss=loss, index=index,
    )  # fmt: skip
    return {"SAA": judged.decide(result.x_adv, *operands) != y}

  size = min(count, task.config.batch)
  cells = training.parallel_map(in_cells, batch_size=size)
  balls = training.parallel_map(in_balls, batch_size=size)

  def attack(budget: float, operands) -> Finished:
    epsilon = jnp.float32(budget)
    result = cells((epsilon, task.sites.x, operands), rows())
    arrays = {"VAA": result["VAA"]}
    if math.isfinite(budget):
      arrays |= balls((epsilon, operands), rows())
    return Finished({"margin": float(result["margin"].min())}, arrays)

  return attack


def add_exact(table: Table, task: Task) -> None:
  """Adds SAA of 1-NN in l2 from exact least distances, at finite budgets."""
  x, y = map(np.asarray, task.sites)
  moves = prototypes.nearest_neighbour_distance(x, y, x, y, low=0.0, high=1.0)
  accuracies = {f"at {x:g}": np.mean(moves > x) for x in task.budgets[:-1]}
  table.add_all(EXACT, accuracies)


def add_distances(table: Table, name: str, sites: Points, norm: Norm) -> None:
  """Adds how far the sites are from each other and from other classes."""
  separation = metrics.separation(*sites, norm=norm)
  least, least_of_classes = map(np.min, separation)
  table.add(f"{name}, {norm}", "least distance of two", least)
  table.add(f"{name}, {norm}", "least distance of two classes", least_of_classes)


def add_natural(table: Table, name: str, sites: Points, tests: Points) -> None:
  """Adds accuracies of the linear classifier without an attack."""
  weights, offset = map(np.asarray, ridge(*sites))
  for which, points in (("sites", sites), ("test images", tests)):
    right = (np.asarray(points.x) @ weights + offset).argmax(1) == np.asarray(points.y)
    table.add(f"{name}, {LINEAR}", f"accuracy of the {which}", np.mean(right))
