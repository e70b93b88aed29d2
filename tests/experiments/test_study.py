"""The frame of a study: its table, its claims, limits of its settings."""

import dataclasses
import math
from typing import Annotated

import numpy as np
import pytest

from experiments import published
from experiments.frame import settings
from experiments.frame.settings import Among, MultipleOf, Within, Without
from experiments.frame.study import Claim, NotMeasured, Study, Table


@pytest.fixture
def table():
  made = Table()
  made.add("GAP", "MAP@R", 0.25)
  made.add("GSP", "MAP@R", [0.5, 1.0], note="best")
  made.add("GAP", "MAP@R", np.float32(0.5))
  made.add("GSP", "pixels", [20, 21], listed=False)
  made.add_gain("MAP@R", "GSP", over="GAP", paper=0.7)
  return made


def test_rows_come_in_order_gains_first(table):
  rows = table.rows()
  assert [row["name"] for row in rows] == ["GSP - GAP", "GAP", "GSP"]
  assert {row["metric"] for row in rows} == {"MAP@R"}
  assert [row["values"] for row in rows] == [[0.25, 0.5], [0.25, 0.5], [0.5, 1.0]]
  assert [row["paper"] for row in rows] == [0.7, None, None]
  assert [row.get("note") for row in rows] == [None, None, "best"]
  assert table.variants("MAP@R") == ["GAP", "GSP"]


def test_claims_about_what_was_not_measured_are_not_made(table):
  claims = [
    Claim("gain", "GSP > GAP", lambda t: t.gain("MAP@R", "GSP", over="GAP")),
    Claim("other", "GeM > GAP", lambda t: t.gain("MAP@R", "GeM", over="GAP")),
    Claim("pixels", "> 20", lambda t: t.values("pixels", "GSP") - 20, "Fig. 1", True),
  ]
  study = Study("none", None, "a paper", {}, lambda *_: (table, None), claims)
  gain, pixels = study.claimed(table, None)
  assert (gain["id"], gain["paper"], gain["values"]) == ("gain", "a paper", [0.25, 0.5])
  assert (pixels["id"], pixels["paper"]) == ("pixels", "Fig. 1")
  assert pixels["verdict"] == "undecided"  # 20 is not above 20
  with pytest.raises(NotMeasured, match=r"MAP@R of GeM was not measured"):
    table.values("MAP@R", "GeM")
  again = Table.of_rows(table.rows())
  assert [claim["id"] for claim in study.claimed(again, None)] == ["gain"]


@dataclasses.dataclass(frozen=True)
class Config(settings.Limited):
  steps: Annotated[int, MultipleOf("parts")] = 8
  parts: int = 4
  data: str = "images"
  rows: Annotated[int, Without("data", "gaussians")] = 9
  toys: tuple[str, ...] = ("one",)
  at_once: bool = True
  warm_up: Annotated[int, Without("at_once", True)] = 0
  probe: Annotated[int, Without("at_once", False)] = 0
  toy_seeds: Annotated[int, Without("toys", ((),))] = 3
  shares: Annotated[tuple[float, ...], Within(0, 1)] = (0.5,)
  width: Annotated[int, Within(1), Among("toys", ("one", "two"))] = 4


@dataclasses.dataclass(frozen=True)
class Longer(Config):
  steps: int = 80  # another default keeps the limits


@pytest.mark.parametrize(
  ("kind", "wrong", "message"),
  [
    (Config, {"steps": 7}, "steps must be a multiple of parts = 4, got 7"),
    (Config, {"parts": 0}, "steps must be a multiple of parts = 0, got 8"),
    (Config, {"shares": (1.0, 1.5)}, r"shares must be in \[0, 1\], got 1.5"),
    (Config, {"width": 0}, "width must be at least 1, got 0"),
    (Longer, {"steps": 81}, "steps must be a multiple of parts = 4, got 81"),
  ],
)
def test_limits_are_kept(kind, wrong, message):
  with pytest.raises(ValueError, match=f"^{message}$"):
    kind(**wrong)


def test_settings_that_do_nothing():
  assert settings.unused(Config()) == {"with --at-once": ("warm_up",)}
  assert settings.unused(Config(data="gaussians", toys=(), at_once=False)) == {
    "with --data gaussians": ("rows",),
    "with --no-at-once": ("probe",),
    "without --toys": ("toy_seeds",),
    "without one or two among --toys": ("width",),
  }


def test_a_printed_table_is_read_by_columns():
  rows = {"x": [1, math.nan], "t": {"y": ["<2", 3]}}
  found = published._by_columns({"a": {"columns": ["b", "c"], **rows}, "d": 4})
  assert found == {"a": {"b": {"x": 1, "t": {"y": "<2"}}, "c": {"t": {"y": 3}}}, "d": 4}
  for wrong in ([1], [1, 2, 3]):
    with pytest.raises(ValueError, match="zip"):
      published._by_columns({"columns": ["b", "c"], "x": wrong})
