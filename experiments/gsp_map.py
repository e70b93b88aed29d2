"""Toy map: what does smoothing do when the share of foreground is underestimated?

Half of a noisy map is foreground, two blocks that two prototypes describe. With a mass
of 0.2 the linear program takes as many pixels as fit and drops the rest of the
foreground; its smoothed form keeps them all and still leaves the background out
(figure 5.2 of DML). Nothing is trained.

    python -m experiments.gsp_map     # 15 s on 2 cores; all presets are the same
"""

import dataclasses
import pathlib
import time
from typing import Any

import jax
import numpy as np

from experiments.frame import command, results
from experiments.gsp import map
from experiments.gsp.map import LINEAR_PROGRAM, SOLUTIONS
from spherejax import distances, pooling

PROTOTYPES = np.array([[1, 0, 0], [0, 0, 1]], np.float32)
MEASURES = ("weight on the foreground", "foreground pixels in use", "effective number")


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the toy."""

  seed: int = 0
  """Everything random follows from it."""
  seeds: int = 5
  """Maps with different noise."""
  noise: float = 0.1
  """Standard deviation of the noise on each colour."""


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

  def smoothed(mass, inverse_temperature):
    return pooling.gsp_weights(
      costs, mass=mass, inverse_temperature=inverse_temperature
    )

  pairs = [(mass, beta) for mass, betas in SOLUTIONS.items() for beta in betas[1:]]
  weights = dict(
    zip(pairs, jax.vmap(smoothed)(*np.array(pairs, np.float32).T), strict=True)
  )
  for mass in SOLUTIONS:
    weights[mass, LINEAR_PROGRAM] = pooling.gsp_linear_program(costs, mass=mass)
  return {pair: weights[pair].reshape(maps.shape[:3]) for pair in sorted(weights)}


def measure(weights: np.ndarray, foreground: np.ndarray) -> dict[str, np.ndarray]:
  """The figures of one solution, [seeds] each."""
  inside = weights[:, foreground]
  figures = (
    inside.sum(1),
    (inside > 1 / 100).sum(1),
    1 / (weights**2).sum((1, 2)),
  )
  return dict(zip(MEASURES, figures, strict=True))


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """Solves all problems; returns figures and claims."""
  start = time.perf_counter()
  maps, foreground = make_maps(config)
  solutions = solve(maps)
  weights = {
    (mass, beta): np.asarray(solutions[mass, beta], np.float64)
    for mass, betas in SOLUTIONS.items()
    for beta in betas
  }
  figures = {pair: measure(values, foreground) for pair, values in weights.items()}
  rows = [
    results.row(map.name(*pair), metric, values)
    for pair, measured in figures.items()
    for metric, values in measured.items()
  ]
  claims = map.make_claims(weights, figures, foreground)
  pictures = map.draw(maps, foreground, weights, figures, output)
  return results.result(
    experiment="gsp_map",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=claims,
    pictures=pictures,
  )


def main() -> None:
  """The command line."""
  preset, config, output = command.parse(PRESETS, name="gsp_map", doc=__doc__)
  results.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
