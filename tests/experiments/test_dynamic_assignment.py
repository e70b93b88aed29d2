"""The study of assignments as a user runs it, and the paper's presets on stand-ins."""

import dataclasses
import functools
import math
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import dynamic_assignment
from experiments.assignment import cells as dl2p_small
from experiments.assignment import claims, photographs, pictures, readers, tables, tasks
from experiments.assignment import methods as dl2p_methods
from experiments.assignment import prototypes as dl2p_prototypes
from experiments.assignment import settings as dl2p_settings
from experiments.assignment import training as dl2p_sweep
from experiments.assignment.settings import Job
from experiments.frame.study import Table
from experiments.published import tree_paths
from spherejax import data, hierarchy, models, prototypes

CPU, SMOKE = dynamic_assignment.PRESETS["cpu"], dynamic_assignment.PRESETS["smoke"]


@pytest.mark.slow
def test_matching_again_brings_related_classes_together(smoke):
  rows = {(row["name"], row["metric"]): row["values"] for row in smoke.content["rows"]}
  where = "superclass, linear, D = 3"
  gap, static = (rows[name, f"sibling gap, {where}"] for name in ("DL2P", "Static"))
  assert len(gap) == 3
  assert np.min(np.subtract(gap, static)) > 0.1
  assert np.min(gap) > 0.3
  accuracy = [smoke.figures[n, f"accuracy, {where}"] for n in ("DL2P", "Static")]
  assert accuracy[0] > accuracy[1] + 0.05 > 0.15
  verdicts = {claim["id"]: claim["verdict"] for claim in smoke.content["claims"]}
  assert verdicts["A3-d3"] == "reproduced"
  names = "matrix", "prototypes", "cosines", "accuracy", "changes"
  assert smoke.content["pictures"] == [f"{name}.png" for name in names]


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
    return readers.cut(
      job.images, images, images, imbalance=job.imbalance,
      validation=config.validation, listing=config.listing, key=jax.random.key(0),
    )  # fmt: skip

  def layer(widths=(8,), shortcut="projection_3x3"):
    assert shortcut == "projection_3x3"
    return models.ConvNet(widths[:1], strides=(4,), norm="batch")

  monkeypatch.setattr(photographs, "read_sets", read)
  monkeypatch.setattr(photographs.models, "ResNet32", layer)
  for name in photographs.BACKBONES:
    monkeypatch.setitem(photographs.BACKBONES, name, layer)
  return asked


@pytest.mark.slow
def test_a_balanced_table_runs_and_goes_on_where_it_was_stopped(small, tmp_path):
  config = dataclasses.replace(
    tables.PRESETS["table-1"], jobs=(Job("cifar100", "DL2P", 3),), epochs=2,
    batch=8, width=8, evaluate_every=1,
  )  # fmt: skip
  whole = dynamic_assignment.STUDY.run(config, tmp_path / "whole", "table-1")
  (row,) = whole["rows"]
  assert row["metric"] == "accuracy, cifar100, D = 3"
  assert row["values"][0] in np.arange(33) / 32
  assert whole["pictures"] == ["changes.png"]
  assert small == [("cifar100", 32, 1.0)]
  (folder,) = (tmp_path / "whole" / "trainings").iterdir()
  # Killed in the second epoch: the checkpoint of the first is there.
  shutil.rmtree(folder / "last" / "8")
  again = dynamic_assignment.STUDY.run(config, tmp_path / "whole", "table-1")
  assert (folder / "last" / "8").is_dir()
  assert again["rows"] == whole["rows"]


