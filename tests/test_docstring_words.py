"""Docstrings say plainly what a function returns, and names say what they hold."""

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FILES = sorted(
  path
  for folder in ("spherejax", "experiments", "benchmarks")
  for path in ROOT.glob(f"{folder}/**/*.py")
)
LONGEST_SUMMARY = 88
MOST_WORDS = 35
EMPTY_STARTS = re.compile(
  r"(Of|Those|That|What|As|All|One|Whether|Where|Which|How|By|Both|Each|With|No|So|"
  r"Some|It|This|They|The same)\b"
)
EMPTY_NAMES = {
  "apart", "beside", "each", "found", "given", "kept", "made", "one", "own", "seen",
}  # fmt: skip
PUBLIC_NAMES = {
  ("_lp.py", "apart"),  # an argument of `k_nearest`
  ("_moving.py", "seen"),  # a field of `MovingPrototypes`
  ("_cells.py", "apart"),  # a method of `VoronoiCells`
  ("settings.py", "beside"),  # an option of `robust_features`
  ("plankton_images.py", "seen"),  # an option of `plankton`
  ("screening.py", "apart"),  # a field of stored states, like the next one
  ("tokens.py", "own"),
}


def docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
  for node in ast.walk(tree):
    if isinstance(
      node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    ):
      text = ast.get_docstring(node)
      if text:
        yield getattr(node, "name", "module"), text


def sentences(text: str) -> Iterator[str]:
  """Sentences of the prose, without formulas, tables, commands or examples."""
  for paragraph in re.split(r"\n\s*\n", text.partition("Example:\n")[0]):
    lines = [line for line in paragraph.splitlines() if not re.match(r" {4,}\S", line)]
    if len(lines) == len(paragraph.splitlines()) or not paragraph.startswith("    "):
      yield from re.split(r"(?<=[.?!;:])\s+", " ".join(paragraph.split()))


def bound_names(tree: ast.Module) -> Iterator[str]:
  for node in ast.walk(tree):
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      yield node.id
    elif isinstance(node, ast.arg):
      yield node.arg
    elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
      yield node.name


@pytest.fixture(scope="module")
def trees() -> list[tuple[pathlib.Path, ast.Module]]:
  return [(path, ast.parse(path.read_text())) for path in FILES]


def test_summaries_are_one_line_that_starts_with_a_verb_or_the_result(trees):
  wrong = []
  for path, tree in trees:
    for name, text in docstrings(tree):
      summary, _, rest = text.partition("\n")
      is_one_line = not rest or rest.startswith("\n")
      if (
        EMPTY_STARTS.match(summary) or len(summary) > LONGEST_SUMMARY or not is_one_line
      ):
        wrong.append(f"{path.relative_to(ROOT)}: {name}: {summary}")
  assert not wrong


def test_sentences_of_docstrings_are_short(trees):
  wrong = [
    f"{path.relative_to(ROOT)}: {name}: {sentence}"
    for path, tree in trees
    for name, text in docstrings(tree)
    for sentence in sentences(text)
    if len(sentence.split()) > MOST_WORDS
  ]
  assert not wrong


def test_names_say_what_they_hold(trees):
  wrong = [
    f"{path.relative_to(ROOT)}: {name}"
    for path, tree in trees
    for name in bound_names(tree)
    if name.strip("_") in EMPTY_NAMES and (path.name, name) not in PUBLIC_NAMES
  ]
  assert not wrong
