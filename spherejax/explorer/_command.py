"""`spherejax-explore`: the images of a folder on a page, by a pretrained network.

Writes into the output folder `explore.html`, a map that opens in a browser;
`embeddings.npy` (float32, a row of norm 1 for each image), `files.csv` (its path and
class, the sub-folder that holds it) and `neighbours.csv` (the nearest images of each).
A run that was stopped goes on with the same command.
"""

import argparse
import concurrent.futures
import csv
import hashlib
import pathlib
import sys
import typing
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from spherejax import data, distances, models, training
from spherejax.data import _files
from spherejax.explorer import _page, _plane, _thumbnails
from spherejax.models import _pretrained

_PAGE = "explore.html"


class _Photographs(NamedTuple):
  """The images of a folder that can be read."""

  folder: pathlib.Path
  names: list[str]
  """Paths below the folder."""
  thumbnails: list[np.ndarray]


class _Squares(Sequence):
  """The middle of each image, of the side that a network takes."""

  def __init__(self, photographs: _Photographs, side: int):
    self._photographs, self._side = photographs, side

  def __len__(self) -> int:
    return len(self._photographs.names)

  def __getitem__(self, row: Any) -> Any:
    from PIL import Image, ImageOps

    name = self._photographs.names[row]
    path = self._photographs.folder / name
    pixels = _files.decode(path, name=name, channels=3, size=None)
    image, side = Image.fromarray(pixels), (self._side, self._side)
    return np.asarray(ImageOps.fit(image, side, Image.Resampling.BICUBIC))


def main(arguments: Sequence[str] | None = None) -> None:
  """The command line; errors of the user's end it with one line."""
  parser = _parser()
  given = parser.parse_args(arguments)
  if given.neighbours < 1:
    parser.error(f"--neighbours must be at least 1, got {given.neighbours}")
  try:
    sys.stdout.write(f"written: {explore(given)}\n")
  except (OSError, ValueError, ImportError) as error:
    parser.exit(1, f"{parser.prog}: {' '.join(str(error).split())}\n")


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    "spherejax-explore",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
    "folder", type=pathlib.Path, help="of images; a class is a sub-folder"
  )
  parser.add_argument(
    "--output", type=pathlib.Path, help="folder of the page (explored-NAME of FOLDER)"
  )
  parser.add_argument(
    "--model",
    choices=typing.get_args(_pretrained.Name),
    default="efficientnet_lite0",
    help="network trained on ImageNet (efficientnet_lite0)",
  )
  parser.add_argument(
    "--weights", type=pathlib.Path, help="file of its weights, if no package has them"
  )
  parser.add_argument(
    "--neighbours", type=int, default=10, help="shown for each image (10)"
  )
  parser.add_argument(
    "--layout",
    choices=typing.get_args(_plane.Layout),
    default="tsne",
    help="of the map (tsne)",
  )
  parser.add_argument(
    "--skip-unreadable", action="store_true", help="leaves them out and lists them"
  )
  return parser


def explore(given: argparse.Namespace) -> pathlib.Path:
  """Reads, embeds and writes; returns the page."""
  folder = given.folder.resolve()
  if not folder.is_dir():
    raise NotADirectoryError(f"FOLDER must be a folder, got {given.folder}")
  names = [str(path) for path in _files.in_folder(folder)]
  if not 2 <= len(names) <= _page.MOST_IMAGES:
    raise ValueError(
      f"FOLDER must hold 2 to {_page.MOST_IMAGES} images"
      f" ({', '.join(_files.SUFFIXES)}), got {len(names)} in {given.folder}"
    )
  _page.check_libraries()
  network = models.pretrained(given.model, path=given.weights)
  output = given.output or pathlib.Path(f"explored-{folder.name}")
  output.mkdir(parents=True, exist_ok=True)
  photographs = _read(folder, names, output, skip=given.skip_unreadable)
  embeddings = _embed(photographs, network, output)
  names = photographs.names
  labels = [
    path.parts[0] if len(path.parts) > 1 else ""
    for path in map(pathlib.PurePath, names)
  ]
  _write_array(output / "embeddings.npy", embeddings)
  _write_table(output / "files.csv", ("path", "label"), zip(names, labels, strict=True))
  found = distances.k_nearest(
    embeddings,
    embeddings,
    k=min(given.neighbours, len(names) - 1),
    exclude=np.arange(len(names)),
  )
  near, apart = np.asarray(found.indices), np.asarray(found.distances)
  _write_table(
    output / "neighbours.csv",
    ("image", "rank", "neighbour", "distance"),
    (
      (names[row], rank + 1, names[near[row, rank]], f"{apart[row, rank]:.6g}")
      for row in range(len(names))
      for rank in range(near.shape[1])
    ),
  )
  return _page.write_page(
    output / _PAGE,
    embeddings,
    images=photographs.thumbnails,
    files=names,
    labels=labels,
    neighbours=given.neighbours,
    layout=given.layout,
    title=f"{folder.name} by {given.model}",
  )


