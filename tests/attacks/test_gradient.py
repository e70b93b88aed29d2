"""FGSM, BIM, PGD and MI-FGSM: closed forms of linear models, loops, what is kept."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import attacks
from tests import balls

RANDOM = np.random.default_rng(0)
BATCH, SIZE, CLASSES = 6, 5, 4
W = RANDOM.normal(size=(SIZE, CLASSES)).astype(np.float32)
X = RANDOM.uniform(0.2, 0.8, (BATCH, SIZE)).astype(np.float32)
KEY = jax.random.key(0)
FAR = {"low": -9.0, "high": 9.0}
FIXED, MODES = {"key": None, "random_start": False}, ("evaluate", "train")
SLOW = functools.partial(pytest.param, marks=pytest.mark.slow)


def linear(x):
  return x @ W


Y = np.argmax(X @ W, axis=1)


@pytest.mark.parametrize("norm", ["l1", SLOW("l2"), SLOW("linf")])
def test_every_target_reaches_the_optimum_of_a_linear_model(norm):
  """max_k [z_k - z_y + epsilon |w_k - w_y|_q], for budgets under vmap."""

  def attack(epsilon):
    ball = {"key": KEY, "epsilon": epsilon, "step_size": epsilon, "norm": norm, **FAR}
    aim = {"loss": "margin", "targets": "all", "share": 0.0, "steps": 30}
    return attacks.pgd(linear, X, Y, **ball, **aim)

  scale = {"linf": 1, "l2": 2, "l1": 4}[norm]
  budgets = scale * np.array([0.05, 0.2, 0.6], np.float32)
  found = jax.jit(jax.vmap(attack))(budgets)
  reach = np.linalg.norm(W[:, None] - W[:, Y, None], balls.DUAL[norm], axis=0)
  optimum = balls.margins(np.float64(X @ W) + budgets[:, None, None] * reach, Y)
  # A failure has the largest margin of all; a success at least as large a loss.
  np.testing.assert_allclose(found.margin, optimum, rtol=1e-4, atol=1e-5)
  np.testing.assert_array_equal(found.success, optimum > 0)
  assert 3 < (optimum > 0).sum() < 15
  assert np.all(found.zero_gradients == 0)


def numpy_steps(norm, steps, alpha, decay=None):
  """The last iterate from X by the cross-entropy's gradient, within 0.12 and [0, 1]."""
  x, velocity = X.astype(np.float64), 0.0
  for _ in range(steps):
    p = np.exp(x @ W)
    g = (p / p.sum(1, keepdims=True) - np.eye(CLASSES)[Y]) @ W.T
    if decay is not None:
      velocity = g = decay * velocity + g / np.abs(g).sum(1, keepdims=True)
    size = np.linalg.norm(g, axis=1, keepdims=True)
    step = np.sign(g) if norm == "linf" else g / size
    x = balls.projected(x + alpha * step, X, 0.12, norm, 0, 1)
  return x


def test_steps_are_those_of_a_loop():
  """The last iterates, against NumPy."""
  common = {"epsilon": 0.12, "mode": "last"}
  steps = common | {"steps": 4, "step_size": 0.05, "norm": "l2"}
  mi, l2 = numpy_steps("l2", 4, 0.05, decay=0.7), numpy_steps("l2", 4, 0.05)
  for found, x in (
    (attacks.fgsm(linear, X, Y, **common), numpy_steps("linf", 1, 0.12)),
    (attacks.bim(linear, X, Y, steps=4, **common), numpy_steps("linf", 4, 2.5 * 0.03)),
    (attacks.mi_fgsm(linear, X, Y, decay=0.7, **steps), mi),
    (attacks.bim(linear, X, Y, **steps), l2),
  ):
    np.testing.assert_allclose(found.x_adv, x, rtol=0, atol=3e-6)
    np.testing.assert_allclose(found.margin, balls.margins(x @ W, Y), atol=2e-5)
  assert np.abs(mi - l2).max() > 1e-4


def wavy(x):
  """Two classes; the lead of the second is not monotone along any path."""
  height = jnp.sin(9 * x[:, 0]) + 0.3 * x[:, 1]
  return jnp.stack([jnp.zeros_like(height) + 0.9, height], axis=1)


