"""`spherejax-explore`: what it writes, that it goes on, what it refuses in one line."""

import csv
import io
import json
import shutil
import tempfile
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageOps

from spherejax import data, distances, explorer, models, plotting, training
from spherejax.explorer import _embedding, _page, _sources, _tables

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
  weights = {"w": jnp.ones(2)}, {"bias": jnp.ones(2)}
  found = Network("two", models.ResNet18(), *weights, SIDE, *scale)
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
  explorer.main([str(folder), "--output", str(output), "--layout", "pca", *more])
  return output


def refused(capsys, *arguments):
  with pytest.raises(SystemExit) as ended:
    explorer.main([*map(str, arguments)])
  assert ended.value.code
  return capsys.readouterr().err.strip().splitlines()[-1]


def table(path):
  with path.open(newline="") as file:
    return list(csv.reader(file))


def names(output, file="files.csv"):
  return [row[0] for row in table(output / file)[1:]]


@pytest.mark.parametrize(
  ("files", "labels"),
  [
    (["a/1.png", "b/2.png", "3.png"], ["", "a", "b"]),
    (["all/a/1.png", "all/b/2.png"], ["a", "b"]),
    (["all/of/a/1.png", "all/of/b/c/2.png"], ["a", "b"]),
    (["all/a/1.png", "all/2.png"], ["all", "all"]),
    (["a/1.png", "a/2.png"], ["a", "a"]),  # queries of one class, perhaps
    (["1.png"], [""]),
  ],
)
def test_classes_are_the_first_folders_that_differ(files, labels, tmp_path):
  for file in files:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (2, 2)).save(tmp_path / file)
  assert [*_sources.find(str(tmp_path)).labels] == labels


def test_agreement_within_a_single_class_is_not_said(tmp_path):
  path = explorer.write_page(
    tmp_path / "map.html", np.eye(3, dtype=np.float32), labels=["a"] * 3, layout="pca"
  )
  assert '"3 images, 1 class, PCA"' in path.read_text()


def test_what_is_written_is_the_network_of_each_image(network, folder):
  output = run(folder, "--neighbours", "3")
  header, *rows = table(output / "files.csv")
  assert header == ["path", "label"]
  files = [path for path, _ in rows]
  assert files == sorted(files)
  assert len(files) == 13
  first_folders = [name.rpartition("/")[0].split("/")[0] for name in files]
  assert [label for _, label in rows] == first_folders
  size, method = (SIDE, SIDE), Image.Resampling.BICUBIC
  pictures = [Image.open(folder / name).convert("RGB") for name in files]
  squares = np.stack([np.asarray(ImageOps.fit(x, size, method)) for x in pictures])
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
    place = files.index(image)
    expected = np.sort(apart[place])[int(rank) - 1]
    assert float(distance) == pytest.approx(expected, abs=1e-5)
    assert apart[place, files.index(neighbour)] == pytest.approx(expected, abs=1e-5)
  text = (output / "explore.html").read_text()
  assert "photos by efficientnet_lite0" in text
  assert "grey.png" in text


def test_the_same_command_computes_nothing_again(network, folder, monkeypatch):
  output = run(folder)
  before = (output / "embeddings.npy").read_bytes()
  monkeypatch.setattr(training, "keep_features", None)
  run(folder)
  assert (output / "embeddings.npy").read_bytes() == before


def test_images_are_decoded_and_neighbours_found_once(network, folder, monkeypatch):
  decode = mock.Mock(wraps=_sources._read_file)
  nearest = mock.Mock(wraps=distances.k_nearest)
  monkeypatch.setattr(_sources, "_read_file", decode)
  monkeypatch.setattr(distances, "k_nearest", nearest)
  monkeypatch.setattr(_embedding, "_BATCH", 13)
  run(folder)
  assert sorted(call.args[-1] for call in decode.call_args_list) == list(range(13))
  assert nearest.call_count == 1


def test_only_what_changed_in_the_folder_is_embedded(network, folder, monkeypatch):
  output = run(folder)
  before = dict(zip(names(output), np.load(output / "embeddings.npy"), strict=True))
  (folder / "class 0" / "deeper" / "00.png").unlink()
  Image.open(folder / "grey.png").save(folder / "new.png")
  keep = mock.Mock(wraps=training.keep_features)
  monkeypatch.setattr(training, "keep_features", keep)
  run(folder)
  assert [len(call.args[2]) for call in keep.call_args_list] == [1]
  after = dict(zip(names(output), np.load(output / "embeddings.npy"), strict=True))
  assert after.keys() - before.keys() == {"new.png"}
  np.testing.assert_array_equal(after["new.png"], before["grey.png"])
  for name in after.keys() & before.keys():
    np.testing.assert_array_equal(after[name], before[name])


def test_what_a_stopped_run_kept_is_known(tmp_path):
  path = tmp_path / "features-0123456789ab.npy"
  rows = np.arange(6, dtype=np.float16).reshape(3, 2)
  np.save(path, rows)
  files = [[f"{row}.png", "1"] for row in range(3)]
  made_with = {"network": "a", "files": files}
  path.with_suffix(".json").write_text(json.dumps({"made with": made_with, "done": 2}))
  known = _embedding._known(tmp_path, "a")
  assert known.keys() == {("0.png", "1"), ("1.png", "1")}
  np.testing.assert_array_equal(known["1.png", "1"], rows[1])
  assert not _embedding._known(tmp_path, "b")
  path.write_bytes(path.read_bytes()[:-3])  # damaged: it is made again
  assert not _embedding._known(tmp_path, "a")
  assert not list(tmp_path.iterdir())


