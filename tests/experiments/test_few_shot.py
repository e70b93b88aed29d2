"""Few-shot learning: the exact parts, the training on stand-ins, the smoke preset."""

import dataclasses
import functools
import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from experiments import few_shot
from experiments.episodes import claims as tables
from experiments.episodes import settings as few_shot_settings
from experiments.episodes import toy, training
from experiments.episodes.settings import Part
from experiments.frame import frozen
from experiments.frame.images import Parts
from spherejax import data, metrics
from tests.experiments import entries

# SD, DR with a learned exponent, DR with one that stays.
CELLS = {
  "ratio": (0.0, 1.0, 1.0),
  "log_exponent": (2.0, 2.0, 0.0),
  "learned": (1.0, 1.0, 0.0),
}


def images(seed: int, classes: int, channels: int = 1, side: int = 16) -> data.Images:
  """Eight noisy copies of a pattern for each class."""
  rng = np.random.default_rng(seed)
  patterns = np.repeat(rng.uniform(0, 180, (classes, side, side, channels)), 8, 0)
  noisy = patterns + rng.uniform(0, 75, patterns.shape)
  return data.from_arrays(noisy.astype(np.uint8), np.repeat(np.arange(classes), 8))


@functools.cache
def sets(channels: int = 1, side: int = 16) -> Parts:
  return Parts(*(images(seed, 8, channels, side) for seed in range(3)))


SETTINGS = dataclasses.replace(
  few_shot.PRESETS["smoke"], seeds=2, image_size=16, num_queries=3, test_queries=3,
  episodes=20, check_every=5, validate_every=10,
  validation_episodes=50,  # as many as test, whose draws are one program with theirs
)  # fmt: skip
tabulated = functools.partial(entries.filled, tables.add_part)


@pytest.mark.slow
def test_the_smoke_preset_learns_and_draws(tfds_dir, smoke):
  for loss in ("SD", "DR"):
    assert smoke.figures[f"1-shot, {loss}", "test accuracy"] > 0.3  # chance is .2
    assert 0.5 < smoke.figures[f"1-shot, {loss}", "norm_ratio"] <= 1
  verdicts = {claim["id"]: claim["verdict"] for claim in smoke.content["claims"]}
  assert verdicts["F1-beyond"] == verdicts["F1-ratio"] == "reproduced"


@pytest.mark.slow
def test_runs_differ_by_their_loss_and_are_kept(tmp_path, monkeypatch):
  part = Part(1, "mean")
  found = training.train(SETTINGS, part, sets(), CELLS, tmp_path)
  assert found.test.shape == (3, 2, 50)
  assert found.test.mean() > 0.5  # chance is .2
  exponents = found.series["exponent"]
  np.testing.assert_allclose(exponents[0], np.exp(2), rtol=1e-6)
  assert (np.abs(exponents[1, :, -1] - np.exp(2)) > 1e-3).all()
  np.testing.assert_array_equal(exponents[2], 1)
  for measure in ("norm_ratio", "scaling", "con_alpha", "norm_ratio by features"):
    values = found.series[measure]
    assert values.shape == (3, 2, 4)
    assert np.isfinite(values).all()
    assert (values[0] != values[1]).all()
  # The same command again trains nothing.
  monkeypatch.setattr(training.trainer, "many", None)
  again = training.train(SETTINGS, part, sets(), CELLS, tmp_path)
  np.testing.assert_array_equal(again.test, found.test)
  claimed = few_shot.STUDY.claimed(tabulated(SETTINGS, part, found), SETTINGS)
  assert {claim["id"] for claim in claimed} >= {"F2", "F4", "F4-ranks", "F5", "F9"}


