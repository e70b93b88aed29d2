"""Rows and claims of the small trainings of `dynamic_assignment`."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from experiments.assignment import prototypes
from experiments.assignment.training import Study
from experiments.frame import results

CHANGE_FIRST, CHANGE_LAST = "changed by the first matching", "changed by the last five"
LOW = (3, 5)  # dimensions far below the number of classes


def rows(studies: Sequence[Study]) -> list[dict[str, Any]]:
  """Accuracies of every method at the rate that validation data chose, and measures."""
  found = []
  for study in studies:
    for name, dim in study.methods():
      where = f"{study.name}, D = {dim}"
      number = study.runs.best(name, dim)
      figures = {f"accuracy, {where}": study.runs.accuracy(name, dim)}
      if study.tail:
        last = study.runs.accuracy(name, dim, last=study.tail)
        figures[f"accuracy on the last {study.tail} classes, {where}"] = last
      if name in ("DL2P", "Static") and not np.isnan(study.runs.gap).any():
        figures[f"sibling gap, {where}"] = study.runs.gap[number]
      if name == "DL2P":
        first, end = changes(study, dim)
        figures[f"share of classes {CHANGE_FIRST}, {where}"] = first
        figures[f"share of classes {CHANGE_LAST} matchings, {where}"] = end
      found += [results.row(name, metric, values) for metric, values in figures.items()]
  return found


def changes(study: Study, dim: int) -> tuple[np.ndarray, np.ndarray]:
  """[seeds], share of the classes changed by the first and by the last matchings.

  At one matching an epoch, which comes after it.
  """
  values = study.runs.change[study.runs.best("DL2P", dim)]
  return values[:, 1], values[:, -5:].mean(1)


class Claims:
  """Collects claims about differences of accuracy."""

  def __init__(self, studies: Sequence[Study]):
    self.studies = {study.name: study for study in studies}
    self.found: list[dict[str, Any]] = []

  def add(self, name: str, statement: str, values: Any, where: str) -> None:
    """One claim that the values are positive."""
    self.found.append(results.claim(name, statement, values, paper=f"DL2P {where}"))

  def gain(self, study: str, dim: int, first: str, second: str) -> np.ndarray:
    """[seeds], accuracy of one method above another's."""
    runs = self.studies[study].runs
    return runs.accuracy(first, dim) - runs.accuracy(second, dim)

  def better(self, name: str, study: str, dim: int, second: str, where: str) -> None:
    """That DL2P is above another method, where both were trained."""
    if study not in self.studies or not self.studies[study].has(dim, "DL2P", second):
      return
    statement = f"accuracy(DL2P) > accuracy({second}), {study}, D = {dim}"
    self.add(name, statement, self.gain(study, dim, "DL2P", second), where)


def claims(studies: Sequence[Study]) -> list[dict[str, Any]]:
  """A1 to A5 and A7 to A10, where what they compare was trained."""
  of = Claims(studies)
  linear, mlp, small = "superclass, linear", "superclass, mlp", "digits, mlp"
  images = [study for study in studies if study.of_images]
  for dim in LOW:
    of.better(f"A1-d{dim}", linear, dim, "Static", "4.4, Fig. 4a")
  if linear in of.studies:
    _gaps(of, of.studies[linear])
  _tails(of, [study for study in studies if study.tail])
  compared = [(linear, LOW), (mlp, LOW), (small, LOW)]
  compared += [(study.name, study.dims) for study in images]
  for study, dims in compared:
    short = study.split(", ")[1 if study in (linear, mlp) else 0]
    for dim in dims:
      of.better(f"A8-{short}-d{dim}", study, dim, "Fixed + CE", "Table 9")
      of.better(f"A9-{short}-d{dim}", study, dim, "PSC", "Table 1")
      if study != linear:
        of.better(f"A10-{short}-d{dim}", study, dim, "Static", "4.4, Fig. 4a")
  for study in images:
    for dim in [dim for dim in study.dims if study.has(dim, "DL2P")]:
      of.add(
        f"A3-{study.data}-d{dim}",
        f"sibling gap of DL2P > 0, {study.name}, D = {dim}",
        study.runs.gap[study.runs.best("DL2P", dim)],
        "4.4",
      )
      _settles(of, study, dim, f"-{study.data}", f"{study.name}, ")
  return of.found


