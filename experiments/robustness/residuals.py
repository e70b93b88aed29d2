"""What deviations from the mean of a class tell about other classes (DIST 6.2.2)."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.ndimage
from jax import Array

from experiments.frame.digits import CLASSES, Points
from experiments.frame.study import Claim, Table
from experiments.robustness import networks, structure
from spherejax import _versions, distances, losses, metrics

DEGREES = (-30, 0, 30)
ANGLE = "rotated digits, angle from other classes"
GROWTH = "D_intra, augmented by residuals"
ERROR = "largest error of a sum or a trace of residuals"


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
  config: Any, own: Points, tested: Points, folder: pathlib.Path
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
    own,
    tested,
    classes=CLASSES,
    folder=folder / "rotation",
  )
  built = networks.network(config, defence, CLASSES)

  def one(own, tested, params):
    seen: list[Any] = [built.apply({"params": params}, x.x)[0] for x in (own, tested)]
    known, asked = (distances.l2_normalize(x) for x in seen)
    moments = structure.moments(known, own.y, CLASSES)
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


def add(
  table: Table, config: Any, train: Points, test: Points, folder: pathlib.Path
) -> None:
  """Do deviations from the class's mean tell the angle to other classes?"""
  own, angle = rotated(train)
  tested, test_angle = rotated(test)
  found, features, accuracy = _nearest(config, own, tested, folder)
  for name, near in found.items():
    right = np.mean(angle[near[0]] == test_angle, axis=-1)
    table.add(ANGLE, name, right)
  table.add("rotated digits", "accuracy", accuracy)
  keys = jax.random.split(jax.random.key(config.seed), config.seeds)
  for key, known in zip(keys, features[0], strict=True):
    sums, traces, growth = _deviations(key, known, own.y, CLASSES)
    table.add("rotated digits", GROWTH, growth)
    table.add("rotated digits", ERROR, max(sums, traces), listed=False)


CLAIMS = [
  Claim(
    "X11-residuals",
    "residuals tell the angle to other classes: accuracy > 1/3 + 0.05",
    lambda t: t.values("residuals", ANGLE) - 1 / len(DEGREES) - 0.05,
    "DIST 6.2.2",
  ),
  Claim(
    "X11-features",
    "accuracy of residuals > of features",
    lambda t: t.values("residuals", ANGLE) - t.values("features", ANGLE),
    "DIST 6.2.2",
  ),
  Claim(
    "X11-exact",
    "residuals of a class sum to 0 and have the trace D_intra, to 1e-5",
    lambda t: 1e-5 - t.values(ERROR, "rotated digits"),
    "DIST 6.2.2",
    every_seed=True,
  ),
  Claim(
    "X11-augmentation",
    "features augmented by residuals have twice the D_intra, to 10 %",
    lambda t: 0.1 - np.abs(t.values(GROWTH, "rotated digits") / 2 - 1),
    "DIST 6.2.2",
    every_seed=True,
  ),
]
