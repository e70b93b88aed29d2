"""The few-shot study's figures beside the article's, and its statements as claims."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from experiments.episodes import settings, toy
from experiments.episodes.settings import EPISODES, PRESETS, Config, Part, of_part
from experiments.episodes.training import FIRST_LOG_EXPONENT, RATIO, SQUARED, Trained
from experiments.frame.study import Claim, Statement, Table
from experiments.published import figures

# Measures of an update, and the side of 1 on which each counts as proper.
PROPER = {
  "con_alpha": -1,
  "div_alpha": 1,
  "con_div": -1,
  "con_alpha by features": -1,
  "div_alpha by features": 1,
}
RATIOS = ("norm_ratio", "norm_ratio by features", *PROPER)

Series = Mapping[str, np.ndarray]
"""Values [losses, seeds, checkpoints] by measure; NaN where undefined."""

LOSSES = (SQUARED, RATIO)
PAIRS = "left_out"  # pairs of a query and a class without a ratio of distances
EXPONENT = "exponent at the end"
RANKS = "Mann-Whitney p over checkpoints, norm ratio of SD below"
FISHER = "Fisher's p over checkpoints, div-alpha > 1 oftener for DR"
# Checkpoints in Tables 3 to 10, one per 100 episodes; later ones are not in the tables.
CHECKPOINTS = {1: 600, 5: 400}
SIDES = {"conv4": 84, "resnet18": 224}
PROTOCOL = (
  "augment", "num_ways", "num_queries", "test_queries", "check_every", "validate_every",
  "validation_episodes", "test_episodes", "learning_rate",
)  # fmt: skip
OF_UPDATES = [
  Claim("F4", "1-shot: norm ratio (geometric mean): DR > SD",
    lambda t: t.gain("norm_ratio", "1-shot, DR", over="1-shot, SD")),
  *Claim.of_rows([
    ("F4-ranks",
     "1-shot: norm ratio below for SD over all checkpoints, Mann-Whitney p < .01",
     lambda t: 0.01 - t.values(RANKS, "1-shot")),
    ("F5", "1-shot: div-alpha > 1 oftener for DR, Fisher's p over checkpoints < .01",
     lambda t: 0.01 - t.values(FISHER, "1-shot")),
    ("F9", "1-shot: con-alpha < 1 in 90 % of checkpoints of both",
     lambda t: np.min(
       [t.values("con_alpha proper", f"1-shot, {x}") for x in LOSSES], axis=0
     ) - (0.9 - 1e-9)),
  ], every_seed=True),
]  # fmt: skip


def mean_defined(values: np.ndarray) -> np.ndarray:
  """Mean over the last axis, ignoring NaN; NaN where nothing is defined."""
  return np.ma.filled(np.ma.array(values, mask=np.isnan(values)).mean(-1), np.nan)


def geometric_mean(values: np.ndarray) -> np.ndarray:
  """Geometric mean over the last axis, ignoring NaN; NaN where nothing is defined."""
  logs = np.log(np.where(np.isfinite(values) & (values > 0), values, np.nan))
  return np.exp(mean_defined(logs))


def proper(series: Series) -> Series:
  """Marks of values: 1 on the proper side of 1, otherwise 0; NaN where undefined."""
  return {
    f"{measure} proper": np.where(
      np.isfinite(series[measure]), side * (series[measure] - 1) > 0, np.nan
    )
    for measure, side in PROPER.items()
    if measure in series
  }


def ranks(first: np.ndarray, second: np.ndarray, alternative="two-sided") -> float:
  """Mann-Whitney's p of the finite values of two sets; NaN if one has none."""
  finite = [x[np.isfinite(x)] for x in (first, second)]
  if not all(map(len, finite)):
    return np.nan
  return float(stats.mannwhitneyu(finite[0], finite[1], alternative=alternative).pvalue)


def fisher(first: np.ndarray, second: np.ndarray) -> float:
  """Fisher's exact two-sided p that two sets of 0, 1 and NaN have equal shares of 1."""
  defined = [x[~np.isnan(x)] for x in (first, second)]
  if not all(map(len, defined)):
    return np.nan
  counts = [[int(np.sum(x == y)) for y in (0, 1)] for x in defined]
  test: Any = stats.fisher_exact(counts)
  return float(test.pvalue)


def tests_of_seeds(series: Series) -> dict[str, np.ndarray]:
  """Two-sided tests of the article's Tables 3 to 10, one per seed."""
  ratios = {measure: series[measure] for measure in RATIOS if measure in series}
  tests = ("Mann-Whitney p", ranks, ratios), ("Fisher's p", fisher, proper(series))
  return {
    f"{title}, {measure}": np.array([test(*x) for x in zip(*values, strict=True)])
    for title, test, by_measure in tests
    for measure, values in by_measure.items()
  }


def undefined(series: Series) -> dict[str, np.ndarray]:
  """Number of checkpoints without a value, [losses, seeds], by measure."""
  return {
    f"checkpoints without {measure}": np.sum(~np.isfinite(series[measure]), axis=-1)
    for measure in RATIOS
    if measure in series
  }


def published(config: Config, part: Part) -> dict[str, dict[str, float]]:
  """Published figures for SD, DR and tests, where the article has this training.

  For an upper bound such as "<0.001", the figure is the bound.
  """
  alike = (
    part.representative == "mean"
    and (config.width == 64 or config.backbone != "conv4")
    and config.image_size == SIDES.get(config.backbone)
    and config.episodes == EPISODES[part.shots]
    and all(getattr(config, x) == getattr(PRESETS["full"], x) for x in PROTOCOL)
  )
  place = f"{config.images}, {part.shots}-shot, {config.backbone}"
  rows = figures("few_shot").get(place, {}) if alike else {}
  return {
    name: {
      measure: float(x.lstrip("<")) if isinstance(x, str) else x
      for measure, x in printed.items()
    }
    for name, printed in rows.items()
  }


