"""Table and pictures of `retrieval`: what is found of classes that were never seen."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.frame.study import Table
from experiments.metric_learning.images import Study
from experiments.metric_learning.measures import NAMES, measures
from experiments.metric_learning.methods import TITLES
from experiments.metric_learning.problem_figures import score
from experiments.metric_learning.runs import Trained
from spherejax import metrics, plotting

QUERIES = 8
SHOWN = 6  # nearest images of each
FOLDS = "folds of characters"
GSP, ZSP = "GSP", "ZSP"  # generalized sum pooling, zero-shot prediction
BOTH = f"{GSP}+{ZSP}"
FLATTERY = "P@1 gained by choosing the evaluation by the test images"
VALIDATION = "MAP@R, validation"


class Name(NamedTuple):
  """A training."""

  group: str
  loss: str
  kind: str = "plain"
  parts: str = ""
  """Parts that replace global average pooling: GSP, ZSP or both."""

  @property
  def title(self) -> str:
    """Title of the training in the table."""
    kind = "" if self.kind == "plain" else self.kind.upper()
    return "+".join(filter(None, (TITLES[self.loss], kind, self.parts)))

  def __str__(self) -> str:
    return f"{self.group}, {self.title}"


Found = Mapping[Name, Trained]
Measures = dict[str, np.ndarray]
"""Values of P@1, P@R and MAP@R, [seeds] each."""


def side_by_side(trained: Trained, labels: np.ndarray) -> Measures:
  """Measures of the concatenated, normalised embeddings of all folds."""
  points = np.concatenate(list(trained.points), axis=-1)  # [seeds, images, all dims]
  lengths = np.linalg.norm(points, axis=-1, keepdims=True)
  measured = [measures(x, labels) for x in points / np.maximum(lengths, 1)]
  return {name: np.array([figures[name] for figures in measured]) for name in NAMES}


def tabulate(
  runs: Found, untrained: Mapping[str, Measures], studies: Mapping[str, Study]
) -> Table:
  """The table, and what the claims need beside it."""
  table = Table()

  def add(variant: str, figures: Measures) -> None:
    for measure, title in NAMES.items():
      table.add(variant, title, figures[measure])

  for name, figures in untrained.items():
    add(name, figures)
  for name, run in runs.items():
    if name.group == FOLDS:
      means = {measure: values.mean(0) for measure, values in run.test.items()}
      add(f"{name}, mean of the folds", means)
      continue
    add(f"{name}", {measure: run.test[measure][0] for measure in NAMES})
    table.add(f"{name}", "evaluations to the best", run.best[0] + 1)
    best = np.nanmax(run.curves["score"][0], axis=-1)
    table.add(f"{name}", VALIDATION, best)
    if any(run.rate != 1 for run in runs.values()):
      table.add(f"{name}", "rate", np.full(len(run.best[0]), run.rate))
    if "problem" in run.curves:
      problems = np.nanmax(run.curves["problem"][0], axis=-1)
      table.add(f"{name}", "problems", problems)
    if "test precision" in run.curves:
      curves = run.curves["test precision"][0]
      fair = np.take_along_axis(curves, run.best[0][:, None], axis=-1)[:, 0]
      table.add(f"{name}", FLATTERY, np.nanmax(curves, axis=-1) - fair, listed=False)
  if (folds := Name(FOLDS, "c2")) in runs:
    joined = side_by_side(runs[folds], studies[FOLDS].test_labels)
    add(f"{folds}, side by side", joined)
  return table


def sheets(runs: Found, studies: Mapping[str, Study]) -> dict[str, Any]:
  """Nearest neighbours by the best training of each set of images, by file name."""
  drawn = {}
  for group, study in studies.items():
    names = [name for name in runs if name.group == group != FOLDS]
    if names and study.images.dtype == np.uint8:
      best = max(names, key=lambda name: score(runs[name])[0])
      drawn[f"sheet-{group}"] = sheet(runs, best, study)
  return drawn


def sheet(runs: Found, name: Name, study: Study) -> Any:
  """Shows test images of several classes with their nearest neighbours, seed 1."""
  points = runs[name].points[0, 0]
  classes = np.unique(study.test_labels)
  chosen = classes[np.linspace(0, len(classes) - 1, QUERIES).astype(int)]
  queries = np.array([np.flatnonzero(study.test_labels == c)[0] for c in chosen])
  points = jnp.asarray(points)
  nearest = metrics.nearest(points[queries], points, k=SHOWN, exclude=queries)
  found_labels = study.test_labels[np.asarray(nearest)]
  return plotting.retrieval_sheet(
    study.images[study.test[0]],
    queries,
    nearest,
    found_labels == study.test_labels[queries][:, None],
    title=name.title,
  )
