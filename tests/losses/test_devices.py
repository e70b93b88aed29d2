"""A batch spread over devices: values and gradients of one device, exactly.

Embeddings are a linear map of the inputs. Its matrix and the proxies (or label
embeddings) are the same on all devices; their gradients are what is compared.
"""

import functools
import inspect

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from spherejax import losses

AXIS = "batch"
LABELS = np.array([0, 1, 0, 2, 1, 2, 0, 3], np.int32)
ALL = np.ones(8, bool)
UNEQUAL = np.array([1, 1, 0, 1, 0, 0, 1, 1], bool)  # one of four devices keeps nothing


def inputs(dtype):
  generator = np.random.default_rng(0)
  x = generator.normal(size=(8, 5)).astype(dtype)
  parameters = {
    "map": generator.normal(size=(5, 4)).astype(dtype),
    "proxies": generator.normal(size=(5, 4)).astype(dtype),
    "several": generator.normal(size=(5, 2, 4)).astype(dtype),
  }
  return parameters, x


# Each case: (parameters, inputs, labels, where, axis_name) -> values, and the weight
# of every value in the scalar: 1 / the number of kept rows of all devices.


def count(where, axis_name):
  number = jnp.sum(where)
  return number if axis_name is None else jax.lax.psum(number, axis_name)


def of_pairs(name, **settings):
  def case(parameters, x, labels, where, axis_name):
    values = getattr(losses, name)(
      x @ parameters["map"], labels, where=where, axis_name=axis_name, **settings
    )
    return values, where / count(where, axis_name)

  return case


def proxy_anchor(parameters, x, labels, where, axis_name):
  values = losses.proxy_anchor(
    x @ parameters["map"],
    labels,
    parameters["several"],
    scale=4.0,
    where=where,
    axis_name=axis_name,
  )
  return values, where / count(where, axis_name)


def zero_shot(parameters, x, labels, where, axis_name):
  attributes = jax.nn.softmax(x @ parameters["map"])
  a, b = losses.split_by_class(labels, where=where, axis_name=axis_name)
  values = losses.zero_shot_prediction(
    attributes,
    labels,
    attributes,
    labels,
    parameters["proxies"],
    where_a=a,
    where_b=b,
    axis_name=axis_name,
  )
  weights = [half / count(half, axis_name) for half in (a, b)]
  # one row of values for each example, so that devices can be put side by side
  return values.reshape(2, -1).T, jnp.stack(weights, axis=1)


# What a case gathers or sums is seen here; all others are in `test_every_loss.py`.
CASES = {
  "contrastive": of_pairs("contrastive", negative_margin=1.3),
  "proxy_anchor": proxy_anchor,
  "zero_shot": zero_shot,
}


# --- the same step on one device and on several ---


@functools.cache
def single(name):
  @jax.jit
  def step(parameters, x, labels, where):
    def scalar(parameters):
      values, weights = CASES[name](parameters, x, labels, where, None)
      return jnp.sum(values * weights), values

    (value, values), gradients = jax.value_and_grad(scalar, has_aux=True)(parameters)
    return value, values, gradients

  return step


def local_step(name, devices, parameters, x, labels, where):
  """devices * local numerator / global count, then the mean over devices."""

  def scalar(parameters):
    values, weights = CASES[name](parameters, x, labels, where, AXIS)
    return devices * jnp.sum(values * weights), values

  (value, values), gradients = jax.value_and_grad(scalar, has_aux=True)(parameters)
  return jax.lax.pmean(value, AXIS), values, jax.lax.pmean(gradients, AXIS)


def checked_step(name, devices, parameters, x, labels, where):
  """shard_map's replication checking has already summed the gradients."""
  del devices

  def scalar(parameters):
    values, weights = CASES[name](parameters, x, labels, where, AXIS)
    return jnp.sum(values * weights), values

  (value, values), gradients = jax.value_and_grad(scalar, has_aux=True)(parameters)
  return jax.lax.psum(value, AXIS), values, gradients


def spread(name, how, devices):
  """The step over a mapped axis: values of all rows, gradients of the parameters."""
  if how.startswith("shard_map"):
    checked = how == "shard_map-checked"
    step = functools.partial(checked_step if checked else local_step, name, devices)
    mesh = Mesh(np.array(jax.devices()[:devices]), (AXIS,))
    return jax.jit(
      jax.shard_map(
        step,
        mesh=mesh,
        in_specs=(P(), P(AXIS), P(AXIS), P(AXIS)),
        out_specs=(P(), P(AXIS), P()),
        check_vma=checked,
      )
    )
  step = functools.partial(local_step, name, devices)
  axes = (None, 0, 0, 0)
  if how == "pmap":
    mapped = jax.pmap(step, AXIS, in_axes=axes, devices=jax.devices()[:devices])
  else:
    mapped = jax.jit(jax.vmap(step, axes, axis_name=AXIS))

  def call(parameters, *arrays):
    shards = (x.reshape(devices, -1, *x.shape[1:]) for x in arrays)
    value, values, gradients = mapped(parameters, *shards)
    for leaf in jax.tree.leaves((value, gradients)):
      np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[0], leaf.shape))
    first = jax.tree.map(lambda leaf: leaf[0], (value, gradients))
    return first[0], values.reshape(-1, *values.shape[2:]), first[1]

  return call


@pytest.mark.parametrize(
  ("how", "devices"),
  [
    ("shard_map-checked", 2),
    *(
      pytest.param(how, devices, marks=pytest.mark.slow)
      for how, devices in (("shard_map-unchecked", 2), ("vmap", 4), ("pmap", 4))
    ),
  ],
)
@pytest.mark.parametrize("name", CASES)
def test_shard_map_over_two_devices_equals_one_device(name, how, devices, x64):
  parameters, x = inputs(np.float64)
  step = spread(name, how, devices)
  for where in (ALL, UNEQUAL):
    value, values, gradients = step(parameters, x, LABELS, where)
    right = single(name)(parameters, x, LABELS, where)
    assert right[0] > 0.01
    np.testing.assert_allclose(value, right[0], rtol=1e-12)
    np.testing.assert_allclose(values, right[1], rtol=1e-12, atol=1e-12)
    used = 0
    for key, gradient in gradients.items():
      largest = np.abs(right[2][key]).max()
      used += largest > 0.01
      np.testing.assert_allclose(
        gradient, right[2][key], rtol=1e-12, atol=1e-12 * max(largest, 1)
      )
    assert used >= (1 if name == "contrastive" else 2)


def test_local_mean_is_enough_when_no_row_is_masked(x64):
  """The plain rule: differentiate the local mean, average over devices."""
  parameters, x = inputs(np.float64)

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


def shapes(jaxpr):
  """Shapes of everything that is computed, also inside loops and calls."""
  for equation in jaxpr.eqns:
    yield from (v.aval.shape for v in equation.outvars)
    for inner in jax.extend.core.jaxprs_in_params(equation.params):
      yield from shapes(inner)


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
    (name, size)
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
  found = set(shapes(inside.params["jaxpr"]))
  assert (batch, 5) in found  # the gathered rows
  everyone = {batch, batch + 3, 2 * batch}  # with proxies, of two views
  assert not [s for s in found if sum(size in everyone for size in s) > 1]
  rows = [s for s in found if everyone & set(s) and {local, 2 * local} & set(s)]
  assert bool(rows) == (block_size is None)