@pytest.mark.slow
def test_the_full_preset_makes_steps_on_a_stand_in(tmp_path, monkeypatch):
  config = dataclasses.replace(
    few_shot.PRESETS["full"], width=4, image_size=16, num_queries=2, test_queries=2,
    episodes=2, check_every=1, validate_every=2, validation_episodes=2, test_episodes=2,
  )  # fmt: skip
  birds = images(3, 28, channels=3, side=18)
  split = few_shot_settings.birds(birds)
  monkeypatch.setattr(few_shot_settings, "load", lambda *_: split)
  monkeypatch.setattr(toy, "add", lambda table: None)
  monkeypatch.setattr(few_shot, "draw", lambda *_: {})
  result = few_shot.STUDY.run(config, tmp_path, "full")
  rows = {(row["name"], row["metric"]): row for row in result["rows"]}
  # So few episodes are not the article's.
  assert {row["paper"] for (name, _), row in rows.items() if "shot" in name} == {None}
  for loss in ("SD", "DR"):
    name = f"1-shot, {loss}"
    assert 0 <= rows[name, "training accuracy at the end"]["mean"] <= 1
    assert rows[name, "con_alpha by features"]["mean"] > 0
    assert rows[name, "checkpoints without con_alpha by features"]["mean"] == 0
  tests = "Mann-Whitney p, norm_ratio", "Fisher's p, div_alpha by features proper"
  assert all(0 < rows["1-shot", test]["mean"] <= 1 for test in tests)
  # The other backbone, at its size: shapes alone.
  deep = dataclasses.replace(config, backbone="resnet18", image_size=224)
  init = functools.partial(training._init, deep, (0, 224, 224, 3))
  shown = jax.eval_shape(init, jax.random.key(0), {"log_exponent": jnp.float32(2)})
  step = functools.partial(training._step, deep, part := Part(5, "mean"))
  table = few_shot_settings.table(birds, 7)
  wide = jnp.zeros((224, 258, 258, 3), jnp.uint8)
  hyper = {name: jnp.float32(0) for name in CELLS}
  drawn = few_shot_settings.fixed_episodes(deep, part, birds, queries=2, number=2)
  fixed = np.unique(drawn, return_inverse=True)
  state, _ = jax.eval_shape(step, wide, table, fixed, shown, jax.random.key(0), hyper)
  assert jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, shown)


