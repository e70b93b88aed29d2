"""Losses over classes: softmax, margins on angles, adaptive scales, distances, pull."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import losses
from tests.losses.cases._frame import CLASSES, Case
from tests.losses.cases._parts import project, softened

COSINES = {"cosines": ("cosine", CLASSES)}
LOGITS = {"logits": ("logit", CLASSES)}
APART = {"apart": ("distance", CLASSES)}


def entropy(logits, target):
  """-log softmax at the target."""
  top = max(logits)
  return top + math.log(sum(math.exp(z - top) for z in logits)) - logits[target]


def by_row(logits_of):
  """An oracle from (row, label, params) to that row's logits."""

  def oracle(rows, labels, params):
    (table, *rest) = rows.values()
    values = []
    for i, y in enumerate(labels):
      extra = [float(column[i, 0]) for column in rest]
      values.append(entropy(logits_of(list(table[i]), y, params, *extra), y))
    return values

  return oracle


def call(name, **static):
  """The loss of that name on the only table of the rows."""

  def loss(rows, labels, params, where):
    (table,) = rows.values()
    return getattr(losses, name)(table, labels, where=where, **static, **params)

  return loss


# --- softmax, and distributions in place of labels ---


def shares(preferences, where):
  return jax.nn.softmax(jnp.where(where[:, None], preferences, 0))


def soft_softmax(rows, labels, params, where):
  targets = shares(rows["preferences"], where) * params["mass"]
  return losses.softmax(rows["logits"], targets, where=where)


def soft_softmax_oracle(rows, labels, params):
  values = []
  for logits, preferences in zip(rows["logits"], rows["preferences"], strict=True):
    terms = [q * entropy(logits, c) for c, q in enumerate(softened(preferences))]
    values.append(params["mass"] * sum(terms))
  return values


def p2s_oracle(rows, labels, params):
  return [
    sum((c - (k == y)) ** 2 for k, c in enumerate(row)) / 2
    for row, y in zip(rows["cosines"], labels, strict=True)
  ]


# --- margins on angles ---


def cosface_logits(cosines, y, params):
  margin = np.broadcast_to(params["margin"], CLASSES)[y]
  return [params["scale"] * (c - margin * (k == y)) for k, c in enumerate(cosines)]


def arc(tail="linear", easy=False):
  def logits(cosines, y, params):
    margin = np.broadcast_to(params["margin"], CLASSES)[y]
    z = [params["scale"] * c for c in cosines]
    angle = math.acos(min(max(cosines[y], -1), 1))
    if easy and angle >= math.pi / 2:
      return z
    if 0 <= angle + margin <= math.pi:
      own = math.cos(angle + margin)
    elif margin < 0:
      own = cosines[y] + 1 - math.cos(margin)
    elif tail == "linear":
      own = cosines[y] - margin * math.sin(margin)
    else:
      own = cosines[y] + math.cos(margin) - 1
    z[y] = params["scale"] * own
    return z

  return logits


def subcentre(rows, labels, params, where):
  return losses.subcentre_arcface(
    rows["cosines"].reshape(-1, CLASSES, 3), labels, where=where, **params
  )


def subcentre_logits(cosines, y, params):
  nearest = [max(cosines[3 * c : 3 * c + 3]) for c in range(CLASSES)]
  return arc()(nearest, y, params)


def staircase(cosine, factor):
  angle = math.acos(min(max(cosine, -1), 1))
  k = min(int(factor * angle / math.pi), factor - 1)
  return (-1) ** k * math.cos(factor * angle) - 2 * k


def sphereface(factor):
  def loss(rows, labels, params, where):
    return losses.sphereface(
      rows["cosines"], labels, rows["norms"][:, 0], margin=factor, where=where, **params
    )

  def logits(cosines, y, params, norm):
    z = [norm * c for c in cosines]
    keep = params.get("annealing", 0.0)
    own = (keep * cosines[y] + staircase(cosines[y], factor)) / (1 + keep)
    z[y] = norm * own
    return z

  return Case(
    loss,
    by_row(logits),
    rows=COSINES | {"norms": ("distance", 1)},
    # with factor 1 the annealing has no effect
    params={"annealing": 0.7} if factor > 1 else {},
  )


def large_margin(rows, labels, params, where):
  norms = jnp.where(where[:, None], rows["norms"], 0) * params["lengths"][None]
  return losses.large_margin_softmax(
    rows["cosines"], labels, norms, margin=3, annealing=params["annealing"], where=where
  )


