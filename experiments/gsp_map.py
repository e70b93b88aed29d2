"""Toy map: how does smoothing help when the share of foreground is underestimated?

Half of a noisy map is foreground: two blocks that match two prototypes. With a mass of
0.2, the linear program keeps as many foreground pixels as fit and drops the others. Its
smoothed form keeps all of them and still leaves the background out (figure 5.2 of DML).
Nothing is trained.

    python -m experiments.gsp_map     # 4 s; all presets are the same
"""

import dataclasses
import pathlib

import jax
import numpy as np

from experiments.frame.pictures import Figure
from experiments.frame.study import Claim, Measured, Study, Table
from spherejax import distances, plotting, pooling

LINEAR_PROGRAM = float("inf")
# Mass, and inverse temperatures from sharp to blurred.
SOLUTIONS = {
  0.2: (LINEAR_PROGRAM, 100.0, 20.0, 5.0, 0.5),
  0.5: (LINEAR_PROGRAM, 20.0, 5.0),
  0.8: (LINEAR_PROGRAM, 20.0, 5.0),
}
PROTOTYPES = np.array([[1, 0, 0], [0, 0, 1]], np.float32)
FOREGROUND, USED = "weight on the foreground", "foreground pixels in use"
NUMBER, MARGIN = "effective number", "least foreground - largest background weight"


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the toy."""

  seed: int = 0
  """Seed of everything random."""
  seeds: int = 8
  """Number of maps, each with other noise."""
  noise: float = 0.1
  """Standard deviation of the noise on each colour channel."""


PRESETS = {preset: Config() for preset in ("cpu", "smoke", "full")}


def make_maps(config: Config) -> tuple[np.ndarray, np.ndarray]:
  """Maps [seeds, 10, 10, 3] with colours in [0, 1], and the foreground [10, 10]."""
  clean = np.zeros((10, 10, 3))
  clean[..., 1] = 1
  clean[:5, :5] = PROTOTYPES[0]
  clean[5:, 5:] = PROTOTYPES[1]
  noise = [
    np.random.default_rng(seed).normal(scale=config.noise, size=clean.shape)
    for seed in range(config.seed, config.seed + config.seeds)
  ]
  maps = np.clip(clean + np.stack(noise), 0, 1).astype(np.float32)
  return maps, clean[..., 1] == 0


@jax.jit
def solve(maps: jax.Array) -> dict[tuple[float, float], jax.Array]:
  """Pooling weights [seeds, 10, 10] of every solution, as one program."""
  pixels = maps.reshape(-1, 3)
  costs = distances.pairwise_euclidean(PROTOTYPES, distances.unit_ball(pixels))
  costs = costs.reshape(len(PROTOTYPES), len(maps), -1).swapaxes(0, 1)
  pairs = [(mass, beta) for mass, betas in SOLUTIONS.items() for beta in betas[1:]]
  smoothed = jax.vmap(
    lambda mass, beta: pooling.gsp_weights(costs, mass=mass, inverse_temperature=beta)
  )(*np.array(pairs, np.float32).T)
  weights = dict(zip(pairs, smoothed, strict=True))
  for mass in SOLUTIONS:
    weights[mass, LINEAR_PROGRAM] = pooling.gsp_linear_program(costs, mass=mass)
  return {pair: weights[pair].reshape(maps.shape[:3]) for pair in sorted(weights)}


def name(mass: float, beta: float) -> str:
  """Name of a solution in the table."""
  sharpness = "linear program" if beta == LINEAR_PROGRAM else f"beta {beta:g}"
  return f"mass {mass:g}, {sharpness}"


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Solves and measures all problems; draws the maps with their weights."""
  del output  # nothing is kept
  maps, foreground = make_maps(config)
  solutions, table, by_solution = solve(maps), Table(), {}
  for mass, betas in SOLUTIONS.items():
    for beta in betas:
      weights = np.asarray(solutions[mass, beta], np.float64)
      inside, outside = weights[:, foreground], weights[:, ~foreground]
      solution = name(mass, beta)
      table.add(solution, FOREGROUND, inside.sum(1))
      table.add(solution, USED, (inside > 1 / 100).sum(1))
      table.add(solution, NUMBER, 1 / (weights**2).sum((1, 2)))
      table.add(solution, MARGIN, inside.min(1) - outside.max(1), listed=False)
      table.add(solution, "pixels", (weights > 1e-6).sum((1, 2)), listed=False)
      by_solution[solution] = weights
  return table, lambda: draw(table, maps, foreground.sum(), by_solution)


SHARP, SMOOTH = name(0.2, LINEAR_PROGRAM), name(0.2, 5.0)


def steps(table: Table) -> np.ndarray:
  """Increase of the effective number at each step to a more blurred solution."""
  numbers = [table.values(NUMBER, name(0.2, beta)) for beta in SOLUTIONS[0.2][1:]]
  return np.diff(numbers, axis=0)


CLAIMS = Claim.of_rows([
  ("toy-lp",
   "linear program at mass 0.2: exactly 20 pixels in use (1/2 less the difference)",
   lambda t: 0.5 - abs(t.values("pixels", SHARP) - 20)),
  ("toy-smooth",
   "mass 0.2, beta 5: least foreground weight > largest background weight",
   lambda t: t.values(MARGIN, SMOOTH)),
  ("toy-smooth-number", "mass 0.2, beta 5: effective number > 45",
   lambda t: t.values(NUMBER, SMOOTH) - 45),
  ("toy-smooth-weight", "mass 0.2, beta 5: weight on the foreground > 0.98",
   lambda t: t.values(FOREGROUND, SMOOTH) - 0.98),
  ("toy-blur",
   "mass 0.2: effective number decreases with beta (least of the steps)",
   lambda t: steps(t).min(axis=0)),
], every_seed=True)  # fmt: skip


def draw(
  table: Table, maps: np.ndarray, foreground: int, weights: dict[str, np.ndarray]
) -> dict[str, Figure]:
  """Maps with their weights, and how many pixels share the weight."""
  examples = maps[:4]
  fine = np.ones((1, 4, 4)) / 16  # pixels stay sharp
  solutions = [name(0.2, beta) for beta in SOLUTIONS[0.2]]
  curve = np.stack([table.values(NUMBER, x) for x in solutions[1:]], axis=1)
  blur = plotting.training_curves(
    {"mass 0.2": curve},
    steps=SOLUTIONS[0.2][1:],
    xlabel="inverse temperature",
    ylabel="effective number of pixels",
  )
  blur.axes[0].set_xscale("log")
  blur.axes[0].axhline(foreground, color="black", linestyle=":")
  blur.axes[0].annotate("pixels of the foreground", (10, foreground + 1.5))
  sheet = plotting.weight_maps(
    examples,
    {x: np.kron(weights[x][: len(examples)], fine) for x in solutions},
    names=[f"noise {i}" for i in range(len(examples))],
  )
  return {"weights": sheet, "blur": blur}


STUDY = Study("gsp_map", __doc__, "DML Fig. 5.2", PRESETS, measure, CLAIMS)

if __name__ == "__main__":
  STUDY.main()
