"""`Images`, the result of every reader, and the decoding of lazy images."""

import dataclasses
import itertools
import reprlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Integer, Shaped

from spherejax import _checks
from spherejax.data import _files

# Number of images that a thread decodes at a time.
_CHUNK = 64
_CHANNELS = (1, 3, 4)
# Largest number of names made of numbers, one per number up to the largest label.
_MOST_NUMBERS = 1_000_000


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
  """Labelled images: in memory as one array, or decoded on access.

  `len(images)` counts them. Indexing with a slice, an integer array (such as a split
  returns) or a boolean mask gives the `Images` of those rows. To select by class label
  use `take_classes`, or `split_classes` for the rows.

  Args:
    images: uint8, [count, height, width, channels]. A sequence of [height, width,
      channels] where the images differ in size or are decoded lazily.
    labels: [count], integer; -1 for an image without a single label.
    label_names: the name of each label, in the order of the labels.
    extras: further information on each image, by name: [count] each; numbers, text, or
      objects (such as lists of boxes).
    extra_names: class names of those extras that are labels themselves, such as
      a superclass.

  Raises:
    ValueError: no image, or one of a list without a pixel or of other axes; lengths
      differ; a label outside [-1, len(label_names)).
    TypeError: labels are not an array of integers, images not a sequence or not uint8
      (lazy images are not checked), names not text, extras not arrays by name.

  Cost: indexing copies the chosen images; lazy ones are not read.

  Source: none; the layout follows tensorflow-datasets' image classification sets.

  Example:
    >>> images = spherejax.data.load_digits()
    >>> images.images.shape, images[:100].labels.shape, images.label_names[:2]
    ((1797, 8, 8, 1), (100,), ('0', '1'))
  """

  # Any: checking the type of an element would decode it.
  images: Shaped[np.ndarray, "count height width channels"] | Sequence[Any]
  labels: Integer[np.ndarray, " count"]
  label_names: tuple[str, ...]
  extras: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
  extra_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    _checks.sequence("images", self.images)
    count = len(self.images)
    if count == 0:
      raise ValueError("the data set is empty: images must be one or more, got none")
    if isinstance(self.images, np.ndarray):
      _checks.expect("images", self.images, rank=4)
      if self.images.dtype != np.uint8:
        raise TypeError(f"images must be uint8, got dtype {self.images.dtype}")
    elif isinstance(self.images, (list, tuple)):
      for row, image in enumerate(self.images):
        checked(image, f"images[{row}]")
    _checks.instance("labels", self.labels, np.ndarray)
    _checks.expect("labels", self.labels, "integer")
    _checks.shape("labels", self.labels, (count,), f"the {count} images")
    _checks.texts("label_names", self.label_names)
    _checks.mapping("extras", self.extras)
    for name, values in self.extras.items():
      _checks.instance(f"extras[{name!r}]", values, np.ndarray)
      _checks.shape(f"extras[{name!r}]", values, (count,), f"the {count} images")
    _checks.mapping("extra_names", self.extra_names)
    for name, names in self.extra_names.items():
      _checks.texts(f"extra_names[{name!r}]", names)
    _check_named(self.labels, len(self.label_names))

  def __len__(self) -> int:
    return len(self.images)

  def __getitem__(
    self, index: slice | Sequence[int] | np.ndarray | jax.Array
  ) -> "Images":
    rows = np.arange(len(self))[index if isinstance(index, slice) else _rows(index)]
    if isinstance(self.images, (np.ndarray, Lazy)):
      chosen = self.images[rows]
    else:
      chosen = [self.images[row] for row in rows]
    return dataclasses.replace(
      self,
      images=chosen,
      labels=self.labels[rows],
      extras={name: values[rows] for name, values in self.extras.items()},
    )

  def in_memory(self) -> "Images":
    """Decodes lazy images: into one array, or a list where sizes differ.

    Raises:
      ValueError: images that cannot be read; the message lists up to 20 of them.
    """
    if not isinstance(self.images, Lazy):
      return self
    return dataclasses.replace(self, images=collect(self.images))


