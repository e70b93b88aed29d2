"""What the smallest runs of benchmarks leave out."""

import pytest

from benchmarks import drill, step


@pytest.mark.slow
def test_a_damaged_picture_ends_in_a_message_and_a_repaired_one_in_the_same_results(
  tmp_path,
):
  (row,) = drill.picture(tmp_path)
  assert row.equal
  assert row.place in row.said


@pytest.mark.slow
def test_steps_of_four_devices_and_of_two_processes_have_the_same_losses():
  assert 0 < step.check_devices() <= step.SAME
