"""Image files: pixels or one error that names the file, whatever a decoder raises."""

import zlib

import hypothesis.strategies as st
import numpy as np
import pytest
from PIL import Image

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
  *TURNED,
  encoded("BMP"),
  encoded("GIF", "P"),
  encoded("JPEG"),
  encoded("JPEG", progressive=True),
  encoded("PNG"),
  encoded("PNG", "P"),
  encoded("PNG", "I;16"),
  encoded("PPM"),
  b"P3 2 1 255 1 2 3 4 5 6\n",
  encoded("TIFF"),
  encoded("TIFF", compression="tiff_lzw"),
  encoded("TIFF", "CMYK"),
  encoded("WEBP"),
  encoded("WEBP", lossless=True),
  POSTSCRIPT,
]


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


def test_the_whole_files_are_read(tmp_path):
  for content in FILES:
    refused = content in (POSTSCRIPT, encoded("PNG", "I;16"))
    assert (attempt(tmp_path, content) is None) == refused


@inputs.search(250, st.binary() | inputs.damaged(*FILES))
@inputs.examples(b"", POSTSCRIPT)
def test_damaged_files(tmp_path, content):
  attempt(tmp_path, content)


@inputs.search(150, st.sampled_from(TURNED), st.data())
def test_damaged_metadata(tmp_path, whole, data):
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
def test_folders(tmp_path_factory, files, skip):
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
