"""Calls without jit: counts their compilations, and times them beside jit.

Every public function is called three times with the arguments of its documented
example, and so is its gradient where its documentation names one. For classes of
`models`, the whole example runs three times. Functions of batches are also timed on
batches of 256, beside the same call under jit.

    python -m benchmarks.calls
    python -m benchmarks.calls --smoke        # one function a room
    python -m benchmarks.calls --only losses. --json FILE
"""

import contextlib
import doctest
import functools
import importlib
import inspect
import io
import re
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

import spherejax
from benchmarks import _measure

ROOMS = (
  "distances", "solvers", "hierarchy", "metrics", "prototypes", "pooling", "losses",
  "attacks", "voronoi", "data", "training", "models", "plotting", "explorer",
)  # fmt: skip
TIMED = "distances", "metrics", "pooling", "losses"
BATCH = 256
MOST_RATIO, MOST_MORE = 2.0, 1e-3
"""Limits relative to jit, as a factor or in extra seconds; one must hold."""
ELSEWHERE = {
  "data.load_folder": "reads a folder that is gone when its example ends",
  "data.load_tfds": "needs prepared data",
  "data.read_image": "reads a file that is gone when its example ends",
  "explorer.main": "is the command of a process of its own",
  "training.gather": "asks the other devices of a mapped program",
  "training.start_processes": "has to be the first call of a process",
}
"""Functions whose example cannot be run three times here, and why."""

_AXES = "batch", "queries", "references", "n", "m"


class Call(NamedTuple):
  """Call from a documented example; equal arguments are the same objects."""

  function: Callable[..., Any]
  args: tuple[Any, ...]
  kwargs: dict[str, Any]

  def __call__(self) -> Any:
    """Calls the function and waits for its result."""
    return jax.block_until_ready(self.function(*self.args, **self.kwargs))


class _Reached(Exception):
  """Raised in place of an example's first call of the function, to end the example."""


def functions() -> Iterator[str]:
  """Names of all exported functions, "room.name"."""
  for room in ROOMS:
    module = importlib.import_module(f"spherejax.{room}")
    for name in module.__all__:
      if inspect.isfunction(getattr(module, name)):
        yield f"{room}.{name}"


def modules() -> Iterator[str]:
  """Names of the Flax modules and other classes of `models` that have an example."""
  for name in spherejax.models.__all__:
    thing = getattr(spherejax.models, name)
    if inspect.isclass(thing) and ">>>" in (inspect.getdoc(thing) or ""):
      yield f"models.{name}"


def example(module: str) -> Call:
  """Runs the whole documented example of a class."""
  original = getattr(spherejax.models, module.split(".")[1])
  names = _names(original)

  def run() -> None:
    with contextlib.redirect_stdout(io.StringIO()):
      for line in _lines(original):
        exec(compile(line.source, module, "single"), names)

  return Call(run, (), {})


def _names(original: Any) -> dict[str, Any]:
  return vars(sys.modules[original.__module__]) | {
    "jax": jax, "jnp": jnp, "np": np, "spherejax": spherejax
  }  # fmt: skip


def _lines(original: Any) -> Iterator[doctest.Example]:
  for line in doctest.DocTestParser().get_examples(inspect.getdoc(original) or ""):
    if not line.options.get(doctest.SKIP):
      yield line


def documented(function: str) -> Call:
  """First call of a function in the example of its documentation.

  If the example calls it inside jit or vmap, the traced arrays become arrays of ones.
  """
  room_name, name = function.split(".")
  room = importlib.import_module(f"spherejax.{room_name}")
  original = getattr(room, name)

  def reached(*args: Any, **kwargs: Any) -> Any:
    raise _Reached(args, kwargs)

  names = _names(original)
  setattr(room, name, reached)
  try:
    with contextlib.redirect_stdout(io.StringIO()):
      for line in _lines(original):
        exec(compile(line.source, function, "single"), names)
  except _Reached as signal:
    # Outside the trace, so that a key may be split and used.
    with jax.ensure_compile_time_eval():
      args, kwargs = jax.tree.map(_known, signal.args)
    return Call(original, args, kwargs)
  finally:
    setattr(room, name, original)
  raise LookupError(f"the example of {function} does not call it")


def _known(leaf: Any) -> Any:
  if not isinstance(leaf, jax.core.Tracer):
    return leaf
  if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
    return jax.random.key(0)
  return np.ones(leaf.shape, leaf.dtype)


@contextlib.contextmanager
def compilations() -> Iterator[list[float]]:
  """Collects the seconds of every program that is compiled inside."""
  durations: list[float] = []

  def listen(event: str, duration_secs: float, **_: Any) -> None:
    if event.endswith("backend_compile_duration"):
      durations.append(duration_secs)

  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    yield durations
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)


def compiled_in(call: Callable[[], Any], times: int = 3) -> list[int]:
  """Number of programs that each of several calls compiles."""
  numbers = []
  for _ in range(times):
    with compilations() as durations:
      call()
    numbers.append(len(durations))
  return numbers


def is_data(leaf: Any) -> bool:
  """True if jit would trace the leaf: arrays and floats."""
  return isinstance(leaf, float | np.ndarray | np.generic | jax.Array)


def is_floating(leaf: Any) -> bool:
  """True if the leaf can have a gradient."""
  return is_data(leaf) and jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def of_data(call: Call, which: Callable[[Any], bool]) -> tuple[Callable, list[Any]]:
  """Turns a call into a function of some leaves of its arguments; also returns them."""
  leaves, tree = jax.tree.flatten((call.args, call.kwargs))
  chosen = [which(leaf) for leaf in leaves]

  def function(data: list[Any]) -> Any:
    rest = iter(data)
    filled = [
      next(rest) if is_chosen else leaf
      for leaf, is_chosen in zip(leaves, chosen, strict=True)
    ]
    args, kwargs = jax.tree.unflatten(tree, filled)
    return call.function(*args, **kwargs)

  return function, [x for x, is_chosen in zip(leaves, chosen, strict=True) if is_chosen]


