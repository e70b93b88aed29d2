"""Tests proposals of DIST 6.2 for features: class residuals and reweighting."""

import pathlib
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import scipy.ndimage
from jax import Array

from experiments.frame import at_once
from experiments.frame import images as class_sets
from experiments.frame import training as trainer
from experiments.frame.study import Claim, Table
from experiments.robustness import networks, structure
from experiments.robustness.images import CLASSES, Points
from experiments.robustness.settings import Config
from spherejax import data, distances, losses, metrics, prototypes

DEGREES = (-30, 0, 30)
ANGLE = "rotated digits, angle from other classes"
GROWTH = "D_intra, augmented by residuals"
ERROR = "largest error of a sum or a trace of residuals"

RESIDUAL_CLAIMS = Claim.of_rows([
  ("X11-residuals",
   "residuals tell the angle to other classes: accuracy > 1/3 + 0.05",
   lambda t: t.values("residuals", ANGLE) - 1 / len(DEGREES) - 0.05),
  ("X11-features", "accuracy of residuals > of features",
   lambda t: t.values("residuals", ANGLE) - t.values("features", ANGLE)),
], "DIST 6.2.2") + Claim.of_rows([
  ("X11-exact",
   "residuals of a class sum to 0 and have the trace D_intra, to 1e-5",
   lambda t: 1e-5 - t.values(ERROR, "rotated digits")),
  ("X11-augmentation",
   "features augmented by residuals have twice the D_intra, to 10 %",
   lambda t: 0.1 - np.abs(t.values(GROWTH, "rotated digits") / 2 - 1)),
], "DIST 6.2.2", every_seed=True)  # fmt: skip
EXPONENTS = (-0.5, 0.0, 0.5, 1.0, 1.25)
MILD = tuple(x for x in EXPONENTS if abs(x) <= 0.5)
LEADING = 9
FACTORS = (0.2, 5.0)
"""Weights of the leading directions; other directions have weight 1."""
SHOTS, QUERIES, EPISODES = 1, 5, 600
FALLS = "least fall of phi from an exponent to the next"


def rotated(points: Points) -> tuple[Points, np.ndarray]:
  """Rotates every image by each angle, bilinearly; also returns the angles' numbers."""
  images = np.asarray(points.x).reshape(-1, 8, 8)
  rotated_images = [
    scipy.ndimage.rotate(images, angle, axes=(1, 2), reshape=False, order=1)
    for angle in DEGREES
  ]
  x = jnp.asarray(np.concatenate(rotated_images).reshape(-1, 64), jnp.float32)
  angle = np.repeat(np.arange(len(DEGREES)), len(images))
  return Points(x, jnp.tile(points.y, len(DEGREES))), angle


def _deviations(key: Array, features: np.ndarray, labels: Array) -> dict[str, float]:
  """Growth of D_intra by adding residuals; error of their class sums and trace."""
  with at_once.on_host():
    x = jnp.asarray(features, jnp.float64)
    moments = structure.moments(x, labels, CLASSES)
    residuals = metrics.class_residuals(x, labels, moments)
    sums = jax.ops.segment_sum(residuals, labels, CLASSES)
    squares = jax.ops.segment_sum(jnp.sum(residuals**2, axis=1), labels, CLASSES)
    counts = jnp.bincount(labels, length=CLASSES)
    intra = metrics.class_variance(moments).intra
    trace = jnp.mean(squares / jnp.maximum(counts, 1))
    augmented = metrics.augment_within_classes(
      key, x, residuals, labels, num_classes=CLASSES
    )
    wider = metrics.class_variance(structure.moments(augmented, labels, CLASSES)).intra
    error = jnp.maximum(jnp.max(jnp.abs(sums)), jnp.abs(trace / intra - 1))
    return {GROWTH: float(wider / intra), ERROR: float(error)}


