"""Numbers of a training of `retrieval` or `ccp_proxies`."""

import dataclasses
from typing import Annotated, Literal

from experiments.frame import networks, poolings
from experiments.frame.settings import MultipleOf


@dataclasses.dataclass(frozen=True)
class Training(networks.Architecture):
  """Training settings that small images and photographs share."""

  steps: int = 600
  """Of a training, at most."""
  evaluate_every: int = 25
  """Steps between two evaluations."""
  patience: int = 10
  """Evaluations without a better one after which a training stops."""
  batch: int = 32
  """Images of a step."""
  per_class: int = 4
  """Images of each class in it; 1 for losses with proxies only."""
  learning_rate: float = 1e-3
  """Of Adam."""
  proxy_rate: float = 100.0
  """Learning rate of proxies over that of the network, for losses with proxies only."""
  second_moment: float = 0.999
  """Of Adam."""
  weight_decay: float = 1e-4
  """In the gradient, of the network without its norms."""
  restart: Literal["best", "last"] = "best"
  """Weights with which a problem begins."""
  switch_patience: int = 3
  """Evaluations without a better one after which a problem ends."""
  first_centres: Literal["random", "origin"] = "random"
  """What the first proxies keep away from: random images, or the origin, as the
  released code has it."""
  fresh_moments: bool = False
  """Adam begins anew for the proxies of every problem."""
  in_batch: float = 0.1
  """Weight of the batch against itself, beside the batch against proxies."""
  memory_start: int = 100
  """Steps before cross-batch memory is filled."""
  memory_use: Literal["full", "any"] = "full"
  """The memory is filled from the first step and used once all of it is younger than
  its start, or filled from its start on and used at once, as the memory's own code."""
  zero_shot: float = 0.0
  """Share of zero-shot prediction in the loss, for a pooling with attributes."""


@dataclasses.dataclass(frozen=True)
class Settings(Training):
  """Settings of trainings on images in memory."""

  seed: int = 0
  """First seed: initial weights, batches, shifts of the images."""
  seeds: int = 4
  """Trainings of each kind."""
  shift: int = 2
  """Pixels by which training images are moved, at most."""
  steps: Annotated[int, MultipleOf("evaluate_every")] = 600
  batch: Annotated[int, MultipleOf("per_class")] = 32

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.zero_shot and self.pooling not in poolings.SUMMED:
      raise ValueError(
        f"zero_shot must be 0 for a pooling without attributes, got {self.zero_shot}"
        f" for {self.pooling!r}"
      )


@dataclasses.dataclass(frozen=True)
class ProxySettings(Settings):
  """Settings of the compared methods, for the entry points."""

  proxies: int = 4
  """Of each class."""
  pool: int = 8
  """Images of each class that new proxies are chosen among; if fewer than the proxies,
  so many for each of them, and of 1 all are taken."""
  weight: float = 2e-4
  """Of the projection onto the weights of the problem before."""
  pretraining: int = 1000
  """Steps of a classification of other characters, whose backbone all but the digits'
  trainings begin with, as the thesis's begin with ImageNet's; 0: as they are drawn."""
