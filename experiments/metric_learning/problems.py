"""Plan of `ccp_proxies` and its claims about the chapter."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from experiments.frame import command
from experiments.frame.settings import MultipleOf, Without
from experiments.frame.study import Claim, NotMeasured, Table
from experiments.metric_learning import images
from experiments.metric_learning.methods import TITLES, Method
from experiments.metric_learning.settings import ProxySettings, Settings

MAP = "MAP@R"
RENEWED, ONCE = "digits, renewed", "digits, trained once"
DIGITS = ("renewed", "trained once", "samples")  # trainings with digits


_T = TypeVar("_T")
Drawn = Annotated[_T, Without("data", "gaussians")]


@dataclasses.dataclass(frozen=True)
class Config(ProxySettings):
  """Settings of the study; those of networks are of the characters."""

  data: Literal["images", "gaussians"] = "images"
  """Data: digits and characters, or random points."""
  digit_seeds: Drawn[int] = 6
  """Trainings of each kind on digits."""
  digit_images: Drawn[tuple[int, int]] = (1000, 300)
  """Images per digit, for training and validation."""
  digit_backbone: Drawn[Literal["resnet8", "resnet20"]] = "resnet8"
  """Network for the digits: one block per stage, or ResNetV2-20."""
  digit_width: Drawn[int] = 16
  """Channels of the first stage of the digits' network."""
  losses: tuple[Literal["c2", "ms", "triplet"], ...] = ("c2", "ms", "triplet")
  """Losses to compare with proxies trained once."""
  large_pool: int = 16
  """Pool size of the digits, and of the comparison of pools."""
  other_weights: tuple[float, ...] = (0.0, 1e-2, 10.0)
  """Weights to compare with `weight`."""
  batches: Annotated[tuple[int, ...], MultipleOf("per_class")] = (8, 64)
  """Images per step, to compare with and without chance constraints."""
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
    """True where any training uses characters."""
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
  overrides = {"backbone": config.digit_backbone, "width": config.digit_width, "dim": 2}
  settings = dataclasses.replace(settings, seeds=config.digit_seeds, **overrides)
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
    settings = dataclasses.replace(shared, batch=batch)
    for kind in ("plain", "ccp"):
      method = Method("c2", kind, number, config.pool)
      others[f"batch {batch} {kind}"] = settings, method
  return plane, others


def claim(
  name: str,
  statement: str,
  difference: Callable[[Table], ArrayLike],
  place: str,
  every_seed: bool = False,
) -> Claim:
  """A claim of the chapter."""
  source = f"DML, chapter 3, {place}"
  return Claim(f"ccp-{name}", statement, difference, source, every_seed)


def claims(config: Config, _: Table) -> list[Claim]:
  """Lists the claims about the trainings that were run."""
  makers = [_of_problems, _of_characters, _of_batches, _of_costs]
  return _of_digits() + [statement for of in makers for statement in of(config)]


def _all(table: Table, measure: str) -> np.ndarray:
  """The values of all variants that have them."""
  values = [table.values(measure, name) for name in table.variants(measure)]
  if not values:
    raise NotMeasured(f"{measure} was not measured")
  return np.concatenate(values)


def _of_digits() -> list[Claim]:
  first, final = (f"spread of the proxies at {place}" for place in ("first", "last"))
  end = "from the end of problem 1 to that of 4 or the last"
  return [
    claim(
      "coalesce",
      "proxies trained once end at half their first spread at most",
      lambda t: 0.5 - t.values(final, ONCE) / t.values(first, ONCE),
      "figure 3.2",
    ),
    claim(
      "covering-images",
      f"the proxies' covering radius of the training images falls, {end}",
      lambda t: -t.values("radius, problem 4 - 1", RENEWED),
      "figures 3.2, 3.3",
    ),
    claim(
      "covering-classes",
      f"covering radius of the classes over their distance falls, {end}",
      lambda t: -t.values("cover, problem 4 - 1", RENEWED),
      "figures 3.2, 3.3",
    ),
    claim(
      "map-rises",
      f"MAP@R of validation images rises, {end}",
      lambda t: t.values("score, problem 4 - 1", RENEWED),
      "figures 3.2, 3.3",
    ),
    claim(
      "proxies-stand-in",
      "MAP@R with proxies and with samples in their place differ by < .03",
      lambda t: 0.03 - abs(t.gain(MAP, RENEWED, over="digits, samples")),
      "section 3.3.1",
    ),
  ]


