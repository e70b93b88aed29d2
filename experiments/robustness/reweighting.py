"""Principal directions with other weights (DIST 6.2.3): of images, and of features."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import results
from experiments.robustness import networks, structure
from spherejax import data, metrics, prototypes

EXPONENTS = (-0.5, 0.0, 0.5, 1.0, 1.25)
MILD = tuple(x for x in EXPONENTS if abs(x) <= 0.5)
LEADING = 9
FACTORS = (0.2, 5.0)
"""Weights of the leading directions, the others having 1."""
SHOTS, QUERIES, EPISODES = 1, 5, 600


def _phi(points: Array, labels: Array, classes: int, *, normalize: bool = False):
  found = structure.moments(points, labels, classes, normalize=normalize)
  return metrics.class_variance(found).phi


def reweighted(
  train: networks.Points, test: networks.Points, *, classes: int
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


def of_pixels(train, test, classes: int) -> tuple[list[Any], list[Any]]:
  """Rows and statements about images."""
  found = reweighted(train, test, classes=classes)
  rows = [
    results.row(f"pixels, {name}", key, [value])
    for name, figures in found.items()
    for key, value in figures.items()
  ]

  def column(key: str, exponents=EXPONENTS) -> np.ndarray:
    return np.array([found[f"exponent {x:g}"][key] for x in exponents])

  less, more = (found[f"first {LEADING} times {x:g}"]["phi"] for x in FACTORS)
  same = found["exponent 0"]["phi"]
  made = {
    "X12-phi": ("phi falls with the exponent", -np.diff(column("phi")).max()),
    "X12-density": (
      "d_DoV rises from -0.5 to 0.5",
      np.diff(column("d_DoV", MILD)).min(),
    ),
    "X12-rho": ("rho falls from -0.5 to 0.5", -np.diff(column("rho", MILD)).max()),
    "X12-accuracy": (
      "1-NN accuracy within 0.01 for exponents in [-0.5, 0.5]",
      0.01 - np.ptp(column("1-NN", MILD)),
    ),
    "X12-leading": (
      f"phi grows with the weight of the first {LEADING} directions",
      min(more - same, same - less),
    ),
  }
  return rows, [
    results.claim(name, text, [value], paper="DIST 6.2.3", every_seed=True)
    for name, (text, value) in made.items()
  ]


def of_features(
  config, train, test, classes: int, folder: pathlib.Path
) -> tuple[list[Any], list[Any]]:
  """Features of networks that learned half of the classes, and what the others gain.

  Directions and weights are those of the training images; episodes are of test images
  of the classes that were not learned.
  """
  half = classes // 2
  own = _where(train, train.y < half)
  tested = _where(test, test.y < half)
  others = _where(test, test.y >= half)
  table = data.class_table(np.asarray(others.y) - half, per_class=SHOTS + QUERIES)
  keys = jax.random.split(jax.random.key(config.seed), EPISODES)
  episodes = jax.vmap(
    lambda key: data.sample_episode(
      key, table, num_ways=half, num_shots=SHOTS, num_queries=QUERIES
    )
  )(keys)
  budgets = {"standard": 0.0, f"l2 {config.proposed_budget:g}": config.proposed_budget}
  defence = networks.Defence(networks.adversarial(config))
  result = networks.train(
    config,
    defence,
    {"epsilon": list(budgets.values())},
    lambda key, hyper: own,
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
  rows = [
    results.row(f"features, {name}, exponent {x:g}", title, found[key][cell, :, number])
    for cell, name in enumerate(budgets)
    for number, x in enumerate(EXPONENTS)
    for key, title in titles.items()
  ]
  claim = results.claim(
    "X12-features",
    "phi of features falls with the exponent, with and without attacks in training",
    -np.diff(found["phi"], axis=-1).max(axis=(0, 2)),
    paper="DIST 6.2.3",
  )
  return rows, [claim]


def _where(points: networks.Points, kept: Array) -> networks.Points:
  return jax.tree.map(lambda x: x[np.asarray(kept)], points)
