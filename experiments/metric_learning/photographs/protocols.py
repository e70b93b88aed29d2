"""Protocols of DML 3.3 and 5.3.4: validation classes, stopping, reported measures."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.frame.study import Table
from experiments.metric_learning import objective
from experiments.published import dml
from spherejax import data, distances

Name = Literal[
  "fair", "fair534", "conventional", "conventional534", "ablation", "tuning"
]
CONVENTIONAL = ("conventional", "conventional534")
MEASURES = tuple(objective.NAMES.values())


class Protocol(NamedTuple):
  """Numbers of one kind of comparison; the defaults are those of chapter 3."""

  evaluate_every: int  # steps between two evaluations
  parts: int = 4
  """Parts of the learned classes, one of which validates; 1: the test classes
  validate."""
  models: int = 4  # number of networks, each with another validation part
  repeats: int = 1  # trainings of each network
  metric: str = "MAP@R"
  """Measure that chooses the best weights; with P@1, the learning rate is lowered when
  it stagnates."""
  batch: int = 32
  patience: int = 60  # evaluations without improvement before a training stops
  dim: int = 128
  learning_rate: float = 1e-5
  weight_decay: float = 1e-4
  pooling: str = "gap"  # pooling of methods without generalized sum pooling


def protocol(name: Name, dataset: str, backbone: str) -> Protocol:
  """Returns the protocol of a name, data set and backbone."""
  numbers, small = dml.NUMBERS[dataset], dataset in ("cub", "cars")
  evaluate_every, residual = numbers.evaluate_every, backbone == "resnet50"
  if name == "fair":
    return Protocol(evaluate_every)
  if name == "fair534":
    return Protocol(4 * evaluate_every, repeats=3, patience=15 if small else 10)
  if name == "ablation":
    return Protocol(evaluate_every, parts=3, models=1, patience=40)
  if name == "tuning":
    patience = 10 if small else 7
    return Protocol(4 * evaluate_every, parts=5, models=1, repeats=3, patience=patience)
  return Protocol(
    evaluate_every, parts=1, models=1,
    # Chapter 3 trains once; section 5.3.4 reports the best of three.
    repeats=3 if name == "conventional534" else 1,
    metric="P@1", batch=112 if residual else 128, patience=15 if small else 10, dim=512,
    learning_rate=numbers.learning_rate, weight_decay=4e-4 if residual else 1e-4,
    pooling="gap_gmp",
  )  # fmt: skip


class Split(NamedTuple):
  """Classes of one network."""

  train: np.ndarray
  held: np.ndarray  # validation classes; empty: the test classes validate


def splits(protocol: Protocol, classes: int) -> list[Split]:
  """Splits of classes, one per model; the first validates on the last classes."""
  every = np.arange(classes)
  if protocol.parts == 1:
    return [Split(every, every[:0])]
  ends = np.linspace(0, classes, protocol.parts + 1).astype(int)
  parts = np.split(every, ends[1:-1])[::-1][: protocol.models]
  if not all(0 < len(held) < classes for held in parts):
    raise ValueError(
      f"{protocol.parts} parts of {classes} learned classes leave one without a class"
    )
  return [Split(np.setdiff1d(every, held), held) for held in parts]


def measures(points: np.ndarray, images: data.Images) -> dict[str, float]:
  """Measures of embeddings in the unit ball, in percent; ignores unmatched queries."""
  labels, queries = np.asarray(images.labels), images.extras.get("query")
  figures = objective.measures(points, labels, queries)
  return {name: 100 * x for name, x in figures.items()}


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
  """Normalises each network's embeddings, concatenates them, and normalises again."""
  unit_parts = [distances.unit_ball(part) for part in parts]
  return np.asarray(distances.unit_ball(jnp.concatenate(unit_parts, axis=1)))


def average(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
  """Mean over the networks of a combination."""
  return {name: float(np.mean([run[name] for run in runs])) for name in MEASURES}


def tabulate(
  table: Table,
  title: str,
  dim: int,
  values: Sequence[Mapping[str, float]],
  *,
  paper: dml.Cell | None,
  spread: bool,
  note: str = "",
) -> None:
  """Adds each measure of a few networks, or mean and deviation over combinations.

  Combinations share networks, so they give no interval.
  """
  cell = paper or dml.Cell(None)
  both = {"P@1": cell[::2], "MAP@R": cell[1::2]}
  for name in MEASURES:
    mean, deviation = both.get(name, (None, None))
    numbers, measure = [figures[name] for figures in values], f"{name}, {dim}-D"
    shown = np.mean(numbers) if spread else numbers
    table.add(title, measure + note, shown, paper=mean)
    if spread:
      table.add(title, f"{measure}, std{note}", np.std(numbers), paper=deviation)
