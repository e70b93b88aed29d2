"""Embedding a folder: oracles, runs that were stopped, pictures that are none."""

import csv
import dataclasses
import importlib.util
import json
import os
import pathlib
import pickle
import shutil
import signal
import sys

import jax
import numpy as np
import pytest
from PIL import Image

from experiments import embed
from experiments.embedding import answers as embed_answers
from experiments.embedding import explore as embed_explore
from experiments.embedding import parts as embed_parts
from experiments.embedding import sources
from experiments.frame import ending, networks
from spherejax import data

SMALL = networks.Architecture(width=8, strides=(2, 2, 1, 1), dim=6, image_size=8)


def keep_model(folder, architecture=SMALL, seed=0):
  variables = networks.initial_variables(jax.random.key(seed), architecture)
  # Long enough that some leave the unit ball.
  model = networks.Model(architecture, jax.tree.map(lambda leaf: 1.4 * leaf, variables))
  networks.keep(folder, model, 0)
  return model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
  folder = tmp_path_factory.mktemp("model")
  keep_model(folder)
  return folder


def write_pictures(folder, count, flat=False):
  """Digits in sub-folders of their classes, in two sizes and several formats."""
  digits = data.load_digits()[:count]
  for number, (pixels, label) in enumerate(
    zip(digits.images, digits.labels, strict=True)
  ):
    suffix = ("png", "jpg", "bmp")[number % 3]
    path = folder / ("" if flat else f"{label}") / f"{number:03}.{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(pixels[..., 0])
    picture.resize((8 + number % 2, 12)).convert("RGB").save(path)
  return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
  return write_pictures(tmp_path_factory.mktemp("pictures"), 60)


def settings(model, pictures, **changes):
  return embed.Config(
    str(model), str(pictures), batch=8, part=16, neighbours=3, **changes
  )


def read_table(path):
  with path.open(newline="", encoding="utf-8") as file:
    return list(csv.DictReader(file))


@pytest.fixture
def counted(monkeypatch):
  """Rows that the network has seen; it can be stopped after some batches."""
  made, seen = embed_parts.network, {"batches": 0, "stop": -1}

  def network(architecture, batch):
    found = made(architecture, batch)

    def call(variables, framed):
      if seen["batches"] == seen["stop"]:
        raise KeyboardInterrupt
      seen["batches"] += 1
      return found(variables, framed)

    return call

  monkeypatch.setattr(embed_parts, "network", network)
  return seen


def test_the_smoke_preset_needs_nothing(tmp_path):
  content = embed.run(embed.PRESETS["smoke"], tmp_path, "smoke")
  assert json.loads((tmp_path / "results.json").read_text()) == content
  figures = {row["metric"]: row["mean"] for row in content["rows"]}
  assert figures["images"] == 200
  # Chance would be a tenth.
  assert 0.4 < figures["neighbours of the query's class"] < 1
  embeddings = np.load(tmp_path / "embeddings.npy")
  assert embeddings.shape == (200, 32)
  assert embeddings.dtype == np.float32
  assert np.linalg.norm(embeddings, axis=1).max() <= 1 + 1e-6
  files = read_table(tmp_path / "files.csv")
  assert len(files) == 200
  for file in files:
    assert (tmp_path / "digits" / file["path"]).is_file()
    assert file["label"] == file["path"].split("/")[0]
  table = read_table(tmp_path / "neighbours.csv")
  assert [row["rank"] for row in table] == ["1", "2", "3", "4", "5"] * 8
  assert (tmp_path / "neighbours.png").read_bytes().startswith(b"\x89PNG")


def test_neighbours_are_those_of_numpy_and_a_picture_is_its_own(
  model, pictures, tmp_path
):
  asked = pictures / "3"
  embed.run(settings(model, pictures, queries=str(asked)), tmp_path)
  files = [row["path"] for row in read_table(tmp_path / "files.csv")]
  assert files == sorted(files)
  x = np.load(tmp_path / "embeddings.npy").astype(np.float64)
  table = read_table(tmp_path / "neighbours.csv")
  queries = sorted(path.name for path in asked.iterdir())
  assert [row["query"] for row in table] == [name for name in queries for _ in range(3)]
  for start, query in zip(range(0, len(table), 3), queries, strict=True):
    apart = np.linalg.norm(x - x[files.index(f"3/{query}")], axis=1)
    expected = np.argsort(apart, kind="stable")[:3]
    found = table[start : start + 3]
    assert [row["file"] for row in found] == [files[index] for index in expected]
    np.testing.assert_allclose(
      [float(row["distance"]) for row in found], apart[expected], rtol=1e-5
    )
    assert found[0]["file"] == f"3/{query}"
    assert float(found[0]["distance"]) == 0


