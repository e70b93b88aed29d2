"""Attributes of classes: predictions of a regression on them, and their figures."""

import functools
import itertools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import pictures
from experiments.frame.study import Table
from experiments.gsp import network
from spherejax import data, distances, losses, models, prototypes, training

SHUFFLED = "attributes shuffled"
METRICS = ("l2", "cosine")
CANDIDATES = {"5 classes": False, "10 classes": True}


@functools.partial(jax.jit, static_argnames=("splits",))
def predict_classes(
  key: Array, attributes: Array, embeddings: Array, ridge: float, *, splits: int
) -> dict[tuple[str, str, str], Array]:
  """Shares of held-out classes that are predicted correctly, over all splits at once.

  Keys are the distance, the candidates and the attributes used: those of the class,
  or, as a control, shuffled among the classes.
  """
  classes = len(attributes)
  half = classes // 2

  def one_split(key):
    order_key, shuffle_key = jax.random.split(key)
    order = jax.random.permutation(order_key, classes)
    fitted, held = order[:half], order[half:]

    def predict(z):
      predictor = losses.ridge_attribute_embeddings(
        z[fitted], embeddings[fitted], ridge=ridge
      )
      return z[held] @ predictor

    # Both as one batch: on a CPU of two cores, two batched factorisations that run
    # side by side can wait for each other's threads.
    shuffled = jax.random.permutation(shuffle_key, attributes)
    predictions = jax.vmap(predict)(jnp.stack([attributes, shuffled]))
    accuracies = {}
    for source, predicted in zip(("own", SHUFFLED), predictions, strict=True):
      tables = {
        "l2": distances.pairwise_euclidean(predicted, embeddings),
        "cosine": distances.pairwise_cosine_distance(predicted, embeddings),
      }
      for metric, table in tables.items():
        for name, everything in CANDIDATES.items():
          candidates = jnp.arange(classes) if everything else held
          nearest = candidates[jnp.argmin(table[:, candidates], axis=1)]
          accuracies[metric, name, source] = jnp.mean(nearest == held)
    return accuracies

  return jax.tree.map(jnp.mean, jax.vmap(one_split)(jax.random.split(key, splits)))


def class_means(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
  return np.stack([values[labels == label].mean(0) for label in np.unique(labels)])


Variants = Mapping[str, tuple[training.TrainState, models.HeadResult, np.ndarray]]
"""For each variant its state, its outputs for the images, and attributes."""


def class_attributes(variants: Variants, names: Sequence[str]) -> pictures.Figure:
  """Share of each class on each prototype, for each variant (figure 5.6)."""
  figure = pictures.new_figure(1.6 + 3.0 * len(variants), 3.8)
  cells = figure.subplots(1, len(variants), sharey=True)
  highest = max(values.max() for _, _, values in variants.values())
  for axes, (name, (_, _, values)) in zip(cells, variants.items(), strict=True):
    axes.imshow(values, cmap="viridis", vmin=0, vmax=highest, aspect="auto")
    axes.set_title(name, fontsize=10)
    axes.set_xlabel("prototype")
    axes.set_xticks(range(values.shape[1]))
    axes.set_yticks(range(len(names)), list(names))
  figure.colorbar(cells[-1].images[0], ax=list(cells), label="mean attribute")
  return figure


def dominant(
  variants: Variants, images: data.Images, settings: network.Settings
) -> pictures.Figure:
  """The first image of each class: its prototypes by colour, its weights by strength.

  A position has the colour of its nearest prototype; the colour is stronger the more
  the position contributes to the pooled vector.
  """
  import matplotlib

  colors = matplotlib.colormaps["Dark2"]
  rows = np.array([np.argmax(images.labels == i) for i in np.unique(images.labels)])
  examples = images[rows]
  figure = pictures.new_figure(7.2, 0.78 * (1 + len(variants)) + 0.6)
  cells = figure.subplots(1 + len(variants), len(rows))
  for column, label in enumerate(examples.labels):
    cells[0, column].imshow(examples.images[column], interpolation="nearest")
    cells[0, column].set_title(images.label_names[label], fontsize=8)
  for row, (name, (state, result, _)) in enumerate(variants.items(), start=1):
    maps = network.embed(state, examples, settings, pooled=False).pooled
    chosen = state.params["network"]["pooling"]["prototypes"]
    inside = distances.unit_ball(maps), distances.unit_ball(chosen)
    nearest = prototypes.prototype_histogram(*inside).assignment
    weights = np.asarray(result.weights)[rows]
    strength = weights / weights.max(axis=(1, 2), keepdims=True)
    tones = colors(np.asarray(nearest))[..., :3]
    shown = 1 - strength[..., None] * (1 - tones)
    for axes, picture in zip(cells[row], shown, strict=True):
      axes.imshow(picture, interpolation="nearest", vmin=0, vmax=1)
    cells[row, 0].set_ylabel(name, fontsize=8.5)
  for axes in cells.flat:
    axes.set(xticks=[], yticks=[])
  caption = (
    "Colour: the prototype that a position is nearest to, one of eight.\n"
    "Strength: the position's share of the pooled vector."
  )
  figure.supxlabel(caption, fontsize=9)
  return figure


def charts(config: network.Settings, table: Table) -> dict[str, pictures.Figure]:
  """Accuracies of all seeds, by distance and candidates."""
  del config
  panels = {}
  for title in map(", ".join, itertools.product(METRICS, CANDIDATES)):
    names = table.variants(f"accuracy, {title}")
    panels[title] = {name: table.values(f"accuracy, {title}", name) for name in names}
  rows = sorted(next(iter(panels.values())))
  return {
    "accuracy": pictures.dots(panels, "share of classes predicted correctly", rows=rows)
  }
