"""Settings of `dynamic_assignment`, for the small study and for the paper's tables."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Literal

from experiments.assignment import methods as dl2p_methods
from experiments.assignment import tasks
from experiments.frame.settings import Decided

if TYPE_CHECKING:
  Method = str
  ImageSet = str
else:
  Method = Literal[tuple(dl2p_methods.SMALL)]
  ImageSet = Literal[tuple(tasks.READERS)]


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the small study; the paper's tables have their own."""

  seed: int = 0
  """Seed of everything random."""
  prototypes: tuple[tuple[int, int], ...] = (
    (10, 9), (20, 19), (10, 3), (20, 5), (100, 10), (100, 25), (100, 50), (100, 100)
  )  # fmt: skip
  """Part A: sets of prototypes, as (number, dimension)."""
  prototype_seeds: int = 8
  """Sets of prototypes of each kind, and repetitions of each timing."""
  matchings: tuple[int, ...] = (500, 1000, 2000)
  """Numbers of classes for timing a matching."""
  seeds: int = 24
  """Part B: runs of each training."""
  methods: tuple[Method, ...] = dl2p_methods.SMALL
  """Methods to train. Word2Vec-like, HPN, ETF and maximum separation run only on
  overlapping classes, in one dimension less than there are classes. Images and the
  long tail have methods of their own."""
  networks: tuple[Literal["linear", "mlp"], ...] = ("linear", "mlp")
  """Networks for Gaussian super-classes: linear, mlp or both."""
  dims: tuple[int, ...] = (3, 5, 19)
  """Dimensions of the embedding; a simplex of the 20 classes needs 19."""
  siblings: tuple[int, ...] = (3, 5, 8, 10, 19)
  """Dimensions for super-classes whose classes overlap; none skips them."""
  counts: tuple[int, int, int] = (60, 50, 50)
  """Examples per class for training, validation and test."""
  epochs: int = 15
  """Passes over the training examples."""
  rates: tuple[float, ...] = (0.003, 0.0125, 0.05, 0.2, 0.8, 3.2, 12.8)
  """Learning rates; validation examples choose one per method."""
  updates: tuple[float, ...] = (0.1, 0.5, 5.0)
  """Matchings per epoch besides 1, with the linear network in five dimensions."""
  tail_epochs: int = 40
  """Passes over the training examples under a long tail; 0 skips it."""
  imbalance: float = 0.02
  """Examples of the last class relative to the first one, under a long tail."""
  digits: tuple[int, ...] = (3, 5)
  """Dimensions for scikit-learn's digits; none skips them."""
  images: tuple[tuple[ImageSet, int], ...] = ()
  """Image sets, each with its dimension; none skips them."""
  image_seeds: int = 8
  """Runs of each training on images."""
  image_epochs: int = 30
  """Passes over images."""
  image_batch: int = 32
  """Images per batch."""
  image_size: int = 16
  """Side of the images, in pixels; larger ones are averaged over areas."""

  def __post_init__(self) -> None:
    """Raises ValueError for settings that do not fit each other."""
    sets = [name for name, _ in self.images]
    if len({*sets}) < len(sets):
      raise ValueError(f"images must name each set once, got {sets}")


@dataclasses.dataclass(frozen=True)
class Job:
  """Settings of one training of the plan."""

  images: str
  method: str
  dim: int
  updates: float = 1.0  # matchings per epoch, r in the paper
  uniformity: float | None = None  # weight for PSC*; None: validation images choose
  imbalance: float = 1.0

  @property
  def name(self) -> str:
    """Name of a training in a preset."""
    parts = [self.images, self.method, f"{self.dim}"]
    parts += [f"r={self.updates:g}"] if self.updates != 1 else []
    parts += [] if self.uniformity is None else [f"uniformity={self.uniformity:g}"]
    parts += [f"imbalance={self.imbalance:g}"] if self.imbalance < 1 else []
    return "/".join(parts)

  @property
  def label(self) -> str:
    """Settings in words, without the method."""
    return ", ".join([self.images, f"D = {self.dim}", *self._tail])

  @property
  def data(self) -> str:
    """Name of the training images."""
    return ", ".join([self.images, *self._tail])

  @property
  def title(self) -> str:
    """The method with the settings that are not the default."""
    parts = [self.method]
    if self.method == "DL2P" and self.updates != 1:
      parts.append(f"r = {self.updates:g}")
    if self.uniformity is not None:
      parts.append(f"weight {self.uniformity:g}")
    return ", ".join(parts)

  @property
  def _tail(self) -> list[str]:
    return [f"imbalance {self.imbalance:g}"] if self.imbalance < 1 else []


