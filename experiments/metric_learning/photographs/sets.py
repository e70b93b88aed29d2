"""Photographs for `retrieval`, with learned and test classes; decoded only on access.

Birds, cars and products are prepared tensorflow-datasets sets, or folders with a
folder for each class. In-shop is the folder of its list file, which separates queries
from the gallery.
"""

import concurrent.futures
import dataclasses
from typing import NamedTuple

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


class Sets(NamedTuple):
  """Training and test images.

  `extras["query"]` of the test images, if there, tells queries from the gallery;
  otherwise, each is a query among all others.
  """

  learned: data.Images
  sought: data.Images


def check_matches(images: data.Images, what: str) -> None:
  """Raises ValueError if no query has another image of its class to find."""
  labels, names = images.labels, images.label_names
  queried, references, least = labels, labels, 2  # a query does not match itself
  if (queries := images.extras.get("query")) is not None:
    queried, references, least = labels[queries], labels[~queries], 1
  matched = np.bincount(references, minlength=len(names))[queried] >= least
  if not matched.any():
    raise ValueError(
      f"none of the {len(queried)} queries among the {what} images has another one of"
      f" its class, so nothing can be measured; the first class is {names[0]}"
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
  extras = {x: y for x, y in images.extras.items() if x == "status"}
  extras["row"] = np.arange(len(images))
  images = dataclasses.replace(images, extras=extras)
  images = data.take_classes(images, np.unique(images.labels))
  if dataset == "inshop":
    return _by_status(_readable(images, skip_unreadable))
  number = _learned(dataset, len(images.label_names), learned_classes)
  images = _readable(images, skip_unreadable)
  parts = np.split(np.arange(len(images.label_names)), [number])
  return Sets(*(data.take_classes(images, part) for part in parts))


def _by_status(images: data.Images) -> Sets:
  """Splits images by the list's status; each part has the classes that occur in it."""
  learned = images.extras["status"] == "train"
  train, sought = (
    data.take_classes(part, np.unique(part.labels))
    for part in (images[learned], images[~learned])
  )
  query = {"query": sought.extras["status"] == "query"}
  return Sets(train, dataclasses.replace(sought, extras={**sought.extras, **query}))


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
  if not requested and classes != size["classes"]:
    raise SystemExit(
      f"{dataset} has {size['classes']} classes, of which the first"
      f" {size['learned_classes']} are learned; this one has {classes}: say how many to"
      " learn by --learned-classes"
    )
  number = requested or size["learned_classes"]
  if not 0 < number < classes:
    raise SystemExit(
      f"learned_classes must leave some of the {classes} classes to be sought, got"
      f" {number}"
    )
  return number


def _broken(images: data.Images) -> dict[int, str]:
  """Reasons why images cannot be decoded, by their place."""

  def check(place: int) -> str:
    try:
      images.images[place]
    except Exception as error:  # whatever a decoder raises
      return " ".join(f"{error}".split()) or type(error).__name__
    return ""

  with concurrent.futures.ThreadPoolExecutor() as pool:
    places = range(len(images))
    reasons = tqdm.tqdm(
      pool.map(check, places), total=len(places), desc="images", leave=False
    )
    return {place: why for place, why in zip(places, reasons, strict=True) if why}


def _readable(images: data.Images, skip: bool) -> data.Images:
  """Selects the readable images; exits if some are unreadable, unless `skip`."""
  unreadable = _broken(images)
  if not unreadable:
    return images
  examples = ", ".join([*unreadable.values()][:_NAMED])
  if not skip:
    raise SystemExit(
      f"{len(unreadable)} of {len(images)} images cannot be read: {examples};"
      " --skip-unreadable leaves them out"
    )
  print(f"{len(unreadable)} images are left out: {examples}")
  readable = np.setdiff1d(np.arange(len(images)), list(unreadable))
  counts = np.bincount(images.labels[readable], minlength=len(images.label_names))
  if not counts.all():
    name = images.label_names[np.argmin(counts)]
    raise SystemExit(f"class {name} has no readable image")
  return images[readable]