def large_margin_logits(cosines, y, params, norm):
  z = [norm * w * c for w, c in zip(params["lengths"], cosines, strict=True)]
  keep = params["annealing"]
  own = (keep * cosines[y] + staircase(cosines[y], 3)) / (1 + keep)
  z[y] = norm * params["lengths"][y] * own
  return z


# --- adaptive scales: the loss at the updated scale, which is a constant ---


def median(values):
  values = sorted(values)
  return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def log_b(logits, labels):
  terms = [z for row, y in zip(logits, labels, strict=True) for z in np.delete(row, y)]
  top = max(terms)
  return top + math.log(sum(math.exp(z - top) for z in terms) / len(labels))


def adacos(rows, labels, params, where, axis_name=None):
  scale = losses.adacos_update(
    params["scale"], rows["cosines"], labels, where=where, axis_name=axis_name
  )
  return losses.normface(rows["cosines"], labels, scale=scale, where=where)


def adacos_oracle(rows, labels, params, frozen=None):
  (held, held_params) = frozen or (rows, params)
  cosines = held["cosines"]
  angle = median(
    [math.acos(min(max(c[y], -1), 1)) for c, y in zip(cosines, labels, strict=True)]
  )
  b = log_b(held_params["scale"] * cosines, labels)
  scale = max(b / math.cos(min(angle, math.pi / 4)), 0.01)
  return by_row(lambda c, y, params: [scale * u for u in c])(rows, labels, params)


def dynamic(geometry):
  cosine = geometry == "cosine"

  def loss(rows, labels, params, where, axis_name=None):
    (table,) = rows.values()
    state = losses.DynamicScale(
      *(params[name] for name in ("log_scale", "first", "second")), np.int32(3)
    )
    state = losses.dynamic_scale_update(
      state,
      table,
      labels,
      geometry=geometry,
      learning_rate=params["rate"],
      where=where,
      axis_name=axis_name,
    )
    if cosine:
      return losses.normface(table, labels, scale=state.scale, where=where)
    return losses.distance_ratio(table, labels, exponent=state.scale, where=where)

  def oracle(rows, labels, params, frozen=None):
    (held, held_params) = frozen or (rows, params)
    (table,) = held.values()
    s = math.exp(held_params["log_scale"])
    own = [row[y] for row, y in zip(table, labels, strict=True)]
    if cosine:
      angle = median([math.acos(min(max(c, -1), 1)) for c in own])
      b = log_b(s * table, labels)
    else:
      apart = [math.sqrt(max(d, 1e-200)) for d in own]
      chordal = geometry == "chordal"
      angle = median([2 * math.asin(min(d / 2, 1)) if chordal else d for d in apart])
      b = log_b(-s / 2 * np.log(np.maximum(table, 1e-200)), labels)
    angle = min(angle, math.pi / 4)

    def psi(s):
      """Over the factor at the scale so far, which is held constant."""
      if cosine:
        e = math.exp(s * math.cos(angle) - b)
        held_e = math.exp(math.exp(held_params["log_scale"]) * math.cos(angle) - b)
        psi = math.cos(angle) * (e + 1) + s * math.sin(angle) ** 2 * (e - 1)
        return psi / (held_e + 1)
      d = 2 * math.sin(angle / 2) if geometry == "chordal" else angle
      at = b + math.exp(held_params["log_scale"]) * math.log(d)
      e = math.exp(b + s * math.log(d) - max(at, 0))
      return ((s + 1) * e - (s - 1) * math.exp(-max(at, 0))) / (
        math.exp(at - max(at, 0)) + math.exp(-max(at, 0))
      )

    def rise(step):
      return psi(s * math.exp(step)) - psi(s * math.exp(-step))

    h = 1e-3
    slope = (45 * rise(h) - 9 * rise(2 * h) + rise(3 * h)) / (60 * h)
    gradient = psi(s) * slope
    first = 0.9 * held_params["first"] + 0.1 * gradient
    second = 0.999 * held_params["second"] + 0.001 * gradient**2
    mean, square = first / (1 - 0.9**4), second / (1 - 0.999**4)
    moved = math.log(s) - held_params["rate"] * mean / (math.sqrt(square) + 1e-8)
    s = math.exp(moved)
    if cosine:
      return by_row(lambda c, y, _: [s * u for u in c])(rows, labels, params)
    return ratio_oracle("apart")(rows, labels, {"exponent": s, "offset": 0.0})

  return Case(
    loss,
    oracle,
    rows=COSINES if cosine else APART,
    params={"log_scale": 1.1, "first": 0.3, "second": 0.2, "rate": 0.04},
    devices=True,
    frozen=True,
  )


