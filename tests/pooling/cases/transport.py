"""Poolings by assignment to prototypes or centres, and by norms, in NumPy."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from tests.losses.cases._parts import distance, matrix_of
from tests.pooling.cases._frame import Case
from tests.pooling.cases._parts import call

RANDOM = np.random.default_rng(5)


def drawn(*shape):
  return RANDOM.normal(size=shape)


def otp(gaussian=False, steps=10):
  """The scaling vectors u and v of the paper, not their logarithms."""

  def oracle(features, params):
    prototypes, sharpness = params["prototypes"], params["inverse_temperature"]
    m, n = len(prototypes), len(features)
    if gaussian:
      gaps = matrix_of(distance, prototypes, features, "none")
      costs = -np.exp(-(gaps**2) / (2 * params["bandwidth"] ** 2))
    else:
      costs = matrix_of(distance, prototypes, features, "unit_ball")
    kernel = np.exp(-sharpness * costs)
    u = np.ones(m)
    for _ in range(steps):
      v = (1 / n) / (kernel.T @ u)
      u = (1 / m) / (kernel @ v)
    v = (1 / n) / (kernel.T @ u)
    plan = u[:, None] * kernel * v
    return (np.sqrt(m) * plan @ features).ravel()

  return oracle


def netvlad(features, params):
  shares = special.softmax(features @ params["weights"].T + params["biases"], axis=1)
  gaps = features[:, None] - params["centres"]
  blocks = (shares[..., None] * gaps).sum(axis=0)
  blocks /= np.linalg.norm(blocks, axis=1, keepdims=True)
  return blocks.ravel() / np.linalg.norm(blocks)


def tsmk(window, stop=False, reduction="mean"):
  reach = window // 2

  def oracle(features, params, kept, frozen=None):
    counted = np.dstack([np.where(kept[..., None], features, 0), kept])
    counted = np.pad(counted, [(reach, reach)] * 2 + [(0, 0)])
    near = sliding_window_view(counted, (window, window), (0, 1)).sum((3, 4))[kept]
    projected = near[:, :-1] / near[:, -1:] @ params["kernel"] + params["bias"]
    raw = frozen[0] if stop and frozen else features
    result = np.linalg.norm(raw[kept], axis=1) @ projected
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
