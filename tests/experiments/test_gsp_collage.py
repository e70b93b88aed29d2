"""Collages of unseen classes: their parts, and the comparison as a user runs it."""

import dataclasses

import chex
import jax
import numpy as np
import pytest

from experiments import gsp_collage
from experiments.gsp import collage, collages, training
from experiments.gsp.network import AVERAGE, Settings, Variant
from spherejax import data, plotting


@pytest.mark.slow
def test_the_smoke_preset_compares_poolings(tfds_dir, smoke):
  content, figures, folder = smoke
  names = ("GAP", "GAP + ZSP", "GSP", "GSP + ZSP", "distilled")
  scores = {name: figures[f"C2, {name}", "MAP@R, omniglot"] for name in names}
  assert 0 < min(scores.values()) <= max(scores.values()) < 1
  assert len(set(scores.values())) == 5  # mass and both losses reached the network
  weight = "weight on the labelled image, omniglot"
  # An average puts exactly a quarter of its weight on each tile.
  assert figures["C2, GAP", weight] == pytest.approx(0.25, abs=1e-6)
  assert figures["C2, GSP", weight] != pytest.approx(0.25, abs=1e-4)
  assert ("C2, distilled", weight) not in figures
  assert [x["id"] for x in content["claims"]] == [
    f"collage-{name}-c2" for name in ("gsp", "zsp", "distilled", "attention")
  ]
  assert content["pictures"] == ["scores.svg", "weights.png"]
  best = max(names[1:4], key=scores.get)
  gain = content["rows"][0]
  assert (gain["name"], gain["paper"]) == (f"C2, best ({best}) - GAP", 0.17)
  assert gain["mean"] == pytest.approx(scores[best] - scores["GAP"])
  kept = np.load(next((folder / "kept").glob("contrastive-gsp-*.npz")))
  assert sorted(kept) == sorted(f"C2, {name}" for name in names[:4])
  for weights in kept.values():
    assert weights.shape == (8, 16, 16)
    np.testing.assert_allclose(weights.sum(axis=(1, 2)), 1, atol=1e-5)
    assert weights.min() >= 0


