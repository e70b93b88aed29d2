"""Tests proposals of DIST 5.4 and 6.2.1: known inputs, and losses near proxies."""

import functools
import itertools
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax.typing import Collection
from jax import Array

from experiments.frame import training as trainer
from experiments.frame.study import Claim, Statement, Table
from experiments.robustness import networks, structure
from experiments.robustness.images import CLASSES, Gaussian, Points
from experiments.robustness.settings import LOSSES, Config, LossName
from spherejax import distances, losses, metrics

GAUSSIAN_CLASSES = 5
GAUSSIAN_POINTS = 1000

NORMFACE, NEGATIVE, CAP = "NormFace", "negative margin", "proxy cap"
BEYOND = "in the cap, but wrong or beyond"


def gaussian(dim: int, key: Array, hyper: Mapping[str, float | Array]) -> Gaussian:
  """Draws five classes of unit variance around means with phi = 2 radius^2."""
  mean_key, point_key = jax.random.split(jax.random.fold_in(key, 0))
  means, _ = jnp.linalg.qr(jax.random.normal(mean_key, (dim, GAUSSIAN_CLASSES)))
  labels = jnp.arange(GAUSSIAN_POINTS) % GAUSSIAN_CLASSES
  around = hyper["radius"] * means.T[labels]
  noise = jax.random.normal(point_key, (2, *around.shape)) / dim**0.5
  return Gaussian(around + noise[0], labels, around + noise[1])


def _variant_name(dim: int, radius: float, how: str) -> str:
  return f"{GAUSSIAN_CLASSES} classes in {dim}, radius {radius:g}, {how}"


def add_radius(
  dim: int, table: Table, config: Config, train: Points, test: Points, folder: Path
) -> None:
  """Tests if training under attack costs less where inputs are far apart (DIST 5.4)."""
  del train, test
  key, half = jax.random.key(config.seed), len(config.radii)
  draw = functools.partial(gaussian, dim)
  samples = (draw(key, {"radius": radius}) for radius in config.radii)
  separations = (metrics.separation(x, y) for x, y, _ in samples)
  # Quarters of the median distances to another class.
  budgets = 0.25 * np.array([jnp.median(x.nearest_other_class) for x in separations])
  defence = networks.Defence(
    config, networks.adversarial(config.clean_weight), low=-np.inf, high=np.inf,
    classes=GAUSSIAN_CLASSES,
  )  # fmt: skip
  columns = {
    "radius": np.tile(config.radii, 2),
    "epsilon": np.concatenate([np.zeros(half), budgets]),
  }
  first = draw(key, {"radius": 1.0})
  tested = Points(first.x, first.y)
  result = networks.train(defence, columns, draw, tested, folder / f"gaussian-{dim}")

  def measure(state) -> dict[str, Array]:
    points: Gaussian = state.points
    x, y, unseen = points
    moments = structure.moments(x, y, GAUSSIAN_CLASSES)
    features, scores = defence.features(state.params, x), defence.scores(state.params)
    return structure.of_features(x, features, y, classes=GAUSSIAN_CLASSES) | {
      "phi of the inputs": metrics.class_variance(moments).phi,
      "training accuracy": jnp.mean(jnp.argmax(scores(x), axis=1) == y),
      "accuracy": jnp.mean(jnp.argmax(scores(unseen), axis=1) == y),
    }

  measures = trainer.over_models(measure, result.state)
  for cell, radius in enumerate(columns["radius"]):
    name = _variant_name(dim, radius, "standard" if cell < half else "robust")
    table.add_all(name, {key: x[cell] for key, x in measures.items()}, finite=True)


def _cost(table: Table, measure: str, dim: int, radius: float) -> np.ndarray:
  """Loss in a measure by robust training instead of standard training."""
  standard, robust = (_variant_name(dim, radius, x) for x in ("standard", "robust"))
  return table.gain(measure, standard, over=robust)


def _far_from_known(table: Table, config: Config) -> np.ndarray:
  """Largest relative error of phi; its expectation corrects for sample means."""
  gaps = []
  for dim, radius in itertools.product(config.dims, config.radii):
    phi = table.values("phi of the inputs", _variant_name(dim, radius, "standard"))
    expected = 2 * radius**2 + 2 * GAUSSIAN_CLASSES / GAUSSIAN_POINTS
    gaps.append(np.abs(phi / expected - 1))
  return np.max(gaps, axis=0)


