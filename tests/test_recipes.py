"""The recipes of docs/design.md: each adds something to a copy of the repository.

With all steps, all checks on the page pass; without one of them, the check of that step
fails.
"""

import contextlib
import importlib
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

import spherejax
from tests import recipes
from tests.recipes import WRITTEN

ROOT = pathlib.Path(__file__).parent.parent
ROOMS = ("pooling", "losses", "attacks")
FORMS = ("_from_distance", "_from_similarity")  # matrix forms of other losses
# Parts, other solvers and limits of functions that the page names.
NOT_CHOSEN = {
  *("gsp_fixed_point", "gsp_linear_program", "gsp_weights", "netvlad_assignment"),
  *("ridge_attribute_embeddings", "split_by_class", "clopper_pearson"),
}
# Functions without tests of their own: oracles or sweeps over all functions suffice.
ONLY_SWEPT = {"large_margin_softmax", "manifold", "sup_con_from_similarity", "diagnose"}
ONLY_SWEPT |= {"alignment", "cbam", "delf"}
# Two of these are PGD with other arguments, one needs thousands of evaluations.
NOT_SWEPT = {"bim", "mi_fgsm", "carlini_wagner"}


def functions(room: str) -> set[str]:
  module = importlib.import_module(f"spherejax.{room}")
  return {name for name in module.__all__ if inspect.isfunction(getattr(module, name))}


def named(names: set[str], files: Iterable[pathlib.Path]) -> set[str]:
  """Names that are words of one of the files."""
  return names & {word for x in files for word in re.findall(r"\w+", x.read_text())}


def test_the_exceptions_are_there():
  known = set().union(*map(functions, ROOMS))
  assert known >= NOT_CHOSEN | ONLY_SWEPT | NOT_SWEPT


@pytest.mark.parametrize("room", ROOMS)
def test_how_to_choose_names_every_function(room):
  text = (ROOT / "docs" / "choose.md").read_text()
  missing = {
    name
    for name in functions(room) - NOT_CHOSEN
    if not name.endswith(FORMS) and not re.search(rf"{room}\.{name}\b|`{name}`", text)
  }
  assert not missing


@pytest.mark.parametrize("room", ROOMS)
def test_every_function_has_tests_of_its_own(room):
  folder = ROOT / "tests" / room
  files = [x for x in folder.glob("test_*.py") if not x.stem.startswith("test_every_")]
  names = functions(room) - ONLY_SWEPT
  # A loss computes with its matrix form, so a case of the sweep is enough.
  forms = {name for name in names if name.endswith(FORMS)}
  assert names - forms - named(names, files) == set()
  assert forms - named(forms, [*files, *folder.glob("cases/*.py")]) == set()


def test_every_attack_is_swept():
  from spherejax import attacks

  result = attacks.AttackResult
  names = {
    name
    for name in functions("attacks") - NOT_SWEPT
    if inspect.signature(getattr(attacks, name)).return_annotation is result
  }
  assert {"pgd", "deepfool"} < names
  sweep = [ROOT / "tests" / "attacks" / "test_every_attack.py"]
  assert names - named(names, sweep) == set()


@pytest.mark.parametrize("room", [room for room in spherejax.__all__ if room[0] != "_"])
def test_the_reference_takes_all_of_a_room(room):
  page = (ROOT / "docs" / "api" / f"{room}.md").read_text()
  options = "   :members:\n   :imported-members:\n"
  assert f".. automodule:: spherejax.{room}\n{options}" in page
  assert f"\napi/{room}\n" in (ROOT / "docs" / "index.md").read_text()


def test_every_experiment_has_a_test():
  files = (ROOT / "experiments").glob("[a-z]*.py")
  names = {file.stem for file in files if "\nPRESETS" in file.read_text()}
  assert "quickstart" in names
  tests = (ROOT / "tests" / "experiments").glob("test_*.py")
  assert names - named(names, tests) == set()


def test_the_gallery_has_every_result():
  gallery = (ROOT / "docs" / "gallery.md").read_text()
  for file in (ROOT / "docs" / "results").glob("*.json"):
    name = json.loads(file.read_text())["experiment"]
    assert f"`python -m experiments.{name}`" in gallery, name


# --- the page ---


class Step(NamedTuple):
  """One row of a recipe."""

  path: str
  check: str


def tables() -> dict[str, list[list[str]]]:
  """Cells of the table under each third-level heading of the page, without its head."""
  page, rows = (ROOT / "docs" / "design.md").read_text(), {}
  for heading, text in re.findall(r"^### (.*)\n((?:(?!#).*\n)*)", page, re.MULTILINE):
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    rows[heading] = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
  return rows


TABLES = tables()


def recipe(kind: str, name: str) -> list[Step]:
  rows = TABLES[f"A new {kind}"]
  assert [row[0] for row in rows] == ["1", "2", "3", "4", "5"]
  filled = ([re.sub("<(name|family)>", name, cell) for cell in row] for row in rows)
  return [Step(row[1].strip("`"), row[3].strip("`")) for row in filled]


def by_itself(room: str, name: str) -> list[str]:
  """The checks that need no step."""
  kind = "function" if room in ROOMS else "experiment"
  checks = [row[1].strip("`") for row in TABLES["What needs no step"] if row[0] == kind]
  assert checks
  return [x.replace("<subpackage>", room).replace("<name>", name) for x in checks]


# --- a copy of the repository ---

