"""Trains all variants of a pooled network for a seed, with a checkpoint per part."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from flax.typing import MutableVariableDict, VariableDict
from jax import Array

from experiments.frame import command
from experiments.frame import kept as finished
from experiments.frame import training as frame_training
from experiments.gsp import network as pooled_network
from spherejax import data, models, training

_MEMORY = 1000  # images among whose features prototypes are chosen


@functools.partial(jax.jit, static_argnames=("settings", "classes"))
def _initial_state(
  key: Array, images: Array, *, settings: pooled_network.Settings, classes: int
) -> training.TrainState:
  network_key, proxy_key, label_key, step_key = jax.random.split(key, 4)
  parts = pooled_network.loss_parameters(settings, classes, proxy_key, label_key)
  optimizer = pooled_network.make_optimizer(settings)
  network = pooled_network.Network(settings).lazy_init(network_key, images[:1])
  return training.create_state(step_key, optimizer, network, {"params": parts})


@functools.partial(jax.jit, static_argnames=("settings", "classes"))
def _some_steps(
  state: training.TrainState,
  images: Array,
  labels: Array,
  table: data.ClassTable,
  key: Array,
  variant: pooled_network.Variant,
  *,
  settings: pooled_network.Settings,
  classes: int,
) -> tuple[training.TrainState, Array]:
  """Compiles some steps of a training as one program."""

  def objective(params, stats, batch, *, key, axis_name):
    del key, axis_name  # nothing is drawn, and one device is enough
    images, labels = batch
    network = pooled_network.Network(settings)
    result, updated = frame_training.forward(
      network, params["network"], stats.get("network", {}), images, variant.mass
    )
    loss = pooled_network.mixture(
      settings, classes, params["loss"], result, labels, variant.zero_shot_weight
    )
    return training.Outcome(loss, {"network": updated} if stats else None)

  step = training.make_step(objective, pooled_network.make_optimizer(settings))
  batch_classes = min(classes, settings.batch_classes)
  sizes = {"num_classes": batch_classes, "per_class": settings.per_class}

  def one_step(state, _):
    rows = data.class_balanced_indices(key, table, state.step, **sizes)
    state, values = step(state, (images[rows], labels[rows]))
    return state, values["loss"]

  return jax.lax.scan(one_step, state, length=settings.steps // settings.parts)


def _with_prototypes(
  settings: pooled_network.Settings, state: training.TrainState, images: data.Images
) -> training.TrainState:
  """Chooses the pooling's prototypes, if it has any, among the averages of images."""
  if settings.pooling == "gap":
    return state
  pooled = pooled_network.embed(state, images[:_MEMORY], settings).pooled
  # Pooled features that cover the others best (DML Algorithm 2).
  network = models.replace_prototypes(
    state.params["network"], pooled, path=pooled_network.PROTOTYPES
  )
  return state.replace(params=state.params | {"network": network})


def _with_backbone(
  tree: MutableVariableDict, other: VariableDict
) -> MutableVariableDict:
  """Replaces the backbone's parameters or statistics by those of another network."""
  if "backbone" not in tree.get("network", {}):
    return tree
  network = tree["network"] | {"backbone": other["network"]["backbone"]}
  return tree | {"network": network}


class Run(NamedTuple):
  """A trained network, with the mean loss and the score of each part."""

  state: training.TrainState
  curve: tuple[float, ...]
  scores: tuple[float, ...] = ()


def pretrain(
  settings: pooled_network.Settings,
  steps: int,
  seed: int,
  images: data.Images,
  folder: pathlib.Path,
  *,
  progress: bool = True,
) -> training.TrainState | None:
  """Trains a classifier of single images, from which DML starts; None for no steps."""
  if not steps:
    return None
  settings = dataclasses.replace(settings, loss="proxy_nca", pooling="gap", steps=steps)
  variants = {"": pooled_network.AVERAGE}
  return train(settings, seed, variants, images, folder, progress=progress)[""].state


def train(
  settings: pooled_network.Settings,
  seed: int,
  variants: Mapping[str, pooled_network.Variant],
  images: data.Images,
  folder: pathlib.Path,
  *,
  pretrained: training.TrainState | None = None,
  after: Callable[[Run, pooled_network.Variant], Run] | None = None,
  progress: bool = True,
) -> dict[str, Run]:
  """Trains all variants from one seed, with a checkpoint per part in the folder.

  They share the first part, which uses average pooling, so that prototypes are chosen
  among features that already mean something. They start from the backbone of
  `pretrained` or from random weights. `after` changes a run after each later part.
  """
  labels, names = images.labels, images.label_names
  static = {"settings": settings, "classes": len(names)}
  init_key, data_key = jax.random.split(jax.random.key(seed))
  state = _initial_state(init_key, images.images[:1], **static)
  if pretrained is not None:
    state = state.replace(
      params=_with_backbone(state.params, pretrained.params),
      batch_stats=_with_backbone(state.batch_stats, pretrained.batch_stats),
    )
  if not settings.steps:
    return {name: Run(state, ()) for name in variants}
  table = data.class_table(labels, per_class=settings.per_class, label_names=names)
  batches = jnp.asarray(images.images), jnp.asarray(labels), table, data_key
  leaves = jax.tree.leaves((state.params, state.batch_stats))
  # Other settings of an experiment, such as more seeds, change no training.
  shared = command.only(pooled_network.Settings, settings)
  identity = _MEMORY, finished.fingerprint([images.images, images.labels, *leaves])
  title = f"seed {seed} of {settings.pooling}"
  total = 1 + len(variants) * (settings.parts - 1)
  bar = tqdm.tqdm(total=total, unit="part", disable=not progress)

  def until(run: Run, parts: int, variant: pooled_network.Variant, name: str) -> Run:
    """Trains until `parts` parts are done, from the last checkpoint."""
    path = folder / f"{name}-{finished.digest((shared, seed, variant, *identity))}"
    numbers = pooled_network.Variant(*map(jnp.float32, variant))
    with training.Checkpoints(path) as checkpoints:
      if (restored := checkpoints.restore(run.state)) is not None:
        parts_before, record = len(run.curve), restored.record
        run = Run(restored.state, tuple(record["curve"]), tuple(record["scores"]))
        bar.update(len(run.curve) - parts_before)
      while len(run.curve) < parts:
        state, values = _some_steps(run.state, *batches, numbers, **static)
        loss = mean_loss(np.asarray(values), int(run.state.step), title, path)
        trained = Run(state, (*run.curve, loss), run.scores)
        run = after(trained, variant) if after and run.curve else trained
        bar.set_postfix(loss=f"{loss:.3f}")
        bar.update()
        checkpoints.save(run.state, {"curve": run.curve, "scores": run.scores})
    return run

  with bar:
    start = until(Run(state, ()), 1, pooled_network.AVERAGE, "start")
    start = start._replace(state=_with_prototypes(settings, start.state, images))
    return {x: until(start, settings.parts, y, "on") for x, y in variants.items()}


def mean_loss(losses: np.ndarray, step: int, what: str, folder: pathlib.Path) -> float:
  """Mean loss of the steps after `step`; raises if one of them is not finite."""
  bad = np.flatnonzero(~np.isfinite(losses))
  if len(bad):
    raise FloatingPointError(
      f"{what}: the loss is {losses[bad[0]]} at step {step + bad[0] + 1}; its last "
      f"checkpoint: {f'step {step} in {folder}' if step else 'none'}"
    )
  return float(losses.mean())
