"""Figures of norm and count, beside what NCH prints; what it says, as claims."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.counting.measures import LEVEL, POINTS
from experiments.counting.training import Settings, draw
from experiments.frame.study import Claim, NotMeasured, Table
from experiments.published import figures
from spherejax import metrics, models

# Two channels, two types of objects and their linear detector; two taps along a line.
OBJECTS = np.array([[[1, 1], [0, 1]], [[0, -1], [1, -1]]], np.float32)
KERNELS = np.array([[[1, -1], [0, 1]], [[0, -1], [1, 1]]], np.float32)
_LINE, _IMAGES, _MOST = 12, 200, 6
_FIELD = 32
"""Pixels that a position of Simple-6 sees."""

SLOPE = "error of the slope of a linear detector"
SUM = "error of the sum over separate objects"
THEORY = [
  Claim(
    "N9-linear",
    "a linear detector's l1 norm rises by 1 / positions with each object, to 1e-6",
    lambda t: 1e-6 - t.values(SLOPE, "theory"),
    "NCH Cor. 1.2",
    every_seed=True,
  ),
  Claim(
    "N9-separation",
    "features of separate objects add up in Simple-6 without biases, to 1e-5",
    lambda t: 1e-5 - t.values(SUM, "theory"),
    "NCH, our extension of Thm. 1",
    every_seed=True,
  ),
]
SUPERVISED, UNBIASED = "supervised", "supervised, no biases"
SIMCLR, RANDOM = "SimCLR", "random weights"
ON_GRIDS, IMAGE = "trained on grids", "the image itself"
NO_FILL = "photographs"
MODES = ("mixed", "single")
RHO = "correlation of norm and count"
_PRIVATE = ("bound", "strict bound")
Measures = Mapping[str, Mapping[str, float]]
"""By network and measure."""
Difference = Callable[[Table, str], np.ndarray]
"""Of a network and a fill."""


def detect(images: Array) -> Array:
  """Full convolution of [n, channels, line] with the kernels."""
  return jax.lax.conv_general_dilated(
    images, jnp.asarray(KERNELS)[:, :, ::-1], (1,), [(1, 1)]
  )


def many_objects(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
  """Sums of up to five objects of each type at random places, and how many."""
  counts = rng.integers(0, _MOST, (_IMAGES, 2))
  images = np.zeros((_IMAGES, 2, _LINE), np.float32)
  for image, numbers in zip(images, counts, strict=True):
    for object_, number in zip(OBJECTS, numbers, strict=True):
      for start in rng.integers(0, _LINE - 1, number):
        image[:, start : start + 2] += object_
  return images, counts.sum(1)


def slope_error(seed: int) -> float:
  """How far the slope of the l1 norm over the count is from one over the positions."""
  images, counts = many_objects(np.random.default_rng(seed))
  return float(jnp.abs(_slopes(images, counts) - 1 / (_LINE + 1)).max())


@jax.jit
def _slopes(images: Array, counts: Array) -> Array:
  norms = jnp.abs(detect(images).mean(2)).sum(1)
  return metrics.norm_count_regression(norms, counts, standardize=False).slopes


@functools.cache
def _summed(widths: tuple[int, ...]) -> Any:
  network = models.Simple6(widths, use_bias=False)

  @jax.jit
  def compiled(key: Array, images: Array) -> Array:
    params = draw(network, images.shape[1:], key)
    found: Any = network.apply({"params": params}, images)
    return found.sum((1, 2))

  return compiled


def separation_error(settings: Settings, objects: np.ndarray, seed: int) -> float:
  """Relative error of adding up features of objects far apart; no biases."""
  rng = np.random.default_rng(seed)
  chosen = objects[rng.integers(0, len(objects), 3)]
  height, width, channels = chosen.shape[1:]
  margin = _FIELD // 2 + 4
  step = -(-(width + _FIELD) // 4) * 4  # shifts are multiples of the stride
  images = np.zeros(
    (4, height + 2 * margin, 2 * step + width + 2 * margin, channels), np.float32
  )
  for number, object_ in enumerate(chosen):
    left = margin + number * step
    for shown in (number, 3):
      images[shown, margin : margin + height, left : left + width] += object_
  z = np.asarray(_summed(settings.widths)(jax.random.key(seed), images))
  total = z[:3].sum(0)
  return float(np.linalg.norm(z[3] - total) / np.linalg.norm(total))


def add_theory(table: Table, settings: Settings, objects: np.ndarray) -> None:
  """Adds both, for each seed."""
  for seed in range(settings.seed, settings.seed + settings.seeds):
    table.add("theory", SLOPE, slope_error(seed))
    table.add("theory", SUM, separation_error(settings, objects, seed))


def printed(config: Any, name: str, title: str) -> Mapping[str, float]:
  """What the paper has for a row, if its networks are alike; of VOC for all years."""
  alike = config.need_weights and (name != "voc" or config.voc_folder)
  return figures("norm_count").get(title, {}) if alike else {}


def add(table: Table, config: Any, name: str, fill: str, found: Measures) -> None:
  """Adds a seed's figures of one set and fill."""
  for network, measures in found.items():
    title = f"{name}, {network}, {fill}"
    paper = printed(config, name, title)
    for measure, value in measures.items():
      listed = not measure.startswith(_PRIVATE)
      table.add(title, measure, value, listed=listed, paper=paper.get(measure))


