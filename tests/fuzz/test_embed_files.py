"""Files of the explorer, and lists of images for `dynamic_assignment`."""

import json
import pickle

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.extra import numpy as arrays_of

from experiments.assignment import readers
from spherejax import data as image_data
from spherejax.explorer import _embedding
from tests.fuzz import inputs

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("unchecked")]
MADE = {"network": "0a", "files": [["a.png", "1 2"], ["c.png", "5 6"]]}
MANIFEST = json.dumps({"made with": MADE, "done": 2}).encode()
ROWS = np.eye(2, 4, dtype=np.float16)


def rewritten(value, *path):
  return json.dumps(inputs.exchanged(json.loads(MANIFEST), path, value)).encode()


def known(folder, manifest, rows):
  """Reads stored features: known rows, or nothing."""
  (folder / "features-0123456789ab.json").write_bytes(manifest)
  (folder / "features-0123456789ab.npy").write_bytes(rows)
  found = _embedding._known(folder, "0a")
  for (name, stamp), row in found.items():
    assert isinstance(name, str)
    assert isinstance(stamp, str)
    assert row.dtype == np.float16
    assert row.ndim == 1
  return found


def test_whole_features_are_known(tmp_path):
  found = known(tmp_path, MANIFEST, inputs.array_bytes(ROWS))
  assert [*found] == [("a.png", "1 2"), ("c.png", "5 6")]


@inputs.search(150, inputs.changed(MANIFEST))
@inputs.examples(*(rewritten(value, "done") for value in (None, 7)))
@inputs.examples(rewritten([], "made with"))
@inputs.examples(*(rewritten(x, "made with", "files") for x in (None, ["ab", "cd"])))
def test_manifests_of_features(tmp_path, content):
  known(tmp_path, content, inputs.array_bytes(ROWS))


@inputs.search(
  150,
  inputs.damaged(inputs.array_bytes(ROWS))
  | inputs.ARRAYS.map(inputs.array_bytes)
  | st.binary(),
)
@hypothesis.example(inputs.array_bytes(ROWS[:1]))
@hypothesis.example(inputs.array_bytes(ROWS.astype(np.float32)))
def test_arrays_of_features(tmp_path, content):
  known(tmp_path, MANIFEST, content)


NAMED = b"train/a/one.JPEG 0\n\ntrain/b/two.JPEG 1\nthree.JPEG\n"
NAMES = ("one.JPEG", "two.JPEG", "three.JPEG", "four.JPEG")


@inputs.search(
  200,
  st.binary()
  | inputs.damaged(NAMED)
  | st.lists(st.sampled_from(NAMES) | st.text(max_size=4)).map(
    lambda lines: "\n".join(lines).encode()
  ),
)
@inputs.examples(NAMED, b"", b"\xff\xd8\xff", b"one.JPEG,0", b"one.JPEG 0 0")
@inputs.examples(b"one.JPEG two.JPEG", b"a/one.JPEG 0\nb/one.JPEG 1")
def test_lists_of_training_images(tmp_path, content):
  path = tmp_path / "list.txt"
  path.write_bytes(content)
  labels = np.arange(4, dtype=np.int32)
  images = image_data.Images(
    np.zeros((4, 2, 2, 1), np.uint8), labels, NAMES, {"file_name": np.array(NAMES)}
  )
  rows = inputs.attempt(rf"^{path}[ ,].*\Z", readers.listed, images, path)
  if rows is None:
    assert content != NAMED
    return
  lines = content.decode().splitlines()
  named = [line.split()[0].rsplit("/", 1)[-1] for line in lines if line.strip()]
  assert sorted(NAMES[row] for row in rows) == sorted(named) != []


VECTORS = inputs.array_bytes(np.eye(4, 3))


@inputs.search(
  200,
  st.binary()
  | inputs.damaged(VECTORS)
  | inputs.ARRAYS.map(inputs.array_bytes)
  | arrays_of.arrays(
    st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.bool_]),
    st.sampled_from([(4, 2), (4, 0), (4, 1, 1), (3, 2)]),
  ).map(inputs.array_bytes),
)
@inputs.examples(VECTORS, b"0.1 0.2\n0.3 0.4\n", inputs.archive(a=VECTORS))
@inputs.examples(
  *(inputs.array_bytes(np.full((4, 2), x)) for x in (np.nan, 1e39, "1.5"))
)
@hypothesis.example(inputs.array_bytes(np.asfortranarray(np.eye(4, 2, dtype=">f4"))))
@hypothesis.example(inputs.array_file(inputs.header((4, 1 << 60))))
@hypothesis.example(
  inputs.array_file(inputs.header((4, 2), "|O"), pickle.dumps([inputs.Attack()] * 8))
)
@hypothesis.example(pickle.dumps(inputs.Attack()))
def test_vectors_of_classes(tmp_path, content):
  path = tmp_path / "vectors.npy"
  path.write_bytes(content)
  size, named = len(content), rf"^{path}[ :].*\Z"
  found = inputs.attempt_within(size, named, readers.stored_vectors, path, 4)
  if found is None:
    assert content != VECTORS
    return
  assert found.shape[0] == 4
  assert found.size > 0
  assert found.dtype == np.float32
  assert np.isfinite(found).all()
