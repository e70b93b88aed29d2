"""What `embed` keeps, and the lists and vectors that `dynamic_assignment` is given."""

import json
import pickle

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.extra import numpy as arrays_of

from experiments.assignment import readers
from experiments.embedding import parts
from spherejax import data as image_data
from tests.fuzz import inputs

pytestmark = pytest.mark.timeout(300)
FILES = {"a.png": "1 2", "b.png": "3 4", "c.png": "5 6"}
MADE = {"from": "/pictures", "network": {"width": 8, "pooling": "a"}, "weights": "0a"}
FOUND = {
  "files": [["a.png", "1 2"], ["c.png", "5 6"]],
  "unreadable": [["b.png", "3 4", "no picture"]],
}
EMBEDDED = json.dumps({"settings": MADE, "files": FILES}).encode()
PART = json.dumps({"settings": MADE, "figures": FOUND}).encode()


def rewritten(record, *path, value):
  return json.dumps(inputs.exchanged(json.loads(record), path, value)).encode()


@inputs.search(150)
@hypothesis.given(inputs.changed(EMBEDDED))
@hypothesis.example(EMBEDDED)
@hypothesis.example(rewritten(EMBEDDED, "settings", value={"network": {}}))
@hypothesis.example(rewritten(EMBEDDED, "settings", value=[]))
@hypothesis.example(rewritten(EMBEDDED, "settings", "network", value="x"))
@hypothesis.example(rewritten(EMBEDDED, "settings", "from", value="a\nb"))
@hypothesis.example(rewritten(EMBEDDED, "files", value=None))
@hypothesis.example(rewritten(EMBEDDED, "files", "a.png", value=3))
def test_listings_of_embeddings(tmp_path, content):
  (tmp_path / "listing.json").write_bytes(content)
  same = inputs.attempt(
    lambda: parts.compare(tmp_path, MADE, FILES, "images") is None,
    (SystemExit, ValueError),
    rf"^{tmp_path}(/listing\.json is damaged; .*| holds embeddings of .*)\Z",
  )
  if same:
    assert json.loads(content)["settings"] == MADE
  else:
    assert content != EMBEDDED


def embedded(folder, record, arrays):
  """What is read from a part of this content."""
  (folder / "part-000000.json").write_bytes(record)
  (folder / "part-000000.npz").write_bytes(arrays)
  found = inputs.attempt_within(
    len(record) + len(arrays),
    lambda: parts.restore(folder, MADE, FILES, 4),
    ValueError,
    r"part-000000\.(json|npz) is damaged; without it, it is made again: .*\Z",
  )
  if found is not None:
    done, unreadable = found
    assert done.keys() | unreadable.keys() <= set(range(3))
    assert all(row.shape == (4,) and row.dtype == np.float32 for row in done.values())
    assert all(isinstance(why, str) for why in unreadable.values())
  return found


@inputs.search(150)
@hypothesis.given(st.data())
def test_parts_of_embeddings(tmp_path, data):
  whole = inputs.archive(embeddings=inputs.array_bytes(np.eye(2, 4, dtype=np.float32)))
  done, unreadable = embedded(tmp_path, PART, whole)
  assert (done.keys(), unreadable) == ({0, 2}, {1: "no picture"})
  embedded(tmp_path, data.draw(inputs.changed(PART)), whole)
  other = inputs.ARRAYS.map(inputs.array_bytes).map(
    lambda content: inputs.archive(embeddings=content)
  )
  embedded(tmp_path, PART, data.draw(st.binary() | inputs.damaged(whole) | other))


@pytest.mark.parametrize(
  "figures",
  [
    {"files": FOUND["files"]},
    {"unreadable": []},
    FOUND | {"files": FOUND["files"][:1]},
    FOUND | {"files": [["a.png", "1 2"], ["c.png", ["5 6"]]]},
    FOUND | {"unreadable": [["b.png", "3 4"]]},
    FOUND | {"unreadable": ["abc"]},
    [],
  ],
)
def test_parts_without_what_belongs_there(tmp_path, figures):
  whole = inputs.archive(embeddings=inputs.array_bytes(np.eye(2, 4, dtype=np.float32)))
  assert embedded(tmp_path, rewritten(PART, "figures", value=figures), whole) is None


