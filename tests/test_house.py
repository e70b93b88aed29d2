"""The package as a whole: its start, its exports, its documents."""

import ast
import collections
import importlib
import importlib.metadata
import inspect
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import spherejax
from tests.test_names import EVERY, ROOMS

ROOT = pathlib.Path(__file__).parent.parent
LOADED = """
import sys

def loaded(names):
  print([name for name in names.split() if name in sys.modules])

import spherejax
loaded("matplotlib sklearn tensorflow tensorflow_datasets torch flax grain PIL jax")
loaded("spherejax._names")
hasattr(spherejax, "ResNet"), hasattr(spherejax.losses, "ResNet")
loaded("spherejax._names flax")
from spherejax import losses, metrics, pooling, prototypes
loaded("flax orbax matplotlib sklearn grain tensorflow_datasets scipy.optimize")
from spherejax import data
loaded("tensorflow_datasets PIL grain sklearn")
from spherejax import models, training
loaded("orbax PIL tensorflow_datasets matplotlib scipy.optimize")
"""


def test_imports_are_light_and_names_are_looked_up_when_one_is_missing():
  printed = subprocess.run(
    [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
  ).stdout
  assert printed.splitlines() == ["[]", "[]", "['spherejax._names']", *["[]"] * 3]


def test_an_unknown_room_is_named():
  with pytest.raises(AttributeError, match="'cellar'"):
    spherejax.cellar  # noqa: B018
  assert "losses" in dir(spherejax)


@pytest.mark.parametrize("room", ROOMS)
def test_exports_are_complete(room):
  module = importlib.import_module(f"spherejax.{room}")
  public = {
    name
    for name, value in vars(module).items()
    if not name.startswith("_") and not inspect.ismodule(value)
  }
  assert public == set(module.__all__)


@pytest.mark.parametrize(("room", "name"), EVERY)
def test_defaults_are_keyword_only_and_docstrings_complete(room, name):
  symbol = getattr(importlib.import_module(f"spherejax.{room}"), name)
  text = inspect.getdoc(symbol) or ""
  assert text, f"{room}.{name} has no docstring"
  if inspect.isfunction(symbol):
    for parameter in inspect.signature(symbol).parameters.values():
      optional = parameter.default not in (inspect.Parameter.empty, None)
      assert not (optional and parameter.kind is parameter.POSITIONAL_OR_KEYWORD), (
        f"{room}.{name}: {parameter.name} has a default and is positional"
      )
      assert parameter.name in text, f"{room}.{name}: {parameter.name} is not explained"
    arguments = ("Args:",) if inspect.signature(symbol).parameters else ()
    for part in (*arguments, "Returns:", "Source:", "Example:"):
      assert part in text, f"{room}.{name} has no {part}"


def test_files_and_functions_stay_readable():
  """Files and functions have so many lines at most; longer ones are split."""
  long = []
  limits = {"spherejax": (405, 70), "experiments": (350, 60), "benchmarks": (405, 70)}
  for room, (of_file, of_function) in limits.items():
    for path in ROOT.glob(f"{room}/**/*.py"):
      text = path.read_text()
      if text.count("\n") > of_file:
        long.append(f"{path.name}: {text.count(chr(10))} lines")
      for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
          start = node.body[bool(ast.get_docstring(node) and node.body[1:])].lineno
          if node.end_lineno - start > of_function:
            long.append(f"{path.name}: {node.name}")
  assert not long


def test_a_folder_of_experiments_has_three_annotations_any_at_most():
  number = collections.Counter()
  for path in ROOT.glob("experiments/**/*.py"):
    for node in ast.walk(ast.parse(path.read_text())):
      number[str(path.parent)] += isinstance(node, ast.Name) and node.id == "Any"
  assert {folder: n for folder, n in number.items() if n > 3} == {}


def test_every_library_that_is_asked_for_is_in_the_lock_at_its_least_version():
  project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
  extras = project["optional-dependencies"].values()
  asked = [text for texts in (project["dependencies"], *extras) for text in texts]
  lines = (ROOT / "requirements.lock").read_text().splitlines()
  locked = {
    canonicalize_name(name): version
    for name, version in (line.split("==") for line in lines if line[0] != "#")
  }
  for each in map(Requirement, asked):
    name = canonicalize_name(each.name)
    if name != "spherejax" and (each.marker is None or each.marker.evaluate()):
      assert each.specifier.contains(locked[name]), each


def test_the_version_and_its_date_are_the_same_everywhere():
  version = spherejax.__version__
  assert re.fullmatch(r"\d+\.\d+\.\d+", version)
  assert importlib.metadata.version("spherejax") == version
  citation = (ROOT / "CITATION.cff").read_text()
  said = dict(re.findall(r"^(version|date-released): (.+)$", citation, re.MULTILINE))
  changes = (ROOT / "CHANGELOG.md").read_text()
  newest, date = re.search(r"^## (\S+) \((.+)\)$", changes, re.MULTILINE).groups()
  assert newest == said["version"] == version
  assert date == said.get("date-released", "unreleased")


def test_nothing_is_marked_unfinished():
  marks = re.compile(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError")
  for path in ROOT.glob("spherejax/**/*.py"):
    assert not marks.search(path.read_text()), path


def test_products_outside_networks_keep_the_precision_of_their_type():
  # By default a GPU rounds the factors. Without jnp, these names are NumPy's.
  raw = re.compile(r"jnp\.(matmul|einsum|dot|tensordot|vdot|inner)\(")
  for path in ROOT.glob("spherejax/**/*.py"):
    if path.parent.name != "models":
      assert not raw.search(path.read_text()), path


def test_no_page_is_lost_behind_one_of_sphinx():
  pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
  assert not pages & {"search", "genindex", "modindex", "py-modindex"}
