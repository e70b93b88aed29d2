"""What `embed` writes: embeddings, the nearest pictures of each query, a sheet."""

import csv
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.embedding import parts
from spherejax import distances, plotting

if TYPE_CHECKING:
  import matplotlib.figure

_SHOWN = 8  # queries on the sheet
_COLUMNS = 10  # neighbours on the sheet
_LETTERS = 28  # of a name beside a row
_BYTES = 4_000_000  # holds the largest sheet of noise at half of the resolution
NORMALIZATIONS = {
  "unit_ball": distances.unit_ball,
  "l2": distances.l2_normalize,
  "none": jnp.asarray,
}


class Embedded(NamedTuple):
  """Pictures that could be read, in the order of their source."""

  job: parts.Job
  rows: list[int]
  """Of the source."""
  labels: list[str]
  embeddings: np.ndarray


class Answers(NamedTuple):
  """The nearest pictures of each query."""

  indices: np.ndarray
  distances: np.ndarray
  correct: np.ndarray
  """Whether they are of the query's class."""
  known: np.ndarray
  """Queries whose class is one of the pictures'."""
  own: np.ndarray
  """Whether they are the query itself."""


def collect(job: parts.Job, normalize: str) -> Embedded:
  """Embeddings of a job that is finished."""
  rows = sorted(job.done)
  raw = np.stack([job.done[row] for row in rows])
  found = np.asarray(jax.jit(NORMALIZATIONS[normalize])(raw), np.float32)
  return Embedded(job, rows, [job.source.labels[row] for row in rows], found)


def answer(queries: Embedded, images: Embedded, neighbours: int) -> Answers:
  """Exact neighbours; a query that is one of the pictures has its embedding."""
  places = {own: place for place, own in enumerate(_identities(images))}
  same = np.array([places.get(own, -1) for own in _identities(queries)])
  asked = np.where(same[:, None] >= 0, images.embeddings[same], queries.embeddings)
  labels = [
    images.labels[place] if place >= 0 else label
    for place, label in zip(same, queries.labels, strict=True)
  ]
  k = min(neighbours, len(images.rows))
  found = distances.k_nearest(asked, images.embeddings, k=k)
  indices = np.asarray(found.indices)
  classes = np.array(images.labels)
  there = set(images.labels) - {""}
  known = np.array([label in there for label in labels])
  correct = (classes[indices] == np.array(labels)[:, None]) & known[:, None]
  own = indices == same[:, None]
  return Answers(indices, np.asarray(found.distances), correct, known, own)


def _identities(found: Embedded) -> list[pathlib.Path | str]:
  """Of each picture: its file, or its place in a prepared split."""
  root = found.job.source.root
  return [name if root is None else root / name for name in names(found)]


def names(found: Embedded) -> list[str]:
  """Of the pictures, as their source has them."""
  return [found.job.source.names[row] for row in found.rows]


def write_table(
  path: pathlib.Path, header: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
  """A table, whole or not at all."""
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_suffix(".partial")
  # A file name may hold bytes that are no UTF-8; they stay as they are.
  with temporary.open(
    "w", newline="", encoding="utf-8", errors="surrogateescape"
  ) as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
  temporary.replace(path)


def write_embeddings(found: Embedded, output: pathlib.Path) -> None:
  """`embeddings.npy`, [pictures, dim], and `files.csv`, their names and classes."""
  output.mkdir(parents=True, exist_ok=True)
  temporary = output / "embeddings.partial"
  with temporary.open("wb") as file:
    np.save(file, found.embeddings)
  temporary.replace(output / "embeddings.npy")
  pairs = zip(names(found), found.labels, strict=True)
  write_table(output / "files.csv", ("path", "label"), pairs)


def write_answers(
  answers: Answers, queries: Embedded, images: Embedded, output: pathlib.Path
) -> None:
  """`neighbours.csv` and `neighbours.png`, the first queries' part of it."""
  files = names(images)
  write_table(
    output / "neighbours.csv",
    ("query", "rank", "file", "distance"),
    (
      (query, rank, files[index], f"{distance:.9g}")
      for query, indices, apart in zip(
        names(queries), answers.indices, answers.distances, strict=True
      )
      for rank, (index, distance) in enumerate(zip(indices, apart, strict=True), 1)
    ),
  )
  figure = sheet(answers, queries, images)
  plotting.save(figure, output / "neighbours.png", max_bytes=_BYTES)


def sheet(
  answers: Answers, queries: Embedded, images: Embedded
) -> "matplotlib.figure.Figure":
  """The first queries and their nearest pictures, as the network sees them."""
  shown = answers.indices[:_SHOWN, :_COLUMNS]
  chosen, places = np.unique(shown, return_inverse=True)
  figure = plotting.retrieval_sheet(
    _pictures(queries, range(len(shown))),
    np.arange(len(shown)),
    places.reshape(shown.shape),
    answers.correct[:_SHOWN, :_COLUMNS],
    reference_images=_pictures(images, chosen.tolist()),
    names=[_short(name) for name in names(queries)[:_SHOWN]],
    title=f"nearest of {len(images.rows)} images",
  )
  # Nothing is right or wrong where the query's class is not known.
  for row in np.flatnonzero(~answers.known[:_SHOWN]):
    first = row * (1 + shown.shape[1]) + 1
    for cell in figure.axes[first : first + shown.shape[1]]:
      cell.spines[:].set_visible(False)
      for text in list(cell.texts):
        text.remove()
  if not answers.known[:_SHOWN].any():
    figure.legends[0].remove()
  return figure


def _pictures(found: Embedded, places: Iterable[int]) -> np.ndarray:
  seen = parts.prepared(found.job.source, found.job.model)
  pictures = np.stack([seen[found.rows[place]][1:] for place in places])
  return 255 - pictures if found.job.model.architecture.inverted else pictures


def _short(name: str) -> str:
  name = name.encode(errors="replace").decode()  # fonts have no halves of letters
  text = name if len(name) <= _LETTERS else "…" + name[1 - _LETTERS :]
  return text.replace("$", r"\$")  # which would begin a formula
