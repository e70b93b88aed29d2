"""Settings of `dynamic_assignment`: of the small study, and of the paper's tables."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from experiments.assignment import methods as dl2p_methods
from experiments.assignment import tasks

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
  """Everything random follows from it."""
  prototypes: tuple[tuple[int, int], ...] = (
    (10, 9), (20, 19), (10, 3), (20, 5), (100, 10), (100, 25), (100, 50), (100, 100)
  )  # fmt: skip
  """Part A: numbers of prototypes and their dimensions."""
  prototype_seeds: int = 8
  """Sets of prototypes of each kind, and timings of a matching."""
  matchings: tuple[int, ...] = (500, 1000, 2000)
  """Numbers of classes whose matching is timed."""
  seeds: int = 24
  """Part B: runs of each training."""
  methods: tuple[Method, ...] = dl2p_methods.SMALL
  """Methods to train; what is a rival of DL2P for its dimension alone, such as a
  simplex, in one dimension less than there are classes, and where classes overlap."""
  networks: tuple[Literal["linear", "mlp"], ...] = ("linear", "mlp")
  """Networks for Gaussian super-classes: linear and mlp."""
  dims: tuple[int, ...] = (3, 5, 19)
  """Dimensions of the embedding; a simplex of the 20 classes needs 19."""
  siblings: tuple[int, ...] = (3, 5, 8, 10, 19)
  """The same for super-classes whose classes overlap; none leaves them out."""
  counts: tuple[int, int, int] = (60, 50, 50)
  """Examples of each class for training, validation and tests."""
  epochs: int = 15
  """Passes over the training examples."""
  rates: tuple[float, ...] = (0.0125, 0.05, 0.2, 0.8, 3.2)
  """Learning rates that validation examples choose from, for each method."""
  updates: tuple[float, ...] = (0.1, 0.5, 5.0)
  """Matchings an epoch besides 1, in five dimensions with the linear network."""
  tail_epochs: int = 40
  """Passes under a long tail; 0 for no such training."""
  imbalance: float = 0.02
  """The last class's share of the first one's examples under a long tail."""
  digits: tuple[int, ...] = (3, 5)
  """Dimensions for scikit-learn's digits; none leaves them out."""
  images: tuple[tuple[ImageSet, int], ...] = ()
  """Sets of images and the dimension for each; none leaves them out."""
  image_methods: tuple[Method, ...] = dl2p_methods.EVERYWHERE
  """Methods for images."""
  image_seeds: int = 8
  """Runs on images."""
  image_epochs: int = 30
  """Passes over images."""
  image_batch: int = 32
  """Images in a batch."""
  image_size: int = 16
  """Side of the images, by area average from larger ones."""

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
  updates: float = 1.0
  """Matchings an epoch, r in the paper."""
  uniformity: float | None = None
  """Weight of PSC*'s; None where validation images choose."""
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
    """The method with what is not its default."""
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
  """Everything random follows from it."""
  seeds: int = 1
  """Runs of each training."""
  trainings: tuple[str, ...] = ()
  """Which of the preset's trainings, by their names, such as cifar100/DL2P/50; a wrong
  name lists all; none: all of them."""
  jobs: Annotated[tuple[Job, ...], tyro.conf.Suppress] = ()
  """The trainings of the preset."""
  prototypes: tuple[tuple[int, int], ...] = ()
  """Classes and dimensions of prototypes to look at without training."""
  matchings: tuple[int, ...] = ()
  """Classes whose matching is timed."""
  network: Literal["resnet32", "resnet18", "resnet50", "resnet101", "swin_t"] = (
    "resnet32"
  )
  """Backbone; its average-pooled map is followed by a linear layer."""
  width: int = 16
  """Channels of resnet32's first stage."""
  feature_norm: bool = False
  """Whether a BatchNorm follows the linear layer."""
  image_size: int = 32
  """Side of the images that the network sees."""
  crop: Literal["padded", "resized"] = "padded"
  """Random crops after padding by an eighth, or of boxes of random size."""
  epochs: int = 250
  """Passes over the training images."""
  batch: int = 128
  """Images in a batch over all devices."""
  optimizer: Literal["sgd", "adamw"] = "sgd"
  """SGD has momentum 0.9 and adds the decay to the gradient."""
  learning_rate: float = 0.01
  """Of all methods (DL2P 7.1)."""
  weight_decay: float = 1e-4
  """Of all weights but fixed prototypes."""
  drops: tuple[int, ...] = (100, 200)
  """Epochs after which the rate is a tenth; without any it falls as a cosine."""
  warm_up: int = 0
  """Epochs in which the rate rises linearly."""
  total: bool = True
  """Sum (1 - cos)^2 over the batch, as the balanced code does; otherwise the mean of
  the pull loss."""
  mixup: float | None = None
  """Parameter of mixup's Beta distribution."""
  skip_mixed: bool = False
  """Whether images blended with one of another class leave their class's
  representative as it is; otherwise they move that of their first label."""
  weighted: bool = False
  """Whether the pull loss counts every class of a batch alike."""
  uniform: Literal["potential", "anneal"] = "potential"
  """Prototypes of DL2P, Static and Fixed + CE: of least Gaussian potential, as the
  paper's, or the best known of the size."""
  uniformities: tuple[float, ...] = (0.01, 0.1, 1.0)
  """Weights of PSC*'s uniformity, of which validation images choose."""
  validation: float = 0.0
  """Share of the training images held out for that choice."""
  evaluate_every: int = 10
  """Epochs between two evaluations."""
  listing: pathlib.Path | None = None
  """File that names the training images to keep, one a line, with or without the
  number of its class after it, as ImageNet-LT's ImageNet_LT_train.txt does."""
  needs_listing: Annotated[bool, tyro.conf.Suppress] = False
  """Whether its images are those of a list that comes with the paper's set."""
  vectors: pathlib.Path | None = None
  """NumPy file of word vectors [classes, size]; without it the class tree's."""


def plan(config: Full) -> list[Job]:
  """The trainings that were asked for; ValueError for what cannot be trained."""
  known = {job.name: job for job in config.jobs}
  if unknown := [name for name in config.trainings if name not in known]:
    raise ValueError(f"trainings must be among {', '.join(known)}, got {unknown[0]!r}")
  chosen = [known[name] for name in config.trainings or known]
  for number, job in enumerate(chosen):
    before = [x.method for x in chosen[:number] if x.label == job.label]
    if job.method == "Ours*" and "PSC*" not in before:
      raise ValueError(
        f"{job.name} takes the prototypes of PSC*, which must come first"
      )
  return chosen
