"""Many small trainings as one program, and parts that all trainings share."""

import functools
import pathlib
from collections.abc import Callable, Hashable, Mapping, Sequence, Sized
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import optax
from jax import Array
from numpy.typing import ArrayLike

from spherejax import training

Tree = Any
"""A pytree of arrays."""
Hyper = Mapping[str, Array]
"""Hyperparameters of a run, by name."""
Function = Callable[..., Tree]


class State(NamedTuple):
  """State of one training of `many`."""

  params: Tree
  opt_state: optax.OptState


def many(
  key: Array,
  functions: tuple[Function, Function, Function],
  cells: Mapping[str, Sequence[ArrayLike] | np.ndarray],
  folder: pathlib.Path,
  *,
  title: str = "",
  convolutional: bool = False,
  batch_size: int | None = None,
  seeds: int | Sequence[int],
  steps: int,
  evaluate_every: int,
  patience: int | None = None,
  margin: float = 0.0,
  progress: bool = True,
) -> training.SweepResult:
  """Trains all cells with all seeds; resumes from a folder.

  Args:
    key: random key of the whole sweep.
    functions: `init`, `step` and `evaluate` of `training.sweep`.
    cells: hyperparameters by name, a column each.
    folder: folder of the checkpoints.
    title: title of the training; if given, a diverged run is an error.
    convolutional: whether every run has convolutions of its own.
    batch_size: number of runs at once, if they have no convolutions; None: all.
    seeds: seeds of every cell, or their number.
    steps: steps of every training.
    evaluate_every: steps from one evaluation to the next.
    patience: evaluations without a gain after which a run stops; None: it goes on.
    margin: least gain of the score.
    progress: whether to show the progress.

  Raises:
    FloatingPointError: a run of a training with a title diverged.
  """
  if convolutional:  # with other weights for every run, these are slow on a CPU
    batch_size = 1 if jax.default_backend() == "cpu" else None
  with training.Checkpoints(folder) as checkpoints:
    result = training.sweep(
      key, *functions, cells, seeds=seeds, steps=steps, evaluate_every=evaluate_every,
      patience=patience, margin=margin, checkpoints=checkpoints, batch_size=batch_size,
      progress=progress,
    )  # fmt: skip
  if title and result.diverged.any():
    failed = np.flatnonzero(result.diverged.any(1))
    values = [
      {name: column[i] for name, column in cells.items()} for i in failed.tolist()
    ]
    raise FloatingPointError(
      f"{title}: {result.diverged.sum()} of {result.diverged.size} runs diverged, of"
      f" the cells {values}"
    )
  return result


@functools.cache
def bound(function: Function, *settings: Hashable) -> Function:
  """Binds settings; equal ones give one function, so that sweeps share its program."""
  return functools.partial(function, *settings)


def over_models(function: Function, models: Tree, *shared: Tree) -> Tree:
  """Results [cells, seeds, ...] of function(*shared, model), one model at a time."""
  return jax.tree.map(np.asarray, _over_models(function, models, shared))


@functools.partial(jax.jit, static_argnums=0)
def _over_models(function: Function, models: Tree, shared: Tree) -> Tree:
  def cell(seeds):
    return jax.lax.map(functools.partial(function, *shared), seeds)

  return jax.lax.map(cell, models)


def forward(
  network: nn.Module,
  params: Tree,
  stats: Tree,
  *inputs: ArrayLike,
  rngs: dict[str, Array] | None = None,
) -> tuple[Tree, Tree]:
  """Outputs of a network in training mode, and its statistics after them."""
  variables = {"params": params, "batch_stats": stats}
  outputs, updated = network.apply(
    variables, *inputs, train=True, mutable=["batch_stats"], rngs=rngs
  )
  return outputs, updated.get("batch_stats", {})


def descend(
  objective: Callable[[Tree], Array | tuple[Array, Tree]],
  optimizer: optax.GradientTransformation,
  params: Tree,
  opt_state: optax.OptState,
  *,
  has_aux: bool = False,
) -> tuple[Tree, Tree, optax.OptState]:
  """Takes one step; returns the objective's value, parameters and optimiser state."""
  value, grads = jax.value_and_grad(objective, has_aux=has_aux)(params)
  updates, opt_state = optimizer.update(grads, opt_state, params)
  return value, optax.apply_updates(params, updates), opt_state


def steps_per_epoch(images: Sized, batch: int, option: str = "batch") -> int:
  """Number of whole batches of the training images; ValueError for none."""
  if batch > len(images):
    raise ValueError(
      f"{option} must be at most the {len(images)} training images, got {batch}"
    )
  return len(images) // batch
