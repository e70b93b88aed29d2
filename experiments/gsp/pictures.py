"""Pictures of the comparison on collages."""

import collections
import pathlib
from typing import Any

import numpy as np

from experiments.gsp import collage_claims
from spherejax import data, plotting


def draw_scores(figures: collage_claims.Figures) -> Any:
  """MAP@R of every variant, by loss (DML Fig. 5.5(b) and 5.12(a))."""
  bars = collections.defaultdict(dict)
  for (name, metric), values in figures.items():
    if metric == "MAP@R":
      loss, _, variant = name.partition(", ")
      bars[loss][variant] = values
  return plotting.bars_with_intervals(bars, ylabel="MAP@R, unseen classes")


def drawn_rows(test: data.Images) -> np.ndarray:
  """The first collage of each of eight classes."""
  return np.array([np.argmax(test.labels == label) for label in range(8)])


def draw(
  last: dict[str, np.ndarray], test: data.Images, output: pathlib.Path
) -> list[str]:
  """Weights of the last seed on the first collage of each of eight classes."""
  weights = {name: values for name, values in last.items() if "GSP" in name}
  if not weights:
    return []
  rows = drawn_rows(test)
  names = [test.label_names[label].replace("_", " ")[:12] for label in range(8)]
  figure = plotting.weight_maps(np.asarray(test.images)[rows], weights, names=names)
  return [plotting.save(figure, output / "weights.png").name]
