"""`spherejax-explore`: what it writes, that it goes on, what it refuses in one line."""

import csv

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageOps

from spherejax import data, models
from spherejax.explorer import _command, _page

SIDE = 8


class Network(models.PretrainedNetwork):
  """Two numbers a pixel: grey and red."""

  batches = []  # noqa: RUF012

  def features(self, images):
    self.batches.append(np.shape(images))
    grey = jnp.mean(images / 255, axis=-1)
    return jnp.stack([grey, 0.1 + images[..., 0] / 255], axis=-1)


@pytest.fixture
def network(monkeypatch):
  scale = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
  found = Network(
    "two", models.ResNet18(), {"w": jnp.ones(2)}, {"bias": jnp.ones(2)}, SIDE, *scale
  )
  Network.batches.clear()
  monkeypatch.setattr(models, "pretrained", lambda name, path: found)
  return found


@pytest.fixture
def folder(tmp_path):
  """Three classes and an image beside them, of other sizes, formats and modes."""
  random = np.random.default_rng(0)
  place = tmp_path / "photos"
  for number in range(12):
    pixels = random.integers(256, size=(9 + number, 14, 3), dtype=np.uint8)
    suffix = ("png", "jpg", "webp")[number % 3]
    path = place / f"class {number % 3}" / "deeper" / f"{number:02}.{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
  Image.fromarray(data.load_digits().images[0, ..., 0]).save(place / "grey.png")
  return place


def run(folder, *more):
  output = folder.parent / "out"
  _command.main([str(folder), "--output", str(output), "--layout", "pca", *more])
  return output


def refused(capsys, *arguments):
  with pytest.raises(SystemExit) as ended:
    _command.main([*map(str, arguments)])
  assert ended.value.code
  lines = capsys.readouterr().err.strip().splitlines()
  return lines[-1]


def table(path):
  with path.open(newline="") as file:
    return list(csv.reader(file))


def test_what_is_written_is_the_network_of_each_image(network, folder):
  output = run(folder, "--neighbours", "3")
  header, *rows = table(output / "files.csv")
  assert header == ["path", "label"]
  names = [path for path, _ in rows]
  assert names == sorted(names)
  assert len(names) == 13
  assert [label for _, label in rows] == [
    name.split("/")[0] if "/" in name else "" for name in names
  ]
  squares = np.stack(
    [
      np.asarray(
        ImageOps.fit(
          Image.open(folder / name).convert("RGB"),
          (SIDE, SIDE),
          Image.Resampling.BICUBIC,
        )
      )
      for name in names
    ]
  )
  x = np.asarray(network.features(squares)).mean((1, 2))
  x /= np.linalg.norm(x, axis=1, keepdims=True)
  found = np.load(output / "embeddings.npy")
  assert found.dtype == np.float32
  np.testing.assert_allclose(found, x, atol=2e-3)  # half precision was between
  apart = np.linalg.norm(found[:, None].astype(np.float64) - found, axis=-1)
  np.fill_diagonal(apart, np.inf)
  _, *rows = table(output / "neighbours.csv")
  assert len(rows) == 39
  for image, rank, neighbour, distance in rows:
    place = names.index(image)
    expected = np.sort(apart[place])[int(rank) - 1]
    assert float(distance) == pytest.approx(expected, abs=1e-5)
    assert apart[place, names.index(neighbour)] == pytest.approx(expected, abs=1e-5)
  text = (output / "explore.html").read_text()
  assert "photos by efficientnet_lite0" in text
  assert "grey.png" in text


def test_the_same_command_computes_nothing_again(network, folder, monkeypatch):
  output = run(folder)
  before = (output / "embeddings.npy").read_bytes()
  monkeypatch.setattr(Network, "features", None)
  run(folder)
  assert (output / "embeddings.npy").read_bytes() == before


def test_another_image_is_embedded_and_the_old_features_go(network, folder):
  output = run(folder)
  (output / "features-mine.npy").write_bytes(b"of the user")
  (folder / "class 0" / "deeper" / "00.png").unlink()
  run(folder)
  assert len(np.load(output / "embeddings.npy")) == 12
  assert len(list(output.glob("features-*.npy"))) == 2
  assert (output / "features-mine.npy").read_bytes() == b"of the user"


def test_unreadable_images_are_named_or_left_out(network, folder, capsys):
  (folder / "class 1" / "bad.png").write_bytes(b"none")
  whole = (folder / "class 0" / "deeper" / "00.png").read_bytes()
  (folder / "cut.png").write_bytes(whole[:60])
  said = refused(capsys, folder, "--output", folder.parent / "out")
  assert "2 of 15 images cannot be read: class 1/bad.png" in said
  assert "--skip-unreadable" in said
  assert not network.batches
  output = run(folder, "--skip-unreadable")
  assert len(np.load(output / "embeddings.npy")) == 13
  assert [row[0] for row in table(output / "unreadable.csv")[1:]] == [
    "class 1/bad.png",
    "cut.png",
  ]


def test_folders_that_cannot_be_shown(network, folder, tmp_path, capsys, monkeypatch):
  assert "must be a folder, got" in refused(capsys, tmp_path / "no")
  empty = tmp_path / "empty"
  empty.mkdir()
  assert "must hold 2 to 65536 images" in refused(capsys, empty)
  for name in ("a.png", "b.png"):
    (empty / name).write_bytes(b"none")
  output = ("--output", tmp_path / "out")
  said = refused(capsys, empty, *output, "--skip-unreadable")
  assert "2 of 2 images cannot be read" in said
  Image.new("RGB", (4, 4)).save(empty / "a.png")
  assert "1 of 2 images" in refused(capsys, empty, *output, "--skip-unreadable")
  (empty / "b.png").unlink()
  assert "got 1 in" in refused(capsys, empty)
  assert "exists" in refused(capsys, folder, "--output", empty / "a.png").lower()
  assert "must be at least 1, got 0" in refused(capsys, folder, "--neighbours", 0)
  monkeypatch.setattr(_page, "MOST_IMAGES", 12)
  assert "must hold 2 to 12 images" in refused(capsys, folder)
  assert not network.batches


def test_a_network_that_is_not_there(folder, capsys, tmp_path):
  said = refused(capsys, folder, "--model", "resnet50")
  assert "path must name a file for resnet50" in said
  missing = tmp_path / "no.pth"
  said = refused(capsys, folder, "--model", "resnet50", "--weights", missing)
  assert "no.pth" in said


def test_help_is_one_screen(capsys):
  with pytest.raises(SystemExit):
    _command.main(["--help"])
  assert len(capsys.readouterr().out.splitlines()) < 40
