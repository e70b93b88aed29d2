"""Losses over a tree of classes or distances of classes."""

import math

import jax.numpy as jnp
import numpy as np
from scipy import special

from spherejax import losses
from tests.losses.cases._frame import CLASSES, Case
from tests.losses.cases._parts import by_row, cosines, entropy, euclidean, softplus

# Unequal depths, a chain of single children (7 below 15 below 14), ten leaves. Every
# node but the root 10 by its parent; the columns stand in the order of COLUMNS.
PARENT = {
  0: 11, 1: 11, 2: 12, 3: 12, 4: 13, 5: 13, 6: 10, 7: 15, 8: 14, 9: 12,
  11: 13, 12: 10, 13: 10, 14: 12, 15: 14,
}  # fmt: skip
COLUMNS = [10, 12, 14, 15, 0, 1, 2, 13, 3, 11, 4, 5, 6, 7, 8, 9]


def way_up(node):
  path = [node]
  while path[-1] in PARENT:
    path.append(PARENT[path[-1]])
  return path


PATHS = [way_up(c) for c in range(CLASSES)]
ANCESTORS = np.array([[v in PATHS[c] for v in COLUMNS] for c in range(CLASSES)])
DISTANCES = np.array(
  [[len(set(PATHS[c]) ^ set(PATHS[k])) for k in range(CLASSES)] for c in range(CLASSES)]
)
DEPTH = {v: len(way_up(v)) - 1 for v in COLUMNS}
HEIGHT = {v: max(DEPTH[p[0]] for p in PATHS if v in p) - DEPTH[v] for v in COLUMNS}
SIBLINGS = {v: [u for u in COLUMNS if PARENT.get(u) == PARENT[v]] for v in PARENT}


def hxe(level, normalized=False):
  def value(logits, y, params):
    weights = {v: math.exp(-params["alpha"] * level[v]) for v in COLUMNS}
    p = special.softmax(logits)
    mass = {v: sum(p[c] for c in range(CLASSES) if v in PATHS[c]) for v in COLUMNS}
    steps = (weights[v] * math.log(mass[PARENT[v]] / mass[v]) for v in PATHS[y][:-1])
    return sum(steps) / (sum(weights.values()) if normalized else 1)

  return value


def conditional(logits, y, params):
  z = dict(zip(COLUMNS, logits, strict=True))
  return sum(
    entropy([z[u] for u in SIBLINGS[v]], SIBLINGS[v].index(v)) for v in PATHS[y][:-1]
  )


def soft_labels(logits, y, params):
  targets = np.exp(-params["beta"] * DISTANCES[y] / DISTANCES.max())
  terms = [q * entropy(logits, c) for c, q in enumerate(targets)]
  return sum(terms) / sum(targets)


# --- points of the classes: the value of each row's class ---


def distorted(apart, scale=None):
  off = ~np.eye(CLASSES, dtype=bool)
  ratios = (apart[off] / DISTANCES[off]).reshape(CLASSES, -1)
  best = ratios.sum() / (ratios**2).sum() if scale is None else scale
  return ((best * ratios - 1) ** 2).mean(axis=1)


def ranked(similar):
  # [i, j, k]: what class k is for class i, less what class j is.
  gaps, farther = (x[:, None] - x[..., None] for x in (similar, DISTANCES))
  target, differ = (1 + np.sign(farther)) / 2, ~np.eye(CLASSES, dtype=bool)
  terms = target * softplus(gaps) + (1 - target) * softplus(-gaps)
  triplets = differ[:, :, None] & differ[:, None] & differ
  return (triplets * terms).sum((1, 2)) / ((CLASSES - 1) * (CLASSES - 2))


POINTS = np.random.default_rng(0).normal(size=(CLASSES, 3))
TABLE = np.abs(np.random.default_rng(1).normal(size=(CLASSES, CLASSES))) + 0.2
CASES: dict[str, Case] = {}


def of_logits(key, value, tree, params, width=CLASSES, **static):
  def loss(rows, labels, params, where):
    function = getattr(losses, key.split("/")[0])
    return function(rows["logits"], labels, tree, where=where, **static, **params)

  rows, extreme = {"logits": ("logit", width)}, dict.fromkeys(params, 1e3)
  CASES[key] = Case(loss, by_row(value), rows, params, sharp=extreme)


def of_points(key, matrix_of_points, formula, params, **contract):
  """A loss of the first of the params, by the matrix that it makes of it."""

  def loss(rows, labels, params, where, **options):
    x, *_ = params.values()
    scale = {"scale": params["scale"]} if "scale" in params else {}
    function = getattr(losses, key.split("/")[0])
    values = function(x, DISTANCES, **scale, **options)
    own = (labels[:, None] == np.arange(CLASSES)[None]) & where[:, None]
    return jnp.where(own, values[None], 0).sum(axis=1)

  def oracle(rows, labels, params):
    x, *scale = params.values()
    return formula(matrix_of_points(x), *scale)[labels]

  CASES[key] = Case(loss, oracle, params=params, **contract)


def given(x):
  return x


HXE = "hierarchical_cross_entropy"
of_logits(HXE, hxe(DEPTH), ANCESTORS, {"alpha": 0.4})
of_logits(f"{HXE}/height", hxe(HEIGHT), ANCESTORS, {"alpha": 0.4}, discount="height")
of_logits(
  f"{HXE}/normalized", hxe(DEPTH, True), ANCESTORS, {"alpha": 0.4},
  normalize_weights=True,
)  # fmt: skip
of_logits("conditional_softmax", conditional, ANCESTORS, {}, len(COLUMNS))
of_logits("soft_label_cross_entropy", soft_labels, DISTANCES, {"beta": 4.0})
of_points(
  "distortion", euclidean, distorted, {"points": POINTS}, sharp={"points": 1e4 * POINTS}
)
of_points(
  "distortion/fixed scale", euclidean, distorted, {"points": POINTS, "scale": 0.8}
)
of_points("distortion_from_distance", given, distorted, {"points": TABLE})
of_points("class_ranking", cosines, ranked, {"points": POINTS}, blocks=True)
of_points(
  "class_ranking_from_similarity", given, ranked, {"points": TABLE}, blocks=True,
  sharp={"points": 1e4 * TABLE},
)  # fmt: skip
