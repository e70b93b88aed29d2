"""Odd image files and folders: every reader takes the same, or refuses the same."""

import io
import os
import shutil
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms
from sklearn import datasets

from spherejax import data
from spherejax.data import _tfds
from spherejax.explorer import _sources

# A letter that no turn and no reflection leaves as it is, in colours.
UPRIGHT = np.zeros((24, 16, 3), np.uint8)
UPRIGHT[2:22, 3:6] = 255, 0, 0
UPRIGHT[2:6, 3:13] = 0, 255, 0
UPRIGHT[10:13, 3:9] = 0, 0, 255
# What a camera stores: the orientation says how it has to be turned back.
STANDING = UPRIGHT, UPRIGHT[:, ::-1], UPRIGHT[::-1, ::-1], UPRIGHT[::-1]
TURNED = UPRIGHT.transpose(1, 0, 2)
LYING = TURNED, TURNED[::-1], TURNED[::-1, ::-1], TURNED[:, ::-1]
STORED = dict(enumerate(STANDING + LYING, start=1))
# Baseline files that are stored without loss, and one with it.
KINDS = {
  "png": {},
  "tiff": {},
  "tif": {"compression": "tiff_lzw"},
  "webp": {"lossless": True},
  "jpg": {"quality": 95, "subsampling": 0},
  "JPEG": {"quality": 95, "subsampling": 0, "progressive": True},
}


def exif(orientation):
  content = Image.Exif()
  content[0x0112] = orientation
  return content


def encoded(image, kind, **options):
  file = io.BytesIO()
  image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
  image.save(file, kind, **options)
  return file.getvalue()


def chunk(name, body):
  checksum = zlib.crc32(name + body)
  return struct.pack(">I", len(body)) + name + body + struct.pack(">I", checksum)


def png(size, bits, kind, *chunks):
  """A file of these chunks, whatever its header says of size and channels."""
  header = struct.pack(">IIBBBBB", *size, bits, kind, 0, 0, 0)
  parts = (b"IHDR", header), *chunks
  return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def read_everywhere(folder, content, name="a.png"):
  """Pixels [height, width, 3] that every reader gives, or the words of its refusal."""
  path = folder / "one" / name
  shutil.rmtree(path.parent, ignore_errors=True)
  path.parent.mkdir()
  path.write_bytes(content)
  shown = _sources.find(str(folder))
  inside = {"source": "of it", "channels": 3, "size": None}
  readers = [
    lambda: data.load_folder(folder).images[0],
    lambda: data.load_folder(folder, lazy=True).images[0],
    lambda: shown.read(0),
    lambda: data.read_image(path),
    lambda: _tfds._read_record(0, records=[{"image": content}], **inside),
  ]
  found = []
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Pillow, on files that it then refuses
    for read in readers:
      try:
        pixels = read()
        found.append(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))
      except ValueError as error:
        assert "cannot read the image" in str(error)  # noqa: PT017
        found.append(None)
    headers = _sources.check_headers(shown, [0])
  for pixels in found[1:]:
    assert (pixels is None) == (found[0] is None)
    if pixels is not None:
      np.testing.assert_array_equal(pixels, found[0])
  # The look at the headers refuses nothing that can be read.
  assert found[0] is None or not headers
  return found[0]


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("suffix", KINDS)
def test_every_orientation_is_read_upright(tmp_path, suffix, orientation):
  kind = {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix)
  content = encoded(STORED[orientation], kind, exif=exif(orientation), **KINDS[suffix])
  pixels = read_everywhere(tmp_path, content, f"a.{suffix}")
  assert pixels.shape == UPRIGHT.shape
  assert np.abs(pixels.astype(int) - UPRIGHT).mean() < (9 if kind == "JPEG" else 0.01)
  resized = data.load_folder(tmp_path, size=(12, 8), channels=1).images[0]
  assert resized.shape == (12, 8, 1)
  bright = resized[..., 0].mean(0)
  assert bright[:4].sum() > bright[4:].sum()  # the stem of the letter is on the left


@pytest.mark.parametrize("orientation", STORED)
def test_tiff_files_that_pillow_maps_into_memory(tmp_path, orientation):
  stored = Image.fromarray(STORED[orientation]).convert("L")
  path = tmp_path / "a.tif"
  stored.save(path, exif=exif(orientation))
  np.testing.assert_array_equal(data.read_image(path, channels=1)[..., 0], GREY)