def _of_problems(config: Config) -> list[Claim]:
  least = config.switch_patience + 1

  def picked(table: Table) -> np.ndarray:
    values = _all(table, "random - greedy picks")
    if not len(values):
      raise NotMeasured("nothing was picked")
    return values

  return [
    claim(
      "problem-length-least",
      "every problem lasts for its first evaluation and the patience at least",
      lambda t: min(_all(t, "lengths"), default=0) - least + 0.5,
      "figure 3.7b",
      True,
    ),
    claim(
      "problem-length-two",
      "every training has two problems at least",
      lambda t: min(_all(t, "problems")) - 1.5,
      "figure 3.7b",
      True,
    ),
    claim(
      "problem-length-unequal",
      "problems are not of one length",
      lambda t: len({*_all(t, "lengths")}) - 1.5,
      "figure 3.7b",
      True,
    ),
    claim(
      "greedy-covers",
      "greedy picks cover the pools better than random ones, where there are any",
      picked,
      "section 3.2.3",
    ),
  ]


def _of_characters(config: Config) -> list[Claim]:
  usual, largest = config.weight, max(config.other_weights, default=0)
  m, b = config.proxies, config.large_pool

  def weighed(weight: float) -> str:
    return f"C2+CCP, weight {weight:g}"

  def of_pool(proxies: int, pool: int) -> str:
    return f"C2+CCP, m = {proxies}, b = {pool}"

  def alternating(table: Table) -> np.ndarray:
    names = [TITLES[loss] for loss in config.losses]
    if not names:
      raise NotMeasured("no losses are compared")
    gains = [table.gain(MAP, f"{x}+CCP", over=f"{x}-Proxy") for x in names]
    return np.concatenate(gains)

  return [
    claim(
      "alternating",
      "MAP@R of unseen classes: CCP > proxies trained once, over all losses",
      alternating,
      "figure 3.7a",
    ),
    claim(
      "lambda-drift",
      f"anchors of problems are nearer at weight {largest:g} than at 0",
      lambda t: t.gain("moves", weighed(0), over=weighed(largest)),
      "equation 3.2.11",
    ),
    claim(
      "lambda-zero",
      f"MAP@R: weight {usual:g} >= 0",
      lambda t: t.gain(MAP, "C2+CCP", over=weighed(0)),
      "figure 3.5",
    ),
    claim(
      "lambda-largest",
      f"MAP@R: weight {usual:g} > {largest:g}",
      lambda t: t.gain(MAP, "C2+CCP", over=weighed(largest)),
      "figure 3.5",
    ),
    claim(
      "proxies-per-class-number",
      f"MAP@R: {m} proxies of a class >= 1, pools of {b}",
      lambda t: t.gain(MAP, of_pool(m, b), over=of_pool(1, b)),
      "figure 3.6",
    ),
    claim(
      "proxies-per-class-pool",
      f"MAP@R of one proxy: a pool of {b} no better than one by more than .005",
      lambda t: 0.005 - t.gain(MAP, of_pool(1, b), over=of_pool(1, 1)),
      "figure 3.6",
    ),
  ]


def _of_batches(config: Config) -> list[Claim]:
  if len(config.batches) < 2:
    return []
  small, large = min(config.batches), max(config.batches)

  def lost(table: Table, kind: str) -> np.ndarray:
    name = "C2, batch {} {}"
    return table.gain(MAP, name.format(large, kind), over=name.format(small, kind))

  return [
    claim(
      "batch-size",
      f"a batch of {small} in the place of {large} loses less with CCP",
      lambda t: lost(t, "plain") - lost(t, "ccp"),
      "figure 3.8",
    )
  ]


def _of_costs(config: Config) -> list[Claim]:
  return [
    claim(
      f"cost-{title}",
      f"a step of {loss} takes at most 1.25 times as long with CCP",
      lambda t, title=title: 1.25 - t.values("time of a step / plain", f"{title}+CCP"),
      "Table 3.3",
    )
    for loss, title in ((x, TITLES[x]) for x in config.losses)
  ]
