"""Time and memory of exact P@1, P@R and MAP@R for many embeddings in many classes.

Embeddings have 128 dimensions. One size is that of the test set of Stanford Online
Products, with 2 to 12 embeddings per class; another is a quarter of it. The third has
few large classes, where thousands of ranks count for each query. The peer is
pytorch-metric-learning's AccuracyCalculator on faiss, with as many neighbours as the
largest class needs and, at the smallest size, with its default of all. Its three
averages must equal ours. The floor is the bare product of the queries with the
references, in the same blocks of queries. Peak memory is measured in a fresh process
that does nothing else.

    python -m benchmarks.retrieval                  # long: the peer needs its time
    python -m benchmarks.retrieval --only 15000     # one size
    python -m benchmarks.retrieval --smoke          # seconds
    python -m benchmarks.retrieval --json FILE
"""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from spherejax import metrics

DIM = 128
BLOCK = 128  # queries at once, ours by default
PEER = "AccuracyCalculator"
ALL = f"{PEER}, all ranks"  # ten arrays [queries, references] in memory
NEEDED = "pytorch_metric_learning", "faiss", "torch"
AGREES = 1e-3  # tolerance of averages: faiss and ours round near ties differently
LIMIT = 2**30


class Size(NamedTuple):
  """Number of embeddings and of classes, and the target for that size."""

  rows: int
  classes: int
  faster: float | None = None
  """At least this many times faster than the peer."""
  limited: bool = False
  """True if the memory limit applies."""

  @property
  def name(self) -> str:
    return f"{self.rows} in {self.classes} classes"


SIZES = (
  Size(15_000, 3000, faster=10),
  Size(15_000, 5),
  Size(60_502, 11_316, limited=True),
)
SMOKE = (Size(600, 120, faster=10, limited=True),)


def inputs(size: Size) -> tuple[np.ndarray, np.ndarray]:
  """Embeddings in overlapping clusters of at least two, with unordered labels."""
  rng = np.random.default_rng(0)
  labels = np.repeat(np.arange(size.classes), 2)
  more = size.rows - len(labels)
  # Twelve per class at most, if that is enough.
  most = max(10, -(-more // size.classes))
  places = np.repeat(np.arange(size.classes), most)
  labels = np.concatenate([labels, rng.choice(places, more, replace=False)])
  labels = rng.permutation(labels).astype(np.int32)
  centres = rng.normal(size=(size.classes, DIM))
  rows = 0.7 * centres[labels] + rng.normal(size=(size.rows, DIM))
  rows /= np.linalg.norm(rows, axis=1, keepdims=True)
  return rows.astype(np.float32), labels


def ours(x: jax.Array, labels: np.ndarray) -> tuple[jax.Array, ...]:
  """Computes the three averages, including the plan of the labels on the host."""
  result = metrics.retrieval(x, labels, block_size=BLOCK)
  values = (result.precision_at_1, result.r_precision, result.map_at_r)
  return tuple(metrics.mean_where(value, result.counted) for value in values)


def peer(neighbours: str | None) -> Callable[..., tuple[float, ...]] | None:
  """Returns the peer's function for the same averages; None where it is missing."""
  if _measure.lacking(*NEEDED):
    return None
  import faiss
  import torch
  from pytorch_metric_learning.utils import accuracy_calculator

  cores = os.cpu_count() or 1
  faiss.omp_set_num_threads(cores)
  torch.set_num_threads(cores)
  wanted = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
  calculator = accuracy_calculator.AccuracyCalculator(
    include=wanted, k=neighbours, device=torch.device("cpu")
  )

  def averages(x: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    accuracies = calculator.get_accuracy(np.asarray(x), np.asarray(labels))
    return tuple(accuracies[name] for name in wanted)

  return averages


def floor(x: jax.Array, labels: jax.Array) -> jax.Array:
  """Computes the products by blocks of queries; the last block is padded."""
  del labels
  rows = jnp.pad(x, ((0, -len(x) % BLOCK), (0, 0))).reshape(-1, BLOCK, DIM)
  return jax.lax.map(lambda block: jnp.max(block @ x.T, axis=1), rows)


def compare(size: Size, repetitions: int) -> dict[str, Any]:
  """Compares ours with the peer and the floor, and measures its memory."""
  ways = {_measure.OURS: _measure.Contender(ours, 0, compiled=False)}
  for name, neighbours in ((PEER, "max_bin_count"), (ALL, None)):
    other = peer(neighbours)
    if other is not None and (name == PEER or size.faster):
      ways[name] = _measure.Contender(other, AGREES, compiled=False)
  ways["floor"] = _measure.Contender(floor)
  targets = [_measure.Target("floor", 1 / 2)]
  if size.faster:
    targets += [_measure.Target(name, size.faster) for name in (PEER, ALL)]
  row = _measure.compare(
    size.name, inputs(size), ways, tuple(targets), repetitions=repetitions
  )
  return row | memory(size)


def memory(size: Size) -> dict[str, Any]:
  """Peak memory of a fresh process, and whether it meets its target."""
  peak = _measure.peak_memory(
    "benchmarks.retrieval", "--alone", str(size.rows), str(size.classes)
  )
  return {"peak_mib": peak / 2**20} | (
    {"peak_below_limit": peak < LIMIT} if size.limited else {}
  )


def main() -> None:
  """Runs the command line."""
  if sys.argv[1:2] == ["--alone"]:  # a fresh process, for its peak memory
    x, labels = inputs(Size(int(sys.argv[2]), int(sys.argv[3])))
    jax.block_until_ready(ours(jnp.asarray(x), labels))
    _measure.print_peak_memory()
    return
  options = _measure.parse(__doc__)
  works = {
    size.name: functools.partial(compare, size, options.repetitions)
    for size in (SMOKE if options.smoke else SIZES)
  }

  def note(row: dict[str, Any]) -> str:
    met = {None: "", True: ", met", False: ", NOT met"}
    peak = f", peak {row['peak_mib']:.0f} MiB"
    return peak + met[row.get("peak_below_limit")]

  _measure.run("retrieval", works, _measure.lacking(*NEEDED), options, note)


if __name__ == "__main__":
  main()