def test_orientation_by_other_metadata(tmp_path):
  stored = Image.fromarray(STORED[6])
  # In EXIF behind the pixels of a PNG, and as text, as older programs write it.
  whole = encoded(stored, "PNG")
  block = exif(6).tobytes().removeprefix(b"Exif\0\0")
  end = whole.index(b"IEND") - 4
  late = whole[:end] + chunk(b"eXIf", block) + whole[end:]
  raw = b"\nexif\n%8d\n" % (len(block) + 6) + (b"Exif\0\0" + block).hex().encode()
  text = chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(raw + b"\n"))
  xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/" tiff:Orientation="6"/>'
  for content in (
    late,
    whole[:33] + text + whole[33:],
    encoded(stored, "WEBP", lossless=True, xmp=xmp),
    encoded(stored, "JPEG", quality=95, xmp=xmp),
    encoded(stored, "MPO", quality=95, exif=exif(6), save_all=True),
    encoded(stored.convert("P"), "PNG", exif=exif(6)),
    encoded(stored.convert("L"), "PNG", exif=exif(6)),
    encoded(stored.convert("CMYK"), "JPEG", exif=exif(6)),
  ):
    assert read_everywhere(tmp_path, content).shape == UPRIGHT.shape


@pytest.mark.parametrize("orientation", [0, 9, 255, 65535])
def test_orientations_that_say_nothing(tmp_path, orientation):
  content = encoded(UPRIGHT, "PNG", exif=exif(orientation))
  np.testing.assert_array_equal(read_everywhere(tmp_path, content), UPRIGHT)


@pytest.mark.parametrize(
  "block",
  [
    b"",
    b"Exif\0\0",
    b"Exif\0\0MM",
    b"Exif\0\0no TIFF at all",
    b"Exif\0\0MM\0*\xff\xff\xff\xff",
    b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
    b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x07\0\xff\xff\xff\x7f\0\0\0\0",
    b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x05\0\0\0\x01\0\0\0\0\0\0\0\0",
    b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x02\0\0\0\x02x\0\0\0\0\0\0\0",
  ],
)
def test_damaged_metadata_leave_the_pixels_as_they_are(tmp_path, block):
  body = b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block
  whole = encoded(UPRIGHT, "JPEG", quality=95)
  pixels = read_everywhere(tmp_path, whole[:2] + body + whole[2:], "a.jpg")
  np.testing.assert_array_equal(pixels, read_everywhere(tmp_path, whole, "a.jpg"))
  whole = encoded(UPRIGHT, "PNG")
  block = chunk(b"eXIf", block.removeprefix(b"Exif\0\0"))
  pixels = read_everywhere(tmp_path, whole[:33] + block + whole[33:])
  np.testing.assert_array_equal(pixels, UPRIGHT)


def faded(mode="RGBA"):
  """Transparent on the right; what lies there is coloured all the same."""
  image = Image.fromarray(UPRIGHT).convert(mode)
  image.putalpha(Image.fromarray(np.tile(np.arange(16, dtype=np.uint8) * 17, (24, 1))))
  return image


def with_palette(**options):
  return encoded(Image.fromarray(UPRIGHT).convert("P", palette=1), "PNG", **options)


def animated(kind):
  frames = [Image.fromarray(STORED[way]) for way in (1, 2, 3)]
  return encoded(frames[0], kind, save_all=True, append_images=frames[1:])