def add_residuals(
  table: Table, config: Config, train: Points, test: Points, folder: pathlib.Path
) -> None:
  """Tests if deviations from the class mean tell the angle to other classes."""

  def loss(clean, attacked, labels, _):
    del attacked
    return losses.normface(clean, labels, scale=config.scale)

  learned, angle = rotated(train)
  tested, test_angle = rotated(test)
  defence = networks.Defence(
    config, loss, cosine=True, attack=lambda _, batch, *__: batch.x
  )
  run_folder = folder / "rotation"
  result = networks.train(defence, {"epsilon": [0.0]}, learned, tested, run_folder)

  def search(learned, tested, params):
    """Nearest neighbour of each test image among images of other classes."""
    train, test = (
      distances.l2_normalize(defence.features(params, points.x))
      for points in (learned, tested)
    )
    moments = structure.moments(train, learned.y, CLASSES)
    residual, query = (
      metrics.class_residuals(x, points.y, moments)
      for x, points in ((train, learned), (test, tested))
    )
    near = {
      name: distances.k_nearest(q, r, k=1, apart=(tested.y, learned.y)).indices[:, 0]
      for name, q, r in (("residuals", query, residual), ("features", test, train))
    }
    return near, train

  params = result.state.params
  nearest, features = trainer.over_models(search, params, learned, tested)
  for name, near in nearest.items():
    table.add(ANGLE, name, np.mean(angle[near[0]] == test_angle, axis=-1))
  table.add("rotated digits", "accuracy", result.scores[0, :, -1])
  keys = jax.random.split(jax.random.key(config.seed), config.seeds)
  for key, seed_features in zip(keys, features[0], strict=True):
    for measure, value in _deviations(key, seed_features, learned.y).items():
      table.add("rotated digits", measure, value, listed=measure == GROWTH)


def _phi(points: Array, labels: Array, classes: int, *, normalize: bool = False):
  moments = structure.moments(points, labels, classes, normalize=normalize)
  return metrics.class_variance(moments).phi


def reweighted(
  train: Points, test: Points, *, classes: int
) -> dict[str, dict[str, float]]:
  """Measures reweighted images, for each exponent and factor."""
  x, tested = train.flat().x, test.flat().x
  axes = metrics.principal_axes(x)
  values = axes.singular_values
  rank = int(jnp.sum(values > 1e-6 * values[0]))

  @jax.jit
  def measure(exponent, factor):
    weights = jnp.where(jnp.arange(len(values)) < LEADING, factor, 1.0)
    weighted_train, other = (
      metrics.reweight(y, axes, exponent=exponent, weights=weights) for y in (x, tested)
    )
    triangle = metrics.triangle_update(
      metrics.triangle_init(weighted_train.shape[1]), weighted_train
    )
    spectrum = metrics.spectrum(triangle, components=rank)
    near = prototypes.nearest_neighbours(
      other, weighted_train, train.y, num_classes=classes
    )
    return {
      "phi": _phi(weighted_train, train.y, classes),
      "phi, normalised": _phi(weighted_train, train.y, classes, normalize=True),
      "rho": spectrum.rho,
      "d_DoV": spectrum.density,
      "1-NN": jnp.mean(near == test.y),
    }

  cells = {f"exponent {x:g}": (x, 1.0) for x in EXPONENTS}
  cells |= {f"first {LEADING} times {x:g}": (0.0, x) for x in FACTORS}
  return {
    name: {key: float(x) for key, x in measure(*map(jnp.float32, cell)).items()}
    for name, cell in cells.items()
  }


def add_pixels(table: Table, train: Points, test: Points) -> None:
  for name, figures in reweighted(train, test, classes=CLASSES).items():
    table.add_all(f"pixels, {name}", figures, finite=True)


