"""Files that experiments read back: kept runs, committed results, In-shop's list."""

import json
import pathlib
import pickle
import zipfile

import hypothesis.strategies as st
import numpy as np
import pytest

from experiments import results_page
from experiments.frame import kept as finished
from spherejax import data
from tests.fuzz import inputs

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("unchecked")]
SETTINGS = {"steps": 3, "made with": "0123456789abcdef"}


def kept(folder, figures=None, arrays=None):
  """Both files of a run, as `keep` writes them."""
  path = folder / "run"
  arrays = {"a": np.arange(3.0), "b/c": np.eye(2)} if arrays is None else arrays
  done = finished.Finished({"x": 1.5} if figures is None else figures, arrays)
  finished.keep(path, SETTINGS, done)
  return path


def restored(path, record, arrays):
  """Reads files of this content."""
  path.with_suffix(".json").write_bytes(record)
  path.with_suffix(".npz").write_bytes(arrays)
  size = len(record) + len(arrays)
  named = r"run\.(json|npz) is damaged; without it, it is made again"
  done = inputs.attempt_within(size, named, finished.restore, path, SETTINGS)
  if done is not None:
    assert all(type(array) is np.ndarray for array in done.arrays.values())
    assert not any(array.dtype.hasobject for array in done.arrays.values())
  return done


@inputs.search(
  60,
  st.dictionaries(st.text(max_size=5), inputs.JSON, max_size=3),
  st.dictionaries(st.text("ab/. é", max_size=5), inputs.ARRAYS, max_size=3),
)
def test_a_kept_run_comes_back(tmp_path, figures, arrays):
  done = finished.restore(kept(tmp_path, figures, arrays), SETTINGS)
  assert done is not None
  assert json.dumps(done.figures) == json.dumps(figures)  # NaN is not NaN
  assert list(done.arrays) == list(arrays)
  for name, array in arrays.items():
    assert done.arrays[name].dtype == array.dtype
    np.testing.assert_array_equal(done.arrays[name], array)


@inputs.search(150, st.data())
def test_damaged_kept_runs(tmp_path, data):
  path = kept(tmp_path)
  record = path.with_suffix(".json").read_bytes()
  arrays = path.with_suffix(".npz").read_bytes()
  restored(path, data.draw(st.binary() | inputs.damaged(record)), arrays)
  restored(path, record, data.draw(st.binary() | inputs.damaged(arrays)))


@inputs.search(
  80, st.fixed_dictionaries({}, optional={"settings": inputs.JSON}) | inputs.JSON
)
@inputs.examples({"settings": SETTINGS}, [])
def test_records_without_what_belongs_there(tmp_path, record):
  path = kept(tmp_path)
  arrays = path.with_suffix(".npz").read_bytes()
  assert restored(path, json.dumps(record).encode(), arrays) is None


ATTACK = pickle.dumps(np.array([inputs.Attack()], object))
OBJECTS = inputs.array_file(inputs.header((1,), "|O"), ATTACK)
HOSTILE = [
  OBJECTS,
  pickle.dumps(inputs.Attack()),
  inputs.archive(a=OBJECTS),
  inputs.archive(a=pickle.dumps(inputs.Attack())),
  inputs.archive(a=inputs.array_file(inputs.header((1,), [("x", "|O")]), OBJECTS)),
  inputs.archive(a=inputs.array_file(inputs.header((1 << 27,)))),
  inputs.archive(a=inputs.array_file(inputs.header((1 << 62,)))),
  inputs.archive(a=inputs.array_file(inputs.header((-1,)), b"\0" * 8)),
  inputs.archive(a=inputs.array_file(inputs.header((0, 1 << 70)))),
  inputs.archive(a=inputs.array_file(inputs.header((1 << 40,), "|S0"))),
  inputs.archive(a=inputs.array_file("[" * 5000 + "]" * 5000)),
  inputs.archive(a=b"no array"),
  inputs.archive(
    zipfile.ZIP_DEFLATED,
    a=inputs.array_file(inputs.header((10**6,)), b"\0" * (8 * 10**6)),
  ),
  b"",
  b"PK",
  inputs.array_file(inputs.header((2,)), b"\0" * 16),
]


@pytest.mark.parametrize("arrays", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_arrays(tmp_path, arrays):
  path = kept(tmp_path)
  assert restored(path, path.with_suffix(".json").read_bytes(), arrays) is None


@pytest.mark.parametrize(
  "record", [b"[" * 10**5, b'{"a":' * 10**5, b"9" * 10**5, b"\xff"]
)
def test_hostile_records(tmp_path, record):
  path = kept(tmp_path)
  assert restored(path, record, path.with_suffix(".npz").read_bytes()) is None


RESULT = (results_page.DOCS / "results" / "quickstart.json").read_bytes()


@inputs.search(150, inputs.changed(RESULT))
@inputs.examples(b"[" * 10**5, b"{}", b"[]", b"\xff")
def test_results(tmp_path, content):
  path = tmp_path / "result.json"
  path.write_bytes(content)
  named = r"result\.json is no result"
  result = inputs.attempt(named, results_page.read, path, errors=SystemExit)
  if result is not None:
    assert "## Every run" in results_page.overview([result])


LISTING = b"""3
image_name item_id evaluation_status
a.jpg one train
b.jpg two query
c.jpg two gallery
"""
STRAY = b"a.jpg two train", b"../a.jpg x train", b"/dev/zero x query"
LINES = st.lists(
  st.sampled_from([*LISTING.splitlines(), *STRAY])
  | st.tuples(
    st.sampled_from(["a.jpg", "b.jpg", "c.jpg", ".", "d.jpg"]) | st.text(max_size=3),
    st.sampled_from(["one", "two", "three"]),
    st.sampled_from(["train", "query", "gallery", "test"]),
  ).map(lambda fields: " ".join(fields).encode())
).map(b"\n".join)


@inputs.search(200, st.binary() | inputs.damaged(LISTING) | LINES)
@inputs.examples(LISTING, b"9" * 5000, b"x" * 5000 + b" one train", b"a\0b one train")
@inputs.examples(LISTING + b"\xff", "²\na.jpg one train".encode())
@inputs.examples(LISTING.replace(b"3\n", b"") + b"b.jpg two gallery\n")
def test_list_files(tmp_path, content):
  for name in ("a.jpg", "b.jpg", "c.jpg"):
    (tmp_path / name).touch()
  pathlib.Path(tmp_path, "list_eval_partition.txt").write_bytes(content)
  found = inputs.attempt(r"list_eval_partition\.txt", data.load_in_shop, tmp_path)
  if found is None:
    assert content != LISTING
    return
  files = found.extras["file"].tolist()
  assert len(set(files)) == len(files)
  assert all((tmp_path / file).is_file() for file in files)
  statuses = found.extras["status"]
  assert set(statuses) == {"train", "query", "gallery"}
  learned = statuses == "train"
  assert not set(found.labels[learned]) & set(found.labels[~learned])
