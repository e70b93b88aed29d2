"""Settings of the few-shot trainings and of their study."""

import dataclasses
from typing import Annotated, Literal, NamedTuple

from experiments.episodes import published
from experiments.frame import command
from experiments.frame.settings import Without
from spherejax import _checks
from spherejax.models._convolution import Method
from spherejax.prototypes._few_shot import Representative


@dataclasses.dataclass(frozen=True)
class Settings:
  """Network, episodes and optimiser."""

  seed: int = 0
  """Everything random follows from it."""
  seeds: int = 3
  """Networks, each trained on other episodes from another start."""
  backbone: Literal["conv4", "resnet18"] = "conv4"
  """Network."""
  width: int = 32
  """Channels of Conv4."""
  convolution: Method = "patches"
  """How convolutions are computed: patches (on a CPU) or native."""
  image_size: int = 28
  """Side of an image as the network sees it."""
  augment: bool = False
  """Random crops, flips and colours while training."""
  num_ways: int = 5
  """Classes of an episode."""
  num_queries: int = 10
  """Queries of each class while training and validating."""
  test_queries: int = 10
  """Likewise while testing."""
  episodes: int = 400
  """Training steps, an episode each; 0: the article's, 60,000 at 1 shot and 50,000 at
  more."""
  check_every: int = 10
  """Episodes between two looks at what the last update did."""
  validate_every: int = 50
  """Episodes between two validations."""
  validation_episodes: int = 100
  """Fixed episodes that choose the network."""
  test_episodes: int = 600
  """Fixed episodes for the final accuracy."""
  learning_rate: float = 1e-3
  """Of Adam."""
  all_diagnostics: bool = False
  """Whether all figures of the article's tables are measured by their centring, and
  tested, and training classes are classified at each look."""


class Part(NamedTuple):
  """A kind of training."""

  shots: int
  representative: Representative

  @property
  def name(self) -> str:
    """As in tables."""
    kind = "" if self.representative == "mean" else "1-NN, "
    return f"{kind}{self.shots}-shot"


COUNTS = (
  "check_every",
  "validate_every",
  "num_queries",
  "test_queries",
  "validation_episodes",
  "test_episodes",
)


@dataclasses.dataclass(frozen=True)
class Config(Settings):
  """Settings of the study."""

  images: Literal["omniglot", "cub", "mini_imagenet"] = "omniglot"
  """What is classified."""
  percent: Annotated[int, Without("images", ("cub", "mini_imagenet"))] = 100
  """Of omniglot's images that are read; classes with too few of them are left out."""
  folder: Annotated[str, Without("images", ("omniglot", "cub"))] = "mini-imagenet"
  """Folders train, val and test of mini-ImageNet."""
  shots: tuple[int, ...] = (1, 5)
  """Supports of each class, a training for each."""
  nearest_shots: tuple[int, ...] = (5,)
  """Likewise with the nearest support in place of their mean."""
  exponents: tuple[float, ...] = (1.0, 2.0, 4.0, 7.389, 16.0, 32.0)
  """Fixed exponents of DR, compared at 1 shot."""


def of_part(config: Config, shots: int) -> Config:
  """The settings of a training, with the article's length where they say 0."""
  length = published.EPISODES[1 if shots == 1 else 5]
  return dataclasses.replace(config, episodes=config.episodes or length)


def check(config: Config) -> None:
  """Raises ValueError for settings that do not fit together."""
  if not 1 <= config.percent <= 100:
    raise ValueError(f"percent must be in [1, 100], got {config.percent}")
  for name in COUNTS:
    _checks.count(name, getattr(config, name))
  for shots in (*config.shots, *config.nearest_shots):
    _checks.count("shots", shots)
  for name in ("check_every", "validate_every"):
    if config.episodes % getattr(config, name):
      raise ValueError(
        f"episodes must be a multiple of {name} = {getattr(config, name)}, got"
        f" {config.episodes}"
      )
  command.check_parts(config.validate_every, config.check_every)
  if config.num_ways < 2:
    raise ValueError(
      f"num_ways must be at least 2 classes, got {config.num_ways}: one is always right"
    )
  if any(not x > 0 for x in config.exponents):
    raise ValueError(f"exponents must be above 0, got {config.exponents}")
