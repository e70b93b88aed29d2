"""Pictures of the comparison on collages."""

import collections
from typing import Any

import numpy as np

from experiments.frame.study import Table
from spherejax import data, plotting


def scores(table: Table, measure: str) -> Any:
  """MAP@R of every variant, by loss (DML Fig. 5.5(b) and 5.12(a))."""
  bars = collections.defaultdict(dict)
  for name in table.variants(measure):
    loss, _, variant = name.partition(", ")
    bars[loss][variant] = table.values(measure, name)
  return plotting.bars_with_intervals(bars, ylabel="MAP@R, unseen classes")


def drawn_rows(test: data.Images) -> np.ndarray:
  """The first collage of each of eight classes."""
  return np.array([np.argmax(test.labels == label) for label in range(8)])


def weights(last: dict[str, np.ndarray], test: data.Images) -> dict[str, Any]:
  """Weights of the last seed on the first collage of each of eight classes."""
  shown = {name: values for name, values in last.items() if "GSP" in name}
  if not shown:
    return {}
  images = np.asarray(test.images)[drawn_rows(test)]
  names = [test.label_names[label].replace("_", " ")[:12] for label in range(8)]
  return {"weights": plotting.weight_maps(images, shown, names=names)}
