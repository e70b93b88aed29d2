"""Image sets are decoded once, networks in whose place others stood traced anew."""

import dataclasses
import functools
import json
import os
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from experiments.frame import images, kept, networks, pictures
from experiments.metric_learning.photographs import batches
from spherejax import plotting, training
from tests.experiments import entries


@pytest.fixture(scope="module", autouse=True)
def _decoded_once():
  """A set takes seconds to decode; neighbouring tests ask for the same two parts."""
  read = images.read

  @functools.lru_cache(maxsize=2)
  def remembered(folder, name, split, **options):
    del folder  # its sets are others
    return read(name, split, **options)

  def reads(*args, **options):
    return remembered(os.environ.get("TFDS_DATA_DIR"), *args, **options)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(images, "read", reads)
    yield


@pytest.fixture(autouse=True)
def _traced_anew():
  """Networks traced with a stand-in for a backbone serve no other test."""
  networks._initialize.clear_cache()
  batches._embedding.cache_clear()


@pytest.fixture
def few_photographs(tfds_dir, tmp_path, monkeypatch):
  """Makes four steps of a full preset on a fiftieth of the images."""
  monkeypatch.setattr(plotting, "save", lambda figure, path: path)

  def run(entry, **changes):
    config = dataclasses.replace(
      entry.PRESETS["full"], widths=(4, 8, 16), blocks=1, batch_classes=4, per_class=2,
      seeds=1, steps=4, parts=2, train_split="train[:2%]", **changes,
    )  # fmt: skip
    content = entry.STUDY.run(config, tmp_path, "full")
    for row in content["rows"]:
      assert np.isfinite(row["values"]).all(), row
    return content

  return run


@pytest.fixture
def one_device(monkeypatch):
  """A single device, as on a user's CPU; the sweeps' tests have several."""
  monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:1])


class Smoke(NamedTuple):
  content: dict[str, Any]
  figures: dict[tuple[str, str], float]
  """Means by variant and measure."""
  folder: pathlib.Path


@pytest.fixture
def smoke(request, tmp_path, monkeypatch):
  """Runs the smoke preset of a file's study twice: the second time trains nothing.

  A parameter names another study, and changes of its settings.
  """
  own = request.path.stem.removeprefix("test_")
  name, changes = getattr(request, "param", (own, {}))
  entry = entries.module(name)
  config = dataclasses.replace(entry.PRESETS["smoke"], **changes)

  def run():
    return json.loads(json.dumps(entry.STUDY.run(config, tmp_path, "smoke")))

  content = run()
  for picture in content["pictures"]:
    assert 0 < (tmp_path / picture).stat().st_size <= 300_000
  with monkeypatch.context() as patch:
    for owner, name in ((training.Checkpoints, "save"), (kept, "keep")):
      patch.setattr(owner, name, lambda *_: pytest.fail("it trained again"))
    patch.setattr(pictures, "save", lambda *_: [])
    again = run()
  untimed = [
    [row for row in x["rows"] if "seconds" not in row["metric"]]
    for x in (content, again)
  ]
  np.testing.assert_equal(*untimed)  # NaN is NaN
  means = {(row["name"], row["metric"]): row["mean"] for row in content["rows"]}
  return Smoke(content, means, tmp_path)
