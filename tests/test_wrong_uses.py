"""Wrong uses of every public function: refused, and the message names the culprit.

The valid call is the first one of the function's own example; one argument at a time
is replaced. Some replacements must be refused; of the others some functions can make
sense, but an error of theirs must be as clear.
"""

import collections
import contextlib
import doctest
import importlib
import inspect
import io
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spherejax

ROOMS = [name for name in spherejax.__all__ if not name.startswith("_")]
FUNCTIONS = [
  f"{room}.{name}"
  for room in ROOMS
  for name in getattr(getattr(spherejax, room), "__all__", ())
  if callable(getattr(getattr(spherejax, room), name))
  and not inspect.isclass(getattr(getattr(spherejax, room), name))
]
# Their examples call them inside of a transformation, on several devices or not at all;
# attacks have a call here.
ATTACKS = {
  *(f"attacks.{name}" for name in ("apgd", "bim", "carlini_wagner", "deepfool")),
  *(f"attacks.{name}" for name in ("diagnose", "ensemble", "fab", "fgsm", "mi_fgsm")),
  *(f"attacks.{name}" for name in ("pgd", "square")),
}
NO_EXAMPLE = {
  "data.image_grid",
  "data.load_tfds",
  "data.sample_episode",
  "data.shuffled_indices",
  "models.replace_prototypes",
  "pooling.gsop",
  "pooling.netvlad",
  "pooling.otp",
  "solvers.sinkhorn",
  "training.gather",
  "training.start_processes",
}
# What may be anything: pytrees of any kind, functions, free text.
ANYTHING = {
  "data.load_folder": ("size",),  # the example's folder is gone by then
  "distances.k_nearest": ("references", "exclude"),
  "losses.memory_references": ("slots",),
  "metrics.nearest": ("exclude",),
  "plotting.bars_with_intervals": ("ylabel",),
  "plotting.heat_map": ("row_label", "column_label", "value_label"),
  "plotting.training_curves": ("ylabel",),
  "training.ccp_response": ("metric",),
  "training.global_mean": ("where",),
  "training.pad_rows": ("batch",),
  "training.process_rows": ("batch",),
  "training.replicate": ("tree",),
  "training.shard": ("batch",),
  "training.unreplicate": ("tree",),
  "training.when": ("value",),
}
SCALARS_TOO = {"attacks.steepest_ascent", "data.to_float", "training.reassign"}


# What attacks take: a linear classifier, three images of two pixels, and numbers.
LINEAR = (
  lambda x: x.reshape(len(x), 2) @ jnp.eye(2),
  np.full((3, 1, 2, 1), 0.5, np.float32),
  np.zeros(3, int),
)
KNOWN = {
  "key": jax.random.key(0),
  "success": np.zeros(3, bool),
  "epsilon": 0.1,
  "steps": 2,
  "norm": "l2",
  "loss": "margin",
}


def is_array(value):
  return isinstance(value, (np.ndarray, jax.Array)) and not jnp.issubdtype(
    value.dtype, jax.dtypes.prng_key
  )


class Called(Exception):
  """Ends an example at its first call, which is not made."""


def valid_call(room, name):
  """The function and the arguments of its example's first call outside of a trace."""
  module = importlib.import_module(f"spherejax.{room}")
  function, calls = getattr(module, name), []

  def recorded(*args, **kwargs):
    leaves = jax.tree.leaves((args, kwargs))
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
      calls.append((args, kwargs))
      raise Called
    return function(*args, **kwargs)

  names = {"jax": jax, "jnp": jnp, "np": np, "spherejax": spherejax}
  text = inspect.getdoc(function)
  example = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
  setattr(module, name, recorded)
  try:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Called):
      for line in example.examples:
        if line.options.get(doctest.SKIP):
          continue
        exec(compile(line.source, name, "single"), example.globs)
  finally:
    setattr(module, name, function)
  if f"{room}.{name}" in ATTACKS:
    assert not calls
    calls.append((LINEAR, KNOWN | {"step_size": 0.1}))
  if not calls:
    return function, None
  args, kwargs = calls[0]
  if f"{room}.{name}" in ATTACKS:
    names = inspect.signature(function).parameters
    kwargs = {key: value for key, value in kwargs.items() if key in names}
  return function, inspect.signature(function).bind(*args, **kwargs)


