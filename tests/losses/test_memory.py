"""The memory against a list that keeps the latest rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses
from tests.losses.cases._frame import draw_embeddings
from tests.losses.slopes import with_slopes

SIZE = 7


def test_the_memory_holds_the_latest_rows():
  generator = np.random.default_rng(1)
  memory, written = losses.memory_init(SIZE, 2), []
  update = jax.jit(losses.memory_update)
  for step in range(8):
    x = generator.normal(size=(3, 2)).astype(np.float32)
    labels = generator.integers(0, 5, 3).astype(np.int32)
    where = np.array([True, step % 3 != 1, step != 2])
    memory, slots = update(
      memory, np.where(where[:, None], x, np.nan), labels, where=where
    )
    for r in range(3):
      if where[r]:
        assert slots[r] == len(written) % SIZE
        np.testing.assert_array_equal(memory.embeddings[slots[r]], x[r])
        written.append((*x[r], labels[r]))
      else:
        assert slots[r] == -1
    assert memory.filled == min(SIZE, len(written))
    assert memory.position == len(written) % SIZE
    references = losses.memory_references(memory, slots=slots)
    stored = np.concatenate([memory.embeddings, memory.labels[:, None]], 1)
    stored = stored[np.asarray(references.where)]
    latest = np.array(written[-SIZE:], np.float32)
    np.testing.assert_array_equal(sorted(stored.tolist()), sorted(latest.tolist()))
    assert np.isfinite(memory.embeddings).all()


def test_a_memory_of_the_batch_is_the_batch_without_its_reference_side(mixed, x64):
  x, labels = mixed

  def by_memory(x):
    memory = losses.memory_init(10, 4, dtype=jnp.float64)
    memory, _ = losses.memory_update(memory, x[:4], labels[:4])  # to be overwritten
    memory, slots = losses.memory_update(memory, x, labels)
    references = losses.memory_references(memory, slots=slots)
    return losses.multi_similarity(x, labels, references=references)

  def detached(x, fixed):
    references = losses.References(fixed, labels, itself=jnp.arange(10))
    return losses.multi_similarity(x, labels, references=references)

  values, gradient = with_slopes(by_memory)(x)
  np.testing.assert_allclose(values, losses.multi_similarity(x, labels), rtol=1e-12)
  _, expected = with_slopes(detached)(x, x)
  np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-14)


def test_an_empty_memory_has_no_loss():
  references = losses.memory_references(losses.memory_init(5, 2))
  values = losses.contrastive(jnp.eye(2), np.zeros(2, int), references=references)
  np.testing.assert_array_equal(values, 0)


def test_devices_keep_one_memory_and_one_loss(x64):
  x, labels = draw_embeddings(1, 12, 4), np.arange(12, dtype=np.int32) % 3
  where, empty = np.arange(12) % 5 != 1, losses.memory_init(15, 4, dtype=jnp.float64)
  memory, _ = losses.memory_update(empty, x, labels)

  def step(memory, x, labels, where, axis_name=None):
    common = {"where": where, "axis_name": axis_name}
    memory, slots = losses.memory_update(memory, x, labels, **common)
    references = losses.memory_references(memory, slots=slots)
    return memory, losses.contrastive(x, labels, references=references, **common)

  expected, values = jax.jit(step)(memory, x, labels, where)
  step = functools.partial(step, axis_name="i")
  mapped = jax.pmap(step, "i", in_axes=(None, 0, 0, 0))
  shards = (rows.reshape(4, 3, *rows.shape[1:]) for rows in (x, labels, where))
  memories, parts = mapped(memory, *shards)
  np.testing.assert_allclose(parts.reshape(12), values, rtol=1e-12)
  for leaf, right in zip(memories, expected, strict=True):
    np.testing.assert_array_equal(leaf, np.stack([right] * 4))


@pytest.mark.parametrize(("rows", "message"), [(8, "7 cannot take"), (0, r"\(0, 2\)")])
def test_errors(rows, message):
  x, labels = np.zeros((rows, 2), np.float32), np.zeros(rows, int)
  with pytest.raises(ValueError, match=message):
    losses.memory_update(losses.memory_init(SIZE, 2), x, labels)


def test_labels_of_64_bits_keep_all_of_them(x64):
  x, labels = np.eye(2), np.array([1, 1 + 2**32])
  empty = losses.memory_init(4, 2, dtype=jnp.float64)
  memory, slots = losses.memory_update(empty, x, labels)
  np.testing.assert_array_equal(memory.labels[slots], labels)
  references = losses.memory_references(memory, slots=slots)
  values = losses.cosine_contrastive(x, labels, references=references)
  np.testing.assert_array_equal(values, 0)  # two classes, at a right angle
  narrow = memory._replace(labels=memory.labels.astype(np.int32))
  with pytest.raises(TypeError, match=r"labels must fit .* int32, got dtype int64"):
    losses.memory_update(narrow, x, labels)
