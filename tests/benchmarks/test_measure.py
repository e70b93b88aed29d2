"""How contenders are timed, by a clock that they move."""

import pathlib

import jax
import numpy as np
import pytest

from benchmarks import _measure


class Clock:
  now = 0.0

  def perf_counter(self):
    return self.now


class Slow:
  """Takes longer at first, and adds what it is told."""

  def __init__(self, clock, later, first=None, value=0.0):
    self.clock, self.later, self.value, self.calls = clock, later, value, 0
    self.first = later if first is None else first

  def __call__(self, x):
    self.clock.now += self.later if self.calls else self.first
    self.calls += 1
    return x + self.value


@pytest.fixture
def clock(monkeypatch):
  clock = Clock()
  monkeypatch.setattr(_measure, "time", clock)
  return clock


def compare(ours, theirs):
  ways = {
    _measure.OURS: _measure.Contender(ours, 0, compiled=False),
    "theirs": _measure.Contender(theirs, 1e-6, compiled=False),
  }
  targets = _measure.Target("theirs", 6), _measure.Target("theirs", 3)
  return _measure.compare("case", (np.ones(2),), ways, targets, repetitions=3)


def test_times_ratios_and_what_the_first_call_takes_more(clock):
  row = compare(Slow(clock, 0.5, first=2.0), Slow(clock, 2.0))
  assert row["milliseconds"] == {_measure.OURS: 500, "theirs": 2000}
  assert row["compile_seconds"] == {_measure.OURS: 1.5, "theirs": 0}
  assert row["ratio"] == {"theirs": 4}
  assert row["targets"] == [
    {"other": "theirs", "ratio": ratio, "met": met}
    for ratio, met in ((6, False), (3, True))
  ]


@pytest.mark.parametrize(
  # The result, a warm-up, three repetitions, of which each has a call before it.
  ("seconds", "calls"),
  [(4.0, 2 + 3), (2.0, 2 + 3 * 2), (2.0**-10, 2 + 3 * (1 + 31))],
)
def test_short_calls_are_made_often_and_long_ones_once(clock, seconds, calls):
  ours = Slow(clock, seconds)
  compare(ours, Slow(clock, 1.0))
  assert ours.calls == calls


def test_a_result_that_differs_ends_the_benchmark(clock):
  message = r"case: theirs differs from ours by 1\.0e-03"
  with pytest.raises(AssertionError, match=message):
    compare(Slow(clock, 1.0), Slow(clock, 1.0, value=1e-3))


def test_what_of_the_rate_of_products_is_reached(monkeypatch, capsys):
  """On the CPU, which is taken for another device."""
  monkeypatch.setattr(_measure, "_accelerated", lambda: True)
  monkeypatch.setattr(_measure, "matrix_rate", lambda: 1e6)
  ways = {
    _measure.OURS: _measure.Contender(lambda x: x + 1, 0),
    _measure.FLOOR: _measure.Contender(lambda x: x @ x.T),
  }
  row = _measure.compare("n", (np.ones((5, 3)),), ways, (), repetitions=1)
  assert row[_measure.SHARE] == {
    name: pytest.approx(2 * 5 * 5 * 3 / (milliseconds / 1e3) / 1e6)
    for name, milliseconds in row["milliseconds"].items()
  }
  times = {_measure.OURS: 4.0, _measure.FLOOR: 2.0, "peer": 9.0}
  shares = _measure.rate_shares(6e6, times, 1e10)
  assert shares == {_measure.OURS: 0.15, _measure.FLOOR: 0.3}
  options = _measure.Options(smoke=True, json=None, repetitions=1, only="")
  _measure.report("a", [row | {_measure.SHARE: shares}], [], options)
  printed = capsys.readouterr().out
  assert all(text in printed for text in ("of rate", "15%", "30%"))


def test_products_have_a_rate_where_their_number_is_known():
  x = np.ones((4, 2), np.float32)

  def rows(x):
    return jax.jit(lambda x: jax.lax.map(lambda row: x @ row, x))(x)

  def unknown(x):
    return jax.lax.while_loop(lambda x: x[0, 0] < 9, lambda x: x @ x.T @ x, x)

  assert _measure.product_operations(rows, (x,)) == 4 * 2 * 4 * 2
  for call in (unknown, lambda x: x.max(0)):
    assert _measure.product_operations(call, (x,)) is None
  assert _measure.matrix_rate(64) > 0


def test_a_name_that_no_case_has_ends_the_run():
  options = _measure.Options(smoke=True, json=None, repetitions=1, only="arcfaces")
  with pytest.raises(SystemExit, match="--only 'arcfaces' is in the name of no case"):
    _measure.report("losses", [], [], options)


def test_a_file_is_tried_and_left_out(monkeypatch, tmp_path):
  file = tmp_path / "table.json"
  monkeypatch.setattr("sys.argv", ["benchmark", "--json", str(file)])
  assert _measure.parse("").json == file
  assert not list(tmp_path.iterdir())


def test_no_benchmark_offers_an_option_that_it_ignores():
  names = []
  for path in pathlib.Path(_measure.__file__).parent.glob("[a-z]*.py"):
    text = path.read_text()
    if "_measure.parse(" in text:
      names.append(path.stem)
      chooses = "options.only" in text or "_measure.run(" in text
      assert ("cases=False" in text) != chooses, path.name
      assert ("timed=False" in text) != ("options.repetitions" in text), path.name
  assert len(names) > 10
