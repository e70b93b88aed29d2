"""Few-shot learning: the exact parts, the training on stand-ins, the smoke preset."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from experiments import (
  _few_shot_published,
  _few_shot_sets,
  _few_shot_toy,
  _few_shot_training,
  few_shot,
)
from experiments._few_shot_training import Part, Sets
from spherejax import data

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
  labels = np.repeat(np.arange(classes, dtype=np.int32), 8)
  return data.Images(noisy.astype(np.uint8), labels, tuple(map(str, range(classes))))


@functools.cache
def sets(channels: int = 1, side: int = 16) -> Sets:
  return Sets(*(images(seed, 8, channels, side) for seed in range(3)))


SETTINGS = dataclasses.replace(
  few_shot.PRESETS["smoke"],
  seeds=2,
  image_size=16,
  num_queries=3,
  test_queries=3,
  episodes=20,
  check_every=5,
  validate_every=10,
)


def test_the_smoke_preset_learns_and_draws(tmp_path, tfds_dir):
  del tfds_dir
  result = few_shot.run(few_shot.PRESETS["smoke"], tmp_path, "smoke")
  figures = {(row["name"], row["metric"]): row["mean"] for row in result["rows"]}
  for loss in ("SD", "DR"):
    assert figures[f"1-shot, {loss}", "test accuracy"] > 0.3  # chance is .2
    assert 0.5 < figures[f"1-shot, {loss}", "norm_ratio"] <= 1
  verdicts = {claim["id"]: claim["verdict"] for claim in result["claims"]}
  for exact in ("F1-table", "F1-beyond", "F1-ratio", "F1-sphere", "fisher"):
    assert verdicts[exact] == "reproduced", exact
  for name in result["pictures"]:
    assert (tmp_path / name).stat().st_size > 0


def test_runs_differ_by_their_loss_and_are_kept(tmp_path, monkeypatch):
  part = Part(1, "mean")
  found = _few_shot_training.train(SETTINGS, part, sets(), CELLS, tmp_path)
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
  monkeypatch.setattr(_few_shot_training.training, "sweep", None)
  again = _few_shot_training.train(SETTINGS, part, sets(), CELLS, tmp_path)
  np.testing.assert_array_equal(again.test, found.test)
  claimed = few_shot.claims(SETTINGS, part, found)
  assert {claim["id"] for claim in claimed} >= {"F2", "F4", "F4-ranks", "F5", "F9"}


def test_the_full_preset_makes_steps_on_a_stand_in(tmp_path, monkeypatch):
  config = dataclasses.replace(
    few_shot.PRESETS["full"],
    width=4,
    image_size=16,
    num_queries=2,
    test_queries=2,
    episodes=2,
    check_every=1,
    validate_every=2,
    validation_episodes=2,
    test_episodes=2,
  )
  birds = images(3, 28, channels=3, side=18)
  monkeypatch.setattr(few_shot, "load", lambda config: _few_shot_sets.birds(birds))
  monkeypatch.setattr(_few_shot_toy, "rows_and_claims", lambda: ([], []))
  monkeypatch.setattr(few_shot, "draw", lambda config, results: {})
  result = few_shot.run(config, tmp_path, "full")
  rows = {(row["name"], row["metric"]): row for row in result["rows"]}
  assert rows["1-shot, DR", "test accuracy"]["paper"] == 0.5713
  assert rows["1-shot, SD", "norm_ratio by features"]["paper"] == 0.97218
  assert rows["1-shot, DR", "div_alpha proper"]["paper"] == 0.808
  # The other backbone, at its size: shapes alone.
  deep = dataclasses.replace(config, backbone="resnet18", image_size=224)
  shown = jax.eval_shape(
    functools.partial(_few_shot_training._init, deep, (0, 224, 224, 3)),
    jax.random.key(0),
    {"log_exponent": jnp.float32(2)},
  )
  step = functools.partial(_few_shot_training._step, deep, Part(5, "mean"))
  table = _few_shot_training.table(birds, 7)
  wide = jnp.zeros((224, 258, 258, 3), jnp.uint8)
  hyper = {name: jnp.float32(0) for name in CELLS}
  state, _ = jax.eval_shape(step, wide, table, shown, jax.random.key(0), hyper)
  assert jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, shown)


def test_the_articles_lengths():
  full = few_shot.PRESETS["full"]
  assert [few_shot.of_part(full, shots).episodes for shots in (1, 5)] == [60000, 50000]
  assert few_shot.of_part(few_shot.PRESETS["cpu"], 5).episodes == 400


def test_colours_are_jittered_in_three_ways():
  """What is left of a plain image is its colour: how far from grey, over the grey."""
  settings = dataclasses.replace(SETTINGS, augment=True)
  plain = np.tile(np.array([110, 80, 60], np.uint8), (2000, 4, 4, 1))
  found = _few_shot_training.prepared(
    dataclasses.replace(settings, image_size=4), plain, jax.random.key(0)
  )
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
  shape = (2, 2, 2)  # losses, seeds, checks
  series = {name: np.full(shape, 0.5) for name in _few_shot_training.MEASURES}
  series["con_alpha"] = np.array([[[0.9, np.nan], [1.1, 0.9]], [[0.9, 0.9], [2, 2]]])
  series["div_alpha"][1, 0] = np.nan  # of a seed nothing
  tests = np.tile([0.0, 1.0], (2, 2, 8))
  found = _few_shot_training.Trained(np.zeros((2, 2, 1)), tests, series)
  rows = few_shot.rows(config, Part(1, "mean"), found)
  values = {(row["name"], row["metric"]): row["values"] for row in rows}
  assert values["1-shot, SD", "con_alpha proper"] == [1.0, 0.5]
  assert values["1-shot, DR", "con_alpha proper"] == [1.0, 0.0]
  assert values["1-shot, SD", "div_alpha proper"] == [0.0, 0.0]
  assert ("1-shot, DR", "div_alpha proper") not in values
  half = values["1-shot, DR", "half-width over its test episodes"]
  assert half == pytest.approx([1.96 * 0.5 / 16**0.5] * 2)
  assert "NaN" not in json.dumps(rows)


def test_birds_are_split_by_the_number_of_their_class():
  split = _few_shot_sets.birds(images(0, 12, channels=3))
  kept = [np.unique(part.labels).tolist() for part in split]
  assert kept == [[0, 2, 4, 6, 8, 10], [1, 5, 9], [3, 7, 11]]


def test_fisher_and_table_2():
  assert abs(_few_shot_published.fisher(384, 393, 400) - 0.088458) < 1e-6
  assert abs(_few_shot_published.fisher(388, 393, 400) - 0.353) < 1e-3
  assert _few_shot_published.accuracy("mini_imagenet", 5, "conv4", "DR") == 0.659
  assert _few_shot_published.accuracy("omniglot", 5, "conv4", "DR") is None


def test_the_likeliest_places_on_the_sphere():
  """By other means: NormFace's largest probability has a closed form."""
  away = np.array([-1, -1, 2]) / 6**0.5
  logits = 2 * away
  expected = np.exp(logits[2]) / np.exp(logits).sum()
  grid = _few_shot_toy._grid(2000)
  value, place = _few_shot_toy._extreme("NormFace", 1, grid)
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  np.testing.assert_allclose(place, away, atol=5e-3)


