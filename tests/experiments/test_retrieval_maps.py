"""Retrieval on frozen maps of a network: projection, a training, poolings."""

import dataclasses
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.frame import command, networks
from experiments.frame.study import Table
from experiments.metric_learning import images, plan, runs, training
from experiments.metric_learning.methods import Method
from experiments.metric_learning.plan import Name
from spherejax import data, models


def test_halves_share_no_class_and_count_from_zero():
  labels = np.repeat(np.arange(8), 40)
  first, second = (images.divided(np.arange(8), seed) for seed in (0, 1))
  rows = images.halves(labels, first)
  for part, classes, count in zip(rows[:3], first, (3, 1, 4), strict=True):
    np.testing.assert_array_equal(labels[part], np.repeat(classes, 40))
    assert len(classes) == count
  orders = [np.concatenate(x) for x in (first, second)]
  assert (np.sort(orders) == np.arange(8)).all()
  assert (orders[0] != orders[1]).any()
  np.testing.assert_array_equal(np.unique(rows.test_labels), [0, 1, 2, 3])


def test_projection_is_on_the_directions_of_largest_variance_of_the_learned_maps():
  random = np.random.default_rng(0)
  scales = np.array([1, 5, 0.1, 3])
  found = (3 + scales * random.normal(size=(40, 2, 2, 4))).astype(np.float16)
  rows = np.arange(0, 40, 2)
  points = found[rows].reshape(-1, 4).astype(np.float64)
  directions = np.linalg.svd(points - points.mean(0))[2][:2]
  expected = (found.astype(np.float64) - points.mean(0)) @ directions.T
  used = np.arange(39, -1, -1)
  projected = images.projected(found, rows, used, 2)[used]
  assert projected.dtype == np.float16
  signs = np.sign(np.sum(projected * expected, axis=(0, 1, 2)))
  np.testing.assert_allclose(projected, expected * signs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("pooled", [False, True])
def test_each_seed_has_its_own_classes_and_directions(pooled, tmp_path, monkeypatch):
  pixels = np.random.default_rng(2).integers(0, 256, (26, 4, 4, 3), np.uint8)
  # One class has two images, so it is left out.
  labels = np.insert(np.repeat([0, 1, 2, 4, 5, 6, 7, 8], 3), 9, [3, 3])
  pictures = data.from_arrays(pixels, labels)
  monkeypatch.setattr(images, "_FEWEST", 3)
  monkeypatch.setattr(images.class_sets, "read", lambda *_, **__: pictures)

  def see(x):
    return np.asarray(x, np.float32).reshape(len(x), 2, 2, 12) / 255

  network = types.SimpleNamespace(features=see, variables={})
  monkeypatch.setattr(images.models, "pretrained", lambda _: network)
  study = images.maps("cars196", 5, [4, 5], tmp_path, pooled=pooled)
  assert study.images.shape == (48, *((1, 1) if pooled else (2, 2)), 5)
  assert [x.shape for x in study[:3]] == [(2, 9), (2, 3), (2, 12)]
  assert sorted(np.concatenate(study[:3], axis=1).ravel()) == list(range(48))
  features = see(pixels[labels != 3])
  if pooled:
    features = features.mean((1, 2), keepdims=True)
  for number, seed in enumerate([4, 5]):
    rows = images.halves(np.repeat(range(8), 3), images.divided(np.arange(8), seed))
    averages = features[rows.test].mean((1, 2))
    averages /= np.linalg.norm(averages, axis=1, keepdims=True)
    np.testing.assert_allclose(study.raw[number], averages, atol=2e-3)  # of float16
    # A rotation: distances on the directions are near those of the maps.
    points = study.images[study.train[number][::4]].astype(np.float32).reshape(-1, 5)
    learned = features[rows.train[::4]].reshape(len(points), -1)
    learned = learned - learned.mean(0)
    squares = np.linalg.svd(learned, compute_uv=False) ** 2
    np.testing.assert_allclose((points**2).sum(), squares[:5].sum(), rtol=1e-2)


def test_the_last_stage_begins_as_the_pretrained_network(tmp_path, monkeypatch):
  pixels = np.random.default_rng(5).integers(0, 256, (16, 64, 64, 3), np.uint8)
  pictures = data.from_arrays(pixels, np.repeat(np.arange(8), 2))
  monkeypatch.setattr(images, "_FEWEST", 2)
  monkeypatch.setattr(images.class_sets, "read", lambda *_, **__: pictures)
  study = images.before_last_stage("cars196", [4, 5], tmp_path)
  assert study.images.shape == (16, 2, 2, 192)
  features = np.asarray(models.pretrained("efficientnet_lite0").features(pixels))
  averages = features.mean((1, 2))
  averages /= np.linalg.norm(averages, axis=1, keepdims=True)
  for number, seed in enumerate([4, 5]):
    rows = images.halves(np.repeat(range(8), 2), images.divided(np.arange(8), seed))
    for part in ("train", "held", "test"):
      np.testing.assert_array_equal(getattr(study, part)[number], getattr(rows, part))
    np.testing.assert_allclose(study.raw[number], averages[rows.test], atol=2e-3)
  # Before the first step the layer sees what it would see on the frozen maps.
  settings = command.only(plan.Settings, plan.PRESETS["cars-tuned"])
  architecture = dataclasses.replace(settings.architecture, image_size=2, dim=4)
  small = dataclasses.replace(settings, image_size=2, per_class=2, batch=4)
  runs.check(small, Method("c2"), study)
  variables = networks.initial_variables(jax.random.key(0), architecture)
  assert {*variables["params"]["backbone"]} == {"stage7_0", "head", "head_norm"}
  model = networks.Model(architecture, variables)
  found = jax.jit(model.embed)(jnp.asarray(study.images))
  frozen = dataclasses.replace(architecture, backbone="maps", frozen_norm=False)
  kept = {"params": {"head": variables["params"]["head"]}}
  expected = jax.jit(networks.Model(frozen, kept).embed)(jnp.asarray(features))
  np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.02 * expected.max())


