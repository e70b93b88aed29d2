"""Pair losses of a batch with itself, of mined pairs, and of a matrix."""

import numpy as np

from spherejax import losses
from tests.losses.cases import _pair_formulas as formulas
from tests.losses.cases._frame import CLASSES, Case
from tests.losses.cases._parts import call, distance, dot, matrix_of, pairs, squared
from tests.losses.slopes import values_of

CASES: dict[str, Case] = {}


def noise(x, y):
  """Variance of a difference over that of the first one."""
  signal = np.var(x, axis=-1)
  return np.where(signal > 1e-30, np.var(x - y, axis=-1) / np.maximum(signal, 1e-30), 0)


def of_batch(
  key, measure, params, *, normalize="l2", above=None, form=None, **contract
):
  """A loss of a batch with itself; of the pairs above a value where one is given."""
  name = key.split("/")[0]
  formula, static = getattr(formulas, name), form or {}

  def miner(matrix, positives, negatives):
    return positives & (matrix > above), negatives & (matrix > above)

  def loss(rows, labels, params, **options):
    options |= params | static | {"normalize": normalize}
    options |= {"miner": miner} if above is not None else {}
    return values_of(name, rows["embeddings"], labels, **options)

  def oracle(rows, labels, params, frozen=None):
    def matrix(rows):
      return matrix_of(measure, rows["embeddings"], rows["embeddings"], normalize)

    m, masks = matrix(rows), pairs(labels)
    masks = masks if above is None else miner(m, *masks)
    rows0, params0 = frozen or (rows, params)
    return formula(m, *masks, params, (matrix(rows0), params0), **static)

  CASES[key] = Case(loss, oracle, params=params, blocks=True, devices=True, **contract)


def of_matrix(key, kind, params, *, form=None, **contract):
  """A loss of a matrix of examples against one reference of each class."""
  name, static = key.split("/")[0], form or {}
  formula = getattr(formulas, name.split("_from_")[0])
  ends = {"ends": 1} if name.startswith(("lifted", "dynamic")) else {}

  def loss(rows, labels, params, **options):
    own = labels[:, None] == np.arange(CLASSES)[None]
    return values_of(name, rows["matrix"], own, ~own, **options, **params, **static)

  def oracle(rows, labels, params, frozen=None):
    rows0, params0 = frozen or (rows, params)
    at, masks = (rows0["matrix"], params0), pairs(labels, range(CLASSES))
    return formula(rows["matrix"], *masks, params, at, **static, **ends)

  rows = {"matrix": (kind, CLASSES)}
  CASES[key] = Case(loss, oracle, rows=rows, params=params, **contract)


def of_boundaries(key, params, parts=True, **static):
  """The margin loss of a batch, whose boundary has several parts."""

  def loss(rows, labels, params, **options):
    options |= params | static
    if parts:
      options["example_boundaries"] = rows["offsets"][:, 0] / 4
    return losses.margin(rows["embeddings"], labels, **options)

  def oracle(rows, labels, params):
    boundaries = np.full(len(labels), float(params["boundary"]))
    if parts:
      boundaries += params["class_boundaries"][labels] + rows["offsets"][:, 0] / 4
    m = matrix_of(distance, rows["embeddings"], rows["embeddings"])
    numbers = params | {"boundaries": boundaries}
    return formulas.margin(m, *pairs(labels), numbers, None, **static)

  rows = {"embeddings": ("embedding", 4)}
  if parts:
    rows["offsets"] = ("cosine", 1)
    by_class = 0.2 * np.random.default_rng(9).normal(size=CLASSES)
    params = params | {"class_boundaries": by_class}
  CASES[key] = Case(loss, oracle, rows, params, blocks=True, devices=True, step=1e-4)


def n_pair(matrix, chosen):
  """The loss of some rows, each with its column; the other columns are negatives."""
  near = np.zeros(matrix.shape, bool)
  for row, column in chosen.items():
    near[row, column] = True
  return formulas.n_pair(matrix, near, near.any(0) & ~near, None, None)


def n_pair_of_batch():
  """The pairs are chosen from the labels: first and second row of each class."""

  def oracle(rows, labels, params):
    members = {}
    for i, label in enumerate(labels):
      members.setdefault(label, []).append(i)
    chosen = dict(member[:2] for member in members.values() if len(member) > 1)
    m = matrix_of(dot, rows["embeddings"], rows["embeddings"], "none")
    values = n_pair(m, chosen)
    for a, p in chosen.items() if len(chosen) > 1 else ():  # a class alone has no loss
      values[a] += params["norm_weight"] * (m[a, a] + m[p, p]) / 4
    return values

  return Case(
    call("n_pair"), oracle, params={"norm_weight": 0.3}, blocks=True, devices=True,
    ordered=True,
  )  # fmt: skip


