"""Plankton: the comparison as a user runs it, its parts, and bad input."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from experiments import plankton
from experiments.frame.images import Parts
from experiments.hierarchies import (
  plankton_images,
  plankton_pictures,
  plankton_runs,
  plankton_tables,
  triplets,
)
from experiments.hierarchies.plankton_runs import BASELINE, EMBEDDING, SEEN, UNSEEN
from spherejax import data, metrics, models
from tests.experiments import entries

CPU, FULL, SMOKE = (plankton.PRESETS[name] for name in ("cpu", "full", "smoke"))


@pytest.fixture
def one_picture_a_class(monkeypatch):
  monkeypatch.setattr(plankton_pictures, "SHOWN", 1)


@pytest.mark.slow
def test_the_smoke_preset_tells_classes_apart(tfds_dir, one_picture_a_class, smoke):
  classes = (smoke.folder / "classes.csv").read_text().splitlines()[1:]
  for group in (SEEN, UNSEEN):
    count = sum(f",{group}," in row for row in classes)
    assert count > 5
    for way in ("centroid", "k = 10"):
      assert 3 / count < smoke.figures[EMBEDDING, f"accuracy, {group}, {way}"] < 1
  assert 0 < smoke.figures[BASELINE, "accuracy, seen, half"] < 1
  drift = "drift of the centroids, {} two iterations"
  first, last = (smoke.figures[EMBEDDING, drift.format(x)] for x in ("first", "last"))
  assert first > last > 0
  claims = {claim["id"]: claim["value"] for claim in smoke.content["claims"]}
  score = smoke.figures[EMBEDDING, "macro F1, unseen, k = 10"]
  assert claims["Z3-chance"] == pytest.approx(score - 5 / count)
  assert claims.keys() == {
    "Z1-baseline", "Z1-gap", "Z2-seen", "Z2-unseen", "Z3-chance", "Z3-seen",
    "Z4-radius", "Z4-drift", "Z5", "Z6", "Z7", "Z8",
  }  # fmt: skip
  assert len(smoke.content["pictures"]) == 9


def folder_of(root, counts):
  """Grey pictures whose brightness tells the class, in several sizes."""
  classes = {
    name: [np.full((3 + 2 * k, 4 + picture), 3 * k) for picture in range(count)]
    for k, (name, count) in enumerate(counts.items())
  }
  return entries.write_images(root, classes)


@pytest.mark.slow
def test_the_full_preset_makes_two_steps_on_a_stand_in(tmp_path, monkeypatch):
  def shallow(width, axis_name, name, **_):
    return models.ConvNet((width,), (4,), norm="batch", axis_name=axis_name, name=name)

  monkeypatch.setattr(models, "InceptionV3", shallow)
  names = [*plankton_images.RECALL, "detritus", "Rhopalonema"]
  folder = folder_of(tmp_path / "images", dict.fromkeys(names, 6))
  config = dataclasses.replace(
    FULL, folder=folder, test_images=2, validation_images=2, canvas=75, width=2,
    dim=8, triplets=4, steps=1, iterations=2, baseline_epochs=1, baseline_batch=64,
    neighbours=(10,), curve=(10,),
  )  # fmt: skip
  assert triplets.length(FULL) == 40
  whole = plankton_images.load(config)
  assert len(whole.seen) == 65
  assert whole.unseen == ("Rhopalonema", "detritus")
  assert whole.tree is None
  study = plankton_images.divide(whole, config, 0)
  assert not isinstance(study.train.images, np.ndarray)  # read when asked for
  parts = (*study[:3], study.unseen)
  assert [len(part) for part in parts] == [130, 130, 130, 12]
  assert study.train.images[0].shape == (75, 75, 1)
  rows = np.concatenate([part.images.rows for part in parts])
  assert len(set(rows.tolist())) == 67 * 6  # every image is in one part
  done = [
    plankton_runs.run(kind, 0, config, study, tmp_path, lambda _: None)
    for kind in (EMBEDDING, BASELINE)
  ]
  assert len(done[0].figures["curves"]["radius"]) == 2
  assert len(done[1].figures["accuracies"]) == 2
  table = plankton_tables.tabulate([done[0]], [done[1]], whole, config)
  assert "Z7" not in {claim["id"] for claim in plankton.STUDY.claimed(table, config)}
  assert sum(done[0].counts[f"{EMBEDDING}, {UNSEEN}, k = 10"].ravel()) == 6


def test_batches_are_triplets_with_the_margin_of_their_iteration(tmp_path):
  images = data.map_images(
    data.load_folder(folder_of(tmp_path, {"a": 9, "b": 2, "c": 3}), channels=1),
    functools.partial(data.fit_canvas, side=12, fill=255),
  )
  small = dataclasses.replace(CPU, triplets=8, steps=2, iterations=3, raised_after=(2,))
  make = functools.partial(
    triplets.triplet_batches, images, jax.random.key(0), small,
    functools.partial(triplets.margin_schedule, small),
  )  # fmt: skip
  batches = list(make()(0))
  margins = [np.unique(batch["margin"]).tolist() for batch in batches]
  assert margins == [[1.0]] * 4 + [[np.float32(1.3)]] * 2
  found = np.stack([batch["image"] for batch in batches])
  assert found.shape == (6, 8, 3, 12, 12, 1)
  brightness = found[..., 5, 5, 0]
  assert (brightness[..., 0] == brightness[..., 1]).all()
  assert (brightness[..., 0] != brightness[..., 2]).all()
  assert set(brightness[..., 0].ravel().tolist()) == {0, 3, 6}
  # A run that was stopped goes on with the same images.
  later = list(make()(3))
  assert len(later) == 3
  np.testing.assert_array_equal(later[0]["image"], found[3])


def test_margins_and_the_lengths_of_both_ways():
  assert FULL.triplets * FULL.steps * FULL.iterations == 3_000_000
  margins = [triplets.margin_schedule(FULL, i) for i in (20, 21, 30, 31)]
  assert margins == [1.0, 1.3, 1.3, 1.5]
  assert [triplets.margin_schedule(CPU, i) for i in (5, 6)] == [1.0, 1.3]
  assert triplets.length(CPU) == 11
  assert triplets.length(dataclasses.replace(CPU, margins=(1.0,), raised_after=())) == 8


def test_halves_and_ways():
  labels = np.repeat([0, 1, 2], [5, 4, 1])
  references, judged = data.split_within_classes(labels, key=jax.random.key(0))
  assert sorted([*references, *judged]) == list(range(10))
  np.testing.assert_array_equal(np.bincount(labels[references]), [3, 2, 1])
  points = np.eye(3, dtype=np.float32)[labels]
  found = plankton_runs.predictions(
    points[references], labels[references], points[judged], 4, (1, 50)
  )
  np.testing.assert_array_equal(found["centroid"], labels[judged])
  np.testing.assert_array_equal(found["k = 1"], labels[judged])
  # All references vote: class 0 has most of them.
  assert (found["k = 50"] == 0).all()


def test_drift_is_from_one_iteration_to_the_next():
  """In the table and in the picture; one iteration has none, two nothing to compare."""
  assert plankton_tables.drift(with_drifts(4)) == [3, 2, 1]
  figure = plankton_pictures.training([with_drifts(4), with_drifts(4)])
  lines = {line.get_label(): line for line in figure.axes[1].lines}
  np.testing.assert_allclose(lines["mean"].get_xdata(), [2, 3, 4])
  np.testing.assert_allclose(lines["mean"].get_ydata(), [3, 2, 1])
  claims = [curve_claims(with_drifts(number)) for number in (1, 2, 4)]
  assert ["Z4-drift" in made for made in claims] == [False, False, True]
  assert claims[2]["Z4-drift"] == [3 - 1]
  assert all("Z4-radius" in made for made in claims)


def test_gains_of_thirds_and_what_a_raised_margin_saves():
  run = with_drifts(6)
  run.figures["curves"]["accuracy"] = [0.5, 0.6, 0.61, 0.62, 0.64, 0.65]
  run.figures["kept margin"] = {"radius": [5.0, 4.5]}
  made = curve_claims(run)
  # From 0.3 on: a third of six iterations is two.
  assert made["Z5"] == pytest.approx([(0.6 - 0.3) - (0.65 - 0.62)])
  assert made["Z8"] == pytest.approx([4.5 - run.figures["curves"]["radius"][-1]])


def curve_claims(run):
  """The values of the claims about the curves of a run."""
  table = entries.filled(plankton_tables.add_curves, [run])
  claims = plankton.STUDY.claimed(table, SMOKE)
  return {claim["id"]: claim["values"] for claim in claims}


def with_drifts(number):
  """A run of so many iterations; the first move is from the first weights."""
  values = [9.0, 3.0, 2.0, 1.0, 0.8, 0.7][:number]
  curves = {name: list(values) for name in ("radius", "drift")}
  figures = {"curves": curves | {"accuracy": [0.5] * number}, "kept margin": {}}
  figures["start"] = {"accuracy": 0.3, "radius": 1.0}
  return plankton_runs.RunResult(figures, {}, {})


def test_printed_figures():
  recalls = plankton_images.RECALL
  assert len(recalls) == 65
  assert np.mean(list(recalls.values())) == pytest.approx(87.0, abs=0.05)  # not 87.7
  # Calanoida: 97 of 100 right, and at least 151 others that were called so.
  others = sum(plankton_images.PRINTED["called_calanoida"].values())
  assert others == 151
  table = np.array([[97, 3], [others, 1000]])
  assert float(metrics.class_scores(table).f1[0]) == pytest.approx(0.557, abs=5e-4)
  assert set(plankton_images.PRINTED["called_calanoida"]) < set(recalls)
  assert plankton_images.confusion("tailAppendicularia", "tail_Chaetognatha") == 0.38
  assert plankton_images.confusion("Podon", "Evadne") is None


def test_f1_of_the_classes_that_the_article_names():
  """Beside the article's where the networks begin as its do."""
  seen, unseen = tuple(plankton_images.RECALL), ("detritus", "Rhopalonema", "egg_other")
  whole = plankton_images.Whole(None, seen, unseen, None)  # pyright: ignore
  random = np.random.default_rng(0)
  places = {
    (BASELINE, SEEN, "all test images"): random.integers(1, 9, (65, 65)),
    (EMBEDDING, SEEN, "k = 10"): random.integers(1, 9, (65, 65)),
    (EMBEDDING, UNSEEN, "centroid"): random.integers(1, 9, (3, 3)),
  }
  run = plankton_runs.RunResult({}, {", ".join(x): y for x, y in places.items()}, {})
  own = dataclasses.replace(FULL, weights="inception.pth")
  add = functools.partial(entries.filled, plankton_tables.add_classes, [run], [run])
  rows = add(whole, own).rows()
  beside, found = (
    {(row["name"], row["metric"]): row[x] for row in rows} for x in ("paper", "mean")
  )
  assert len(beside) == 6 + 6 + 2
  for (network, metric), paper in {
    (BASELINE, "F1 of Calanoida, seen, all test images"): 0.50,
    (EMBEDDING, "F1 of Calanoida, seen, k = 10"): 0.96,
    (EMBEDDING, "F1 of egg_other, unseen, centroid"): 0.83,
  }.items():
    assert beside[network, metric] == paper
  for (network, group, way), table in places.items():
    right = 2 * np.diag(table) / (table.sum(0) + table.sum(1))
    for name, value in zip(seen if group == SEEN else unseen, right, strict=True):
      if (place := (network, f"F1 of {name}, {group}, {way}")) in found:
        assert found[place] == pytest.approx(value)
  for other in (FULL, dataclasses.replace(own, seen="common")):
    assert {row["paper"] for row in add(whole, other).rows()} == {None}
  printed = plankton_images.PRINTED
  assert {*printed["f1_classifier"], *printed["f1_embedding"]} < set(seen)