def test_steps_train_the_last_stage_but_its_norms():
  rows = images.halves(np.repeat(np.arange(8), 4), images.divided(np.arange(8), 0))
  stored = np.random.default_rng(6).normal(size=(32, 1, 1, 192)).astype(np.float16)
  study = images.of_folds("drawn", stored, [rows])
  settings = dataclasses.replace(
    command.only(plan.Settings, plan.PRESETS["cars-tuned"]), image_size=1, dim=4,
    batch=4, per_class=2, steps=2, evaluate_every=2,
  )  # fmt: skip
  run, arrays = training.Run(settings, Method("c2"), study), training.on_device(study)
  hyper = {"fold": jnp.int32(0), "weight": jnp.float32(0), "rate": jnp.float32(1)}
  before = run.init(arrays, jax.random.key(0), hyper)
  after, _ = jax.jit(run.steps)(arrays, before, jax.random.key(1), hyper)
  first, last = (x.train.variables() for x in (before, after))
  moved = jax.tree.map(lambda a, b: (a != b).any(), first["params"], last["params"])
  movements = jax.tree_util.tree_leaves_with_path(moved)
  assert len(movements) == 4 + 2 * 4 + 1  # convolutions, their norms, the new layer
  for path, moves in movements:
    name = jax.tree_util.keystr(path)
    assert moves == ("kernel" in name), name  # frozen norms keep scale and bias, too
  chex.assert_trees_all_equal(first["batch_stats"], last["batch_stats"])


@pytest.mark.parametrize("pooled", [False, True])
def test_plankton_of_all_sizes_is_inverted(pooled, tmp_path, monkeypatch):
  values = np.arange(8, dtype=np.uint8) * 30
  grey = [np.full((9 + i, 20 - i, 1), x, np.uint8) for i, x in enumerate(values)]
  pictures = data.Images(grey, np.arange(8, dtype=np.int32), tuple("abcdefgh"))
  monkeypatch.setattr(images, "_FEWEST", 1)
  monkeypatch.setattr(images.class_sets, "read", lambda *_, **__: pictures)
  seen = []

  def see(x):
    seen.append(np.asarray(x))
    return np.asarray(x, np.float32)[:, :1, :1] / 255

  network = types.SimpleNamespace(features=see, variables={})
  monkeypatch.setattr(images.models, "pretrained", lambda _: network)
  images.maps("ndsb_plankton", 1, [0], tmp_path, pooled=pooled)
  taken = np.concatenate(seen)[:8]
  assert taken.shape == (8, 128, 128, 3)
  assert (taken == 255 - values[:, None, None, None]).all()


