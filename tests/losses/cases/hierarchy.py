"""Losses over a tree of classes or distances of classes."""

import math

import jax.numpy as jnp
import numpy as np

from spherejax import losses
from tests.losses.cases._frame import CLASSES, Case
from tests.losses.cases._parts import softened

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


def depth(node):
  return len(way_up(node)) - 1


def height(node):
  return max(depth(c) for c in range(CLASSES) if node in PATHS[c]) - depth(node)


def hxe_oracle(level, normalized=False):
  def oracle(rows, labels, params):
    weights = {v: math.exp(-params["alpha"] * level(v)) for v in COLUMNS}
    total = sum(weights.values()) if normalized else 1
    values = []
    for logits, y in zip(rows["logits"], labels, strict=True):
      p = softened(logits)
      mass = {v: sum(p[c] for c in range(CLASSES) if v in PATHS[c]) for v in COLUMNS}
      steps = (weights[v] * math.log(mass[PARENT[v]] / mass[v]) for v in PATHS[y][:-1])
      values.append(sum(steps) / total)
    return values

  return oracle


def hxe(**static):
  def loss(rows, labels, params, where):
    return losses.hierarchical_cross_entropy(
      rows["logits"], labels, ANCESTORS, where=where, **static, **params
    )

  return loss


def conditional_oracle(rows, labels, params):
  values = []
  for logits, y in zip(rows["logits"], labels, strict=True):
    z = dict(zip(COLUMNS, logits, strict=True))
    value = 0.0
    for v in PATHS[y][:-1]:
      siblings = [u for u in COLUMNS if PARENT.get(u) == PARENT[v]]
      top = max(z[u] for u in siblings)
      value += top + math.log(sum(math.exp(z[u] - top) for u in siblings)) - z[v]
    values.append(value)
  return values


def soft_label_oracle(rows, labels, params):
  values = []
  for logits, y in zip(rows["logits"], labels, strict=True):
    targets = [math.exp(-params["beta"] * d / DISTANCES.max()) for d in DISTANCES[y]]
    p = softened(logits)
    values.append(
      -sum(q * math.log(p_c) for q, p_c in zip(targets, p, strict=True)) / sum(targets)
    )
  return values


# --- points of the classes: the value of each row's class ---


def of_own_class(function):
  """The values of the classes, one for each row."""

  def loss(rows, labels, params, where, **options):
    values = function(params, **options)
    own = (labels[:, None] == np.arange(CLASSES)[None]) & where[:, None]
    return jnp.where(own, values[None], 0).sum(axis=1)

  return loss


def of_own_class_oracle(function):
  def oracle(rows, labels, params):
    values = function(params)
    return [values[y] for y in labels]

  return oracle


def euclidean(points):
  return [[math.dist(a, b) for b in points] for a in points]


def cosines(points):
  unit = [[v / math.hypot(*row) for v in row] for row in points]
  return [[sum(map(float.__mul__, a, b)) for b in unit] for a in unit]


def distorted(apart, scale=None):
  ratios = [
    [apart[k][m] / DISTANCES[k, m] for m in range(CLASSES) if m != k]
    for k in range(CLASSES)
  ]
  flat = [r for row in ratios for r in row]
  best = sum(flat) / sum(r * r for r in flat) if scale is None else scale
  return [sum((best * r - 1) ** 2 for r in row) / len(row) for row in ratios]


def ranked(similar):
  def term(i, j, k):
    lead = similar[i][j] - similar[i][k]
    order = np.sign(DISTANCES[i, k] - DISTANCES[i, j])
    target = (1 + order) / 2
    probability = 1 / (1 + math.exp(-lead))
    return -target * math.log(probability) - (1 - target) * math.log(1 - probability)

  values = []
  for i in range(CLASSES):
    others = [c for c in range(CLASSES) if c != i]
    terms = [term(i, j, k) for j in others for k in others if j != k]
    values.append(sum(terms) / len(terms))
  return values


POINTS = np.random.default_rng(0).normal(size=(CLASSES, 3))
TABLE = np.abs(np.random.default_rng(1).normal(size=(CLASSES, CLASSES))) + 0.2
LOGITS = {"logits": ("logit", CLASSES)}

CASES: dict[str, Case] = {
  "hierarchical_cross_entropy": Case(
    hxe(), hxe_oracle(depth), LOGITS, {"alpha": 0.4}, sharp={"alpha": 1e3}
  ),
  "hierarchical_cross_entropy/height": Case(
    hxe(discount="height"),
    hxe_oracle(height),
    LOGITS,
    {"alpha": 0.4},
    sharp={"alpha": 1e3},
  ),
  "hierarchical_cross_entropy/normalized": Case(
    hxe(normalize_weights=True),
    hxe_oracle(depth, normalized=True),
    LOGITS,
    {"alpha": 0.4},
    sharp={"alpha": 1e3},
  ),
  "conditional_softmax": Case(
    lambda rows, labels, params, where: losses.conditional_softmax(
      rows["logits"], labels, ANCESTORS, where=where
    ),
    conditional_oracle,
    {"logits": ("logit", len(COLUMNS))},
  ),
  "soft_label_cross_entropy": Case(
    lambda rows, labels, params, where: losses.soft_label_cross_entropy(
      rows["logits"], labels, DISTANCES, where=where, **params
    ),
    soft_label_oracle,
    LOGITS,
    {"beta": 4.0},
    sharp={"beta": 1e3},
  ),
  "distortion": Case(
    of_own_class(lambda params: losses.distortion(params["points"], DISTANCES)),
    of_own_class_oracle(lambda params: distorted(euclidean(params["points"]))),
    params={"points": POINTS},
    sharp={"points": 1e4 * POINTS},
  ),
  "distortion/fixed scale": Case(
    of_own_class(
      lambda params: losses.distortion(
        params["points"], DISTANCES, scale=params["scale"]
      )
    ),
    of_own_class_oracle(
      lambda params: distorted(euclidean(params["points"]), params["scale"])
    ),
    params={"points": POINTS, "scale": 0.8},
  ),
  "distortion_from_distance": Case(
    of_own_class(
      lambda params: losses.distortion_from_distance(params["apart"], DISTANCES)
    ),
    of_own_class_oracle(lambda params: distorted(params["apart"])),
    params={"apart": TABLE},
  ),
  "class_ranking": Case(
    of_own_class(
      lambda params, block_size=None: losses.class_ranking(
        params["points"], DISTANCES, block_size=block_size
      )
    ),
    of_own_class_oracle(lambda params: ranked(cosines(params["points"]))),
    params={"points": POINTS},
    blocks=True,
  ),
  "class_ranking_from_similarity": Case(
    of_own_class(
      lambda params, block_size=None: losses.class_ranking_from_similarity(
        params["similar"], DISTANCES, block_size=block_size
      )
    ),
    of_own_class_oracle(lambda params: ranked(params["similar"])),
    params={"similar": TABLE},
    blocks=True,
    sharp={"similar": 1e4 * TABLE},
  ),
}
