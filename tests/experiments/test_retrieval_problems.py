"""Problems of `retrieval`: when one ends, what the next begins with, their loss."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.frame import networks, poolings
from experiments.frame import training as frame_training
from experiments.metric_learning import images as retrieval_sets
from experiments.metric_learning import objective
from experiments.metric_learning import settings as retrieval_settings
from experiments.metric_learning import training as retrieval_training
from experiments.metric_learning.methods import Method
from experiments.metric_learning.photographs import training as retrieval_full_training
from experiments.metric_learning.photographs.methods import FullConfig
from spherejax import data, losses, training
from tests.experiments.test_retrieval_full import Shallow

SETTINGS = FullConfig(
  backbone="bn_inception", width=4, image_size=8, channels=3, dim=3, pooling="gap",
  batch=8, steps=9, evaluate_every=1, learning_rate=1e-2, prefetch=1, zero_shot=0.0,
)  # fmt: skip
LABELS = np.array([0, 1, 1, 2, 2, 2, 0, 1])


@pytest.fixture(autouse=True)
def _shallow(monkeypatch):
  monkeypatch.setattr(networks.models, "BNInception", Shallow)


def turns(scores, *, margin, patience):
  """Evaluations after which a problem of Algorithm 1 ends, and its best one."""
  found, best, stale, best_at = [], -np.inf, 0, None
  for place, score in enumerate(scores):
    if score > best + margin:
      best, stale, best_at = score, 0, place
    else:
      stale += 1
    if stale == patience:
      found.append((place, best_at))
      best, stale = -np.inf, 0
  return found


def pictures():
  """Twelve of three classes."""
  source = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), np.uint8)
  return data.from_arrays(source, np.arange(12) // 4)


def responds(settings, folder, monkeypatch):
  """State and response that a training of photographs gives to `fit`."""
  given = {}

  def stopped(state, *arguments, respond, monitor, **options):
    given.update(state=state, respond=respond, monitor=monitor)
    raise KeyboardInterrupt

  monkeypatch.setattr(retrieval_full_training.training, "fit", stopped)
  with pytest.raises(KeyboardInterrupt):
    retrieval_full_training.train(
      settings, Method("c2", "ccp", 2, 3), pictures(), pictures(), jax.random.key(0),
      folder / "checkpoints", folder / "evaluations.json",
    )  # fmt: skip
  return given


def marked(state, value):
  """The state with every parameter `value`."""
  params = jax.tree.map(lambda x: jnp.full_like(x, value), state.params)
  return state.replace(params=params)


def test_problems_of_photographs_turn_as_the_algorithm_says(tmp_path, monkeypatch):
  settings = dataclasses.replace(
    SETTINGS, metric="P@1", switch_patience=2, weight=0.25, patience=5
  )
  given = responds(settings, tmp_path, monkeypatch)
  assert (given["monitor"].metric, given["monitor"].patience) == ("P@1", 5)
  # Percent: by less than a thousandth is no better, by more is.
  scores = [50.0, 50.003, 50.0035, 50.0038, 49.0, 48.0, 48.002, 47.0, 46.0, 45.0, 45.0]
  ends = functools.partial(turns, scores, patience=2)
  expected = ends(margin=1e-3)
  assert len(expected) >= 2
  assert expected not in (ends(margin=1e-5), ends(margin=0.1))
  state, found = given["state"], []
  for place, score in enumerate(scores):
    before = int(training.ccp_state(state).problem)
    state = marked(state, place + 1.0)
    values = {"P@1": score, "MAP@R": float(place)}  # which rises without an end
    state = given["respond"](state, values)
    own = training.ccp_state(state)
    if int(own.problem) > before:
      # The best weights are what the next problem begins with, and is held near.
      anchor = jax.tree.leaves(own.anchor)[0].ravel()[0]
      assert anchor == jax.tree.leaves(state.params["network"])[0].ravel()[0]
      found.append((place, int(anchor) - 1))
      assert float(own.weight) == 0.25
  assert found == expected


def test_what_a_problem_of_photographs_begins_with(tmp_path, monkeypatch):
  pools, renewed = [], []

  def pool(run, variables, key):
    pools.append((variables, key))
    return jax.random.normal(key, (run.classes, run.method.pool_size, 3)), None

  def renew(points, old):
    renewed.append((points, old))
    return points[:, : old.shape[1]]

  monkeypatch.setattr(retrieval_full_training.Run, "pool", pool)
  monkeypatch.setattr(retrieval_full_training.prototypes, "renew_proxies", renew)
  settings = dataclasses.replace(SETTINGS, switch_patience=1)
  given = responds(settings, tmp_path, monkeypatch)
  # The first two of a pool keep the first proxies away.
  first, second = (jax.random.normal(key, (3, 3, 3)) for _, key in pools[:2])
  np.testing.assert_array_equal(renewed[0][1], first[:, :2])
  np.testing.assert_array_equal(renewed[0][0], second)
  state = given["respond"](marked(given["state"], 1.0), {"MAP@R": 50.0})
  state = given["respond"](marked(state, 2.0), {"MAP@R": 40.0})
  own = training.ccp_state(state)
  assert int(own.problem) == 2
  # New proxies are of the best weights, and keep away from those beside them.
  seen, key = pools[-1]
  for leaf in jax.tree.leaves((seen["params"], own.anchor, state.params["network"])):
    np.testing.assert_array_equal(leaf, 1.0)
  np.testing.assert_array_equal(renewed[-1][1], 1.0)
  np.testing.assert_array_equal(state.params["loss"]["proxies"], renewed[-1][0][:, :2])
  # Of another key than the steps', which fold in their number as well.
  expected = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 2), state.step)
  assert (jax.random.key_data(key) == jax.random.key_data(expected)).all()


def test_problems_of_small_images_turn_as_the_algorithm_says():
  settings = dataclasses.replace(SMALL, switch_patience=2)
  study = retrieval_sets.gaussians(0)
  run = retrieval_training.Run(settings, Method("c2", "ccp", 2, 3), study)
  given = retrieval_training.on_device(study)
  hyper = dict(zip(("weight", "fold", "rate"), jnp.array([0.25, 0, 1]), strict=True))
  state = jax.jit(run.init)(given, jax.random.key(0), hyper)

  def pool(variables, key, given, hyper):
    leaf = jax.tree.leaves(variables["params"])[0].ravel()[0]
    return jnp.full((run.classes, 3, 2), leaf), jnp.zeros((run.classes, 3), jnp.int32)

  run.pool = pool  # points that tell whose they are
  switched = jax.jit(run.switched)
  scores = [0.5, 0.50003, 0.500035, 0.500038, 0.4, 0.4, 0.3, 0.30002, 0.2, 0.1, 0.1]
  ends = functools.partial(turns, scores, patience=2)
  expected = ends(margin=1e-5)
  assert expected not in (ends(margin=0), ends(margin=1e-3))
  found = []
  for place, score in enumerate(scores):
    before = int(state.train.opt_state[0].problem)
    train = marked(state.train, place)
    state = state._replace(score=jnp.float32(score), train=train)
    state, figures = switched(given, hyper, state, jax.random.key(place))
    own = state.train.opt_state[0]
    assert int(figures["problem"]) == before
    if int(own.problem) > before:
      best = int(jax.tree.leaves(own.anchor)[0].ravel()[0])
      found.append((place, best))
      assert float(own.weight) == 0.25
      np.testing.assert_array_equal(state.train.params["loss"]["proxies"], best)
      for leaf in jax.tree.leaves(state.train.params["network"]):
        np.testing.assert_array_equal(leaf, best)
  assert found == expected


@pytest.mark.parametrize("kind", ["ccp", "samples"])
def test_the_loss_with_proxies(kind):
  """References are proxies, or images at the end of the batch in their place."""
  numbers = (("positive_margin", 0.2), ("negative_margin", 0.9))
  method = Method("c2", kind, 2, 3, numbers=numbers)
  random = np.random.default_rng(1)
  images = random.integers(0, 256, (8 + 6, 8, 8, 3), np.uint8)
  proxies = random.normal(size=(3, 2, 3)).astype(np.float32)
  variables = networks.initial_variables(jax.random.key(0), SETTINGS.architecture)
  params = {"network": variables["params"], "loss": {"proxies": jnp.asarray(proxies)}}
  stats = {"network": variables["batch_stats"]}

  @jax.jit
  def both():
    network = networks.Network(SETTINGS.architecture)
    found, _ = frame_training.forward(
      network, params["network"], stats["network"], images
    )
    batch = {"image": images, "label": LABELS}
    own = objective.Run(SETTINGS, method, np.arange(3))
    outcome = own(params, stats, batch, key=jax.random.key(0), axis_name=None)
    return found.embeddings, outcome.loss

  points, loss = both()
  x, anchors = points[:8], points[8:]
  assert np.linalg.norm(x[0] - x[1]) > 1e-3
  pair = functools.partial(
    losses.contrastive, jnp.asarray(x), LABELS, positive_margin=0.2,
    negative_margin=0.9, normalize="unit_ball",
  )  # fmt: skip
  rows = proxies.reshape(6, 3) if kind == "ccp" else anchors
  own = losses.References(rows, np.repeat(np.arange(3), 2), np.ones(6, bool), None)
  assert float(loss) == pytest.approx(float(pair(references=own).mean()), rel=1e-4)


SMALL = retrieval_settings.Settings(
  backbone="mlp", width=4, dim=2, image_size=4, shift=0, batch=8
)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_memory_is_filled_at_once_and_counts_later(devices):
  """Two devices with half of the batch each fill the memory in as many steps as one."""
  run = objective.Run(
    dataclasses.replace(SMALL, memory_start=2), Method("c1", "xbm", memory=2), LABELS
  )
  step, shape = run.remembered, (4,)
  stats = {"loss": {"memory": losses.memory_init(8, 3), "taken": jnp.int32(0)}}
  if devices == 2:
    shape, stats = (2, 2), jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), stats)
    step = jax.vmap(functools.partial(step, axis_name="batch"), axis_name="batch")
  x = np.random.default_rng(0).normal(size=(6, *shape, 3)).astype(np.float32)
  labels = np.array([0, 0, 1, 1], np.int32).reshape(shape)
  for taken in range(6):
    references, remembers, stats = step(stats, x[taken], labels)
    np.testing.assert_array_equal(stats["loss"]["taken"], taken + 1)
    np.testing.assert_array_equal(remembers, taken >= 4)
    points = np.asarray(stats["loss"]["memory"].embeddings)
    kept = x[max(0, taken - 1) : taken + 1].reshape(-1, 3).tolist()
    held = points[np.asarray(references.where)].tolist()
    assert sorted(held) == sorted(kept * devices)
  # Rows of the batch are not compared with their own copies.
  itself = np.asarray(references.itself)[..., None]
  np.testing.assert_array_equal(np.take_along_axis(points, itself, axis=-2), x[5])


@pytest.mark.parametrize("pooling", [*poolings.TITLES, *poolings.WIDE])
def test_embeddings_have_the_dimension_that_is_said(pooling):
  architecture = networks.Architecture(width=4, dim=20, image_size=32, pooling=pooling)
  begin = functools.partial(networks.initial_variables, architecture=architecture)

  def embed(key):
    model = networks.Model(architecture, begin(key))
    return model.embed(jnp.zeros((2, 32, 32, 1), jnp.uint8))

  found = jax.eval_shape(embed, jax.random.key(0))
  assert found.shape == (2, architecture.embedding_dim)
