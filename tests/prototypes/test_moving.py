"""Moving prototypes against loops, on one device and on four."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import prototypes
from spherejax.prototypes import ClassSums, MovingPrototypes
from tests.prototypes.test_optimized import unit

KEY = jax.random.key(0)
CLASSES, DIM = 5, 3
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(8, DIM)) * RNG.uniform(0.5, 3, (8, 1))
LABELS = np.array([0, 2, 2, 0, 2, 4, 4, 1], np.int32)
KEPT = np.array([1, 1, 1, 1, 1, 1, 1, 0], bool)  # class 1 is masked, 3 is absent
ROWS[6] = -2 * ROWS[5]  # class 4: their directions add to 0
POISONED = np.where(KEPT[:, None], ROWS, np.nan)


def members(number):
  return [ROWS[i] for i in range(8) if KEPT[i] and LABELS[i] == number]


def start():
  """Unit rows of which those of classes 0, 1 and 4 were seen."""
  rows = unit(RNG.normal(size=(CLASSES, DIM)))
  return MovingPrototypes(rows, np.array([1, 1, 0, 0, 1], bool))


def moved(state, decay, batch_mean, start_at_first):
  """The update, written out."""
  rows, seen = state.prototypes.copy(), state.seen.copy()
  for number in range(CLASSES):
    own = [unit(row) for row in members(number)]
    total = np.sum(own, axis=0) if own else np.zeros(DIM)
    if np.abs(total).max() < 1e-12:
      continue
    new = unit(total) if batch_mean == "direction" else total / len(own)
    if start_at_first and not seen[number]:
      rows[number] = unit(total)
    else:
      rows[number] = unit(decay * rows[number] + (1 - decay) * new)
    seen[number] = True
  return rows, seen


@functools.partial(jax.jit, static_argnames=("batch_mean", "start_at_first"))
def update(state, rows, labels, where, decay, batch_mean="mean", start_at_first=False):
  options = {"batch_mean": batch_mean, "start_at_first": start_at_first}
  return prototypes.ema_update(state, rows, labels, decay=decay, where=where, **options)


KINDS = [("mean", False), ("direction", True)]  # the batch's mean, a start at the first


@pytest.mark.parametrize("arguments", KINDS)
def test_ema_is_the_loop(arguments, x64):
  state = start()
  result = update(state, POISONED, LABELS, KEPT, 0.7, *arguments)
  rows, seen = moved(state, 0.7, *arguments)
  np.testing.assert_allclose(result.prototypes, rows, rtol=1e-12)
  np.testing.assert_array_equal(result.seen, seen)
  # Masked, absent, and with a mean of 0: bit by bit what they were.
  still = np.array([1, 3, 4])
  np.testing.assert_array_equal(result.prototypes[still], state.prototypes[still])
  assert not result.seen[3]
  # The order of a batch means nothing, and no row is lost.
  order = np.random.default_rng(1).permutation(8)
  again = update(state, POISONED[order], LABELS[order], KEPT[order], 0.7, *arguments)
  np.testing.assert_allclose(again.prototypes, result.prototypes, rtol=1e-12)
  nobody = update(state, POISONED, LABELS, np.zeros(8, bool), 0.7, *arguments)
  np.testing.assert_array_equal(nobody.prototypes, state.prototypes)
  np.testing.assert_array_equal(nobody.seen, state.seen)
  # A single embedding of a class: equation 9 of DIST's fourth article.
  state, second = state._replace(seen=np.ones(5, bool)), np.arange(8) == 1
  expected = unit(0.7 * state.prototypes[2] + 0.3 * unit(ROWS[1]))
  single = update(state, ROWS, LABELS, second, 0.7, *arguments)
  np.testing.assert_allclose(single.prototypes[2], expected, rtol=1e-12)


def test_ema_stops_where_it_would_vanish(x64):
  goal = np.array([[0.0, 1.0]])
  opposite = MovingPrototypes(-np.repeat(goal, 2, axis=0), np.ones(2, bool))
  result = update(opposite, goal, np.zeros(1, np.int32), np.ones(1, bool), 0.5)
  np.testing.assert_array_equal(result.prototypes, opposite.prototypes)


@functools.partial(jax.jit, static_argnames="normalize")
def means(rows, labels, where, normalize):
  return prototypes.class_means(rows, labels, CLASSES, normalize=normalize, where=where)


def test_class_means_are_the_loop(x64):
  counts = [len(members(number)) for number in range(CLASSES)]
  flat = means(POISONED, LABELS, KEPT, "none")
  sphere = means(POISONED, LABELS, KEPT, "l2")
  for number in range(CLASSES):
    own = members(number) or [np.zeros(DIM)]
    np.testing.assert_allclose(flat.means[number], np.mean(own, axis=0), rtol=1e-12)
    total = np.sum([unit(row) for row in own], axis=0)
    expected = unit(total) if number != 4 else 0 * total
    np.testing.assert_allclose(sphere.means[number], expected, rtol=1e-12)
  np.testing.assert_array_equal(flat.counts, counts)
  # On the sphere a class whose embeddings add up to 0 is as one that has none.
  assert counts[4] == 2
  np.testing.assert_array_equal(sphere.counts, [*counts[:4], 0])
  outside = LABELS == 2  # traced: these rows are masked, and may be NaN too
  rows = np.where(outside[:, None], np.nan, POISONED)
  fewer = means(rows, np.where(outside, 9, LABELS), KEPT, "l2")
  np.testing.assert_array_equal(fewer.counts, [2, 0, 0, 0, 0])
  np.testing.assert_allclose(fewer.means[0], sphere.means[0], rtol=1e-12)
  half = means(jnp.asarray(ROWS, jnp.bfloat16), LABELS, KEPT, "l2").means
  assert half.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.asarray(half[2], float), sphere.means[2], atol=1e-2)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_spoils_its_own_class_alone(bad, x64):
  rows = ROWS.copy()
  rows[1, 0] = bad  # of class 2
  others = np.array([0, 1, 3, 4])
  calls = [lambda x, n=n: means(x, LABELS, KEPT, n) for n in ("l2", "none")]
  state = start()
  calls += [lambda x, a=a: update(state, x, LABELS, KEPT, 0.7, *a) for a in KINDS]
  for call in calls:
    (found, there), (sound, expected) = call(rows), call(ROWS)
    np.testing.assert_array_equal(found[others], sound[others])
    np.testing.assert_array_equal(there, expected)
    assert np.isnan(found[2]).all()
  empty = prototypes.class_sums_init(CLASSES, DIM)
  sums = jax.jit(prototypes.class_sums_update)(empty, rows, LABELS)
  np.testing.assert_array_equal(np.isnan(sums.sums).any(1), np.arange(CLASSES) == 2)


def test_epoch_sums_over_batches_are_the_means_of_all(x64):
  @jax.jit
  def epoch(previous):
    state = prototypes.class_sums_init(CLASSES, DIM)
    for part in (slice(0, 4), slice(4, 8)):
      state = prototypes.class_sums_update(
        state, POISONED[part], LABELS[part], where=KEPT[part]
      )
    return state, prototypes.class_sums_directions(state, previous)

  previous = start().prototypes
  state, directions = epoch(previous)
  whole = means(POISONED, LABELS, KEPT, "l2")
  embedded = means(POISONED, LABELS, KEPT, "none").counts
  np.testing.assert_array_equal(state.counts, embedded)
  present, absent = np.array([0, 2]), np.array([1, 3, 4])
  np.testing.assert_allclose(directions[present], whole.means[present], rtol=1e-12)
  np.testing.assert_array_equal(directions[absent], previous[absent])


def test_four_devices_make_what_one_makes(x64):
  state = start()

  def on_device(rows, labels, where):
    options = {"where": where, "axis_name": "batch"}
    sums = prototypes.class_sums_init(CLASSES, DIM)
    return (
      prototypes.ema_update(state, rows, labels, **options),
      prototypes.class_means(rows, labels, CLASSES, **options),
      prototypes.class_sums_update(sums, rows, labels, **options),
    )

  parts = POISONED.reshape(4, 2, DIM), LABELS.reshape(4, 2), KEPT.reshape(4, 2)
  ema, mean, sums = jax.pmap(on_device, axis_name="batch")(*parts)
  alone = update(state, POISONED, LABELS, KEPT, 0.9)
  whole = means(POISONED, LABELS, KEPT, "l2")
  counts = means(POISONED, LABELS, KEPT, "none").counts
  for device in range(4):
    np.testing.assert_allclose(ema.prototypes[device], alone.prototypes, rtol=1e-12)
    np.testing.assert_array_equal(ema.seen[device], alone.seen)
    np.testing.assert_allclose(mean.means[device], whole.means, rtol=1e-12)
    np.testing.assert_array_equal(mean.counts[device], whole.counts)
    np.testing.assert_array_equal(sums.counts[device], counts)
    directions = [unit(row) for row in np.asarray(sums.sums[device])[[0, 2]]]
    np.testing.assert_allclose(directions, whole.means[np.array([0, 2])], rtol=1e-12)


def test_no_gradient_goes_through():
  @jax.jit
  @functools.partial(jax.grad, argnums=(0, 1, 2))
  def gradient(rows, old, decay):
    state = MovingPrototypes(old, jnp.zeros(CLASSES, bool))
    ema = prototypes.ema_update(state, rows, LABELS, decay=decay)
    sums = ClassSums(jnp.zeros((CLASSES, DIM)), jnp.zeros(CLASSES, jnp.int32))
    sums = prototypes.class_sums_update(sums, rows, LABELS)
    mean = prototypes.class_means(rows, LABELS, CLASSES)
    parts = ema.prototypes[0], sums.sums[0], mean.means[0]
    return sum(part @ jnp.arange(1.0, 4) for part in parts)

  rows, old = ROWS.astype(np.float32), np.eye(CLASSES, DIM, dtype=np.float32)
  for slope in gradient(rows, old, 0.9):
    np.testing.assert_array_equal(slope, 0)


def test_first_rows_are_random_unit_rows():
  state = prototypes.ema_init(KEY, CLASSES, DIM)
  np.testing.assert_allclose(np.linalg.norm(state.prototypes, axis=1), 1, rtol=1e-6)
  assert not state.seen.any()
  assert np.std(state.prototypes) > 0.3


def test_the_released_decay_acts_as_another(x64):
  """DL2P's code takes 1.9 m + 0.1 z before it normalises."""
  state = start()._replace(seen=np.ones(5, bool))
  result = update(state, ROWS, LABELS, np.arange(8) == 1, 0.95)
  expected = unit(1.9 * state.prototypes[2] + 0.1 * unit(ROWS[1]))
  np.testing.assert_allclose(result.prototypes[2], expected, rtol=1e-12)