@pytest.mark.slow
@pytest.mark.parametrize(
  ("preset", "methods"),
  [
    ("table-2", ("HPN", "ETF")), ("table-3-swin", ("PSC, linear", "DL2P")),
    ("table-4", ("DL2P",)), ("table-5", ("DL2P",)), ("table-8", ("PSC*", "Ours*")),
    ("table-9", ("Fixed + CE",)),
  ],
)  # fmt: skip
def test_other_tables_train_their_methods(preset, methods, small, tmp_path):
  config = tables.PRESETS[preset]
  images, imbalance = config.jobs[0].images, 0.5 if preset == "table-4" else 1.0
  config = dataclasses.replace(
    config, jobs=tuple(Job(images, x, 3, imbalance=imbalance) for x in methods),
    uniformities=(0.1, 1.0), epochs=2, warm_up=min(config.warm_up, 1), batch=8,
    evaluate_every=1, seeds=min(config.seeds, 2),
    image_size=28,  # what is 32 wide before its random crop
  )  # fmt: skip
  kept = 32 if imbalance == 1 else 8 + 6 + 5 + 4
  if preset == "table-5":
    with pytest.raises(SystemExit, match="table-5 needs --listing"):
      dynamic_assignment.STUDY.run(config, tmp_path, preset)
    kept = 16
    listing = tmp_path / "listing.txt"
    listing.write_text("\n".join(f"train/some/{x}.JPEG {x % 4}" for x in range(kept)))
    config = dataclasses.replace(config, listing=listing)
  content = dynamic_assignment.STUDY.run(config, tmp_path, preset)
  assert [row["name"] for row in content["rows"]] == list(methods)
  for row in content["rows"]:
    assert row["metric"].startswith("accuracy")
    assert len(row["values"]) == config.seeds
    assert np.isin(row["values"], np.arange(33) / 32).all()
  assert {asked[2] for asked in small} == {imbalance}
  trainings = list((tmp_path / "trainings").iterdir())
  # PSC* is trained with each weight, of which held-out images choose.
  assert len(trainings) == (len(methods) + ("PSC*" in methods)) * config.seeds
  if config.validation:
    kept -= 4
  for folder in trainings:
    assert (folder / "last" / str(2 * (kept // 8))).is_dir()


def test_every_training_of_the_presets_is_known():
  read = {"cifar100", "tiny_imagenet", "imagenet2012", "cifar10", "svhn_cropped",
          "stl10"}  # fmt: skip
  known = 0
  for name, config in tables.PRESETS.items():
    jobs = dl2p_settings.plan(config)
    assert {job.images for job in jobs} <= read
    figures = [tables.reported(config, job) for job in jobs]
    known += sum(figure is not None for figure in figures)
    if name in ("table-2", "table-4", "table-6", "table-8", "table-9"):
      assert None not in figures
  # Tables 1 to 4, 6, 8 and 9, and what figures 3 and 4 share with them.
  # PSC's are beside both of its kinds.
  assert known == 37 + 12 + 5 + 12 + 27 + 9 + 6 + 1 + 4 + 24
  table = tables.PRESETS["table-4"]
  share = tables.reported(table, dl2p_settings.plan(table)[2])
  assert share == pytest.approx(0.481)


@pytest.mark.parametrize(
  ("name", "expected"),
  [
    ("table-1", {0: 0.01, 99: 0.01, 100: 0.001, 199: 0.001, 200: 1e-4}),
    ("table-4", {0: 0.02, 1: 0.04, 4: 0.1, 159: 0.1, 160: 0.01, 180: 0.001}),
    ("table-3", {5: 0.5, 52.5: 0.25, 100: 0.0}),
  ],
)
def test_rates_by_epoch(name, expected):
  rates = photographs.schedule(tables.PRESETS[name], 10)
  for epoch, rate in expected.items():
    assert rates(jnp.array(int(10 * epoch))) == pytest.approx(rate, abs=1e-7)


def test_what_cannot_be_trained_is_said_before_training(tmp_path):
  images, key = stand_in(), jax.random.key(0)

  def refuses(message, function, *arguments, **options):
    with pytest.raises(ValueError, match=message):
      function(*arguments, **options)

  cut = functools.partial(readers.cut, "set", key=key)
  refuses("imbalance 0.01 leaves class 2 of 4", cut, images, images, imbalance=0.01)
  twins = dataclasses.replace(images, label_names=("a", "b", "a", "c"))
  refuses("different names, got 'a' again at 2", cut, twins, twins)
  refuses("class 'class 2' is left without", cut, images[images.labels != 2], images)
  without = dataclasses.replace(images, labels=np.where(images.labels == 1, -1, 0))
  refuses("training image 1 has no label", cut, without, images)
  listing = tmp_path / "list.txt"
  listing.write_text("train/a/one.JPEG 0\n\ntrain/a/two.JPEG 0\n")
  refuses("the set has no file names", cut, images, images, listing=listing)
  names = {"file_name": np.array(["one.JPEG", *"x" * 31])}
  named = dataclasses.replace(images, extras=names)
  refuses("list.txt, line 3, names 'two.JPEG'", cut, named, named, listing=listing)
  with pytest.raises(IsADirectoryError, match=f"{tmp_path}"):
    cut(named, named, listing=tmp_path)

  plan, jobs = dl2p_settings.plan, tables.PRESETS["table-8"].jobs
  settings = functools.partial(dl2p_settings.Full, jobs=jobs)
  lost = settings(trainings=("cifar100/Ours*/16",))
  refuses(r"cifar100/Ours\*/16 takes the prototypes of PSC", plan, lost)
  unknown = settings(trainings=("cifar100/PSC, linear/15",))
  message = "among cifar100/PSC, cosine/16, .* got 'cifar100/PSC, linear/15'"
  refuses(message, plan, unknown)
  one = settings(trainings=("cifar100/PSC, linear/32",))
  assert plan(one) == [Job("cifar100", "PSC, linear", 32)]
  sets = cut(images, images)

  def points(*job):
    return photographs.fixed_points(settings(), Job("a", *job), sets)

  refuses("dim", points, "ETF", 2)
  refuses("dim = 1 has room for at most 2", points, "DL2P", 1)
  assert jnp.asarray(points("ETF", 3)).shape == (4, 3)
  vectors = tmp_path / "vectors.npy"
  np.save(vectors, np.eye(3))
  message = "a vector for each of the 4 classes"
  refuses(message, readers.class_vectors, vectors, sets, key)
  # A long tail that empties a class ends the small study.
  config = dataclasses.replace(SMOKE, networks=(), tail_epochs=1, imbalance=0.001)
  message = "leaves class 12 of 20 without"
  refuses(message, dynamic_assignment.part_b, config, tmp_path)


def fabricated(config, seeds: int = 3) -> dl2p_sweep.Study:
  """A study of the cells of the settings, without a training."""
  task = tasks.superclass(jax.random.key(0), 1)
  cells = dl2p_small.make_cells(config, config.methods, config.dims, task)
  cells += dl2p_small.more_matchings(config)
  rng = np.random.default_rng(0)
  ends = (), (task.classes,), (), (15,), (task.classes, 19)
  arrays = [rng.random((len(cells), seeds, *end)) for end in ends]
  return dl2p_sweep.Study("superclass, linear", dl2p_sweep.Runs(cells, *arrays))


@pytest.mark.parametrize(
  ("changes", "drawn"),
  [
    ({"dims": (8, 19)}, "matrix cosines accuracy changes"),
    ({"dims": (3, 19)}, "matrix prototypes cosines accuracy changes"),
    ({"methods": (), "dims": (3,)}, "cosines"),
  ],
)
def test_what_was_trained_is_drawn(changes, drawn):
  study = fabricated(dataclasses.replace(CPU, rates=(0.2,), **changes))
  cosines = {(dl2p_prototypes.BEST, 10, 9): np.linspace(-1, 1, 45)}
  assert [*pictures.draw(study, cosines)] == drawn.split()
  without = [name for name in drawn.split() if name != "cosines"]
  assert [*pictures.draw(study, {})] == without


def test_the_time_of_a_training_that_went_on_is_not_known(tmp_path, monkeypatch):
  config = dataclasses.replace(SMOKE, methods=("Static",), dims=(19,), updates=())
  runs = fabricated(config).runs
  task = tasks.superclass(jax.random.key(0), 3)._replace(name="tiny_imagenet")
  clock = iter(range(0, 1000, 7))
  monkeypatch.setattr(dl2p_small.time, "perf_counter", lambda: next(clock))
  monkeypatch.setattr(dl2p_small, "fixed_sets", lambda *arguments: {})

  def train(*arguments, folder, **options):
    folder.mkdir(parents=True, exist_ok=True)
    return runs

  monkeypatch.setattr(dl2p_sweep, "train", train)
  conduct = functools.partial(
    dl2p_small.conduct, config, task, "resnet", runs.cells, tmp_path, epochs=8, seeds=3
  )
  # The second took all from the first, which was timed.
  studies = [conduct(), conduct()]
  assert [study.seconds for study in studies] == [7, 7]
  (record,) = (tmp_path / "checkpoints").glob("*.json")
  record.unlink()  # as if the first had been stopped
  later = conduct()
  assert np.isnan(later.seconds)
  monkeypatch.undo()
  for study, number in ((studies[0], 1), (later, 0)):
    table = Table()
    claims.time_matchings(table, [study])
    assert len(dynamic_assignment.STUDY.claimed(table, config)) == number


def test_every_claim_of_a_table_has_a_name():
  methods = ("PSC, linear", None), ("DL2P", None), ("PSC*", 0.1), ("PSC*", 1.0)
  jobs = tuple(
    Job("cifar100", method, dim, uniformity=weight, imbalance=imbalance)
    for dim in (3, 5)
    for imbalance in (0.01, 0.02)
    for method, weight in methods
  )
  declared = tables.claims(dl2p_settings.Full(jobs=jobs), Table())
  names = [claim.id for claim in declared]
  assert len(set(names)) == len(names) == 12
  assert "cifar100-PSC, linear-d3-imbalance0.01" in names
  assert jobs[2].name == "cifar100/PSC*/3/uniformity=0.1/imbalance=0.01"


@pytest.mark.parametrize("skip_mixed", [False, True])
def test_mixed_images_move_their_first_class_or_none(skip_mixed):
  labels = np.tile(np.arange(3), 6)
  images = np.random.default_rng(0).normal(size=(18, 3)).astype(np.float32)
  points = jnp.eye(3)
  matching = dl2p_methods.first_matching(jax.random.key(1), points)
  key = jax.random.key(2)
  outcome = jax.jit(
    lambda: dl2p_methods.objective(
      {"network": {}, "loss": {"points": points}}, {"loss": {"assignment": matching}},
      {"image": images, "label": labels}, key=key, axis_name=None,
      prepare=lambda key, x: x, network=lambda params, stats, x, key: (x, None),
      method=dl2p_methods.RECIPES["DL2P"].method, mixup=1.0, skip_mixed=skip_mixed,
    )
  )()  # fmt: skip
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
  assignment, weights = np.array([2, 0, 3, 1]), np.array([0.5, 1.0, 2.0, 3.0])
  labels = np.array([0, 1, 2, 3, 0])
  targets = 0.7 * np.eye(4)[labels] + 0.3 * np.eye(4)[::-1][labels]
  given = [jnp.asarray(x, jnp.float32) for x in (u, w, targets, weights)]
  given.insert(2, jnp.asarray(assignment))
  values = jax.jit(lambda method: dl2p_methods.losses_of(method, *given))
  ours = w[assignment]
  products = u @ ours.T
  lengths = np.linalg.norm(u, axis=1)[:, None] * np.linalg.norm(ours, axis=1)
  cosines = products / lengths
  logits = {"PSC, linear": products, "maximum separation": 0.1 * products}
  logits |= dict.fromkeys(("Fixed + CE", "PSC, cosine", "PSC*"), cosines)
  twice = "HPN", "HPN + semantics", "Word2Vec-like"
  for name, recipe in dl2p_methods.RECIPES.items():
    if name in logits:
      x = logits[name]
      each = np.log(np.exp(x).sum(1, keepdims=True)) - x
    else:
      each = (1 - cosines) ** 2 / (1 if name in twice else 2)
    for weighted in (0.0, 1.0):
      method = recipe.method._replace(weighted=weighted)
      found = values(jax.tree.map(jnp.float32, method))
      expected = (targets * (weights if weighted else 1) * each).sum(1)
      np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=name)


def test_the_length_of_a_prototype_counts_for_products_alone():
  points, one = jnp.array([[1.0, 0.0], [0.8, 4.0]]), jnp.array([[1.0, 0.1]])
  for name, expected in (("PSC, linear", 1), ("PSC, cosine", 0)):
    method = dl2p_methods.RECIPES[name].method
    assert dl2p_methods.predict(method, one, points, jnp.arange(2)) == expected


@pytest.mark.parametrize("method", ["DL2P", "Static", "Fixed + CE"])
def test_tables_have_the_papers_prototypes_and_the_small_study_the_best(method):
  sets = readers.Sets("set", stand_in(13, 1, 4), None, stand_in(13, 1, 4))
  source = dl2p_methods.RECIPES[method].source
  key = jax.random.fold_in(jax.random.key(0), 1)
  potential = prototypes.gaussian_potential_prototypes(key, 13, 3)
  best = prototypes.uniform_prototypes(key, 13, 3).prototypes
  assert float(jnp.abs(potential - best).max()) > 0.1
  found = photographs.fixed_points(dl2p_settings.Full(), Job("a", method, 3), sets)
  np.testing.assert_array_equal(found, potential)
  np.testing.assert_array_equal(dl2p_methods.fixed_set(source, key, 13, 3), best)


def test_prototypes_that_know_the_names_of_the_classes(tmp_path):
  sets = readers.Sets("set", stand_in(), None, stand_in())
  vectors = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], np.float32)
  np.save(tmp_path / "vectors.npy", vectors)
  config = dl2p_settings.Full(vectors=tmp_path / "vectors.npy")
  knowing, plain = (
    np.asarray(photographs.fixed_points(config, Job("a", name, 3), sets))
    for name in ("HPN + semantics", "HPN")
  )
  key = jax.random.fold_in(jax.random.key(0), 1)
  right = prototypes.hpn_prototypes(key, 4, 3, vectors=vectors)
  np.testing.assert_array_equal(knowing, right)
  # Row k is that of class k: 0 is nearer to 1 than in a simplex, 2 and 3 are farther.
  cosines = knowing @ knowing.T
  assert cosines[0, 1] > -0.3 > max(cosines[0, 2], cosines[0, 3])
  assert np.abs(knowing - plain).max() > 0.01
  assert not dl2p_methods.RECIPES["HPN + semantics"].method.shuffled
  task = tasks.siblings(jax.random.key(0), 1)
  methods = ("HPN", "Word2Vec-like")
  cells = functools.partial(dl2p_small.make_cells, SMOKE, methods, (3, 19))
  assert [(cell.name, cell.dim) for cell in cells(task)] == [(x, 19) for x in methods]
  assert not cells(task._replace(name="superclass"))


