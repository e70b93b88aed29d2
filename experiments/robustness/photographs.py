"""Networks of photographs at the paper's scale.

Each training runs on all devices through `training.fit` and has its own checkpoints,
so the same command resumes a stopped run.
"""

import functools
import itertools
from collections.abc import Callable
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tqdm
from flax.typing import VariableDict
from jax import Array

from experiments.frame import images as class_sets
from experiments.frame import kept
from experiments.frame import training as trainer
from experiments.frame.poolings import Headed
from experiments.frame.study import Table
from experiments.published import figures
from experiments.robustness import networks, structure
from experiments.robustness.images import CLASSES, Points, points_of
from experiments.robustness.settings import Ball, Config, Norm, Photographs
from spherejax import attacks, data, losses, models, training

NETWORKS: dict[str, Callable[..., nn.Module]] = {
  "ResNet18": models.ResNet18,
  "ResNet50": models.ResNet50,
}
LEVELS = 255  # largest value of a pixel


def network(settings: Photographs, axis_name: str | None = None) -> Headed:
  """Average-pooled features and scores of images in [0, 1]."""
  widths = tuple(settings.width * 2**stage for stage in range(4))
  backbone = functools.partial(
    NETWORKS[settings.network], widths=widths, stem="small", axis_name=axis_name
  )
  return Headed(backbone, functools.partial(nn.Dense, CLASSES), _signed)


def _signed(images: Array) -> Array:
  return 2 * images - 1


def _scores(network: Headed, variables: VariableDict) -> networks.Scores:
  return lambda x: networks.outputs(network, variables, x)[1]


def objective(
  config: Config, norm: Norm, budget: float
) -> Callable[..., training.Outcome]:
  """Objective of one defence; a budget of 0 trains without an attack."""

  def value(params, stats, batch, *, key, axis_name):
    model = network(config.photographs, axis_name)
    crop_key, flip_key, attack_key = jax.random.split(key, 3)
    images = data.random_crop(crop_key, data.to_float(batch["image"]), padding=4)
    if config.images == "cifar10":  # mirrored house numbers would not be digits
      images = data.random_flip(flip_key, images)
    frozen = {"params": params["network"], "batch_stats": stats["network"]}
    inputs = [images]
    if budget:
      attacked = attacks.pgd(
        _scores(model, frozen), images, batch["label"], key=attack_key,
        epsilon=budget, norm=norm, steps=config.attack_steps, mode="train",
      ).x_adv  # fmt: skip
      inputs = [images, attacked] if config.clean_weight else [attacked]
    (_, logits), updated = trainer.forward(
      model, params["network"], stats["network"], jnp.concatenate(inputs)
    )
    parts = jnp.split(logits, len(inputs))
    weight = config.clean_weight if len(inputs) > 1 else 0.0
    loss = losses.adversarial_training(
      parts[0], parts[-1], batch["label"], clean_weight=weight
    )
    mean = training.global_mean(loss, axis_name=axis_name)
    return training.Outcome(mean, {"network": updated})

  return value


def train(
  config: Config, images: data.Images, attack: Ball, seed: int, folder: Path
) -> training.TrainState:
  """Trains one network, or resumes it from its newest checkpoint."""
  s = config.photographs
  per_epoch = trainer.steps_per_epoch(images, s.batch)
  total = s.epochs * per_epoch
  rate = optax.piecewise_constant_schedule(
    s.learning_rate, {total // 3: 0.1, 2 * total // 3: 0.1}
  )
  optimizer = optax.chain(
    optax.add_decayed_weights(s.weight_decay), optax.sgd(rate, momentum=0.9)
  )
  optimizer = training.optimizer({"network": optimizer})
  first, second, third = jax.random.split(jax.random.key(seed), 3)
  shape = jax.ShapeDtypeStruct((1, *images.images[0].shape), jnp.float32)
  variables = jax.jit(lambda key: network(s).lazy_init(key, shape))(first)
  with training.Checkpoints(folder) as checkpoints:
    return training.fit(
      training.create_state(second, optimizer, variables),
      training.make_step(objective(config, *attack), optimizer),
      data.batches(images, third, batch_size=s.batch),
      checkpoints=checkpoints,
      steps=total,
      checkpoint_every=per_epoch,
    ).state


@functools.cache
def _embed(settings: Photographs):
  model = network(settings)
  return training.parallel_map(
    lambda variables, x: networks.outputs(model, variables, x)[0],
    batch_size=settings.batch,
  )


def measure_features(
  config: Config, train: Points, state: training.TrainState
) -> dict[str, float]:
  """`structure.of_features` of the training images."""
  features = jnp.asarray(_embed(config.photographs)(state.variables(), train.x))
  compiled = jax.jit(structure.of_features, static_argnames=("classes", "levels"))
  measures = compiled(train.flat().x, features, train.y, classes=CLASSES, levels=LEVELS)
  return {name: float(value) for name, value in measures.items()}


@functools.cache
def _judge(config: Config, norm: Norm):
  model = network(config.photographs)

  def is_correct(variables_and_budget, rows):
    variables, epsilon = variables_and_budget
    scores, (x, y, index) = _scores(model, variables), rows
    result = attacks.pgd(
      scores, x, y, key=jax.random.key(config.seed), epsilon=epsilon, norm=norm,
      steps=config.judge_steps, index=index,
    )  # fmt: skip
    right = jnp.argmax(scores(x), axis=1) == y
    return {"accuracy": right, "accuracy under attack": ~result.success}

  return training.parallel_map(is_correct, batch_size=config.photographs.batch)


def judge(
  config: Config, tested: Points, state: training.TrainState, attack: Ball
) -> dict[str, float]:
  """Accuracy on the test images, without and under attack."""
  variables_and_budget = state.variables(), jnp.float32(attack[1])
  rows = (*tested, np.arange(len(tested.y)))
  right_by_measure = _judge(config, attack[0])(variables_and_budget, rows)
  return {name: float(np.mean(right)) for name, right in right_by_measure.items()}


def trained(table: Table, config: Config, output: Path) -> list[Points]:
  """Trains and measures networks for each budget and seed; returns both image sets."""
  images, tests = (
    class_sets.read(config.images, f"{x}[:{config.photographs.percent}%]", size=32)
    for x in ("train", "test")
  )
  train_points, tested = points_of(images), points_of(tests)
  made_with = kept.digest(config)
  printed = figures("robust_features").get(config.images, {"networks": {}})
  seeds = range(config.seed, config.seed + config.seeds)
  progress = tqdm.tqdm([*itertools.product(seeds, config.networks)], unit="network")
  standard: training.TrainState | None = None
  for seed, attack in progress:
    name = structure.name_of(*attack)
    progress.set_postfix(seed=seed, network=name)
    folder = output / "kept" / f"{name.replace(' ', '-')}-{seed}-{made_with}"
    state = train(config, images, attack, seed, folder)
    if standard is None or attack == config.networks[0]:  # of this seed
      standard = state
    measures = measure_features(config, train_points, state)
    measures |= judge(config, tested, state, attack)
    # Features that span too little have an infinite rho.
    table.add_all(name, measures, printed["networks"].get(name, {}), finite=True)
    accuracy = judge(config, tested, standard, attack)["accuracy under attack"]
    table.add("standard", f"accuracy under {name}", accuracy)
  return [train_points, tested]
