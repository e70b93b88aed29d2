"""Reads prepared tensorflow-datasets image sets without TensorFlow."""

import functools
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from spherejax import _checks
from spherejax.data import _files, _images
from spherejax.data._images import Images

_INFO = "dataset_info.json"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# Number of records requested at once while the labels are read.
_CHUNK = 512


def load_tfds(
  name: str,
  split: str,
  *,
  data_dir: str | os.PathLike | None = None,
  label: str | None = None,
  size: int | tuple[int, int] | None = None,
  channels: int | None = None,
  extras: Sequence[str] | None = None,
  lazy: bool = False,
) -> Images:
  """Loads images of a prepared tensorflow-datasets set, without TensorFlow.

  The set needs a feature `image` and must have been prepared with
  `file_format="array_record"`. The order is that of the files, which
  tensorflow-datasets shuffles once. Images are read as in `load_folder`: upright, by
  their metadata. tensorflow-datasets itself ignores these metadata; boxes and masks
  among the extras stay as they are stored.

  Args:
    name: the set's folder: `"cifar100"`, with its configuration if it has one
      (`"voc/2007"`), and with a version unless you want the newest
      (`"cifar100/3.0.2"`).
    split: `"train"`, or any split that tensorflow-datasets allows: `"train+test"`,
      `"train[:10%]"`.
    data_dir: the folder of prepared sets; None takes the environment variable
      TFDS_DATA_DIR.
    label: the integer feature that becomes `labels`. None takes `label`, or -1
      for each image of a set without one.
    size: static. Side length, or (height, width), of the resized images, as in
      `load_folder`. None keeps sizes.
    channels: static. 1, 3 or 4; None keeps the set's.
    extras: names of the other features to keep; None keeps all. Images among the
      features that are left out, such as masks, are never decoded.
    lazy: static. True decodes an image on every access.

  Returns:
    `Images`. The other features are `extras`; class names of features that are labels
    are `extra_names`. `images` is a list where sizes differ and `size` is None.

  Raises:
    FileNotFoundError: no data folder, or the set is not in it.
    ValueError: unknown split or feature, an empty split, a range outside the split,
      unreadable images (up to 20 are named), a set in another file format or damaged.
    TypeError: images of more than 8 bits, `label` not an integer feature, lazy not
      boolean.

  Cost: one pass over the records: on two cores, 0.1 ms for the labels of a record and
  0.2 ms to decode 64x64 pixels.

  Source: none; the format is that of the tensorflow-datasets package.

  Example:
    >>> train = spherejax.data.load_tfds("cifar100", "train")  # doctest: +SKIP
    >>> train.images.shape, train.extra_names["coarse_label"][0]  # doctest: +SKIP
    ((1117, 32, 32, 3), 'aquatic_mammals')
  """
  _checks.flag("lazy", lazy)
  _checks.text("name", name)
  _checks.text("split", split)
  if label is not None:
    _checks.text("label", label)
  if extras is not None:
    _checks.texts("extras", extras)
  if data_dir is not None:
    _checks.path("data_dir", data_dir)
  if channels is not None:
    channels = _images.channel_count(channels)
  size = None if size is None else _images.image_size(size)
  folder = _set_folder(name, _data_folder(name, data_dir))
  # Imported only once the folder is found, as the import takes a second.
  import tensorflow_datasets as tfds

  try:
    builder = tfds.builder_from_directory(str(folder))
  except Exception as error:  # any error of meaningless files
    raise ValueError(
      f"the description of {name!r} in {folder} is damaged ({error}); prepare it again"
      f" by\n  {_prepare(name)}"
    ) from error
  features: Any = builder.info.features
  _check_image(name, features)
  others = sorted(key for key in features if key != "image")
  if unknown := sorted({*(extras or ())} - {*others}):
    raise ValueError(f"extras of {name!r} must be among {others}, got {unknown[0]!r}")
  keys = [key for key in others if extras is None or key in {*extras, label or "label"}]
  pictures = {key for key in features if isinstance(features[key], tfds.features.Image)}
  encoded = dict.fromkeys(pictures - {*keys}, tfds.decode.SkipDecoding())
  records = _records(builder, name, split, encoded)
  source = f"of {name}, split {split}"
  rows = _rows(records, keys if lazy else [*keys, "image"], source)
  columns = {key: _column([row[key] for row in rows]) for key in keys}
  if label is None and "label" not in features:
    labels, label_names = np.full(len(records), -1, np.int32), ()
  else:
    label = "label" if label is None else label
    labels, label_names = _labels(name, label, features, columns)
    del columns[label]
  read = functools.partial(
    _read_record,
    records=records if lazy else rows,
    source=source,
    channels=_images.channel_count(channels or features["image"].shape[-1]),
    size=size,
  )
  images = _images.Lazy(read, np.arange(len(records)))
  return Images(
    images=images if lazy else _images.collect(images),
    labels=labels,
    label_names=label_names,
    extras=columns,
    extra_names={
      key: tuple(features[key].names)
      for key in columns
      if isinstance(features[key], tfds.features.ClassLabel)
    },
  )


def _prepare(name: str) -> str:
  """Command of tensorflow-datasets that prepares the set."""
  place, _, last = name.rpartition("/")
  called = f"{place}:{last}" if place and _VERSION.fullmatch(last) else name
  return (
    'python -c "import tensorflow_datasets as tfds;'
    f" tfds.builder({called!r}, data_dir='DIR', file_format='array_record')"
    '.download_and_prepare()"'
  )


