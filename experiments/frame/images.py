"""Labelled image sets with a tree of their classes, in three parts.

Sets prepared by tensorflow-datasets have a `hierarchy.csv` beside them. The plankton
sets of DIST, article IV, are folders below `folder`, named as the set, with a
sub-folder for each class; NABirds is its own folder there, as it is distributed.
"""

import dataclasses
import functools
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
import tqdm
from PIL import Image

from experiments.published import tree_paths
from spherejax import data, hierarchy

_T = TypeVar("_T")


class Source(NamedTuple):
  """Properties of one image set, and the paper's protocol for it."""

  side: int  # side of the images in the protocol, in pixels
  epochs: int  # training epochs in the protocol
  network: str = "resnet50"  # network of the protocol
  inverted: bool = False  # inverts dark ink on white: the background is near 0
  sized: bool = False  # original width and height tell something about the class
  augmented: bool = False  # the protocol warps training images
  pooled: bool = False
  """All images are split into the three parts; else the set's own test part is kept."""
  lifeless: tuple[str, ...] = ()  # nodes of the tree below which nothing lives
  notation: str = ""  # name of the tree in `published/trees.toml`; empty: a file has it


_PLANKTON = Source(128, 50, "inception_v3", sized=True)
SOURCES = {
  "ndsb_plankton": _PLANKTON._replace(
    inverted=True, lifeless=("no_class", "detritus", "unknown")
  ),
  "tiny_imagenet": Source(64, 100, augmented=True),
  "omniglot": Source(28, 100, inverted=True, pooled=True),
  "cifar100": Source(32, 100, augmented=True, notation="CIFAR_100"),
  "nabirds": Source(128, 100, augmented=True, pooled=True),
  "cub_birds100": Source(160, 100, augmented=True, pooled=True),
  "cars196": Source(160, 100, augmented=True, pooled=True),
}
SOURCES |= {
  name: _PLANKTON._replace(pooled=True, lifeless=(node,), notation=name.upper())
  for name, node in (
    ("micro_s", "nonliving"), ("micro_l", "nonplankton"), ("meso_z", "nonzooplankton")
  )
}  # fmt: skip
FOLDERS = ("nabirds", "micro_s", "micro_l", "meso_z")


class Parts(NamedTuple):
  """A data set in three parts."""

  train: data.Images
  validation: data.Images
  test: data.Images
  unseen: Any = None
  """Images of the classes that no other part has; None if there are none."""


class Whole(NamedTuple):
  """A data set before it is divided."""

  images: data.Images
  tested: data.Images | None  # images of the test part; None to draw them from all
  tree: hierarchy.ClassTree
  living: np.ndarray


def load(name: str, side: int, folder: str = "", percent: int = 100) -> Whole:
  """Loads the first `percent` of a set, at `side` pixels, with its checked tree."""
  if name not in SOURCES:
    raise ValueError(f"data must be one of {', '.join(SOURCES)}, got {name!r}")
  source, tested = SOURCES[name], None
  if name in FOLDERS:
    images, tree = _folder(name, side, folder)
  else:
    share = f"[:{percent}%]"
    split = f"train{share}+test{share}" if source.pooled else f"train{share}"
    images = prepared(name, split, side)
    if not source.pooled:
      tested = prepared(name, f"test{share}", side)
    tree = tree_of(name, images.label_names)
  living = np.ones(len(tree.classes), bool)
  if source.lifeless:
    living = ~hierarchy.classes_below(tree, *source.lifeless)
  return Whole(images, tested, tree, living)


def tree_of(name: str, classes: Sequence[str]) -> hierarchy.ClassTree:
  """The tree with its classes in the order of the labels; both must be equal sets."""
  notation = SOURCES[name].notation
  if not notation:
    return hierarchy.from_csv(newest_file(name, "hierarchy.csv"), classes=classes)
  tree = hierarchy.from_paths(tree_paths(notation))
  for label in tree.class_names:
    if label not in classes:
      raise ValueError(
        f"class {label!r} of the tree has no images: no label has this name"
      )
  return hierarchy.restrict(tree, classes)


def readable_tree(tree: hierarchy.ClassTree, name: str) -> hierarchy.ClassTree:
  """The tree with words in place of WordNet's ids, if the set has a file of them."""
  if name != "tiny_imagenet":
    return tree
  lines = newest_file(name, "names.csv").read_text(encoding="utf-8").splitlines()
  words = dict(line.split(",", 1) for line in lines)
  return tree._replace(names=tuple(words.get(node, node) for node in tree.names))


def prepared(name: str, split: str, side: int) -> data.Images:
  """Reads images at `side` pixels; inverts those with dark ink on white."""
  source = SOURCES[name]
  if not source.sized:
    images = read(name, split, size=side)
    return _inverted(images) if source.inverted else images
  return resized(read(name, split), side, inverted=source.inverted)


def read(
  name: str,
  split: str,
  *,
  size: int | None = None,
  channels: int | None = None,
  lazy: bool = False,
) -> data.Images:
  """Reads images with `data.load_tfds`; exits with a message if the set is missing."""
  try:
    return data.load_tfds(name, split, size=size, channels=channels, lazy=lazy)
  except FileNotFoundError as error:
    raise SystemExit(f"this experiment reads the image set {name}: {error}") from error


def available(
  names: Iterable[str], load: Callable[[str], _T]
) -> Iterator[tuple[str, _T]]:
  """The sets that are there; says on stderr which are not."""
  for name in names:
    try:
      image_set = load(name)
    except FileNotFoundError as error:
      tqdm.tqdm.write(f"without {name}: {error}", file=sys.stderr)
    else:
      yield name, image_set


