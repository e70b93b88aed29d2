"""Reads images by the list file that a data set comes with."""

import functools
import os
import pathlib
import re

import numpy as np

from spherejax import _checks
from spherejax.data import _images
from spherejax.data._images import Images
from spherejax.data._sources import read_image

_LISTING = "list_eval_partition.txt"
_FIELDS = "image_name item_id evaluation_status"
_STATUSES = ("train", "query", "gallery")
_COUNT = re.compile(r"[0-9]{1,9}")


def load_in_shop(path: str | os.PathLike) -> Images:
  r"""Reads In-shop Clothes Retrieval of DeepFashion by its list file.

  The folder holds `list_eval_partition.txt` and the images that it names, one per line
  with its item and `train`, `query` or `gallery`. Queries are searched for in the
  gallery, and no query or gallery item is in training. The number of images and the
  names of the columns, at the top of the file, may be missing. Images are decoded on
  access, as by `read_image`.

  Args:
    path: the folder.

  Returns:
    `Images` in the order of the file, labelled by item; `label_names` are the items in
    alphabetical order. `extras["file"]` holds the paths relative to the folder,
    `extras["status"]` the third column.

  Raises:
    TypeError: path not a path.
    FileNotFoundError: no list file in the folder.
    ValueError: a line that is wrong, names no image, or names an image again (the
      message gives the line); a number of images other than the file says, a status
      that no image has, or an item that is in training and also in the query or gallery
      part.

  Cost: one pass over the file; no image is decoded.

  Source: Liu et al. 2016, "DeepFashion: powering robust clothes recognition and
  retrieval with rich annotations", the released files.

  Example:
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> rows = "a.png id_1 train", "b.png id_2 query", "c.png id_2 gallery"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...   for row in rows:
    ...     Image.new("RGB", (4, 4)).save(pathlib.Path(folder, row.split()[0]))
    ...   listing = pathlib.Path(folder, "list_eval_partition.txt")
    ...   count = listing.write_text("\n".join(rows))
    ...   images = spherejax.data.load_in_shop(folder)
    >>> images.label_names, images.labels.tolist()
    (('id_1', 'id_2'), [0, 1, 1])
  """
  _checks.path("path", path)
  folder = pathlib.Path(path)
  rows = _read(folder)
  files, items, statuses = (np.array(column) for column in zip(*rows, strict=True))
  names, labels = np.unique(items, return_inverse=True)
  learned = statuses == "train"
  if both := sorted({*items[learned]} & {*items[~learned]}):
    raise ValueError(
      f"{folder / _LISTING}: item {both[0]} has training images and test images"
    )
  read = functools.partial(_read_row, folder=folder, files=files.tolist())
  return Images(
    _images.Lazy(read, np.arange(len(files))),
    labels.astype(np.int32),
    tuple(names.tolist()),
    extras={"file": files, "status": statuses},
  )


def _read_row(row: int, *, folder: pathlib.Path, files: list[str]) -> np.ndarray:
  return read_image(folder / files[row])


def _read(folder: pathlib.Path) -> list[list[str]]:
  """Lines of the list file: file, item and status."""
  path = folder / _LISTING
  if not path.is_file():
    raise FileNotFoundError(
      f"In-shop is a folder with {_LISTING} and the images that it names; there is no"
      f" {path}"
    )
  try:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
  except UnicodeDecodeError as error:
    raise ValueError(f"{path} must be text in UTF-8: {error}") from error
  rows, expected, places = [], None, {}
  for number, line in enumerate(lines, start=1):
    fields, place = line.split(), f"{path}, line {number}"
    if not fields or fields == _FIELDS.split():
      continue
    if number == 1 and len(fields) == 1 and _COUNT.fullmatch(fields[0]):
      expected = int(fields[0])
      continue
    if len(fields) != 3 or fields[2] not in _STATUSES:
      raise ValueError(
        f"{place}: expected {_FIELDS!r} with the status train, query or gallery, got"
        f" {line!r}"
      )
    file = fields[0]
    if not os.path.isfile(folder / file):
      raise ValueError(f"{place}: there is no image {folder / file}")
    before = places.setdefault(os.path.normpath(file), number)
    if before != number:
      raise ValueError(f"{place}: {file} is listed already, in line {before}")
    rows.append(fields)
  if expected is not None and expected != len(rows):
    raise ValueError(
      f"{path} says that it lists {expected} images, but lists {len(rows)}"
    )
  for status in _STATUSES:
    if not any(row[2] == status for row in rows):
      raise ValueError(f"{path} lists no image with the status {status}")
  return rows
