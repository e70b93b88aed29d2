"""Features of a set in a file: an oracle, runs that were stopped, what is refused."""

import dataclasses
import json
import shutil

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


def test_every_row_is_that_of_its_image(tmp_path):
  found = keep(tmp_path)
  np.testing.assert_array_equal(found, FEATURES)
  assert (found.dtype, found.flags.writeable) == (np.float16, False)
  np.testing.assert_array_equal(np.load(tmp_path / "digits.npy"), FEATURES)


def test_a_complete_file_costs_no_call(tmp_path):
  first = np.array(keep(tmp_path))
  np.testing.assert_array_equal(keep(tmp_path, lambda images: 1 / 0), first)


@pytest.mark.parametrize("calls", [0, 5, 16, 40])
def test_a_run_that_was_stopped_goes_on(calls, tmp_path):
  seen = []

  def stops(images):
    if len(seen) == calls:
      raise KeyboardInterrupt
    seen.append(images)
    return pixels(images)

  with pytest.raises(KeyboardInterrupt):
    keep(tmp_path, stops, batch_size=1)
  rest = []
  again = lambda images: rest.append(images) or pixels(images)  # noqa: E731
  found = keep(tmp_path, again, batch_size=1)
  assert len(rest) == 50 - calls // 16 * 16  # what no manifest says is done again
  np.testing.assert_array_equal(found, FEATURES)


@pytest.mark.parametrize(
  ("changed", "message"),
  [
    (
      {"made_with": MADE_WITH | {"network": "b"}},
      "'network': 'pixels'}, not {'network': 'b'}",
    ),
    (
      {"made_with": MADE_WITH | {"weights": {"w": np.ones(3)}}},
      r"made with {'weights'",
    ),
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
  ("function", "error", "message"),
  [
    (
      lambda x: np.full((8, 2), 1e6),
      ValueError,
      "float16 holds, got others for image 0",
    ),
    (lambda x: np.full((8, 2), np.nan), ValueError, "float16 holds"),
    (lambda x: np.ones((7, 2)), ValueError, "must give 8 rows, got 7"),
    (lambda x: np.ones((8, 2), int), TypeError, "floating"),
    (lambda x: jnp.float32(1), ValueError, "batch axis"),
  ],
)
def test_features_that_are_none(function, error, message, tmp_path):
  with pytest.raises(error, match=message):
    keep(tmp_path, function)
  shutil.rmtree(tmp_path)


def test_a_set_without_json(tmp_path):
  with pytest.raises(TypeError, match="JSON or arrays, got call"):
    keep(tmp_path, made_with={"call": print})
  with pytest.raises(TypeError, match=r"JSON or arrays, got net: 1\.0 beside arrays"):
    keep(tmp_path, made_with={"net": {"w": np.ones(2), "scale": 1.0}})
  with pytest.raises(TypeError, match="JSON or arrays, got rate"):
    keep(tmp_path, made_with={"rate": np.nan})
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
