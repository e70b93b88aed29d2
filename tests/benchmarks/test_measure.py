"""How contenders are timed, by a clock that they move."""

import types

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
    self.clock, self.later, self.first, self.value = clock, later, first, value
    self.calls = 0

  def __call__(self, x):
    first = self.first is not None and not self.calls
    self.clock.now += self.first if first else self.later
    self.calls += 1
    return x + self.value


@pytest.fixture
def clock(monkeypatch):
  clock = Clock()
  fake = types.SimpleNamespace(perf_counter=clock.perf_counter)
  monkeypatch.setattr(_measure, "time", fake)
  return clock


def compare(ours, theirs):
  return _measure.compare(
    "case",
    (np.ones(2),),
    {
      _measure.OURS: _measure.Contender(ours, 0, compiled=False),
      "theirs": _measure.Contender(theirs, 1e-6, compiled=False),
    },
    (_measure.Target("theirs", 6),),
    repetitions=3,
  )


def test_times_ratios_and_what_the_first_call_takes_more(clock):
  row = compare(Slow(clock, 0.5, first=2.0), Slow(clock, 2.0))
  assert row["milliseconds"] == {_measure.OURS: 500, "theirs": 2000}
  assert row["compile_seconds"] == {_measure.OURS: 1.5, "theirs": 0}
  assert row["ratio"] == {"theirs": 4}
  assert row["targets"] == [{"other": "theirs", "ratio": 6, "met": False}]


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
  other = Slow(clock, 1.0, value=1e-3)
  with pytest.raises(
    AssertionError, match=r"case: theirs differs from ours by 1\.0e-03"
  ):
    compare(Slow(clock, 1.0), other)
