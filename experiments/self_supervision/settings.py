"""Settings of `projector_collapse`, their checks, and its images."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np
from jax.typing import ArrayLike

from experiments.frame import images as class_sets
from experiments.frame.settings import Limited, MultipleOf, Within, Without
from experiments.frame.training import Hyper
from spherejax import data, hierarchy

LARGE, MODERATE, SMALL, CROP = "large", "moderate", "small", "large, crops alone"
SIMCLR = "simclr"
# SSL, table 2, and SimCLR's, which have blur.
COLOURED = {x: data.view_strengths(x) for x in (LARGE, MODERATE, SMALL, SIMCLR)}
COLOURED[CROP] = COLOURED[LARGE]._replace(flip=0.0, jitter=0.0, grayscale=0.0)
# Digits have no colours, no mirror images, and are too small to lose much.
GREY = {
  name: data.ViewStrengths((area, 1.0), 0.0, change, change, blur=0.0)
  for name, area, change in (
    (LARGE, 0.3, 0.8), (MODERATE, 0.6, 0.4), (SMALL, 0.95, 0.08)
  )
}  # fmt: skip

Convolutional = Annotated[
  tuple[int, int, int], Within(1), Without("encoder", "resnet18")
]
Toy = Literal["fixed_features", "depths", "rotations"]

_DEPTH = 4  # depth of the coarse classes in the tree of tiny_imagenet
_EVERY = 4  # every fourth class is used
_SIDE = 32  # default side of photographs
_DIGITS = 1200  # number of training digits, from the first


@dataclasses.dataclass(frozen=True)
class Settings(Limited):
  """Network and training; the same for all strengths of augmentation."""

  seed: int = 0
  """First seed of initial weights, batches and augmentations."""
  seeds: int = 8
  """Trainings of each strength."""
  encoder: Literal["conv", "resnet18"] = "conv"
  """Encoder: three convolutions, or a residual network with the stem for small
  images."""
  widths: Convolutional = (16, 32, 64)
  """Channels of the convolutions of conv."""
  strides: Convolutional = (2, 2, 2)
  """Strides of the convolutions of conv; the first one has stride 2 to save time."""
  projector: Annotated[tuple[int, ...], Within(1)] = (16,)
  """Outputs of the projector's layers; a single one makes it linear."""
  convolution: Literal["patches", "native"] = "patches"
  """Implementation of convolutions: patches (faster on a CPU) or native."""
  steps: Annotated[int, MultipleOf("measure_every")] = 240
  """Training steps."""
  measure_every: int = 20
  """Steps between two measurements."""
  probe_every: Annotated[int, Without("at_once", False)] = 120
  """Steps between two fits of the classifiers, for networks trained at once."""
  batch: Annotated[int, Within(2)] = 128
  """Images per step, with two views each."""
  inverse_temperature: Annotated[float, Within(1e-6)] = 2.0
  """Inverse temperature of the loss."""
  learning_rate: float = 0.2
  """Learning rate of SGD or LARS, with momentum 0.9."""
  weight_decay: float = 1e-6
  """Weight decay, added to the gradient of all parameters; LARS excludes norms and
  biases."""
  measured: Annotated[int, Within(2)] = 512
  """Training images to measure during training, with two fixed views each; before and
  after it, all images are measured, too."""
  threshold: Annotated[float, Within(1e-6, 1)] = 0.1
  """Smallest singular value, relative to the largest, that counts for the projector's
  rank."""
  integer_crops: bool = False
  """Crops boxes of whole pixels; otherwise boxes lie anywhere."""

  @property
  def halfway(self) -> int:
    """The step of the last measurement in the first half of training."""
    return self.steps // 2 // self.measure_every * self.measure_every


@dataclasses.dataclass(frozen=True)
class Full(Settings):
  """Additional settings of trainings that run one after another."""

  warm_up: Annotated[int, Without("at_once", True)] = 3900
  """Steps over which the learning rate rises before a cosine, for networks trained one
  after another."""
  synchronized: Annotated[bool, Without("at_once", True)] = False
  """Shares batch-norm statistics over all devices; not for networks trained at once."""


@dataclasses.dataclass(frozen=True)
class Config(Full):
  """Settings of the study."""

  images: Literal["tiny_imagenet", "cifar100", "digits"] = "tiny_imagenet"
  """Training images."""
  at_once: bool = True
  """Trains all networks as one program, by SGD; otherwise one after another, by
  LARS."""
  image_size: Annotated[int, Within(1), Without("images", ("cifar100", "digits"))] = 32
  """Side of the photographs, in pixels, averaged down from the stored ones."""
  strengths: tuple[
    Literal["large", "moderate", "small", "large, crops alone", "simclr"], ...
  ] = (LARGE, SMALL, CROP)
  """Augmentations to train with, in this order."""
  projectors: tuple[str, ...] = ("256-256-16",)
  """Outputs of the layers of further projectors, always trained with large
  augmentation."""
  toys: tuple[Toy, ...] = get_args(Toy)
  """Experiments that need no images."""
  toy_seeds: Annotated[int, Within(1), Without("toys", ((),))] = 10
  """Seeds of the experiments without images."""


