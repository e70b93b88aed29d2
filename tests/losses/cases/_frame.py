"""Inputs and oracles that the checks of all losses need of each."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

CLASSES = 10
LABELS = np.array([0, 3, 0, 1, 0, 1, 5, 0, 1, 3], np.int32)  # class 5: one row

# Each row of the matrix has its value alone, as in `smooth_ap`, or by the sums and the
# counts of `contrastive`, or by all negatives, as in `nt_xent`: what goes over blocks
# and devices is the same function.
AS_IN_OTHERS = {
  "circle", "cosine_contrastive", "fast_ap", "generalized_lifted_structure",
  "hadsell_contrastive", "info_nce", "info_nce_repulsion", "multi_similarity", "nca",
  "pnp", "ranked_list", "signal_to_noise_contrastive", "sup_con",
  "threshold_consistent_margin", "tuplet_margin",
}  # fmt: skip


class Case(NamedTuple):
  """One loss: how it is called, and its value in NumPy.

  Attributes:
    loss: of (rows, labels, params, **options) to [batch]. The options are always
      `where`, with `devices` also `axis_name`, with `blocks` also `block_size`.
    oracle: of (rows, labels, params) to [batch] in float64, without masks; with
      `frozen` also of `frozen=(rows, params)`, where gradients are stopped.
    rows: data of each example by name: kind and width. Kinds are "embedding" (norms
      from 0.3 to 2), "cosine", "logit" and "distance".
    params: what all examples share; differentiated where floating.
    labels: False for None instead of labels.
    blocks: takes `block_size`.
    devices: takes `axis_name`; otherwise a row must not depend on the others.
    frozen: stops gradients inside.
    sharp: params to replace for an extreme setting.
    grad: whether it has gradients.
    ordered: whether the order of the rows matters, as that of a chosen pair.
    step: of the differences that gradients are compared with; shorter where a kink is
      near.
  """

  loss: Callable[..., Any]
  oracle: Callable[..., Any]
  rows: Mapping[str, tuple[str, int]] = {"embeddings": ("embedding", 4)}
  params: Mapping[str, Any] = {}
  labels: bool = True
  blocks: bool = False
  devices: bool = False
  frozen: bool = False
  sharp: Mapping[str, Any] = {}
  grad: bool = True
  ordered: bool = False
  step: float = 2e-4


class Batch(NamedTuple):
  """Inputs of one call."""

  rows: dict[str, np.ndarray]
  labels: np.ndarray | None


def draw_embeddings(seed: int, count: int, dim: int) -> np.ndarray:
  """Rows with lengths from 0.3 to 2."""
  generator = np.random.default_rng(seed)
  x = generator.normal(size=(count, dim))
  lengths = generator.permutation(np.linspace(0.3, 2, count))[:, None]
  return x / np.linalg.norm(x, axis=1, keepdims=True) * lengths


def _draw(kind: str, width: int, seed: int) -> np.ndarray:
  if kind == "embedding":
    return draw_embeddings(seed, len(LABELS), width)
  x = np.random.default_rng(seed).normal(size=(len(LABELS), width))
  return {"cosine": np.tanh(x), "logit": 3 * x, "distance": 0.1 + np.abs(x)}[kind]


def batches(case: Case) -> dict[str, Batch]:
  """Ordinary and degenerate batches of ten rows."""

  def batch(change: Callable[[np.ndarray], Any] | None = None, labels=LABELS) -> Batch:
    tables = enumerate(case.rows.items(), 1)
    rows = {name: _draw(*kind, seed) for seed, (name, kind) in tables}
    for x in rows.values() if change else ():
      change(x)
    return Batch(rows, labels.astype(np.int32) if case.labels else None)

  def duplicate(x):
    x[2] = x[4] = x[0]  # of one class
    x[3] = x[6] = x[1]  # of three classes

  def zero(x):
    x[[0, 4, 5]] = 0

  def identical(x):
    x[:] = x[0]

  return {
    "mixed": batch(),
    "duplicates": batch(duplicate),
    "zeros": batch(zero),
    "identical": batch(identical),
    "one_class": batch(labels=np.ones(len(LABELS))),
    "all_different": batch(labels=np.arange(len(LABELS))[::-1]),
    "balanced": batch(labels=np.arange(len(LABELS)) % 5),
  }
