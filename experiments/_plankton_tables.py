"""The figures of `plankton` as rows, and those of every class as a table."""

import csv
import pathlib
from typing import Any

import numpy as np

from experiments import (
  _plankton_claims,
  _plankton_measures,
  _plankton_published,
  _plankton_sets,
  _report,
)
from experiments._plankton_runs import (
  ALL_TEST,
  BASELINE,
  EMBEDDING,
  SEEN,
  UNSEEN,
  UNTRAINED,
)

ENDS = (("first", 0), ("last", -1))


def comparable(config: Any) -> bool:
  """Whether the article's classes are learned, from ImageNet's weights as there."""
  return config.seen == "article" and bool(config.weights)


def rows(
  embedded: _plankton_claims.Seeds,
  classified: _plankton_claims.Seeds,
  whole: _plankton_sets.Whole,
  apart: dict[str, np.ndarray | None],
  config: Any,
) -> list[dict[str, Any]]:
  """All figures; the article's beside those of its classes and first weights."""
  printed = _plankton_published.FIGURES if comparable(config) else {}
  made: list[tuple[str, str, list[float]]] = []
  ways = [_plankton_measures.CENTROID, *map(_plankton_measures.way, config.neighbours)]
  places = [
    (embedded, network, group, way)
    for network in (EMBEDDING, UNTRAINED)
    for group in (SEEN, UNSEEN)
    for way in ways
  ]
  places += [(classified, BASELINE, SEEN, way) for way in ("half", ALL_TEST)]
  for runs, network, group, way in places:
    scores = [
      _plankton_measures.scores(found.counts[f"{network}, {group}, {way}"])
      for found in runs
    ]
    made += [
      (network, f"macro F1, {group}, {way}", [float(x.macro_f1) for x in scores]),
      (network, f"accuracy, {group}, {way}", [float(x.accuracy) for x in scores]),
    ]
  curves = [found.figures["curves"] for found in embedded]
  made += [
    (EMBEDDING, f"{title}, {when} iteration", [curve[name][index] for curve in curves])
    for name, title in (
      ("radius", "cluster radius"),
      ("accuracy", "accuracy of centroids"),
    )
    for when, index in ENDS
  ]
  moves = [_plankton_claims.drift(found) for found in embedded]
  made += [
    (EMBEDDING, f"drift of the centroids, {when} two iterations", [x[i] for x in moves])
    for when, i in ENDS
    if moves[0]
  ]
  made.append(
    (
      EMBEDDING,
      "best k, validation",
      [float(max(f.figures["by k"], key=f.figures["by k"].get)) for f in embedded],
    )
  )
  found = [_report.row(*each, paper=printed.get(each[:2])) for each in made]
  if config.seen == "article":
    found += class_rows(embedded, classified, whole, config)
  for group, names in ((SEEN, whole.seen), (UNSEEN, whole.unseen)):
    found += confusion_rows(embedded, group, names, apart[group], config)
  return found


def class_rows(
  embedded: _plankton_claims.Seeds,
  classified: _plankton_claims.Seeds,
  whole: _plankton_sets.Whole,
  config: Any,
) -> list[dict[str, Any]]:
  """F1 of the classes of which the article prints one; `write_classes` has all."""
  usual = _plankton_measures.way(_plankton_claims.USUAL)
  centroid, published = _plankton_measures.CENTROID, _plankton_published
  found = []
  for runs, network, group, way, printed in (
    (classified, BASELINE, SEEN, ALL_TEST, published.F1_CLASSIFIER),
    (embedded, EMBEDDING, SEEN, usual, published.F1_EMBEDDING),
    (embedded, EMBEDDING, UNSEEN, centroid, published.F1_UNSEEN),
  ):
    known = {published.plain(name): figure for name, figure in printed.items()}
    place = f"{network}, {group}, {way}"
    scores = [_plankton_measures.scores(run.counts[place]).f1 for run in runs]
    names = whole.seen if group == SEEN else whole.unseen
    for label, name in enumerate(names):
      paper = known.get(published.plain(name))
      values = [float(each[label]) for each in scores]
      # A class without images to judge, or predictions, has none.
      if paper is not None and not np.isnan(values).any():
        found.append(
          _report.row(
            network,
            f"F1 of {name}, {group}, {way}",
            values,
            paper=paper if comparable(config) else None,
          )
        )
  return found


def confusion_rows(
  embedded: _plankton_claims.Seeds,
  group: str,
  names: tuple[str, ...],
  apart: np.ndarray | None,
  config: Any,
) -> list[dict[str, Any]]:
  """The commonest confusions over all seeds, and how many are of relatives."""
  way = _plankton_measures.way(_plankton_claims.USUAL)
  tables = [found.counts[f"{EMBEDDING}, {group}, {way}"] for found in embedded]
  printed = _plankton_published.confusion if comparable(config) else None
  found = [
    _report.row(
      f"confused, {group}, {way}",
      f"{names[a]} as {names[b]}",
      [table[a, b] / table[a].sum() for table in tables],
      paper=printed(names[a], names[b]) if printed else None,
    )
    for a, b in _plankton_measures.commonest(np.sum(tables, axis=0))
  ]
  if apart is None:
    return found
  share = [_plankton_claims.shares(each, apart, group) for each in embedded]
  pairs = apart[~np.eye(len(apart), dtype=bool)]
  by_chance = [float((pairs <= _plankton_measures.NEAR).mean())]
  return [
    *found,
    _report.row("relatives", f"among the commonest confusions, {group}", share),
    _report.row("relatives", f"among all pairs of classes, {group}", by_chance),
  ]


def write_classes(
  embedded: _plankton_claims.Seeds,
  classified: _plankton_claims.Seeds,
  study: _plankton_sets.Study,
  config: Any,
  path: pathlib.Path,
) -> None:
  """F1 of every class by every way, mean over the seeds, as a table."""
  ways = [_plankton_measures.CENTROID, *map(_plankton_measures.way, config.neighbours)]
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open("w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["class", "group", "training images", *ways, BASELINE])
    for group, images in ((SEEN, study.test), (UNSEEN, study.unseen)):
      places = [(embedded, f"{EMBEDDING}, {group}, {way}") for way in ways]
      if group == SEEN:
        places.append((classified, f"{BASELINE}, {group}, half"))
      columns = [
        np.mean([_plankton_measures.scores(run.counts[place]).f1 for run in runs], 0)
        for runs, place in places
      ]
      for label, name in enumerate(images.label_names):
        count = int((study.train.labels == label).sum()) if group == SEEN else 0
        table.writerow([name, group, count, *(f"{c[label]:.4f}" for c in columns)])
