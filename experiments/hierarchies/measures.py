"""Measures of a trained network after DIST, article IV, and chance controls."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from experiments.frame import frozen, kept
from experiments.hierarchies import methods
from experiments.hierarchies import training as class_training
from experiments.hierarchies.methods import Setting, Settings
from experiments.hierarchies.training import Relations, SharedInputs
from spherejax import data, distances, hierarchy, metrics, prototypes, training

RETRIEVED, FEW = 250, 5

WITHOUT, LIVING = ", diagonal out", ", living"


def predictions(
  logits: Array, embeddings: np.ndarray, labels: np.ndarray, related: Relations
) -> dict[str, float]:
  """Measures of a test set, classified by the logits, and of its living classes.

  Images of living classes are classified among all classes, but retrieved only among
  living ones.
  """
  values = jax.tree.map(np.asarray, _classified(logits, labels, related.distances))
  parts = {"": np.ones(len(labels), bool), LIVING: related.living[labels]}
  if related.living.all():
    del parts[LIVING]
  measures = {}
  for part, mask in parts.items():
    figures = {name: np.mean(per_image[mask]) for name, per_image in values.items()}
    figures |= _retrieved(embeddings[mask], labels[mask], related.similarities)
    measures |= {f"{name}{part}": value for name, value in figures.items()}
  measures |= _mildest(logits, labels, related.distances)
  return {name: float(value) for name, value in measures.items()}


@jax.jit
def _classified(logits, labels, class_distances):
  inputs = logits, labels, class_distances
  values = {f"top-{k}": metrics.top_k(logits, labels, k=k) for k in (1, FEW)}
  for k in (1, FEW):
    values[f"AHD@{k}"] = metrics.average_hierarchical_distance(*inputs, k=k)
  return values | {f"HP@{FEW}": metrics.hierarchical_precision(*inputs, k=FEW)}


@jax.jit
def _retrieved(embeddings, labels, similarities):
  similarity = metrics.hierarchical_similarity(
    embeddings, labels, similarities, k=RETRIEVED
  )
  curve = jnp.mean(similarity.values, axis=0)
  area = metrics.average_hierarchical_similarity(curve)
  return {f"HS@{k}": curve[k - 1] for k in (50, RETRIEVED)} | {f"AHS@{RETRIEVED}": area}


@jax.jit
def _mildest(logits, labels, class_distances):
  """Severity of mistakes by probability and by least risk; top-1 and AHD@1 by risk."""
  risk = metrics.conditional_risk(jax.nn.softmax(logits), class_distances)
  truth = labels, class_distances
  cost = metrics.average_hierarchical_distance(-risk, *truth)
  return {
    "severity": metrics.mean_where(*metrics.severity(logits, *truth)),
    "severity, least risk": metrics.mean_where(*metrics.severity(-risk, *truth)),
    "top-1, least risk": metrics.top_k(-risk, labels).mean(),
    "AHD@1, least risk": cost.mean(),
  }


def correlations(
  name: str, class_distances: ArrayLike, related: Relations, where: ArrayLike
) -> dict[str, float]:
  """Mean correlation with the tree: with the diagonal, without it, among the living."""
  tables, name = (class_distances, related.distances), f"mean correlation, {name}"
  return _by_group(name, _mean_correlation, tables, related, where)


def ceilings(related: Relations) -> dict[str, float]:
  """Upper bounds of `correlations` for this tree."""
  name, measure = "ceiling of the mean correlation", metrics.mean_correlation_ceiling
  return _by_group(name, measure, (related.distances,), related, True)


def _mean_correlation(*tables, **options):
  return metrics.mean_correlation(*tables, **options).mean


def _by_group(name, measure, tables, related, where) -> dict[str, float]:
  """A measure by group; leaves out the living where all classes live."""
  mask = np.broadcast_to(where, len(related.living))
  arrays = [np.asarray(x) for x in (*tables, mask, mask & related.living)]
  # Zeros fill up the classes to a multiple of 128, so that trees share a program.
  padded = [np.pad(x, [(0, -len(x) % 128)] * x.ndim) for x in arrays]
  by_group = _of_groups(measure, padded)
  if related.living.all():
    del by_group[LIVING]
  return {f"{name}{group}": float(x) for group, x in by_group.items()}


@functools.partial(jax.jit, static_argnames=("measure",))
def _of_groups(measure: Callable[..., Array], padded: list[np.ndarray]):
  *tables, mask, living = padded
  return {
    "": measure(*tables, where=mask),
    WITHOUT: measure(*tables, where=mask, include_diagonal=False),
    LIVING: measure(*tables, where=living),
  }


def agreement(
  name: str,
  class_distances: ArrayLike,
  tree: hierarchy.ClassTree,
  where: ArrayLike = True,
) -> dict[str, float]:
  """Share of the tree's splits that neighbour joining recovers, for classes `where`."""
  points = np.asarray(class_distances, np.float64)
  mask = np.broadcast_to(where, len(points))
  names = [tree.class_names[label] for label in np.flatnonzero(mask)]
  pruned = tree if mask.all() else hierarchy.restrict(tree, names)
  points = points[np.ix_(mask, mask)]
  joined = hierarchy.neighbor_joining((points + points.T) / 2)  # undoes rounding
  recall = hierarchy.split_recall(hierarchy.splits(joined), hierarchy.splits(pruned))
  return {f"share of the tree's splits, {name}": recall}


