"""Embeddings of many pictures, kept in parts, so that a stopped run goes on."""

import dataclasses
import functools
import hashlib
import json
import pathlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
import tqdm
from jax import Array

from experiments.embedding import sources
from experiments.frame import kept as finished
from experiments.frame import results
from experiments.frame.networks import Architecture, Model
from spherejax import data, training
from spherejax.data import _files

_LISTING = "listing.json"


class Job(NamedTuple):
  """What of a source is done, and what is left."""

  source: sources.Source
  model: Model
  folder: pathlib.Path
  settings: dict[str, Any]
  """What the parts were made with."""
  done: dict[int, np.ndarray]
  """Raw embeddings of the source's rows."""
  unreadable: dict[int, str]
  """Rows that are no pictures, and why."""
  todo: np.ndarray
  """Rows that are left."""


def begin(source: sources.Source, model: Model, folder: pathlib.Path, what: str) -> Job:
  """Looks up what the folder holds already, and at the headers of what is left.

  Says which pictures have changed since; SystemExit names what differs where the
  folder's embeddings are another network's, or of other images, and ValueError a file
  that is damaged.
  """
  described = json.loads(json.dumps(dataclasses.asdict(model.architecture)))
  settings = {"from": source.text, "network": described, "weights": _digest(model)}
  files = dict(zip(source.names, source.stamps, strict=True))
  if (folder / _LISTING).is_file():
    compare(folder, settings, files, what)
  results.write_json({"settings": settings, "files": files}, folder / _LISTING)
  done, unreadable = restore(folder, settings, files, model.architecture.embedding_dim)
  left = [row for row in range(len(source)) if row not in done | unreadable]
  unreadable |= sources.check_headers(source, left)
  todo = np.array([row for row in left if row not in unreadable], np.int32)
  return Job(source, model, folder, settings, done, unreadable, todo)


def compare(
  folder: pathlib.Path, settings: dict[str, Any], files: dict[str, str], what: str
) -> None:
  """What `begin` says and refuses, by the listing that an earlier run left."""
  listing = finished.read_record(
    folder / _LISTING, "settings", "files", check=_check_listing
  )
  _same(listing["settings"], settings, what, folder)
  _tell_changes(listing["files"], files, what)


def _check_listing(listing: dict[str, Any]) -> None:
  settings, files = listing["settings"], listing["files"]
  kinds = {"from": str, "network": dict, "weights": str}
  if not isinstance(settings, dict) or not all(
    isinstance(settings.get(name), kind) for name, kind in kinds.items()
  ):
    raise ValueError("its settings must hold from, network and weights")
  if not isinstance(files, dict) or not _are_texts(files.values()):
    raise ValueError("its files must be names with a text each")


def _are_texts(values: Iterable[Any]) -> bool:
  return all(isinstance(value, str) for value in values)


def restore(
  folder: pathlib.Path, settings: dict[str, Any], files: dict[str, str], dim: int
) -> tuple[dict[int, np.ndarray], dict[int, str]]:
  """Embeddings by row, and why which rows are none, of the parts in a folder."""
  row_of = {file: row for row, file in enumerate(files.items())}
  check = functools.partial(_check_part, dim=dim)
  done, unreadable = {}, {}
  for path in sorted(folder.glob("part-*.json")):
    kept = finished.restore(path.with_suffix(""), settings, check)
    if kept is None:
      continue
    for file, embedding in zip(
      kept.figures["files"], kept.arrays["embeddings"], strict=True
    ):
      if (row := row_of.get(tuple(file))) is not None:
        done[row] = embedding
    for name, stamp, why in kept.figures["unreadable"]:
      if (row := row_of.get((name, stamp))) is not None:
        unreadable[row] = why
  return done, unreadable


def _check_part(part: finished.Finished, dim: int) -> None:
  for name, size in (("files", 2), ("unreadable", 3)):
    entries = part.figures.get(name) if isinstance(part.figures, dict) else None
    if not isinstance(entries, list) or not all(
      isinstance(entry, list) and len(entry) == size and _are_texts(entry)
      for entry in entries
    ):
      raise ValueError(f"its {name} must be lists of {size} texts")
  expected = np.dtype(np.float32), (len(part.figures["files"]), dim)
  embeddings = part.arrays.get("embeddings")
  if embeddings is None:
    raise ValueError("the arrays beside it have no embeddings")
  if (embeddings.dtype, embeddings.shape) != expected:
    raise ValueError(
      f"the embeddings beside it must be {expected[0]} {expected[1]}, got"
      f" {embeddings.dtype} {embeddings.shape}"
    )


def _digest(model: Model) -> str:
  digest = hashlib.blake2b(digest_size=16)
  for path, leaf in jax.tree_util.tree_leaves_with_path(model.variables):
    digest.update(jax.tree_util.keystr(path).encode())
    digest.update(np.ascontiguousarray(leaf).tobytes())
  return digest.hexdigest()


