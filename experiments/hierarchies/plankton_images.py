"""Settings of `plankton`, and its images of learned and unseen classes."""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import jax
import numpy as np

from experiments.frame import images as class_sets
from experiments.frame.settings import Limited, MultipleOf, Within, Without
from experiments.hierarchies import triplets
from experiments.published import figures
from spherejax import data, hierarchy

PRINTED = figures("dist_plankton")
RECALL: dict[str, float] = PRINTED["recall"]
USUAL = 10  # neighbours that the claims are about


def letters(name: str) -> str:
  """A class's name reduced to lower-case letters, since tables and folders differ."""
  return re.sub(r"[^a-z]", "", name.lower())


CONFUSIONS: dict[tuple[str, str], float] = {
  (letters(label), letters(prediction)): rate
  for label, row in PRINTED["confusions"].items()
  for prediction, rate in row.items()
}


def confusion(label: str, prediction: str) -> float | None:
  """The printed rate of a confusion; None if it is not among the commonest."""
  return CONFUSIONS.get((letters(label), letters(prediction)))


@dataclasses.dataclass(frozen=True)
class Selection(Limited):
  """Choice of the images to read and the classes to learn."""

  # Each class needs at least two images: a reference and one to classify.

  data: Literal["ndsb_plankton", "folder"] = "ndsb_plankton"
  """Data set: prepared, or a folder with a sub-folder for each class."""
  folder: Annotated[str, Without("data", "ndsb_plankton")] = ""
  """Folder of the images."""
  percent: Annotated[int, Without("data", "folder"), Within(1, 100)] = 100
  """Share of the prepared set to read, in percent."""
  canvas: Annotated[int, MultipleOf("shrink")] = 96
  """Side of the canvas, in pixels; larger images are scaled down."""
  shrink: Annotated[int, Within(1)] = 3
  """Side of the blocks of the canvas to average, in pixels."""
  inverted: bool = True
  """Inverts the images, so that the background is 0."""
  seen: Literal["count", "article"] = "count"
  """Classes to learn: those with many images, or the article's 65 by name."""
  seen_from: Annotated[int, Without("seen", "article")] = 200
  """Smallest number of images of a learned class."""
  unseen_from: Annotated[int, Without("seen", "article"), Within(2)] = 20
  """Smallest number of images of a class that is evaluated but not learned."""
  test_images: Annotated[int, Within(2)] = 100
  """Test images per learned class; half of them are references."""
  validation_images: Annotated[int, Within(2)] = 30
  """Validation images per learned class."""
  unseen_images: Annotated[int, Within(2)] = 100
  """Largest number of images per class that is not learned."""


class Whole(NamedTuple):
  """A set before its division."""

  images: data.Images
  seen: tuple[str, ...]
  unseen: tuple[str, ...]
  tree: hierarchy.ClassTree | None  # in the order of the labels; None if there is none


def prepare(image: np.ndarray, canvas: int, shrink: int, inverted: bool) -> np.ndarray:
  """Fits one image into a white canvas, inverted if asked for."""
  fitted = data.fit_canvas(image, canvas, fill=255, shrink=shrink)
  return 255 - fitted if inverted else fitted


def load(choice: Selection) -> Whole:
  """Loads the images of all classes on canvases, and which classes are learned."""
  tree = None
  if choice.data == "folder":
    try:
      images = data.load_folder(choice.folder, channels=1, lazy=True)
    except FileNotFoundError as error:
      raise SystemExit(f"plankton is read from --folder: {error}") from error
  else:
    part = f"[:{choice.percent}%]"
    images = class_sets.read(choice.data, f"train{part}+test{part}")
    tree = class_sets.tree_of(choice.data, images.label_names)
  train_classes, unseen = classes(images, choice)
  options = {name: getattr(choice, name) for name in ("canvas", "shrink", "inverted")}
  fitted = data.map_images(images, functools.partial(prepare, **options))
  return Whole(fitted, train_classes, unseen, tree)


