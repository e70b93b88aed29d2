"""Triplet loss: every mining, hinge and softplus, label and matrix form."""

import math

import jax.numpy as jnp
import numpy as np

from spherejax import losses
from tests.losses.cases._frame import LABELS, Case


def project(row, normalize):
  length = math.sqrt(sum(entry * entry for entry in row))
  if normalize == "l2":
    return row / length if length > 0 else row
  return row / max(length, 1.0) if normalize == "unit_ball" else row


def distances(x, normalize="l2", squared=False):
  z = [project(row, normalize) for row in x]
  n = len(x)
  d = np.zeros((n, n))
  for i, j in np.ndindex(n, n):
    square = (z[i] - z[j]) @ (z[i] - z[j])
    d[i, j] = square if squared else math.sqrt(square)
  return d


def positives_and_negatives(labels):
  n = len(labels)
  near = [[j for j in range(n) if j != i and labels[j] == labels[i]] for i in range(n)]
  far = [[j for j in range(n) if labels[j] != labels[i]] for i in range(n)]
  return near, far


def mined(d, near, far, m, mining, fallback):
  """The triplets (p, q) of one anchor with distances `d`."""
  if mining == "batch_hard":
    if not (near and far):
      return []
    return [(max(near, key=lambda j: d[j]), min(far, key=lambda j: d[j]))]
  if mining == "semihard_one":
    chosen = []
    for p in near:
      farther = [q for q in far if d[q] > d[p]]
      if farther:
        chosen.append((p, min(farther, key=lambda j: d[j])))
      elif far and fallback == "easiest":
        chosen.append((p, max(far, key=lambda j: d[j])))
    return chosen
  every = [(p, q) for p in near for q in far]
  if mining == "all":
    return every
  violating = [(p, q) for p, q in every if d[q] - d[p] <= m]
  if mining == "violating":
    return violating
  if mining == "hard":
    return [(p, q) for p, q in violating if d[q] <= d[p]]
  return [(p, q) for p, q in violating if d[q] > d[p]]


def values(d, near, far, m, mining, fallback, soft, average):
  sums, count = np.zeros(len(d)), 0
  for a in range(len(d)):
    for p, q in mined(d[a], near[a], far[a], m, mining, fallback):
      term = d[a, p] - d[a, q] + m
      sums[a] += np.logaddexp(0, term) if soft else max(0, term)
      if soft or average == "all" or term > 0:
        count += 1
  return len(d) * sums / count if count else sums


def label_case(
  mining="all",
  fallback="skip",
  soft=False,
  average="nonzero",
  squared=False,
  normalize="l2",
):
  static = {"mining": mining, "fallback": fallback, "soft": soft, "average": average}

  def loss(rows, labels, params, **options):
    return losses.triplet(
      rows["embeddings"],
      labels,
      margin=params["margin"],
      squared=squared,
      normalize=normalize,
      **static,
      **options,
    )

  def oracle(rows, labels, params):
    d = distances(rows["embeddings"], normalize, squared)
    return values(d, *positives_and_negatives(labels), params["margin"], **static)

  return Case(loss, oracle, params={"margin": 0.37}, blocks=True, devices=True)


def matrix_case(**static):
  static = {
    "mining": "all",
    "fallback": "skip",
    "soft": False,
    "average": "nonzero",
  } | static

  def loss(rows, labels, params, **options):
    same = labels[:, None] == jnp.asarray(LABELS)[None]
    return losses.triplet_from_distance(
      rows["distances"], same, ~same, margin=params["margin"], **static, **options
    )

  def oracle(rows, labels, params):
    d = rows["distances"]
    near = [[j for j in range(10) if LABELS[j] == y] for y in labels]
    far = [[j for j in range(10) if LABELS[j] != y] for y in labels]
    return values(d, near, far, params["margin"], **static)

  return Case(
    loss,
    oracle,
    rows={"distances": ("distance", 10)},
    params={"margin": 0.37},
    devices=True,
  )


# Mining compares distances: "none" makes those to zero rows equal in every arithmetic.
CASES = {
  "triplet": label_case(),
  "triplet/squared": label_case(squared=True, average="all", normalize="unit_ball"),
  "triplet/soft": label_case(soft=True),
  "triplet/violating": label_case("violating", soft=True, normalize="none"),
  "triplet/hard": label_case("hard", normalize="none"),
  "triplet/semihard": label_case("semihard", average="all", normalize="none"),
  "triplet/semihard_one": label_case("semihard_one", normalize="none"),
  "triplet/semihard_one/easiest": label_case(
    "semihard_one", "easiest", soft=True, normalize="none"
  ),
  "triplet/batch_hard": label_case("batch_hard", average="all"),
  "triplet/batch_hard/squared": label_case("batch_hard", squared=True),
  "triplet_from_distance": matrix_case()._replace(step=1e-4),
  "triplet_from_distance/batch_hard": matrix_case(mining="batch_hard", soft=True),
}
