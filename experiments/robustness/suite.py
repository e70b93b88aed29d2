"""Attacks where the answer is known in closed form (DIST 3.1)."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.frame.digits import CLASSES, Points
from experiments.robustness import combined, draws, linear
from experiments.robustness.draws import Figures, Part, Statements
from spherejax import attacks, prototypes

BUDGETS = {"linf": 0.05, "l2": 0.3, "l1": 1.0}  # of the comparison of attacks
OPEN: dict[str, Any] = {"low": -jnp.inf, "high": jnp.inf}
PAPER = "DIST 3.1"
FIRST, STEPPED, RESTARTED = "FGSM", "BIM, 10 steps", "PGD, 5 restarts"

Found = dict[tuple[str, str], attacks.AttackResult]
"""By norm and attack."""


def against_closed_forms(
  keys: Sequence[jax.Array],
  train: Points,
  points: Points,
  steps: int,
  norms: Sequence[str],
) -> list[Part]:
  """Rows and claims of each of the studies of attacks."""
  return [
    suite(keys, train, points, steps, norms),
    least(train, points, 20 * steps, norms),
    random_network(keys, 50, 2 * steps),
    nearest_neighbour(keys, train, points, steps),
    combined.combined(keys, train, points),
  ]


def suite(
  keys: Sequence[jax.Array],
  train: Points,
  points: Points,
  steps: int,
  norms: Sequence[str],
) -> Part:
  """Attacks of a linear classifier at one budget of each norm."""
  weights, offset = linear.ridge(train.x, train.y)
  scores = linear.scores(weights, offset)
  still, drawn = {}, {}
  for norm in norms:
    fixed: dict[str, Any] = {"epsilon": BUDGETS[norm], "norm": norm}
    pgd = functools.partial(attacks.pgd, steps=steps, restarts=5)
    still[norm, FIRST] = functools.partial(attacks.fgsm, scores, **fixed)
    still[norm, STEPPED] = functools.partial(attacks.bim, scores, steps=10, **fixed)
    drawn[norm, RESTARTED] = functools.partial(pgd, scores, **fixed)
    drawn[norm, "APGD"] = functools.partial(attacks.apgd, scores, steps=steps, **fixed)
    drawn[norm, "ensemble"] = functools.partial(_ensemble, scores, steps, fixed)
  programs = {name: jax.jit(attack) for name, attack in drawn.items()}
  same: Found = {name: jax.jit(attack)(*points) for name, attack in still.items()}

  def study(key) -> tuple[Figures, Statements]:
    found = {name: attack(*points, key=key) for name, attack in programs.items()}
    every = same | found
    outside = max(_outside(r.x_adv, points.x, norm) for (norm, _), r in every.items())
    right = {name: _right(result) for name, result in every.items()}
    gaps = [
      min(x for (own, _), x in right.items() if own == norm) - right[norm, "ensemble"]
      for norm in norms
    ]
    made: Statements = {
      "X4-ensemble": (
        "accuracy under the ensemble <= under each other attack, every norm",
        min(gaps) + 1e-6,
      ),
      "X4-inside": (
        "no attacked image beyond budget or box, in float64: FGSM, BIM, PGD, APGD and "
        "the ensemble, every norm",
        1e-9 - outside,
      ),
      "X4-alone": (
        "PGD: half of the batch alone gets the same points to 1e-5, and the same "
        "successes",
        _alone(programs[norms[0], RESTARTED], found[norms[0], RESTARTED], points, key),
      ),
    }
    if "linf" in norms:
      first, then, last = (right["linf", x] for x in (FIRST, STEPPED, RESTARTED))
      made["X4-order"] = (
        "accuracy under FGSM >= under BIM - 0.01 >= under restarted PGD - 0.02, "
        "l-infinity",
        min(first - then, then - last) + 0.01 + 1e-6,
      )
    return _accuracies(found), made

  rows, claims = draws.over(keys, study, PAPER)
  return draws.once(_accuracies(same), {}, PAPER)[0] + rows, claims


def _ensemble(scores, steps, fixed, x, y, *, key) -> attacks.AttackResult:
  return attacks.ensemble(scores, x, y, key=key, steps=steps, **fixed)


def _right(result: attacks.AttackResult) -> float:
  return 1 - float(np.mean(result.success))


def _accuracies(found: Found) -> Figures:
  return {
    (f"ridge, {norm} {BUDGETS[norm]:g}", name): _right(result)
    for (norm, name), result in found.items()
  }


def _outside(attacked, x, norm: str) -> float:
  """Share of images beyond the budget or the box."""
  moved = np.asarray(attacked, np.float64) - np.asarray(x, np.float64)
  order = {"linf": np.inf, "l2": 2, "l1": 1}[norm]
  beyond = np.linalg.norm(moved, order, axis=1) > BUDGETS[norm]
  boxed = (np.asarray(attacked) >= 0) & (np.asarray(attacked) <= 1)
  return float(np.mean(beyond | ~boxed.all(1)))


def _alone(attack, whole: attacks.AttackResult, points: Points, key) -> float:
  half = len(points.x) // 2
  part = attack(points.x[:half], points.y[:half], key=key)
  if not np.array_equal(part.success, whole.success[:half]):
    return -1.0
  return 1e-5 - float(np.max(np.abs(part.x_adv - whole.x_adv[:half])))


def least(train: Points, points: Points, steps: int, norms: Sequence[str]) -> Part:
  """Attacks of least norm of a linear classifier, against its least moves."""
  weights, offset = linear.ridge(train.x, train.y)
  scores = linear.scores(weights, offset)
  gaps = {}
  for norm in norms:
    deepfool = functools.partial(attacks.deepfool, steps=1, overshoot=0.0, **OPEN)
    fab = functools.partial(
      attacks.fab, steps=1, targets="all", bias=0.0, overshoot=1.00005
    )
    open_moves = linear.least_linear_moves(weights, offset, *points, norm)
    boxed = _least_in_box(weights, offset, points, norm)
    for name, attack, exact in (
      ("DeepFool", deepfool, open_moves),
      ("FAB in the box", fab, boxed),
    ):
      attack = functools.partial(attack, scores, norm=norm)
      gaps[f"{name}, {norm}"] = _error(jax.jit(attack)(*points).norm, exact)
  first = max(gaps.values())
  exact = linear.least_linear_moves(weights, offset, *points, "l2")
  last = _error(_towards_each(scores, points, steps), exact)
  gaps["Carlini-Wagner, l2"] = last
  return draws.once(
    {("ridge, least moves", f"largest error of {n}"): gap for n, gap in gaps.items()},
    {
      "X4-first-step": (
        "the first step of DeepFool, without a box, and of FAB towards every class, in "
        "the box, is the least move, to 1e-4",
        1e-4 - first,
      ),
      "X4-carlini-wagner": (
        "Carlini and Wagner's move, the least over targets, is at most 1 % from the "
        "least one",
        0.01 - last,
      ),
    },
    PAPER,
  )


def _error(size, exact: np.ndarray) -> float:
  moved = exact > 0
  return float(np.max(np.abs(np.asarray(size, np.float64)[moved] / exact[moved] - 1)))


def _least_in_box(weights, offset, points: Points, norm: str) -> np.ndarray:
  """Sizes of the least moves within the box to another class; 0 where it is wrong."""
  x, y, weights, offset = (
    np.asarray(v, np.float64) for v in (*points, weights, offset)
  )
  y = y.astype(int)
  least = np.full(len(x), np.inf)
  for target in range(CLASSES):
    across = (weights[:, target, None] - weights[:, y]).T
    missing = -(np.sum(across * x, axis=1) + offset[target] - offset[y])
    room = np.where(across > 0, 1 - x, x)
    moves = _least_boxed(np.abs(across), room, missing, norm)
    least = np.where(y == target, least, np.minimum(least, moves))
  return least


def _least_boxed(
  gain: np.ndarray, room: np.ndarray, missing: np.ndarray, norm: str
) -> np.ndarray:
  """Least |d| with <gain, d> = missing and 0 <= d <= room, row by row; inf for none."""
  if norm == "l1":
    # The steepest entries first, each as far as there is room.
    order = np.argsort(-gain, axis=1)
    steep, wide = (np.take_along_axis(v, order, axis=1) for v in (gain, room))
    before = np.cumsum(steep * wide, axis=1) - steep * wide
    moves = np.clip((missing[:, None] - before) / np.maximum(steep, 1e-300), 0, wide)
  else:
    slopes = gain if norm == "l2" else np.sign(gain)
    low, high = np.zeros((len(gain), 1)), np.full((len(gain), 1), 1e6)
    for _ in range(100):
      middle = (low + high) / 2
      moves = np.minimum(middle * slopes, room)
      enough = np.sum(gain * moves, axis=1, keepdims=True) >= missing[:, None]
      low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    moves = np.minimum(high * slopes, room)
  size = np.linalg.norm(moves, {"linf": np.inf, "l2": 2, "l1": 1}[norm], axis=1)
  size = np.where(missing > 0, size, 0)
  return np.where(np.sum(gain * room, axis=1) < missing, np.inf, size)


def _towards_each(scores, points: Points, steps: int) -> np.ndarray:
  """Sizes of Carlini and Wagner's moves, the least over target classes.

  Without targets the attack ends now and then at a class that is not the nearest.
  """
  others = CLASSES - 1
  x, y = (np.repeat(np.asarray(v)[None], others, axis=0) for v in points)
  targets = (y + np.arange(1, CLASSES)[:, None]) % CLASSES

  @jax.jit
  def attack(x, y, targets):
    return attacks.carlini_wagner(
      scores,
      x,
      y,
      targets=targets,
      steps=steps,
      learning_rate=5e-4,
      low=-1.0,
      high=2.0,
    ).norm

  found = attack(x.reshape(-1, x.shape[2]), y.ravel(), targets.ravel())
  return np.asarray(found).reshape(others, -1).min(0)


def random_network(keys: Sequence[jax.Array], count: int, steps: int) -> Part:
  """APGD against PGD on random networks, as many gradients."""

  @jax.jit
  def losses(key):
    keys = jax.random.split(key, 4)
    first = jax.random.normal(keys[0], (10, 32)) / 10**0.5
    second = jax.random.normal(keys[1], (32, 3)) / 32**0.5
    x = jax.random.uniform(keys[2], (count, 10))

    def scores(x):
      return jax.nn.relu(x @ first) @ second

    y = jnp.argmax(scores(x), axis=1)
    fixed: dict[str, Any] = {"epsilon": 0.1, "norm": "linf", "steps": steps}
    return {
      name: jnp.mean(attack(scores, x, y, key=keys[3], **fixed).loss)
      for name, attack in (("PGD", attacks.pgd), ("APGD", attacks.apgd))
    }

  def study(key) -> tuple[Figures, Statements]:
    loss = {name: float(value) for name, value in losses(key).items()}
    name = "random network, l-infinity 0.1"
    return {(name, f"mean loss of {x}"): value for x, value in loss.items()}, {
      "X4-apgd": (
        "mean best loss of APGD >= of PGD - 0.01, as many gradients",
        loss["APGD"] - loss["PGD"] + 0.01,
      )
    }

  return draws.over(keys, study, PAPER)


def nearest_neighbour(
  keys: Sequence[jax.Array], train: Points, points: Points, steps: int
) -> Part:
  """What attacks find on the nearest neighbour against the exact least moves."""
  exact = prototypes.nearest_neighbour_distance(*points, *train, low=0.0, high=1.0)

  def program(attack):
    @jax.jit
    def found(x, y, sites, labels, key):
      def scores(x):
        return prototypes.nearest_neighbour_scores(
          x, sites, labels, num_classes=CLASSES
        )

      return attack(scores, x, y, key).x_adv

    return found

  def figures(name, attack, key) -> tuple[Figures, float, float]:
    moved = np.asarray(attack(*points, *train, key))
    decided = prototypes.nearest_neighbours(moved, *train, num_classes=CLASSES)
    broken = np.asarray(decided) != np.asarray(points.y)
    moves = np.linalg.norm(moved.astype(np.float64) - np.asarray(points.x), axis=1)
    right = exact > 0
    used = broken & right
    ratios = moves[used] / exact[used]
    near = float(np.sum(ratios < 1.01) / right.sum())
    made = {
      "broken": np.mean(broken),
      "move / least move, median": np.median(ratios),
      "move / least move, largest": np.max(ratios),
      "share at most 1 % from the least move": near,
    }
    nearer = float((moves[broken] - exact[broken]).min())
    named = {(f"1-NN, {name}", x): float(value) for x, value in made.items()}
    return named, nearer, near

  deepfool, descent, fab = map(
    program,
    (
      lambda f, x, y, key: attacks.deepfool(f, x, y, overshoot=0.0),
      lambda f, x, y, key: attacks.carlini_wagner(
        f, x, y, steps=20 * steps, first_weight=0.1
      ),
      lambda f, x, y, key: attacks.fab(
        f, x, y, key=key, steps=2 * steps, restarts=20, overshoot=1.001
      ),
    ),
  )
  same = {
    name: figures(name, attack, keys[0])
    for name, attack in (("DeepFool", deepfool), ("Carlini-Wagner", descent))
  }

  near_text = "of 1-NN {} finds the least move of every image, to 1 %"

  def study(key) -> tuple[Figures, Statements]:
    found, nearer, near = figures("FAB", fab, key)
    return found, {
      "X4-1nn": (
        "no broken image moved less than the exact least move of 1-NN, to 1e-5",
        min(nearer, *(each[1] for each in same.values())) + 1e-5,
      ),
      "X4-1nn-fab": (near_text.format("FAB"), near - 1 + 1e-6),
    }

  rows, claims = draws.over(keys, study, PAPER)
  still, near = {}, {}
  for name, (found, _, share) in same.items():
    still |= found
    near[f"X4-1nn-{name.lower()}"] = (near_text.format(name), share - 1 + 1e-6)
  first = draws.once(still, near, PAPER)
  return first[0] + rows, claims + first[1]