# Runs modules in one process. A request is a module with its arguments; the answer says
# whether it passed and what it printed. Our modules are imported anew each time.
WORKER = """
import builtins, contextlib, io, json, os, runpy, sys
import pytest

for request in sys.stdin:
  module, *arguments = json.loads(request)
  ours = "spherejax", "experiments", "benchmarks", "tests", "conftest"
  for name in [*sys.modules]:
    if name.partition(".")[0] in ours:
      del sys.modules[name]
  os.environ.pop("XLA_FLAGS", None)  # conftest.py appends; part of the cache's keys
  vars(builtins).pop("_", None)  # what a doctest printed; tyro hashes all of builtins
  said, code = io.StringIO(), 0
  with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
    try:
      if module == "pytest":
        code = int(pytest.main(arguments))
      else:
        import conftest  # the same devices and cache as in tests
        sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as stop:
      code = stop.code
  print(json.dumps([code in (None, 0), f"{said.getvalue()}{code}"]), flush=True)
"""


class Copy:
  """Copy of the repository, with a process that works in it."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    for name in ("spherejax", "experiments", "benchmarks", "tests", "docs"):
      ignored = shutil.ignore_patterns("*.png", "_build")
      shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("conftest.py", "pyproject.toml"):
      shutil.copy(ROOT / name, folder)
    (ROOT / ".jax_cache").mkdir(exist_ok=True)
    (folder / ".jax_cache").symlink_to(ROOT / ".jax_cache")
    self.process = subprocess.Popen(
      [sys.executable, "-c", WORKER],
      cwd=folder,
      env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache")},
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      text=True,
    )

  def run(self, module: str, *arguments: str) -> tuple[bool, str]:
    """Runs a module; returns whether it passed, and what it printed."""
    assert self.process.stdin is not None
    assert self.process.stdout is not None
    self.process.stdin.write(json.dumps([module, *arguments]) + "\n")
    self.process.stdin.flush()
    return tuple(json.loads(self.process.stdout.readline()))

  def check(self, module: str, *checks: str) -> tuple[bool, str]:
    """Runs a command or tests; checks annotations only in `module`."""
    if checks[0].startswith("python -m "):
      return self.run(*checks[0].split()[2:])
    typed = f"--jaxtyping-packages={module},beartype.beartype"
    # The process has already imported modules that pytest would rewrite.
    quiet = "-Wignore::pytest.PytestAssertRewriteWarning"
    options = ("-q", "-n0", "-p", "no:cacheprovider", quiet, typed)
    return self.run("pytest", *options, *checks)

  def ruff(self, *arguments: str) -> None:
    command = [sys.executable, "-m", "ruff", *arguments]
    done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

  def follow(self, path: str, added: Any) -> None:
    """Follows one step of a recipe."""
    file = self.folder / path
    if isinstance(added, str):
      file.write_text(added)
    elif isinstance(added, recipes.Like):
      text = (self.folder / added.path).read_text()
      file.write_text(re.sub(rf"\b{added.old}\b", added.new, text))
    elif isinstance(added, recipes.Made):
      passed, said = self.run(added.module)
      assert passed, said
      file.write_bytes((self.folder / added.path).read_bytes())
    elif isinstance(added, recipes.Export):
      start, names, end = file.read_text().partition("__all__ = [\n")
      file.write_text(f'{start}{added.line}{names}  "{added.name}",\n{end}')
      self.ruff("check", "--fix", "-q", "--select=I,RUF022", path)
    else:
      for after, lines in added:
        line = re.compile(rf"^{re.escape(after)}.*\n", re.MULTILINE)
        text, times = line.subn(rf"\g<0>{lines}", file.read_text(), count=1)
        assert times, f"{path} has no line that begins with {after}"
        file.write_text(text)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
  made = Copy(tmp_path_factory.mktemp("recipes"))
  yield made
  with made.process:
    made.process.kill()


def restore(file: pathlib.Path, content: bytes | None) -> None:
  if content is None:
    file.unlink(missing_ok=True)
  else:
    file.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("kind", "room", "name"),
  [
    ("pooling", "pooling", "lse"),
    ("loss", "losses", "brier"),
    ("attack", "attacks", "one_step"),
    ("experiment", "experiments", "mean_norms"),
  ],
)
def test_recipe(copy, kind, room, name):
  steps, added = recipe(kind, name), recipes.ADDED[kind]
  module = f"spherejax.{room}._{name}"
  assert [step.path for step in steps] == [path for path in added if path != WRITTEN]
  files = [copy.folder / path for path in added]
  before = [file.read_bytes() if file.exists() else None for file in files]
  with contextlib.ExitStack() as undo:
    for file, content in zip(files, before, strict=True):
      undo.callback(restore, file, content)
    for path, what in added.items():
      copy.follow(path, what)
    after = [file.read_bytes() for file in files]

    code = [step.path for step in steps if step.path.endswith(".py")]
    copy.ruff("check", *code)
    copy.ruff("format", "--check", *code)
    checks = dict.fromkeys([*(step.check for step in steps), *by_itself(room, name)])
    commands = [check for check in checks if check.startswith("python")]
    tests = [check for check in checks if check not in commands]
    for together in (tests, *([command] for command in commands)):
      passed, said = copy.check(module, *together)
      assert passed, said
    contents = dict(zip(added, zip(before, after, strict=True), strict=True))
    for step in steps:
      file, (old, new) = copy.folder / step.path, contents[step.path]
      restore(file, old)
      passed, said = copy.check(module, step.check)
      assert not passed, f"{step.check} passes without {step.path}"
      assert name in said or "is stale" in said, said
      restore(file, new)
