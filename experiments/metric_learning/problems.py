"""Plan of `ccp_proxies`, its table, and its claims about the chapter."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike

from experiments.frame import command
from experiments.frame.settings import Decided, MultipleOf, Without
from experiments.frame.study import Claim, NotMeasured, Table
from experiments.metric_learning.methods import TITLES, Method
from experiments.metric_learning.runs import Trained
from experiments.metric_learning.settings import ProxySettings, Settings

MAP = "MAP@R"
# Trainings in the plane.
DIGITS = RENEWED, ONCE, SAMPLES = (
  "digits, renewed", "digits, trained once", "digits, samples",
)  # fmt: skip
_FROZEN = ("cars196", "ndsb_plankton")
# Names of trainings.
_weighed, _pooled = "C2+CCP, weight {:g}".format, "C2+CCP, m = {}, b = {}".format
Runs = Mapping[str, Trained]
"""Outcomes of all trainings, by name."""


@dataclasses.dataclass(frozen=True)
class Config(ProxySettings):
  """Settings of the study."""

  data: Literal["cars196", "ndsb_plankton", "mnist", "gaussians"] = "cars196"
  """Data: a pretrained network's features of cars or plankton, digits, or random
  points."""
  digit_images: Annotated[tuple[int, int], Without("data", (*_FROZEN, "gaussians"))] = (
    1000, 300
  )  # fmt: skip
  """Images per digit, for training and validation."""
  losses: tuple[Literal["c1", "c2", "ms", "triplet"], ...] = ()
  """Losses to train with renewed proxies, with proxies trained once, and plain; c2 also
  compares numbers of proxies, sizes of pools and `other_weights`."""
  other_weights: tuple[float, ...] = ()
  """Weights to compare with `weight`."""
  batches: Annotated[tuple[int, ...], MultipleOf("per_class")] = ()
  """Images per step, to compare with and without chance constraints."""
  memory_start: Decided[int] = 100
  proxy_rate: Decided[float] = 100.0

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.backbone == "last_stage":
      raise ValueError("backbone must not be last_stage, for averaged features")
    if self.other_weights and "c2" not in self.losses:
      raise ValueError(
        f"other_weights {self.other_weights} are compared for c2, which losses must"
        f" name, got {self.losses}"
      )


_COMPARED = Config(
  backbone="maps", channels=512, image_size=1, dim=128, shift=0, seeds=10, steps=2400,
  evaluate_every=50, rates=(0.1, 0.3, 1.0), proxies=8, pool=16,
  losses=("c1", "c2", "ms", "triplet"), other_weights=(0.0, 1e-2, 10.0),
  batches=(8, 64),
)  # fmt: skip
_DIGITS = Config(
  data="mnist", backbone="resnet8", width=16, dim=2, proxies=4, pool=16, seeds=8,
)  # fmt: skip
PRESETS = {
  "cpu": _COMPARED,
  "plankton": dataclasses.replace(_COMPARED, data="ndsb_plankton"),
  # Few validation images: to embed more of them would take longer than to train.
  "long": dataclasses.replace(
    _DIGITS, digit_images=(1000, 100), steps=2400, seed=8, seeds=10
  ),
  # DML 3.3.1 states network, dimension, proxies and pool; the rest is from 3.3.2.1,
  # except its learning rate, which is for pretrained weights. The rarest digit has
  # 5,421 images.
  "full": dataclasses.replace(
    _DIGITS, backbone="resnet20", digit_images=(5000, 421), convolution="native",
    steps=100_000, patience=60,
  ),
  "smoke": Config(
    data="gaussians", backbone="mlp", width=64, dim=16, image_size=4, shift=0, batch=12,
    steps=300, evaluate_every=10, patience=40, seeds=1, proxies=4, pool=16,
  ),
}  # fmt: skip


def plan(config: Config) -> dict[str, tuple[Settings, Method]]:
  """Trainings by name, with the shared settings except the compared one."""
  number, pool, shared = config.proxies, config.pool, command.only(Settings, config)
  jobs: dict[str, tuple[Settings, Method]] = {}
  if config.data not in _FROZEN:  # digits in the plane, or random points
    for name, kind in zip(DIGITS, ("ccp", "proxy", "samples"), strict=True):
      jobs[name] = shared, Method("c2", kind, number, pool)
  for loss in config.losses:
    for kind in ("plain", "proxy", "ccp"):
      method = Method(loss, kind, number, pool)
      jobs[method.name] = shared, method
  if "c2" in config.losses:
    for m, b in ((1, 1), (1, pool), (number, number)):  # besides the default
      jobs[_pooled(m, b)] = shared, Method("c2", "ccp", m, b)
  for batch in config.batches:
    settings = dataclasses.replace(shared, batch=batch)
    for kind in ("plain", "ccp"):
      jobs[f"C2, batch {batch} {kind}"] = settings, Method("c2", kind, number, pool)
  return jobs


def lengths(trained: Trained) -> list[list[int]]:
  """Number of evaluations in every ended problem, for each seed of the first cell."""
  return [
    np.bincount(problems[np.isfinite(problems)].astype(int))[1:-1].tolist()
    for problems in trained.curves["problem"][0]
  ]


def at_end(trained: Trained, name: str, problem: int) -> np.ndarray:
  """A figure [seeds] at the last evaluation of a problem, or of the last problem.

  NaN for a training with a single problem, as there is no other to compare it with.
  """
  ends = []
  for values, problems in zip(
    trained.curves[name][0], trained.curves["problem"][0], strict=True
  ):
    number = np.nanmax(problems)
    mask = problems == min(problem, number)
    ends.append(values[mask][-1] if number > 1 else np.nan)
  return np.array(ends)


def tabulate(runs: Runs, config: Config) -> Table:
  """The table, with unlisted figures for the claims."""
  table = Table()
  for name, trained in runs.items():
    table.add_all(name, {x: values[0] for x, values in trained.test.items()})
    if "problem" in trained.curves:
      _problems(table, name, trained)
    if "radius" in trained.curves and name in DIGITS:
      _covers(table, name, trained)
  for cell, weight in enumerate(config.other_weights, start=1):
    trained, name = runs["C2+CCP"], _weighed(weight)
    table.add(name, MAP, trained.test[MAP][cell])
    # Mean distance of anchors of successive problems; NaN for one problem.
    moved = trained.curves["moved"][cell]
    moves = np.ma.array(moved, mask=~(moved > 0)).mean(1).filled(np.nan)
    table.add(name, "moves", moves, listed=False)
  return table


def _problems(table: Table, name: str, trained: Trained) -> None:
  table.add(name, "problems", np.nanmax(trained.curves["problem"][0], axis=-1))
  table.add(name, "lengths", np.concatenate(lengths(trained)), listed=False)
  # Mean covering radii of the pools after picks, of each training that renewed.
  nothing = ~(trained.curves["random"][0] > 0)
  random, greedy = (
    np.ma.array(trained.curves[kind][0], mask=nothing).mean(1).compressed()
    for kind in ("random", "greedy")
  )
  table.add(name, "random - greedy picks", random - greedy, listed=False)


def _covers(table: Table, name: str, trained: Trained) -> None:
  def at(curve: str, place: int) -> list[float]:
    """Values of every seed, from the first or the last evaluation."""
    return [x[np.isfinite(x)][place] for x in trained.curves[curve][0]]

  if "spread" in trained.curves:
    table.add(name, "spread of the proxies at first", trained.first_spread[0])
    table.add(name, "spread of the proxies at last", at("spread", -1))
  for curve, text in (
    ("radius", "radius of the proxies' cover"),
    ("cover", "average covering radius / distance of classes"),
  ):
    table.add(name, f"{text}, first", at(curve, 0))
    table.add(name, f"{text}, last", at(curve, -1))
  for curve in ("radius", "cover", "score"):
    if "problem" in trained.curves:
      later = at_end(trained, curve, 4) - at_end(trained, curve, 1)
      table.add(name, f"{curve}, problem 4 - 1", later, listed=False)


Parts = tuple[str, str, str, Callable[[Table], ArrayLike]]
"""A claim's id without its first part, place in the chapter, statement, difference."""


