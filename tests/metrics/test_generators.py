"""Group actions against the matrix exponential, and generators found again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import linalg

from spherejax import metrics

RNG = np.random.default_rng(0)
TURN = np.array([[0.0, -1.0], [1.0, 0.0]])
SHIFT = (np.roll(np.eye(5), 1, 0) - np.roll(np.eye(5), -1, 0)) / 2
SCALES = np.array([0.0, 0.3, -1.2, 2.5])
GENERATORS = {
  "turn": TURN,
  "grow": np.eye(3),
  "shift": SHIFT,
  "blocks": linalg.block_diag(TURN, [[0.5]], SHIFT),
  "any": RNG.normal(size=(4, 4)),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_actions_against_the_exponential(x64, name):
  generator = GENERATORS[name]
  h = RNG.normal(size=(4, len(generator)))
  expected = [linalg.expm(e * generator) @ x for x, e in zip(h, SCALES, strict=True)]
  found = metrics.lie_action(generator, h, SCALES)
  np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
  short = metrics.lie_action(np.float32(generator), np.float32(h), np.float32(SCALES))
  assert short.dtype == jnp.float32
  np.testing.assert_allclose(short, expected, rtol=1e-4, atol=1e-4)
  linear = metrics.lie_action(generator, h, SCALES, linear=True)
  size = np.abs(SCALES) * np.linalg.norm(generator, 2)
  bound = size**2 * np.exp(size) * np.linalg.norm(h, axis=1) / 2
  assert (np.linalg.norm(linear - found, axis=1) <= bound + 1e-12).all()
  np.testing.assert_allclose(linear[1], h[1] + 0.3 * generator @ h[1], rtol=1e-12)


def test_slopes_of_an_action(x64):
  arguments = 0.3 * TURN, RNG.normal(size=(2, 2)), SCALES[1:3]
  check_grads(jax.jit(metrics.lie_action), arguments, 1, ["rev"], rtol=1e-6)


def test_actions_in_half_precision_and_on_a_stack():
  h = RNG.normal(size=(3, 4, 2)).astype(np.float32)
  stacked = jax.jit(jax.vmap(metrics.lie_action, (None, 0, None)))(
    np.float32(TURN), h, np.float32(SCALES)
  )
  for part, moved in zip(h, stacked, strict=True):
    alone = metrics.lie_action(np.float32(TURN), part, np.float32(SCALES))
    np.testing.assert_allclose(moved, alone, rtol=1e-5, atol=1e-6)
  short = metrics.lie_action(jnp.bfloat16(TURN), jnp.bfloat16(h[0]), SCALES)
  assert short.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.float32(short), stacked[0], atol=3e-2)


def test_a_generator_is_found_again(x64):
  generator = RNG.normal(size=(5, 5))
  h = RNG.normal(size=(40, 5))
  scales = RNG.uniform(0.1, 2, 40)
  for true, given, factor in (
    (np.ones(40), None, 1),
    (scales, scales, 1),
    (np.full(40, 3.0), None, 3),  # without them only the product is known
  ):
    moved = metrics.lie_action(generator, h, true, linear=True)
    estimate = metrics.estimate_generator(h, moved, scales=given)
    np.testing.assert_allclose(estimate, factor * generator, rtol=1e-10, atol=1e-12)


def test_the_estimate_from_finite_moves(x64):
  """exp(e G) - I, which is e G to first order, with an error that falls with e^2."""
  generator, h = SHIFT, RNG.normal(size=(30, 5))
  errors = []
  for e in (0.2, 0.1):
    moved = metrics.lie_action(generator, h, np.full(30, e))
    found = metrics.estimate_generator(h, moved)
    columns = metrics.lie_action(generator, np.eye(5), np.full(5, e)).T
    np.testing.assert_allclose(found, columns - np.eye(5), atol=1e-12)
    errors.append(np.linalg.norm(found - e * generator, 2))
    size = e * np.linalg.norm(generator, 2)
    assert errors[-1] <= size**2 * np.exp(size) / 2
  assert 3.5 < errors[0] / errors[1] < 4.5


def test_few_pairs_tell_of_their_span_only(x64):
  generator, h = RNG.normal(size=(6, 6)), RNG.normal(size=(2, 6))
  h = np.concatenate([h, h[:1] + h[1:]])  # rank 2 of 3 pairs
  moved = metrics.lie_action(generator, h, np.ones(3), linear=True)
  found = metrics.estimate_generator(h, moved)
  on_span = np.linalg.pinv(h[:2]) @ h[:2]
  np.testing.assert_allclose(found, generator @ on_span, atol=1e-10)
  short = metrics.estimate_generator(np.float32(h), np.float32(moved))
  assert short.dtype == jnp.float32
  np.testing.assert_allclose(short, generator @ on_span, atol=1e-3)


def test_a_ridge_against_the_normal_equations(x64):
  h, moved = RNG.normal(size=(2, 7, 4))
  scales = RNG.uniform(0.5, 1.5, 7)
  rows = scales[:, None] * h
  for ridge in (0.0, 0.3, 100.0):
    system = rows.T @ rows + ridge * np.eye(4)
    expected = np.linalg.solve(system, rows.T @ (moved - h)).T
    found = metrics.estimate_generator(h, moved, scales=scales, ridge=ridge)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_masked_pairs_and_no_moves():
  h, moved = RNG.normal(size=(2, 9, 4)).astype(np.float32)
  kept = np.arange(9) != 3
  expected = metrics.estimate_generator(h[kept], moved[kept])
  h[3], moved[3] = np.nan, np.inf
  scales = np.where(kept, 1, np.nan).astype(np.float32)
  found = metrics.estimate_generator(h, moved, scales=scales, where=kept)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  nothing = metrics.estimate_generator(h, moved, where=np.zeros(9, bool))
  np.testing.assert_array_equal(nothing, np.zeros((4, 4)))
  for ridge in (0.0, 1.0):
    still = metrics.estimate_generator(0 * h[:3], h[:3], ridge=ridge)
    np.testing.assert_array_equal(still, np.zeros((4, 4)))
  short = metrics.estimate_generator(jnp.bfloat16(h[:3]), jnp.bfloat16(moved[:3]))
  assert short.dtype == jnp.bfloat16
  assert np.isnan(metrics.estimate_generator(h, moved)).any()


def test_overlap_with_the_kernel(x64):
  q = np.linalg.qr(RNG.normal(size=(6, 6)))[0]
  weights = q[:, :3] @ RNG.normal(size=(3, 4))  # rank 3
  unseen = q[:, 3:] @ RNG.normal(size=(3, 6))
  seen = q[:, :3] @ RNG.normal(size=(3, 6))
  np.testing.assert_allclose(metrics.kernel_overlap(unseen, weights), 1, rtol=1e-12)
  np.testing.assert_allclose(metrics.kernel_overlap(seen, weights), 0, atol=1e-12)
  expected = (unseen**2).sum() / ((unseen**2).sum() + (seen**2).sum())
  found = metrics.kernel_overlap(unseen + seen, weights)
  np.testing.assert_allclose(found, expected, rtol=1e-12)
  np.testing.assert_allclose(
    metrics.kernel_overlap(1e-8 * (unseen + seen), 1e9 * weights), found, rtol=1e-10
  )
  moves = unseen @ RNG.normal(size=(20, 6)).T
  np.testing.assert_allclose(metrics.kernel_overlap(moves, weights), 1, rtol=1e-12)
  assert metrics.kernel_overlap(0 * unseen, weights) == 1
  assert metrics.kernel_overlap(unseen, 0 * weights) == 1
  # Rounding to half precision gives the weights a fourth direction.
  half = (jnp.bfloat16(matrix) for matrix in (unseen + seen, weights))
  short = metrics.kernel_overlap(*half, threshold=0.02)
  assert short.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.float32(short), expected, atol=2e-2)
