"""Figures of `retrieval`: what each training finds of classes that it never saw."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments.frame import results
from experiments.metric_learning.images import Study
from experiments.metric_learning.measures import NAMES, measures
from experiments.metric_learning.methods import TITLES
from experiments.metric_learning.runs import Trained

FOLDS = "folds of characters"
GSP, ZSP = "GSP", "ZSP"  # generalized sum pooling, zero-shot prediction
BOTH = f"{GSP}+{ZSP}"


class Name(NamedTuple):
  """A training."""

  group: str
  loss: str
  kind: str = "plain"
  parts: str = ""
  """GSP, ZSP or both, in the place of global average pooling."""

  @property
  def title(self) -> str:
    """As in the table."""
    kind = "" if self.kind == "plain" else self.kind.upper()
    return "+".join(filter(None, (TITLES[self.loss], kind, self.parts)))


Found = Mapping[Name, Trained]
Measures = dict[str, np.ndarray]
"""P@1, P@R and MAP@R, [seeds] each."""


def score(found: Trained, measure: str = "map_at_r") -> np.ndarray:
  """[seeds], a measure of the test images."""
  return found.test[measure][0]


def joined(found: Found, studies: Mapping[str, Study]) -> Measures | None:
  """Of the embeddings of all folds side by side, normalised together."""
  name = Name(FOLDS, "c2")
  if name not in found:
    return None
  points = found[name].points  # [folds, seeds, images, dim]
  side_by_side = np.concatenate(list(points), axis=-1)
  lengths = np.linalg.norm(side_by_side, axis=-1, keepdims=True)
  side_by_side = side_by_side / np.maximum(lengths, 1)
  labels = studies[FOLDS].test_labels
  each = [measures(own, labels) for own in side_by_side]
  return {name: np.array([one[name] for one in each]) for name in NAMES}


def rows(
  found: Found, untrained: Mapping[str, Measures], joined: Measures | None
) -> list[dict[str, Any]]:
  """The table."""
  made = []
  for group, figures in untrained.items():
    made += _of(f"{group}, untrained", figures)
  for name, one in found.items():
    if name.group == FOLDS:
      means = {measure: values.mean(0) for measure, values in one.test.items()}
      made += _of(f"{name.group}, {name.title}, mean of the folds", means)
      continue
    title = f"{name.group}, {name.title}"
    made += _of(title, {measure: score(one, measure) for measure in NAMES})
    made.append(results.row(title, "evaluations to the best", one.best[0] + 1))
    if "problem" in one.curves:
      problems = np.nanmax(one.curves["problem"][0], axis=-1)
      made.append(results.row(title, "problems", problems))
  if joined is not None:
    made += _of(f"{FOLDS}, C2, side by side", joined)
  return made


def _of(title: str, figures: Measures) -> list[dict[str, Any]]:
  return [results.row(title, NAMES[name], figures[name]) for name in NAMES]
