"""Rows and claims of norm and count, beside what NCH prints."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.counting.measures import LEVEL, POINTS
from experiments.frame import results

Figures = dict[str, dict[str, dict[str, list[float]]]]
"""For each network, fill and measure a figure for each seed."""

SUPERVISED, UNBIASED = "supervised", "supervised, no biases"
SIMCLR, RANDOM = "SimCLR", "random weights"
ON_GRIDS, IMAGE = "trained on grids", "the image itself"
NO_FILL = "photographs"
_PRIVATE = ("bound", "strict bound")

# Slopes of table 1, mixed then single; p-values other than 0.000 below.
_SLOPES = {
  ("mnist", SIMCLR, "zeros"): (0.147, 0.206, 0.264, 0.131, 0.190, 0.249),
  ("mnist", SUPERVISED, "zeros"): (-0.075, 0.142, 0.359, 0.027, 0.152, 0.277),
  ("stl10", SIMCLR, "blur"): (0.288, 0.203, 0.117, 0.295, 0.202, 0.109),
  ("stl10", SIMCLR, "random"): (0.253, 0.194, 0.136, 0.260, 0.196, 0.132),
  ("stl10", SIMCLR, "zeros"): (0.231, 0.207, 0.183, 0.237, 0.210, 0.183),
  ("stl10", SUPERVISED, "blur"): (0.196, 0.132, 0.069, 0.143, 0.073, 0.003),
  ("stl10", SUPERVISED, "random"): (0.292, 0.152, 0.012, 0.250, 0.105, -0.039),
  ("stl10", SUPERVISED, "zeros"): (0.305, 0.184, 0.062, 0.283, 0.144, 0.004),
  ("voc", SIMCLR, NO_FILL): (-0.017, -0.017, -0.016, 0.001, 0.016, 0.030),
  ("voc", SUPERVISED, NO_FILL): (0.081, 0.059, 0.037, 0.065, 0.047, 0.030),
}
_P_VALUES = {
  ("mnist", SUPERVISED, "zeros"): (1, 0, 0, 0, 0, 0),
  ("stl10", SUPERVISED, "blur"): (0, 0, 0, 0, 0, 0.404),
  ("stl10", SUPERVISED, "random"): (0, 0, 0.052, 0, 0, 1),
  ("stl10", SUPERVISED, "zeros"): (0, 0, 0, 0, 0, 0.317),
  ("voc", SIMCLR, NO_FILL): (1, 1, 0.996, 0.391, 0.051, 0.019),
  ("voc", SUPERVISED, NO_FILL): (0, 0, 0, 0, 0, 0.024),
}
# Table 2: nearest mean, SGD.
_CHANGES = {
  ("mnist", SIMCLR, "zeros"): (2.92, 0.0),
  ("mnist", SUPERVISED, "zeros"): (3.78, -1.01),
  ("stl10", SIMCLR, "blur"): (13.4, 0.2),
  ("stl10", SIMCLR, "random"): (10.8, -0.7),
  ("stl10", SIMCLR, "zeros"): (11.4, 0.4),
  ("stl10", SUPERVISED, "blur"): (1.9, 0.6),
  ("stl10", SUPERVISED, "random"): (1.2, 0.2),
  ("stl10", SUPERVISED, "zeros"): (5.8, 1.1),
  ("voc", SIMCLR, NO_FILL): (2.55, 1.4),
  ("voc", SUPERVISED, NO_FILL): (-0.49, 1.44),
}
# Table 3: accuracy without and with l2, correlation; 1-shot, then 5-shot.
_EPISODES = {
  ("stl10", SIMCLR, "blur"): (0.431, 0.522, 0.95, 0.56, 0.655, 0.952),
  ("stl10", SIMCLR, "random"): (0.432, 0.514, 0.95, 0.558, 0.654, 0.952),
  ("stl10", SIMCLR, "zeros"): (0.437, 0.518, 0.95, 0.56, 0.654, 0.952),
  ("stl10", SUPERVISED, "blur"): (0.774, 0.801, 0.323, 0.882, 0.925, 0.155),
  ("stl10", SUPERVISED, "random"): (0.754, 0.772, 0.491, 0.894, 0.919, 0.504),
  ("stl10", SUPERVISED, "zeros"): (0.717, 0.786, 0.674, 0.872, 0.914, 0.676),
  ("voc", SIMCLR, NO_FILL): (0.511, 0.651, -0.109, 0.721, 0.765, -0.116),
  ("voc", SUPERVISED, NO_FILL): (0.688, 0.742, 0.044, 0.826, 0.827, 0.086),
}


def printed(place: tuple[str, str, str]) -> dict[str, float]:
  """What the paper's tables say of a set, network and fill, by measure."""
  found: dict[str, float] = {}
  modes = [(point, mode) for mode in ("mixed", "single") for point in POINTS]
  if place in _SLOPES:
    chances = _P_VALUES.get(place, (0,) * 6)
    for (point, mode), s, p in zip(modes, _SLOPES[place], chances, strict=True):
      found[f"s at {point}, {mode}"], found[f"p at {point}, {mode}"] = s, p
    for number, mode in enumerate(("mixed", "single")):
      own = np.array(chances[len(POINTS) * number :][: len(POINTS)])
      found[_rising(mode)] = float(np.sum(own < LEVEL))
  names = "nearest mean, change [points]", "SGD, change [points]"
  found |= dict(zip(names, _CHANGES.get(place, ()), strict=False))
  rho = "correlation of norm and count"
  names = "1-shot", "1-shot, l2", f"1-shot, {rho}", "5-shot", "5-shot, l2"
  names = (*names, f"5-shot, {rho}")
  found |= dict(zip(names, _EPISODES.get(place, ()), strict=False))
  return found


