"""Local features in the plane beside their prototypes, and what is measured of them."""

import itertools
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.gsp import hulls as gsp_hulls
from spherejax import pooling, prototypes


class Study(NamedTuple):
  """What one network's local features look like beside their prototypes."""

  features: np.ndarray  # [images, positions, 2], longest of norm 1
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
  chosen = jax.jit(prototypes.greedy_k_centre, static_argnums=1)(points, centres)
  vectors = points[np.asarray(chosen.indices)]
  counted = jax.jit(prototypes.prototype_histogram)(features, vectors)
  combine = jax.jit(prototypes.prototype_convex_combination)
  return Study(
    features,
    labels,
    vectors,
    np.asarray(chosen.radii),
    np.asarray(counted.histogram),
    np.asarray(jax.jit(pooling.gap)(features)),
    np.asarray(combine(features, vectors)),
    np.asarray(counted.error),
  )


def variation(first: np.ndarray, second: np.ndarray) -> float:
  """Total variation between the mean histograms of two sets of images."""
  return float(np.abs(first.mean(0) - second.mean(0)).sum() / 2)


def measure(found: Study, seed: int) -> dict[str, Any]:
  """Figures of one network."""
  rng = np.random.default_rng(seed)
  radius = found.radii[-1]
  off = np.linalg.norm(found.combinations - found.averages, axis=1)
  classes = [found.histograms[found.labels == label] for label in range(10)]
  active = [(histograms > 0).any(0) for histograms in classes]
  pairs = list(itertools.combinations(range(10), 2))
  halves = [np.array_split(rng.permutation(histograms), 2) for histograms in classes]
  hulls = [found.prototypes[used] for used in active]
  rises = np.diff(found.radii).max()
  return {
    "covering radius": radius,
    "distance of average and combination": off.mean(),
    "largest such distance": off.max(),
    "mean distance of features to prototypes": found.errors.mean(),
    "least of error - distance": (found.errors - off).min(),
    "least of radius - error": (radius - found.errors).min(),
    "class pairs with intersecting hulls": gsp_hulls.intersecting_pairs(hulls),
    "mean distance of two class hulls": np.mean(
      [gsp_hulls.hull_distance(hulls[a], hulls[b]) for a, b in pairs]
    ),
    "prototypes of several classes": (np.sum(active, axis=0) > 1).sum(),
    "prototypes of a class": np.mean([used.sum() for used in active]),
    "variation between classes": np.mean(
      [variation(classes[a], classes[b]) for a, b in pairs]
    ),
    "variation between halves of a class": np.mean([variation(*h) for h in halves]),
    "radius of 1 - radius of all": found.radii[0] - radius,
    "largest rise of the radius": rises,
  }
