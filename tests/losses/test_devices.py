"""A batch spread over devices: what each of them has at once.

The sweep of all losses, in `test_every_loss.py`, has values and gradients.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from spherejax import losses
from tests import programs
from tests.losses.cases._frame import AS_IN_OTHERS

AXIS = "batch"


def parameters(name):
  return inspect.signature(getattr(losses, name)).parameters


PAIRS = [
  name
  for name in losses.__all__
  if not inspect.isclass(getattr(losses, name))
  and {"embeddings", "references", "axis_name"} <= set(parameters(name))
]


# Losses of the whole batch that take something else than embeddings and labels.
OF_THE_BATCH = {
  "dynamic_soft_margin": lambda x, labels: (x, labels, jnp.zeros(7)),
  "info_nce": lambda x, labels: (x, x[::-1]),
  "info_nce_bound": lambda x, labels: (x, x[::-1]),
  "info_nce_repulsion": lambda x, labels: (x, x[::-1]),
  "manifold": lambda x, labels: (x, labels, x[:3]),
  "nt_xent": lambda x, labels: (x, x[::-1]),
  "uniformity": lambda x, labels: (x,),
}


@pytest.mark.parametrize(
  ("name", "block_size"),
  [
    pytest.param(name, size, marks=[pytest.mark.slow] * (name in AS_IN_OTHERS))
    for name in sorted({*PAIRS, *OF_THE_BATCH})
    for size in (None, 3)[: 1 + ("block_size" in parameters(name))]
  ],
)
def test_no_device_has_the_whole_matrix(name, block_size):
  """In blocks no device has all rows of its own at once, either."""
  batch, local = 44, 11
  x = jnp.zeros((batch, 5))
  options = {"axis_name": AXIS} | ({"block_size": block_size} if block_size else {})

  def step(x, labels):
    def total(x):
      data = OF_THE_BATCH.get(name, lambda *pair: pair)(x, labels)
      return jnp.sum(jax.tree.leaves(getattr(losses, name)(*data, **options))[0])

    return jax.grad(total)(x)

  mesh = Mesh(np.array(jax.devices()[:4]), (AXIS,))
  mapped = jax.shard_map(
    step, mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS), check_vma=False
  )
  (inside,) = jax.make_jaxpr(mapped)(x, jnp.arange(batch) // 2).eqns
  traced = programs.equations(inside.params["jaxpr"])
  found = {result.aval.shape for equation in traced for result in equation.outvars}
  assert (batch, 5) in found  # the gathered rows
  everyone = {batch, batch + 3, 2 * batch}  # with proxies, of two views
  assert not [s for s in found if sum(size in everyone for size in s) > 1]
  rows = [s for s in found if everyone & set(s) and {local, 2 * local} & set(s)]
  assert bool(rows) == (block_size is None)