def of_radii(config: Config) -> list[Claim]:
  """Claims about inputs of known discriminality."""
  if not config.dims:
    return []
  first, last = config.radii[0], config.radii[-1]
  low, high = min(config.dims), max(config.dims)
  rows: list[Statement] = [
    (f"X9-{key}-{dim}",
     f"{text} that training under attack costs, {dim} dimensions: less at the largest "
     "radius than at the smallest",
     lambda t, x=name, dim=dim: _cost(t, x, dim, first) - _cost(t, x, dim, last))
    for key, name, text in (
      ("cost", "R2", "R2"),
      ("accuracy", "accuracy", "accuracy on points that were not trained on"),
    )
    for dim in config.dims
  ]  # fmt: skip
  if low < high:
    rows.append((
      "X9-density",
      f"d_DoV that it adds at the largest radius, where it is near the number of "
      f"classes: {high} dimensions >= {low}",
      lambda t: _cost(t, "d_DoV", low, last) - _cost(t, "d_DoV", high, last) + 1e-3,
    ))  # fmt: skip
  inputs: Statement = (
    "X9-inputs", "phi of the inputs within 15 % of twice the squared radius",
    lambda t: 0.15 - _far_from_known(t, config),
  )  # fmt: skip
  place = "DIST 5.4"
  return Claim.of_rows([inputs], place, every_seed=True) + Claim.of_rows(rows, place)


def _loss(config: Config, name: LossName) -> networks.Loss:
  weight, scale = config.clean_weight, config.scale

  def normface(clean, attacked, labels, proxies):
    del proxies
    first, other = (losses.normface(x, labels, scale=scale) for x in (clean, attacked))
    return weight * first + (1 - weight) * other

  def near_proxy(clean, attacked, labels, proxies):
    function = losses.proxy_cap if name == CAP else losses.normface_negative_margin
    angles = losses.nearest_proxy_angles(proxies)
    return function(clean, attacked, labels, angles, clean_weight=weight, scale=scale)

  if name == LOSSES[0]:
    return networks.adversarial(weight)
  return normface if name == NORMFACE else near_proxy


def add_loss(
  name: LossName,
  table: Table,
  config: Config,
  train: Points,
  test: Points,
  folder: Path,
) -> None:
  """Tests if a loss holds attacked images near their proxy (DIST 6.2.1)."""
  defence = networks.Defence(config, _loss(config, name), cosine=name != LOSSES[0])
  run_folder = folder / f"proposal-{name.replace(' ', '-')}"
  budgets = [config.proposed_budget]
  params, measures = structure.trained(defence, budgets, train, test, run_folder)
  if defence.cosine:
    measures |= _caps(defence, params, train)
  first = {measure: values[0] for measure, values in measures.items()}
  table.add_all(f"{name}, l2 {config.proposed_budget:g}", first, finite=True)


def of_losses(config: Config) -> list[Claim]:
  """Claims about attacked images near their proxies."""
  plain, *others = (f"{name}, l2 {config.proposed_budget:g}" for name in LOSSES)
  _, negative, cap = others
  place = "DIST 6.2.1"
  return Claim.of_rows([
    ("X10-cap",
     "attacked images within half the angle: proxy cap > negative margin",
     lambda t: t.gain("share in the cap", cap, over=negative)),
    ("X10-r2",
     "R2 of networks of angles >= that of cross-entropy, all three losses",
     lambda t: np.min([t.gain("R2", x, over=plain) for x in others], axis=0)),
  ], place) + Claim.of_rows([
    ("X10-inside",
     "no attacked image within half the angle is classified wrongly or beyond the "
     "printed boundary, all three losses; only the proxy cap holds many there",
     lambda t: 0.5 - np.max([t.values(BEYOND, x) for x in others], axis=0)),
    ("X10-outside",
     "with the negative margin some satisfy the printed boundary only, some of those "
     "are classified wrongly",
     lambda t: t.values("of these wrong", negative)),
  ], place, every_seed=True)  # fmt: skip


def _caps(
  defence: networks.Defence, params: Collection, train: Points
) -> dict[str, np.ndarray]:
  """Compares attacked training images with proxies and the boundary in DIST."""
  config = defence.settings

  def measure(params):
    key = jax.random.key(config.seed)
    scores, budget = defence.scores(params), config.proposed_budget
    attacked = defence.pgd(scores, train, key, budget).x_adv
    features = defence.features(params, attacked)
    angles = distances.pairwise_angle(features, params["proxies"])
    itself = jax.nn.one_hot(train.y, CLASSES, dtype=bool)
    label_angles = jnp.sum(jnp.where(itself, angles, 0), axis=1)
    next_one = jnp.min(jnp.where(itself, jnp.inf, angles), axis=1)
    width = losses.nearest_proxy_angles(params["proxies"])[train.y] / 2
    inside, right = label_angles < width - 1e-5, label_angles < next_one
    printed = jnp.maximum(label_angles - width, 0) < next_one
    printed_only = printed & ~(label_angles < width)
    return {
      "share in the cap": jnp.mean(inside),
      BEYOND: jnp.sum(inside & ~(right & printed)),
      "satisfy the printed boundary only": jnp.sum(printed_only),
      "of these wrong": jnp.sum(printed_only & ~right),
    }

  return trainer.over_models(measure, params)
