"""Wrong uses of every public function: refused, and the message names the culprit.

The valid call is the first one of the function's own example; one argument at a time
is replaced, options that it leaves at their defaults too. Some replacements must be
refused; of the others some functions can make sense, but an error of theirs must be as
clear.
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
  "data.class_pools": ("table",),  # any three arrays
  "data.load_folder": ("channels", "lazy", "size"),  # the example's folder is gone
  "data.map_images": ("dtype",),
  "hierarchy.from_paths": ("separator",),
  "metrics.reweight": ("principal",),
  "plotting.class_hulls": ("dots", "others"),
  "solvers.fixed_point": ("init",),
  "training.ccp_observe": ("batch_stats", "score"),
  "training.ccp_projection": ("batch_stats",),
  "training.ccp_response": ("fresh_moments", "metric", "renew"),
  "training.fit": ("batches", "devices", "evaluate", "respond"),
  "training.sweep": ("devices",),
  "distances.k_nearest": ("references", "exclude"),
  "losses.memory_references": ("slots",),
  "metrics.nearest": ("exclude",),
  "training.global_mean": ("where",),
  "training.pad_rows": ("batch",),
  "training.process_rows": ("batch",),
  "training.replicate": ("tree",),
  "training.shard": ("batch",),
  "training.unreplicate": ("tree",),
  "training.when": ("value",),
}
# Text of any kind; and axes of devices, of which jax knows the names.
FREE_TEXT = {"title", "other_label", "number_format", "axis_name", "class_axis_name"}
FREE_TEXT |= {"xlabel", "ylabel", "row_label", "column_label", "value_label"}
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


def wrong_options(value, annotation):
  """The same of what is no array."""
  if isinstance(value, str):
    yield "unknown name", "no such name", True
    yield "number", 3, True
  elif isinstance(value, int) and not isinstance(value, bool):
    yield "text", "abc", True
    yield "not a number", float("nan"), True
    yield "negative", -1, False
    yield "nothing at all", 0, False
    yield "fraction", 2.5, False
  elif isinstance(value, float):
    yield "text", "abc", True
    yield "not a number", float("nan"), True
    yield "complex", 1j, True
    yield "vector", np.ones(7, np.float32), False
  elif value is None and "Bool" in annotation:  # a mask
    yield "text", "abc", True
    yield "numbers", np.ones(7, np.float32), True
    yield "shape", np.ones((9, 9, 9), bool), True
  elif value is None and annotation == "int | None":
    yield "text", "abc", True
    yield "not a number", float("nan"), True
    yield "negative", -1, True
    yield "fraction", 2.5, True
  elif callable(value):
    yield "no function", 3, True
  elif isinstance(value, tuple) and type(value) is not tuple:  # what another returns
    yield "text", "abc", True
    yield "number", 3, True


def wrong_uses(call):
  """(parameter, what is wrong, the wrong value, whether it must be refused)."""
  given = call.arguments
  arrays = [value for value in given.values() if is_array(value) and value.ndim]
  for name, parameter in call.signature.parameters.items():
    if name in FREE_TEXT or parameter.kind not in (
      parameter.POSITIONAL_OR_KEYWORD,
      parameter.KEYWORD_ONLY,
    ):
      continue
    value = given.get(name, parameter.default)
    if is_array(value):
      for use in wrong_arrays(value, arrays):
        yield name, *use
    elif value is not parameter.empty:
      for use in wrong_options(value, str(parameter.annotation)):
        yield name, *use


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
  kind = f"not '?{type(value).__name__}"  # as Python says it
  shown = [str(value.shape)] if is_shape else [repr(value), str(value)]
  mine = isinstance(error, (ValueError, TypeError, OSError))
  shows = any(text in said for text in shown) or re.search(kind, said) is not None
  return mine and (named or empty or shows)


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
  for parameter, what, value, refused in wrong_uses(call):
    if parameter in ANYTHING.get(name, ()):
      continue
    arguments = {**call.arguments, parameter: value}
    order = [name for name in call.signature.parameters if name in arguments]
    wrong = inspect.BoundArguments(
      call.signature, collections.OrderedDict({name: arguments[name] for name in order})
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
