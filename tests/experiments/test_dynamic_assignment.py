"""The study of assignments as a user runs it, and the paper's presets on stand-ins."""

import dataclasses
import functools
import json
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import (
  _cli,
  _dl2p_full,
  _dl2p_methods,
  _dl2p_network,
  _dl2p_pictures,
  _dl2p_prototypes,
  _dl2p_readers,
  _dl2p_report,
  _dl2p_sets,
  _dl2p_settings,
  _dl2p_small,
  _dl2p_sweep,
  _dl2p_tables,
  dynamic_assignment,
)
from spherejax import data, models


def test_matching_again_brings_related_classes_together(tmp_path):
  preset = dynamic_assignment.PRESETS["smoke"]
  content = dynamic_assignment.run(preset, tmp_path, "smoke")
  rows = {(row["name"], row["metric"]): row["values"] for row in content["rows"]}
  where = "superclass, linear, D = 3"
  gap = {name: rows[name, f"sibling gap, {where}"] for name in ("DL2P", "Static")}
  assert np.min(np.subtract(gap["DL2P"], gap["Static"])) > 0.1
  assert np.min(gap["DL2P"]) > 0.3
  accuracy = {n: np.mean(rows[n, f"accuracy, {where}"]) for n in ("DL2P", "Static")}
  assert accuracy["DL2P"] > accuracy["Static"] + 0.05 > 0.15
  assert len(gap["DL2P"]) == 3
  verdicts = {claim["id"]: claim["verdict"] for claim in content["claims"]}
  assert verdicts["P1-closed"] == verdicts["P1-descent"] == "reproduced"
  assert verdicts["P2"] == verdicts["A3-d3"] == "reproduced"
  assert content["pictures"] == [
    "matrix.png", "prototypes.png", "cosines.png", "accuracy.png", "changes.png"
  ]  # fmt: skip
  for picture in content["pictures"]:
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
  json.dumps(content)


def stand_in(classes: int = 4, each: int = 8, size: int = 32) -> data.Images:
  """Images of so many classes: noise around a tone of each class."""
  rng = np.random.default_rng(0)
  labels = np.tile(np.arange(classes, dtype=np.int32), each)
  tones = rng.integers(40, 215, (classes, 1, 1, 3))
  noise = rng.integers(-20, 20, (len(labels), size, size, 3))
  names = tuple(f"class {label}" for label in range(classes))
  return data.Images((tones[labels] + noise).astype(np.uint8), labels, names)


@pytest.fixture
def small(monkeypatch):
  """Presets read the stand-in and train one layer; what they read is noted."""
  names = np.array([f"{row}.JPEG" for row in range(32)])
  images = dataclasses.replace(stand_in(), extras={"file_name": names})
  asked = []

  def read(config, job):
    asked.append((job.images, config.image_size, job.imbalance))
    key = jax.random.key(0)
    return _dl2p_readers.cut(
      job.images, images, images, imbalance=job.imbalance,
      validation=config.validation, listing=config.listing, key=key,
    )  # fmt: skip

  def layer(widths=(8,), shortcut="projection_3x3"):
    assert shortcut == "projection_3x3"
    return models.ConvNet(widths[:1], strides=(4,), norm="batch")

  monkeypatch.setattr(_dl2p_full, "read_sets", read)
  for name in ("ResNet32", "ResNet50", "SwinT"):
    monkeypatch.setattr(_dl2p_network.models, name, layer)
  return asked


def test_a_balanced_table_runs_and_goes_on_where_it_was_stopped(small, tmp_path):
  config = dataclasses.replace(
    _dl2p_tables.PRESETS["table-1"],
    trainings=("cifar100/DL2P/3",),
    epochs=2,
    batch=8,
    width=8,
    evaluate_every=1,
  )
  whole = _dl2p_tables.run(config, tmp_path / "whole", "table-1")
  (row,) = whole["rows"]
  assert row["metric"] == "accuracy, cifar100, D = 3"
  assert row["values"][0] in np.arange(33) / 32
  assert whole["pictures"] == ["changes.png"]
  assert small == [("cifar100", 32, 1.0)]
  (folder,) = (tmp_path / "whole" / "trainings").iterdir()
  # Killed in the second epoch: the checkpoint of the first is there.
  shutil.rmtree(folder / "last" / "8")
  again = _dl2p_tables.run(config, tmp_path / "whole", "table-1")
  assert (folder / "last" / "8").is_dir()
  assert again["rows"] == whole["rows"]


