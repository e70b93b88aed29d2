"""Memory and time of losses for batches whose matrix of pairs does not fit.

It times value and gradient for 4,096, 16,384 and 65,536 embeddings of 128 dimensions
(Smooth-AP up to 16,384) in blocks of rows, and for 4,096 also without blocks. The floor
is the forward product, the same product again for the backward pass, and the two
backward products, in the same blocks. Against a memory, which has no gradient, there is
one backward product. Peak memory is measured in a fresh process that does
nothing else.

    python -m benchmarks.losses_large                     # hours on 2 cores
    python -m benchmarks.losses_large --only 16384        # ten minutes
    python -m benchmarks.losses_large --smoke             # seconds: a few losses
    python -m benchmarks.losses_large --json FILE
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks import _measure, _peers
from spherejax import losses

DIM = 128
BLOCK = 256
LIMIT = 2 * 1024**3


def _two_views(loss: Callable[..., Array]):
  return lambda x, labels, **options: loss(x[0::2], x[1::2], **options)


def _remembered(x: Array, labels: Array, **options):
  """Contrastive loss against a memory of as many embeddings."""
  valid = jnp.ones(len(x), bool)
  memory = losses.References(jax.lax.stop_gradient(x), labels, valid, None)
  return losses.contrastive(x, labels, references=memory, **options)


MEMORY = "contrastive, memory"
MINED = "multi_similarity, mined"
SIZES = (4096, 16_384, 65_536)
SMOKE = ("contrastive", MINED, MEMORY)

# Each loss, and the largest number of rows for it.
LOSSES: dict[str, tuple[Callable[..., Array], int]] = {
  "contrastive": (losses.contrastive, 65_536),
  "multi_similarity": (losses.multi_similarity, 65_536),
  "sup_con": (losses.sup_con, 65_536),
  "nt_xent": (_two_views(losses.nt_xent), 65_536),
  "triplet, batch hard": (
    functools.partial(losses.triplet, mining="batch_hard"),
    65_536,
  ),
  "circle": (losses.circle, 65_536),
  MINED: (
    functools.partial(losses.multi_similarity, miner=losses.mine_multi_similarity),
    65_536,
  ),
  MEMORY: (_remembered, 65_536),
  "smooth_ap": (losses.smooth_ap, 16_384),
}


def inputs(batch: int) -> tuple[Array, Array]:
  """Embeddings and labels, two per class."""
  embeddings, labels = _peers.inputs(batch, DIM, 2)
  return jnp.asarray(embeddings, jnp.float32), jnp.asarray(labels)


def value_and_gradient(name: str, block_size: int | None):
  """Returns a function for the value and gradient of a loss."""
  loss, _ = LOSSES[name]

  def call(x, labels):
    return jax.value_and_grad(
      lambda x: jnp.mean(loss(x, labels, block_size=block_size))
    )(x)

  return call


def floor(
  block_size: int, reference_gradient: bool, x: Array, labels: Array
) -> tuple[Array, Array]:
  """Computes four products by blocks of rows, or three if references are constants."""
  del labels

  def block(gradient, rows):
    products = rows @ x.T
    again = (rows + 1e-30 * products[:, :1]) @ x.T  # the compiler cannot merge them
    if reference_gradient:
      gradient += again.T @ rows
    return gradient, again @ x

  blocks = x.reshape(-1, block_size, x.shape[1])
  return jax.lax.scan(block, jnp.zeros_like(x), blocks)


def compare(name: str, batch: int, block: int, repetitions: int) -> dict[str, Any]:
  """Compares ours with the floor, and measures its memory."""
  ways = {
    _measure.OURS: _measure.Contender(value_and_gradient(name, block), 0),
    "floor": _measure.Contender(functools.partial(floor, block, name != MEMORY)),
  }
  if batch <= SIZES[0]:
    ways["unblocked"] = _measure.Contender(value_and_gradient(name, None), 1e-5)
  targets = (_measure.Target("floor", 1 / 2),)
  row = _measure.compare(
    f"{name}, {batch}", inputs(batch), ways, targets, repetitions=repetitions
  )
  alone = ("--alone", name, str(batch), str(block))
  peak = _measure.peak_memory("benchmarks.losses_large", *alone)
  return row | {"peak_mib": peak / 2**20}


def main() -> None:
  """Runs the command line."""
  if "--alone" in sys.argv:  # a fresh process, for its peak memory
    name, batch, block = sys.argv[-3:]
    jax.block_until_ready(
      jax.jit(value_and_gradient(name, int(block)))(*inputs(int(batch)))
    )
    _measure.print_peak_memory()
    return
  options = _measure.parse(__doc__)
  works = {
    f"{name}, {batch}": functools.partial(
      compare, name, batch, block, options.repetitions
    )
    for batch, block in (((64, 16),) if options.smoke else [(n, BLOCK) for n in SIZES])
    for name in (SMOKE if options.smoke else LOSSES)
    if batch <= LOSSES[name][1]
  }

  def note(row: dict[str, Any]) -> str:
    met = "met" if row["peak_mib"] * 2**20 < LIMIT else "NOT met"
    return f", peak memory {row['peak_mib']:.0f} MiB, {met}"

  _measure.run("losses_large", works, [], options, note)


if __name__ == "__main__":
  main()
