"""Matching of classes with prototypes: its objective, its invariances, its measures."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import metrics, prototypes

# All with four classes, five prototypes and three dimensions: one program each.
INIT = jax.jit(functools.partial(prototypes.assignment_init, num_classes=4))
ASSIGN = jax.jit(prototypes.assign_prototypes)
UPDATE = jax.jit(prototypes.assignment_update)
GAP = jax.jit(prototypes.sibling_gap)
SIMPLEX = (np.eye(5) - 0.2).astype(np.float32)  # rows of length below 1
CHOICES = np.array(list(itertools.permutations(range(5), 4)))


def of_choices(scores):
  """The sum of a class's score at its prototype, for each choice of prototypes."""
  return scores[np.arange(4), CHOICES].sum(1)


def unit_rows(*shape, seed):
  rows = np.random.default_rng(seed).normal(size=shape)
  return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def test_three_objectives_have_one_optimum_whatever_the_lengths():
  """The best likelihood, sum of cosines, and squared distances; by all choices."""
  rng = np.random.default_rng(0)
  for seed in range(100):
    m, p = unit_rows(4, 3, seed=[seed, 1]), unit_rows(5, 3, seed=[seed, 2])
    logits = m.astype(np.float64) @ p.T
    log_likelihood = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    squares = ((m[:, None].astype(np.float64) - p[None]) ** 2).sum(2)
    total = of_choices(logits)
    best = int(np.argmax(total))
    for scores in (log_likelihood, -squares):
      assert np.argmax(of_choices(scores)) == best
    lengths = rng.uniform(0.01, 100, (5, 1)).astype(np.float32)
    matched = ASSIGN(m * lengths[:4], p * lengths[::-1])
    assert matched.assignment.tolist() == CHOICES[best].tolist()
    np.testing.assert_allclose(-matched.cost, total[best], atol=1e-5)


def test_alternation_with_free_features_never_loses_alignment_and_comes_to_rest():
  p = unit_rows(5, 3, seed=5)
  for seed in range(5):
    state = INIT(jax.random.key(seed), p)
    rows = unit_rows(4, 3, seed=[seed, 6])
    before, changes = -1.0, []
    for _ in range(20):
      moving = state.representatives._replace(prototypes=jnp.asarray(rows))
      state = UPDATE(state._replace(representatives=moving), p)
      changes.append(float(state.change))
      own = p[np.asarray(state.assignment)]
      now = float(np.mean(np.sum(rows * own, axis=1)))
      assert now >= before - 1e-6
      before = now
      rows = 0.8 * rows + 0.2 * own  # toward its prototype
      rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert changes[0] > 0
    assert changes[-5:] == [0] * 5
    assert before > 0.95


def test_update_takes_the_directions_of_sums_and_counts_the_changes():
  p = unit_rows(5, 3, seed=8)
  state = INIT(jax.random.key(0), p)
  assert state.assignment.shape == (4,)
  assert state.column_dual.shape == (5,)
  matched = ASSIGN(state.representatives.prototypes, p).assignment
  np.testing.assert_array_equal(state.assignment, matched)
  close = functools.partial(np.testing.assert_allclose, atol=1e-6)
  jax.tree.map(close, UPDATE(state, p), state)
  # Class 2 has no sample, class 1 has two.
  sums = 3 * p[[4, 2, 2, 0]] * np.float32([[1], [2], [0], [1]])
  sums = state.sums._replace(sums=sums, counts=np.int32([1, 2, 0, 1]))
  new = UPDATE(state._replace(sums=sums), p)
  rows = np.asarray(new.representatives.prototypes)
  np.testing.assert_allclose(rows[[0, 1, 3]], p[[4, 2, 0]], atol=1e-6)
  np.testing.assert_array_equal(rows[2], state.representatives.prototypes[2])
  np.testing.assert_array_equal(new.representatives.seen, [True, True, False, True])
  assert not new.sums.sums.any()
  assert not new.sums.counts.any()
  np.testing.assert_array_equal(new.assignment, ASSIGN(rows, p).assignment)
  assert new.change > 0
  np.testing.assert_allclose(new.change, np.mean(new.assignment != state.assignment))