def _inverted(images: data.Images) -> data.Images:
  return dataclasses.replace(images, images=255 - np.asarray(images.images))


def resized(images: data.Images, side: int, *, inverted: bool) -> data.Images:
  """Resizes all images to one size; adds logarithms of their original sizes."""
  sizes = np.array([image.shape[1::-1] for image in images.images], np.float32)
  small = data.map_images(images, functools.partial(squared, size=side))
  small = _inverted(small) if inverted else small
  logs = np.log(sizes)
  extras = {"log_width": logs[:, 0], "log_height": logs[:, 1]}
  return dataclasses.replace(small, extras=extras)


def _folder(
  name: str, side: int, folder: str
) -> tuple[data.Images, hierarchy.ClassTree]:
  """A set in a folder of the user, and its tree."""
  root = pathlib.Path(folder, name)
  if not folder or not root.is_dir():
    raise SystemExit(f"{name} is read from the folder {name} in --folder, got {root}")
  if name == "nabirds":
    images = data.load_folder(root / "images", size=side, lazy=True)
    return images, birds(root / "hierarchy.txt", images.label_names)
  images = data.load_folder(root)
  return resized(images, side, inverted=False), tree_of(name, images.label_names)


def birds(path: pathlib.Path, folders: Sequence[str]) -> hierarchy.ClassTree:
  """Reads NABirds' tree from lines `child parent` of the image folders' numbers."""
  lines = path.read_text(encoding="utf-8-sig").splitlines()
  rows = [line.split() for line in lines if line.strip()]
  for number, row in enumerate(rows, start=1):
    if len(row) != 2:
      raise ValueError(f"{path}, line {number} must be a child and a parent, got {row}")
  children = {child for child, _ in rows}
  roots = dict.fromkeys(parent for _, parent in rows if parent not in children)
  edges = [(root, "") for root in roots] + [(child, parent) for child, parent in rows]
  # The folders' names have leading zeros.
  classes = [name.lstrip("0") or name for name in folders]
  return hierarchy.from_edges(edges, classes=classes)


def divide(whole: Whole, key: jax.Array, training: int, validation: int) -> Parts:
  """Splits a pooled set into 70, 10 and 20 %, or one with a test part into 90 and 10 %.

  `training` and `validation` are numbers of images; 0 takes these shares.
  """
  count = len(whole.images)
  order = np.asarray(jax.random.permutation(key, count))
  first, second = (7, 1) if whole.tested is None else (9, 1)
  sizes = training or first * count // 10, validation or second * count // 10
  end = sum(sizes)
  if end + (whole.tested is None) > count:
    raise ValueError(
      f"training and validation images must be fewer than {count}, got {sizes}"
    )
  train, held, rest = np.split(order, [sizes[0], end])
  tested = whole.images[rest] if whole.tested is None else whole.tested
  images = whole.images
  return Parts(images[train], images[held], tested)


@functools.partial(jax.jit, static_argnames=("number", "ways", "shots", "queries"))
def episodes(
  key: jax.Array, classes: data.ClassTable, *, number: int, **sizes: int
) -> jax.Array:
  """Draws [number, ways, shots + queries] rows; tables of one size share a program.

  `sizes` are ways, shots and queries.
  """
  named = {f"num_{name}": size for name, size in sizes.items()}
  keys = jax.random.split(key, number)
  return jax.vmap(lambda key: data.sample_episode(key, classes, **named))(keys)


def log_sizes(images: data.Images) -> np.ndarray:
  """Logarithms of width and height, [count, 2]; [count, 0] if the set has none."""
  names = [name for name in ("log_width", "log_height") if name in images.extras]
  columns = [np.asarray(images.extras[name], np.float32) for name in names]
  return np.stack(columns, 1) if columns else np.zeros((len(images), 0), np.float32)


def centred(image: np.ndarray, *, size: int, shorter_side: int) -> np.ndarray:
  """Scales the shorter side to a length, then cuts the centre, [size, size, channels].

  Args:
    image: uint8 [height, width, channels].
    size: side of the centre.
    shorter_side: length of the shorter side after scaling, at least `size`.
  """
  single = _image(image)
  factor = shorter_side / min(single.size)
  wide, high = (max(size, round(factor * length)) for length in single.size)
  left, top = (wide - size) // 2, (high - size) // 2
  single = single.resize((wide, high), Image.Resampling.BILINEAR)
  single = single.crop((left, top, left + size, top + size))
  return np.asarray(single).reshape(size, size, -1)


def squared(image: np.ndarray, *, size: int) -> np.ndarray:
  """Stretches the whole image to a square, [size, size, channels]."""
  single = _image(image).resize((size, size), Image.Resampling.BOX)
  return np.asarray(single).reshape(size, size, -1)


def _image(image: np.ndarray) -> Image.Image:
  return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def newest_file(name: str, file: str) -> pathlib.Path:
  """Path of a file in the newest version of an image set; exits if it is missing."""
  root = pathlib.Path(os.environ.get("TFDS_DATA_DIR", ""), name)
  path = max(root.glob(f"*/{file}"), key=_version, default=None)
  if path is None:
    raise SystemExit(
      f"{root}/*/{file} is missing, which lists the classes of {name}; docs/data.md"
      " says how to prepare it"
    )
  return path


def _version(path: pathlib.Path) -> list[int]:
  """Version numbers of a folder, so that 1.10.0 sorts after 1.9.0; words become -1."""
  parts = path.parent.name.split(".")
  return [int(part) if part.isdecimal() else -1 for part in parts]
