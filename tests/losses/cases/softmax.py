"""Losses over classes: softmax, margins on angles, adaptive scales, distances, pull."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, special

from spherejax import losses
from tests.losses.cases._frame import CLASSES, Case
from tests.losses.cases._parts import by_row, call, entropy, matrix_of, squared

COSINES = {"cosines": ("cosine", CLASSES)}
LOGITS = {"logits": ("logit", CLASSES)}
APART = {"apart": ("distance", CLASSES)}
NORMS = {"norms": ("distance", 1)}
SHARES = {"preferences": ("logit", CLASSES)}
SCALE = {"scale": 6.0}
ARC = SCALE | {"margin": 0.5}
RATIO = {"exponent": 3.0, "offset": 0.02}
EXTREME = {"scale": 256.0}
WEIGHTS = np.linspace(0.3, 1.7, CLASSES)
MARGINS = np.array([0.5, -0.4, 0.0, 1.2, -0.9, 0.3, 0.2, 0.8, -0.1, 0.6])
CASES: dict[str, Case] = {}


def of_rows(key, value, rows=COSINES, params=None, loss=None, labels=True, **contract):
  """A case by the value of each row; `call` by name where it has no loss."""
  loss = loss or call(key.split("/")[0])
  CASES[key] = Case(loss, by_row(value), rows, params or {}, labels, **contract)


def of_logits(key, logits_of, rows=COSINES, params=None, **settings):
  """A case by the logits of each row and its label."""

  def value(*entries):
    return entropy(logits_of(*entries), entries[-2])

  of_rows(key, value, rows, params, **settings)


# --- softmax, and distributions in place of labels ---


def shares(preferences, where):
  return jax.nn.softmax(jnp.where(where[:, None], preferences, 0))


def soft_softmax(rows, labels, params, where):
  targets = shares(rows["preferences"], where) * params["mass"]
  return losses.softmax(rows["logits"], targets, where=where)


def soft_softmax_value(logits, preferences, params):
  terms = [q * entropy(logits, c) for c, q in enumerate(special.softmax(preferences))]
  return params["mass"] * sum(terms)


def scaled(cosines, y, params):
  return [params["scale"] * c for c in cosines]


def less_scaled(distances, y, params):
  return [-params["scale"] * d for d in distances]


def p2s(cosines, y, params):
  return sum((c - (k == y)) ** 2 for k, c in enumerate(cosines)) / 2


of_logits("softmax", lambda z, y, params: z, LOGITS)
of_rows(
  "softmax/distributions", soft_softmax_value, LOGITS | SHARES, {"mass": 1.3},
  soft_softmax, labels=False,
)  # fmt: skip
of_logits("normface", scaled, params=SCALE, sharp=EXTREME)
of_rows("p2s_grad", p2s)
of_logits("squared_distance_softmax", less_scaled, APART, {"scale": 2.0}, sharp=EXTREME)
of_logits("distance_softmax", less_scaled, APART, {"scale": 2.0}, sharp=EXTREME)


# --- margins on angles ---


def cosface(cosines, y, params):
  margin = np.broadcast_to(params["margin"], CLASSES)[y]
  return [params["scale"] * (c - margin * (k == y)) for k, c in enumerate(cosines)]


def arc(tail="linear", easy=False):
  def logits(cosines, y, params):
    margin = np.broadcast_to(params["margin"], CLASSES)[y]
    z = scaled(cosines, y, params)
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
  several = rows["cosines"].reshape(-1, CLASSES, 3)
  return losses.subcentre_arcface(several, labels, where=where, **params)


def subcentre_logits(cosines, y, params):
  nearest = [max(cosines[3 * c : 3 * c + 3]) for c in range(CLASSES)]
  return arc()(nearest, y, params)


def annealed(cosine, factor, keep):
  """The staircase of the angle, beside the share of the cosine itself."""
  angle = math.acos(min(max(cosine, -1), 1))
  k = min(int(factor * angle / math.pi), factor - 1)
  stair = (-1) ** k * math.cos(factor * angle) - 2 * k
  return (keep * cosine + stair) / (1 + keep)


def sphereface(factor):
  def loss(rows, labels, params, where):
    norms = rows["norms"][:, 0]
    return losses.sphereface(
      rows["cosines"], labels, norms, margin=factor, where=where, **params
    )

  def logits(cosines, norms, y, params):
    z = [norms[0] * c for c in cosines]
    z[y] = norms[0] * annealed(cosines[y], factor, params.get("annealing", 0.0))
    return z

  return {"logits_of": logits, "loss": loss, "rows": COSINES | NORMS}


def large_margin(rows, labels, params, where):
  norms = jnp.where(where[:, None], rows["norms"], 0) * params["lengths"][None]
  return losses.large_margin_softmax(
    rows["cosines"], labels, norms, margin=3, annealing=params["annealing"], where=where
  )


def large_margin_logits(cosines, norms, y, params):
  lengths = norms[0] * params["lengths"]
  z = list(lengths * cosines)
  z[y] = lengths[y] * annealed(cosines[y], 3, params["annealing"])
  return z


of_logits("cosface", cosface, params=SCALE | {"margin": 0.35}, sharp=EXTREME)
of_logits("cosface/margin a class", cosface, params=SCALE | {"margin": MARGINS})
of_logits("arcface", arc(), params=ARC, sharp=EXTREME)
of_logits(
  "arcface/continuous tail", arc("continuous"), params=SCALE | {"margin": 1.3},
  loss=call("arcface", tail="continuous"), sharp=EXTREME,
)  # fmt: skip
of_logits("arcface/margin a class", arc(), params=SCALE | {"margin": MARGINS})
of_logits(
  "arcface/easy margin", arc(easy=True), params=ARC,
  loss=call("arcface", easy_margin=True),
)  # fmt: skip
of_logits(
  "subcentre_arcface", subcentre_logits, {"cosines": ("cosine", 3 * CLASSES)}, ARC,
  loss=subcentre, sharp=EXTREME, step=3e-5,
)  # fmt: skip
of_logits("sphereface", **sphereface(4), params={"annealing": 0.7})
of_logits("sphereface/factor 1", **sphereface(1))  # the annealing has no effect
of_logits(
  "large_margin_softmax", large_margin_logits, COSINES | NORMS,
  {"annealing": 0.4, "lengths": WEIGHTS}, loss=large_margin,
)  # fmt: skip


# --- adaptive scales: the loss at the updated scale, which is a constant ---


def log_b(logits, labels):
  terms = [z for row, y in zip(logits, labels, strict=True) for z in np.delete(row, y)]
  top = max(terms)
  return top + math.log(sum(math.exp(z - top) for z in terms) / len(labels))


def normface_at(scale, rows, labels):
  return by_row(lambda c, y, p: entropy(scaled(c, y, p), y))(
    rows, labels, {"scale": scale}
  )


def adacos(rows, labels, params, where, axis_name=None):
  scale = losses.adacos_update(
    params["scale"], rows["cosines"], labels, where=where, axis_name=axis_name
  )
  return losses.normface(rows["cosines"], labels, scale=scale, where=where)


def adacos_oracle(rows, labels, params, frozen=None):
  (held, held_params) = frozen or (rows, params)
  cosines = held["cosines"]
  angle = np.median(np.arccos(cosines[np.arange(len(labels)), labels]))
  b = log_b(held_params["scale"] * cosines, labels)
  return normface_at(max(b / math.cos(min(angle, math.pi / 4)), 0.01), rows, labels)


def dynamic(geometry):
  cosine = geometry == "cosine"

  def loss(rows, labels, params, where, axis_name=None):
    (table,) = rows.values()
    state = losses.DynamicScale(
      *(params[name] for name in ("log_scale", "first", "second")), np.int32(3)
    )
    options = {"geometry": geometry, "learning_rate": params["rate"]}
    options |= {"where": where, "axis_name": axis_name}
    state = losses.dynamic_scale_update(state, table, labels, **options)
    if cosine:
      return losses.normface(table, labels, scale=state.scale, where=where)
    return losses.distance_ratio(table, labels, exponent=state.scale, where=where)

  def oracle(rows, labels, params, frozen=None):
    (held, held_params) = frozen or (rows, params)
    (table,) = held.values()
    s = math.exp(held_params["log_scale"])
    own = table[np.arange(len(labels)), labels]
    if cosine:
      angle = np.median(np.arccos(own))
      b = log_b(s * table, labels)
    else:
      apart = np.sqrt(np.maximum(own, 1e-200))
      turned = 2 * np.arcsin(np.minimum(apart / 2, 1))
      angle = np.median(turned if geometry == "chordal" else apart)
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
    if cosine:
      return normface_at(math.exp(moved), rows, labels)
    return ratio_at(math.exp(moved), rows, labels)

  rows = COSINES if cosine else APART
  params = {"log_scale": 1.1, "first": 0.3, "second": 0.2, "rate": 0.04}
  return Case(loss, oracle, rows, params, devices=True, frozen=True)


# --- distances ---


def ratio(row, y, params):
  squares = [d + params["offset"] for d in row]
  nearest = min(squares)
  if nearest == 0:
    return math.log(squares.count(0.0)) if squares[y] == 0 else math.inf
  powers = [(d / nearest) ** (-params["exponent"] / 2) for d in squares]
  return math.log(sum(powers)) - math.log(powers[y])


def ratio_at(exponent, rows, labels):
  return by_row(ratio)(rows, labels, {"exponent": exponent, "offset": 0.0})


def first_scale(rows, labels, params, where):
  state = losses.dynamic_scale_init(CLASSES, geometry="chordal")
  scale = state.scale.astype(rows["apart"].dtype)
  return losses.distance_ratio(rows["apart"], labels, exponent=scale, where=where)


def first_scale_oracle(rows, labels, params):
  """B (s + 1) d^s = s - 1 at the chord of 45 degrees, the others at 90."""

  def psi(s):
    b = (CLASSES - 1) * math.sqrt(2) ** -s
    return b * (s + 1) * (2 * math.sin(math.pi / 8)) ** s - s + 1

  return ratio_at(optimize.brentq(psi, 1, 50, xtol=1e-14), rows, labels)


def proxy_ratio_oracle(rows, labels, params):
  apart = matrix_of(squared, rows["embeddings"], params["proxies"])
  return by_row(ratio)({"apart": apart}, labels, params)


CASES |= {
  "adacos_scale": Case(
    call("normface", scale=losses.adacos_scale(CLASSES)),
    lambda rows, labels, _: normface_at(math.sqrt(2) * math.log(9), rows, labels),
    COSINES,
  ),
  "adacos_update": Case(
    adacos, adacos_oracle, COSINES, {"scale": 3.0}, devices=True, frozen=True
  ),
  "dynamic_scale_init": Case(first_scale, first_scale_oracle, APART),
  "dynamic_scale_update": dynamic("cosine"),
  "dynamic_scale_update/chordal": dynamic("chordal"),
  "dynamic_scale_update/angular": dynamic("angular"),
  "proxy_distance_ratio": Case(
    call("proxy_distance_ratio"),
    proxy_ratio_oracle,
    params=RATIO | {"proxies": np.random.default_rng(5).normal(size=(CLASSES, 4))},
    blocks=True,
    sharp={"exponent": 200.0},
  ),
}
of_rows("distance_ratio", ratio, APART, RATIO, sharp={"exponent": 1000.0})


# --- pulls ---


def long_tail(rows, labels, params, where, axis_name=None):
  weights = losses.inverse_frequency_weights(
    labels, CLASSES, where=where, axis_name=axis_name
  ).astype(rows["cosines"].dtype)
  return losses.pull(rows["cosines"], labels, weights=weights, where=where)


def long_tail_oracle(rows, labels, params):
  _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
  own = rows["cosines"][np.arange(len(labels)), labels]
  return len(labels) / (counts[inverse] * len(counts)) * (own - 1) ** 2 / 2


def mixed_pull(rows, labels, params, where):
  targets = shares(rows["preferences"], where)
  return losses.pull(rows["cosines"], targets, where=where, **params)


def mixed_pull_value(cosines, preferences, params):
  weights = special.softmax(preferences) * params["weights"]
  return weights @ (np.subtract(cosines, 1) ** 2 / 2)


def regression(products, y, params):
  return (products[y] - params["target"]) ** 2 / (2 * params["target"])


of_rows("pull", lambda c, y, params: (c[y] - 1) ** 2 / 2)
of_rows(
  "pull/distributions", mixed_pull_value, COSINES | SHARES, {"weights": WEIGHTS},
  mixed_pull, labels=False,
)  # fmt: skip
CASES["inverse_frequency_weights"] = Case(
  long_tail, long_tail_oracle, COSINES, devices=True
)
of_rows("dot_regression", regression, {"products": ("logit", CLASSES)}, {"target": 2.5})
of_rows("correlation", lambda c, y, params: 1 - c[y])
of_rows("hyperspherical", lambda c, y, params: (1 - c[y]) ** 2)
