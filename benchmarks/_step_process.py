"""Runs a process for `benchmarks.step`, which compares several."""

import pathlib
import sys

import numpy as np

from benchmarks import step
from spherejax import training


def main() -> None:
  """Writes the losses of its steps."""
  port, processes, number, path = sys.argv[1:]
  if int(processes) > 1:
    training.start_processes(f"localhost:{port}", int(processes), int(number))
  np.save(pathlib.Path(path), step.steps(step.CHARACTERS.settings))


if __name__ == "__main__":
  main()
