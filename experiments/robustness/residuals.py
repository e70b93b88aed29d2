"""What deviations from the mean of a class tell about other classes (DIST 6.2.2)."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.ndimage
from jax import Array

from experiments.frame import results
from experiments.frame.digits import Points
from experiments.robustness import networks, structure
from spherejax import _versions, distances, losses, metrics

DEGREES = (-30, 0, 30)


def rotated(points: Points) -> tuple[Points, np.ndarray]:
  """Every image at each angle, and which it is; bilinear."""
  images = np.asarray(points.x).reshape(-1, 8, 8)
  turned = [
    scipy.ndimage.rotate(images, angle, axes=(1, 2), reshape=False, order=1)
    for angle in DEGREES
  ]
  x = jnp.asarray(np.concatenate(turned).reshape(-1, 64), jnp.float32)
  angle = np.repeat(np.arange(len(DEGREES)), len(images))
  return Points(x, jnp.tile(points.y, len(DEGREES))), angle


def _deviations(
  key: Array, features: np.ndarray, labels: Array, classes: int
) -> tuple[float, float, float]:
  """Of residuals the largest sum of a class and the error of their trace.

  And by which factor they make D_intra grow.
  """
  with _versions.enable_x64(True):
    x = jnp.asarray(features, jnp.float64)
    moments = structure.moments(x, labels, classes)
    residuals = metrics.class_residuals(x, labels, moments)
    sums = jax.ops.segment_sum(residuals, labels, classes)
    squares = jax.ops.segment_sum(jnp.sum(residuals**2, axis=1), labels, classes)
    counts = jnp.bincount(labels, length=classes)
    intra = metrics.class_variance(moments).intra
    trace = jnp.mean(squares / jnp.maximum(counts, 1))
    moved = metrics.augment_within_classes(
      key, x, residuals, labels, num_classes=classes
    )
    wider = metrics.class_variance(structure.moments(moved, labels, classes))
    return (
      float(jnp.max(jnp.abs(sums))),
      float(jnp.abs(trace / intra - 1)),
      float(wider.intra / intra),
    )


def _nearest(
  config, own: Points, tested: Points, classes: int, folder: pathlib.Path
) -> tuple[dict[str, Array], Array, np.ndarray]:
  """What is nearest to each tested image among those of other classes.

  By residuals and by features, [1, seeds, tested]; the features of the images that
  train, [1, seeds, count, dim]; and the networks' accuracies, [seeds].
  """

  def plain(clean, attacked, labels, _):
    del attacked
    return losses.normface(clean, labels, scale=config.scale)

  defence = networks.Defence(
    plain, cosine=True, attack=lambda scores, points, rows, *_: points.x[rows]
  )
  result = networks.train(
    config,
    defence,
    {"epsilon": [0.0]},
    lambda key, hyper: own,
    tested,
    classes=classes,
    folder=folder / "rotation",
  )
  built = networks.network(config, defence, classes)

  def one(own, tested, params):
    seen: list[Any] = [built.apply({"params": params}, x.x)[0] for x in (own, tested)]
    known, asked = (distances.l2_normalize(x) for x in seen)
    moments = structure.moments(known, own.y, classes)
    residual, query = (
      metrics.class_residuals(x, points.y, moments)
      for x, points in ((known, own), (asked, tested))
    )
    near = {
      name: distances.k_nearest(q, r, k=1, apart=(tested.y, own.y)).indices[:, 0]
      for name, q, r in (("residuals", query, residual), ("features", asked, known))
    }
    return near, known

  near, known = networks.over_models(one)(result.state.params, own, tested)
  return near, known, result.scores[0, :, -1]


def within_classes(
  config, train: Points, test: Points, classes: int, folder: pathlib.Path
) -> tuple[list[Any], list[Any]]:
  """Do deviations from the class's mean tell the angle to other classes?"""
  own, angle = rotated(train)
  tested, test_angle = rotated(test)
  found, features, accuracy = _nearest(config, own, tested, classes, folder)
  keys = jax.random.split(jax.random.key(config.seed), config.seeds)
  exact = [
    _deviations(key, known, own.y, classes)
    for key, known in zip(keys, features[0], strict=True)
  ]
  sums, traces, growth = np.transpose(exact)
  right = {
    name: np.mean(angle[near[0]] == test_angle, axis=-1) for name, near in found.items()
  }
  share = 1 / len(DEGREES)
  rows = [
    results.row("rotated digits, angle from other classes", name, values)
    for name, values in right.items()
  ] + [
    results.row("rotated digits", "accuracy", accuracy),
    results.row("rotated digits", "D_intra, augmented by residuals", growth),
  ]
  made = {
    "X11-residuals": (
      "residuals tell the angle to other classes: accuracy > 1/3 + 0.05",
      right["residuals"] - share - 0.05,
      False,
    ),
    "X11-features": (
      "accuracy of residuals > of features",
      right["residuals"] - right["features"],
      False,
    ),
    "X11-exact": (
      "residuals of a class sum to 0 and have the trace D_intra, to 1e-5",
      1e-5 - np.maximum(sums, traces),
      True,
    ),
    "X11-augmentation": (
      "features augmented by residuals have twice the D_intra, to 10 %",
      0.1 - np.abs(growth / 2 - 1),
      True,
    ),
  }
  return rows, [
    results.claim(key, text, values, paper="DIST 6.2.2", every_seed=exact)
    for key, (text, values, exact) in made.items()
  ]
