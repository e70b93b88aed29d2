"""Settings of `robust_features`, and its networks of photographs at the paper's scale.

Each training runs on all devices through `training.fit` and has its own checkpoints,
so the same command resumes a stopped run.
"""

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tqdm
from jax import Array

from experiments.frame import images as class_sets
from experiments.frame import kept
from experiments.frame import training as trainer
from experiments.frame.poolings import Headed
from experiments.frame.settings import Without
from experiments.frame.study import Table
from experiments.published import figures
from experiments.robustness import defences as robust_defences
from experiments.robustness import proposals as robust_proposals
from experiments.robustness import structure
from experiments.robustness.images import CLASSES, Points, points_of
from experiments.robustness.networks import Norm, OfDigits, Settings
from spherejax import attacks, data, losses, models, training

NETWORKS: dict[str, Any] = {"ResNet18": models.ResNet18, "ResNet50": models.ResNet50}
LEVELS = 255  # largest value of a pixel
Further = Literal["defences", "noise", "combined", "rotation", "reweighting"]
FURTHER: tuple[Further, ...] = get_args(Further)


@dataclasses.dataclass(frozen=True)
class Photographs:
  """Settings of the networks of photographs and of their training."""

  network: Literal["ResNet18", "ResNet50"] = "ResNet50"
  """Network; the public robust networks of CIFAR-10 have 50 layers."""
  width: int = 64
  """Channels of the first stage."""
  epochs: int = 150
  """Passes over the training images."""
  batch: int = 128
  """Images per step."""
  learning_rate: float = 0.1
  """Learning rate of SGD with momentum 0.9, divided by 10 after each third of the
  epochs."""
  weight_decay: float = 5e-4
  """Weight decay, added to the gradients."""
  percent: int = 100
  """Share of the image set to read, in percent."""


def network(settings: Photographs, axis_name: str | None = None) -> Headed:
  """Average-pooled features and scores of images in [0, 1]."""
  widths = tuple(settings.width * 2**stage for stage in range(4))
  backbone = functools.partial(
    NETWORKS[settings.network], widths=widths, stem="small", axis_name=axis_name
  )
  return Headed(backbone, functools.partial(nn.Dense, CLASSES), _signed)


def _signed(images: Array) -> Array:
  return 2 * images - 1


def _scores(network: Headed, variables: Any, x: Array) -> Array:
  return network.apply(variables, x)[1]  # pyright: ignore


def objective(config, norm: Norm, budget: float):
  """Objective of one defence; a budget of 0 trains without an attack."""

  def value(params, stats, batch, *, key, axis_name):
    model = network(config.photographs, axis_name)
    labels = batch["label"]
    crop_key, flip_key, attack_key = jax.random.split(key, 3)
    images = data.random_crop(crop_key, data.to_float(batch["image"]), padding=4)
    if config.images == "cifar10":  # mirrored house numbers would not be digits
      images = data.random_flip(flip_key, images)
    frozen = {"params": params["network"], "batch_stats": stats["network"]}
    inputs = [images]
    if budget:
      scores = functools.partial(_scores, model, frozen)
      limits = {"epsilon": budget, "norm": norm, "steps": config.attack_steps}
      attacked = attacks.pgd(
        scores, images, labels, key=attack_key, mode="train", **limits
      ).x_adv
      inputs = [images, attacked] if config.clean_weight else [attacked]
    outputs, updated = trainer.forward(
      model, params["network"], stats["network"], jnp.concatenate(inputs)
    )
    logits = jnp.split(outputs[1], len(inputs))
    weight = config.clean_weight if len(inputs) > 1 else 0.0
    loss = losses.adversarial_training(
      logits[0], logits[-1], labels, clean_weight=weight
    )
    mean = training.global_mean(loss, axis_name=axis_name)
    return training.Outcome(mean, {"network": updated})

  return value


