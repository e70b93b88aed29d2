"""What DIST, article I, says about embeddings of plankton, as claims."""

from typing import Any

import numpy as np

from experiments.frame import results
from experiments.hierarchies import plankton_measures, plankton_runs
from experiments.hierarchies.plankton_runs import (
  BASELINE,
  EMBEDDING,
  SEEN,
  UNSEEN,
  UNTRAINED,
)

Seeds = list[plankton_runs.Found]
USUAL = 10  # neighbours
PAPER = "DIST article I"


def macro(found: plankton_runs.Found, *place: str) -> float:
  """Macro F1 of one network, group of classes and way."""
  return float(plankton_measures.scores(found.counts[", ".join(place)]).macro_f1)


def check(neighbours: tuple[int, ...], curve: tuple[int, ...]) -> None:
  """Raises ValueError unless some vote, among them the claims' number."""
  for name, numbers in (("neighbours", neighbours), ("curve", curve)):
    if min(numbers, default=0) < 1:
      raise ValueError(f"{name} must be numbers of at least 1, got {numbers}")
  if USUAL not in neighbours:
    raise ValueError(
      f"neighbours must contain {USUAL}, which the claims are about, got {neighbours}"
    )


def claims(embedded: Seeds, classified: Seeds, apart: np.ndarray | None) -> list[Any]:
  """All claims; `apart` are edges between the learned classes, if there is a tree."""
  usual = plankton_measures.way(USUAL)

  def each(*place: str) -> np.ndarray:
    return np.array([macro(found, *place) for found in embedded])

  baseline = np.array([macro(found, BASELINE, SEEN, "half") for found in classified])
  seen, unseen = (each(EMBEDDING, group, usual) for group in (SEEN, UNSEEN))
  chance = 1 / len(embedded[0].counts[f"{EMBEDDING}, {UNSEEN}, {usual}"])
  centroid = each(EMBEDDING, SEEN, plankton_measures.CENTROID)
  made = {
    "Z1-baseline": (
      "macro F1, seen: softmax classifier > embedding, k = 10",
      baseline - seen,
    ),
    "Z1-gap": ("this gap < 0.1", 0.1 - (baseline - seen)),
    "Z2-seen": (
      "macro F1, seen, k = 10: trained > untrained network",
      seen - each(UNTRAINED, SEEN, usual),
    ),
    "Z2-unseen": (
      "macro F1, unseen, k = 10: trained > untrained network",
      unseen - each(UNTRAINED, UNSEEN, usual),
    ),
    "Z3-chance": ("macro F1, unseen, k = 10 > 5 / classes", unseen - 5 * chance),
    "Z3-seen": ("macro F1, k = 10: unseen < seen", seen - unseen),
    **curves(embedded),
    "Z6": (
      "macro F1, seen: centroid and k = 10 differ by less than 0.05",
      0.05 - np.abs(centroid - seen),
    ),
  }
  if apart is not None:
    made["Z7"] = (
      "at least half of the ten commonest confusions, seen, are of classes at most 4 "
      "edges apart",
      [shares(found, apart) - 0.499 for found in embedded],
    )
  return [
    results.claim(name, statement, values, paper=PAPER)
    for name, (statement, values) in made.items()
  ]


def drift(found: plankton_runs.Found) -> list[float]:
  """From each iteration to the next, without the way from the first weights."""
  return found.figures["curves"]["drift"][1:]


def curves(embedded: Seeds) -> dict[str, tuple[str, Any]]:
  """Claims about what happens during the training."""

  def of(found: plankton_runs.Found, name: str) -> list[float]:
    return found.figures["curves"][name]

  def gains(found: plankton_runs.Found) -> float:
    """The first third's, from the untrained network on, less the last third's."""
    values = [found.figures["start"]["accuracy"], *of(found, "accuracy")]
    third = (len(values) - 1) // 3
    return (values[third] - values[0]) - (values[-1] - values[-1 - third])

  made: dict[str, tuple[str, Any]] = {
    "Z4-radius": (
      "cluster radius: last iteration < first",
      [of(found, "radius")[0] - of(found, "radius")[-1] for found in embedded],
    ),
  }
  moves = [drift(found) for found in embedded]
  if len(moves[0]) > 1:
    made["Z4-drift"] = (
      "drift of the centroids from one iteration to the next: last < first",
      [own[0] - own[-1] for own in moves],
    )
  if len(of(embedded[0], "accuracy")) > 2:
    made["Z5"] = (
      "accuracy of centroids: gain of the first third of the training > of the last",
      [gains(found) for found in embedded],
    )
  if embedded[0].figures["kept margin"]:
    made["Z8"] = (
      "cluster radius: with the margin raised < with the first margin throughout",
      [
        found.figures["kept margin"]["radius"][-1] - of(found, "radius")[-1]
        for found in embedded
      ],
    )
  return made


def shares(found: plankton_runs.Found, apart: np.ndarray, group: str = SEEN) -> float:
  """Share of relatives among the commonest confusions."""
  counts = found.counts[f"{EMBEDDING}, {group}, {plankton_measures.way(USUAL)}"]
  return plankton_measures.share_near(plankton_measures.commonest(counts), apart)