def test_published_figures_stand_beside_the_articles_protocol_alone():
  random = np.random.default_rng(0)

  def papers(shots=1, counted=None, **changes):
    """The paper's figures, also beside noise; con-alpha is of the first checkpoints."""
    config = dataclasses.replace(few_shot.PRESETS["full"], **changes)
    part = Part(shots, "mean")
    own = few_shot_settings.of_part(config, shots)
    shape = (2, 1, own.episodes // 100)
    series = {x: random.uniform(0.9, 1.1, shape) for x in training.measures(config)}
    tests = random.uniform(0, 1, (2, 1, 4))
    found = training.Trained(np.zeros((2, 1, shape[-1])), tests, series)
    rows = tabulated(own, part, found).rows()
    mean = next(r["mean"] for r in rows if r["metric"] == "con_alpha by features")
    logs = np.log(series["con_alpha by features"][0, 0])
    assert mean == pytest.approx(np.exp(logs[:counted].mean()), rel=1e-9)
    beside = {(r["name"], r["metric"]): r["paper"] for r in rows}
    return {k: p for k, p in beside.items() if p is not None}

  found = papers(counted=600)
  assert found["1-shot, DR", "test accuracy"] == 0.5713
  assert found["1-shot, SD", "norm_ratio by features"] == 0.97218
  assert found["1-shot, SD", "con_alpha by features"] == 0.99710
  assert found["1-shot, DR", "div_alpha by features proper"] == 0.808
  assert found["1-shot, DR", "con_div"] == 0.99687
  assert ("1-shot, SD", "con_alpha") not in found  # its centring is another
  assert found["1-shot", "Mann-Whitney p, div_alpha by features"] == 0.61722
  assert found["1-shot", "Mann-Whitney p, norm_ratio by features"] == 1e-120
  assert found["1-shot", "Fisher's p, con_div proper"] == 0.00077
  assert found["1-shot, DR", "half-width over its test episodes"] == 0.0095
  assert len(found) == 2 * 9 + 7
  deep = {"backbone": "resnet18", "images": "mini_imagenet"}
  found = papers(5, counted=400, image_size=224, **deep)  # of 500
  assert found["5-shot, SD", "test accuracy"] == pytest.approx(0.7368)
  assert found["5-shot", "Mann-Whitney p, norm_ratio by features"] == 0.22914
  for changes in (deep, {"width": 32}, {"episodes": 40_000}, {"image_size": 28}):
    assert not papers(**changes), changes


def test_tests_of_checkpoints_are_counts_of_all_cases():
  random = np.random.default_rng(0)
  values = random.normal(1, 0.1, (2, 1, 7)) + np.array([0.0, 0.08])[:, None, None]
  series = {name: values.copy() for name in tables.RATIOS}
  series["con_alpha"][0, 0, 2] = np.nan  # left out, and counted
  found = tables.tests_of_seeds(series)
  counted = tables.undefined(series)
  np.testing.assert_array_equal(counted["checkpoints without con_alpha"], [[1], [0]])
  assert not counted["checkpoints without div_alpha"].any()
  for measure, side in (("con_alpha", -1), ("div_alpha", 1)):
    own = [x[~np.isnan(x)] for x in series[measure][:, 0]]
    pooled, first, others = np.concatenate(own), len(own[0]), len(own[1])
    ranks = (pooled[:, None] > pooled).sum(1)  # from 0, without ties
    sums = np.array([sum(x) for x in itertools.combinations(ranks, first)])
    # Pairs in order, less half of all pairs; those of the data come first.
    above = sums - first * (first - 1) / 2 - first * others / 2
    p = np.mean(np.abs(above) >= abs(above[0]))
    np.testing.assert_allclose(found[f"Mann-Whitney p, {measure}"], [p])
    right = [int(np.sum(side * (x - 1) > 0)) for x in own]
    total = sum(right)
    every = [
      math.comb(first, n) * math.comb(others, total - n)
      for n in range(min(first, total) + 1)
    ]
    p = sum(x for x in every if x <= every[right[0]]) / sum(every)
    np.testing.assert_allclose(found[f"Fisher's p, {measure} proper"], [p])
  series["con_div"][0] = np.nan
  assert np.isnan(tables.tests_of_seeds(series)["Mann-Whitney p, con_div"]).all()


def test_ratios_by_the_articles_centring():
  moved = np.random.default_rng(0).normal(2, 1, (2, 3, 4, 6)).astype(np.float32)

  @jax.jit
  def both(*points):
    features = metrics.embedding_change(*points, num_shots=1, centre="features")
    return training._looked_at(Part(1, "mean"), *points), features

  found, features = both(*moved)
  assert abs(features.scaling - found["scaling"]) > 0.05
  for name in ("norm_ratio", "scaling", "con_alpha", "div_alpha"):
    right = getattr(features, name)
    np.testing.assert_allclose(found[f"{name} by features"], right, rtol=1e-4)


def test_training_classes_are_classified_without_augmentation():
  """The images of some episodes alone give the same as all images."""
  settings = dataclasses.replace(
    SETTINGS, augment=True, all_diagnostics=True, validation_episodes=3
  )
  part, own = Part(1, "mean"), sets().train
  init = functools.partial(training._init, settings, own.images.shape)
  state = jax.jit(init)(jax.random.key(0), {"log_exponent": 2.0})
  drawn = few_shot_settings.fixed_episodes(settings, part, own, queries=3, number=3)
  rows, places = np.unique(drawn, return_inverse=True)
  assert len(rows) < len(own)
  embed = jax.jit(functools.partial(training.embed, settings, state))
  points = np.asarray(embed(own.images))[drawn]  # by class, its example first
  gaps = ((points[:, :, 1:, None] - points[:, None, None, :, 0]) ** 2).sum(-1)
  right = gaps.argmin(-1) == np.arange(settings.num_ways)[:, None]
  found = jax.jit(
    lambda images: training._accuracies(settings, part, images, places, state)
  )(own.images[rows])
  np.testing.assert_allclose(np.mean(found), np.mean(right), atol=1e-6)


def test_curves_of_training_and_validation(monkeypatch):
  monkeypatch.setattr(toy, "draw_plane", lambda: None)
  monkeypatch.setattr(toy, "draw_sphere", lambda: None)
  series = {
    "norm_ratio": np.ones((2, 1, 4)),
    "training accuracy": np.arange(8.0).reshape(2, 1, 4) / 8,
  }
  validation = np.array([[[0.1, 0.2]], [[0.3, 0.4]]])
  found = training.Trained(validation, np.zeros((2, 1, 2)), series)
  drawn = few_shot.draw({Part(1, "mean"): found}, SETTINGS)["accuracy-1-shot"]
  lines = {line.get_label(): line.get_ydata() for line in drawn.axes[0].lines}
  np.testing.assert_allclose(lines["DR, validation"], [0.3, 0.4])
  np.testing.assert_allclose(lines["DR, training"], [5 / 8, 7 / 8])  # at the same time
  assert len(lines) == 4


def test_colours_are_jittered_in_three_ways():
  """A plain image has one colour: its distance from grey, divided by the grey."""
  settings = dataclasses.replace(SETTINGS, augment=True, image_size=4)
  plain = np.tile(np.array([110, 80, 60], np.uint8), (2000, 4, 4, 1))
  prepared = jax.jit(functools.partial(training.prepared, settings))
  found = prepared(plain, jax.random.key(0))
  deviation, mean = (0.229, 0.224, 0.225), (0.485, 0.456, 0.406)
  pixels = np.asarray(found) * np.array(deviation) + np.array(mean)

  def colour(x):
    luma = x @ np.array([0.299, 0.587, 0.114])
    return (x[..., 0] - x[..., 2]) / luma

  ratio = colour(pixels[:, 0, 0]) / colour(plain[:1, 0, 0] / 255)
  # Of contrast and saturation, each in [0.6, 1.4]; of one alone it stays within.
  assert 1.6 < ratio.max() < 1.4**2 + 1e-3
  assert 0.6**2 - 1e-3 < ratio.min() < 0.5


def test_what_some_checkpoints_leave_undefined():
  config = dataclasses.replace(SETTINGS, episodes=50, check_every=25, validate_every=50)
  # By losses, seeds and checks.
  series = {name: np.full((2, 2, 2), 0.5) for name in training.MEASURES}
  series["con_alpha"] = np.array([[[0.9, np.nan], [1.1, 0.9]], [[0.9, 0.9], [2, 2]]])
  series["div_alpha"][1, 0] = np.nan  # of a seed nothing
  found = training.Trained(np.zeros((2, 2, 1)), np.tile([0.0, 1.0], (2, 2, 8)), series)
  rows = tabulated(config, Part(1, "mean"), found).rows()
  values = {(row["name"], row["metric"]): row["values"] for row in rows}
  assert values["1-shot, SD", "con_alpha proper"] == [1.0, 0.5]
  assert values["1-shot, DR", "con_alpha proper"] == [1.0, 0.0]
  assert values["1-shot, SD", "div_alpha proper"] == [0.0, 0.0]
  assert ("1-shot, DR", "div_alpha proper") not in values
  assert values["1-shot, SD", "checkpoints without con_alpha"] == [1.0, 0.0]
  assert values["1-shot, DR", "checkpoints without div_alpha"] == [2.0, 0.0]
  assert values["1-shot, DR", "undefined pairs"] == [1.0, 1.0]  # of two checks .5 each
  half = values["1-shot, DR", "half-width over its test episodes"]
  assert half == pytest.approx([1.96 * 0.5 / 16**0.5] * 2)
  assert "NaN" not in json.dumps(rows)


def test_a_claim_that_is_undefined_is_not_reproduced_and_says_so():
  """Where nothing is defined, it stays in the table."""
  config = dataclasses.replace(SETTINGS, episodes=50, check_every=25, validate_every=50)
  series = {name: np.full((2, 2, 2), 0.5) for name in training.MEASURES}
  series["con_alpha"][0, 1] = np.nan  # of a seed
  series["div_alpha"][1] = np.nan  # of a loss
  found = training.Trained(np.zeros((2, 2, 1)), np.tile([0.0, 1.0], (2, 2, 8)), series)
  table = tabulated(config, Part(1, "mean"), found)
  said = {claim["id"]: claim for claim in few_shot.STUDY.claimed(table, config)}
  for name, text in (("F9", "1 of 2"), ("F5", "1 of 1")):
    assert said[name]["verdict"] == "undecided"
    assert said[name]["statement"].endswith(f" (undefined: {text} differences)")
  assert "undefined" not in said["F4"]["statement"]


def test_birds_are_split_by_the_number_of_their_class():
  split = few_shot_settings.birds(images(0, 12, channels=3))
  kept = [np.unique(part.labels).tolist() for part in split[:3]]
  assert kept == [[0, 2, 4, 6, 8, 10], [1, 5, 9], [3, 7, 11]]


def test_photographs_are_whole_to_train_and_centres_to_test(tmp_path):
  random = np.random.default_rng(0)
  for part in ("train", "val", "test"):
    shapes = {"class 0": (30, 60, 3), "class 1": (48, 24, 3)}
    pixels = {name: [random.integers(0, 255, x)] for name, x in shapes.items()}
    entries.write_images(tmp_path / part, pixels)
  found = few_shot_settings.mini_imagenet(20, tmp_path)
  assert found.train.images.shape == (2, 23, 23, 3)
  assert found.test.images.shape == (2, 20, 20, 3)
  # The shorter side is 23, and of 46 pixels the middle 20 are kept.
  wide = Image.open(tmp_path / "test" / "class 0" / "0.png")
  small = np.asarray(wide.resize((46, 23), Image.Resampling.BILINEAR))
  np.testing.assert_array_equal(found.test.images[0], small[1:21, 13:33])
  for number in range(2):
    (tmp_path / "val" / f"class {number}" / "0.png").write_bytes(b"no image")
  with pytest.raises(ValueError, match=r"2 of 2 images: .*class 0.*, .*class 1"):
    few_shot_settings.mini_imagenet(20, tmp_path)


@pytest.mark.slow
def test_a_linear_layer_on_features(tmp_path):
  labels = np.repeat(np.arange(8), 8)
  rows = np.eye(8, 16)[labels] + 0.3 * np.random.default_rng(0).normal(size=(64, 16))
  own = frozen.Features(rows.astype(np.float32), labels, tuple(map(str, range(8))), {})
  config = dataclasses.replace(SETTINGS, backbone=frozen.NETWORK, width=4)
  cells = {"ratio": (0.0, 1.0), "log_exponent": (2.0, 2.0), "learned": (1.0, 1.0)}
  found = training.train(config, Part(1, "mean"), Parts(own, own, own), cells, tmp_path)
  assert (found.test.mean(-1) > 0.4).all()  # chance is 0.2
  assert not (found.validation[0] == found.validation[1]).all()


def test_classes_that_are_too_few_or_too_small(tmp_path, monkeypatch):
  def refuses(message, found=None, **changes):
    monkeypatch.setattr(few_shot_settings, "load", lambda *_: found or sets())
    config = dataclasses.replace(SETTINGS, **changes)
    with pytest.raises(ValueError, match=message):
      few_shot.STUDY.run(config, tmp_path, "smoke")

  refuses("num_ways = 20 classes, but 8 of the 8 classes have so many", num_ways=20)
  refuses(r"at least per_class=11 images.* 0 \(0\) has 8", num_queries=10)
  # Of several trainings the last one's classes, too, before the first one begins.
  monkeypatch.setattr(few_shot, "train", None)
  for part in ("train", "validation", "test"):
    one = sets()._replace(**{part: images(0, 1, 1, 16)})
    refuses("num_ways = 5 classes, but 1 of the 1 classes", one)
  given = {"shots": (1, 5), "num_queries": 3, "test_queries": 4}
  refuses(r"at least per_class=9 images.* 0 \(0\) has 8", **given)
  with pytest.raises(SystemExit, match="folders train, val and test of mini-ImageNet"):
    few_shot_settings.mini_imagenet(84, tmp_path)


# Largest probability of red, degrees from red to it, those at red and at green.
SPHERE = {
  "NormFace": (0.85275, 35.26, 0.78699, 0.10651),
  "CosFace": (0.77840, 35.26, 0.69144, 0.06743),
  "ArcFace": (0.81026, 25.36, 0.77638, 0.06775),
  "SphereFace, cos 2": (0.80719, 10.18, 0.78699, 0.01588),
  "SphereFace": (0.80719, 10.18, 0.78699, 0.01588),
  "angle, SD": (0.96021, 58.67, 0.85499, 0.07251),
  "angle, DR": (1, 0, 1, 0),
  "chord, DR": (1, 0, 1, 0),
}


def test_exact_parts_are_as_printed_and_as_by_the_equations():
  table = entries.filled(toy.add)
  rows = table.rows()
  assert [row["paper"] for row in rows[:4]] == [0.95257, 0.8, 0.048587, 0.22314]
  for row in rows[:8]:
    assert row["mean"] == pytest.approx(row["paper"], rel=1e-4)
  assert {row["paper"] for row in rows[8:]} == {None}
  for name, (largest, degrees, *values) in SPHERE.items():
    where = f"sphere, {name}"
    pair = [table.values(f"p(red) {place}", where) for place in ("at red", "at green")]
    np.testing.assert_allclose(np.ravel(pair), values, atol=1e-5)
    assert table.values("largest p(red)", where) == pytest.approx(largest, abs=1e-5)
    assert table.values(toy.DEGREES, where) == pytest.approx(degrees, abs=0.2)
  # NormFace's largest probability has a closed form.
  logits = np.array([-1, -1, 2]) * 2 / 6**0.5
  largest = table.values("largest p(red)", "sphere, NormFace")
  assert largest == pytest.approx(np.exp(logits[2]) / np.exp(logits).sum(), rel=1e-5)