def train(
  config, images: data.Images, norm: Norm, budget: float, seed: int, folder: Path
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
  return trainer.single(
    lambda _: training.create_state(second, optimizer, variables),
    training.make_step(objective(config, norm, budget), optimizer),
    trainer.shuffled(images, third, s.batch),
    folder,
    steps=total,
    checkpoint_every=per_epoch,
  ).state


@functools.cache
def _embed(settings: Photographs):
  model = network(settings)
  return training.parallel_map(
    lambda variables, x: model.apply(variables, x)[0],  # pyright: ignore
    batch_size=settings.batch,
  )


def measure_features(config, train: Points, state) -> dict[str, float]:
  """`structure.of_features` of the training images."""
  features = jnp.asarray(_embed(config.photographs)(state.variables(), train.x))
  compiled = jax.jit(structure.of_features, static_argnames=("classes", "levels"))
  options = {"classes": CLASSES, "levels": LEVELS}
  measures = compiled(train.flat().x, features, train.y, **options)
  return {name: float(value) for name, value in measures.items()}


@functools.cache
def _judge(settings: Photographs, norm: Norm, steps: int, seed: int):
  model = network(settings)

  def is_correct(variables_and_budget, rows):
    variables, epsilon = variables_and_budget
    scores, (x, y, index) = functools.partial(_scores, model, variables), rows
    limits: Any = {"key": jax.random.key(seed), "index": index, "epsilon": epsilon}
    result = attacks.pgd(scores, x, y, norm=norm, steps=steps, **limits)
    right = jnp.argmax(scores(x), axis=1) == y
    return {"accuracy": right, "accuracy under attack": ~result.success}

  return training.parallel_map(is_correct, batch_size=settings.batch)


def judge(config, tested: Points, state, norm: Norm, budget: float) -> dict[str, float]:
  """Accuracy on the test images, without and under attack."""
  mapped = _judge(config.photographs, norm, config.judge_steps, config.seed)
  rows = (*tested, np.arange(len(tested.y)))
  right_by_measure = mapped((state.variables(), jnp.float32(budget)), rows)
  return {name: float(np.mean(right)) for name, right in right_by_measure.items()}


def trained(table: Table, config, output: Path) -> list[Points]:
  """Trains and measures networks for each budget and seed; returns both image sets."""
  images, tests = (
    class_sets.read(config.images, f"{x}[:{config.photographs.percent}%]", size=32)
    for x in ("train", "test")
  )
  train_points, tested = points_of(images), points_of(tests)
  made_with = kept.digest(config)
  printed = figures("robust_features").get(config.images, {})
  budgets = [(norm, x) for norm, values in config.budgets.items() for x in values]
  seeds = range(config.seed, config.seed + config.seeds)
  progress = tqdm.tqdm([*itertools.product(seeds, budgets)], unit="network")
  standard: Any = None
  for seed, attack in progress:
    name = structure.name_of(*attack)
    progress.set_postfix(seed=seed, network=name)
    folder = output / "kept" / f"{name.replace(' ', '-')}-{seed}-{made_with}"
    state = train(config, images, *attack, seed, folder)
    standard = state if attack == budgets[0] else standard
    measures = measure_features(config, train_points, state)
    measures |= judge(config, tested, state, *attack)
    # Features that span too little have an infinite rho.
    table.add_all(name, measures, printed.get(name, {}), finite=True)
    accuracy = judge(config, tested, standard, *attack)["accuracy under attack"]
    table.add("standard", f"accuracy under {name}", accuracy)
  return [train_points, tested]


@dataclasses.dataclass(frozen=True)
class Config(Settings):
  """Settings of the study."""

  images: Literal["digits", "cifar10_16", "cifar10", "svhn_cropped"] = "digits"
  """Training images; cifar10_16 is CIFAR-10 at 16 x 16 pixels, with the small networks
  of the digits."""
  photographs: Annotated[Photographs, Without("images", ("digits", "cifar10_16"))] = (
    dataclasses.field(default_factory=Photographs)
  )
  """Settings for networks of photographs."""
  train_images: OfDigits[int] = 1297
  """Number of training digits, from the first."""
  test_images: OfDigits[int] = 500
  """Number of test digits, from the end."""
  l2: tuple[float, ...] = (0.15, 0.3, 0.6, 1.0)
  """Budgets in l2; images are in [0, 1]^64."""
  linf: tuple[float, ...] = (0.05, 0.1)
  """Budgets in l-infinity."""
  dims: OfDigits[tuple[int, ...]] = (8, 32, 128)
  """Input dimensions of the classes with known discriminality."""
  radii: OfDigits[tuple[float, ...]] = (0.3, 1.0, 3.0)
  """Distances of the class means from the origin."""
  proposals: OfDigits[tuple[robust_proposals.Name, ...]] = robust_proposals.LOSSES
  """Losses to compare."""
  proposed_budget: OfDigits[float] = 0.6
  """Budget of the proposals and of the defences, in l2."""
  studies: OfDigits[tuple[Further, ...]] = FURTHER
  """Studies that DIST 3.2, 6.2.2, 6.2.3 and appendix A name without results."""
  beside: OfDigits[tuple[Literal["cifar10", "svhn_cropped"], ...]] = ("cifar10",)
  """Image sets to measure as well as the digits, if they are prepared."""
  defences: OfDigits[tuple[robust_defences.Name, ...]] = robust_defences.DEFENCES
  """Defences to compare."""
  neighbours: OfDigits[int] = 32
  """Sites that bound a Voronoi cell during an attack."""
  combined: OfDigits[tuple[float, float]] = (1.0, 0.1)
  """Radii of the l1 and the l-infinity ball that the combined ball contains."""
  noise: OfDigits[float] = 0.25
  """Standard deviation of the noise of randomised smoothing."""
  votes: OfDigits[int] = 1000
  """Number of noisy draws that bound the probability of a class."""

  @property
  def budgets(self) -> dict[Norm, tuple[float, ...]]:
    """Budgets of the networks by norm; the standard network has a budget of 0."""
    by_norm: dict[Norm, tuple[float, ...]] = {"l2": (0.0, *self.l2), "linf": self.linf}
    return {norm: budgets for norm, budgets in by_norm.items() if budgets}


_SMALL = Config(
  images="cifar10_16", seeds=12, clean_weight=0.0, attack_steps=5, l2=(0.25, 0.5, 1.0),
  linf=(8 / 255,), beside=(),
)  # fmt: skip
PRESETS = {
  "cpu": _SMALL,
  # Twelve seeds leave eight claims undecided; these are further ones.
  "long": dataclasses.replace(_SMALL, seed=12, seeds=20),
  "digits": Config(seeds=8, l2=(), linf=()),
  "smoke": Config(
    seeds=1, hidden=16, dim=8, steps=20, batch=32, attack_steps=2, judge_steps=4,
    train_images=200, test_images=100, l2=(0.3, 1.0), linf=(), dims=(), proposals=(),
    studies=(), beside=(),
  ),
  # Budgets of the tables. DIST does not print settings of attack and training; those
  # for CIFAR-10 are from the public networks with the same budgets.
  "cifar10": Config(
    images="cifar10", seeds=1, clean_weight=0.0, l2=(0.25, 0.5, 1.0), linf=(8 / 255,),
    dims=(), proposals=(), studies=(),
  ),
  "svhn": Config(
    images="svhn_cropped", seeds=1, l2=(0.25, 0.5, 1.0), linf=(8 / 255, 12 / 255),
    dims=(), proposals=(), studies=(),
  ),
}  # fmt: skip