def test_word_vectors_stand_in_table_7(monkeypatch, tmp_path):
  key = jax.random.key(0)
  vectors = readers.cifar100_vectors(None, key)
  monkeypatch.setattr(dl2p_prototypes, "RECIPES", {})
  sizes = ((100, 100), (100, 50), (20, 5), (100, 100))  # once, though named twice
  table = Table()
  own = dl2p_prototypes.study(table, key, sizes, 3, vectors=vectors)
  assert list(own) == [("Word2Vec-like", 100, 100), ("Word2Vec-like", 100, 50)]
  printed = {x["metric"]: x["paper"] for x in table.rows() if x["paper"] is not None}
  where = ", 100 in 100 dimensions"
  assert printed == {f"largest cosine{where}": 0.74, f"smallest cosine{where}": -0.32}
  rows = np.asarray(prototypes.vector_prototypes(vectors, 100))
  (largest,) = table.values(f"largest cosine{where}", "Word2Vec-like")
  assert largest == pytest.approx((rows @ rows.T - 2 * np.eye(100)).max(), abs=1e-5)
  assert largest > 0.2  # related classes are near each other
  np.save(tmp_path / "vectors.npy", np.eye(3))
  config = dl2p_settings.Full(prototypes=((100, 50),), vectors=tmp_path / "vectors.npy")
  with pytest.raises(ValueError, match="for each of the 100 classes, got shape"):
    dynamic_assignment.STUDY.run(config, tmp_path, "table-7")


