"""Settings to make before jax starts: simulated devices, cache, strictness."""

import functools
import gc
import importlib.metadata
import itertools
import os
import pathlib
import resource

from tests import compiler

# The tests compile thousands of small programs and run each a few times.
os.environ["XLA_FLAGS"] = " ".join(
  [
    os.environ.get("XLA_FLAGS", ""),
    "--xla_force_host_platform_device_count=4",
    *compiler.FLAGS,
  ]
)
os.environ.setdefault("MPLBACKEND", "Agg")
# Its threads wait for each other in busy loops, and pytest fills all cores already.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import jaxtyping
import pytest

# Memory of a process above which it drops its programs: its share of half the memory.
_PROGRAMS_KIB = (
  os.sysconf("SC_PHYS_PAGES")
  * os.sysconf("SC_PAGE_SIZE")
  // 2048
  // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
)

# At 8,192 live signatures, jax drops new ones at once, and every call becomes slow.
_PROGRAMS = 4_000
_compiled = []
jax.monitoring.register_event_duration_secs_listener(
  lambda event, seconds, **_: (
    _compiled.append(seconds) if event.endswith("backend_compile_duration") else None
  )
)

# Creating an MLIR context takes a fifth of the compilation of a small program, so 500
# programs share one; a program that is lowered inside another one gets its own.
if importlib.metadata.version("jax") in ("0.7.2", "0.10.2", "0.12.0.1"):
  from jax._src.interpreters import mlir
  from jax._src.lib.mlir import ir

  _new_context = mlir.make_ir_context
  _context = functools.lru_cache(maxsize=1)(lambda _: _new_context())
  _programs = itertools.count()

  def _shared_context():
    inside = ir.Context.current is not None
    return _new_context() if inside else _context(next(_programs) // 500)

  mlir.make_ir_context = _shared_context

# Tracing makes many objects and few cycles; frequent collection takes a tenth of the
# time.
gc.set_threshold(200_000, 50, 50)
# Only profilers need the source lines of operations.
jax.config.update("jax_traceback_in_locations_limit", 0)
jax.config.update("jax_traceback_filtering", "off")  # filtering reads files per error
jax.config.update("jax_numpy_rank_promotion", "raise")

# If this folder exists, it keeps compiled programs for the next run. With these flags,
# storing a program takes longer than compiling it.
_cache = pathlib.Path(__file__).parent / ".jax_cache"
if _cache.is_dir():
  jax.config.update("jax_compilation_cache_dir", str(_cache))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


@pytest.fixture(scope="module", autouse=True)
def _few_programs():
  """Drops compiled programs after a test file if they are many or memory is full."""
  yield
  if (
    len(_compiled) > _PROGRAMS
    or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _PROGRAMS_KIB
  ):
    jax.clear_caches()
    _compiled.clear()


@pytest.fixture
def unchecked():
  """Switches jaxtyping's checks off, so that a call meets our own messages."""
  jaxtyping.config.update("jaxtyping_disable", True)
  yield
  jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def x64():
  """Enables float64 for one test."""
  from spherejax import _versions

  with _versions.enable_x64(True):
    yield


@pytest.fixture(scope="session")
def tfds_dir():
  """Folder of prepared image sets; skips tests that need it if there is none."""
  root = os.environ.get("TFDS_DATA_DIR", "")
  if not root or not pathlib.Path(root).is_dir():
    pytest.skip("TFDS_DATA_DIR names no folder of prepared tensorflow-datasets sets")
  return pathlib.Path(root)


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace):
  """Adds names that examples in docstrings and pages use without importing them."""
  import spherejax

  doctest_namespace.update(jax=jax, jnp=jnp, spherejax=spherejax)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
  """Collects garbage once and freezes the rest; pytest would collect five times."""
  gc.collect()
  gc.freeze()


def pytest_terminal_summary(terminalreporter):
  """Prints a table of all losses and their checks."""
  table = {}
  for reports in terminalreporter.stats.values():
    for report in reports:
      found = {
        key.removeprefix("loss:"): outcome
        for key, outcome in getattr(report, "user_properties", ())
        if key.startswith("loss:")
      }
      if found:
        table[report.nodeid.partition("[")[2].rstrip("]")] = found
  if not table:
    return
  checks = list(max(table.values(), key=len))
  width = max(map(len, table))
  terminalreporter.section("losses")
  terminalreporter.line(" ".join([" " * width, *checks]))
  for name, found in sorted(table.items()):
    cells = (found.get(check, "").ljust(len(check)) for check in checks)
    terminalreporter.line(" ".join([name.ljust(width), *cells]))
