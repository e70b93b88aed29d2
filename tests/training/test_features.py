"""Features of a set in a file: an oracle, runs that were stopped, what is refused."""

import dataclasses
import json
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import data, training

DIGITS = data.load_digits()[:50]
FEATURES = (DIGITS.images.reshape(50, 64) / 255).astype(np.float16)
MADE_WITH = {"network": "pixels", "weights": {"w": np.arange(3.0)}}


def pixels(images):
  assert images.shape[1:] == (8, 8, 1)
  return images.reshape(len(images), 64) / 255


def keep(folder, function=pixels, images=DIGITS, **options):
  options = {"made_with": MADE_WITH, "batch_size": 8, "progress": False} | options
  return training.keep_features(folder / "digits.npy", function, images, **options)


def test_every_row_is_that_of_its_image_and_a_complete_file_costs_no_call(tmp_path):
  for function in (pixels, lambda images: 1 / 0):
    features = keep(tmp_path, function)
    np.testing.assert_array_equal(features, FEATURES)
    assert (features.dtype, features.flags.writeable) == (np.float16, False)
    np.testing.assert_array_equal(np.load(tmp_path / "digits.npy"), FEATURES)


@pytest.mark.parametrize("calls", [0, 5, 16, 40])
def test_a_run_that_was_stopped_goes_on(calls, tmp_path):
  stops = mock.Mock(side_effect=[*FEATURES[:calls, None], KeyboardInterrupt])
  with pytest.raises(KeyboardInterrupt):
    keep(tmp_path, stops, batch_size=1)
  again = mock.Mock(side_effect=pixels)
  np.testing.assert_array_equal(keep(tmp_path, again, batch_size=1), FEATURES)
  # What no manifest says is done again.
  assert again.call_count == 50 - calls // 16 * 16


@pytest.mark.parametrize(
  ("changed", "message"),
  [
    (
      {"made_with": MADE_WITH | {"network": "b"}},
      "'network': 'pixels'}, not {'network': 'b'}",
    ),
    ({"made_with": MADE_WITH | {"weights": {"w": np.ones(3)}}}, "made with {'weights'"),
    ({"made_with": {"network": "pixels"}}, "'weights': '.*'}, not none"),
    ({"made_with": MADE_WITH | {"more": None}}, "no more, not {'more': None}"),
    ({"images": DIGITS[:49]}, "number of images.* 50}, not .*49|labels"),
    ({"images": data.load_digits()[1:51]}, "labels|pixels"),
  ],
)
def test_what_was_made_otherwise_is_refused(changed, message, tmp_path):
  before = np.array(keep(tmp_path))
  with pytest.raises(ValueError, match=message):
    keep(tmp_path, **changed)
  np.testing.assert_array_equal(keep(tmp_path), before)


def test_damaged_files_are_named(tmp_path):
  keep(tmp_path)
  content, manifest = tmp_path / "digits.npy", tmp_path / "digits.json"
  whole, said = content.read_bytes(), manifest.read_text()
  content.write_bytes(whole[:-10])
  with pytest.raises(ValueError, match=r"digits\.npy is not what digits\.json says"):
    keep(tmp_path)
  np.save(content, np.array(["a"] * 50))
  with pytest.raises(ValueError, match=r"what digits\.json says .*<U1, not float16"):
    keep(tmp_path)
  content.write_bytes(whole)
  for text in ("", "[]", "{}", said.replace('"done": 50', '"done": 51')):
    manifest.write_text(text)
    with pytest.raises(ValueError, match=r"digits\.npy"):
      keep(tmp_path)
  manifest.unlink()
  with pytest.raises(ValueError, match=r"has no manifest digits\.json"):
    keep(tmp_path)
  assert content.read_bytes() == whole


@pytest.mark.parametrize(
  ("features", "error", "message"),
  [
    (np.full((8, 2), 1e6), ValueError, "float16 holds, got others for image 0"),
    (np.full((8, 2), np.nan), ValueError, "float16 holds"),
    (np.ones((7, 2)), ValueError, "must give 8 rows, got 7"),
    (np.ones((8, 2), int), TypeError, "floating"),
    (jnp.float32(1), ValueError, "batch axis"),
  ],
)
def test_features_that_are_none(features, error, message, tmp_path):
  with pytest.raises(error, match=message):
    keep(tmp_path, lambda images: features)


def test_a_set_without_json(tmp_path):
  for made_with, message in (
    ({"call": print}, "got call"),
    ({"net": {"w": np.ones(2), "scale": 1.0}}, r"got net: 1\.0 beside arrays"),
    ({"rate": np.nan}, "got rate"),
  ):
    with pytest.raises(TypeError, match=f"JSON or arrays, {message}"):
      keep(tmp_path, made_with=made_with)
  assert not list(tmp_path.iterdir())
  keep(tmp_path, lambda x: jnp.ones((8, 2), jnp.bfloat16))
  said = json.loads((tmp_path / "digits.json").read_text())
  assert said["done"] == said["images"]["number of images"] == 50


@pytest.mark.parametrize("other", ["caf\udce8", "caf\udce9x", "café"])
def test_names_of_folders_that_are_not_utf_8(other, tmp_path):
  named = [
    dataclasses.replace(DIGITS, label_names=(*DIGITS.label_names[:-1], name))
    for name in ("caf\udce9", other)
  ]
  first = np.array(keep(tmp_path, images=named[0]))
  again = keep(tmp_path, lambda images: 1 / 0, images=named[0])
  np.testing.assert_array_equal(again, first)
  with pytest.raises(ValueError, match="names of classes"):
    keep(tmp_path, images=named[1])
