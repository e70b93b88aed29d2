"""Variables of flax.nnx in place of arrays, in every operator.

Every array and every traced number of a function's example is passed as an
`nnx.Variable`: the call compiles nothing new and returns the same. Inside a
transformation, the program is the same, and so are jit, gradients and vmap.
"""

import contextlib
import functools
import inspect
import io
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks import calls
from spherejax import distances, losses, pooling
from tests import wrong_uses
from tests.test_wrong_uses import FUNCTIONS, call_of

ROOMS = {"distances", "solvers", "hierarchy", "pooling", "prototypes", "metrics"}
ROOMS |= {"losses", "attacks", "voronoi"}
OPERATORS = [name for name in FUNCTIONS if name.split(".")[0] in ROOMS]
# The example's number is an end of its interval, and float32 rounds it out of it.
AT_THE_END = {"losses.arcface": ["margin"]}


def is_state(value):
  """Whether one of our functions returned this; its arrays are not arguments."""
  return hasattr(value, "_fields")


def operands(call, left=()):
  """Arguments by name; arrays, and numbers that may be traced, become arrays of JAX."""
  arguments = {}
  for name, parameter in call.signature.parameters.items():
    value = call.arguments.get(name, parameter.default)
    traced = "Array" in str(parameter.annotation) and name not in left

    def converted(leaf, traced=traced):
      number = traced and isinstance(leaf, float)
      return jnp.asarray(leaf) if number or wrong_uses.is_array(leaf) else leaf

    if name in call.arguments or (traced and isinstance(value, float)):
      arguments[name] = jax.tree.map(converted, value, is_leaf=is_state)
  return arguments


def split(function, call, left):
  """The arrays of a call, and a function that calls with them."""
  leaves, tree = jax.tree.flatten(operands(call, left), is_leaf=is_state)
  places = [at for at, leaf in enumerate(leaves) if wrong_uses.is_array(leaf)]

  def of_arrays(arrays):
    filled = dict(enumerate(leaves)) | dict(zip(places, arrays, strict=True))
    arguments = jax.tree.unflatten(tree, filled.values())
    bound = inspect.BoundArguments(call.signature, arguments)
    with contextlib.redirect_stderr(io.StringIO()):
      return function(*bound.args, **bound.kwargs)

  return [leaves[at] for at in places], of_arrays


def numbers(result):
  """The arrays and numbers of a result, keys as their bits."""

  def plain(leaf):
    return jax.random.key_data(leaf) if wrong_uses.is_key(leaf) else np.asarray(leaf)

  leaves = jax.tree.leaves(result)
  return [plain(x) for x in leaves if isinstance(x, (float, np.ndarray, jax.Array))]


def program(function, arrays):
  """The traced program as text without addresses, or the error that tracing raises."""
  try:
    traced = jax.make_jaxpr(lambda arrays: numbers_traced(function(arrays)))(arrays)
  except TypeError as error:
    return re.sub(r"got a traced.*", "", str(error), flags=re.DOTALL)
  return re.sub("0x[0-9a-f]+", "", str(traced))


def numbers_traced(result):
  return [x for x in jax.tree.leaves(result) if wrong_uses.is_array(x)]


# All functions share one wrapper, so the quick tests compare the programs of every
# third function and the results of every ninth.
CALLED = [
  pytest.param(name, called, marks=[pytest.mark.slow] * (k % (9 if called else 3) > 0))
  for k, name in enumerate(OPERATORS)
  for called in (False, True)
]


@pytest.mark.parametrize(("name", "called"), CALLED)
def test_variables_in_place_of_arrays(name, called, unchecked, tmp_path):
  function, call = call_of(name, tmp_path)
  arrays, of_arrays = split(function, call, AT_THE_END.get(name, ()))

  def of_variables(arrays):
    return of_arrays([nnx.Variable(array) for array in arrays])

  if not called:
    assert program(of_variables, arrays) == program(of_arrays, arrays)
    return
  expected = numbers(of_arrays(arrays))
  with calls.compilations() as compiled:
    result = of_variables(arrays)
  assert not compiled
  for got, wanted in zip(numbers(result), expected, strict=True):
    np.testing.assert_array_equal(got, wanted, strict=True)


class Network(nnx.Module):
  """Network with embeddings, proxies and learned numbers, passed as variables."""

  def __init__(self, rngs):
    self.linear = nnx.Linear(3, 4, rngs=rngs)
    self.prototypes = nnx.Param(rngs.params.normal((5, 4)))
    self.proxies = nnx.Param(rngs.params.normal((2, 4)))
    self.temperature = nnx.Param(jnp.float32(0.3))
    self.bank = nnx.Variable(rngs.params.normal((6, 4)))

  def features(self, images):
    return nnx.relu(self.linear(images))


def loss(network, images, labels, bank_labels):
  gsp = functools.partial(pooling.gsp, mass=0.5, inverse_temperature=4.0)
  pooled = gsp(network.features(images), network.prototypes).pooled
  bank = losses.References(network.bank, bank_labels)
  near = losses.sup_con(
    pooled, labels, references=bank, temperature=network.temperature
  )
  far = losses.proxy_anchor(pooled, labels, network.proxies, scale=1 / 0.3)
  cosines = distances.pairwise_cosine(network.proxies, network.prototypes)
  return jnp.mean(near + far) + jnp.mean(cosines**2)


def batch():
  generator = np.random.default_rng(0)
  images = generator.normal(size=(4, 2, 2, 3)).astype(np.float32)
  return images, np.array([0, 1, 0, 1]), np.array([0, 1, 0, 1, 0, 1])


def test_gradients_of_a_module_are_those_of_its_arrays(unchecked):
  network, data = Network(nnx.Rngs(0)), batch()
  structure, params, rest = nnx.split(network, nnx.Param, ...)

  def of_state(params):
    return loss(nnx.merge(structure, params, rest), *data)

  expected_value, expected = jax.jit(jax.value_and_grad(of_state))(params)
  value, gradients = nnx.jit(nnx.value_and_grad(loss))(network, *data)
  np.testing.assert_allclose(value, expected_value, rtol=1e-5)
  names = {"linear", "prototypes", "proxies", "temperature"}
  assert set(nnx.to_pure_dict(gradients)) == names
  for got, wanted in zip(*map(jax.tree.leaves, (gradients, expected)), strict=True):
    assert np.abs(wanted).max() > 0
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


def test_a_variable_that_changed_is_read_anew(unchecked):
  network, (images, labels, _) = Network(nnx.Rngs(0)), batch()
  embeddings = images.reshape(4, -1)[:, :4]
  for scale in (1, -1, 2):
    network.proxies[...] = scale * jnp.eye(2, 4)
    network.temperature[...] = jnp.float32(abs(scale))
    values = losses.proxy_nca(
      embeddings, labels, network.proxies, scale=network.temperature
    )
    fixed = scale * np.eye(2, 4, dtype=np.float32)
    expected = losses.proxy_nca(embeddings, labels, fixed, scale=abs(scale))
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_a_variable_that_changed_compiles_nothing():
  proxies = nnx.Param(jnp.eye(3))
  x, labels = jnp.ones((2, 3)), jnp.array([0, 2])
  losses.proxy_anchor(x, labels, proxies)
  proxies[...] = 2 * proxies[...]
  with calls.compilations() as found:
    losses.proxy_anchor(x, labels, proxies)
  assert not found