# --- distances ---


def distance_ratio_of(row, y, exponent, offset):
  squares = [d + offset for d in row]
  nearest = min(squares)
  if nearest == 0:
    return math.log(squares.count(0.0)) if squares[y] == 0 else math.inf
  powers = [(d / nearest) ** (-exponent / 2) for d in squares]
  return math.log(sum(powers)) - math.log(powers[y])


def ratio_oracle(name):
  def oracle(rows, labels, params):
    return [
      distance_ratio_of(row, y, params["exponent"], params["offset"])
      for row, y in zip(rows[name], labels, strict=True)
    ]

  return oracle


def first_scale(rows, labels, params, where):
  state = losses.dynamic_scale_init(CLASSES, geometry="chordal")
  scale = state.scale.astype(rows["apart"].dtype)
  return losses.distance_ratio(rows["apart"], labels, exponent=scale, where=where)


def first_scale_oracle(rows, labels, params):
  """B (s + 1) d^s = s - 1 at the chord of 45 degrees, the others at 90."""
  low, high = 1.0, 50.0
  for _ in range(80):
    s = (low + high) / 2
    b = (CLASSES - 1) * math.sqrt(2) ** -s
    psi = b * (s + 1) * (2 * math.sin(math.pi / 8)) ** s - s + 1
    low, high = (s, high) if psi > 0 else (low, s)
  return ratio_oracle("apart")(rows, labels, {"exponent": low, "offset": 0.0})


def proxy_ratio(rows, labels, params, where):
  return losses.proxy_distance_ratio(rows["embeddings"], labels, where=where, **params)


def proxy_ratio_oracle(rows, labels, params):
  proxies = [project(p) for p in params["proxies"]]
  apart = [[sum((project(x) - p) ** 2) for p in proxies] for x in rows["embeddings"]]
  return ratio_oracle("apart")({"apart": apart}, labels, params)


def prototypes(seed=5):
  return np.random.default_rng(seed).normal(size=(CLASSES, 4))


# --- pulls ---


def weighted(labels):
  present = sorted(set(labels.tolist()))
  count = {y: sum(labels == y) for y in present}
  return [len(labels) / (count[y] * len(present)) for y in labels.tolist()]


def long_tail(rows, labels, params, where, axis_name=None):
  weights = losses.inverse_frequency_weights(
    labels, CLASSES, where=where, axis_name=axis_name
  ).astype(rows["cosines"].dtype)
  return losses.pull(rows["cosines"], labels, weights=weights, where=where)


def long_tail_oracle(rows, labels, params):
  return [
    w * (row[y] - 1) ** 2 / 2
    for row, y, w in zip(rows["cosines"], labels, weighted(labels), strict=True)
  ]


def mixed_pull(rows, labels, params, where):
  return losses.pull(
    rows["cosines"],
    shares(rows["preferences"], where),
    weights=params["weights"],
    where=where,
  )


def mixed_pull_oracle(rows, labels, params):
  return [
    sum(
      q * w * (c - 1) ** 2 / 2
      for q, w, c in zip(softened(preferences), params["weights"], row, strict=True)
    )
    for row, preferences in zip(rows["cosines"], rows["preferences"], strict=True)
  ]


def regression(rows, labels, params, where):
  return losses.dot_regression(
    rows["products"], labels, target=params["target"], where=where
  )


WEIGHTS = np.linspace(0.3, 1.7, CLASSES)
MARGINS = np.array([0.5, -0.4, 0.0, 1.2, -0.9, 0.3, 0.2, 0.8, -0.1, 0.6])
ARC = {"scale": 6.0, "margin": 0.5}
EXTREME = {"scale": 256.0}
RATIO = {"exponent": 3.0, "offset": 0.02}

