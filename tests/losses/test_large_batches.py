"""Batches whose matrix does not fit: memory of the compiled steps."""

import functools

import jax
import jax.numpy as jnp
import pytest

from spherejax import distances, losses
from tests import programs

BATCH, DIM = 65_536, 128  # a matrix of its pairs has 16 GiB


def of_pairs(name, **settings):
  loss = functools.partial(getattr(losses, name), block_size=256, **settings)
  return lambda x, y, labels: loss(x, labels)


def with_memory(x, y, labels, **settings):
  references = losses.References(y, labels)
  return losses.contrastive(
    x, labels, references=references, block_size=256, **settings
  )


def wide_angles(x, y, labels):
  mine = functools.partial(losses.mine_angular, points=distances.l2_normalize(y))
  return with_memory(x, y, labels, miner=mine)


OF_PAIRS = (
  "contrastive", "multi_similarity", "triplet", "circle", "lifted_structure",
  "smooth_ap", "fast_ap", "ranked_list", "sup_con",
)  # fmt: skip
DRAW = functools.partial(losses.mine_distance_weighted, dim=DIM, key=jax.random.key(0))
LOSSES = {name: of_pairs(name) for name in OF_PAIRS} | {
  "contrastive, memory": with_memory,
  "contrastive, wide angles": wide_angles,
  "multi_similarity, mined": of_pairs(
    "multi_similarity", miner=losses.mine_multi_similarity
  ),
  "triplet, batch hard": of_pairs("triplet", mining="batch_hard"),
  "margin, distance weighted": of_pairs("margin", miner=DRAW),
  "nt_xent": lambda x, y, labels: losses.nt_xent(x, y, block_size=256),
  "info_nce": lambda x, y, labels: losses.info_nce(x, y, block_size=256),
  "uniformity": lambda x, y, labels: losses.uniformity(x, block_size=256),
}


@pytest.mark.parametrize(
  "loss",
  [
    losses.contrastive, losses.multi_similarity, losses.circle, losses.sup_con,
    losses.nca, losses.uniformity,
  ],
)  # fmt: skip
def test_numbers_are_not_spread_to_blocks_outside_of_loops(loss):
  """But for the zeros of a derivative: every pass would read them from memory."""
  labels = [] if loss is losses.uniformity else [jnp.ones(12, int)]
  step = jax.grad(lambda x: loss(x, *labels, block_size=4).sum())
  traced = programs.equations(jax.make_jaxpr(step)(jnp.ones((12, 5))).jaxpr)
  loops = [equation for equation in traced if equation.primitive.name == "scan"]
  assert len(loops) == 2
  for loop in loops:
    constant = loop.invars[: loop.params["num_consts"]]
    assert sum(v.aval.shape == (4, 12) for v in constant) <= 1


@pytest.mark.parametrize(
  ("name", "table"),
  [
    ("smooth_ap", None),
    ("angular", None),
    ("soft_triple", (512, 2, 8)),
    # How they go over blocks is one function.
    *(
      pytest.param(name, (512, 2, 8), marks=pytest.mark.slow)
      for name in ("proxy_anchor", "proxy_nca", "proxy_nca_plus_plus")
    ),
    pytest.param("proxy_distance_ratio", (1024, 8), marks=pytest.mark.slow),
  ],
)
def test_blocks_bound_the_memory(name, table):
  """4096 rows: less than a fourth of the pairs, half of those with 1024 proxies."""
  tables = [jax.ShapeDtypeStruct(table, jnp.float32)] if table else []
  block_size, limit = (64, 4096 * 1024 * 4 / 2) if table else (128, 4096**2 * 4 / 4)
  x = jax.ShapeDtypeStruct((4096, 8 if table else 16), jnp.float32)
  labels = jax.ShapeDtypeStruct((4096,), jnp.int32)

  def total(x, labels, *tables):
    return getattr(losses, name)(x, labels, *tables, block_size=block_size).sum()

  step = jax.grad(total, (0, 2) if table else 0)
  assert programs.temporary_bytes(step, x, labels, *tables) < limit


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_a_huge_batch_fits(name):
  rows = jax.ShapeDtypeStruct((BATCH, DIM), jnp.float32)
  labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
  step = jax.value_and_grad(lambda *x: LOSSES[name](*x).mean(), (0, 1))
  assert programs.temporary_bytes(step, rows, rows, labels) < 2 * 2**30