@pytest.mark.parametrize("normalize", ["unit_ball", "l2", "none"])
def test_embeddings_are_the_network_of_each_picture(
  model, pictures, tmp_path, normalize
):
  embed.run(settings(model, pictures, normalize=normalize), tmp_path)
  assert not (tmp_path / "neighbours.csv").exists()
  loaded = networks.load(model)
  expected = []
  for row in read_table(tmp_path / "files.csv"):
    pixels = np.asarray(Image.open(pictures / row["path"]).convert("RGB"))
    expected.append(networks.prepare(pixels, SMALL))
  expected = np.asarray(loaded.embed(np.stack(expected)), np.float64)
  norms = np.linalg.norm(expected, axis=1, keepdims=True)
  assert norms.min() < 1 < norms.max()
  expected /= {"unit_ball": np.maximum(norms, 1), "l2": norms, "none": 1}[normalize]
  found = np.load(tmp_path / "embeddings.npy")
  np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_a_run_that_was_stopped_goes_on_and_gives_the_same_bytes(
  model, pictures, tmp_path, counted
):
  config = settings(model, pictures, queries=str(pictures / "0"))
  embed.run(config, tmp_path / "whole")
  whole = counted["batches"]
  assert whole == 8 + 1  # 60 pictures, and queries
  counted.update(batches=0, stop=5)
  with pytest.raises(KeyboardInterrupt):
    embed.run(config, tmp_path / "parts")
  assert not (tmp_path / "parts" / "embeddings.npy").exists()
  counted.update(batches=0, stop=-1)
  embed.run(config, tmp_path / "parts")
  assert counted["batches"] == whole - 4  # two parts of two batches were kept
  counted.update(batches=0)
  embed.run(config, tmp_path / "parts")
  assert counted["batches"] == 0
  for name in ("embeddings.npy", "files.csv", "neighbours.csv"):
    once, twice = (tmp_path / way / name for way in ("whole", "parts"))
    assert once.read_bytes() == twice.read_bytes()


def test_a_part_that_was_lost_costs_no_other(model, pictures, tmp_path, counted):
  config = settings(model, pictures)
  embed.run(config, tmp_path)
  expected = np.load(tmp_path / "embeddings.npy")
  parts = sorted((tmp_path / "parts" / "images").glob("part-*.json"))
  assert len(parts) == 4
  parts[1].unlink()
  counted.update(batches=0)
  embed.run(config, tmp_path)
  assert counted["batches"] == 2
  counted.update(batches=0)
  embed.run(config, tmp_path)
  assert counted["batches"] == 0
  np.testing.assert_array_equal(np.load(tmp_path / "embeddings.npy"), expected)


def test_a_prepared_picture_is_not_its_own_neighbour(model, tmp_path, monkeypatch):
  digits = data.load_digits()[:30]
  # Each twice: the nearest other picture of a query is the same one again.
  twice = digits[np.repeat(np.arange(30), 2)]
  monkeypatch.setattr(data, "load_tfds", lambda *_, **__: twice)
  config = settings(model, "tfds:digits/test", queries="tfds:digits/test")
  content = embed.run(dataclasses.replace(config, neighbours=1), tmp_path)
  figures = {row["metric"]: row["mean"] for row in content["rows"]}
  table = read_table(tmp_path / "neighbours.csv")
  own = [row["query"] == row["file"] for row in table]
  # Whatever else is found is the copy, of the same class.
  assert 0 < sum(own) < len(own)
  assert figures["neighbours of the query's class"] == 1
  other = settings(model, "tfds:digits/test", queries="tfds:digits/test")
  content = embed.run(dataclasses.replace(other, neighbours=60), tmp_path)
  figures = {row["metric"]: row["mean"] for row in content["rows"]}
  labels = np.asarray(twice.labels)
  same = (labels[:, None] == labels).sum() - 60
  expected = same / (60 * 59)  # every other picture once
  assert figures["neighbours of the query's class"] == pytest.approx(expected)


def test_fewer_digits_are_embedded_where_more_lay(tmp_path):
  config = dataclasses.replace(embed.PRESETS["smoke"], digits=24)
  embed.run(config, tmp_path, "smoke")
  embed.run(dataclasses.replace(config, digits=16), tmp_path, "smoke")
  assert len(np.load(tmp_path / "embeddings.npy")) == 16


