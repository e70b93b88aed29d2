"""A batch spread over devices: values and gradients of one device, exactly.

What the sweep of all losses, in `test_every_loss.py`, does not show.
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
LABELS = np.array([0, 1, 0, 2, 1, 2, 0, 3], np.int32)
ALL = np.ones(8, bool)
UNEQUAL = np.array([1, 1, 0, 1, 0, 0, 1, 1], bool)  # one of four devices keeps nothing


def inputs():
  generator = np.random.default_rng(0)
  x = generator.normal(size=(8, 5))
  return {"map": generator.normal(size=(5, 4)), "u": generator.normal(size=(5, 4))}, x


def zero_shot(parameters, x, labels, where, axis_name=None):
  """A scalar, the sum of what each device has of it, and two values of each row."""
  attributes = jax.nn.softmax(x @ parameters["map"])
  halves = losses.split_by_class(labels, where=where, axis_name=axis_name)
  values = losses.zero_shot_prediction(
    attributes,
    labels,
    attributes,
    labels,
    parameters["u"],
    where_a=halves[0],
    where_b=halves[1],
    axis_name=axis_name,
  ).reshape(2, -1)
  counts = jnp.stack(halves).sum(axis=1, keepdims=True)
  if axis_name is not None:
    counts = jax.lax.psum(counts, axis_name)
  # One row of values for each example, so that devices can be put side by side.
  return jnp.sum(values * jnp.stack(halves) / counts), values.T


def local_step(parameters, *data):
  """By devices * the local part of the scalar, and the mean over devices."""

  def scalar(parameters):
    value, values = zero_shot(parameters, *data, AXIS)
    return jax.lax.axis_size(AXIS) * value, values

  (value, values), slopes = jax.value_and_grad(scalar, has_aux=True)(parameters)
  return *jax.lax.pmean((value, slopes), AXIS), values


def checked_step(*arguments):
  """shard_map's replication checking has already summed the gradients."""
  step = jax.value_and_grad(zero_shot, has_aux=True)
  (value, values), slopes = step(*arguments, AXIS)
  return jax.lax.psum(value, AXIS), slopes, values


def test_zero_shot_prediction_over_devices_equals_one_device(x64):
  parameters, x = inputs()
  mesh = Mesh(np.array(jax.devices()[:2]), (AXIS,))
  split, shared = P(AXIS), P()
  checked = jax.jit(
    jax.shard_map(
      checked_step, mesh=mesh, in_specs=(shared, split, split, split),
      out_specs=(shared, shared, split),
    )
  )  # fmt: skip
  mapped = jax.pmap(local_step, AXIS, in_axes=(None, 0, 0, 0))
  single = jax.jit(jax.value_and_grad(zero_shot, has_aux=True))
  for where in (ALL, UNEQUAL):
    (value, values), gradients = single(parameters, x, LABELS, where)
    assert value > 0.01
    assert min(np.abs(g).max() for g in gradients.values()) > 0.01
    shards = (a.reshape(4, 2, *a.shape[1:]) for a in (x, LABELS, where))
    for scalar, slopes, rows in (
      mapped(parameters, *shards), checked(parameters, x, LABELS, where)
    ):  # fmt: skip
      np.testing.assert_allclose(rows.reshape(8, 2), values, rtol=1e-12, atol=1e-12)
      np.testing.assert_allclose(scalar, np.full_like(scalar, value), rtol=1e-12)
      for name, right in gradients.items():
        right = np.broadcast_to(right, slopes[name].shape)
        np.testing.assert_allclose(slopes[name], right, rtol=1e-12, atol=1e-12)


def test_local_mean_is_enough_when_no_row_is_masked(x64):
  """The plain rule: differentiate the local mean, average over devices."""
  parameters, x = inputs()

  def step(parameters, x, labels):
    def scalar(parameters):
      return losses.contrastive(x @ parameters, labels, axis_name=AXIS).mean()

    return jax.lax.pmean(jax.value_and_grad(scalar)(parameters), AXIS)

  value, gradient = jax.jit(jax.vmap(step, (None, 0, 0), axis_name=AXIS))(
    parameters["map"], x.reshape(4, 2, 5), LABELS.reshape(4, 2)
  )
  right_value, right = jax.jit(
    jax.value_and_grad(lambda w: losses.contrastive(x @ w, LABELS).mean())
  )(parameters["map"])
  np.testing.assert_allclose(value, np.full(4, right_value), rtol=1e-12)
  np.testing.assert_allclose(gradient[3], right, rtol=1e-12, atol=1e-13)


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
