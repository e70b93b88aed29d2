"""Sums of half-precision arrays are taken in float32, in every traced function.

With the eight bits of bfloat16 a sum of ones stops at 256.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import calls
from tests import programs, wrong_uses
from tests.test_wrong_uses import FUNCTIONS, call_of

SUMS = {"cumsum", "dot_general", "reduce_sum", "reduce_window_sum", "scatter-add"}
# The state of `class_moments_update` and the axes of `reweight` give the type, and are
# float32 as the library makes them.
IN_THEIR_TYPE = {"metrics.class_moments_update", "metrics.reweight"}
ROOMS = ("distances", "losses", "metrics", "pooling", "prototypes", "solvers")
NAMES = sorted({x for x in FUNCTIONS if x.startswith(ROOMS)} - IN_THEIR_TYPE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_sums(name, unchecked, tmp_path):
  function, call = call_of(name, tmp_path)
  run, leaves = calls.of_data(
    calls.Call(function, call.args, call.kwargs),
    lambda x: wrong_uses.is_array(x) and np.ndim(x) and np.asarray(x).dtype.kind == "f",
  )
  arrays = [jnp.asarray(leaf, jnp.bfloat16) for leaf in leaves]
  try:
    program = jax.make_jaxpr(run)(arrays)
  except (TypeError, ValueError) as error:
    pytest.skip(f"not traced in bfloat16: {error}")
  assert not [
    equation.primitive.name
    for equation in programs.equations(program.jaxpr)
    if equation.primitive.name in SUMS
    and equation.outvars[0].aval.dtype == jnp.bfloat16
  ]
