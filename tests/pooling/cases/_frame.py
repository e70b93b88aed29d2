"""Inputs and oracles that the checks of all poolings need of each."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

HEIGHT, WIDTH = 2, 3
POSITIONS = HEIGHT * WIDTH
# Everything, most, one position and nothing of four images.
KEEP = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1], [0, 0, 0, 1, 0, 0], [0] * 6])
KEEP = KEEP.astype(bool)


class Case(NamedTuple):
  """One pooling: how it is called, and its value in NumPy.

  Attributes:
    pool: of (features, params, where=) to [batch, d]. Features are [batch, n, D], or
      [batch, h, w, D] with `layout` and in one check of all; `where` may be None.
    oracle: of (features, params) of ONE image to [d] in float64. It sees the kept
      positions only, [kept, D], at least one. With `layout` it is of (features,
      params, kept), [h, w, D] that are 0 where not kept, and [h, w]. With `frozen`
      also of `frozen=(features, params)`, where gradients are stopped.
    params: arrays and numbers that all images share; differentiated.
    channels: D.
    positive: features are not negative, as after a relu, and many are 0.
    layout: needs maps.
    permutes: the order of the positions does not matter.
    degree: of positive homogeneity, where there is one.
    frozen: stops gradients inside.
  """

  pool: Callable[..., Any]
  oracle: Callable[..., Any]
  params: Mapping[str, Any] = {}
  channels: int = 4
  positive: bool = False
  layout: bool = False
  permutes: bool = True
  degree: float | None = None
  frozen: bool = False


def batches(case: Case) -> dict[str, np.ndarray]:
  """Ordinary and degenerate batches of four images, positions on one axis."""
  generator = np.random.default_rng(1)
  x = generator.normal(size=(len(KEEP), POSITIONS, case.channels))
  x *= generator.permutation(np.linspace(0.3, 2, POSITIONS))[:, None]
  if case.positive:
    x = np.maximum(x, 0)
  degenerate = x.copy()
  degenerate[0] = 0
  degenerate[1] = x[1, :1]
  degenerate[2, 1::2] = 0
  degenerate[3, 1:] = x[3, :1]  # two different positions
  degenerate[3, 2] = x[3, 2]
  return {"mixed": x, "degenerate": degenerate}
