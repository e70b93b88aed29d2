"""Files that are read back give an object or one error that names the file."""

import json
import pathlib
import pickle
import zipfile
import zlib

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.extra import numpy as arrays_of
from PIL import Image

from experiments import results_page
from experiments.assignment import readers
from experiments.frame import kept as finished
from spherejax import data
from spherejax.explorer import _embedding, _sources
from tests.data import test_image_files
from tests.data.test_image_files import png
from tests.fuzz import inputs

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("unchecked")]
POSTSCRIPT = (
  b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n"
)


def encoded(kind, mode="RGB", **options):
  pixels = np.random.default_rng(0).integers(0, 255, (9, 11, 3), np.uint8)
  image = Image.fromarray(pixels).convert(mode)
  return test_image_files.encoded(image, kind, **options)


def turn(kind, orientation=6):
  exif = Image.Exif()
  exif[0x0112], exif[0x010E] = orientation, "a camera"
  return encoded(kind, exif=exif)


TURNED = [turn("JPEG"), turn("PNG"), turn("TIFF", 8), turn("WEBP"), turn("MPO")]
FILES = [
  *TURNED, encoded("BMP"), encoded("GIF", "P"), encoded("JPEG"),
  encoded("JPEG", progressive=True), encoded("PNG"), encoded("PNG", "P"),
  encoded("PNG", "I;16"), encoded("PPM"), b"P3 2 1 255 1 2 3 4 5 6\n", encoded("TIFF"),
  encoded("TIFF", compression="tiff_lzw"), encoded("TIFF", "CMYK"), encoded("WEBP"),
  encoded("WEBP", lossless=True), POSTSCRIPT,
]  # fmt: skip


def pictures(folder):
  """All readers of an image file, each with the error that it has to raise."""
  shown = _sources.find(str(folder / "one" / "a.png"))
  reader = _embedding._Reader(shown, lambda pixels: pixels)
  reader.rows = [0]
  lazily = data.load_folder(folder, lazy=True).images
  return [
    lambda: data.load_folder(folder).images[0],
    lambda: data.load_folder(folder, channels=4, size=5).images[0],
    lambda: lazily[0],
    lambda: data.read_image(folder / "one" / "a.png"),
    lambda: reader[0],
    lambda: _sources.check_headers(shown, [0]),
  ]


def attempt(folder, content):
  path = folder / "one" / "a.png"
  path.parent.mkdir(exist_ok=True)
  path.write_bytes(content)
  named = r"cannot read the image .*one/a\.png"
  *pixels, embedded, _ = [inputs.attempt(named, read) for read in pictures(folder)]
  for each in pixels:
    assert each is None or (each.dtype == np.uint8 and each.ndim == 3)
  assert len({each is None for each in pixels}) == 1
  shapes = {each.shape[:2] for each in (pixels[0], *pixels[2:]) if each is not None}
  assert len(shapes) <= 1  # upright in all of them
  # What embeds images never fails for one.
  assert embedded.shape[:2] in ((8, 8), *shapes)
  return pixels[0]


def test_whole_pictures_are_read(tmp_path):
  for content in FILES:
    refused = content in (POSTSCRIPT, encoded("PNG", "I;16"))
    assert (attempt(tmp_path, content) is None) == refused


@inputs.search(250, st.binary() | inputs.damaged(*FILES))
@inputs.examples(b"", POSTSCRIPT)
def test_damaged_pictures(tmp_path, content):
  attempt(tmp_path, content)


@inputs.search(150, st.sampled_from(TURNED), st.data())
def test_damaged_metadata_of_pictures(tmp_path, whole, data):
  """Bytes of the metadata alone: the pixels are there, and come, turned or not."""
  start = whole.index(b"a camera") - 60
  place = data.draw(st.integers(max(start, 40), start + 70))
  content = whole[:place] + data.draw(st.binary(min_size=1, max_size=4))
  pixels = attempt(tmp_path, content + whole[len(content) :])
  if pixels is not None:
    assert pixels.shape in ((9, 11, 3), (11, 9, 3))


NAMES = st.text(
  st.characters(exclude_characters="/\0", codec="utf-8") | st.sampled_from("[]*?."),
  min_size=1,
  max_size=8,
).filter(lambda name: name not in (".", "..") and len(name.encode()) < 200)
CONTENTS = st.sampled_from([encoded("PNG"), encoded("JPEG"), b"no image", b""])


