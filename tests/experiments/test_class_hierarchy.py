"""Class hierarchies: the comparison as a user runs it, its parts, and bad input."""

import dataclasses
import functools
import itertools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments import class_hierarchy
from experiments.frame import frozen, kept
from experiments.frame import images as class_sets
from experiments.hierarchies import claims, measures, methods, pictures
from experiments.hierarchies import runs as class_runs
from experiments.hierarchies import training as class_training
from experiments.published import figures, tree_paths
from spherejax import data, hierarchy, losses, models, training
from tests.experiments import entries

CPU, FULL = class_hierarchy.PRESETS["cpu"], class_hierarchy.PRESETS["full"]
TREE = hierarchy.from_paths(["a/1", "a/2", "b/3"])
PROGRESS = class_hierarchy.tqdm.tqdm(disable=True)


@pytest.mark.slow
def test_the_smoke_preset_follows_the_tree(tfds_dir, smoke):
  figures, correlation = smoke.figures, "mean correlation, proxies"
  # The plankton tree's ceiling is 0.9568, without the diagonal 0.9557.
  ceiling = figures["the tree", "ceiling of the mean correlation"]
  assert ceiling == pytest.approx(0.9568, abs=5e-5)
  mds = [figures["ProxyDR MDS", correlation + x] for x in ("", ", diagonal out")]
  assert mds == pytest.approx([0.9568, 0.9557], abs=1e-3)
  assert abs(figures["ProxyDR", correlation]) < 0.2
  means = "mean correlation, prototypes"
  assert figures["normalised pixels", means] > 0.2
  assert abs(figures["random points", means]) < 0.15
  # The untrained layer of the sizes hides the images.
  alone = figures["random weights, images alone", means]
  assert alone > figures["random weights", means] + 0.05
  assert figures["ProxyDR", "top-1"] > 3 / 121
  for name in ("ProxyDR", "ProxyDR MDS"):
    distance = (1 - figures[name, "top-1"]) * figures[name, "severity"]
    assert figures[name, "AHD@1"] == pytest.approx(distance, rel=1e-4)
    assert figures[name, "AHD@1, least risk"] < figures[name, "AHD@1"]
    assert 0 < figures[name, "HS@50"] < figures[name, "HS@250"] < 1


@pytest.mark.slow
def test_the_full_preset_makes_two_steps_on_a_stand_in(tmp_path, tfds_dir, monkeypatch):
  def shallow(widths, **options):
    """The first stage of ResNet-50 with one of its blocks."""
    return models.ResNet((1,), widths[:1], (1,), bottleneck=True, **options)

  monkeypatch.setattr(models, "ResNet50", shallow)
  config = dataclasses.replace(FULL, percent=6, width=4, dim=16, epochs=2, mds_steps=5)
  config = class_runs.resolved(config)
  whole = class_sets.load("cifar100", config.image_size, percent=config.percent)
  shared = class_runs.shared_inputs(config, whole, 0)
  assert len(shared.study.train) // config.batch == 1  # a step an epoch
  path = tmp_path / "run"
  done = class_runs.train("proxydr-ema-dynamic", shared, config, path, PROGRESS)
  (folder,) = tmp_path.glob("run-*")
  assert (folder / "best").is_dir()
  scales = done.figures["curves"]["scale"]
  first = float(losses.dynamic_scale_init(100, geometry="chordal").scale)
  assert len(scales) == 2
  # The first step of Adam is as large as its rate, whatever the gradient.
  assert abs(np.log(scales[0] / first)) == pytest.approx(1e-4, rel=0.05)
  assert scales[1] != scales[0]
  assert done.arrays["proxies"].shape == (100, 16)
  figures = done.figures["test"]
  assert np.isfinite(list(figures.values())).all()
  for name in ("proxies", "prototypes"):
    assert 0 <= figures[f"share of the tree's splits, {name}"] < 0.5


def one_step(name):
  """States before and after a step on random images."""
  settings, setting = methods.Settings(width=4, dim=8), methods.SETTINGS[name]
  both = {"settings": settings, "setting": setting}
  state = methods.initial_state(
    jax.random.key(0), jnp.eye(6, 8), shapes=((2, 16, 16, 1), (2, 2)), **both
  )
  batch = {
    "image": np.random.default_rng(0).integers(0, 255, (4, 16, 16, 1), np.uint8),
    "label": np.array([1, 1, 4, 1], np.int32),
    "size": np.ones((4, 2), np.float32),
  }
  objective = functools.partial(methods.objective, augment=False, **both)
  step = training.make_step(objective, methods.optimizer(settings.rates, setting))
  return state, jax.jit(step)(state, batch)[0]


