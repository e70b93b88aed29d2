"""The study of assignments as a user runs it, and the paper's presets on stand-ins."""

import json

import numpy as np
import pytest

from experiments import (
  dynamic_assignment,
)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
  folder = tmp_path_factory.mktemp("dynamic")
  preset = dynamic_assignment.PRESETS["smoke"]
  return folder, dynamic_assignment.run(preset, folder, "smoke")


def test_matching_again_brings_related_classes_together(smoke):
  folder, content = smoke
  rows = {(row["name"], row["metric"]): row["values"] for row in content["rows"]}
  where = "superclass, linear, D = 3"
  gap = {name: rows[name, f"sibling gap, {where}"] for name in ("DL2P", "Static")}
  assert np.min(np.subtract(gap["DL2P"], gap["Static"])) > 0.1
  assert np.min(gap["DL2P"]) > 0.3
  accuracy = {n: np.mean(rows[n, f"accuracy, {where}"]) for n in ("DL2P", "Static")}
  assert accuracy["DL2P"] > accuracy["Static"] + 0.05 > 0.15
  assert len(gap["DL2P"]) == 3
  verdicts = {claim["id"]: claim["verdict"] for claim in content["claims"]}
  assert verdicts["P1-closed"] == verdicts["P1-descent"] == "reproduced"
  assert verdicts["P2"] == verdicts["A3-d3"] == "reproduced"
  assert content["pictures"] == [
    "matrix.png", "prototypes.png", "cosines.png", "accuracy.png", "changes.png"
  ]  # fmt: skip
  for picture in content["pictures"]:
    assert (folder / picture).read_bytes().startswith(b"\x89PNG")
  json.dumps(content)


def test_the_same_command_gives_the_same_numbers_from_its_checkpoints(smoke):
  folder, content = smoke
  again = dynamic_assignment.part_b(dynamic_assignment.PRESETS["smoke"], folder)
  for study in again:
    for name, dim in study.methods():
      metric = f"accuracy, {study.name}, D = {dim}"
      (row,) = (
        row for row in content["rows"] if (row["name"], row["metric"]) == (name, metric)
      )
      np.testing.assert_array_equal(study.runs.accuracy(name, dim), row["values"])