def _data_folder(name: str, data_dir: str | os.PathLike | None) -> pathlib.Path:
  """Folder of prepared sets; raises an error that tells how to get one."""
  folder = os.environ.get("TFDS_DATA_DIR", "") if data_dir is None else data_dir
  if folder and pathlib.Path(folder).is_dir():
    return pathlib.Path(folder)
  if data_dir is not None:
    problem = f"no folder of prepared tensorflow-datasets sets at data_dir={folder}"
  elif folder:
    problem = f"TFDS_DATA_DIR={folder} is not a folder"
  else:
    problem = "the environment variable TFDS_DATA_DIR is not set"
  raise FileNotFoundError(
    f"{problem}. Prepare {name!r} once, where TensorFlow is installed, by\n"
    f"  {_prepare(name)}\n"
    "(docs/data.md says how where tensorflow-datasets does not know the set) and set"
    " TFDS_DATA_DIR=DIR, or pass data_dir"
  )


def _version(folder: pathlib.Path) -> tuple[int, ...]:
  """(1, 20, 3) for the folder of a prepared version 1.20.3, () for others."""
  match = _VERSION.fullmatch(folder.name)
  if match is None or not (folder / _INFO).is_file():
    return ()
  return tuple(map(int, match.groups()))


def _set_folder(name: str, root: pathlib.Path) -> pathlib.Path:
  """Folder of the set's newest version, or of the named version."""
  folder = root / name
  if name and (folder / _INFO).is_file():
    return folder
  versions = [path for path in folder.glob("*") if _version(path)] if name else []
  if versions:
    return max(versions, key=_version)
  there = {
    path.parent.parent.relative_to(root).as_posix()
    for depth in ("*/*", "*/*/*")
    for path in root.glob(f"{depth}/{_INFO}")
    if _version(path.parent)
  }
  remedy = f"; prepare it by {_prepare(name)}" if name else ""
  raise FileNotFoundError(
    f"no image set {name!r} in {root}{remedy}; there are:"
    f" {', '.join(sorted(there)) or 'none'}"
  )


def _check_image(name: str, features: Any):
  """Raises unless the set has 8-bit images."""
  import tensorflow_datasets as tfds

  if "image" not in features or not isinstance(
    image := features["image"], tfds.features.Image
  ):
    raise ValueError(
      f"{name!r} has no image feature 'image'; its features are: "
      + ", ".join(sorted(features))
    )
  if image.np_dtype != np.uint8:
    raise TypeError(f"images of {name!r} must be uint8, got dtype {image.np_dtype}")


def _records(builder: Any, name: str, split: str, decoders: dict[str, Any]) -> Any:
  """Random access to the split's records."""
  count = sum(_count(builder, name, part.strip()) for part in split.split("+"))
  if count == 0:
    raise ValueError(f"the data set is empty: split {split!r} of {name!r}")
  try:
    return builder.as_data_source(split=split, decoders=decoders)
  except NotImplementedError as error:
    raise ValueError(
      f"{name!r} is not prepared as array_record, the format that is read without"
      f" TensorFlow. Prepare it by\n  {_prepare(name)}"
    ) from error


def _count(builder: Any, name: str, part: str) -> int:
  """Number of images in a split or a range of a split; raises if there is none."""
  whole = part.partition("[")[0]
  if part != "all" and whole not in builder.info.splits:
    raise ValueError(
      f"{name!r} has no split {whole!r}; its splits are:"
      f" {', '.join(sorted(builder.info.splits))}"
    )
  size = builder.info.splits[whole].num_examples
  try:
    count = builder.info.splits[part].num_examples
  except Exception as error:  # any error of the package
    raise ValueError(
      f"split must be a range within the {size} images of {whole!r} of {name!r}, such"
      f" as '{whole}[:{min(size, 100)}]' or '{whole}[50%:]', got {part!r}"
    ) from error
  if count < 0:
    raise ValueError(f"split must not end before it begins, got {part!r} of {name!r}")
  return count


def _rows(records: Any, keys: list[str], source: str) -> list[dict[str, Any]]:
  """Named features of all records; images among them stay encoded."""
  rows = []
  for start in range(0, len(records), _CHUNK):
    chunk = range(start, min(start + _CHUNK, len(records)))
    try:
      # Many records at once are twice as fast as one after another.
      rows += [
        {key: record[key] for key in keys} for record in records.__getitems__(chunk)
      ]
    except RuntimeError as error:
      raise ValueError(
        f"cannot read records {start} to {chunk[-1]} {source}: {error}"
      ) from error
  return rows


def _column(values: list) -> np.ndarray:
  """Column of text or numbers; anything else is stored as objects."""
  if isinstance(values[0], bytes):
    return np.asarray([value.decode(errors="backslashreplace") for value in values])
  if np.ndim(values[0]) == 0 and not isinstance(values[0], dict):
    return np.asarray(values)
  column = np.empty(len(values), object)
  column[:] = values
  return column


def _labels(
  name: str, label: str, features: Any, columns: dict[str, np.ndarray]
) -> tuple[np.ndarray, tuple[str, ...]]:
  """Feature that becomes the labels, and its names (numbers if it has none)."""
  if label not in columns:
    there = ", ".join(sorted(key for key in features if key != "image"))
    raise ValueError(f"{name!r} has no feature {label!r} for label; there are: {there}")
  _checks.expect(f"label={label!r}", columns[label], "integer")
  if hasattr(features[label], "names"):
    return columns[label].astype(np.int32), tuple(features[label].names)
  labels, names = _images.named(columns[label])
  return labels.astype(np.int32), names


def _read_record(
  row: int, *, records: Any, source: str, channels: int, size: tuple[int, int] | None
) -> np.ndarray:
  try:
    image = records[row]["image"]
  except RuntimeError as error:
    raise ValueError(f"cannot read record {row} {source}: {error}") from error
  name = f"of record {row} {source}"
  return _files.decode(image, name=name, channels=channels, size=size)