def _read(
  folder: pathlib.Path, names: list[str], output: pathlib.Path, *, skip: bool
) -> _Photographs:
  """Decodes all images once; says which of them cannot be read."""
  side = _thumbnails.side_of(len(names))

  def read(name: str) -> np.ndarray | str:
    try:
      pixels = _files.decode(folder / name, name=name, channels=3, size=None)
    except _files.UnreadableError as error:
      return error.why
    return _thumbnails.shrink(pixels, side)

  with concurrent.futures.ThreadPoolExecutor() as pool:
    progress = tqdm.tqdm(
      pool.map(read, names), total=len(names), desc="reading", unit="image"
    )
    small = dict(zip(names, progress, strict=True))
  wrong = {name: why for name, why in small.items() if isinstance(why, str)}
  if len(names) - len(wrong) < 2 or (wrong and not skip):
    raise ValueError(
      f"{len(wrong)} of {len(names)} images cannot be read:"
      f" {_files.listed(wrong.values())}; repair or remove them, or leave the"
      " unreadable ones of many out by --skip-unreadable"
    )
  _write_table(output / "unreadable.csv", ("path", "reason"), wrong.items())
  good = {name: pixels for name, pixels in small.items() if name not in wrong}
  return _Photographs(folder, [*good], typing.cast(list[np.ndarray], [*good.values()]))


def _embed(
  photographs: _Photographs, network: models.PretrainedNetwork, output: pathlib.Path
) -> np.ndarray:
  """[images, features], averaged maps of norm 1, kept for a run that goes on."""
  stamps = [(photographs.folder / name).stat() for name in photographs.names]
  files = [
    (name, stamp.st_size, stamp.st_mtime_ns)
    for name, stamp in zip(photographs.names, stamps, strict=True)
  ]
  made_with = {
    "network": network.name,
    "weights": network.variables,
    "pixels": [network.side, network.mean, network.deviation],
    "files": hashlib.blake2b(repr(files).encode(), digest_size=16).hexdigest(),
  }
  images = data.Images(
    _Squares(photographs, network.side),
    np.full(len(photographs.names), -1, np.int32),
    (),
  )

  # Not the network's own method: one program for maps and mean.
  average = jax.jit(lambda images: jnp.mean(network.features(images), axis=(1, 2)))
  # Features of other images, or by another network, lie beside these.
  key = hashlib.blake2b(
    repr((made_with["files"], network.name)).encode(), digest_size=6
  )
  path = output / f"features-{key.hexdigest()}.npy"
  features = training.keep_features(
    path, average, images, made_with=made_with, batch_size=32
  )
  # Of other images: this command's own files alone, whatever else begins so.
  for old in {*output.glob(f"features-{12 * '[0-9a-f]'}.npy")} - {path}:
    old.unlink()
    old.with_suffix(".json").unlink(missing_ok=True)
  return np.asarray(distances.l2_normalize(features.astype(np.float32)))


def _write_array(path: pathlib.Path, array: np.ndarray) -> None:
  temporary = path.with_suffix(".partial")
  with temporary.open("wb") as file:
    np.save(file, array)
  temporary.replace(path)


def _write_table(
  path: pathlib.Path, header: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
  """A table, whole or not at all."""
  temporary = path.with_suffix(".partial")
  # A file name may hold bytes that are no UTF-8; they stay as they are.
  with temporary.open(
    "w", newline="", encoding="utf-8", errors="surrogateescape"
  ) as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
  temporary.replace(path)
