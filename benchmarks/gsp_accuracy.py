"""Accuracy of the weights of generalized sum pooling, over mass and sharpness.

Costs are random, clustered, tied, nearly tied or constant. The table lists the largest
errors in the sum of the weights (summed in float64), in the attained mass before
normalisation, and in the weights, against a bisection in float64 on the same numbers.
It also lists the largest number of steps.

    python -m benchmarks.gsp_accuracy            # half a minute on 2 cores
    python -m benchmarks.gsp_accuracy --smoke    # seconds
"""

import itertools
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import rich.console
import rich.table
from scipy.special import expit

from benchmarks import _measure
from spherejax import _versions
from spherejax.pooling import _gsp_weights

MASSES = (1e-3, 0.05, 0.25, 0.3, 0.5, 0.75, 0.95, 0.999, 1.0)
SHARPNESS = (1e-3, 0.5, 5.0, 20.0, 100.0, 1e3, 1e4)
SIZES = ((1, 1), (4, 8), (16, 49), (128, 64), (16, 196))
# Largest allowed errors: in the sum, in the attained mass, in the weights.
LIMITS = {"float32": (1e-6, 1e-5, 2e-6), "float64": (1e-12, 1e-12, 1e-12)}


class Solved(NamedTuple):
  """Solutions of all masses, inverse temperatures and kinds of costs of one size.

  Attributes:
    mass: [batch], as passed to the solver.
    plan: our solution.
    expected: [batch, tokens], weights of the reference.
  """

  mass: np.ndarray
  plan: _gsp_weights.Plan
  expected: np.ndarray


class Errors(NamedTuple):
  """Largest errors over all costs, and the largest number of steps."""

  total: float
  mass: float
  weights: float
  steps: int


def costs(prototypes: int, tokens: int) -> np.ndarray:
  """Five kinds of cost matrices, [5, prototypes, tokens], exact in float32."""
  rng = np.random.default_rng(0)
  random = rng.uniform(0, 2, (prototypes, tokens))
  clustered = np.where(np.arange(tokens) % 4 == 0, 0.1, 1.2) + 0.05 * random
  tied = np.round(4 * random) / 4
  nearly = tied + 1e-6 * rng.normal(size=tied.shape)
  kinds = [random, clustered, tied, nearly, np.full_like(random, 0.7)]
  return np.abs(np.stack(kinds)).astype(np.float32)


def reference(costs: np.ndarray, mass: np.ndarray, sharpness: np.ndarray) -> np.ndarray:
  """Weights [batch, tokens] of costs [batch, prototypes, tokens], in NumPy's float64.

  It bisects mean_j sigmoid(theta + s_j) = mass for s_j = log sum_i exp(-b c_ij), and
  shares no code with the solver. The weights add to 1 only if theta is right.
  """
  costs, mass, sharpness = (x.astype(np.float64) for x in (costs, mass, sharpness))
  tokens = costs.shape[2]
  cheapest = costs.min(1)
  # A constant in all costs of an image changes nothing. Relative to the feature where
  # the mass is used up, numbers near the cut are small, and so is their rounding.
  place = np.ceil(mass * tokens).astype(int) - 1
  cut = np.take_along_axis(np.sort(cheapest, axis=1), place[:, None], axis=1)
  inner = np.exp(-sharpness[:, None, None] * (costs - cheapest[:, None])).sum(1)
  scores = np.log(inner) - sharpness[:, None] * (cheapest - cut)
  whole = mass == 1  # every weight is 1/tokens, and there is no root
  logit = np.log(mass) - np.log1p(-np.where(whole, 0.5, mass))
  low, high = logit - scores.max(1), logit - scores.min(1)
  for _ in range(100):
    theta = (low + high) / 2
    above = expit(theta[:, None] + scores).mean(1) > mass
    low, high = np.where(above, low, theta), np.where(above, theta, high)
  taken = np.where(whole[:, None], 1, expit(low[:, None] + scores))
  return taken / (tokens * mass[:, None])


@jax.jit
def solve(costs, mass, sharpness) -> _gsp_weights.Plan:
  """Solves costs [batch, prototypes, tokens], and returns the solver's full result."""
  batch, _, tokens = costs.shape
  mask = jnp.ones((batch, tokens), bool)
  return _gsp_weights.transport(costs.swapaxes(1, 2), mass, sharpness, mask, None)


def solved(dtype: str, prototypes: int, tokens: int) -> Solved:
  """Solves every mass, sharpness and kind of costs, by ours and by the reference."""
  kinds = costs(prototypes, tokens).astype(dtype)
  grid = np.array(list(itertools.product(MASSES, SHARPNESS)), dtype)
  mass, sharpness = np.repeat(grid, len(kinds), axis=0).T
  every = np.tile(kinds, (len(grid), 1, 1))
  plan = jax.device_get(solve(every, mass, sharpness))
  return Solved(mass, plan, reference(every, mass, sharpness))


def errors(solved_costs: Solved) -> np.ndarray:
  """`Errors` [masses, sharpness, 4], the largest over the kinds of costs."""
  plan, weights = solved_costs.plan, np.float64(solved_costs.plan.weights)
  columns = (
    np.abs(weights.sum(1) - 1),
    plan.mass_error,
    np.abs(weights - solved_costs.expected).max(1),
    plan.steps,
  )
  shape = len(MASSES), len(SHARPNESS), -1
  return np.stack([np.float64(x).reshape(shape).max(2) for x in columns], axis=2)


def _row(
  dtype: str, mass: float, by_sharpness: Mapping[float, Errors]
) -> dict[str, Any]:
  """Row of the table: errors and steps for each inverse temperature."""
  return {
    "type": dtype,
    "mass": mass,
    **{
      f"b = {sharpness:g}": list(errors) for sharpness, errors in by_sharpness.items()
    },
    "within limits": all(
      error <= limit
      for errors in by_sharpness.values()
      for error, limit in zip(errors[:3], LIMITS[dtype], strict=True)
    ),
  }


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__, cases=False, timed=False)
  sizes = SIZES[:2] if options.smoke else SIZES
  console = rich.console.Console(width=200)
  rows: list[dict[str, Any]] = []
  with _versions.enable_x64(True):
    for dtype in LIMITS:
      table = rich.table.Table(
        title=f"{dtype}: error of sum p / of the mass / of p, steps"
      )
      table.add_column("mass")
      for sharpness in SHARPNESS:
        table.add_column(f"b = {sharpness:g}", justify="right")
      every = np.max([errors(solved(dtype, *size)) for size in sizes], axis=0)
      for mass, line in zip(MASSES, every.tolist(), strict=True):
        errors_by_case = {
          sharpness: Errors(*worst, steps=int(steps))
          for sharpness, (*worst, steps) in zip(SHARPNESS, line, strict=True)
        }
        rows.append(_row(dtype, mass, errors_by_case))
        cells = [
          f"{x.total:.0e} {x.mass:.0e} {x.weights:.0e} {x.steps}"
          for x in errors_by_case.values()
        ]
        table.add_row(f"{mass:g}", *cells)
      console.print(table)
  _measure.save("gsp_accuracy", rows, [], options)
  missed = [row for row in rows if not row["within limits"]]
  for row in missed:
    console.print(f"above its limit: {row}")
  sys.exit(1 if missed else 0)


if __name__ == "__main__":
  main()
