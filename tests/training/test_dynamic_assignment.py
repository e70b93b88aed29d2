"""Training with an assignment that is matched again: by plain loops, and resumed."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import linear_sum_assignment

from spherejax import distances, losses, prototypes, training
from tests.training.trees import assert_same

CLASSES, DIM, RATE, DECAY = 4, 3, 0.8, 0.4
POINTS = np.random.default_rng(0).normal(size=(CLASSES + 1, DIM)).astype(np.float32)
POINTS /= np.linalg.norm(POINTS, axis=1, keepdims=True)


def objective(params, batch_stats, batch, *, key, axis_name):
  matching = batch_stats["loss"]["assignment"]
  z = batch["x"] @ params["network"]["w"]
  cosines = distances.pairwise_cosine(z, jnp.asarray(POINTS)[matching.assignment])
  values = losses.pull(cosines, batch["label"])
  moved = prototypes.ema_update(
    matching.representatives, z, batch["label"], decay=DECAY, axis_name=axis_name
  )
  stats = {"assignment": matching._replace(representatives=moved)}
  mean = training.global_mean(values, axis_name=axis_name)
  return training.Outcome(mean, batch_stats | {"loss": stats})


STEP = training.make_step(objective, optax.sgd(RATE))


def batches(first):
  for number in range(first, 100):
    rng = np.random.default_rng([1, number])
    label = rng.integers(CLASSES, size=8)
    x = np.eye(5)[label] + 0.3 * rng.normal(size=(8, 5))
    yield {"x": x.astype(np.float32), "label": label}


@jax.jit
def start(seed):
  key = jax.random.key(seed)
  matching = prototypes.assignment_init(key, POINTS, num_classes=CLASSES)
  network = {"params": {"w": jax.random.normal(key, (5, DIM))}}
  loss = {"batch_stats": {"assignment": matching}}
  return training.create_state(key, optax.sgd(RATE), network, loss)


def by_loops(state, steps, period):
  """Algorithm 1 as it is printed: weights, representatives, assignment after steps."""
  weights = np.asarray(state.params["network"]["w"], np.float64)
  matching = state.batch_stats["loss"]["assignment"]
  m = np.asarray(matching.representatives.prototypes, np.float64)
  p = POINTS.astype(np.float64)
  a = linear_sum_assignment(-m @ p.T)[1]
  evaluated, changes = [], []
  for number, batch in enumerate(itertools.islice(batches(0), steps), 1):
    x, y = batch["x"].astype(np.float64), batch["label"]
    u = x @ weights
    norms, targets = np.linalg.norm(u, axis=1, keepdims=True), p[a[y]]
    z = u / norms
    c = np.sum(z * targets, axis=1, keepdims=True)
    pulls = -(1 - c) * (targets - c * z) / norms
    weights = weights - RATE * x.T @ pulls / len(y)
    for k in set(y.tolist()):
      mixed = DECAY * m[k] + (1 - DECAY) * z[y == k].mean(0)
      m[k] = mixed / np.linalg.norm(mixed)
    evaluated.append(a)  # before the matching of this step
    if number % period == 0:
      old, a = a, linear_sum_assignment(-m @ p.T)[1]
      changes.append(np.mean(old != a))
  return weights, m, evaluated, changes


@pytest.mark.parametrize("host", [False, True])
def test_runs_of_several_seeds_at_once_follow_the_algorithm(host):
  def step(state, batch, rate):
    options = {"steps_per_epoch": 2, "updates_per_epoch": rate, "host": host}
    return training.reassign(STEP, POINTS, **options)(state, batch)

  states = jax.vmap(start)(jnp.arange(4))
  mapped = jax.jit(jax.vmap(step, in_axes=(0, None, 0)))
  rates = jnp.array([2 / 3, 2 / 3, 2 / 3, 1e-20])  # the last run never matches again
  state, assignments, shares = states, [], []
  for batch in itertools.islice(batches(0), 13):
    state, metrics = mapped(state, batch, rates)
    matching = state.batch_stats["loss"]["assignment"]
    assignments.append(np.asarray(matching.assignment))
    shares.append(np.asarray(matching.change))
  assert set(metrics) == {"loss", "gradient_norm"}
  moved = 0.0
  for seed in range(4):
    first = jax.tree.map(lambda leaf: leaf[seed], states)  # noqa: B023
    period = 3 if seed < 3 else 100
    weights, m, expected, changes = by_loops(first, 13, period)
    np.testing.assert_array_equal([a[seed] for a in assignments], expected)
    # Changed by the matchings before steps 3, 6, 9 and 12; and kept in between.
    known = np.repeat([0, *changes], period)[:13]
    np.testing.assert_allclose([share[seed] for share in shares], known)
    np.testing.assert_allclose(state.params["network"]["w"][seed], weights, rtol=1e-4)
    rows = matching.representatives.prototypes[seed]
    np.testing.assert_allclose(rows, m, atol=1e-5)
    moved += sum(changes)
  assert moved > 0


def test_two_devices_resumed_between_two_matchings_end_with_the_same_bits(tmp_path):
  step = training.reassign(STEP, POINTS, steps_per_epoch=2, updates_per_epoch=0.5)
  state = start(2)

  def run(folder, steps):
    options = {"steps": steps, "devices": jax.local_devices()[:2], "progress": False}
    with training.Checkpoints(tmp_path / folder) as kept:
      return training.fit(state, step, batches, checkpoints=kept, **options).state

  whole, part = run("whole", 14), run("parts", 6)
  assert_same(run("parts", 14), whole)
  for reached, steps in ((part, 6), (whole, 14)):
    weights, m, expected, _ = by_loops(state, steps, 4)
    matching = reached.batch_stats["loss"]["assignment"]
    np.testing.assert_array_equal(matching.assignment, expected[-1])
    np.testing.assert_allclose(matching.representatives.prototypes, m, atol=1e-5)
    np.testing.assert_allclose(reached.params["network"]["w"], weights, rtol=1e-4)