def tabulate(
  config: Config, trained: Mapping[Part, Trained], fixed: Trained | None
) -> Table:
  """Tabulates all measures; `fixed` holds trainings with constant exponents."""
  table = Table()
  toy.add(table)
  for part, run in trained.items():
    add_part(table, of_part(config, part.shots), part, run)
  if fixed:
    for exponent, values in zip(config.exponents, fixed.test.mean(-1), strict=True):
      table.add(f"1-shot, DR, exponent {exponent:g} kept", "test accuracy", values)
  return table


def add_part(table: Table, config: Config, part: Part, trained: Trained) -> None:
  """Adds accuracies and diagnostics of both losses; lists those of every seed."""
  printed = published(config, part)
  # The tables stop before the training does.
  count = CHECKPOINTS[part.shots] if printed else None
  series = {name: values[..., :count] for name, values in trained.series.items()}
  diagnostics = _of_checkpoints(series)
  for measure in ("exponent", "training accuracy"):
    if measure in trained.series:
      diagnostics[f"{measure} at the end"] = trained.series[measure][..., -1]
  diagnostics |= {measure: mean_defined(x) for measure, x in proper(series).items()}
  every = config.validate_every
  shown = (50, 100, 200, 400) if config.episodes <= 1000 else (config.episodes,)
  for number, loss in enumerate(LOSSES):
    tests = trained.test[number]
    measures = {
      "test accuracy": tests.mean(-1),
      "half-width over its test episodes": half_width(tests),
    }
    for at in shown:
      if at % every == 0 and at <= config.episodes:
        values = trained.validation[number][:, at // every - 1]
        measures[f"validation after {at}"] = values
    measures |= {measure: values[number] for measure, values in diagnostics.items()}
    if loss == SQUARED:
      del measures[EXPONENT]
    title = f"{part.name}, {loss}"
    table.add_all(title, measures, printed.get(loss, {}), finite=True)
  paired = trained.test[1] - trained.test[0]
  measures = {
    "DR - SD, test": paired.mean(-1),
    "half-width over its paired episodes": half_width(paired),
  }
  if config.all_diagnostics:
    measures |= tests_of_seeds(series)
  table.add_all(part.name, measures, printed.get("tests", {}), finite=True)
  if part == Part(1, "mean"):
    table.add_all(part.name, _over_checkpoints(trained), listed=False)


def _over_checkpoints(trained: Trained) -> dict[str, float]:
  """P-values of two differences over the checkpoints of all seeds."""
  both = trained.series["norm_ratio"], proper(trained.series)["div_alpha proper"]
  phi, diverged = (x.reshape(len(x), -1) for x in both)
  shares = mean_defined(diverged)
  # A share that is not larger for DR is no evidence, so p is 1; NaN shares give NaN.
  unequal = 1.0 if shares[1] <= shares[0] else fisher(diverged[0], diverged[1])
  return {RANKS: ranks(phi[0], phi[1], "less"), FISHER: unequal}


def _of_checkpoints(series: Series) -> dict[str, np.ndarray]:
  """Means over checkpoints, and numbers of undefined values, [losses, seeds] each."""
  measures = {
    measure: geometric_mean(values)
    for measure, values in series.items()
    if measure not in ("exponent", "training accuracy", PAIRS)
  }
  counted = {"undefined pairs": series[PAIRS].sum(-1)}
  return measures | counted | undefined(series)


def half_width(values: np.ndarray) -> np.ndarray:
  """Half width of the 95 % interval of the mean, as the article computes it."""
  return 1.96 * values.std(-1) / values.shape[-1] ** 0.5


def claims(config: Config, table: Table) -> list[Claim]:
  """Claims about the plane, then about each training."""
  del table
  of_parts = [claim for part in settings.parts(config) for claim in _of_part(part)]
  return [*toy.CLAIMS, *of_parts]


def _of_part(part: Part) -> list[Claim]:
  name, rows = part.name, []
  squared, ratio = f"{name}, {SQUARED}", f"{name}, {RATIO}"

  def faster(key: str, text: str, at: int) -> Statement:
    measure = f"validation after {at}"
    return key, text, lambda t: t.gain(measure, ratio, over=squared)

  if part.representative == "nearest":
    text = "1-NN: validation accuracy after {} episodes: DR > SD"
    rows = [faster(f"F7-{at}", text.format(at), at) for at in (50, 100)]
  elif part.shots == 1:
    text = "1-shot: test accuracy DR > SD, the same episodes"
    rows = [("F2", text, lambda t: t.values("DR - SD, test", name))]
    text = "1-shot: validation accuracy after {}: DR > SD"
    rows += [faster(f"F3-{at}", text.format(at), at) for at in (50, 100, 200)]
  else:
    text = f"{name}: test accuracy DR >= SD - .005"
    rows = [("F6", text, lambda t: t.values("DR - SD, test", name) + 0.005)]
  return [
    *Claim.of_rows(rows),
    *(OF_UPDATES if part == Part(1, "mean") else ()),
    Claim(
      f"F10 {name}",
      f"{name}: the exponent of DR grows",
      lambda t: t.values(EXPONENT, ratio) - np.exp(FIRST_LOG_EXPONENT),
      every_seed=True,
    ),
  ]
