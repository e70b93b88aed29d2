"""The table of `plankton`, and a file of the F1 of every class."""

import csv
import pathlib
from typing import Any

import numpy as np

from experiments.frame.images import Parts
from experiments.frame.study import Table
from experiments.hierarchies import plankton_images, plankton_measures, plankton_runs
from experiments.hierarchies.plankton_measures import (
  ALL_TEST,
  BASELINE,
  CHANCE,
  DRIFT,
  EMBEDDING,
  GAINS,
  MARGINS,
  RADIUS,
  RELATIVES,
  SEEN,
  UNSEEN,
  UNTRAINED,
  USUAL,
  macro_f1,
)

Seeds = list[plankton_runs.Found]
ENDS = (("first", 0), ("last", -1))


def comparable(config: Any) -> bool:
  """True for runs with the article's classes that start from ImageNet weights."""
  return config.seen == "article" and bool(config.weights)


def tabulate(
  embedded: Seeds,
  classified: Seeds,
  whole: plankton_images.Whole,
  path_distances: dict[str, np.ndarray | None],
  config: Any,
) -> Table:
  """Tabulates all measures, with the article's if classes and weights agree.

  `path_distances` are numbers of edges between the classes of a group, None without a
  tree.
  """
  table = Table()
  printed = plankton_images.FIGURES if comparable(config) else {}
  ways = [plankton_measures.CENTROID, *map(plankton_measures.way, config.neighbours)]
  places = [
    (embedded, network, group, way)
    for network in (EMBEDDING, UNTRAINED)
    for group in (SEEN, UNSEEN)
    for way in ways
  ]
  places += [(classified, BASELINE, SEEN, way) for way in ("half", ALL_TEST)]
  for runs, network, group, way in places:
    for run in runs:
      scores = plankton_measures.scores(run.counts[f"{network}, {group}, {way}"])
      for measure, value in (
        (macro_f1(group, way), scores.macro_f1),
        (f"accuracy, {group}, {way}", scores.accuracy),
      ):
        table.add(network, measure, value, paper=printed.get(network, {}).get(measure))
  table.add(UNSEEN, CHANCE, 1 / len(whole.unseen), listed=False)
  add_curves(table, embedded)
  best = [max(run.figures["by k"], key=run.figures["by k"].get) for run in embedded]
  table.add(EMBEDDING, "best k, validation", [float(k) for k in best])
  if config.seen == "article":
    add_classes(table, embedded, classified, whole, config)
  for group, names in ((SEEN, whole.seen), (UNSEEN, whole.unseen)):
    add_confusions(table, embedded, group, names, path_distances[group], config)
  return table


def drift(run: plankton_runs.Found) -> list[float]:
  """Drift from each iteration to the next, without the one from the initial weights."""
  return run.figures["curves"]["drift"][1:]


def add_curves(table: Table, embedded: Seeds) -> None:
  """Adds measures of the training curves."""
  for name, title in (("radius", RADIUS), ("accuracy", "accuracy of centroids")):
    for when, index in ENDS:
      ends = [run.figures["curves"][name][index] for run in embedded]
      table.add(EMBEDDING, f"{title}, {when} iteration", ends)
  for run in embedded:
    moves, curves, margins = (
      drift(run),
      run.figures["curves"],
      run.figures["kept margin"],
    )
    for when, index in ENDS:
      if moves:
        title = f"drift of the centroids, {when} two iterations"
        table.add(EMBEDDING, title, moves[index])
    if len(moves) > 1:
      table.add(EMBEDDING, DRIFT, moves[0] - moves[-1], listed=False)
    # Starts with the untrained network.
    values = [run.figures["start"]["accuracy"], *curves["accuracy"]]
    if (third := (len(values) - 1) // 3) > 0:
      gain = (values[third] - values[0]) - (values[-1] - values[-1 - third])
      table.add(EMBEDDING, GAINS, gain, listed=False)
    if margins:
      wider = margins["radius"][-1] - curves["radius"][-1]
      table.add(EMBEDDING, MARGINS, wider, listed=False)


def add_classes(
  table: Table,
  embedded: Seeds,
  classified: Seeds,
  whole: plankton_images.Whole,
  config: Any,
) -> None:
  """Adds F1 of the classes whose F1 the article prints; `write_classes` has all."""
  usual = plankton_measures.way(USUAL)
  centroid, published = plankton_measures.CENTROID, plankton_images
  for runs, network, group, way, printed in (
    (classified, BASELINE, SEEN, ALL_TEST, published.F1_CLASSIFIER),
    (embedded, EMBEDDING, SEEN, usual, published.F1_EMBEDDING),
    (embedded, EMBEDDING, UNSEEN, centroid, published.F1_UNSEEN),
  ):
    known = {published.plain(name): figure for name, figure in printed.items()}
    place = f"{network}, {group}, {way}"
    scores = [plankton_measures.scores(run.counts[place]).f1 for run in runs]
    for label, name in enumerate(whole.seen if group == SEEN else whole.unseen):
      paper = known.get(published.plain(name))
      values = [float(of_run[label]) for of_run in scores]
      # F1 is NaN for a class without images to classify or without predictions.
      if paper is not None and not np.isnan(values).any():
        measure = f"F1 of {name}, {group}, {way}"
        paper = paper if comparable(config) else None
        table.add(network, measure, values, paper=paper)


def add_confusions(
  table: Table,
  embedded: Seeds,
  group: str,
  names: tuple[str, ...],
  path_distances: np.ndarray | None,
  config: Any,
) -> None:
  """Adds the commonest confusions over all seeds, and how many are of relatives."""
  way = plankton_measures.way(USUAL)
  counts = [run.counts[f"{EMBEDDING}, {group}, {way}"] for run in embedded]
  printed = plankton_images.confusion if comparable(config) else None
  for a, b in plankton_measures.commonest(np.sum(counts, axis=0)):
    table.add(
      f"confused, {group}, {way}",
      f"{names[a]} as {names[b]}",
      [confusion[a, b] / confusion[a].sum() for confusion in counts],
      paper=printed(names[a], names[b]) if printed else None,
    )
  if path_distances is None:
    return
  for confusion in counts:
    share = plankton_measures.share_near(
      plankton_measures.commonest(confusion), path_distances
    )
    table.add("relatives", f"{RELATIVES}, {group}", share)
  pairs = path_distances[~np.eye(len(path_distances), dtype=bool)]
  chance = float((pairs <= plankton_measures.NEAR).mean())
  table.add("relatives", f"among all pairs of classes, {group}", chance)


def write_classes(
  embedded: Seeds, classified: Seeds, study: Parts, config: Any, path: pathlib.Path
) -> None:
  """Writes a table of the F1 of every class by every rule, mean over the seeds."""
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
