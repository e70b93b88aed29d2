"""Figure 3.5 of DML: weights and numbers of proxies, compared on validation classes.

Trials are stored like any training, so the same command resumes.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.frame import pictures
from experiments.frame.study import Table
from experiments.metric_learning.photographs import comparison
from experiments.metric_learning.photographs.methods import FullConfig

_SCORE = "MAP@R [%]"
WEIGHTS, PROXIES = (-6.0, 0.0), (1, 16)  # ranges; weights as powers of ten


def measure(
  config: FullConfig, output: pathlib.Path
) -> tuple[Table, Callable[[], Mapping[str, Any]]]:
  """Runs all trials, picks the best mean, and draws them."""
  validates, alone = config.protocol in ("ablation", "tuning"), len(config.methods) == 1
  if not (validates and alone and "ccp" in config.methods[0].split("+")):
    raise ValueError(
      "trials are of one method with ccp on validation classes, by protocol ablation or"
      f" tuning; got {' '.join(config.methods)} by {config.protocol}"
    )
  random, sets = np.random.default_rng(config.seed), None
  weights = 10 ** random.uniform(*WEIGHTS, config.trials)
  proxies = random.integers(*PROXIES, config.trials, endpoint=True)
  table, titles, scores = Table(), [], []
  for number, (weight, of_class) in enumerate(zip(weights, proxies, strict=True), 1):
    numbers = {"weight": float(weight), "proxies": int(of_class)}
    settings = dataclasses.replace(config, trials=0, **numbers)
    trial = comparison.Comparison(settings, output / f"trial-{number}", sets)
    sets = trial.sets
    titles.append(f"weight {weight:.3g}, proxies {of_class}")
    scores.append(trial.validated())
    table.add(f"{config.methods[0]}, {titles[-1]}", _SCORE, scores[-1])
  means = np.mean(scores, axis=1)
  best = means.argmax()
  table.add(f"best: {titles[best]}", _SCORE, scores[best])
  return table, lambda: {"search": _draw(weights, proxies, means)}


def _draw(weights: np.ndarray, proxies: np.ndarray, means: np.ndarray) -> Any:
  figure = pictures.new_figure(6, 4.5)
  axes = figure.add_subplot()
  dots = axes.scatter(weights, proxies, c=means, cmap="viridis", s=60)
  axes.set_xlabel("weight")
  axes.set_xscale("log")
  axes.set_ylabel("proxies of a class")
  figure.colorbar(dots, label=f"{_SCORE}, validation classes")
  return figure
