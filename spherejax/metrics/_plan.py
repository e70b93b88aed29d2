"""Finds on the host, from labels, the references that are relevant to each query."""

from typing import Any, NamedTuple

import numpy as np


class Block(NamedTuple):
  """A block of queries, and where their relevant references are in `by_class`.

  The fields are NumPy arrays on the host, traced arrays in a program.

  Attributes:
    query: [block], index of the query.
    left_out: [block], index of the reference that the query leaves out (the query
      itself, or the reference that `exclude` names), or -1.
    start: [block], first place of the query's class in `by_class`.
    skip: [block], place of `left_out`, counted from `start`; beyond the class if that
      reference is of another class or not among the references.
    relevant: [block], number of relevant references; 0 for padding.
  """

  query: Any
  left_out: Any
  start: Any
  skip: Any
  relevant: Any


class Plan(NamedTuple):
  """Relevant references of every query, as slices of one permutation.

  Attributes:
    blocks: `Block` of arrays [blocks, block]; queries sorted by R, so that the
      queries of a block have equally many relevant references.
    by_class: [references], kept references sorted by (label, index).
    excluded: [references], True where the reference is masked.
    relevant: [queries], R.
    position: [queries], where the query is in the flattened blocks.
    most: static bound of R.
  """

  blocks: Block
  by_class: Any
  excluded: Any
  relevant: np.ndarray
  position: np.ndarray
  most: int


def make_plan(
  labels: np.ndarray,
  mask: np.ndarray,
  other_labels: np.ndarray,
  other_kept: np.ndarray,
  *,
  left_out: np.ndarray,
  block_size: int,
  least: int,
) -> Plan:
  """Sorts the references by class on the host; `least` bounds `most` from below.

  `left_out` [queries] is the reference that each query leaves out, or -1.
  """
  if np.result_type(labels, other_labels).kind == "f":  # int64 beside uint64
    labels, other_labels = labels.astype(object), other_labels.astype(object)
  members = np.flatnonzero(other_kept)
  by_class = members[np.argsort(other_labels[members], kind="stable")]
  start = np.searchsorted(other_labels[by_class], labels, "left")
  stop = np.searchsorted(other_labels[by_class], labels, "right")
  skip = np.full(len(labels), np.iinfo(np.int32).max, np.int32)
  # The place of `left_out` among the query's class; a masked reference has none.
  place = np.empty(len(other_labels), np.int64)
  place[by_class] = np.arange(len(by_class))
  inside = np.flatnonzero(left_out >= 0)
  inside = inside[other_kept[left_out[inside]]]
  inside = inside[other_labels[left_out[inside]] == labels[inside]]
  skip[inside] = place[left_out[inside]] - start[inside]
  relevant = (stop - start - (skip < len(other_labels))).astype(np.int32)
  work = np.where(mask, relevant, 0)
  arranged = np.argsort(-work, kind="stable")
  total = -(-len(labels) // block_size) * block_size
  position = np.empty(len(labels), np.int32)
  position[arranged] = np.arange(len(labels), dtype=np.int32)

  def blocks(values: np.ndarray) -> np.ndarray:
    padded = np.zeros(total, np.int32)
    padded[: len(arranged)] = values[arranged]
    return padded.reshape(-1, block_size)

  # Padding and masked references are never read: they come after all slices.
  padded = np.zeros(len(other_labels), np.int32)
  padded[: len(by_class)] = by_class
  return Plan(
    blocks=Block(
      query=blocks(np.arange(len(labels))),
      left_out=blocks(left_out),
      start=blocks(start),
      skip=blocks(skip),
      relevant=blocks(work),
    ),
    by_class=padded,
    excluded=~other_kept,
    relevant=relevant,
    position=position,
    most=bound(work, least),
  )


def bound(relevant: np.ndarray, least: int) -> int:
  """Power of two that bounds all R, so that few programs are compiled."""
  return max(least, 1 << int(relevant.max(initial=1) - 1).bit_length())