def rows(name: str, figures: Figures, *, comparable: bool) -> list[Any]:
  """All figures of a set; the paper's beside them where the networks are alike."""
  found = []
  for network, fills in figures.items():
    for fill, measures in fills.items():
      paper = printed((name, network, fill)) if comparable else {}
      title = f"{name}, {network}, {fill}"
      found += [
        results.row(title, measure, values, paper=paper.get(measure))
        for measure, values in measures.items()
        if not measure.startswith(_PRIVATE)
      ]
      found += _monotone(title, measures, paper)
  return found


def _rising(mode: str) -> str:
  return f"points at which it rises, {mode}"


def _monotone(
  title: str, measures: Mapping[str, Sequence[float]], paper: Mapping[str, float]
) -> list[Any]:
  """At how many points the slope passes its test, and the verdict of all seeds."""
  found = []
  for mode in ("mixed", "single"):
    if f"p at {POINTS[0]}, {mode}" in measures:
      p = np.array([measures[f"p at {point}, {mode}"] for point in POINTS])
      passes, name = p < LEVEL, _rising(mode)
      row = results.row(title, name, passes.sum(0), paper=paper.get(name))
      found.append(row | {"note": verdict(passes)})
  return found


def verdict(passes: np.ndarray) -> str:
  """Of [points, seeds]: "increasing", or the points that pass and with how many."""
  seeds = passes.shape[1]
  if passes.all():
    return "increasing"
  each = [
    point if own.all() else f"{point} ({own.sum()} of {seeds} seeds)"
    for point, own in zip(POINTS, passes, strict=True)
    if own.any()
  ]
  return f"at {', '.join(each)}" if each else "at none"


def _least(
  figures: Figures,
  networks: Sequence[str],
  fills: Sequence[str],
  differences: Mapping[str, tuple[float, str | None]],
) -> np.ndarray | None:
  """The least of `sign (measure - offset or other measure)` for each seed, or None."""
  found = []
  for network in networks:
    for fill in fills:
      measures = figures.get(network, {}).get(fill, {})
      for measure, (offset, other) in differences.items():
        if measure not in measures or (other and other not in measures):
          continue
        less = np.array(measures[other]) if other else offset
        found.append(np.array(measures[measure]) - less)
  return np.min(found, axis=0) if found else None


def _few_shot(figures: Figures, networks, fills) -> np.ndarray | None:
  """Lower end with l2 less the upper end without, the least of all."""
  found = []
  for network in networks:
    for fill in fills:
      m = {k: np.array(v) for k, v in figures.get(network, {}).get(fill, {}).items()}
      for shot in ("1-shot", "5-shot"):
        if shot in m:
          low = m[f"{shot}, l2"] - m[f"{shot}, l2, half-width"]
          found.append(low - m[shot] - m[f"{shot}, half-width"])
  return np.min(found, axis=0) if found else None


