"""Image files: pixels or one error that names the file, whatever a decoder raises."""

import io
import struct
import zlib

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from PIL import Image

from experiments import _embed_sources, _retrieval_full_sets
from spherejax import data
from tests.fuzz import inputs

pytestmark = pytest.mark.timeout(300)
POSTSCRIPT = (
  b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n"
)


def encoded(kind, mode="RGB", **options):
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, 255, (9, 11, 3), np.uint8)
  file = io.BytesIO()
  Image.fromarray(pixels).convert(mode).save(file, kind, **options)
  return file.getvalue()


def png(width, height, *chunks):
  """A file of a few bytes with whatever size its header says."""
  parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), *chunks]
  return b"\x89PNG\r\n\x1a\n" + b"".join(
    struct.pack(">I", len(body))
    + name
    + body
    + struct.pack(">I", zlib.crc32(name + body))
    for name, body in parts
  )


FILES = [
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
  shown = _embed_sources.find(str(folder / "one" / "a.png"))
  prepared = _embed_sources.Prepared(shown.read, lambda pixels: pixels, (9, 11, 3), 1)
  listed = _retrieval_full_sets._Files(folder, ("one/a.png",))
  lazily = data.load_folder(folder, lazy=True).images
  return [
    lambda: data.load_folder(folder).images[0],
    lambda: data.load_folder(folder, channels=4, size=5).images[0],
    lambda: lazily[0],
    lambda: listed[0],
    lambda: prepared[0],
    lambda: prepared.reason(0),
    lambda: _embed_sources.check_headers(shown, [0]),
  ]


def attempt(folder, content):
  path = folder / "one" / "a.png"
  path.parent.mkdir(exist_ok=True)
  path.write_bytes(content)
  found = [
    inputs.attempt(read, ValueError, r"cannot read the image .*one/a\.png")
    for read in pictures(folder)
  ]
  *pixels, framed, _, _ = found
  for each in pixels:
    assert each is None or (each.dtype == np.uint8 and each.ndim == 3)
  assert len({each is None for each in pixels}) == 1
  # What embeds pictures never fails for one, but marks it and says why.
  assert framed.shape == (10, 11, 3)
  return pixels[0]


def test_the_whole_files_are_read(tmp_path):
  for content in FILES:
    refused = content in (POSTSCRIPT, encoded("PNG", "I;16"))
    assert (attempt(tmp_path, content) is None) == refused


@inputs.search(250)
@hypothesis.given(st.binary() | inputs.damaged(*FILES))
@hypothesis.example(b"")
@hypothesis.example(POSTSCRIPT)
def test_damaged_files(tmp_path, content):
  attempt(tmp_path, content)


@pytest.mark.parametrize(
  "content",
  [
    png(2**31 - 1, 2**31 - 1),
    png(20_000, 20_000, (b"IDAT", zlib.compress(bytes(10**6)))),
    png(3, 3, (b"zTXt", b"a\0\0" + zlib.compress(bytes(10**8)))),
    b"P6 2000000000 2000000000 255\n",
    b"P3 2 1 255 " + b"9" * 10**5,
  ],
)
def test_pictures_that_claim_much(tmp_path, content):
  assert attempt(tmp_path, content) is None
