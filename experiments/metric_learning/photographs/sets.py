"""Photographs for `retrieval`, with learned and test classes; decoded only on access.

Birds, cars and products are prepared tensorflow-datasets sets, or folders with a
folder for each class. In-shop is the folder of its list file, which separates queries
from the gallery.
"""

import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tqdm

from experiments.published import dml
from spherejax import data

_NAMED = 20  # most unreadable images that a message names
_PREPARED = {
  "cub": ("caltech_birds2011", None),
  "cars": ("cars196", None),
  "sop": ("stanford_online_products", "class_id"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Pictures:
  """Images of a source, decoded on access."""

  source: Any
  """Images, a sequence or array of uint8 [height, width, channels]."""
  rows: np.ndarray
  """Rows of the source."""
  labels: np.ndarray
  """Labels of the rows, from 0."""
  names: tuple[str, ...]
  """Names of the labels."""

  def __len__(self) -> int:
    return len(self.rows)

  def take(self, places: np.ndarray) -> "Pictures":
    """Selects images by place, in the given order."""
    return dataclasses.replace(self, rows=self.rows[places], labels=self.labels[places])

  def of(self, classes: np.ndarray) -> "Pictures":
    """Selects the images of some classes and relabels them by place in the list."""
    place = np.full(len(self.names), -1, np.int32)
    place[classes] = np.arange(len(classes))
    chosen = np.flatnonzero(place[self.labels] >= 0)
    return Pictures(
      self.source,
      self.rows[chosen],
      place[self.labels[chosen]],
      tuple(self.names[c] for c in classes),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Shown(Sequence):
  """View that applies a function to each image and its place."""

  source: Any
  rows: np.ndarray
  function: Callable[[np.ndarray, int], np.ndarray]

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(self, place: Any) -> Any:
    return self.function(self.source[int(self.rows[place])], int(place))


def mapped_images(
  pictures: Pictures, function: Callable[[np.ndarray, int], np.ndarray]
) -> data.Images:
  """View for `data.pipeline` that applies function(image, place) to each image."""
  return data.Images(
    _Shown(pictures.source, pictures.rows, function), pictures.labels, pictures.names
  )


class Sets(NamedTuple):
  """Training and test images, with the queries."""

  learned: Pictures
  sought: Pictures
  queries: np.ndarray | None
  """Boolean mask of the test images that are queries and not in the gallery; None: each
  is a query among all others."""


def check_matches(pictures: Pictures, queries: np.ndarray | None, what: str) -> None:
  """Raises ValueError if no query has another image of its class to find."""
  size = len(pictures.names)
  queried = pictures.labels if queries is None else pictures.labels[queries]
  references = pictures.labels if queries is None else pictures.labels[~queries]
  least = 2 if queries is None else 1  # a query does not match itself
  matched = np.bincount(references, minlength=size)[queried] >= least
  if not matched.any():
    raise ValueError(
      f"none of the {len(queried)} queries among the {what} images has another one of"
      f" its class, so nothing can be measured; the first class is {pictures.names[0]}"
    )


def load(
  dataset: str, folder: str, learned_classes: int, skip_unreadable: bool
) -> Sets:
  """Loads a data set; exits with a message if it is missing or malformed.

  Every image is decoded once, so that none ends a training after hours. Unreadable
  images are named, or left out with `skip_unreadable`. `learned_classes` is 0 for the
  published number.
  """
  if dataset == "inshop" and learned_classes:
    raise SystemExit(
      f"--learned-classes must be 0 for inshop, got {learned_classes}: its list says"
      " which classes are learned"
    )
  try:
    images = _images(dataset, folder)
  except (FileNotFoundError, ValueError) as error:
    raise SystemExit(f"{dataset} cannot be read: {error}") from error
  rows = np.arange(len(images))
  pictures = Pictures(images.images, rows, images.labels, images.label_names)
  pictures = pictures.of(np.unique(images.labels))
  if dataset == "inshop":
    return _by_status(_readable(pictures, skip_unreadable), images.extras["status"])
  number = _learned(dataset, len(pictures.names), learned_classes)
  pictures = _readable(pictures, skip_unreadable)
  learned, sought = np.split(np.arange(len(pictures.names)), [number])
  return Sets(pictures.of(learned), pictures.of(sought), None)


def _by_status(pictures: Pictures, status: np.ndarray) -> Sets:
  """Splits images by the list's status; each part has the classes that occur in it."""
  learned = status[pictures.rows] == "train"
  parts = (pictures.take(np.flatnonzero(rows)) for rows in (learned, ~learned))
  train, sought = (part.of(np.unique(part.labels)) for part in parts)
  return Sets(train, sought, status[sought.rows] == "query")


def _images(dataset: str, folder: str) -> data.Images:
  if dataset == "inshop":
    return data.load_in_shop(folder)
  if folder:
    return data.load_folder(folder, lazy=True)
  name, label = _PREPARED[dataset]
  return data.load_tfds(
    name, "train+test", label=label, channels=3, extras=(), lazy=True
  )


def _learned(dataset: str, classes: int, requested: int) -> int:
  """Number of training classes."""
  size = dml.SIZES[dataset]
  if not requested and classes != size.classes:
    raise SystemExit(
      f"{dataset} has {size.classes} classes, of which the first"
      f" {size.learned_classes} are learned; this one has {classes}: say how many to"
      " learn by --learned-classes"
    )
  number = requested or size.learned_classes
  if not 0 < number < classes:
    raise SystemExit(
      f"learned_classes must leave some of the {classes} classes to be sought, got"
      f" {number}"
    )
  return number


def _broken(pictures: Pictures) -> dict[int, str]:
  """Reasons why images cannot be decoded, by their place."""

  def check(place: int) -> str:
    try:
      pictures.source[int(pictures.rows[place])]
    except Exception as error:  # whatever a decoder raises
      return " ".join(f"{error}".split()) or type(error).__name__
    return ""

  with concurrent.futures.ThreadPoolExecutor() as pool:
    places = range(len(pictures))
    reasons = tqdm.tqdm(
      pool.map(check, places), total=len(places), desc="images", leave=False
    )
    return {place: why for place, why in zip(places, reasons, strict=True) if why}


def _readable(pictures: Pictures, skip: bool) -> Pictures:
  """Selects the readable images; exits if some are unreadable, unless `skip`."""
  unreadable = _broken(pictures)
  if not unreadable:
    return pictures
  examples = ", ".join([*unreadable.values()][:_NAMED])
  if not skip:
    raise SystemExit(
      f"{len(unreadable)} of {len(pictures)} images cannot be read: {examples};"
      " --skip-unreadable leaves them out"
    )
  print(f"{len(unreadable)} images are left out: {examples}")
  readable = pictures.take(np.setdiff1d(np.arange(len(pictures)), list(unreadable)))
  counts = np.bincount(readable.labels, minlength=len(readable.names))
  if not counts.all():
    raise SystemExit(f"class {readable.names[np.argmin(counts)]} has no readable image")
  return readable
