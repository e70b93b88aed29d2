"""Retrieval and its proxies: both studies as a user runs them, and their parts."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from experiments import ccp_proxies
from experiments.frame import networks
from experiments.metric_learning import images as retrieval_sets
from experiments.metric_learning import methods, pictures, runs
from experiments.metric_learning import problems as problems_plan
from experiments.metric_learning import settings as retrieval_settings
from experiments.metric_learning.methods import Method
from spherejax import losses
from tests.experiments.test_retrieval_problems import turns

RANDOM = np.random.default_rng(0)
SMALL = retrieval_settings.Settings(
  backbone="mlp", width=16, dim=4, image_size=4, shift=0, batch=8, per_class=4, seeds=2,
  steps=40, evaluate_every=4, patience=20, switch_patience=1, memory_start=8,
)  # fmt: skip
STUDY = retrieval_sets.gaussians(0)


def train(method, folder, study=STUDY, **changes):
  settings = dataclasses.replace(SMALL, **changes)
  return runs.train(settings, method, study, folder)


@pytest.mark.slow
@pytest.mark.parametrize("smoke", [("retrieval", {"memory_losses": ()})], indirect=True)
def test_the_smoke_preset_of_retrieval(smoke):
  chance = 9 / 99
  for name in ("untrained", "C2", "C2+CCP"):
    for measure in ("P@1", "P@R", "MAP@R"):
      assert chance < smoke.figures[f"gaussians, {name}", measure] < 1
  assert smoke.figures["gaussians, C2+CCP", "problems"] >= 2
  assert "retrieval-ccp-C2" in {claim["id"] for claim in smoke.content["claims"]}


@pytest.mark.slow
@pytest.mark.parametrize("smoke", [("ccp_proxies", {"steps": 150})], indirect=True)
def test_the_smoke_preset_of_proxies(smoke):
  name, spread = "digits, trained once", "spread of the proxies at {}".format
  assert 0 < smoke.figures[name, spread("last")] < smoke.figures[name, spread("first")]
  verdicts = {claim["id"]: claim["verdict"] for claim in smoke.content["claims"]}
  assert verdicts["ccp-problem-length-least"] == "reproduced"
  assert len(smoke.content["pictures"]) == 3


@pytest.mark.slow
def test_trainings_share_their_start_and_their_batches(tmp_path):
  one, other = (
    train(Method("c2", kind, 2), tmp_path, learning_rate=1e-12, steps=8)
    for kind in ("plain", "proxy")
  )
  # With nothing learned, the same networks are tested.
  np.testing.assert_allclose(one.points, other.points, atol=1e-5)
  np.testing.assert_allclose(one.test["MAP@R"], other.test["MAP@R"], atol=1e-6)
  assert np.abs(one.points[0, 0] - one.points[0, 1]).max() > 0.1  # not over seeds
  start = runs.untrained(SMALL, STUDY)
  np.testing.assert_allclose(start["MAP@R"], one.test["MAP@R"][0], atol=1e-3)


@pytest.mark.slow
def test_problems_follow_the_scores(tmp_path):
  found = train(Method("c2", "ccp", 2, 4), tmp_path)
  again = train(Method("c2", "ccp", 2, 4), tmp_path)  # read, not trained
  np.testing.assert_array_equal(again.points, found.points)
  for seed in range(2):
    scores, problems = (found.curves[x][0, seed] for x in ("score", "problem"))
    ends = [place for place, _ in turns(scores, margin=1e-5, patience=1)]
    expected = 1 + np.searchsorted(ends, np.arange(len(scores)))
    np.testing.assert_array_equal(problems, expected)
    picked = found.curves["random"][0, seed] > 0
    assert picked[np.flatnonzero(np.diff(problems))].all()
    assert (found.curves["greedy"][0, seed][picked] > 0).all()
  lengths = [x for ended in problems_plan.lengths(found) for x in ended]
  assert lengths
  assert min(lengths) >= 2


@pytest.mark.slow
def test_a_memory_counts_once_it_is_filled(tmp_path):
  # 28 places and batches of 8: filled again 4 steps after the 8 it begins with.
  plain, memory = (
    train(method, tmp_path, steps=16).curves["loss"][0]
    for method in (Method("c1"), Method("c1", "xbm", memory=4))
  )
  np.testing.assert_allclose(memory[:, :3], plain[:, :3], rtol=1e-5)
  assert (memory[:, 3] > 1.5 * plain[:, 3]).all()


def test_values_are_sums_of_their_parts():
  x = RANDOM.normal(size=(8, 3)).astype(np.float32)
  labels = np.repeat(np.arange(4), 2)
  proxies = losses.References(
    RANDOM.normal(size=(8, 3)).astype(np.float32), labels, jnp.ones(8, bool), None
  )

  def value(method, references=None, remembers=False):
    return methods.value(
      method, x, labels, {"proxies": proxies.embeddings[:4]}, references, proxies,
      remembers=remembers,
    )  # fmt: skip

  # With other numbers than the usual ones, too.
  far, memory = Method("c2", numbers=(("negative_margin", 2.0),)), Method("c2", "xbm")

  @jax.jit  # one program, which has them all
  def both():
    pair = functools.partial(losses.contrastive, x, labels, normalize="unit_ball")
    near = functools.partial(pair, negative_margin=0.5)
    inside, beside = near().mean(), near(references=proxies).mean()
    own = losses.proxy_anchor(x, labels, proxies.embeddings[:4], margin=0.1, scale=32)
    return {
      "plain": (value(Method("c2")), inside),
      "ccp": (value(Method("c2", "ccp"), proxies), beside),
      "proxy": (value(Method("c2", "proxy"), proxies), beside),
      "memory": (value(memory), inside),
      "filled": (value(memory, remembers=True), inside + beside),
      "anchor": (value(Method("proxy_anchor")), own.mean()),
      "far": (value(far), pair(negative_margin=2.0).mean()),
    }

  found = both()
  for name, (given, wanted) in found.items():
    assert given == pytest.approx(float(wanted), rel=1e-5), name
  # They differ, so that none stands for another.
  assert len({round(float(given), 4) for given, _ in found.values()}) == 5


def test_sizes_of_pools():
  for m, b, size in ((4, 1, 4), (4, 4, 4), (4, 16, 16), (4, 3, 12), (1, 1, 1)):
    assert Method("c2", "ccp", m, b).pool_size == size


def test_a_model_is_kept_and_prepared_as_it_was_evaluated(tmp_path):
  architecture = networks.Architecture(
    width=4, dim=3, image_size=8, shorter_side=12, channels=1
  )
  variables = networks.initial_variables(jax.random.key(0), architecture)
  model = networks.Model(architecture, variables)
  networks.keep(tmp_path, model, 5)
  loaded = networks.load(tmp_path)
  assert loaded.architecture == architecture
  image = RANDOM.integers(0, 255, (24, 36, 3)).astype(np.uint8)
  seen = loaded.prepare()(image)
  grey = Image.fromarray(image).convert("L").resize((18, 12), Image.Resampling.BILINEAR)
  np.testing.assert_array_equal(seen[..., 0], np.asarray(grey)[2:10, 5:13])

  def embedded(one):
    images = jnp.asarray(seen[None])
    return jax.jit(lambda x: one._replace(variables=x).embed(images))(one.variables)

  np.testing.assert_array_equal(embedded(loaded), embedded(model))
  with pytest.raises(FileNotFoundError, match=r"no network\.json"):
    networks.load(tmp_path / "weights")
  # Networks that were stored by earlier versions are still read.
  path = tmp_path / "network.json"
  described = json.loads(path.read_text())
  path.write_text(json.dumps({**described, "padded": False, "inverted": False}))
  assert networks.load(tmp_path).architecture == architecture
  for name in ("padded", "inverted"):
    path.write_text(json.dumps({**described, name: True}))
    with pytest.raises(ValueError, match=rf"no network of this version: .*{name}"):
      networks.load(tmp_path)


def test_photographs_reach_each_network_as_its_weights_expect():
  image = jnp.full((1, 4, 4, 3), jnp.array([255, 0, 51], jnp.uint8))
  caffe = networks._network_input(networks.Architecture(backbone="bn_inception"), image)
  np.testing.assert_allclose(caffe[0, 0, 0], [51 - 104, -117, 255 - 128], atol=1e-4)
  torch = networks._network_input(networks.Architecture(backbone="resnet50"), image)
  np.testing.assert_allclose(torch[0, 0, 0, 0], (1 - 0.485) / 0.229, rtol=1e-5)
  even = networks._network_input(networks.Architecture(backbone="inception_v3"), image)
  np.testing.assert_allclose(even[0, 0, 0], [1, -1, 0.4 - 1], atol=1e-6)


def trained(score, curves=None, cells=1):
  """Figures as of three seeds."""
  values = np.asarray(score, float) + np.zeros((cells, 3))
  test = {"P@1": values / 2, "P@R": values, "MAP@R": values}
  return runs.Trained(
    {"score": np.zeros((cells, 3, 1))}
    | {name: np.asarray(x, float)[None] for name, x in (curves or {}).items()},
    np.full((cells, 3), 1), test, np.zeros((cells, 3, 4, 2)),
    np.zeros((cells, 3, 2, 2, 2)), np.ones((cells, 3)),
  )  # fmt: skip


def test_claims_of_proxies():
  config = ccp_proxies.PRESETS["cpu"]
  n, b = config.proxies, config.pool
  problems = [[1, 1, 1, 1, 2, 2, 2, 2, 2, 3]] * 3
  zero, picks = np.zeros((2, 3, 10))
  picks[:, [3, 8]] = 2
  curves = {
    "problem": problems, "spread": np.linspace(1, 0.4, 10) + zero,
    "radius": np.linspace(1, 0.5, 10) + zero, "cover": np.linspace(1, 0.5, 10) + zero,
    "greedy": picks / 2, "random": picks, "moved": picks,
    "score": np.linspace(0.3, 0.6, 10) + zero,
  }  # fmt: skip
  found = dict(zip(problems_plan.DIGITS, [trained(0.5, curves)] * 2, strict=False))
  found["digits, samples"] = trained(0.52, curves)
  for loss in config.losses:
    for kind, score in (("", 0.3), ("-Proxy", 0.35), ("+CCP", 0.4)):
      found[methods.TITLES[loss] + kind] = trained(score + 0.01 * np.arange(3), curves)
  found["C2+CCP"] = trained([[0.4], [0.38], [0.39], [0.2]], curves, cells=4)
  found["C2+CCP"].curves["moved"] = np.stack([picks, 2 * picks, picks, picks / 2])
  for name, score in (
    ("1, b = 1", 0.3), (f"1, b = {b}", 0.304), (f"{n}, b = {n}", 0.35),
  ):  # fmt: skip
    found[f"C2+CCP, m = {name}"] = trained(score, curves)
  for x, y in {"8 plain": 0.2, "64 plain": 0.3, "8 ccp": 0.3, "64 ccp": 0.35}.items():
    found[f"C2, batch {x}"] = trained(y)
  table = problems_plan.tabulate(found, config)
  made = ccp_proxies.STUDY.claimed(table, config)
  by_id = {claim["id"]: claim for claim in made}
  assert len(by_id) == len(made)
  wanted = {
    "ccp-coalesce": 0.1, "ccp-map-rises": 0.2, "ccp-proxies-stand-in": 0.01,
    "ccp-covering-images": 1 / 3,  # from the fourth evaluation to the last
    "ccp-covering-classes": 1 / 3, "ccp-problem-length-least": 0.5,
    "ccp-problem-length-two": 1.5, "ccp-problem-length-unequal": 0.5,
    "ccp-greedy-covers": 1.0, "ccp-lambda-drift": 3.0, "ccp-lambda-zero": 0.02,
    "ccp-lambda-largest": 0.2, "ccp-proxies-per-class-number": 0.096,
    "ccp-proxies-per-class-pool": 0.001, "ccp-batch-size": 0.05,
    "ccp-alternating-C1": 0.05, "ccp-alternating-C2": 0.04,  # 0.4 and 0.36
  }  # fmt: skip
  for name, number in wanted.items():
    assert by_id[name]["value"] == pytest.approx(number, abs=1e-6), name
  assert by_id["ccp-greedy-covers"]["n"] == 54

  ten = dataclasses.replace(config, steps=10 * config.evaluate_every)
  seen = pictures.of_problems(found, STUDY, ten)
  assert seen.keys() == {"spread", "radius", "cover", "curves"}
  compared = {x: found[x] for x in found if x not in problems_plan.DIGITS}
  figure = pictures.of_problems(compared, STUDY, ten)["curves"]
  assert len(figure.axes) == len(config.losses) == 4
  lines = {line.get_ydata()[-1] for axes in figure.axes for line in axes.lines}
  assert min(lines) == max(lines) == pytest.approx(0.6)

  # A training of one problem has nothing to compare, and no picks.
  one = {**curves, "problem": [problems[0], problems[0], [1] * 10]}
  one |= {name: picks * [[1], [1], [0]] for name in ("random", "moved")}
  found["digits, renewed"] = trained(0.5, {**one, "greedy": one["random"] / 4})
  table = problems_plan.tabulate(found, config)
  made = ccp_proxies.STUDY.claimed(table, config)
  for claim in made:
    if claim["id"].startswith(("ccp-covering", "ccp-map-rises")):
      assert np.isnan(claim["values"]).tolist() == [False, False, True]
      assert claim["verdict"] != "reproduced"
  (greedy,) = (c for c in made if c["id"] == "ccp-greedy-covers")
  assert greedy["n"] == 53
  np.testing.assert_allclose(greedy["value"], (51 * 1.0 + 2 * 1.5) / 53)
  assert {row["name"] for row in table.rows()} >= {
    "digits, renewed", "C2-Proxy", f"C2+CCP, m = 1, b = {b}", "C2, batch 8 ccp",
    "C2+CCP, weight 10",
  }  # fmt: skip


def test_a_training_that_diverges_is_named_and_not_kept(tmp_path):
  settings = dataclasses.replace(SMALL, learning_rate=np.inf, steps=8)
  with pytest.raises(FloatingPointError, match="C2, twice: 2 of 2 runs diverged"):
    runs.train(settings, Method("c2"), STUDY, tmp_path, "C2, twice")
  assert not [*tmp_path.glob("C2*.json"), *tmp_path.glob("model*")]


def test_what_is_compared_has_models_of_its_own(tmp_path, monkeypatch):
  config = dataclasses.replace(
    ccp_proxies.PRESETS["smoke"], losses=("c2",), other_weights=(0.0,), batches=(8,),
    proxies=2, pool=4, rates=(0.5, 1.0), seeds=5,
  )  # fmt: skip
  models, trainings = [], []

  def record(settings, method, study, folder, title="", *, weights=(), rates=()):
    del study, folder
    trainings.append((settings.seeds, len(weights), len(rates)))
    if settings.seeds == 5:
      models.append(runs.model_name(title or method.name))
    return trained(0.5)._replace(rate=rates[0])

  monkeypatch.setattr(runs, "train", record)
  jobs, others = problems_plan.plan(config), {"C2+CCP": config.other_weights}
  runs.train_all(config, jobs, STUDY, tmp_path, other_weights=others)
  assert sorted(models) == [
    "model-C2", "model-C2+CCP", "model-C2+CCP-m-1-b-1", "model-C2+CCP-m-1-b-4",
    "model-C2+CCP-m-2-b-2", "model-C2-Proxy", "model-C2-batch-8-ccp",
    "model-C2-batch-8-plain", "model-digits-renewed", "model-digits-samples",
    "model-digits-trained-once",
  ]  # fmt: skip
  # Two seeds choose a rate, with the usual weight; as it is the smallest, they try a
  # third of it, too; then all are trained.
  assert {*trainings} == {(2, 1, 2), (2, 1, 1), (5, 1, 1), (5, 2, 1)}
  assert trainings.count((5, 2, 1)) == 1


@pytest.mark.parametrize(
  ("best", "diverges", "tried"),
  [
    (1.0, 100.0, [0.3, 1.0, 3.0]),  # in the middle: no other rate
    (2.9, 100.0, [0.3, 1.0, 3.0, 9.0]),
    (20.0, 100.0, [0.3, 1.0, 3.0, 9.0, 27.0, 81.0]),
    (20.0, 20.0, [0.3, 1.0, 3.0, 9.0, 27.0]),
    (0.05, 100.0, [0.3, 1.0, 3.0, 0.1, 0.0333, 0.0111]),
  ],
)
def test_an_outermost_rate_widens_the_rates(best, diverges, tried, monkeypatch):
  calls = []

  def train(settings, *_, weights, rates):
    if settings.seeds == 2:
      calls.extend(rates)
    if max(rates) > diverges:
      raise FloatingPointError
    distance, rate = min((abs(np.log(x / best)), x) for x in rates)
    score = np.full((3, 1), 1 - distance / 10)
    return trained(0.5, {"score": score})._replace(rate=rate)

  monkeypatch.setattr(runs, "train", train)
  settings = dataclasses.replace(SMALL, seeds=5)
  chosen = runs.train_at_best_rate(
    settings, Method("c2"), STUDY, "", "", weights=(0.0,), rates=(0.3, 1.0, 3.0)
  )
  assert calls == tried
  assert chosen.rate == min(
    (x for x in tried if x <= diverges), key=lambda x: abs(np.log(x / best))
  )


FULL = ccp_proxies.PRESETS["full"]


def test_digits_are_seen_by_the_network_of_twenty_layers():
  architecture = networks.Architecture(backbone=FULL.backbone, width=FULL.width, dim=2)
  assert (FULL.proxies, FULL.pool, FULL.patience) == (4, 16, 60)
  init = functools.partial(networks.initial_variables, architecture=architecture)
  variables = jax.eval_shape(init, jax.random.key(0))
  kernels = [x for x in jax.tree.leaves(variables["params"]) if x.ndim == 4]
  # Of 3x3, and those of 1x1 where a stage begins.
  assert sum(x.shape[0] == 3 for x in kernels) == 19
  assert {x.shape[-1] for x in kernels} == {16, 32, 64}
  pixels = jax.ShapeDtypeStruct((5, 28, 28, 1), jnp.float32)
  seen = jax.eval_shape(networks.Network(architecture).apply, variables, pixels)
  assert seen.embeddings.shape == (5, 2)


@pytest.mark.slow
def test_all_digits_have_as_many_images(tmp_path, tfds_dir):
  config = dataclasses.replace(FULL, digit_images=(20, 4))
  study = retrieval_sets.study(config, tmp_path, pooled=True)
  assert (study.train.shape, study.held.shape) == ((1, 200), (1, 40))
  assert np.bincount(study.train_labels).tolist() == [20] * 10
  # The rarest digit, 5, has 5,421 of the 60,000 images.
  assert sum(FULL.digit_images) == 5421
  with pytest.raises(ValueError, match=r"at most \d+ in all.* got 5000 and 422"):
    retrieval_sets.mnist(28, 5000, 422)


@pytest.mark.slow
def test_the_full_preset_makes_its_first_problems(tmp_path, tfds_dir, monkeypatch):
  whole = retrieval_sets.mnist

  def fewer(size, train, held):
    study = whole(size, train, held)
    return study._replace(test=study.test[:, :200], test_labels=study.test_labels[:200])

  monkeypatch.setattr(retrieval_sets, "mnist", fewer)
  config = dataclasses.replace(
    FULL, digit_images=(12, 6), seeds=1, width=4, pool=6, steps=4,
    evaluate_every=1, switch_patience=1, convolution="patches",
  )  # fmt: skip
  content = ccp_proxies.STUDY.run(config, tmp_path, "full")
  figures = {(row["name"], row["metric"]): row["values"] for row in content["rows"]}
  for name in ("renewed", "trained once", "samples"):
    assert 0 < figures[f"digits, {name}", "MAP@R"][0] < 1
  claims = {claim["id"]: claim for claim in content["claims"]}
  assert {"ccp-coalesce", "ccp-covering-images", "ccp-map-rises"} <= {*claims}
  assert ccp_proxies.STUDY.run(config, tmp_path, "full")["rows"] == content["rows"]