def test_what_changed_in_the_folder_is_named_and_nothing_else_computed(
  model, tmp_path, counted, capsys
):
  folder = write_pictures(tmp_path / "pictures", 24)
  config, output = settings(model, folder), tmp_path / "output"
  embed.run(config, output)
  before = dict(zip(_paths(output), np.load(output / "embeddings.npy"), strict=True))
  assert "since" not in capsys.readouterr().err
  counted.update(batches=0)
  (folder / "0" / "000.png").unlink()
  shutil.copy(folder / "1" / "001.jpg", folder / "0" / "zero.jpg")
  shutil.copy(folder / "2" / "002.bmp", folder / "3" / "003.png")
  stat = (folder / "3" / "003.png").stat()
  os.utime(folder / "3" / "003.png", ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))
  embed.run(config, output)
  assert counted["batches"] == 1
  said = capsys.readouterr().err
  assert "images, changed since: 1 (3/003.png)" in said
  assert "images, new since: 1 (0/zero.jpg)" in said
  assert "images, gone since: 1 (0/000.png)" in said
  after = dict(zip(_paths(output), np.load(output / "embeddings.npy"), strict=True))
  assert after.keys() == before.keys() - {"0/000.png"} | {"0/zero.jpg"}
  same = {"0/zero.jpg": "1/001.jpg", "3/003.png": "2/002.bmp"}
  for name, embedding in after.items():
    expected = before[same.get(name, name)]
    np.testing.assert_allclose(embedding, expected, rtol=1e-5, atol=1e-6)


def _paths(output):
  return [row["path"] for row in read_table(output / "files.csv")]


def test_another_model_or_folder_for_the_same_output(model, pictures, tmp_path):
  output = tmp_path / "output"
  embed.run(settings(model, pictures), output)
  keep_model(tmp_path / "other", seed=1)
  with pytest.raises(SystemExit, match="by another model: with other weights; choose"):
    embed.run(settings(tmp_path / "other", pictures), output)
  wide = dataclasses.replace(SMALL, width=9)
  keep_model(tmp_path / "wide", wide)
  with pytest.raises(SystemExit, match="by another model: width 8, not 9; choose"):
    embed.run(settings(tmp_path / "wide", pictures), output)
  with pytest.raises(SystemExit, match=r"of images from .*, not from .*other --output"):
    embed.run(settings(model, pictures / "3"), output)


def test_a_file_that_is_no_picture_is_named_before_anything_is_embedded(
  model, tmp_path, counted
):
  folder = write_pictures(tmp_path / "pictures", 20)
  (folder / "4" / "004.jpg").write_text("no picture")
  Image.fromarray(np.zeros((4, 4), np.uint16)).save(folder / "5" / "deep.png")
  config, output = settings(model, folder), tmp_path / "output"
  with pytest.raises(SystemExit, match=r"2 of 21 .*4/004\.jpg \(cannot.*deep\.png"):
    embed.run(config, output)
  assert counted["batches"] == 0
  embed.run(dataclasses.replace(config, skip_unreadable=True), output)
  left_out = {
    row["path"]: row["reason"] for row in read_table(output / "unreadable.csv")
  }
  assert left_out.keys() == {"4/004.jpg", "5/deep.png"}
  assert "more than 8 bits" in left_out["5/deep.png"]
  assert len(_paths(output)) == len(np.load(output / "embeddings.npy")) == 19
  assert not left_out.keys() & set(_paths(output))


