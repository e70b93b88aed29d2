"""Batches for the tests of the losses."""

import pytest

from tests.losses.cases._frame import LABELS, draw_embeddings


@pytest.fixture(scope="session")
def embeddings():
  """A function (seed, count, dim) of float64 rows with lengths from 0.3 to 2."""
  return draw_embeddings


@pytest.fixture
def mixed():
  """Ten rows of four entries with classes of four, three, two and one."""
  return draw_embeddings(1, 10, 4), LABELS
