"""Every public function with traced arrays, as inside jit, vmap and `jax.shard_map`.

Every array argument is traced in turn, then all of them. Either the call works, or the
function needs the array on the host: then its message names the argument and says what
helps. Even a slice of a closed-over JAX array is traced.

The calls are traced in a `shard_map` with its type checks on. There an array may vary
over devices, and loops must begin with arrays that vary as what they return does.
"""

import contextlib
import functools
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import calls
from spherejax import prototypes, training
from tests import wrong_uses
from tests.test_wrong_uses import PARAMETERS, call_of

# Functions of whole devices, which cannot be traced.
NOT_IN_A_TRACE = {"training.replicate", "training.unreplicate"}
# The line search of optax cannot be typed.
NOT_IN_SHARDS = {"training.linear_probe"}


def copies(values, number):
  return jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * number), values)


def on_devices(function, number, out_specs):
  mesh = jax.sharding.Mesh(jax.devices()[:number], ("device",))
  return jax.shard_map(
    function, mesh=mesh, in_specs=jax.P("device"), out_specs=out_specs
  )


def traced_failure(run, values, sharded=True):
  """The error of a call with these values traced, or None."""

  def of_device(stacked):
    run(jax.tree.map(lambda x: x[0], stacked))

  mapped = on_devices(of_device, 1, jax.P()) if sharded else of_device
  try:
    with contextlib.redirect_stderr(io.StringIO()):
      jax.eval_shape(mapped, copies(values, 1))
  except Exception as error:
    return error
  return None


def changed(function, call):
  """The call as a function of some of its arguments, by name."""
  return functools.partial(wrong_uses.called, function, call)


# Rooms whose functions are traced with all of their arrays in other tests.
TRACED = ("attacks", "distances", "losses", "pooling", "voronoi")
NAMES = sorted({*PARAMETERS} - NOT_IN_A_TRACE)
SLOW = [
  pytest.param(name, marks=[pytest.mark.slow] * name.startswith(TRACED))
  for name in NAMES
]


def arrays_of(call):
  return {k: x for k, x in call.arguments.items() if wrong_uses.is_array(x)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SLOW)
def test_arrays_that_are_traced(name, unchecked, tmp_path):
  function, call = call_of(name, tmp_path)
  run = changed(function, call)
  for parameter, value in arrays_of(call).items():
    error = traced_failure(run, {parameter: value}, name not in NOT_IN_SHARDS)
    if error is not None:
      assert isinstance(error, TypeError), (parameter, error)
      assert "must be concrete" in str(error), (parameter, error)
      assert parameter in str(error), (parameter, error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [x for x in NAMES if x not in NOT_IN_SHARDS])
def test_all_arrays_and_derivatives_of_devices(name, unchecked, tmp_path):
  function, call = call_of(name, tmp_path)
  programs = [(changed(function, call), arrays_of(call))]
  if name not in calls.ELSEWHERE:
    programs.append(calls.gradient(calls.documented(name)) or (None, None))
  for run, values in programs:
    error = traced_failure(run, values) if values else None
    assert error is None or "must be concrete" in str(error), error


# One for each kind of loop that begins with constants.
COMPUTED = [
  "attacks.pgd", "losses.soft_triple", "losses.triplet", "metrics.count_regions",
  "prototypes.greedy_k_centre", "solvers.k_means", "solvers.linear_assignment",
  "solvers.sinkhorn", "voronoi.confine",
]  # fmt: skip


@pytest.mark.parametrize("name", COMPUTED)
def test_each_device_computes_its_values(name, tmp_path):
  function, call = call_of(name, tmp_path)
  run, values = changed(function, call), arrays_of(call)

  def of_device(stacked):
    result = run(jax.tree.map(lambda x: x[0], stacked))
    return jax.tree.map(lambda x: x[None], result)

  mapped = jax.jit(on_devices(of_device, 2, jax.P("device")))(copies(values, 2))
  both = mapped, copies(run(values), 2)
  for x, right in zip(*map(jax.tree.leaves, both), strict=True):
    np.testing.assert_allclose(x, right, rtol=1e-5, atol=1e-6)


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

  message = r"labels must be concrete.*slice it outside, with n"
  with pytest.raises(TypeError, match=message):
    run(labels)
  assert np.isfinite(run(np.asarray(labels)).best_score).all()


# Functions of a batch that is spread over devices.
SPREAD = [x for x in NAMES if "axis_name" in PARAMETERS[x] and x != "training.gather"]
OF_BATCH = {"cosines", "embeddings", "features", "labels", "scores"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SPREAD)
def test_batches_that_are_spread_over_devices(name, unchecked, tmp_path):
  function, call = call_of(name, tmp_path)
  call.arguments["axis_name"] = "device"
  error = traced_failure(changed(function, call), arrays_of(call))
  assert error is None, error


@pytest.mark.parametrize("name", [x for x in SPREAD if x.endswith("_update")])
def test_states_are_equal_on_all_devices(name, tmp_path):
  function, call = call_of(name, tmp_path)
  call.arguments["axis_name"] = "device"
  run = changed(function, call)

  def of_device(stacked):
    result = run(jax.tree.map(lambda x: x[0], stacked))
    # The second is what became of the device's rows.
    return result[0] if name == "losses.memory_update" else result

  batch = {k: x for k, x in call.arguments.items() if k in OF_BATCH}
  # jax refuses an output that may differ between devices.
  jax.eval_shape(on_devices(of_device, 1, jax.P()), copies(batch, 1))
