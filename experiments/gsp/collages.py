"""Collages of photographs or glyphs whose three parts share no class (DML 5.3.2).

A set has super-classes of sub-classes. Some super-classes are background, shared by
all collages; the label of a collage is the super-class of its foreground image. The
sub-classes of foreground and background are both split, so that validation and test
show classes that training did not.
"""

from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from experiments.frame import images as class_sets
from spherejax import data, metrics

# The large scenes and the flora of CIFAR-100, as in the authors' released code.
CIFAR_SHARED = (
  "flowers",
  "large_man-made_outdoor_things",
  "large_natural_outdoor_scenes",
  "trees",
)
PARTS = ("train", "validation", "test")


class Source(NamedTuple):
  """Images with a class of two levels."""

  images: np.ndarray  # [count, height, width, channels], uint8
  labels: np.ndarray  # [count], super-classes
  fine: np.ndarray  # [count], sub-classes
  names: tuple[str, ...]  # names of the super-classes
  shared: tuple[int, ...]  # super-classes that are background


def load(name: str, size: int, percent: int = 100) -> Source:
  """Loads the first `percent` of the named source, with images of `size` pixels."""
  if name not in _SOURCES:
    raise ValueError(f"images must be one of {', '.join(_SOURCES)}, got {name!r}")
  return _SOURCES[name](size, f"[:{percent}%]")


def _cifar100(size: int, share: str) -> Source:
  """Five sub-classes in each of twenty super-classes, train and test together."""
  images = class_sets.read("cifar100", f"train{share}+test{share}", size=size)
  names = images.extra_names["coarse_label"]
  shared = tuple(names.index(name) for name in CIFAR_SHARED)
  labels = images.extras["coarse_label"]
  return Source(np.asarray(images.images), labels, images.labels, names, shared)


def _omniglot(size: int, share: str) -> Source:
  """Characters of the first twenty alphabets by name, four of them background.

  Ink is 1, paper 0.
  """
  images = class_sets.prepared("omniglot", f"train{share}", size)
  alphabets = np.unique(images.extras["alphabet"])[:20]
  chosen = images[np.isin(images.extras["alphabet"], alphabets)]
  labels = np.searchsorted(alphabets, chosen.extras["alphabet"]).astype(np.int32)
  names = tuple(images.extra_names["alphabet"][alphabet] for alphabet in alphabets)
  return Source(np.asarray(chosen.images), labels, chosen.labels, names, (0, 1, 2, 3))


_SOURCES = {"omniglot": _omniglot, "cifar100": _cifar100}


def parts(source: Source) -> dict[str, np.ndarray]:
  """Rows of each part, by the sub-classes of a super-class in order.

  Of five sub-classes, 0 and 1 are for training, 2 for validation, 3 and 4 for tests.
  """
  groups: dict[str, list[int]] = {part: [] for part in PARTS}
  for label in np.unique(source.labels):
    classes = np.unique(source.fine[source.labels == label])
    middle = max(1, len(classes) // 5)
    first = (len(classes) - middle + 1) // 2
    split = np.split(classes, [first, first + middle])
    for part, members in zip(PARTS, split, strict=True):
      groups[part] += members.tolist()
  rows = data.split_classes(source.fine, groups=list(groups.values()))
  return dict(zip(PARTS, rows, strict=True))


def single_images(source: Source, least: int, everything: bool = False) -> data.Images:
  """Images of the training part, or of all, labelled with their sub-class.

  Sub-classes with fewer than `least` images are left out, such as the last one when
  only part of a set is read.
  """
  rows = np.arange(len(source.fine)) if everything else parts(source)["train"]
  classes = source.fine[rows]
  rows = rows[np.bincount(classes)[classes] >= least]
  fine, labels = np.unique(source.fine[rows], return_inverse=True)
  names = tuple(map(str, fine))
  return data.Images(source.images[rows], labels.astype(np.int32), names)


class Part(NamedTuple):
  """Part of a data set in two forms: collages, and labelled images alone."""

  collages: data.Images  # each labelled image among three others
  alone: data.Images  # the labelled images without others ("distilled")
  foreground: np.ndarray  # [count, 2, 2], True at the labelled tile of a collage


_draw = jax.jit(data.collages)


def collages(source: Source, key: jax.Array, *, most: int) -> dict[str, Part]:
  """Collages of each part, drawn anew for every key.

  At most `most` images of each foreground sub-class are used, one per collage; labels
  number the foreground super-classes.
  """
  foreground = np.setdiff1d(np.unique(source.labels), source.shared)
  names = tuple(source.names[label] for label in foreground)
  generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
  by_part = {}
  for number, (part, rows) in enumerate(parts(source).items()):
    behind = rows[np.isin(source.labels[rows], source.shared)]
    front = generator.permutation(np.setdiff1d(rows, behind))
    fine = source.fine[front]
    chosen = np.sort(
      np.concatenate([front[fine == label][:most] for label in np.unique(fine)])
    )
    labels = np.searchsorted(foreground, source.labels[chosen]).astype(np.int32)
    images = source.images[chosen]
    part_key = jax.random.fold_in(key, number)
    drawn = _draw(part_key, images, labels, source.images[behind])
    by_part[part] = Part(
      data.Images(images=np.asarray(drawn.images), labels=labels, label_names=names),
      data.Images(images=images, labels=labels, label_names=names),
      np.asarray(drawn.foreground),
    )
  return by_part


def retrieval(embeddings: ArrayLike, labels: ArrayLike) -> dict[str, float]:
  """P@1 and MAP@R of retrieval among the embeddings."""
  result = metrics.retrieval(embeddings, labels)
  return {
    "P@1": float(metrics.mean_where(result.precision_at_1, result.counted)),
    "MAP@R": float(metrics.mean_where(result.map_at_r, result.counted)),
  }


def foreground_weight(weights: ArrayLike, foreground: ArrayLike) -> float:
  """Mean pooling weight on the labelled tile; 0.25 for average pooling."""
  weights, foreground = np.asarray(weights), np.asarray(foreground)
  scale = weights.shape[1] // foreground.shape[1]
  mask = np.kron(foreground, np.ones((scale, scale)))
  return float(np.mean(np.sum(weights * mask, axis=(1, 2))))
