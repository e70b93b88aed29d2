"""Losses over trees and distances of classes: examples, identities, wrong calls."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses
from tests import refusals
from tests.losses.cases._parts import distance, matrix_of
from tests.losses.slopes import with_slopes

# a/x/{0, 1}, a/y/2, b/3, b/z/w/4, in the order root a x 0 1 y 2 b 3 z w 4.
TREE = np.zeros((5, 12), bool)
for row, nodes in enumerate(
  [[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 5, 6], [0, 7, 8], [0, 7, 9, 10, 11]]
):
  TREE[row, nodes] = True
APART = (TREE[:, None] ^ TREE[None]).sum(-1)
LOGITS = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
POINTS = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
EVERY = np.arange(5)


def cross_entropy(logits):
  return -np.diagonal(jax.nn.log_softmax(logits, axis=1))


@pytest.mark.parametrize(
  ("discount", "expected"), [("height", [2.968, 1.375]), ("depth", [0.683, 1.628])]
)
def test_depth_makes_near_mistakes_cheap_and_height_the_converse(discount, expected):
  loss = functools.partial(losses.hierarchical_cross_entropy, discount=discount)
  mistakes = np.log([[0.05, 0.9, 0.02, 0.02, 0.01], [0.05, 0.02, 0.02, 0.9, 0.01]])
  # As an argument of a compiled function the tree is traced.
  values = jax.jit(loss)(mistakes.astype(np.float32), np.zeros(2, int), TREE, alpha=0.5)
  np.testing.assert_allclose(values, expected, atol=5e-4)


def test_a_traced_tree_gives_what_a_known_one_does():
  def both(tree, logits, more):
    hxe = losses.hierarchical_cross_entropy(
      logits, EVERY, tree, alpha=0.3, discount="height", normalize_weights=True
    )
    return hxe, losses.conditional_softmax(more, EVERY, tree)

  more = np.random.default_rng(2).normal(size=(5, 12)).astype(np.float32)
  expected = jax.jit(functools.partial(both, TREE))(LOGITS, more)
  np.testing.assert_allclose(jax.jit(both)(TREE, LOGITS, more), expected, rtol=1e-6)


def test_without_discount_it_is_cross_entropy_and_the_gradient_adds_to_zero(x64):
  loss = with_slopes(
    lambda z, alpha: losses.hierarchical_cross_entropy(z, EVERY, TREE, alpha=alpha)
  )
  logits = LOGITS.astype(float)
  np.testing.assert_allclose(loss(logits, 0.0)[0], cross_entropy(logits), rtol=1e-12)
  values, slopes = loss(logits, 0.6)
  np.testing.assert_allclose(slopes.sum(1), 0, atol=1e-14)
  # What cannot be has an infinite loss and no gradient; what need not be counts 0.
  with_zeros = logits.copy()
  with_zeros[0, 0] = with_zeros[1, 2] = -np.inf
  changed, slopes = loss(with_zeros, 0.6)
  assert changed[0] == np.inf
  assert changed[1] < values[1]
  np.testing.assert_array_equal(slopes[0], 0)
  assert np.isfinite(slopes).all()


def test_conditional_log_probabilities_are_those_of_the_loss(x64):
  rng = np.random.default_rng(4)
  logits = rng.normal(size=(6, 12)) * 4
  logits[1] = 0  # every sibling is the largest
  logits[2] += 1e4  # what all have in common does not count

  def of_loss(z):
    labels = jnp.broadcast_to(EVERY[:, None], (5, 6))
    loss = functools.partial(losses.conditional_softmax, z, ancestors=TREE)
    return -jax.vmap(loss, out_axes=1)(labels)

  def direct(z):
    return losses.conditional_log_probabilities(z, TREE)

  weights = rng.normal(size=(6, 5))

  def slopes(function):
    return with_slopes(lambda z: weights * function(z))(logits)[1]

  logs = direct(logits)
  np.testing.assert_allclose(logs, jax.jit(of_loss)(logits), rtol=1e-11, atol=1e-11)
  np.testing.assert_allclose(slopes(direct), slopes(of_loss), rtol=1e-11, atol=1e-13)
  np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1, rtol=1e-12)
  np.testing.assert_array_equal(logs, jax.jit(direct)(logits))


def test_conditional_log_probabilities_keep_their_digits_and_zeros():
  """In float32 a sure class is less than one by what the others leave."""
  root_and_three = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]], bool)
  call = jax.jit(lambda z: losses.conditional_log_probabilities(z, root_and_three))
  sure = call(np.array([[0.0, 30.0, 0.0, 0.0]], np.float32))[0]
  np.testing.assert_allclose(sure, [-2 * np.exp(-30.0), -30, -30], rtol=1e-6)
  out = call(np.array([[0.0, 1.0, -np.inf, 1.0]], np.float32))[0]
  np.testing.assert_allclose(out, [-np.log(2), -np.inf, -np.log(2)], rtol=1e-6)
  slopes = jax.grad(lambda z: call(z)[0, 0])(np.float32([[0, 1, -np.inf, 1]]))
  np.testing.assert_allclose(slopes, [[0, 0.5, 0, -0.5]], rtol=1e-6)


def log_conditionals(logits, tree, above):
  """[classes] in float64; `above` gives the parent of each node but the root."""
  steps = np.zeros(len(logits))
  for node, parent in above.items():
    siblings = [v for v in above if above[v] == parent and logits[v] > -np.inf]
    total = np.log(sum(np.exp(logits[v]) for v in siblings)) if siblings else 0
    steps[node] = logits[node] - total
  return np.array([steps[path].sum() for path in tree])


@pytest.mark.parametrize(
  ("out", "impossible"),
  [
    ([1, 2, 3], [0, 1]), ([2, 3], [0, 1]), ([3], [1]), ([1], [0, 1]), ([0, 8], [4]),
    ([7, 8], [4]), ([1, 4, 7], [0, 1, 2, 3, 4]),
  ],
)  # fmt: skip
def test_what_cannot_be_has_an_infinite_loss_and_changes_no_other_class(
  out, impossible
):
  # root / (animal / (cat, dog), car / (suv, van), plant / tree)
  above = {1: 0, 2: 1, 3: 1, 4: 0, 5: 4, 6: 4, 7: 0, 8: 7}
  tree = np.zeros((5, 9), bool)
  for row, leaf in enumerate([2, 3, 5, 6, 8]):
    tree[row, [0, above[leaf], leaf]] = True
  logits = np.random.default_rng(5).normal(size=9)
  logits[out] = -np.inf
  expected = log_conditionals(logits, tree, above)
  assert np.flatnonzero(np.isinf(expected)).tolist() == impossible
  rows = np.tile(logits, (5, 1)).astype(np.float32)
  loss = with_slopes(lambda z: losses.conditional_softmax(z, EVERY, tree))
  values, slopes = loss(rows)
  np.testing.assert_allclose(values, -expected, rtol=1e-5, atol=1e-6)
  assert np.isfinite(slopes).all()
  np.testing.assert_array_equal(slopes[np.array(impossible)], 0)
  logs = functools.partial(losses.conditional_log_probabilities, ancestors=tree)
  np.testing.assert_allclose(logs(rows)[0], expected, rtol=1e-5, atol=1e-6)
  _, of_entries = with_slopes(lambda z: -jnp.diagonal(logs(z)))(rows)
  np.testing.assert_allclose(of_entries, slopes, rtol=1e-5, atol=1e-6)


def test_soft_labels_are_the_optimum_and_harden(x64):
  loss = with_slopes(
    lambda z, beta: losses.soft_label_cross_entropy(z, EVERY, APART, beta=beta)
  )
  logits = LOGITS.astype(float)
  np.testing.assert_allclose(loss(logits, 1e3)[0], cross_entropy(logits), rtol=1e-12)
  # A class that is ruled out and whose target underflows adds nothing.
  fewer = np.where(np.equal(APART, APART.max()), -np.inf, logits)
  values, slopes = loss(fewer, 1e3)
  np.testing.assert_allclose(values, cross_entropy(fewer), rtol=1e-12)
  probabilities = np.exp(fewer) / np.exp(fewer).sum(1, keepdims=True)
  np.testing.assert_allclose(slopes, probabilities - np.eye(5), atol=1e-15)
  best = -6 * APART / APART.max()
  least, slopes = loss(best, 6.0)
  np.testing.assert_allclose(slopes, 0, atol=1e-15)
  q = np.exp(best) / np.exp(best).sum(1, keepdims=True)
  np.testing.assert_allclose(least, -(q * np.log(q)).sum(1), rtol=1e-12)


def test_soft_labels_divide_the_distances_by_the_largest(x64):
  printed = np.exp(-0.7 * APART)
  printed /= printed.sum(1, keepdims=True)
  expected = -(printed * np.asarray(jax.nn.log_softmax(LOGITS, axis=1))).sum(1)
  for beta, same in [(0.7 * APART.max(), True), (0.7, False)]:
    values = losses.soft_label_cross_entropy(LOGITS, EVERY, APART, beta=beta)
    assert np.allclose(values, expected, rtol=1e-6) == same


def test_distortion_closed_form_scale_and_optimum(x64):
  points, off = POINTS.astype(float), ~np.eye(5, dtype=bool)
  ratios = matrix_of(distance, points, points, "none")[off] / APART[off]
  closed = 1 - ratios.sum() ** 2 / (20 * (ratios**2).sum())
  best = ratios.sum() / (ratios**2).sum()
  loss = with_slopes(lambda x: losses.distortion(x, APART))
  np.testing.assert_allclose(loss(points)[0].mean(), closed, rtol=1e-12)
  for scale in (0.99 * best, 1.01 * best):
    assert losses.distortion(points, APART, scale=scale).mean() > closed
  values, slopes = loss(np.ones((5, 3)))
  np.testing.assert_allclose(values, 1)
  np.testing.assert_array_equal(slopes, 0)
  proportional = jax.jit(losses.distortion_from_distance)(3.0 * APART, APART)
  np.testing.assert_allclose(proportional, 0, atol=1e-30)


@with_slopes
def of_points(points, between, where):
  parts = losses.distortion, losses.class_ranking
  return jnp.stack([part(points, between, where=where) for part in parts])


def test_masked_classes_are_deleted_ones():
  keep, every = np.array([True, False, True, True, True]), np.ones(5, bool)
  points = np.where(keep[:, None], POINTS, np.nan).astype(np.float32)
  values, slopes = of_points(points, APART, keep)
  expected, expected_slopes = of_points(POINTS[keep], APART[keep][:, keep], every[:4])
  np.testing.assert_allclose(values[:, keep], expected, rtol=1e-5)
  np.testing.assert_allclose(slopes[keep], expected_slopes, rtol=1e-4, atol=1e-6)
  np.testing.assert_array_equal(values[:, ~keep], 0)
  np.testing.assert_array_equal(slopes[~keep], 0)
  for result in of_points(POINTS, APART, ~keep):  # one class makes no pair
    np.testing.assert_array_equal(result, 0)


def test_traced_classes_at_distance_zero_are_left_out():
  equal = APART * (EVERY[:, None] + EVERY[None] != 1)  # 0 and 1 coincide
  between = matrix_of(distance, POINTS, POINTS, "none")
  ratios = between[equal > 0] / APART[equal > 0]
  expected = 1 - ratios.sum() ** 2 / (len(ratios) * np.square(ratios).sum())
  values, _ = of_points(POINTS, equal, np.ones(5, bool))
  np.testing.assert_allclose(values[0].mean(), expected, rtol=1e-5)


def test_drawn_triplets_estimate_all_of_them():
  draw = jax.jit(functools.partial(losses.class_ranking, samples=4000, block_size=2))
  # The two orders of two classes have one value: with three classes it is exact.
  three, every = np.array([True, False, True, True, False]), np.ones(5, bool)
  for where, rtol in ((three, 1e-4), (every, 0.03)):
    drawn = draw(POINTS, APART, where=where, key=jax.random.key(0))
    np.testing.assert_allclose(drawn, of_points(POINTS, APART, where)[0][1], rtol=rtol)


WRONG_TREES = [
  (TREE.astype(int), "TypeError: ancestors must be boolean, got dtype"),
  (TREE[0], r"2 axes, got shape \(12,\)"),
  (TREE[:4], r"ancestors must have shape \(5, 12\)"),
  (TREE[:, 1:], "root above all classes, got none"),
  (TREE & (EVERY != 4)[:, None], "root above all classes"),
  (TREE & (np.arange(12) != 9), "below every node, got 9"),
  (TREE | (TREE[3] & (EVERY == 4)[:, None]), "leaves of the tree, got 3 above another"),
]


@pytest.mark.parametrize(("tree", "message"), WRONG_TREES)
def test_wrong_trees(tree, message, unchecked):
  loss = losses.hierarchical_cross_entropy
  refusals.check(functools.partial(loss, LOGITS, EVERY, tree), message)