GREY = np.asarray(Image.fromarray(UPRIGHT).convert("L"))
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
RGB = np.broadcast_to(GREY[..., None], UPRIGHT.shape)
LOSSLESS = {
  "RGBA": (encoded(faded(), "PNG"), UPRIGHT),
  "LA": (encoded(faded("L"), "PNG"), RGB),
  "palette, bytes of transparency": (with_palette(transparency=bytes(range(200))), 0),
  "palette, one transparent": (with_palette(transparency=3), 0),
  "RGB, one transparent": (encoded(UPRIGHT, "PNG", transparency=(255, 0, 0)), UPRIGHT),
  "grey, one transparent": (encoded(GREY, "PNG", transparency=0), RGB),
  "1 bit": (encoded(Image.fromarray(GREY).convert("1", dither=0), "PNG"), None),
  "1x1": (encoded(UPRIGHT[:1, :1], "PNG"), UPRIGHT[:1, :1]),
  "a row": (encoded(UPRIGHT[2:3], "PNG"), UPRIGHT[2:3]),
  "profile": (encoded(UPRIGHT, "PNG", icc_profile=PROFILE), UPRIGHT),
  "BMP": (encoded(UPRIGHT, "BMP"), UPRIGHT),
  "PPM": (encoded(UPRIGHT, "PPM"), UPRIGHT),
  "animated PNG": (animated("PNG"), UPRIGHT),
  "animated GIF": (animated("GIF"), None),
  "frames of a TIFF": (animated("TIFF"), UPRIGHT),
  "TIFF, planes": (encoded(UPRIGHT, "TIFF", tiffinfo={284: 1}), UPRIGHT),
  "TIFF, alpha": (encoded(faded(), "TIFF"), UPRIGHT),
  "TIFF, CMYK": (encoded(Image.fromarray(UPRIGHT).convert("CMYK"), "TIFF"), UPRIGHT),
  "TIFF, LAB": (encoded(Image.new("LAB", (4, 4)), "TIFF"), None),
  "WebP, alpha": (encoded(faded(), "WEBP", lossless=True, exact=True), UPRIGHT),
  "CMYK": (encoded(Image.fromarray(UPRIGHT).convert("CMYK"), "JPEG"), None),
  "JPEG, progressive": (encoded(UPRIGHT, "JPEG", progressive=True), None),
  "MPO": (animated("MPO"), None),
}


@pytest.mark.parametrize("case", LOSSLESS)
def test_odd_files_that_every_reader_takes(tmp_path, case):
  content, expected = LOSSLESS[case]
  # The suffix tells nothing: what the file is, its first bytes say.
  for name in ("a.png", "a.JPG", "a.Webp"):
    pixels = read_everywhere(tmp_path, content, name)
    assert pixels is not None
  if expected is not None and np.ndim(expected):
    np.testing.assert_array_equal(pixels, expected)
  with warnings.catch_warnings():
    warnings.simplefilter("error")  # and none of Pillow's warnings reaches the user
    for channels in (1, 3, 4):
      assert data.load_folder(tmp_path, channels=channels).images.shape[-1] == channels


def test_transparency_stays_where_it_is_asked_for(tmp_path):
  def alpha(case):
    read_everywhere(tmp_path, LOSSLESS[case][0])
    return data.load_folder(tmp_path, channels=4).images[0, ..., 3]

  for case in ("RGBA", "LA"):
    np.testing.assert_array_equal(alpha(case)[0], np.arange(16) * 17)
  clear = alpha("RGB, one transparent") == 0
  np.testing.assert_array_equal(clear, (UPRIGHT == (255, 0, 0)).all(-1))


def test_a_pixel_is_the_mean_of_its_box_whatever_its_transparency(tmp_path):
  pixels = np.array([[[255, 0, 0, 0], [0, 0, 255, 255]]], np.uint8)
  (tmp_path / "a.png").write_bytes(encoded(pixels, "PNG"))
  for channels in (3, 4):
    read = data.read_image(tmp_path / "a.png", size=1, channels=channels)
    np.testing.assert_allclose(read[0, 0], pixels[0].mean(0)[:channels], atol=0.5)


def deep_png(kind, size):
  """A pixel of 16 bits a channel; the colour type says which channels."""
  pixel = b"IDAT", zlib.compress(bytes(1 + size))
  return png((1, 1), 16, kind, pixel, (b"IEND", b""))


def deep_tiff():
  """A pixel of three channels of 16 bits."""
  pixel, bits = 8, 14  # where they lie
  entries = [
    (256, 3, 1, 1), (257, 3, 1, 1), (258, 3, 3, bits), (259, 3, 1, 1), (262, 3, 1, 2),
    (273, 4, 1, pixel), (277, 3, 1, 3), (278, 3, 1, 1), (279, 4, 1, 6),
  ]  # fmt: skip
  table = b"".join(struct.pack("<HHII", *entry) for entry in entries)
  return (
    b"II*\0" + struct.pack("<I", 20) + bytes(6) + struct.pack("<HHH", 16, 16, 16)
    + struct.pack("<H", len(entries)) + table + bytes(4)
  )  # fmt: skip


