"""Generalized sum pooling inside a mapped step gives what one device gives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses, pooling

LABELS = jnp.repeat(jnp.arange(4), 2)


def loss(prototypes, features, labels, axis_name):
  result = pooling.gsp(features, prototypes, mass=0.4, inverse_temperature=8.0)
  values = losses.contrastive(
    result.pooled, labels, negative_margin=0.5, axis_name=axis_name
  )
  return values.mean()


WAYS = ("pmap", "checked shard_map", "shard_map", "vmap")


@pytest.mark.parametrize(
  "mapped", [pytest.param(x, marks=[pytest.mark.slow] * (x != "pmap")) for x in WAYS]
)
def test_gradient_on_four_devices_equals_one(mapped):
  rng = np.random.default_rng(0)
  features = jnp.asarray(rng.normal(size=(8, 6, 4)), jnp.float32)
  prototypes = jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)
  slope = jax.jit(jax.grad(loss), static_argnums=3)
  expected = slope(prototypes, features, LABELS, None)

  def local(prototypes, features, labels):
    gradient = jax.grad(loss)(prototypes, features, labels, "batch")
    if mapped == "checked shard_map":  # replicated inputs: summed already
      return gradient / 4
    return jax.lax.pmean(gradient, "batch")

  if mapped.endswith("shard_map"):
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((4,), ("batch",), axis_types=auto)
    rows, shared, check = jax.P("batch"), jax.P(), mapped == "checked shard_map"
    spread = functools.partial(jax.shard_map, mesh=mesh, check_vma=check)
    run = spread(local, in_specs=(shared, rows, rows), out_specs=shared)
    gradient = jax.jit(run)(prototypes, features, LABELS)
  else:
    run = jax.pmap if mapped == "pmap" else jax.vmap
    run = run(local, axis_name="batch", in_axes=(None, 0, 0))
    run = run if mapped == "pmap" else jax.jit(run)
    shards = features.reshape(4, 2, 6, 4), LABELS.reshape(4, 2)
    gradient = run(prototypes, *shards)[0]
  np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
