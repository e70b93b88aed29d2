"""Contrastive learning as mathematics: what SSL proves, and where its statements fail.

In float64. The similarities, weights and entropies are NumPy's.
"""

import jax
import numpy as np
import pytest

from spherejax import losses, metrics
from tests.prototypes.test_optimized import unit

pytestmark = pytest.mark.usefixtures("x64")

N = 5
NEGATIVES = np.array([[j % N != i for j in range(2 * N)] for i in range(N)])
CONSTANT = np.log(2 * (N - 1))


def negatives_of(first, second):
  """[..., N, 2 (N - 1)], similarities to the negatives."""
  products = first @ np.swapaxes(np.concatenate([first, second], -2), -1, -2)
  return products[..., NEGATIVES].reshape(*first.shape[:-1], -1)


def at_beta(s, beta):
  """log Z, E and H of similarities in the last axis."""
  scaled = beta * s
  largest = scaled.max(-1, keepdims=True)
  mass = np.exp(scaled - largest)
  log_mass = np.log(mass.sum(-1)) + largest[..., 0]
  p = mass / mass.sum(-1, keepdims=True)
  entropy = -np.sum(p * (scaled - log_mass[..., None]), -1)
  return log_mass, (p * s).sum(-1), entropy


@pytest.fixture(scope="module")
def instances():
  """300 batches, unit and not, with repeated negatives, beta from 1e-3 to 300."""
  rng = np.random.default_rng(0)
  first, second = rng.normal(size=(2, 300, N, 3))
  first[::2], second[::2] = unit(first[::2]), unit(second[::2])
  first[::3, 1] = first[::3, 0]
  return first, second, np.exp(rng.uniform(np.log(1e-3), np.log(300), 300))


@jax.jit
@jax.vmap
def bound_and_loss(first, second, temperature):
  plain = {"temperature": temperature, "normalize": "none"}
  bound = losses.info_nce_bound(first, second, **plain)
  return bound, losses.info_nce(first, second, **plain)


def test_the_chain_of_bounds(instances):
  first, second, beta = instances
  bound, loss = bound_and_loss(first, second, 1 / beta)
  positive = (first * second).sum(-1)
  s, b = negatives_of(first, second), beta[:, None]
  log_mass, mean, _ = at_beta(s, b[..., None])
  slack = 1e-9 * (1 + b)
  np.testing.assert_allclose(loss, log_mass - b * positive, rtol=1e-9, atol=1e-9)
  assert (CONSTANT + b * s.mean(-1) <= log_mass + slack).all()
  assert (log_mass <= CONSTANT + b * mean + slack).all()
  assert (mean <= s.max(-1) + 1e-12).all()
  largest = CONSTANT + b * (s.max(-1) - positive)
  np.testing.assert_allclose(bound.value, largest, rtol=1e-9, atol=1e-9)
  gap = bound.value - loss
  assert (gap >= -slack).all()
  assert (gap <= CONSTANT + slack).all()
  # Away from ties the gap is open.
  assert gap[np.ptp(s, axis=-1) * b > 0.1].min() > 1e-4


def test_where_the_gap_is_closed_and_widest():
  """0 where all negatives tie, log(2 (N - 1)) with one near and the rest far."""
  ties = losses.info_nce_bound(np.eye(N), np.eye(N), temperature=1 / 7)
  tied = losses.info_nce(np.eye(N), np.eye(N), temperature=1 / 7)
  np.testing.assert_allclose(ties.value, tied, rtol=1e-12)
  first = np.eye(N)
  first[1] = unit(first[0] + 0.1 * first[1])
  # Only the first view of 1 is near that of 0.
  second = -np.roll(np.eye(N), 2, 0)
  wide = losses.info_nce_bound(first, second, temperature=1e-3)
  narrow = losses.info_nce(first, second, temperature=1e-3)
  np.testing.assert_allclose((wide.value - narrow)[:2], CONSTANT, rtol=1e-9)


def test_the_mean_similarity_is_the_slope_and_grows(instances):
  """d log Z / d beta = E, which does not decrease, eq. 16."""
  s = negatives_of(*instances[:2])
  means = [at_beta(s, beta)[1] for beta in np.geomspace(1e-3, 300, 40)]
  assert (np.diff(means, axis=0) >= -1e-9).all()
  step = 1e-5
  for beta in (0.1, 2.0, 30.0):
    slope = (at_beta(s, beta + step)[0] - at_beta(s, beta - step)[0]) / (2 * step)
    np.testing.assert_allclose(slope, at_beta(s, beta)[1], rtol=1e-5, atol=1e-6)


