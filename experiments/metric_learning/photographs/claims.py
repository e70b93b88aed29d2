"""What the thesis says of methods on photographs, of those that were trained."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.frame import results
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

Judged = Mapping[str, Mapping[int, list[Any]]]
"""By method and dimension: measures of networks or combinations."""
Problems = Mapping[str, list[list[Mapping[str, float]]]]
"""By method, of each training: the last evaluation of every problem."""


def _without(name: str, part: str) -> str:
  # Small or large are memories and proxies.
  parts = {part} if part not in _POOLED else {part, "s", "l"}
  return "+".join(x for x in name.split("+") if x not in parts)


def _batches(judged: "Judged", name: str) -> dict[int, str]:
  """Methods of that name by their batches."""
  return {
    int(batch): x
    for x in judged
    for own, _, batch in [x.rpartition("+b")]
    if own == name and batch.isdecimal()
  }


def _kind(name: str) -> str:
  return next((x for x in name.split("+") if x in _POOLED), "plain")


def _value(judged: Judged, name: str, measure: str = "MAP@R") -> float:
  largest = judged[name][max(judged[name])]
  return float(np.mean([one[measure] for one in largest]))


def claims(judged: Judged, problems: Problems) -> list[dict[str, Any]]:
  """Each holds where it does for every pair, those of problems on average."""
  made = []

  def claim(key: str, text: str, pairs: list[tuple[str, str]], paper: str) -> None:
    found = [(a, b) for a, b in pairs if a in judged and b in judged]
    if found:
      words = ", ".join(f"{a} > {b}" for a, b in found)
      apart = [_value(judged, a) - _value(judged, b) for a, b in found]
      made.append(_claim(key, f"{text}: {words}", apart, paper))

  for key, part, words in _PARTS:
    pairs = [(x, _without(x, part)) for x in judged if part in x.split("+")]
    claim(key, f"MAP@R {words} > without", pairs, _TABLES)
  both = [(x, x.replace("ccp", "xbm")) for x in judged if _kind(x) == "ccp"]
  claim("retrieval-ccp-vs-xbm", "MAP@R with CCP > with a memory", both, _TABLES)
  both = [(x, x.replace("ccp", "proxy")) for x in judged if _kind(x) == "ccp"]
  claim("ccp-alternating", "MAP@R with CCP > with fixed proxies", both, _ALTERNATING)
  made += _of_batches(judged)
  for kind, key in _POOLED.items():
    pairs = [
      (x, _without(x, "gsp"))
      for x in judged
      if "gsp" in x.split("+") and _kind(x) == kind
    ]
    claim(key, "MAP@R with generalized sum pooling > without", pairs, _TABLES)
  parts = []
  for name in judged:
    for part in (ALONE, PREDICTION):
      if part in name.split("+"):
        parts += [(name, _without(name, part)), (name.replace(part, "gsp"), name)]
  claim("components", "MAP@R of a part > of none, of both > of one", parts, _COMPONENTS)
  made += _of_problems(problems)
  return made + _of_networks(judged) + _of_measures(judged)


def _claim(key: str, text: str, values: list[float], paper: str) -> dict[str, Any]:
  return results.claim(key, text, values, paper=paper, every_seed=True)


def _of_problems(problems: Problems) -> list[dict[str, Any]]:
  """What changes over those of a training, where there is a second one."""
  ends = [
    (own[0], own[:_SHOWN][-1])
    for every in problems.values()
    for own in every
    if len(own) > 1 and RADIUS in own[0]
  ]
  if not ends:
    return []
  to = f"from the end of problem 1 to that of {_SHOWN} or the last"
  made = []
  for key, text, change in (
    (
      "ccp-covering",
      "covering radius of validation classes over their distance falls",
      [a[RADIUS] / a[APART] - b[RADIUS] / b[APART] for a, b in ends],
    ),
    (
      "ccp-map-rises",
      "MAP@R of validation classes rises",
      [b["MAP@R"] - a["MAP@R"] for a, b in ends],
    ),
  ):
    made.append(results.claim(key, f"{text}, {to}", change, paper=_PROBLEMS))
  return made


def _of_batches(judged: Judged) -> list[dict[str, Any]]:
  """What a small batch loses, with chance-constrained proxies and without."""
  words, apart = [], []
  plain = {name.rpartition("+b")[0] for name in judged if "+b" in name} - {""}
  for name in sorted(x for x in plain if _kind(x) == "ccp"):
    with_, without = (_batches(judged, x) for x in (name, _without(name, "ccp")))
    if len(shared := sorted(with_.keys() & without.keys())) > 1:
      small, large = shared[0], shared[-1]
      lost = [
        _value(judged, own[large]) - _value(judged, own[small])
        for own in (without, with_)
      ]
      words.append(f"{small} against {large}, {name}")
      apart.append(lost[0] - lost[1])
  text = f"MAP@R that a small batch loses: less with CCP: {', '.join(words)}"
  return [_claim("ccp-batch-size", text, apart, "DML, figure 3.8")] if apart else []


def _of_networks(judged: Judged) -> list[dict[str, Any]]:
  """All networks together against each."""
  gains = [
    _value(judged, name) - float(np.mean([one["MAP@R"] for one in own[min(own)]]))
    for name, own in judged.items()
    if len(own) > 1
  ]
  text = "MAP@R of all networks side by side > their mean"
  return [_claim("retrieval-concatenation", text, gains, _TABLES)] if gains else []


def _of_measures(judged: Judged) -> list[dict[str, Any]]:
  """Which measure tells the methods apart."""
  if len(judged) < 2:
    return []
  apart = {}
  for measure in ("MAP@R", "P@1"):
    values = [_value(judged, name, measure) for name in judged]
    apart[measure] = np.ptp(values) / np.mean(values)
  text = "(largest - smallest) / mean over the methods: MAP@R > P@1"
  more = [apart["MAP@R"] - apart["P@1"]]
  return [_claim("retrieval-map-separates", text, more, _TABLES)]
