"""Every entry of the papers' errata names tests, and these exist."""

import ast
import functools
import math
import pathlib
import re

import numpy as np
import pytest
from scipy import stats

from experiments import published
from spherejax import metrics

ROOT = pathlib.Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "errata.md").read_text()
NAME = re.compile(r"`([\w/]+::[\w:]+)`")
EXAMPLE = "room/test_file::test_name"  # in the page's first lines


def cells(line: str) -> list[str]:
  """Cells of a row of a table; a bar after a backslash is part of its cell."""
  return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def tables(page: str) -> list[list[list[str]]]:
  """Rows of cells; the first is the head, the second the line below it."""
  found = re.findall(r"(?:^\|.*\n?)+", page, re.MULTILINE)
  return [[cells(line) for line in table.splitlines()] for table in found]


def parts(node: ast.Module | ast.ClassDef) -> set[str]:
  """Names of the tests of a file or class, with the class as prefix of its tests."""
  names = set()
  for part in node.body:
    if isinstance(part, ast.FunctionDef) and part.name.startswith("test_"):
      names.add(part.name)
    elif isinstance(part, ast.ClassDef):
      names |= {f"{part.name}::{test}" for test in parts(part)}
  return names


@functools.cache
def parts_of(file: pathlib.Path) -> set[str]:
  return parts(ast.parse(file.read_text())) if file.is_file() else set()


def exists(name: str) -> bool:
  file, _, test = name.partition("::")
  return test in parts_of(ROOT / "tests" / f"{file}.py")


def test_every_section_has_a_table_whose_last_column_names_tests_and_nothing_else():
  for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
    assert tables(section), f"{section.splitlines()[0]} has no table"
  for head, line, *rows in tables(PAGE):
    assert head[-1] == "test"
    assert set("".join(line)) == {"-"}
    for row in (line, *rows):
      assert len(row) == len(head), f"{len(head)} cells, got {len(row)}: {row}"
    for row in rows:
      assert NAME.search(row[-1]), f"{row[0]} names no test"
      assert not NAME.sub("", row[-1]).strip(", "), f"{row[0]} has {row[-1]}"
  assert sum(len(table) - 2 for table in tables(PAGE)) > 100


def test_all_tests_that_the_page_names_exist():
  names = NAME.findall(PAGE)
  # A spelling that NAME does not match would be missed.
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


EPISODES = published.figures("few_shot")
PROPER = (
  "con_alpha by features proper",
  "div_alpha by features proper",
  "con_div proper",
)


def fisher(shares: list[float], number: int) -> float:
  """Fisher's exact two-sided p that two shares of a number are equal."""
  counts = [round(share * number) for share in shares]
  return stats.fisher_exact([[x, number - x] for x in counts]).pvalue


@pytest.mark.parametrize("place", EPISODES)
def test_printed_proportions_give_the_printed_p(place):
  """DIST, article II, tables 3 to 10: 600 checkpoints at 1 shot, 400 at 5 shots."""
  number = 600 if "1-shot" in place else 400
  for measure in PROPER:
    shares = [EPISODES[place][loss][measure] for loss in ("SD", "DR")]
    p = EPISODES[place]["tests"][f"Fisher's p, {measure}"]
    if isinstance(p, str):
      assert fisher(shares, number) < float(p.lstrip("<"))
      continue
    assert fisher(shares, number) == pytest.approx(p, rel=0.01)
    if number == 400 and p < 1:
      assert fisher(shares, 500) != pytest.approx(p, rel=0.1)


def test_one_proportion_of_table_8_is_another():
  assert fisher([0.960, 0.983], 400) == pytest.approx(0.088458, abs=1e-6)
  assert fisher([0.96999, 0.983], 400) == pytest.approx(0.353, abs=1e-3)


def test_three_gains_of_table_2_are_larger_than_both_half_widths():
  measures = "test accuracy", "half-width over its test episodes"
  clear = set()
  for place, printed in EPISODES.items():
    values, widths = ([printed[loss][x] for loss in ("SD", "DR")] for x in measures)
    if abs(values[1] - values[0]) > math.hypot(*widths):
      clear.add(place)
  assert clear == {
    "cub, 1-shot, conv4", "mini_imagenet, 1-shot, conv4", "mini_imagenet, 5-shot, conv4"
  }  # fmt: skip


CHAPTER_5 = published.figures("robust_features")
# Ranges of p by mark: M below 0.05, * below 0.01, ** below 0.001.
MARKS = {"": (0.05, 1.0), "M": (0.01, 0.05), "*": (0.001, 0.01), "**": (-1e-9, 0.001)}


def columns(images: str) -> dict[str, np.ndarray]:
  """Values of tables 5.1, 5.2, 5.4 and 5.5 over the networks, by measure."""
  rows = list(CHAPTER_5[images]["networks"].values())
  return {measure: np.array([row[measure] for row in rows]) for measure in rows[0]}


@pytest.mark.parametrize("images", CHAPTER_5)
def test_table_5_6_follows_from_the_others_by_the_t_distribution(images):
  table = columns(images)
  for measure, printed in CHAPTER_5[images]["correlations"].items():
    for method, (value, mark) in zip(("pearson", "spearman"), printed, strict=True):
      found = metrics.correlation(table["MC, l2"], table[measure], method=method)
      assert found.value == pytest.approx(value, abs=1e-4)
      low, high = MARKS[mark]
      assert low < found.p_value < high
      found = metrics.correlation(table["MC, l2"], table["MC, linf"], method=method)
      assert found.value > 0.98
      assert found.p_value < 0.01


@pytest.mark.parametrize("images", CHAPTER_5)
def test_tables_5_4_and_5_5_are_of_one_statistic(images):
  table = columns(images)
  phi = table["phi"]
  np.testing.assert_allclose(table["R2"], phi / (phi + 20 / 9), atol=2e-4)
  np.testing.assert_allclose(table["D_inter"] / table["D_intra"], phi, rtol=1e-3)
