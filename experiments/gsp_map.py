"""Toy map: what does smoothing do when the share of foreground is underestimated?

Half of a noisy map is foreground, two blocks that two prototypes describe. With a mass
of 0.2 the linear program takes as many pixels as fit and drops the rest of the
foreground; its smoothed form keeps them all and still leaves the background out
(figure 5.2 of DML). Nothing is trained.

    python -m experiments.gsp_map     # 15 s on 2 cores; all presets are the same
"""

import dataclasses
import itertools
import pathlib
import time
from typing import Any

import jax
import numpy as np

from experiments import _cli, _figure, _report
from spherejax import distances, plotting, pooling

LINEAR_PROGRAM = float("inf")
PROTOTYPES = np.array([[1, 0, 0], [0, 0, 1]], np.float32)
# Mass, and inverse temperatures from sharp to blurred.
SOLUTIONS = {
  0.2: (LINEAR_PROGRAM, 100.0, 20.0, 5.0, 0.5),
  0.5: (LINEAR_PROGRAM, 20.0, 5.0),
  0.8: (LINEAR_PROGRAM, 20.0, 5.0),
}
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


def name(mass: float, beta: float) -> str:
  sharpness = "linear program" if beta == LINEAR_PROGRAM else f"beta {beta:g}"
  return f"mass {mass:g}, {sharpness}"


def make_claims(weights: dict, figures: dict, foreground: np.ndarray) -> list[dict]:
  """What figure 5.2 shows, as differences that should be positive."""
  used = (weights[0.2, LINEAR_PROGRAM] > 1e-6).sum((1, 2))
  smooth = weights[0.2, 5.0]
  margin = smooth[:, foreground].min(1) - smooth[:, ~foreground].max(1)
  numbers = [figures[0.2, beta]["effective number"] for beta in SOLUTIONS[0.2][1:]]
  steps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
  claims = {
    "toy-lp": (
      "linear program at mass 0.2: exactly 20 pixels in use (1/2 less the difference)",
      0.5 - abs(used - 20),
    ),
    "toy-smooth": (
      "mass 0.2, beta 5: least foreground weight > largest background weight",
      margin,
    ),
    "toy-smooth-number": (
      "mass 0.2, beta 5: effective number > 45",
      figures[0.2, 5.0]["effective number"] - 45,
    ),
    "toy-smooth-weight": (
      "mass 0.2, beta 5: weight on the foreground > 0.98",
      figures[0.2, 5.0]["weight on the foreground"] - 0.98,
    ),
    "toy-blur": (
      "mass 0.2: effective number decreases with beta (least of the steps)",
      np.min(steps, axis=0),
    ),
  }
  return [
    _report.claim(key, statement, values, paper="DML Fig. 5.2", every_seed=True)
    for key, (statement, values) in claims.items()
  ]


def draw(
  maps: np.ndarray,
  foreground: np.ndarray,
  weights: dict,
  figures: dict,
  output: pathlib.Path,
) -> list[str]:
  """Maps with their weights, and how many pixels share the weight."""
  some = maps[:4]
  fine = np.ones((1, 4, 4)) / 16  # pixels stay sharp
  shown = {
    name(0.2, beta): np.kron(weights[0.2, beta][: len(some)], fine)
    for beta in SOLUTIONS[0.2]
  }
  betas = SOLUTIONS[0.2][1:]
  curve = np.stack([figures[0.2, beta]["effective number"] for beta in betas], axis=1)
  blur = plotting.training_curves(
    {"mass 0.2": curve},
    steps=betas,
    xlabel="inverse temperature",
    ylabel="effective number of pixels",
  )
  blur.axes[0].set_xscale("log")
  blur.axes[0].axhline(foreground.sum(), color="black", linestyle=":")
  blur.axes[0].annotate("pixels of the foreground", (10, foreground.sum() + 1.5))
  sheet = plotting.weight_maps(
    some, shown, names=[f"noise {i}" for i in range(len(some))]
  )
  return _figure.save({"weights": sheet, "blur": blur}, output)


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
    _report.row(name(*pair), metric, values)
    for pair, measured in figures.items()
    for metric, values in measured.items()
  ]
  claims = make_claims(weights, figures, foreground)
  pictures = draw(maps, foreground, weights, figures, output)
  return _report.result(
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
  preset, config, output = _cli.parse(PRESETS, name="gsp_map", doc=__doc__)
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
