"""Principal directions with other weights (DIST 6.2.3): of images, and of features."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame.digits import CLASSES, Points
from experiments.frame.study import Claim, Table
from experiments.robustness import networks, structure
from spherejax import data, metrics, prototypes

EXPONENTS = (-0.5, 0.0, 0.5, 1.0, 1.25)
MILD = tuple(x for x in EXPONENTS if abs(x) <= 0.5)
LEADING = 9
FACTORS = (0.2, 5.0)
"""Weights of the leading directions, the others having 1."""
SHOTS, QUERIES, EPISODES = 1, 5, 600
FALLS = "least fall of phi from an exponent to the next"


def _phi(points: Array, labels: Array, classes: int, *, normalize: bool = False):
  found = structure.moments(points, labels, classes, normalize=normalize)
  return metrics.class_variance(found).phi


def reweighted(
  train: Points, test: Points, *, classes: int
) -> dict[str, dict[str, float]]:
  """Figures of images under other weights, for each exponent and factor."""
  x, tested = (points.x.reshape(len(points.x), -1) for points in (train, test))
  axes = metrics.principal_axes(x)
  values = axes.singular_values
  rank = int(jnp.sum(values > 1e-6 * values[0]))

  @jax.jit
  def one(exponent, factor):
    weights = jnp.where(jnp.arange(len(values)) < LEADING, factor, 1.0)
    own, other = (
      metrics.reweight(y, axes, exponent=exponent, weights=weights) for y in (x, tested)
    )
    triangle = metrics.triangle_update(metrics.triangle_init(own.shape[1]), own)
    spectrum = metrics.spectrum(triangle, components=rank)
    near = prototypes.nearest_neighbours(other, own, train.y, num_classes=classes)
    return {
      "phi": _phi(own, train.y, classes),
      "phi, normalised": _phi(own, train.y, classes, normalize=True),
      "rho": spectrum.rho,
      "d_DoV": spectrum.density,
      "1-NN": jnp.mean(near == test.y),
    }

  cells = {f"exponent {x:g}": (x, 1.0) for x in EXPONENTS}
  cells |= {f"first {LEADING} times {x:g}": (0.0, x) for x in FACTORS}
  return {
    name: {key: float(x) for key, x in one(*map(jnp.float32, cell)).items()}
    for name, cell in cells.items()
  }


def add_pixels(table: Table, train: Points, test: Points) -> None:
  """Adds figures of images."""
  for name, figures in reweighted(train, test, classes=CLASSES).items():
    structure.add(table, f"pixels, {name}", figures)


def add_features(
  table: Table, config: Any, train: Points, test: Points, folder: pathlib.Path
) -> None:
  """Features of networks that learned half of the classes, and what the others gain.

  Directions and weights are those of the training images; episodes are of test images
  of the classes that were not learned.
  """
  half = CLASSES // 2
  own = _where(train, train.y < half)
  tested = _where(test, test.y < half)
  others = _where(test, test.y >= half)
  classes = data.class_table(np.asarray(others.y) - half, per_class=SHOTS + QUERIES)
  keys = jax.random.split(jax.random.key(config.seed), EPISODES)
  episodes = jax.vmap(
    lambda key: data.sample_episode(
      key, classes, num_ways=half, num_shots=SHOTS, num_queries=QUERIES
    )
  )(keys)
  budgets = {"standard": 0.0, f"l2 {config.proposed_budget:g}": config.proposed_budget}
  defence = networks.Defence(networks.adversarial(config))
  result = networks.train(
    config,
    defence,
    {"epsilon": list(budgets.values())},
    own,
    tested,
    classes=half,
    folder=folder / "half of the classes",
  )
  built = networks.network(config, defence, half)

  def one(own, others, episodes, params) -> Mapping[str, Array]:
    seen, unseen = (built.apply({"params": params}, x)[0] for x in (own.x, others))
    axes = metrics.principal_axes(seen)

    def weighted(exponent):
      known, new = (
        metrics.reweight(x, axes, exponent=exponent) for x in (seen, unseen)
      )
      accuracies = prototypes.episode_accuracies(new, episodes, num_shots=SHOTS)
      return {"phi": _phi(known, own.y, half), "few-shot": jnp.mean(accuracies)}

    return jax.lax.map(weighted, jnp.array(EXPONENTS))

  found = networks.over_models(one)(result.state.params, own, others.x, episodes)
  titles = {"phi": "phi", "few-shot": f"accuracy, {half} new classes, {SHOTS} example"}
  for cell, name in enumerate(budgets):
    for number, x in enumerate(EXPONENTS):
      for key, title in titles.items():
        values = found[key][cell, :, number]
        table.add(f"features, {name}, exponent {x:g}", title, values)
  falls = -np.diff(found["phi"], axis=-1).max(axis=(0, 2))
  table.add("features", FALLS, falls, listed=False)


def _column(table: Table, measure: str, exponents: tuple[float, ...]) -> np.ndarray:
  """[exponents, 1], of images."""
  names = [f"pixels, exponent {x:g}" for x in exponents]
  return np.stack([table.values(measure, name) for name in names])


def _leading(table: Table) -> np.ndarray:
  names = [f"pixels, first {LEADING} times {x:g}" for x in FACTORS]
  less, more = (table.values("phi", name) for name in names)
  same = table.values("phi", "pixels, exponent 0")
  return np.minimum(more - same, same - less)


CLAIMS = [
  *(
    Claim(f"X12-{key}", text, difference, "DIST 6.2.3", every_seed=True)
    for key, text, difference in (
      (
        "phi",
        "phi falls with the exponent",
        lambda t: -np.diff(_column(t, "phi", EXPONENTS), axis=0).max(0),
      ),
      (
        "density",
        "d_DoV rises from -0.5 to 0.5",
        lambda t: np.diff(_column(t, "d_DoV", MILD), axis=0).min(0),
      ),
      (
        "rho",
        "rho falls from -0.5 to 0.5",
        lambda t: -np.diff(_column(t, "rho", MILD), axis=0).max(0),
      ),
      (
        "accuracy",
        "1-NN accuracy within 0.01 for exponents in [-0.5, 0.5]",
        lambda t: 0.01 - np.ptp(_column(t, "1-NN", MILD), axis=0),
      ),
      (
        "leading",
        f"phi grows with the weight of the first {LEADING} directions",
        _leading,
      ),
    )
  ),
  Claim(
    "X12-features",
    "phi of features falls with the exponent, with and without attacks in training",
    lambda t: t.values(FALLS, "features"),
    "DIST 6.2.3",
  ),
]


def _where(points: Points, kept: Array) -> Points:
  return jax.tree.map(lambda x: x[np.asarray(kept)], points)
