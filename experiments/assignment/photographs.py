"""DL2P at the paper's scale: every table's networks, image sets and schedules.

Trainings run one after another on all devices through `training.fit`. Each has its own
checkpoints, so the same command resumes a stopped run.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.typing import Collection, VariableDict
from jax import Array

from experiments.assignment import methods, readers
from experiments.assignment.methods import LEARNED, LEARNED_BEFORE, NEVER, RECIPES
from experiments.assignment.settings import Full, Job
from experiments.frame import kept
from experiments.frame import training as frame_training
from spherejax import data, models, training

BACKBONES: dict[str, Callable[[], nn.Module]] = {
  "resnet50": models.ResNet50, "resnet101": models.ResNet101, "swin_t": models.SwinT,
}  # fmt: skip


class Network(nn.Module):
  """Backbone, average pooling, linear layer, optional BatchNorm."""

  config: Full
  dim: int

  @nn.compact
  def __call__(self, images: Array, *, train: bool = False) -> Array:
    c = self.config
    if c.network == "resnet32":
      widths = (c.width, 2 * c.width, 4 * c.width)
      backbone = models.ResNet32(widths=widths, shortcut="projection_3x3")
    else:
      backbone = BACKBONES[c.network]()
    x = nn.Dense(self.dim)(backbone(images, train=train).mean((1, 2)))
    if c.feature_norm:
      x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
    return x


def forward(
  network: Network, params: Collection, stats: methods.Stats, images: Array, key: Array
) -> tuple[Array, methods.Stats]:
  """Embeddings of a training batch and the statistics after it."""
  embeddings, updated = frame_training.forward(
    network, params, stats or {}, images, rngs={"dropout": key}
  )
  return embeddings, updated or None


def prepare(config: Full, key: Array, images: Array) -> Array:
  """Augments the images of a training batch."""
  crop_key, flip_key = jax.random.split(key)
  x = data.to_float(images)
  if config.crop == "padded":
    x = data.random_crop(crop_key, x, padding=config.image_size // 8)
  else:
    size, area = config.image_size, (0.08, 1.0)
    x = data.random_resized_crop(crop_key, x, size=size, area=area)
  return standard(data.random_flip(flip_key, x))


def standard(images: Array) -> Array:
  return (images - 0.5) / 0.25


def schedule(config: Full, per_epoch: int) -> optax.Schedule:
  """The learning rate of each step."""
  steps = config.epochs * per_epoch
  warm_up = config.warm_up * per_epoch

  def value(step: Any) -> Array:
    if config.drops:
      ends = jnp.array(config.drops) * per_epoch
      rate = config.learning_rate * 0.1 ** jnp.sum(step >= ends)
    else:
      progress = jnp.clip((step - warm_up) / max(steps - warm_up, 1), 0, 1)
      rate = config.learning_rate * 0.5 * (1 + jnp.cos(jnp.pi * progress))
    if config.drops and warm_up:  # rises per epoch: 1/5, 2/5, ... (public code)
      return rate * jnp.minimum((step // per_epoch + 1) / config.warm_up, 1)
    return rate * jnp.minimum((step + 1) / max(warm_up, 1), 1)

  return value


def make_optimizer(
  config: Full, per_epoch: int, *, fixed: bool
) -> optax.GradientTransformation:
  """Returns the network's optimiser, which also trains prototypes unless fixed."""
  rates = schedule(config, per_epoch)
  if config.optimizer == "adamw":
    trained = optax.adamw(rates, weight_decay=config.weight_decay)
  else:
    decay = optax.add_decayed_weights(config.weight_decay)
    trained = optax.chain(decay, optax.sgd(rates, momentum=0.9))
  return training.optimizer(
    {"network": trained, "loss": optax.set_to_zero() if fixed else trained}
  )


class Trained(NamedTuple):
  """Outcome of one training."""

  accuracy: float  # accuracy on test images
  validation: float  # accuracy on held-out images; NaN without them
  points: np.ndarray
  changes: np.ndarray  # share of classes that matchings reassign, averaged per epoch


@functools.lru_cache(maxsize=2)
def _init(config: Full, dim: int) -> Callable[[Array, Array], VariableDict]:
  """Returns the network's variables for a key and an image; compiles only once."""
  return jax.jit(Network(config, dim).init)


@functools.lru_cache(maxsize=2)
def make_accuracy(
  config: Full, method: methods.Method, dim: int
) -> Callable[[training.TrainState, data.Images], float]:
  """Returns a function of a state and images: the share of correct predictions.

  Equal settings, methods and dimensions share a function, hence a compiled program.
  """
  network = Network(config, dim)

  def is_correct(state: training.TrainState, rows: dict[str, Array]) -> Array:
    x = data.to_float(rows["image"])
    x = standard(data.center_crop(x, config.image_size))
    return methods.classify(method, network, state, x) == rows["label"]

  apply = training.parallel_map(is_correct, batch_size=config.batch)

  def accuracy(state: training.TrainState, images: data.Images) -> float:
    # Every process evaluates all images, so that all agree.
    plan = data.ordered_plan(len(images), batch_size=config.batch)
    batches = data.pipeline(images, plan, process_index=0, process_count=1)
    predicted = [apply(state, {k: b[k] for k in ("image", "label")}) for b in batches]
    return float(np.concatenate(predicted)[: len(images)].mean())

  return accuracy


