"""Attacks where the answer is known in closed form (DIST 3.1, 3.2, appendix A)."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from experiments import _report, _voronoi_digits
from experiments._digits import CLASSES, Points
from spherejax import attacks, distances, prototypes

BUDGET = 0.05  # l-infinity, of the comparison of attacks
RADII = ((784, 1.0, 0.1), (3072, 2.0, 8 / 255), (3072, 12.0, 8 / 255))
OPEN: dict[str, Any] = {"low": -jnp.inf, "high": jnp.inf}
SIGMA, ALPHA = 0.5, 0.001


def _claims(paper: str, made: dict[str, tuple[str, float]]) -> list[Any]:
  return [
    _report.claim(key, text, [value], paper=paper, every_seed=True)
    for key, (text, value) in made.items()
  ]


def against_closed_forms(
  key: jax.Array, train: Points, points: Points, steps: int
) -> list[tuple[list[Any], list[Any]]]:
  """Rows and claims of each of the studies of attacks."""
  few = jax.tree.map(lambda x: x[: max(1, len(points.y) // 10)], points)
  return [
    suite(key, train, points, steps),
    random_network(key, 50, 2 * steps),
    nearest_neighbour(train, few, 4 * steps),
    combined(train, points),
  ]


def suite(
  key: jax.Array, train: Points, points: Points, steps: int
) -> tuple[list[Any], list[Any]]:
  """Attacks of a linear classifier at one budget, and its least moves."""
  weights, offset = _voronoi_digits.ridge(train.x, train.y)
  x, y = points

  def scores(x):
    return x @ weights + offset[None]

  def right(success):
    return float(1 - np.mean(success))

  fixed: dict[str, Any] = {"epsilon": BUDGET}
  made = {
    "FGSM": lambda x, y: attacks.fgsm(scores, x, y, **fixed),
    "BIM, 10 steps": lambda x, y: attacks.bim(scores, x, y, steps=10, **fixed),
    "PGD, 5 restarts": lambda x, y: attacks.pgd(
      scores, x, y, key=key, steps=steps, restarts=5, norm="linf", **fixed
    ),
    "APGD": lambda x, y: attacks.apgd(scores, x, y, key=key, steps=steps, **fixed),
    "ensemble": lambda x, y: (
      attacks.ensemble(scores, x, y, key=key, steps=steps, **fixed).result
    ),
  }
  found = {name: jax.jit(attack)(x, y) for name, attack in made.items()}
  accuracy = {name: right(result.success) for name, result in found.items()}
  moved = np.concatenate(
    [
      np.asarray(r.x_adv, np.float64) - np.asarray(x, np.float64)
      for r in found.values()
    ]
  )
  every = np.concatenate([np.asarray(r.x_adv) for r in found.values()])
  outside = np.mean(
    (np.abs(moved) > np.float64(np.float32(BUDGET))) | (every < 0) | (every > 1)
  )
  gradient = accuracy["FGSM"] - accuracy["BIM, 10 steps"] + 0.01
  restarted = accuracy["BIM, 10 steps"] - accuracy["PGD, 5 restarts"] + 0.01
  alone = min(value for name, value in accuracy.items() if name != "ensemble")

  rows = [
    _report.row(f"ridge, l-infinity {BUDGET:g}", name, [value])
    for name, value in accuracy.items()
  ]
  least_rows, least_claims = _least(scores, weights, offset, x, y)
  statements = {
    "X4-order": (
      "accuracy under FGSM >= under BIM - 0.01 >= under restarted PGD - 0.02",
      min(gradient, restarted) + 1e-6,
    ),
    "X4-ensemble": (
      "accuracy under the ensemble <= under each other attack",
      alone - accuracy["ensemble"] + 1e-6,
    ),
    "X4-inside": (
      "no entry of any attacked image beyond budget or box, in float64",
      1e-9 - float(outside),
    ),
    "X4-alone": (
      "half of the batch alone gets the same points to 1e-5, and the same successes",
      _alone(jax.jit(made["PGD, 5 restarts"]), found["PGD, 5 restarts"], x, y),
    ),
  }
  return rows + least_rows, _claims("DIST 3.1", statements) + least_claims


def _alone(attack, whole: attacks.AttackResult, x, y) -> float:
  half = len(x) // 2
  part = attack(x[:half], y[:half])
  if not np.array_equal(part.success, whole.success[:half]):
    return -1.0
  return 1e-5 - float(np.max(np.abs(part.x_adv - whole.x_adv[:half])))


def _least(scores, weights, offset, x, y) -> tuple[list[Any], list[Any]]:
  rows, gaps = [], {}
  for norm in ("l2", "linf"):
    exact = _voronoi_digits.least_linear_moves(weights, offset, x, y, norm)
    free: dict[str, Any] = {"norm": norm, **OPEN}
    found = {
      "DeepFool": jax.jit(
        lambda x, y, f=free: attacks.deepfool(scores, x, y, steps=1, overshoot=0.0, **f)
      ),
      "FAB": jax.jit(
        lambda x, y, f=free: attacks.fab(
          scores, x, y, steps=1, targets="all", bias=0.0, overshoot=1.00005, **f
        )
      ),
    }
    for name, attack in found.items():
      size = np.asarray(attack(x, y).norm, np.float64)
      moved = exact > 0
      gaps[f"{name}, {norm}"] = np.max(np.abs(size[moved] / exact[moved] - 1))
  gaps["Carlini-Wagner, l2"] = _towards_each(scores, weights, offset, x, y)
  rows = [
    _report.row("ridge, least moves", f"largest error of {name}", [gap])
    for name, gap in gaps.items()
  ]
  first = max(gap for name, gap in gaps.items() if "Carlini" not in name)
  return rows, _claims(
    "DIST 3.1",
    {
      "X4-first-step": (
        "the first step of DeepFool and FAB is the least move, to 1e-4",
        1e-4 - float(first),
      ),
      "X4-carlini-wagner": (
        "Carlini and Wagner's move, the least over targets, is at most 5 % from the "
        "least one",
        0.05 - float(gaps["Carlini-Wagner, l2"]),
      ),
    },
  )


def _towards_each(scores, weights, offset, x, y) -> float:
  """Largest error of Carlini and Wagner's attack, the best over target classes.

  Without targets it ends now and then at a class that is not the nearest.
  """
  exact = _voronoi_digits.least_linear_moves(weights, offset, x, y, "l2")

  @jax.jit
  def attack(x, y, shift):
    return attacks.carlini_wagner(
      scores,
      x,
      y,
      targets=(y + shift) % CLASSES,
      learning_rate=2e-3,
      low=-1.0,
      high=2.0,
    ).norm

  size = np.min([attack(x, y, shift) for shift in range(1, CLASSES)], axis=0)
  return float(np.max(np.abs(size[exact > 0] / exact[exact > 0] - 1)))


def random_network(
  key: jax.Array, count: int, steps: int
) -> tuple[list[Any], list[Any]]:
  """APGD against PGD on a random network, as many gradients."""
  keys = jax.random.split(key, 5)
  first = jax.random.normal(keys[0], (10, 32)) / 10**0.5
  second = jax.random.normal(keys[1], (32, 3)) / 32**0.5
  x = jax.random.uniform(keys[2], (count, 10))

  def scores(x):
    return jax.nn.relu(x @ first) @ second

  y = jnp.argmax(scores(x), axis=1)
  fixed: dict[str, Any] = {"epsilon": 0.1, "norm": "linf", "steps": steps}
  loss = {}
  for name, attack in (("PGD", attacks.pgd), ("APGD", attacks.apgd)):
    run = jax.jit(functools.partial(attack, scores, key=keys[3], **fixed))
    loss[name] = float(jnp.mean(run(x, y).loss))
  rows = [
    _report.row("random network, l-infinity 0.1", f"mean loss of {name}", [value])
    for name, value in loss.items()
  ]
  return rows, _claims(
    "DIST 3.1",
    {
      "X4-apgd": (
        "mean best loss of APGD >= of PGD - 0.01, as many gradients",
        loss["APGD"] - loss["PGD"] + 0.01,
      )
    },
  )


def nearest_neighbour(
  train: Points, points: Points, steps: int
) -> tuple[list[Any], list[Any]]:
  """What an attack finds on the nearest neighbour against the exact least move."""
  sites, labels = train
  x, y = points

  def scores(x):
    return prototypes.neighbour_logits(x, sites, labels, num_classes=CLASSES)

  found = jax.jit(
    lambda x, y: attacks.carlini_wagner(scores, x, y, steps=steps, rounds=5)
  )(x, y)
  decided = prototypes.nearest_neighbours(
    found.x_adv, sites, labels, num_classes=CLASSES
  )
  broken = np.asarray(decided) != np.asarray(y)
  moves = np.linalg.norm(np.asarray(found.x_adv, np.float64) - np.asarray(x), axis=1)
  exact = prototypes.nearest_neighbour_distance(x, y, sites, labels, low=0.0, high=1.0)
  used = broken & (exact > 0)
  ratios = moves[used] / exact[used]
  rows = [
    _report.row("1-NN, Carlini-Wagner", name, [value])
    for name, value in (
      ("broken", broken.mean()),
      ("move / least move, median", np.median(ratios)),
      ("move / least move, largest", ratios.max()),
    )
  ]
  return rows, _claims(
    "DIST 3.1",
    {
      "X4-1nn": (
        "no broken image moved less than the exact least move of 1-NN, to 1e-5",
        float((moves[broken] - exact[broken]).min()) + 1e-5,
      )
    },
  )


def combined(train: Points, points: Points) -> tuple[list[Any], list[Any]]:
  """Robust accuracy of a linear classifier in the combined ball, exactly.

  DIST, appendix A.
  """
  weights, offset = _voronoi_digits.ridge(train.x, train.y)
  x, y = np.asarray(points.x, np.float64), np.asarray(points.y)
  w = np.asarray(weights, np.float64)
  z = x @ w + np.asarray(offset, np.float64)
  gaps = z[np.arange(len(y)), y][:, None] - z
  apart = w.T[None] - w.T[y][:, None]
  radii: dict[str, Any] = {"epsilon_1": 0.5, "epsilon_inf": 0.05}
  one, top = radii["epsilon_1"], radii["epsilon_inf"]
  hull = np.sum(np.asarray(distances.hull_direction(apart, **radii)) * apart, axis=2)
  ball = one * np.sum(
    np.asarray(distances.combined_direction(apart, **radii)) * apart, axis=2
  )
  reach = {
    "l1 ball": one * np.abs(apart).max(2),
    "l-infinity ball": top * np.abs(apart).sum(2),
    "hull of both": hull,
    "combined ball": ball,
  }
  rival = np.arange(CLASSES)[None] != y[:, None]
  robust = {
    name: float(np.mean(((gaps > size) | ~rival).all(1)))
    for name, size in reach.items()
  }
  region = attacks.combined_ball(points.x, **radii, **OPEN)
  attacked = jax.jit(
    lambda x, y: attacks.pgd(
      lambda x: x @ weights + offset[None],
      x,
      y,
      key=jax.random.key(0),
      region=region,
      loss="margin",
      targets="all",
    )
  )(points.x, points.y)
  reached = float(1 - jnp.mean(attacked.success))
  rows = [
    _report.row("ridge, l1 0.5 and l-infinity 0.05, exactly", name, [value])
    for name, value in (robust | {"combined ball, by PGD": reached}).items()
  ]
  for dim, first, last in RADII:
    for hull_too in (False, True):
      radius = distances.inscribed_radius(
        dim, epsilon_1=first, epsilon_inf=last, norm="l2", hull=hull_too
      )
      where = "hull" if hull_too else "combined ball"
      rows.append(
        _report.row(
          f"{dim} entries, l1 {first:g}", f"l2 radius, {where}", [float(radius)]
        )
      )
  order = [robust[name] for name in ("combined ball", "hull of both")]
  order.append(min(robust["l1 ball"], robust["l-infinity ball"]))
  return rows, _claims(
    "DIST appendix A",
    {
      "X6-order": (
        "robust accuracy: combined ball <= hull <= both balls",
        float(np.diff(order).min()) + 1e-9,
      ),
      "X6-attack": (
        "PGD in the combined ball finds the linear classifier's accuracy, to 0.01",
        0.01 - abs(reached - robust["combined ball"]),
      ),
    },
  )


def smoothing(key: jax.Array, draws: int) -> tuple[list[Any], list[Any]]:
  """Certificates of a linear classifier against its distance to the border."""
  keys = jax.random.split(key, 4)
  normal = jax.random.normal(keys[0], (8,))
  size = jnp.linalg.norm(normal)
  near = jax.random.normal(keys[1], (100, 8)) * 0.4
  edge = near - (near @ normal)[:, None] * normal[None] / size**2

  def scores(x):
    height = x @ normal / size
    return jnp.stack([height, -height], axis=1)

  def votes(x, key, draws):
    return attacks.smoothed_votes(
      scores, x, key=key, sigma=SIGMA, draws=draws, block_size=1000
    )

  counted = jax.jit(votes, static_argnums=2)
  exact = np.abs(np.asarray(near @ normal / size, np.float64))
  found = attacks.smoothed_certificate(
    counted(near, keys[2], 100), counted(near, keys[3], draws), sigma=SIGMA, alpha=ALPHA
  )
  sure = found.label >= 0
  right = np.asarray(near @ normal < 0, int)
  above = float((found.radius - exact).max())
  # Far points need more votes than there are: the bound on the radius is a number.
  limit = SIGMA * special.ndtri(ALPHA ** (1 / draws))
  well = sure & (exact > 0.3) & (exact < limit / 2)
  short = np.max(1 - found.radius[well] / exact[well])
  silent = attacks.smoothed_prediction(counted(edge, keys[3], 1000), alpha=ALPHA) < 0
  rows = [
    _report.row("linear, votes under noise", name, [value])
    for name, value in (
      ("radius / distance, smallest", 1 - short),
      ("abstains on the border", silent.mean()),
    )
  ]
  return rows, _claims(
    "DIST 3.2",
    {
      "X13-sound": (
        "no certified radius above the distance to the border, no wrong class",
        1e-9 if above <= 0 and np.array_equal(found.label[sure], right[sure]) else -1.0,
      ),
      "X13-limit": (
        "no certified radius above sigma Phi^-1(alpha^(1/draws))",
        float(limit - found.radius.max()) + 1e-12,
      ),
      "X13-tight": (
        "certified radii at most 2 % below distances from 0.3 to half the limit",
        0.02 - float(short),
      ),
      "X13-border": (
        "on the border it abstains on all but 2 of 100 points",
        float(silent.mean()) - 0.975,
      ),
    },
  )
