"""Command `spherejax-explore`: shows images on a page, by a pretrained network.

Writes into the output folder `explore.html`, a map that opens in a browser;
`embeddings.npy` (float32, a row for each image), `files.csv` (its path and class, the
sub-folder that holds it) and `neighbours.csv` (the nearest images of each). With
`--queries`, `queries.csv` and the sheet `queries.png` hold the nearest images of the
queries. A stopped run resumes with the same command.
"""

import argparse
import pathlib
import sys
import tempfile
import typing
from collections.abc import Callable, Sequence

import numpy as np

from spherejax import distances
from spherejax.explorer import (
  _embedding,
  _networks,
  _page,
  _plane,
  _sources,
  _tables,
)

_PAGE = "explore.html"
Load = Callable[[str, pathlib.Path | None], _networks.Embedder | None]


def main(
  arguments: Sequence[str] | None = None, *, load: Load = lambda *_: None
) -> None:
  """Runs the command line; user errors end it with a one-line message.

  `load` returns the network of `--model` and `--weights`, or None for a pretrained one.
  """
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
    "folder", help="of images, a class a sub-folder; or tfds:NAME/SPLIT"
  )
  parser.add_argument(
    "--output", type=pathlib.Path, help="folder of the page (explored-NAME of FOLDER)"
  )
  parser.add_argument(
    "--model",
    default="efficientnet_lite0",
    help="network trained on ImageNet (efficientnet_lite0); python -m experiments.embed"
    " also takes the folder of one that was trained here",
  )
  parser.add_argument(
    "--weights", type=pathlib.Path, help="file of its weights, if no package has them"
  )
  parser.add_argument(
    "--queries", help="image, folder or tfds:NAME/SPLIT whose nearest images are told"
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


def explore(options: argparse.Namespace, load: Load) -> pathlib.Path:
  """Reads and embeds images, and writes the page; returns its path."""
  source = _sources.find(options.folder)
  if not 2 <= len(source) <= _page.MOST_IMAGES:
    raise ValueError(
      f"FOLDER must hold 2 to {_page.MOST_IMAGES} images, got {len(source)} in"
      f" {options.folder}"
    )
  asked = _sources.find(options.queries) if options.queries else None
  _page.check_libraries()
  chosen = options.model, options.weights
  embedder = load(*chosen) or _networks.pretrained(*chosen)
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
