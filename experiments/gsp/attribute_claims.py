"""Figures, claims and pictures of `gsp_attributes`."""

import pathlib
from typing import Any

import numpy as np

from experiments.frame import pictures, results
from experiments.gsp import network, weight_pictures
from experiments.gsp.attribute_prediction import CANDIDATES, SHUFFLED
from spherejax import data, plotting

WITHOUT, WITH = "PNCA", "PNCA + ZSP"


def table(figures: dict[tuple[str, str], list[float]]) -> list[dict[str, Any]]:
  """The gain of ZSP beside the paper's, and every figure."""
  rows = []
  for metric in ("l2", "cosine"):
    measure = f"accuracy, {metric}, 5 classes"
    gain = np.subtract(figures[WITH, measure], figures[WITHOUT, measure])
    # DML chapter 6 says more than 30 points, and not by which distance.
    rows.append(results.row(f"{WITH} - {WITHOUT}", measure, gain, paper=0.30))
  return rows + [
    results.row(name, metric, values) for (name, metric), values in figures.items()
  ]


def make_claims(figures: dict[tuple[str, str], list[float]]) -> list[dict[str, Any]]:
  """The statements of DML 5.3.3, as differences that should be positive."""
  claims = []
  for metric in ("l2", "cosine"):
    measure = f"accuracy, {metric}, 5 classes"
    own, other = (np.array(figures[name, measure]) for name in (WITH, WITHOUT))
    claims += [
      results.claim(
        f"attributes-zsp-{metric}",
        f"accuracy on unseen classes, {metric}: with ZSP > without",
        own - other,
        paper="DML 5.3.3",
      ),
      results.claim(
        f"attributes-chance-{metric}",
        f"accuracy on unseen classes, {metric}, with ZSP > 0.20 (chance)",
        own - 0.2,
        paper="DML 5.3.3",
      ),
    ]
  return claims


def draw(
  figures: dict[tuple[str, str], list[float]],
  last: dict[str, tuple[Any, Any, np.ndarray]],
  tested: data.Images,
  config: network.Settings,
  output: pathlib.Path,
) -> list[str]:
  """Accuracies of all seeds; attributes and dominant prototypes of the last one.

  `last` has of each variant its state, what it made of the images, and attributes.
  """
  bars = {
    f"{metric}, {candidates}": {
      name: figures[name, f"accuracy, {metric}, {candidates}"]
      for name in (WITHOUT, WITH, f"{WITH}, {SHUFFLED}")
    }
    for metric in ("l2", "cosine")
    for candidates in CANDIDATES
  }
  drawn = {
    "accuracy": plotting.bars_with_intervals(
      bars, ylabel="share of classes told right"
    ),
    "attributes": weight_pictures.class_attributes(
      {name: attributes for name, (_, _, attributes) in last.items()},
      tested.label_names,
    ),
    "dominant": weight_pictures.dominant(
      {name: (state, result) for name, (state, result, _) in last.items()},
      tested,
      config,
    ),
  }
  return pictures.save(drawn, output)
