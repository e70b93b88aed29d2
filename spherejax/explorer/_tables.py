"""Files beside the page: tables, and a sheet with the results of queries."""

import csv
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from spherejax import distances, plotting
from spherejax.explorer import _thumbnails
from spherejax.explorer._embedding import Embedded

_SHOWN = 8  # number of queries on the sheet
_COLUMNS = 10  # number of neighbours on the sheet
_LETTERS = 28  # letters of a name beside a row
_BYTES = 4_000_000  # enough for the largest sheet of noise at half the resolution


def write_table(
  path: pathlib.Path, header: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
  """Writes a table, completely or not at all."""
  temporary = path.with_suffix(".partial")
  # A file name may hold bytes that are not UTF-8; they stay as they are.
  with temporary.open(
    "w", newline="", encoding="utf-8", errors="surrogateescape"
  ) as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
  temporary.replace(path)


def write_array(path: pathlib.Path, array: np.ndarray) -> None:
  """Writes a `.npy` file, completely or not at all."""
  temporary = path.with_suffix(".partial")
  with temporary.open("wb") as file:
    np.save(file, array)
  temporary.replace(path)


def write_neighbours(
  path: pathlib.Path,
  asked: str,
  queries: Sequence[str],
  names: Sequence[str],
  neighbours: distances.Neighbours,
) -> None:
  """Writes the nearest images of each query; `asked` names the first column."""
  near, gaps = np.asarray(neighbours.indices), np.asarray(neighbours.distances)
  write_table(
    path,
    (asked, "rank", "neighbour", "distance"),
    (
      (query, rank + 1, names[near[row, rank]], f"{gaps[row, rank]:.6g}")
      for row, query in enumerate(queries)
      for rank in range(near.shape[1])
    ),
  )


def answer(
  queries: Embedded, images: Embedded, neighbours: int, output: pathlib.Path
) -> None:
  """Writes `queries.csv`, and `queries.png` with the first of them.

  A query that is one of the images does not find itself.
  """
  places = {images.source.identity(row): n for n, row in enumerate(images.rows)}
  query_rows = [places.get(queries.source.identity(row), -1) for row in queries.rows]
  count = len(images.rows) - (max(query_rows) >= 0)
  nearest = distances.k_nearest(
    queries.embeddings,
    images.embeddings,
    k=min(neighbours, count),
    exclude=np.array(query_rows),
  )
  write_neighbours(
    output / "queries.csv", "query", queries.names, images.names, nearest
  )
  near = np.asarray(nearest.indices)[:_SHOWN, :_COLUMNS]
  labels = np.array(images.labels)
  asked = np.array(queries.labels[:_SHOWN])
  known = np.isin(asked, labels[labels != ""])
  cells = _thumbnails.thumbnails(
    [*queries.thumbnails[:_SHOWN], *(images.thumbnails[n] for n in near.ravel())], None
  )
  figure = plotting.retrieval_sheet(
    cells,
    np.arange(len(near)),
    len(near) + np.arange(near.size).reshape(near.shape),
    (labels[near] == asked[:, None]) & known[:, None],
    names=[_short(name) for name in queries.names[:_SHOWN]],
    title=f"nearest of {len(images.rows)} images",
  )
  # If the query's class is unknown, no neighbour is right or wrong.
  for row in np.flatnonzero(~known):
    first = row * (1 + near.shape[1]) + 1
    for cell in figure.axes[first : first + near.shape[1]]:
      cell.spines[:].set_visible(False)
      for text in list(cell.texts):
        text.remove()
  if not known.any():
    figure.legends[0].remove()
  plotting.save(figure, output / "queries.png", max_bytes=_BYTES)


def _short(name: str) -> str:
  name = name.encode(errors="replace").decode()  # fonts have no surrogates
  text = name if len(name) <= _LETTERS else "…" + name[1 - _LETTERS :]
  return text.replace("$", r"\$")  # matplotlib would start a formula