def test(
  settings: Settings, setting: Setting, shared: SharedInputs, state: training.TrainState
) -> kept.Finished:
  """Measures one network on the test images; keeps its proxies and prototypes."""
  study, related = shared.study, shared.related
  classifier = methods.head(state.params, state.batch_stats, settings.rates)
  variables, labels = state.variables(), study.test.labels
  features = class_training.embed(variables, study.test, settings)
  logits = methods.logits(features, classifier, loss=setting.loss)
  figures = predictions(logits, features, labels, related)
  trained = class_training.embed(variables, study.train, settings)
  means = prototypes.class_means(trained, study.train.labels, len(related.distances))
  points = {
    "proxies": (class_training.chords(classifier.proxies), True),
    "prototypes": (class_training.chords(means.means), means.counts > 0),
  }
  for name, (table, where) in points.items():
    figures |= correlations(name, table, related, where)
  for name, (table, where) in points.items() if settings.joined else ():
    figures |= agreement(name, table, related.tree, where)
  if setting.dynamic:
    figures["scale"] = float(classifier.scale)
  arrays = {"proxies": classifier.proxies, "prototypes": means.means}
  return kept.Finished(figures, jax.tree.map(np.asarray, arrays))


def controls(settings: Settings, shared: SharedInputs) -> dict[str, dict[str, float]]:
  """Mean correlations of untrained points of several kinds.

  For raw pixels, the distances are Euclidean distances of unnormalised means.
  """
  study, related, _, key = shared
  classes = len(related.distances)
  distance_key, point_key = jax.random.split(jax.random.fold_in(key, 4))
  random = jax.random.uniform(distance_key, (classes, classes))
  points = jax.random.normal(point_key, (classes, settings.dim))
  by_control: dict[str, tuple[ArrayLike, ArrayLike]] = {
    "random distances": (jnp.triu(random, 1) + jnp.triu(random, 1).T, True),
    "random points": (class_training.chords(points), True),
  }
  of_features = functools.partial(
    class_training.class_chords, labels=study.train.labels, classes=classes
  )
  if isinstance(study.train, frozen.Features):
    by_control["pretrained features"] = of_features(study.train.images)
  else:
    key, shapes = jax.random.fold_in(key, 2), methods.shapes(study.train)
    variables = methods.initial_variables(key, settings=settings, shapes=shapes)
    start = "pretrained weights" if settings.weights else "random weights"
    embedded = class_training.embed(variables, study.train, settings)
    by_control[start] = of_features(embedded)
    _, where = by_control[start]
    params = variables["params"]
    if "size" in params:
      # In an untrained network, the layer for sizes outweighs the images.
      alone = {**params, "size": jax.tree.map(jnp.zeros_like, params["size"])}
      variables = {**variables, "params": alone}
      embedded = class_training.embed(variables, study.train, settings)
      by_control[f"{start}, images alone"] = of_features(embedded)
    raw, unit = _pixel_means(study.train, classes)
    table = distances.pairwise_euclidean(raw, raw) * (1 - jnp.eye(classes))
    by_control["pixels"] = (table, where)
    by_control["normalised pixels"] = (class_training.chords(unit), where)
  return {
    name: correlations("prototypes", table, related, where)
    for name, (table, where) in by_control.items()
  }


def _pixel_means(images: data.Images, classes: int) -> tuple[np.ndarray, np.ndarray]:
  """Class means of the images and of the normalised images, [classes, pixels] each."""
  raw, unit, count = 0.0, 0.0, 0
  for read in data.pipeline(images, data.ordered_plan(len(images), batch_size=1000)):
    left = len(images) - count  # the last batch is padded
    rows = read["image"].reshape(len(read["image"]), -1)[:left].astype(np.float32) / 255
    one_hot = (read["label"][:left] == np.arange(classes)[:, None]).astype(np.float32)
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    raw, unit = raw + one_hot @ rows, unit + one_hot @ (rows / norms)
    count += len(rows)
  counts = np.maximum(np.bincount(images.labels, minlength=classes), 1)
  counts = counts[:, None].astype(np.float32)
  return raw / counts, unit / counts