def test_the_sign_of_the_mean_similarity(instances):
  """E1: l = -beta s + beta E + H; eq. 13 prints -beta E."""
  first, second, beta = instances
  loss = bound_and_loss(first, second, 1 / beta)[1]
  b = beta[:, None]
  _, mean, entropy = at_beta(negatives_of(first, second), b[..., None])
  assert (entropy >= -1e-9).all()
  assert (entropy <= CONSTANT + 1e-9).all()
  rest = loss + b * (first * second).sum(-1) - entropy
  assert np.abs(rest - b * mean).max() < 1e-9
  assert np.abs(rest + b * mean).max() > 10


def test_beta_is_an_inverse_temperature():
  """E2: a larger beta looks at fewer negatives, down to the nearest ones that tie."""
  for ties in (1, 2, 3):
    s = np.concatenate([np.full(ties, 0.8), [0.7, 0.1, -0.9]])
    entropies = [at_beta(s, beta)[2] for beta in (1e-3, 1, 2, 10, 100, 1000)]
    assert (np.diff(entropies) < 1e-12).all()
    np.testing.assert_allclose(entropies[0], np.log(ties + 3), rtol=1e-5)
    np.testing.assert_allclose(entropies[-1], np.log(ties), atol=1e-9)


def test_the_nearest_negative_of_table_1():
  """E3: found by products that are not normalised, it breaks the bound."""
  first, second = np.random.default_rng(1).normal(size=(2, 2000, N, 3))
  beta = 10
  t = np.full(2000, 1 / beta)
  by_products = bound_and_loss(first, second, t)[0].nearest
  first, second = unit(first), unit(second)
  bound, loss = bound_and_loss(first, second, t)
  assert (bound.value >= loss - 1e-12).all()
  both = np.concatenate([first, second], 1)
  chosen = np.take_along_axis(both, np.asarray(by_products)[..., None], 1)
  printed = beta * ((first * chosen).sum(-1) - (first * second).sum(-1)) + CONSTANT
  printed, loss = np.asarray(printed), np.asarray(loss)
  # Of batches and of terms: 5 % and 15 % here.
  assert 0.02 < np.mean(printed.mean(1) < loss.mean(1)) < 0.1
  assert 0.1 < np.mean(printed < loss) < 0.2


def test_the_projection_on_the_column_space():
  """E4: W W^T is no projection; Q Q^T is, and the least squares of eq. 10 take it."""
  rng = np.random.default_rng(2)
  w, d = rng.normal(size=(6, 3)), rng.normal(size=(50, 6))
  printed = w @ w.T
  assert np.abs(printed @ printed - printed).max() > 1
  assert ((d - d @ printed) ** 2).sum() > (d**2).sum()  # "unexplained" above 1
  q = np.linalg.qr(w)[0]
  np.testing.assert_allclose(q @ q.T @ q @ q.T, q @ q.T, atol=1e-12)
  expected = ((d - d @ q @ q.T) ** 2).sum() / (d**2).sum()
  np.testing.assert_allclose(metrics.unexplained_variance(d, w), expected, rtol=1e-12)
  # With orthonormal columns the printed one is right.
  np.testing.assert_allclose(metrics.unexplained_variance(d, q), expected, rtol=1e-12)


def invariance(first, second, weights):
  return losses.info_nce_invariance(first @ weights, second @ weights)


