"""What DIST, article I, says about embeddings of plankton, as claims."""

from experiments.frame.study import Claim
from experiments.hierarchies import plankton_measures
from experiments.hierarchies.plankton_runs import (
  BASELINE,
  EMBEDDING,
  SEEN,
  UNSEEN,
  UNTRAINED,
)

USUAL = 10  # neighbours
CHANCE = "one over the number of classes"
DRIFT = "first drift of the centroids - last"
GAINS = "gain of accuracy in the first third - in the last"
MARGINS = "cluster radius with the first margin throughout - with the margin raised"
RADIUS, RELATIVES = "cluster radius", "among the commonest confusions"


def macro_f1(group: str, way: str = plankton_measures.way(USUAL)) -> str:
  """The measure of a group of classes, classified in one way."""
  return f"macro F1, {group}, {way}"


CLAIMS = [
  Claim(
    "Z1-baseline",
    "macro F1, seen: softmax classifier > embedding, k = 10",
    lambda t: (
      t.values(macro_f1(SEEN, "half"), BASELINE) - t.values(macro_f1(SEEN), EMBEDDING)
    ),
  ),
  Claim(
    "Z1-gap",
    "this gap < 0.1",
    lambda t: (
      0.1
      - (
        t.values(macro_f1(SEEN, "half"), BASELINE) - t.values(macro_f1(SEEN), EMBEDDING)
      )
    ),
  ),
  Claim(
    "Z2-seen",
    "macro F1, seen, k = 10: trained > untrained network",
    lambda t: t.gain(macro_f1(SEEN), EMBEDDING, over=UNTRAINED),
  ),
  Claim(
    "Z2-unseen",
    "macro F1, unseen, k = 10: trained > untrained network",
    lambda t: t.gain(macro_f1(UNSEEN), EMBEDDING, over=UNTRAINED),
  ),
  Claim(
    "Z3-chance",
    "macro F1, unseen, k = 10 > 5 / classes",
    lambda t: t.values(macro_f1(UNSEEN), EMBEDDING) - 5 * t.values(CHANCE, UNSEEN),
  ),
  Claim(
    "Z3-seen",
    "macro F1, k = 10: unseen < seen",
    lambda t: (
      t.values(macro_f1(SEEN), EMBEDDING) - t.values(macro_f1(UNSEEN), EMBEDDING)
    ),
  ),
  Claim(
    "Z4-radius",
    "cluster radius: last iteration < first",
    lambda t: (
      t.values(f"{RADIUS}, first iteration", EMBEDDING)
      - t.values(f"{RADIUS}, last iteration", EMBEDDING)
    ),
  ),
  Claim(
    "Z4-drift",
    "drift of the centroids from one iteration to the next: last < first",
    lambda t: t.values(DRIFT, EMBEDDING),
  ),
  Claim(
    "Z5",
    "accuracy of centroids: gain of the first third of the training > of the last",
    lambda t: t.values(GAINS, EMBEDDING),
  ),
  Claim(
    "Z8",
    "cluster radius: with the margin raised < with the first margin throughout",
    lambda t: t.values(MARGINS, EMBEDDING),
  ),
  Claim(
    "Z6",
    "macro F1, seen: centroid and k = 10 differ by less than 0.05",
    lambda t: (
      0.05
      - abs(
        t.values(macro_f1(SEEN, plankton_measures.CENTROID), EMBEDDING)
        - t.values(macro_f1(SEEN), EMBEDDING)
      )
    ),
  ),
  Claim(
    "Z7",
    "at least half of the ten commonest confusions, seen, are of classes at most 4 "
    "edges apart",
    lambda t: t.values(f"{RELATIVES}, {SEEN}", "relatives") - 0.499,
  ),
]
