"""Long-tailed image sets, cut out of balanced sets."""

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int, Integer, Key

from spherejax import _checks
from spherejax.data import _splits


def long_tail_counts(
  num_classes: int, largest: float | int, imbalance: float | int
) -> Int[np.ndarray, " num_classes"]:
  """Numbers of images per class that fall exponentially.

      n_k = floor(largest imbalance^(k / (C - 1))),    k = 0 ... C - 1

  Args:
    num_classes: C. Static.
    largest: positive, images of class 0; need not be whole.
    imbalance: in (0, 1], images of the last class over images of the first.

  Returns:
    [num_classes], integers, decreasing.

  Raises:
    TypeError: num_classes not a static integer.
    ValueError: num_classes below 1, largest not positive, imbalance outside (0, 1];
      an imbalance that leaves a class without an image.

  Cost: O(num_classes), on the host.

  Source: DL2P 4.3; Cui et al. 2019, "Class-balanced loss based on effective number
  of samples", section 5.1.

  Example:
    >>> spherejax.data.long_tail_counts(10, 500, 0.01)
    array([500, 299, 179, 107,  64,  38,  23,  13,   8,   5])
  """
  _checks.count("num_classes", num_classes)
  _checks.positive("largest", largest)
  _checks.scalar("imbalance", imbalance, np.dtype(np.float32))
  _checks.between("imbalance", imbalance, 0, 1, low_open=True)
  shares = np.arange(num_classes) / max(num_classes - 1, 1)
  counts = float(largest) * float(imbalance) ** shares
  counts = np.floor(counts + _splits.SLACK).astype(int)  # 28.999... is 29
  if counts.min() < 1:
    empty = int(np.argmin(counts))
    raise ValueError(
      f"imbalance {float(imbalance):g} leaves class {empty} of {num_classes} without "
      f"an image: largest must be more, got {float(largest):g}"
    )
  return counts


def long_tail(
  labels: Integer[ArrayLike, " count"],
  imbalance: float | int,
  *,
  largest: float | int | None = None,
  key: Key[Array, ""] | None = None,
) -> Int[np.ndarray, " kept"]:
  """Selects a long-tailed part of a data set.

  Class k keeps as many images as `long_tail_counts` allows; a class with fewer keeps
  all. Apply it to training images only, so that test sets stay balanced.

  Args:
    labels: [count], integer, 0 ... C - 1, each with an image.
    imbalance: in (0, 1], images of the last class over images of the first.
    largest: images of class 0; None for the mean over the classes, count / C, the
      number per class in a balanced set.
    key: draws which images stay; None keeps the first ones.

  Returns:
    [kept], indices of the images that stay, ascending.

  Raises:
    ValueError: a class without an image, or left without one by the imbalance; what
      `long_tail_counts` refuses; no image, or a negative label.
    TypeError: labels not integer.

  Cost: O(count log count), on the host.

  Source: DL2P 4.3, whose long-tailed SVHN begins with 73257 / 10 images.

  Example:
    >>> labels = jnp.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> spherejax.data.long_tail(labels, 0.5)
    array([0, 1, 2, 3, 4, 5])
  """
  if key is not None:
    _checks.key("key", key)
  labels = _splits.host_labels(labels)
  classes, sizes = np.unique(labels, return_counts=True)
  if len(classes) <= classes[-1]:
    missing = int(np.argmax(classes != np.arange(len(classes), dtype=classes.dtype)))
    raise ValueError(
      f"every class up to {classes[-1]} must have an image, class {missing} has none"
    )
  mean = len(labels) / len(sizes)
  counts = long_tail_counts(len(sizes), mean if largest is None else largest, imbalance)
  order = _splits.by_class(labels, key)
  starts = np.cumsum(sizes) - sizes
  within = np.arange(len(labels)) - np.repeat(starts, sizes)
  return np.sort(order[within < np.repeat(counts, sizes)])
