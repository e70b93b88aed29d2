"""The table of the small trainings of `dynamic_assignment`, and claims about it."""

import itertools
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from experiments.assignment import prototypes, tasks
from experiments.assignment.methods import LEARNED, NEVER, RECIPES
from experiments.assignment.settings import Config
from experiments.assignment.training import Study
from experiments.frame.study import Claim, Placed, Table

CHANGE_FIRST, CHANGE_LAST = "changed by the first matching", "changed by the last five"
LOW = (3, 5)  # dimensions far below the number of classes
CLASSES = tasks.GROUPS * tasks.PER_GROUP
HALF, FULL = CLASSES // 2, CLASSES - 1  # a simplex exists in FULL dimensions
LINEAR, MLP, DIGITS = "superclass, linear", "superclass, mlp", "digits, mlp"
SIBLINGS = "siblings, mlp"
# Methods that DL2P is compared with, by the id of the claim.
_RIVALS = {
  "A8": ("Fixed + CE", "Table 9"),
  "A9-cosine": ("PSC, cosine", "Table 1"),
  "A9-linear": ("PSC, linear", "Table 1"),
  "A10": ("Static", "4.4, Fig. 4a"),
}
BEST_FIXED = "best fixed of validation"
_TAIL = "accuracy on the last"
_SHARE = "0.01 - share of an epoch"


def tabulate(table: Table, studies: Sequence[Study]) -> None:
  """Adds accuracies of all methods at the rate that validation chose, and measures."""
  for study in studies:
    runs = study.runs
    for name, dim in study.methods():
      where = f"{study.name}, D = {dim}"
      number = runs.best(dim, name)
      accuracy, note = runs.accuracy(dim, name), f"rate {runs.cells[number].rate:g}"
      table.add(name, f"accuracy, {where}", accuracy, note=note)
      if study.tail:
        tail_accuracy = runs.test[number][:, -study.tail :].mean(-1)
        table.add(name, f"{_TAIL} {study.tail} classes, {where}", tail_accuracy)
      if name in ("DL2P", "Static") and not np.isnan(runs.gap).any():
        table.add(name, f"sibling gap, {where}", runs.gap[number])
      if name == "DL2P":
        # There is one matching per epoch, after it.
        change = runs.change[number]
        table.add(name, f"share of classes {CHANGE_FIRST}, {where}", change[:, 1])
        measure = f"share of classes {CHANGE_LAST} matchings, {where}"
        table.add(name, measure, change[:, -5:].mean(1))
    fixed = [
      name
      for name, (method, source) in RECIPES.items()
      if source != LEARNED and method.updates == NEVER and study.has(FULL, name)
    ]
    if study.name == SIBLINGS and fixed:
      best_name = runs.cells[runs.best(FULL, *fixed)].name
      accuracy = runs.accuracy(FULL, *fixed)
      where = f"accuracy, {study.name}, D = {FULL}"
      table.add(BEST_FIXED, where, accuracy, note=best_name)


def time_matchings(table: Table, studies: Sequence[Study]) -> None:
  """Adds the time of a matching relative to an epoch on images, if timed."""
  for study in studies:
    if study.of_images and np.isfinite(study.seconds):
      cells, seeds, classes, dim = study.runs.points.shape
      epoch = study.seconds / (cells * seeds * study.runs.change.shape[2])
      timed = prototypes.matching_seconds(jax.random.key(0), (classes,), 8, dim)
      share = 0.01 - np.array(timed[classes]) / epoch
      table.add(study.data, _SHARE, share, listed=False)


def _above(
  key: str, study: str, dim: int, second: str, place: str, *, by: int = 0
) -> Placed:
  """Claims that DL2P beats another method, or itself in another dimension."""
  label, other = (f"{study}, D = {x}" for x in (dim, by or dim))
  setting = f", {label}" if label == other else f" in D = {by}, {label}"
  return (
    key,
    f"accuracy(DL2P) > accuracy({second}){setting}",
    lambda t: (
      t.values(f"accuracy, {label}", "DL2P") - t.values(f"accuracy, {other}", second)
    ),
    place,
  )


def _within(values: np.ndarray, limit: float) -> np.ndarray:
  """Limit less the values, signed by their mean: positive within the limit around 0."""
  return limit - (1 if values.mean() >= 0 else -1) * values


def claims(config: Config, table: Table) -> list[Claim]:
  """Lists claims P3 and A1 to A11, without those about trainings that were not run."""
  rows = [_above(f"A1-d{d}", LINEAR, d, "Static", "4.4, Fig. 4a") for d in LOW]
  rows += [*_gaps(config), *_tails(table), *_compared(config), *_of_images(config)]
  return [
    *prototypes.claims(config.prototypes),
    *Claim.of_rows(rows, "DL2P"),
    *prototypes.growth_claims(config.matchings),
    *Claim.of_rows(_shares(table), "DL2P"),
  ]


def _shares(table: Table) -> Iterator[Placed]:
  """A6: the time of a matching compared with that of an epoch."""
  for name in table.variants(_SHARE):
    yield (
      "A6-share",
      f"a matching of {name} takes less than 1 % of the time of an epoch, all"
      " trainings on photographs being one program (0.01 - share)",
      lambda t, name=name: t.values(_SHARE, name),
      "Fig. 3c",
    )