PRESETS = {
  "cpu": Config(integer_crops=True),
  "long": Config(
    steps=1600, measure_every=80, probe_every=400, integer_crops=True,
    strengths=(LARGE, MODERATE, SMALL), toys=(),
  ),
  "smoke": Config(
    images="digits", seeds=1, steps=60, probe_every=60, batch=64, strides=(1, 2, 1),
    widths=(8, 16, 16), projector=(16,), strengths=(LARGE, SMALL), projectors=(),
    measured=128, toys=("rotations",), toy_seeds=3,
  ),
  # 500 epochs; the batch is the one that figure 3 states.
  "full": Config(
    images="cifar100", at_once=False, encoder="resnet18", projector=(128,),
    convolution="native", steps=195_000, measure_every=1950, probe_every=1950,
    learning_rate=4.0, integer_crops=True, strengths=(LARGE, MODERATE, SMALL, CROP),
    projectors=("512-128", "2048-128", "512-512-128"),
  ),
}  # fmt: skip


def check(config: Config) -> None:
  """Raises ValueError for settings that do not fit together."""
  if config.at_once:
    MultipleOf("measure_every").check("probe_every", config.probe_every, config)
    # The last probe gives the final accuracy.
    MultipleOf("probe_every").check("steps", config.steps, config)
  elif config.warm_up >= config.steps:
    raise ValueError(
      f"warm_up must be below steps = {config.steps}, got {config.warm_up}"
    )
  if len(config.projector) != 1:
    raise ValueError(
      f"projector must be linear, of one layer, got {config.projector}; projectors"
      " names deeper ones"
    )
  for name in config.projectors:
    widths_of(name)
  known, names = list(strengths_of(config)), config.strengths
  if not names or not {*names} <= {*known}:
    raise ValueError(f"strengths of {config.images} must be among {known}, got {names}")


def strengths_of(config: Config) -> Mapping[str, data.ViewStrengths]:
  """Augmentation strengths for the images, by name."""
  return GREY if config.images == "digits" else COLOURED


def widths_of(name: str) -> tuple[int, ...]:
  """Outputs of the layers of a projector, from a name like 64-32."""
  parts = name.split("-")
  if not all(part.isdecimal() and int(part) for part in parts):
    raise ValueError(f"projectors must be widths like 64-32, got {name!r}")
  return tuple(map(int, parts))


def strengths(hyper: Hyper) -> data.ViewStrengths:
  """Augmentation strengths from the hyperparameters of a sweep's cell."""
  rest = {name: x for name, x in hyper.items() if name != "area"}
  return data.ViewStrengths(scale=(hyper["area"], 1.0), **({"blur": 0.0} | rest))


def cells(strengths: Iterable[data.ViewStrengths]) -> dict[str, list[ArrayLike]]:
  """Hyperparameters from augmentation strengths, the inverse of `strengths`.

  Leaves out the column for the blur, which takes time, if no strength has it.
  """
  rows = [{"area": strength.scale[0]} | strength._asdict() for strength in strengths]
  columns = {name: [row[name] for row in rows] for name in rows[0] if name != "scale"}
  return {name: x for name, x in columns.items() if name != "blur" or any(x)}


class Study(NamedTuple):
  """Images [count, side, side, channels], uint8, and integer labels."""

  name: str
  train: np.ndarray
  train_labels: np.ndarray
  train_coarse: np.ndarray
  test: np.ndarray
  test_labels: np.ndarray

  @property
  def classes(self) -> int:
    return int(self.train_labels.max()) + 1


def load(config: Config) -> Study:
  """Loads the images of the settings."""
  if config.images == "digits":
    return digits()
  if config.images == "cifar100":
    return cifar100()
  return photographs(config.image_size)


def photographs(side: int) -> Study:
  """Reads every fourth class of tiny_imagenet; its tree gives coarse classes."""

  def quarter(split: str) -> data.Images:
    images = class_sets.read("tiny_imagenet", split, size=side)
    return images[np.asarray(images.labels) % _EVERY == 0]

  train, test = quarter("train"), quarter("test")
  tree = class_sets.tree_of("tiny_imagenet", train.label_names)
  coarse = hierarchy.at_depth(tree, _DEPTH)
  classes, labels = np.unique(train.labels, return_inverse=True)
  groups = np.unique(coarse[classes], return_inverse=True)[1]
  name = "tiny_imagenet" if side == _SIDE else f"tiny_imagenet-{side}"
  tested = np.asarray(test.images), np.searchsorted(classes, test.labels)
  return Study(name, np.asarray(train.images), labels, groups[labels], *tested)


def cifar100() -> Study:
  """Reads all of cifar100, with its coarse labels."""
  train, test = (class_sets.read("cifar100", split) for split in ("train", "test"))
  if not {len(np.unique(part.labels)) for part in (train, test)} == {100}:
    raise ValueError("cifar100 must have images of its 100 classes in both splits")
  coarse = train.extras["coarse_label"]
  arrays = train.images, train.labels, coarse, test.images, test.labels
  return Study("cifar100", *map(np.asarray, arrays))


def digits() -> Study:
  """Loads the digits of scikit-learn, 8 x 8 and grey."""
  images = data.load_digits()
  train, test = np.split(np.asarray(images.images), [_DIGITS])
  labels, test_labels = np.split(np.asarray(images.labels), [_DIGITS])
  return Study("digits", train, labels, labels, test, test_labels)
