"""Pair losses by loops over the rows.

A formula takes a matrix, the positive and negative columns of each row, and the
numbers; `frozen` is where its stopped gradients are evaluated.
"""

import math

import numpy as np

from tests.losses.cases._parts import lse, softplus


def rows_of(positives, negatives):
  """Number, positive and negative columns of each row."""
  return zip(range(len(positives)), positives, negatives, strict=True)


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
  pull = [list(m[i, row] - p["positive_margin"]) for i, row in enumerate(positives)]
  push = [list(p["negative_margin"] - m[i, row]) for i, row in enumerate(negatives)]
  if average == "nonzero":
    return averaged(pull) + averaged(push)
  terms = [a + b for a, b in zip(pull, push, strict=True)]
  return [sum(max(term, 0) for term in row) / m.shape[1] for row in terms]


signal_to_noise_contrastive = contrastive


def hadsell_contrastive(m, positives, negatives, p, frozen):
  return [
    sum(m[i, near] ** 2) / 2 + sum(np.maximum(p["margin"] - m[i, far], 0) ** 2) / 2
    for i, near, far in rows_of(positives, negatives)
  ]


def cosine_contrastive(m, positives, negatives, p, frozen):
  return [
    sum(np.maximum(1 - m[i, near], 0)) + sum(np.maximum(m[i, far] - p["margin"], 0))
    for i, near, far in rows_of(positives, negatives)
  ]


def threshold_consistent_margin(m, positives, negatives, p, frozen):
  pull = averaged([p["positive_margin"] - m[i, row] for i, row in enumerate(positives)])
  push = averaged([m[i, row] - p["negative_margin"] for i, row in enumerate(negatives)])
  return p["positive_weight"] * pull + p["negative_weight"] * push


def intra_pair_variance(m, positives, negatives, p, frozen):
  every_near = np.concatenate([m[i, row] for i, row in enumerate(positives)])
  every_far = np.concatenate([m[i, row] for i, row in enumerate(negatives)])
  values = np.zeros(len(m))
  for i, near, far in rows_of(positives, negatives):
    if near:
      short = (1 - p["positive_tolerance"]) * every_near.mean() - m[i, near]
      values[i] += len(m) * sum(np.maximum(short, 0) ** 2) / len(every_near)
    if far:
      over = m[i, far] - (1 + p["negative_tolerance"]) * every_far.mean()
      values[i] += len(m) * sum(np.maximum(over, 0) ** 2) / len(every_far)
  return values


def multi_similarity(m, positives, negatives, p, frozen):
  a, b, t = p["positive_scale"], p["negative_scale"], p["threshold"]
  return [
    softplus(lse(-a * (m[i, near] - t))) / a + softplus(lse(b * (m[i, far] - t))) / b
    for i, near, far in rows_of(positives, negatives)
  ]


def circle(m, positives, negatives, p, frozen):
  (m0, p0), margin, scale = frozen, p["margin"], p["scale"]
  values = []
  for i, near, far in rows_of(positives, negatives):
    pull = np.maximum(1 + p0["margin"] - m0[i, near], 0) * (m[i, near] - (1 - margin))
    push = np.maximum(m0[i, far] + p0["margin"], 0) * (m[i, far] - margin)
    values.append(softplus(lse(-scale * pull) + lse(scale * push)))
  return values


def nca(m, positives, negatives, p, frozen, form="log"):
  values = np.zeros(len(m))
  for i, near, far in rows_of(positives, negatives):
    if near:
      logits = -p["scale"] * m[i]
      value = lse(logits[near + far]) - lse(logits[near])
      values[i] = value if form == "log" else 1 - math.exp(-value)
  return values


def generalized_lifted_structure(m, positives, negatives, p, frozen):
  above, below = p["positive_margin"], p["negative_margin"]
  return [
    max(lse(m[i, near] - above) + lse(below - m[i, far]), 0)
    for i, near, far in rows_of(positives, negatives)
  ]


def lifted_structure(m, positives, negatives, p, frozen, ends=2):
  near = [lse(p["margin"] - m[i, row]) for i, row in enumerate(negatives)]
  values = np.zeros(len(m))
  for i in range(len(m)):
    for j in positives[i]:
      joint = lse([near[i], near[j]][:ends])
      values[i] += max(joint + m[i, j], 0) ** 2 / 2 / ends
  return values


def margin(m, positives, negatives, p, frozen, form="pairs"):
  boundary = p.get("boundaries", [float(p["boundary"])] * len(m))
  alpha = p["margin"]
  parts = []
  for i, near, far in rows_of(positives, negatives):
    pull = list(m[i, near] - boundary[i] + alpha)
    push = list(boundary[i] - m[i, far] + alpha)
    if form == "triplets":
      pull, push = pull * len(far), push * len(near)
    parts.append(pull + push)
  used = [bool(terms) for terms in parts]
  share = p["boundary_weight"] * len(m) / max(sum(used), 1)
  return averaged(parts) + share * np.array(used) * np.array(boundary)


def n_pair(m, positives, negatives, p, frozen):
  """N-pair loss of chosen pairs: the first positive of a row."""
  values = np.zeros(len(m))
  for i, near, far in rows_of(positives, negatives):
    if near:
      values[i] = softplus(lse(m[i, far] - m[i, near[0]]))
  return values


def dynamic_soft_margin(m, positives, negatives, p, frozen, ends=2):
  def leads(m):
    result = [None] * len(m)
    for i, near, far in rows_of(positives, negatives):
      if near and far:
        hardest = near[np.argmax(m[i, near])]  # the first under ties
        ends_of_pair = (i, hardest)[:ends]
        nearest = min(m[a, negatives[a]].min(initial=math.inf) for a in ends_of_pair)
        result[i] = m[i, hardest] - nearest
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
