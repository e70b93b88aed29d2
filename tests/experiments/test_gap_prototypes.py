"""Average pooling and prototypes, on an untrained network and on chosen features."""

import dataclasses
import json

import numpy as np
import pytest

from experiments import gap_prototypes
from experiments.frame import images, results
from experiments.frame.study import Table
from experiments.gsp import gap
from spherejax import plotting


@pytest.mark.slow
def test_the_smoke_preset_obeys_the_bound(tmp_path, tfds_dir):
  config = gap_prototypes.PRESETS["smoke"]
  content = gap_prototypes.STUDY.run(config, tmp_path, "smoke")
  results.write_json(content, tmp_path / "results.json")
  content = json.loads((tmp_path / "results.json").read_text())
  claims = {claim["id"]: claim for claim in content["claims"]}
  assert list(claims) == [
    "pcc-bound",
    "pcc-tight",
    "hulls-overlap",
    "classes-differ",
    "k-centre",
  ]
  for name in ("pcc-bound", "hulls-overlap", "k-centre"):
    assert claims[name]["verdict"] == "reproduced"
  figures = {row["metric"]: row["values"][0] for row in content["rows"]}
  assert 0 < figures["largest such distance"] < figures["covering radius"] < 1
  assert content["pictures"] == ["cells.png", "hulls.png", "singles.png", "radius.png"]
  for picture in content["pictures"]:
    assert (tmp_path / picture).stat().st_size <= 300_000


@pytest.mark.slow
def test_the_full_preset_makes_steps_on_few_photographs(
  tmp_path, tfds_dir, few_photographs, monkeypatch
):
  monkeypatch.setattr(plotting, "save", lambda figure, path: path)
  full = gap_prototypes.PRESETS["full"]
  config = dataclasses.replace(
    full, images=4, blocks=1, batch_classes=4, **few_photographs
  )
  content = gap_prototypes.STUDY.run(config, tmp_path, "full")
  claims = {claim["id"]: claim for claim in content["claims"]}
  assert claims["pcc-bound"]["verdict"] == "reproduced"  # of any network
  for row in content["rows"]:
    assert np.isfinite(row["values"]).all(), row


def test_figures_of_features_whose_answer_is_known():
  # Two images a class; the classes of even number live on one side of the plane.
  side = np.where(np.arange(10) % 2, 1.0, -1.0)
  maps = np.zeros((20, 2, 1, 2), np.float32)
  maps[..., 0] = np.repeat(side, 2)[:, None, None]
  maps[:, 0, 0, 1], maps[:, 1, 0, 1] = 0.5, -0.5
  labels = np.repeat(np.arange(10), 2)
  found = gap.study(3 * maps, labels, 4)
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


def test_claims_of_figures_that_are_known():
  figures = {
    "covering radius": [1.0, 0.5],
    "distance of average and combination": [0.2, 0.3],
    "least of error - distance": [0.1, 0.3],
    "least of radius - error": [0.2, -0.1],
    "class pairs with intersecting hulls": [3, 40],
    "prototypes of several classes": [7, 5],
    "variation between classes": [0.5, 0.2],
    "variation between halves of a class": [0.1, 0.4],
    "radius of 1 - radius of all": [0.8, 0.9],
    "largest rise of the radius": [0.0, 0.1],
  }
  table = Table()
  for measure, values in figures.items():
    table.add("GAP", measure, values)
  claims = gap_prototypes.STUDY.claimed(table, gap_prototypes.PRESETS["cpu"])
  assert {claim["id"]: claim["values"] for claim in claims} == {
    "pcc-bound": pytest.approx([0.1, -0.1]),
    "pcc-tight": pytest.approx([0.3, -0.05]),
    "hulls-overlap": [3, 5],
    "classes-differ": pytest.approx([0.4, -0.2]),
    "k-centre": [0.8, -1],
  }


def test_missing_images_are_named(monkeypatch, tmp_path):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  with pytest.raises(SystemExit, match="no image set 'cifar10' in"):
    images.read("cifar10", "train", size=16)
  monkeypatch.delenv("TFDS_DATA_DIR")
  with pytest.raises(SystemExit, match="TFDS_DATA_DIR is not set"):
    images.read("cifar10", "train", size=16)
