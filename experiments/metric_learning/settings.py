"""Settings of a training of `retrieval` or `ccp_proxies`."""

import dataclasses
from typing import Annotated

from experiments.frame import networks, poolings
from experiments.frame.settings import MultipleOf


@dataclasses.dataclass(frozen=True)
class Training(networks.Architecture):
  """Training settings that small images and photographs share."""

  steps: int = 600
  """Largest number of steps of a training."""
  evaluate_every: int = 25
  """Steps between two evaluations."""
  patience: int = 10
  """Evaluations without improvement before a training stops."""
  batch: int = 32
  """Images per step."""
  per_class: int = 4
  """Images per class in a step; always 1 for proxy losses."""
  learning_rate: float = 1e-3
  """Learning rate of Adam."""
  proxy_rate: float = 100.0
  """Learning rate of proxies relative to the network's, for proxy losses only."""
  second_moment: float = 0.999
  """Second-moment decay of Adam."""
  weight_decay: float = 1e-4
  """Weight decay, added to the gradient of the network except its norms."""
  switch_patience: int = 3
  """Evaluations without improvement before a problem ends."""
  memory_start: int = 100
  """Steps before the cross-batch memory is refilled; the loss uses the memory once it
  is full."""
  zero_shot: float = 0.0
  """Weight of zero-shot prediction in the loss, for a pooling with attributes."""


@dataclasses.dataclass(frozen=True)
class Settings(Training):
  """Settings of trainings on images in memory."""

  seed: int = 0
  """First seed of initial weights, batches and image shifts."""
  seeds: int = 4
  """Trainings of each kind."""
  shift: int = 2
  """Largest shift of training images, in pixels."""
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
  """Proxies per class."""
  pool: int = 8
  """Images per class among which new proxies are chosen. A number below `proxies`
  counts per proxy; with 1, every image becomes a proxy."""
  weight: float = 2e-4
  """Weight of the projection onto the weights of the previous problem."""
  rates: tuple[float, ...] = (1.0,)
  """Multiples of `learning_rate`; validation with two seeds chooses one per method. If
  that is the smallest or largest of several, smaller or larger ones are tried while the
  score rises."""

  def __post_init__(self) -> None:
    super().__post_init__()
    if not self.rates or min(self.rates) <= 0:
      raise ValueError(f"rates must be positive, at least one, got {self.rates}")
