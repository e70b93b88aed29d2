"""Numbers that are not finite, or whose squares are not, never give a loss of 0."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses, metrics, pooling, prototypes

LABELS = np.array([0, 0, 1, 1])
PAIRS = [
  name
  for name, function in inspect.getmembers(losses, inspect.isfunction)
  if {"embeddings", "labels", "normalize", "references"}
  <= inspect.signature(function).parameters.keys()
]


@pytest.mark.parametrize("name", sorted({*PAIRS} - {"pair_counts"}))
def test_far_rows_of_one_class_are_no_small_loss(name):
  # Of one class at two ends, those of the other class beside each other between them.
  rows = jnp.array([[1.0, 0], [-1, 0], [0, 1e-3], [0, 2e-3]])
  rest = (jnp.zeros(5),) if name == "dynamic_soft_margin" else ()
  usual, found = (
    jax.tree.leaves(getattr(losses, name)(x, LABELS, *rest, normalize="none"))[0]
    for x in (100 * rows, 1e20 * rows)
  )
  assert not ((found[:2] == 0) & (usual[:2] != 0)).any()


@pytest.mark.parametrize("name", sorted({*PAIRS} - {"pair_counts"}))
def test_a_row_of_nan_is_no_small_loss(name):
  rows = jax.random.normal(jax.random.key(0), (6, 4))
  labels = np.array([0, 0, 1, 1, 2, 2])
  rest = (jnp.zeros(5),) if name == "dynamic_soft_margin" else ()
  usual, found = (
    jax.tree.leaves(getattr(losses, name)(x, labels, *rest))[0]
    for x in (rows, rows.at[4, 0].set(jnp.nan))
  )
  assert not ((found == 0) & (usual != 0)).any()


def test_tokens_whose_squares_overflow_are_directions():
  tokens = jnp.array([[[1e20, 0], [0, 3e38], [1, 1], [0.5, 0]]])
  points = jnp.array([[1.0, 0], [0.0, 1], [0.2, 0.1]])
  shares = pooling.dominant_prototypes(tokens, points)
  np.testing.assert_array_equal(shares, [[0, 1, 0, 2]])


def test_what_is_no_number_has_no_good_score():
  points, labels = jnp.array([[jnp.nan], [1.0], [2.0], [4.0]]), np.array([0, 0, 1, 1])
  found = metrics.separation(points, labels)
  np.testing.assert_array_equal(found.nearest, [np.nan, 1, 1, 2])
  np.testing.assert_array_equal(found.nearest_other_class, [np.nan, 1, 1, 3])
  with pytest.raises(ValueError, match="points must be finite, got nan"):
    metrics.best_accuracy(np.asarray(points), labels, np.array([0.1]))
  for k in (1, 2):
    found = prototypes.nearest_neighbours(
      points, points[1:], labels[1:], num_classes=2, k=k
    )
    assert found[0] == -1
    assert (found[1:] >= 0).all()
  state = metrics.triangle_update(metrics.triangle_init(1), points)
  assert np.isnan(metrics.spectrum(state).values).all()
  pooled = prototypes.prototype_convex_combination(points[None], points[1:])
  assert np.isnan(pooled).all()
  assert np.isnan(prototypes.vector_prototypes(jnp.full((3, 3), jnp.nan), dim=2)).all()