def test_pictures_of_tables_are_the_papers_figures():
  jobs = [Job("a", "DL2P", 50, r) for r in (10, 0.1, 1)]
  jobs += [Job("a", name, dim) for dim in (10, 3) for name in ("DL2P", "Static")]
  jobs += [Job("a", "PSC*", 16, uniformity=w) for w in (0.1, 1)]
  jobs.append(Job("a", "PSC, linear", 16))
  rest = 0.5, np.eye(2), np.array([0.5, 0.25])  # figures of no interest here
  found = {
    job: [photographs.Trained(0.01 * k + seed / 2, *rest) for seed in range(2)]
    for k, job in enumerate(jobs)
  }
  cosines = {(dl2p_prototypes.BEST, 10, 9): np.linspace(-1, 1, 45)}
  seconds = {100: [0.1, 0.2], 200: [0.5, 0.6]}
  names = ["cosines", "updates", "uniformity", "accuracy", "matchings", "changes"]
  assert [*pictures.draw_tables(found, cosines, seconds)] == names
  assert pictures.draw_tables({}, {}, {}) == {}
  few = dict(list(found.items())[:1])
  assert [*pictures.draw_tables(few, {}, {})] == ["changes"]
  curves, values = pictures.accuracies(
    found, lambda job: job.title, lambda job: job.dim if job.updates == 1 else None
  )
  assert values == [3, 10, 50]
  assert list(curves) == ["DL2P", "Static"]
  nan = np.nan  # what was not trained
  np.testing.assert_allclose(
    list(curves.values()),
    [[[0.05, 0.03, 0.02], [0.55, 0.53, 0.52]], [[0.06, 0.04, nan], [0.56, 0.54, nan]]],
    rtol=1e-12,
  )


