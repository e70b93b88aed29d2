"""Small trainings of DL2P and its baselines: all methods, rates and seeds at once.

One program trains every cell of one network, data set and dimension with every seed.
Learning rates are chosen on validation data.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.assignment import methods as dl2p_methods
from experiments.assignment import tasks
from experiments.assignment.methods import Method
from experiments.frame import training as frame_training
from experiments.frame.training import Hyper
from spherejax import data, models, prototypes, training
from spherejax.training import TrainState

_BLOCK = 120  # runs at once; as many fit in a core's cache
Source = tuple[str, int]  # where prototypes come from, and their dimension


@dataclasses.dataclass(frozen=True)
class Training:
  """Settings of the networks' training; each combination compiles its own program."""

  network: str  # linear, mlp or resnet
  dim: int  # largest dimension of an embedding; a run with fewer leaves the rest at 0
  epochs: int
  batch: int = 64
  momentum: float = 0.9
  augment: bool = False


class Network(nn.Module):
  """Linear network, one with a hidden layer, or a residual network for images."""

  kind: str
  dim: int

  @nn.compact
  def __call__(self, inputs: Array, used: Array) -> Array:
    x = inputs
    if self.kind == "resnet":
      backbone = models.ResNet20(
        blocks=1, widths=(8, 16, 32), strides=(1, 2, 2), stem_stride=2, norm="group",
        convolution="patches",
      )  # fmt: skip
      x = backbone(data.to_float(x) - 0.5).mean((1, 2))
    elif self.kind == "mlp":
      x = nn.relu(nn.Dense(64)(x))
    return nn.Dense(self.dim)(x) * used[None]


class Cell(NamedTuple):
  """Training of one method in one dimension with one learning rate."""

  name: str
  dim: int
  method: Method
  source: str
  rate: float


class Runs(NamedTuple):
  """Outcomes of all cells and seeds."""

  cells: list[Cell]
  validation: np.ndarray  # [cells, seeds], mean accuracy of classes at the end
  test: np.ndarray  # [cells, seeds, classes], accuracy on each class
  gap: np.ndarray  # [cells, seeds], sibling gap; NaN without super-classes
  change: np.ndarray  # [cells, seeds, epochs], by the matching before each epoch
  points: np.ndarray  # prototypes [cells, seeds, classes, dim]; row k is class k's

  def best(self, dim: int, *names: str) -> int:
    """Number of the cell of these methods with the best mean validation accuracy."""
    candidates = [
      number
      for number, cell in enumerate(self.cells)
      if cell.name in names and cell.dim == dim
    ]
    # A rate at which a run diverged is never chosen.
    return max(
      candidates, key=lambda x: np.nan_to_num(self.validation[x].mean(), nan=-1.0)
    )

  def accuracy(self, dim: int, *names: str) -> np.ndarray:
    """Mean test accuracy of the classes in the best cell, [seeds]."""
    return self.test[self.best(dim, *names)].mean(-1)


class Study(NamedTuple):
  """The trainings of one network on one data set."""

  name: str
  runs: Runs
  tail: int = 0  # number of rare classes, the last ones; 0 for balanced training data
  seconds: float = 0.0  # of all trainings; NaN if they resumed from a checkpoint

  @property
  def data(self) -> str:
    """The data set, without the network."""
    return self.name.split(", ")[0]

  @property
  def of_images(self) -> bool:
    """True if a residual network was trained on images."""
    return self.name.endswith(", resnet")

  @property
  def dims(self) -> list[int]:
    return list(dict.fromkeys(cell.dim for cell in self.runs.cells))

  def methods(self) -> list[tuple[str, int]]:
    return list(dict.fromkeys((cell.name, cell.dim) for cell in self.runs.cells))

  def has(self, dim: int, *names: str) -> bool:
    """True if the study trained all of these methods in a dimension."""
    trained = {cell.name for cell in self.runs.cells if cell.dim == dim}
    return bool(trained) and trained >= set(names)


def _columns(
  cells: Sequence[Cell], seeds: int, task: tasks.Task, dim: int, sources: list[Source]
) -> dict[str, np.ndarray]:
  """Hyperparameters [cells x seeds], where the seed varies fastest.

  The seed is a column, too, by which a run finds its data and prototypes.
  """
  seed = np.tile(np.arange(seeds), len(cells))
  numbers = np.array([cell.method for cell in cells], np.float32)
  by_cell = {
    "source": [sources.index((cell.source, cell.dim)) for cell in cells],
    "used": np.array([np.arange(dim) < cell.dim for cell in cells], np.float32),
    "rate": np.array([cell.rate for cell in cells], np.float32),
    **dict(zip(Method._fields, numbers.T, strict=True)),
  }
  columns = {name: np.repeat(x, seeds, axis=0) for name, x in by_cell.items()}
  return {"seed": seed, "data": seed * (len(task.train.labels) > 1), **columns}


def _optimizer(setting: Training) -> optax.GradientTransformation:
  # The state's scale multiplies the learning rate 1.
  return optax.sgd(1.0, momentum=setting.momentum)