def test_parts_share_no_sub_class_in_front_or_behind():
  fine = np.repeat(np.arange(15), 6).astype(np.int32)  # three super-classes of five
  images = (np.ones((90, 2, 2, 1)) * fine[:, None, None, None]).astype(np.uint8)
  source = collages.Source(images, fine // 5, fine, ("a", "b", "c"), (1,))
  parts = collages.collages(source, jax.random.key(0), most=4)
  seen = {0: [0, 1], 1: [2], 2: [3, 4]}  # of each super-class, in the three parts
  for number, part in enumerate(parts.values()):
    front = {5 * label + sub for label in (0, 2) for sub in seen[number]}
    behind = {5 + sub for sub in seen[number]}
    assert part.collages.label_names == ("a", "c")
    assert set(np.unique(part.alone.images)) == front
    assert len(part.alone) == 4 * len(front)
    tiles = part.collages.images.reshape(-1, 2, 2, 2, 2).transpose(0, 1, 3, 2, 4)
    tiles = tiles.reshape(-1, 2, 2, 4)
    assert (tiles == tiles[..., :1]).all()  # one image fills one tile
    chosen = tiles[part.foreground][:, 0]
    np.testing.assert_array_equal(chosen, part.alone.images[:, 0, 0, 0])
    np.testing.assert_array_equal(part.collages.labels, np.where(chosen < 5, 0, 1))
    assert set(np.unique(tiles[~part.foreground])) <= behind


TINY = Settings(widths=(8,), strides=(1,), dim=4, steps=6, parts=3)


def of_two_classes():
  pixels = np.random.default_rng(0).integers(0, 256, (16, 8, 8, 1)).astype(np.uint8)
  return data.from_arrays(pixels, np.repeat(np.arange(2), 8))


def test_a_training_begins_with_the_pretrained_backbone(tmp_path):
  settings, images = dataclasses.replace(TINY, steps=0), of_two_classes()

  def begin(seed, **options):
    found = training.train(settings, seed, {"": AVERAGE}, images, tmp_path, **options)
    return found[""].state

  other = begin(1)
  network, alone = (begin(0, pretrained=x).params["network"] for x in (other, None))
  chex.assert_trees_all_equal(network["backbone"], other.params["network"]["backbone"])
  chex.assert_trees_all_equal(network["head"], alone["head"])
  same = jax.tree.map(np.array_equal, alone["backbone"], network["backbone"])
  assert not all(jax.tree.leaves(same))


def test_a_loss_that_is_not_finite_ends_the_training_before_it_is_kept(tmp_path):
  settings = dataclasses.replace(TINY, learning_rate=1e30)
  message = "seed 5 of gap: the loss is nan at step 2"
  with pytest.raises(FloatingPointError, match=message):
    training.train(settings, 5, {"": AVERAGE}, of_two_classes(), tmp_path)
  assert not list(tmp_path.glob("*/last/*"))


def test_a_loss_that_is_not_finite_is_named_with_its_step(tmp_path):
  assert training.mean_loss(np.array([1.0, 2.0]), 0, "a", tmp_path) == 1.5
  with pytest.raises(FloatingPointError, match=r"a: .* is inf at step 2; .*none"):
    training.mean_loss(np.array([1.0, np.inf, np.nan]), 0, "a", tmp_path)
  with pytest.raises(FloatingPointError, match=rf"step 11; .* step 10 in {tmp_path}"):
    training.mean_loss(np.array([np.nan]), 10, "a", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("calls", range(1, 6))
def test_a_training_stopped_in_any_part_ends_alike(monkeypatch, tmp_path, calls):
  settings = dataclasses.replace(TINY, prototypes=3, pooling="gsp")
  images = of_two_classes()
  variants = {"a": Variant(0.5, 0.1), "b": Variant(0.3, 0.0)}
  one_part, done = training._some_steps, []

  def after(run, variant):
    state = run.state.replace(learning_rate_scale=run.state.learning_rate_scale / 2)
    return run._replace(state=state, scores=(*run.scores, run.curve[-1] + variant.mass))

  def train(images, folder=tmp_path):
    return training.train(settings, 0, variants, images, folder, after=after)

  def stopped(*args, **options):
    if len(done) == calls:
      raise KeyboardInterrupt
    done.append(1)
    return one_part(*args, **options)

  whole = train(images, tmp_path / "whole")
  with monkeypatch.context() as patch:
    patch.setattr(training, "_some_steps", stopped)
    if calls < 5:
      with pytest.raises(KeyboardInterrupt):
        train(images)
      patch.setattr(training, "_some_steps", one_part)
    resumed = train(images)
    # All is kept now, but only of these images.
    done[:] = [1] * calls
    patch.setattr(training, "_some_steps", stopped)
    again = train(images)
    with pytest.raises(KeyboardInterrupt):
      train(dataclasses.replace(images, images=255 - images.images))
  for name in variants:
    assert len(whole[name].curve) == 3
    assert len(whole[name].scores) == 2  # the shared part has none
    assert whole[name].state.learning_rate_scale == 0.25
    for other in (resumed, again):
      assert other[name][1:] == whole[name][1:]
      assert other[name].state.learning_rate_scale == 0.25
      both = other[name].state, whole[name].state
      chex.assert_trees_all_equal(*(state.variables() for state in both))
      chex.assert_trees_all_equal(*(state.opt_state for state in both))
  assert whole["a"].curve != whole["b"].curve


def test_the_learning_rate_is_halved_after_parts_without_a_better_score():
  scores = (0.1, 0.3, 0.3, 0.2, 0.31, 0.3, 0.3, 0.3, 0.3)
  scales = [collage.learning_rate_scale(scores[:n], 2) for n in range(10)]
  assert scales == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]


@pytest.mark.slow
@pytest.mark.data
def test_the_full_preset_makes_steps_and_lowers_its_rate(
  tfds_dir, tmp_path, monkeypatch
):
  full = gsp_collage.PRESETS["full"]
  assert full.steps // full.parts == 16 * 2 * 600 // 64  # a part is an epoch
  config = dataclasses.replace(
    full, image_size=8, widths=(8,), strides=(1,), blocks=1, dim=8, prototypes=8,
    most=2, batch_classes=4, per_class=2, pretraining=3, steps=9, parts=3, patience=1,
    seeds=1, losses=("C2",),
  )  # fmt: skip
  train, runs = training.train, []

  def spied(*args, **options):
    runs.append(train(*args, **options))
    return runs[-1]

  monkeypatch.setattr(training, "train", spied)
  same = {"P@1": 0.5, "MAP@R": 0.5}  # nothing gets better
  monkeypatch.setattr(collages, "retrieval", lambda *_: same)
  monkeypatch.setattr(plotting, "save", lambda figure, path: path)
  gsp_collage.STUDY.run(config, tmp_path, "full")
  (begun,), (run, *_), _ = (tuple(found.values()) for found in runs)
  assert begun.scores == ()  # what comes before has a constant rate
  kernels = begun.state.params["loss"]["proxies"]["proxies"]
  assert len(kernels) == 100  # all classes, those of the test among them
  assert run.scores == (0.5, 0.5)
  assert run.state.learning_rate_scale == 0.5


def test_single_images_are_of_the_training_or_of_all_sub_classes():
  fine = np.repeat(np.arange(10), 4)
  images = np.zeros((40, 2, 2, 1), np.uint8)
  source = collages.Source(images, fine // 5, fine, ("a", "b"), (0,))
  assert collages.single_images(source, 4).label_names == ("0", "1", "5", "6")
  everything = collages.single_images(source, 4, everything=True)
  assert everything.label_names == tuple(map(str, range(10)))
  np.testing.assert_array_equal(everything.labels, fine)