@pytest.mark.parametrize(
  "arrays",
  [
    {},
    {"embedding": np.eye(2, 4, dtype=np.float32)},
    {"embeddings": np.eye(1, 4, dtype=np.float32)},
    {"embeddings": np.eye(2, 5, dtype=np.float32)},
    {"embeddings": np.zeros(2, np.float32)},
    {"embeddings": np.eye(2, 4)},
    {"embeddings": np.eye(2, 4, dtype=">f4")},
    {"embeddings": np.full((2, 4), "a")},
  ],
)
def test_parts_of_other_arrays(tmp_path, arrays):
  contents = {name: inputs.array_bytes(array) for name, array in arrays.items()}
  assert embedded(tmp_path, PART, inputs.archive(**contents)) is None


NAMED = b"train/a/one.JPEG 0\n\ntrain/b/two.JPEG 1\nthree.JPEG\n"
NAMES = ("one.JPEG", "two.JPEG", "three.JPEG", "four.JPEG")


@inputs.search(200)
@hypothesis.given(
  st.binary()
  | inputs.damaged(NAMED)
  | st.lists(st.sampled_from(NAMES) | st.text(max_size=4)).map(
    lambda lines: "\n".join(lines).encode()
  )
)
@hypothesis.example(NAMED)
@hypothesis.example(b"")
@hypothesis.example(b"\xff\xd8\xff")
@hypothesis.example(b"one.JPEG,0")
@hypothesis.example(b"one.JPEG 0 0")
@hypothesis.example(b"one.JPEG two.JPEG")
@hypothesis.example(b"a/one.JPEG 0\nb/one.JPEG 1")
def test_lists_of_training_images(tmp_path, content):
  path = tmp_path / "list.txt"
  path.write_bytes(content)
  labels = np.arange(4, dtype=np.int32)
  images = image_data.Images(
    np.zeros((4, 2, 2, 1), np.uint8), labels, NAMES, {"file_name": np.array(NAMES)}
  )
  rows = inputs.attempt(
    lambda: readers.listed(images, path), ValueError, rf"^{path}[ ,].*\Z"
  )
  if rows is None:
    assert content != NAMED
    return
  lines = content.decode().splitlines()
  named = [line.split()[0].rsplit("/", 1)[-1] for line in lines if line.strip()]
  assert sorted(NAMES[row] for row in rows) == sorted(named) != []


VECTORS = inputs.array_bytes(np.eye(4, 3))


@inputs.search(200)
@hypothesis.given(
  st.binary()
  | inputs.damaged(VECTORS)
  | inputs.ARRAYS.map(inputs.array_bytes)
  | arrays_of.arrays(
    st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.bool_]),
    st.sampled_from([(4, 2), (4, 0), (4, 1, 1), (3, 2)]),
  ).map(inputs.array_bytes)
)
@hypothesis.example(VECTORS)
@hypothesis.example(inputs.array_bytes(np.full((4, 2), np.nan)))
@hypothesis.example(inputs.array_bytes(np.full((4, 2), 1e39)))
@hypothesis.example(inputs.array_bytes(np.full((4, 2), "1.5")))
@hypothesis.example(inputs.array_bytes(np.asfortranarray(np.eye(4, 2, dtype=">f4"))))
@hypothesis.example(b"0.1 0.2\n0.3 0.4\n")
@hypothesis.example(inputs.array_file(inputs.header((4, 1 << 60))))
@hypothesis.example(
  inputs.array_file(inputs.header((4, 2), "|O"), pickle.dumps([inputs.Attack()] * 8))
)
@hypothesis.example(pickle.dumps(inputs.Attack()))
@hypothesis.example(inputs.archive(a=VECTORS))
def test_vectors_of_classes(tmp_path, content):
  path = tmp_path / "vectors.npy"
  path.write_bytes(content)
  found = inputs.attempt_within(
    len(content),
    lambda: readers.stored_vectors(path, 4),
    ValueError,
    rf"^{path}[ :].*\Z",
  )
  if found is None:
    assert content != VECTORS
    return
  assert found.shape[0] == 4
  assert found.size > 0
  assert found.dtype == np.float32
  assert np.isfinite(found).all()