def _compared(config: Config) -> Iterator[Placed]:
  """A8 to A11: DL2P compared with its rivals."""
  compared = [(study, dim) for study in (LINEAR, MLP, DIGITS) for dim in LOW]
  compared += [(SIBLINGS, dim) for dim in config.siblings if dim < FULL]
  compared += [(f"{name}, resnet", dim) for name, dim in config.images]
  for study, dim in compared:
    data, network = study.split(", ")
    short = network if data == "superclass" else data
    for key, (second, place) in _RIVALS.items():
      if (study, second) != (LINEAR, "Static"):
        yield _above(f"{key}-{short}-d{dim}", study, dim, second, place)
  for key, second in (
    ("fixed", BEST_FIXED), ("cosine", "PSC, cosine"), ("linear", "PSC, linear")
  ):  # fmt: skip
    place = "abstract, Table 2"
    yield _above(f"A11-{key}", SIBLINGS, HALF, second, place, by=FULL)


def _of_images(config: Config) -> Iterator[Placed]:
  """A3 and A4 on images."""
  for data, dim in config.images:
    study, where = f"{data}, resnet", f"{data}, resnet, D = {dim}"
    yield (
      f"A3-{data}-d{dim}",
      f"sibling gap of DL2P > 0, {where}",
      lambda t, where=where: t.values(f"sibling gap, {where}", "DL2P"),
      "4.4",
    )
    yield from _settles(study, dim, f"-{data}", f"{study}, ")


def _gaps(config: Config) -> Iterator[Placed]:
  """A2 to A5: effects of the assignment in `superclass` with a linear network."""

  def gain(table: Table, dim: int, over: str = "Static") -> np.ndarray:
    return table.gain(f"accuracy, {LINEAR}, D = {dim}", "DL2P", over=over)

  def sibling(table: Table, name: str, dim: int) -> np.ndarray:
    return table.values(f"sibling gap, {LINEAR}, D = {dim}", name)

  low = [dim for dim in LOW if dim in config.dims]
  if low:
    text = f"gain of A1 at D = {low[0]} > gain at D = {FULL} = C - 1"
    yield "A2-fades", text, lambda t: gain(t, low[0]) - gain(t, FULL), "Fig. 4a"
  text = f"gain at D = {FULL} within 0.03 of 0"
  yield "A2-none", text, lambda t: _within(gain(t, FULL), 0.03), "Fig. 4a"
  for dim in low:
    if {"DL2P", "Static"} <= {*config.methods}:
      yield from (
        (f"A3-d{dim}", f"sibling gap of DL2P > 0.15, D = {dim}",
         lambda t, dim=dim: sibling(t, "DL2P", dim) - 0.15, "4.4"),
        (f"A3-static-d{dim}", f"sibling gap of Static within 0.15 of 0, D = {dim}",
         lambda t, dim=dim: _within(sibling(t, "Static", dim), 0.15), "4.4"),
      )  # fmt: skip
    yield from _settles(LINEAR, dim)
  tenth, five = (f"DL2P, r = {r}" for r in (0.1, 5))
  yield from (
    ("A5-more", "accuracy at r = 1 > accuracy at r = 0.1, D = 5",
     lambda t: gain(t, 5, tenth), "Fig. 3b"),
    ("A5-flat", "accuracy gained from r = 1 to 5 < from r = 0.1 to 1, D = 5",
     lambda t: gain(t, 5, tenth) + gain(t, 5, five), "Fig. 3b"),
  )  # fmt: skip


def _settles(study: str, dim: int, key: str = "", name: str = "") -> list[Placed]:
  """A4: the matching changes much at first and little at the end."""
  where = f"{study}, D = {dim}"
  first = f"share of classes {CHANGE_FIRST}, {where}"
  last = f"share of classes {CHANGE_LAST} matchings, {where}"
  return [
    (f"A4-first{key}-d{dim}",
     f"share of classes changed by the first matching >= 0.5, {name}D = {dim}",
     lambda t: t.values(first, "DL2P") - 0.5, "Fig. 4b"),
    (f"A4-last{key}-d{dim}",
     f"share changed by the last five matchings <= 0.05, {name}D = {dim}",
     lambda t: 0.05 - t.values(last, "DL2P"), "Fig. 4b"),
  ]  # fmt: skip


def _tails(table: Table) -> Iterator[Placed]:
  """A7: the rarest classes under a long tail."""
  for measure in table.measures():
    if not measure.startswith(_TAIL):
      continue
    classes, _, where = measure.removeprefix("accuracy on the ").partition(", ")
    study, _, dim = where.rpartition(", D = ")
    data, *_, network = study.split(", ")
    short = data if network == "resnet" else network
    winners = ("Static", "DL2P") if int(dim) == FULL else ("DL2P",)
    for winner, rival in itertools.product(winners, ("cosine", "linear")):
      yield (
        f"A7-{rival}-{short}-{winner.lower()}-d{dim}",
        f"accuracy on the {classes}: {winner}, weighted > PSC, {rival} without "
        f"weights, {where}",
        lambda t, a=f"{winner}, weighted", b=f"PSC, {rival}", measure=measure: t.gain(
          measure, a, over=b
        ),
        "Table 4",
      )