def test_what_is_kept_is_the_best_of_all_iterates():
  """Replayed step by step in NumPy."""
  x = np.stack([np.linspace(0.02, 0.95, 12), np.full(12, 0.4)], 1).astype(np.float32)
  labels = np.zeros(12, np.int32)
  ball = {"epsilon": 0.4, "step_size": 0.13, "loss": "margin", "steps": 7, **FIXED}
  evaluate, train = (attacks.pgd(wavy, x, labels, mode=m, **ball) for m in MODES)
  path = [x.astype(np.float64)]
  for _ in range(7):
    slope = np.stack([np.cos(9 * path[-1][:, 0]), np.ones(12)], 1)
    moved = np.clip(path[-1] + 0.13 * np.sign(slope), x - 0.4, x + 0.4)
    path.append(np.clip(moved, 0, 1))
  points = np.stack(path)
  lead = np.sin(9 * points[..., 0]) + 0.3 * points[..., 1] - 0.9
  np.testing.assert_allclose(train.loss, lead.max(0), atol=1e-5)
  clean = lead[0] > 0
  assert 2 < np.sum(clean) < 10
  np.testing.assert_array_equal(evaluate.x_adv[clean], x[clean])
  np.testing.assert_array_equal(evaluate.norm[clean], 0)
  np.testing.assert_array_equal(evaluate.queries, np.where(clean, 1, 9))
  np.testing.assert_allclose(evaluate.loss[~clean], lead.max(0)[~clean], atol=1e-5)
  np.testing.assert_array_equal(evaluate.success, lead.max(0) > 0)
  # Going back down after the best is what makes this test worth something.
  assert np.any(lead[-1] < lead.max(0) - 0.05)
  assert np.any(train.norm[clean] > 0)


def test_success_counts_before_loss():
  """Cross-entropy is larger at a right decision than at a wrong one, here."""
  table = jnp.array([[0.36, 0.34, 0.30], [0.40, 0.41, 0.19], [0.34, 0.33, 0.33]])

  def stairs(x):
    place = jnp.clip(jnp.floor(x[:, 0]), 0, 2).astype(int)
    return jnp.log(table)[place] + 1e-4 * x[:, :1] * jnp.array([[-1.0, 0.5, 0.5]])

  x, labels = jnp.array([[0.5]]), jnp.array([0])
  ball = {"epsilon": 2.4, "step_size": 1.0, "high": 3.0, "steps": 2, **FIXED}
  evaluate, train = (attacks.pgd(stairs, x, labels, mode=m, **ball) for m in MODES)
  assert evaluate.success[0]
  np.testing.assert_allclose(evaluate.x_adv, [[1.5]])
  assert not train.success[0]
  np.testing.assert_allclose(train.x_adv, [[2.5]])
  assert train.loss[0] > evaluate.loss[0]


def test_divergence_has_no_slope_at_the_sample_and_one_beside_it():
  def divergence(x):
    return attacks.attack_loss(linear(x), Y, loss="kl", reference=linear(X)).sum()

  np.testing.assert_allclose(jax.jit(jax.grad(divergence))(X), 0, atol=1e-6)
  options = {"key": KEY, "epsilon": 0.1, "loss": "kl", "steps": 3, "mode": "train"}
  run = attacks.pgd(linear, X, Y, **options)
  z, moved = X @ W, np.asarray(run.x_adv) @ W
  p, q = (np.exp(v) / np.exp(v).sum(1, keepdims=True) for v in (z, moved))
  np.testing.assert_allclose(run.loss, np.sum(p * np.log(p / q), 1), rtol=1e-3)
  assert np.all(run.loss > 1e-3)
  assert np.all(run.zero_gradients == 0)


