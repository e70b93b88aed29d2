"""Charts that are drawn from a committed result."""

import json
import re
import shutil

import numpy as np

from experiments import redraw
from experiments.frame import pictures, results
from experiments.results_page import DOCS
from spherejax import plotting


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


def test_panels_of_gains_share_an_axis():
  panels = {"small": {"row": np.zeros(3)}, "large": {"row": np.arange(3.0)}}
  first, second = pictures.dots(panels, "gain", gains=True).axes
  assert first.get_xlim() == second.get_xlim()


def test_rows_are_sorted_and_gains_have_the_colour_of_their_sign():
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
  np.testing.assert_allclose(
    min(intervals, key=lambda x: x[0]), [-3 - half, -3 + half], rtol=1e-5
  )
