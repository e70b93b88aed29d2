"""Retrieval on photographs: its protocols, its data sets, and a proof on noise."""

import dataclasses
import functools
import itertools
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy

from experiments import retrieval
from experiments.frame import networks
from experiments.frame import poolings as frame_poolings
from experiments.frame.study import Table
from experiments.metric_learning import methods as retrieval_losses
from experiments.metric_learning import objective
from experiments.metric_learning.photographs import batches, protocols, training
from experiments.metric_learning.photographs import methods as retrieval_full_jobs
from experiments.metric_learning.photographs import sets as retrieval_full_sets
from experiments.metric_learning.photographs.comparison import Comparison, FullConfig
from experiments.published import dml
from spherejax import _versions, data, losses, models
from tests.data.test_listings import LISTED, write_shop
from tests.experiments import entries
from tests.metrics.test_retrieval import oracle


class Shallow(nn.Module):
  """In the place of a backbone for photographs."""

  width: int
  frozen_norm: bool = False
  axis_name: str | None = None
  remat: bool = False

  @nn.compact
  def __call__(self, x, *, train=False):
    x = nn.Conv(self.width, (8, 8), strides=8, name="conv")(x / 64)
    norm = nn.BatchNorm(
      self.frozen_norm or not train, use_scale=False, use_bias=False, name="norm"
    )
    return nn.relu(norm(x))


