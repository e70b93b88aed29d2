"""The small trainings of `dynamic_assignment`: their cells and fixed prototypes."""

import functools
import math
import pathlib
import time
from collections.abc import Sequence

import jax

from experiments.assignment import methods as dl2p_methods
from experiments.assignment import tasks, training
from experiments.assignment.methods import RECIPES
from experiments.assignment.settings import Config
from experiments.assignment.training import Cell, Study, Training
from experiments.frame import kept, results

# Dimension of the trainings that are not repeated for every dimension.
FEW = 5


def make_cells(
  config: Config, methods: Sequence[str], dims: Sequence[int], task: tasks.Task
) -> list[Cell]:
  """Returns a cell for every dimension, method and learning rate."""
  return [
    Cell(name, dim, *RECIPES[name], rate)
    for dim in dims
    for name in methods
    if name in dl2p_methods.EVERYWHERE
    or (task.name == "siblings" and dim == task.classes - 1)
    for rate in config.rates
  ]


def more_matchings(config: Config) -> list[Cell]:
  """Returns cells of DL2P with other numbers of matchings per epoch."""
  method, source = RECIPES["DL2P"]
  return [
    Cell(f"DL2P, r = {r:g}", FEW, method._replace(updates=r), source, rate)
    for r in config.updates
    for rate in config.rates
  ]


def tail_cells(config: Config, dim: int) -> list[Cell]:
  """Returns cells of PSC, and of the pull loss with equal weight for every class."""
  cells = []
  for name in ("PSC, cosine", "PSC, linear", "Static", "DL2P"):
    method, source = RECIPES[name]
    pull = not method.softmax
    label = f"{name}, weighted" if pull else name
    variant = method._replace(weighted=float(pull))
    cells += [Cell(label, dim, variant, source, rate) for rate in config.rates]
  return cells


def image_cells(config: Config, task: tasks.Task, dim: int) -> list[Cell]:
  """Returns cells for images; under a long tail also those of the weighted methods."""
  cells = make_cells(config, dl2p_methods.EVERYWHERE, (dim,), task)
  names = {cell.name for cell in cells}
  if task.tail:
    cells += [cell for cell in tail_cells(config, dim) if cell.name not in names]
  return cells


def fixed_sets(
  cells: Sequence[Cell], task: tasks.Task, seeds: int, key: jax.Array
) -> dict[tuple[str, int], jax.Array]:
  """Fixed prototypes [seeds, classes, dim] of every source and dimension."""
  keys = jax.random.split(key, seeds)
  vectors = None
  if task.tree is not None:
    vectors = dl2p_methods.word_vectors(task.tree, key)
  sets = {}
  for source, dim in sorted({(cell.source, cell.dim) for cell in cells}):
    if source != dl2p_methods.LEARNED:
      make = functools.partial(
        dl2p_methods.fixed_set, source, classes=task.classes, dim=dim, vectors=vectors
      )
      sets[source, dim] = jax.jit(jax.vmap(make))(keys)
  return sets


def conduct(
  config: Config,
  task: tasks.Task,
  network: str,
  cells: Sequence[Cell],
  output: pathlib.Path,
  *,
  epochs: int,
  seeds: int,
  batch: int = 64,
) -> Study:
  start = time.perf_counter()
  train_key, set_key = jax.random.split(
    jax.random.fold_in(jax.random.key(config.seed), 1)
  )
  dim = max(cell.dim for cell in cells)
  setting = Training(network, dim, epochs, batch, augment=task.flips)
  name = f"{task.name}, {network}"
  settings = setting, seeds, config.seed, config.counts, config.image_size
  settings += (config.imbalance,)
  folder = output / "checkpoints" / kept.digest((settings, name, cells))
  seconds_file, fresh = folder.with_suffix(".json"), not folder.exists()
  sets = fixed_sets(cells, task, seeds, set_key)
  runs = training.train(
    setting, task, cells, sets, key=train_key, seeds=seeds, folder=folder
  )
  seconds = math.nan
  if fresh:
    seconds = time.perf_counter() - start
    results.write_json({"seconds": seconds}, seconds_file)
  elif seconds_file.is_file():
    seconds = kept.read_record(seconds_file, "seconds")["seconds"]
  return Study(name, runs, task.tail, seconds)
