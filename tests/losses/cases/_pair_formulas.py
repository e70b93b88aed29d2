"""Pair losses by loops over the pairs.

A formula takes a matrix, the positive and negative columns of each row, and the
numbers; `frozen` is where its stopped gradients are evaluated.
"""

import math

import numpy as np

from tests.losses.cases._parts import lse, softplus


def averaged(parts):
  """Sums over the number of positive terms, times the number of rows."""
  count = sum(term > 0 for terms in parts for term in terms)
  return np.array(
    [
      len(parts) * sum(max(term, 0) for term in terms) / count if count else 0.0
      for terms in parts
    ]
  )


def contrastive(m, positives, negatives, p, frozen, average="nonzero"):
  near, far = p["positive_margin"], p["negative_margin"]
  pull = [[m[i, j] - near for j in row] for i, row in enumerate(positives)]
  push = [[far - m[i, j] for j in row] for i, row in enumerate(negatives)]
  if average == "nonzero":
    return averaged(pull) + averaged(push)
  return np.array(
    [
      sum(max(term, 0) for term in a + b) / m.shape[1]
      for a, b in zip(pull, push, strict=True)
    ]
  )


signal_to_noise_contrastive = contrastive


def hadsell_contrastive(m, positives, negatives, p, frozen):
  return [
    sum(m[i, j] ** 2 / 2 for j in positives[i])
    + sum(max(p["margin"] - m[i, j], 0) ** 2 / 2 for j in negatives[i])
    for i in range(len(m))
  ]


def cosine_contrastive(m, positives, negatives, p, frozen):
  return [
    sum(max(1 - m[i, j], 0) for j in positives[i])
    + sum(max(m[i, j] - p["margin"], 0) for j in negatives[i])
    for i in range(len(m))
  ]


def threshold_consistent_margin(m, positives, negatives, p, frozen):
  high, low = p["positive_margin"], p["negative_margin"]
  pull = averaged([[high - m[i, j] for j in row] for i, row in enumerate(positives)])
  push = averaged([[m[i, j] - low for j in row] for i, row in enumerate(negatives)])
  return p["positive_weight"] * pull + p["negative_weight"] * push


def intra_pair_variance(m, positives, negatives, p, frozen):
  near = [m[i, j] for i, row in enumerate(positives) for j in row]
  far = [m[i, j] for i, row in enumerate(negatives) for j in row]
  values = np.zeros(len(m))
  for i in range(len(m)):
    for j in positives[i]:
      short = (1 - p["positive_tolerance"]) * np.mean(near) - m[i, j]
      values[i] += len(m) * max(short, 0) ** 2 / len(near)
    for j in negatives[i]:
      over = m[i, j] - (1 + p["negative_tolerance"]) * np.mean(far)
      values[i] += len(m) * max(over, 0) ** 2 / len(far)
  return values


def multi_similarity(m, positives, negatives, p, frozen):
  a, b, t = p["positive_scale"], p["negative_scale"], p["threshold"]
  return [
    softplus(lse([-a * (m[i, j] - t) for j in positives[i]])) / a
    + softplus(lse([b * (m[i, j] - t) for j in negatives[i]])) / b
    for i in range(len(m))
  ]


def circle(m, positives, negatives, p, frozen):
  (m0, p0), margin, scale = frozen, p["margin"], p["scale"]
  values = []
  for i in range(len(m)):
    pull = lse(
      [
        -scale * max(1 + p0["margin"] - m0[i, j], 0) * (m[i, j] - (1 - margin))
        for j in positives[i]
      ]
    )
    push = lse(
      [
        scale * max(m0[i, j] + p0["margin"], 0) * (m[i, j] - margin)
        for j in negatives[i]
      ]
    )
    values.append(softplus(pull + push))
  return values


def nca(m, positives, negatives, p, frozen, form="log"):
  values = []
  for i in range(len(m)):
    own = lse([-p["scale"] * m[i, j] for j in positives[i]])
    every = lse([-p["scale"] * m[i, j] for j in positives[i] + negatives[i]])
    if not positives[i]:
      values.append(0.0)
    else:
      values.append(every - own if form == "log" else 1 - math.exp(own - every))
  return values


def generalized_lifted_structure(m, positives, negatives, p, frozen):
  near, far = p["positive_margin"], p["negative_margin"]
  return [
    max(
      lse([m[i, j] - near for j in positives[i]])
      + lse([far - m[i, j] for j in negatives[i]]),
      0,
    )
    for i in range(len(m))
  ]


def lifted_structure(m, positives, negatives, p, frozen, ends=2):
  near = [lse([p["margin"] - m[i, k] for k in row]) for i, row in enumerate(negatives)]
  values = np.zeros(len(m))
  for i in range(len(m)):
    for j in positives[i]:
      joint = lse([near[i], near[j]][:ends])
      values[i] += max(joint + m[i, j], 0) ** 2 / 2 / ends
  return values


def margin(m, positives, negatives, p, frozen, form="pairs"):
  boundary = p.get("boundaries", [float(p["boundary"])] * len(m))
  alpha = p["margin"]
  parts, used = [], []
  for i in range(len(m)):
    pull = [m[i, j] - boundary[i] + alpha for j in positives[i]]
    push = [boundary[i] - m[i, j] + alpha for j in negatives[i]]
    if form == "triplets":
      pull, push = pull * len(negatives[i]), push * len(positives[i])
    parts.append(pull + push)
    used.append(bool(pull + push))
  share = p["boundary_weight"] * len(m) / max(sum(used), 1)
  return averaged(parts) + share * np.array(used) * np.array(boundary)


def n_pair(m, positives, negatives, p, frozen):
  """N-pair loss of chosen pairs: the first positive of a row."""
  values = np.zeros(len(m))
  for i in range(len(m)):
    if positives[i]:
      own = m[i, positives[i][0]]
      values[i] = softplus(lse([m[i, k] - own for k in negatives[i]]))
  return values


def dynamic_soft_margin(m, positives, negatives, p, frozen, ends=2):
  def leads(m):
    result = []
    for i in range(len(m)):
      if positives[i] and negatives[i]:
        far = max(positives[i], key=lambda j: m[i, j])  # the first one under ties
        near = [m[i, k] for k in negatives[i]]
        if ends == 2:
          near += [m[far, k] for k in negatives[far]]
        result.append(m[i, far] - min(near))
      else:
        result.append(None)
    return result

  m0, p0 = frozen
  history = np.asarray(p0["histogram"], float)
  bins, counts, weights = len(history), np.zeros(len(history)), []
  step = 4 / (bins - 1)
  for lead in leads(m0):
    if lead is not None:
      index = min(int((lead + 2) // step), bins - 2)
      share = (lead + 2) / step - index
      counts[index] += 1 - share
      counts[index + 1] += share
  if counts.sum() > 0:
    old = history / history.sum()
    history = (1 - p0["momentum"]) * old + p0["momentum"] * counts / counts.sum()
  for lead in leads(m0):
    index = 0 if lead is None else int((lead + 2) // step)
    weights.append(history[: index + 1].sum())
  return [
    0.0 if lead is None else weight * lead
    for weight, lead in zip(weights, leads(m), strict=True)
  ]
