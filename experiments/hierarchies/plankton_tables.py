"""The table of `plankton`, a file of the F1 of every class, and the claims."""

import csv
import pathlib

import jax
import numpy as np

from experiments.frame.images import Parts
from experiments.frame.study import Claim, Table
from experiments.hierarchies import plankton_images, plankton_runs
from experiments.hierarchies.plankton_images import Config, Whole
from experiments.hierarchies.plankton_runs import (
  ALL_TEST,
  BASELINE,
  CENTROID,
  EMBEDDING,
  HALF,
  SEEN,
  UNSEEN,
  UNTRAINED,
)
from spherejax import hierarchy, metrics

Seeds = list[plankton_runs.RunResult]
ENDS = (("first", 0), ("last", -1))
USUAL = plankton_runs.way(plankton_images.USUAL)
COMMONEST = 10  # confusions that are listed
NEAR = 4  # classes at most so many edges apart in the tree are relatives
CHANCE = "one over the number of classes"
DRIFT = "first drift of the centroids - last"
GAINS = "gain of accuracy in the first third - in the last"
MARGINS = "cluster radius with the first margin throughout - with the margin raised"
RADIUS, RELATIVES = "cluster radius", "among the commonest confusions"

scores = jax.jit(metrics.class_scores)
_commonest = jax.jit(metrics.common_confusions, static_argnames=("k",))


def mean_f1(
  embedded: Seeds, classified: Seeds, group: str, config: Config
) -> dict[str, np.ndarray]:
  """F1 of every class by every rule and the classifier, mean over the seeds."""

  def mean(runs: Seeds, place: str) -> np.ndarray:
    return np.mean([np.asarray(scores(run.counts[place]).f1) for run in runs], axis=0)

  ways = plankton_runs.ways(config.neighbours)
  by_way = {way: mean(embedded, f"{EMBEDDING}, {group}, {way}") for way in ways}
  if group == SEEN:
    by_way[BASELINE] = mean(classified, f"{BASELINE}, {group}, {HALF}")
  return by_way


def commonest(counts: np.ndarray) -> list[tuple[int, int]]:
  """At most ten confused pairs of classes, the commonest first."""
  classes = len(counts)
  most = _commonest(counts, k=min(COMMONEST, classes * (classes - 1)))
  pairs = zip(*map(np.asarray, most), strict=True)
  return [(int(a), int(b)) for a, b, rate in pairs if rate > 0]


def macro_f1(group: str, way: str = USUAL) -> str:
  """Name of the macro F1 of a group of classes under one rule."""
  return f"macro F1, {group}, {way}"


def comparable(config: Config) -> bool:
  """True for runs with the article's classes that start from ImageNet weights."""
  return config.seen == "article" and bool(config.weights)


def tabulate(embedded: Seeds, classified: Seeds, whole: Whole, config: Config) -> Table:
  """Tabulates all measures, with the article's if classes and weights agree."""
  table = Table()
  printed = plankton_images.PRINTED["figures"] if comparable(config) else {}
  places = [
    (embedded, network, group, way)
    for network in (EMBEDDING, UNTRAINED)
    for group in (SEEN, UNSEEN)
    for way in plankton_runs.ways(config.neighbours)
  ]
  places += [(classified, BASELINE, SEEN, way) for way in (HALF, ALL_TEST)]
  for runs, network, group, way in places:
    for run in runs:
      of_run = scores(run.counts[f"{network}, {group}, {way}"])
      figures = {
        macro_f1(group, way): of_run.macro_f1,
        f"accuracy, {group}, {way}": of_run.accuracy,
      }
      table.add_all(network, figures, printed.get(network, {}))
  table.add(UNSEEN, CHANCE, 1 / len(whole.unseen), listed=False)
  add_curves(table, embedded)
  best = [max(run.figures["by k"], key=run.figures["by k"].get) for run in embedded]
  table.add(EMBEDDING, "best k, validation", [float(k) for k in best])
  if config.seen == "article":
    add_classes(table, embedded, classified, whole, config)
  for group in (SEEN, UNSEEN):
    add_confusions(table, embedded, group, whole, config)
  return table


def drift(run: plankton_runs.RunResult) -> list[float]:
  """Drift from each iteration to the next, without the one from the initial weights."""
  return run.figures["curves"]["drift"][1:]


