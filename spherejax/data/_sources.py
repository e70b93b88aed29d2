"""Reads images from folders, and the digits of scikit-learn."""

import functools
import os
import pathlib

import numpy as np

from spherejax import _checks
from spherejax.data import _files, _images
from spherejax.data._images import Images


def load_digits() -> Images:
  """Loads the 1,797 handwritten digits of 8x8 pixels that are part of scikit-learn.

  The order is that of the file: the digits of one writer after another. So a split in
  this order separates writers, except one at each boundary. It needs scikit-learn, but
  no network.

  Returns:
    `Images`: uint8, [1797, 8, 8, 1]; the file's grey levels 0 to 16, scaled to 0
    to 255 and rounded. Labels 0 to 9.

  Cost: about 30 ms, plus the import of scikit-learn.

  Source: Alpaydin, Kaynak 1998, "Optical recognition of handwritten digits", test
  part, as in `sklearn.datasets.load_digits`.

  Example:
    >>> spherejax.data.load_digits().labels[:5]
    array([0, 1, 2, 3, 4], dtype=int32)
  """
  from sklearn import datasets

  values, labels = datasets.load_digits(return_X_y=True)
  pixels = np.round(np.reshape(values, (-1, 8, 8)) * (255 / 16)).astype(np.uint8)
  return _images.from_arrays(pixels, np.asarray(labels))


def load_folder(
  path: str | os.PathLike,
  *,
  size: int | tuple[int, int] | None = None,
  channels: int = 3,
  lazy: bool = False,
  skip_unreadable: bool = False,
) -> Images:
  """Loads images from a folder with a sub-folder for each class.

  Classes are the sub-folders in alphabetical order. A class has every file with an
  image suffix (upper or lower case) in its sub-folder, at any depth, in alphabetical
  order too; so the same folder gives the same data everywhere. The reader skips hidden
  files and folders (a leading dot, and `__MACOSX`), files with other suffixes, and
  images beside the sub-folders, which have no class. It follows links, but not back
  into a folder that holds them.

  The reader takes the first frame of an image and turns it upright by the metadata
  (EXIF or XMP, unless they are damaged). It drops transparency unless `channels` is 4,
  and applies no colour profile.

  Args:
    path: the folder.
    size: static. Side length, or (height, width), of the resized images; the aspect
      ratio is not kept. A pixel is the mean of its box, which is the area average for
      whole ratios; a smaller image repeats pixels. None keeps sizes.
    channels: static. 1 (grey), 3 (RGB) or 4 (RGBA); images are converted.
    lazy: static. True decodes an image on every access.
    skip_unreadable: static. True leaves out images that cannot be read, instead of
      raising; with `lazy`, all images are decoded once to find them.

  Returns:
    `Images`, named by the sub-folders; `extras["file"]` holds the paths relative
    to the folder. `images` is a list where sizes differ and `size` is None.

  Raises:
    TypeError: path not a path, a number not an integer, lazy or skip_unreadable not
      boolean.
    FileNotFoundError: no such folder.
    ValueError: no sub-folder, some without a (readable) image, files that are not
      images or have more than 8 bits per channel; the message lists up to 20 of them.
      With `lazy`, a file that is not an image raises on access.

  Cost: one pass over the folder; without `lazy`, all images are decoded, by a pool
  of min(32, cores + 4) threads.

  Source: none; the layout is torchvision's ImageFolder.

  Example:
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...   for name in ("cat", "dog"):
    ...     pathlib.Path(folder, name).mkdir()
    ...     Image.new("RGB", (20, 10)).save(pathlib.Path(folder, name, "1.png"))
    ...   images = spherejax.data.load_folder(folder, size=8)
    >>> images.images.shape, images.label_names
    ((2, 8, 8, 3), ('cat', 'dog'))
  """
  _checks.flag("lazy", lazy)
  _checks.flag("skip_unreadable", skip_unreadable)
  _checks.path("path", path)
  path = pathlib.Path(path)
  if not path.is_dir():
    raise FileNotFoundError(
      f"no image folder at {path}: path must hold a sub-folder of images for each class"
    )
  channels = _images.channel_count(channels)
  size = None if size is None else _images.image_size(size)
  names = _files.sub_folders(path)
  if not names:
    raise ValueError(
      f"the data set is empty: {path} has no sub-folder; expected one for each class"
    )
  paths = [file for file in _files.in_folder(path) if len(file.parts) > 1]
  label = {name: number for number, name in enumerate(names)}
  files = np.array([str(file) for file in paths])
  labels = np.array([label[file.parts[0]] for file in paths], np.int32)
  _check_classes(path, names, labels, f"image ({', '.join(_files.SUFFIXES)})")
  read = functools.partial(
    _read_file, folder=path, files=files.tolist(), channels=channels, size=size
  )
  images = _images.Lazy(read, np.arange(len(files)))
  pixels, unreadable = images, {}
  if not lazy:
    pixels, unreadable = _images.collect_readable(images)
  elif skip_unreadable:
    unreadable = _images.unreadable(images)
  if not skip_unreadable:
    remedy = "; repair or remove what cannot be read, or pass skip_unreadable=True"
    _images.refuse(unreadable.values(), len(files), remedy)
  readable = np.setdiff1d(np.arange(len(files)), list(unreadable))
  _check_classes(path, names, labels[readable], "image that can be read")
  return Images(
    images=images[readable] if lazy else pixels,
    labels=labels[readable],
    label_names=tuple(names),
    extras={"file": files[readable]},
  )


