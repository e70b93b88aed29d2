"""Runs all benchmarks, one after another, and writes `docs/benchmarks.md`.

    python -m benchmarks                    # hours on 2 cores
    python -m benchmarks --only losses      # those with this in their name
    python -m benchmarks --page             # only the page, from earlier results
    python -m benchmarks --check            # fails when the page is stale

Each benchmark writes its result to `docs/benchmarks/NAME.json` when it ends. Failed
benchmarks are named at the end; the others still run. If a peer that was measured
before is not installed, the result goes to `runs/benchmarks/NAME.json` instead.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys

from benchmarks import _page

NAMES = (
  "gsp", "gsp_accuracy", "losses", "first_calls", "losses_large", "prototypes",
  "ablation", "assignment", "weight_import", "voronoi", "attacks", "episodes",
  "retrieval", "scale", "backbones", "embed", "augment", "step", "startup", "calls",
  "drill",
)  # fmt: skip
ASIDE = pathlib.Path("runs", "benchmarks")


def _gone(new: pathlib.Path, old: pathlib.Path) -> list[str]:
  """Names that the new result lacks and the old one has."""
  if not old.exists():
    return []
  before, after = (json.loads(file.read_text())["missing"] for file in (old, new))
  return sorted(set(after) - set(before))


def run(names: list[str]) -> list[str]:
  """Runs each benchmark in its own process; returns the names that failed."""
  _page.FOLDER.mkdir(exist_ok=True)
  failed = []
  for name in names:
    print(f"{name}:", flush=True)
    result = _page.FOLDER / f"{name}.json"
    begun = result.with_suffix(".begun")  # the old result stays until the new run ends
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(begun)]
    if subprocess.run(command, check=False).returncode:
      failed.append(name)
    elif gone := _gone(begun, result):
      ASIDE.mkdir(parents=True, exist_ok=True)
      shutil.move(begun, ASIDE / result.name)
      print(f"{result} stays, it has {', '.join(gone)}: see {ASIDE / result.name}")
    else:
      begun.replace(result)
    _page.PAGE.write_text(_page.page(NAMES))
  return failed


def main() -> None:
  """Runs the command line."""
  parser = argparse.ArgumentParser(
    "python -m benchmarks",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("--only", default="", help="benchmarks with this in their name")
  parser.add_argument("--page", action="store_true", help="writes the page alone")
  parser.add_argument("--check", action="store_true", help="whether the page is stale")
  options = parser.parse_args()
  if options.page:
    _page.PAGE.write_text(_page.page(NAMES))
  elif options.check:
    if _page.PAGE.read_text() != _page.page(NAMES):
      sys.exit("docs/benchmarks.md is stale: run python -m benchmarks --page")
  else:
    names = [name for name in NAMES if options.only in name]
    if not names:
      parser.error(f"--only must be in one of {', '.join(NAMES)}, got {options.only!r}")
    if failed := run(names):
      sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
  main()
