"""Settings of the paper's tables, and the trainings that they name."""

import dataclasses
import pathlib
from typing import Literal, NamedTuple

from experiments.assignment.methods import RECIPES


@dataclasses.dataclass(frozen=True)
class Full:
  """Settings of the paper's tables and figures."""

  seed: int = 0
  """Everything random follows from it."""
  seeds: int = 1
  """Runs of each training."""
  trainings: tuple[str, ...] = ()
  """What to train: images/method/dim, then r=, uniformity= or imbalance= where they
  are not those of the preset; cifar100/DL2P/50/r=0.5, for example."""
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
  """Of the pull loss."""
  softmax_rate: float = 0.1
  """Of methods with cross-entropy; the paper does not say."""
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
  updates_per_epoch: float = 1.0
  """Matchings an epoch, r in the paper."""
  uniformities: tuple[float, ...] = (0.01, 0.1, 1.0)
  """Weights of PSC*'s uniformity, of which validation images choose."""
  validation: float = 0.0
  """Share of the training images held out for that choice."""
  evaluate_every: int = 10
  """Epochs between two evaluations."""
  listing: pathlib.Path | None = None
  """File that names the training images to keep, one a line, with or without the
  number of its class after it, as ImageNet-LT's ImageNet_LT_train.txt does."""
  vectors: pathlib.Path | None = None
  """NumPy file of word vectors [classes, size]; without it the class tree's."""


class Job(NamedTuple):
  """One training of the plan."""

  images: str
  method: str
  dim: int
  updates: float
  uniformity: float | None
  imbalance: float

  @property
  def label(self) -> str:
    """What it is but for the method."""
    return ", ".join([self.images, f"D = {self.dim}", *self._tail])

  @property
  def data(self) -> str:
    """What it is trained on."""
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


def plan(config: Full) -> list[Job]:
  """The trainings by name; raises ValueError for what cannot be trained."""
  jobs = []
  for text in config.trainings:
    images, method, dim, *options = text.split("/")
    if method not in RECIPES:
      raise ValueError(f"{text!r}: method must be one of {', '.join(RECIPES)}")
    given = dict(option.split("=", 1) for option in options)
    if unknown := set(given) - {"r", "uniformity", "imbalance"}:
      raise ValueError(f"{text!r}: unknown option {sorted(unknown)[0]!r}")
    job = Job(
      images,
      method,
      int(dim),
      float(given.get("r", config.updates_per_epoch)),
      float(given["uniformity"]) if "uniformity" in given else None,
      float(given.get("imbalance", 1)),
    )
    before = [other for other in jobs if other.label == job.label]
    if method == "Ours*" and not any(other.method == "PSC*" for other in before):
      raise ValueError(f"{text!r} takes the prototypes of PSC*, which must come first")
    jobs.append(job)
  return jobs