def add_curves(table: Table, embedded: Seeds) -> None:
  """Adds measures of the training curves."""
  for name, title in (("radius", RADIUS), ("accuracy", "accuracy of centroids")):
    for when, index in ENDS:
      ends = [run.figures["curves"][name][index] for run in embedded]
      table.add(EMBEDDING, f"{title}, {when} iteration", ends)
  for run in embedded:
    moves, curves = drift(run), run.figures["curves"]
    for when, index in ENDS if moves else ():
      title = f"drift of the centroids, {when} two iterations"
      table.add(EMBEDDING, title, moves[index])
    if len(moves) > 1:
      table.add(EMBEDDING, DRIFT, moves[0] - moves[-1], listed=False)
    # Starts with the untrained network.
    values = [run.figures["start"]["accuracy"], *curves["accuracy"]]
    if (third := (len(values) - 1) // 3) > 0:
      gain = (values[third] - values[0]) - (values[-1] - values[-1 - third])
      table.add(EMBEDDING, GAINS, gain, listed=False)
    if margins := run.figures["kept margin"]:
      wider = margins["radius"][-1] - curves["radius"][-1]
      table.add(EMBEDDING, MARGINS, wider, listed=False)


def add_classes(
  table: Table, embedded: Seeds, classified: Seeds, whole: Whole, config: Config
) -> None:
  """Adds F1 of the classes whose F1 the article prints; `write_classes` has all."""
  letters = plankton_images.letters
  for runs, network, group, way, printed in (
    (classified, BASELINE, SEEN, ALL_TEST, "f1_classifier"),
    (embedded, EMBEDDING, SEEN, USUAL, "f1_embedding"),
    (embedded, EMBEDDING, UNSEEN, CENTROID, "f1_unseen"),
  ):
    published = {letters(x): f1 for x, f1 in plankton_images.PRINTED[printed].items()}
    of_runs = [scores(run.counts[f"{network}, {group}, {way}"]).f1 for run in runs]
    for label, name in enumerate(whole.seen if group == SEEN else whole.unseen):
      values = [float(f1[label]) for f1 in of_runs]
      # F1 is NaN for a class without images to classify or without predictions.
      if letters(name) in published and not np.isnan(values).any():
        paper = published[letters(name)] if comparable(config) else None
        table.add(network, f"F1 of {name}, {group}, {way}", values, paper=paper)


def add_confusions(
  table: Table, embedded: Seeds, group: str, whole: Whole, config: Config
) -> None:
  """Adds the commonest confusions over all seeds, and how many are of relatives."""
  names = whole.seen if group == SEEN else whole.unseen
  counts = [run.counts[f"{EMBEDDING}, {group}, {USUAL}"] for run in embedded]
  for a, b in commonest(np.sum(counts, axis=0)):
    title, measure = f"confused, {group}, {USUAL}", f"{names[a]} as {names[b]}"
    rates = [confusion[a, b] / confusion[a].sum() for confusion in counts]
    printed = plankton_images.confusion(names[a], names[b])
    table.add(title, measure, rates, paper=printed if comparable(config) else None)
  if whole.tree is None:
    return
  path_distances = hierarchy.path_distances(hierarchy.restrict(whole.tree, names))
  for confusion in counts:
    near = [path_distances[pair] <= NEAR for pair in commonest(confusion)]
    table.add("relatives", f"{RELATIVES}, {group}", np.mean(near) if near else 0.0)
  pairs = path_distances[~np.eye(len(path_distances), dtype=bool)]
  chance = float((pairs <= NEAR).mean())
  table.add("relatives", f"among all pairs of classes, {group}", chance)


def write_classes(
  embedded: Seeds, classified: Seeds, study: Parts, config: Config, path: pathlib.Path
) -> None:
  """Writes a table of the F1 of every class by every rule, mean over the seeds."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open("w", newline="") as file:
    table = csv.writer(file)
    for group, images in ((SEEN, study.test), (UNSEEN, study.unseen)):
      columns = mean_f1(embedded, classified, group, config)
      if group == SEEN:
        table.writerow(["class", "group", "training images", *columns])
      for label, name in enumerate(images.label_names):
        count = int((study.train.labels == label).sum()) if group == SEEN else 0
        scored = [f"{values[label]:.4f}" for values in columns.values()]
        table.writerow([name, group, count, *scored])


def _gap(table: Table) -> np.ndarray:
  classifier = table.values(macro_f1(SEEN, HALF), BASELINE)
  return classifier - table.values(macro_f1(SEEN), EMBEDDING)


def _less(table: Table, measure: str, other: str) -> np.ndarray:
  return table.values(measure, EMBEDDING) - table.values(other, EMBEDDING)


CLAIMS = Claim.of_rows([
  ("Z1-baseline", "macro F1, seen: softmax classifier > embedding, k = 10", _gap),
  ("Z1-gap", "this gap < 0.1", lambda t: 0.1 - _gap(t)),
  ("Z2-seen", "macro F1, seen, k = 10: trained > untrained network",
   lambda t: t.gain(macro_f1(SEEN), EMBEDDING, over=UNTRAINED)),
  ("Z2-unseen", "macro F1, unseen, k = 10: trained > untrained network",
   lambda t: t.gain(macro_f1(UNSEEN), EMBEDDING, over=UNTRAINED)),
  ("Z3-chance", "macro F1, unseen, k = 10 > 5 / classes",
   lambda t: t.values(macro_f1(UNSEEN), EMBEDDING) - 5 * t.values(CHANCE, UNSEEN)),
  ("Z3-seen", "macro F1, k = 10: unseen < seen",
   lambda t: _less(t, macro_f1(SEEN), macro_f1(UNSEEN))),
  ("Z4-radius", "cluster radius: last iteration < first",
   lambda t: _less(t, f"{RADIUS}, first iteration", f"{RADIUS}, last iteration")),
  ("Z4-drift", "drift of the centroids from one iteration to the next: last < first",
   lambda t: t.values(DRIFT, EMBEDDING)),
  ("Z5", "accuracy of centroids: gain of the first third of the training > of the last",
   lambda t: t.values(GAINS, EMBEDDING)),
  ("Z8", "cluster radius: with the margin raised < with the first margin throughout",
   lambda t: t.values(MARGINS, EMBEDDING)),
  ("Z6", "macro F1, seen: centroid and k = 10 differ by less than 0.05",
   lambda t: 0.05 - abs(_less(t, macro_f1(SEEN, CENTROID), macro_f1(SEEN)))),
  ("Z7", "at least half of the ten commonest confusions, seen, are of classes at most "
   "4 edges apart", lambda t: t.values(f"{RELATIVES}, {SEEN}", "relatives") - 0.499),
])  # fmt: skip