@dataclasses.dataclass(frozen=True)
class Full:
  """Settings of the paper's tables and figures."""

  seed: int = 0
  """Seed of everything random."""
  seeds: int = 1
  """Runs of each training."""
  trainings: tuple[str, ...] = ()
  """Trainings of the preset to run, such as cifar100/DL2P/50; none: all. A wrong name
  prints the list."""
  jobs: Decided[tuple[Job, ...]] = ()
  """The trainings of the preset."""
  prototypes: tuple[tuple[int, int], ...] = ()
  """Sets of prototypes to evaluate without training, as (classes, dimension)."""
  matchings: tuple[int, ...] = ()
  """Numbers of classes for timing a matching."""
  network: Literal["resnet32", "resnet50", "resnet101", "swin_t"] = "resnet32"
  """Backbone, followed by average pooling and a linear layer."""
  width: int = 16
  """Channels of resnet32's first stage."""
  feature_norm: bool = False
  """Adds a BatchNorm after the linear layer."""
  image_size: int = 32
  """Side of the images at the network's input, in pixels."""
  crop: Literal["padded", "resized"] = "padded"
  """Random crops: padded (by an eighth) or resized (from boxes of random size)."""
  epochs: int = 250
  """Passes over the training images."""
  batch: int = 128
  """Images per batch, over all devices."""
  optimizer: Literal["sgd", "adamw"] = "sgd"
  """Optimiser; SGD has momentum 0.9 and adds the decay to the gradient."""
  learning_rate: float = 0.01
  """Learning rate of all methods (DL2P 7.1)."""
  weight_decay: float = 1e-4
  """Weight decay of all weights except fixed prototypes."""
  drops: tuple[int, ...] = (100, 200)
  """Epochs that divide the learning rate by 10; none: it follows a cosine."""
  warm_up: int = 0
  """Epochs over which the learning rate rises linearly."""
  total: bool = True
  """Sums (1 - cos)^2 over the batch, as the paper's code for balanced data does;
  otherwise averages the pull loss."""
  mixup: float | None = None
  """Parameter of mixup's Beta distribution."""
  skip_mixed: bool = False
  """Excludes images blended with another class from their class's representative;
  otherwise they update that of their first label."""
  weighted: bool = False
  """Gives every class of a batch equal weight in the pull loss."""
  uniformities: tuple[float, ...] = (0.01, 0.1, 1.0)
  """Candidate weights of PSC*'s uniformity; validation images choose one."""
  validation: float = 0.0
  """Share of the training images held out to choose that weight, from 0 to 1."""
  evaluate_every: int = 10
  """Epochs between two evaluations."""
  listing: pathlib.Path | None = None
  """Text file that lists the training images, one per line, with or without the class
  number after it, as in ImageNet_LT_train.txt of ImageNet-LT."""
  needs_listing: Decided[bool] = False
  """Whether the images need the list of the paper's data set."""
  vectors: pathlib.Path | None = None
  """NumPy file of word vectors [classes, size]; none: vectors from the class tree."""


def plan(config: Full) -> list[Job]:
  """Lists the requested trainings; ValueError for one that cannot be trained."""
  jobs = {job.name: job for job in config.jobs}
  if unknown := [name for name in config.trainings if name not in jobs]:
    raise ValueError(f"trainings must be among {', '.join(jobs)}, got {unknown[0]!r}")
  trainings = [jobs[name] for name in config.trainings or jobs]
  for number, job in enumerate(trainings):
    earlier = [x.method for x in trainings[:number] if x.label == job.label]
    if job.method == "Ours*" and "PSC*" not in earlier:
      raise ValueError(
        f"{job.name} takes the prototypes of PSC*, which must come first"
      )
  return trainings
