import functools
import json
import re
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from spherejax import data
from spherejax.data import _tfds
from tests.data.test_image_files import encoded

SETS = {
  "cifar100": ("train[:12]", (32, 32, 3), 100),
  "cifar10": ("test[:12]", (32, 32, 3), 10),
  "tiny_imagenet": ("train[:12]", (64, 64, 3), 200),
  "mnist": ("test[:12]", (28, 28, 1), 10),
  "omniglot": ("test[:12]", (28, 28, 1), 1623),
  "ndsb_plankton": ("test[:12]", None, 121),
  "voc/2007": ("train[:12]", None, 0),
  "stl10": ("unlabelled[:12]", (96, 96, 3), 10),
}


@pytest.fixture
def copy(tfds_dir, tmp_path):
  """A writable copy of the smallest set."""
  shutil.copytree(tfds_dir / "stl10", tmp_path / "stl10", symlinks=False)
  return tmp_path


def change(path, **entries):
  """Replaces entries of a description."""
  path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def refuses(message, name, split, *, error=ValueError, **options):
  with pytest.raises(error, match=message):
    data.load_tfds(name, split, **options)


@pytest.mark.data
@pytest.mark.parametrize("name", SETS)
def test_every_set_is_read(tfds_dir, name):
  split, shape, classes = SETS[name]
  images = data.load_tfds(name, split, data_dir=tfds_dir)
  assert len(images) == 12
  assert len(images.label_names) == classes
  # As the package decodes them, each record alone.
  folder = max((tfds_dir / name).glob("*.*.*"))
  records = tfds.builder_from_directory(str(folder)).as_data_source(split=split)
  for row, (image, label) in enumerate(zip(images.images, images.labels, strict=True)):
    assert image.dtype == np.uint8
    assert image.shape == (shape or image.shape)
    assert image.std() > 0
    record = records[row]
    np.testing.assert_array_equal(image, record["image"])
    assert label == record.get("label", -1)
    for extra, values in images.extras.items():
      value = record[extra]
      value = value.decode() if isinstance(value, bytes) else value
      assert str(values[row]) == str(value)


@pytest.mark.data
def test_images_of_several_sizes_are_brought_to_one(tfds_dir):
  load = functools.partial(
    data.load_tfds, "ndsb_plankton", "test[:8]", data_dir=tfds_dir
  )
  varying = load().images
  assert isinstance(varying, list)
  images = load(size=(20, 24)).images
  assert images.shape == (8, 20, 24, 1)
  for image, before in zip(images, varying, strict=True):
    pillow = Image.fromarray(before[..., 0]).resize((24, 20), Image.Resampling.BOX)
    np.testing.assert_array_equal(image[..., 0], pillow)
  rgb = load(size=(20, 24), channels=3).images
  np.testing.assert_array_equal(rgb, np.repeat(images, 3, axis=-1))


@pytest.mark.data
def test_lazy_and_in_memory_agree(tfds_dir):
  options = {"split": "train[:9]", "data_dir": tfds_dir, "size": 16}
  lazy = data.load_tfds("cifar100", lazy=True, **options)
  memory = data.load_tfds("cifar100", **options)
  np.testing.assert_array_equal(np.stack(list(lazy.images)), memory.images)
  chosen = np.array([5, 2, 2])
  np.testing.assert_array_equal(list(lazy[chosen].images), memory.images[chosen])


@pytest.mark.data
def test_another_feature_as_the_label(tfds_dir):
  images = "cifar100", "train+test[:10]"
  fine = data.load_tfds(*images, data_dir=tfds_dir)
  coarse = data.load_tfds(*images, data_dir=tfds_dir, label="coarse_label")
  assert len(fine) == len(coarse) == 1127
  np.testing.assert_array_equal(coarse.labels, fine.extras["coarse_label"])
  np.testing.assert_array_equal(coarse.extras["label"], fine.labels)
  assert coarse.label_names == fine.extra_names["coarse_label"]
  assert coarse.extra_names["label"] == fine.label_names
  # A superclass is a function of the class, and has five of them.
  pairs = {(int(c), int(f)) for c, f in zip(coarse.labels, fine.labels, strict=True)}
  assert len(pairs) == 100
  drawer = data.load_tfds("omniglot", "test[:9]", data_dir=tfds_dir, label="drawer")
  assert drawer.labels.max() == len(drawer.label_names) - 1
  whole = {"name": "cifar100", "split": "train", "data_dir": tfds_dir}
  refuses("no feature 'family' for label; there are: coa", label="family", **whole)
  refuses("label='id' must be integers", error=TypeError, label="id", **whole)


