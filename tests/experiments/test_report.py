"""What is printed and drawn of results, and how the paper's figures are told apart."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from experiments import quickstart, redraw
from experiments.frame import command, pictures, results
from experiments.results_page import DOCS
from spherejax import metrics, plotting


@pytest.mark.parametrize("paper", [None, 0.17])
def test_a_table_has_notes_and_says_what_the_papers_figures_are_of(paper, tmp_path):
  content = {
    "experiment": "some", "preset": "cpu", "seconds": 1.0, "device": "1 x cpu",
    "rows": [
      results.row("GSP", "MAP@R", [0.5, 0.25], paper=paper),
      results.row("net", "points", [3.0, 2.0]) | {"note": "at 1/4"},
    ],
    "claims": [results.claim("gsp", "GSP > GAP", [0.1, 0.2], paper="DML 5.3.2")],
  }  # fmt: skip
  results.write(content, tmp_path)
  text = (tmp_path / "table.txt").read_text()
  assert "0.375" in text
  assert "points: at 1/4" in text
  assert ("0.17" in text) == (paper is not None)
  assert ("of its own images and networks" in text) == (paper is not None)


def test_a_verdict_and_the_seeds_that_would_decide():
  def verdict(values, **options):
    made = results.claim("a", "A > B", values, paper="", **options)
    return made["verdict"], made["seeds to decide"]

  assert verdict([0.1, 0.2, 0.15]) == ("reproduced", None)
  assert verdict([-0.1, -0.2, -0.15]) == ("contradicted", None)
  assert verdict([0.1, np.nan, 0.2]) == ("undecided", None)
  assert verdict([0.1]) == ("undecided", None)
  assert verdict([0.1], every_seed=True) == ("reproduced", None)
  assert verdict([0.0], every_seed=True) == ("contradicted", None)
  assert verdict([0.1, -0.1]) == ("undecided", None)
  assert verdict([0.1, 0.1, 2.0], every_seed=True) == ("reproduced", None)
  assert verdict([0.1, 0.1, 2.0])[0] == "undecided"
  assert verdict([0.1, -0.01], every_seed=True)[0] == "undecided"
  # The least of the differences would be 0.1 here.
  assert verdict([0.1, np.nan], every_seed=True) == ("undecided", None)
  for mean in (0.3, -0.3):
    values = mean + np.array([-1.0, 1.0, -1.0, 1.0]) / 2
    said, number = verdict(values)
    assert said == "undecided"
    for count, decided in ((number, True), (number - 1, False)):
      # As many values with the same mean and deviation.
      drawn = np.random.default_rng(count).normal(size=count)
      drawn = (drawn - drawn.mean()) / drawn.std(ddof=1)
      interval = metrics.mean_interval(mean + np.std(values, ddof=1) * drawn)
      assert (interval.low > 0 or interval.high < 0) == decided
    entry = results.claim("a", "A > B", values, paper="")
    assert f"undecided ({number} seeds would decide)" == results.verdict_text(entry)


def test_claims_of_one_id_are_no_result():
  def result(*names):
    return results.result(
      experiment="quickstart", preset="smoke", config=quickstart.PRESETS["smoke"],
      seconds=1.0, rows=[],
      claims=[results.claim(name, name, [0.1], paper="DML 1") for name in names],
    )  # fmt: skip

  with pytest.raises(ValueError, match=r"its own id; .* than once: \['a', 'c'\]"):
    result("a", "b", "c", "a", "c", "a")
  assert [claim["id"] for claim in result("a", "b")["claims"]] == ["a", "b"]


def test_no_setting_names_one_thing_twice(capsys):
  @dataclasses.dataclass(frozen=True)
  class Config:
    losses: tuple[str, ...] = ("c1",)
    widths: tuple[int, ...] = (4, 4)

  def parse(*options):
    arguments = ["--losses", *options]
    presets = {"cpu": Config()}
    return command.parse(presets, name="some", doc="", arguments=arguments).config

  assert parse("c1", "c2") == Config(losses=("c1", "c2"))
  with pytest.raises(SystemExit):
    parse("c1", "c2", "c1")
  said = capsys.readouterr().err
  assert "--losses must not name anything twice, got c1 c2 c1" in said


def test_charts_come_from_the_numbers_of_a_result(tmp_path):
  file = tmp_path / "retrieval-cars-gsp.json"
  shutil.copy(DOCS / "results" / file.name, file)
  committed = json.loads(file.read_text())
  stale = {"pictures": ["scores-cars.png", *committed["pictures"][2:]]}
  file.write_text(json.dumps(committed | stale))
  (tmp_path / file.stem).mkdir()
  (tmp_path / file.stem / "scores-cars.png").touch()  # of an older version
  assert redraw.redraw(file) == ["scores-cars.svg", "gains-cars.svg"]
  assert json.loads(file.read_text()) == committed
  written = {path.name for path in (tmp_path / file.stem).iterdir()}
  assert written == {"scores-cars.svg", "gains-cars.svg"}
  text = (tmp_path / file.stem / "scores-cars.svg").read_text()
  assert "ProxyNCA++ + GSP" in text  # letters stay text


def test_the_figure_of_the_statements_shows_the_committed_claims(tmp_path):
  def dots(file):
    pattern = r'<use xlink:href="#\w+" x="(\S+)" y="(\S+)" style="fill: (#\w+)'
    return [(float(x), float(y), color) for x, y, color in re.findall(pattern, file)]

  figure = pictures.verdicts(redraw.verdicts())
  drawn = dots(plotting.save(figure, tmp_path / "drawn.svg").read_text())
  committed = dots((DOCS / "results" / "statements.svg").read_text())
  assert [dot[2] for dot in committed] == [dot[2] for dot in drawn]
  for now, then in zip(drawn, committed, strict=True):
    np.testing.assert_allclose(now[:2], then[:2], atol=1)
  assert len(drawn) > 100


def test_claims_stand_in_the_row_of_their_statement_with_the_colour_of_their_verdict():
  claims = {
    "first": [(2.0, results.REPRODUCED), (np.nan, results.REPRODUCED)],
    "second": [(-3.0, results.CONTRADICTED), (0.5, results.UNDECIDED)],
  }
  (axes,) = pictures.verdicts(claims).axes
  dots = [x for x in axes.lines if x.get_marker() == "o" and len(x.get_xdata()) == 1]
  places = {(x.get_xdata()[0], round(x.get_ydata()[0])): x.get_color() for x in dots}
  blue, orange, grey = "#0072B2", "#D55E00", "#7F7F7F"
  assert places == {(2, 0): blue, (300, 0): blue, (-3, 1): orange, (0.5, 1): grey}
  assert [x.get_text() for x in axes.get_yticklabels()] == list(claims)


def test_rows_are_sorted_and_gains_have_the_colour_of_their_sign():
  panels = {"small": {"row": np.zeros(3)}, "large": {"row": np.arange(3.0)}}
  first, second = pictures.dots(panels, "gain", gains=True).axes
  assert first.get_xlim() == second.get_xlim()
  values = {
    "below": np.array([-3.0, -2.9, -3.1]),
    "above": np.array([2.0, 2.1, 1.9]),
    "both": np.array([-1.0, 1.0, 0.1]),
  }
  (axes,) = pictures.dots({"panel": values}, "gain", gains=True).axes
  assert [x.get_text() for x in axes.get_yticklabels()] == ["above", "both", "below"]
  means = [x for x in axes.lines if x.get_marker() == "o"]
  colours = {float(x.get_xdata()[0]): x.get_color() for x in means}
  assert [colours[x] for x in sorted(colours)] == ["#D55E00", "#7F7F7F", "#0072B2"]
  intervals = [x.get_xdata() for x in axes.lines if len(x.get_xdata()) == 2]
  half = 4.302653 * np.std([-3.0, -2.9, -3.1], ddof=1) / np.sqrt(3)
  np.testing.assert_allclose(min(intervals, key=min), [-3 - half, -3 + half], rtol=1e-5)