def read_image(
  path: str | os.PathLike,
  *,
  size: int | tuple[int, int] | None = None,
  channels: int = 3,
) -> np.ndarray:
  """Decodes an image file, as `load_folder` does.

  Use it for images from a list, where no folder gives their classes.

  Args:
    path: the file.
    size: static. Side length, or (height, width), of the resized image, as in
      `load_folder`. None keeps its size.
    channels: static. 1 (grey), 3 (RGB) or 4 (RGBA); the image is converted.

  Returns:
    [height, width, channels], uint8.

  Raises:
    TypeError: path not a path, a number not an integer.
    FileNotFoundError: no such file.
    ValueError: a file that is not an image or has more than 8 bits per channel; another
      number of channels, a size below 1.

  Cost: one image is decoded.

  Source: none.

  Example:
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...   path = pathlib.Path(folder, "1.png")
    ...   Image.new("RGB", (20, 10)).save(path)
    ...   spherejax.data.read_image(path).shape
    (10, 20, 3)
  """
  _checks.path("path", path)
  if not os.path.isfile(path):
    raise FileNotFoundError(f"no image at {path}: path must be an image file")
  channels = _images.channel_count(channels)
  size = None if size is None else _images.image_size(size)
  try:
    return _files.decode(path, name=str(path), channels=channels, size=size)
  except _files.UnreadableError as error:
    raise ValueError(f"{error}; expected an image of 8 bits a channel") from error


def _check_classes(
  folder: pathlib.Path, names: list[str], labels: np.ndarray, what: str
) -> None:
  """Raises unless each class has an image; otherwise labels would shift."""
  counts = np.bincount(labels, minlength=len(names))
  empty = [str(folder / names[number]) for number in np.flatnonzero(counts == 0)]
  if empty:
    is_one = len(empty) == 1
    raise ValueError(
      f"the class {'folder' if is_one else 'folders'} {_files.listed(empty)}"
      f" {'holds' if is_one else 'hold'} no {what}; add images, or remove"
      f" {'it' if is_one else 'them'}"
    )


def _read_file(
  row: int,
  *,
  folder: pathlib.Path,
  files: list[str],
  channels: int,
  size: tuple[int, int] | None,
) -> np.ndarray:
  file = folder / files[row]
  return _files.decode(file, name=str(file), channels=channels, size=size)
