"""Functions that need an array on the host name a traced one, and a remedy.

Inside jit, vmap or the functions of a sweep, even a slice of a closed-over JAX array is
traced. Every array argument of every public function is traced in turn: the call works,
or its message names the argument and says what helps.
"""

import collections
import contextlib
import inspect
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import prototypes, training
from tests import wrong_uses
from tests.test_wrong_uses import FUNCTIONS, call_of

# Functions of whole devices, which cannot be traced.
NOT_IN_A_TRACE = {"training.replicate", "training.unreplicate"}


def traced_failure(function, call, name):
  """The error of a call with one argument traced, or None."""

  def run(value):
    arguments = {**call.arguments, name: value}
    order = [each for each in call.signature.parameters if each in arguments]
    bound = inspect.BoundArguments(
      call.signature, collections.OrderedDict({each: arguments[each] for each in order})
    )
    function(*bound.args, **bound.kwargs)

  try:
    with contextlib.redirect_stderr(io.StringIO()):
      jax.eval_shape(run, call.arguments[name])
  except Exception as error:
    return error
  return None


# Rooms whose functions are traced with all of their arrays in other tests.
TRACED = ("attacks", "distances", "losses", "pooling", "voronoi")
NAMES = [
  pytest.param(name, marks=[pytest.mark.slow] * name.startswith(TRACED))
  for name in sorted({*FUNCTIONS} - NOT_IN_A_TRACE)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_arrays_that_are_traced(name, unchecked, tmp_path):
  function, call = call_of(name, tmp_path)
  for parameter, value in call.arguments.items():
    if not wrong_uses.is_array(value):
      continue
    error = traced_failure(function, call, parameter)
    if error is not None:
      assert isinstance(error, TypeError), (parameter, error)
      assert "must be concrete" in str(error), (parameter, error)
      assert parameter in str(error), (parameter, error)


def test_a_slice_of_what_a_sweep_closes_over():
  points, labels = jnp.arange(12.0)[:, None], jnp.arange(12) % 3

  def run(labels):
    def evaluate(w, key, hyper):
      return prototypes.mean_covering_radius(points[4:] * w, labels[4:])

    return training.sweep(
      jax.random.key(0),
      lambda key, hyper: jnp.float32(1),
      lambda w, key, hyper: (w * hyper["rate"], {}),
      evaluate,
      {"rate": [0.5, 0.9]},
      steps=1,
      evaluate_every=1,
      progress=False,
    )

  with pytest.raises(
    TypeError, match=r"labels must be concrete.*slice it outside, with n"
  ):
    run(labels)
  assert np.isfinite(run(np.asarray(labels)).best_score).all()
