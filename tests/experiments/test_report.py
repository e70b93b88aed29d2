"""What is printed of results, and how the paper's figures are told apart."""

import dataclasses

import numpy as np
import pytest

from experiments import quickstart
from experiments.frame import command, results
from spherejax import metrics


def test_a_note_stands_beside_its_measure(tmp_path):
  row = results.row("net", "points", [3.0, 2.0]) | {"note": "at 1/4"}
  content = {"experiment": "some", "preset": "cpu", "seconds": 1.0, "device": "1 x cpu"}
  results.write(content | {"rows": [row], "claims": []}, tmp_path)
  assert "points: at 1/4" in (tmp_path / "table.txt").read_text()


@pytest.mark.parametrize("paper", [None, 0.17])
def test_a_table_says_what_the_papers_figures_are_of(paper, tmp_path):
  content = {
    "experiment": "some",
    "preset": "cpu",
    "seconds": 1.0,
    "device": "1 x cpu",
    "rows": [results.row("GSP", "MAP@R", [0.5, 0.25], paper=paper)],
    "claims": [results.claim("gsp", "GSP > GAP", [0.1, 0.2], paper="DML 5.3.2")],
  }
  results.write(content, tmp_path)
  text = (tmp_path / "table.txt").read_text()
  assert "0.375" in text
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
      experiment="quickstart",
      preset="smoke",
      config=quickstart.PRESETS["smoke"],
      seconds=1.0,
      rows=[],
      claims=[results.claim(name, name, [0.1], paper="DML 1") for name in names],
    )

  with pytest.raises(ValueError, match=r"its own id; .* than once: \['a', 'c'\]"):
    result("a", "b", "c", "a", "c", "a")
  assert [claim["id"] for claim in result("a", "b")["claims"]] == ["a", "b"]


def test_no_setting_names_one_thing_twice():
  @dataclasses.dataclass(frozen=True)
  class Config:
    losses: tuple[str, ...] = ("c1",)
    widths: tuple[int, ...] = (4, 4)

  def parse(*options):
    arguments = ["--losses", *options]
    presets = {"cpu": Config()}
    return command.parse(presets, name="some", doc="", arguments=arguments).config

  assert parse("c1", "c2") == Config(losses=("c1", "c2"))
  with pytest.raises(SystemExit, match=r"--losses must not .* twice, got c1 c2 c1"):
    parse("c1", "c2", "c1")