def train(
  config: Full,
  job: Job,
  sets: readers.Sets,
  points: Array | None,
  key: Array,
  folder: pathlib.Path,
) -> Trained:
  """Runs one training; `points` are fixed prototypes, or None to learn them."""
  fixed = points is not None
  weighted = float(config.weighted and fixed)
  method = RECIPES[job.method].method._replace(weighted=weighted)
  if job.method == "PSC*":
    method = method._replace(uniformity=job.uniformity or 0.0)
  total = config.total and not method.softmax  # a softmax is never summed
  if total:
    method = method._replace(scale=2.0)  # the sum of (1 - cos)^2 without its half
  init_key, points_key, match_key, step_key, data_key = jax.random.split(key, 5)
  per_epoch = frame_training.steps_per_epoch(sets.train, config.batch)
  if points is None:
    shape = len(sets.train.label_names), job.dim
    points = jax.random.normal(points_key, shape) / math.sqrt(job.dim)
  example = jnp.zeros((1, config.image_size, config.image_size, 3))
  optimizer = make_optimizer(config, per_epoch, fixed=fixed)
  matching = methods.first_matching(match_key, points, shuffled=method.shuffled)
  network = _init(config, job.dim)(init_key, example)
  loss = {"params": {"points": points}, "batch_stats": {"assignment": matching}}
  state = training.create_state(step_key, optimizer, network, loss)
  objective = functools.partial(
    methods.objective,
    prepare=functools.partial(prepare, config),
    network=functools.partial(forward, Network(config, job.dim)),
    method=method,
    mixup=config.mixup,
    skip_mixed=config.skip_mixed,
    total=total,
  )
  step = training.make_step(objective, optimizer)
  if method.updates != NEVER:
    step = training.reassign(
      step, points, steps_per_epoch=per_epoch, updates_per_epoch=job.updates
    )
  accuracy = make_accuracy(config, method, job.dim)
  with training.Checkpoints(folder) as checkpoints:
    result = training.fit(
      state,
      step,
      data.batches(sets.train, data_key, batch_size=config.batch),
      checkpoints=checkpoints,
      steps=config.epochs * per_epoch,
      evaluate=lambda state: {"accuracy": accuracy(state, sets.test)},
      evaluate_every=config.evaluate_every * per_epoch,
      checkpoint_every=per_epoch,
      report_every=per_epoch,
    )
  return Trained(
    result.evaluations[-1]["accuracy"],
    math.nan if sets.validation is None else accuracy(result.state, sets.validation),
    np.asarray(result.state.params["loss"]["points"]),
    np.array([report["change"] for report in result.curve]),
  )


def fixed_points(config: Full, job: Job, sets: readers.Sets) -> Array | None:
  """A job's fixed prototypes, equal for all seeds; None for learned ones."""
  source = RECIPES[job.method].source
  if source in (LEARNED, LEARNED_BEFORE):
    return None
  key = jax.random.fold_in(jax.random.key(config.seed), 1)
  classes = len(sets.train.label_names)
  vectors = None
  if source in methods.FROM_NAMES:
    vectors = readers.class_vectors(config.vectors, sets, key)
  return methods.fixed_set(source, key, classes, job.dim, vectors, potential=True)


def run_job(
  config: Full,
  job: Job,
  sets: readers.Sets,
  seed: int,
  output: pathlib.Path,
  earlier: dict[str, Trained],
) -> Trained:
  """Runs one job of the plan; for PSC*, one training per weight of uniformity."""
  points = fixed_points(config, job, sets)
  if RECIPES[job.method].source == LEARNED_BEFORE:
    learned = earlier[job.label].points
    points = jnp.asarray(learned / np.linalg.norm(learned, axis=1, keepdims=True))
  key = jax.random.fold_in(jax.random.key(config.seed), 2 + seed)
  weights = config.uniformities if job.uniformity is None else (job.uniformity,)
  settings, trainings = dataclasses.replace(config, jobs=(), trainings=()), []
  for weight in weights if job.method == "PSC*" else (None,):
    candidate = dataclasses.replace(job, uniformity=weight)
    folder = output / "trainings" / kept.digest((settings, candidate, seed))
    trainings.append(train(config, candidate, sets, points, key, folder))
  if len(trainings) > 1 and np.isnan(trainings[0].validation):
    raise ValueError(
      f"{job.label}: PSC* chooses among {len(weights)} weights on validation images; "
      "set validation above 0 or give one weight"
    )
  return max(trainings, key=lambda candidate: candidate.validation)


def read_sets(config: Full, job: Job) -> readers.Sets:
  resized = config.crop == "resized"
  return readers.load(
    job.images,
    size=round(config.image_size * 256 / 224) if resized else config.image_size,
    lazy=resized,
    imbalance=job.imbalance,
    validation=config.validation,
    listing=config.listing,
    key=jax.random.fold_in(jax.random.key(config.seed), 0),
  )
