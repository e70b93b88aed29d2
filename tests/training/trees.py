"""Trees of arrays and random keys, compared bit by bit."""

import jax

from tests.training.resumable_run import arrays


def bits(tree):
  """Bytes of every array by its path, of which no two may be the same."""
  content = {path: array.tobytes() for path, array in arrays(tree).items()}
  assert len(content) == len(jax.tree.leaves(tree))
  return content


def assert_same(actual, expected):
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  for new, old in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    assert (new.dtype, new.shape) == (old.dtype, old.shape)
  assert bits(actual) == bits(expected)