def classes(
  images: data.Images, choice: Selection
) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Names of the classes that are learned, and of those that are not."""
  names = images.label_names
  counts = np.bincount(images.labels, minlength=len(names))
  if choice.seen == "article":
    learned = _article_classes(names)
    unseen = [n for n, count in enumerate(counts) if n not in learned and count > 1]
  else:
    enough = counts >= choice.seen_from
    learned = np.flatnonzero(enough).tolist()
    unseen = np.flatnonzero((counts >= choice.unseen_from) & ~enough).tolist()
  for what, group in (("learned", learned), ("not learned", unseen)):
    if len(group) < 2:
      raise ValueError(
        f"at least two classes must be {what}, got {len(group)} of {len(names)}; they"
        f" have {counts.min()} to {counts.max()} images"
      )
  needed = choice.test_images + choice.validation_images + 2
  too_small = [f"{names[n]} has {counts[n]}" for n in learned if counts[n] < needed]
  if too_small:
    raise ValueError(
      f"each learned class needs {needed} images: {choice.test_images} to test,"
      f" {choice.validation_images} to validate and 2 to train, but class "
      + ", ".join(too_small[:5])
      + (f" and {len(too_small) - 5} more" if too_small[5:] else "")
    )
  return tuple(names[n] for n in learned), tuple(names[n] for n in unseen)


def _article_classes(names: Sequence[str]) -> list[int]:
  """Labels of the article's classes, whose names have no underscores in its table."""
  label_of = {letters(name): n for n, name in enumerate(names)}
  missing = [name for name in RECALL if letters(name) not in label_of]
  if missing:
    raise ValueError(f"no folder for {len(missing)} classes: {', '.join(missing[:5])}")
  return sorted(label_of[letters(x)] for x in RECALL)


def divide(whole: Whole, choice: Selection, seed: int) -> class_sets.Parts:
  """Draws the parts, class by class."""
  key = jax.random.fold_in(jax.random.key(seed), 0)
  order = np.asarray(jax.random.permutation(key, len(whole.images)))
  labels = np.asarray(whole.images.labels)[order]

  def part(names: tuple[str, ...], start: int, end: int | None) -> data.Images:
    """These rows of each class, with the place of its name as label."""
    chosen = [whole.images.label_names.index(name) for name in names]
    rows = [order[labels == label][start:end] for label in chosen]
    return data.take_classes(whole.images[np.concatenate(rows)], chosen)

  tested = choice.test_images
  end = tested + choice.validation_images
  return class_sets.Parts(
    train=part(whole.seen, end, None),
    validation=part(whole.seen, tested, end),
    test=part(whole.seen, 0, tested),
    unseen=part(whole.unseen, 0, choice.unseen_images),
  )


@dataclasses.dataclass(frozen=True)
class Config(triplets.Settings, Selection):
  """Settings of the comparison."""

  seeds: int = 8
  """Number of divisions of the images, each with other initial weights."""
  neighbours: Annotated[tuple[int, ...], Within(1)] = (1, 5, 10)
  """Numbers of voting neighbours; include 10, which the claims use."""
  curve: Annotated[tuple[int, ...], Within(1)] = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)
  """Numbers of voting neighbours to try on validation images."""
  drawn: Annotated[int, Within(1)] = 2500
  """Images per group of classes in the plots of the plane."""
  need_weights: bool = False
  """Ends a run without ImageNet weights; otherwise training starts from random ones."""


PRESETS = {
  "cpu": Config(),
  # As many iterations as the article's; one of its two steps of the margin.
  "long": Config(iterations=30, raised_after=(20,)),
  "smoke": Config(
    percent=12, seen_from=60, unseen_from=12, test_images=20, validation_images=10,
    unseen_images=20, width=8, dim=32, triplets=32, iterations=3, steps=8,
    raised_after=(2,), neighbours=(10,), curve=(10,), seeds=1, baseline_batch=128,
    drawn=40,
  ),
  # Trains 30 iterations of triplets and 200 epochs of the softmax classifier. The
  # classifier's batch and the steps of an iteration are those of the released code.
  "full": Config(
    data="folder", canvas=299, shrink=1, inverted=False, seen="article",
    validation_images=100, network="inception_v3", triplets=20, iterations=30,
    steps=5000, margins=(1.0, 1.3, 1.5), raised_after=(20, 30), optimizer="sgd",
    learning_rate=0.01, baseline_batch=32, baseline_rate=1e-4, baseline_decay=1.0,
    baseline_epochs=200, neighbours=(1, 5, 10, 25), need_weights=True, seeds=1,
  ),
}  # fmt: skip


def check(config: Config) -> None:
  """Raises ValueError for settings that do not fit together, before data are read."""
  later = config.raised_after
  if len(config.margins) != len(later) + 1 or list(later) != sorted({*later}):
    raise ValueError(
      "raised_after must grow and be one less than margins, got"
      f" {config.margins} and {later}"
    )
  if USUAL not in config.neighbours or not config.curve:
    raise ValueError(
      f"neighbours must contain {USUAL}, which the claims are about,"
      f" and curve some, got {config.neighbours} and {config.curve}"
    )
  if config.need_weights and not config.weights:
    raise ValueError(
      f"name a file of ImageNet's weights for {config.network} by --weights, or begin "
      "with random ones by need_weights = false in the file of --config"
    )
  if config.weights and not pathlib.Path(config.weights).is_file():
    raise ValueError(f"the file of weights {config.weights} does not exist")
