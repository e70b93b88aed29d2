"""Choices in which the released codes of proxies and of the memory leave the texts."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.frame import networks, poolings
from experiments.metric_learning import images, methods
from experiments.metric_learning import settings as retrieval_settings
from experiments.metric_learning import training as retrieval_training
from experiments.metric_learning.methods import Method
from experiments.metric_learning.photographs import training as retrieval_full_training
from spherejax import losses, training

STUDY = images.gaussians(0)
HYPER = {"weight": jnp.float32(2e-4), "fold": jnp.float32(0), "rate": jnp.float32(1)}


def small(**changes):
  settings = retrieval_settings.Settings(
    backbone="mlp", width=16, dim=4, image_size=4, shift=0, batch=8, per_class=4,
    switch_patience=1, steps=2, evaluate_every=1, **changes,
  )  # fmt: skip
  run = retrieval_training.Run(settings, Method("c2", "ccp", 2, 4), STUDY)
  given = retrieval_training.Data(
    *(jnp.asarray(x) for x in (STUDY.images, STUDY.train, STUDY.held)),
    test=jnp.asarray(STUDY.test[:, :4]),
  )
  return run, given, jax.jit(run.init)(given, jax.random.key(2), HYPER)


@pytest.mark.parametrize(("use", "first"), [("full", 4), ("any", 2)])
def test_a_memory_is_filled_from_the_first_step_or_from_its_start(use, first):
  x = np.random.default_rng(0).normal(size=(6, 4, 3)).astype(np.float32)
  labels = np.array([0, 0, 1, 1], np.int32)
  memory = losses.memory_init(8, 3)
  begins = 2 if use == "any" else 0
  for taken in range(6):
    memory, references, remembers = methods.remember(
      memory, x[taken], labels, jnp.int32(taken), start=2, use=use
    )
    assert bool(remembers) == (taken >= first)
    kept = x[max(begins, taken - 1) : taken + 1].reshape(-1, 3)
    held = np.asarray(memory.embeddings)[np.asarray(references.where)]
    assert sorted(held.tolist()) == sorted(kept.tolist())
  # Rows of the batch are not compared with their own copies.
  np.testing.assert_array_equal(memory.embeddings[references.itself], x[5])


@pytest.mark.parametrize(
  ("use", "first"), [pytest.param("full", 4, marks=pytest.mark.slow), ("any", 2)]
)
def test_two_devices_fill_a_memory_twice_as_fast(use, first):
  x = np.random.default_rng(0).normal(size=(6, 2, 2, 3)).astype(np.float32)
  labels = np.array([[0, 0], [1, 1]], np.int32)
  memory = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), losses.memory_init(8, 3))
  step = jax.vmap(
    lambda memory, x, labels, taken: methods.remember(
      memory, x, labels, taken, start=2, use=use, axis_name="batch"
    ),
    in_axes=(0, 0, 0, None),
    axis_name="batch",
  )
  for taken in range(6):
    memory, references, remembers = step(memory, x[taken], labels, jnp.int32(taken))
    np.testing.assert_array_equal(remembers, taken >= first)
  rows = np.arange(2)[:, None]
  np.testing.assert_array_equal(memory.embeddings[rows, references.itself], x[5])


def test_the_first_proxies_are_the_longest_where_they_keep_away_from_the_origin():
  run, given, state = small(first_centres="origin")
  keys = jax.random.split(jax.random.key(2), 4)
  points, _ = run.pool(state.train.variables(), keys[3], given, HYPER)
  longest = np.linalg.norm(points, axis=2).max(axis=1)
  proxies = np.asarray(state.train.params["loss"]["proxies"])
  np.testing.assert_allclose(np.linalg.norm(proxies[:, 0], axis=1), longest, rtol=1e-5)
  _, _, other = small()
  assert np.abs(other.train.params["loss"]["proxies"] - proxies).max() > 0.01


def test_first_proxies_of_photographs_are_the_longest_too():
  points = jnp.array([[[1.0, 0.0], [0.0, 3.0], [2.0, 0.0]], [[5.0, 0], [1, 1], [0, 4]]])
  run: retrieval_full_training.Run = types.SimpleNamespace(  # pyright: ignore
    classes=2,
    method=Method("c2", "ccp", 2, 2),
    settings=types.SimpleNamespace(
      embedding_dim=2, first_centres="origin", pool_space="raw"
    ),
    pool=lambda variables, key: (points, None),
  )
  first = retrieval_full_training.Run.first_proxies
  np.testing.assert_array_equal(
    first(run, {}, jax.random.key(0)), [[[0, 3], [2, 0]], [[5, 0], [0, 4]]]
  )
  run.settings.first_centres = "random"  # pyright: ignore
  # The first two of the pool keep new ones away.
  np.testing.assert_array_equal(
    first(run, {}, jax.random.key(0))[:, 0], [[2, 0], [0, 4]]
  )


@pytest.mark.parametrize("fresh", [pytest.param(False, marks=pytest.mark.slow), True])
def test_moments_of_proxies_begin_anew_with_a_problem(fresh):
  run, given, state = small(fresh_moments=fresh)
  key = jax.random.key(4)
  state, _ = jax.jit(run.steps)(given, state, key, HYPER)
  switched = jax.jit(run.switched)
  for score, problem in ((0.5, 1), (0.4, 2)):
    state, _ = switched(given, HYPER, state._replace(score=jnp.float32(score)), key)
    assert int(state.train.opt_state[0].problem) == problem
    sizes = {"network": 0.0, "loss": 0.0}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.train.opt_state[1:]):
      name = jax.tree_util.keystr(path)
      if ".mu" in name:
        group = "network" if "['network']" in name else "loss"
        sizes[group] = max(sizes[group], float(np.abs(leaf).max()))
    assert sizes["network"] > 0
    assert (sizes["loss"] == 0) == (fresh and problem == 2)


def test_a_state_of_another_optimiser_is_refused():
  params = {"network": jnp.ones(1), "loss": jnp.ones(1)}
  with pytest.raises(ValueError, match="of 0 leaves, got one of 5"):
    training.ccp_fresh_moments(optax.sgd(0.1), optax.adam(0.1).init(params), params)


@pytest.mark.parametrize("pooling", [*poolings.TITLES, *poolings.WIDE])
def test_embeddings_have_the_dimension_that_is_said(pooling):
  architecture = networks.Architecture(width=4, dim=20, image_size=32, pooling=pooling)
  begin = functools.partial(networks.initial_variables, architecture=architecture)

  def embed(key):
    model = networks.Model(architecture, begin(key))
    return model.embed(jnp.zeros((2, 32, 32, 1), jnp.uint8))

  found = jax.eval_shape(embed, jax.random.key(0))
  assert found.shape == (2, architecture.embedding_dim)
