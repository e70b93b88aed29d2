"""Embeds pictures with a trained network, and finds the nearest ones of a query.

Writes `embeddings.npy` (float32, a row for each picture) and `files.csv` (its path and
class), and, for queries, `neighbours.csv` and the sheet `neighbours.png`. A class is a
sub-folder. `--explore` adds `explore.html`, a map of the pictures for a browser. A run
that was stopped goes on with the same command: what it has done is kept in parts. So
does one whose folder has other pictures since; it names them.

    python -m experiments.embed --model MODEL --images FOLDER --queries PICTURE
    python -m experiments.embed --model MODEL --images tfds:omniglot/test
    python -m experiments.embed --preset smoke --explore    # seconds, needs neither

A model is a folder that `retrieval` wrote. `smoke` makes a small one, that is not
trained, and pictures of scikit-learn's digits.
"""

import dataclasses
import pathlib
import time
from typing import Any, Literal

import numpy as np

from experiments.embedding import answers as embed_answers
from experiments.embedding import digits as embed_digits
from experiments.embedding import explore as embedding_explore
from experiments.embedding import jobs as embed_jobs
from experiments.embedding import parts
from experiments.frame import command, results
from spherejax import _checks


@dataclasses.dataclass(frozen=True)
class Config:
  """What is embedded, by what, and what is asked."""

  model: str = ""
  """Folder of the network, as `retrieval` wrote it."""
  images: str = ""
  """Folder, with or without sub-folders, or tfds:NAME/SPLIT."""
  queries: str = ""
  """Image file, folder or tfds:NAME/SPLIT whose neighbours are found; or nothing."""
  neighbours: int = 5
  """Images found for each query, as far as there are so many; the explorer's, too."""
  normalize: Literal["unit_ball", "l2", "none"] = "unit_ball"
  """What is done to the network's embeddings: long ones are shortened to norm 1, all
  are brought there, or nothing."""
  skip_unreadable: bool = False
  """Leaves out pictures that cannot be read, and lists them in `unreadable.csv`."""
  explore: bool = False
  """Writes `explore.html` too, a page that shows the images on a map."""
  layout: Literal["tsne", "pca"] = "tsne"
  """Of the explorer's map; t-SNE of many thousand images takes minutes."""
  batch: int = 64
  """Images that the network sees at once."""
  part: int = 1024
  """Images that are kept at once, while a run goes on; a multiple of batch, or it
  becomes one."""
  workers: int = 0
  """Processes that decode; 0: threads of this one."""
  digits: int = 0
  """Makes a network and so many pictures of digits, for a look at what happens."""


PRESETS = {
  "folder": Config(),
  "smoke": Config(digits=200, batch=32, part=64),
}


def run(config: Config, output: pathlib.Path, preset: str = "folder") -> dict[str, Any]:
  """Embeds, answers and writes; returns figures."""
  start = time.perf_counter()
  for name, least in (("neighbours", 1), ("batch", 1), ("part", 1), ("workers", 0)):
    _checks.count(name, getattr(config, name), least)
  reported = config
  config = embed_digits.fill_in(config, output) if config.digits else config
  model = embed_jobs.load(config.model, config.images)
  asked = {"images": config.images, "queries": config.queries}
  jobs = embed_jobs.begin(model, asked, output, explore=config.explore)
  embed_jobs.refuse_unreadable(jobs, config.skip_unreadable)
  for what, job in jobs.items():
    jobs[what] = parts.finish(
      job, batch=config.batch, part=config.part, workers=config.workers
    )
  embed_jobs.refuse_unreadable(jobs, config.skip_unreadable)
  found = {
    what: embed_answers.collect(job, config.normalize) for what, job in jobs.items()
  }
  embed_answers.write_embeddings(found["images"], output)
  wrong = [
    (job.source.names[row], why)
    for job in jobs.values()
    for row, why in sorted(job.unreadable.items())
  ]
  embed_answers.write_table(output / "unreadable.csv", ("path", "reason"), wrong)
  figures: dict[str, float] = {
    "images": len(found["images"].rows),
    "unreadable": len(wrong),
  }
  if config.queries:
    queries, images = found["queries"], found["images"]
    answers = embed_answers.answer(queries, images, config.neighbours)
    embed_answers.write_answers(answers, queries, images, output)
    figures["queries"] = len(queries.rows)
    others = answers.known[:, None] & ~answers.own
    if others.any():
      share = float(np.mean(answers.correct[others]))
      figures["neighbours of the query's class"] = share
  if config.explore:
    embedding_explore.write(
      found["images"],
      output,
      neighbours=config.neighbours,
      layout=config.layout,
      batch=config.batch,
      workers=config.workers,
    )
  content = results.result(
    experiment="embed",
    preset=preset,
    config=reported,
    seconds=time.perf_counter() - start,
    rows=[results.row("all", name, [value]) for name, value in figures.items()],
    claims=[],
    pictures=["neighbours.png"] if config.queries else [],
  )
  results.write_json(content, output / "results.json")
  return content


def main() -> None:
  """The command line."""
  preset, config, output = command.parse(
    PRESETS, name="embed", doc=__doc__, default="folder"
  )
  content = run(config, output, preset)
  for entry in content["rows"]:
    print(f"{entry['metric']}: {entry['mean']:g}")
  print(f"{content['seconds']} s, written to {output}")


if __name__ == "__main__":
  main()
