"""Times assignment problems: cold starts, warm starts, and many problems at once.

A cold start on the host, which calls scipy inside, is compared with scipy alone. A warm
start begins from the result before a small drift of the representatives, and is
compared with a cold start. 64 problems of 100 classes at once are compared with 64
calls of scipy and with optax. The floor is one pass over the costs.

    python -m benchmarks.assignment                  # minutes on 2 cores
    python -m benchmarks.assignment --smoke          # seconds
    python -m benchmarks.assignment --json FILE
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import linear_sum_assignment

from benchmarks import _measure
from spherejax import solvers

DIM = 64
SIZES = (100, 1000)
LARGE = 10_000
PROBLEMS = 64
NEAR, DRIFT = 0.05, 0.01  # noise around the prototypes, and of one update


def unit_rows(rng: np.random.Generator, *shape: int) -> np.ndarray:
  """Unit rows in float32, uniform on the sphere."""
  x = rng.normal(size=shape)
  return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def random_costs(size: int) -> np.ndarray:
  """Negative cosines of random representatives and prototypes, for a cold start."""
  rng = np.random.default_rng(size)
  return -unit_rows(rng, size, DIM) @ unit_rows(rng, size, DIM).T


def drifted_costs(size: int, near: bool) -> tuple[np.ndarray, np.ndarray]:
  """Costs before and after one update, during training or at its start."""
  rng = np.random.default_rng(size)
  prototypes = unit_rows(rng, size, DIM)
  if near:
    representatives = prototypes + NEAR * rng.normal(size=prototypes.shape)
  else:
    representatives = unit_rows(rng, size, DIM)
  before, after = (
    (-(representatives + moved) @ prototypes.T).astype(np.float32)
    for moved in (0, DRIFT * rng.normal(size=prototypes.shape))
  )
  return before, after


def by_scipy(costs: np.ndarray) -> np.floating:
  """Least cost, by scipy."""
  return costs[linear_sum_assignment(costs)].sum(dtype=np.float64)


def on_host(costs: np.ndarray) -> np.ndarray:
  """Least cost, by ours."""
  return np.asarray(solvers.host_linear_assignment(costs).cost)


def from_nothing(size: int, repetitions: int) -> dict[str, Any]:
  """Compares ours on the host with scipy."""
  ways = {
    _measure.OURS: _measure.Contender(on_host, 0, compiled=False),
    "scipy": _measure.Contender(by_scipy, 1e-12, compiled=False),
    "floor": _measure.Contender(np.max, compiled=False),
  }
  targets = (_measure.Target("scipy", 1 / 1.1),)
  costs = (random_costs(size),)
  return _measure.compare(f"C = {size}", costs, ways, targets, repetitions=repetitions)


def once(size: int) -> dict[str, Any]:
  """Compares ours with scipy on a matrix so large that each runs only once."""
  costs = random_costs(size)
  seconds, results = {}, {}
  for name, call in (("scipy", by_scipy), (_measure.OURS, on_host), ("floor", np.max)):
    start = time.perf_counter()
    results[name] = call(costs)
    seconds[name] = time.perf_counter() - start
  difference = _measure.relative_difference(results["scipy"], results[_measure.OURS])
  if difference > 1e-12:
    raise AssertionError(f"C = {size}: scipy differs from ours by {difference:.1e}")
  ratio = {name: seconds[name] / seconds[_measure.OURS] for name in ("scipy", "floor")}
  return {
    "case": f"C = {size}, once",
    "milliseconds": {name: 1e3 * value for name, value in seconds.items()},
    "compile_seconds": dict.fromkeys(seconds, 0.0),
    "difference": {"scipy": difference},
    "ratio": ratio,
    "targets": [{"other": "scipy", "ratio": 1 / 1.1, "met": ratio["scipy"] >= 1 / 1.1}],
  }


def after_a_drift(size: int, near: bool, repetitions: int) -> dict[str, Any]:
  """Compares a start from the result before the drift with a cold start."""
  before, after = drifted_costs(size, near)
  earlier = solvers.host_linear_assignment(before, duals=True)
  start = np.asarray(earlier.assignment), np.asarray(earlier.column_dual)

  def warm(costs: np.ndarray) -> np.ndarray:
    return np.asarray(solvers.host_linear_assignment(costs, start=start).cost)

  anew = int(solvers.host_linear_assignment(after, start=start).augmentations)
  ways = {
    _measure.OURS: _measure.Contender(warm, 0, compiled=False),
    "from nothing": _measure.Contender(on_host, 1e-12, compiled=False),
    "floor": _measure.Contender(np.max, compiled=False),
  }
  place = "near" if near else "anywhere"
  targets = (_measure.Target("from nothing", 5),)
  return _measure.compare(
    f"C = {size}, {place}, {anew} anew",
    (after,),
    ways,
    targets,
    repetitions=repetitions,
  )


def at_once(problems: int, size: int, repetitions: int) -> dict[str, Any]:
  """Compares many problems under vmap with scipy and optax."""
  rng = np.random.default_rng(0)
  rows, columns = (unit_rows(rng, problems, size, DIM) for _ in range(2))
  costs = -rows @ columns.swapaxes(1, 2)

  def one_by_one(costs: np.ndarray) -> np.ndarray:
    return np.stack([by_scipy(problem) for problem in costs])

  def ours(costs: jax.Array) -> jax.Array:
    return jnp.asarray(jax.vmap(solvers.linear_assignment)(costs).cost)

  def by_optax(costs: jax.Array) -> jax.Array:
    result = jax.vmap(optax.assignment.hungarian_algorithm)(costs)
    return jax.vmap(lambda c, i, j: c[i, j].sum())(costs, *result)

  ways = {
    _measure.OURS: _measure.Contender(ours, 0),
    "scipy": _measure.Contender(one_by_one, 1e-5, compiled=False),
    "optax": _measure.Contender(by_optax, 1e-5),
    "floor": _measure.Contender(lambda costs: costs.max((1, 2))),
  }
  targets = (_measure.Target("scipy", 1),)
  return _measure.compare(
    f"{problems} x C = {size}", (costs,), ways, targets, repetitions=repetitions
  )


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__)
  repetitions = options.repetitions
  sizes = (30,) if options.smoke else SIZES
  problems = (4, 30) if options.smoke else (PROBLEMS, 100)
  work: dict[str, Callable[[], dict[str, Any]]] = {}
  for size in sizes:
    work[f"C = {size}"] = functools.partial(from_nothing, size, repetitions)
    for near in (True, False):
      name = f"C = {size}, {'near' if near else 'anywhere'}"
      work[name] = functools.partial(after_a_drift, size, near, repetitions)
  work["at once"] = functools.partial(at_once, *problems, repetitions)
  if not options.smoke:
    work["C = 10,000"] = functools.partial(once, LARGE)
  _measure.run("assignment", work, [], options)


if __name__ == "__main__":
  main()
