"""Embeds images with a pretrained network, and shows them on a page.

Writes into the output folder `explore.html`, a map that opens in a browser;
`embeddings.npy` (float32, a row for each image), `files.csv` (the path and the class of
each image, its sub-folder) and `neighbours.csv` (the nearest images of each image).
With `--queries`, `queries.csv` and the sheet `queries.png` hold the nearest images of
the queries. A stopped run resumes with the same command.
"""

import argparse
import pathlib
import sys
import tempfile
import typing
from collections.abc import Callable, Sequence

import numpy as np

from spherejax import _checks, distances
from spherejax.explorer import _embedding, _networks, _page, _plane, _sources, _tables

_PAGE = "explore.html"
Load = Callable[[pathlib.Path], _networks.Embedder]


def main(arguments: Sequence[str] | None = None, *, load: Load | None = None) -> None:
  """Runs the command `spherejax-explore`, also for a network of your own.

  A script that calls this with `load` has the options of `spherejax-explore`, and its
  `--model` also takes a folder, whose network `load` reads.

  Args:
    arguments: of the command line; None takes those of the process.
    load: function from the folder of `--model` to an `Embedder`. Its OSError,
      ValueError or ImportError becomes the message. None refuses folders.

  Returns:
    None. The page and the tables are in the output folder; the page's path is printed.

  Raises:
    TypeError: arguments not a list of texts; load not a function.
    SystemExit: after a user's mistake, with a message of one line.

  Source: none.

  Example:
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> photos = pathlib.Path(tempfile.mkdtemp())
    >>> for red in range(3):
    ...     Image.new("RGB", (8, 8), (80 * red, 0, 0)).save(photos / f"{red}.png")
    >>> def load(folder):
    ...     return spherejax.explorer.Embedder(
    ...         folder.name,
    ...         {},
    ...         lambda image: image,
    ...         lambda _, images: spherejax.explorer.Outputs(images.mean(axis=(1, 2))),
    ...     )
    >>> options = ["--model", tempfile.mkdtemp(), "--output", tempfile.mkdtemp()]
    >>> arguments = [str(photos), *options, "--layout", "pca"]
    >>> spherejax.explorer.main(arguments, load=load)  # doctest: +ELLIPSIS
    written: ...explore.html
  """
  if arguments is not None:
    _checks.texts("arguments", arguments)
  if load is not None:
    _checks.function("load", load)
  parser = _parser()
  options = parser.parse_args(arguments)
  if options.neighbours < 1:
    parser.error(f"--neighbours must be at least 1, got {options.neighbours}")
  try:
    sys.stdout.write(f"written: {explore(options, load)}\n")
  except (OSError, ValueError, ImportError) as error:
    parser.exit(1, f"{parser.prog}: {' '.join(str(error).split())}\n")


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    "spherejax-explore",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
    "folder", help="images, with one sub-folder per class; or tfds:NAME/SPLIT"
  )
  parser.add_argument(
    "--output", type=pathlib.Path, help="output folder (explored-NAME for FOLDER)"
  )
  parser.add_argument(
    "--model",
    default="efficientnet_lite0",
    help="network trained on ImageNet (efficientnet_lite0); some programs, such as"
    " python -m experiments.embed, also read a network from a folder",
  )
  parser.add_argument(
    "--weights", type=pathlib.Path, help="file of the weights, if no package has them"
  )
  parser.add_argument(
    "--queries", help="image, folder or tfds:NAME/SPLIT to search with"
  )
  parser.add_argument(
    "--neighbours", type=int, default=10, help="nearest images to show (10)"
  )
  parser.add_argument(
    "--layout",
    choices=typing.get_args(_plane.Layout),
    default="tsne",
    help="layout of the map (tsne)",
  )
  parser.add_argument(
    "--skip-unreadable", action="store_true", help="leave out unreadable images"
  )
  return parser


def explore(options: argparse.Namespace, load: Load | None) -> pathlib.Path:
  """Reads and embeds images, and writes the page; returns its path."""
  source = _sources.find(options.folder)
  if not 2 <= len(source) <= _page.MOST_IMAGES:
    raise ValueError(
      f"FOLDER must hold 2 to {_page.MOST_IMAGES} images, got {len(source)} in"
      f" {options.folder}"
    )
  asked = _sources.find(options.queries) if options.queries else None
  _page.check_libraries()
  embedder = _embedder(options.model, options.weights, load)
  output = options.output or pathlib.Path(f"explored-{source.title}")
  _prepare(output, source)
  skip = options.skip_unreadable
  images = _embedding.embed(source, embedder, output, skip=skip, least=2)
  queries = _embedding.embed(asked, embedder, output, skip=skip) if asked else None
  names = images.names
  _tables.write_array(output / "embeddings.npy", images.embeddings)
  _tables.write_table(
    output / "files.csv", ("path", "label"), zip(names, images.labels, strict=True)
  )
  wrong = images.unreadable | (queries.unreadable if queries else {})
  _tables.write_table(output / "unreadable.csv", ("path", "reason"), wrong.items())
  neighbours = distances.k_nearest(
    images.embeddings,
    images.embeddings,
    k=min(options.neighbours, len(names) - 1),
    exclude=np.arange(len(names)),
  )
  _tables.write_neighbours(output / "neighbours.csv", "image", names, names, neighbours)
  if queries:
    _tables.answer(queries, images, options.neighbours, output)
  return _page.write(
    output / _PAGE,
    images.embeddings,
    neighbours,
    images=images.thumbnails,
    files=names,
    labels=images.labels,
    weights=images.weights,
    prototypes=images.prototypes,
    layout=options.layout,
    title=f"{source.title} by {embedder.name}",
  )


def _embedder(
  model: str, weights: pathlib.Path | None, load: Load | None
) -> _networks.Embedder:
  """Reads the network of a folder, or a pretrained one by its name."""
  folder = pathlib.Path(model)
  if not folder.is_dir():
    try:
      return _networks.pretrained(model, weights)
    except (OSError, ValueError) as error:
      option = f"--weights {weights}" if weights else f"--model {model}"
      raise ValueError(f"{option}: {error}") from error
  if load is None:
    raise ValueError(
      f"--model must be the name of a pretrained network, got the folder {model}; for a"
      " network of your own write a script with spherejax.explorer.main(load=...)"
    )
  if weights is not None:
    raise ValueError(f"--weights {weights} must be left out: {model} is a folder")
  return load(folder)


def _prepare(output: pathlib.Path, source: _sources.Source) -> None:
  """Makes a writable output folder before the work."""
  if source.root in (output.resolve(), *output.resolve().parents):
    raise ValueError(f"--output must lie outside of the images' folder, got {output}")
  try:
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=output):
      pass
  except OSError as error:
    reason = error.strerror or error
    raise OSError(f"--output {output} cannot be written to: {reason}") from error