def test_the_softmax_classifiers_curve():
  curves = [0.2, 0.4], [0.4, 0.8]
  runs = [plankton_runs.RunResult({"accuracies": x}, {}, {}) for x in curves]
  for config, steps, label in (
    (CPU, [1, 2], "iteration"),
    (dataclasses.replace(FULL, iterations=2), [100, 200], "epoch"),
  ):
    axes = plankton_pictures.baseline(runs, config).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xdata(), steps)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.3, 0.6])
    assert axes.get_xlabel() == label


def test_a_white_ground_and_sizes_that_stay():
  found = plankton_images.prepare(np.zeros((6, 12, 1), np.uint8), 12, 3, True)
  expected = np.repeat([0, 255, 255, 0], 4).reshape(4, 4)
  np.testing.assert_array_equal(found[..., 0], expected)


def test_other_neighbours_go_on_with_the_same_training(tmp_path, monkeypatch):
  folders = []

  def note(config, study, key, folder, report):
    folders.append(folder)
    return plankton_runs.RunResult({}, {}, {})

  monkeypatch.setattr(plankton_runs, "JOBS", {EMBEDDING: note})
  for changes in ({}, {"neighbours": (1, 10, 25)}, {"curve": (3,)}, {"steps": 9}):
    config = dataclasses.replace(SMOKE, **changes)
    plankton_runs.run(EMBEDDING, 0, config, None, tmp_path, lambda _: None)
  assert folders[0] == folders[1] == folders[2] != folders[3]


