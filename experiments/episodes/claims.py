"""What DIST, article II, says of the distance ratio, as claims."""

import numpy as np

from experiments.episodes import settings, toy
from experiments.episodes.settings import Config, Part
from experiments.episodes.tables import EXPONENT, FISHER, RANKS
from experiments.episodes.training import FIRST_LOG_EXPONENT, RATIO, SQUARED
from experiments.frame.study import Claim, Table


def claims(config: Config, table: Table) -> list[Claim]:
  """Those of the plane, then of each training."""
  del table
  every = [claim for part in settings.parts(config) for claim in _of_part(part)]
  return [*toy.CLAIMS, *every]


def _of_part(part: Part) -> list[Claim]:
  name, made = part.name, []
  squared, ratio = f"{name}, {SQUARED}", f"{name}, {RATIO}"
  # Beside one support the article has five; other numbers are named.
  more = "" if part.shots == 5 else f" {name}"

  def faster(key: str, text: str, at: int) -> Claim:
    measure = f"validation after {at}"
    return Claim(key, text, lambda t: t.gain(measure, ratio, over=squared))

  if part.representative == "nearest":
    title = name if more else "1-NN"
    made += [
      faster(
        f"F7-{at}{more}",
        f"{title}: validation accuracy after {at} episodes: DR > SD",
        at,
      )
      for at in (50, 100)
    ]
  elif part.shots == 1:
    made.append(
      Claim(
        "F2",
        "1-shot: test accuracy DR > SD, the same episodes",
        lambda t: t.values("DR - SD, test", name),
      )
    )
    made += [
      faster(f"F3-{at}", f"1-shot: validation accuracy after {at}: DR > SD", at)
      for at in (50, 100, 200)
    ]
    made += OF_UPDATES
  else:
    made.append(
      Claim(
        f"F6{more}",
        f"{name}: test accuracy DR >= SD - .005",
        lambda t: t.values("DR - SD, test", name) + 0.005,
      )
    )
  made.append(
    Claim(
      f"F10 {name}",
      f"{name}: the exponent of DR grows",
      lambda t: t.values(EXPONENT, ratio) - np.exp(FIRST_LOG_EXPONENT),
      every_seed=True,
    )
  )
  return made


OF_UPDATES = [
  Claim(
    "F4",
    "1-shot: norm ratio (geometric mean): DR > SD",
    lambda t: t.gain("norm_ratio", "1-shot, DR", over="1-shot, SD"),
  ),
  Claim(
    "F4-ranks",
    "1-shot: norm ratio below for SD over all checkpoints, Mann-Whitney p < .01",
    lambda t: 0.01 - t.values(RANKS, "1-shot"),
    every_seed=True,
  ),
  Claim(
    "F5",
    "1-shot: div-alpha > 1 oftener for DR, Fisher's p over checkpoints < .01",
    lambda t: 0.01 - t.values(FISHER, "1-shot"),
    every_seed=True,
  ),
  Claim(
    "F9",
    "1-shot: con-alpha < 1 in 90 % of checkpoints of both",
    lambda t: (
      np.minimum(
        t.values("con_alpha proper", "1-shot, SD"),
        t.values("con_alpha proper", "1-shot, DR"),
      )
      - (0.9 - 1e-9)
    ),
    every_seed=True,
  ),
]
