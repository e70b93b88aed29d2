"""Images from folders and from what is embedded in scikit-learn."""

import functools
import os
import pathlib

import numpy as np

from spherejax import _checks
from spherejax.data import _images
from spherejax.data._images import Images

_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def load_digits() -> Images:
  """The 1,797 handwritten digits of 8x8 pixels that scikit-learn embeds.

  The order is that of the file: runs of digits by one writer after another, so
  that a split in this order separates writers (all but one at each boundary).
  Needs scikit-learn, and nothing from the network.

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
) -> Images:
  """Images from a folder that holds one sub-folder for each class.

  Classes are the sub-folders in alphabetical order, images the files in them, in
  alphabetical order too; so the same folder gives the same data everywhere. Files
  without an image suffix and hidden folders are passed over.

  Args:
    path: the folder.
    size: static. Side length, or (height, width), to which each image is brought
      (the aspect ratio is not kept): the mean of the pixels in each box, which is
      the area average for whole ratios; a smaller image repeats pixels. None keeps
      sizes.
    channels: static. 1 (grey), 3 (RGB) or 4 (RGBA); images are converted.
    lazy: static. True decodes an image when it is asked for, with every use.

  Returns:
    `Images`, named by the sub-folders; `extras["file"]` holds the paths relative
    to the folder. `images` is a list where sizes differ and `size` is None.

  Raises:
    TypeError: path no path, a number no integer, lazy not boolean.
    FileNotFoundError: no such folder.
    ValueError: no sub-folder, one without an image, a file that is no image.

  Cost: one pass over the folder; without `lazy`, all images are decoded, by a pool
  of min(32, cores + 4) threads.

  Source: own; the layout is torchvision's ImageFolder.

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
  _checks.path("path", path)
  path = pathlib.Path(path)
  if not path.is_dir():
    raise FileNotFoundError(
      f"no image folder at {path}: path must hold one sub-folder of images a class"
    )
  channels = _images.channel_count(channels)
  size = None if size is None else _images.image_size(size)
  names = sorted(
    child.name
    for child in path.iterdir()
    if child.is_dir() and not child.name.startswith(".")
  )
  if not names:
    raise ValueError(
      f"the data set is empty: {path} has no sub-folder; expected one for each class"
    )
  files, labels = [], []
  for label, name in enumerate(names):
    found = sorted(
      file.name
      for file in (path / name).iterdir()
      if file.suffix.lower() in _SUFFIXES and file.is_file()
    )
    if not found:
      raise ValueError(
        f"the class folder {path / name} holds no image ({', '.join(_SUFFIXES)})"
      )
    files += [f"{name}/{file}" for file in found]
    labels += [label] * len(found)
  read = functools.partial(
    _read_file,
    folder=path,
    files=files,
    channels=channels,
    size=size,
  )
  images = _images.Lazy(read, np.arange(len(files)))
  return Images(
    images=images if lazy else _images.collect(images),
    labels=np.asarray(labels, np.int32),
    label_names=tuple(names),
    extras={"file": np.asarray(files)},
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
  return _images.decode(file, name=str(file), channels=channels, size=size)
