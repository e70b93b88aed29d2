"""A linear classifier in the combined ball, and under noise (DIST 3.2, appendix A)."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from experiments.frame.digits import CLASSES, Points
from experiments.robustness import draws as voronoi_draws
from experiments.robustness import linear
from experiments.robustness.draws import Figures, Part, Statements
from spherejax import attacks, distances

RADII = ((784, 1.0, 0.1), (3072, 2.0, 8 / 255), (3072, 12.0, 8 / 255))
BALLS: dict[str, Any] = {"epsilon_1": 0.5, "epsilon_inf": 0.05}
SIGMA, ALPHA = 0.5, 0.001
FEW = 1000  # votes that choose a class, or decide on the border


def combined(keys: Sequence[jax.Array], train: Points, points: Points) -> Part:
  """Robust accuracy in the combined ball, exactly, and under attack there."""
  weights, offset = linear.ridge(train.x, train.y)
  robust = _robust(weights, offset, points)
  exact = {name: float(np.mean(kept)) for name, kept in robust.items()}
  name = "ridge, l1 0.5 and l-infinity 0.05, exactly"
  figures: Figures = {(name, region): share for region, share in exact.items()}
  for dim, first, last in RADII:
    for hull in (False, True):
      radius = distances.inscribed_radius(
        dim, epsilon_1=first, epsilon_inf=last, norm="l2", hull=hull
      )
      where = "hull" if hull else "combined ball"
      figures[f"{dim} entries, l1 {first:g}", f"l2 radius, {where}"] = float(radius)
  both = min(exact["l1 ball"], exact["l-infinity ball"])
  order = np.diff([exact["combined ball"], exact["hull of both"], both])
  wider = [robust[x] for x in ("l1 ball", "l-infinity ball", "l2 ball inside of it")]
  lost = robust["combined ball"] & ~np.all(wider, axis=0)
  rows, claims = voronoi_draws.once(
    figures,
    {
      "X6-order": (
        "robust accuracy: combined ball <= hull <= both balls",
        float(order.min()) + 1e-9,
      ),
      "X6-inside": (
        "what is robust in the combined ball is so in both balls, and in the largest "
        "l2 ball inside of it",
        1e-9 - float(np.mean(lost)),
      ),
    },
    "DIST appendix A",
  )

  @jax.jit
  def attacked(x, y, key):
    return attacks.pgd(
      linear.scores(weights, offset),
      x,
      y,
      key=key,
      region=attacks.combined_ball(x, **BALLS, low=-jnp.inf, high=jnp.inf),
      loss="margin",
      targets="all",
      low=-jnp.inf,
      high=jnp.inf,
    ).success

  def by_attack(key) -> tuple[Figures, Statements]:
    reached = 1 - float(np.mean(attacked(*points, key)))
    return {(name, "combined ball, by PGD"): reached}, {
      "X6-attack": (
        "PGD in the combined ball finds the linear classifier's accuracy, to 0.01",
        0.01 - abs(reached - exact["combined ball"]),
      )
    }

  more = voronoi_draws.over(keys, by_attack, "DIST appendix A")
  return rows + more[0], claims + more[1]


def _robust(weights, offset, points: Points) -> dict[str, np.ndarray]:
  """Which points no move of a region takes to another class, by its largest gain."""
  x, y = np.asarray(points.x, np.float64), np.asarray(points.y)
  w = np.asarray(weights, np.float64)
  z = x @ w + np.asarray(offset, np.float64)
  gaps = z[np.arange(len(y)), y][:, None] - z
  apart = w.T[None] - w.T[y][:, None]
  one, top = BALLS["epsilon_1"], BALLS["epsilon_inf"]
  hull = np.asarray(distances.hull_direction(apart, **BALLS))
  inner = np.asarray(distances.combined_direction(apart, **BALLS))
  radius = float(distances.inscribed_radius(w.shape[0], norm="l2", **BALLS))
  reach = {
    "l1 ball": one * np.abs(apart).max(2),
    "l-infinity ball": top * np.abs(apart).sum(2),
    "hull of both": np.sum(hull * apart, axis=2),
    "combined ball": one * np.sum(inner * apart, axis=2),
    "l2 ball inside of it": radius * np.linalg.norm(apart, axis=2),
  }
  rival = np.arange(CLASSES)[None] != y[:, None]
  return {name: ((gaps > size) | ~rival).all(1) for name, size in reach.items()}


@functools.partial(jax.jit, static_argnums=3)
def _votes(x, normal, key, draws):
  """Of the linear classifier with a normal, under noise."""

  def scores(x):
    height = x @ normal
    return jnp.stack([height, -height], axis=1)

  return attacks.smoothed_votes(
    scores, x, key=key, sigma=SIGMA, draws=draws, block_size=1000
  )


@jax.jit
def _drawn(key):
  """A unit normal, points about its plane, and points on it."""
  first, second = jax.random.split(key)
  normal = jax.random.normal(first, (8,))
  normal /= jnp.linalg.norm(normal)
  near = jax.random.normal(second, (100, 8)) * 0.4
  return normal, near, near - (near @ normal)[:, None] * normal[None]


def smoothing(keys: Sequence[jax.Array], draws: int) -> Part:
  """Certificates of a linear classifier against its distance to the border."""

  def study(key) -> tuple[Figures, Statements]:
    keys = jax.random.split(key, 4)
    normal, near, edge = _drawn(keys[0])
    heights = np.asarray(near, np.float64) @ np.asarray(normal, np.float64)
    exact = np.abs(heights)
    found = attacks.smoothed_certificate(
      _votes(near, normal, keys[1], FEW),
      _votes(near, normal, keys[2], draws),
      sigma=SIGMA,
      alpha=ALPHA,
    )
    sure = found.label >= 0
    right = (heights < 0).astype(int)
    above = float(np.mean(found.radius > exact))
    # Far points need more votes than there are: the bound on the radius is a number.
    limit = float(SIGMA * special.ndtri(ALPHA ** (1 / draws)))
    well = sure & (exact > 0.3) & (exact < limit / 2)
    short = 1 - found.radius[well] / exact[well]
    silent = attacks.smoothed_prediction(
      _votes(edge, normal, keys[3], FEW), alpha=ALPHA
    )
    abstains = float(np.mean(silent < 0))
    name = "linear, votes under noise"
    figures: Figures = {
      (name, "radius / distance, mean"): 1 - float(short.mean()),
      (name, "radius / distance, smallest"): 1 - float(short.max()),
      (name, "share of radii above the distance"): above,
      (name, "abstains on the border"): abstains,
    }
    rightly = np.array_equal(found.label[sure], right[sure])
    return figures, {
      "X13-sound": (
        "certified radii above the distance to the border, each of which has the "
        "probability 0.001: at most 2 of 100; no wrong class",
        0.025 - above if rightly else -1.0,
      ),
      "X13-limit": (
        "no certified radius above sigma Phi^-1(alpha^(1/draws))",
        limit - float(found.radius.max()) + 1e-12,
      ),
      "X13-tight": (
        "certified radii are on average at most 2 % below the distances, those from "
        "0.3 to half the limit",
        0.02 - float(short.mean()),
      ),
      "X13-border": (
        "on the border it abstains on all but 2 of 100 points",
        abstains - 0.975,
      ),
    }

  return voronoi_draws.over(keys, study, "DIST 3.2")
