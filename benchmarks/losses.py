"""Times value and gradient of every loss that pytorch-metric-learning also has.

Batches have 256 or 1024 embeddings of 128 dimensions, 4 per class. The floor is the
bare product of the embeddings with their references, and its two backward products.

    python -m benchmarks.losses                  # many minutes on 2 cores
    python -m benchmarks.losses --smoke          # seconds: a loss of each kind
    python -m benchmarks.losses --json FILE
"""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks import _measure, _peers

PEER = "pytorch-metric-learning"
BATCHES = (256, 1024)
DIM = 128
SMOKE = ("contrastive", "triplet", "proxy_anchor", "soft_triple")


def _learns(peer: _peers.Peer) -> bool:
  return bool(peer.weights) and not peer.fixed_norms


def ours(peer: _peers.Peer):
  """Value and gradients with respect to embeddings and weights."""

  def value_and_gradients(embeddings, labels, weights):
    value, gradients = jax.value_and_grad(
      lambda x, w: peer.ours(x, labels, w), (0, 1) if _learns(peer) else 0
    )(embeddings, weights)
    return value, gradients

  return value_and_gradients


def theirs(module, peer: _peers.Peer, embeddings: np.ndarray, labels: np.ndarray):
  """Returns the peer's loss and gradient in torch, on a GPU where torch has one."""
  import torch

  device = "cuda" if torch.cuda.is_available() else "cpu"
  module = module.to(device)
  rows = torch.tensor(embeddings, device=device, requires_grad=True)
  classes = torch.tensor(labels, device=device, dtype=torch.int64)
  leaves = [rows, getattr(module, peer.weights)] if _learns(peer) else [rows]

  def call(*_):
    for leaf in leaves:
      leaf.grad = None
    value = peer.call(module, rows, classes)
    value.backward()
    if value.is_cuda:
      torch.cuda.synchronize()
    return value.detach(), tuple(leaf.grad for leaf in leaves)

  return call


def floor(embeddings: Array, labels: Array, weights: Array | None) -> tuple[Array, ...]:
  """Computes the product with all rows or weights, and its two backward products."""
  del labels
  others = embeddings
  if weights is not None:
    others = weights if weights.shape[1] == embeddings.shape[1] else weights.T
  products = embeddings @ others.T
  return products, products @ others, products.T @ embeddings


def compare(name: str, batch: int, has_peer: bool, repetitions: int) -> dict:
  """Row of the table."""
  peer = _peers.PEERS[name]
  embeddings, labels = _peers.inputs(batch, DIM, peer.per_class)
  embeddings = embeddings.astype(np.float32)
  weights, slow = None, batch > peer.largest
  ways = {_measure.OURS: _measure.Contender(ours(peer), 0)}
  targets = [] if peer.sorts else [_measure.Target("floor", 1 / 4)]
  if has_peer:
    module, weights = _peers.torch_loss(peer, int(labels.max()) + 1, DIM)
    if not slow:
      # In float64 the two agree to 1e-9 (tests/losses/test_peers.py).
      tolerance = None if peer.differs else peer.rounded
      ways[PEER] = _measure.Contender(
        theirs(module, peer, embeddings, labels), tolerance, compiled=False
      )
      targets.append(_measure.Target(PEER, 20 if peer.triplets else 2))
  ways["floor"] = _measure.Contender(floor)
  arguments = (jnp.asarray(embeddings), jnp.asarray(labels), weights)
  note = f", {PEER} does not fit" if slow else ""
  return _measure.compare(
    f"{name}, {batch}{note}", arguments, ways, tuple(targets), repetitions=repetitions
  )


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__)
  missing = _measure.lacking("pytorch_metric_learning")
  if not missing:
    import torch

    torch.set_num_threads(os.cpu_count() or 1)
  repetitions = options.repetitions
  works = {
    f"{name}, {batch}": functools.partial(
      compare, name, batch, not missing, repetitions
    )
    for batch in ((16,) if options.smoke else BATCHES)
    for name in (SMOKE if options.smoke else _peers.PEERS)
    # The peer draws the weights.
    if not (missing and _peers.PEERS[name].weights)
  }
  _measure.run("losses", works, missing, options)


if __name__ == "__main__":
  main()
