"""The figures of `plankton` as rows, and those of every class as a table."""

import csv
import pathlib
from typing import Any

import numpy as np

from experiments.frame import results
from experiments.hierarchies import plankton_claims, plankton_images, plankton_measures
from experiments.hierarchies.plankton_runs import (
  ALL_TEST,
  BASELINE,
  EMBEDDING,
  SEEN,
  UNSEEN,
  UNTRAINED,
)
from experiments.published import dist_plankton

ENDS = (("first", 0), ("last", -1))


def comparable(config: Any) -> bool:
  """Whether the article's classes are learned, from ImageNet's weights as there."""
  return config.seen == "article" and bool(config.weights)


def rows(
  embedded: plankton_claims.Seeds,
  classified: plankton_claims.Seeds,
  whole: plankton_images.Whole,
  apart: dict[str, np.ndarray | None],
  config: Any,
) -> list[dict[str, Any]]:
  """All figures; the article's beside those of its classes and first weights."""
  printed = dist_plankton.FIGURES if comparable(config) else {}
  made: list[tuple[str, str, list[float]]] = []
  ways = [plankton_measures.CENTROID, *map(plankton_measures.way, config.neighbours)]
  places = [
    (embedded, network, group, way)
    for network in (EMBEDDING, UNTRAINED)
    for group in (SEEN, UNSEEN)
    for way in ways
  ]
  places += [(classified, BASELINE, SEEN, way) for way in ("half", ALL_TEST)]
  for runs, network, group, way in places:
    scores = [
      plankton_measures.scores(found.counts[f"{network}, {group}, {way}"])
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
  moves = [plankton_claims.drift(found) for found in embedded]
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
  found = [results.row(*each, paper=printed.get(each[:2])) for each in made]
  if config.seen == "article":
    found += class_rows(embedded, classified, whole, config)
  for group, names in ((SEEN, whole.seen), (UNSEEN, whole.unseen)):
    found += confusion_rows(embedded, group, names, apart[group], config)
  return found


def class_rows(
  embedded: plankton_claims.Seeds,
  classified: plankton_claims.Seeds,
  whole: plankton_images.Whole,
  config: Any,
) -> list[dict[str, Any]]:
  """F1 of the classes of which the article prints one; `write_classes` has all."""
  usual = plankton_measures.way(plankton_claims.USUAL)
  centroid, published = plankton_measures.CENTROID, dist_plankton
  found = []
  for runs, network, group, way, printed in (
    (classified, BASELINE, SEEN, ALL_TEST, published.F1_CLASSIFIER),
    (embedded, EMBEDDING, SEEN, usual, published.F1_EMBEDDING),
    (embedded, EMBEDDING, UNSEEN, centroid, published.F1_UNSEEN),
  ):
    known = {published.plain(name): figure for name, figure in printed.items()}
    place = f"{network}, {group}, {way}"
    scores = [plankton_measures.scores(run.counts[place]).f1 for run in runs]
    names = whole.seen if group == SEEN else whole.unseen
    for label, name in enumerate(names):
      paper = known.get(published.plain(name))
      values = [float(each[label]) for each in scores]
      # A class without images to judge, or predictions, has none.
      if paper is not None and not np.isnan(values).any():
        found.append(
          results.row(
            network,
            f"F1 of {name}, {group}, {way}",
            values,
            paper=paper if comparable(config) else None,
          )
        )
  return found


def confusion_rows(
  embedded: plankton_claims.Seeds,
  group: str,
  names: tuple[str, ...],
  apart: np.ndarray | None,
  config: Any,
) -> list[dict[str, Any]]:
  """The commonest confusions over all seeds, and how many are of relatives."""
  way = plankton_measures.way(plankton_claims.USUAL)
  tables = [found.counts[f"{EMBEDDING}, {group}, {way}"] for found in embedded]
  printed = dist_plankton.confusion if comparable(config) else None
  found = [
    results.row(
      f"confused, {group}, {way}",
      f"{names[a]} as {names[b]}",
      [table[a, b] / table[a].sum() for table in tables],
      paper=printed(names[a], names[b]) if printed else None,
    )
    for a, b in plankton_measures.commonest(np.sum(tables, axis=0))
  ]
  if apart is None:
    return found
  share = [plankton_claims.shares(each, apart, group) for each in embedded]
  pairs = apart[~np.eye(len(apart), dtype=bool)]
  by_chance = [float((pairs <= plankton_measures.NEAR).mean())]
  return [
    *found,
    results.row("relatives", f"among the commonest confusions, {group}", share),
    results.row("relatives", f"among all pairs of classes, {group}", by_chance),
  ]


def write_classes(
  embedded: plankton_claims.Seeds,
  classified: plankton_claims.Seeds,
  study: plankton_images.Study,
  config: Any,
  path: pathlib.Path,
) -> None:
  """F1 of every class by every way, mean over the seeds, as a table."""
  ways = [plankton_measures.CENTROID, *map(plankton_measures.way, config.neighbours)]
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open("w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["class", "group", "training images", *ways, BASELINE])
    for group, images in ((SEEN, study.test), (UNSEEN, study.unseen)):
      places = [(embedded, f"{EMBEDDING}, {group}, {way}") for way in ways]
      if group == SEEN:
        places.append((classified, f"{BASELINE}, {group}, half"))
      columns = [
        np.mean([plankton_measures.scores(run.counts[place]).f1 for run in runs], 0)
        for runs, place in places
      ]
      for label, name in enumerate(images.label_names):
        count = int((study.train.labels == label).sum()) if group == SEEN else 0
        table.writerow([name, group, count, *(f"{c[label]:.4f}" for c in columns)])
