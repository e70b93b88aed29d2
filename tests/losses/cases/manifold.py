"""Random walks between embeddings and proxies."""

import math

import numpy as np

from tests.losses.cases._frame import CLASSES, Case
from tests.losses.cases._parts import call, dot, matrix_of


def ends_of_walks(points, persistence, temperature):
  """By the sum over the lengths of walks, not by an inverse."""
  none = np.eye(len(points))
  similar = np.exp(np.maximum(matrix_of(dot, points, points), 0) / temperature)
  similar *= 1 - none
  degrees = np.sqrt(similar.sum(axis=1))
  graph = similar / np.outer(degrees, degrees)
  total, walk = 0, none
  for length in range(1 + int(math.log(1e-18) / math.log(persistence))):
    total += (1 - persistence) * persistence**length * walk
    walk = walk @ graph
  return total


def excess(scores, own, margin):
  terms = [s - scores[own] + margin for k, s in enumerate(scores) if k != own]
  return math.log(1 + sum(math.exp(t) for t in terms if t >= 0))


def oracle(rows, labels, params):
  x, proxies = rows["embeddings"], params["proxies"]
  points = np.concatenate([x, proxies])
  walks = ends_of_walks(points, params["persistence"], params["temperature"])
  contexts, values = matrix_of(dot, walks[: len(x)], walks[len(x) :]), []
  for walk, context, y in zip(walks[: len(x)], contexts, labels, strict=True):
    intrinsic = excess(walk[len(x) :], y, params["margin"])
    extrinsic = excess(context, y, params["margin"])
    values.append(intrinsic + params["context_weight"] * extrinsic)
  return values


CASES = {
  "manifold": Case(
    call("manifold"),
    oracle,
    params={
      "proxies": np.random.default_rng(8).normal(size=(CLASSES, 4)),
      "persistence": 0.7,
      "temperature": 0.6,
      "margin": 5.6e-3,
      "context_weight": 0.5,
    },
    devices=True,
    sharp={"temperature": 0.005},
    step=3e-5,
  )
}
