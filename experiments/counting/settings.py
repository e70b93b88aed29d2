"""Settings of `norm_count`, and checks of its images before any training."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import jax
import numpy as np
from numpy.typing import ArrayLike

from experiments.frame.settings import Among, Limited, Within
from spherejax import data

DIRECTIONS = 2  # dimension of the plane in which angles are shown
OfResidual = Among("sets", ("stl10", "voc"))
OfObjects = Among("sets", ("digits", "mnist", "cifar10", "stl10"), "a set of objects")
OfEpisodes = Among("measures", ("episodes",))
Name = Literal["digits", "mnist", "cifar10", "stl10", "voc"]
Convolution = Literal["native", "patches"]
Measure = Literal["slopes", "classifiers", "episodes", "angles"]
Fill = Literal["zeros", "blur", "random"]


@dataclasses.dataclass(frozen=True)
class Config(Limited):
  """Settings of the study."""

  seed: int = 0
  """First seed."""
  seeds: int = 8
  """Number of networks per method, each with its own grids."""
  widths: tuple[int, int, int, int, int, int] = (16, 16, 32, 32, 64, 64)
  """Channels of the six layers."""
  convolution: Convolution = "patches"
  """Implementation of convolutions: patches (faster on a CPU) or native."""
  epochs: int = 12
  """Passes over the objects, with cross-entropy."""
  batch: int = 64
  """Objects, or grids, per step."""
  learning_rate: float = 2e-3
  """Learning rate of Adam."""
  methods: tuple[Literal["supervised", "SimCLR"], ...] = ("supervised", "SimCLR")
  """Training methods; cross-entropy always takes part."""
  simclr_steps: Annotated[int, Within(1)] = 400
  """Training steps with NT-Xent."""
  simclr_batch: Annotated[int, Within(2)] = 128
  """Objects per step, with two views each."""
  temperature: Annotated[float, Within(1e-6)] = 0.5
  """Temperature of NT-Xent."""
  projection: int = 64
  """Width of both projection layers, for NT-Xent only."""
  crop: float = 0.3
  """Smallest share of an object's area in a view."""
  jitter: float = 0.8
  """Strength of brightness and contrast changes."""
  integer_crops: bool = False
  """Crops boxes of whole pixels; otherwise boxes lie anywhere."""
  sets: tuple[Name, ...] = ("digits", "mnist", "cifar10")
  """Image sets: sets of single objects, or voc for photographs."""
  need_all: bool = False
  """Ends the run if a set is not prepared; otherwise leaves the set out."""
  need_weights: bool = False
  """Requires weights of a ResNet-50; otherwise EfficientNet-Lite0 replaces it."""
  reduced: Annotated[bool, Among("sets", ("mnist", "cifar10"))] = True
  """Reads MNIST at 14x14 and CIFAR-10 at 16x16 pixels."""
  train_images: Annotated[int, Among("sets", ("mnist", "cifar10"))] = 5000
  """Number of training objects, from the first of a set."""
  held_images: int = 2000
  """Number of objects to make grids of, from the first of the test part."""
  fills: Annotated[tuple[Fill, ...], OfObjects] = ("zeros", "blur", "random")
  """Contents of empty cells; MNIST has zeros only."""
  # A parabola through three points leaves nothing to estimate a variance from.
  grids: Annotated[int, Within(4), OfObjects] = 1000
  """Number of grids to measure; as many others are used to fit classifiers."""
  block: Annotated[int, Within(1)] = 50
  """Number of grids or photographs to embed at once."""
  measures: tuple[Measure, ...] = ("slopes", "classifiers", "episodes", "angles")
  """Measures to compute."""
  episodes: Annotated[int, Within(1), OfEpisodes] = 1000
  """Number of few-shot episodes."""
  ways: Annotated[int, Within(2), OfEpisodes] = 5
  """Classes of an episode."""
  shots: Annotated[tuple[int, ...], Within(1), OfEpisodes] = (1, 5)
  """Supports per class."""
  queries: Annotated[int, Within(1), OfEpisodes] = 15
  """Queries per class."""
  controls: bool = True
  """Also measures untrained networks, networks without biases and, for digits, networks
  trained on grids."""
  supervised_weights: Annotated[str, OfResidual] = ""
  """File of a ResNet-50 trained with labels, for stl10 and voc."""
  simclr_weights: Annotated[str, OfResidual] = ""
  """File of a ResNet-50 trained by SimCLR; its names may begin with "encoder."."""
  resnet_blocks: Annotated[tuple[int, ...], OfResidual] = (3, 4, 6, 3)
  """Blocks per stage of the ResNet-50."""
  resnet_widths: Annotated[tuple[int, ...], OfResidual] = (64, 128, 256, 512)
  """Inner channels of each stage of the ResNet-50."""
  stl10_split: Annotated[str, Among("sets", ("stl10",))] = "test"
  """Split of STL-10 to read."""
  voc_folder: Annotated[str, Among("sets", ("voc",))] = ""
  """Folder of Pascal VOC with Annotations and JPEGImages; empty: voc/2007. Only results
  on a folder are compared with the paper, which uses 2007 to 2013."""
  voc_split: Annotated[str, Among("sets", ("voc",))] = "train+test"
  """Split of voc/2007 to read."""
  photograph_size: Annotated[int, Among("sets", ("voc",))] = 96
  """Side of the photographs, in pixels."""