def _init(
  setting: Training, sets: Array, example: Array, key: Array, hyper: Hyper
) -> TrainState:
  """Draws a network, prototypes and assignment; `sets` is [sources, seeds, C, D]."""
  key = jax.random.fold_in(key, hyper["seed"])
  network_key, points_key, match_key, step_key = jax.random.split(key, 4)
  used = hyper["used"]
  fixed = sets[hyper["source"], hyper["seed"]]
  start = jax.random.normal(points_key, fixed.shape) * used[None] / jnp.sqrt(used.sum())
  points = jnp.where(hyper["learned"] > 0, start, fixed)
  network = Network(setting.network, setting.dim).init(network_key, example, used)
  matching = dl2p_methods.first_matching(
    match_key, points, used=used, shuffled=hyper["shuffled"]
  )
  loss = {"params": {"points": points}, "batch_stats": {"assignment": matching}}
  state = training.create_state(step_key, _optimizer(setting), network, loss)
  return state.replace(learning_rate_scale=hyper["rate"])


def _step(
  setting: Training, part: tasks.Part, state: TrainState, key: Array, hyper: Hyper
) -> tuple[TrainState, dict[str, Array]]:
  del key  # each run has a key in its state
  count = part.labels.shape[1]
  rows = data.shuffled_indices(state.key, count, state.step, batch_size=setting.batch)
  network = Network(setting.network, setting.dim)
  method = _method(hyper)
  objective = functools.partial(
    dl2p_methods.objective,
    prepare=data.random_flip if setting.augment else lambda _, inputs: inputs,
    network=lambda params, _, x, key: (
      dl2p_methods.embed(network, {"params": params}, x, hyper["used"]),
      None,
    ),
    method=method,
  )
  step = training.reassign(
    training.make_step(objective, _optimizer(setting)),
    state.params["loss"]["points"],
    steps_per_epoch=count // setting.batch,
    updates_per_epoch=method.updates,
  )
  batch = {
    "image": part.inputs[hyper["data"], rows],
    "label": part.labels[hyper["data"], rows],
  }
  state, reported = step(state, batch)
  return state, {"loss": reported["loss"], "change": reported["change"]}


def _method(hyper: Hyper) -> Method:
  return Method._make(hyper[field] for field in Method._fields)


def _accuracies(
  setting: Training, part: tasks.Part, state: TrainState, hyper: Hyper
) -> Array:
  """Share of the examples of each class that are predicted correctly, [classes]."""
  network = Network(setting.network, setting.dim)
  inputs, labels = part.inputs[hyper["data"]], part.labels[hyper["data"]]
  predicted = dl2p_methods.classify(
    _method(hyper), network, state, inputs, hyper["used"]
  )
  one_hot = jax.nn.one_hot(labels, len(state.params["loss"]["points"]))
  return (predicted == labels) @ one_hot / one_hot.sum(0)


def _validate(
  setting: Training, part: tasks.Part, state: TrainState, key: Array, hyper: Hyper
) -> Array:
  del key
  return _accuracies(setting, part, state, hyper).mean()


def _measure(
  setting: Training, part: tasks.Part, groups: Array, run: tuple[TrainState, Hyper]
) -> dict[str, Array]:
  state, hyper = run
  points = state.params["loss"]["points"]
  assignment = state.batch_stats["loss"]["assignment"].assignment
  return {
    "test": _accuracies(setting, part, state, hyper),
    "gap": prototypes.sibling_gap(points, assignment, groups),
    "points": points[assignment],
  }


def train(
  setting: Training,
  task: tasks.Task,
  cells: Sequence[Cell],
  sets: dict[Source, Array],
  *,
  key: Array,
  seeds: int,
  folder: pathlib.Path,
) -> Runs:
  """Trains all cells with all seeds from the prototypes of `cells.fixed_sets`."""
  stacked = np.zeros((len(sets), seeds, task.classes, setting.dim), np.float32)
  for number, ((_, dim), points) in enumerate(sets.items()):
    stacked[number, :, :, :dim] = points
  columns = _columns(cells, seeds, task, setting.dim, list(sets))
  per_epoch = task.train.labels.shape[1] // setting.batch
  partial, bound = jax.tree_util.Partial, frame_training.bound
  result = frame_training.many(
    key,
    (
      partial(bound(_init, setting), jnp.asarray(stacked), task.train.inputs[0, :1]),
      partial(bound(_step, setting), task.train),
      partial(bound(_validate, setting), task.validation),
    ),
    columns,
    folder,
    convolutional=setting.network == "resnet",
    batch_size=_BLOCK,
    seeds=1,
    steps=setting.epochs * per_epoch,
    evaluate_every=per_epoch,
  )
  groups = task.superclasses
  superclasses = jnp.arange(task.classes) if groups is None else jnp.asarray(groups)
  # One after another: feature maps of all runs and images would fill the memory.
  runs = result.state, {name: column[:, None] for name, column in columns.items()}
  measure = functools.partial(_measure, setting)
  measures = frame_training.over_models(measure, runs, task.test, superclasses)
  scores = np.where(result.diverged, np.nan, result.scores[..., -1])
  arrays = {"validation": scores, "change": result.curves["change"], **measures}
  by_seed = {
    name: np.reshape(values, (len(cells), seeds, *values.shape[2:]))
    for name, values in arrays.items()
  }
  return Runs(list(cells), **by_seed)
