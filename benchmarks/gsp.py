"""Times generalized sum pooling: pooled features and their gradients.

Ours is compared with the paper's iteration (k = 100), differentiated through its steps
or by the corrected closed form of DML Proposition 5.2.2. Without gradients it is
compared with ott-jax on the same transport problem. The floor is the three bare
products of features and prototypes.

    python -m benchmarks.gsp                  # minutes on 2 cores
    python -m benchmarks.gsp --smoke          # seconds
    python -m benchmarks.gsp --only steps
    python -m benchmarks.gsp --json FILE
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks import _measure
from experiments import results_page
from spherejax import _versions, distances, pooling

SIZES = ((32, 49, 128, 64), (128, 49, 512, 128), (256, 64, 64, 64))
SMOKE = ((2, 9, 8, 4),)
MASS = 0.3
STEPS = 100
SHARPNESS = (0.5, 5.0, 100.0)
ITERATIONS = ("iteration, unrolled", "iteration, closed form")
OTT = "ott-jax"
STEP_SWEEP = (10, 25, 50, 100, 200)


def inputs(batch: int, tokens: int, dim: int, prototypes: int) -> tuple[Array, ...]:
  """Features, a quarter of them near prototypes; the prototypes; and a cotangent."""
  rng = np.random.default_rng(0)
  centres = rng.normal(size=(prototypes, dim)) / np.sqrt(dim)
  features = rng.normal(size=(batch, tokens, dim)) / np.sqrt(dim)
  near = rng.integers(prototypes, size=(batch, tokens // 4))
  features[:, : tokens // 4] = centres[near] + 0.3 * features[:, : tokens // 4]
  cotangent = rng.normal(size=(batch, dim))
  return tuple(jnp.asarray(x, jnp.float32) for x in (features, centres, cotangent))


def with_gradients(pool):
  """Pooled features, and gradients with respect to features and prototypes."""

  def value_and_gradients(features, prototypes, cotangent):
    pooled, pull_back = jax.vjp(pool, features, prototypes)
    return pooled, *pull_back(cotangent)

  return value_and_gradients


def ours(features: Array, prototypes: Array, *, sharpness: float) -> Array:
  """Pools with the library's default."""
  return pooling.gsp(
    features, prototypes, mass=MASS, inverse_temperature=sharpness
  ).pooled


def unrolled(features, prototypes, *, sharpness: float, steps: int = STEPS) -> Array:
  """Pools with the paper's iteration, differentiated through its steps."""
  result = pooling.gsp(
    features,
    prototypes,
    mass=MASS,
    inverse_temperature=sharpness,
    solver="fixed_point",
    steps=steps,
  )
  return result.pooled / jnp.sum(result.weights, axis=1, keepdims=True)