@pytest.mark.data
def test_only_the_wanted_extras_are_kept(tfds_dir):
  whole = data.load_tfds("cifar100", "test", data_dir=tfds_dir)
  for extras in ((), ("coarse_label",)):
    some = data.load_tfds("cifar100", "test", data_dir=tfds_dir, extras=extras)
    assert sorted(some.extras) == sorted(some.extra_names) == list(extras)
    np.testing.assert_array_equal(some.labels, whole.labels)
    for name in extras:
      np.testing.assert_array_equal(some.extras[name], whole.extras[name])
  with pytest.raises(ValueError, match=r"extras of 'cifar100' must be among .*'fine'"):
    data.load_tfds("cifar100", "test", data_dir=tfds_dir, extras=("fine",))


@pytest.mark.parametrize(("extras", "decoded"), [((), False), (None, True)])
def test_pictures_not_asked_for_stay_encoded(tmp_path, monkeypatch, extras, decoded):
  picture = encoded(Image.new("RGB", (4, 4)), "PNG")
  record = {"image": picture, "label": 1, "segmentation_mask": b"mask"}
  asked = []

  class Records(list):
    def __getitems__(self, rows):
      return [self[row] for row in rows]

  def as_data_source(split, decoders):
    asked.extend(decoders)
    return Records([record] * 2)

  kinds = {
    "image": tfds.features.Image(),
    "label": tfds.features.ClassLabel(num_classes=2),
    "segmentation_mask": tfds.features.Image(shape=(None, None, 1)),
  }
  splits = {"train": types.SimpleNamespace(num_examples=2)}
  features = tfds.features.FeaturesDict(kinds)
  info = types.SimpleNamespace(features=features, splits=splits)
  builder = types.SimpleNamespace(info=info, as_data_source=as_data_source)
  monkeypatch.setattr(tfds, "builder_from_directory", lambda _: builder)
  (tmp_path / "birds/1.0.0").mkdir(parents=True)
  (tmp_path / "birds/1.0.0/dataset_info.json").write_text("{}")
  found = data.load_tfds("birds", "train", data_dir=tmp_path, extras=extras, lazy=True)
  assert found.images[0].shape == (4, 4, 3)
  assert ("segmentation_mask" in asked) != decoded
  assert ("segmentation_mask" in found.extras) == decoded


def test_the_environment_names_the_folder(tfds_dir, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tfds_dir))
  assert len(data.load_tfds("stl10", "unlabelled[:3]")) == 3


def test_missing_data_folder(monkeypatch, tmp_path):
  monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
  with pytest.raises(FileNotFoundError, match="variable TFDS_DATA_DIR is not set") as e:
    data.load_tfds("cifar100", "train")
  assert "download_and_prepare" in str(e.value)
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "gone"))
  for folder, name, message in (
    (None, "cifar100", r"TFDS_DATA_DIR=.*gone is not a folder"),
    (tmp_path / "other", "cifar100", r"sets at data_dir=.*other.*Prepare"),
    (tmp_path, "x", r"no image set 'x' in .*there are: none"),
  ):
    refuses(message, name, "train", error=FileNotFoundError, data_dir=folder)


@pytest.mark.data
def test_unknown_set_and_split(tfds_dir):
  sets = r"no image set 'cifar' .* cifar10, cifar100, .* voc/2007$"
  for name, message in (("cifar", sets), ("", "no image set ''")):
    refuses(message, name, "train", error=FileNotFoundError, data_dir=tfds_dir)
  for split, message in (
    ("val[:3]", r"'cifar10' has no split 'val.*: test, train$"),
    ("test[:0]", r"data set is empty: split 'test\[:0\]' of"),
  ):
    refuses(message, "cifar10", split, data_dir=tfds_dir)


@pytest.mark.data
def test_the_newest_version_is_taken(copy):
  newest = copy / "stl10/1.10.0"
  shutil.copytree(copy / "stl10/1.0.0", newest)
  (copy / "stl10/1.9.0.incomplete").mkdir()
  change(newest / "dataset_info.json", version="1.10.0")
  names = (newest / "label.labels.txt").read_text().replace("airplane", "plane")
  (newest / "label.labels.txt").write_text(names)
  load = lambda name: data.load_tfds(name, "unlabelled[:2]", data_dir=copy)  # noqa: E731
  assert load("stl10").label_names[0] == "plane"
  assert load("stl10/1.0.0").label_names[0] == "airplane"


