"""Attention from covariances, by loops."""

import functools

import numpy as np

from spherejax import pooling
from tests.pooling.cases._frame import HEIGHT, POSITIONS, WIDTH, Case
from tests.pooling.cases._parts import relu, sigmoid

CHANNELS, REDUCED, HIDDEN = 4, 3, 2


def branch(rows, gates, seed):
  """Parameters of one branch; `rows` of its covariance."""
  draw = np.random.default_rng(seed).normal
  shapes = (
    (CHANNELS, REDUCED), (REDUCED,), (rows, rows, HIDDEN), (rows, HIDDEN),
    (rows * HIDDEN, gates), (gates,),
  )  # fmt: skip
  names = pooling.GSoPBranch._fields
  params = {n: draw(size=s) for n, s in zip(names, shapes, strict=True)}
  # Positive, so that a masked position would show behind the relu.
  return params | {"reduce_bias": abs(params["reduce_bias"])}


def reduced(features, p):
  return [relu(relu(f) @ p["reduce_kernel"] + p["reduce_bias"]) for f in features]


def covariance(vectors, centred):
  """Covariance of the entries of the vectors, over the vectors."""
  n, width = len(vectors), len(vectors[0])
  mean = sum(vectors) / n if centred else np.zeros(width)
  return sum(np.outer(v - mean, v - mean) for v in vectors) / (n if centred else n**2)


def channel_gates(features, p, centred):
  rows = covariance(reduced(features, p), centred)
  hidden = [row @ kernel for row, kernel in zip(rows, p["row_kernel"], strict=True)]
  return sigmoid(np.ravel(hidden + p["row_bias"]) @ p["out_kernel"] + p["out_bias"])


def bins(length, number):
  """First and last place of each of `number` intervals over `length` places."""
  return [(i * length // number, -(-(i + 1) * length // number)) for i in range(number)]


def spatial_gates(features, kept, p, centred, size, shift):
  """Gate of each position of a map, [h, w]."""
  height, width, _ = features.shape
  y = np.array(reduced(features.reshape(-1, CHANNELS), p)).reshape(height, width, -1)
  there = {(r, c): [y[r, c]] for r in range(height) for c in range(width) if kept[r, c]}
  grid = (height, width)
  if size:
    grid, there = (size, size), {}
    for r, (top, bottom) in enumerate(bins(height, size)):
      for c, (left, right) in enumerate(bins(width, size)):
        inside = [
          y[i, j] for i in range(top, bottom) for j in range(left, right) if kept[i, j]
        ]
        if inside:
          there[r, c] = inside
  cells = {r * grid[1] + c: sum(v) / len(v) for (r, c), v in there.items()}
  # Positions are the variables, channels the examples; masked ones are no variables.
  numbers = sorted(cells)
  rows = covariance(list(np.array([cells[i] for i in numbers]).T), centred) + shift
  hidden = np.zeros((grid[0] * grid[1], HIDDEN))
  for row, i in zip(rows, numbers, strict=True):
    kernel = p["row_kernel"][i]
    total = sum(value * kernel[j] for value, j in zip(row, numbers, strict=True))
    hidden[i] = relu(total + p["row_bias"][i])
  gates = sigmoid(hidden.ravel() @ p["out_kernel"] + p["out_bias"]).reshape(grid)
  if not size:
    return gates
  result = np.zeros((height, width))
  for r, (top, bottom) in enumerate(bins(size, height)):
    for c, (left, right) in enumerate(bins(size, width)):
      result[r, c] = gates[top:bottom, left:right].mean()
  return result


def split(params):
  """Parameters of the branches by name, from "channel.reduce_bias" and so on."""
  result = {}
  for name, value in params.items():
    of, field = name.split(".")
    result.setdefault(of, {})[field] = value
  return result


def call(features, params, where, **options):
  of = {name: pooling.GSoPBranch(**fields) for name, fields in split(params).items()}
  return pooling.gsop(
    features, of.get("channel"), of.get("spatial"), where=where, **options
  )


def oracle(
  features, params, kept=None, fuse=np.maximum, centred=True, size=None, shift=0
):
  of = split(params)
  kept = np.ones(len(features), bool) if kept is None else kept
  branches = []
  if "channel" in of:
    gates = channel_gates(features[kept], of["channel"], centred)
    branches.append(features[kept] * gates)
  if "spatial" in of:
    gates = spatial_gates(features, kept, of["spatial"], centred, size, shift)
    branches.append(relu(features * gates[..., None])[kept])
  gated = functools.reduce(fuse, branches)
  return sum(gated) / len(gated)


CHANNEL = branch(REDUCED, CHANNELS, 1)
SPATIAL = branch(POSITIONS, POSITIONS, 2)
CELLS = branch(4, 4, 3)
MAP = {"layout": True, "permutes": False}


def case(of_call=None, of_oracle=None, contract=MAP, **branches):
  """The branches by name, and options of the call and of the oracle."""
  pool = functools.partial(call, **of_call or {})
  right = functools.partial(oracle, **of_oracle or {})
  params = {f"{of}.{k}": v for of, p in branches.items() for k, v in p.items()}
  return Case(pool, right, params, channels=CHANNELS, **contract)


def shifted(place, x, mask):
  """A normalisation that leaves no zeros, so that masked entries would show."""
  del mask
  return x + 0.5 if place == "spatial_rows" else x


RELEASED = {"centred": False, "fuse": "sum"}, {"centred": False, "fuse": np.add}
CASES = {
  "gsop": case(channel=CHANNEL, spatial=SPATIAL),
  "gsop/released": case(*RELEASED, channel=CHANNEL, spatial=SPATIAL),
  "gsop/cells": case({"size": 2}, {"size": 2}, spatial=CELLS),
  "gsop/shifted": case({"normalize": shifted}, {"shift": 0.5}, spatial=SPATIAL),
  "gsop/channel": case(contract={}, channel=CHANNEL),
}
assert (HEIGHT, WIDTH) == (2, 3)  # so that `cells` overlap in one direction only