def test_a_picture_that_ends_too_early_costs_nothing_but_itself(
  model, tmp_path, counted
):
  folder = write_pictures(tmp_path / "pictures", 20)
  noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
  broken = folder / "4" / "004.jpg"
  Image.fromarray(noise).save(broken)
  whole = broken.read_bytes()
  broken.write_bytes(whole[: len(whole) // 2])  # its header is right
  config, output = settings(model, folder), tmp_path / "output"
  with pytest.raises(SystemExit, match=r"1 of 20 images .*: 4/004\.jpg \(.*truncated"):
    embed.run(config, output)
  assert counted["batches"] == 3
  counted.update(batches=0)
  with pytest.raises(SystemExit, match=r"4/004\.jpg"):
    embed.run(config, output)
  embed.run(dataclasses.replace(config, skip_unreadable=True), output)
  assert counted["batches"] == 0
  assert [row["path"] for row in read_table(output / "unreadable.csv")] == ["4/004.jpg"]
  rows = dict(zip(_paths(output), np.load(output / "embeddings.npy"), strict=True))
  assert len(rows) == 19
  # Once repaired it is embedded, alone.
  broken.write_bytes(whole)
  embed.run(config, output)
  assert counted["batches"] == 1
  again = dict(zip(_paths(output), np.load(output / "embeddings.npy"), strict=True))
  assert again.keys() - rows.keys() == {"4/004.jpg"}
  for name, row in rows.items():
    np.testing.assert_array_equal(again[name], row)


def test_a_picture_that_can_be_read_the_second_time(model, tmp_path, monkeypatch):
  folder = write_pictures(tmp_path / "pictures", 10)
  embed.run(settings(model, folder), tmp_path / "expected")
  read, failed = sources._read_file, []

  def once(root, names, row):
    if row == 3 and not failed:
      failed.append(row)
      raise OSError("the network drive is away")
    return read(root, names, row)

  monkeypatch.setattr(sources, "_read_file", once)
  embed.run(settings(model, folder), tmp_path / "output")
  assert failed
  found, expected = (
    np.load(tmp_path / way / "embeddings.npy") for way in ("output", "expected")
  )
  np.testing.assert_array_equal(found, expected)


def test_one_picture_asked_about_a_folder_without_classes(model, tmp_path):
  folder = write_pictures(tmp_path / "pictures", 10, flat=True)
  asked = tmp_path / "a $ask$.png"
  shutil.copy(folder / "003.png", asked)
  config = settings(model, folder, queries=str(asked))
  config = dataclasses.replace(config, neighbours=30)  # all there are
  content = embed.run(config, tmp_path / "output")
  assert {row["metric"] for row in content["rows"]} == {
    "images", "unreadable", "queries",
  }  # fmt: skip
  table = read_table(tmp_path / "output" / "neighbours.csv")
  assert table[0] == {
    "query": "a $ask$.png", "rank": "1", "file": "003.png", "distance": "0",
  }  # fmt: skip
  assert len(table) == 10
  assert {row["label"] for row in read_table(tmp_path / "output" / "files.csv")} == {""}


def test_nothing_is_right_or_wrong_without_a_class(model, pictures, tmp_path):
  def found(text, what):
    source = sources.find(str(text))
    job = embed_parts.begin(source, networks.load(model), tmp_path / what, what)
    job = embed_parts.finish(job, batch=8, part=16, workers=0)
    return embed_answers.collect(job, "l2")

  images = found(pictures, "images")
  asked = tmp_path / "asked"
  for name in ("3", "unheard of"):
    (asked / name).mkdir(parents=True)
    shutil.copy(pictures / "3" / "003.png", asked / name)
  queries = found(asked, "queries")
  answers = embed_answers.answer(queries, images, 2)
  np.testing.assert_array_equal(answers.known, [True, False])
  sheet = embed_answers.sheet(answers, queries, images)
  assert [len(cell.texts) for cell in sheet.axes] == [0, 1, 1, 0, 0, 0]
  assert len(sheet.legends) == 1
  # A picture of the folder has its class, wherever it is asked from.
  own = found(pictures / "3" / "003.png", "own")
  answers = embed_answers.answer(own, images, 2)
  assert answers.known.all()
  np.testing.assert_array_equal(answers.own, [[True, False]])
  assert answers.correct[0, 0]
  asked = found(asked / "unheard of", "unknown")
  none = embed_answers.answer(asked, images, 2)
  sheet = embed_answers.sheet(none, asked, images)
  assert not sheet.legends


def test_a_sheet_of_photographs_is_written(tmp_path):
  """Noise is not compressed: at its full resolution it is above the limit."""
  keep_model(tmp_path / "model", dataclasses.replace(SMALL, image_size=64))
  random = np.random.default_rng(0)
  (tmp_path / "pictures").mkdir()
  for number in range(24):
    pixels = random.integers(0, 256, (64, 64), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "pictures" / f"{number}.png")
  folder = tmp_path / "pictures"
  config = settings(tmp_path / "model", folder, queries=str(folder))
  embed.run(dataclasses.replace(config, neighbours=12), tmp_path / "output")
  size = (tmp_path / "output" / "neighbours.png").stat().st_size
  assert 300_000 < size <= 4_000_000


def test_pictures_go_to_other_processes(model, pictures):
  source = sources.find(str(pictures))
  seen = embed_parts.prepared(source, networks.load(model))
  sent = pickle.loads(pickle.dumps(seen))
  assert len(sent) == len(source) == 60
  np.testing.assert_array_equal(sent[7], seen[7])
  assert sent[7].shape == (9, 8, 1)
  assert (sent[7][0] == 255).all()
  assert sum(1 for _ in sent) == 60  # a loop over them ends


def test_hidden_files_and_others_are_passed_over(tmp_path):
  folder = write_pictures(tmp_path / "pictures", 3)
  (folder / ".hidden").mkdir()
  for name in (".hidden/a.png", ".b.png", "notes.txt"):
    (folder / name).write_text("")
  (folder / "deep" / "er").mkdir(parents=True)
  shutil.copy(folder / "0" / "000.png", folder / "deep" / "er" / "x.PNG")
  source = sources.find(str(folder))
  assert source.names == ("0/000.png", "1/001.jpg", "2/002.bmp", "deep/er/x.PNG")
  assert source.labels == ("0", "1", "2", "deep")


def test_any_names_of_files_and_folders(model, tmp_path):
  root = write_pictures(tmp_path / "p [1]*?" / ("x" * 200), 10)
  names = ["a\nb", 'a,"b', "[x]*?", "back\\slash", "ü ß", "=1+1", os.fsdecode(b"a\xff")]
  for name in names:
    (root / name).mkdir()
    shutil.copy(root / "0" / "000.png", root / name / f"{name}.png")
  config = settings(model, root, queries=str(root), explore=True)
  embed.run(config, tmp_path / "output [*]")
  files = read_table(tmp_path / "output [*]" / "files.csv")
  assert len(files) == 17
  shown = {*names[:-1], "a\\xff"}
  assert {f["label"] for f in files} >= shown
  assert {f["path"] for f in files} >= {f"{name}/{name}.png" for name in shown}


def test_a_prepared_set(model, tmp_path, tfds_dir):
  text = "tfds:omniglot/train[:40]"
  config = settings(model, text, queries="tfds:omniglot/train[:3]")
  embed.run(config, tmp_path)
  images = data.load_tfds("omniglot", "train[:40]")
  files = read_table(tmp_path / "files.csv")
  assert [row["path"] for row in files] == [f"{text}/{row}" for row in range(40)]
  names = [images.label_names[label] for label in images.labels]
  assert [row["label"] for row in files] == names
  seen = np.stack([networks.prepare(x, SMALL) for x in images.images])
  expected = np.asarray(networks.load(model).embed(seen), np.float64)
  expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1)
  found = np.load(tmp_path / "embeddings.npy")
  np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
  table = read_table(tmp_path / "neighbours.csv")
  assert [row["file"] for row in table[::3]] == [f"{text}/{row}" for row in range(3)]
  with pytest.raises(SystemExit, match=r"tfds:omniglot/dev cannot be read: .*'dev'"):
    embed.run(settings(model, "tfds:omniglot/dev"), tmp_path / "other")


def test_what_is_missing_is_said(model, pictures, tmp_path, monkeypatch):
  monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "kept")
  monkeypatch.setattr(sys, "argv", ["embed"])
  with pytest.raises(
    SystemExit, match=r"--model and --images missing: .*--preset smoke"
  ):
    embed.main()

  def run(model, images, **changes):
    embed.run(settings(model, images, **changes), tmp_path / "output")

  with pytest.raises(SystemExit, match=r"^--model missing"):
    run("", pictures)
  with pytest.raises(SystemExit, match=r"no network\.json in .*nowhere"):
    run(tmp_path / "nowhere", pictures)
  with pytest.raises(SystemExit, match=r"no image file or folder at .*nowhere"):
    run(model, tmp_path / "nowhere")
  (tmp_path / "empty").mkdir()
  with pytest.raises(SystemExit, match=r"empty holds no image \(\.bmp"):
    run(model, tmp_path / "empty")
  with pytest.raises(SystemExit, match="tfds:NAME/SPLIT, got tfds:omniglot"):
    run(model, "tfds:omniglot")
  with pytest.raises(SystemExit, match=r"no image file or folder at .*nobody"):
    run(model, pictures, queries="nobody")
  with pytest.raises(ValueError, match="workers must be at least 0, got -1"):
    run(model, pictures, workers=-1)
  with pytest.raises(SystemExit, match=r"lies in .*choose another"):
    embed.run(settings(model, tmp_path.parent), tmp_path / "output")