def _gaps(of: Claims, study: Study) -> None:
  """A2 to A5: what the assignment does in `superclass` with a linear network."""
  runs, full = study.runs, study.runs.points.shape[2] - 1
  both = [dim for dim in LOW if study.has(dim, "DL2P", "Static")]

  def sibling(name: str, dim: int) -> np.ndarray:
    return runs.gap[runs.best(name, dim)]

  if study.has(full, "DL2P", "Static"):
    near = of.gain(study.name, full, "DL2P", "Static")
    for dim in both[:1]:
      fade = of.gain(study.name, dim, "DL2P", "Static") - near
      of.add("A2-fades", f"gain of A1 at D = {dim} > gain at D = {full} = C - 1",
             fade, "Fig. 4a")  # fmt: skip
    # The farther end of the interval decides.
    toward = 1 if near.mean() >= 0 else -1
    of.add("A2-none", f"gain at D = {full} within 0.03 of 0", 0.03 - toward * near,
           "Fig. 4a")  # fmt: skip
    none = np.abs([sibling(name, full) for name in ("DL2P", "Static")]).max(0)
    of.add(
      "A3-simplex", f"sibling gap = 0 up to 1e-5 at D = {full}", 1e-5 - none, "4.4"
    )
  for dim in both:
    of.add(f"A3-d{dim}", f"sibling gap of DL2P > 0.15, D = {dim}",
           sibling("DL2P", dim) - 0.15, "4.4")  # fmt: skip
    fixed = sibling("Static", dim)
    toward = 1 if fixed.mean() >= 0 else -1
    of.add(f"A3-static-d{dim}", f"sibling gap of Static within 0.15 of 0, D = {dim}",
           0.15 - toward * fixed, "4.4")  # fmt: skip
  for dim in [dim for dim in LOW if study.has(dim, "DL2P")]:
    _settles(of, study, dim)
  if study.has(5, "DL2P", "DL2P, r = 0.1", "DL2P, r = 5"):
    one, tenth, five = (
      runs.accuracy(name, 5) for name in ("DL2P", "DL2P, r = 0.1", "DL2P, r = 5")
    )
    of.add("A5-more", "accuracy at r = 1 > accuracy at r = 0.1, D = 5", one - tenth,
           "Fig. 3b")  # fmt: skip
    of.add("A5-flat", "accuracy gained from r = 1 to 5 < from r = 0.1 to 1, D = 5",
           (one - tenth) - (five - one), "Fig. 3b")  # fmt: skip


def _settles(of: Claims, study: Study, dim: int, id_: str = "", name: str = "") -> None:
  """A4: the matching changes much at first, and little in the end."""
  first, last = changes(study, dim)
  of.add(f"A4-first{id_}-d{dim}", "share of classes changed by the first matching >= "
         f"0.5, {name}D = {dim}", first - 0.5, "Fig. 4b")  # fmt: skip
  of.add(f"A4-last{id_}-d{dim}", "share changed by the last five matchings <= 0.05, "
         f"{name}D = {dim}", 0.05 - last, "Fig. 4b")  # fmt: skip


def _tails(of: Claims, studies: Sequence[Study]) -> None:
  """A7: the rarest classes under a long tail."""
  for study in studies:
    short = study.data if study.of_images else study.name.rsplit(", ", 1)[1]
    for dim in [dim for dim in study.dims if study.has(dim, "PSC", "DL2P, weighted")]:
      plain = study.runs.accuracy("PSC", dim, last=study.tail)
      for name in ("Static, weighted", "DL2P, weighted"):
        of.add(
          f"A7-{short}-{name.split(',')[0].lower()}-d{dim}",
          f"accuracy on the last {study.tail} classes: {name} > PSC without weights, "
          f"{study.name}, D = {dim}",
          study.runs.accuracy(name, dim, last=study.tail) - plain,
          "Table 4",
        )


def share_claims(studies: Sequence[Study]) -> list[dict[str, Any]]:
  """A6: a matching against an epoch of a training on photographs, if timed."""
  found = []
  for study in studies:
    if study.name.startswith("tiny_imagenet") and np.isfinite(study.seconds):
      cells, seeds, classes, dim = study.runs.points.shape
      epoch = study.seconds / (cells * seeds * study.runs.change.shape[2])
      own = prototypes.matching_seconds(jax.random.key(0), (classes,), 3, dim)[classes]
      found.append(
        results.claim(
          "A6-share",
          f"a matching of {classes} classes takes less than 1 % of the time of an "
          "epoch, all trainings on photographs being one program (0.01 - share)",
          0.01 - np.array(own) / epoch,
          paper="DL2P Fig. 3c",
        )
      )
  return found
