"""The errata of the papers: every entry names tests, and those exist."""

import ast
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "errata.md").read_text()
NAME = re.compile(r"`([\w/]+::[\w:]+)`")
EXAMPLE = "room/test_file::test_name"  # of the page's first lines


def cells(line: str) -> list[str]:
  """Of a row of a table; a bar behind a backslash is part of its cell."""
  return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def tables(page: str) -> list[list[list[str]]]:
  """Rows of cells; the first is the head, the second the line below it."""
  found = re.findall(r"(?:^\|.*\n?)+", page, re.MULTILINE)
  return [[cells(line) for line in table.splitlines()] for table in found]


def parts(node: ast.Module | ast.ClassDef) -> set[str]:
  """Tests of a file or a class by name, those of its classes behind the class's."""
  found = set()
  for part in node.body:
    if isinstance(part, ast.FunctionDef) and part.name.startswith("test_"):
      found.add(part.name)
    elif isinstance(part, ast.ClassDef):
      found |= {f"{part.name}::{test}" for test in parts(part)}
  return found


@functools.cache
def parts_of(file: pathlib.Path) -> set[str]:
  return parts(ast.parse(file.read_text())) if file.is_file() else set()


def exists(name: str) -> bool:
  file, _, test = name.partition("::")
  return test in parts_of(ROOT / "tests" / f"{file}.py")


def test_every_section_has_a_table_with_a_column_of_tests():
  for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
    assert tables(section), f"{section.splitlines()[0]} has no table"
  for head, line, *rows in tables(PAGE):
    assert head[-1] == "test"
    assert set("".join(line)) == {"-"}
    for row in (line, *rows):
      assert len(row) == len(head), f"{len(head)} cells, got {len(row)}: {row}"


def test_every_entry_names_tests_and_nothing_else():
  rows = [row for table in tables(PAGE) for row in table[2:]]
  assert len(rows) > 100
  for row in rows:
    assert NAME.search(row[-1]), f"{row[0]} names no test"
    assert not NAME.sub("", row[-1]).strip(", "), f"{row[0]} has {row[-1]}"


def test_all_tests_that_the_page_names_exist():
  names = NAME.findall(PAGE)
  # A spelling that NAME does not know would be passed over.
  assert len(names) == len(re.findall(r"`[^`]*::[^`]*`", PAGE))
  assert [name for name in names if not exists(name)] == [EXAMPLE]


def test_names_that_are_wrong_are_noticed():
  assert exists("test_errata::test_names_that_are_wrong_are_noticed")
  assert exists(
    "metrics/test_norm_count_theory::TestSeparation::test_touching_they_do_not"
  )
  assert not exists("test_errata::test_of_yesterday")
  assert not exists("test_errata::exists")
  assert not exists("nowhere/test_errata::test_names_that_are_wrong_are_noticed")
  head, _, row = tables("| a | test |\n| --- | --- |\n| $\\|x\\|$ | `x::test_y` |\n")[0]
  assert len(head) == len(row) == 2