def take_classes(
  images: Images, classes: Integer[ArrayLike, " classes"] | Sequence[int]
) -> Images:
  """Takes the images of some classes, whose labels become 0, 1, ...

  Args:
    images: `Images`.
    classes: [classes], labels of `images`, each once.

  Returns:
    `Images`, in their order, where label c is the class `classes[c]`. Images without a
    label are left out.

  Raises:
    TypeError: images not `Images`, classes not integers.
    ValueError: no class, one that occurs twice or has no name in `label_names`; no
      image of the classes.

  Cost: that of indexing.

  Source: none.

  Example:
    >>> images = spherejax.data.take_classes(spherejax.data.load_digits(), [7, 3])
    >>> len(images), images.label_names, images.labels[:3]
    (362, ('7', '3'), array([1, 0, 1], dtype=int32))
  """
  _checks.instance("images", images, Images)
  chosen = _checks.host("classes", classes)
  _checks.expect("classes", chosen, rank=1)
  if not len(chosen):
    raise ValueError("classes must hold a label, got none")
  _checks.expect("classes", chosen, "integer")
  if len(np.unique(chosen)) < len(chosen):
    raise ValueError(f"classes must be different, got {reprlib.repr(chosen.tolist())}")
  names = images.label_names
  for label in chosen.tolist():
    if not 0 <= label < len(names):
      raise ValueError(f"classes must be in [0, {len(names)}), got {label}")
  place = np.full(len(names), -1, np.int32)
  place[chosen] = np.arange(len(chosen))
  taken = images[np.isin(images.labels, chosen)]
  return dataclasses.replace(
    taken, labels=place[taken.labels], label_names=tuple(names[x] for x in chosen)
  )


def _check_named(labels: np.ndarray, names: int) -> None:
  """Raises ValueError for a label without a name that is not -1."""
  wrong = (labels < -1) | (labels >= names)
  if wrong.any():
    row = int(np.argmax(wrong))
    raise ValueError(
      f"labels must be in [0, {names}), one for each of the {names} label names, or -1"
      f" for none; label {row} is {labels[row]}"
    )


def _rows(index: Sequence[int] | np.ndarray | jax.Array) -> np.ndarray:
  """Checked index array; a single integer is refused, as one image is no data set."""
  rows = np.asarray(index)
  if rows.ndim != 1 or rows.dtype.kind not in "iub":
    raise TypeError(
      "index must be a slice, an integer array or a boolean mask, got"
      f" {reprlib.repr(index)}"
    )
  return rows


@dataclasses.dataclass(frozen=True, eq=False)
class Lazy(Sequence):
  """Lazy images, each read on access by `read(rows[i])`."""

  read: Callable[[int], np.ndarray]
  rows: np.ndarray

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(self, index: Any) -> Any:
    if isinstance(index, (int, np.integer)):
      return self.read(int(self.rows[index]))
    return Lazy(self.read, self.rows[index])

  def __iter__(self) -> Iterator[np.ndarray]:
    return (self.read(int(row)) for row in self.rows)


def from_arrays(
  images: Shaped[ArrayLike, "count height width *channels"],
  labels: Integer[ArrayLike, " count"],
  *,
  label_names: Sequence[str] | None = None,
) -> Images:
  """Builds labelled images from arrays.

  Args:
    images: uint8, [count, height, width, channels], or without the last axis for
      greyscale, which then gets one channel.
    labels: [count], integer, -1 for an image without a label.
    label_names: static. The name of each label; None names label 7 "7". If a label
      reaches a million, all labels are renumbered in ascending order, so that only
      labels that occur have names. Pass names if two sets must agree.

  Returns:
    `Images` with int32 labels. The pixels are not copied.

  Raises:
    ValueError: no image; shapes do not match; a label outside the names.
    TypeError: images not uint8, labels not integer.

  Cost: O(count).

  Source: none.

  Example:
    >>> pixels = jnp.zeros([3, 8, 8], jnp.uint8)
    >>> spherejax.data.from_arrays(pixels, jnp.array([0, 1, 1])).label_names
    ('0', '1')
  """
  images, labels = _checks.host("images", images), _checks.host("labels", labels)
  _checks.expect("images", images, rank=(3, 4))
  _checks.expect("labels", labels, "integer", rank=1)
  if label_names is None:
    labels, label_names = named(labels)
  _checks.texts("label_names", label_names)
  label_names = tuple(label_names)
  _check_named(labels, len(label_names))  # before JAX cuts labels to 32 bits
  return Images(
    images=images if images.ndim == 4 else images[..., None],
    labels=labels.astype(np.int32),
    label_names=label_names,
  )