def test_queries_are_answered_from_the_images(network, folder, tmp_path):
  asked = tmp_path / "a $ask$.png"
  shutil.copy(folder / "class 0" / "deeper" / "00.png", asked)
  output = run(folder, "--queries", str(asked), "--neighbours", "3")
  header, *rows = table(output / "queries.csv")
  assert header == ["query", "rank", "neighbour", "distance"]
  assert [row[:2] for row in rows] == [["a $ask$.png", str(n)] for n in (1, 2, 3)]
  assert rows[0][2:] == ["class 0/deeper/00.png", "0"]
  x = np.load(output / "embeddings.npy").astype(np.float64)
  place = names(output).index("class 0/deeper/00.png")
  apart = np.sort(np.linalg.norm(x - x[place], axis=1))[:3]
  np.testing.assert_allclose([float(row[3]) for row in rows], apart, atol=1e-5)
  with Image.open(output / "queries.png") as sheet:
    assert sheet.width > sheet.height
  # An image of the folder does not find itself.
  own = str(folder / "class 1")
  _, *rows = table(run(folder, "--queries", own, "--neighbours", "12") / "queries.csv")
  assert len(rows) == 4 * 12
  for query, _, found, _ in rows:
    assert found != f"class 1/{query}"


def test_a_prepared_set_is_shown(network, tmp_path, monkeypatch):
  digits = data.load_digits()[:20]
  monkeypatch.setattr(data, "load_tfds", lambda *_, **__: digits)
  output = tmp_path / "out"
  given = ["tfds:digits/test", "--output", str(output), "--layout", "pca"]
  explorer.main([*given, "--queries", "tfds:digits/test"])
  assert names(output) == [f"tfds:digits/test/{row}" for row in range(20)]
  for query, _, found, _ in table(output / "queries.csv")[1:]:
    assert query != found


def test_a_folder_that_cannot_be_written_to_is_told_before_the_work(
  network, folder, capsys, monkeypatch
):
  denied = mock.Mock(side_effect=PermissionError(13, "Permission denied"))
  monkeypatch.setattr(tempfile, "TemporaryFile", denied)
  said = refused(capsys, folder, "--output", folder.parent / "out")
  assert "cannot be written to: Permission denied" in said
  said = refused(capsys, folder, "--output", folder / "class 0")
  assert "must lie outside of the images' folder" in said
  assert not network.batches


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
  assert names(output, "unreadable.csv") == ["class 1/bad.png", "cut.png"]


def test_folders_that_cannot_be_shown(network, folder, tmp_path, capsys, monkeypatch):
  assert "no image file or folder at" in refused(capsys, tmp_path / "no")
  empty = tmp_path / "empty"
  empty.mkdir()
  assert "holds no image" in refused(capsys, empty)
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
  assert "--model resnet50: path must name a file for resnet50" in said
  missing, wrong = tmp_path / "no.pth", tmp_path / "wrong.pth"
  wrong.write_bytes(b"no weights")
  for weights in (missing, wrong):
    said = refused(capsys, folder, "--model", "resnet50", "--weights", weights)
    assert f"--weights {weights}: " in said


def test_a_folder_with_a_network_of_your_own(folder, capsys, tmp_path):
  own = tmp_path / "own"
  own.mkdir()
  given = [str(folder), "--output", str(tmp_path / "out"), "--model", str(own)]
  assert "of a pretrained network, got the folder" in refused(capsys, *given)

  def apply(variables, images):
    return explorer.Outputs(variables["scale"] * images.mean(axis=(1, 2)))

  def load(path):
    assert path == own
    scale = {"scale": jnp.float32(1 / 255)}
    return explorer.Embedder("own", scale, lambda x: x[:4, :4, [0, 0, 0]], apply)

  with pytest.raises(SystemExit):
    explorer.main([*given, "--weights", "a.pth"], load=load)
  assert "--weights a.pth must be left out" in capsys.readouterr().err
  explorer.main([*given, "--layout", "pca"], load=load)
  found = np.load(tmp_path / "out" / "embeddings.npy")
  with Image.open(folder / "grey.png") as grey:
    expected = np.asarray(grey)[:4, :4].mean() / 255
  place = names(tmp_path / "out").index("grey.png")
  np.testing.assert_allclose(found[place], expected, atol=1e-3)


def test_help_is_one_screen(capsys):
  with pytest.raises(SystemExit):
    explorer.main(["--help"])
  assert len(capsys.readouterr().out.splitlines()) < 40


# Of files and folders, as a file system allows.
NAMES = ["a,b", 'quo"te', "new\nline", "Größe", "byte\udcff", "$x^2$", "[1]*?", " "]


def test_tables_of_any_names(tmp_path):
  path = tmp_path / "files [1].csv"
  _tables.write_table(path, ("path", "label"), [(name, "1") for name in NAMES])
  text = path.read_text(encoding="utf-8", errors="surrogateescape")
  rows = list(csv.reader(io.StringIO(text, newline="")))
  assert rows == [["path", "label"], *([name, "1"] for name in NAMES)]


@pytest.mark.parametrize("name", NAMES)
def test_sheets_of_any_names(name, tmp_path):
  figure = plotting.training_curves({"a": [[3.0, 2.0]]}, ylabel="loss")
  figure.axes[0].set_title(_tables._short(name))
  assert plotting.save(figure, tmp_path / "sheet.png").exists()