def test_what_moves_and_what_stays():
  before, after = one_step("normface-ema-dynamic")
  assert after.params["loss"] == {}
  old, new = (state.batch_stats["loss"] for state in (before, after))
  moved = (old["moving"].prototypes != new["moving"].prototypes).any(1)
  np.testing.assert_array_equal(moved, [False, True, False, False, True, False])
  assert new["scale"].scale != old["scale"].scale
  assert int(new["scale"].steps) == 1
  before, after = one_step("corr")
  assert after.params["loss"] == {}
  np.testing.assert_array_equal(after.batch_stats["loss"]["fixed"], jnp.eye(6, 8))
  kernels = [s.params["network"]["size"]["kernel"] for s in (before, after)]
  assert (kernels[0] != kernels[1]).all()  # the size of the image takes part


def test_logits_of_every_loss():
  logits = functools.partial(methods.logits, np.array([[3.0, 4.0]], np.float32))
  proxies, cosines = np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([[0.6, 0.8]])
  linear = logits(methods.Head(proxies, np.array([0.5, -0.5]), 1), loss="softmax")
  np.testing.assert_allclose(linear, [[6.5, 3.5]], rtol=1e-6)
  head = methods.Head(proxies, None, 5)
  np.testing.assert_allclose(logits(head, loss="NormFace"), 5 * cosines, rtol=1e-6)
  found, shares = logits(head, loss="ProxyDR"), (2 - 2 * cosines) ** -2.5
  np.testing.assert_allclose(jax.nn.softmax(found), shares / shares.sum(), rtol=1e-5)


def plankton(root):
  """A folder with one tiny picture for each class; the sizes tell the classes."""
  names = sorted(hierarchy.from_paths(tree_paths("MESO_Z")).class_names)
  pixels = {x: [np.full((3, 2 + k, 3), (k, 0, 0))] for k, x in enumerate(names)}
  entries.write_images(root / "meso_z", pixels)


def test_a_folder_of_plankton_and_what_may_be_wrong_with_it(tmp_path):
  plankton(tmp_path)
  whole = class_sets.load("meso_z", 4, str(tmp_path))
  assert whole.tree.class_names == tuple(sorted(whole.tree.class_names))
  assert whole.living.sum() == 30
  assert whole.images.images.shape == (52, 4, 4, 3)
  np.testing.assert_array_equal(whole.images.images[:, 0, 0, 0], np.arange(52))
  logs = class_sets.log_sizes(whole.images)
  expected = np.stack([2 + np.arange(52), np.full(52, 3)], 1)
  np.testing.assert_allclose(logs, np.log(expected), rtol=1e-6)
  parts = [x.labels for x in class_sets.divide(whole, jax.random.key(0), 0, 0)[:3]]
  assert [len(part) for part in parts] == [36, 5, 11]
  assert sorted(np.concatenate(parts)) == list(range(52))
  with pytest.raises(ValueError, match=r"fewer than 52, got \(50, 2\)"):
    class_sets.divide(whole, jax.random.key(0), 50, 2)
  shutil.rmtree(tmp_path / "meso_z" / "ceratium")
  with pytest.raises(ValueError, match="class 'ceratium' of the tree has no images"):
    class_sets.load("meso_z", 4, str(tmp_path))
  plankton(tmp_path / "other")
  entries.write_images(tmp_path / "other" / "meso_z", {"unicorn": np.zeros((1, 2, 2))})
  with pytest.raises(ValueError, match="class 'unicorn' is no node of the tree"):
    class_sets.load("meso_z", 4, str(tmp_path / "other"))
  with pytest.raises(SystemExit, match="micro_s is read from the folder micro_s"):
    class_sets.load("micro_s", 4, str(tmp_path))
  with pytest.raises(ValueError, match=r"data must be one of ndsb_plankton, .*'svhn'"):
    class_sets.load("svhn", 4)


