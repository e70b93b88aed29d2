"""The figures of the few-shot study; the article's beside those of its protocol."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.episodes import diagnostics, toy
from experiments.episodes.diagnostics import geometric_mean, mean_defined, proper
from experiments.episodes.settings import EPISODES, Config, Part, of_part
from experiments.episodes.training import RATIO, SQUARED, Trained
from experiments.frame.study import Table
from experiments.published import figures

LOSSES = (SQUARED, RATIO)
PAIRS = "left_out"  # of a query and a class without a ratio of distances
EXPONENT = "exponent at the end"
RANKS = "Mann-Whitney p over checkpoints, norm ratio of SD below"
FISHER = "Fisher's p over checkpoints, div-alpha > 1 oftener for DR"
# Checkpoints of Tables 3 to 10, one after 100 episodes; the later ones are not in them.
CHECKPOINTS = {1: 600, 5: 400}
SIDES = {"conv4": 84, "resnet18": 224}
PROTOCOL = {
  "augment": True,
  "num_ways": 5,
  "num_queries": 16,
  "test_queries": 15,
  "check_every": 100,
  "validate_every": 100,
  "validation_episodes": 100,
  "test_episodes": 600,
  "learning_rate": 1e-3,
}


def published(config: Config, part: Part) -> Mapping[str, Mapping[str, Any]]:
  """What the article prints of SD, DR and tests, if this is a training of its own."""
  alike = (
    part.representative == "mean"
    and (config.width == 64 or config.backbone != "conv4")
    and config.image_size == SIDES[config.backbone]
    and config.episodes == EPISODES.get(part.shots)
    and all(getattr(config, name) == value for name, value in PROTOCOL.items())
  )
  place = f"{config.images}, {part.shots}-shot, {config.backbone}"
  return figures("few_shot").get(place, {}) if alike else {}


def tabulate(
  config: Config, trained: Mapping[Part, Trained], fixed: Trained | None
) -> Table:
  """All figures; `fixed` are trainings with exponents that stay."""
  table = Table()
  toy.add(table)
  for part, found in trained.items():
    add_part(table, of_part(config, part.shots), part, found)
  if fixed:
    accuracies = zip(config.exponents, fixed.test.mean(-1), strict=True)
    for exponent, values in accuracies:
      name = f"1-shot, DR, exponent {exponent:g} kept"
      table.add(name, "test accuracy", values)
  return table


def add_part(table: Table, config: Config, part: Part, found: Trained) -> None:
  """Adds accuracies and diagnostics of both losses; lists those of every seed."""
  printed = published(config, part)
  # The tables stop before the training does.
  last = CHECKPOINTS[part.shots] if printed else None
  series = {name: values[..., :last] for name, values in found.series.items()}

  def add(name: str, measures: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
    for measure, values in measures.items():
      paper = beside.get(measure)
      if isinstance(paper, str):  # what it is below
        paper = float(paper.lstrip("<"))
      listed = not np.isnan(values).any()
      table.add(name, measure, values, paper=paper, listed=listed)

  for number, loss in enumerate(LOSSES):
    tests = found.test[number]
    measures = {
      "test accuracy": tests.mean(-1),
      "half-width over its test episodes": half_width(tests),
    }
    for at, column in shown_validations(config).items():
      measures[f"validation after {at}"] = found.validation[number][:, column]
    more = _of_checkpoints(series) | at_end(found) | diagnostics.shares(series)
    if loss == SQUARED:
      del more[EXPONENT]
    measures |= {measure: values[number] for measure, values in more.items()}
    add(f"{part.name}, {loss}", measures, printed.get(loss, {}))
  paired = found.test[1] - found.test[0]
  measures = {
    "DR - SD, test": paired.mean(-1),
    "half-width over its paired episodes": half_width(paired),
  }
  if config.all_diagnostics:
    measures |= diagnostics.tests(series)
  add(part.name, measures, printed.get("tests", {}))
  if part == Part(1, "mean"):
    for measure, value in _over_checkpoints(found).items():
      table.add(part.name, measure, value, listed=False)


def _over_checkpoints(found: Trained) -> dict[str, float]:
  """The p of two differences over the checkpoints of all seeds."""
  phi = found.series["norm_ratio"]
  below = diagnostics.ranks(phi[0].ravel(), phi[1].ravel(), "less")
  apart = proper(found.series, "div_alpha")
  apart = apart.reshape(len(apart), -1)
  shares = mean_defined(apart)
  # The larger share of the other one is no evidence; without shares there is no p.
  unequal = 1.0
  if not shares[1] <= shares[0]:
    unequal = diagnostics.fisher(apart[0], apart[1])
  return {RANKS: below, FISHER: unequal}


def _of_checkpoints(series: diagnostics.Series) -> dict[str, np.ndarray]:
  """[losses, seeds] by measure: means, and how much is left out of them."""
  found = {
    measure: geometric_mean(values)
    for measure, values in series.items()
    if measure not in ("exponent", "training accuracy", PAIRS)
  }
  counted = {"undefined pairs": series[PAIRS].sum(-1)}
  return found | counted | diagnostics.undefined(series)


def at_end(found: Trained) -> dict[str, np.ndarray]:
  """[losses, seeds] by measure."""
  return {
    f"{measure} at the end": found.series[measure][..., -1]
    for measure in ("exponent", "training accuracy")
    if measure in found.series
  }


def half_width(values: np.ndarray) -> np.ndarray:
  """Of the 95 % interval of the means over the last axis, as the article's."""
  return 1.96 * values.std(-1) / values.shape[-1] ** 0.5


def shown_validations(config: Config) -> dict[int, int]:
  """Episodes after which the table shows the accuracy: the number of each."""
  every = config.validate_every
  wanted = (50, 100, 200, 400) if config.episodes <= 1000 else (config.episodes,)
  shown = [x for x in wanted if x % every == 0 and x <= config.episodes]
  return {x: x // every - 1 for x in shown}
