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


# The builder's name, all classes, those that are learned, and what a record of a class
# has beside its picture.
SETS = {
  "cub": (
    "caltech_birds2011", 200, 100,
    lambda x: {
      "label": x, "label_name": "a bird", "image/filename": "bird.jpg", "bbox": BOX,
      "segmentation_mask": picture(0),
    },
  ),
  "cars": ("cars196", 196, 98, lambda x: {"label": x, "bbox": BOX, "id": "car"}),
  "sop": (
    "stanford_online_products", 22_634, 11_318,
    lambda x: {"class_id": x, "super_class_id": x % 12, "super_class_id/num": x % 12},
  ),
}  # fmt: skip


@pytest.fixture
def prepare(tmp_path, monkeypatch):
  """Writes records of these classes by the package's own builder of the set."""
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))

  def write(dataset, **splits):
    name, _, _, fields = SETS[dataset]

    def record(number):
      return {"image": picture(int(number)), **fields(int(number))}

    def generators(self, manager):
      return {split: enumerate(map(record, x)) for split, x in splits.items()}

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
  _, classes, learned, _ = SETS[dataset]
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
  _, classes, learned, _ = SETS["sop"]
  # Unlike birds, the parts of the prepared set have different classes.
  prepare("sop", train=range(learned), test=range(learned, classes))
  sets = retrieval_full_sets.load("sop", "", 0, False)
  # Classes, not the twelve kinds of products.
  for part, first, count in ((sets.learned, 0, 11_318), (sets.sought, learned, 11_316)):
    assert len(part) == len(part.label_names) == count
    np.testing.assert_array_equal(np.bincount(part.labels), 1)
    for place in np.random.default_rng(1).integers(0, count, 50):
      assert seen_class(part, place) == first + part.labels[place]
  np.testing.assert_array_equal(np.sort(sets.learned.extras["row"]), np.arange(learned))


@pytest.mark.parametrize("dataset", SETS)
def test_missing_classes_are_said(dataset, prepare):
  _, classes, learned, _ = SETS[dataset]
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