@pytest.mark.parametrize(
  ("lines", "message"),
  [
    ("1 0\n2 0\n3 2", None),
    ("1 0\n2 3\n3 2", "cycle, got '2' -> '3' -> '2'"),
    ("1 0\n2 5\n3 2", "one root, got '0' and '5'"),
    ("1 0\n2 0\n4 2", "class '3' is no node of the tree"),
    ("1 0\n2 0\n3 2\n4 2", "leaf '4' must be a class"),
    ("1 0 7", "line 1 must be a child and a parent"),
  ],
)
def test_the_tree_of_nabirds(tmp_path, lines, message):
  path = tmp_path / "hierarchy.txt"
  path.write_text(lines)
  if message is None:
    tree = class_sets.birds(path, ["0001", "0003"])
    assert tree.class_names == ("1", "3")
    np.testing.assert_array_equal(hierarchy.path_distances(tree), [[0, 3], [3, 0]])
    return
  with pytest.raises(ValueError, match=message):
    class_sets.birds(path, ["0001", "0003"])


def runs_of(names):
  """Random figures of trainings with these settings, by seed."""
  figures = np.random.default_rng(0).random((len(names), 3, len(claims.MEASURES)))
  return {
    name: {k: dict(zip(claims.MEASURES, x, strict=True)) for k, x in enumerate(own)}
    for name, own in zip(names, figures, strict=True)
  }


def claimed(runs):
  """Values of the claims about these runs, by their ids."""
  config = dataclasses.replace(CPU, settings=tuple(runs), seeds=3)
  related = class_training.relations(TREE, np.ones(3, bool))
  table = entries.filled(claims.add_runs, runs, [], related, config)
  return {c["id"]: c["values"] for c in class_hierarchy.STUDY.claimed(table, config)}


def test_rank_correlations_over_settings_are_claimed_by_seed():
  names = ("softmax", "normface", "proxydr", "corr", "normface-mds")
  runs = runs_of(names)
  values = claimed(runs)
  for measure, sign in (("AHD@5", -1), ("HP@5", 1), ("top-5", -1)):
    of_seeds = [
      [[runs[name][seed][x] for name in names[1:]] for x in (claims.PROXIES, measure)]
      for seed in range(3)
    ]
    right = [sign * stats.spearmanr(*pair)[0] for pair in of_seeds]
    np.testing.assert_allclose(values[f"K11-{measure}"], right)


@pytest.mark.parametrize("lowest", ["corr", "proxydr"])
def test_extremes_are_claimed_over_those_that_are_named(lowest):
  """K6b compares softmax with all settings, K7 corr with those of metric learning."""
  names = ("softmax", "normface", "proxydr", "corr")
  runs = runs_of(names)
  for name, seeds in runs.items():
    for measured in seeds.values():
      measured["HS@50"] -= 9 * (name == "softmax") + 10 * (name == lowest)
      measured["top-5"] -= 9 * (name == "corr") + 10 * (name == "softmax")
  values = claimed(runs)
  for claim, setting, rivals in (
    ("K6b-HS@50", "softmax", names[1:]),
    ("K7-top-5", "corr", names[1:3]),
  ):
    measure = claim.partition("-")[2]
    least = [
      min(runs[name][seed][measure] for name in rivals) - runs[setting][seed][measure]
      for seed in range(3)
    ]
    np.testing.assert_allclose(values[claim], least)


def test_what_figures_9_and_10_show():
  curve = {
    "validation top-1": [0.3, 0.6, 0.5],
    "mean correlation, proxies": [0.1, 0.2, 0.25],
    "mean correlation, prototypes": [0.35, 0.38, 0.4],
  }
  curves = {"proxydr": [curve], "proxydr-dynamic": [curve] * 2}
  table = entries.filled(claims.add_curves, curves)
  for name, count in (("ProxyDR", 1), ("ProxyDR dynamic", 2)):
    for measure, values in curve.items():
      for place, value in ((claims.FIRST, values[0]), (claims.LAST, values[-1])):
        assert table.values(measure + place, name).tolist() == [value] * count
    assert table.values(claims.APART, name).tolist() == [1] * count


def test_features_are_projected_on_the_first_part_s_directions(monkeypatch):
  monkeypatch.setattr(frozen, "DIRECTIONS", 2)
  rows = np.random.default_rng(0).normal(size=(2, 12, 5)) * [1, 5, 0.1, 3, 2]
  parts = [frozen.Features(x, np.zeros(12, np.int32), ("0",), {}) for x in rows]
  directions = np.linalg.svd(rows[0])[2][:2]
  for found, x in zip(frozen.projected(parts), rows, strict=True):
    np.testing.assert_allclose(np.abs(found.images), np.abs(x @ directions.T))


