"""Local features in the plane with their prototypes: measures and plots."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from experiments.frame import pictures
from spherejax import data, metrics, plotting, pooling, prototypes

_COLUMNS = 5  # classes side by side
_SINGLES = ("automobile", "dog", "horse")  # as in figure 4.4


class Study(NamedTuple):
  """Local features of one network, with their prototypes."""

  features: np.ndarray  # [images, positions, 2]; the longest has norm 1
  labels: np.ndarray
  prototypes: np.ndarray  # [centres, 2]
  radii: np.ndarray  # covering radius of the first 1, 2, ... centres
  histograms: np.ndarray  # [images, centres]
  averages: np.ndarray
  combinations: np.ndarray
  errors: np.ndarray  # mean distance of an image's features to their prototypes


def study(maps: np.ndarray, labels: np.ndarray, centres: int) -> Study:
  """Prototypes, histograms, averages and combinations of local features."""
  features = maps.reshape(len(maps), -1, maps.shape[-1])
  features = features / np.linalg.norm(features, axis=2).max()
  points = features.reshape(-1, features.shape[2])
  chosen = prototypes.greedy_k_centre(points, centres)
  vectors = points[np.asarray(chosen.indices)]
  counted = prototypes.prototype_histogram(features, vectors)
  combined = prototypes.prototype_convex_combination(features, vectors)
  rest = chosen.radii, counted.histogram, pooling.gap(features), combined, counted.error
  return Study(features, labels, vectors, *map(np.asarray, rest))


def variation(first: np.ndarray, second: np.ndarray) -> float:
  """Total variation between the mean histograms of two sets of images."""
  return float(np.abs(first.mean(0) - second.mean(0)).sum() / 2)


def measure(study: Study, seed: int) -> dict[str, ArrayLike]:
  rng = np.random.default_rng(seed)
  radius = study.radii[-1]
  off = np.linalg.norm(study.combinations - study.averages, axis=1)
  classes = [study.histograms[study.labels == label] for label in range(10)]
  active = [(histograms > 0).any(0) for histograms in classes]
  halves = [np.array_split(rng.permutation(histograms), 2) for histograms in classes]
  pairs = list(itertools.combinations([study.prototypes[used] for used in active], 2))
  meeting = sum(itertools.starmap(metrics.hulls_intersect, pairs))
  gaps = list(itertools.starmap(metrics.hull_distance, pairs))
  between = list(itertools.starmap(variation, itertools.combinations(classes, 2)))
  return {
    "covering radius": radius,
    "distance of average and combination": off.mean(),
    "largest such distance": off.max(),
    "mean distance of features to prototypes": study.errors.mean(),
    "least of error - distance": (study.errors - off).min(),
    "least of radius - error": (radius - study.errors).min(),
    "class pairs with intersecting hulls": meeting,
    "mean distance of two class hulls": np.mean(gaps),
    "prototypes of several classes": (np.sum(active, axis=0) > 1).sum(),
    "prototypes of a class": np.mean([used.sum() for used in active]),
    "variation between classes": np.mean(between),
    "variation between halves of a class": np.mean([variation(*h) for h in halves]),
    "radius of 1 - radius of all": study.radii[0] - radius,
    "largest rise of the radius": np.diff(study.radii).max(),
  }


def draw(studies: Sequence[Study], images: data.Images) -> dict[str, pictures.Figure]:
  """Draws the radius of all networks; cells, hulls and single images of the last."""
  radii, study = np.stack([x.radii for x in studies]), studies[-1]
  curve = plotting.training_curves(
    {"greedy k-centre": radii},
    steps=np.arange(1, radii.shape[1] + 1),
    xlabel="prototypes",
    ylabel="covering radius",
  )
  return {
    "cells": cells(study),
    "hulls": hulls(study, images.label_names),
    "singles": singles(study, images),
    "radius": curve,
  }


def _limit(axes: pictures.Axes, study: Study) -> np.ndarray:
  """Shows a square around all features, with a margin; returns its sides [2, 2]."""
  points = study.features.reshape(-1, 2)
  low, high = points.min(0), points.max(0)
  half = 0.56 * (high - low).max()
  sides = np.stack([(low + high) / 2 - half, (low + high) / 2 + half], axis=1)
  axes.set(xlim=sides[0], ylim=sides[1], xticks=[], yticks=[])
  axes.set_aspect("equal")
  return sides


def _shade_cells(axes: pictures.Axes, study: Study) -> None:
  """Shades each point of the plane by its nearest prototype."""
  sides = _limit(axes, study)
  x, y = (np.linspace(low, high, 360) for low, high in sides)
  grid = np.stack(np.meshgrid(x, y), axis=-1)
  squares = [((grid - vector) ** 2).sum(-1) for vector in study.prototypes]
  nearest = np.argmin(squares, axis=0)
  tones = np.random.default_rng(0).permutation(len(study.prototypes))
  placement = {"origin": "lower", "extent": sides.ravel(), "interpolation": "nearest"}
  axes.imshow(tones[nearest], cmap="Pastel1", alpha=0.6, **placement)
  edges = (nearest[1:, 1:] != nearest[:-1, 1:]) | (nearest[1:, 1:] != nearest[1:, :-1])
  borders = np.ma.masked_equal(edges, False)
  axes.imshow(borders, cmap="Greys", vmin=0, vmax=2.5, **placement)


def cells(study: Study) -> pictures.Figure:
  """Local features, prototypes and the cells of the plane (figure 4.2)."""
  from matplotlib.patches import Circle

  figure = pictures.new_figure(6.4, 6.2)
  axes = figure.subplots()
  _shade_cells(axes, study)
  points = study.features.reshape(-1, 2)
  some = np.random.default_rng(0).permutation(points)[:5000]
  axes.plot(*some.T, ".", color="#444444", markersize=1, alpha=0.5, rasterized=True)
  axes.plot(*study.prototypes.T, "o", color="black", markersize=5)
  # The prototype whose farthest feature sets the covering radius.
  squares = np.stack([((points - v) ** 2).sum(1) for v in study.prototypes])
  centre = study.prototypes[np.argmin(squares[:, np.argmax(squares.min(0))])]
  radius = float(study.radii[-1])
  axes.add_patch(Circle(tuple(centre.tolist()), radius, fill=False, linewidth=1.2))
  drawn = f"local features and {len(study.prototypes)} prototypes"
  title = f"{drawn}; circle: covering radius {radius:.3f}"
  axes.set_title(title, fontsize=10, loc="left")
  return figure


def hulls(study: Study, names: Sequence[str]) -> pictures.Figure:
  """Hulls of the prototypes in use by each class, and the averages (figure 4.3)."""
  import scipy.spatial

  figure, cells = pictures.panels(names, _COLUMNS, 1.65, 0.35, framed=True)
  for label, axes in enumerate(cells):
    mask = study.labels == label
    used = study.prototypes[(study.histograms[mask] > 0).any(0)]
    if len(used) > 2:
      corners = used[scipy.spatial.ConvexHull(used).vertices]
      axes.fill(*corners.T, facecolor="#D6E6F2", edgecolor="#0072B2", linewidth=1.2)
    axes.plot(*study.prototypes.T, ".", color="#999999", markersize=3)
    axes.plot(*used.T, "o", color="black", markersize=3)
    axes.plot(*study.averages[mask].T, ".", color="#D55E00", markersize=3)
    _limit(axes, study)
  caption = "orange: averages of images; black: prototypes in use, and their hull"
  figure.supxlabel(caption, fontsize=9)
  return figure


def singles(study: Study, images: data.Images) -> pictures.Figure:
  """Images with their local features, average and combination (figure 4.4)."""
  figure = pictures.new_figure(7.2, 4.3)
  cells = figure.subplots(2, 3, height_ratios=(1, 2.4))
  for column, name in enumerate(_SINGLES):
    row = int(np.argmax(study.labels == images.label_names.index(name)))
    top, axes = cells[:, column]
    top.imshow(images.images[row], interpolation="nearest")
    top.set(xticks=[], yticks=[], title=name)
    _shade_cells(axes, study)
    features, used = study.features[row], study.histograms[row] > 0
    axes.plot(*features.T, ".", color="#444444", markersize=3, label="local features")
    axes.scatter(
      *study.prototypes[used].T, s=250 * study.histograms[row][used],
      color="black", alpha=0.55, linewidth=0, label="prototypes by share",
    )  # fmt: skip
    axes.plot(*study.averages[row], "s", color="#D55E00", markersize=9, label="GAP")
    axes.plot(*study.combinations[row], "^", color="#0072B2", markersize=7, label="PCC")
    off = np.linalg.norm(study.combinations[row] - study.averages[row])
    bound, radius = study.errors[row], study.radii[-1]
    axes.set_xlabel(
      f"distance {off:.3f}\nbound {bound:.3f}, radius {radius:.3f}", fontsize=8.5
    )
  pictures.name_curves(figure)
  return figure