CASES = {
  "softmax": Case(call("softmax"), by_row(lambda z, y, _: z), LOGITS),
  "softmax/distributions": Case(
    soft_softmax,
    soft_softmax_oracle,
    LOGITS | {"preferences": ("logit", CLASSES)},
    {"mass": 1.3},
    labels=False,
  ),
  "normface": Case(
    call("normface"),
    by_row(lambda c, y, p: [p["scale"] * u for u in c]),
    COSINES,
    {"scale": 6.0},
    sharp=EXTREME,
  ),
  "p2s_grad": Case(call("p2s_grad"), p2s_oracle, COSINES),
  "cosface": Case(
    call("cosface"),
    by_row(cosface_logits),
    COSINES,
    {"scale": 6.0, "margin": 0.35},
    sharp=EXTREME,
  ),
  "cosface/margin a class": Case(
    call("cosface"), by_row(cosface_logits), COSINES, {"scale": 6.0, "margin": MARGINS}
  ),
  "arcface": Case(call("arcface"), by_row(arc()), COSINES, ARC, sharp=EXTREME),
  "arcface/continuous tail": Case(
    call("arcface", tail="continuous"),
    by_row(arc("continuous")),
    COSINES,
    {"scale": 6.0, "margin": 1.3},
    sharp=EXTREME,
  ),
  "arcface/margin a class": Case(
    call("arcface"), by_row(arc()), COSINES, {"scale": 6.0, "margin": MARGINS}
  ),
  "arcface/easy margin": Case(
    call("arcface", easy_margin=True), by_row(arc(easy=True)), COSINES, ARC
  ),
  "subcentre_arcface": Case(
    subcentre,
    by_row(subcentre_logits),
    {"cosines": ("cosine", 3 * CLASSES)},
    ARC,
    sharp=EXTREME,
    step=3e-5,
  ),
  "sphereface": sphereface(4),
  "sphereface/factor 1": sphereface(1),
  "large_margin_softmax": Case(
    large_margin,
    by_row(large_margin_logits),
    COSINES | {"norms": ("distance", 1)},
    {"annealing": 0.4, "lengths": WEIGHTS},
  ),
  "adacos_scale": Case(
    call("normface", scale=losses.adacos_scale(CLASSES)),
    by_row(lambda c, y, _: [math.sqrt(2) * math.log(9) * u for u in c]),
    COSINES,
  ),
  "adacos_update": Case(
    adacos, adacos_oracle, COSINES, {"scale": 3.0}, devices=True, frozen=True
  ),
  "dynamic_scale_init": Case(first_scale, first_scale_oracle, APART),
  "dynamic_scale_update": dynamic("cosine"),
  "dynamic_scale_update/chordal": dynamic("chordal"),
  "dynamic_scale_update/angular": dynamic("angular"),
  "squared_distance_softmax": Case(
    call("squared_distance_softmax"),
    by_row(lambda d, y, p: [-p["scale"] * u for u in d]),
    APART,
    {"scale": 2.0},
    sharp=EXTREME,
  ),
  "distance_softmax": Case(
    call("distance_softmax"),
    by_row(lambda d, y, p: [-p["scale"] * u for u in d]),
    APART,
    {"scale": 2.0},
    sharp=EXTREME,
  ),
  "distance_ratio": Case(
    call("distance_ratio"),
    ratio_oracle("apart"),
    APART,
    RATIO,
    sharp={"exponent": 1000.0},
  ),
  "proxy_distance_ratio": Case(
    proxy_ratio,
    proxy_ratio_oracle,
    params=RATIO | {"proxies": prototypes()},
    sharp={"exponent": 200.0},
  ),
  "pull": Case(
    call("pull"),
    lambda rows, labels, _: [
      (row[y] - 1) ** 2 / 2 for row, y in zip(rows["cosines"], labels, strict=True)
    ],
    COSINES,
  ),
  "pull/distributions": Case(
    mixed_pull,
    mixed_pull_oracle,
    COSINES | {"preferences": ("logit", CLASSES)},
    {"weights": WEIGHTS},
    labels=False,
  ),
  "inverse_frequency_weights": Case(long_tail, long_tail_oracle, COSINES, devices=True),
  "dot_regression": Case(
    regression,
    lambda rows, labels, p: [
      (row[y] - p["target"]) ** 2 / (2 * p["target"])
      for row, y in zip(rows["products"], labels, strict=True)
    ],
    {"products": ("logit", CLASSES)},
    {"target": 2.5},
  ),
  "correlation": Case(
    call("correlation"),
    lambda rows, labels, _: [
      1 - row[y] for row, y in zip(rows["cosines"], labels, strict=True)
    ],
    COSINES,
  ),
  "hyperspherical": Case(
    call("hyperspherical"),
    lambda rows, labels, _: [
      (1 - row[y]) ** 2 for row, y in zip(rows["cosines"], labels, strict=True)
    ],
    COSINES,
  ),
}
