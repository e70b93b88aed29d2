"""Random search of hyperparameters on validation classes (DML figure 3.5).

A trial is kept as any training is, so the same command resumes.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.frame import pictures
from experiments.frame.study import Table
from experiments.metric_learning.photographs import comparison, sets
from experiments.metric_learning.photographs.methods import (
  FullConfig,
  hyperparameters,
  job,
  protocol_of,
  searched,
)

_SCORE = "MAP@R [%], validation classes"


class Box:
  """Search box: a range per number, logarithmic where wide."""

  def __init__(self, config: FullConfig):
    if len(config.methods) != 1:
      raise ValueError(
        f"methods must name a single one with --search, got {config.methods}"
      )
    if config.protocol not in ("tuning", "ablation"):
      raise ValueError(
        "a search looks at validation classes alone: protocol must be tuning or"
        f" ablation, got {config.protocol}"
      )
    if config.trials < 1:
      raise ValueError(f"trials must be positive, got {config.trials}")
    self.names = [name for name, _, _ in config.search]
    if len(set(self.names)) < len(self.names):
      raise ValueError(f"search must name each number once, got {self.names}")
    for name, low, high in config.search:
      if not low < high:
        raise ValueError(f"search of {name} must have low < high, got {low} and {high}")
    (method,) = config.methods
    searched_job = job(config, protocol_of(config), method)
    self.fields = ("learning_rate", "weight_decay", "batch", *searched(searched_job))
    known = (*self.fields, *hyperparameters(config))
    if unknown := [name for name in self.names if name not in known]:
      raise ValueError(
        f"search of {method} must be of {', '.join(known)}, got {unknown[0]!r}"
      )
    self.whole = [isinstance(getattr(config, name, 0.0), int) for name in self.names]
    # A batch has as many images of each of its classes.
    self.units = [
      searched_job.settings.per_class if x == "batch" else 1 for x in self.names
    ]
    self.low, self.high = (np.array([x[i] for x in config.search]) for i in (1, 2))
    self.log = (self.low > 0) & (self.high >= 30 * self.low)

  def numbers(self, point: np.ndarray) -> dict[str, float | int]:
    """The values of a point of the unit cube."""
    ratio = np.where(self.log, self.high / np.where(self.log, self.low, 1), 1)
    even = self.low + point * (self.high - self.low)
    values = np.where(self.log, self.low * ratio**point, even)
    parts = zip(self.names, values, self.whole, self.units, strict=True)
    return {
      name: unit * round(value / unit) if whole else float(value)
      for name, value, whole, unit in parts
    }

  def config(self, config: FullConfig, point: np.ndarray) -> FullConfig:
    values = self.numbers(point)
    fields: dict[str, Any] = {x: values.pop(x) for x in self.names if x in self.fields}
    return dataclasses.replace(
      config, **fields, numbers=(*config.numbers, *values.items()), search=(), trials=0
    )


def measure(
  config: FullConfig, output: pathlib.Path
) -> tuple[Table, Callable[[], Mapping[str, Any]]]:
  """Runs all trials, picks the best mean, and draws them."""
  box = Box(config)
  (method,) = config.methods
  dims = len(box.names)
  known: sets.Sets | None = None
  # What the ends of the numbers cannot be is said before the first trial.
  for corner in itertools.product((0.0, 1.0), repeat=dims):
    settings = box.config(config, np.array(corner))
    known = comparison.Comparison(settings, output, known).sets
  points = np.random.default_rng(config.seed).random((config.trials, dims))
  table, scores, titles = Table(), [], []
  for number, point in enumerate(points, 1):
    settings = box.config(config, point)
    trial = comparison.Comparison(settings, output / f"trial-{number}", known)
    ((runs,),) = trial.train().values()
    scores.append(np.array([run.best["MAP@R"] for run in runs]))
    numbers = box.numbers(point).items()
    titles.append(", ".join(f"{name} {x:.3g}" for name, x in numbers))
    table.add(f"{method}, {titles[-1]}", "MAP@R [%]", scores[-1])
  best = int(np.argmax([x.mean() for x in scores]))
  table.add(f"best: {titles[best]}", "MAP@R [%]", scores[best])
  return table, lambda: {"search": _draw(box, points, scores)}


def _draw(box: Box, points: np.ndarray, scores: list[np.ndarray]) -> Any:
  """Trials in the plane of the first two numbers, or the score over the only one."""
  values = np.array([list(box.numbers(point).values()) for point in points])
  means = np.array([x.mean() for x in scores])
  figure = pictures.new_figure(6, 4.5)
  axes = figure.add_subplot()
  alone = values.shape[1] == 1
  across = means if alone else values[:, 1]
  dots = axes.scatter(values[:, 0], across, c=means, cmap="viridis", s=60)
  axes.set_xlabel(box.names[0].replace("_", " "))
  axes.set_xscale("log" if box.log[0] else "linear")
  axes.set_ylabel(_SCORE if alone else box.names[1].replace("_", " "))
  if not alone:
    axes.set_yscale("log" if box.log[1] else "linear")
    figure.colorbar(dots, label=_SCORE)
  return figure
