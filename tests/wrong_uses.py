"""Wrong uses of a function, derived from a valid call, one argument at a time.

The value in the valid call and the annotation say what a parameter may be; everything
else is wrong.
"""

import contextlib
import functools
import inspect
import io
import pathlib
import re
import tempfile
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import calls

# One value of each kind; a parameter takes one or two of the kinds.
KINDS = {
  "text": "abc",
  "number": 3,
  "nothing": None,
  "list": ["abc", 3],
  "mapping": {"abc": 3},
  "function": len,
  "complex": 1j,
}
# Further kinds, for functions with one or two arguments.
RARE = {"bytes": b"abc", "set": {"abc"}, "object": object()}
ALLOWED = (
  r"must|expected|one of|only|needs?\b|is for|not supported|takes|split evenly|neither|"
  "cannot be read|damaged"  # files
)
# Names of numbers of either sign, and of numbers that may be infinite.
ANY_SIGN = "margin|boundary|threshold|bias|exponent|^(low|high|init|score|offset)$"
UNBOUNDED = "low|high|init|score|epsilon|temperature"
# Names of numbers that must not be 0, and of numbers with a largest value.
POSITIVE = (
  "alpha|angle|backward|bandwidth|batch_size|beta|bins|block_size|channels|columns|"
  "confidence|count|curvature|cutoff|dim|epsilon_1|epsilon_inf|exponent|first_weight|"
  "floor|grid|hidden|high|imbalance|k|keep|largest|learning_rate|least|limit|mass|"
  "max_bytes|negative_scale|negatives_per_bin|neighbours|norm_order|num_classes|"
  "num_highest|num_prototypes|num_queries|num_shots|num_ways|overshoot|per_class|"
  "persistence|positive_scale|positives_per_bin|power|prefetch|restarts|ridge|root|"
  "rounds|rows|scale|share|sharpness|shrink|side|sigma|size|steepness|steps|t|target|"
  "target_count|temperature|threshold|total|window"
)
BOUNDED = (
  "angle|backward|balance|bias|brightness|channels|clean_weight|confidence|contrast|"
  "cutoff|epsilon|epsilon_1|epsilon_inf|fill|first|flip|fraction|hue|imbalance|k|limit|"
  "low|mass|max_bytes|min_count|momentum|num_ways|per_class|persistence|probability|"
  "saturation|share|shear|shrink|start|strength|translation|z_clip"
)
# Names of arrays whose range depends on other arguments, and of tables of numbers of
# any type, such as weights of pairs.
LABELS = (
  "labels(_a|_b)?|assignment|cosines|adversarial_cosines|episodes|predictions|retrieved"
)
OF_ANY_TYPE = "positives|negatives|.*_kernel|hidden_bias|budgets|scales|images|batch"
WITH_FRACTIONS = "class_distances|distances|confusion|images|batch"


class Use(NamedTuple):
  """One argument replaced.

  Attributes:
    parameter: name of the argument.
    what: kind of error.
    value: the wrong value.
    refused: whether it must be refused; otherwise, functions may accept it.
  """

  parameter: str
  what: str
  value: Any
  refused: bool


def is_array(value):
  return isinstance(value, (np.ndarray, jax.Array)) and not is_key(value)


def is_key(value):
  return isinstance(value, jax.Array) and jnp.issubdtype(
    value.dtype, jax.dtypes.prng_key
  )


# Cached, since an example runs up to the call, and several test files need it.
documented = functools.cache(calls.documented)


def bound(function, /, *args, **kwargs):
  """The function, and these arguments bound to its names."""
  return function, inspect.signature(function).bind(*args, **kwargs)


def may_be_nothing(parameter):
  return parameter.default is None or "None" in str(parameter.annotation)


def choices(annotation) -> tuple[str, ...]:
  """The names of the Literals in an annotation, or an empty tuple."""
  if typing.get_origin(annotation) is typing.Literal:
    return typing.get_args(annotation)
  return tuple(n for part in typing.get_args(annotation) for n in choices(part))