def test_proposition_4_1():
  """E5: least iff W^T h' = c W^T h with c > 0; v in the kernel is sufficient only."""
  rng = np.random.default_rng(3)
  w = rng.normal(size=(6, 3))
  kernel = np.linalg.svd(w)[0][:, 3:]
  h = rng.normal(size=(20, 6))
  move = rng.normal(size=(20, 3)) @ kernel.T
  np.testing.assert_allclose(metrics.kernel_overlap(move.T, w), 1, rtol=1e-12)
  np.testing.assert_allclose(invariance(h, h + move, w), -1, rtol=1e-12)
  # The printed direction: not in the kernel, not collinear, and yet least.
  c = rng.uniform(0.1, 5, (20, 1))
  moved = c * h + move
  assert metrics.kernel_overlap((moved - h).T, w) < 0.9
  assert (np.linalg.norm((moved - h) @ w, axis=1) > 1e-3).all()
  assert np.abs((unit(h) * unit(moved)).sum(1)).max() < 1 - 1e-3
  np.testing.assert_allclose(invariance(h, moved, w), -1, rtol=1e-12)
  # c < 0 is the worst, and any part of W^T h' across W^T h keeps it from the least.
  np.testing.assert_allclose(invariance(h, move - c * h, w), 1, rtol=1e-12)
  across = moved + 0.5 * rng.normal(size=(20, 6))
  sines = np.linalg.norm(np.cross(unit(h @ w), unit(across @ w)), axis=1)
  found = np.asarray(invariance(h, across, w))
  np.testing.assert_allclose(np.sqrt(1 - found**2), sines, rtol=1e-6)
  assert (found > -1 + 1e-9).all()
  # In the kernel, but W^T h = 0: nothing to agree.
  h[:, :3] = 0
  np.testing.assert_array_equal(invariance(h, 3 * h, np.eye(6)[:, :3]), 0)


def test_counterexamples_to_proposition_4_1():
  """E5, by hand: W = e_1, h = (1, 0), h' = (2, 1); and one output of one sign."""
  w = np.array([[1.0], [0.0]])
  h, moved = np.array([[1.0, 0.0]]), np.array([[2.0, 1.0]])
  np.testing.assert_allclose(invariance(h, moved, w), -1, rtol=1e-15)
  assert np.abs((moved - h) @ w).max() == 1
  assert metrics.kernel_overlap((moved - h).T, w) == 0.5
  rng = np.random.default_rng(4)
  w, (h, moved) = rng.normal(size=(6, 1)), rng.normal(size=(2, 50, 6))
  signs = np.sign((h @ w) * (moved @ w))[:, 0]
  np.testing.assert_allclose(invariance(h, moved, w), -signs, rtol=1e-12)


@pytest.mark.parametrize(("span", "rank"), [(0, 4), (3, 4), (6, 4), (8, 2), (10, 0)])
def test_proposition_4_2(span, rank):
  """The largest rank that leaves all v in the kernel: min(d_proj, d_enc - span)."""
  d_enc, d_proj = 10, 4
  rng = np.random.default_rng(5)
  v = rng.normal(size=(30, span)) @ rng.normal(size=(span, d_enc))
  free = np.linalg.svd(v)[2][span:]  # orthogonal to all v
  w = free.T @ rng.normal(size=(d_enc - span, d_proj))
  assert rank == min(d_proj, d_enc - span)
  np.testing.assert_allclose(v @ w, 0, atol=1e-12)
  assert metrics.relative_rank(w, threshold=1e-9) == rank
  assert metrics.effective_rank(w) <= rank + 1e-9
  # None is larger: the kernel of W^T has d_enc - rank W dimensions and holds v.
  assert metrics.relative_rank(v, threshold=1e-9) == span <= d_enc - rank


def generators(rng, d=6, outputs=3):
  w = rng.normal(size=(d, outputs))
  return w, np.linalg.svd(w)[0][:, outputs:] @ rng.normal(size=(d - outputs, d))


def test_proposition_4_3():
  """W^T G = 0 leaves the projector unmoved by exp(e G), for every e."""
  rng = np.random.default_rng(6)
  w, g = generators(rng)
  np.testing.assert_allclose(w.T @ g, 0, atol=1e-13)
  np.testing.assert_allclose(metrics.kernel_overlap(g, w), 1, rtol=1e-12)
  for e in (0.01, 1.0, -2.0):
    matrix = np.asarray(metrics.lie_action(g, np.eye(6), np.full(6, e))).T
    size = float(np.linalg.norm(matrix))
    np.testing.assert_allclose(w.T @ matrix, w.T, atol=4e-14 * max(size, 1))
  h, e = rng.normal(size=(40, 6)), rng.normal(size=40)
  moved = metrics.lie_action(g, h, e)
  assert np.abs(moved - h).max() > 1
  np.testing.assert_allclose(invariance(h, np.asarray(moved), w), -1, rtol=1e-12)
  # A generator that the projector sees: the larger the scale, the farther off.
  seen = g + 0.3 * rng.normal(size=(6, 6))
  assert metrics.kernel_overlap(seen, w) < 0.99
  off = [
    np.mean(invariance(h, np.asarray(metrics.lie_action(seen, h, np.full(40, e))), w))
    for e in (0.0, 0.1, 0.3)
  ]
  assert off[0] < off[1] < off[2]


