import numpy as np
import pytest

from spherejax import data
from spherejax.data import _images


def pixels(count=6):
  return np.arange(count * 12, dtype=np.uint8).reshape(count, 2, 3, 2)


def test_arrays_become_images():
  labels = np.array([0, 1, 2, 0, 1, -1])
  images = data.from_arrays(pixels(), labels, label_names=list("abc"))
  assert len(images) == 6
  assert images.label_names == ("a", "b", "c")
  assert images.labels.dtype == np.int32
  np.testing.assert_array_equal(images.images, pixels())
  # Grey images get a channel, and classes get numbers.
  images = data.from_arrays(pixels()[..., 0], np.array([0, 4, 0, 0, 0, 0]))
  np.testing.assert_array_equal(images.images, pixels()[..., :1])
  assert images.label_names == tuple("01234")


@pytest.mark.parametrize(
  ("index", "rows"),
  [
    (slice(1, 4), [1, 2, 3]),
    (np.array([4, 0, 4]), [4, 0, 4]),
    ([False, True, False, False, False, True], [1, 5]),
  ],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_rows_keep_what_belongs_to_them(index, rows, as_list):
  every = list(pixels()) if as_list else pixels()
  labels, extras = np.array([0, 1, 2, 0, 1, 2]), {"id": np.array(list("uvwxyz"))}
  images = data.Images(every, labels, ("a", "b", "c"), extras)[index]
  np.testing.assert_array_equal(images.images, pixels()[rows])
  np.testing.assert_array_equal(images.labels, np.array(rows) % 3)
  assert list(images.extras["id"]) == [list("uvwxyz")[row] for row in rows]


def test_empty_data_set():
  with pytest.raises(ValueError, match="data set is empty"):
    data.from_arrays(pixels(0), np.zeros(0, int))
  images = data.from_arrays(pixels(), np.zeros(6, int))
  with pytest.raises(ValueError, match="data set is empty"):
    images[images.labels == 3]


@pytest.mark.parametrize(
  ("labels", "names", "message"),
  [
    ([0, 1, 0, 1, 2, 0], ["a", "b"], r"in \[0, 2\).*label 4 is 2"),
    ([0, -2, 0, 1, 2, 0], None, "label 1 is -2"),
    # Compared with the names before it is cut to 32 bits.
    ([0, 1, 2**32, 0, 0, 0], ["a", "b"], "label 2 is 4294967296"),
  ],
)
def test_label_out_of_range(labels, names, message):
  with pytest.raises(ValueError, match=message):
    data.from_arrays(pixels(), np.array(labels), label_names=names)


@pytest.mark.usefixtures("unchecked")
def test_a_list_with_an_image_of_another_type():
  listed = [*pixels()[:5], pixels()[5] / 255]
  with pytest.raises(TypeError, match=r"images\[5\] must be uint8, got dtype float64"):
    data.Images(listed, np.zeros(6, int), ("a",))


@pytest.mark.parametrize("odd", [None, 1, 150])
def test_images_are_gathered_into_one_array_unless_one_differs(odd):
  """Several chunks keep their order; an odd size is in the first or a later chunk."""
  every = [np.full((3, 2, 1), row, np.uint8) for row in range(200)]
  if odd is not None:
    every[odd] = np.full((2, 2, 1), odd, np.uint8)
  collected = _images.collect(_images.Lazy(every.__getitem__, np.arange(200)))
  assert isinstance(collected, np.ndarray) == (odd is None)
  for image, expected in zip(collected, every, strict=True):
    np.testing.assert_array_equal(image, expected)


@pytest.mark.parametrize(
  "dtype", ["int8", "uint8", "uint16", "uint32", "int64", "uint64"]
)
def test_labels_of_every_integer_type(dtype):
  labels = np.array([2, 0, 1, 0, 2, 1])
  images = data.from_arrays(pixels(), labels.astype(dtype))
  assert images.labels.dtype == np.int32
  np.testing.assert_array_equal(images.labels, labels)
  assert images.label_names == ("0", "1", "2")


@pytest.mark.parametrize("far", [10**9, 2**32, 2**62])
def test_large_labels_have_names_for_those_that_occur_only(far):
  labels = np.array([far, 7, -1, far, far + 1, 7])
  images = data.from_arrays(pixels(), labels)
  np.testing.assert_array_equal(images.labels, [1, 0, -1, 1, 2, 0])
  assert images.label_names == ("7", str(far), str(far + 1))
  known = [images.label_names[label] for label in images.labels if label >= 0]
  assert known == [str(label) for label in labels if label >= 0]
  with pytest.raises(ValueError, match=r"label 2 is -9"):
    data.from_arrays(pixels(), np.where(labels == -1, -9, labels))
