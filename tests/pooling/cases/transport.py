"""Poolings by assignment to prototypes or centres, and by norms, by loops."""

import math

import numpy as np
from scipy import special

from tests.pooling.cases._frame import Case
from tests.pooling.cases._parts import call

RANDOM = np.random.default_rng(5)


def drawn(*shape):
  return RANDOM.normal(size=shape)


def in_ball(x):
  return x / max(1.0, math.sqrt(sum(x * x)))


def distance(x, y):
  return math.sqrt(sum((x - y) ** 2))


def otp(gaussian=False, steps=10):
  """The scaling vectors u and v of the paper, not their logarithms."""

  def oracle(features, params):
    prototypes, sharpness = params["prototypes"], params["inverse_temperature"]
    m, n = len(prototypes), len(features)
    kernel = np.zeros((m, n))
    for i, o in enumerate(prototypes):
      for j, f in enumerate(features):
        if gaussian:
          cost = -math.exp(-(distance(o, f) ** 2) / (2 * params["bandwidth"] ** 2))
        else:
          cost = distance(in_ball(o), in_ball(f))
        kernel[i, j] = math.exp(-sharpness * cost)
    u = np.ones(m)
    for _ in range(steps):
      v = (1 / n) / (kernel.T @ u)
      u = (1 / m) / (kernel @ v)
    v = (1 / n) / (kernel.T @ u)
    plan = u[:, None] * kernel * v
    return (math.sqrt(m) * plan @ features).ravel()

  return oracle


def netvlad(features, params):
  centres = params["centres"]
  blocks = np.zeros(centres.shape)
  for f in features:
    shares = special.softmax(params["weights"] @ f + params["biases"])
    blocks += shares[:, None] * (f - centres)
  blocks /= np.linalg.norm(blocks, axis=1, keepdims=True)
  return blocks.ravel() / np.linalg.norm(blocks)


def tsmk(window, stop=False, reduction="mean"):
  reach = window // 2

  def oracle(features, params, kept, frozen=None):
    height, width, _ = features.shape
    result = np.zeros(params["bias"].shape)
    for r in range(height):
      for c in range(width):
        if not kept[r, c]:
          continue
        near = [
          features[i, j]
          for i in range(max(0, r - reach), min(height, r + reach + 1))
          for j in range(max(0, c - reach), min(width, c + reach + 1))
          if kept[i, j]
        ]
        projected = sum(near) / len(near) @ params["kernel"] + params["bias"]
        raw = frozen[0] if stop and frozen else features
        result += math.sqrt(sum(raw[r, c] ** 2)) * projected
    return result / kept.sum() if reduction == "mean" else result

  if window > 1:
    return oracle
  # Without a window there is no layout: one row of tokens.
  return lambda features, params: oracle(
    features[None], params, np.ones((1, len(features)), bool)
  )


OTP = {"prototypes": drawn(3, 4), "inverse_temperature": 2.0}
TSMK = {"kernel": drawn(4, 3), "bias": drawn(3)}

CASES = {
  "otp": Case(call("otp"), otp(), OTP),
  "otp/gaussian": Case(
    call("otp", cost="gaussian", steps=3),
    otp(gaussian=True, steps=3),
    OTP | {"inverse_temperature": 4.0, "bandwidth": 1.5},
  ),
  "netvlad": Case(
    call("netvlad"),
    netvlad,
    {"centres": drawn(3, 4), "weights": drawn(3, 4), "biases": drawn(3)},
  ),
  "tsmk": Case(
    call("tsmk"), tsmk(3, stop=True), TSMK, layout=True, permutes=False, frozen=True
  ),
  "tsmk/tokens": Case(
    call("tsmk", window=1, stop_attention_gradient=False, reduction="sum"),
    tsmk(1, reduction="sum"),
    TSMK,
  ),
}