def claims(name: str, figures: Figures) -> list[Any]:
  """The statements of NCH 4 for one set, where their figures were measured."""
  suffix = "" if name == "digits" else f"-{name}"
  nets = [network for network in (SUPERVISED, UNBIASED) if network in figures]
  known = next(iter(figures.values()))
  still = [fill for fill in ("zeros", "blur") if fill in known]
  noisy = [fill for fill in ("random",) if fill in known]
  every = {"N1", "N2"}
  return [
    results.claim(
      f"{key}{suffix}",
      f"{name}: {text}",
      values,
      paper="NCH 4",
      every_seed=key in every,
    )
    for key, (text, values) in _statements(figures, nets, still, noisy).items()
    if values is not None
  ]


def _bounds(measure: str) -> dict[str, tuple[float, str | None]]:
  """That a bound is above 0, of both ways to count."""
  return {f"{measure}, {mode}": (0, None) for mode in ("mixed", "single")}


def _statements(
  figures: Figures, nets: Sequence[str], still: Sequence[str], noisy: Sequence[str]
) -> dict[str, tuple[str, np.ndarray | None]]:
  """Of supervised networks, of fills without noise and with it; None: not measured."""
  mean = "nearest mean, change [points]"
  one, two = "cosine of one class, two counts", "cosine of two classes, one count"
  rho = "correlation of norm and count"
  shots = {f"{k}-shot, {rho}": (0.5, None) for k in (1, 5)}
  fills, networks = " and ".join(still), " and ".join(nets)
  return {
    "N1": (
      f"{networks}, {fills}: all three slopes > 0 with p < 0.05 / 3, mixed and single "
      "(least lower bound)",
      _least(figures, nets, still, _bounds("bound")),
    ),
    "N2": (
      f"{networks}, random fill: the middle slope > 0 with p < 0.05 / 3 for every seed",
      _least(figures, nets, noisy, _bounds("bound at 1/2")),
    ),
    "N3": (
      f"{networks}, {fills}: normalising raises the nearest mean's accuracy [points]",
      _least(figures, nets, still, {mean: (0, None)}),
    ),
    "N4": (
      f"{networks}, random fill: normalising does not lower it [points]",
      _least(figures, nets, noisy, {mean: (0, None)}),
    ),
    "N5-accuracy": (
      f"{networks}, {fills}, few-shot: accuracy with l2 > without, intervals apart",
      _few_shot(figures, nets, still),
    ),
    "N5-correlation": (
      f"{networks}, {fills}: mean correlation of norm and count in episodes > 0.5",
      _least(figures, nets, still, shots),
    ),
    "N6": (
      f"{networks}, {fills}: cosine of one class with two counts > of two classes with "
      "one count",
      _least(figures, nets, still, {one: (0, two)}),
    ),
    "N7": (
      "control: with zeros, random weights reach a correlation of norm and count > 0.9",
      _least(figures, [RANDOM], ["zeros"], {f"{rho}, mixed": (0.9, None)}),
    ),
    "N8": (
      "training on grids lowers the middle slope (zeros, single)",
      _difference(figures, "s at 1/2, single"),
    ),
    "T1-simclr": (
      f"SimCLR, {fills}: all three slopes > 0 with p < .001, mixed and single",
      _least(figures, [SIMCLR], still, _bounds("strict bound")),
    ),
  }


def _difference(figures: Figures, measure: str) -> np.ndarray | None:
  found = [
    np.array(figures.get(network, {}).get("zeros", {}).get(measure, []))
    for network in (SUPERVISED, ON_GRIDS)
  ]
  return found[0] - found[1] if all(map(len, found)) else None


def beside_control(name: str, figures: Figures) -> list[Any]:
  """Trained less random weights, for each fill."""
  measure = "correlation of norm and count, mixed"
  found = []
  for network in (SUPERVISED, UNBIASED, SIMCLR, ON_GRIDS):
    for fill, measures in figures.get(network, {}).items():
      control = figures.get(RANDOM, {}).get(fill)
      if control is not None and measure in control:
        trained, drawn = (np.array(x[measure]) for x in (measures, control))
        title = f"{name}, {network} - {RANDOM}, {fill}"
        found.append(results.row(title, measure, trained - drawn))
  return found
