"""Losses of training against adversarial examples."""

import functools
import math

import numpy as np
from scipy import special

from spherejax import losses
from tests.losses.cases._frame import CLASSES, Case
from tests.losses.cases._parts import by_row, call, cosines, entropy

LOGITS = {"logits": ("logit", CLASSES), "attacked": ("logit", CLASSES)}
COSINES = {"cosines": ("cosine", CLASSES), "attacked": ("cosine", CLASSES)}
ANGLES = np.random.default_rng(0).uniform(0.4, 3.0, CLASSES)
PROXIES = {"proxies": np.random.default_rng(1).normal(size=(CLASSES, 4))}


def mixture(attacked, clean, y, params):
  a = params["clean_weight"]
  return a * entropy(clean, y) + (1 - a) * entropy(attacked, y)


def trades(attacked, clean, y, params, kl=False):
  apart = sum(
    p * (entropy(attacked, c) - kl * entropy(clean, c))
    for c, p in enumerate(special.softmax(clean))
  )
  return entropy(clean, y) + params["weight"] * apart


def in_cap(attacked, y, width, scale):
  return math.log1p(math.exp(scale * (math.cos(width) - attacked[y])))


def with_margin(attacked, y, width, scale):
  turned = math.cos(max(math.acos(attacked[y]) - width, 0))
  logits = [scale * (turned if c == y else v) for c, v in enumerate(attacked)]
  return entropy(logits, y)


def beside_normface(name, term):
  def value(attacked, cosines, y, params):
    a, scale = params["clean_weight"], params["scale"]
    width = params["nearest_angles"][y] / 2 - 1e-6
    normface = entropy([scale * c for c in cosines], y)
    return a * normface + (1 - a) * term(attacked, y, width, scale)

  params = {"nearest_angles": ANGLES, "clean_weight": 0.3, "scale": 4.0}
  loss = call(name, "cosines", "attacked")
  return Case(loss, by_row(value), COSINES, params, sharp={"scale": 256.0})


def nearest(rows, labels, params):
  return np.arccos((cosines(params["proxies"]) - 9 * np.eye(CLASSES)).max(1))[labels]


def nearest_of_own_class(rows, labels, params, where, **static):
  angles = losses.nearest_proxy_angles(params["proxies"], **static)
  own = (labels[:, None] == np.arange(CLASSES)[None]) & where[:, None]
  return (own.astype(angles.dtype) * angles[None]).sum(axis=1)


def of_logits(name, value, params, **static):
  return Case(call(name, "logits", "attacked", **static), by_row(value), LOGITS, params)


CASES = {
  "adversarial_training": of_logits(
    "adversarial_training", mixture, {"clean_weight": 0.3}
  ),
  "trades": of_logits("trades", trades, {"weight": 1.7}),
  "trades/kl": of_logits(
    "trades", functools.partial(trades, kl=True), {"weight": 1.7}, divergence="kl"
  ),
  "proxy_cap": beside_normface("proxy_cap", in_cap),
  "normface_negative_margin": beside_normface("normface_negative_margin", with_margin),
  # The angles are targets, without a gradient.
  "nearest_proxy_angles": Case(
    nearest_of_own_class, nearest, params=PROXIES, grad=False
  ),
  "nearest_proxy_angles/not targets": Case(
    functools.partial(nearest_of_own_class, stop_gradient=False),
    nearest,
    params=PROXIES,
  ),
}
