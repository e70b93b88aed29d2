"""The entry points as tests see them, and folders of pictures that they read."""

import importlib
import pathlib
import signal
import sys

import numpy as np
import pytest
from PIL import Image

import experiments
from experiments.frame import command, ending, study
from experiments.metric_learning.photographs import methods

NAMES = sorted(
  path.stem
  for path in pathlib.Path(experiments.__file__).parent.glob("[a-z]*.py")
  if hasattr(importlib.import_module(f"experiments.{path.stem}"), "PRESETS")
)


def module(name):
  return importlib.import_module(f"experiments.{name}")


def jobs(config):
  """The trainings of photographs that settings name, in the order of their methods."""
  protocol = methods.protocol_of(config)
  return [methods.job(config, protocol, name) for name in config.methods]


def filled(add, *arguments):
  """A table to which a function has added rows."""
  table = study.Table()
  add(table, *arguments)
  return table


def main(name, *arguments):
  """Runs a command line up to the part that the caller has replaced."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "argv", [name, *map(str, arguments)])
    for hook in ("excepthook", "unraisablehook"):  # is put back afterwards
      patch.setattr(sys, hook, getattr(sys, hook))
    patch.setattr(ending, "_leave", lambda _: None)
    patch.setattr(command, "_compile_quickly", lambda *_: None)
    patch.setattr(command, "_keep_compiled_programs", lambda: None)
    before = signal.getsignal(signal.SIGTERM)
    try:
      module(name).STUDY.main()
    except BaseException as error:
      if not isinstance(error, SystemExit):  # what Python does with it
        sys.excepthook(type(error), error, error.__traceback__)
      raise
    finally:
      signal.signal(signal.SIGTERM, before)


def replace_run(monkeypatch, run):
  """Another function in the place of what a study does with settings and a folder."""
  monkeypatch.setattr(study.Study, "run", lambda _, *given: run(*given))


def write_images(root, classes):
  """Writes numbered pictures of these pixels, a folder for each class; the root."""
  for name, images in classes.items():
    folder = pathlib.Path(root, name)
    folder.mkdir(parents=True)
    for number, pixels in enumerate(images):
      Image.fromarray(np.asarray(pixels, np.uint8)).save(folder / f"{number}.png")
  return str(root)
