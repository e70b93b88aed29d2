"""Batches for the tests of the losses."""

import pytest

from tests.losses.cases._frame import LABELS, draw_embeddings


@pytest.fixture
def mixed():
  """Ten rows of four entries with classes of four, three, two and one."""
  return draw_embeddings(1, 10, 4), LABELS
