"""What images must have before anything is trained to be measured on them."""

from typing import Any

import jax
import numpy as np

from experiments.counting import measures, pictures
from spherejax import data


def settings(config: Any) -> None:
  """Raises ValueError for grids of too few counts, and for no fill."""
  cells = config.rows * config.columns
  if cells - config.min_count < 2:
    counts = list(range(config.min_count, cells + 1))
    raise ValueError(
      "a quadratic in the count needs three different counts, but grids of "
      f"{config.rows}x{config.columns} cells with at least {config.min_count} objects "
      f"have {counts}"
    )
  if not config.fills:
    raise ValueError("fills must name what empty cells hold, got ()")


def training(labels: np.ndarray, name: str) -> None:
  """Raises ValueError for a set that has nothing to tell apart."""
  classes = np.unique(labels)
  if len(classes) < 2:
    raise ValueError(
      f"networks are trained on two classes or more, but the {len(labels)} training "
      f"objects of {name} have {len(classes)}: {classes.tolist()}"
    )


def sample(
  config: Any,
  what: str,
  *,
  mixed: np.ndarray,
  counts: np.ndarray,
  labels: np.ndarray,
  fitted: np.ndarray,
) -> None:
  """Raises ValueError for images that do not suffice for what is measured.

  `mixed` are the counts of all images of the first kind, `counts` and `labels` those of
  images of one class, `fitted` labels of those that classifiers are fitted to.
  """
  for mode, own in (("mixed", mixed), ("single", counts)):
    if len(np.unique(own)) < 3:
      raise ValueError(
        f"a quadratic in the count needs three different counts, but {what} of {mode} "
        f"classes have {np.unique(own).tolist()}"
      )
  pictures.check_classes(labels, f"{what} of single classes")
  if "classifiers" in config.measures and len(np.unique(fitted)) < 2:
    raise ValueError(
      f"classifiers are fitted to two classes or more, but the {len(fitted)} {what} "
      f"for that have {np.unique(fitted).tolist()}"
    )
  if "angles" in config.measures:
    _pairs(what, counts, labels)
  if "episodes" in config.measures:
    data.sample_episode(
      jax.random.key(0),
      measures.few_shot_table(labels),
      num_ways=config.ways,
      num_shots=max(config.shots, default=1),
      num_queries=config.queries,
    )


def _pairs(what: str, counts: np.ndarray, labels: np.ndarray) -> None:
  """Raises ValueError where one of both mean cosines is of no pair."""
  same_label, same_count = (x[:, None] == x[None] for x in (labels, counts))
  for text, pairs in (
    ("one class with two counts", same_label & ~same_count),
    ("two classes with one count", ~same_label & same_count),
  ):
    if not pairs.any():
      raise ValueError(f"angles need a pair of {text}: {len(labels)} {what} have none")
