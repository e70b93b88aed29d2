"""Shared parts of all benchmarks: paired timing, checked agreement, one table.

Ours, the peers and the floor run one after another in every repetition, so that a slow
moment of the machine falls on all of them; a ratio is the median over the repetitions.
A time counts only after the results agree. On a GPU or TPU, if the floor consists of
matrix products, we also list the share of the device's measured rate that the floor
and ours reach.
"""

import argparse
import errno
import functools
import importlib.metadata
import importlib.util
import math
import os
import pathlib
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import rich.console
import rich.table

from experiments.frame import results as frame_results

OURS, FLOOR = "ours", "floor"
SHARE = "share of the matrix rate"
TIMES = ["case", "", "ms", "theirs / ours", "at least", "met"]
TIMES += ["compilation, s", "differs by"]
# Import names and their distributions.
LIBRARIES = {
  "spherejax": "spherejax", "jax": "jax", "numpy": "numpy", "torch": "torch",
  "pytorch_metric_learning": "pytorch-metric-learning", "faiss": "faiss-cpu",
  "ott": "ott-jax", "foolbox": "foolbox", "torchattacks": "torchattacks",
  "easyfsl": "easyfsl", "kornia": "kornia", "torchvision": "torchvision",
}  # fmt: skip
_SHORTEST, _LONG = 0.03, 3.0  # seconds: least per measurement; longer gets no warm-up
_NOTHING = 1e-6  # losses below this underflow in some peers and count as 0


class Contender(NamedTuple):
  """Function to time.

  Attributes:
    call: function of the case's inputs; compiled here if `compiled`.
    agrees: largest difference from ours that counts as the same result, relative to
      the largest entry; None for a floor, which computes something else.
    compiled: True if `call` is a function for `jax.jit`.
  """

  call: Callable[..., Any]
  agrees: float | None = None
  compiled: bool = True


class Target(NamedTuple):
  """Least speed-up of ours over `other`; below 1, ours may be slower."""

  other: str
  ratio: float


class Options(NamedTuple):
  """Command line of a benchmark."""

  smoke: bool
  json: pathlib.Path | None
  repetitions: int
  only: str