@pytest.mark.slow
def test_training_on_the_features_of_a_frozen_network(tmp_path):
  tree = hierarchy.from_paths(["a/1", "a/2", "a/3", "b/4", "b/5", "c/6"])
  labels = np.arange(1300) % 6
  rows = np.eye(6, 24)[labels] + 0.2 * np.random.default_rng(0).normal(size=(1300, 24))
  features = frozen.Features(rows.astype(np.float32), labels, tuple("123456"), {})
  whole = class_sets.Whole(features, None, tree, np.ones(6, bool))
  config = dataclasses.replace(
    CPU, dim=8, epochs=3, batch=16, test_images=0, mds_steps=300,
    rates=methods.Rates(learning_rate=0.01),
  )  # fmt: skip
  shared = class_runs.shared_inputs(config, whole, 0)
  done = class_runs.train("proxydr-mds", shared, config, tmp_path / "run", PROGRESS)
  assert done.figures["test"]["top-1"] > 0.9
  assert len(done.figures["curves"]["validation top-1"]) == 3
  names = {"random distances", "random points", "pretrained features"}
  assert {*measures.controls(config, shared)} == names


def test_printed_correlations_are_the_same_both_ways():
  tables = figures("dist_hierarchy")["spearman"]
  assert tables["cifar100"]["mean correlation, proxies"]["AHD@5"] == -0.886
  for table in tables.values():
    for first, second in itertools.combinations(table, 2):
      if second in table[first] and first in table[second]:
        assert table[second][first] == table[first][second]


def test_means_of_pixels_by_batches():
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, 255, (1003, 2, 3, 1), np.uint8)
  labels = rng.integers(0, 3, 1003)
  images = data.from_arrays(pixels, labels, label_names=list("abcd"))
  raw, unit = measures._pixel_means(images, 4)
  flat = pixels.reshape(1003, 6) / 255
  for label in range(3):
    own = flat[labels == label]
    np.testing.assert_allclose(raw[label], own.mean(0), rtol=1e-5)
    own = own / np.linalg.norm(own, axis=1, keepdims=True)
    np.testing.assert_allclose(unit[label], own.mean(0), rtol=1e-5)
  assert (raw[3] == 0).all()  # no images, and left out of the correlation


def test_trained_networks_stand_beside_the_articles_from_its_weights_alone(monkeypatch):
  monkeypatch.setattr(measures, "ceilings", lambda related: {})
  own, means = "mean correlation, proxies", "mean correlation, prototypes"
  controls = [{"normalised pixels": {means: x}} for x in (0.2, 0.3)]

  def printed(**changes):
    config = class_runs.resolved(dataclasses.replace(FULL, **changes))
    runs = runs_of(("normface", "proxydr", "corr", "normface-mds"))
    table = entries.filled(claims.add_runs, runs, controls, None, config)
    found = {(row["name"], row["metric"]): row["paper"] for row in table.rows()}
    trained = found[f"rank correlation with {own}", "AHD@5"]
    return trained, found["normalised pixels", means]

  assert printed() == (None, 0.2609)
  assert printed(weights="file") == (-0.886, 0.2609)
  # Its plankton was trained with the other network, which the data choose.
  assert printed(weights="file", data="micro_s") == (-0.741, None)
  assert printed(network="resnet50", weights="file", data="micro_s") == (None, None)
  assert printed(network="inception_v3", weights="file") == (None, None)


