"""Programs of the tutorials that no doctest runs."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np

import spherejax
from tests import tutorials


def test_the_program_of_a_million_references_counts_as_by_hand(tmp_path):
  (program,) = (
    x for x in tutorials.programs("million_references.md") if "argparse" in x
  )
  kept = tmp_path / "kept.npz"
  # Stores the arrays, to count without the library.
  program += f"np.savez({str(kept)!r}, q=queries, r=references, l=labels, a=asked)\n"
  path = tmp_path / "million.py"
  path.write_text(program)
  options = ("--references", "2000", "--queries", "50", "--block", "16")
  ended = subprocess.run(
    [sys.executable, path, *options],
    env=os.environ | {"PYTHONPATH": str(pathlib.Path(spherejax.__file__).parents[1])},
    capture_output=True,
    text=True,
    check=True,
    timeout=120,
  )
  said = [float(x) for x in re.findall(r"s, MAP@R (\d\.\d{3})$", ended.stdout, re.M)]
  peak = float(re.search(r"^peak: (\d+\.\d) GiB$", ended.stdout, re.M)[1])
  assert peak >= 0.1  # the peak includes the memory before the search
  with np.load(kept) as found:
    scores = found["q"].astype(np.float64) @ found["r"].T
    same = found["l"][found["a"]][:, None] == found["l"]
  assert scores.shape == (50, 2000)
  assert set(same.sum(1)) == {10}
  first = np.take_along_axis(same, np.argsort(-scores, axis=1)[:, :10], axis=1)
  precision = np.cumsum(first, axis=1) / np.arange(1, 11)
  expected = (precision * first).mean()
  assert expected < 0.999  # some are missed
  np.testing.assert_allclose(said, [expected] * 2, atol=6e-4)


def test_what_spreads_over_devices_is_tested_where_the_page_says():
  root = pathlib.Path(__file__).parents[1]
  page = (root / "docs/tutorials/devices_and_hosts.md").read_text()
  table = page.split("## What spreads")[1].split("\n\n")[1].splitlines()[2:]
  assert table
  for row in table:
    path, name = re.search(r"\| `(\S+)::(\w+)` \|$", row).groups()
    assert f"def {name}(" in (root / path).read_text(), row
