"""Batches for the tests of the losses."""

import numpy as np
import pytest

LABELS = np.array([0, 3, 0, 1, 0, 1, 5, 0, 1, 3], np.int32)  # class 5: one row


def _embeddings(seed, count, dim):
  generator = np.random.default_rng(seed)
  x = generator.normal(size=(count, dim))
  lengths = generator.permutation(np.linspace(0.3, 2, count))[:, None]
  return x / np.sqrt((x * x).sum(1, keepdims=True)) * lengths


@pytest.fixture(scope="session")
def embeddings():
  """A function (seed, count, dim) of float64 rows with lengths from 0.3 to 2."""
  return _embeddings


@pytest.fixture
def mixed():
  """Ten rows of four entries with classes of four, three, two and one."""
  return _embeddings(1, 10, 4), LABELS
