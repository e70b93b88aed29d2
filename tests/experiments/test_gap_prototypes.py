"""Average pooling and prototypes, on an untrained network and on chosen features."""

import numpy as np
import pytest

from experiments import gap_prototypes
from experiments.frame.study import Table
from experiments.gsp import gap


@pytest.mark.slow
def test_the_smoke_preset_obeys_the_bound(tfds_dir, smoke):
  verdicts = {claim["id"]: claim["verdict"] for claim in smoke.content["claims"]}
  assert {"pcc-tight", "classes-differ"} < {*verdicts}
  for name in ("pcc-bound", "hulls-overlap", "k-centre"):
    assert verdicts[name] == "reproduced"
  radius = smoke.figures["GAP", "covering radius"]
  assert 0 < smoke.figures["GAP", "largest such distance"] < radius < 1
  assert smoke.content["pictures"] == [
    "cells.png", "hulls.png", "singles.png", "radius.png"
  ]  # fmt: skip


@pytest.mark.slow
def test_the_full_preset_makes_steps_on_few_photographs(few_photographs):
  content = few_photographs(gap_prototypes, images=4)
  claims = {claim["id"]: claim for claim in content["claims"]}
  assert claims["pcc-bound"]["verdict"] == "reproduced"  # of any network


def test_figures_of_features_whose_answer_is_known():
  # Two images a class; the classes of even number live on one side of the plane.
  side = np.where(np.arange(10) % 2, 1.0, -1.0)
  maps = np.zeros((20, 2, 1, 2), np.float32)
  maps[..., 0] = np.repeat(side, 2)[:, None, None]
  maps[:, 0, 0, 1], maps[:, 1, 0, 1] = 0.5, -0.5
  found = gap.study(3 * maps, np.repeat(np.arange(10), 2), 4)
  np.testing.assert_allclose(np.linalg.norm(found.features, axis=2), 1, rtol=1e-6)
  figures = gap.measure(found, 0)
  assert figures["covering radius"] == 0
  assert figures["distance of average and combination"] == pytest.approx(0, abs=1e-7)
  assert figures["class pairs with intersecting hulls"] == 2 * 10
  apart = 25 / 45 * 2 / 1.25**0.5  # of classes on different sides
  assert figures["mean distance of two class hulls"] == pytest.approx(apart, rel=1e-6)
  assert figures["prototypes of several classes"] == 4
  assert figures["prototypes of a class"] == 2
  assert figures["variation between classes"] == pytest.approx(25 / 45)
  assert figures["variation between halves of a class"] == 0


def test_the_smaller_of_two_differences_is_claimed():
  table = Table()
  for measure, values in (
    ("least of error - distance", [0.1, 0.3]), ("least of radius - error", [0.2, -0.1]),
    ("class pairs with intersecting hulls", [3, 40]),
    ("prototypes of several classes", [7, 5]),
  ):  # fmt: skip
    table.add("GAP", measure, values)
  claims = gap_prototypes.STUDY.claimed(table, gap_prototypes.PRESETS["cpu"])
  values = {claim["id"]: claim["values"] for claim in claims}
  assert values == {"pcc-bound": [0.1, -0.1], "hulls-overlap": [3, 5]}
