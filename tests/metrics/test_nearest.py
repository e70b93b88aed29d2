"""The nearest references, in the order of plain sorting."""

import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import metrics


def sorted_list(query, references, left_out):
  listed = []
  for j, reference in enumerate(references):
    apart = sum(
      (float(a) - float(b)) ** 2 for a, b in zip(query, reference, strict=True)
    )
    if j != left_out:
      listed.append((np.isnan(apart), 0 if np.isnan(apart) else apart, j))
  return [j for _, _, j in sorted(listed)]


def test_far_from_the_origin_the_order_is_that_of_the_differences():
  """Squares of lengths of 3e5 would leave nothing of distances of 1 in float32."""
  random = np.random.default_rng(0)
  x = (100 + 0.1 * random.normal(size=(300, 32))).astype(np.float32)
  wide = x.astype(np.float64)
  apart = ((wide[:, None] - wide[None]) ** 2).sum(2)
  np.fill_diagonal(apart, np.inf)
  found = metrics.nearest(x, x, k=5, exclude=np.arange(300))
  assert np.mean(np.asarray(found) == np.argsort(apart, axis=1)[:, :5]) > 0.995
  labels = np.argmax(wide[:, :4], axis=1)
  result = metrics.retrieval(x, labels)
  first = labels[apart.argmin(1)] == labels
  assert np.mean(np.asarray(result.precision_at_1) == first) > 0.99


def test_order_with_ties_and_nan():
  rng = np.random.default_rng(0)
  for _ in range(30):
    references = rng.integers(0, 3, (12, 2)).astype(np.float32)
    references[4] = np.nan
    rows = rng.permutation(12)[:5].astype(np.int32)
    found = metrics.nearest(references[rows], references, k=11, exclude=rows)
    for row, order in zip(rows, found, strict=True):
      assert order.tolist() == sorted_list(references[row], references, row)


def test_without_exclusion_the_nearest_is_itself():
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  found = metrics.nearest(x, x, k=1, block_size=4)
  np.testing.assert_array_equal(found[:, 0], np.arange(6))


def test_minus_one_excludes_nothing():
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  found = metrics.nearest(x, x, k=1, exclude=np.array([-1, 1, -1, 3, -1, 5]))
  np.testing.assert_array_equal(found[:, 0], [0, 0, 2, 2, 4, 4])


@pytest.mark.parametrize(
  ("distance", "expected"), [("dot", [2, 1, 0]), ("cosine", [0, 2, 1])]
)
def test_similarities_rank_the_largest_first(distance, expected):
  references = np.array([[1, 0], [2, 2], [5, 3]], np.float32)
  query = np.array([[1, 0]], np.float32)
  order = metrics.nearest(query, references, k=3, distance=distance)
  assert order[0].tolist() == expected


@pytest.mark.parametrize("index", [-2, 3])
def test_what_is_excluded_is_a_reference(index):
  x = jnp.eye(3)
  with pytest.raises(ValueError, match=rf"exclude must be in \[-1, 3\), got {index}"):
    metrics.nearest(x, x, k=1, exclude=jnp.array([0, index, -1]))
  found = metrics.nearest(x, x, k=1, exclude=jnp.array([0, -1, -1]))
  np.testing.assert_array_equal(found, [[1], [1], [2]])