def parse(doc: str | None, *, cases: bool = True, timed: bool = True) -> Options:
  """Reads --smoke, --json FILE, --only TEXT and --repetitions N.

  --only is for benchmarks with several cases, --repetitions for those that measure
  times.
  """
  parser = argparse.ArgumentParser(
    description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--smoke", action="store_true", help="the smallest size only")
  parser.add_argument("--json", type=pathlib.Path, help="file for the same table")
  parser.set_defaults(repetitions=11, only="")
  if timed:
    parser.add_argument("--repetitions", type=int, help="at least 7")
  if cases:
    parser.add_argument("--only", help="cases whose name has this in it")
  options = parser.parse_args()
  if options.repetitions < 7 and not options.smoke:
    parser.error(f"--repetitions must be at least 7, got {options.repetitions}")
  if options.json:  # checked now, since it is written hours later
    try:
      if options.json.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
      options.json.with_suffix(".partial").touch()
      options.json.with_suffix(".partial").unlink()
    except OSError as error:
      parser.error(f"--json {options.json} cannot be written: {error.strerror}")
  repetitions = 1 if options.smoke else options.repetitions
  return Options(options.smoke, options.json, repetitions, options.only)


def compare(
  case: str,
  inputs: tuple,
  contenders: Mapping[str, Contender],
  targets: tuple[Target, ...],
  *,
  repetitions: int,
) -> dict[str, Any]:
  """Times the contenders side by side on the same inputs.

  For contenders that compile inside their call, compilation is the extra time of the
  first call.

  Raises:
    AssertionError: a contender's result differs from ours by more than `agrees`.
  """
  calls, compile_seconds, first, results = {}, {}, {}, {}
  for name, contender in contenders.items():
    start = time.perf_counter()
    calls[name] = contender.call
    if contender.compiled:
      calls[name] = jax.jit(contender.call).lower(*inputs).compile()
    compile_seconds[name] = time.perf_counter() - start
    start = time.perf_counter()
    results[name] = jax.block_until_ready(calls[name](*inputs))
    first[name] = time.perf_counter() - start
  differences = {
    name: relative_difference(results[name], results[OURS])
    for name, contender in contenders.items()
    if contender.agrees is not None
  }
  for name, difference in differences.items():
    limit = contenders[name].agrees
    if limit is not None and not difference <= limit:
      raise AssertionError(f"{case}: {name} differs from ours by {difference:.1e}")
  lasts = {name: seconds_of(call, inputs) for name, call in calls.items()}  # a warm-up
  seconds: dict[str, list[float]] = {name: [] for name in calls}
  for _ in range(repetitions):
    for name, call in calls.items():
      if lasts[name] < _LONG:
        # Not timed: absorbs effects of the previous contender on caches and allocator.
        jax.block_until_ready(call(*inputs))
      inner = max(1, min(100, round(_SHORTEST / lasts[name])))
      seconds[name].append(seconds_of(call, inputs, inner))
  for name, contender in contenders.items():
    if not contender.compiled:
      more = first[name] - statistics.median(seconds[name])
      compile_seconds[name] = max(0.0, more)
  ratios = {
    name: statistics.median(
      other / ours for other, ours in zip(times, seconds[OURS], strict=True)
    )
    for name, times in seconds.items()
    if name != OURS
  }
  milliseconds = {name: 1e3 * statistics.median(t) for name, t in seconds.items()}
  row = {
    "case": case,
    "milliseconds": milliseconds,
    "compile_seconds": compile_seconds,
    "difference": differences,
    "ratio": ratios,
    "targets": [
      {**t._asdict(), "met": ratios[t.other] >= t.ratio}
      for t in targets
      if t.other in ratios
    ],
  }
  floor = contenders.get(FLOOR)
  if floor and floor.compiled and _accelerated():
    operations = product_operations(floor.call, inputs)
    if operations:
      row[SHARE] = rate_shares(operations, milliseconds, matrix_rate())
  return row


def product_operations(call: Callable, inputs: tuple) -> float | None:
  """Floating-point operations of the products; None if their number is unknown.

  Counted here, since XLA does not count products that it leaves to a library.
  """
  operations = _products(jax.make_jaxpr(call)(*inputs).jaxpr)
  return operations if operations > 0 else None  # NaN is not above 0


def _products(jaxpr: Any) -> float:
  total = 0.0
  for equation in jaxpr.eqns:
    parameters = equation.params
    if equation.primitive.name == "dot_general":
      (contracted, _), _ = parameters["dimension_numbers"]
      shape = equation.invars[0].aval.shape
      terms = math.prod(shape[axis] for axis in contracted)
      total += 2 * equation.outvars[0].aval.size * terms
    inner = [p.jaxpr for p in parameters.values() if hasattr(p, "jaxpr")]
    # The count is unknown for a loop whose number of rounds depends on values.
    rounds = parameters.get("length", math.nan if "cond_jaxpr" in parameters else 1)
    total += rounds * sum(map(_products, inner)) if inner else 0
  return total


@functools.cache
def matrix_rate(side: int = 8192) -> float:
  """Operations per second of a large product, as exact in float32 as our own."""
  x = jnp.ones((side, side), jnp.float32)
  product = jax.jit(lambda x: jnp.matmul(x, x, precision=jax.lax.Precision.HIGHEST))
  return 2 * side**3 / min(seconds_of(product, (x,)) for _ in range(6))


def rate_shares(
  operations: float, milliseconds: Mapping[str, float], rate: float
) -> dict[str, float]:
  """Shares of `rate` that ours and the floor reach, by the floor's operations."""
  return {
    name: operations / (1e-3 * milliseconds[name]) / rate for name in (OURS, FLOOR)
  }


def _accelerated() -> bool:
  return jax.devices()[0].platform != "cpu"


def relative_difference(result: Any, expected: Any) -> float:
  """Largest difference of any entry, relative to the largest entry of its array.

  A peer with fewer results is compared with the first arrays of ours.
  """
  worst = 0.0
  for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=False):
    a, b = _host(a), _host(b)
    size = np.maximum(np.abs(b).max(initial=0), _NOTHING)
    # NumPy's maximum, which keeps NaN.
    worst = np.maximum(worst, np.abs(a - b).max(initial=0) / size)
  return float(worst)


def _host(leaf: Any) -> np.ndarray:
  """Converts an array of jax, NumPy or torch, on any device, to NumPy."""
  return np.asarray(leaf.cpu() if hasattr(leaf, "is_cuda") else leaf, np.float64)


def seconds_of(call: Callable, inputs: tuple = (), inner: int = 1) -> float:
  """Mean seconds of a call."""
  start = time.perf_counter()
  for _ in range(inner):
    jax.block_until_ready(call(*inputs))
  return (time.perf_counter() - start) / inner


def print_peak_memory() -> None:
  """Prints the line that `peak_memory` reads."""
  statistics = jax.devices()[0].memory_stats()
  if statistics and "peak_bytes_in_use" in statistics:  # an accelerator's own memory
    print(statistics["peak_bytes_in_use"])
    return
  status = pathlib.Path("/proc/self/status")
  # Peak of this program alone, while ru_maxrss starts from the parent's.
  if status.exists():
    match = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    assert match is not None
    print(int(match[1]) * 1024)
    return
  unit = 1 if sys.platform == "darwin" else 1024
  print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def peak_memory(module: str, *arguments: str) -> int:
  """Peak memory in bytes of a fresh process that ends with `print_peak_memory`."""
  command = [sys.executable, "-m", module, *arguments]
  result = subprocess.run(command, capture_output=True, text=True, check=True)
  return int(result.stdout.split()[-1])


