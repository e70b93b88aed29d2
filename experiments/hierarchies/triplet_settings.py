"""Settings of the trainings of plankton."""

import dataclasses
from typing import Literal

from experiments.frame import class_network
from spherejax import _checks


@dataclasses.dataclass(frozen=True)
class Settings(class_network.Architecture):
  """Network and training."""

  seed: int = 0
  """Everything random follows from it."""
  triplets: int = 48
  """Triplets of a step."""
  iterations: int = 15
  """Parts of the training, after each of which it is looked at."""
  steps: int = 100
  """Steps of an iteration."""
  margins: tuple[float, ...] = (1.0, 1.3)
  """Of squared distances of unit vectors, one after the other."""
  raised_after: tuple[int, ...] = (10,)
  """Iterations after which the next margin holds."""
  optimizer: Literal["adam", "sgd"] = "adam"
  """SGD has momentum 0.9."""
  learning_rate: float = 1e-3
  """In the first iteration."""
  decay: float = 0.9
  """Factor of the learning rate with each iteration."""
  baseline_batch: int = 64
  """Images of a step of the softmax classifier."""
  baseline_rate: float = 1e-3
  """Its learning rate in the first iteration."""
  baseline_decay: float = 0.9
  """Factor of its learning rate with each iteration."""
  baseline_epochs: int = 0
  """Passes over the training images; 0: as many images as the triplets have."""


def margin_schedule(settings: Settings, iteration: int) -> float:
  """The margin of an iteration, counted from 1."""
  return settings.margins[sum(iteration > last for last in settings.raised_after)]


def check(settings: Settings) -> None:
  """Raises ValueError for numbers that do not fit together."""
  if len(settings.margins) != len(settings.raised_after) + 1:
    raise ValueError(
      f"margins must be one more than raised_after, got {settings.margins} and"
      f" {settings.raised_after}"
    )
  for margin in settings.margins:  # squared distances on the sphere are at most 4
    _checks.between("margins", margin, 0, 4, low_open=True, high_open=True)
  later = settings.raised_after
  if any(x < 1 for x in later) or list(later) != sorted(set(later)):
    raise ValueError(f"raised_after must grow from at least 1 on, got {later}")
  for name in ("iterations", "steps", "triplets", "baseline_batch", "width", "dim"):
    _checks.count(name, getattr(settings, name))
  for name in ("learning_rate", "decay", "baseline_rate", "baseline_decay"):
    _checks.positive(name, getattr(settings, name))


def epoch_length(settings: Settings, images: int) -> int:
  """Steps of a pass of the softmax classifier; ValueError for no step."""
  if images < settings.baseline_batch:
    raise ValueError(
      f"baseline_batch must be at most the {images} training images, got"
      f" {settings.baseline_batch}"
    )
  return images // settings.baseline_batch


def length(settings: Settings) -> int:
  """Iterations that are trained, those with the first margin throughout included."""
  return settings.iterations + max(settings.iterations - common(settings), 0)


def common(settings: Settings) -> int:
  """Iterations before the margin is raised for the first time."""
  return min([settings.iterations, *settings.raised_after[:1]])
