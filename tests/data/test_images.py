"""Image sets, and their batches by a plan."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from spherejax import data
from spherejax.data import _images
from tests import refusals


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


CHOSEN = [(slice(1, 4), [1, 2, 3]), (np.array([4, 0, 4]), [4, 0, 4])]
CHOSEN += [([False, True, False, False, False, True], [1, 5])]


@pytest.mark.parametrize(("index", "rows"), CHOSEN)
@pytest.mark.parametrize("as_list", [False, True])
def test_rows_keep_what_belongs_to_them(index, rows, as_list):
  every = list(pixels()) if as_list else pixels()
  labels, extras = np.array([0, 1, 2, 0, 1, 2]), {"id": np.array(list("uvwxyz"))}
  images = data.Images(every, labels, ("a", "b", "c"), extras)[index]
  np.testing.assert_array_equal(images.images, pixels()[rows])
  np.testing.assert_array_equal(images.labels, np.array(rows) % 3)
  assert list(images.extras["id"]) == [list("uvwxyz")[row] for row in rows]


def test_classes_that_are_taken_get_new_labels():
  labels, extras = np.array([0, 1, 2, 0, 1, -1]), {"id": np.array(list("uvwxyz"))}
  images = data.Images(pixels(), labels, ("a", "b", "c"), extras)
  taken = data.take_classes(images, [2, 0])
  np.testing.assert_array_equal(taken.images, pixels()[[0, 2, 3]])
  assert taken.labels.tolist() == [1, 0, 1]
  assert taken.label_names == ("c", "a")
  assert list(taken.extras["id"]) == ["u", "w", "x"]
  with pytest.raises(ValueError, match="the data set is empty"):
    data.take_classes(images[:2], [2])


named = partial(data.from_arrays, pixels(), label_names=["a", "b"])
ZEROS = data.from_arrays(pixels(), np.zeros(6, int))
MIXED = [*pixels()[:5], pixels()[5] / 255]
REFUSED = [
  (partial(data.from_arrays, pixels(0), np.zeros(0, int)), "data set is empty"),
  (partial(ZEROS.__getitem__, ZEROS.labels == 3), "data set is empty"),
  (partial(named, np.array([0, 1, 0, 1, 2, 0])), r"in \[0, 2\).*label 4 is 2"),
  (partial(data.from_arrays, pixels(), np.array([0, -2, 0, 1, 2, 0])), "label 1 is -2"),
  # Compared with the names before it is cut to 32 bits.
  (partial(named, np.array([0, 1, 2**32, 0, 0, 0])), "label 2 is 4294967296"),
  (
    partial(data.Images, MIXED, np.zeros(6, int), ("a",)),
    r"TypeError: images\[5\] must be uint8, got dtype float64",
  ),
]


@refusals.table(REFUSED)
def test_what_is_no_set_of_images(call, message, unchecked):
  refusals.check(call, message)


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


# --- Batches ---

PIXELS = np.random.default_rng(0).integers(0, 256, [40, 4, 5, 3]).astype(np.uint8)
LABELS = np.arange(40) % 5
IMAGES = data.from_arrays(PIXELS, LABELS)
STEPS = 12


@pytest.fixture(scope="module")
def plan():
  table = data.class_table(LABELS, per_class=2)
  given, options = (jax.random.key(0), table), {"num_classes": 4, "per_class": 2}
  sample = partial(data.class_balanced_indices, *given, **options)
  return np.asarray(jax.jit(jax.vmap(sample))(jnp.arange(STEPS)))


@pytest.fixture
def lazy(tmp_path):
  """The same images as files, decoded when asked for."""
  for row, (image, label) in enumerate(zip(PIXELS, LABELS, strict=True)):
    (tmp_path / str(label)).mkdir(exist_ok=True)
    Image.fromarray(image).save(tmp_path / f"{label}/{row:02}.png")
  order = np.argsort(LABELS, kind="stable")
  return data.load_folder(tmp_path, lazy=True)[np.argsort(order)]


def assert_same(batches, expected):
  batches = list(batches)
  assert len(batches) == len(expected)
  for batch, index in zip(batches, expected, strict=True):
    assert batch.keys() == {"image", "label", "index"}
    np.testing.assert_array_equal(batch["index"], index)
    np.testing.assert_array_equal(batch["image"], PIXELS[index])
    np.testing.assert_array_equal(batch["label"], LABELS[index])
    assert batch["image"].dtype == np.uint8
    assert batch["label"].dtype == batch["index"].dtype == np.int32


def test_batches_follow_the_plan(plan, lazy):
  assert_same(data.pipeline(IMAGES, plan), plan)
  assert_same(data.pipeline(lazy, plan, prefetch=2), plan)
  varying = data.Images(list(PIXELS), LABELS, tuple("abcde"))
  assert_same(data.pipeline(varying, plan, prefetch=1), plan)


@pytest.mark.parametrize("start", [0, 1, 7, STEPS])
def test_start_at_any_step(plan, start):
  assert_same(data.pipeline(IMAGES, plan, start=start), plan[start:])


@pytest.mark.parametrize("first", [0, 1, 2, 5])
def test_shuffled_batches_go_on_from_any_step(first):
  key, size = (
    jax.random.key(3),
    len(PIXELS) * 2 // 5,
  )  # two batches an epoch, and a rest
  draw = partial(data.shuffled_indices, key, len(PIXELS), batch_size=size)
  expected = [np.asarray(draw(first + number)) for number in range(5)]
  begin = data.batches(IMAGES, key, batch_size=size)
  assert_same(itertools.islice(begin(first), 5), expected)
  with pytest.raises(ValueError, match="first must be at least 0, got -1"):
    next(begin(-1))


@pytest.mark.parametrize("stop", [1, 5, STEPS - 1])
def test_a_saved_state_continues_exactly(plan, stop):
  iterator, fresh = (iter(data.pipeline(IMAGES, plan)) for _ in range(2))
  assert_same(itertools.islice(iterator, stop), plan[:stop])
  fresh.set_state(iterator.get_state())
  assert_same(iterator, plan[stop:])
  assert_same(fresh, plan[stop:])


def test_worker_processes_give_the_same_batches(plan, lazy):
  iterator = iter(data.pipeline(lazy, plan, workers=1, start=2))
  try:
    assert_same(itertools.islice(iterator, 4), plan[2:6])
    state = iterator.get_state()
    assert_same(itertools.islice(iterator, 2), plan[6:8])
    iterator.set_state(state)
    assert_same(iterator, plan[6:])
  finally:
    iterator.close()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_hosts_share_each_batch(plan, count):
  parts = [
    list(data.pipeline(IMAGES, plan, process_index=index, process_count=count))
    for index in range(count)
  ]
  for step, batches in enumerate(zip(*parts, strict=True)):
    whole = {name: np.concatenate([x[name] for x in batches]) for name in batches[0]}
    assert_same([whole], plan[step : step + 1])


def test_evaluation_in_order(lazy):
  batches = list(data.pipeline(lazy, data.ordered_plan(40, batch_size=16)))
  labels = np.concatenate([batch["label"] for batch in batches])[:40]
  np.testing.assert_array_equal(labels, LABELS)


def test_unreadable_images_are_named(plan, lazy, tmp_path):
  row = plan[3, 2]
  (tmp_path / f"{LABELS[row]}/{row:02}.png").write_bytes(b"broken")
  first = int((plan == row).any(1).argmax())
  iterator = iter(data.pipeline(lazy, plan))
  assert_same(itertools.islice(iterator, first), plan[:first])
  with pytest.raises(ValueError, match=rf"cannot read the image .*{row:02}\.png"):
    next(iterator)


def test_images_of_several_sizes_are_refused():
  images = data.Images([PIXELS[0], PIXELS[1, :3]], np.zeros(2, int), ("a",))
  with pytest.raises(ValueError, match=r"\(3, 5, 3\) and \(4, 5, 3\); give the reader"):
    next(iter(data.pipeline(images, np.array([[0, 1]]))))


@pytest.mark.parametrize(
  "dtype", ["int8", "uint8", "uint16", "uint32", "int64", "uint64"]
)
def test_labels_of_every_integer_type(dtype):
  labels = np.array([2, 0, 1, 0, 2, 1])
  images = data.from_arrays(pixels(), labels.astype(dtype))
  assert images.labels.dtype == np.int32
  np.testing.assert_array_equal(images.labels, labels)
  assert images.label_names == ("0", "1", "2")
