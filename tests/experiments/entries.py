"""The entry points as tests see them, whether they declare a study or a `run`."""

import importlib
import pathlib

import experiments
from experiments.frame import study

NAMES = sorted(
  path.stem
  for path in pathlib.Path(experiments.__file__).parent.glob("[a-z]*.py")
  if hasattr(importlib.import_module(f"experiments.{path.stem}"), "PRESETS")
)


def module(name):
  return importlib.import_module(f"experiments.{name}")


def main(name):
  """Its command line."""
  entry = module(name)
  return getattr(entry, "STUDY", entry).main()


def replace_run(monkeypatch, name, run):
  """Another function in the place of what it does with settings and a folder."""
  if hasattr(module(name), "STUDY"):
    monkeypatch.setattr(study.Study, "run", lambda _, *given: run(*given))
  else:
    monkeypatch.setattr(module(name), "run", run)
