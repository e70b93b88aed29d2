"""Splits of a data set: class-disjoint, or within classes."""

from collections.abc import Sequence

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int, Integer, Key

from spherejax import _checks

# Tolerance far above the rounding of a sum of fractions, far below one image.
SLACK = 1e-6


def split_classes(
  labels: Integer[ArrayLike, " count"],
  *,
  groups: Sequence[Sequence[int]] | None = None,
  fractions: Sequence[float] = (0.5, 0.5),
  key: Key[Array, ""] | None = None,
) -> tuple[Int[np.ndarray, " part"], ...]:
  """Splits a data set into class-disjoint parts: no class has images in two of them.

  With `groups`, part j holds all images of the classes in `groups[j]`; classes in no
  group are left out. Otherwise `fractions` divide the classes that occur, in ascending
  order or shuffled with `key`. The default takes the first and the second half of the
  classes, as in zero-shot retrieval.

  Args:
    labels: [count], integer, none negative.
    groups: static. Class labels of each part.
    fractions: static. Share of the classes in each part, summing to 1; part j ends at
      class round(classes x (fractions[0] + ... + fractions[j])), half up.
    key: shuffles the classes; None keeps their order.

  Returns:
    For each part the indices of its images, ascending.

  Raises:
    ValueError: a class in two groups, or in a group and without images; fractions not
      positive or not summing to 1; a part without a class; a negative label; a key
      together with groups.
    TypeError: labels not integer.

  Cost: O(count log count), on the host.

  Source: the first-half protocol is Oh Song et al. 2016, "Deep metric learning via
  lifted structured feature embedding", section 5.

  Example:
    >>> spherejax.data.split_classes(jnp.array([0, 1, 2, 3, 0, 3]))
    (array([0, 1, 4]), array([2, 3, 5]))
    >>> spherejax.data.split_classes(jnp.array([0, 1, 2, 2]), groups=[[2], [0]])
    (array([2, 3]), array([0]))
  """
  if key is not None:
    _checks.key("key", key)
  labels = host_labels(labels)
  if groups is not None:
    if key is not None:
      raise ValueError("pass either groups or a key: groups leave nothing to draw")
    return _by_groups(labels, groups)
  classes = np.unique(labels)
  if key is not None:
    # Not a permutation of the labels themselves, which JAX may cut to 32 bits.
    classes = classes[np.asarray(jax.random.permutation(key, len(classes)))]
  ends = _ends(len(classes), fractions)
  if (np.diff(ends, prepend=0) == 0).any():
    raise ValueError(
      f"fractions {tuple(fractions)} of {len(classes)} classes leave a part without"
      " a class"
    )
  parts = np.split(classes, ends[:-1])
  return tuple(np.flatnonzero(np.isin(labels, part)) for part in parts)


def split_within_classes(
  labels: Integer[ArrayLike, " count"],
  *,
  fractions: Sequence[float] = (0.5, 0.5),
  key: Key[Array, ""] | None = None,
) -> tuple[Int[np.ndarray, " part"], ...]:
  """Splits a data set into parts that each hold their share of every class.

  The first images of each class go to the first part and so on, in the order of the
  data (for the digits, by writer), or in an order drawn with `key`.

  Args:
    labels: [count], integer, none negative.
    fractions: static. Share of each class in each part, summing to 1; in a class with n
      images, part j ends at round(n x (fractions[0] + ... + fractions[j])), half up. A
      small class may be missing from a part.
    key: shuffles within each class; None keeps the order.

  Returns:
    For each part the indices of its images, ascending. Every image is in one part.

  Raises:
    ValueError: fractions not positive or not summing to 1; a part without an image; a
      negative label.
    TypeError: labels not integer.

  Cost: O(count log count), on the host.

  Source: none.

  Example:
    >>> spherejax.data.split_within_classes(jnp.array([0, 0, 1, 1, 0, 0]))
    (array([0, 1, 2]), array([3, 4, 5]))
  """
  if key is not None:
    _checks.key("key", key)
  labels = host_labels(labels)
  _checks.sequence("fractions", fractions)
  order = by_class(labels, key)
  sizes = np.unique(labels, return_counts=True)[1]
  parts = [[] for _ in fractions]
  for members in np.split(order, np.cumsum(sizes)[:-1]):
    ends = _ends(len(members), fractions)
    for part, chosen in zip(parts, np.split(members, ends[:-1]), strict=True):
      part.append(chosen)
  result = tuple(np.sort(np.concatenate(part)) for part in parts)
  if not all(map(len, result)):
    raise ValueError(
      f"fractions {tuple(fractions)} of classes of at most {sizes.max()} images leave"
      " a part empty"
    )
  return result


def host_labels(labels: ArrayLike) -> np.ndarray:
  """The labels as a NumPy array, checked."""
  labels = _checks.host("labels", labels)
  _checks.expect("labels", labels, "integer", rank=1)
  if not len(labels):
    raise ValueError("the data set is empty: labels must have a row, got shape (0,)")
  if labels.min() < 0:
    raise ValueError(
      f"labels must not be negative, got {labels.min()} at {int(np.argmin(labels))};"
      " leave images without a label out first"
    )
  return labels


def _by_groups(
  labels: np.ndarray, groups: Sequence[Sequence[int]]
) -> tuple[np.ndarray, ...]:
  """Images of each group of classes."""
  _checks.sequence("groups", groups)
  there, owner, parts = set(labels.tolist()), {}, []
  for position, group in enumerate(groups):
    _checks.sequence(f"groups[{position}]", group)
    if not len(group):
      raise ValueError(f"groups[{position}] is empty: each part needs a class")
    classes = _checks.host(f"groups[{position}]", group)
    _checks.expect(f"groups[{position}]", classes, "integer", rank=1)
    for label in classes.tolist():
      if label not in there:
        raise ValueError(f"class {label} of groups[{position}] has no image")
      if owner.setdefault(label, position) != position:
        raise ValueError(
          f"class {label} is in groups[{owner[label]}] and in groups[{position}]"
        )
    parts.append(np.flatnonzero(np.isin(labels, classes)))
  return tuple(parts)


def _ends(count: int, fractions: Sequence[float]) -> np.ndarray:
  """Ends of the parts of `count` items."""
  _checks.sequence("fractions", fractions)
  for position, fraction in enumerate(fractions):
    _checks.between(f"fractions[{position}]", fraction, 0, 1, low_open=True)
  total = float(np.sum(fractions))
  if abs(total - 1) > SLACK:
    raise ValueError(f"fractions must sum to 1, got {tuple(fractions)}, in sum {total}")
  return np.floor(count * np.cumsum(fractions) + 0.5 + SLACK).astype(int)


def by_class(labels: np.ndarray, key: Array | None) -> np.ndarray:
  """Rows class by class, in their order or, with a key, in a random order."""
  order = np.arange(len(labels))
  if key is not None:
    order = np.asarray(jax.random.permutation(key, len(labels)))
  return order[np.argsort(labels[order], kind="stable")]
