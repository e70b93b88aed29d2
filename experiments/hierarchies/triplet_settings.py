"""Settings of the trainings of plankton."""

import dataclasses
from typing import Annotated, Literal

from experiments.frame import class_network
from experiments.frame.settings import Limited, Within


@dataclasses.dataclass(frozen=True)
class Settings(class_network.Architecture, Limited):
  """Network and training."""

  seed: int = 0
  """Everything random follows from it."""
  triplets: Annotated[int, Within(1)] = 48
  """Triplets of a step."""
  iterations: Annotated[int, Within(1)] = 15
  """Parts of the training, after each of which it is looked at."""
  steps: Annotated[int, Within(1)] = 100
  """Steps of an iteration."""
  margins: Annotated[tuple[float, ...], Within(1e-6, 4)] = (1.0, 1.3)
  """Of squared distances of unit vectors, one after the other."""
  raised_after: Annotated[tuple[int, ...], Within(1)] = (10,)
  """Iterations after which the next margin holds."""
  optimizer: Literal["adam", "sgd"] = "adam"
  """SGD has momentum 0.9."""
  learning_rate: Annotated[float, Within(1e-9)] = 1e-3
  """In the first iteration."""
  decay: Annotated[float, Within(1e-9)] = 0.9
  """Factor of the learning rate with each iteration."""
  baseline_batch: Annotated[int, Within(1)] = 64
  """Images of a step of the softmax classifier."""
  baseline_rate: Annotated[float, Within(1e-9)] = 1e-3
  """Its learning rate in the first iteration."""
  baseline_decay: Annotated[float, Within(1e-9)] = 0.9
  """Factor of its learning rate with each iteration."""
  baseline_epochs: int = 0
  """Passes over the training images; 0: as many images as the triplets have."""


def margin_schedule(settings: Settings, iteration: int) -> float:
  """The margin of an iteration, counted from 1."""
  return settings.margins[sum(iteration > last for last in settings.raised_after)]


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