def test_a_model_folder_of_another_architecture(model, pictures, tmp_path):
  shutil.copytree(model, tmp_path / "model")
  file = tmp_path / "model" / "network.json"
  content = json.loads(file.read_text())
  file.write_text(json.dumps(content | {"width": 5}))
  config = settings(tmp_path / "model", pictures)
  with pytest.raises(SystemExit, match="does not hold what it says: the checkpoint"):
    embed.run(config, tmp_path / "output")
  file.write_text(json.dumps(content | {"depth": 5}))
  with pytest.raises(SystemExit, match=r"does not hold what it says: .*'depth'"):
    embed.run(config, tmp_path / "output")
  assert not pathlib.Path(tmp_path / "output").exists()
  file.write_text(json.dumps(content)[:-9])
  with pytest.raises(SystemExit, match=r"network\.json is damaged; a network must be"):
    embed.run(config, tmp_path / "output")


def test_a_damaged_listing_is_named(model, pictures, tmp_path):
  config = settings(model, pictures)
  embed.run(config, tmp_path)
  listing = tmp_path / "parts" / "images" / "listing.json"
  content = listing.read_text()
  unsettled = json.dumps(json.loads(content) | {"settings": []})
  for damaged in (content[:40], "[]", unsettled):
    listing.write_text(damaged)
    with pytest.raises(ValueError, match=r"listing\.json is damaged; without it"):
      embed.run(config, tmp_path)
  listing.unlink()
  embed.run(config, tmp_path)
  assert listing.read_text() == content


