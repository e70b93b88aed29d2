"""Pictures of `retrieval`: what is found, and how the trainings went."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.metric_learning.images import Study
from experiments.metric_learning.problem_figures import score
from experiments.metric_learning.runs import Trained
from experiments.metric_learning.tables import FOLDS, GSP, Found, Name
from spherejax import metrics, plotting

QUERIES = 8
SHOWN = 6  # nearest images of each


def draw(found: Found, studies: Mapping[str, Study], config: Any) -> dict[str, Any]:
  """All pictures by the names of their files."""
  groups: dict[str, dict[Name, Trained]] = {}
  for name, one in found.items():
    if name.group != FOLDS:
      groups.setdefault(name.group, {})[name] = one
  drawn = {f"bars-{group}": bars(group, own) for group, own in groups.items()}
  steps = config.evaluate_every * (1 + np.arange(config.steps // config.evaluate_every))
  for group, own in groups.items():
    drawn[f"curves-{group}"] = plotting.training_curves(
      {name.title: one.curves["score"][0] for name, one in apart(own).items()},
      steps=steps,
      ylabel="MAP@R, validation",
    )
    best = max(own, key=lambda name: score(own[name])[0])
    if studies[group].images.dtype == np.uint8:
      drawn[f"sheet-{group}"] = sheet(found, best, studies[group])
  return drawn


def bars(group: str, found: Found) -> Any:
  """What is found by each training; poolings of one method stand together."""
  if not any(name.parts for name in found):
    values = {group: {name.title: score(one) for name, one in found.items()}}
  else:
    values = {}
    for name, one in found.items():
      own = values.setdefault(name._replace(parts="").title, {})
      own[name.parts or "average"] = score(one)
  return plotting.bars_with_intervals(values, ylabel="MAP@R")


def apart(found: Found) -> Found:
  """The methods with each part of the pooling alone, or all where none has it."""
  every = {name._replace(parts="") for name in found if name.parts == GSP}
  return {
    name: one
    for name, one in found.items()
    if not every or name._replace(parts="") in every
  }


def sheet(found: Found, name: Name, study: Study) -> Any:
  """Some test images of as many classes and the nearest others, by the first seed."""
  points = found[name].points[0, 0]
  classes = np.unique(study.test_labels)
  chosen = classes[np.linspace(0, len(classes) - 1, QUERIES).astype(int)]
  queries = np.array([np.flatnonzero(study.test_labels == c)[0] for c in chosen])
  points = jnp.asarray(points)
  nearest = metrics.nearest(points[queries], points, k=SHOWN, exclude=queries)
  found_labels = study.test_labels[np.asarray(nearest)]
  return plotting.retrieval_sheet(
    study.test,
    queries,
    nearest,
    found_labels == study.test_labels[queries][:, None],
    title=name.title,
  )