def test_sibling_gap_and_zero_for_every_assignment_of_a_simplex():
  groups = np.array([0, 0, 1, 1, 1])
  p = 2 * unit_rows(5, 5, seed=9)
  assignment = np.array([3, 1, 0, 2, 4])
  rows = p[assignment].astype(np.float64)
  rows /= np.linalg.norm(rows, axis=1, keepdims=True)
  cosines, same = rows @ rows.T, groups[:, None] == groups[None]
  expected = cosines[same & ~np.eye(5, dtype=bool)].mean() - cosines[~same].mean()
  np.testing.assert_allclose(GAP(p, assignment, groups), expected, atol=1e-6)
  for chosen in itertools.islice(itertools.permutations(range(5)), 0, 120, 7):
    assert abs(GAP(SIMPLEX, np.array(chosen), groups)) < 1e-6
  assert np.isnan(GAP(p, assignment, np.zeros(5, int)))
  assert np.isnan(GAP(p, assignment, np.arange(5)))


def test_change_and_alignment_by_hand():
  change = jax.jit(prototypes.assignment_change)
  assert float(change(np.array([2, 0, 1, 3]), np.array([2, 1, 0, 3]))) == 0.5
  m, p = np.float32([[3, 4], [0, 2]]), np.float32([[5, 0], [0, 5]])
  value = jax.jit(prototypes.assignment_alignment)(m, p, np.array([1, 0]))
  np.testing.assert_allclose(value, 0.4)


def test_prediction_is_the_nearest_assigned_prototype_and_the_lowest_class_of_a_tie():
  p = np.array([[0, 1], [1, 0], [1, 0], [-1, 0]], np.float32)
  z = np.array([[2, 1], [-1, 0.5], [0, 0.1]], np.float32)
  for assignment, expected in (([3, 2, 1, 0], [1, 0, 3]), ([1, 0, 3, 2], [0, 2, 1])):
    best = metrics.nearest(z, p[np.array(assignment)], k=1, distance="cosine")
    assert best[:, 0].tolist() == expected


def test_what_is_not_finite_is_refused_or_matches_nothing():
  p = np.eye(3, dtype=np.float32)
  m = p[::-1].copy()
  m[1, 0] = np.nan
  far = p.copy()
  far[0, 0] = np.inf
  with pytest.raises(ValueError, match="representatives must be finite, got nan"):
    prototypes.assign_prototypes(m, p)
  with pytest.raises(ValueError, match="prototypes must be finite, got inf"):
    prototypes.assign_prototypes(p, far)
  assert np.isnan(ASSIGN(m, p).cost)
  state = jax.jit(prototypes.assignment_init)(jax.random.key(0), p)
  rows = p[np.asarray(state.assignment)][::-1]
  moved = state.representatives._replace(prototypes=rows)
  matched = UPDATE(state._replace(representatives=moved), p)
  assert matched.change > 0
  rows = rows.copy()
  rows[1, 0] = np.nan
  lost = moved._replace(prototypes=rows)
  kept = UPDATE(matched._replace(representatives=lost), p)
  np.testing.assert_array_equal(kept.assignment, matched.assignment)
  np.testing.assert_array_equal(kept.column_dual, matched.column_dual)
  assert np.isnan(kept.change)
  again = UPDATE(kept._replace(representatives=moved), p)
  np.testing.assert_array_equal(again.assignment, matched.assignment)
  assert again.change == 0


def test_the_matching_is_not_the_one_of_least_loss():
  """Three samples about each representative; the pull loss by all choices."""
  rng, worse = np.random.default_rng(0), 0
  for seed in range(200):
    p = unit_rows(5, 3, seed=[seed, 7])
    z = unit_rows(4, 1, 3, seed=[seed, 8]) + 0.3 * rng.normal(size=(4, 3, 3))
    z /= np.linalg.norm(z, axis=2, keepdims=True)
    m = z.sum(1)
    losses = (0.5 * (1 - z @ p.T.astype(np.float64)) ** 2).sum(1)
    matched = np.asarray(ASSIGN(m.astype(np.float32), p).assignment)
    worse += losses[np.arange(4), matched].sum() > of_choices(losses).min() + 1e-6
  assert 0.12 < worse / 200 < 0.3
