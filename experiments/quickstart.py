"""Digit collages: does generalized sum pooling find the digit that matters?

A collage is one labelled digit among three digits that say nothing about the label.
Trained with a contrastive loss, an embedding by global average pooling (GAP) has to
carry the three along; generalized sum pooling (GSP) can leave them out, and
zero-shot prediction (ZSP) asks that its attributes tell unseen classes apart. In
the setting of DML 5.3.2, on images that scikit-learn ships.

    python -m experiments.quickstart                  # preset cpu: 35 s on 2 cores
    python -m experiments.quickstart --preset smoke   # seconds
"""

import dataclasses
import pathlib
import sys
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from jax import Array

from experiments.frame import at_once
from experiments.frame.study import Claim, Study, Table
from experiments.gsp import quick
from experiments.gsp.collage_measures import foreground_weight, retrieval
from spherejax import data

SEEN, UNSEEN, SHARED = tuple(range(6)), (6, 7), (8, 9)


@dataclasses.dataclass(frozen=True)
class Config(quick.Settings):
  """Settings of the quickstart."""

  classes: ClassVar[int] = len(SEEN)
  image_shape: ClassVar[tuple[int, int, int]] = (16, 16, 1)
  seed: int = 0
  """Everything random follows from it."""
  seeds: int = 3
  """Runs of each variant."""
  collages: tuple[int, int, int] = (3000, 600, 600)
  """Collages to train on, to validate with and to test with."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(seeds=2, steps=24, collages=(300, 120, 120)),
}


def make_collages(config: Config, key: Array) -> dict[str, data.Collages]:
  """Collages of disjoint images; in the file's order, so that writers differ too."""
  digits = data.load_digits()
  rows = np.split(np.arange(len(digits)), [len(digits) * 3 // 5, len(digits) * 4 // 5])
  parts = {"train": (SEEN, 0), "validation": (SEEN, 1), "seen": (SEEN, 2)}
  collages = {}
  for name, (classes, part) in (parts | {"unseen": (UNSEEN, 2)}).items():
    own = digits[rows[part]]
    shared = own[np.isin(own.labels, SHARED)].images
    shared = shared[: len(shared) // 20 * 20]  # so that all tests share a program
    foreground = np.flatnonzero(np.isin(own.labels, classes))
    chosen = own[np.resize(foreground, config.collages[part])]
    key, part_key = jax.random.split(key)
    collages[name] = jax.jit(data.collages)(
      part_key, chosen.images, chosen.labels, shared
    )
  return collages


def measure(config: Config, output: pathlib.Path) -> tuple[Table, Any]:
  """Trains all variants with all seeds; the last ones and all curves are drawn."""
  del output  # nothing is kept
  variants = {
    "GAP": quick.AVERAGE,  # at mass 1 the pooling is exactly the average
    "GSP": quick.Variant(config.mass, 0.0),
    "GSP + ZSP": quick.Variant(config.mass, config.zero_shot_weight),
  }
  table, last = Table(), {}
  total = config.seeds * (1 + len(variants) * (config.parts - 1))
  seeds = range(config.seed, config.seed + config.seeds)
  with at_once.pool() as pool:  # both are compiled at a time
    begun = pool.submit(quick.initial_states, config, seeds)
    collages = [make_collages(config, jax.random.key(seed)) for seed in seeds]
  with tqdm.tqdm(
    total=total, desc="training", unit="part", file=sys.stderr
  ) as progress:
    runs = quick.train(config, begun.result(), variants, collages, progress)
  for own, runs_of_seed in zip(collages, runs, strict=True):
    last = {part: {"collages": own[part], "results": {}} for part in ("seen", "unseen")}
    for name, trained in runs_of_seed.items():
      params, mass = trained.state.params["network"], jnp.float32(variants[name].mass)
      for part in ("seen", "unseen"):
        test = own[part]
        result = quick.embed(params, test.images, mass, config=config)
        for metric, value in retrieval(result.embeddings, test.labels).items():
          table.add(name, f"{metric} {part}", value)
        weight = foreground_weight(result.weights, test.foreground)
        table.add(name, f"weight on the labelled digit, {part}", weight)
        last[part]["results"][name] = result
  curves = {name: [run[name].curve for run in runs] for name in variants}
  return table, (last, curves)


CLAIMS = [
  Claim(
    "quickstart-gsp",
    "MAP@R(GSP) > MAP@R(GAP), seen classes, in every seed",
    lambda t: t.gain("MAP@R seen", "GSP", over="GAP"),
    every_seed=True,
  ),
  Claim(
    "quickstart-attention",
    "weight on the labelled digit under GSP > 0.25",
    lambda t: t.values("weight on the labelled digit, seen", "GSP") - 0.25,
  ),
]


def draw(table: Table, shown: Any, config: Config) -> dict[str, Any]:
  """Weight maps, validation curves and retrieval sheets."""
  del table
  last, curves = shown
  return quick.draw(last, curves, config)


STUDY = Study(
  "quickstart", __doc__, "DML 5.3.2", PRESETS, measure, CLAIMS, draw, short=True
)

if __name__ == "__main__":
  STUDY.main()
