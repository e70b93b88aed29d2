"""Settings of the few-shot trainings and of their study."""

import dataclasses
from typing import Annotated, Literal, NamedTuple

from experiments.frame.settings import Limited, MultipleOf, Within, Without

EPISODES = {1: 60_000, 5: 50_000}
"""Of the article, by its numbers of supports."""


@dataclasses.dataclass(frozen=True)
class Settings(Limited):
  """Network, episodes and optimiser."""

  seed: int = 0
  """Everything random follows from it."""
  seeds: int = 3
  """Networks, each trained on other episodes from another start."""
  backbone: Literal["conv4", "resnet18"] = "conv4"
  """Network."""
  width: int = 32
  """Channels of Conv4."""
  convolution: Literal["native", "patches"] = "patches"
  """How convolutions are computed: patches (on a CPU) or native."""
  image_size: int = 28
  """Side of an image as the network sees it."""
  augment: bool = False
  """Random crops, flips and colours while training."""
  num_ways: Annotated[int, Within(2)] = 5
  """Classes of an episode."""
  num_queries: Annotated[int, Within(1)] = 10
  """Queries of each class while training and validating."""
  test_queries: Annotated[int, Within(1)] = 10
  """Likewise while testing."""
  episodes: Annotated[int, MultipleOf("validate_every"), MultipleOf("check_every")] = (
    400
  )
  """Training steps, an episode each; 0: the article's, 60,000 at 1 shot and 50,000 at
  more."""
  check_every: Annotated[int, Within(1)] = 10
  """Episodes between two looks at what the last update did."""
  validate_every: Annotated[int, Within(1), MultipleOf("check_every")] = 50
  """Episodes between two validations."""
  validation_episodes: Annotated[int, Within(1)] = 100
  """Fixed episodes that choose the network."""
  test_episodes: Annotated[int, Within(1)] = 600
  """Fixed episodes for the final accuracy."""
  learning_rate: float = 1e-3
  """Of Adam."""
  all_diagnostics: bool = False
  """Whether all figures of the article's tables are measured by their centring, and
  tested, and training classes are classified at each look."""


class Part(NamedTuple):
  """A kind of training."""

  shots: int
  representative: Literal["mean", "nearest"]

  @property
  def name(self) -> str:
    """As in tables."""
    kind = "" if self.representative == "mean" else "1-NN, "
    return f"{kind}{self.shots}-shot"


@dataclasses.dataclass(frozen=True)
class Config(Settings):
  """Settings of the study."""

  images: Literal["omniglot", "cub", "mini_imagenet"] = "omniglot"
  """What is classified."""
  percent: Annotated[
    int, Within(1, 100), Without("images", ("cub", "mini_imagenet"))
  ] = 100
  """Of omniglot's images that are read; classes with too few of them are left out."""
  folder: Annotated[str, Without("images", ("omniglot", "cub"))] = "mini-imagenet"
  """Folders train, val and test of mini-ImageNet."""
  shots: Annotated[tuple[int, ...], Within(1)] = (1, 5)
  """Supports of each class, a training for each."""
  nearest_shots: Annotated[tuple[int, ...], Within(1)] = (5,)
  """Likewise with the nearest support in place of their mean."""
  exponents: Annotated[tuple[float, ...], Within(1e-6)] = (
    1.0,
    2.0,
    4.0,
    7.389,
    16.0,
    32.0,
  )
  """Fixed exponents of DR, compared at 1 shot."""


def of_part(config: Config, shots: int) -> Config:
  """The settings of a training, with the article's length where they say 0."""
  length = EPISODES[1 if shots == 1 else 5]
  return dataclasses.replace(config, episodes=config.episodes or length)


def parts(config: Config) -> list[Part]:
  """The trainings of both losses."""
  means = [Part(shots, "mean") for shots in config.shots]
  return means + [Part(shots, "nearest") for shots in config.nearest_shots]


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    percent=20,
    seeds=1,
    width=8,
    num_queries=2,
    test_queries=2,
    episodes=20,
    check_every=5,
    validate_every=10,
    validation_episodes=20,
    test_episodes=50,
    shots=(1,),
    nearest_shots=(),
    exponents=(),
  ),
  "full": Config(
    images="cub",
    seeds=1,
    width=64,
    convolution="native",
    image_size=84,
    augment=True,
    num_queries=16,
    test_queries=15,
    episodes=0,
    check_every=100,
    validate_every=100,
    all_diagnostics=True,
    shots=(1,),
    nearest_shots=(),
    exponents=(),
  ),
}
