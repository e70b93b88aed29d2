"""Times imports, and the quickstart until its first figure.

Each number comes from a fresh process. The quickstart runs twice with one folder of
compiled programs, which is empty before the first time.

    python -m benchmarks.startup
    python -m benchmarks.startup --smoke      # imports; a test starts the quickstart
    python -m benchmarks.startup --only import --json FILE
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks import _measure

# Imports, and their largest allowed seconds.
IMPORTS = {
  "nothing": ("pass", None),
  "jax": ("import jax", None),
  "spherejax": ("import spherejax", 1.5),
  "spherejax and all of its rooms": ("from spherejax import *", None),
}
PICTURE_LIMIT = 60.0
_POLL = 0.05  # seconds


def imported(name: str, repetitions: int) -> dict[str, Any]:
  """Seconds that a fresh interpreter takes for an import, from its start to its end."""
  code, limit = IMPORTS[name]
  seconds = []
  for _ in range(repetitions + (repetitions > 1)):  # the first run reads from disk
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    seconds.append(time.perf_counter() - start)
  return _row(f"import of {name}", statistics.median(seconds[-repetitions:]), limit)


def quickstart(folder: pathlib.Path, output: str, preset: str) -> tuple[float, float]:
  """Seconds until the quickstart writes its first image, and until its end.

  Raises:
    SystemExit: the quickstart failed, or drew nothing.
  """
  environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "programs")}
  command = [sys.executable, "-m", "experiments.quickstart", "--preset", preset]
  start = time.perf_counter()
  with (folder / f"{output}.txt").open("w") as log:
    process = subprocess.Popen(
      [*command, "--output", str(folder / output)],
      env=environment,
      stdout=log,
      stderr=subprocess.STDOUT,
    )
    first = None
    while process.poll() is None:
      if first is None and any((folder / output).glob("*.png")):
        first = time.perf_counter() - start
      time.sleep(_POLL)
  whole = time.perf_counter() - start
  if process.returncode or not any((folder / output).glob("*.png")):
    raise SystemExit((folder / f"{output}.txt").read_text())
  return whole if first is None else first, whole


def _row(what: str, seconds: float, limit: float | None = None) -> dict[str, Any]:
  return {
    "what": what,
    "seconds": seconds,
    "at most": "" if limit is None else limit,
    "met": "" if limit is None else seconds <= limit,
  }


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__)
  rows: list[dict[str, Any]] = []

  def add(*more: dict[str, Any]) -> None:
    rows.extend(more)
    _measure.save("startup", rows, [], options)

  for name in IMPORTS:
    if options.only in f"import of {name}":
      add(imported(name, options.repetitions))
  if options.only in "quickstart" and not options.smoke:
    times = {"first": "nothing compiled before", "second": "once more"}
    with tempfile.TemporaryDirectory() as folder:
      for output, when in times.items():
        first, whole = quickstart(pathlib.Path(folder), output, "cpu")
        add(
          _row(f"quickstart (cpu), {when}: first picture", first, PICTURE_LIMIT),
          _row(f"quickstart (cpu), {when}: end", whole),
        )
  _measure.require(rows, options)
  _measure.show("startup", rows)


if __name__ == "__main__":
  main()
