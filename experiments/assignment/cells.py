"""The small trainings of `dynamic_assignment`: their cells and fixed prototypes."""

import functools
import math
import pathlib
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from experiments.assignment import methods as dl2p_methods
from experiments.assignment import tasks, training
from experiments.assignment.methods import RECIPES
from experiments.assignment.settings import Config
from experiments.assignment.training import Cell, Study, Training
from experiments.frame import kept, results


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
  """Returns cells of DL2P with other numbers of matchings per epoch, in D = 5."""
  method, source = RECIPES["DL2P"]
  return [
    Cell(f"DL2P, r = {r:g}", 5, method._replace(updates=r), source, rate)
    for r in config.updates
    for rate in config.rates
  ]


def weighted_cells(config: Config, dim: int) -> list[Cell]:
  """Returns cells of the pull loss with equal weight for every class."""
  return [
    Cell(f"{name}, weighted", dim, method._replace(weighted=1.0), source, rate)
    for name, (method, source) in RECIPES.items()
    if name in ("Static", "DL2P")
    for rate in config.rates
  ]


def image_cells(config: Config, task: tasks.Task, dim: int) -> list[Cell]:
  """Returns cells for images; under a long tail also those of the weighted methods."""
  cells = make_cells(config, dl2p_methods.EVERYWHERE, (dim,), task)
  return cells + (weighted_cells(config, dim) if task.tail else [])


def fixed_sets(
  cells: Sequence[Cell], task: tasks.Task, seeds: int, key: jax.Array
) -> dict[training.Source, jax.Array]:
  """Prototypes [seeds, classes, dim] of every source; zeros if they are learned."""
  keys, sets = jax.random.split(key, seeds), {}
  vectors = None if task.tree is None else dl2p_methods.word_vectors(task.tree, key)
  for source, dim in sorted({(cell.source, cell.dim) for cell in cells}):
    if source == dl2p_methods.LEARNED:
      sets[source, dim] = jnp.zeros((seeds, task.classes, dim))
      continue
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
  key = jax.random.fold_in(jax.random.key(config.seed), 1)
  train_key, set_key = jax.random.split(key)
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
