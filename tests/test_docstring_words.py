"""Docstrings say plainly what a function returns, and names say what they hold."""

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parent.parent
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
  ("robustness/settings.py", "beside"),  # an option of `robust_features`
  ("plankton_images.py", "seen"),  # an option of `plankton`
  ("screening.py", "apart"),  # a field of stored states, like the next one
  ("tokens.py", "own"),
}
DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.fixture(scope="module")
def nodes() -> list[tuple[pathlib.Path, ast.AST]]:
  return [
    (path.relative_to(ROOT), node)
    for folder in ("spherejax", "experiments", "benchmarks")
    for path in sorted(ROOT.glob(f"{folder}/**/*.py"))
    for node in ast.walk(ast.parse(path.read_text()))
  ]


def docstrings(nodes: list[tuple[pathlib.Path, ast.AST]]) -> Iterator[tuple[str, str]]:
  for path, node in nodes:
    if isinstance(node, ast.Module | DEFINITIONS):
      name = getattr(node, "name", "module")
      yield f"{path}: {name}", ast.get_docstring(node) or ""


def sentences(text: str) -> Iterator[str]:
  """Sentences of the prose, without formulas, tables, commands or examples."""
  for paragraph in re.split(r"\n\s*\n", text.partition("Example:\n")[0]):
    lines = [line for line in paragraph.splitlines() if not re.match(r" {4,}\S", line)]
    if len(lines) == len(paragraph.splitlines()) or not paragraph.startswith("    "):
      yield from re.split(r"(?<=[.?!;:])\s+", " ".join(paragraph.split()))


def bound_name(node: ast.AST) -> str:
  if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
    return node.id
  if isinstance(node, ast.arg):
    return node.arg
  return node.name if isinstance(node, DEFINITIONS) else ""


def test_summaries_are_one_line_that_starts_with_a_verb_or_the_result(nodes):
  wrong = []
  for place, text in docstrings(nodes):
    summary, *rest = text.split("\n")
    is_long = len(summary) > LONGEST_SUMMARY or any(rest[:1])
    if is_long or EMPTY_STARTS.match(summary):
      wrong.append(f"{place}: {summary}")
  assert not wrong


def test_sentences_of_docstrings_are_short(nodes):
  wrong = [
    f"{place}: {sentence}"
    for place, text in docstrings(nodes)
    for sentence in sentences(text)
    if len(sentence.split()) > MOST_WORDS
  ]
  assert not wrong


def test_names_say_what_they_hold(nodes):
  names = [(path, bound_name(node)) for path, node in nodes]
  wrong = [
    f"{path}: {name}"
    for path, name in names
    if name.strip("_") in EMPTY_NAMES
    and not any(
      f"{path}".endswith(f"/{file}") and name == public for file, public in PUBLIC_NAMES
    )
  ]
  assert not wrong
