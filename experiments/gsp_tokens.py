"""Token study: does generalized sum pooling learn to leave the background out?

A sample is a set of 50 tokens, about half of its class and half of a background that
all classes share; tokens are learned points of the plane, their pooled vector is the
embedding (DML 5.3.1, figure 5.4). Average pooling (GAP) mixes the background into
every embedding; generalized sum pooling (GSP) can leave it out, and the hulls of the
classes come apart. The linear program, whose weights do not tell prototypes where to
go, stays with the background that average pooling put near them. All variants and
seeds of one kind of pooling are one vmapped program.

    python -m experiments.gsp_tokens                  # preset cpu: 7 min on 2 cores
    python -m experiments.gsp_tokens --preset smoke   # seconds
    python -m experiments.gsp_tokens --preset full    # the paper's learning rate
"""

import pathlib
import time
from typing import Any

import jax
import numpy as np

from experiments.frame import command, pictures, results
from experiments.gsp.token_trainings import (
  BACKGROUND,
  GAP,
  GSP,
  HULLS,
  MAP,
  SHARE,
  Config,
  collect,
)
from spherejax import plotting

PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    seeds=1, steps=300, warm_up=100, validation=10, test=10, linear_program=False
  ),
  "full": Config(learning_rate=1e-4, warm_up=4096, steps=60_000, validation=100),
}


def draw(runs: dict[str, dict], curves: dict, config: Config, output) -> list[str]:
  """Tokens of the first seed in the plane, and the validation curves."""
  names = [name for name in (GAP, GSP) if name in runs]
  first = {name: runs[name][0] for name in names}
  planes = plotting.class_hulls(
    {name: run["tokens"] for name, run in first.items()},
    dots={name: run["embeddings"] for name, run in first.items()},
    others={name: run["shared"] for name, run in first.items()},
    other_label="background token",
  )
  steps = config.warm_up + config.epoch * np.arange(1, config.steps // config.epoch + 1)
  chart = plotting.training_curves(curves, steps=steps, ylabel="MAP@R, fresh samples")
  figures = {"tokens": planes, "curves": chart}
  return pictures.save(figures, output)


def table(figures: dict[str, dict[str, np.ndarray]]) -> list[dict[str, Any]]:
  """The gain of GSP beside the paper's, and every figure."""
  gain = figures[GSP][MAP] - figures[GAP][MAP]
  return [
    results.row(
      f"{GSP} - {GAP}",
      MAP,
      gain,
      paper=0.70,
    )
  ] + [
    results.row(name, metric, values)
    for name, measured in figures.items()
    for metric, values in measured.items()
  ]


def make_claims(figures: dict[str, dict[str, np.ndarray]]) -> list[dict[str, Any]]:
  """The statements of DML 5.3.1, as differences that should be positive."""
  gap, gsp = figures[GAP], figures[GSP]
  claims = [
    (
      "tokens-map",
      "MAP@R(GSP) > MAP@R(GAP)",
      gsp[MAP] - gap[MAP],
    ),
    (
      "tokens-background",
      "weight on background under GSP < half of its share",
      0.5 * gsp[SHARE] - gsp[BACKGROUND],
    ),
    (
      "tokens-hulls",
      "fewer of the 120 pairs of class hulls intersect under GSP than under GAP",
      gap[HULLS] - gsp[HULLS],
    ),
  ]
  return [
    results.claim(name, statement, values, paper="DML 5.3.1, Fig. 5.4")
    for name, statement, values in claims
  ]


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """Trains all variants with all seeds; returns figures and claims."""
  start = time.perf_counter()
  figures, runs, curves = collect(config, jax.random.key(config.seed), output)
  return results.result(
    experiment="gsp_tokens",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=table(figures),
    claims=make_claims(figures),
    pictures=draw(runs, curves, config, output),
  )


def main() -> None:
  """The command line."""
  preset, config, output = command.parse(PRESETS, name="gsp_tokens", doc=__doc__)
  results.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
