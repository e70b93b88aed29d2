"""Settings of the few-shot study, its images with their classes split, and episodes."""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import jax
import numpy as np

from experiments.frame import frozen
from experiments.frame import images as class_sets
from experiments.frame.images import Parts
from experiments.frame.settings import Limited, MultipleOf, Within, Without
from spherejax import data

EPISODES = {1: 60_000, 5: 50_000}
"""Training episodes of the article, by number of shots."""

EXPONENTS = (1.0, 2.0, 4.0, 7.389, 16.0, 32.0)
PREPARED = ("omniglot", "cub_birds100", "tiny_imagenet", "cub")
OTHERS = ("cub_birds100", "tiny_imagenet", "cub", "mini_imagenet")
HELD_OUT = 150  # number of Omniglot's last training characters that validate
# Relative size before a centre crop (Chen et al. 2019).
BORDER = 1.15


class Part(NamedTuple):
  """A kind of training."""

  shots: int
  representative: Literal["mean", "nearest"]

  @property
  def name(self) -> str:
    """Name of the part in tables."""
    kind = "" if self.representative == "mean" else "1-NN, "
    return f"{kind}{self.shots}-shot"


@dataclasses.dataclass(frozen=True)
class Config(Limited):
  """Settings of the study."""

  seed: int = 0
  """Seed of everything random."""
  seeds: int = 8
  """Number of networks, each with its own episodes and initial weights."""
  backbone: Literal["conv4", "resnet18", "efficientnet_lite0"] = "conv4"
  """Network to train; efficientnet_lite0 trains a linear layer on features of a frozen
  ImageNet network."""
  width: int = 32
  """Channels of Conv4, or dimension of the linear layer."""
  convolution: Annotated[
    Literal["native", "patches"], Without("backbone", frozen.NETWORK)
  ] = "patches"
  """Implementation of convolutions: patches (faster on a CPU) or native."""
  image_size: int = 28
  """Side of an image at the network's input, in pixels."""
  augment: Annotated[bool, Without("backbone", frozen.NETWORK)] = False
  """Augments training images with random crops, flips and colours."""
  num_ways: Annotated[int, Within(2)] = 5
  """Classes of an episode."""
  num_queries: Annotated[int, Within(1)] = 10
  """Queries of each class while training and validating."""
  test_queries: Annotated[int, Within(1)] = 10
  """Queries of each class while testing."""
  episodes: Annotated[int, MultipleOf("validate_every"), MultipleOf("check_every")] = (
    400
  )
  """Training steps, one episode each; 0: as in the article, 60,000 at 1 shot and 50,000
  at 5."""
  check_every: Annotated[int, Within(1)] = 10
  """Episodes between two measurements of an update's effect."""
  validate_every: Annotated[int, Within(1), MultipleOf("check_every")] = 50
  """Episodes between two validations."""
  validation_episodes: Annotated[int, Within(1)] = 100
  """Fixed episodes whose accuracy chooses the checkpoint."""
  test_episodes: Annotated[int, Within(1)] = 600
  """Fixed episodes for the final accuracy."""
  learning_rate: float = 1e-3
  """Learning rate of Adam."""
  all_diagnostics: bool = False
  """Measures and tests all numbers of the article's tables, and classifies training
  classes at each check."""
  images: Literal[
    "omniglot", "cub_birds100", "tiny_imagenet", "cub", "mini_imagenet"
  ] = "omniglot"
  """Data set to classify."""
  percent: Annotated[int, Within(1, 100), Without("images", OTHERS)] = 100
  """Share of omniglot's images to read, in percent; drops classes with too few."""
  folder: Annotated[str, Without("images", PREPARED)] = "mini-imagenet"
  """Folder of mini-ImageNet, with sub-folders train, val and test."""
  shots: tuple[Literal[1, 5], ...] = (1, 5)
  """Supports of each class; each number is a separate training."""
  nearest_shots: tuple[Literal[5], ...] = (5,)
  """Supports of trainings that compare queries with the nearest support, not the
  mean."""
  exponents: Annotated[tuple[float, ...], Within(1e-6)] = EXPONENTS
  """Fixed exponents of DR to compare at 1 shot."""


def of_part(config: Config, shots: int) -> Config:
  """The settings of a training; 0 episodes become the article's number."""
  return dataclasses.replace(config, episodes=config.episodes or EPISODES[shots])


def parts(config: Config) -> list[Part]:
  """The trainings of both losses."""
  means = [Part(shots, "mean") for shots in config.shots]
  return means + [Part(shots, "nearest") for shots in config.nearest_shots]


BIRDS = Config(
  images="cub_birds100", backbone=frozen.NETWORK, width=128, image_size=160
)
PRESETS = {
  "cpu": dataclasses.replace(BIRDS, seeds=24),
  "tiny_imagenet": dataclasses.replace(BIRDS, images="tiny_imagenet", image_size=128),
  "omniglot": Config(),
  "smoke": Config(
    percent=20, seeds=1, width=8, num_queries=2, test_queries=2, episodes=20,
    check_every=5, validate_every=10, validation_episodes=20, test_episodes=50,
    shots=(1,), nearest_shots=(), exponents=(),
  ),
  "full": Config(
    images="cub", seeds=1, width=64, convolution="native", image_size=84, augment=True,
    num_queries=16, test_queries=15, episodes=0, check_every=100, validate_every=100,
    all_diagnostics=True, shots=(1,), nearest_shots=(), exponents=(),
  ),
}  # fmt: skip