def differentiable(call: Call) -> tuple[Callable, list[Any]] | None:
  """Function for the sum of a call's results, and its data; None without a gradient."""
  doc = inspect.getdoc(call.function) or ""
  if not re.search(r"Differentiable in: (?!nothing)", doc):
    return None
  function, data = of_data(call, is_floating)

  def total(data: list[Any]) -> jax.Array:
    return sum(
      (jnp.sum(leaf) for leaf in jax.tree.leaves(function(data)) if is_floating(leaf)),
      start=jnp.zeros(()),
    )

  return (total, [jnp.asarray(x) for x in data]) if data else None


def gradient(call: Call) -> tuple[Callable, list[Any]] | None:
  """Gradient of `differentiable`, and its data; None where none is documented."""
  gradient_call = differentiable(call)
  return (jax.grad(gradient_call[0]), gradient_call[1]) if gradient_call else None


def larger(call: Call) -> Call | None:
  """Grows a call's batch to 256; None where it has no batch or cannot grow."""
  signature = inspect.signature(call.function)
  bound = signature.bind(*call.args, **call.kwargs)
  grown = False
  for name, value in bound.arguments.items():
    axes = _axes(signature.parameters[name].annotation)
    if not isinstance(value, jax.Array | np.ndarray) or len(axes) != np.ndim(value):
      continue
    for axis, title in enumerate(axes):
      if title in _AXES and value.shape[axis] < BATCH:
        value = jnp.take(value, np.arange(BATCH) % value.shape[axis], axis)
        grown = True
    bound.arguments[name] = value
  result = Call(call.function, bound.args, bound.kwargs)
  try:
    result()
  except (ValueError, TypeError):
    return None
  return result if grown else None


def _axes(annotation: Any) -> list[str]:
  """Names of the axes of the first allowed array type."""
  for part in (annotation, *getattr(annotation, "__args__", ())):
    if hasattr(part, "dim_str"):
      return part.dim_str.split()
  return []


def measured(function: str, repetitions: int) -> dict[str, Any]:
  """Compilations by call, and times on a batch of 256 beside jit's."""
  call = example(function) if function in set(modules()) else documented(function)
  row: dict[str, Any] = {"function": function, "programs": compiled_in(call)}
  gradient_call = gradient(call)
  if gradient_call:
    eager, data = gradient_call
    row["of the gradient"] = compiled_in(functools.partial(eager, data))
  compiled = hasattr(call.function, "__wrapped__")  # other functions run on the host
  big = larger(call) if compiled and function.split(".")[0] in TIMED else None
  if big:
    plain, data = of_data(big, is_data)
    row |= _times("", big, jax.jit(plain), data, repetitions)
    gradient_call = gradient(big)
    if gradient_call:
      eager, data = gradient_call
      ours = functools.partial(eager, data)
      row |= _times("gradient ", ours, jax.jit(eager), data, repetitions)
  return row


def summaries(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
  """Summary rows, one per room."""
  lines = []
  for room in dict.fromkeys(row["function"].split(".")[0] for row in rows):
    inside = [row for row in rows if row["function"].startswith(f"{room}.")]
    line: dict[str, Any] = {"room": room}
    for what, key in (("functions", "programs"), ("gradients", "of the gradient")):
      counts = [row[key] for row in inside if key in row]
      line[what] = len(counts)
      line[f"{what} that compile again"] = sum(count[-1] > 0 for count in counts)
    for what in ("", "gradient "):
      timed = [row for row in inside if f"{what}ms" in row]
      line |= {f"{what}timed": len(timed), f"{what}ms": "", f"{what}ms under jit": ""}
      if timed:
        for key in (f"{what}ms", f"{what}ms under jit"):
          line[key] = statistics.median(row[key] for row in timed)
    line["slower"] = sum(not row.get("met", True) for row in inside)
    line["gradients slower"] = sum(not row.get("gradient met", True) for row in inside)
    lines.append(line)
  return lines


def _times(
  what: str, call: Callable[[], Any], compiled: Callable, data: list[Any], number: int
) -> dict[str, Any]:
  pairs = []
  for _ in range(number + 1):
    ours = min(_measure.seconds_of(call) for _ in range(3))
    theirs = min(_measure.seconds_of(compiled, (data,)) for _ in range(3))
    pairs.append((ours, theirs))
  ours, theirs = (
    1e3 * statistics.median(side) for side in zip(*pairs[1:], strict=True)
  )
  met = ours <= MOST_RATIO * theirs or ours - theirs <= 1e3 * MOST_MORE
  return {f"{what}ms": ours, f"{what}ms under jit": theirs, f"{what}met": met}


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__)
  everything = [*functions(), *modules()]
  chosen = [x for x in everything if options.only in x and x not in ELSEWHERE]
  if options.smoke:
    chosen = list({name.split(".")[0]: name for name in reversed(chosen)}.values())
  rows: list[dict[str, Any]] = []
  for name in chosen:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")
      rows.append(measured(name, options.repetitions))
    cells = (f"{key}: {_measure.text(value)}" for key, value in rows[-1].items())
    print(*cells, sep="  ")
    _measure.save("calls", summaries(rows), [], options)
  _measure.require(rows, options)
  _measure.show("calls without jit, by room", summaries(rows))


if __name__ == "__main__":
  main()
