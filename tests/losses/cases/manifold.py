"""Random walks between embeddings and proxies."""

import math

import numpy as np

from spherejax import losses
from tests.losses.cases._frame import CLASSES, Case


def call(rows, labels, params, where, **options):
  return losses.manifold(rows["embeddings"], labels, where=where, **params, **options)


def cosine(x, y):
  lengths = math.sqrt(x @ x) * math.sqrt(y @ y)
  return x @ y / lengths if lengths else 0.0


def ends_of_walks(points, persistence, temperature):
  """By the sum over the lengths of walks, not by an inverse."""
  n = len(points)
  similar = np.array(
    [
      [math.exp(max(cosine(x, y), 0) / temperature) * (i != j)
       for j, y in enumerate(points)]
      for i, x in enumerate(points)
    ]
  )  # fmt: skip
  degrees = [math.sqrt(sum(row)) for row in similar]
  graph = similar / np.outer(degrees, degrees)
  total, walk = np.zeros((n, n)), np.eye(n)
  for length in range(1 + int(math.log(1e-18) / math.log(persistence))):
    total += (1 - persistence) * persistence**length * walk
    walk = walk @ graph
  return total


def excess(scores, own, margin):
  terms = [s - scores[own] + margin for k, s in enumerate(scores) if k != own]
  return math.log(1 + sum(math.exp(t) for t in terms if t >= 0))


def oracle(rows, labels, params):
  x, proxies = rows["embeddings"], params["proxies"]
  walks = ends_of_walks([*x, *proxies], params["persistence"], params["temperature"])
  values, n = [], len(x)
  for i, y in enumerate(labels):
    context = [cosine(walks[i], walks[n + k]) for k in range(len(proxies))]
    intrinsic = excess(walks[i, n:], y, params["margin"])
    values.append(
      intrinsic + params["context_weight"] * excess(context, y, params["margin"])
    )
  return np.array(values)


CASES = {
  "manifold": Case(
    call,
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
