"""Claims of the thesis about the methods that were trained on photographs."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from experiments.frame.study import Claim, Table
from experiments.metric_learning.measures import APART, RADIUS
from experiments.metric_learning.photographs.methods import ALONE, PREDICTION

# Claim, what makes the first method of a pair, words for it.
_PARTS = (
  ("retrieval-ccp-beats-baseline", "ccp", "with chance-constrained proxies"),
  ("retrieval-xbm", "xbm", "with a memory"),
)
_POOLED = {"plain": "retrieval-gsp", "xbm": "xbm-gsp", "ccp": "ccp-gsp"}
_TABLES = "DML, tables 3.1 and 5.1"
_COMPONENTS = "DML, table 5.3"
_ALTERNATING = "DML, figure 3.7"
_PROBLEMS = "DML, figure 3.3"
_SHOWN = 3  # problems in that figure

MAP, NETWORK = "MAP@R", "MAP@R of one network"
_COVER, _RISE = "change of the covering radius", "change of MAP@R"


def add(
  table: Table,
  name: str,
  judged: Mapping[int, Sequence[Mapping[str, float]]],
  problems: Sequence[Sequence[Mapping[str, float]]] = (),
) -> None:
  """Adds the figures of one method that claims need.

  `judged` are measures of networks or combinations by dimension, `problems` of each
  training the last evaluation of every problem.
  """
  for measure in (MAP, "P@1"):
    values = [figures[measure] for figures in judged[max(judged)]]
    table.add(name, measure, np.mean(values), listed=False)
  if len(judged) > 1:
    values = [figures[MAP] for figures in judged[min(judged)]]
    table.add(name, NETWORK, np.mean(values), listed=False)
  for series in problems:
    if len(series) > 1 and RADIUS in series[0]:
      a, b = series[0], series[:_SHOWN][-1]
      fall = a[RADIUS] / a[APART] - b[RADIUS] / b[APART]
      table.add(name, _COVER, fall, listed=False)
      table.add(name, _RISE, b[MAP] - a[MAP], listed=False)


def _without(name: str, part: str) -> str:
  # Small or large are memories and proxies.
  parts = {part} if part not in _POOLED else {part, "s", "l"}
  return "+".join(x for x in name.split("+") if x not in parts)


def _batches(names: Sequence[str], name: str) -> dict[int, str]:
  """Methods of that name by their batches."""
  return {
    int(batch): x
    for x in names
    for method, _, batch in [x.rpartition("+b")]
    if method == name and batch.isdecimal()
  }


def _kind(name: str) -> str:
  return next((x for x in name.split("+") if x in _POOLED), "plain")


def claims(table: Table) -> list[Claim]:
  """Lists claims, decided over every pair of methods or the average of problems."""
  statements, names = [], table.variants(MAP)

  def claim(key: str, text: str, pairs: list[tuple[str, str]], paper: str) -> None:
    compared = [(a, b) for a, b in pairs if a in names and b in names]
    if compared:
      words = ", ".join(f"{a} > {b}" for a, b in compared)
      statements.append(
        _claim(
          key,
          f"{text}: {words}",
          lambda t: np.concatenate([t.gain(MAP, a, over=b) for a, b in compared]),
          paper,
        )
      )

  for key, part, words in _PARTS:
    pairs = [(x, _without(x, part)) for x in names if part in x.split("+")]
    claim(key, f"MAP@R {words} > without", pairs, _TABLES)
  both = [(x, x.replace("ccp", "xbm")) for x in names if _kind(x) == "ccp"]
  claim("retrieval-ccp-vs-xbm", "MAP@R with CCP > with a memory", both, _TABLES)
  both = [(x, x.replace("ccp", "proxy")) for x in names if _kind(x) == "ccp"]
  claim("ccp-alternating", "MAP@R with CCP > with fixed proxies", both, _ALTERNATING)
  statements += _of_batches(names)
  for kind, key in _POOLED.items():
    pooled = [x for x in names if "gsp" in x.split("+") and _kind(x) == kind]
    pairs = [(x, _without(x, "gsp")) for x in pooled]
    claim(key, "MAP@R with generalized sum pooling > without", pairs, _TABLES)
  parts = []
  for name in names:
    for part in (ALONE, PREDICTION):
      if part in name.split("+"):
        parts += [(name, _without(name, part)), (name.replace(part, "gsp"), name)]
  claim("components", "MAP@R of a part > of none, of both > of one", parts, _COMPONENTS)
  return [*statements, *_of_problems(table), *_of_all(table, names)]


def _claim(
  key: str, text: str, difference: Callable[[Table], ArrayLike], paper: str
) -> Claim:
  return Claim(key, text, difference, paper, every_seed=True)


def _of_problems(table: Table) -> Iterator[Claim]:
  """Claims about the problems of one training, where there are at least two."""
  to = f"from the end of problem 1 to that of {_SHOWN} or the last"
  wide = "covering radius of validation classes over their distance falls"
  rises = "MAP@R of validation classes rises"
  for key, text, measure in (
    ("ccp-covering", wide, _COVER),
    ("ccp-map-rises", rises, _RISE),
  ):
    if methods := table.variants(measure):
      yield Claim(
        key,
        f"{text}, {to}",
        lambda t, methods=methods, m=measure: np.concatenate(
          [t.values(m, x) for x in methods]
        ),
        _PROBLEMS,
      )


def _of_batches(names: Sequence[str]) -> Iterator[Claim]:
  """Claims about the loss from small batches, with and without CCP."""
  words, ends = [], []
  plain = {name.rpartition("+b")[0] for name in names if "+b" in name} - {""}
  for name in sorted(x for x in plain if _kind(x) == "ccp"):
    with_, without = (_batches(names, x) for x in (name, _without(name, "ccp")))
    if len(shared := sorted(with_.keys() & without.keys())) > 1:
      small, large = shared[0], shared[-1]
      words.append(f"{small} against {large}, {name}")
      ends.append([(of_size[large], of_size[small]) for of_size in (without, with_)])

  def lost(table: Table) -> np.ndarray:
    gains = [[table.gain(MAP, a, over=b) for a, b in pair] for pair in ends]
    return np.concatenate([without - with_ for without, with_ in gains])

  if ends:
    text = f"MAP@R that a small batch loses: less with CCP: {', '.join(words)}"
    yield _claim("ccp-batch-size", text, lost, "DML, figure 3.8")


def _of_all(table: Table, names: Sequence[str]) -> Iterator[Claim]:
  """Claims about all networks together, and about which measure separates methods."""
  joined = table.variants(NETWORK)
  if joined:
    yield _claim(
      "retrieval-concatenation",
      "MAP@R of all networks side by side > their mean",
      lambda t: np.concatenate(
        [t.values(MAP, x) - t.values(NETWORK, x) for x in joined]
      ),
      _TABLES,
    )

  def spread(table: Table, measure: str) -> float:
    values = [table.values(measure, name) for name in names]
    return float(np.ptp(values) / np.mean(values))

  if len(names) > 1:
    yield _claim(
      "retrieval-map-separates",
      "(largest - smallest) / mean over the methods: MAP@R > P@1",
      lambda t: spread(t, MAP) - spread(t, "P@1"),
      _TABLES,
    )