def test_counterexamples_to_proposition_4_3():
  """E5: not needed are W^T G = 0 at all, and W^T G off the data."""
  rng = np.random.default_rng(7)
  w, g = generators(rng)
  h, e = rng.normal(size=(40, 6)), rng.normal(size=40)
  # W^T G = 0.3 W^T.
  grown = 0.3 * np.eye(6) + g
  np.testing.assert_allclose(w.T @ grown, 0.3 * w.T, atol=1e-12)
  assert metrics.kernel_overlap(grown, w) < 1 - 1e-3
  moved = np.asarray(metrics.lie_action(grown, h, e))
  assert ((unit(h) * unit(moved)).sum(1) < 1 - 1e-6).all()
  np.testing.assert_allclose(invariance(h, moved, w), -1, rtol=1e-12)
  # W^T G = 0 on the span of the data alone, which exp(e G) does not leave.
  basis = np.linalg.qr(np.concatenate([np.linalg.svd(w)[0][:, 3:5], w[:, :1]], 1))[0]
  inside = basis @ np.array([[0.4, -1, 0.7], [1, 0.2, -0.3], [0, 0, 0]]) @ basis.T
  off_data = np.eye(6) - basis @ basis.T
  both = inside + off_data
  data = h @ basis @ basis.T
  assert metrics.kernel_overlap(both, w) < 0.9
  np.testing.assert_allclose(metrics.kernel_overlap(both @ data.T, w), 1, rtol=1e-12)
  moved = np.asarray(metrics.lie_action(both, data, e))
  assert np.abs(moved - data).max() > 0.1
  np.testing.assert_allclose(invariance(data, moved, w), -1, rtol=1e-12)


def test_the_least_repulsion():
  """E6: -1 for all is for two examples; of N it is -1 / (N - 1), at the simplex."""
  pair = np.array([[1.0, 0.0], [-1.0, 0.0]])
  np.testing.assert_allclose(losses.info_nce_repulsion(pair, pair), -1, rtol=1e-15)
  simplex = np.eye(N) - 1 / N
  least = losses.info_nce_repulsion(simplex, simplex)
  np.testing.assert_allclose(least, -1 / (N - 1), rtol=1e-12)
  rng = np.random.default_rng(8)
  first, second = unit(rng.normal(size=(2, 1000, N, 4)))
  found = bound_and_loss(first, second, np.ones(1000))[0].repulsion.mean(1)
  assert (found >= -1 / (N - 1)).all()
  # Also from the optimum on, in any direction.
  near = unit(simplex + 0.05 * rng.normal(size=(1000, N, N)))
  found = bound_and_loss(near, near, np.ones(1000))[0].repulsion.mean(1)
  assert (found >= -1 / (N - 1) - 1e-12).all()


def test_a_rank_with_an_absolute_threshold():
  """E7: "greater than" in the text, at least in eq. 2; and it depends on the scale."""
  matrix = np.diag([2.0, 1.0, 1.0, 0.25])
  assert metrics.numerical_rank(matrix, 1.0) == 3
  assert np.sum(np.linalg.svd(matrix)[1] > 1.0) == 1
  ranks = [int(metrics.numerical_rank(matrix * c, 1.0)) for c in (0.25, 0.5, 1, 4)]
  assert ranks == [0, 1, 3, 4]
  scaled = [metrics.effective_rank(matrix * c) for c in (0.25, 0.5, 1, 4)]
  np.testing.assert_allclose(scaled, scaled[0], rtol=1e-12)


def test_a_negative_beta_breaks_the_bound():
  """E8: proposition 3.1 needs beta >= 0; no temperature stands for another."""
  first, second = unit(np.random.default_rng(9).normal(size=(2, 400, N, 3)))
  own, s = (first * second).sum(-1), negatives_of(first, second)
  for beta in (-0.1, -2.0, -50.0):
    loss = at_beta(s, beta)[0] - beta * own
    printed = beta * (s.max(-1) - own) + CONSTANT
    assert (printed < loss).all()
  with pytest.raises(ValueError, match=r"temperature .*got -0\.5"):
    losses.info_nce_bound(first[0], second[0], temperature=-0.5)
