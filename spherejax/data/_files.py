"""Image files: finds the images of a folder, and decodes pixels."""

import io
import os
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
  from PIL import Image

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
# Formats that Pillow may decode. It knows more, and starts Ghostscript for some.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_GREY = ("1", "L", "LA", "La")
_ORIENTATION = 0x0112  # the tag of EXIF
_REFUSAL = "cannot read the image "
_LISTED = 20  # largest number of files that a message names


class UnreadableError(ValueError):
  """Raised for an image file that cannot be read; the message names file and reason."""

  @property
  def why(self) -> str:
    """The message without its first words, for a list of several files."""
    return str(self).removeprefix(_REFUSAL)


def in_folder(folder: pathlib.Path) -> list[pathlib.PurePosixPath]:
  """Paths of a folder's images, relative to the folder.

  An image is a file with an image suffix in upper or lower case, at any depth. The
  class of an image is the sub-folder of `folder` that holds it, directly or deeper;
  images beside the sub-folders have no class. Hidden files and folders, whose names
  begin with a dot, are skipped, and so are the files `._x.png` and the folder
  `__MACOSX` of macOS archives. Links are followed, but not back into a folder that
  holds them. A broken link is listed, so that reading it fails with its name.

  Returns:
    Paths in alphabetical order, compared name by name from the folder on.
  """
  paths: list[pathlib.PurePosixPath] = []
  left: list[tuple[pathlib.Path, tuple[str, ...]]] = [(folder, ())]
  while left:
    place, above = left.pop()
    real = os.path.realpath(place)
    if real in above:  # a link led back
      continue
    for path in place.iterdir():
      if _is_hidden(path):
        continue
      if path.is_dir():
        left.append((path, (*above, real)))
      elif path.suffix.lower() in SUFFIXES and (path.is_file() or _is_lost(path)):
        paths.append(pathlib.PurePosixPath(path.relative_to(folder)))
  return sorted(paths, key=lambda path: path.parts)


def sub_folders(folder: pathlib.Path) -> list[str]:
  """Names of the sub-folders that can hold images, in alphabetical order."""
  real = os.path.realpath(folder)
  return sorted(
    path.name
    for path in folder.iterdir()
    if path.is_dir() and not _is_hidden(path) and os.path.realpath(path) != real
  )


def _is_hidden(path: pathlib.Path) -> bool:
  return path.name.startswith(".") or path.name == "__MACOSX"


def _is_lost(path: pathlib.Path) -> bool:
  """True for a broken link."""
  return path.is_symlink() and not path.exists()


def decode(
  file: str | os.PathLike | bytes,
  *,
  name: str,
  channels: int | None,
  size: tuple[int, int] | None,
) -> np.ndarray:
  """Decodes an image file or its bytes, upright, with boxes averaged to `size`.

  All readers decode alike: they take the first frame, turn it upright by the metadata
  (EXIF or XMP, unless they are damaged), drop transparency unless `channels` is 4, and
  apply no colour profile. `channels` None means 1 for grey images without transparency
  and 3 for others.
  """
  try:
    return _pixels(file, channels, size)
  except Exception as error:  # any error of a decoder
    raise UnreadableError(f"{_REFUSAL}{name}: {error}") from error


def _pixels(
  file: str | os.PathLike | bytes, channels: int | None, size: tuple[int, int] | None
) -> np.ndarray:
  from PIL import Image

  with _open(file) as image:
    image.load()  # decode first: metadata after the pixels can define the orientation
    turn = _turn(image)
    if channels is None:
      channels = 1 if image.mode in ("1", "L") else 3
    if image.mode not in _GREY:  # other colours and palettes: not all become grey
      clear = channels == 4 or "transparency" in image.info
      image = image.convert("RGBA" if clear else "RGB")
    image = image.convert(_MODES[channels])
    if turn is not None:
      image = image.transpose(turn)
    if size is not None and image.size != (size[1], size[0]):
      # Together with their transparency, colours would be weighted by it.
      bands = [
        band.resize((size[1], size[0]), Image.Resampling.BOX) for band in image.split()
      ]
      image = Image.merge(image.mode, bands)
    pixels = np.asarray(image)
  return pixels if pixels.ndim == 3 else pixels[..., None]


def _open(file: str | os.PathLike | bytes) -> "Image.Image":
  from PIL import Image

  # Of a path, Pillow maps some TIFF files into memory and turns them wrongly.
  content = file if isinstance(file, bytes) else pathlib.Path(file).read_bytes()
  image = Image.open(io.BytesIO(content), formats=_FORMATS)
  if image.mode[0] in "IF" or _is_deep(image):  # a conversion would clip it
    image.close()
    raise ValueError(f"mode {image.mode} has more than 8 bits a channel")
  return image


def _is_deep(image: Any) -> bool:
  """True for colours of more than 8 bits a channel, which Pillow cuts."""
  for *_, arguments in image.tile:
    mode, *rest = (arguments,) if isinstance(arguments, str) else arguments
    if image.format == "PPM" and rest and rest[0] > 255:
      return True
    if image.format in ("PNG", "TIFF") and ";16" in mode:
      return True
  return False


def _turn(image: "Image.Image") -> "Image.Transpose | None":
  """Returns the rotation or reflection after which the image stands upright."""
  from PIL import Image

  if image.format == "TIFF":  # Pillow turns these when it decodes
    return None
  try:
    orientation: Any = image.getexif().get(_ORIENTATION)
    return {
      2: Image.Transpose.FLIP_LEFT_RIGHT,
      3: Image.Transpose.ROTATE_180,
      4: Image.Transpose.FLIP_TOP_BOTTOM,
      5: Image.Transpose.TRANSPOSE,
      6: Image.Transpose.ROTATE_270,
      7: Image.Transpose.TRANSVERSE,
      8: Image.Transpose.ROTATE_90,
    }.get(orientation)
  except Exception:  # any error of damaged metadata: the pixels are good
    return None


def check_header(file: str | os.PathLike) -> None:
  """Raises any error that Pillow finds without decoding."""
  with _open(file) as image:
    image.verify()


def listed(texts: Iterable[str]) -> str:
  """Lists the first texts, and the number of others."""
  texts = list(texts)
  more = len(texts) - _LISTED
  return ", ".join(texts[:_LISTED]) + (f" and {more} more" if more > 0 else "")