def test_a_long_tailed_table_runs_with_mixup_weights_and_norm(small, tmp_path):
  config = dataclasses.replace(
    _dl2p_tables.PRESETS["table-4"],
    trainings=("cifar100/DL2P/3/imbalance=0.5",),
    epochs=1,
    batch=8,
    width=8,
  )
  content = _dl2p_tables.run(config, tmp_path, "table-4")
  (row,) = content["rows"]
  assert row["metric"] == "accuracy, cifar100, D = 3, imbalance 0.5"
  assert small == [("cifar100", 32, 0.5)]


@pytest.mark.parametrize(
  ("preset", "methods"),
  [
    ("table-2", ("HPN", "ETF")),
    ("table-3-swin", ("PSC", "DL2P")),
    ("table-5", ("DL2P",)),
    ("table-8", ("PSC*", "Ours*")),
    ("table-9", ("Fixed + CE",)),
  ],
)
def test_other_tables_train_their_methods(preset, methods, small, tmp_path):
  config = _dl2p_tables.PRESETS[preset]
  images = config.trainings[0].partition("/")[0]
  config = dataclasses.replace(
    config,
    trainings=tuple(f"{images}/{method}/3" for method in methods),
    uniformities=(0.1, 1.0),
    image_size=28,  # what is 32 wide before its random crop
    epochs=2,
    warm_up=min(config.warm_up, 1),
    batch=8,
    evaluate_every=1,
    seeds=min(config.seeds, 2),
  )
  kept = 32
  if preset == "table-5":
    with pytest.raises(SystemExit, match="give its list of images by --listing"):
      _dl2p_tables.run(config, tmp_path, preset)
    kept = 16
    listing = tmp_path / "listing.txt"
    lines = [f"train/some/{row}.JPEG {row % 4}" for row in range(kept)]
    listing.write_text("\n".join(lines))
    config = dataclasses.replace(config, listing=listing)
  content = _dl2p_tables.run(config, tmp_path, preset)
  assert [row["name"] for row in content["rows"]] == list(methods)
  for row in content["rows"]:
    assert len(row["values"]) == config.seeds
    assert np.isin(row["values"], np.arange(33) / 32).all()
  trainings = list((tmp_path / "trainings").iterdir())
  # PSC* is trained with each weight, of which held-out images choose.
  number = len(methods) + ("PSC*" in methods)
  assert len(trainings) == number * config.seeds
  if config.validation:
    kept -= 4
  for folder in trainings:
    assert (folder / "last" / str(2 * (kept // 8))).is_dir()


def test_every_training_of_the_presets_is_known():
  read = {"cifar100", "tiny_imagenet", "imagenet2012", "cifar10", "svhn_cropped",
          "stl10"}  # fmt: skip
  known = 0
  for name, config in _dl2p_tables.PRESETS.items():
    jobs = _dl2p_settings.plan(config)
    assert {job.images for job in jobs} <= read
    figures = [_dl2p_tables.reported(config, job) for job in jobs]
    known += sum(figure is not None for figure in figures)
    if name in ("table-2", "table-4", "table-6", "table-8", "table-9"):
      assert None not in figures
  # Tables 1 to 4, 6, 8 and 9, and what figures 3 and 4 share with them.
  assert known == 29 + 10 + 5 + 12 + 27 + 9 + 6 + 1 + 4
  tables = _dl2p_tables.PRESETS
  assert _dl2p_tables.reported(
    tables["table-4"], _dl2p_settings.plan(tables["table-4"])[2]
  ) == pytest.approx(0.481)


@pytest.mark.parametrize(
  ("name", "expected"),
  [
    ("table-1", {0: 0.01, 99: 0.01, 100: 0.001, 199: 0.001, 200: 1e-4}),
    ("table-4", {0: 0.02, 1: 0.04, 4: 0.1, 159: 0.1, 160: 0.01, 180: 0.001}),
    ("table-3", {5: 0.5, 52.5: 0.25, 100: 0.0}),
  ],
)
def test_rates_by_epoch(name, expected):
  config = _dl2p_tables.PRESETS[name]
  rates = _dl2p_network.schedule(config, config.learning_rate, 10)
  for epoch, rate in expected.items():
    assert rates(jnp.array(int(10 * epoch))) == pytest.approx(rate, abs=1e-7)


def test_what_cannot_be_trained_is_said_before_training(tmp_path):
  images = stand_in()
  key = jax.random.key(0)

  def refuses(message, function, *arguments, **options):
    with pytest.raises(ValueError, match=message):
      function(*arguments, **options)

  cut = functools.partial(_dl2p_readers.cut, "set", key=key)
  refuses("imbalance 0.01 leaves class 2 of 4", cut, images, images, imbalance=0.01)
  twins = dataclasses.replace(images, label_names=("a", "b", "a", "c"))
  refuses("different names, got 'a' again at 2", cut, twins, twins)
  some = images[images.labels != 2]
  refuses("class 'class 2' is left without", cut, some, images)
  without = dataclasses.replace(images, labels=np.where(images.labels == 1, -1, 0))
  refuses("training image 1 has no label", cut, without, images)
  listing = tmp_path / "list.txt"
  listing.write_text("train/a/one.JPEG 0\n\ntrain/a/two.JPEG 0\n")
  refuses("the set has no file names", cut, images, images, listing=listing)
  named = dataclasses.replace(
    images, extras={"file_name": np.array(["one.JPEG", *"x" * 31])}
  )
  refuses("names 'two.JPEG', which", cut, named, named, listing=listing)

  settings = _dl2p_settings.Full
  plan = _dl2p_settings.plan
  refuses("method must be one of PSC", plan, settings(trainings=("a/PSD/3",)))
  refuses("takes the prototypes of PSC", plan, settings(trainings=("a/Ours*/3",)))
  refuses("unknown option 's'", plan, settings(trainings=("a/DL2P/3/s=1",)))
  sets = cut(images, images)

  def points(training) -> Any:
    (job,) = plan(settings(trainings=(training,)))
    return _dl2p_full.fixed_points(settings(), job, sets)

  refuses("dim", points, "a/ETF/2")
  refuses("dim = 1 has room for at most 2", points, "a/DL2P/1")
  assert jnp.asarray(points("a/ETF/3")).shape == (4, 3)
  np.save(tmp_path / "vectors.npy", np.eye(3))
  refuses(
    "a vector for each of the 4 classes", _dl2p_readers.class_vectors,
    tmp_path / "vectors.npy", sets, key,
  )  # fmt: skip


def test_a_long_tail_that_empties_a_class_ends_the_small_study(tmp_path):
  config = dataclasses.replace(
    dynamic_assignment.PRESETS["smoke"], networks=(), tail_epochs=1, imbalance=0.001
  )
  with pytest.raises(ValueError, match="leaves class 12 of 20 without"):
    dynamic_assignment.part_b(config, tmp_path)


def fabricated(config, seeds: int = 3) -> _dl2p_sweep.Study:
  """A study of the cells of the settings, without a training."""
  task = _dl2p_sets.superclass(jax.random.key(0), 1)
  cells = _dl2p_small.make_cells(config, config.methods, config.dims, task)
  cells += _dl2p_small.more_matchings(config)
  rng = np.random.default_rng(0)
  shape = (len(cells), seeds)
  arrays = [
    rng.random((*shape, *rest))
    for rest in ((), (task.classes,), (), (15,), (task.classes, 19), (4, 19))
  ]
  return _dl2p_sweep.Study("superclass, linear", _dl2p_sweep.Runs(cells, *arrays))


@pytest.mark.parametrize(
  ("changes", "claimed", "drawn"),
  [
    ({"dims": (8, 19)}, {"A2-none", "A3-simplex"}, "matrix cosines accuracy changes"),
    (
      {"dims": (3, 19)},
      {"A1-d3", "A2-fades", "A2-none", "A3-simplex", "A3-d3", "A3-static-d3",
       "A4-first-d3", "A4-last-d3", "A8-linear-d3", "A9-linear-d3"},
      "matrix prototypes cosines accuracy changes",
    ),
    (
      {"methods": ("PSC", "DL2P"), "dims": (5, 19)},
      {"A4-first-d5", "A4-last-d5", "A5-more", "A5-flat", "A9-linear-d5"},
      "matrix cosines accuracy changes",
    ),
    ({"methods": ("HPN",), "dims": (3,)}, set(), "cosines"),
  ],
)  # fmt: skip
def test_what_was_trained_is_claimed_and_drawn(changes, claimed, drawn, tmp_path):
  config = dataclasses.replace(
    dynamic_assignment.PRESETS["cpu"], rates=(0.2,), **changes
  )
  study = fabricated(config)
  assert {claim["id"] for claim in _dl2p_report.claims([study])} == claimed
  assert _dl2p_report.rows([study])
  cosines = {(_dl2p_prototypes.BEST, 10, 9): np.linspace(-1, 1, 45)}
  pictures = _dl2p_pictures.draw(study, cosines, tmp_path)
  assert pictures == [f"{name}.png" for name in drawn.split()]
  assert _dl2p_pictures.draw(study, {}, tmp_path) == [
    name for name in pictures if name != "cosines.png"
  ]


def test_claims_of_some_prototypes():
  for sizes, names in (
    (((10, 9),), {"P1-closed", "P1-descent"}),
    (((10, 3),), {"P2"}),
    ((), set()),
  ):
    figures, _ = _dl2p_prototypes.study(jax.random.key(0), sizes, 1, long=False)
    assert {claim["id"] for claim in _dl2p_prototypes.claims(figures)} == names


def test_the_time_of_a_training_that_went_on_is_not_known(tmp_path, monkeypatch):
  config = dataclasses.replace(
    dynamic_assignment.PRESETS["smoke"], methods=("HPN",), dims=(3,), updates=()
  )
  runs = fabricated(config).runs
  task = _dl2p_sets.superclass(jax.random.key(0), 3)._replace(name="tiny_imagenet")
  clock = iter(range(0, 1000, 7))
  monkeypatch.setattr(_dl2p_small.time, "perf_counter", lambda: next(clock))
  monkeypatch.setattr(_dl2p_small, "fixed_sets", lambda *arguments: {})

  def train(*arguments, folder, **options):
    folder.mkdir(parents=True, exist_ok=True)
    return runs

  monkeypatch.setattr(_dl2p_sweep, "train", train)
  studies = [
    _dl2p_small.conduct(config, task, "resnet", runs.cells, tmp_path, epochs=8, seeds=3)
    for _ in range(2)
  ]
  # The second took all from the first, which was timed.
  assert [study.seconds for study in studies] == [7, 7]
  (record,) = (tmp_path / "checkpoints").glob("*.json")
  record.unlink()  # as if the first had been stopped
  later = _dl2p_small.conduct(
    config, task, "resnet", runs.cells, tmp_path, epochs=8, seeds=3
  )
  assert np.isnan(later.seconds)
  monkeypatch.undo()
  assert [len(_dl2p_report.share_claims([x])) for x in (studies[0], later)] == [1, 0]


def test_methods_that_do_not_fit_are_said_before_training(tmp_path, capsys):
  config = dataclasses.replace(
    dynamic_assignment.PRESETS["smoke"], image_methods=("Ours*", "DL2P")
  )
  with pytest.raises(ValueError, match=r"PSC\*, which image_methods must have, got"):
    dynamic_assignment.run(config, tmp_path)
  with pytest.raises(SystemExit):
    _cli.parse(
      dynamic_assignment.PRESETS, name="dynamic_assignment", doc="",
      arguments=["--methods", "PSD"],
    )  # fmt: skip
  assert "'PSD'" in "".join(capsys.readouterr())


def test_every_claim_of_a_table_has_a_name():
  texts = [
    f"cifar100/{method}/{dim}/imbalance={imbalance}{more}"
    for dim in (3, 5)
    for imbalance in (0.01, 0.02)
    for method, more in (
      ("PSC", ""), ("DL2P", ""), ("PSC*", "/uniformity=0.1"), ("PSC*", "/uniformity=1")
    )
  ]  # fmt: skip
  jobs = _dl2p_settings.plan(_dl2p_settings.Full(trainings=tuple(texts)))
  one = _dl2p_full.Trained(0.5, 0.5, np.zeros((2, 2)), np.zeros(2))
  names = [claim["id"] for claim in _dl2p_tables._claims({job: [one] for job in jobs})]
  assert len(set(names)) == len(names) == 12
  assert "cifar100-PSC-d3-imbalance0.01" in names
  plain = _dl2p_settings.plan(_dl2p_settings.Full(trainings=("cifar100/PSC/50",)))
  assert _dl2p_tables._id(plain[0]) == "cifar100-PSC-d50"


@pytest.mark.parametrize("skip_mixed", [False, True])
def test_mixed_images_move_their_first_class_or_none(skip_mixed):
  labels = np.tile(np.arange(3), 6)
  images = np.random.default_rng(0).normal(size=(18, 3)).astype(np.float32)
  points = jnp.eye(3)
  matching = _dl2p_methods.first_matching(jax.random.key(1), points)
  key = jax.random.key(2)
  outcome = jax.jit(
    lambda: _dl2p_methods.objective(
      {"network": {}, "loss": {"points": points}},
      {"loss": {"assignment": matching}},
      {"image": images, "label": labels},
      key=key,
      axis_name=None,
      prepare=lambda key, x: x,
      network=lambda params, stats, x, key: (x, None),
      method=_dl2p_methods.RECIPES["DL2P"].method,
      mixup=1.0,
      skip_mixed=skip_mixed,
    )
  )()
  mixed = data.mixup(jax.random.split(key, 3)[1], images, jnp.eye(3)[labels])
  pure = np.asarray(mixed.targets.max(1)) > 0.999
  assert 0 < pure.sum() < 18
  counted = pure | (not skip_mixed)
  rows = np.array(matching.representatives.prototypes)
  for label in range(3):
    if (chosen := counted & (labels == label)).any():
      z = np.asarray(mixed.inputs)[chosen]
      mean = (z / np.linalg.norm(z, axis=1, keepdims=True)).mean(0)
      row = 0.9 * rows[label] + 0.1 * mean
      rows[label] = row / np.linalg.norm(row)
  moved = outcome.batch_stats["loss"]["assignment"].representatives.prototypes
  np.testing.assert_allclose(moved, rows, rtol=1e-5)


def test_losses_of_all_methods_by_hand():
  rng = np.random.default_rng(0)
  u, w = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
  w /= np.linalg.norm(w, axis=1, keepdims=True)
  assignment, weights = np.array([2, 0, 3, 1]), np.array([0.5, 1.0, 2.0, 3.0])
  labels = np.array([0, 1, 2, 3, 0])
  targets = 0.7 * np.eye(4)[labels] + 0.3 * np.eye(4)[::-1][labels]
  first, points, soft, factors = (
    jnp.asarray(x, jnp.float32) for x in (u, w, targets, weights)
  )

  @jax.jit
  def values(method):
    return _dl2p_methods.losses_of(
      method, first, points, jnp.asarray(assignment), soft, factors
    )

  for name, recipe in _dl2p_methods.RECIPES.items():
    for weighted in (0.0, 1.0):
      method = recipe.method._replace(weighted=weighted)
      method = jax.tree.map(jnp.float32, method)
      found = values(method)
      for i in range(5):
        expected = 0.0
        z = u[i] / np.linalg.norm(u[i])
        logits = np.array([u[i] @ w[assignment[k]] for k in range(4)])
        cosines = logits / np.linalg.norm(u[i])
        if name == "Fixed + CE":
          logits = cosines
        if name == "maximum separation":
          logits = 0.1 * logits
        assert np.allclose(z @ w[assignment[0]], cosines[0])
        for k in range(4):
          share = targets[i, k] * (weights[k] if weighted else 1)
          if name in ("PSC", "PSC*", "Fixed + CE", "maximum separation"):
            expected -= share * (logits[k] - np.log(np.exp(logits).sum()))
          elif name in ("HPN", "Word2Vec-like"):
            expected += share * (1 - cosines[k]) ** 2
          else:
            expected += share * (1 - cosines[k]) ** 2 / 2
        assert found[i] == pytest.approx(expected, rel=1e-5), name
