"""Modules outside jit: the same variables and results, none of them still traced."""

import jax
import numpy as np
import pytest

from tests.models.test_nnx import LARGE, MODULES, example

# Networks apply one operation after the other, and compile each. The statistics of the
# single image of their example amplify rounding: in training mode, direct and jitted
# calls of EfficientNetLite are both 0.002 away from float64.
SLOW = {"ConvNet", "Conv4", "EfficientNetLite", "ResNet20", "Simple6"}


@pytest.mark.parametrize(
  "name",
  [
    pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
    for name in sorted({*MODULES} - LARGE)
  ],
)
def test_a_direct_call_is_a_jitted_one(name, monkeypatch):
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
