"""Claims of `gap_prototypes`."""

from typing import Any

import numpy as np

from experiments.frame import results


def make_claims(figures: dict[str, list[float]]) -> list[dict[str, Any]]:
  """The statements of DML 4.3, as differences that should be positive."""
  f = {name: np.array(values) for name, values in figures.items()}
  radius, distance = f["covering radius"], f["distance of average and combination"]
  falls = f["radius of 1 - radius of all"]
  differ = f["variation between classes"] - f["variation between halves of a class"]
  overlap = np.minimum(
    f["class pairs with intersecting hulls"], f["prototypes of several classes"]
  )
  return [
    results.claim(
      "pcc-bound",
      "distance(GAP, PCC) < mean distance to the prototypes < covering radius, for "
      "every image (least of both differences)",
      np.minimum(f["least of error - distance"], f["least of radius - error"]),
      paper="DML Prop. 4.2.1, corrected",
      every_seed=True,
    ),
    results.claim(
      "pcc-tight",
      "mean distance(GAP, PCC) < half the covering radius",
      radius / 2 - distance,
      paper="DML 4.3",
    ),
    results.claim(
      "hulls-overlap",
      "class hulls intersect and classes share prototypes (the smaller number)",
      overlap,
      paper="DML Fig. 4.3",
      every_seed=True,
    ),
    results.claim(
      "classes-differ",
      "histograms of two classes differ more than those of halves of a class",
      differ,
      paper="DML 4.3",
    ),
    results.claim(
      "k-centre",
      "the covering radius never rises with another prototype, and falls from the "
      "first to the last",
      np.where(f["largest rise of the radius"] <= 0, falls, -1),
      paper="DML Algorithm 2",
      every_seed=True,
    ),
  ]