@inputs.search(
  100,
  st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join)
    | st.sampled_from(["a/._b", "a/b/c", "._a/b", "a/[b]"]),
    st.tuples(st.sampled_from([".png", ".JPG", "", ".txt"]), CONTENTS),
    max_size=5,
  ),
  st.booleans(),
)
def test_folders_of_pictures(tmp_path_factory, files, skip):
  """`load_folder` and `embed` see the same files and classes, whatever they are.

  In a single class, the classes of `embed` are the first sub-folders that differ.
  """
  folder = tmp_path_factory.mktemp("[a]*") / "pictures"
  folder.mkdir()
  for name, (suffix, content) in files.items():
    path = folder / (name + suffix)
    try:
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(content)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
      continue  # of the same name as a folder
  images = inputs.attempt("pictures", data.load_folder, folder, skip_unreadable=skip)
  source = inputs.attempt("holds no image", _sources.find, str(folder))
  if images is None:
    return
  assert source is not None
  bad = _sources.check_headers(source, range(len(source)))
  assert skip or not any(source.labels[row] for row in bad)
  pairs = enumerate(zip(source.names, source.labels, strict=True))
  found = [pair for row, pair in pairs if row not in bad and pair[1]]
  names = [images.label_names[label] for label in images.labels]
  if len(set(source.labels)) > 1 and len(images.label_names) == 1:
    every = [name.split("/")[:-1] for name in source.names]
    depth = min(k for k in range(3) if len({"/".join(x[: k + 1]) for x in every}) > 1)
    names = [name.split("/")[depth] for name in images.extras["file"].tolist()]
  assert found == list(zip(images.extras["file"].tolist(), names, strict=True))


@pytest.mark.parametrize(
  "content",
  [
    png((2**31 - 1, 2**31 - 1), 8, 2),
    png((20_000, 20_000), 8, 2, (b"IDAT", zlib.compress(bytes(10**6)))),
    png((3, 3), 8, 2, (b"zTXt", b"a\0\0" + zlib.compress(bytes(10**8)))),
    b"P6 2000000000 2000000000 255\n",
    b"P3 2 1 255 " + b"9" * 10**5,
  ],
)
def test_pictures_that_claim_much(tmp_path, content):
  assert attempt(tmp_path, content) is None


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
ZEROS = inputs.array_file(inputs.header((10**6,)), b"\0" * (8 * 10**6))
RECORDS = b"[" * 10**5, b'{"a":' * 10**5, b"9" * 10**5, b"\xff"
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
  inputs.archive(zipfile.ZIP_DEFLATED, a=ZEROS),
  b"",
  b"PK",
  inputs.array_file(inputs.header((2,)), b"\0" * 16),
]


@pytest.mark.parametrize("arrays", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_arrays(tmp_path, arrays):
  path = kept(tmp_path)
  assert restored(path, path.with_suffix(".json").read_bytes(), arrays) is None


@pytest.mark.parametrize("record", RECORDS)
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
@inputs.examples(*map(inputs.array_bytes, (ROWS[:1], ROWS.astype(np.float32))))
def test_arrays_of_features(tmp_path, content):
  known(tmp_path, MANIFEST, content)


NAMED = b"train/a/one.JPEG 0\n\ntrain/b/two.JPEG 1\nthree.JPEG\n"
LISTED = ("one.JPEG", "two.JPEG", "three.JPEG", "four.JPEG")


@inputs.search(
  200,
  st.binary()
  | inputs.damaged(NAMED)
  | st.lists(st.sampled_from(LISTED) | st.text(max_size=4)).map(
    lambda lines: "\n".join(lines).encode()
  ),
)
@inputs.examples(NAMED, b"", b"\xff\xd8\xff", b"one.JPEG,0", b"one.JPEG 0 0")
@inputs.examples(b"one.JPEG two.JPEG", b"a/one.JPEG 0\nb/one.JPEG 1")
def test_lists_of_training_images(tmp_path, content):
  path = tmp_path / "list.txt"
  path.write_bytes(content)
  labels = np.arange(4, dtype=np.int32)
  images = data.Images(
    np.zeros((4, 2, 2, 1), np.uint8), labels, LISTED, {"file_name": np.array(LISTED)}
  )
  rows = inputs.attempt(rf"^{path}[ ,].*\Z", readers.listed, images, path)
  if rows is None:
    assert content != NAMED
    return
  lines = content.decode().splitlines()
  named = [line.split()[0].rsplit("/", 1)[-1] for line in lines if line.strip()]
  assert sorted(LISTED[row] for row in rows) == sorted(named) != []


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
