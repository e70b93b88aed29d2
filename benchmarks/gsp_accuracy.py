"""How exact the weights of generalized sum pooling are, over mass and sharpness.

For random, clustered, tied, nearly tied and constant costs: the largest error of the
sum of the weights (summed in float64), of the attained mass before normalisation, of
the weights themselves against float64 on the same costs, and the most steps.

    python -m benchmarks.gsp_accuracy            # a minute on 2 cores
    python -m benchmarks.gsp_accuracy --smoke    # seconds
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import rich.console
import rich.table

from benchmarks import _measure
from spherejax.pooling import _gsp_weights

MASSES = (1e-3, 0.05, 0.25, 0.3, 0.5, 0.75, 0.95, 0.999, 1.0)
SHARPNESS = (1e-3, 0.5, 5.0, 20.0, 100.0, 1e3, 1e4)
SIZES = ((1, 1), (4, 8), (16, 49), (128, 64), (16, 196))
# Largest allowed errors: of the sum, of the attained mass, of the weights.
LIMITS = {"float32": (1e-6, 1e-5, 2e-6), "float64": (1e-12, 1e-12, 1e-12)}


class Errors(NamedTuple):
  """Largest errors over all costs, and the most steps."""

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


@jax.jit
def solve(cost, mass, sharpness) -> _gsp_weights.Plan:
  """The transport of costs [batch, prototypes, tokens], with what its solver knows."""
  batch, _, tokens = cost.shape
  kept = jnp.ones((batch, tokens), bool)
  mass, sharpness = (jnp.full(batch, x, cost.dtype) for x in (mass, sharpness))
  return _gsp_weights.transport(cost.swapaxes(1, 2), mass, sharpness, kept, None)


def errors(dtype: str, mass: float, sharpness: float, sizes) -> Errors:
  """Largest errors over all sizes and kinds of costs."""
  found = []
  for size in sizes:
    cost = jnp.asarray(costs(*size), dtype)
    plan = solve(cost, mass, sharpness)
    weights = np.asarray(plan.weights, np.float64)
    exact = solve(cost.astype(jnp.float64), np.float64(mass), sharpness).weights
    total, apart = np.abs(weights.sum(1) - 1), np.abs(weights - exact)
    found.append([x.max() for x in (total, plan.mass_error, apart, plan.steps)])
  total, mass, apart, steps = np.max(np.asarray(found, np.float64), axis=0)
  return Errors(float(total), float(mass), float(apart), int(steps))


def _row(dtype: str, mass: float, found: dict[float, Errors]) -> dict[str, Any]:
  """A line of the table: of each inverse temperature the errors and the steps."""
  return {
    "type": dtype,
    "mass": mass,
    **{f"b = {sharpness:g}": list(errors) for sharpness, errors in found.items()},
    "within limits": all(
      error <= limit
      for errors in found.values()
      for error, limit in zip(errors[:3], LIMITS[dtype], strict=True)
    ),
  }


def main() -> None:
  """The command line."""
  options = _measure.parse(__doc__)
  sizes = SIZES[:2] if options.smoke else SIZES
  console = rich.console.Console(width=200)
  rows: list[dict[str, Any]] = []
  with jax.enable_x64(True):
    for dtype in LIMITS:
      table = rich.table.Table(
        title=f"{dtype}: error of sum p / of the mass / of p, steps",
      )
      table.add_column("mass")
      for sharpness in SHARPNESS:
        table.add_column(f"b = {sharpness:g}", justify="right")
      for mass in MASSES:
        found = {x: errors(dtype, mass, x, sizes) for x in SHARPNESS}
        rows.append(_row(dtype, mass, found))
        cells = [
          f"{x.total:.0e} {x.mass:.0e} {x.weights:.0e} {x.steps}"
          for x in found.values()
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
