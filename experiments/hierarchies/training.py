"""Trains one network of `class_hierarchy` and measures it after every epoch."""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.typing import VariableDict
from jax import Array

from experiments.frame import frozen
from experiments.frame import images as class_sets
from experiments.frame import training as epochs
from experiments.hierarchies import methods
from experiments.hierarchies.methods import Architecture, Settings
from spherejax import data, distances, hierarchy, metrics, prototypes, training

BATCH = 500  # images to embed at once
Curves = dict[str, list[float]]  # values of each quantity after every evaluation


def _apply(variables: VariableDict, rows: Mapping[str, Array], settings: Architecture):
  images = data.to_float(rows["image"])
  return methods.Network(settings).apply(variables, images, rows["size"])


_at_once = jax.jit(_apply, static_argnames=("settings",))


@functools.cache
def _mapped(settings: Architecture) -> Callable[..., np.ndarray]:
  """Embeds the rows of a whole set, in batches of one shape on all devices."""
  apply = functools.partial(_apply, settings=settings)
  return training.parallel_map(apply, batch_size=BATCH)


def embed(
  variables: VariableDict, images: data.Images, settings: Architecture
) -> np.ndarray:
  """Embeds images, also `frozen.Features`: [count, dim], not normalised."""
  sizes = class_sets.log_sizes(images)
  if isinstance(images, frozen.Features):
    rows = {"image": images.images, "size": sizes}
    return np.asarray(_at_once(variables, rows, settings=settings))
  size = min(4 * BATCH, len(images))
  plan = data.ordered_plan(len(images), batch_size=size)
  parts = [
    _mapped(settings)(variables, {"image": read["image"], "size": sizes[read["index"]]})
    for read in data.pipeline(images, plan)
  ]
  return np.concatenate(parts)[: len(images)]


@jax.jit
def chords(points: Array) -> Array:
  """Distances between the normalised points; exactly 0 on the diagonal."""
  distance = distances.pairwise_chordal(points, points)
  return jnp.where(jnp.eye(len(points), dtype=bool), 0, distance)


@functools.partial(jax.jit, static_argnames=("classes",))
def class_chords(
  features: Array, labels: Array, *, classes: int
) -> tuple[Array, Array]:
  """Distances between the classes' mean directions, and which classes have images."""
  means = prototypes.class_means(features, labels, classes)
  return chords(means.means), means.counts > 0


class Relations(NamedTuple):
  """Relations between classes, from the class tree."""

  tree: hierarchy.ClassTree
  distances: np.ndarray  # path distances
  similarities: np.ndarray  # cosines that proxies should have to follow the tree
  living: np.ndarray  # mask of the living classes


def relations(tree: hierarchy.ClassTree, living: np.ndarray) -> Relations:
  path_distances = hierarchy.path_distances(tree)
  similarities = hierarchy.chordal_similarities(path_distances)
  return Relations(tree, path_distances, similarities, living)


class SharedInputs(NamedTuple):
  """Inputs that all trainings of one seed share."""

  study: class_sets.Parts
  related: Relations
  fixed: Array  # proxies laid out to follow the class tree
  key: Array


def train(
  settings: Settings,
  setting: methods.Setting,
  shared: SharedInputs,
  checkpoints: pathlib.Path,
  report: Callable[[dict[str, float]], None],
) -> tuple[training.TrainState, Curves]:
  """Trains one setting; calls `report` with the measures of each epoch.

  Returns the state to test, and curves.
  """
  study, class_distances = shared.study, shared.related.distances
  first_key, key = (jax.random.fold_in(shared.key, number) for number in (2, 3))
  steps = epochs.steps_per_epoch(study.train, settings.batch)
  shapes = methods.shapes(study.train)
  state = methods.initial_state(
    first_key, shared.fixed, settings=settings, setting=setting, shapes=shapes
  )
  followed = study.train
  if settings.curve_images:
    followed = followed[: settings.curve_images]

  def evaluate(state: training.TrainState) -> dict[str, float]:
    classifier = methods.head(state.params, state.batch_stats, settings.rates)
    embedded = functools.partial(embed, state.variables(), settings=settings)
    held, rows = embedded(study.validation), embedded(followed)
    scores = methods.logits(held, classifier, loss=setting.loss)
    right = metrics.top_k(scores, study.validation.labels)
    means, where = class_chords(rows, followed.labels, classes=len(class_distances))
    of_proxies = metrics.mean_correlation(chords(classifier.proxies), class_distances)
    of_means = metrics.mean_correlation(means, class_distances, where=where)
    figures = {
      "validation top-1": float(right.mean()),
      "scale": float(classifier.scale),
      "mean correlation, proxies": float(of_proxies.mean),
      "mean correlation, prototypes": float(of_means.mean),
    }
    report(figures)
    return figures

  if isinstance(study.train, frozen.Features):
    return _on_features(settings, setting, study.train, key, state, evaluate)
  sizes = class_sets.log_sizes(study.train)
  pictures = data.batches(study.train, key, batch_size=settings.batch)

  def batches(first: int) -> Iterator[dict[str, np.ndarray]]:
    for batch in pictures(first):
      yield batch | {"size": sizes[batch["index"]]}

  best = settings.keep_best
  with training.Checkpoints(checkpoints) if best else contextlib.nullcontext() as files:
    result = training.fit(
      state,
      _step(settings, setting, augment=settings.augment),
      batches,
      steps=steps * settings.epochs,
      evaluate=evaluate,
      evaluate_every=steps,
      monitor=training.Monitor("validation top-1") if best else None,
      checkpoints=files,
      checkpoint_every=steps,
      progress=False,
    )
  return result.best, curves(result.evaluations)


def curves(evaluations: list[dict[str, float]]) -> Curves:
  names = [name for name in evaluations[0] if name != "step"]
  return {name: [row[name] for row in evaluations] for name in names}


def _step(settings: Settings, setting: methods.Setting, *, augment: bool):
  objective = functools.partial(
    methods.objective, settings=settings, setting=setting, augment=augment
  )
  return training.make_step(objective, methods.optimizer(settings.rates, setting))


def _on_features(settings, setting, train, key, state, evaluate):
  """Trains on features in memory, with an epoch as one program."""
  rows = {"image": train.images, "label": train.labels.astype(np.int32)}
  rows |= {"size": class_sets.log_sizes(train)}
  best, highest, evaluations = state, -np.inf, []
  for _ in range(settings.epochs):
    state = _epoch(state, rows, key, settings=settings, setting=setting)
    evaluations.append(evaluate(state))
    accuracy = evaluations[-1]["validation top-1"]
    if accuracy > highest or not settings.keep_best:
      best, highest = state, accuracy
  return best, curves(evaluations)


@functools.partial(jax.jit, static_argnames=("settings", "setting"))
def _epoch(state, rows, key, *, settings, setting):
  step, count = _step(settings, setting, augment=False), len(rows["label"])

  def train_step(state, number):
    batch = data.shuffled_indices(key, count, number, batch_size=settings.batch)
    return step(state, {name: values[batch] for name, values in rows.items()})[0], None

  numbers = state.step + jnp.arange(count // settings.batch)
  return jax.lax.scan(train_step, state, numbers)[0]
