"""Losses between examples and learned proxies of the classes."""

import functools
import math

import numpy as np

from spherejax import losses
from tests.losses.cases._frame import CLASSES, Case
from tests.losses.cases._parts import lse, project, softplus

SEVERAL = np.random.default_rng(6).normal(size=(CLASSES, 3, 4))
PROXIES = SEVERAL[:, 0]
COLD = 0.005


def call(name, **static):
  def loss(rows, labels, params, where, **options):
    return getattr(losses, name)(
      rows["embeddings"], labels, where=where, **static, **params, **options
    )

  return loss


def grouped(params, normalize="l2"):
  """[classes][per_class] of proxies."""
  table = params["proxies"]
  groups = table[:, None] if table.ndim == 2 else table
  return [[project(p, normalize) for p in group] for group in groups]


def anchor(normalize="l2"):
  def oracle(rows, labels, params):
    groups = grouped(params, normalize)
    z = [project(x, normalize) for x in rows["embeddings"]]
    n, per_class = len(z), len(groups[0])
    present = len(set(labels.tolist())) * per_class
    scale, margin = params["scale"], params["margin"]
    values = np.zeros(n)
    for c, group in enumerate(groups):
      own = [i for i in range(n) if labels[i] == c]
      other = [i for i in range(n) if labels[i] != c]
      for p in group:
        pull = softplus(lse([-scale * (z[i] @ p - margin) for i in own]))
        push = softplus(lse([scale * (z[i] @ p + margin) for i in other]))
        for i in own:
          values[i] += n * pull / (present * len(own))
        for i in other:
          values[i] += n * push / (CLASSES * per_class * len(other))
    return values

  return oracle


def nca(normalize="l2", logit="squared_euclidean", without_own=False):
  def oracle(rows, labels, params):
    groups = grouped(params, normalize)
    factor = (
      params["scale"] ** 2 if without_own else 1 / params.get("temperature", COLD)
    )
    values = []
    for row, y in zip(rows["embeddings"], labels, strict=True):
      x = project(row, normalize)
      close = [
        [factor * (x @ p if logit == "cosine" else -sum((x - p) ** 2)) for p in group]
        for group in groups
      ]
      rivals = [u for c, group in enumerate(close) if c != y for u in group]
      if not without_own:
        rivals += close[y]
      values.append(lse(rivals) - lse(close[y]))
    return values

  return oracle


def reduced(similarities, reduction, t):
  if reduction == "max":
    return max(similarities)
  if reduction == "logsumexp":
    mean = sum(math.exp((s - max(similarities)) / t) for s in similarities)
    return max(similarities) + t * math.log(mean / len(similarities))
  terms = [math.exp((s - max(similarities)) / t) for s in similarities]
  return sum(w * s for w, s in zip(terms, similarities, strict=True)) / sum(terms)


def multi_proxy(reduction):
  def loss(rows, labels, params, where):
    numbers = {} if reduction == "max" else params
    close = losses.multi_proxy(
      rows["cosines"].reshape(-1, CLASSES, 3),
      reduction=reduction,
      where=where,
      **numbers,
    )
    return losses.softmax(close, labels, where=where)

  def oracle(rows, labels, params):
    values = []
    for row, y in zip(rows["cosines"], labels, strict=True):
      close = [
        reduced(group, reduction, params.get("temperature"))
        for group in row.reshape(CLASSES, 3)
      ]
      values.append(lse(close) - close[y])
    return values

  return Case(
    loss,
    oracle,
    {"cosines": ("cosine", 3 * CLASSES)},
    {} if reduction == "max" else {"temperature": 0.3},
    sharp={} if reduction == "max" else {"temperature": 0.005},
  )


def soft_triple_oracle(rows, labels, params, normalize="l2"):
  groups = grouped({"proxies": params["centres"]}, normalize)
  per_class = len(groups[0])
  apart = sum(
    math.dist(group[k], group[j])
    for group in groups
    for k in range(per_class)
    for j in range(k)
  )
  spread = apart / (CLASSES * per_class * (per_class - 1)) if per_class > 1 else 0.0
  values = []
  for row, y in zip(rows["embeddings"], labels, strict=True):
    x = project(row, normalize)
    close = [
      reduced([x @ p for p in group], "soft", params["temperature"]) for group in groups
    ]
    close[y] -= params["margin"]
    z = [params["scale"] * s for s in close]
    values.append(lse(z) - z[y] + params["regularization"] * spread)
  return values


ANCHOR = {"scale": 6.0, "margin": 0.2}
TEMPERATURE = {"temperature": 0.4}

CASES = {
  "proxy_anchor": Case(
    call("proxy_anchor"),
    anchor(),
    params=ANCHOR | {"proxies": PROXIES},
    blocks=True,
    devices=True,
    sharp={"scale": 256.0},
  ),
  "proxy_anchor/several, unit ball": Case(
    call("proxy_anchor", normalize="unit_ball"),
    anchor("unit_ball"),
    params=ANCHOR | {"proxies": SEVERAL},
    devices=True,
  ),
  "proxy_nca": Case(
    call("proxy_nca"),
    nca(without_own=True),
    params={"scale": 1.4, "proxies": PROXIES},
    blocks=True,
    sharp={"scale": 16.0},
  ),
  "proxy_nca/several, as they are": Case(
    call("proxy_nca", normalize="none"),
    nca("none", without_own=True),
    params={"scale": 0.7, "proxies": SEVERAL},
  ),
  "proxy_nca_plus_plus": Case(
    call("proxy_nca_plus_plus"),
    nca(),
    params=TEMPERATURE | {"proxies": PROXIES},
    blocks=True,
  ),
  # Not among the params: the derivative by so low a temperature is no float16 number.
  "proxy_nca_plus_plus/cold": Case(
    call("proxy_nca_plus_plus", temperature=COLD), nca(), params={"proxies": PROXIES}
  ),
  "proxy_nca_plus_plus/cosine, as they are": Case(
    call("proxy_nca_plus_plus", logit="cosine", normalize="none"),
    nca("none", "cosine"),
    params=TEMPERATURE | {"proxies": PROXIES},
  ),
  "proxy_nca_plus_plus/several, unit ball": Case(
    call("proxy_nca_plus_plus", normalize="unit_ball"),
    nca("unit_ball"),
    params=TEMPERATURE | {"proxies": SEVERAL},
  ),
  "multi_proxy": multi_proxy("soft"),
  "multi_proxy/max": multi_proxy("max"),
  "multi_proxy/logsumexp": multi_proxy("logsumexp"),
  "soft_triple": Case(
    call("soft_triple"),
    soft_triple_oracle,
    params={
      "centres": SEVERAL,
      "scale": 6.0,
      "temperature": 0.3,
      "margin": 0.2,
      "regularization": 0.5,
    },
    blocks=True,
    sharp={"scale": 256.0, "temperature": 0.005},
  ),
  "soft_triple/unit ball": Case(
    call("soft_triple", normalize="unit_ball"),
    functools.partial(soft_triple_oracle, normalize="unit_ball"),
    params={"centres": SEVERAL, "scale": 6.0, "margin": 0.2}
    | {"temperature": 0.3, "regularization": 0.5},
  ),
  "soft_triple/one centre": Case(
    call("soft_triple"),
    soft_triple_oracle,
    params={"centres": SEVERAL[:, :1], "scale": 6.0, "margin": 0.2}
    | {"temperature": 0.3, "regularization": 0.5},
  ),
}
