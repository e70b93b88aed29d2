"""What `embed` is asked for: a network, pictures and queries, and what it refuses."""

import pathlib
from collections.abc import Mapping

from experiments.embedding import explore as embedding_explore
from experiments.embedding import parts, sources
from experiments.frame import networks
from spherejax.data import _files


def load(model: str, images: str) -> networks.Model:
  """The network in that folder; SystemExit says what is missing or does not fit."""
  given = {"model": model, "images": images}
  if missing := [f"--{name}" for name, text in given.items() if not text]:
    raise SystemExit(
      f"{' and '.join(missing)} missing: --model is a folder that `retrieval` wrote,"
      " --images a folder or tfds:NAME/SPLIT; --preset smoke needs neither"
    )
  try:
    return networks.load(pathlib.Path(model))
  except FileNotFoundError as error:
    raise SystemExit(f"--model {model}: {error}") from error
  except (ValueError, TypeError, RuntimeError) as error:
    raise SystemExit(f"--model {model} does not hold what it says: {error}") from error


def begin(
  model: networks.Model,
  asked: Mapping[str, str],
  output: pathlib.Path,
  *,
  explore: bool,
) -> dict[str, parts.Job]:
  """A job for each source that is named, by what it is for."""
  jobs = {}
  for what, text in asked.items():
    if text:
      source = sources.find(text)
      if source.text in map(str, (output.resolve(), *output.resolve().parents)):
        raise SystemExit(f"--output {output} lies in {text}; choose another one")
      if explore and what == "images":
        embedding_explore.check(source)
      folder = output / "parts" / what
      jobs[what] = parts.begin(source, model, folder, what)
  return jobs


def refuse_unreadable(jobs: Mapping[str, parts.Job], skip: bool) -> None:
  """SystemExit where pictures cannot be read, unless they, but not all, are skipped."""
  for what, job in jobs.items():
    if len(job.unreadable) == len(job.source) or (job.unreadable and not skip):
      wrong = [
        f"{job.source.names[row]} ({why})"
        for row, why in sorted(job.unreadable.items())
      ]
      raise SystemExit(
        f"{len(wrong)} of {len(job.source)} {what} cannot be read:"
        f" {_files.listed(wrong)}. Repair or remove them, or leave the"
        " unreadable ones of many out by --skip-unreadable; what is embedded stays"
      )