def times(rows: list[dict[str, Any]], no: str = "NO") -> Iterator[list[str]]:
  """Yields a line of cells per contender, for a table with the headings `TIMES`."""
  for row in rows:
    for name, milliseconds in row["milliseconds"].items():
      target = next((t for t in row["targets"] if t["other"] == name), None)
      ratio, difference = row["ratio"].get(name), row["difference"].get(name)
      yield [
        row["case"] if name == OURS else "",
        name,
        f"{milliseconds:.3g}",
        "" if ratio is None else f"{ratio:.2f}",
        "" if target is None else f"{target['ratio']:.3g}",
        "" if target is None else text(target["met"], no),
        f"{row['compile_seconds'][name]:.1f}",
        "" if name == OURS or difference is None else f"{difference:.0e}",
      ]


def report(
  name: str, rows: list[dict[str, Any]], missing: list[str], options: Options
) -> None:
  """Prints the table and writes it as JSON."""
  require(rows, options)
  table = rich.table.Table(title=f"{name}, times in ms; ratio = theirs / ours")
  for heading in [*TIMES, "of rate"] if any(SHARE in x for x in rows) else TIMES:
    table.add_column(heading, justify="left" if heading in ("case", "") else "right")
  for row in rows:
    table.add_section()
    for line in times([row]):
      share = row.get(SHARE, {}).get(line[1])
      table.add_row(*line, *([] if share is None else [f"{share:.0%}"]))
  rich.console.Console(width=140, markup=False).print(table)
  for peer in missing:
    print(f"skipped: {peer} is not installed")
  save(name, rows, missing, options)


def run(
  name: str,
  works: Mapping[str, Callable[[], dict[str, Any]]],
  missing: list[str],
  options: Options,
  note: Callable[[dict[str, Any]], str] = lambda row: "",
) -> list[dict[str, Any]]:
  """Measures the cases that --only leaves, and reports them; returns their rows.

  All rows so far are saved after each case. `note` is printed with the case's name.
  """
  rows: list[dict[str, Any]] = []
  for case, work in works.items():
    if options.only in case:
      rows.append(work())
      print(f"done: {rows[-1]['case']}{note(rows[-1])}", flush=True)
      save(name, rows, missing, options)
  report(name, rows, missing, options)
  return rows


def lacking(*modules: str) -> list[str]:
  """Distributions of the modules that are not installed."""
  return [LIBRARIES.get(x, x) for x in modules if not importlib.util.find_spec(x)]


def text(value: Any, no: str = "NO") -> str:
  """Shows a value in a cell of a table."""
  if isinstance(value, bool):
    return "yes" if value else no
  if isinstance(value, list):
    return " ".join(text(part, no) for part in value)
  return f"{value:.3g}" if isinstance(value, float) else str(value)


def show(title: str, rows: list[dict[str, Any]]) -> None:
  """Prints a table of rows that have the same figures."""
  table = rich.table.Table(*rows[0], title=title)
  for row in rows:
    table.add_row(*map(text, row.values()))
  rich.console.Console(width=140, markup=False).print(table)


def require(rows: list[dict[str, Any]], options: Options) -> None:
  """Ends a run if --only has left no case."""
  if options.only and not rows:
    raise SystemExit(f"--only {options.only!r} is in the name of no case of this run")


def save(
  name: str, rows: list[dict[str, Any]], missing: list[str], options: Options
) -> None:
  """Writes the rows so far as JSON, if requested."""
  if options.json:
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    imported = {module.partition(".")[0] for module in sys.modules}
    arguments = [a for a in sys.argv[1:] if a not in ("--json", str(options.json))]
    content = {
      "benchmark": name,
      "command": " ".join(["python -m", f"benchmarks.{name}", *arguments]),
      "device": device,
      "machine": f"{os.cpu_count()} cores of {_processor()}, {device}",
      "versions": {
        library: importlib.metadata.version(library)
        for module, library in LIBRARIES.items()
        if module in imported
      },
      "rows": rows,
      "missing": missing,
    }
    frame_results.write_json(content, options.json)


def _processor() -> str:
  """Name of the processor, from the system."""
  status = pathlib.Path("/proc/cpuinfo")
  content = status.read_text() if status.exists() else ""
  match = re.search(r"model name\s*: (.*)", content)
  return match[1] if match else platform.processor() or platform.machine()
