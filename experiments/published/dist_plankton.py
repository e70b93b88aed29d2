"""What DIST, article I, printed; its classes by the names of ZooScanNet's folders."""

import re

from experiments.published import figures

_PRINTED = figures("dist_plankton")
RECALL: dict[str, float] = _PRINTED["recall"]
CALLED_CALANOIDA: dict[str, float] = _PRINTED["called_calanoida"]
FIGURES: dict[str, dict[str, float]] = _PRINTED["figures"]
F1_CLASSIFIER: dict[str, float] = _PRINTED["f1_classifier"]
F1_EMBEDDING: dict[str, float] = _PRINTED["f1_embedding"]
F1_UNSEEN: dict[str, float] = _PRINTED["f1_unseen"]


def plain(name: str) -> str:
  """A class's name without what tables and folders write differently."""
  return re.sub(r"[^a-z]", "", name.lower())


CONFUSIONS: dict[tuple[str, str], float] = {
  (plain(label), plain(prediction)): rate
  for label, row in _PRINTED["confusions"].items()
  for prediction, rate in row.items()
}


def confusion(label: str, prediction: str) -> float | None:
  """The printed rate of a confusion; None where it is not among the commonest."""
  return CONFUSIONS.get((plain(label), plain(prediction)))