@pytest.mark.slow
def test_other_settings_do_not_go_on_from_a_checkpoint(tmp_path, monkeypatch):
  monkeypatch.setattr(measures, "test", lambda *_: kept.Finished({}, {}))
  pixels = np.random.default_rng(0).integers(0, 255, (12, 16, 16, 1), np.uint8)
  images = data.from_arrays(pixels, np.arange(12) % 3, label_names=("1", "2", "3"))
  related = class_training.relations(TREE, np.ones(3, bool))
  study = class_sets.Parts(images, images, images)
  shared = class_runs.SharedInputs(study, related, jnp.eye(3, 8), jax.random.key(0))
  first = float(losses.dynamic_scale_init(3, geometry="cosine").scale)
  path = tmp_path / "normface-ema-dynamic-0"
  for rate in (1e-4, 1e-3):
    rates = dataclasses.replace(FULL.rates, scale_rate=rate)
    config = dataclasses.replace(
      FULL, network="conv4", width=4, dim=8, epochs=1, batch=12, rates=rates
    )
    done = class_runs.train("normface-ema-dynamic", shared, config, path, PROGRESS)
    # One step of Adam, which is as large as its rate.
    moved = abs(np.log(done.figures["curves"]["scale"][0] / first))
    assert moved == pytest.approx(rate, rel=0.05)


def test_plans_missing_images_and_weights_of_another_network():
  assert len(CPU.settings) * CPU.seeds == 14 * 24
  images = data.from_arrays(np.zeros((4, 16, 16, 1), np.uint8), np.arange(4))
  study = class_sets.Parts(images, images, images)
  related = class_training.Relations(None, None, None, None)
  shared = class_training.SharedInputs(study, related, None, jax.random.key(0))
  with pytest.raises(ValueError, match="batch must be at most the 4 training images"):
    class_training.train(CPU, methods.SETTINGS["corr"], shared, None, None)
  settings = methods.Settings(weights="resnet50.pth")
  with pytest.raises(ValueError, match=r"weights are for resnet50 and .*'conv4'"):
    methods.initial_variables(
      jax.random.key(0), settings=settings, shapes=((2, 16, 16, 3), (2, 0))
    )


@pytest.mark.parametrize(
  ("data", "network", "width", "side", "epochs"),
  [
    *((name, "inception_v3", 32, 128, 50) for name in ("micro_s", "micro_l", "meso_z")),
    ("cifar100", "resnet50", 64, 32, 100),
    ("nabirds", "resnet50", 64, 128, 100),
  ],
)
def test_data_choose_the_articles_network(data, network, width, side, epochs):
  def resolved(**changes):
    found = class_runs.resolved(dataclasses.replace(FULL, data=data, **changes))
    return found.network, found.width, found.image_size, found.epochs

  assert resolved() == (network, width, side, epochs)
  # Unless one is asked for.
  assert resolved(network="conv4") == ("conv4", 32, side, epochs)
  assert resolved(width=8) == (network, 8, side, epochs)
  assert resolved(network="resnet50")[:2] == ("resnet50", 64)


def test_the_size_of_an_image_moves_every_entry_of_its_embedding():
  init = functools.partial(
    methods.initial_variables, settings=methods.Settings(width=4, dim=128),
    shapes=((2, 16, 16, 3), (2, 2)),
  )  # fmt: skip
  shapes = jax.eval_shape(init, jax.random.key(0))
  size = jax.tree.map(jnp.shape, shapes["params"]["size"])
  assert size == {"kernel": (2, 128), "bias": (128,)}


def test_a_tree_of_many_leaves_is_drawn_as_far_as_it_fits():
  for groups, leaves, depth in ((10, 20, 3), (50, 32, 1), (500, 1, 1)):
    paths = [f"{g}/{g}.{k}/{g}.{k}.x" for g in range(groups) for k in range(leaves)]
    assert pictures.depth_that_fits(hierarchy.from_paths([*paths, "a leaf"])) == depth


def test_shares_of_the_splits_of_trees_inferred_from_points():
  tree = hierarchy.from_paths(["a/x/1", "a/x/2", "a/y/3", "a/y/4", "b/5", "b/6", "c/7"])
  apart = hierarchy.path_distances(tree)
  # From its own distances the whole tree; a class in the place of another costs splits.
  (share,) = measures.agreement("proxies", apart, tree).values()
  assert share == 1
  order = [0, 4, 2, 3, 1, 5, 6]
  other = apart[np.ix_(order, order)]
  found = measures.agreement("proxies", other, tree)
  # Of {1, 2}, {3, 4}, {5, 6} and {1, 2, 3, 4} it has the second.
  assert found == {"share of the tree's splits, proxies": 0.25}
  # Without both the rest is as it was: {3, 4}, and {1, 3, 4} against {6, 7}.
  there = np.isin(np.arange(7), [0, 2, 3, 5, 6])
  assert list(measures.agreement("", other, tree, there).values()) == [1]
