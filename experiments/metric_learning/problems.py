"""What `ccp_proxies` trains: settings, methods, the images of each."""

import dataclasses
from typing import Annotated, Literal, TypeVar

from experiments.frame import command
from experiments.frame.settings import MultipleOf, Without
from experiments.metric_learning import images
from experiments.metric_learning.methods import Method
from experiments.metric_learning.settings import ProxySettings, Settings

DIGITS = ("renewed", "trained once", "samples")  # trainings with digits


_T = TypeVar("_T")
Drawn = Annotated[_T, Without("data", "gaussians")]


@dataclasses.dataclass(frozen=True)
class Config(ProxySettings):
  """Settings of the study; those of networks are of the characters."""

  data: Literal["images", "gaussians"] = "images"
  """Digits and characters, or points that are drawn."""
  digit_seeds: Drawn[int] = 6
  """Trainings of each kind with digits."""
  digit_images: Drawn[tuple[int, int]] = (1000, 300)
  """Of each digit, to train and to validate."""
  digit_backbone: Drawn[Literal["resnet8", "resnet20"]] = "resnet8"
  """Network of the digits: with one block a stage, or ResNetV2-20."""
  digit_width: Drawn[int] = 16
  """Channels of the first stage of the digits' network."""
  losses: tuple[Literal["c2", "ms", "triplet"], ...] = ("c2", "ms", "triplet")
  """Compared with proxies trained once."""
  large_pool: int = 16
  """Of digits, and of the comparison of pools."""
  other_weights: tuple[float, ...] = (0.0, 1e-2, 10.0)
  """Others that are compared with it."""
  batches: Annotated[tuple[int, ...], MultipleOf("per_class")] = (8, 64)
  """Images of a step, compared with and without chance constraints."""
  pretraining: Annotated[
    int, Without("of_characters", False, "without trainings on characters")
  ] = 1000

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.other_weights and "c2" not in self.losses:
      raise ValueError(
        f"other_weights {self.other_weights} are compared for c2, which losses must"
        f" name, got {self.losses}"
      )

  @property
  def of_characters(self) -> bool:
    """Whether anything is trained on characters."""
    return bool(self.losses or self.other_weights or len(self.batches) > 1)


PRESETS = {
  "cpu": Config(),
  "long": Config(
    steps=2400,
    digit_seeds=5,
    pretraining=0,
    losses=(),
    other_weights=(),
    batches=(),
  ),
  # DML 3.3.1 states network, dimension, proxies and pool; the rest is of 3.3.2.1, but
  # for its rate, one for pretrained weights. The rarest digit has as many images.
  "full": Config(
    digit_backbone="resnet20",
    digit_images=(5000, 421),
    digit_seeds=5,
    convolution="native",
    steps=100_000,
    patience=60,
    pretraining=0,
    losses=(),
    other_weights=(),
    batches=(),
  ),
  "smoke": Config(
    data="gaussians",
    backbone="mlp",
    width=64,
    dim=16,
    image_size=4,
    shift=0,
    batch=12,
    steps=300,
    evaluate_every=10,
    patience=40,
    seeds=1,
    digit_seeds=1,
    pretraining=0,
    losses=(),
    other_weights=(),
    batches=(),
  ),
}


def digits(config: Config) -> tuple[Settings, images.Study]:
  """Embeddings in the plane, and their images."""
  settings = command.only(Settings, config)
  if config.data == "gaussians":
    return settings, images.gaussians(config.seed)
  own = {"backbone": config.digit_backbone, "width": config.digit_width, "dim": 2}
  settings = dataclasses.replace(settings, seeds=config.digit_seeds, **own)
  return settings, images.mnist(config.image_size, *config.digit_images)


def characters(config: Config) -> images.Study:
  """Images of what is tested on other classes."""
  if config.data == "gaussians":
    return images.gaussians(config.seed)._replace(watched=False)
  return images.omniglot(config.image_size)


def plan(
  config: Config, shared: Settings
) -> tuple[dict[str, Method], dict[str, tuple[Settings, Method]]]:
  """Trainings with digits, and those with characters and their settings, by name.

  The characters' settings are the shared ones but for what is compared.
  """
  number, large = config.proxies, config.large_pool
  plane = {
    name: Method("c2", kind, number, large)
    for name, kind in zip(DIGITS, ("ccp", "proxy", "samples"), strict=True)
  }
  others: dict[str, tuple[Settings, Method]] = {}
  for loss in config.losses:
    for kind in ("plain", "proxy", "ccp"):
      others[f"{loss} {kind}"] = shared, Method(loss, kind, number, config.pool)
  if config.other_weights:
    pools = [(m, b) for m in (1, number) for b in (m, large)]
    for m, b in pools:
      others[f"m = {m}, b = {b}"] = shared, Method("c2", "ccp", m, b)
  for batch in config.batches:
    own = dataclasses.replace(shared, batch=batch)
    for kind in ("plain", "ccp"):
      method = Method("c2", kind, number, config.pool)
      others[f"batch {batch} {kind}"] = own, method
  return plane, others