def test_a_damaged_part_ends_the_command_in_one_line(
  model, pictures, tmp_path, monkeypatch, capsys
):
  embed.run(settings(model, pictures), tmp_path)
  expected = (tmp_path / "embeddings.npy").read_bytes()
  part = tmp_path / "parts" / "images" / "part-000001.json"
  content = json.loads(part.read_text())
  del content["figures"]["files"][0]
  part.write_text(json.dumps(content))
  monkeypatch.setattr(sys, "excepthook", sys.excepthook)
  monkeypatch.setattr(signal, "signal", lambda *_: None)
  ending.in_one_line(tmp_path)
  wrong = r"must be float32 \(15, 6\), got float32 \(16, 6\)"
  with pytest.raises(ValueError, match=wrong) as caught:
    embed.run(settings(model, pictures), tmp_path)
  sys.excepthook(caught.type, caught.value, caught.tb)
  said = capsys.readouterr().err.splitlines()
  assert said[-1].startswith(f"ValueError: {part} is damaged; without it, it is made")
  assert not any("Traceback" in line for line in said)
  part.unlink()
  embed.run(settings(model, pictures), tmp_path)
  assert (tmp_path / "embeddings.npy").read_bytes() == expected


def test_the_page_shows_the_pictures_and_the_pooling(tmp_path, monkeypatch):
  """As the network sees them: `write_page` gets what its own tests know to be shown."""
  given = {}
  monkeypatch.setattr(
    embed_explore.explorer,
    "write_page",
    lambda path, x, **options: given.update(options, path=path, x=x),
  )
  config = dataclasses.replace(
    embed.PRESETS["smoke"], digits=20, neighbours=3, explore=True, layout="pca"
  )
  embed.run(config, tmp_path)
  model = networks.load(tmp_path / "model")
  source = sources.find(str(tmp_path / "digits"))
  prepared = embed_parts.prepared(source, model)
  pictures = np.stack([prepared[row][1:] for row in range(20)])
  found = jax.jit(networks.Network(model.architecture).apply)(model.variables, pictures)
  np.testing.assert_allclose(given["weights"], found.weights, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(
    given["prototypes"], found.attributes, rtol=1e-3, atol=1e-5
  )
  np.testing.assert_array_equal(np.stack(list(given["images"])), pictures)
  np.testing.assert_array_equal(given["x"], np.load(tmp_path / "embeddings.npy"))
  assert given["files"] == list(source.names)
  assert given["labels"] == list(source.labels)
  assert given["title"] == "Embeddings of digits"
  assert (given["neighbours"], given["layout"]) == (3, "pca")


def test_what_cannot_be_explored_is_said_before_the_work(tmp_path, monkeypatch):
  config = dataclasses.replace(
    embed.PRESETS["smoke"], digits=1, queries="", explore=True
  )
  seen = []
  monkeypatch.setattr(embed_parts, "begin", lambda *_: seen.append(1))
  with pytest.raises(SystemExit, match="shows 2 to 65536 images, got 1"):
    embed.run(config, tmp_path)
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(SystemExit, match=r"bokeh: pip install 'spherejax\[explore\]"):
    embed.run(dataclasses.replace(config, digits=8), tmp_path)
  assert not seen
