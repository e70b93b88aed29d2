"""Distances of images against their meaning, and what no classifier can exceed."""

from typing import Literal

import numpy as np

from experiments.frame.digits import Points
from experiments.frame.study import Claim, Table
from spherejax import distances, metrics

SHIFTED = "share that a shift moves further"
PAIRS = {"odd or even": (), "3 or 8": (3, 8)}
ORDERS: dict[Literal["l2", "linf"], float] = {"l2": 2, "linf": np.inf}


def add_shifts(table: Table, name: str, x: np.ndarray, y: np.ndarray) -> None:
  """Images [n, height, width, channels] shifted by a pixel (DIST fig. 1.1).

  Each against the nearest of another class.
  """
  moved = np.zeros_like(x)
  moved[:, :, 1:] = x[:, :, :-1]
  step, flat = (v.reshape(len(x), -1) for v in (moved - x, x))
  for norm, order in ORDERS.items():
    own = np.linalg.norm(step, order, axis=1)
    other = distances.k_nearest(flat, flat, k=1, norm=norm, apart=(y, y)).distances
    other = np.asarray(other)[:, 0]
    table.add(f"{name}, {norm}", "distance of a shift by a pixel", own.mean())
    table.add(f"{name}, {norm}", "distance to another class", other.mean())
    table.add(f"{name}, {norm}", SHIFTED, np.mean(own > other))


def of_shifts(name: str) -> list[Claim]:
  """What shifts do to images of a name."""
  source = "DIST fig. 1.1"
  if name == "digits":
    return [
      Claim(
        f"X1-{norm}",
        "a shift by a pixel moves 95 % of the digits further than the nearest of "
        f"another class is, {norm}",
        lambda t, norm=norm: t.values(SHIFTED, f"digits, {norm}") - 0.95,
        source,
        every_seed=True,
      )
      for norm in ORDERS
    ]
  return [
    Claim(
      f"X1-{name}-some",
      f"a shift by a pixel moves images of {name} further than the nearest of "
      "another class is, l2: the share of them",
      lambda t: t.values(SHIFTED, f"{name}, l2"),
      source,
      every_seed=True,
    ),
    Claim(
      f"X1-{name}-half",
      f"a shift by a pixel moves half of {name} further than the nearest of another "
      "class is, l2",
      lambda t: t.values(SHIFTED, f"{name}, l2") - 0.5,
      source,
      every_seed=True,
    ),
  ]


def add_best_binary(table: Table, train: Points) -> None:
  """What no classifier of two classes of digits can exceed."""
  x, y = map(np.asarray, train)
  budgets = np.array([0.7, 0.8, 1.0, 1.5])
  for name, pair in PAIRS.items():
    kept = np.isin(y, pair) if pair else np.ones(len(y), bool)
    labels = (y == pair[0]).astype(int) if pair else y % 2
    best = metrics.best_accuracy(x[kept], labels[kept], budgets)
    for budget, value in zip(budgets, best, strict=True):
      table.add(f"digits, {name}", f"best SAA of all at {budget:g}, l2", value)
