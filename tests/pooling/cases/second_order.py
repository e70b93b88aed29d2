"""Attention from covariances, in NumPy."""

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
  return relu(relu(features) @ p["reduce_kernel"] + p["reduce_bias"])


def covariance(vectors, centred):
  """Covariance of the entries of the vectors, over the vectors."""
  n, x = len(vectors), vectors - centred * vectors.mean(axis=0)
  return x.T @ x / (n if centred else n**2)


def channel_gates(features, p, centred):
  rows = covariance(reduced(features, p), centred)
  hidden = np.einsum("ij,ijk->ik", rows, p["row_kernel"]) + p["row_bias"]
  return sigmoid(hidden.ravel() @ p["out_kernel"] + p["out_bias"])


def bins(length, number):
  """Shares of `length` places in averages over intervals, [number, length]."""
  i, place = np.arange(number)[:, None], np.arange(length)
  inside = (place >= i * length // number) & (place < -(-(i + 1) * length // number))
  return inside / inside.sum(axis=1, keepdims=True)


def spatial_gates(features, kept, p, centred, size, shift):
  """Gate of each position of a map, [h, w]."""
  (height, width), grid = kept.shape, (size, size) if size else kept.shape
  shares = np.kron(bins(height, grid[0]), bins(width, grid[1])) * kept.ravel()
  there = shares.any(axis=1)
  shares = shares[there] / shares[there].sum(axis=1, keepdims=True)
  # Positions are the variables, channels the examples; masked ones are no variables.
  cells = shares @ reduced(features.reshape(-1, CHANNELS), p)
  rows = covariance(cells.T, centred) + shift
  hidden = np.zeros((len(there), HIDDEN))
  hidden[there] = np.einsum("ij,ijk->ik", rows, p["row_kernel"][there][:, there])
  hidden[there] = relu(hidden[there] + p["row_bias"][there])
  gates = sigmoid(hidden.ravel() @ p["out_kernel"] + p["out_bias"]).reshape(grid)
  return bins(grid[0], height) @ gates @ bins(grid[1], width).T


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
  return functools.reduce(fuse, branches).mean(axis=0)


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