@pytest.mark.data
def test_sets_in_other_formats_or_without_images(copy):
  whole = {"name": "stl10", "split": "unlabelled", "data_dir": copy}
  change(copy / "stl10/1.0.0/dataset_info.json", fileFormat="tfrecord")
  refuses("'stl10' is not prepared as array_record", **whole)
  change(copy / "stl10/1.0.0/dataset_info.json", fileFormat="array_record")
  path = copy / "stl10/1.0.0/features.json"
  features = json.loads(path.read_text())
  content = features["featuresDict"]["features"]
  content["photo"] = content.pop("image")
  path.write_text(json.dumps(features))
  refuses(r"no image feature 'image'; .* label, photo, sub", **whole)
  content["image"] = content.pop("photo")
  content["image"]["image"]["dtype"] = "uint16"
  path.write_text(json.dumps(features))
  refuses("images of 'stl10' must be uint8, got .*uint16", error=TypeError, **whole)


@pytest.mark.data
@pytest.mark.parametrize("lazy", [False, True])
def test_damaged_records(copy, lazy):
  file = next((copy / "stl10/1.0.0").glob("*.array_record-*"))
  file.write_bytes(file.read_bytes()[:100_000])
  message = "cannot read records 0 to 245 of stl10, split unlabelled: "
  refuses(message, "stl10", "unlabelled", data_dir=copy, lazy=lazy)


def test_damaged_images_are_named():
  whole = encoded(np.arange(64, dtype=np.uint8).reshape(8, 8), "PNG")
  records = [{"image": whole}, {"image": whole[:45]}]
  options = {"source": "of birds, split train", "channels": 1, "size": None}
  assert _tfds._read_record(0, records=records, **options).shape == (8, 8, 1)
  with pytest.raises(ValueError, match="the image of record 1 of birds, split train"):
    _tfds._read_record(1, records=records, **options)


@pytest.mark.data
def test_tensorflow_is_not_imported(tfds_dir):
  program = (
    "import sys; from spherejax import data;"
    f"data.load_tfds('stl10', 'unlabelled[:2]', data_dir={str(tfds_dir)!r});"
    "assert 'tensorflow' not in sys.modules"
  )
  subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.data
def test_ranges_outside_of_a_split(copy):
  def fails(split, message):
    refuses(message, "stl10", split, data_dir=copy)

  for split in ("[:99999999]", "[247:]", "[:-247]", "[:150%]", "[a:b]", "[5]", "["):
    whole = f"unlabelled{split}"
    fails(whole, rf"split must be a range within the 246 .*, got '{re.escape(whole)}'")
  fails("unlabelled[:2]+unlabelled[:300]", r"a range within the 246 .*\[:300\]'")
  # The negative count of one must not be hidden by the other.
  for split in ("[10:5]", "[10%:5%]", "[-5:-10]"):
    for whole in (f"unlabelled{split}", f"unlabelled[:50] + unlabelled{split}"):
      fails(whole, rf"not end before it begins, got 'unlabelled{re.escape(split)}'")
  missing = {"[:5]": "", "unlabelled+": "", "dev[:3]": "dev", "all[:3]": "all"}
  for split, what in missing.items():
    fails(split, f"'stl10' has no split '{what}'; its splits are: unlabelled$")
  both = data.load_tfds("stl10", "unlabelled[:2] + unlabelled[-3:]", data_dir=copy)
  assert len(both) == 5


@pytest.mark.parametrize("name", [*SETS, "cifar100/3.0.2", "voc/2007/4.0.0"])
def test_a_missing_set_is_prepared_by_its_own_command(monkeypatch, tmp_path, name):
  called = {"cifar100/3.0.2": "cifar100:3.0.2", "voc/2007/4.0.0": "voc/2007:4.0.0"}
  command = f"tfds.builder('{called.get(name, name)}', data_dir='DIR', file_format="
  monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
  for options in ({"data_dir": tmp_path}, {"data_dir": tmp_path / "nowhere"}, {}):
    refuses(re.escape(command), name, "train", error=FileNotFoundError, **options)


@pytest.mark.data
@pytest.mark.parametrize("file", ["dataset_info.json", "features.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"no json"])
def test_damaged_descriptions(copy, file, content):
  (copy / "stl10/1.0.0" / file).write_bytes(content)
  message = r"of 'stl10' in .*1\.0\.0 is damaged \("
  refuses(message, "stl10", "unlabelled", data_dir=copy)