def named(labels: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
  """Names labels by their numbers; renumbers all of them if one is large."""
  count = int(labels.max()) + 1 if labels.size else 0
  if count <= _MOST_NUMBERS:
    return labels, tuple(map(str, range(count)))
  classes, numbers = np.unique(labels, return_inverse=True)
  classes, unlabelled = classes[classes >= 0], labels < 0
  numbers -= numbers[~unlabelled].min()
  numbers[unlabelled] = labels[unlabelled]
  return numbers, tuple(map(str, classes))


def checked(image: np.ndarray, name: str) -> np.ndarray:
  """Returns the image; raises unless it is uint8 [height, width, channels]."""
  if image.dtype != np.uint8:
    raise TypeError(f"{name} must be uint8, got dtype {image.dtype}")
  _checks.expect(name, image, rank=3)
  if not image.size:
    raise ValueError(f"{name} must have a pixel, got shape {image.shape}")
  return image


def image_size(size: int | tuple[int, int]) -> tuple[int, int]:
  """(height, width) from a static side length or pair."""
  if not isinstance(size, (int, np.integer)) and np.shape(size) != (2,):
    raise TypeError(f"size must be an integer or (height, width), got {size!r}")
  height, width = (size, size) if isinstance(size, (int, np.integer)) else size
  _checks.count("size", height)
  _checks.count("size", width)
  return int(height), int(width)


def collect(lazy: Lazy) -> np.ndarray | list[np.ndarray]:
  """Decodes all images: into one array, or a list where sizes differ.

  Raises one error for all images that cannot be read.
  """
  images, unreadable = collect_readable(lazy)
  refuse(unreadable.values(), len(lazy))
  return images


def collect_readable(
  lazy: Lazy,
) -> tuple[np.ndarray | list[np.ndarray], dict[int, _files.UnreadableError]]:
  """Decodes the images that can be read; returns the errors of the other rows too."""
  from concurrent import futures

  # Pillow releases the interpreter's lock while it decodes. Threads take chunks, since
  # handing over a small image takes longer than decoding it.
  starts = range(0, len(lazy), _CHUNK)
  unreadable: dict[int, _files.UnreadableError] = {}

  def readable(rows: Iterator[np.ndarray | _files.UnreadableError]):
    for row, image in enumerate(rows):
      if isinstance(image, _files.UnreadableError):
        unreadable[row] = image
      else:
        yield image

  with futures.ThreadPoolExecutor() as pool:
    chunks = pool.map(lambda start: _attempt(lazy[start : start + _CHUNK]), starts)
    images = readable(itertools.chain.from_iterable(chunks))
    return _in_one(images, len(lazy)), unreadable


def unreadable(lazy: Lazy) -> dict[int, _files.UnreadableError]:
  """Errors of the rows whose images cannot be read; no image is kept."""
  first_pixel = Lazy(lambda row: lazy.read(row)[:1, :1], lazy.rows)
  return collect_readable(first_pixel)[1]


def _attempt(lazy: Lazy) -> list[np.ndarray | _files.UnreadableError]:
  results: list[np.ndarray | _files.UnreadableError] = []
  for row in range(len(lazy)):
    try:
      results.append(lazy[row])
    except _files.UnreadableError as error:
      results.append(error)
  return results


def refuse(
  errors: Collection[_files.UnreadableError], count: int, remedy: str = ""
) -> None:
  """Raises one error for the images that cannot be read, with up to 20 reasons."""
  if len(errors) == 1:
    (error,) = errors
    raise _files.UnreadableError(f"{error}{remedy}") from error
  if errors:
    reasons = _files.listed(error.why for error in errors)
    raise _files.UnreadableError(
      f"cannot read {len(errors)} of {count} images: {reasons}{remedy}"
    )


def _in_one(images: Iterator[np.ndarray], count: int) -> np.ndarray | list[np.ndarray]:
  """Stacks images into an array as they come; returns a list once sizes differ."""
  first = list(itertools.islice(images, _CHUNK))
  if len({image.shape for image in first}) != 1:
    return [*first, *images]
  whole, row = np.empty((count, *first[0].shape), np.uint8), 0
  for image in itertools.chain(first, images):
    if image.shape != first[0].shape:
      return [*map(np.copy, whole[:row]), image, *images]
    whole[row] = image
    row += 1
  return whole[:row]


def channel_count(channels: int) -> int:
  """Checked number of channels."""
  if channels not in _CHANNELS:
    raise ValueError(f"channels must be one of {_CHANNELS}, got {channels!r}")
  return channels
