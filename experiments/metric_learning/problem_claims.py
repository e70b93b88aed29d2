"""What `ccp_proxies` says about each claim of the chapter."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.frame import results
from experiments.metric_learning.methods import TITLES
from experiments.metric_learning.problem_figures import (
  Costs,
  Runs,
  at_end,
  last,
  lengths,
  moves,
  radii,
  score,
)

PAPER = "DML, chapter 3"


def claims(runs: Runs, config: Any, costs: Costs) -> list[dict[str, Any]]:
  """Every claim that the trainings can tell something about."""
  made = _of_digits(runs) + _of_problems(runs, config)
  made += _of_characters(runs, config)
  for loss, (longer, _) in costs.items():
    text = f"a step of {loss} takes at most 1.25 times as long with CCP"
    made.append(_claim(f"ccp-cost-{TITLES[loss]}", text, 1.25 - longer, "Table 3.3"))
  return made


def _claim(
  name: str, text: str, values: Iterable[float], source: str, every: bool = False
) -> dict[str, Any]:
  return results.claim(name, text, values, paper=f"{PAPER}, {source}", every_seed=every)


def _of_digits(runs: Runs) -> list[dict[str, Any]]:
  once, renewed = runs.found["trained once"], runs.found["renewed"]
  ends = np.array([last(curve) for curve in once.curves["spread"][0]])
  made = [
    _claim(
      "ccp-coalesce",
      "proxies trained once end at half their first spread at most",
      0.5 - ends / once.first_spread[0],
      "figure 3.2",
    )
  ]
  for key, curve, text in (
    ("images", "radius", "the proxies' covering radius of the training images falls"),
    ("classes", "cover", "covering radius of the classes over their distance falls"),
  ):
    falls = at_end(renewed, curve, 1) - at_end(renewed, curve, 4)
    text += ", from the end of problem 1 to that of 4 or the last"
    made.append(_claim(f"ccp-covering-{key}", text, falls, "figures 3.2, 3.3"))
  rises = at_end(renewed, "score", 4) - at_end(renewed, "score", 1)
  text = "MAP@R of validation images rises, from the end of problem 1 to that of 4 or"
  made.append(_claim("ccp-map-rises", f"{text} the last", rises, "figures 3.2, 3.3"))
  apart = np.abs(score(renewed) - score(runs.found["samples"]))
  text = "MAP@R with proxies and with samples in their place differ by < .03"
  made.append(_claim("ccp-proxies-stand-in", text, 0.03 - apart, "section 3.3.1"))
  return made


def _of_problems(runs: Runs, config: Any) -> list[dict[str, Any]]:
  problems = [
    own
    for found in runs.found.values()
    if "problem" in found.curves
    for own in lengths(found)
  ]
  ended = [length for own in problems for length in own]
  shortest = min(ended, default=0) - config.switch_patience - 1
  made = [
    _claim(
      "ccp-problem-length-least",
      "every problem lasts for its first evaluation and the patience at least",
      [shortest + 0.5],
      "figure 3.7b",
      True,
    ),
    _claim(
      "ccp-problem-length-two",
      "every training has two problems at least",
      [min(map(len, problems)) - 0.5],
      "figure 3.7b",
      True,
    ),
    _claim(
      "ccp-problem-length-unequal",
      "problems are not of one length",
      [len(set(ended)) - 1.5],
      "figure 3.7b",
      True,
    ),
  ]
  apart = [
    radii(found, "random") - radii(found, "greedy")
    for found in runs.found.values()
    if "problem" in found.curves
  ]
  if values := np.concatenate(apart).tolist():
    text = "greedy picks cover the pools better than random ones, where there are any"
    made.append(_claim("ccp-greedy-covers", text, values, "section 3.2.3"))
  return made


def _of_characters(runs: Runs, config: Any) -> list[dict[str, Any]]:
  found = runs.found
  made = []
  if config.losses:
    gains = [
      score(found[f"{x} ccp"]) - score(found[f"{x} proxy"]) for x in config.losses
    ]
    text = "MAP@R of unseen classes: CCP > proxies trained once, over all losses"
    made.append(_claim("ccp-alternating", text, np.concatenate(gains), "figure 3.7a"))
  if config.other_weights:
    made += _of_weights(runs, config) + _of_pools(runs, config)
  if len(config.batches) > 1:
    small, large = min(config.batches), max(config.batches)
    lost = [
      score(found[f"batch {large} {kind}"]) - score(found[f"batch {small} {kind}"])
      for kind in ("plain", "ccp")
    ]
    text = f"a batch of {small} in the place of {large} loses less with CCP"
    made.append(_claim("ccp-batch-size", text, lost[0] - lost[1], "figure 3.8"))
  return made


def _of_weights(runs: Runs, config: Any) -> list[dict[str, Any]]:
  found = runs.found["c2 ccp"]
  cell = {weight: i for i, weight in enumerate(config.other_weights, start=1)}
  largest = max(cell)
  made = []
  if 0.0 in cell:
    drift = moves(found, cell[0.0]) - moves(found, cell[largest])
    text = f"anchors of problems are nearer at weight {largest:g} than at 0"
    made.append(_claim("ccp-lambda-drift", text, drift, "equation 3.2.11"))
    gain = score(found) - score(found, cell[0.0])
    text = f"MAP@R: weight {config.weight:g} >= 0"
    made.append(_claim("ccp-lambda-zero", text, gain, "figure 3.5"))
  gain = score(found) - score(found, cell[largest])
  text = f"MAP@R: weight {config.weight:g} > {largest:g}"
  return [*made, _claim("ccp-lambda-largest", text, gain, "figure 3.5")]


def _of_pools(runs: Runs, config: Any) -> list[dict[str, Any]]:
  m, b = config.proxies, config.large_pool
  large = {number: score(runs.found[f"m = {number}, b = {b}"]) for number in (1, m)}
  single = score(runs.found["m = 1, b = 1"])
  return [
    _claim(
      "ccp-proxies-per-class-number",
      f"MAP@R: {m} proxies of a class >= 1, pools of {b}",
      large[m] - large[1],
      "figure 3.6",
    ),
    _claim(
      "ccp-proxies-per-class-pool",
      f"MAP@R of one proxy: a pool of {b} no better than one by more than .005",
      0.005 - (large[1] - single),
      "figure 3.6",
    ),
  ]