SMALL = FullConfig(
  learned_classes=8, weights="none", frozen_norm=True, width=8, image_size=32,
  shorter_side=36, dim=6,
  batch=8, steps=6, evaluate_every=2, checkpoint_every=5, switch_patience=1, proxies=2,
  pool=3, memory=2, memory_start=1, prototypes=4, evaluation_batch=16, prefetch=1,
)  # fmt: skip
FAIR = protocols.protocol("fair", "cub", "bn_inception")
slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Sixteen classes of six pictures of noise, in several sizes."""
  draw = functools.partial(np.random.default_rng(0).integers, 0, 256, dtype=np.uint8)
  noise = {f"{x:02}": [draw((40 + k, 44, 3)) for k in range(6)] for x in range(16)}
  return entries.write_images(tmp_path_factory.mktemp("noise"), noise)


def evaluations(output, name=""):
  """Evaluations of the trainings whose names begin so, in the order of names."""
  files = sorted((output / "evaluations").glob(f"{name}*.json"))
  return [row for path in files for row in json.loads(path.read_text())["evaluations"]]


@pytest.mark.slow
def test_a_run_stopped_in_a_problem_ends_alike(tmp_path, folder, monkeypatch):
  monkeypatch.setattr(models, "BNInception", Shallow)
  config = dataclasses.replace(
    SMALL, folder=folder, methods=("c2+ccp",), folds=(1, 2), patience=9
  )
  renewed, pools = training.prototypes.renew_proxies, []

  def spied(points, old):
    pools.append((points, old, renewed(points, old)))
    return pools[-1][2]

  monkeypatch.setattr(training.prototypes, "renew_proxies", spied)
  whole = retrieval.STUDY.run(config, tmp_path / "whole", "full")
  for fold in (1, 2):
    seen = evaluations(tmp_path / "whole", f"c2+ccp-{fold}-1")
    assert [(x["step"], x["problem"]) for x in seen] == [(2, 1), (4, 1), (6, 2)]
    assert {"P@1", "P@R", "MAP@R"} < set(seen[0])
  # Of each fold before its first step, and where its second problem began.
  assert len(pools) == 4
  for points, old, new in pools:
    assert (points.shape, old.shape) == ((6, 3, 6), (6, 2, 6))
    away = jnp.abs(points[:, None] - new[:, :, None]).max(-1)
    assert (away.min(-1) == 0).all()  # all are embeddings of the pool
  assert 0 < float(jnp.abs(pools[1][1] - pools[0][2]).max()) < 1e-3  # they have learned

  log, calls = training.log, []

  def stopped(*arguments):
    calls.append(arguments)
    if len(calls) == 3:  # the newest checkpoint is that of step 5, of problem 2
      raise KeyboardInterrupt
    log(*arguments)

  monkeypatch.setattr(training, "log", stopped)
  output = tmp_path / "resumed"
  first = dataclasses.replace(config, folds=(1,))
  with pytest.raises(KeyboardInterrupt):
    retrieval.STUDY.run(first, output, "full")
  assert len(evaluations(output)) == 2
  resumed = retrieval.STUDY.run(first, output, "full")
  assert len(calls) == 3 + 1  # only the last evaluation was left
  assert evaluations(output) == evaluations(tmp_path / "whole", "c2+ccp-1-1")
  folders = (tmp_path / name / "model-c2+ccp-1" for name in ("whole", "resumed"))
  both = (networks.load(folder).variables for folder in folders)
  jax.tree.map(np.testing.assert_array_equal, *both)
  figures = {(row["name"], row["metric"]): row["values"] for row in (whole["rows"])}
  for row in resumed["rows"]:
    assert row["values"] == figures[row["name"], row["metric"]][:1]

  # What is finished is read.
  monkeypatch.setattr(training.training, "fit", None)
  again = retrieval.STUDY.run(config, tmp_path / "whole", "full")
  assert again["rows"] == whole["rows"]
  assert len(figures["C2+CCP", "MAP@R, 6-D"]) == 2
  assert len(figures["C2+CCP", "MAP@R, 12-D"]) == 1
  assert {row["paper"] for row in whole["rows"]} == {None}  # those are of other images


def test_evaluations_taken_again_stand_once(tmp_path):
  path = tmp_path / "evaluations" / "c2-1-1.json"
  for step in (2, 4, 6):
    training.log(path, {"step": step, "MAP@R": float("nan")})
  training.log(path, {"step": 4, "MAP@R": 5.0})  # it went on from step 2
  found = [(x["step"], x["MAP@R"]) for x in evaluations(tmp_path)]
  assert found == [(2, None), (4, 5.0)]
  path.write_text(path.read_text()[:-8])
  with pytest.raises(ValueError, match=r"c2-1-1\.json is damaged; delete it"):
    training.log(path, {"step": 6, "MAP@R": 6.0})


@pytest.mark.slow
def test_other_methods_and_protocols_make_their_steps(tmp_path, folder, monkeypatch):
  monkeypatch.setattr(models, "BNInception", Shallow)
  config = dataclasses.replace(
    SMALL, folder=folder, steps=4, protocol="conventional", remat=True, repeats=1
  )
  states = []
  fit = training.training.fit

  def watched(state, *arguments, **options):
    states.append((state, fit(state, *arguments, **options)))
    return states[-1][1]

  monkeypatch.setattr(training.training, "fit", watched)

  def run(**changes):
    given = dataclasses.replace(config, **changes)
    content = retrieval.STUDY.run(given, tmp_path, "full")
    return {(row["name"], row["metric"]): row["values"] for row in content["rows"]}

  note = ": chosen by the test images"
  run(methods=("c1+xbm+gsp",))
  start, result = states[0]
  memory = result.state.batch_stats["loss"]
  assert int(memory["taken"]) == 4
  assert int(memory["memory"].filled) == 16
  assert set(np.asarray(memory["memory"].labels).tolist()) <= set(range(8))
  moved = jax.tree.map(lambda x, y: (x != y).any(), start.params, result.state.params)
  assert moved["loss"]["zero_shot"]["label_embeddings"]
  assert moved["network"]["pooling"]["prototypes"]
  assert moved["network"]["backbone"]["conv"]["kernel"]
  frozen = [one.batch_stats["network"]["backbone"] for one in (start, result.state)]
  jax.tree.map(np.testing.assert_array_equal, *frozen)

  # A network that begins as it is drawn learns its norms, unless they are frozen.
  figures = run(methods=("proxy_anchor",), repeats=2, frozen_norm=None)
  own = evaluations(tmp_path, "proxy_anchor")
  assert [x["step"] for x in own] == [2, 4, 2, 4]
  best = max(x["P@1"] for x in own)
  assert figures["ProxyAnchor", f"P@1, 6-D{note}"] == [pytest.approx(best)]
  start, result = states[1]
  moved = [one.batch_stats["network"]["backbone"] for one in (start, result.state)]
  for before, after in zip(*map(jax.tree.leaves, moved), strict=True):
    assert (before != after).all()
  proxies = (start.params["loss"]["proxies"], result.state.params["loss"]["proxies"])
  # Four steps of Adam at a hundred times the rate.
  np.testing.assert_allclose(*proxies, atol=4.1e-3)
  assert float(jnp.abs(proxies[0] - proxies[1]).max()) > 1e-3

  # Poolings may be long.
  monkeypatch.setattr(frame_poolings, "MANY_PROTOTYPES", 8)  # of 48 images
  figures = run(methods=("c2+otp_wide",))
  assert ("C2+OTP of 64", f"P@1, 48-D{note}") in figures


@pytest.mark.parametrize("name", ["c1+xbm", slow("c2+ccp"), slow("proxy_anchor")])
def test_the_loss_on_two_devices_is_that_on_one(name, monkeypatch):
  monkeypatch.setattr(models, "BNInception", Shallow)
  config = dataclasses.replace(SMALL, memory_start=0)
  job = retrieval_full_jobs.job(config, FAIR._replace(dim=6, batch=8), name)
  some = pictures([(40, 40)] * 24)
  run = training.Run(job.settings, job.method, some, jax.random.key(1))
  run.pool = lambda variables, key: (jax.random.normal(key, (6, 3, 6)), None)
  run.with_prototypes = lambda variables, key: variables
  state = run.start(jax.random.key(0), fresh=True)
  random = np.random.default_rng(0)
  stats = state.batch_stats
  if "loss" in stats:  # a full memory
    full = stats["loss"]["memory"]._replace(
      embeddings=jnp.asarray(random.normal(size=(16, 6)), jnp.float32),
      labels=jnp.asarray(random.integers(0, 6, 16), jnp.int32),
      filled=jnp.int32(16),
    )
    stats = {**stats, "loss": {"memory": full, "taken": jnp.int32(99)}}
  batch = {
    "image": random.integers(0, 256, (8, 32, 32, 3), np.uint8),
    "label": np.repeat([0, 4, 1, 2], 2).astype(np.int32),
  }

  value_of, given = retrieval_losses.value, []

  def watched(*arguments, **options):
    given.append((arguments[5], options["remembers"]))
    return value_of(*arguments, **options)

  monkeypatch.setattr(retrieval_losses, "value", watched)

  def gradients(batch, axis_name=None):
    def value(params):
      own = objective.Run(job.settings, job.method, np.arange(6))
      found = own(params, stats, batch, key=jax.random.key(0), axis_name=axis_name)
      return found.loss, found

    return jax.grad(value, has_aux=True)(state.params)

  def on_two(batch):
    found, outcome = gradients(batch, "batch")
    return jax.lax.pmean((found, outcome.loss), "batch"), outcome.batch_stats

  whole, outcome = jax.jit(gradients)(batch)
  memory, remembers = given[0]
  assert (memory is not None) == ("loss" in stats)
  if memory is not None:
    assert (memory.itself.shape, remembers.shape) == ((8,), ())
  halves = jax.tree.map(lambda x: x.reshape(2, 4, *x.shape[1:]), batch)
  (parts, loss), after = jax.jit(jax.vmap(on_two, axis_name="batch"))(halves)
  np.testing.assert_allclose(loss[0], outcome.loss, rtol=1e-5)
  assert float(outcome.loss) > 0
  assert all(np.any(leaf) for leaf in jax.tree.leaves(whole))
  # The memory is the same on both.
  for pair, rtol in (((parts, whole), 1e-3), ((after, outcome.batch_stats), 1e-5)):
    for both, expected in zip(*map(jax.tree.leaves, pair), strict=True):
      np.testing.assert_allclose(both[1], expected, rtol=rtol, atol=1e-6)


def test_the_backbone_waits_for_the_embedding_layer():
  job = retrieval_full_jobs.job(FullConfig(), FAIR, "proxy_nca")
  settings = dataclasses.replace(job.settings, evaluate_every=2)
  two = jnp.ones(2)
  network = {"backbone": {"conv": two, "norm": two}, "head": {"kernel": two}}
  params = {"network": network, "loss": {"proxies": jnp.ones((2, 2))}}
  chain = objective.optimizer(settings, job.method, {})
  state = chain.init(params)
  some = jax.tree.map(jnp.ones_like, params)
  for number in range(3):
    update, state = chain.update(some, state, params)
    moves = update["network"]
    assert (moves["backbone"]["conv"] != 0).all() == (number >= 2)
    assert (moves["head"]["kernel"] != 0).all()
    if number == 0:
      np.testing.assert_allclose(moves["head"]["kernel"], -1e-5, rtol=1e-3)
      np.testing.assert_allclose(update["loss"]["proxies"], -1e-3, rtol=1e-3)


@pytest.mark.parametrize("loss", ["proxy_anchor", "proxy_nca", "soft_triple"])
def test_losses_of_proxies_are_those_of_the_library(loss):
  job = retrieval_full_jobs.job(FullConfig(), FAIR, loss)
  number = 10 if loss == "soft_triple" else 1
  assert (job.method.proxies, job.method.pool) == (number, 12)
  assert job.settings.per_class == 1
  assert job.title == retrieval_losses.TITLES[loss]
  # The loss is that of these proxies, whatever references say.
  random = np.random.default_rng(0)
  x, labels = random.normal(size=(6, 5)), np.array([0, 1, 2, 0, 1, 2])
  proxies = random.normal(size=(3, number, 5) if number > 1 else (3, 5))
  found = retrieval_losses.value(
    job.method, x, labels, {"proxies": proxies}, None, None, remembers=False
  )
  of = {
    "proxy_anchor": losses.proxy_anchor,
    "proxy_nca": functools.partial(losses.proxy_nca_plus_plus, logit="cosine"),
    "soft_triple": losses.soft_triple,
  }[loss]
  expected = np.mean(of(x, labels, proxies, **job.method.settings()))
  np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_gradients_are_decayed_then_clipped_then_adam_sees_them():
  settings = FullConfig(learning_rate=0.1, weight_decay=0.5)
  method = retrieval_full_jobs.Method("c2", "proxy", 1)
  chain = objective.optimizer(settings, method, {})
  with _versions.enable_x64():
    values = {
      "loss": {"proxies": 5.0},
      "network": {"backbone": {"conv": 4.0, "norm": 3.0}, "head": {"kernel": -2.0}},
    }
    params = jax.tree.map(jnp.array, values)
    decayed = np.array([0, 0.5, 0, 0.5])  # of weights only
    w, m, v = np.array([5.0, 4.0, 3.0, -2.0]), np.zeros(4), np.zeros(4)
    state = chain.init(params)
    for step, g in enumerate(([-20.0, 60.0, 9.0, 8.0], [0.1, 0.3, -0.4, 0.2]), 1):
      gradient = jax.tree.unflatten(jax.tree.structure(params), map(jnp.array, g))
      updates, state = chain.update(gradient, state, params)
      params = optax.apply_updates(params, updates)
      g = np.array(g) + decayed * w
      g = np.clip(g * min(1, 10 / np.linalg.norm(g)), -10, 10)
      m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
      adam = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
      w = w - 0.1 * adam
    np.testing.assert_allclose(jax.tree.leaves(params), w, rtol=1e-6)


def test_the_rate_halves_where_percents_stay():
  own = training.monitor(FullConfig(metric="P@1", learning_rate=1e-5, patience=15))
  assert own.patience == 15
  assert own.margin == pytest.approx(1e-3)
  assert training.monitor(FullConfig(learning_rate=1e-5)).plateau is None
  state, scales = own.plateau.init(jnp.zeros(())), []
  # Better is by more than a tenth; four evaluations of patience, two to cool down.
  for score in (50.0, 50.11, *[50.2] * 24):
    _, state = own.plateau.update({}, state, value=-score)
    scales.append(float(state.scale))
  assert scales[:6] == [1] * 5 + [0.5]  # 50.2 is no better than 50.11
  assert scales[-1] == pytest.approx(0.1)  # 1e-6 at least


def test_numbers_of_the_protocols():
  make = protocols.protocol
  assert make("fair", "sop", "resnet50") == protocols.Protocol(250)
  assert make("ablation", "cub", "bn_inception").patience == 40
  assert make("tuning", "inshop", "bn_inception").patience == 7
  config = FullConfig(dataset="sop", protocol="fair534")
  own = retrieval_full_jobs.protocol_of(config)
  job = functools.partial(retrieval_full_jobs.job, config, own)
  assert job("proxy_anchor+gsp").title == "ProxyAnchor+GSP"
  for name in ("c3", "c1+xbm+ccp", "proxy_anchor+xbm", "soft_triple+ccp", "c1+gspp"):
    with pytest.raises(ValueError, match=r"methods has no .* near which are "):
      job(name)
  for name, count in (
    ("table-3.1", 13), ("table-3.2", 3), ("table-3.3", 10), ("table-5.1", 15),
    ("figure-5.12", 36),
  ):  # fmt: skip
    made = entries.jobs(retrieval.PRESETS[name])
    assert len({own.title for own in made}) == count
  # The last preset compares poolings alone.
  assert {own.settings.zero_shot for own in made} == {0.0}
  poolings = {*frame_poolings.TITLES, *frame_poolings.WIDE}
  assert {own.settings.pooling for own in made} == poolings
  assert max(own.settings.embedding_dim for own in made) == 8192


@pytest.mark.parametrize(
  ("classes", "ends"), [(100, (0, 25, 50, 75, 100)), (98, (0, 24, 49, 73, 98))]
)
def test_folds_of_birds_and_cars(classes, ends):
  for fold, split in enumerate(protocols.splits(FAIR, classes), start=1):
    last = 5 - fold  # the part that the model validates on
    np.testing.assert_array_equal(split.held, np.arange(ends[last - 1], ends[last]))
    assert sorted([*split.train, *split.held]) == list(range(classes))
  thirds = protocols.splits(FAIR._replace(parts=3, models=1), classes)
  assert len(thirds) == 1
  assert abs(len(thirds[0].held) - classes / 3) < 1
  every = protocols.splits(FAIR._replace(parts=1, models=1), classes)
  assert [(len(x.train), len(x.held)) for x in every] == [(classes, 0)]


@pytest.mark.parametrize(
  ("changes", "comparable"),
  [
    ({}, True), ({"width": 64}, True),
    ({"workers": 2, "remat": True, "batch": 32, "pooling": "gap"}, True),
    ({"batch": 64}, False), ({"second_moment": 0.99}, False), ({"proxies": 2}, False),
    ({"width": 32}, False), ({"width": 64, "backbone": "inception_v3"}, False),
    ({"image_size": 64}, False), ({"mass": 0.5}, False),
  ],
)  # fmt: skip
def test_figures_beside_the_same_settings(changes, comparable, tmp_path, monkeypatch):
  monkeypatch.setattr(networks, "check", lambda architecture: None)
  pixels = np.zeros((400, 1, 1, 3), np.uint8)
  pictures = data.from_arrays(pixels, np.repeat(np.arange(100), 4))
  sets = retrieval_full_sets.Sets(pictures, pictures)
  config = FullConfig(weights="FILE", methods=("c2",), **changes)
  assert Comparison(config, tmp_path, sets).complete is comparable


def test_combinations_against_a_loop():
  random = np.random.default_rng(0)
  single = [
    [{name: random.uniform() for name in ("P@1", "P@R", "MAP@R")} for _ in range(3)]
    for _ in range(4)
  ]
  ways = list(itertools.product(*single))
  found = [protocols.average(way) for way in ways]
  assert len(found) == 81
  expected = [np.mean([x["MAP@R"] for x in way]) for way in ways]
  np.testing.assert_allclose([x["MAP@R"] for x in found], expected, rtol=1e-12)
  made = Table()
  paper = dml.TABLE_5_1["c2", "cub", 128]
  protocols.tabulate(made, "C2", 128, found, paper=paper, spread=True)
  table = {row["metric"]: row for row in made.rows()}
  assert table["MAP@R, 128-D"]["mean"] == pytest.approx(np.mean(expected))
  assert table["MAP@R, 128-D"]["paper"] == 20.58
  assert table["MAP@R, 128-D, std"]["mean"] == pytest.approx(np.std(expected))
  assert table["MAP@R, 128-D, std"]["paper"] == 0.13
  assert table["P@R, 128-D, std"]["paper"] is None


@pytest.mark.parametrize("gallery", [False, True])
def test_measures_of_queries_and_of_a_gallery(gallery):
  random = np.random.default_rng(1)
  raw = random.normal(size=(40, 5)).astype(np.float32)
  labels = np.append(random.integers(0, 6, 39), 9)  # the last one has no match
  queries = random.uniform(size=40) < 0.5 if gallery else None
  parts = [raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1), labels]
  if gallery:
    parts = [x[rows] for rows in (queries, ~queries) for x in parts]
  first, _, map_at_r, _, relevant = oracle(*parts)
  expected = [100 * x[relevant > 0].mean() for x in (first, map_at_r)]
  extras = {"query": queries} if gallery else {}
  names = tuple("abcdefghij")
  pixels = np.zeros((40, 1, 1, 3), np.uint8)
  found = protocols.measures(raw, data.Images(pixels, labels, names, extras=extras))
  assert [found["P@1"], found["MAP@R"]] == pytest.approx(expected, rel=1e-5)
  parts = protocols.joined([raw, 0.1 * raw])
  assert parts.shape == (40, 10)
  assert np.linalg.norm(parts, axis=1).max() <= 1 + 1e-6
  long = np.linalg.norm(raw, axis=1) > 1
  np.testing.assert_allclose(np.linalg.norm(parts[long], axis=1), 1, rtol=1e-6)


def pictures(sizes, per_class=4):
  """Flat pictures whose brightness is their number."""
  source = [np.full((*size, 3), number, np.uint8) for number, size in enumerate(sizes)]
  labels = np.arange(len(sizes), dtype=np.int32) // per_class
  return data.Images(source, labels, tuple(map(str, np.unique(labels))))


def test_batches_follow_from_the_number_of_the_step():
  job = retrieval_full_jobs.job(SMALL, FAIR, "c2")
  settings = dataclasses.replace(job.settings, batch=8, steps=6)
  # Of the last class there are but two.
  some = pictures([(20 + i, 30) for i in range(10)])
  table = data.class_table(some.labels, per_class=1)
  begin = batches.batches(settings, some, table, jax.random.key(3))
  every, later = list(begin(0)), list(begin(4))
  assert (len(every), len(later)) == (6, 2)
  jax.tree.map(np.testing.assert_array_equal, every[4:], later)
  seen = np.stack([batch["image"][:, 0, 0, 0] for batch in every])
  labels = np.stack([batch["label"] for batch in every])
  np.testing.assert_array_equal(seen // 4, labels)
  for row, own_labels in zip(seen, labels, strict=True):
    assert len(set(own_labels)) == 2
    for label in set(own_labels):
      expected = [8, 8, 9, 9] if label == 2 else list(range(4 * label, 4 * label + 4))
      assert sorted(row[own_labels == label]) == expected


def test_boxes_lie_inside_and_have_the_shares_of_the_text():
  random = np.random.default_rng(0)
  boxes = np.array([batches._random_box(random, 60, 40) for _ in range(2000)])
  wide, high = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
  assert boxes.min() >= 0
  assert (boxes[:, 2:].max(0) <= np.array([60, 40]) + 1e-9).all()
  shares, ratios = wide * high / 2400, wide / high
  assert 0.16 - 1e-9 < shares.min() < 0.17
  assert 0.8 < shares.max() <= 1
  assert 0.75 - 1e-9 <= ratios.min() <= ratios.max() <= 1.33 + 1e-9
  left, top, right, bottom = batches._random_box(random, 900, 3)
  assert right - left == pytest.approx(3 * 1.33)
  assert (left + right) / 2 == pytest.approx(450)
  assert (top, bottom) == pytest.approx((0, 3))
  # A gradient from left to right: half of the crops are mirrored.
  image = np.tile(np.arange(0, 240, 4, dtype=np.uint8)[None, :, None], (40, 1, 3))
  crops = list(batches.Crops([image] * 100, (5, 6), 7, 16))
  assert 30 < sum(crop[0, -1, 0] > crop[0, 0, 0] for crop in crops) < 70
  again = batches.Crops([image] * 100, (5, 6), 0, 16)
  np.testing.assert_array_equal(again[8], crops[1])


def test_the_first_classes_are_learned(folder):
  sets = retrieval_full_sets.load("cub", folder, 5, False)
  assert sets.learned.label_names == ("00", "01", "02", "03", "04")
  assert sets.sought.label_names[0] == "05"
  assert (len(sets.learned), len(sets.sought)) == (30, 66)
  np.testing.assert_array_equal(np.unique(sets.sought.labels), np.arange(11))
  part = data.take_classes(sets.learned, np.array([3, 1]))
  assert part.label_names == ("03", "01")
  np.testing.assert_array_equal(part.labels, np.repeat([1, 0], 6))
  np.testing.assert_array_equal(part.images[6], sets.learned.images[18])


def test_pictures_that_cannot_be_read_are_named(tmp_path):
  entries.write_images(tmp_path, dict.fromkeys("abc", np.zeros((3, 9, 9, 3))))
  whole = (tmp_path / "b" / "1.png").read_bytes()
  (tmp_path / "b" / "1.png").write_bytes(whole[: len(whole) // 2])
  with pytest.raises(SystemExit, match=r"1 of 9 images.*b/1\.png"):
    retrieval_full_sets.load("cars", str(tmp_path), 2, False)
  sets = retrieval_full_sets.load("cars", str(tmp_path), 2, True)
  assert np.bincount(sets.learned.labels).tolist() == [3, 2]
  for file in tmp_path.glob("*/*.png"):
    file.write_bytes(whole[: len(whole) // 2])
  with pytest.raises(SystemExit, match="class a has no readable image"):
    retrieval_full_sets.load("cars", str(tmp_path), 2, True)
  with pytest.raises(SystemExit, match="cub cannot be read: no image folder at"):
    retrieval_full_sets.load("cub", str(tmp_path / "none"), 0, False)


def test_in_shop_divides_queries_and_gallery_and_refuses_wrong_lists(tmp_path):
  write_shop(tmp_path)
  sets = retrieval_full_sets.load("inshop", str(tmp_path), 0, False)
  assert sets.learned.label_names == ("id_1", "id_2")
  np.testing.assert_array_equal(sets.learned.labels, [1, 0, 1])
  assert sets.sought.label_names == ("id_7", "id_9")
  np.testing.assert_array_equal(sets.sought.labels, [1, 1, 0, 0])
  np.testing.assert_array_equal(sets.sought.extras["query"], [False, True, True, False])
  assert sets.sought.images[0].shape == (10, 8, 3)
  write_shop(tmp_path, "", [*LISTED, ("img/h.jpg", "id_1", "query")])
  with pytest.raises(SystemExit, match=r"inshop .+ id_1 has training images"):
    retrieval_full_sets.load("inshop", str(tmp_path), 0, False)


def test_bad_input_is_said_before_training(tmp_path, folder, monkeypatch):
  monkeypatch.setattr(models, "BNInception", Shallow)

  def run(**changes):
    given = {"folder": folder, "methods": ("c2",), **changes}
    retrieval.STUDY.run(dataclasses.replace(SMALL, **given), tmp_path, "full")

  for changes, message in (
    ({"weights": ""}, "weights of bn_inception, or be none"),
    ({"methods": ("c2", "C2")}, r"each once, got \['c2', 'c2'\]"),
    ({"shorter_side": 20}, "at least image_size = 32, or 0, got 20"),
    ({"image_size": 0}, "image_size must be at least 1, got 0"),
    ({"evaluation_batch": 0}, "evaluation_batch must be at least 1, got 0"),
    ({"prefetch": 0}, "prefetch must be at least 1, got 0"),
    ({"width": -1}, "width must be at least 1, got -1"),
    ({"checkpoint_every": 0}, "checkpoint_every must be at least 1, got 0"),
    ({"learning_rate": float("inf")}, "learning_rate must be finite, got inf"),
    ({"methods": ("c2", "c2+gsp"), "mass": 2.0}, r"mass must be in \(0, 1\], got 2"),
    ({"dataset": "inshop", "learned_classes": 0}, r"no .*list_eval_partition\.txt"),
    ({"dataset": "inshop"}, "--learned-classes must be 0 for inshop, got 8"),
    ({"batch": 32}, "has 8 classes, but only 6 are learned"),
    ({"batch": 6}, "several classes of 4 images, got 6"),
    (
      {"methods": ("c1+xbm",), "memory": 6},
      "memory of 48 embeddings is larger than .*36",
    ),
    ({"methods": ("c1+xbm",), "memory": -1}, "hold the 8 images of a batch, got -8"),
    ({"learned_classes": 3}, "4 parts of 3 learned classes leave one"),
    ({"folds": (5,)}, r"folds must be among 1 to 4, got \(5,\)"),
  ):
    with pytest.raises((ValueError, SystemExit), match=message):
      run(**changes)
  assert not list(tmp_path.iterdir())


def test_weights_are_looked_at_before_any_picture(tmp_path, monkeypatch):
  monkeypatch.setattr(retrieval_full_sets, "load", None)

  noise, other = (tmp_path / name for name in ("noise.pth", "other.safetensors"))
  noise.write_bytes(b"noise" * 9)
  safetensors.numpy.save_file({"conv1.weight": np.ones((2, 1, 3, 3), "f4")}, other)
  for path, kind, message in (
    (tmp_path / "missing.pth", FileNotFoundError, r"missing\.pth"),
    (noise, ValueError, r"noise\.pth is neither a safetensors file"),
    (other, ValueError, "weights do not fit"),
  ):
    config = dataclasses.replace(SMALL, weights=str(path))
    with pytest.raises(kind, match=message):
      retrieval.STUDY.run(config, tmp_path / "output", "full")
  assert not (tmp_path / "output").exists()


def test_classes_without_a_pair_are_said_before_training(tmp_path, folder, monkeypatch):
  monkeypatch.setattr(models, "BNInception", Shallow)
  pair = data.from_arrays(np.zeros((32, 1, 1, 3), np.uint8), np.arange(32) // 2)
  first = np.arange(32) % 2 == 0

  def check(queries):
    images = dataclasses.replace(pair, extras={"query": queries})
    retrieval_full_sets.check_matches(images, "sought")

  check(first)
  for queries, count in ((first | True, 32), (first & False, 0)):
    said = f"none of the {count} queries among the sought"
    with pytest.raises(ValueError, match=said):
      check(queries)

  def run(learned, sought):
    config = dataclasses.replace(SMALL, folder=folder, methods=("c2",))
    Comparison(config, tmp_path, retrieval_full_sets.Sets(learned, sought))

  run(pair, pair)
  with pytest.raises(ValueError, match="of the 16 queries among the sought images"):
    run(pair, pair[first])
  with pytest.raises(ValueError, match=r"the held-out \(fold 1\) images"):
    run(pair[first], pair)


def test_one_figure_of_table_5_2_stands_alone():
  cell = functools.partial(dml.cell, "conventional534")
  gains = [
    np.subtract(*(cell(network, x, name, dim)[:2] for x in ("c1+xbm+gsp", "c1+xbm")))
    for network, dim in (("bn_inception", 512), ("resnet50", 128), ("resnet50", 512))
    for name in dml.SETS
  ]
  first, mean = np.array(gains).T
  odd = mean.argmax()
  assert mean[odd] > 14
  assert first[odd] < 1.5
  assert np.delete(mean, odd).max() < 2