def test_stored_images_are_read_with_their_tree(tfds_dir):
  sets = readers.load(
    "cifar100", size=32, validation=0.1, imbalance=0.5, key=jax.random.key(0)
  )
  assert np.shape(sets.train.images)[1:] == (32, 32, 3)
  assert 0 < len(sets.validation) < len(sets.train)
  counts = np.bincount(sets.train.labels, minlength=100)
  assert 0 < counts[99] < 0.7 * counts[0]
  assert len(sets.test) > 0
  names = sets.train.label_names
  tree = readers.class_tree(sets)
  assert tree.class_names == tuple(names)
  paths = {path[-1]: path[-2] for path in tree_paths("CIFAR_100")}
  groups = np.array([paths[name] for name in names])
  right = np.where(groups[:, None] == groups, 2, 4) * (1 - np.eye(100))
  np.testing.assert_array_equal(hierarchy.path_distances(tree), right)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "features", "norm"),
  [
    ("resnet32", 128, True), ("resnet50", 2048, False), ("resnet101", 2048, False),
    ("swin_t", 768, False), ("swin_t", 768, True),
  ],
)  # fmt: skip
def test_networks_of_the_tables(name, features, norm):
  config = dl2p_settings.Full(network=name, width=32, feature_norm=norm)
  network = photographs.Network(config, 7)
  side = 32 if name == "resnet32" else 64

  def both(key, images):
    variables = network.init(key, images)
    params, stats = variables["params"], variables.get("batch_stats")
    return variables, photographs.forward(network, params, stats, images, key)

  images = jnp.zeros((2, side, side, 3))
  variables, (embeddings, stats) = jax.eval_shape(both, jax.random.key(0), images)
  assert embeddings.shape == (2, 7)
  assert variables["params"]["Dense_0"]["kernel"].shape == (features, 7)
  assert ("batch_stats" in variables) == (name != "swin_t" or norm)
  assert ("BatchNorm_0" in variables["params"]) == norm
  # A step of a network without statistics hands none on.
  shapes = [jax.tree.map(jnp.shape, each) for each in (stats, variables)]
  assert (shapes[0] or None) == shapes[1].get("batch_stats")


