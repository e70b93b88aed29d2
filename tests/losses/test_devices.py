"""A batch spread over devices: what each of them has at once.

The sweep of all losses, in `test_every_loss.py`, has values and gradients.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import programs
from tests.losses.cases._frame import AS_IN_OTHERS
from tests.losses.slopes import losses_of, values_of

# Losses of the whole batch that take something else than embeddings and labels.
OF_THE_BATCH = {
  "manifold": lambda x, labels: (x, labels, x[:3]),
  "uniformity": lambda x, labels: (x,),
} | dict.fromkeys(
  ("info_nce", "info_nce_bound", "info_nce_repulsion", "nt_xent"),
  lambda x, labels: (x, x[::-1]),
)
OF_PAIRS = losses_of("embeddings", "references", "axis_name")
IN_BLOCKS = losses_of("block_size")


@pytest.mark.parametrize(
  ("name", "block_size"),
  [
    pytest.param(name, size, marks=[pytest.mark.slow] * (name in AS_IN_OTHERS))
    for name in sorted({*OF_PAIRS, *OF_THE_BATCH})
    for size in (None, 3)[: 1 + (name in IN_BLOCKS)]
  ],
)
def test_no_device_has_the_whole_matrix(name, block_size):
  """In blocks no device has all of its rows at once, either."""
  batch, local = 44, 11
  x, rows = jnp.zeros((batch, 5)), jax.P("batch")
  options = {"axis_name": "batch"} | ({"block_size": block_size} if block_size else {})

  def step(x, labels):
    def total(x):
      data = OF_THE_BATCH.get(name, lambda *pair: pair)(x, labels)
      return values_of(name, *data, **options).sum()

    return jax.grad(total)(x)

  mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("batch",))
  mapped = jax.shard_map(
    step, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False
  )
  (inside,) = jax.make_jaxpr(mapped)(x, jnp.arange(batch) // 2).eqns
  traced = programs.equations(inside.params["jaxpr"])
  shapes = {result.aval.shape for equation in traced for result in equation.outvars}
  assert (batch, 5) in shapes  # the gathered rows
  everyone = {batch, batch + 3, 2 * batch}  # with proxies, of two views
  assert not [s for s in shapes if sum(size in everyone for size in s) > 1]
  spread = [s for s in shapes if everyone & set(s) and {local, 2 * local} & set(s)]
  assert bool(spread) == (block_size is None)
