"""Numbers that are not finite, or whose squares are not, never give a loss of 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses, metrics, pooling, prototypes
from tests.losses.slopes import losses_of, values_of

LABELS = np.array([0, 0, 1, 1])
OF_PAIRS = losses_of("embeddings", "labels", "normalize", "references")


@pytest.mark.parametrize("name", sorted({*OF_PAIRS} - {"pair_counts"}))
def test_far_rows_of_one_class_and_a_row_of_nan_are_no_small_loss(name):
  # Of one class at two ends, those of the other class beside each other between them.
  rows = jnp.array([[1.0, 0], [-1, 0], [0, 1e-3], [0, 2e-3]])
  usual, far = (
    values_of(name, x, LABELS, normalize="none")[:2] for x in (100 * rows, 1e20 * rows)
  )
  assert not ((far == 0) & (usual != 0)).any(), "far rows"
  rows = jax.random.normal(jax.random.key(0), (6, 4))
  usual, broken = (
    values_of(name, x, np.array([0, 0, 1, 1, 2, 2]))
    for x in (rows, rows.at[4, 0].set(jnp.nan))
  )
  assert not ((broken == 0) & (usual != 0)).any(), "a row of NaN"


@pytest.mark.parametrize("power", [2.0**-90, 2.0**90])
def test_what_depends_on_no_scale_is_the_same_for_tiny_and_huge_rows(power):
  x, y = jax.random.normal(jax.random.key(0), (2, 4, 3))

  def quotients(x):
    return losses.signal_to_noise_contrastive(
      x, LABELS, normalize="none", mean_weight=0.0
    )

  np.testing.assert_array_equal(quotients(power * x), quotients(x))
  twins = losses.barlow_twins(power * x, power * y)
  np.testing.assert_array_equal(twins, losses.barlow_twins(x, y))


def test_tokens_whose_squares_overflow_are_directions():
  tokens = jnp.array([[[1e20, 0], [0, 3e38], [1, 1], [0.5, 0]]])
  points = jnp.array([[1.0, 0], [0.0, 1], [0.2, 0.1]])
  shares = pooling.dominant_prototypes(tokens, points)
  np.testing.assert_array_equal(shares, [[0, 1, 0, 2]])


def test_what_is_no_number_has_no_good_score():
  points, labels = jnp.array([[jnp.nan], [1.0], [2.0], [4.0]]), LABELS
  scores = metrics.separation(points, labels)
  np.testing.assert_array_equal(scores.nearest, [np.nan, 1, 1, 2])
  np.testing.assert_array_equal(scores.nearest_other_class, [np.nan, 1, 1, 3])
  with pytest.raises(ValueError, match="points must be finite, got nan"):
    metrics.best_accuracy(np.asarray(points), labels, np.array([0.1]))
  for k in (1, 2):
    classes = prototypes.nearest_neighbours(
      points, points[1:], labels[1:], num_classes=2, k=k
    )
    assert classes[0] == -1
    assert (classes[1:] >= 0).all()
  state = metrics.triangle_update(metrics.triangle_init(1), points)
  assert np.isnan(metrics.spectrum(state).values).all()
  pooled = prototypes.prototype_convex_combination(points[None], points[1:])
  assert np.isnan(pooled).all()
  assert np.isnan(prototypes.vector_prototypes(jnp.full((3, 3), jnp.nan), dim=2)).all()
