"""Fixed prototypes of DL2P and its baselines without training: angles and times.

Table 7, figures 2, 3a and 3c of the paper.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame.study import Claim, Table
from spherejax import prototypes, solvers

PAPER, POTENTIAL, ANNEALED = "paper's recipe", "potential, t = 2", "annealed, 200 steps"
HPN, BEST = "HPN, 1000 steps", "best construction"
WORDS = "Word2Vec-like"

METRICS = (
  "largest cosine", "smallest cosine", "mean cosine", "deviation of cosines", "seconds",
)  # fmt: skip
DEVIATION = METRICS[3]
# Table 7 of the paper, by name, classes and dim: largest and smallest cosine.
TABLE_7 = {
  (WORDS, 100, 100): (0.74, -0.32), (HPN, 100, 100): (0.05, -0.39),
  (HPN, 100, 50): (0.05, -0.62), (BEST, 100, 100): (0.0, -0.01),
  (PAPER, 100, 100): (0.0, -0.01), (PAPER, 100, 50): (0.01, -1.0),
}  # fmt: skip

RECIPES: dict[str, Callable[..., Array]] = {
  BEST: lambda key, num_classes, dim: (
    prototypes.uniform_prototypes(key, num_classes, dim).prototypes
  ),
  ANNEALED: functools.partial(
    prototypes.annealed_prototypes, steps=200, restarts=1, constant_run=False
  ),
  POTENTIAL: functools.partial(prototypes.gaussian_potential_prototypes, steps=3000),
  PAPER: functools.partial(prototypes.gaussian_potential_prototypes, preset="paper"),
  HPN: prototypes.hpn_prototypes,
}
Sizes = Sequence[tuple[int, int]]  # numbers of prototypes and dimensions
Cosines = dict[tuple[str, int, int], np.ndarray]
"""Cosines of all pairs, by recipe, classes and dimension."""


def cosines(points: Array) -> np.ndarray:
  """Cosines of all pairs, in float64."""
  rows = np.asarray(points, np.float64)
  rows /= np.linalg.norm(rows, axis=1, keepdims=True)
  return (rows @ rows.T)[np.triu_indices(len(rows), 1)]


def study(
  table: Table, key: Array, sizes: Sizes, seeds: int, *, vectors: Array | None = None
) -> Cosines:
  """Adds measures of every recipe at every size; returns the cosines of the first key.

  Times are those of compiled programs. `vectors` of classes are measured, for one key,
  at sizes with as many prototypes.
  """
  first: Cosines = {}
  for classes, dim in dict.fromkeys(sizes):
    recipes = dict(RECIPES)
    if vectors is not None and len(vectors) == classes:
      recipes[WORDS] = lambda key, num_classes, dim: prototypes.vector_prototypes(
        vectors, dim
      )
    for name, recipe in recipes.items():
      # Few prototypes in many dimensions form a simplex, whatever the recipe.
      if name not in (BEST, POTENTIAL) and classes < 100 and classes <= dim + 1:
        continue
      sized = functools.partial(recipe, num_classes=classes, dim=dim)
      make = jax.jit(sized).lower(key).compile()
      rows = []
      for seed in range(1 if name == WORDS else seeds):
        seed_key = jax.random.fold_in(key, seed)
        start = time.perf_counter()
        points = jax.block_until_ready(make(seed_key))
        seconds = time.perf_counter() - start
        pairs = cosines(points)
        first.setdefault((name, classes, dim), pairs)
        rows.append([pairs.max(), pairs.min(), pairs.mean(), pairs.std(), seconds])
      paper = dict(zip(METRICS, TABLE_7.get((name, classes, dim), ()), strict=False))
      for metric, values in zip(METRICS, np.transpose(rows), strict=True):
        if metric != DEVIATION or classes >= 100:
          place = _measure(metric, classes, dim)
          table.add(name, place, values, paper=paper.get(metric))
  return first


def _measure(metric: str, classes: int, dim: int) -> str:
  return f"{metric}, {classes} in {dim} dimensions"


def claims(sizes: Sizes) -> Iterator[Claim]:
  """P3, for each size of figure 3a."""
  for classes, dim in sizes:
    if classes == 100:
      measure = _measure(DEVIATION, classes, dim)
      yield Claim(
        f"P3-d{dim}",
        f"deviation of pairwise cosines, 100 prototypes in {dim} dimensions: "
        "HPN, 1000 steps > converged potential",
        lambda t, measure=measure: t.gain(measure, HPN, over=POTENTIAL),
        "DL2P Fig. 3a",
      )


def matching_seconds(
  key: Array, sizes: tuple[int, ...], seeds: int, dim: int = 128
) -> dict[int, list[float]]:
  """Seconds of one matching of random vectors on the host, by number of classes."""
  seconds: dict[int, list[float]] = {}
  solvers.host_linear_assignment(np.eye(2))  # does its imports before the clock runs
  for number, classes in enumerate(sizes):
    for seed in range(seeds):
      keys = jax.random.split(jax.random.fold_in(key, 100 * seed + number))
      m, p = (jax.random.normal(draw_key, (classes, dim)) for draw_key in keys)
      m, p = (x / jnp.linalg.norm(x, axis=1, keepdims=True) for x in (m, p))
      costs = np.asarray(-m @ p.T, np.float64)
      start = time.perf_counter()
      solvers.host_linear_assignment(costs)
      seconds.setdefault(classes, []).append(time.perf_counter() - start)
  return seconds


MATCHING = "matching on the host"


def tabulate_matchings(table: Table, seconds: dict[int, list[float]]) -> None:
  table.add_all(MATCHING, {f"seconds, {n} classes": x for n, x in seconds.items()})


def growth_claims(sizes: Sequence[int]) -> Iterator[Claim]:
  """A6: growth of a matching's time with the number of classes."""
  if len(sizes) < 2:
    return
  low, high = min(sizes), max(sizes)

  def margin(table: Table) -> np.ndarray:
    first, last = (table.values(f"seconds, {n} classes", MATCHING) for n in (low, high))
    return 3 - np.log(last / first) / np.log(high / low)

  yield Claim(
    "A6-growth",
    f"time of a matching grows at most like C^3 from C = {low} to {high}"
    " (3 - exponent)",
    margin,
    "DL2P Fig. 3c",
  )


def tabulate_piles(table: Table) -> None:
  """Figure 2: the Gaussian potential distinguishes sets of equal mean cosine (APAD)."""
  piles = jnp.zeros((10, 9)).at[:, 0].set(1.0).at[:5, 0].set(-1.0)
  simplex = prototypes.simplex(jax.random.key(0), 10, 9)
  for name, points in (("two piles", piles), ("simplex", simplex)):
    potential = float(prototypes.gaussian_potential(points))
    table.add(name, "mean cosine (APAD), 10 prototypes", cosines(points).mean())
    table.add(name, "Gaussian potential, 10 prototypes", potential)