def test_photographs_are_whole_to_train_and_centres_to_test(tmp_path):
  random = np.random.default_rng(0)
  for part in ("train", "val", "test"):
    for number, shape in enumerate([(30, 60, 3), (48, 24, 3)]):
      (tmp_path / part / f"class {number}").mkdir(parents=True)
      picture = Image.fromarray(random.integers(0, 255, shape).astype(np.uint8))
      picture.save(tmp_path / part / f"class {number}" / "0.png")
  found = _few_shot_sets.mini_imagenet(20, tmp_path)
  assert found.train.images.shape == (2, 23, 23, 3)
  assert found.test.images.shape == (2, 20, 20, 3)
  # The shorter side is 23, and of 46 pixels the middle 20 are kept.
  wide = Image.open(tmp_path / "test" / "class 0" / "0.png")
  small = np.asarray(wide.resize((46, 23), Image.Resampling.BILINEAR))
  np.testing.assert_array_equal(found.test.images[0], small[1:21, 13:33])


def test_bad_settings(tmp_path, monkeypatch):
  monkeypatch.setattr(few_shot, "load", lambda config: sets())
  for change, message in (
    ({"episodes": 25}, "episodes must be a multiple of validate_every = 10, got 25"),
    ({"validate_every": 4}, "steps must be a multiple of parts = 5, got 4"),
  ):
    with pytest.raises(ValueError, match=message):
      few_shot.run(dataclasses.replace(SETTINGS, **change), tmp_path, "smoke")
  with pytest.raises(ValueError, match=r"at least per_class=11 images.* 0 \(0\) has 8"):
    few_shot.run(dataclasses.replace(SETTINGS, num_queries=10), tmp_path, "smoke")
  with pytest.raises(SystemExit, match="folders train, val and test of mini-ImageNet"):
    _few_shot_sets.mini_imagenet(84, tmp_path)


def test_only_400_checkpoints_give_the_printed_p_of_5_shots():
  for table in _few_shot_published.TABLES.values():
    for shares, p in zip(table.proportions, table.p, strict=True):
      if table.shots == 5 and not isinstance(p, str) and p < 1:
        found = {
          number: _few_shot_published.fisher(
            *(round(share * number) for share in shares), number
          )
          for number in (400, 500)
        }
        assert found[400] == pytest.approx(p, rel=0.01)
        assert found[500] != pytest.approx(p, rel=0.1)