def wrong_arrays(value, others):
  """(what is wrong, the wrong value, whether it must be refused) of an array."""
  x = np.asarray(value)
  yield "text", "abc", True
  yield "nothing", None, True
  if x.ndim:
    yield "scalar", np.zeros((), x.dtype), True
    yield "empty", x[:0], False
    if len(x) > 1 and sum(len(other) == len(x) for other in others) > 1:
      yield "row missing", x[:-1], False
  yield "another type", x.astype(np.float32 if x.dtype == bool else complex), False
  if np.issubdtype(x.dtype, np.integer):
    yield "fractions", x.astype(np.float32), False


def wrong_uses(arguments):
  """(parameter, what is wrong, the wrong value, whether it must be refused)."""
  arrays = [value for value in arguments.values() if is_array(value) and value.ndim]
  for parameter, value in arguments.items():
    if is_array(value):
      for use in wrong_arrays(value, arrays):
        yield parameter, *use
    elif isinstance(value, str):
      yield parameter, "unknown name", "no such name", True
    elif isinstance(value, int) and not isinstance(value, bool):
      yield parameter, "text", "abc", True
      yield parameter, "negative", -1, False
      yield parameter, "fraction", 2.5, False
    elif isinstance(value, float):
      yield parameter, "text", "abc", True
      yield parameter, "vector", np.ones(7, np.float32), False


def failure(function, call, refused):
  """The error of a call; None where there is none.

  What may be accepted is only traced, unless the function needs its values.
  """

  def run():
    function(*call.args, **call.kwargs)

  try:
    with contextlib.redirect_stderr(io.StringIO()):
      try:
        run() if refused else jax.eval_shape(run)
      except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        run()
  except Exception as error:
    return error


def is_clear(error, value, parameters):
  """Whether the message names one of the arguments, the value or its shape."""
  said = f"{type(error).__name__}: {error}"
  named = any(re.search(rf"\b{re.escape(name)}\b", said) for name in parameters)
  empty = np.size(value) == 0 and "empty" in said
  is_shape = isinstance(value, np.ndarray)
  shown = [str(value.shape)] if is_shape else [repr(value), str(value)]
  mine = isinstance(error, (ValueError, TypeError, OSError))
  return mine and (named or empty or any(text in said for text in shown))


def test_every_function_is_here():
  assert {name.partition(".")[0] for name in FUNCTIONS} == set(ROOMS)
  assert len(FUNCTIONS) > 380
  assert {*ATTACKS, *NO_EXAMPLE, *ANYTHING, *SCALARS_TOO} <= set(FUNCTIONS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_uses(name, unchecked):
  function, call = valid_call(*name.split("."))
  assert (call is None) == (name in NO_EXAMPLE)
  if call is None:
    return
  if name in ATTACKS:  # valid, and not compiled
    jax.eval_shape(lambda: function(*call.args, **call.kwargs))
  with pytest.raises(TypeError, match="no_such_option"):
    function(*call.args, **call.kwargs, no_such_option=1)
  for parameter, what, value, refused in wrong_uses(call.arguments):
    if parameter in ANYTHING.get(name, ()):
      continue
    wrong = inspect.BoundArguments(
      call.signature, collections.OrderedDict({**call.arguments, parameter: value})
    )
    if name in ATTACKS and not refused:
      continue  # it would be compiled for most of them
    error = failure(function, wrong, refused)
    if error is None:
      accepted = not refused or (what == "scalar" and name in SCALARS_TOO)
      assert accepted, f"{what} in place of {parameter} is accepted"
    else:
      # What another argument makes wrong may be said of either of them.
      names = [parameter] if refused else call.signature.parameters
      assert is_clear(error, value, names), (parameter, what, error)
