"""Plan of `ccp_proxies` and its claims about the chapter."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, TypeVar

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
  """Steps of pretraining the backbone on other characters, for all trainings but the
  digits'; it replaces ImageNet weights. 0: random weights."""

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


_DIGITS_ALONE: dict[str, Any] = {
  "pretraining": 0, "losses": (), "other_weights": (), "batches": ()
}  # fmt: skip
PRESETS = {
  "cpu": Config(),
  "long": Config(steps=2400, digit_seeds=5, **_DIGITS_ALONE),
  # DML 3.3.1 states network, dimension, proxies and pool; the rest is of 3.3.2.1, but
  # for its rate, one for pretrained weights. The rarest digit has as many images.
  "full": Config(
    digit_backbone="resnet20", digit_images=(5000, 421), digit_seeds=5,
    convolution="native", steps=100_000, patience=60, **_DIGITS_ALONE,
  ),
  "smoke": Config(
    data="gaussians", backbone="mlp", width=64, dim=16, image_size=4, shift=0, batch=12,
    steps=300, evaluate_every=10, patience=40, seeds=1, digit_seeds=1, **_DIGITS_ALONE,
  ),
}  # fmt: skip


def digits(config: Config) -> tuple[Settings, images.Study]:
  """Embeddings in the plane, and their images."""
  settings = command.only(Settings, config)
  if config.data == "gaussians":
    return settings, images.gaussians(config.seed)._replace(watched=True)
  overrides = {"backbone": config.digit_backbone, "width": config.digit_width, "dim": 2}
  settings = dataclasses.replace(settings, seeds=config.digit_seeds, **overrides)
  return settings, images.mnist(config.image_size, *config.digit_images)


def characters(config: Config) -> images.Study:
  """Images of what is tested on other classes."""
  if config.data == "gaussians":
    return images.gaussians(config.seed)
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


Parts = tuple[str, str, str, Callable[[Table], ArrayLike]]
"""A claim's id without its first part, place in the chapter, statement, difference."""


def claims(config: Config, _: Table) -> list[Claim]:
  """Lists the claims about the trainings that were run."""
  first = [*_of_digits(), *_of_problems(config)]
  rest = [*_of_characters(config), *_of_batches(config), *_of_costs(config)]
  return [
    Claim(f"ccp-{name}", text, difference, f"DML, chapter 3, {place}", name in _EVERY)
    for name, place, text, difference in first + rest
  ]


_EVERY = ("problem-length-least", "problem-length-two", "problem-length-unequal")


def _all(table: Table, measure: str) -> np.ndarray:
  """The values of all variants that have them."""
  values = [table.values(measure, name) for name in table.variants(measure)]
  if not values:
    raise NotMeasured(f"{measure} was not measured")
  return np.concatenate(values)


def _of_digits() -> list[Parts]:
  first, final = (f"spread of the proxies at {place}" for place in ("first", "last"))
  end = "from the end of problem 1 to that of 4 or the last"
  return [
    ("coalesce", "figure 3.2",
     "proxies trained once end at half their first spread at most",
     lambda t: 0.5 - t.values(final, ONCE) / t.values(first, ONCE)),
    ("covering-images", "figures 3.2, 3.3",
     f"the proxies' covering radius of the training images falls, {end}",
     lambda t: -t.values("radius, problem 4 - 1", RENEWED)),
    ("covering-classes", "figures 3.2, 3.3",
     f"covering radius of the classes over their distance falls, {end}",
     lambda t: -t.values("cover, problem 4 - 1", RENEWED)),
    ("map-rises", "figures 3.2, 3.3", f"MAP@R of validation images rises, {end}",
     lambda t: t.values("score, problem 4 - 1", RENEWED)),
    ("proxies-stand-in", "section 3.3.1",
     "MAP@R with proxies and with samples in their place differ by < .03",
     lambda t: 0.03 - abs(t.gain(MAP, RENEWED, over="digits, samples"))),
  ]  # fmt: skip


def _of_problems(config: Config) -> list[Parts]:
  least = config.switch_patience + 1

  def picked(table: Table) -> np.ndarray:
    values = _all(table, "random - greedy picks")
    if not len(values):
      raise NotMeasured("nothing was picked")
    return values

  return [
    ("problem-length-least", "figure 3.7b",
     "every problem lasts for its first evaluation and the patience at least",
     lambda t: min(_all(t, "lengths"), default=0) - least + 0.5),
    ("problem-length-two", "figure 3.7b", "every training has two problems at least",
     lambda t: min(_all(t, "problems")) - 1.5),
    ("problem-length-unequal", "figure 3.7b", "problems are not of one length",
     lambda t: len({*_all(t, "lengths")}) - 1.5),
    ("greedy-covers", "section 3.2.3", "greedy picks cover the pools better than random"
     " ones, where there are any", picked),
  ]  # fmt: skip


def _of_characters(config: Config) -> list[Parts]:
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
    ("alternating", "figure 3.7a",
     "MAP@R of unseen classes: CCP > proxies trained once, over all losses",
     alternating),
    ("lambda-drift", "equation 3.2.11",
     f"anchors of problems are nearer at weight {largest:g} than at 0",
     lambda t: t.gain("moves", weighed(0), over=weighed(largest))),
    ("lambda-zero", "figure 3.5", f"MAP@R: weight {usual:g} >= 0",
     lambda t: t.gain(MAP, "C2+CCP", over=weighed(0))),
    ("lambda-largest", "figure 3.5", f"MAP@R: weight {usual:g} > {largest:g}",
     lambda t: t.gain(MAP, "C2+CCP", over=weighed(largest))),
    ("proxies-per-class-number", "figure 3.6",
     f"MAP@R: {m} proxies of a class >= 1, pools of {b}",
     lambda t: t.gain(MAP, of_pool(m, b), over=of_pool(1, b))),
    ("proxies-per-class-pool", "figure 3.6",
     f"MAP@R of one proxy: a pool of {b} no better than one by more than .005",
     lambda t: 0.005 - t.gain(MAP, of_pool(1, b), over=of_pool(1, 1))),
  ]  # fmt: skip


def _of_batches(config: Config) -> Iterator[Parts]:
  small, large = min(config.batches, default=0), max(config.batches, default=0)

  def lost(table: Table, kind: str) -> np.ndarray:
    name = "C2, batch {} {}"
    return table.gain(MAP, name.format(large, kind), over=name.format(small, kind))

  if len(config.batches) > 1:
    text = f"a batch of {small} in the place of {large} loses less with CCP"
    yield "batch-size", "figure 3.8", text, lambda t: lost(t, "plain") - lost(t, "ccp")


def _of_costs(config: Config) -> Iterator[Parts]:
  measure = "time of a step / plain"
  for loss in config.losses:
    yield (
      f"cost-{TITLES[loss]}",
      "Table 3.3",
      f"a step of {loss} takes at most 1.25 times as long with CCP",
      lambda t, loss=loss: 1.25 - t.values(measure, f"{TITLES[loss]}+CCP"),
    )
