"""What `ccp_proxies` says about each claim of the chapter."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from experiments.frame.study import Claim, NotMeasured, Table
from experiments.metric_learning.methods import TITLES
from experiments.metric_learning.problems import Config

MAP = "MAP@R"
RENEWED, ONCE = "digits, renewed", "digits, trained once"


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
  """All of them; those about trainings that were not made are not made either."""
  made = [_of_problems, _of_characters, _of_batches, _of_costs]
  return _of_digits() + [own for of in made for own in of(config)]


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
