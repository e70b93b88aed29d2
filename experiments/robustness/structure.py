"""Structure of a network's features: the measures of DIST 2.4 and 5.1."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from flax.typing import Collection
from jax import Array

from experiments.frame import training as trainer
from experiments.published import figures
from experiments.robustness import networks
from experiments.robustness.images import Points
from spherejax import metrics, prototypes

IMAGES = {"cifar10": 50_000, "svhn_cropped": 73_257}
"""Number of training images in a whole set, as in table 5.3."""

NORMS = ("l2", "linf")
MEASURED = 1500
"""Largest number of training images whose features are measured."""


def name_of(norm: str, budget: float) -> str:
  """The name of a network; a budget of 0 trains without an attack."""
  return f"{norm} {budget:g}" if budget else "standard"


def printed_inputs(images: str) -> Mapping[str, float]:
  """Values of table 5.3; those of CIFAR-10 for digits."""
  name = images if images in IMAGES else "cifar10"
  return figures("robust_features")[name]["images"]


def moments(
  points: Array, labels: Array, classes: int, *, normalize: bool = False
) -> metrics.ClassMoments:
  """Class moments of all points at once."""
  empty = metrics.class_moments_init(classes, points.shape[1])
  return metrics.class_moments_update(empty, points, labels, normalize=normalize)


def integers(x: Array, levels: int) -> Array:
  """Scales images, multiples of 1 / `levels` in [0, 1], to exact integers.

  In l-infinity many images are equally far apart; rounded quotients would hide this.
  """
  return jnp.round(levels * x)


def of_features(
  inputs: Array,
  features: Array,
  labels: Array,
  *,
  classes: int,
  levels: int | None = None,
) -> dict[str, Array]:
  """Measures the features of one network on its training images.

  With `levels`, distances of the inputs in l-infinity are those of their `integers`.
  """
  exact = inputs if levels is None else integers(inputs, levels)
  measures = {
    f"MC, {norm}": metrics.distance_correlation(points, features, norm=norm).mean
    for norm, points in zip(NORMS, (inputs, exact), strict=True)
  }
  variance = metrics.class_variance(moments(features, labels, classes, normalize=True))
  spectrum = metrics.spectrum(
    metrics.triangle_update(
      metrics.triangle_init(features.shape[1]), features, normalize=True
    )
  )
  return measures | {
    "D_inter": variance.inter,
    "D_intra": variance.intra,
    "phi": variance.phi,
    "R2": variance.r2,
    "d_DoV": spectrum.density,
    "rho": spectrum.rho,
  }


def trained(
  defence: networks.Defence,
  budgets: Sequence[float],
  train: Points,
  test: Points,
  folder: Path,
  most: int | None = None,
) -> tuple[Collection, dict[str, np.ndarray]]:
  """Trains networks for budgets; parameters and measures of each, [cells, seeds].

  Features are those of the first `most` training images.
  """
  result = networks.train(defence, {"epsilon": budgets}, train, test, folder)
  params = result.state.params

  def measure(x, labels, params):
    features = defence.features(params, x)
    return of_features(x.reshape(len(x), -1), features, labels, classes=defence.classes)

  subset = (x[:most] for x in train)
  return params, trainer.over_models(measure, params, *subset) | {
    "accuracy": result.scores[..., -1],
    "accuracy under attack": networks.judge(defence, test, params, budgets),
  }


def of_inputs(
  train: Points, test: Points, *, classes: int, levels: int
) -> dict[str, float]:
  """Measures how well raw images separate the classes (DIST table 5.3).

  Distances in l-infinity are those of the images' `integers`.
  """
  rows = train.flat().x, test.flat().x
  unit = moments(rows[0], train.y, classes, normalize=True)
  exact = [integers(x, levels) for x in rows]
  measures = {}
  for norm, (x, tested) in zip(NORMS, (rows, exact), strict=True):
    means_and_scatter = moments(x, train.y, classes)
    if norm == "linf":
      scatter = metrics.class_scatter(means_and_scatter.means, x, train.y, norm=norm)
      means_and_scatter = means_and_scatter._replace(scatter=scatter)
    measures[f"phi, {norm}"] = metrics.class_variance(means_and_scatter, norm=norm).phi
    for name, sites, labels in (
      ("1-NN", x, train.y),
      ("nearest mean", means_and_scatter.means, jnp.arange(classes)),
    ):
      predicted = prototypes.nearest_neighbours(
        tested, sites, labels, num_classes=classes, norm=norm
      )
      measures[f"{name}, {norm}"] = jnp.mean(predicted == test.y)
  measures["R2"] = metrics.class_variance(unit).r2
  return {name: float(value) for name, value in measures.items()}
