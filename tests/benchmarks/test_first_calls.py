"""Programs that compile fast: none of the losses of the benchmark is a large one."""

import pytest

from benchmarks import _peers, first_calls

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
