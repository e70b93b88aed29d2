"""Poolings whose weights are learned, by loops."""

import numpy as np

from spherejax import pooling
from tests.pooling.cases._frame import Case
from tests.pooling.cases._parts import call, mean, relu, sigmoid


def normal(seed, *shape, scale=0.7):
  return scale * np.random.default_rng(seed).normal(size=shape)


def product(row, matrix):
  """Row times matrix, a sum for each column."""
  return np.array([sum(row * column) for column in matrix.T])


def cbam(features, params, kept):
  size = params["spatial_kernel"].shape[0]
  half = (size - 1) // 2
  at = [(int(r), int(c)) for r, c in zip(*np.nonzero(kept), strict=True)]

  def perceptron(u):
    inner = relu(product(u, params["reduce_kernel"]) + params.get("reduce_bias", 0))
    return product(inner, params["expand_kernel"]) + params.get("expand_bias", 0)

  x = [features[p] for p in at]
  of_channels = sigmoid(perceptron(mean(x)) + perceptron(np.max(x, axis=0)))
  y = {p: of_channels * features[p] for p in at}
  pooled = 0
  for row, column in at:
    total = 0
    for dr in range(size):
      for dc in range(size):
        other = row + dr - half, column + dc - half
        if other in y:
          weights = params["spatial_kernel"][dr, dc]
          total += weights[0] * mean(y[other]) + weights[1] * max(y[other])
    total = params.get("scale", 1) * total + params.get("shift", 0)
    pooled = pooled + sigmoid(total) * y[row, column]
  return pooled / len(at)


def call_cbam(features, params, where):
  params = dict(params)
  normalize = None
  if "scale" in params:
    scale, shift = params.pop("scale"), params.pop("shift")
    normalize = lambda place, x, kept: scale * x + shift  # noqa: E731
  return pooling.cbam(features, **params, normalize=normalize, where=where)


def delf(features, params):
  pooled = 0
  for x in features:
    hidden = relu(product(x, params["hidden_kernel"]) + params["hidden_bias"])
    score = sum(params["score_kernel"] * hidden) + params["score_bias"]
    pooled = pooled + np.log(1 + np.exp(score)) * x
  return pooled


def solar(features, params):
  inner = params["query_kernel"].shape[1]

  def projected(x, name):
    u = product(x, params[f"{name}_kernel"])
    return relu(params[f"{name}_scale"] * u + params[f"{name}_shift"])

  attended = []
  for x in features:
    query = projected(x, "query")
    logits = [sum(query * projected(other, "key")) / inner**0.5 for other in features]
    weights = np.exp(logits) / sum(np.exp(logits))
    value = sum(
      weight * product(other, params["value_kernel"])
      for weight, other in zip(weights, features, strict=True)
    )
    attended.append(x + product(value, params["output_kernel"]))
  return mean(np.maximum(attended, 1e-6) ** params["power"]) ** (1 / params["power"])


def call_solar(features, params, where):
  kernels = {k: v for k, v in params.items() if k.endswith("kernel")}

  def normalize(place, x, kept):
    name = {"queries": "query", "keys": "key"}[place]
    return params[f"{name}_scale"][None, None] * x + params[f"{name}_shift"][None, None]

  return pooling.solar(
    features, **kernels, power=params["power"], normalize=normalize, where=where
  )


DELF = {
  "hidden_kernel": normal(1, 4, 3),
  "hidden_bias": normal(2, 3),
  "score_kernel": normal(3, 3),
  "score_bias": 0.3,
}
CASES = {
  "cbam": Case(
    call_cbam,
    cbam,
    {
      "reduce_kernel": normal(1, 4, 2),
      "reduce_bias": normal(2, 2),
      "expand_kernel": normal(3, 2, 4),
      "expand_bias": normal(4, 4),
      "spatial_kernel": normal(5, 3, 3, 2),
      "scale": 1.3,
      "shift": -0.2,
    },
    layout=True,
    permutes=False,
  ),
  # DML's form on tokens: the perceptron does not reduce, no biases.
  "cbam/positions": Case(
    call_cbam,
    lambda features, params: cbam(
      features[None], params, np.ones((1, len(features)), bool)
    ),
    {
      "reduce_kernel": normal(1, 4, 4),
      "expand_kernel": normal(3, 4, 4),
      "spatial_kernel": normal(5, 1, 1, 2),
    },
  ),
  "delf": Case(call("delf"), delf, DELF),
  "delf/mean": Case(
    call("delf", reduction="mean"),
    lambda features, params: delf(features, params) / len(features),
    DELF,
  ),
  "solar": Case(
    call_solar,
    solar,
    {
      "query_kernel": normal(1, 3, 2),
      "query_scale": 1 + normal(2, 2),
      "query_shift": normal(3, 2),
      "key_kernel": normal(4, 3, 2),
      "key_scale": 1 + normal(5, 2),
      "key_shift": normal(6, 2),
      "value_kernel": normal(7, 3, 2),
      "output_kernel": normal(8, 2, 3),
      "power": 3.0,
    },
    channels=3,
  ),
}
