"""Verdicts of `retrieval` on each claim about images in memory."""

from collections.abc import Iterator

import numpy as np

from experiments.frame.study import Claim, Table
from experiments.metric_learning import plan
from experiments.metric_learning.methods import TITLES
from experiments.metric_learning.plan import BOTH, GSP, ZSP, Config, Name

MAP, VALIDATION = "MAP@R", "MAP@R, validation"
POOLINGS = "DML, tables 5.1 and 5.3"


def claims(config: Config, table: Table) -> list[Claim]:
  """Lists every claim that the trainings can decide."""
  group = config.group
  first = [
    _better(
      f"retrieval-{kind}-{TITLES[loss]}",
      text.format(loss),
      Name(group, loss, kind),
      Name(group, loss),
    )
    for kind, losses, text in (
      ("ccp", config.losses, f"MAP@R of unseen {group}: {{}} with CCP > plain"),
      ("xbm", config.memory_losses, "MAP@R: {} with a memory > plain"),
    )
    for loss in losses
  ]
  rest = [*_of_parts(config), *_of_poolings(config, table)]
  return [*first, *rest, *_of_measures(config, table)]


def _better(key: str, text: str, name: Name, over: Name, source: str = "") -> Claim:
  return Claim(key, text, lambda t: t.gain(MAP, f"{name}", over=f"{over}"), source)


def _of_parts(config: Config) -> Iterator[Claim]:
  """Generalized sum pooling and zero-shot prediction against the average."""
  planned = plan.plan(config)
  for name in planned:
    if name.parts not in (GSP, ZSP, BOTH):
      continue
    without = name._replace(parts="")
    components = f"components-{without.title}"
    ids = {"plain": f"retrieval-gsp-{without.title}", "xbm": "xbm-gsp"}
    key = {**ids, "ccp": "ccp-gsp"}[name.kind]
    compared = [(f"{components}-{name.parts}", without)]
    if name.parts == BOTH:
      compared = [(key, without)]
      for part in (GSP, ZSP):
        if (other := name._replace(parts=part)) in planned:
          compared.append((f"{components}-both-{part}", other))
    for key, other in compared:
      yield _better(key, f"MAP@R: {name.title} > {other.title}", name, other, POOLINGS)


def _of_poolings(config: Config, table: Table) -> Iterator[Claim]:
  """Generalized sum pooling against the best other pooling by validation.

  If the average is the only other pooling, `_of_parts` makes this claim.
  """
  for loss in plan.POOLED_LOSSES if len(config.poolings) > 1 else ():
    average = f"{Name(config.group, loss)}"
    summed = f"{Name(config.group, loss, parts=GSP)}"
    others = [x for x in table.variants(MAP) if x.startswith(average) and x != summed]
    best = max(others, key=lambda name: table.values(VALIDATION, name).mean())
    yield Claim(
      f"retrieval-poolings-{TITLES[loss]}",
      f"MAP@R: {summed} > {best}, the best other pooling on validation classes",
      lambda t, summed=summed, best=best: t.gain(MAP, summed, over=best),
      "DML, section 5.3.5",
    )


def _of_measures(config: Config, table: Table) -> Iterator[Claim]:
  """Claims about how well each measure separates the trainings."""
  names = [x for x in table.variants(MAP) if x != f"{config.group}, untrained"]

  def separation(table: Table, measure: str) -> np.ndarray:
    figures = np.stack([table.values(measure, name) for name in names])
    return (figures.max(0) - figures.min(0)) / figures.mean(0)

  if len(names) > 1:
    yield Claim(
      "retrieval-map-separates",
      "(largest - smallest) / mean over the trainings: MAP@R > P@1",
      lambda t: separation(t, MAP) - separation(t, "P@1"),
    )
