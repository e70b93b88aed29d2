"""Embeddings on and off the hypersphere: losses, poolings, metrics, training.

Each sub-package is imported on first use, so ``import spherejax`` needs neither flax
nor matplotlib nor tensorflow-datasets.
"""

from typing import TYPE_CHECKING

__version__ = "0.2.0"

__all__ = [
  "__version__",
  "attacks",
  "data",
  "distances",
  "explorer",
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
]

if TYPE_CHECKING:
  # For editors, without `__getattr__`, which would accept every name.
  from spherejax import attacks as attacks
  from spherejax import data as data
  from spherejax import distances as distances
  from spherejax import explorer as explorer
  from spherejax import hierarchy as hierarchy
  from spherejax import losses as losses
  from spherejax import metrics as metrics
  from spherejax import models as models
  from spherejax import plotting as plotting
  from spherejax import pooling as pooling
  from spherejax import prototypes as prototypes
  from spherejax import solvers as solvers
  from spherejax import training as training
  from spherejax import voronoi as voronoi
else:
  import importlib

  def __getattr__(name):
    if name in __all__:
      return importlib.import_module(f"spherejax.{name}")
    if name.startswith("_"):
      raise AttributeError(f"module 'spherejax' has no attribute {name!r}")
    # By its path, since `from spherejax import _names` would come back here.
    raise importlib.import_module("spherejax._names").unknown(__name__, name)

  def __dir__():
    return sorted(__all__)