@pytest.mark.parametrize("classes", [pytest.param(10, marks=pytest.mark.slow), 100])
def test_fixed_prototypes_under_cross_entropy_have_a_floor(classes, x64):
  """On a simplex the loss ends far above 0, and the own class far below 1."""
  points = prototypes.simplex(jax.random.key(0), classes, classes - 1)
  floor = math.log(1 + (classes - 1) * math.exp(-classes / (classes - 1)))
  one, numbers = jnp.ones(classes), jnp.arange(classes)
  method = dl2p_methods.RECIPES["Fixed + CE"].method

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def loss(embeddings):
    targets = jax.nn.one_hot(jnp.zeros(len(embeddings), int), classes)
    values = dl2p_methods.losses_of(method, embeddings, points, numbers, targets, one)
    return values.sum(), values

  (_, best), gradient = loss(points[:1])
  np.testing.assert_allclose(best, [floor], rtol=1e-12)
  np.testing.assert_allclose(gradient, 0 * gradient, atol=1e-12)
  noise = np.random.default_rng(0).normal(size=(200, classes - 1))
  for size in (0.01, 0.3, 10.0):
    (_, values), _ = loss(points[:1] + size * noise)
    assert values.min() > floor
  if classes == 100:
    assert floor == pytest.approx(3.61, abs=5e-3)
    assert math.exp(-floor) <= 0.027


def test_gains_of_the_text_against_the_papers_own_tables():
  blocks = [x for x in tables.ACCURACIES if "network" not in x]
  cifar, imagenet, *_, last = blocks
  best = {name: [np.nanmax(part[name]) for part in (cifar, imagenet)]
          for name in ("DL2P", "HPN")}  # fmt: skip
  # Over ETF not 0.87 and 9.15, over HPN 1.22 as printed, and not 2.14.
  etf = [block["ETF"][0] for block in blocks[2:4]]
  gains = np.subtract(best["DL2P"], [etf, best["HPN"]])
  np.testing.assert_allclose(gains, [[0.88, 9.70], [1.22, 2.15]], atol=1e-9)
  # The best in every dimension but that of the classes.
  for part in (cifar, imagenet):
    above = [x > y for x, y in zip(part["DL2P"], part["HPN"], strict=True)]
    assert above == [True, True, True, False]
  # PSC* does not improve PSC in 16 dimensions, nor does Ours*.
  for name in ("PSC*", "Ours*"):
    assert [x > y for x, y in zip(last[name], last["PSC"], strict=True)] == [
      False, True, True
    ]  # fmt: skip
  # PSC in 16 dimensions is above PSC in 25, 50 and 100 of another table.
  assert last["PSC"][0] > max(cifar["PSC"])