def named(annotations: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
  """The choices of each parameter that has choices."""
  return {name: choices(kind) for name, kind in annotations.items() if choices(kind)}


def listed(error: Exception | None, parameter: str) -> dict[str, tuple[str, ...]]:
  """The allowed names that a message lists for a parameter, if any."""
  found = re.match(rf"{parameter} must be one of ('.*'), got", str(error))
  return {parameter: tuple(re.findall("'(.*?)'", found[1]))} if found else {}


def of_kinds(parameter, *fitting):
  """A value of every kind that the parameter does not take."""
  fitting = {*fitting, *(["nothing"] if may_be_nothing(parameter) else [])}
  for kind, value in (KINDS | RARE).items():
    if kind not in fitting:
      yield kind, value, True


def wrong_paths(parameter, value):
  """Yields wrong uses of an existing file or folder."""
  yield from of_kinds(parameter, "text")
  path = pathlib.Path(value)
  yield "missing", path.parent / "missing" / path.name, True
  if path.is_file():
    bad = pathlib.Path(tempfile.mkdtemp(dir=path.parent))
    contents = {"empty": b"", "other bytes": b"\xff\x00\n", "text": b"abc\n"}
    contents["truncated"] = path.read_bytes()[: path.stat().st_size // 2]
    yield "folder", bad, True
    for what, content in contents.items():
      other = bad / f"{what}{path.suffix}"
      other.write_bytes(content)
      yield what, other, what != "truncated"


def wrong_arrays(parameter, value, others):
  """Yields wrong uses of an array: (what is wrong, wrong value, must be refused)."""
  x = np.asarray(value)
  yield from of_kinds(parameter, "number", "complex")
  if x.ndim:
    yield "scalar", np.zeros((), x.dtype), True
    yield "empty", x[:0], False
    # Lengths that must agree with another axis of this array or of another one.
    lengths = [n for other in (x, *others) for n in other.shape]
    if x.ndim > 1:
      yield "axis missing", x[0], True
      if x.shape[-1] > 1 and lengths.count(x.shape[-1]) > 2:
        yield "column missing", x[..., :-1], True
    if len(x) > 1 and lengths.count(len(x)) > 2:
      yield "row missing", x[:-1], True
  named = functools.partial(re.fullmatch, string=parameter.name)
  other = x.astype(np.float32 if x.dtype == bool else complex)
  yield "another type", other, not named(OF_ANY_TYPE)
  if np.issubdtype(x.dtype, np.integer):
    yield "fractions", x.astype(np.float32), not named(WITH_FRACTIONS)
  if np.issubdtype(x.dtype, np.floating):
    yield "integers", x.astype(int), not named(OF_ANY_TYPE)
  if named(LABELS) and x.size and x.ndim:
    for what, number in (("far below", -1000), ("far beyond", 1000)):
      other = x.copy()
      other.flat[0] = number
      yield what, other, True


def ends(parameter, kind):
  """Yields numbers beyond the ends of a parameter's range."""
  if re.fullmatch(POSITIVE, parameter.name):
    yield "nothing at all", kind(0), True
  if re.fullmatch(BOUNDED, parameter.name):
    yield "far beyond", kind(1000), True


def wrong_options(parameter, value):
  """Yields wrong uses of arguments that are not arrays."""
  annotation, names = str(parameter.annotation), choices(parameter.annotation)
  if "PathLike" in annotation and value is not None:
    yield from wrong_paths(parameter, value)
  elif isinstance(value, str) or (
    value is None and names and "Array" not in annotation
  ):
    yield from of_kinds(parameter, "text")
    yield "unknown name", "no such name", True
    yield "empty", "", True
  elif isinstance(value, bool):
    yield from of_kinds(parameter)
  elif isinstance(value, int) or (value is None and annotation == "int | None"):
    yield from of_kinds(parameter, "number")
    yield "not a number", float("nan"), True
    yield "negative", -1, value is None or not re.search(ANY_SIGN, parameter.name)
    if value is not None:
      yield from ends(parameter, int)
    yield "fraction", 2.5, True
  elif isinstance(value, float):
    yield from of_kinds(parameter, "number", "list")
    yield "not a number", float("nan"), True
    yield "negative", -1.0, not re.search(ANY_SIGN, parameter.name)
    yield "infinite", float("inf"), not re.fullmatch(UNBOUNDED, parameter.name)
    yield from ends(parameter, float)
    yield "vector", np.ones(7, np.float32), True
  elif value is None and "Bool" in annotation:  # a mask
    yield from of_kinds(parameter, "number", "complex")
    yield "numbers", np.ones(7, np.float32), True
    yield "shape", np.ones((9, 9, 9), bool), True
  elif callable(value) or (value is None and "Callable" in annotation):
    yield from of_kinds(parameter, "function")
  elif value is None and re.search(r"Array\b", annotation):
    yield from of_kinds(parameter, "number", "complex", "list")
    yield "shape", np.ones((9, 9, 9), np.float32), True
  elif value is None and annotation == "str | None":
    yield from of_kinds(parameter, "text")
  elif is_key(value):
    yield from of_kinds(parameter)
    yield "numbers", np.ones(2, np.float32), True
  elif isinstance(value, tuple) and type(value) is not tuple:  # a function's result
    yield from of_kinds(parameter)
    yield "empty", (), True
  elif isinstance(value, Mapping):
    yield from of_kinds(parameter, "mapping")
    yield "empty", {}, False
  elif isinstance(value, Sequence):
    yield from of_kinds(parameter, "list")
    yield "empty", value[:0], False
    yield "entry", [None, *value[1:]], False
  elif value is not None:
    yield from of_kinds(parameter)


def wrong_uses(call, anything=()) -> Iterator[Use]:
  """Yields every argument of a call with wrong values, except those in `anything`."""
  given = call.arguments
  arrays = [value for value in given.values() if is_array(value) and value.ndim]
  parameters = [
    parameter
    for name, parameter in call.signature.parameters.items()
    if name not in anything
    and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
  ]
  for parameter in parameters:
    value, uses = given.get(parameter.name, parameter.default), ()
    if is_array(value):
      uses = wrong_arrays(parameter, value, arrays)
    elif value is not parameter.empty:
      uses = wrong_options(parameter, value)
    for use in uses:
      if use[0] not in RARE or len(parameters) < 3:
        yield Use(parameter.name, *use)


def called(function: Callable[..., Any], call, values: Mapping[str, Any]) -> Any:
  """Makes the call with these arguments replaced or added, by name."""
  bound = inspect.BoundArguments(call.signature, {**call.arguments, **values})
  return function(*bound.args, **bound.kwargs)


def failure(function: Callable[..., Any], call, use: Use) -> Exception | None:
  """The error of a call with one argument replaced, or None.

  Uses that may be accepted are only traced, unless the function needs their values.
  """

  def run():
    called(function, call, {use.parameter: use.value})

  try:
    with contextlib.redirect_stderr(io.StringIO()):
      try:
        run() if use.refused else jax.eval_shape(run)
      except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        run()
  except Exception as error:
    return error
  return None


def given(call) -> dict[str, Any]:
  """Every parameter of a call and its value."""
  parameters = call.signature.parameters.items()
  return {name: call.arguments.get(name, each.default) for name, each in parameters}


def is_clear(error: Exception, use: Use, arguments: Mapping[str, Any]) -> bool:
  """Whether the message names the argument, shows its value and says what is allowed.

  If two arguments do not fit each other, it may name either of them.
  """
  said = str(error)
  if isinstance(error, OSError):
    return str(use.value) in said
  if not isinstance(error, (ValueError, TypeError)):
    return False
  together = use.what in ("scalar", "axis missing", "row missing", "column missing")
  names = [use.parameter] if use.refused and not together else arguments
  named = any(re.search(rf"\b{re.escape(name)}\b", said) for name in names)
  named |= isinstance(use.value, pathlib.Path) and str(use.value) in said
  shown = together or any(text in said for text in shows(use.value))
  for other in arguments.values():
    if isinstance(other, (str, int, float, type(None))):
      shown |= re.search(rf"(got |=|loss ){re.escape(repr(other))}", said) is not None
  return named and shown and re.search(ALLOWED, said) is not None


def shows(value) -> Iterator[str]:
  """Texts by which a message can show a value: itself, its type, shape or length."""
  yield from (repr(value), str(value), type(value).__name__)
  if isinstance(value, (list, tuple, set, Mapping)):
    parts = [*value, *jax.tree.leaves(value)]
    for part in parts if not isinstance(value, set) else value:
      yield from shows(part)
  with contextlib.suppress(ValueError):  # ragged nested lists
    x = np.asarray(value)
    yield from (str(x.shape), str(x.dtype))
    yield str(jax.dtypes.canonicalize_dtype(x.dtype))
    if x.ndim:
      n = len(x)
      yield from (f" {n} ", f"({n},", f", {n})", f"got {n}")
    if x.size == 0 or (isinstance(value, Mapping) and not value):
      yield from ("empty", "got none", "got 0")
    if x.dtype.kind in "fi":
      yield from map("{:g}".format, x.flat[:1])
  leaves = jax.tree.leaves(value)
  yield from (str([np.shape(leaf) for leaf in leaves]), f"{len(leaves)} leaves")
  yield from ("got both", "got only one", "got neither")
