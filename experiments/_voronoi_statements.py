"""Distances of images against their meaning, and trade-offs in closed form."""

from typing import Any

import numpy as np
from scipy import special
from scipy.spatial import distance

from experiments import _report

SHARE = 0.95


def shifts(train, test) -> tuple[list[Any], list[Any]]:
  """Images shifted by a pixel, against the nearest of another class (DIST 1)."""
  x = np.concatenate([np.asarray(train.x), np.asarray(test.x)]).astype(np.float64)
  y = np.concatenate([np.asarray(train.y), np.asarray(test.y)])
  moved = np.zeros((len(x), 8, 8))
  moved[:, :, 1:] = x.reshape(-1, 8, 8)[:, :, :-1]
  step = moved.reshape(len(x), -1) - x
  rows, claims = [], []
  for norm in ("l2", "linf"):
    if norm == "l2":
      own, apart = np.linalg.norm(step, axis=1), distance.cdist(x, x, "euclidean")
    else:
      own, apart = np.abs(step).max(1), distance.cdist(x, x, "chebyshev")
    other = np.where(y[:, None] == y[None], np.inf, apart).min(1)
    share = np.mean(own > other)
    rows += [
      _report.row(f"digits, {norm}", "distance of a shift by a pixel", [own.mean()]),
      _report.row(f"digits, {norm}", "distance to another class", [other.mean()]),
      _report.row(f"digits, {norm}", "share that a shift moves further", [share]),
    ]
    claims.append(
      _report.claim(
        f"X1-{norm}",
        f"a shift by a pixel moves 95 % of the digits further than the nearest of "
        f"another class is, {norm}",
        [share - SHARE],
        paper="DIST fig. 1.1",
        every_seed=True,
      )
    )
  return rows, claims


def trade_offs(seed: int, samples: int) -> tuple[list[Any], list[Any]]:
  """A strong feature and many weak ones (DIST 3.3, after Tsipras et al. 2019).

  y = +-1, x_1 = y with probability p, x_i ~ N(eta y, 1) for i = 2 ... d + 1; the
  classifier is sign(a x_1 + sum of the weak).
  """
  rng = np.random.default_rng(seed)
  dims, eta, p = 25, 0.4, 0.8
  y = rng.choice([-1, 1], samples)
  strong = np.where(rng.random(samples) < p, y, -y)
  weak = dims * eta * y + dims**0.5 * rng.normal(size=samples)
  rows, bound, exclusive, closed = [], [], [], []
  for a in (0, 1, 5, 10, 20, 100):
    # By l-infinity 2 eta the weak features turn round; by l1 2 the strong one does.
    right, robust, flipped = (
      np.mean(np.sign(values) * y > 0)
      for values in (
        a * strong + weak,
        a * strong + weak - 2 * eta * dims * y,
        weak - a * y,
      )
    )
    drawn = np.array([right, robust, flipped])
    away, size = dims * eta, dims**0.5
    exact = np.array(
      [
        p * special.ndtr((a + away) / size) + (1 - p) * special.ndtr((away - a) / size),
        p * special.ndtr((a - away) / size)
        + (1 - p) * special.ndtr(-(a + away) / size),
        special.ndtr((away - a) / size),
      ]
    )
    names = ("accuracy", "accuracy under linf 0.8", "accuracy under l1 2")
    for measure, sampled, value in zip(names, drawn, exact, strict=True):
      rows += [
        _report.row(f"weak and strong, a = {a}", measure, [float(value)]),
        _report.row(f"weak and strong, a = {a}", f"{measure}, sampled", [sampled]),
      ]
    # What follows is about probabilities: the samples only check them.
    bound.append(p / (1 - p) * (1 - exact[0]) - exact[1] + 1e-9)
    exclusive.append(1 - exact[1] - exact[2] + 1e-9)
    closed.append(3 / samples**0.5 - np.abs(drawn - exact).max())
  made = {
    "X5-accuracy": ("accuracies are those of the closed forms", min(closed)),
    "X5-bound": ("robust <= p / (1 - p) (1 - accuracy), every a", min(bound)),
    "X5-exclusive": ("robust to linf and robust to l1 <= 1, every a", min(exclusive)),
  }
  return rows, [
    _report.claim(key, text, [value], paper="DIST 3.3", every_seed=True)
    for key, (text, value) in made.items()
  ]