def n_pair_of_memory():
  """The positive of a class is the first reference of it."""
  memory = np.random.default_rng(8).normal(size=(7, 4))
  memory_labels = np.array([1, 0, 3, 3, 0, 8, 1], np.int32)

  def loss(rows, labels, params, **options):
    references = losses.References(params["memory"], memory_labels)
    options |= {"references": references, "normalize": "l2"}
    return losses.n_pair(rows["embeddings"], labels, **options)

  def oracle(rows, labels, params):
    chosen = {
      i: list(memory_labels).index(label)
      for i, label in enumerate(labels)
      if label not in labels[:i] and label in memory_labels
    }
    return n_pair(matrix_of(dot, rows["embeddings"], params["memory"]), chosen)

  return Case(
    loss, oracle, params={"memory": memory}, blocks=True, devices=True, ordered=True
  )


HINGES = {"positive_margin": 0.23, "negative_margin": 1.17}
COSINE = {"margin": 0.31}
HADSELL = {"margin": 1.3}
CONSISTENT = {"positive_margin": 0.83, "negative_margin": 0.12}
CONSISTENT |= {"positive_weight": 0.7, "negative_weight": 1.3}
TOLERANCES = {"positive_tolerance": 0.07, "negative_tolerance": 0.11}
MULTI = {"positive_scale": 2.3, "negative_scale": 11.0, "threshold": 0.43}
CIRCLE = {"margin": 0.31, "scale": 7.0}
NCA = {"scale": 1.7}
LIFTED = {"margin": 0.9}
GENERALIZED = {"positive_margin": 0.1, "negative_margin": 0.8}
MARGIN = {"boundary": 1.1, "margin": 0.17, "boundary_weight": 0.3}
HISTOGRAM = {"histogram": np.arange(1.0, 13.0) % 5, "momentum": 0.4}

ALL = {"average": "all"}
PROBABILITY = {"form": "probability"}
TRIPLETS = {"form": "triplets"}
SHARP = {"sharp": {"scale": 256.0}}
SHARP_NEGATIVES = {"sharp": {"negative_scale": 256.0}}

of_batch("contrastive", distance, HINGES)
of_batch("contrastive/all", distance, HINGES, normalize="unit_ball", form=ALL)
of_matrix("contrastive_from_distance", "distance", HINGES, devices=True)
of_matrix("contrastive_from_distance/all", "distance", HINGES, devices=True, form=ALL)
of_batch("cosine_contrastive", dot, COSINE)
of_matrix("cosine_contrastive_from_similarity", "cosine", COSINE, step=3e-5)
of_batch("hadsell_contrastive", distance, HADSELL)
of_matrix("hadsell_contrastive_from_distance", "distance", HADSELL)
of_batch("signal_to_noise_contrastive", noise, HINGES)
of_batch("threshold_consistent_margin", dot, CONSISTENT)
of_matrix(
  "threshold_consistent_margin_from_similarity", "cosine", CONSISTENT, devices=True
)
of_batch("intra_pair_variance", dot, TOLERANCES, step=1e-4)
of_matrix("intra_pair_variance_from_similarity", "cosine", TOLERANCES, devices=True)
of_batch("multi_similarity", dot, MULTI, **SHARP_NEGATIVES)
of_matrix("multi_similarity_from_similarity", "cosine", MULTI, **SHARP_NEGATIVES)
of_batch("circle", dot, CIRCLE, frozen=True, **SHARP)
of_matrix("circle_from_similarity", "cosine", CIRCLE, frozen=True, **SHARP)
of_batch("nca", squared, NCA, **SHARP)
of_batch("nca/probability", squared, NCA, form=PROBABILITY, **SHARP)
of_matrix("nca_from_distance", "distance", NCA)
of_batch("lifted_structure", distance, LIFTED)
of_batch("lifted_structure/mined", distance, LIFTED, normalize="none", above=1.2)
of_matrix("lifted_structure_from_distance", "distance", LIFTED)
of_batch("generalized_lifted_structure", distance, GENERALIZED)
of_matrix("generalized_lifted_structure_from_distance", "distance", GENERALIZED)
of_boundaries("margin", MARGIN)
of_boundaries("margin/triplets", MARGIN, parts=False, **TRIPLETS)
of_matrix("margin_from_distance", "distance", MARGIN, devices=True)
CASES["n_pair"], CASES["n_pair/memory"] = n_pair_of_batch(), n_pair_of_memory()
of_matrix("n_pair_from_similarity", "cosine", {})
of_batch("dynamic_soft_margin", distance, HISTOGRAM, frozen=True)
of_matrix(
  "dynamic_soft_margin_from_distance", "distance", HISTOGRAM, frozen=True, devices=True
)