def claims(config: Config, _: Table) -> list[Claim]:
  """Lists the claims about the trainings that were run."""
  first = [*_of_digits(), *_of_problems(config)]
  rest = [*_of_losses(config), *_of_proxies(config), *_of_batches(config)]
  return [
    Claim(f"ccp-{name}", text, difference, f"DML, chapter 3, {place}", name in _EVERY)
    for name, place, text, difference in first + rest
  ]


_EVERY = ("problem-length-least", "problem-length-two", "problem-length-unequal")


def _all(table: Table, measure: str) -> np.ndarray:
  """The values of a measure, of all variants that have it."""
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
     lambda t: 0.03 - abs(t.gain(MAP, RENEWED, over=SAMPLES))),
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


def _of_losses(config: Config) -> Iterator[Parts]:
  for loss in config.losses:
    title = TITLES[loss]
    yield (
      f"alternating-{title}",
      "figure 3.7a",
      f"MAP@R of unseen classes: {title} with CCP > with proxies trained once",
      lambda t, title=title: t.gain(MAP, f"{title}+CCP", over=f"{title}-Proxy"),
    )


def _of_proxies(config: Config) -> list[Parts]:
  usual, largest = config.weight, max(config.other_weights, default=0)
  m, b = config.proxies, config.pool
  return [
    ("lambda-drift", "equation 3.2.11",
     f"anchors of problems are nearer at weight {largest:g} than at 0",
     lambda t: t.gain("moves", _weighed(0), over=_weighed(largest))),
    ("lambda-zero", "figure 3.5", f"MAP@R: weight {usual:g} >= 0",
     lambda t: t.gain(MAP, "C2+CCP", over=_weighed(0))),
    ("lambda-largest", "figure 3.5", f"MAP@R: weight {usual:g} > {largest:g}",
     lambda t: t.gain(MAP, "C2+CCP", over=_weighed(largest))),
    ("proxies-per-class-number", "figure 3.6",
     f"MAP@R: {m} proxies of a class >= 1, pools of {b}",
     lambda t: t.gain(MAP, "C2+CCP", over=_pooled(1, b))),
    ("proxies-per-class-pool", "figure 3.6",
     f"MAP@R of one proxy: a pool of {b} no better than one by more than .005",
     lambda t: 0.005 - t.gain(MAP, _pooled(1, b), over=_pooled(1, 1))),
  ]  # fmt: skip


def _of_batches(config: Config) -> Iterator[Parts]:
  small, large = min(config.batches, default=0), max(config.batches, default=0)

  def lost(table: Table, kind: str) -> np.ndarray:
    name = "C2, batch {} {}"
    return table.gain(MAP, name.format(large, kind), over=name.format(small, kind))

  if len(config.batches) > 1:
    text = f"a batch of {small} in the place of {large} loses less with CCP"
    yield "batch-size", "figure 3.8", text, lambda t: lost(t, "plain") - lost(t, "ccp")
