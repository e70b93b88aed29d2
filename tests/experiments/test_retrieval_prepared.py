"""Birds, cars and products as tensorflow-datasets prepares them, with tiny pictures."""

import io

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from experiments.metric_learning.photographs import sets as retrieval_full_sets

BOX = tfds.features.BBox(0.0, 0.0, 1.0, 1.0)


def picture(number):
  """A picture whose colour tells the class."""
  file = io.BytesIO()
  colour = number >> 16, number >> 8 & 255, number & 255
  Image.new("RGB", (2, 3), colour).save(file, "png")
  file.seek(0)
  return file


def bird(number):
  return {
    "label": number, "label_name": "a bird", "image": picture(number),
    "image/filename": "bird.jpg", "bbox": BOX, "segmentation_mask": picture(0),
  }  # fmt: skip


def car(number):
  return {"label": number, "image": picture(number), "bbox": BOX, "id": "car"}


def product(number):
  kind = number % 12
  return {
    "class_id": number, "super_class_id": kind, "super_class_id/num": kind,
    "image": picture(number),
  }  # fmt: skip


# The builder's name, a record of a class, all classes and those that are learned.
SETS = {
  "cub": ("caltech_birds2011", bird, 200, 100),
  "cars": ("cars196", car, 196, 98),
  "sop": ("stanford_online_products", product, 22_634, 11_318),
}


@pytest.fixture
def prepare(tmp_path, monkeypatch):
  """Writes records of these classes by the package's own builder of the set."""
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))

  def write(dataset, **splits):
    name, record, _, _ = SETS[dataset]

    def generators(self, manager):
      return {
        split: ((place, record(int(c))) for place, c in enumerate(classes))
        for split, classes in splits.items()
      }

    try:
      monkeypatch.setattr(tfds.builder_cls(name), "_split_generators", generators)
      builder = tfds.builder(name, data_dir=tmp_path, file_format="array_record")
      builder.download_and_prepare()
    except (ImportError, OSError) as error:
      pytest.skip(f"tensorflow-datasets cannot prepare {name} here: {error}")

  return write


def seen_class(pictures, place):
  return pictures.images[place][0, 0].astype(int) @ [65536, 256, 1]


@pytest.mark.parametrize("dataset", ["cub", "cars"])
def test_half_of_the_birds_and_cars_are_learned(dataset, prepare):
  _, _, classes, learned = SETS[dataset]
  # Both parts of the prepared set have every class, in any order.
  order = np.random.default_rng(0).permutation(classes)
  prepare(dataset, train=order, test=[*order[::-1], 7, classes - 1])
  sets = retrieval_full_sets.load(dataset, "", 0, False)
  assert "query" not in sets.sought.extras
  assert len(sets.learned.label_names) == len(sets.sought.label_names) == learned
  for pictures, first in ((sets.learned, 0), (sets.sought, learned)):
    wanted = np.full(learned, 2)
    wanted[7 if first == 0 else -1] += 1
    np.testing.assert_array_equal(np.bincount(pictures.labels), wanted)
    for place in range(len(pictures)):
      assert seen_class(pictures, place) == first + pictures.labels[place]


@pytest.mark.slow
def test_products_are_divided_as_their_parts(prepare, monkeypatch):
  monkeypatch.setattr(retrieval_full_sets, "_broken", lambda pictures: {})
  _, _, classes, learned = SETS["sop"]
  # Unlike birds, the parts of the prepared set have different classes.
  prepare("sop", train=range(learned), test=range(learned, classes))
  sets = retrieval_full_sets.load("sop", "", 0, False)
  # Classes, not the twelve kinds of products.
  assert (len(sets.learned), len(sets.learned.label_names)) == (11_318, 11_318)
  assert (len(sets.sought), len(sets.sought.label_names)) == (11_316, 11_316)
  np.testing.assert_array_equal(np.bincount(sets.learned.labels), 1)
  np.testing.assert_array_equal(np.bincount(sets.sought.labels), 1)
  for pictures, first in ((sets.learned, 0), (sets.sought, learned)):
    for place in np.random.default_rng(1).integers(0, len(pictures), 50):
      assert seen_class(pictures, place) == first + pictures.labels[place]
  np.testing.assert_array_equal(np.sort(sets.learned.extras["row"]), np.arange(learned))


@pytest.mark.parametrize("dataset", SETS)
def test_missing_classes_are_said(dataset, prepare):
  _, _, classes, learned = SETS[dataset]
  there = [0, 3, 5, 6, 13, 150]
  prepare(dataset, train=there, test=there)
  with pytest.raises(
    SystemExit,
    match=f"{dataset} has {classes} classes, of which the first {learned} are learned;"
    " this one has 6: say how many to learn by --learned-classes",
  ):
    retrieval_full_sets.load(dataset, "", 0, False)
  # The classes that are there, in their order.
  sets = retrieval_full_sets.load(dataset, "", 2, False)
  assert sorted({seen_class(sets.learned, i) for i in range(4)}) == there[:2]
  assert sorted({seen_class(sets.sought, i) for i in range(8)}) == there[2:]
  assert (len(sets.learned), len(sets.sought)) == (4, 8)
  with pytest.raises(SystemExit, match="some of the 6 classes to be sought, got 6"):
    retrieval_full_sets.load(dataset, "", 6, False)


@pytest.mark.parametrize("dataset", SETS)
def test_sets_that_are_not_prepared_are_named(dataset, prepare, tmp_path):
  message = f"{dataset} cannot be read: no image set '{SETS[dataset][0]}'"
  with pytest.raises(SystemExit, match=message):
    retrieval_full_sets.load(dataset, "", 0, False)
  prepare(dataset, train=[0, 1])
  message = f"{dataset} cannot be read: .* has no split 'test'; .*: train"
  with pytest.raises(SystemExit, match=message):
    retrieval_full_sets.load(dataset, "", 0, False)
