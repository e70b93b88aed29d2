"""Sets of images of `dynamic_assignment`: how they are cut, trained on and claimed."""

import dataclasses
import types

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import dynamic_assignment
from experiments.assignment import cells as dl2p_small
from experiments.assignment import claims, pictures, tasks, training
from experiments.assignment import methods as dl2p_methods
from experiments.frame import images as class_sets
from spherejax import data, hierarchy, models
from tests.experiments import entries

TREE = {
  "alphabet a": [f"a{k}" for k in range(3)],
  "alphabet b": [f"b{k}" for k in range(4)],
  "alphabet c": [f"c{k}" for k in range(3)],
}
NAMES = tuple(name for names in TREE.values() for name in names)


def toned(labels: np.ndarray, names: tuple[str, ...]) -> data.Images:
  """Images whose pixels are 20 times their label."""
  pixels = np.broadcast_to(labels[:, None, None, None], (len(labels), 16, 16, 1))
  return data.Images((20 * pixels).astype(np.uint8), labels.astype(np.int32), names)


def tones(part: tasks.Part) -> np.ndarray:
  """Tones of the images of a part."""
  return np.asarray(part.inputs[0, :, 0, 0, 0])


def test_characters_are_of_whole_alphabets(monkeypatch):
  # b3 is a test character of the prepared set, and the labels are not in tree order.
  names = NAMES[::-1]
  there = [label for label, name in enumerate(names) if name != "b3"]
  images = toned(np.repeat(there, 20), names)
  tree = hierarchy.restrict(hierarchy.from_mapping(TREE), names)
  monkeypatch.setattr(class_sets, "read", lambda name, part, size: images)
  monkeypatch.setattr(class_sets, "tree_of", lambda name, classes: tree)
  monkeypatch.setattr(tasks, "ALPHABETS", 2)
  monkeypatch.setattr(tasks, "CHARACTERS", 3)
  task = tasks.characters(16)
  kept = task.tree.class_names
  assert [name[0] for name in kept] == ["a"] * 3 + ["c"] * 3  # b's third is not there
  assert task.superclasses.tolist() == [0, 0, 0, 1, 1, 1]
  sizes = (13, 3, 4)
  for part, size in zip((task.train, task.validation, task.test), sizes, strict=True):
    assert np.bincount(part.labels[0]).tolist() == [size] * 6
    own = [names.index(kept[label]) for label in np.asarray(part.labels[0])]
    assert np.array_equal(tones(part), 255 - 20 * np.array(own))  # ink is bright
  assert (task.flips, task.tail) == (False, 0)


def test_plankton_keeps_its_tail_and_loses_no_class(monkeypatch):
  tree = hierarchy.from_mapping({"none": ["n0"], "plankton": {"x": TREE, "p": None}})
  names = tree.class_names
  counts = np.arange(3, 3 + 3 * len(names), 3)
  images = toned(np.repeat(np.arange(len(names)), counts), names)
  tested = toned(np.arange(len(names)), names)
  whole = class_sets.Whole(images, tested, tree, np.ones(len(names), bool))
  monkeypatch.setattr(class_sets, "load", lambda name, side: whole)
  monkeypatch.setattr(tasks, "MOST", 20)
  task = tasks.plankton(16)
  # From the class with most images to the rarest.
  assert task.tree.class_names == names[::-1]
  fitted, held = (np.bincount(p.labels[0]) for p in (task.train, task.validation))
  assert np.array_equal(fitted + held, np.minimum(counts[::-1], 20))
  assert fitted[:5].tolist() == [16] * 5
  assert fitted[-1] == 2
  assert np.array_equal(np.asarray(task.test.labels[0]), np.arange(len(names))[::-1])
  for part in (task.train, task.validation, task.test):
    assert np.array_equal(tones(part), 20 * (len(names) - 1 - part.labels[0]))
  groups = dict(zip(task.tree.class_names, task.superclasses, strict=True))
  assert len({groups[name] for name in NAMES}) == 1
  assert len({groups[name] for name in ("p", "n0", "a0")}) == 3
  assert (task.flips, task.tail) == (True, 4)