def test_bad_input(tmp_path):
  images = data.Images(
    [np.zeros((2, 2, 1), np.uint8)] * 400,
    np.repeat(np.arange(4), [210, 120, 40, 30]).astype(np.int32),
    ("crab", "eel", "fish", "gnat"),
  )

  def classes(**changes):
    return plankton_images.classes(images, dataclasses.replace(CPU, **changes))

  assert classes(seen_from=100, test_images=40) == (("crab", "eel"), ("fish", "gnat"))
  with pytest.raises(ValueError, match=r"two classes must be learned, got 1 of 4"):
    classes()
  with pytest.raises(ValueError, match="must be not learned, got 0"):
    classes(seen_from=100, unseen_from=99, test_images=40)
  with pytest.raises(ValueError, match=r"needs 132 images.* but class eel has 120"):
    classes(seen_from=100)
  with pytest.raises(ValueError, match="no folder for 65 classes: Acantharea"):
    classes(seen="article")
  folder = dataclasses.replace(CPU, data="folder", folder=str(tmp_path / "none"))
  with pytest.raises(SystemExit, match="plankton is read from --folder: no image"):
    plankton_images.load(folder)


def test_a_batch_of_more_than_there_is_ends_before_the_embedding(tmp_path, monkeypatch):
  images = data.from_arrays(np.zeros((10, 2, 2, 1), np.uint8), np.arange(10) % 2)
  study = Parts(images, images, images, unseen=images)
  monkeypatch.setattr(plankton_images, "load", lambda config: None)
  monkeypatch.setattr(plankton_images, "divide", lambda *_: study)
  monkeypatch.setattr(plankton_runs, "run", None)
  with pytest.raises(ValueError, match="at most the 10 training images, got 128"):
    plankton.STUDY.run(SMOKE, tmp_path, "smoke")


def test_classes_of_the_article():
  recalls = plankton_images.RECALL
  assert "bubble" in recalls  # one of the 65 and not in addition to them
  assert not {"tailChaetognatha", "zoeaDecapoda"} & set(recalls)
  assert FULL.test_images + FULL.validation_images == 200


def test_no_text_covers_another():
  spots = np.array([[0, 0], [0.1, 0.01], [0.1, 0.02], [5, 0.01], [1.5, 0.01]])
  texts = ["ab", "cdefgh", "ij", "kl", "mn"]
  moved = plankton_pictures.without_overlap(spots, texts, np.array([10.0, 1]))
  np.testing.assert_array_equal(moved[:, 0], spots[:, 0])
  np.testing.assert_array_equal(moved[[0, 3, 4]], spots[[0, 3, 4]])
  assert (np.diff(moved[:3, 1]) >= 0.027).all()
  assert (moved[:, 1] >= spots[:, 1]).all()
