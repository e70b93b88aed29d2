"""Every module outside of jit, and inside of flax.nnx through `nnx.bridge.ToNNX`."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from spherejax import models
from tests.models.test_weight_import import norm
from tests.models.test_wrong_uses import MODULES, example_init

# Networks that take long to trace; the others hold all of their parts.
LARGE = {"BNInception", "InceptionV3", "ResNet101", "ResNet18", "ResNet32", "ResNet50"}
LARGE |= {"SwinT"}
SMALL = sorted({*MODULES} - LARGE)


def names(every, slow):
  """Passes names of modules to a test, which is slow with some of them."""
  rows = [pytest.param(x, marks=[pytest.mark.slow] * (x in slow)) for x in every]
  return pytest.mark.parametrize("name", rows)


def example(name, monkeypatch):
  """The module, its arguments, and keywords of a call that trains it."""
  # `ResNet50` with another number, and no example of its own.
  shown = {"ResNet101": "ResNet50"}.get(name, name)
  module, args, kwargs = example_init(getattr(models, shown), monkeypatch)
  if shown != name:
    module = getattr(models, name)()
  parameters = inspect.signature(type(module).__call__).parameters
  training = {"train": True} if "train" in parameters else {}
  return module, args, kwargs, training


# Networks apply one operation after the other, and compile each. The statistics of the
# single image of their example amplify rounding: in training mode, direct and jitted
# calls of EfficientNetLite are both 0.002 away from float64.
SLOW = {"ConvNet", "Conv4", "EfficientNetLite", "ResNet20", "Simple6"}


@names(SMALL, SLOW)
def test_a_direct_call_is_a_jitted_one(name, monkeypatch):
  """Of the same variables and results, none of them still traced."""
  module, args, kwargs, training = example(name, monkeypatch)

  def run(args):
    first, second = jax.random.split(jax.random.key(0))
    keys = {"params": first, "dropout": second}
    variables = module.init(keys, *args, **kwargs)
    trained = module.apply(
      variables, *args, rngs=keys, mutable=["batch_stats"], **kwargs, **training
    )
    return variables, trained, module.apply(variables, *args, **kwargs)

  direct, jitted = map(jax.tree.leaves, (run(args), jax.jit(run)(args)))
  assert not any(isinstance(x, jax.core.Tracer) for x in direct)
  for x, y in zip(direct, jitted, strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-3, atol=0.01 if name in SLOW else 1e-5)


def bridged(module, args, kwargs):
  rngs = nnx.Rngs(params=0, dropout=1)
  return nnx.bridge.ToNNX(module, rngs=rngs).lazy_init(*args, **kwargs)


def variables(network):
  """The variables of a bridged module, as its linen module takes them."""
  kinds = {"params": nnx.Param, "batch_stats": nnx.BatchStat}
  trees = {k: nnx.to_pure_dict(nnx.state(network, kind)) for k, kind in kinds.items()}
  return {name: tree for name, tree in trees.items() if tree}


@names(MODULES, LARGE)
def test_a_call_is_that_of_the_linen_module(name, monkeypatch):
  module, args, kwargs, training = example(name, monkeypatch)
  options = {"mutable": ["batch_stats"], **kwargs, **training}
  shapes = nnx.eval_shape(lambda: bridged(module, args, kwargs))
  structure, state = nnx.split(shapes)

  def of_nnx(state):
    network = nnx.merge(structure, state)
    result = network(*args, **options)
    return jax.tree.leaves(result), variables(network)

  def of_linen(state):
    network = nnx.merge(structure, state)
    given = variables(network)
    rngs = {name: stream() for name, stream in network.to_nnx__rngs.items()}
    result, after = module.apply(given, *args, rngs=rngs, **options)
    return jax.tree.leaves(result), given | after

  programs = [str(jax.make_jaxpr(of)(state)) for of in (of_nnx, of_linen)]
  actual, expected = (re.sub("0x[0-9a-f]+", "", program) for program in programs)
  assert actual == expected


# The program of every module is that of linen, above; gradients show it of some.
@names(SMALL, {name for k, name in enumerate(SMALL) if k % 18})
def test_gradients_and_statistics(name, monkeypatch):
  module, args, kwargs, training = example(name, monkeypatch)
  options = {"mutable": ["batch_stats"], **kwargs, **training}
  network = nnx.jit(lambda: bridged(module, args, kwargs))()
  before = variables(network)

  @nnx.jit
  @nnx.grad
  def gradients(network):
    leaves = jax.tree.leaves(network(*args, **options))
    return sum(jnp.sum(x) for x in leaves if jnp.issubdtype(x.dtype, jnp.floating))

  found, after = nnx.to_pure_dict(gradients(network)), variables(network)
  assert jax.tree.structure(found) == jax.tree.structure(before["params"])
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
  if training and "batch_stats" in before:
    both = (jax.tree.leaves(x["batch_stats"]) for x in (before, after))
    assert all((old != new).any() for old, new in zip(*both, strict=True))


def test_prototypes_are_replaced_in_the_state_of_a_module():
  features = jnp.ones((1, 2, 2, 3))
  network = bridged(models.GSP(2), (features,), {})
  points = np.array([[0.1, 0, 0], [0.2, 0, 0], [0.9, 0, 0]], np.float32)
  state = nnx.state(network, nnx.Param)
  nnx.update(network, models.replace_prototypes(state, points, path="prototypes"))
  np.testing.assert_array_equal(network.prototypes[...], points[[0, 2]])


def test_weights_are_imported_into_the_state_of_a_module():
  resnet = models.ResNet32(blocks=(1,), widths=(4,), strides=(1,))
  network = bridged(resnet, (jnp.zeros((1, 8, 8, 3)),), {})
  state = nnx.to_pure_dict(nnx.state(network, (nnx.Param, nnx.BatchStat)))
  block = "layer1.0."
  convolutions = {"conv1": 3, f"{block}conv1": 4, f"{block}conv2": 4}
  norms = ("bn1", f"{block}bn1", f"{block}bn2")
  weights = {f"{at}.weight": np.ones((4, n, 3, 3)) for at, n in convolutions.items()}
  weights |= dict.fromkeys((name for at in norms for name in norm(at)), np.full(4, 0.5))
  nnx.update(network, models.import_weights({"all": state}, weights)["all"])
  leaves = jax.tree.leaves(nnx.state(network, (nnx.Param, nnx.BatchStat)))
  assert all(np.isin(leaf, (0.5, 1)).all() for leaf in leaves)
