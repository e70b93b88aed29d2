"""Losses between examples and learned proxies of the classes."""

import functools
import itertools
import math

import numpy as np
from scipy import special

from spherejax import losses
from tests.losses.cases._frame import CLASSES, Case
from tests.losses.cases._parts import by_row, call, lse, project, softplus

SEVERAL = np.random.default_rng(6).normal(size=(CLASSES, 3, 4))
PROXIES = {"proxies": SEVERAL[:, 0]}
GROUPS = {"proxies": SEVERAL}
COLD = 0.005


def grouped(table, normalize="l2"):
  """[classes][per_class] of proxies."""
  return list(project(table[:, None] if table.ndim == 2 else table, normalize))


def anchor(rows, labels, params, normalize="l2"):
  groups = grouped(params["proxies"], normalize)
  z = project(rows["embeddings"], normalize)
  n, per_class = len(z), len(groups[0])
  present = len(set(labels.tolist())) * per_class
  scale, margin = params["scale"], params["margin"]
  values = np.zeros(n)
  for c, group in enumerate(groups):
    own, other = np.flatnonzero(labels == c), np.flatnonzero(labels != c)
    for p in group:
      s = z @ p
      pull = softplus(lse(-scale * (s[own] - margin)))
      push = softplus(lse(scale * (s[other] + margin)))
      values[own] += n * pull / (present * max(len(own), 1))
      values[other] += n * push / (CLASSES * per_class * max(len(other), 1))
  return values


def nca(rows, labels, params, normalize="l2", logit="squared_euclidean", own=True):
  groups = grouped(params["proxies"], normalize)
  factor = 1 / params.get("temperature", COLD) if own else params["scale"] ** 2
  values = []
  for x, y in zip(project(rows["embeddings"], normalize), labels, strict=True):
    close = [
      list(factor * (g @ x if logit == "cosine" else -((x - g) ** 2).sum(1)))
      for g in groups
    ]
    rivals = [u for c, group in enumerate(close) if own or c != y for u in group]
    values.append(lse(rivals) - lse(close[y]))
  return values


def reduced(similarities, reduction, t):
  if reduction == "max":
    return max(similarities)
  if reduction == "logsumexp":
    return t * (lse([s / t for s in similarities]) - math.log(len(similarities)))
  return special.softmax(np.divide(similarities, t)) @ similarities


def multi_proxy(reduction):
  def loss(rows, labels, params, where):
    several = rows["cosines"].reshape(-1, CLASSES, 3)
    close = losses.multi_proxy(several, reduction=reduction, where=where, **params)
    return losses.softmax(close, labels, where=where)

  def value(cosines, y, params):
    several = [cosines[3 * c : 3 * c + 3] for c in range(CLASSES)]
    close = [reduced(s, reduction, params.get("temperature")) for s in several]
    return lse(close) - close[y]

  rows = {"cosines": ("cosine", 3 * CLASSES)}
  params, sharp = {"temperature": 0.3}, {"temperature": COLD}
  if reduction == "max":
    params, sharp = {}, {}
  return Case(loss, by_row(value), rows, params, sharp=sharp)


def soft_triple(rows, labels, params, normalize="l2"):
  groups = grouped(params["centres"], normalize)
  gaps = [math.dist(*two) for x in groups for two in itertools.combinations(x, 2)]
  spread = sum(gaps) / (2 * len(gaps)) if gaps else 0.0
  values = []
  for x, y in zip(project(rows["embeddings"], normalize), labels, strict=True):
    close = [reduced(list(g @ x), "soft", params["temperature"]) for g in groups]
    close[y] -= params["margin"]
    z = [params["scale"] * s for s in close]
    values.append(lse(z) - z[y] + params["regularization"] * spread)
  return values


CASES: dict[str, Case] = {}


def case(key, oracle, params, options=None, static=None, **contract):
  """`options` are those of the loss and of the oracle, `static` of the loss alone."""
  options = options or {}
  loss = call(key.split("/")[0], **options, **(static or {}))
  CASES[key] = Case(
    loss, functools.partial(oracle, **options), params=params, **contract
  )


def of_nca(key, params, options=None, **contract):
  without_own = functools.partial(nca, own="plus_plus" in key)
  case(key, without_own, params, options, **contract)


ANCHOR = {"scale": 6.0, "margin": 0.2}
T = {"temperature": 0.4}
TRIPLE = ANCHOR | {"temperature": 0.3, "regularization": 0.5}
BALL, AS_THEY_ARE = {"normalize": "unit_ball"}, {"normalize": "none"}
COSINES = AS_THEY_ARE | {"logit": "cosine"}
EXTREME = {"scale": 256.0}

case("proxy_anchor", anchor, ANCHOR | PROXIES, blocks=True, devices=True, sharp=EXTREME)
case(
  "proxy_anchor/several, unit ball", anchor, ANCHOR | GROUPS, BALL, devices=True,
  step=1e-4,
)  # fmt: skip
of_nca("proxy_nca", {"scale": 1.4} | PROXIES, blocks=True, sharp={"scale": 16.0})
of_nca("proxy_nca/several, as they are", {"scale": 0.7} | GROUPS, AS_THEY_ARE)
of_nca("proxy_nca_plus_plus", T | PROXIES, blocks=True)
# Not among the params: the derivative by so low a temperature is no float16 number.
of_nca("proxy_nca_plus_plus/cold", PROXIES, static={"temperature": COLD})
of_nca("proxy_nca_plus_plus/cosine, as they are", T | PROXIES, COSINES)
of_nca("proxy_nca_plus_plus/several, unit ball", T | GROUPS, BALL)
CASES["multi_proxy"] = multi_proxy("soft")
CASES["multi_proxy/max"] = multi_proxy("max")
CASES["multi_proxy/logsumexp"] = multi_proxy("logsumexp")
case(
  "soft_triple", soft_triple, TRIPLE | {"centres": SEVERAL}, blocks=True,
  sharp=EXTREME | {"temperature": COLD},
)  # fmt: skip
case("soft_triple/unit ball", soft_triple, TRIPLE | {"centres": SEVERAL}, BALL)
case("soft_triple/one centre", soft_triple, TRIPLE | {"centres": SEVERAL[:, :1]})
