"""Claims of the thesis about the methods that were trained on photographs."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from experiments.frame.study import Claim, Difference, Table
from experiments.metric_learning.photographs.methods import (
  ALONE,
  PREDICTION,
  FullConfig,
)

_POOLED = {"plain": "retrieval-gsp", "xbm": "xbm-gsp", "ccp": "ccp-gsp"}
_TABLES = "DML, tables 3.1 and 5.1"

MAP, NETWORK = "MAP@R", "MAP@R of one network"
Pairs = list[tuple[str, str]]  # of a method, and the method that it should beat


def add(
  table: Table, name: str, judged: Mapping[int, Sequence[Mapping[str, float]]]
) -> None:
  """Adds the figures of one method that claims need.

  `judged` has the measures of networks or combinations, by dimension.
  """
  for measure in (MAP, "P@1"):
    values = [figures[measure] for figures in judged[max(judged)]]
    table.add(name, measure, np.mean(values), listed=False)
  if len(judged) > 1:
    values = [figures[MAP] for figures in judged[min(judged)]]
    table.add(name, NETWORK, np.mean(values), listed=False)


def _without(name: str, part: str) -> str:
  # "s" and "l" are sizes of memories and proxies.
  parts = {part} if part not in _POOLED else {part, "s", "l"}
  return "+".join(x for x in name.split("+") if x not in parts)


def _kind(name: str) -> str:
  return next((x for x in name.split("+") if x in _POOLED), "plain")


def _gains(pairs: Pairs) -> Difference:
  """Gains in MAP@R of all pairs, one after another."""
  return lambda t: np.concatenate([t.gain(MAP, a, over=b) for a, b in pairs])


def claims(_: FullConfig, table: Table) -> list[Claim]:
  """Lists claims; each is about all pairs of methods."""
  names = table.variants(MAP)
  ccp = [x for x in names if _kind(x) == "ccp"]

  def added(part: str, methods: Sequence[str] = names) -> Pairs:
    return [(x, _without(x, part)) for x in methods if part in x.split("+")]

  def instead(kind: str) -> Pairs:
    return [(x, x.replace("ccp", kind)) for x in ccp]

  components = [
    pair
    for name in names
    for part in (ALONE, PREDICTION)
    if part in name.split("+")
    for pair in ((name, _without(name, part)), (name.replace(part, "gsp"), name))
  ]
  compared: list[tuple[str, str, Pairs, str]] = [
    ("retrieval-ccp-beats-baseline", "with chance-constrained proxies > without",
     added("ccp"), _TABLES),
    ("retrieval-xbm", "with a memory > without", added("xbm"), _TABLES),
    ("retrieval-ccp-vs-xbm", "with CCP > with a memory", instead("xbm"), _TABLES),
    ("ccp-alternating", "with CCP > with fixed proxies", instead("proxy"),
     "DML, figure 3.7"),
    *(
      (key, "with generalized sum pooling > without",
       added("gsp", [x for x in names if _kind(x) == kind]), _TABLES)
      for kind, key in _POOLED.items()
    ),
    ("components", "of a part > of none, of both > of one", components,
     "DML, table 5.3"),
  ]  # fmt: skip
  statements = []
  for key, text, pairs, source in compared:
    if trained_pairs := [(a, b) for a, b in pairs if a in names and b in names]:
      words = ", ".join(f"{a} > {b}" for a, b in trained_pairs)
      statement = f"MAP@R {text}: {words}"
      statements.append(Claim(key, statement, _gains(trained_pairs), source, True))
  return [*statements, *_of_batches(names, ccp), *_of_all(table)]


def _of_batches(names: Sequence[str], ccp: Sequence[str]) -> Iterator[Claim]:
  """Claims about the loss from small batches, with and without CCP."""

  def sizes(name: str) -> set[int]:
    ends = (x.removeprefix(f"{name}+b") for x in names if x.startswith(f"{name}+b"))
    return {int(end) for end in ends if end.isdecimal()}

  words, ends = [], []
  for name in sorted({x.rpartition("+b")[0] for x in ccp} - {""}):
    plain = _without(name, "ccp")
    if len(shared := sizes(name) & sizes(plain)) > 1:
      small, large = min(shared), max(shared)
      words.append(f"{small} against {large}, {name}")
      ends.append([(f"{x}+b{large}", f"{x}+b{small}") for x in (plain, name)])

  def lost(table: Table) -> np.ndarray:
    gains = [[table.gain(MAP, a, over=b) for a, b in pair] for pair in ends]
    return np.concatenate([without - with_ for without, with_ in gains])

  if ends:
    text = f"MAP@R that a small batch loses: less with CCP: {', '.join(words)}"
    yield Claim("ccp-batch-size", text, lost, "DML, figure 3.8", every_seed=True)


def _of_all(table: Table) -> Iterator[Claim]:
  """Claims about all networks together, and about which measure separates methods."""
  names = table.variants(MAP)
  if joined := table.variants(NETWORK):
    yield Claim(
      "retrieval-concatenation",
      "MAP@R of all networks side by side > their mean",
      lambda t: np.concatenate(
        [t.values(MAP, x) - t.values(NETWORK, x) for x in joined]
      ),
      _TABLES,
      every_seed=True,
    )
  yield from map_separates(names, "methods", _TABLES, every_seed=True)


def map_separates(
  names: Sequence[str], what: str, source: str = "", *, every_seed: bool = False
) -> Iterator[Claim]:
  """Claims that MAP@R separates several variants more clearly than P@1."""

  def separation(table: Table, measure: str) -> np.ndarray:
    figures = np.stack([table.values(measure, name) for name in names])
    return (figures.max(0) - figures.min(0)) / figures.mean(0)

  if len(names) > 1:
    yield Claim(
      "retrieval-map-separates",
      f"(largest - smallest) / mean over the {what}: MAP@R > P@1",
      lambda t: separation(t, MAP) - separation(t, "P@1"),
      source,
      every_seed=every_seed,
    )
