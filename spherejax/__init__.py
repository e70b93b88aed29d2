"""Embeddings on and off the hypersphere: losses, poolings, measures, training.

Each room is a sub-package and is imported when it is first used, so that
``import spherejax`` needs neither flax nor matplotlib nor tensorflow-datasets.
"""

import importlib
import types

__version__ = "0.1.0"

_ROOMS = (
  "attacks",
  "data",
  "distances",
  "hierarchy",
  "losses",
  "metrics",
  "models",
  "plotting",
  "pooling",
  "prototypes",
  "solvers",
  "training",
  "voronoi",
)

__all__ = ["__version__", *_ROOMS]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> types.ModuleType:
  if name in _ROOMS:
    return importlib.import_module(f"spherejax.{name}")
  if name.startswith("_"):
    raise AttributeError(f"module 'spherejax' has no attribute {name!r}")
  # By its path: `from spherejax import _names` would ask here for it.
  raise importlib.import_module("spherejax._names").unknown(__name__, name)


def __dir__() -> list[str]:
  return sorted(__all__)
