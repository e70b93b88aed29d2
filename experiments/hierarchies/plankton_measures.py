"""Classification in an embedding, and claims of DIST, article I, about it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame.study import Claim, Table
from spherejax import data, metrics, prototypes

EMBEDDING, BASELINE = "embedding", "softmax classifier"
UNTRAINED = "untrained network"
SEEN, UNSEEN = "seen", "unseen"
ALL_TEST = "all test images"
CENTROID = "centroid"
COMMONEST = 10  # confusions that are listed
NEAR = 4  # classes at most so many edges apart in the tree are relatives

_scores = jax.jit(metrics.class_scores)
_commonest = jax.jit(metrics.common_confusions, static_argnames=("k",))

USUAL = 10  # neighbours
CHANCE = "one over the number of classes"
DRIFT = "first drift of the centroids - last"
GAINS = "gain of accuracy in the first third - in the last"
MARGINS = "cluster radius with the first margin throughout - with the margin raised"
RADIUS, RELATIVES = "cluster radius", "among the commonest confusions"


def way(k: int) -> str:
  """The name of a classification by k neighbours."""
  return f"k = {k}"


def halves(labels: np.ndarray, key: Array) -> tuple[np.ndarray, np.ndarray]:
  """Halves each class into references (one more if odd) and images to classify."""
  references, judged = data.split_within_classes(labels, key=key)
  return references, judged


@functools.partial(jax.jit, static_argnames=("classes", "k"))
def _by_neighbours(references, labels, queries, *, classes: int, k: int) -> Array:
  return prototypes.nearest_neighbours(
    queries, references, labels, num_classes=classes, k=k, ties="label"
  )


@functools.partial(jax.jit, static_argnames=("classes",))
def _by_centroids(references, labels, queries, *, classes: int) -> Array:
  means = prototypes.class_means(references, labels, classes, normalize="none")
  return prototypes.nearest_neighbours(
    queries,
    means.means,
    jnp.arange(classes),
    num_classes=classes,
    where=means.counts > 0,
  )


def predictions(
  references: np.ndarray,
  labels: np.ndarray,
  queries: np.ndarray,
  classes: int,
  neighbours: tuple[int, ...],
) -> dict[str, np.ndarray]:
  """Predicts the classes of the queries by each rule; k is at most all references."""
  by_rule = {CENTROID: _by_centroids(references, labels, queries, classes=classes)}
  for k in neighbours:
    number = min(k, len(references))
    by_rule[way(k)] = _by_neighbours(
      references, labels, queries, classes=classes, k=number
    )
  return {name: np.asarray(classes_of) for name, classes_of in by_rule.items()}


def confusions(
  points: np.ndarray, images: data.Images, neighbours: tuple[int, ...], key: Array
) -> dict[str, np.ndarray]:
  """Confusion counts [classes, classes] per rule; half of the images are references."""
  classes = len(images.label_names)
  first, second = halves(images.labels, key)
  by_rule = predictions(
    points[first], images.labels[first], points[second], classes, neighbours
  )
  return {
    name: np.asarray(
      metrics.confusion_counts(images.labels[second], classes_of, num_classes=classes)
    )
    for name, classes_of in by_rule.items()
  }


def accuracies_by_k(
  points: np.ndarray, images: data.Images, curve: tuple[int, ...], key: Array
) -> dict[str, float]:
  """Accuracy on one half of images against the number of neighbours."""
  counts = confusions(points, images, curve, key)
  return {str(k): float(np.trace(counts[way(k)]) / counts[way(k)].sum()) for k in curve}


def scores(counts: np.ndarray) -> metrics.ClassScores:
  return _scores(jnp.asarray(counts))


def commonest(counts: np.ndarray) -> list[tuple[int, int]]:
  """At most ten confused pairs of classes, the commonest first."""
  classes = len(counts)
  number = min(COMMONEST, classes * (classes - 1))
  most = _commonest(jnp.asarray(counts), k=number)
  pairs = zip(*map(np.asarray, most), strict=True)
  return [(int(a), int(b)) for a, b, rate in pairs if rate > 0]


def share_near(pairs: list[tuple[int, int]], path_distances: np.ndarray) -> float:
  """Share of pairs whose classes are relatives in the tree."""
  return (
    float(np.mean([path_distances[pair] <= NEAR for pair in pairs])) if pairs else 0.0
  )


def macro_f1(group: str, way: str = way(USUAL)) -> str:
  """Name of the macro F1 of a group of classes under one rule."""
  return f"macro F1, {group}, {way}"


def _gap(table: Table) -> np.ndarray:
  """F1 of the classifier less that of the embedding."""
  classifier = table.values(macro_f1(SEEN, "half"), BASELINE)
  return classifier - table.values(macro_f1(SEEN), EMBEDDING)


def _less(table: Table, measure: str, other: str) -> np.ndarray:
  """Difference of two measures of the embedding."""
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
