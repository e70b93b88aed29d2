"""Parts of benchmarks that their smallest runs leave out."""

import json
import subprocess
import sys

import pytest

from benchmarks import step


@pytest.mark.slow
def test_a_damaged_picture_ends_in_a_message_and_a_repaired_one_in_the_same_results(
  tmp_path,
):
  file = tmp_path / "drill.json"
  command = [sys.executable, "-m", "benchmarks.drill", "--only", "picture"]
  done = subprocess.run(
    [*command, "--json", str(file)], capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr
  (row,) = json.loads(file.read_text())["rows"]
  assert row["equal"]
  assert row["place"] in row["said"]


@pytest.mark.slow
def test_steps_of_four_devices_and_of_two_processes_have_the_same_losses():
  assert 0 < step.check_devices() <= step.SAME
