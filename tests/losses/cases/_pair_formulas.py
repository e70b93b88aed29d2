"""Pair losses of a matrix, in NumPy.

A formula takes a matrix, the masks of the positive and the negative columns of each
row, and the numbers; `frozen` is where its stopped gradients are evaluated.
"""

import numpy as np

from tests.losses.cases._parts import lse, softplus


def active(terms, among):
  """The positive ones of the terms of some pairs; 0 elsewhere."""
  return np.where(among, np.maximum(terms, 0), 0)


def averaged(terms):
  """Sums over the number of positive terms, times the number of rows."""
  return len(terms) * terms.sum(1) / max((terms > 0).sum(), 1)


def contrastive(m, near, far, p, frozen, average="nonzero"):
  pull = active(m - p["positive_margin"], near)
  push = active(p["negative_margin"] - m, far)
  if average == "nonzero":
    return averaged(pull) + averaged(push)
  return (pull + push).mean(1)


signal_to_noise_contrastive = contrastive


def hadsell_contrastive(m, near, far, p, frozen):
  return (near * m**2 + active(p["margin"] - m, far) ** 2).sum(1) / 2


def cosine_contrastive(m, near, far, p, frozen):
  return (active(1 - m, near) + active(m - p["margin"], far)).sum(1)


def threshold_consistent_margin(m, near, far, p, frozen):
  pull = averaged(active(p["positive_margin"] - m, near))
  push = averaged(active(m - p["negative_margin"], far))
  return p["positive_weight"] * pull + p["negative_weight"] * push


def intra_pair_variance(m, near, far, p, frozen):
  values = np.zeros(len(m))
  if near.any():
    short = (1 - p["positive_tolerance"]) * m[near].mean() - m
    values += len(m) * (active(short, near) ** 2).sum(1) / near.sum()
  if far.any():
    over = m - (1 + p["negative_tolerance"]) * m[far].mean()
    values += len(m) * (active(over, far) ** 2).sum(1) / far.sum()
  return values


def multi_similarity(m, near, far, p, frozen):
  a, b, t = p["positive_scale"], p["negative_scale"], p["threshold"]
  return softplus(lse(-a * (m - t), near)) / a + softplus(lse(b * (m - t), far)) / b


def circle(m, near, far, p, frozen):
  (m0, p0), margin, scale = frozen, p["margin"], p["scale"]
  pull = np.maximum(1 + p0["margin"] - m0, 0) * (m - (1 - margin))
  push = np.maximum(m0 + p0["margin"], 0) * (m - margin)
  return softplus(lse(-scale * pull, near) + lse(scale * push, far))


def nca(m, near, far, p, frozen, form="log"):
  logits = -p["scale"] * m
  values = lse(logits, near | far) - lse(logits, near)
  return np.where(near.any(1), values if form == "log" else 1 - np.exp(-values), 0)


def generalized_lifted_structure(m, near, far, p, frozen):
  pull, push = lse(m - p["positive_margin"], near), lse(p["negative_margin"] - m, far)
  return np.maximum(pull + push, 0)


def lifted_structure(m, near, far, p, frozen, ends=2):
  closest = lse(p["margin"] - m, far)
  joint = closest[:, None] if ends == 1 else np.logaddexp.outer(closest, closest)
  return (active(joint + m, near) ** 2).sum(1) / 2 / ends


def margin(m, near, far, p, frozen, form="pairs"):
  boundary = np.broadcast_to(p.get("boundaries", p["boundary"]), len(m))
  terms = np.where(near, 1, -1) * (m - boundary[:, None]) + p["margin"]
  copies = near + far
  if form == "triplets":  # each positive with each negative
    copies = near * far.sum(1, keepdims=True) + far * near.sum(1, keepdims=True)
  terms, used = copies * active(terms, copies > 0), copies.any(1)
  values = len(m) * terms.sum(1) / max(copies[terms > 0].sum(), 1)
  share = p["boundary_weight"] * len(m) / max(used.sum(), 1)
  return values + share * used * boundary


def n_pair(m, near, far, p, frozen):
  """N-pair loss of chosen pairs: the first positive of a row."""
  positive = m[np.arange(len(m)), near.argmax(1)]
  return near.any(1) * softplus(lse(m - positive[:, None], far))


def dynamic_soft_margin(m, near, far, p, frozen, ends=2):
  used = near.any(1) & far.any(1)

  def leads(m):
    hardest = np.where(near, m, -np.inf).argmax(1)  # the first under ties
    nearest = np.where(far, m, np.inf).min(1)
    if ends == 2:
      nearest = np.minimum(nearest, nearest[hardest])
    return (m[np.arange(len(m)), hardest] - nearest)[used]

  m0, p0 = frozen
  history, places = np.asarray(p0["histogram"], float), leads(m0) + 2
  bins, counts = len(history), np.zeros(len(history))
  step = 4 / (bins - 1)
  below = (places // step).astype(int)
  index = np.minimum(below, bins - 2)
  share = places / step - index
  np.add.at(counts, index, 1 - share)
  np.add.at(counts, index + 1, share)
  if counts.sum() > 0:
    old = history / history.sum()
    history = (1 - p0["momentum"]) * old + p0["momentum"] * counts / counts.sum()
  values = np.zeros(len(m))
  values[used] = leads(m) * [history[: k + 1].sum() for k in below]
  return values
