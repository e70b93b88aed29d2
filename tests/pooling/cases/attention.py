"""Poolings whose weights are learned, in NumPy."""

import functools

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from spherejax import pooling
from tests.pooling.cases._frame import Case
from tests.pooling.cases._parts import call, mean, relu, sigmoid


def normal(seed, *shape, scale=0.7):
  return scale * np.random.default_rng(seed).normal(size=shape)


def cbam(features, params, kept):
  def perceptron(u):
    inner = relu(u @ params["reduce_kernel"] + params.get("reduce_bias", 0))
    return inner @ params["expand_kernel"] + params.get("expand_bias", 0)

  x, kernel = features[kept], params["spatial_kernel"]
  of_channels = sigmoid(perceptron(mean(x)) + perceptron(x.max(axis=0)))
  y = of_channels * np.where(kept[..., None], features, 0)
  maps, size = np.stack([y.mean(axis=-1), y.max(axis=-1)], axis=-1), len(kernel)
  maps = np.pad(maps, [(size // 2, size // 2)] * 2 + [(0, 0)])
  windows = sliding_window_view(maps, (size, size), (0, 1))
  total = np.einsum("hwmij,ijm->hw", windows, kernel)
  total = params.get("scale", 1) * total + params.get("shift", 0)
  return mean((sigmoid(total)[..., None] * y)[kept])


def cbam_of_tokens(features, params):
  return cbam(features[None], params, np.ones((1, len(features)), bool))


def call_cbam(features, params, where):
  params = dict(params)
  normalize = None
  if "scale" in params:
    scale, shift = params.pop("scale"), params.pop("shift")
    normalize = lambda place, x, kept: scale * x + shift  # noqa: E731
  return pooling.cbam(features, **params, normalize=normalize, where=where)


def delf(features, params, reduction=sum):
  hidden = relu(features @ params["hidden_kernel"] + params["hidden_bias"])
  scores = hidden @ params["score_kernel"] + params["score_bias"]
  return reduction(np.log(1 + np.exp(scores))[:, None] * features)


def solar(features, params):
  def projected(name):
    u = features @ params[f"{name}_kernel"]
    return relu(params[f"{name}_scale"] * u + params[f"{name}_shift"])

  queries, keys = projected("query"), projected("key")
  weights = special.softmax(queries @ keys.T / queries.shape[1] ** 0.5, axis=1)
  values = weights @ features @ params["value_kernel"]
  attended = features + values @ params["output_kernel"]
  return mean(np.maximum(attended, 1e-6) ** params["power"]) ** (1 / params["power"])


def call_solar(features, params, where):
  kernels = {k: v for k, v in params.items() if k.endswith("kernel")}

  def normalize(place, x, kept):
    name = {"queries": "query", "keys": "key"}[place]
    return params[f"{name}_scale"][None, None] * x + params[f"{name}_shift"][None, None]

  return pooling.solar(
    features, **kernels, power=params["power"], normalize=normalize, where=where
  )


CBAM = {
  "reduce_kernel": normal(1, 4, 2), "reduce_bias": normal(2, 2),
  "expand_kernel": normal(3, 2, 4), "expand_bias": normal(4, 4),
  "spatial_kernel": normal(5, 3, 3, 2), "scale": 1.3, "shift": -0.2,
}  # fmt: skip
# DML's form on tokens: the perceptron does not reduce, no biases.
POSITIONS = {
  "reduce_kernel": normal(1, 4, 4), "expand_kernel": normal(3, 4, 4),
  "spatial_kernel": normal(5, 1, 1, 2),
}  # fmt: skip
DELF = {
  "hidden_kernel": normal(1, 4, 3), "hidden_bias": normal(2, 3),
  "score_kernel": normal(3, 3), "score_bias": 0.3,
}  # fmt: skip
SOLAR = {
  "query_kernel": normal(1, 3, 2), "query_scale": 1 + normal(2, 2),
  "query_shift": normal(3, 2), "key_kernel": normal(4, 3, 2),
  "key_scale": 1 + normal(5, 2), "key_shift": normal(6, 2),
  "value_kernel": normal(7, 3, 2), "output_kernel": normal(8, 2, 3), "power": 3.0,
}  # fmt: skip
CASES = {
  "cbam": Case(call_cbam, cbam, CBAM, layout=True, permutes=False),
  "cbam/positions": Case(call_cbam, cbam_of_tokens, POSITIONS),
  "delf": Case(call("delf"), delf, DELF),
  "delf/mean": Case(
    call("delf", reduction="mean"), functools.partial(delf, reduction=mean), DELF
  ),
  "solar": Case(call_solar, solar, SOLAR, channels=3),
}
