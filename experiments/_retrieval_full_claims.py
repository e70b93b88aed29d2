"""What the thesis says of methods on photographs, of those that were trained."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments import _report
from experiments._retrieval_full_jobs import ALONE, PREDICTION

# Claim, what makes the first method of a pair, words for it.
_PARTS = (
  ("retrieval-ccp-beats-baseline", "ccp", "with chance-constrained proxies"),
  ("retrieval-xbm", "xbm", "with a memory"),
)
_POOLED = {"plain": "retrieval-gsp", "xbm": "xbm-gsp", "ccp": "ccp-gsp"}
_TABLES = "DML, tables 3.1 and 5.1"
_COMPONENTS = "DML, table 5.3"

Judged = Mapping[str, Mapping[int, list[Any]]]
"""By method and dimension: measures of networks or combinations."""


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


def claims(judged: Judged) -> list[dict[str, Any]]:
  """Each holds where it does for every pair that was trained."""

  def value(name: str, measure: str = "MAP@R") -> float:
    largest = judged[name][max(judged[name])]
    return float(np.mean([one[measure] for one in largest]))

  made = []

  def claim(key: str, text: str, pairs: list[tuple[str, str]], paper: str) -> None:
    found = [(a, b) for a, b in pairs if a in judged and b in judged]
    if found:
      words = ", ".join(f"{a} > {b}" for a, b in found)
      apart = [value(a) - value(b) for a, b in found]
      made.append(
        _report.claim(key, f"{text}: {words}", apart, paper=paper, every_seed=True)
      )

  for key, part, words in _PARTS:
    pairs = [(x, _without(x, part)) for x in judged if part in x.split("+")]
    claim(key, f"MAP@R {words} > without", pairs, _TABLES)
  both = [(x, x.replace("ccp", "xbm")) for x in judged if _kind(x) == "ccp"]
  claim("retrieval-ccp-vs-xbm", "MAP@R with CCP > with a memory", both, _TABLES)
  plain = {name.rpartition("+b")[0] for name in judged if "+b" in name} - {""}
  for name in sorted(x for x in plain if _kind(x) == "ccp"):
    with_, without = (_batches(judged, x) for x in (name, _without(name, "ccp")))
    if len(shared := sorted(with_.keys() & without.keys())) > 1:
      small, large = shared[0], shared[-1]
      lost = [value(own[large]) - value(own[small]) for own in (without, with_)]
      text = f"MAP@R that a batch of {small} loses against {large}: less with CCP"
      made.append(
        _report.claim(
          "ccp-batch-size",
          f"{text}, {name}",
          [lost[0] - lost[1]],
          paper="DML, figure 3.8",
          every_seed=True,
        )
      )
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
  gains = [
    value(name) - float(np.mean([one["MAP@R"] for one in own[min(own)]]))
    for name, own in judged.items()
    if len(own) > 1
  ]
  if gains:
    text = "MAP@R of all networks side by side > their mean"
    made.append(
      _report.claim(
        "retrieval-concatenation", text, gains, paper=_TABLES, every_seed=True
      )
    )
  if len(judged) > 1:
    apart = {}
    for measure in ("MAP@R", "P@1"):
      values = [value(name, measure) for name in judged]
      apart[measure] = np.ptp(values) / np.mean(values)
    made.append(
      _report.claim(
        "retrieval-map-separates",
        "(largest - smallest) / mean over the methods: MAP@R > P@1",
        [apart["MAP@R"] - apart["P@1"]],
        paper=_TABLES,
        every_seed=True,
      )
    )
  return made
