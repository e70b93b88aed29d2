"""Trains pooling heads on frozen maps, for the screening.

The maps come from one network. The learned parameters are the 1x1 convolution, the
prototypes, and the proxies or label embeddings of the losses.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax.typing import Collection
from jax import Array

from experiments.frame import kept
from experiments.frame import training as frame_training
from experiments.gsp import collages, network, screening_cells
from experiments.gsp import training as pooled_training
from experiments.gsp.network import LOSSES, Settings, make_optimizer, mixture
from spherejax import data, metrics, models, pooling, training

Hyper = Mapping[str, Array | float]


class State(NamedTuple):
  """State of one training."""

  train: training.TrainState
  apart: Array  # largest relative distance so far of pooled vectors from the average


class Maps(NamedTuple):
  """Feature maps of labelled collages, and the rows of each class."""

  features: Array  # [count, positions, channels]
  labels: Array  # [count]
  table: data.ClassTable


def apply_head(
  settings: Settings, params: Collection, features: Array, hyper: Hyper
) -> models.HeadResult:
  """Generalized sum pooling of the projected maps."""
  result = _head(settings, hyper).apply({"params": params}, features)
  return cast(models.HeadResult, result)


def _head(settings: Settings, hyper: Hyper) -> models.EmbeddingHead:
  numbers = hyper["mass"], hyper["inverse_temperature"]
  pool = models.GSP(settings.prototypes, *numbers, name="pooling")
  return models.EmbeddingHead(settings.dim, pool, settings.normalization)


def init(
  settings: Settings, classes: int, maps: Maps, key: Array, hyper: Hyper
) -> State:
  """Draws a head; chooses its prototypes among its averages (DML Algorithm 2)."""
  # All cells of a seed begin alike: at mass 1 the other hyperparameters do nothing.
  hyper = {**hyper, "mass": 1.0}
  head_key, row_key, proxy_key, label_key = jax.random.split(key, 4)
  rows = jax.random.permutation(row_key, len(maps.labels))[:1024]
  variables = _head(settings, hyper).init(head_key, maps.features[:1])
  pooled = apply_head(settings, variables["params"], maps.features[rows], hyper).pooled
  head = models.replace_prototypes(variables["params"], pooled, path=network.PROTOTYPES)
  losses = network.loss_parameters(settings, classes, proxy_key, label_key)
  optimizer, parts = make_optimizer(settings), ({"params": head}, {"params": losses})
  state = training.create_state(key, optimizer, *parts)  # batches use the sweep's key
  return State(state, jnp.float32(0))


def step(
  settings: Settings, classes: int, maps: Maps, state: State, key: Array, hyper: Hyper
) -> tuple[State, dict[str, Array]]:
  """Runs one step on a mixture of a metric loss and zero-shot prediction."""
  number = min(classes, settings.batch_classes)
  rows = data.class_balanced_indices(
    key, maps.table, state.train.step, num_classes=number, per_class=settings.per_class
  )

  def objective(params, batch_stats, batch, *, key, axis_name):
    del batch_stats, key, axis_name
    features, labels = batch
    result = apply_head(settings, params["network"], features, hyper)
    weight = hyper["zero_shot_weight"]
    loss = mixture(settings, classes, params["loss"], result, labels, weight)
    average = pooling.gap(features @ params["network"]["Dense_0"]["kernel"])
    shift = jnp.abs(result.pooled - average).max() / jnp.abs(average).max()
    return training.Outcome(loss, metrics={"apart": shift})

  take = training.make_step(objective, make_optimizer(settings))
  train, reported = take(state.train, (maps.features[rows], maps.labels[rows]))
  shift = jnp.maximum(state.apart, reported["apart"])
  return State(train, shift), {"loss": reported["loss"]}


def evaluate(
  settings: Settings,
  labels: tuple[int, ...],
  features: Array,
  state: State,
  key: Array,
  hyper: Hyper,
) -> Array:
  """MAP@R among the validation collages."""
  del key  # always the same collages
  result = apply_head(settings, state.train.params["network"], features, hyper)
  retrieved = metrics.retrieval(result.embeddings, np.array(labels))
  return metrics.mean_where(retrieved.map_at_r, retrieved.counted)


def train(
  config: screening_cells.Config,
  loss: str,
  seed: int,
  maps: Maps,
  validation: Maps,
  output: pathlib.Path,
) -> dict[screening_cells.Cell, tuple[float, float]]:
  """MAP@R of each cell, and how far pooled vectors were from the average."""
  trained, columns = {}, list(screening_cells.LEVELS)[1:]
  by_number: dict[int, list[screening_cells.Cell]] = {}
  for cell in config.plan.cells:
    by_number.setdefault(int(cell[0]), []).append(cell)
  programs = [
    (number, cells[first : first + config.at_once])
    for number, cells in by_number.items()
    for first in range(0, len(cells), config.at_once)
  ]
  made_of = kept.digest(dataclasses.replace(config, seeds=1))
  classes = len(np.unique(maps.labels))
  labels = tuple(np.asarray(validation.labels).tolist())
  partial, bound = jax.tree_util.Partial, frame_training.bound
  for part, (number, cells) in enumerate(programs):
    settings = dataclasses.replace(
      config, pooling="gsp", loss=LOSSES[loss], prototypes=number
    )
    result = frame_training.many(
      jax.random.key(seed),
      (
        partial(bound(init, settings, classes), maps),
        partial(bound(step, settings, classes), maps),
        partial(bound(evaluate, settings, labels), validation.features),
      ),
      dict(zip(columns, np.transpose(cells)[1:], strict=True)),
      output / "kept" / f"{loss}-{seed}-{part}-{made_of}",
      title=f"seed {seed} of {loss}, {number} prototypes",
      seeds=1,
      steps=config.head_steps,
      evaluate_every=config.head_steps // 2,
    )
    # The end of the training: choosing the best would be fitting the validation set.
    score, shift = result.scores[:, 0, -1], np.asarray(result.state.apart)[:, 0]
    trained |= dict(zip(cells, zip(score, shift, strict=True), strict=True))
  return trained


def frozen_maps(
  config: screening_cells.Config,
  seed: int,
  source: collages.Source,
  output: pathlib.Path,
) -> tuple[Maps, Maps]:
  """Maps of training and validation collages from a network trained with GAP."""
  parts = collages.collages(source, jax.random.key(seed), most=config.most)
  train, validation = parts["train"].collages, parts["validation"].collages
  # The same labels for all seeds, which share compiled programs; backgrounds differ.
  order = np.random.default_rng(config.seed).permutation(len(validation))
  validation = validation[np.sort(order[: config.validation])]
  singles, folder = collages.single_images(source, config.per_class), output / "kept"
  start = pooled_training.pretrain(config, config.pretraining, seed, singles, folder)
  average = {"GAP": network.AVERAGE}
  runs = pooled_training.train(config, seed, average, train, folder, pretrained=start)
  params = runs["GAP"].state.params["network"]["backbone"]
  backbone = network.backbone(config)

  @jax.jit
  def features(params, pixels):
    return backbone.apply({"params": params}, data.to_float(pixels) - 0.5)

  def maps(images: data.Images, per_class: int) -> Maps:
    blocks = np.array_split(np.asarray(images.images), -(-len(images) // 250))
    extracted = np.concatenate([features(params, block) for block in blocks])
    flat = extracted.reshape(len(images), -1, extracted.shape[-1])
    table = data.class_table(images.labels, per_class=per_class)
    return Maps(jnp.asarray(flat), jnp.asarray(images.labels), table)

  return maps(train, config.per_class), maps(validation, 1)
