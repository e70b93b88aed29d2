"""Losses of training against adversarial examples."""

import functools
import math

import numpy as np

from spherejax import losses
from tests.losses.cases._frame import CLASSES, Case

LOGITS = {"logits": ("logit", CLASSES), "attacked": ("logit", CLASSES)}
COSINES = {"cosines": ("cosine", CLASSES), "attacked": ("cosine", CLASSES)}
ANGLES = np.random.default_rng(0).uniform(0.4, 3.0, CLASSES)
PROXIES = np.random.default_rng(1).normal(size=(CLASSES, 4))


def log_probability(logits, c):
  top = max(logits)
  return logits[c] - top - math.log(sum(math.exp(z - top) for z in logits))


def mixture(rows, labels, params):
  a, values = params["clean_weight"], []
  for clean, attacked, y in zip(rows["logits"], rows["attacked"], labels, strict=True):
    values.append(
      -a * log_probability(clean, y) - (1 - a) * log_probability(attacked, y)
    )
  return values


def trades_oracle(divergence):
  def oracle(rows, labels, params):
    values = []
    for z, attacked, y in zip(rows["logits"], rows["attacked"], labels, strict=True):
      apart = 0.0
      for c in range(CLASSES):
        p = math.exp(log_probability(z, c))
        apart -= p * log_probability(attacked, c)
        if divergence == "kl":
          apart += p * log_probability(z, c)
      values.append(-log_probability(z, y) + params["weight"] * apart)
    return values

  return oracle


def in_cap(attacked, y, width, scale):
  return math.log1p(math.exp(scale * (math.cos(width) - attacked[y])))


def with_margin(attacked, y, width, scale):
  turned = math.cos(max(math.acos(attacked[y]) - width, 0))
  logits = [scale * (turned if c == y else v) for c, v in enumerate(attacked)]
  return -log_probability(logits, y)


def beside_normface(term):
  def oracle(rows, labels, params):
    a, scale = params["clean_weight"], params["scale"]
    values = []
    for cos, attacked, y in zip(rows["cosines"], rows["attacked"], labels, strict=True):
      normface = -log_probability([scale * c for c in cos], y)
      width = params["nearest_angles"][y] / 2 - 1e-6
      values.append(a * normface + (1 - a) * term(attacked, y, width, scale))
    return values

  return oracle


def nearest(rows, labels, params):
  unit = [[v / math.hypot(*row) for v in row] for row in params["proxies"]]
  return [
    min(
      math.acos(sum(map(float.__mul__, unit[y], other)))
      for c, other in enumerate(unit)
      if c != y
    )
    for y in labels
  ]


def nearest_of_own_class(rows, labels, params, where, **static):
  angles = losses.nearest_proxy_angles(params["proxies"], **static)
  own = (labels[:, None] == np.arange(CLASSES)[None]) & where[:, None]
  return (own.astype(angles.dtype) * angles[None]).sum(axis=1)


def call(name, clean, **static):
  """The loss of that name on the clean and the attacked table of the rows."""

  def loss(rows, labels, params, where):
    return getattr(losses, name)(
      rows[clean], rows["attacked"], labels, where=where, **static, **params
    )

  return loss


WIDTHS = {"nearest_angles": ANGLES, "clean_weight": 0.3, "scale": 4.0}

CASES: dict[str, Case] = {
  "adversarial_training": Case(
    call("adversarial_training", "logits"), mixture, LOGITS, {"clean_weight": 0.3}
  ),
  "trades": Case(
    call("trades", "logits"), trades_oracle("ce"), LOGITS, {"weight": 1.7}
  ),
  "trades/kl": Case(
    call("trades", "logits", divergence="kl"),
    trades_oracle("kl"),
    LOGITS,
    {"weight": 1.7},
  ),
  "proxy_cap": Case(
    call("proxy_cap", "cosines"),
    beside_normface(in_cap),
    COSINES,
    WIDTHS,
    sharp={"scale": 256.0},
  ),
  "normface_negative_margin": Case(
    call("normface_negative_margin", "cosines"),
    beside_normface(with_margin),
    COSINES,
    WIDTHS,
    sharp={"scale": 256.0},
  ),
  "nearest_proxy_angles": Case(
    nearest_of_own_class,
    nearest,
    params={"proxies": PROXIES},
    grad=False,  # the angles are targets
  ),
  "nearest_proxy_angles/not targets": Case(
    functools.partial(nearest_of_own_class, stop_gradient=False),
    nearest,
    params={"proxies": PROXIES},
  ),
}