def _same(
  before: dict[str, Any], now: dict[str, Any], what: str, folder: pathlib.Path
) -> None:
  if before == now:
    return
  if before["from"] != now["from"]:
    found = f"{what} from {before['from']!r}, not from {now['from']!r}"
  else:
    old, new = before["network"], now["network"]
    fields = [
      f"{name} {old.get(name)!r}, not {new.get(name)!r}"
      for name in sorted(old.keys() | new.keys())
      if old.get(name) != new.get(name)
    ]
    found = f"{what} by another model: " + (", ".join(fields) or "with other weights")
  raise SystemExit(
    f"{folder} holds embeddings of {found}; choose another --output, or delete it"
  )


def _tell_changes(before: dict[str, str], now: dict[str, str], what: str) -> None:
  changes = {
    "changed": [name for name in now if name in before and before[name] != now[name]],
    "new": [name for name in now if name not in before],
    "gone": [name for name in before if name not in now],
  }
  for change, names in changes.items():
    if names:
      shown = _files.listed(names)
      print(f"{what}, {change} since: {len(names)} ({shown})", file=sys.stderr)


@functools.lru_cache
def network(architecture: Architecture, batch: int) -> Callable[[Any, Any], np.ndarray]:
  """Of variables and framed images to raw embeddings; compiled once a process."""

  def embed(variables: Any, framed: Array) -> Array:
    return Model(architecture, variables).embed(framed[:, 1:])

  return training.parallel_map(embed, batch_size=batch)


def prepared(source: sources.Source, model: Model) -> sources.Prepared:
  """The source's pictures as the network takes them."""
  a = model.architecture
  shape = (a.image_size, a.image_size, a.channels)
  return sources.Prepared(source.read, model.prepare(), shape, len(source))


def finish(job: Job, *, batch: int, part: int, workers: int) -> Job:
  """Embeds what is left, and keeps every part as soon as it is complete."""
  if not len(job.todo):
    return job
  done, unreadable = dict(job.done), dict(job.unreadable)
  embed = network(job.model.architecture, batch)
  plan = job.todo[data.ordered_plan(len(job.todo), batch_size=batch)]
  pictures = prepared(job.source, job.model)
  images = data.Images(pictures, np.full(len(pictures), -1, np.int32), ())
  steps = -(-part // batch)  # of a part: the same batches, wherever a run stopped
  rows: list[int] = []
  with tqdm.tqdm(
    total=len(pictures),
    initial=len(pictures) - len(job.todo),
    unit="image",
    file=sys.stderr,
  ) as progress:
    for step, found in enumerate(data.pipeline(images, plan, workers=workers)):
      count = min(batch, len(job.todo) - step * batch)
      own = found["index"][:count].tolist()
      framed, wrong = _look_again(pictures, found["image"], own)
      unreadable |= wrong
      embeddings = embed(job.model.variables, framed)[:count]
      for row, embedding in zip(own, embeddings, strict=True):
        if row not in wrong:
          done[row] = embedding
      rows += own
      progress.update(count)
      if (step + 1) % steps == 0 or step + 1 == len(plan):
        _keep(job, rows, done, unreadable, embeddings.shape[1])
        rows = []
  return job._replace(done=done, unreadable=unreadable, todo=job.todo[:0])


def _look_again(
  pictures: sources.Prepared, framed: np.ndarray, rows: list[int]
) -> tuple[np.ndarray, dict[int, str]]:
  """A batch, and why which of its pictures cannot be read at the second time either."""
  wrong = {}
  for place in np.flatnonzero(framed[: len(rows), 0, 0, 0] == 0):
    why = pictures.reason(rows[place])
    if why:
      wrong[rows[place]] = why
    else:
      framed = framed.copy()
      framed[place] = pictures[rows[place]]
  return framed, wrong


def _keep(
  job: Job,
  rows: list[int],
  done: dict[int, np.ndarray],
  unreadable: dict[int, str],
  dim: int,
) -> None:
  """Writes one part; its number follows the largest that is there."""
  files = list(zip(job.source.names, job.source.stamps, strict=True))
  there = job.folder.glob(f"part-{6 * '[0-9]'}.json")
  number = 1 + max((int(path.stem[-6:]) for path in there), default=-1)
  good = [row for row in rows if row in done]
  figures = {
    "files": [files[row] for row in good],
    "unreadable": [(*files[row], unreadable[row]) for row in rows if row in unreadable],
  }
  embeddings = np.array([done[row] for row in good], np.float32).reshape(-1, dim)
  path = job.folder / f"part-{number:06}"
  finished.keep(
    path, job.settings, finished.Finished(figures, {"embeddings": embeddings})
  )
