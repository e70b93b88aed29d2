"""Figures and statements of a study that is made once for each draw."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from experiments.frame import results

_Draw = TypeVar("_Draw")

Figures = dict[tuple[str, str], float]
"""By name and measure."""
Statements = dict[str, tuple[str, float]]
"""By claim: its text, and what is positive where it holds."""
Part = tuple[list[Any], list[Any]]
"""Rows and claims."""


def once(figures: Figures, statements: Statements, paper: str) -> Part:
  """Rows and claims of a study in which nothing is random."""
  return over([None], lambda _: (figures, statements), paper)


def over(
  draws: Iterable[_Draw],
  study: Callable[[_Draw], tuple[Figures, Statements]],
  paper: str,
) -> Part:
  """Rows and claims, with a value for each draw; a claim holds with every one."""
  figures, statements = zip(*map(study, draws), strict=True)
  rows = [
    results.row(name, metric, [each[name, metric] for each in figures])
    for name, metric in figures[0]
  ]
  claims = [
    results.claim(
      name, text, [each[name][1] for each in statements], paper=paper, every_seed=True
    )
    for name, (text, _) in statements[0].items()
  ]
  return rows, claims
