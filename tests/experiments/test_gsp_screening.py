"""The screening as a user runs it, and its design against the paper's."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from experiments import _screening_design, gsp_screening


@pytest.mark.data
def test_smoke(tmp_path, tfds_dir):
  command = [sys.executable, "-m", "experiments.gsp_screening", "--preset", "smoke"]
  done = subprocess.run(
    [*command, "--output", str(tmp_path)],
    capture_output=True,
    text=True,
    check=False,
    env=os.environ | {"TFDS_DATA_DIR": str(tfds_dir)},
  )
  assert done.returncode == 0, done.stderr
  content = json.loads((tmp_path / "results.json").read_text())
  values = np.array([row["values"] for row in content["rows"]])
  assert values.shape == (2, 2)  # two inverse temperatures, two seeds
  assert (values[0] != values[1]).all()  # which the scores depend on
  (claim,) = content["claims"]
  assert (claim["id"], claim["verdict"]) == ("screen-design", "reproduced")
  assert (tmp_path / "grid-c2.png").read_bytes().startswith(b"\x89PNG")


def test_the_design_is_the_papers():
  ours = {tuple(run) for run in _screening_design.runs_of_design()}
  assert ours == {tuple(row) for row in _screening_design.TABLE[:, :4].tolist()}
  effects = _screening_design.published()
  word = ("prototypes", "mass")
  assert _screening_design.label(word, effects[word]) == "m*mu = beta*lambda"
  assert set(_screening_design.BY_HAND) < set(effects)


def test_every_cell_that_is_read_is_trained():
  config = gsp_screening.PRESETS["cpu"]
  cells = gsp_screening.cells_of(config)
  scores = {
    (number, *cell): np.full(5, number + sum(cell))
    for number, found in cells.items()
    for cell in found
  }
  assert len(scores) == sum(map(len, cells.values()))  # none twice
  apart = {cell: np.zeros(5) for cell in scores}
  effects = _screening_design.screened(scores)
  names = [
    claim["id"]
    for claim in gsp_screening.claims(config, "PNCA", effects, scores, apart)
  ]
  assert names == [
    "screen-beta-pnca",
    "mu-sweep-pnca",
    "mu-sweep-average-pnca",
    "m-flat-pnca",
  ]
  rows = gsp_screening.table("PNCA", effects, scores)
  paper = [row["paper"] for row in rows if "effect of beta" in row["name"]]
  assert paper[0] == -0.68