WHOLE = encoded(np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8), "PNG")
REFUSED = {
  "16-bit grey": encoded(np.full((4, 4), 40_000, np.uint16), "PNG"),
  # Pillow would cut these to 8 bits.
  "16-bit RGB": deep_png(2, 6),
  "16-bit RGBA": deep_png(6, 8),
  "16-bit grey with alpha": deep_png(4, 4),
  "10-bit PPM": b"P6 1 1 1023 " + bytes([1, 255, 0, 128, 3, 255]),
  "16-bit PPM in text": b"P3 1 1 65535 1 2 3 ",
  "16-bit TIFF": deep_tiff(),
  "float": encoded(np.ones((4, 4), np.float32), "TIFF"),
  "32 bits": encoded(np.ones((4, 4), np.int32), "TIFF"),
  "truncated": WHOLE[: len(WHOLE) // 2],
  "truncated header": WHOLE[:20],
  "zero bytes": b"",
  "text": b"no image",
  "zeros": bytes(1000),
  "a huge header": png((2**30, 2**30), 8, 2) + WHOLE[33:],
  "vector": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
  "an icon": encoded(UPRIGHT, "ICO"),  # Pillow would read it
}


@pytest.mark.parametrize("case", REFUSED)
def test_odd_files_that_every_reader_refuses(tmp_path, case):
  for name in ("a.png", "a.tif"):
    assert read_everywhere(tmp_path, REFUSED[case], name) is None


def test_a_wrong_checksum_of_what_is_not_pixels(tmp_path):
  note = chunk(b"tEXt", b"a\0b")[:-1] + b"?"
  whole = encoded(UPRIGHT, "PNG")
  for at in (33, len(whole) - 12):
    read_everywhere(tmp_path, whole[:at] + note + whole[at:])


def both(folder):
  """Files, whose classes are their folders, as `load_folder` and as `embed` do it."""
  images = data.load_folder(folder, lazy=True)
  classes = [images.label_names[label] for label in images.labels]
  files = list(map(str, images.extras["file"]))
  source = _sources.find(str(folder))
  named = [x for x in zip(source.names, source.labels, strict=True) if x[1] != ""]
  assert named == list(zip(files, classes, strict=True))
  assert classes == [file.partition("/")[0] for file in files]
  return files


NAMES = [
  "ant/a.png", "ant/b.JPG", "ant/deeper/c.png", "ant/deeper/still/a.PNG",
  "bee/a.b.webp", "bee/a.png", "bee/back\\slash.png", "bee/ß ü [1]*?.tiff",
]  # fmt: skip
OTHERS = [
  "ant/._a.png", "ant/.DS_Store", "ant/Thumbs.db", "bee/notes.txt", "bee/png",
  "bee/a.png.part", ".hidden/a.png", "ant/.hidden/a.png", "bee/a.svg", "bee/.png",
  "__MACOSX/ant/._a.png", "__MACOSX/b.png",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
  """Two classes, and all that lies about in folders."""
  root = tmp_path / "pictures [of] 50 % *?"
  contents = dict.fromkeys([*NAMES, "stray.png"], encoded(UPRIGHT, "PNG"))
  for name, content in (contents | dict.fromkeys(OTHERS, b"no image")).items():
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(content)
  return root


def test_one_rule_for_the_files_of_a_folder(folder):
  assert both(folder) == NAMES
  assert data.load_folder(folder).images.shape == (8, *UPRIGHT.shape)
  assert "stray.png" in _sources.find(str(folder)).names


def test_links(folder, tmp_path):
  elsewhere = tmp_path / "elsewhere"
  elsewhere.mkdir()
  (elsewhere / "z.png").write_bytes(encoded(UPRIGHT, "PNG"))
  for link, target in {
    "cat": elsewhere, "ant/linked": elsewhere, "ant/z.png": elsewhere / "z.png",
    "ant/loop": folder, "bee/loop": folder / "bee", "loop": folder,
  }.items():  # fmt: skip
    os.symlink(target, folder / link)
  more = ["ant/linked/z.png", "ant/z.png", "cat/z.png"]
  assert both(folder) == sorted([*NAMES, *more])
  # A file that cannot be read, not one that is not there.
  os.symlink(tmp_path / "nowhere", folder / "ant" / "lost.png")
  os.symlink("itself.png", folder / "ant" / "itself.png")
  (folder / "ant" / "folder.png").mkdir()
  with pytest.raises(ValueError, match=r"2 of 13 images: .*itself\.png.*lost\.png"):
    data.load_folder(folder)
  source = _sources.find(str(folder))
  found = _sources.check_headers(source, range(len(source)))
  assert {source.names[row] for row in found} == {"ant/itself.png", "ant/lost.png"}
  assert len(data.load_folder(folder, skip_unreadable=True)) == 11


@pytest.mark.parametrize("lazy", [False, True])
def test_all_bad_files_are_named_at_once_or_left_out(folder, lazy):
  bad = ["ant/a.png", "ant/deeper/c.png", "bee/a.b.webp"]
  for name in bad:
    (folder / name).write_bytes(b"no image")
  with pytest.raises(ValueError, match="cannot read 3 of 8 images: ") as caught:
    data.load_folder(folder)
  assert all(f"{folder / name}: cannot identify" in str(caught.value) for name in bad)
  assert "skip_unreadable=True" in str(caught.value)
  if lazy:
    with pytest.raises(ValueError, match="cannot read 3 of 8 images: "):
      data.load_folder(folder, lazy=True).in_memory()
  kept = data.load_folder(folder, lazy=lazy, skip_unreadable=True).in_memory()
  assert isinstance(kept.images, np.ndarray)
  assert list(kept.extras["file"]) == [name for name in NAMES if name not in bad]
  assert kept.labels.tolist() == [0, 0, 1, 1, 1]
  for image in kept.images:
    np.testing.assert_array_equal(image, UPRIGHT)
  (folder / "ant/b.JPG").write_bytes(b"no image")
  (folder / "ant/deeper/still/a.PNG").write_bytes(encoded(UPRIGHT[:9], "PNG"))
  kept = data.load_folder(folder, lazy=lazy, skip_unreadable=True)
  assert [len(image) for image in kept.images] == [9, 24, 24, 24]
  (folder / "ant/deeper/still/a.PNG").unlink()
  with pytest.raises(ValueError, match=r"class folder .*ant holds no image that can"):
    data.load_folder(folder, lazy=lazy, skip_unreadable=True)


def test_all_classes_without_an_image_are_named(folder):
  (folder / "cat").mkdir()
  (folder / "dog" / "deeper").mkdir(parents=True)
  (folder / "dog" / "._x.png").write_bytes(b"")
  with pytest.raises(ValueError, match=r"folders .*cat, .*dog hold no image \(\.bmp"):
    data.load_folder(folder)
  # Where classes are not numbered there is nothing to refuse.
  assert set(_sources.find(str(folder)).labels) == {"", "ant", "bee"}


def test_many_bad_files_among_many(tmp_path):
  (tmp_path / "one").mkdir()
  contents = b"no image", b"no image", encoded(UPRIGHT, "PNG")
  for number in range(150):  # more than a thread decodes at a time
    (tmp_path / "one" / f"{number:03}.png").write_bytes(contents[number % 3])
  with pytest.raises(ValueError, match=r"100 of 150 images: .* and 80 more; repair"):
    data.load_folder(tmp_path)
  kept = data.load_folder(tmp_path, skip_unreadable=True)
  assert kept.images.shape == (50, *UPRIGHT.shape)
  assert kept.extras["file"][0] == "one/002.png"


# --- Pixels and labels ---


def gradient(height, width, channels):
  values = np.arange(height * width * channels) * 7 % 256
  return values.astype(np.uint8).reshape(height, width, channels)


RAMP, GREY_RAMP = gradient(8, 12, 3), gradient(8, 12, 1)


def box_average(image, height, width):
  """The mean of the pixels whose centres lie in each box."""

  def shares(pixels, boxes):
    # A centre on an edge belongs to the box before it.
    centres, starts = (np.arange(pixels) + 0.5) * boxes / pixels, np.arange(boxes)
    inside = np.ceil(centres) - 1 == starts[:, None]
    return inside / inside.sum(1, keepdims=True)

  down, right = shares(image.shape[0], height), shares(image.shape[1], width)
  return np.einsum("ia,jb,abc->ijc", down, right, image)


@pytest.fixture
def classes(tmp_path):
  """Three classes: PNG, grey PNG, JPEG."""
  for name in ("owl", "ant", "bee"):
    (tmp_path / name).mkdir()
  for number in range(2):
    Image.fromarray(RAMP + number).save(tmp_path / f"ant/{number}.png")
  Image.fromarray(GREY_RAMP[..., 0]).save(tmp_path / "bee/grey.PNG")
  Image.fromarray(np.full_like(RAMP, 90)).save(tmp_path / "owl/flat.jpg")
  return tmp_path


@pytest.mark.parametrize("lazy", [False, True])
def test_a_folder_is_read_in_alphabetical_order(classes, lazy):
  images = data.load_folder(classes, lazy=lazy)
  assert images.label_names == ("ant", "bee", "owl")
  np.testing.assert_array_equal(images.labels, [0, 0, 1, 2])
  files = ["ant/0.png", "ant/1.png", "bee/grey.PNG", "owl/flat.jpg"]
  assert list(images.extras["file"]) == files
  np.testing.assert_array_equal(images.images[1], RAMP + 1)
  # Grey becomes three equal channels; a flat JPEG is exact up to its rounding.
  np.testing.assert_array_equal(images.images[2], GREY_RAMP.repeat(3, -1))
  assert np.abs(images.images[3].astype(int) - 90).max() <= 1


def test_images_of_several_sizes_come_as_a_list(classes):
  Image.fromarray(gradient(5, 5, 3)).save(classes / "owl/small.png")
  images = data.load_folder(classes).images
  assert [image.shape for image in images[-2:]] == [(8, 12, 3), (5, 5, 3)]


def test_lazy_images_are_read_when_asked_for(classes):
  images = data.load_folder(classes, lazy=True)[[3, 1]]
  (classes / "ant/1.png").unlink()
  assert images.images[0].shape == (8, 12, 3)
  assert len(list(images.images[:1])) == 1
  with pytest.raises(ValueError, match=r"cannot read the image .*ant/1\.png"):
    list(images.images)


@pytest.mark.parametrize("size", [(4, 6), (4, 4), (3, 5), (8, 7)])
def test_resizing_averages(classes, size):
  images = data.load_folder(classes, size=size).images
  assert images.shape == (4, *size, 3)
  # Pillow averages rows after columns and rounds twice.
  assert np.abs(images[0] - box_average(RAMP, *size)).max() <= 1
  if size == (4, 4):
    np.testing.assert_array_equal(data.load_folder(classes, size=4).images, images)


def test_enlarging_repeats_pixels(classes):
  images = data.load_folder(classes, size=(16, 36)).images
  np.testing.assert_array_equal(images[0], RAMP.repeat(2, axis=0).repeat(3, axis=1))


def test_channels(classes):
  grey = data.load_folder(classes, channels=1).images
  assert grey.shape == (4, 8, 12, 1)
  np.testing.assert_array_equal(grey[2], GREY_RAMP)
  luma = RAMP @ np.array([0.299, 0.587, 0.114])
  assert np.abs(grey[0, ..., 0] - luma).max() <= 1
  assert data.load_folder(classes, channels=4).images.shape == (4, 8, 12, 4)
  with pytest.raises(ValueError, match=r"channels must be one of \(1, 3, 4\), got 2"):
    data.load_folder(classes, channels=2)


def test_missing_and_empty_folders(tmp_path):
  with pytest.raises(FileNotFoundError, match=r"no image folder at .*nowhere"):
    data.load_folder(tmp_path / "nowhere")
  with pytest.raises(ValueError, match=r"data set is empty: .* has no sub-folder"):
    data.load_folder(tmp_path)
  (tmp_path / "cat").mkdir()
  with pytest.raises(ValueError, match=r"class folder .*cat holds no image"):
    data.load_folder(tmp_path)


def test_sizes_and_images_of_16_bits_are_refused(classes):
  for size, shown in ((0, 0), ((4, -3), -3)):
    with pytest.raises(ValueError, match=f"size must be at least 1, got {shown}"):
      data.load_folder(classes, size=size)
  Image.fromarray(np.full([4, 4], 40_000, np.uint16)).save(classes / "bee/deep.png")
  with pytest.raises(ValueError, match=r"deep\.png: mode I;16 has more than 8 bits"):
    data.load_folder(classes)


def test_digits_keep_the_order_of_their_file():
  images = data.load_digits()
  file = datasets.load_digits()
  assert images.images.shape == (1797, 8, 8, 1)
  np.testing.assert_array_equal(images.labels, file.target)
  # 0 to 16 over 0 to 255: 255/16 is 15.94, so division by 15.9 recovers each level.
  levels = np.round(images.images[..., 0] / (255 / 16))
  np.testing.assert_array_equal(levels, file.images)
  assert images.images.max() == 255
  assert images.label_names == tuple("0123456789")
