"""Rows, claims and pictures of the few-shot study."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.episodes import diagnostics, toy
from experiments.episodes import published as few_shot_published
from experiments.episodes.diagnostics import geometric_mean, mean_defined, proper
from experiments.episodes.settings import Config, Part
from experiments.episodes.training import FIRST_LOG_EXPONENT, RATIO, SQUARED, Trained
from experiments.frame import results as report
from spherejax import plotting

PAPER = "DIST, article II"
LOSSES = (SQUARED, RATIO)
AT_END = ("exponent", "training accuracy")
PAIRS = "left_out"  # of a query and a class without a ratio of distances
EXPONENT = "exponent at the end"


def rows(config: Config, part: Part, found: Trained) -> list[Any]:
  """Accuracies and diagnostics of both losses, where every seed has some.

  The article's stand beside those of its protocol.
  """
  made: list[tuple[str, str, np.ndarray, float | None]] = []
  place = (config.images, part.shots, config.backbone)
  compared = part.representative == "mean" and few_shot_published.comparable(
    config, part.shots
  )
  # The tables stop before the training does.
  last = few_shot_published.CHECKPOINTS[part.shots] if compared else None
  series = {name: values[..., :last] for name, values in found.series.items()}
  for number, loss in enumerate(LOSSES):
    name, tests = f"{part.name}, {loss}", found.test[number]
    paper = few_shot_published.accuracy(*place, loss) if compared else (None, None)
    made += [
      (name, "test accuracy", tests.mean(-1), paper[0]),
      (name, "half-width over its test episodes", half_width(tests), paper[1]),
    ]
    made += [
      (name, f"validation after {at}", found.validation[number][:, column], None)
      for at, column in shown_validations(config).items()
    ]
    published = few_shot_published.diagnostics(*place, loss) if compared else {}
    figures = _of_checkpoints(series) | at_end(found)
    figures |= diagnostics.shares(series)
    if loss == SQUARED:
      del figures[EXPONENT]
    made += [
      (name, measure, values[number], published.get(measure))
      for measure, values in figures.items()
    ]
  paired = found.test[1] - found.test[0]
  made += [
    (part.name, "DR - SD, test", paired.mean(-1), None),
    (part.name, "half-width over its paired episodes", half_width(paired), None),
  ]
  if config.all_diagnostics:
    printed = few_shot_published.tests(*place) if compared else {}
    made += [
      (part.name, test, values, printed.get(test))
      for test, values in diagnostics.tests(series).items()
    ]
  return [
    report.row(name, measure, values, paper=printed)
    for name, measure, values, printed in made
    if not np.isnan(values).any()
  ]


def _of_checkpoints(series: diagnostics.Series) -> dict[str, np.ndarray]:
  """[losses, seeds] by measure: means, and how much is left out of them."""
  found = {
    measure: geometric_mean(values)
    for measure, values in series.items()
    if measure not in (*AT_END, PAIRS)
  }
  counted = {"undefined pairs": series[PAIRS].sum(-1)}
  return found | counted | diagnostics.undefined(series)


def at_end(found: Trained) -> dict[str, np.ndarray]:
  """[losses, seeds] by measure."""
  return {
    f"{measure} at the end": found.series[measure][..., -1]
    for measure in AT_END
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


def claims(config: Config, part: Part, found: Trained) -> list[Any]:
  """The statements of the article that fit the part."""
  gain = found.test[1].mean(-1) - found.test[0].mean(-1)
  made: dict[str, tuple[str, Sequence[float] | np.ndarray]] = {}
  # Beside one support the article has five; other numbers are named.
  more = "" if part.shots == 5 else f" {part.name}"
  faster = {
    at: found.validation[1, :, number] - found.validation[0, :, number]
    for at, number in shown_validations(config).items()
  }
  if part.representative == "nearest":
    title = part.name if more else "1-NN"
    made |= {
      f"F7-{at}{more}": (
        f"{title}: validation accuracy after {at} episodes: DR > SD",
        faster[at],
      )
      for at in faster
      if at <= 100
    }
  elif part.shots == 1:
    made["F2"] = ("1-shot: test accuracy DR > SD, the same episodes", gain)
    made |= {
      f"F3-{at}": (f"1-shot: validation accuracy after {at}: DR > SD", faster[at])
      for at in faster
      if at <= 200
    }
    made |= _of_updates(found)
  else:
    made[f"F6{more}"] = (f"{part.name}: test accuracy DR >= SD - .005", gain + 0.005)
  made[f"F10 {part.name}"] = (
    f"{part.name}: the exponent of DR grows",
    found.series["exponent"][1, :, -1] - np.exp(FIRST_LOG_EXPONENT),
  )
  every = {f"F10 {part.name}", "F4-ranks", "F5", "F9"}
  return [
    report.claim(key, text, values, paper=PAPER, every_seed=key in every)
    for key, (text, values) in made.items()
  ]


def _of_updates(found: Trained) -> dict[str, tuple[str, Sequence[float] | np.ndarray]]:
  phi = found.series["norm_ratio"]
  means = geometric_mean(phi)
  below = diagnostics.ranks(phi[0].ravel(), phi[1].ravel(), "less")
  apart = proper(found.series, "div_alpha")
  apart = apart.reshape(len(apart), -1)
  shares = mean_defined(apart)
  # The larger share of the other one is no evidence; without shares there is no p.
  unequal = 1.0
  if not shares[1] <= shares[0]:
    unequal = diagnostics.fisher(apart[0], apart[1])
  nearer = mean_defined(proper(found.series, "con_alpha")).min(0)
  return {
    "F4": ("1-shot: norm ratio (geometric mean): DR > SD", means[1] - means[0]),
    "F4-ranks": (
      "1-shot: norm ratio below for SD over all checkpoints, Mann-Whitney p < .01",
      [0.01 - below],
    ),
    "F5": (
      "1-shot: div-alpha > 1 oftener for DR, Fisher's p over checkpoints < .01",
      [0.01 - unequal],
    ),
    "F9": ("1-shot: con-alpha < 1 in 90 % of checkpoints of both", nearer - 0.9 + 1e-9),
  }


def of_exponents(config: Config, found: Trained) -> list[Any]:
  """Accuracy against a fixed exponent."""
  return [
    report.row(f"1-shot, DR, exponent {exponent:g} kept", "test accuracy", values)
    for exponent, values in zip(config.exponents, found.test.mean(-1), strict=True)
  ]


def draw(config: Config, results: Mapping[Part, Trained]) -> dict[str, Any]:
  """Learning curves, norm ratios, and where each loss is least."""
  drawn: dict[str, Any] = {
    "plane": toy.draw_plane(),
    "sphere": toy.draw_sphere(),
  }
  for part, found in results.items():
    name = part.name.replace(", ", "-").replace(" ", "-").lower()
    times = config.validate_every * np.arange(1, found.validation.shape[-1] + 1)
    curves: dict[str, np.ndarray] = dict(zip(LOSSES, found.validation, strict=True))
    shown = "validation "
    if "training accuracy" in found.series:
      each = config.validate_every // config.check_every
      own = found.series["training accuracy"][..., each - 1 :: each]
      curves = {f"{loss}, validation": values for loss, values in curves.items()}
      curves |= {f"{x}, training": y for x, y in zip(LOSSES, own, strict=True)}
      shown = ""
    drawn[f"accuracy-{name}"] = plotting.training_curves(
      curves,
      steps=times,
      xlabel="episodes",
      ylabel=f"{shown}accuracy",
      title=part.name,
    )
    checks = config.check_every * np.arange(1, found.series["norm_ratio"].shape[-1] + 1)
    drawn[f"norm-ratio-{name}"] = plotting.training_curves(
      dict(zip(LOSSES, found.series["norm_ratio"], strict=True)),
      steps=checks,
      xlabel="episodes",
      ylabel="norm ratio of the update",
      title=part.name,
    )
  return drawn