def costs_of(features: Array, prototypes: Array) -> Array:
  """Costs [batch, prototypes, tokens]."""
  batch, tokens, dim = features.shape
  rows = distances.unit_ball(features.reshape(-1, dim))
  costs = distances.pairwise_euclidean(rows, distances.unit_ball(prototypes))
  return costs.reshape(batch, tokens, -1).swapaxes(1, 2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def closed_form_plan(costs: Array, sharpness: float, steps: int) -> Array:
  """Plan [batch, prototypes, tokens] of the paper's iteration."""
  return _iterate(costs, sharpness, steps)[0]


def _iterate(costs: Array, sharpness: float, steps: int) -> tuple[Array, Array]:
  tokens = costs.shape[2]
  kernel = jnp.exp(-sharpness * costs)
  column = jnp.sum(kernel, axis=1)

  def advance(_, state):
    t, _ = state
    rho = 1 / tokens / (1 + t[:, None] * column)
    return MASS / jnp.sum(column * rho, axis=1), rho

  start = jnp.ones(len(costs)), jnp.zeros_like(column)
  t, rho = jax.lax.fori_loop(0, steps, advance, start)
  return t[:, None, None] * kernel * rho[:, None], rho


def _closed_form_forward(costs, sharpness, steps):
  plan, rho = _iterate(costs, sharpness, steps)
  return plan, (plan, rho)


def _closed_form_backward(sharpness, steps, saved, cotangent):
  """Proposition 5.2.2, corrected; the residual mass has no cotangent of its own."""
  del steps
  plan, rho = saved
  tokens = plan.shape[2]
  weighted = plan * cotangent
  q = jnp.sum(weighted, axis=1)
  eta = -tokens * jnp.sum(q * rho, axis=1)
  k = 1 - MASS - tokens * jnp.sum(rho**2, axis=1)
  shift = q - (eta / k)[:, None] * rho
  return (-sharpness * (weighted - tokens * plan * shift[:, None]),)


closed_form_plan.defvjp(_closed_form_forward, _closed_form_backward)


def closed_form(features, prototypes, *, sharpness: float, steps: int = STEPS) -> Array:
  """Pools with the paper's iteration and the closed form of its gradient."""
  plan: Any = closed_form_plan(costs_of(features, prototypes), sharpness, steps)
  weights = jnp.sum(plan, axis=1) / MASS
  return jnp.einsum("bn,bnd->bd", weights, features)


def ott(features, prototypes, cotangent, *, sharpness: float) -> Array:
  """Pools with ott-jax: features go to "kept" at their soft-min cost, or "left" at 0.

  In this problem the free marginals of the prototypes are summed out. It gives pooled
  features only: the linear system of its implicit gradient is singular here.
  """
  del cotangent
  from ott.geometry import geometry
  from ott.problems.linear import linear_problem
  from ott.solvers.linear import sinkhorn

  costs = costs_of(features, prototypes)
  soft = -jax.nn.logsumexp(-sharpness * costs, axis=1) / sharpness
  target = jnp.array([MASS, 1 - MASS])

  def weights(cost: Array) -> Array:
    pair = jnp.stack([cost, jnp.zeros_like(cost)], axis=1)
    problem = linear_problem.LinearProblem(
      geometry.Geometry(cost_matrix=pair, epsilon=1 / sharpness), b=target
    )
    solve = sinkhorn.Sinkhorn(
      threshold=1e-6, max_iterations=20_000, inner_iterations=10
    )
    return solve(problem).matrix[:, 0] / MASS

  return jnp.einsum("bn,bnd->bd", jax.vmap(weights)(soft), features)


def floor(features: Array, prototypes: Array, cotangent: Array) -> tuple[Array, ...]:
  """Product of features and prototypes, and the two products of its backward pass."""
  del cotangent
  rows = features.reshape(-1, features.shape[2])
  products = rows @ prototypes.T
  return products, products @ prototypes, products.T @ rows


def contenders(sharpness: float) -> dict[str, _measure.Contender]:
  """Contenders at one inverse temperature."""

  def at_sharpness(pool):
    return functools.partial(pool, sharpness=sharpness)

  # At high sharpness 100 steps of the paper's iteration do not converge, so another
  # contender takes as many steps as needed.
  same = 1e-3 if sharpness <= 5 else None
  return {
    _measure.OURS: _measure.Contender(with_gradients(at_sharpness(ours)), 0),
    ITERATIONS[0]: _measure.Contender(with_gradients(at_sharpness(unrolled)), same),
    ITERATIONS[1]: _measure.Contender(with_gradients(at_sharpness(closed_form)), same),
    "floor": _measure.Contender(floor),
  }


def forward(
  size: tuple[int, ...], sharpness: float, repetitions: int
) -> dict[str, Any]:
  """Compares ours with ott-jax, without gradients."""
  pool = functools.partial(ours, sharpness=sharpness)
  ways = {
    _measure.OURS: _measure.Contender(lambda f, p, _: pool(f, p), 0),
    OTT: _measure.Contender(functools.partial(ott, sharpness=sharpness), 2e-2),
  }
  targets = (_measure.Target(OTT, 20),) if sharpness == 100 else ()
  case = f"{size}, b = {sharpness:g}, without gradients"
  return _measure.compare(case, inputs(*size), ways, targets, repetitions=repetitions)


def temporary_bytes(pool, arguments) -> int:
  """Memory that value and gradients take besides inputs and outputs."""
  compiled = jax.jit(with_gradients(pool)).lower(*arguments).compile()
  return compiled.memory_analysis().temp_size_in_bytes  # pyright: ignore


def steps_needed(arguments, sharpness: float) -> int:
  """Steps after which the iteration's mass error is below 1e-6 for every image.

  Counted in float64: in float32 its log t is too coarse to reach this error.
  """
  with _versions.enable_x64(True):
    costs = jnp.asarray(costs_of(*arguments[:2]), jnp.float64)
    score = jax.nn.logsumexp(-sharpness * costs, axis=1)

    def attained(theta: Array) -> Array:
      return jnp.mean(jax.nn.sigmoid(theta[:, None] + score), axis=1)

    def unfinished(state) -> Array:
      theta, step = state
      return (jnp.max(jnp.abs(attained(theta) / MASS - 1)) > 1e-6) & (step < 100_000)

    def advance(state):
      theta, step = state
      return theta + jnp.log(MASS / attained(theta)), step + 1

    start = jnp.zeros(len(score)), jnp.ones((), jnp.int32)
    return int(jax.lax.while_loop(unfinished, advance, start)[1])


def by_steps(size: tuple[int, ...], repetitions: int) -> dict[str, Any]:
  """Compares time and memory for several numbers of steps of the iteration."""
  arguments = inputs(*size)
  pool = functools.partial(ours, sharpness=5.0)
  ways = {_measure.OURS: _measure.Contender(with_gradients(pool), 0)}
  memory = {_measure.OURS: temporary_bytes(pool, arguments)}
  for kind, way in (("unrolled", unrolled), ("closed form", closed_form)):
    for steps in STEP_SWEEP:
      peer = functools.partial(way, sharpness=5.0, steps=steps)
      name = f"{kind}, k = {steps}"
      ways[name] = _measure.Contender(with_gradients(peer), 1e-2)
      memory[name] = temporary_bytes(peer, arguments)
  row = _measure.compare("steps", arguments, ways, (), repetitions=repetitions)
  first, last = STEP_SWEEP[0], STEP_SWEEP[-1]
  growth = row["ratio"][f"closed form, k = {last}"]
  growth /= row["ratio"][f"closed form, k = {first}"]
  unrolled_memory = [memory[f"unrolled, k = {steps}"] for steps in STEP_SWEEP]
  slope = np.diff(unrolled_memory) / np.diff(STEP_SWEEP)
  changes = {
    f"b = {sharpness:g}": weight_change(arguments, sharpness)
    for sharpness in (0.5, 5.0)
  }
  return row | {
    "temporary_kib": {name: size // 1024 for name, size in memory.items()},
    f"closed form, k = {last} / k = {first}": float(growth),
    "bytes a step, unrolled": slope.tolist(),
    "change of a weight from k = 25 to 100": changes,
  }


def weight_change(arguments: tuple[Array, ...], sharpness: float) -> float:
  """Largest change of a weight of the paper's iteration from 25 to 100 steps."""
  few, many = (
    pooling.gsp(
      *arguments[:2],
      mass=MASS,
      inverse_temperature=sharpness,
      solver="fixed_point",
      steps=steps,
    ).weights
    for steps in (25, 100)
  )
  return float(jnp.max(jnp.abs(few - many)))


def at_equal_residual(
  size: tuple[int, ...], sharpness: float, repetitions: int
) -> dict[str, Any]:
  """Compares ours with both forms of the iteration, run until the residual is 1e-6."""
  arguments = inputs(*size)
  needed = steps_needed(arguments, sharpness)
  pool = functools.partial(ours, sharpness=sharpness)
  ways = {_measure.OURS: _measure.Contender(with_gradients(pool), 0)}
  # The printed iteration uses t itself, which float32 cannot hold at b = 100.
  same = {"unrolled": 2e-2, "closed form": 2e-2 if sharpness <= 5 else None}
  for kind, way in (("unrolled", unrolled), ("closed form", closed_form)):
    peer = functools.partial(way, sharpness=sharpness, steps=needed)
    ways[kind] = _measure.Contender(with_gradients(peer), same[kind])
  targets = tuple(_measure.Target(kind, 1) for kind in same if same[kind])
  case = f"cost-ours, b = {sharpness:g}, k = {needed}"
  return _measure.compare(case, arguments, ways, targets, repetitions=repetitions)


def beside_the_iteration(
  size: tuple[int, ...], sharpness: float, options: _measure.Options
) -> dict[str, Any]:
  """Compares ours with both forms of the paper's iteration, with gradients."""
  arguments, ways, targets = inputs(*size), contenders(sharpness), []
  if sharpness <= 5:  # beyond this the iteration does not reach the same result
    targets += [_measure.Target(name, 1) for name in ITERATIONS]
  elif not options.smoke:
    needed = steps_needed(arguments, sharpness)
    peer = functools.partial(unrolled, sharpness=sharpness, steps=needed)
    name = f"{ITERATIONS[0]}, k = {needed}"
    ways[name] = _measure.Contender(with_gradients(peer), 2e-2)
    targets.append(_measure.Target(name, 10))
  if size == SIZES[1]:
    targets.append(_measure.Target("floor", 1 / 1.5))
  case = f"{size}, b = {sharpness:g}"
  return _measure.compare(
    case, arguments, ways, tuple(targets), repetitions=options.repetitions
  )


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__)
  missing = _measure.lacking("ott")
  sizes, again = SMOKE if options.smoke else SIZES, options.repetitions
  works: dict[str, Callable[[], dict[str, Any]]] = {}
  for size in sizes:
    for b in SHARPNESS:
      name = f"{size}, b = {b:g}"
      works[name] = functools.partial(beside_the_iteration, size, b, options)
      if not missing:
        works[f"{name}, without gradients"] = functools.partial(forward, size, b, again)
  for b in SHARPNESS:
    work = functools.partial(at_equal_residual, sizes[0], b, again)
    works[f"cost-ours, b = {b:g}"] = work
  works["steps"] = functools.partial(by_steps, sizes[0], again)
  rows = _measure.run("gsp", works, missing, options)
  if any(row["case"] == "steps" for row in rows):
    for name, statement, difference in results_page.cost_claims(rows):
      print(f"{name}: {statement}: {difference:.3g}")


if __name__ == "__main__":
  main()
