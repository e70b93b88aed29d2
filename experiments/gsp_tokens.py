"""Token study: does generalized sum pooling learn to leave the background out?

A sample is a set of 50 tokens: about half belong to its class, the others to a
background that all classes share. Tokens are learned points of the plane, and their
pooled vector is the embedding (DML 5.3.1, figure 5.4). Average pooling (GAP) mixes the
background into every embedding. Generalized sum pooling (GSP) can leave it out, and the
hulls of the classes separate. With the linear program, the weights give the prototypes
no gradient, so they stay at the background near which they start. All variants and
seeds of one kind of pooling are one vmapped program.

    python -m experiments.gsp_tokens                  # preset cpu: 7 min on 2 cores
    python -m experiments.gsp_tokens --preset smoke   # seconds
    python -m experiments.gsp_tokens --preset full    # the paper's learning rate
"""

import pathlib

import numpy as np

from experiments.frame.pictures import Figure
from experiments.frame.study import Claim, Measured, Study, Table
from experiments.gsp import token_trainings
from experiments.gsp.token_trainings import BACKGROUND, GAP, GSP, HULLS, MAP, SHARE
from experiments.gsp.tokens import Config
from spherejax import plotting

PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    seeds=1, steps=300, warm_up=100, validation=10, test=10, linear_program=False
  ),
  "full": Config(learning_rate=1e-4, warm_up=4096, steps=60_000, validation=100),
}


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Trains all variants with all seeds; returns measures, tokens and curves."""
  figures, first, curves = token_trainings.collect(config, output)
  table = Table()
  table.add_gain(MAP, GSP, over=GAP, paper=0.70)
  for name, measures in figures.items():
    table.add_all(name, measures)
  return table, lambda: draw(first, curves, config)


CLAIMS = Claim.of_rows([
  ("tokens-map", "MAP@R(GSP) > MAP@R(GAP)", lambda t: t.gain(MAP, GSP, over=GAP)),
  ("tokens-background", "weight on background under GSP < half of its share",
   lambda t: 0.5 * t.values(SHARE, GSP) - t.values(BACKGROUND, GSP)),
  ("tokens-hulls",
   "fewer of the 120 pairs of class hulls intersect under GSP than under GAP",
   lambda t: t.gain(HULLS, GAP, over=GSP)),
])  # fmt: skip


def draw(first: dict, curves: dict, config: Config) -> dict[str, Figure]:
  """Tokens of the first seed in the plane, and the validation curves."""
  tokens, embeddings, shared = (
    {name: first[name][x] for name in (GAP, GSP)}
    for x in ("tokens", "embeddings", "shared")
  )
  planes = plotting.class_hulls(
    tokens, dots=embeddings, others=shared, other_label="background token"
  )
  steps = config.warm_up + config.epoch * np.arange(1, config.steps // config.epoch + 1)
  chart = plotting.training_curves(curves, steps=steps, ylabel="MAP@R, fresh samples")
  return {"tokens": planes, "curves": chart}


STUDY = Study("gsp_tokens", __doc__, "DML 5.3.1, Fig. 5.4", PRESETS, measure, CLAIMS)

if __name__ == "__main__":
  STUDY.main()
