"""Parts of benchmarks that their smallest runs leave out."""

import pytest

from benchmarks import _peers, first_calls, step
from tests.benchmarks.test_gsp import rows_of


@pytest.mark.slow
def test_a_damaged_picture_is_named_and_a_repaired_one_gives_the_same(tmp_path):
  (row,) = rows_of("drill", tmp_path, "--only", "picture")
  assert row["equal"]
  assert row["place"] in row["said"]


@pytest.mark.slow
def test_steps_of_four_devices_and_of_two_processes_have_the_same_losses():
  assert 0 < step.check_devices() <= step.SAME


LARGEST = 1600
"""Operations of value and gradient, before XLA makes it smaller."""


@pytest.mark.slow
@pytest.mark.peer
# The peer's own dealings with newer versions of NumPy.
@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
def test_the_program_of_every_loss_is_small():
  sizes = {name: first_calls.operations(name) for name in _peers.PEERS}
  assert {name: size for name, size in sizes.items() if size > LARGEST} == {}
  assert sizes["contrastive"] > 100