def test_given_targets_are_reached_and_restarts_help():
  targets = (Y + 1) % CLASSES
  aimed = attacks.pgd(linear, X, Y, key=KEY, epsilon=3.0, targets=targets, **FAR)
  small = {"key": KEY, "epsilon": 0.5, "steps": 1, "step_size": 0.01, "mode": "train"}
  run = functools.partial(attacks.pgd, wavy, X[:, :2], jnp.zeros(BATCH, int), **small)
  few, many = run(restarts=1), run(restarts=8)
  assert np.all(aimed.success)
  np.testing.assert_array_equal(np.argmax(aimed.x_adv @ W, 1), targets)
  assert np.all(many.loss >= few.loss)
  assert np.mean(many.loss - few.loss) > 0.05
  np.testing.assert_array_equal(many.queries, 16)


def test_points_of_an_expectation_are_compared_by_one_loss():
  """Two views, of which one is wrong: the mean probability says log 2 wherever x is."""

  def logits_fn(x):
    return jnp.concatenate([10 * x, -10 * x], axis=1)

  def flipped(key, x):  # each draw sees the sample or its opposite
    return jnp.where(jax.random.bernoulli(key), x, -x)

  model = attacks.Expectation(logits_fn, flipped, 400, 400)
  x, labels = np.linspace(0.3, 0.9, 8, dtype=np.float32)[:, None], np.zeros(8, np.int32)

  def run(mode):
    return attacks.bim(model, x, labels, key=KEY, epsilon=0.01, steps=2, mode=mode)

  for found in map(run, ("last", "train", "evaluate")):
    size = np.abs(np.asarray(found.x_adv, np.float64)[:, 0])
    mean = (np.logaddexp(0, 20 * size) + np.logaddexp(0, -20 * size)) / 2
    # Standard error a twentieth; of three points and x the largest loss is kept.
    np.testing.assert_allclose(found.loss, mean, rtol=0.25)
    np.testing.assert_allclose(found.margin, 0, atol=0.5)


def test_starts_and_views_draw_from_other_keys():
  seen = []

  def noted(key, x):
    jax.debug.callback(lambda data: seen.append(tuple(data)), jax.random.key_data(key))
    return x

  model = attacks.Expectation(linear, noted, 2, 2)
  ball = {"epsilon": 0.1, "norm": "l2", "steps": 2, "restarts": 2}
  attack = jax.jit(lambda x, key: attacks.pgd(model, x, Y[:2], key=key, **ball))
  jax.block_until_ready(attack(X[:2], KEY))
  jax.effects_barrier()
  taken = {
    tuple(np.asarray(jax.random.key_data(part)))
    for row in range(2)
    for restart in range(2)
    for own in [jax.random.fold_in(jax.random.fold_in(KEY, row), restart)]
    for one in (own, *jax.random.split(own))  # what a draw from the ball uses
    for part in (one, *jax.random.split(one))
  }
  drawn = {tuple(map(int, key)) for key in seen}
  assert len(drawn) > 20
  assert not drawn & {tuple(map(int, key)) for key in taken}


def test_expectation_averages_gradients_of_views():
  """One view that is the sample is the plain attack; more are the mean's gradient."""

  def same(_, x):
    return x

  def scaled(key, x):
    return x * jax.random.uniform(key, (), x.dtype, 0.5, 2.0)

  def run(transform, draws):
    model = attacks.Expectation(linear, transform, draws, 200)
    return attacks.bim(model, X, Y, key=KEY, epsilon=0.1, steps=2, mode="last")

  plain = attacks.bim(linear, X, Y, epsilon=0.1, steps=2, mode="last")
  one, many = run(same, 1), run(scaled, 400)
  np.testing.assert_array_equal(plain.x_adv, one.x_adv)
  np.testing.assert_allclose(plain.margin, one.margin, atol=1e-5)
  np.testing.assert_allclose(plain.loss, one.loss, atol=1e-5)
  scales = np.linspace(0.5, 2, 2001)[:, None, None]
  z = scales * (np.asarray(many.x_adv, np.float64) @ W)
  p = np.exp(z) / np.exp(z).sum(2, keepdims=True)
  loss = -np.log(p[:, np.arange(BATCH), Y]).mean(0)
  np.testing.assert_allclose(many.loss, loss, atol=0.06)
  margin = balls.margins(np.log(p.mean(0)), Y)
  np.testing.assert_allclose(many.margin, margin, atol=0.15)