def add_features(
  table: Table, config: Config, train: Points, test: Points, folder: pathlib.Path
) -> None:
  """Tests reweighted features of networks that learned half of the classes.

  Directions and weights come from the training images; episodes draw test images of the
  classes that were not learned.
  """
  half = CLASSES // 2
  seen_classes = _where(train, train.y < half)
  tested = _where(test, test.y < half)
  others = _where(test, test.y >= half)
  classes = data.class_table(np.asarray(others.y) - half, per_class=SHOTS + QUERIES)
  key, sizes = jax.random.key(config.seed), {"shots": SHOTS, "queries": QUERIES}
  episodes = class_sets.episodes(key, classes, number=EPISODES, ways=half, **sizes)
  budgets = {"standard": 0.0, f"l2 {config.proposed_budget:g}": config.proposed_budget}
  loss = networks.adversarial(config.clean_weight)
  defence = networks.Defence(config, loss, classes=half)
  columns = {"epsilon": list(budgets.values())}
  run_folder = folder / "half of the classes"
  result = networks.train(defence, columns, seen_classes, tested, run_folder)

  def measure(seen_classes, others, episodes, params) -> Mapping[str, Array]:
    learned, unseen = (defence.features(params, x) for x in (seen_classes.x, others))
    axes = metrics.principal_axes(learned)

    def weighted(exponent):
      known, new = (
        metrics.reweight(x, axes, exponent=exponent) for x in (learned, unseen)
      )
      accuracies = prototypes.episode_accuracies(new, episodes, num_shots=SHOTS)
      return {
        "phi": _phi(known, seen_classes.y, half),
        "few-shot": jnp.mean(accuracies),
      }

    return jax.lax.map(weighted, jnp.array(EXPONENTS))

  measures = trainer.over_models(
    measure, result.state.params, seen_classes, others.x, episodes
  )
  titles = {"phi": "phi", "few-shot": f"accuracy, {half} new classes, {SHOTS} example"}
  for cell, name in enumerate(budgets):
    for number, x in enumerate(EXPONENTS):
      for key, title in titles.items():
        values = measures[key][cell, :, number]
        table.add(f"features, {name}, exponent {x:g}", title, values)
  falls = -np.diff(measures["phi"], axis=-1).max(axis=(0, 2))
  table.add("features", FALLS, falls, listed=False)


def _column(table: Table, measure: str, exponents: tuple[float, ...]) -> np.ndarray:
  """Values of a measure of images, [exponents, 1]."""
  names = [f"pixels, exponent {x:g}" for x in exponents]
  return np.stack([table.values(measure, name) for name in names])


def _leading(table: Table) -> np.ndarray:
  names = [f"pixels, first {LEADING} times {x:g}" for x in FACTORS]
  less, more = (table.values("phi", name) for name in names)
  same = table.values("phi", "pixels, exponent 0")
  return np.minimum(more - same, same - less)


WEIGHT_CLAIMS = Claim.of_rows([
  ("X12-phi", "phi falls with the exponent",
   lambda t: -np.diff(_column(t, "phi", EXPONENTS), axis=0).max(0)),
  ("X12-density", "d_DoV rises from -0.5 to 0.5",
   lambda t: np.diff(_column(t, "d_DoV", MILD), axis=0).min(0)),
  ("X12-rho", "rho falls from -0.5 to 0.5",
   lambda t: -np.diff(_column(t, "rho", MILD), axis=0).max(0)),
  ("X12-accuracy", "1-NN accuracy within 0.01 for exponents in [-0.5, 0.5]",
   lambda t: 0.01 - np.ptp(_column(t, "1-NN", MILD), axis=0)),
  ("X12-leading", f"phi grows with the weight of the first {LEADING} directions",
   _leading),
], "DIST 6.2.3", every_seed=True) + Claim.of_rows([
  ("X12-features",
   "phi of features falls with the exponent, with and without attacks in training",
   lambda t: t.values(FALLS, "features")),
], "DIST 6.2.3")  # fmt: skip


def _where(points: Points, mask: Array) -> Points:
  return jax.tree.map(lambda x: x[np.asarray(mask)], points)
