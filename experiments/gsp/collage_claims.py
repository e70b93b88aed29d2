"""Gains, places and claims of the comparison on collages (DML 5.3.2 and 5.3.5)."""

import numpy as np

from experiments.frame import poolings
from experiments.frame.study import Claim, Table
from experiments.gsp.settings import Config

ON_COLLAGES = ("GAP", "GAP + ZSP", "GSP", "GSP + ZSP")
WEIGHT = "weight on the labelled image"


def rivals_of(table: Table, measure: str, loss: str) -> list[str]:
  """The other poolings of the same dimension with a loss, the best mean first."""
  names_of_gsp = {f"{loss}, {title}" for title in ("GSP", *poolings.WIDE.values())}
  names = [
    x for x in table.variants(measure) if x.startswith(loss) and x not in names_of_gsp
  ]
  return sorted(names, key=lambda name: -table.values(measure, name).mean())


def _compared(table: Table, measure: str, loss: str) -> bool:
  """True where GAP and GSP are compared, each with and without ZSP."""
  return f"{loss}, {ON_COLLAGES[-1]}" in table.variants(measure)


def complete(table: Table, config: Config) -> None:
  """Adds the gain of the best variant on collages, or the place of GSP in all seeds."""
  measure = f"MAP@R, {config.images}"
  for loss in config.losses:
    gsp, rivals = f"{loss}, GSP", rivals_of(table, measure, loss)
    if _compared(table, measure, loss):
      average, *others = (f"{loss}, {name}" for name in ON_COLLAGES)
      best = max(others, key=lambda name: table.values(measure, name).mean())
      title = f"{loss}, best ({best.partition(', ')[2]}) - GAP"
      # DML chapter 6 says 17 points, and not with which loss.
      table.add_gain(measure, best, over=average, paper=0.17, title=title)
    elif rivals and gsp in table.variants(measure):
      above = [table.gain(measure, name, over=gsp) > 0 for name in rivals]
      place = f"place among {1 + len(rivals)} poolings, {config.images}"
      table.add(gsp, place, 1.0 + np.sum(above, axis=0))


def claims(config: Config, table: Table) -> list[Claim]:
  """Claims of both sections that these trainings can decide."""
  measure = f"MAP@R, {config.images}"
  return [
    claim
    for loss in config.losses
    for claim in (
      _components(config, loss)
      if _compared(table, measure, loss)
      else _best(table, measure, loss)
    )
  ]


def _best(table: Table, measure: str, loss: str) -> list[Claim]:
  """DML 5.3.5: no other pooling is as good."""
  places = ("", "the best"), ("-second", "the second best")
  return [
    Claim(
      f"collage-poolings{place}-{loss.lower()}",
      f"MAP@R(GSP) > MAP@R of {words} other pooling ({rival}), unseen classes",
      lambda t, rival=rival: t.gain(measure, f"{loss}, GSP", over=rival),
      "DML 5.3.5",
    )
    for (place, words), rival in zip(
      places, rivals_of(table, measure, loss), strict=False
    )
  ]


def _components(config: Config, loss: str) -> list[Claim]:
  """DML 5.3.2: what GSP, ZSP and the other images of a collage are worth."""
  measure, weight = f"MAP@R, {config.images}", f"{WEIGHT}, {config.images}"
  compared = (
    ("gsp", "GSP", "GAP"),
    ("zsp", "GSP + ZSP", "GSP"),
    ("distilled", "distilled", "GAP"),
  )
  statements = [
    Claim(
      f"collage-{name}-{loss.lower()}",
      f"MAP@R({better}) > MAP@R({other}), {loss}, unseen classes",
      lambda t, better=better, other=other: t.gain(
        measure, f"{loss}, {better}", over=f"{loss}, {other}"
      ),
    )
    for name, better, other in compared
  ]
  return [
    *statements,
    Claim(
      f"collage-attention-{loss.lower()}",
      f"weight on the labelled image under GSP + ZSP > 0.25, {loss}",
      lambda t: t.values(weight, f"{loss}, GSP + ZSP") - 0.25,
    ),
  ]
