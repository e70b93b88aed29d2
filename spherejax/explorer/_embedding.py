"""Embeds images once, and reuses the features of earlier runs."""

import concurrent.futures
import functools
import hashlib
import json
import pathlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import tqdm

from spherejax import data, training
from spherejax.data import _files
from spherejax.explorer import _networks, _sources, _thumbnails

_BATCH = 32


class Embedded(NamedTuple):
  """Readable images, in the order of their source."""

  source: _sources.Source
  rows: list[int]
  """Rows of the source."""
  thumbnails: list[np.ndarray]
  embeddings: np.ndarray
  weights: np.ndarray | None
  prototypes: np.ndarray | None
  unreadable: dict[str, str]
  """Names of the other images, and why."""

  @property
  def names(self) -> list[str]:
    """Names of the images."""
    return [self.source.names[row] for row in self.rows]

  @property
  def labels(self) -> list[str]:
    """Class of each image, "" where it is not known."""
    return [self.source.labels[row] for row in self.rows]


class _Reader(Sequence):
  """Reads rows of a source as a network takes them; keeps what else a page needs.

  An unreadable image is replaced by black, so that its batch does not fail.
  """

  def __init__(
    self, source: _sources.Source, prepare: Callable[[np.ndarray], np.ndarray]
  ):
    self.source, self.prepare = source, prepare
    self.rows: list[int] = []
    self.thumbnails: dict[int, np.ndarray] = {}
    self.unreadable: dict[int, str] = {}
    self._side = _thumbnails.side_of(len(source))
    self._lock = threading.Lock()

  def __len__(self) -> int:
    return len(self.rows)

  def read(self, row: int) -> np.ndarray | None:
    """Reads an image; keeps its thumbnail, or the reason why there is none."""
    try:
      pixels = self.source.read(row)
      small = _thumbnails.shrink(pixels, self._side)
    except Exception as error:  # whatever a decoder raises
      with self._lock:
        self.unreadable[row] = _sources.reason(error)
      return None
    with self._lock:
      self.thumbnails[row] = small
    return pixels

  def __getitem__(self, place: Any) -> Any:
    pixels = self.read(self.rows[place])
    black = np.zeros((8, 8, 3), np.uint8)
    return self.prepare(black if pixels is None else pixels)

  def read_others(self) -> None:
    """Makes thumbnails of the images that the network did not see."""
    left = [
      row
      for row in range(len(self.source))
      if row not in self.thumbnails and row not in self.unreadable
    ]
    with concurrent.futures.ThreadPoolExecutor() as pool:
      many = pool.map(self.read, left)
      for _ in tqdm.tqdm(many, total=len(left), desc="reading", disable=not left):
        pass

  def refuse(self, *, skip: bool, least: int) -> None:
    """Raises ValueError for unreadable images, unless enough others are left."""
    wrong, count = self.unreadable, len(self.source)
    if count - len(wrong) < least or (wrong and not skip):
      listed = [f"{self.source.names[row]}: {wrong[row]}" for row in sorted(wrong)]
      remedy = "" if skip else ", or skip them with --skip-unreadable"
      raise ValueError(
        f"{len(wrong)} of {count} images cannot be read: {_files.listed(listed)};"
        f" repair or remove them{remedy}"
      )


def embed(
  source: _sources.Source,
  embedder: _networks.Embedder,
  folder: pathlib.Path,
  *,
  skip: bool = False,
  least: int = 1,
) -> Embedded:
  """Computes embeddings and thumbnails; decodes each image once.

  The folder keeps features of images by name and stamp, in a file for each run that
  computed some. So a stopped run resumes, and only added images are computed.
  ValueError names unreadable images, unless `skip` leaves them out and at least `least`
  others are left.
  """
  reader = _Reader(source, embedder.prepare)
  known = _known(folder, embedder.identity)
  files = list(zip(source.names, source.stamps, strict=True))
  left = [row for row, file in enumerate(files) if file not in known]
  reader.unreadable |= _sources.check_headers(source, left)
  if reader.unreadable and not skip:
    reader.read_others()  # so that the message names all of them
  reader.refuse(skip=skip, least=least)
  reader.rows = [row for row in left if row not in reader.unreadable]
  shapes = _shapes(embedder)
  if reader.rows:
    chosen = [files[row] for row in reader.rows]
    made_with = {"network": embedder.identity, "files": chosen}
    rows = training.keep_features(
      folder / f"features-{_short(made_with)}.npy",
      lambda images: _flat(embedder(images)),
      data.Images(reader, np.full(len(chosen), -1, np.int32), ()),
      made_with=made_with,
      batch_size=_BATCH,
    )
    known |= dict(zip(chosen, rows, strict=True))
  reader.read_others()
  reader.refuse(skip=skip, least=least)
  good = [row for row in range(len(source)) if row not in reader.unreadable]
  flat = np.stack([known[files[row]] for row in good]).astype(np.float32)
  embeddings, weights, prototypes = _parts(flat, shapes)
  assert embeddings is not None
  return Embedded(
    source,
    good,
    [reader.thumbnails[row] for row in good],
    embeddings,
    weights,
    prototypes,
    {source.names[row]: why for row, why in sorted(reader.unreadable.items())},
  )


def _short(made_with: dict[str, Any]) -> str:
  return hashlib.blake2b(json.dumps(made_with).encode(), digest_size=6).hexdigest()


def _known(folder: pathlib.Path, identity: str) -> dict[tuple[str, str], np.ndarray]:
  """Loads stored features by name and stamp; removes damaged files."""
  known_rows: dict[tuple[str, str], np.ndarray] = {}
  for path in sorted(folder.glob(f"features-{12 * '[0-9a-f]'}.json")):
    try:
      known_rows |= _saved(path, identity)
    except Exception:  # any error of NumPy
      path.unlink()
      path.with_suffix(".npy").unlink(missing_ok=True)
  return known_rows


def _saved(path: pathlib.Path, identity: str) -> dict[tuple[str, str], np.ndarray]:
  manifest = json.loads(path.read_text(encoding="utf-8"))
  made_with, done = manifest["made with"], int(manifest["done"])
  if made_with["network"] != identity or not done:
    return {}
  names = [(str(name), str(stamp)) for name, stamp in made_with["files"]]
  rows = np.load(path.with_suffix(".npy"), mmap_mode="r")
  if rows.dtype != np.float16 or rows.ndim != 2 or len(rows) != len(names):
    raise ValueError(f"the rows do not match the {len(names)} files")
  return dict(zip(names[:done], rows[:done], strict=True))


_Shapes = list[tuple[int, ...] | None]


def _shapes(embedder: _networks.Embedder) -> _Shapes:
  """Shapes of an image's embedding, weights and prototypes, None for missing parts."""
  black = embedder.prepare(np.zeros((8, 8, 3), np.uint8))
  parts = jax.eval_shape(
    functools.partial(embedder.apply, embedder.variables),
    jax.ShapeDtypeStruct((_BATCH, *black.shape), black.dtype),
  )
  return [None if part is None else part.shape[1:] for part in parts]


def _flat(output: _networks.Outputs) -> np.ndarray:
  """Joins all parts to [images, numbers], since one array is stored."""
  parts = [np.asarray(part) for part in output if part is not None]
  return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _parts(flat: np.ndarray, shapes: _Shapes) -> list[np.ndarray | None]:
  parts: list[np.ndarray | None] = []
  for shape in shapes:
    if shape is None:
      parts.append(None)
      continue
    size = int(np.prod(shape))
    parts.append(flat[:, :size].reshape(len(flat), *shape))
    flat = flat[:, size:]
  return parts