def add_verdicts(table: Table, config: Any, name: str) -> None:
  """Adds at how many points slopes rise, and trained less random weights."""
  for mode in MODES:
    tests = [f"p at {point}, {mode}" for point in POINTS]
    for title in table.variants(tests[0]):
      if title.startswith(f"{name}, "):
        passes = np.array([table.values(test, title) for test in tests]) < LEVEL
        rising = f"points at which it rises, {mode}"
        paper = printed(config, name, title).get(rising)
        note = verdict(passes)
        table.add(title, rising, passes.sum(0), paper=paper, note=note)
  measure = f"{RHO}, mixed"
  for network in (SUPERVISED, UNBIASED, SIMCLR, ON_GRIDS):
    for fill in ("zeros", "blur", "random", NO_FILL):
      own, control = f"{name}, {network}, {fill}", f"{name}, {RANDOM}, {fill}"
      if {own, control} <= {*table.variants(measure)}:
        gain = table.gain(measure, own, over=control)
        table.add(f"{name}, {network} - {RANDOM}, {fill}", measure, gain)


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


def _more(measure: str, offset: float = 0) -> Difference:
  return lambda t, title: t.values(measure, title) - offset


def _apart(shot: str) -> Difference:
  """Lower end with l2 less the upper end without."""

  def difference(table: Table, title: str) -> np.ndarray:
    plain, wide, l2, l2_wide = (
      table.values(measure, title)
      for measure in (
        shot,
        f"{shot}, half-width",
        f"{shot}, l2",
        f"{shot}, l2, half-width",
      )
    )
    return (l2 - l2_wide) - plain - wide

  return difference


def _least(
  name: str,
  networks: Sequence[str],
  fills: Sequence[str],
  differences: Sequence[Difference],
) -> Callable[[Table], np.ndarray]:
  """The least of what was measured, for each seed."""

  def least(table: Table) -> np.ndarray:
    found = []
    for title in [f"{name}, {x}, {fill}" for x in networks for fill in fills]:
      for difference in differences:
        try:
          found.append(difference(table, title))
        except NotMeasured:
          continue
    if not found:
      raise NotMeasured(f"nothing of {name} was measured")
    return np.min(found, axis=0)

  return least


def _bounds(measure: str) -> list[Difference]:
  """That a bound is above 0, of both ways to count."""
  return [_more(f"{measure}, {mode}") for mode in MODES]


Statement = tuple[str, Sequence[str], Sequence[str], Sequence[Difference]]
"""Text, networks, fills and differences."""


def _statements(
  nets: Sequence[str], still: Sequence[str], noisy: Sequence[str]
) -> dict[str, Statement]:
  """By id; most are of networks that were trained with labels."""
  mean = [_more("nearest mean, change [points]")]
  one, two = "cosine of one class, two counts", "cosine of two classes, one count"
  shots = [f"{k}-shot" for k in (1, 5)]
  fills = " and ".join(still)

  def said(text: str, differences: Sequence[Difference]) -> Statement:
    return f"{' and '.join(nets)}, {fills}{text}", nets, still, differences

  def of_noise(text: str, differences: Sequence[Difference]) -> Statement:
    return f"{' and '.join(nets)}, random fill: {text}", nets, noisy, differences

  return {
    "N1": said(
      ": all three slopes > 0 with p < 0.05 / 3, mixed and single (least lower bound)",
      _bounds("bound"),
    ),
    "N2": of_noise(
      "the middle slope > 0 with p < 0.05 / 3 for every seed", _bounds("bound at 1/2")
    ),
    "N3": said(": normalising raises the nearest mean's accuracy [points]", mean),
    "N4": of_noise("normalising does not lower it [points]", mean),
    "N5-accuracy": said(
      ", few-shot: accuracy with l2 > without, intervals apart",
      [_apart(shot) for shot in shots],
    ),
    "N5-correlation": said(
      ": mean correlation of norm and count in episodes > 0.5",
      [_more(f"{shot}, {RHO}", 0.5) for shot in shots],
    ),
    "N6": said(
      ": cosine of one class with two counts > of two classes with one count",
      [lambda t, title: t.values(one, title) - t.values(two, title)],
    ),
    "N7": (
      "control: with zeros, random weights reach a correlation of norm and count > 0.9",
      [RANDOM],
      ["zeros"],
      [_more(f"{RHO}, mixed", 0.9)],
    ),
    "T1-simclr": (
      f"SimCLR, {fills}: all three slopes > 0 with p < .001, mixed and single",
      [SIMCLR],
      still,
      _bounds("strict bound"),
    ),
  }


def _of_set(name: str, titles: Sequence[str]) -> list[Claim]:
  """Of the networks and fills that there are: "set, network, fill"."""
  parts = [title.removeprefix(f"{name}, ").rpartition(", ") for title in titles]
  networks, there = {part[0] for part in parts}, {part[2] for part in parts}
  nets = [x for x in (SUPERVISED, UNBIASED) if x in networks]
  still, noisy = (
    [x for x in own if x in there] for own in (("zeros", "blur"), ("random",))
  )
  suffix = "" if name == "digits" else f"-{name}"
  made = {
    key: Claim(
      f"{key}{suffix}",
      f"{name}: {text}",
      _least(name, own, fills, differences),
      every_seed=key in ("N1", "N2"),
    )
    for key, (text, own, fills, differences) in _statements(nets, still, noisy).items()
    if {*own} & networks and {*fills} & there
  }
  if ON_GRIDS in networks:
    own, other = (f"{name}, {x}, zeros" for x in (SUPERVISED, ON_GRIDS))
    made["N8"] = Claim(
      f"N8{suffix}",
      f"{name}: training on grids lowers the middle slope (zeros, single)",
      lambda t: t.gain("s at 1/2, single", own, over=other),
    )
  return list(made.values())


def claims(config: Any, table: Table) -> list[Claim]:
  """What NCH proves, and the statements of NCH 4 for each set."""
  titles = table.variants(f"{RHO}, mixed")
  made = list(THEORY)
  for name in config.sets:
    own = [x for x in titles if x.startswith(f"{name}, ") and " - " not in x]
    made += _of_set(name, own)
  return made