@pytest.mark.parametrize(
  "pooling", ["gap", pytest.param("gsp", marks=pytest.mark.slow)]
)
def test_a_layer_on_maps_finds_classes_that_it_has_not_seen(tmp_path, pooling):
  random = np.random.default_rng(1)
  signal = random.normal(size=(16, 1, 1, 1, 4))
  noise = random.normal(size=(16, 30, 2, 2, 8))
  noise[..., :4] = signal + 0.3 * noise[..., :4]
  noise[..., 4:] *= 2
  found = noise.reshape(480, 2, 2, 8).astype(np.float16)
  labels = np.repeat(np.arange(16), 30)
  every = [
    images.halves(labels, images.divided(np.arange(16), seed)) for seed in (5, 6)
  ]
  study = images.of_folds("drawn", found, every)._replace(by_seed=True)
  settings = plan.Settings(
    backbone="maps", channels=8, image_size=2, dim=4, batch=24, per_class=4, shift=0,
    steps=60, evaluate_every=20, seed=5, seeds=2, pooling=pooling, prototypes=8,
    mass=0.5, learning_rate=0.01,
  )  # fmt: skip
  method = Method("c2")
  runs.check(settings, method, study)
  options = {"weights": (0.0,), "rates": (1e-6, 1.0)}
  trained = runs.train(settings, method, study, tmp_path, **options)
  assert trained.rate == 1  # the other learns nothing
  assert trained.points.shape == (1, 2, 240, 4)
  # A seed draws other weights too, not other classes alone.
  alike = {x: getattr(study, x)[[0, 0]] for x in ("train", "held", "test")}
  first, second = runs.untrained(settings, study._replace(**alike))["MAP@R"]
  assert first != second
  assert trained.test["MAP@R"][0].min() > max(first, second)
  assert trained.test["MAP@R"][0].mean() > max(first, second) + 0.1
  assert not list(tmp_path.glob("model-*"))  # it sees no images


def test_poolings_are_claimed_against_the_one_that_validation_chooses():
  config = plan.PRESETS["cars-poolings"]
  planned = plan.plan(config)
  titles = [name.title for name in planned if name.loss == "c2"]
  assert titles[:3] == ["C2", "C2+GMP", "C2+GAP+GMP"]
  assert len(titles) == len({*titles}) == 15
  assert len(planned) == 30
  name = Name("x", "c2", parts="OTP")
  assert plan.settings_of(config, plan.Settings(), name, Method("c2")).pooling == "otp"
  table = Table()
  heights = {"C2": 0.3, "C2+GSP": 0.5, "C2+OTP": 0.4, "C2+GeM": 0.2}
  heights |= {"ProxyNCA++": 0.1, "ProxyNCA+++GSP": 0.2, "ProxyNCA+++GMP": 0.25}
  for title, height in heights.items():
    table.add(f"cars, {title}", plan.MAP, height + 0.01 * np.arange(3))
    # The best other one on the test classes is the second on validation classes.
    seen = height - 0.3 * (title == "C2+OTP")
    table.add(f"cars, {title}", plan.VALIDATION, np.full(3, seen))
  found = {x.id: x.difference(table) for x in plan._of_poolings(config, table)}
  assert found.keys() == {f"retrieval-poolings-{x}" for x in ("C2", "ProxyNCA++")}
  gains = found["retrieval-poolings-C2"], found["retrieval-poolings-ProxyNCA++"]
  np.testing.assert_allclose(gains, [[0.2] * 3, [-0.05] * 3], atol=1e-9)
  # The average is compared where all parts of the pooling are.
  (against,) = (x for x in plan._of_parts(config) if x.id == "components-C2-GSP")
  np.testing.assert_allclose(against.difference(table), 0.2, atol=1e-9)