PAPER = Config(
  sets=("mnist", "stl10", "voc"), need_all=True, need_weights=True, reduced=False,
  widths=(32, 32, 64, 64, 128, 128), convolution="native", train_images=60_000,
  held_images=10_000, grids=10_000, episodes=10_000,
  simclr_steps=12_000,  # 100 passes over MNIST
  simclr_batch=512, integer_crops=True, voc_split="train+validation+test",
  photograph_size=224,
)  # fmt: skip
PRESETS = {
  "cpu": Config(),
  # Eight seeds leave 28 claims undecided; these are further ones.
  "long": Config(seed=8, seeds=12),
  "smoke": Config(
    sets=("digits",), seeds=1, epochs=3, methods=("supervised",), fills=("zeros",),
    grids=200, measures=("slopes",), controls=False,
  ),
  # Few photographs in half of this small set show a single class.
  "voc": Config(
    seeds=24, sets=("voc",), need_all=True, photograph_size=224, ways=2, shots=(1, 3),
    queries=3,
  ),
  "table-1": dataclasses.replace(PAPER, measures=("slopes",)),
  "table-2": dataclasses.replace(PAPER, measures=("classifiers",)),
  "table-3": dataclasses.replace(PAPER, sets=("stl10", "voc"), measures=("episodes",)),
}  # fmt: skip


def files(config: Config) -> dict[str, str]:
  """The named files of weights, by network."""
  names = {"supervised": config.supervised_weights, "SimCLR": config.simclr_weights}
  return {network: file for network, file in names.items() if file}


def check(config: Config) -> None:
  """Raises ValueError, before any training, for settings that cannot be measured."""
  if not config.fills:
    raise ValueError("fills must name what empty cells hold, got ()")
  needs = {"stl10", "voc"} if config.need_weights else {"stl10"}
  if not files(config) and needs & set(config.sets):
    raise ValueError(
      f"{' and '.join(sorted(needs & set(config.sets)))}: name a file of weights of a "
      "ResNet-50 by --supervised-weights or --simclr-weights, or choose other --sets"
    )
  for file in files(config).values():
    if not pathlib.Path(file).is_file():
      raise ValueError(f"the file of weights {file} does not exist")


def check_classes(labels: ArrayLike, what: str) -> None:
  """Raises ValueError, before any measurement, if the plot of angles lacks classes."""
  classes = np.unique(labels)
  if len(classes) <= DIRECTIONS:
    raise ValueError(
      f"{DIRECTIONS} discriminant directions need {DIRECTIONS + 1} classes, but "
      f"{what} have {len(classes)}: {classes.tolist()}"
    )


def check_sample(
  config: Config,
  what: str,
  mixed: np.ndarray,
  counts: np.ndarray,
  labels: np.ndarray,
  fitted: np.ndarray,
) -> None:
  """Raises ValueError if the images do not suffice for the measures.

  `mixed` are the counts of images of mixed classes, `counts` and `labels` belong to
  images of one class, `fitted` are labels of the images that classifiers are fitted to.
  """
  for mode, counts_of_mode in (("mixed", mixed), ("single", counts)):
    if len(np.unique(counts_of_mode)) < 3:
      raise ValueError(
        f"a quadratic in the count needs three different counts, but {what} of {mode} "
        f"classes have {np.unique(counts_of_mode).tolist()}"
      )
  check_classes(labels, f"{what} of single classes")
  if "classifiers" in config.measures and len(np.unique(fitted)) < 2:
    raise ValueError(
      f"classifiers are fitted to two classes or more, but the {len(fitted)} {what} "
      f"for that have {np.unique(fitted).tolist()}"
    )
  if "angles" in config.measures:
    same_label, same_count = (x[:, None] == x[None] for x in (labels, counts))
    for text, pairs in (
      ("one class with two counts", same_label & ~same_count),
      ("two classes with one count", ~same_label & same_count),
    ):
      if not pairs.any():
        raise ValueError(
          f"angles need a pair of {text}: {len(labels)} {what} have none"
        )
  if "episodes" in config.measures:
    sizes = {"num_ways": config.ways, "num_queries": config.queries}
    shots, classes = max(config.shots, default=1), data.class_table(labels, per_class=1)
    data.sample_episode(jax.random.key(0), classes, num_shots=shots, **sizes)