@pytest.fixture
def small():
  """A set of images of 6 classes in 3 super-classes, two of them rare."""
  labels = np.repeat(np.arange(6), (12, 12, 12, 12, 4, 4))
  pixels = np.asarray(toned(labels, tuple("abcdef")).images)
  noisy = pixels + np.random.default_rng(0).integers(0, 9, pixels.shape, np.uint8)
  part = tasks.Part(jnp.asarray(noisy)[None], jnp.asarray(labels)[None])
  return tasks.Task("rows", part, part, part, None, np.arange(6) // 2, tail=2)


@pytest.mark.slow
def test_images_with_a_tail_train_weighted_methods_too(small, tmp_path, monkeypatch):
  monkeypatch.setitem(tasks.READERS, "omniglot", lambda size: small)

  def layer(**options):
    return models.ConvNet((8,), strides=(4,), norm="group")

  monkeypatch.setattr(training.models, "ResNet20", layer)
  config = dataclasses.replace(
    dynamic_assignment.PRESETS["smoke"],
    networks=(), images=(("omniglot", 2),), image_seeds=1, image_epochs=2,
    image_batch=8,
  )  # fmt: skip
  (study,) = dynamic_assignment.part_b(config, tmp_path)
  assert (study.name, study.tail, study.dims) == ("rows, resnet", 2, [2])
  names = ["PSC, cosine", "PSC, linear", "Fixed + CE", "Static", "DL2P"]
  weighted = ["Static, weighted", "DL2P, weighted"]
  assert [cell.name for cell in study.runs.cells] == names + weighted
  assert study.runs.test.shape == (7, 1, 6)
  assert study.runs.change.shape == (7, 1, 2)
  plain = dl2p_small.image_cells(config, small._replace(tail=0), 2)
  assert [cell.name for cell in plain] == names


@pytest.mark.parametrize("flips", [False, True])
def test_sets_are_flipped_where_that_keeps_a_class(small, flips, tmp_path, monkeypatch):
  def train(setting, *arguments, **options):
    raise KeyboardInterrupt(setting.augment)

  monkeypatch.setattr(training, "train", train)
  config = dynamic_assignment.PRESETS["smoke"]
  cells = dl2p_small.image_cells(config, small, 2)
  with pytest.raises(KeyboardInterrupt, match=f"^{flips}$"):
    dl2p_small.conduct(
      config, small._replace(flips=flips), "resnet", cells, tmp_path, epochs=1, seeds=1
    )


def test_accuracy_is_that_of_each_class(monkeypatch):
  # Of class 0 three of four, of class 1 none of one, of class 2 both; classes 1 and 2
  # have each other's prototypes.
  labels = np.array([0, 0, 0, 0, 1, 2, 2])
  nearest = np.array([0, 0, 0, 2, 1, 1, 1])  # prototypes
  assignment = types.SimpleNamespace(assignment=jnp.array([0, 2, 1]))
  state = types.SimpleNamespace(
    params={"loss": {"points": jnp.eye(3)}}, variables=dict,
    batch_stats={"loss": {"assignment": assignment}},
  )  # fmt: skip
  monkeypatch.setattr(training.Network, "apply", lambda *_, **__: jnp.eye(3)[nearest])
  part = tasks.Part(jnp.zeros((1, 7, 1)), jnp.asarray(labels)[None])
  hyper = {"data": 0, "used": 3, **dl2p_methods.RECIPES["DL2P"].method._asdict()}
  setting = training.Training("linear", dim=3, epochs=1)
  found = training._accuracies(setting, part, state, hyper)
  np.testing.assert_allclose(found, [0.75, 0.0, 1.0], rtol=1e-6)


def test_tables_of_images_are_at_the_rate_that_validation_chose(small):
  cells = dl2p_small.image_cells(dynamic_assignment.PRESETS["cpu"], small, 4)
  shape = len(cells), 3
  rates = np.broadcast_to(np.array([[cell.rate] for cell in cells]), shape)
  # Of tests the rate and the seed, of the two rare classes half of that.
  seeds, rare = np.array([0.0, 0.01, 0.02]), np.array([1, 1, 1, 1, 0.5, 0.5])
  test = (rates + seeds)[..., None] * rare
  change = np.tile([1.0, 0.6, 0.3, 0.2, 0.0, 0.0], (*shape, 1))
  points = np.full((*shape, 6, 4), 0.25)
  gap = np.full(shape, 0.25)
  runs = training.Runs(cells, -abs(rates - 0.2), test, gap, change, points)
  study = training.Study("omniglot, resnet", runs, tail=small.tail)
  table = entries.filled(claims.tabulate, [study])
  where = "omniglot, resnet, D = 4"
  for name in ("DL2P", "PSC, linear", "Static, weighted"):
    accuracy = table.values(f"accuracy, {where}", name)
    np.testing.assert_allclose(accuracy, (0.2 + seeds) * 5 / 6)
    last = table.values(f"accuracy on the last 2 classes, {where}", name)
    np.testing.assert_allclose(last, (0.2 + seeds) / 2)
  # The first entry is of before the training.
  for measure, value in (
    (f"share of classes {claims.CHANGE_FIRST}, {where}", 0.6),
    (f"share of classes {claims.CHANGE_LAST} matchings, {where}", 1.1 / 5),
    (f"sibling gap, {where}", 0.25),
  ):
    np.testing.assert_allclose(table.values(measure, "DL2P"), value)
  assert [*pictures.draw_images([study])] == ["images"]
  assert pictures.draw_images([study._replace(name="superclass, linear")]) == {}