def table(images: data.Images, rows: int) -> data.ClassTable:
  """Table of rows by class; checks that every class has enough images."""
  return data.class_table(images.labels, per_class=rows, label_names=images.label_names)


def fixed_episodes(
  settings: Config, part: Part, images: data.Images, *, queries: int, number: int
) -> np.ndarray:
  """Draws the episodes that validate and test every network."""
  classes = table(images, part.shots + queries)
  key = jax.random.fold_in(jax.random.key(settings.seed), 1 + part.shots)
  sizes = {"ways": settings.num_ways, "shots": part.shots, "queries": queries}
  return np.asarray(class_sets.episodes(key, classes, number=number, **sizes))


def check_classes(settings: Config, parts: Sequence[Part], sets: Parts) -> None:
  """Raises ValueError if classes are too small or too few for any of the trainings."""
  numbers = (settings.num_queries, settings.num_queries, settings.test_queries)
  for part in parts:
    for images, queries in zip(sets[:3], numbers, strict=True):
      # Called outside jit, where the table is concrete and can be checked.
      classes = table(images, part.shots + queries)
      sizes = {"num_ways": settings.num_ways, "num_shots": part.shots}
      data.sample_episode(jax.random.key(0), classes, num_queries=queries, **sizes)


def load(config: Config, folder: pathlib.Path) -> Parts:
  """Loads training, validation and test images, or a frozen network's features of them.

  The features are stored in the folder.
  """
  sets = _images(config)
  if config.backbone != frozen.NETWORK:
    return sets
  name = f"{config.images}-{config.image_size}"
  parts = zip(("train", "validation", "test"), sets[:3], strict=True)
  return Parts(*(frozen.pooled(f"{name}-{x}", images, folder) for x, images in parts))


def _images(config: Config) -> Parts:
  if config.images == "omniglot":
    return _omniglot(config)
  if config.images == "mini_imagenet":
    return mini_imagenet(config.image_size, pathlib.Path(config.folder))
  if config.images == "cub":
    images = class_sets.read("caltech_birds2011", "train+test", lazy=True)
    return photographs(birds(images), config.image_size)
  # The test part of tiny_imagenet has 30 images of each class.
  split = "test" if config.images == "tiny_imagenet" else "train+test"
  return birds(class_sets.read(config.images, split, size=config.image_size))


def _omniglot(config: Config) -> Parts:
  """Characters of 30 alphabets to train on, of 20 others to test on; ink is 1.

  Classes with too few images for an episode in the share that is read are left out.
  """
  shots = max(*config.shots, *config.nearest_shots, 0)
  rows = shots + max(config.num_queries, config.test_queries)
  share = "" if config.percent == 100 else f"[:{config.percent}%]"

  def characters(part: str) -> data.Images:
    images = class_sets.prepared("omniglot", f"{part}{share}", config.image_size)
    labels = np.asarray(images.labels)
    return images[np.flatnonzero(np.bincount(labels)[labels] >= rows)]

  train = characters("train")
  labels = np.unique(train.labels)
  first, last = data.split_classes(
    train.labels, groups=[labels[:-HELD_OUT].tolist(), labels[-HELD_OUT:].tolist()]
  )
  return Parts(train[first], train[last], characters("test"))


def birds(images: data.Images) -> Parts:
  """Splits classes by their number, as Chen et al. 2019.

  Half of the classes train, a quarter validate, a quarter test.
  """
  classes = list(range(len(images.label_names)))
  groups = [classes[::2], classes[1::4], classes[3::4]]
  return Parts(*(images[r] for r in data.split_classes(images.labels, groups=groups)))


def mini_imagenet(size: int, folder: pathlib.Path) -> Parts:
  """Reads folders train, val and test, each with a folder for every class."""
  paths = [folder / part for part in ("train", "val", "test")]
  for path in paths:
    if not path.is_dir():
      raise SystemExit(
        f"--folder must hold the folders train, val and test of mini-ImageNet (64, 16"
        f" and 20 classes of 600 images), got {folder} without {path.name}"
      )
  parts = Parts(*(data.load_folder(path, lazy=True) for path in paths))
  return photographs(parts, size)


def photographs(sets: Parts, size: int) -> Parts:
  """Centre crops for validation and test; whole images for training.

  Training images become squares before the random crops, so that crops have other
  aspect ratios than crops of the originals.
  """
  longer = round(BORDER * size)
  squared = functools.partial(class_sets.squared, size=longer)
  centred = functools.partial(class_sets.centred, size=size, shorter_side=longer)
  parts = zip(sets[:3], (squared, centred, centred), strict=True)
  return Parts(*(data.map_images(*part).in_memory() for part in parts))
