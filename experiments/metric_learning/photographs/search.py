"""Search of hyperparameters on validation classes (DML Fig. 3.5).

The first trials fill the box evenly (Sobol); each later one is where a Gaussian process
of what was seen expects the largest gain. A trial is kept as any training is, so the
same command goes on.
"""

import dataclasses
import itertools
import math
import pathlib
import time
import warnings
from typing import Any

import numpy as np
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from experiments.frame import pictures, results
from experiments.metric_learning.photographs import comparison as retrieval_full
from experiments.metric_learning.photographs import sets as retrieval_full_sets
from experiments.metric_learning.photographs.methods import (
  FullConfig,
  hyperparameters,
  job,
  protocol_of,
  searched,
)
from spherejax import plotting

_CANDIDATES = 1024


class Box:
  """What is searched: each number between two ends, wide ranges in logarithms."""

  def __init__(self, config: FullConfig):
    if len(config.methods) != 1:
      raise ValueError(f"a search is of one method, got {config.methods}")
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
    own = job(config, protocol_of(config), method)
    self.fields = ("learning_rate", "weight_decay", "batch", *searched(own))
    known = (*self.fields, *hyperparameters(config))
    if unknown := [name for name in self.names if name not in known]:
      raise ValueError(
        f"search of {method} must be of {', '.join(known)}, got {unknown[0]!r}"
      )
    self.whole = np.array(
      [isinstance(getattr(config, name, 0.0), int) for name in self.names]
    )
    # A batch has as many images of each of its classes.
    self.units = [own.settings.per_class if x == "batch" else 1 for x in self.names]
    low, high = (np.array([x[i] for x in config.search], float) for i in (1, 2))
    self.log = (low > 0) & (high >= 30 * low)
    self.low, self.high = (
      np.where(self.log, np.log(np.where(self.log, x, 1.0)), x) for x in (low, high)
    )

  def numbers(self, point: np.ndarray) -> dict[str, float | int]:
    """The values of a point of the unit cube."""
    x = self.low + point * (self.high - self.low)
    values = np.where(self.log, np.exp(np.where(self.log, x, 0.0)), x)
    parts = zip(self.names, values, self.whole, self.units, strict=True)
    return {
      name: unit * round(value / unit) if whole else float(value)
      for name, value, whole, unit in parts
    }

  def trained(self, point: np.ndarray) -> np.ndarray:
    """The point of the values, which are whole where the number is."""
    values = np.array(list(self.numbers(point).values()), float)
    x = np.where(self.log, np.log(np.where(self.log, values, 1.0)), values)
    return np.where(self.whole, (x - self.low) / (self.high - self.low), point)

  def config(self, config: FullConfig, point: np.ndarray) -> FullConfig:
    """The settings of a trial."""
    values = self.numbers(point)
    fields: dict[str, Any] = {x: values.pop(x) for x in self.names if x in self.fields}
    return dataclasses.replace(
      config, **fields, numbers=(*config.numbers, *values.items()), search=(), trials=0
    )


def propose(seen: np.ndarray, scores: np.ndarray, dims: int, seed: int) -> np.ndarray:
  """The next point of the unit cube after [trials, dims] that were seen."""
  number = len(seen)
  first = max(4, 2 * dims)
  sobol = stats.qmc.Sobol(dims, rng=seed)
  if number < first:
    return sobol.random_base2(math.ceil(math.log2(first)))[number]
  random = np.random.default_rng((seed, number))
  candidates = stats.qmc.Sobol(dims, rng=random).random(_CANDIDATES)
  scales: Any = np.full(dims, 0.3)
  kernel = kernels.ConstantKernel() * kernels.Matern(
    scales, (0.05, 10.0), nu=2.5
  ) + kernels.WhiteKernel(1e-2, (1e-6, 1.0))
  process = GaussianProcessRegressor(
    kernel, normalize_y=True, n_restarts_optimizer=2, random_state=seed
  )
  with warnings.catch_warnings():
    # A number without effect has a length at the end of its range.
    warnings.simplefilter("ignore", ConvergenceWarning)
    process.fit(seen, scores)
    mean, deviation = process.predict(candidates, return_std=True)
  best = np.max(process.predict(seen))  # of the mean: a lucky trial is not to beat
  apart = np.maximum(deviation, 1e-12)
  z = (mean - best) / apart
  expected = apart * (z * stats.norm.cdf(z) + stats.norm.pdf(z))
  return candidates[np.argmax(expected)]


def run(config: FullConfig, output: pathlib.Path, preset: str) -> dict[str, Any]:
  """All trials; returns every one and the best by its mean."""
  start = time.perf_counter()
  box = Box(config)
  (method,) = config.methods
  dims = len(box.names)
  sets: retrieval_full_sets.Sets | None = None
  # What the ends of the numbers cannot be is said before the first trial.
  for corner in itertools.product((0.0, 1.0), repeat=dims):
    own = box.config(config, np.array(corner))
    sets = retrieval_full.Comparison(own, output, sets).sets
  points, scores = np.zeros((0, dims)), []
  for number in range(config.trials):
    means = np.array([x.mean() for x in scores])
    point = box.trained(propose(points, means, dims, config.seed))
    own = box.config(config, point)
    comparison = retrieval_full.Comparison(own, output / f"trial-{number + 1}", sets)
    sets = comparison.sets
    ((found,),) = comparison.train().values()
    points = np.concatenate([points, point[None]])
    scores.append(np.array([one.best["MAP@R"] for one in found]))
  titles = [
    ", ".join(f"{name} {x:.3g}" for name, x in box.numbers(point).items())
    for point in points
  ]
  best = int(np.argmax([x.mean() for x in scores]))
  rows = [
    results.row(f"{method}, {title}", "MAP@R [%]", values)
    for title, values in zip(titles, scores, strict=True)
  ]
  rows.append(results.row(f"best: {titles[best]}", "MAP@R [%]", scores[best]))
  return results.result(
    experiment="retrieval",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=[],
    pictures=[_draw(box, points, scores, output)],
  )


def _draw(box: Box, points: np.ndarray, scores: list[np.ndarray], output) -> str:
  """Trials in the plane of the first two numbers, or the score over the only one."""
  values = np.array([list(box.numbers(point).values()) for point in points])
  means = np.array([x.mean() for x in scores])
  figure = pictures.new_figure(6, 4.5)
  axes = figure.add_subplot()
  across = means if values.shape[1] == 1 else values[:, 1]
  dots = axes.scatter(values[:, 0], across, c=means, cmap="viridis", s=60)
  axes.set_xlabel(box.names[0].replace("_", " "))
  axes.set_xscale("log" if box.log[0] else "linear")
  if values.shape[1] == 1:
    axes.set_ylabel("MAP@R [%], validation classes")
  else:
    axes.set_ylabel(box.names[1].replace("_", " "))
    axes.set_yscale("log" if box.log[1] else "linear")
    figure.colorbar(dots, label="MAP@R [%], validation classes")
  return plotting.save(figure, output / "search.png").name
