"""The two-level design of the screening and its effects in the paper, DML Table 5.4."""

import numpy as np

from spherejax import metrics, training

LEVELS = {
  "prototypes": (16, 128),
  "mass": (0.3, 0.7),
  "inverse_temperature": (0.5, 20.0),
  "zero_shot_weight": (0.1, 0.5),
}
SYMBOLS = dict(zip(LEVELS, ("m", "mu", "beta", "lambda"), strict=True))
# DML Table 5.4: m, mu, beta, lambda, MAP@R with C2 and with ProxyNCA++.
TABLE = np.array(
  [
    [16, 0.3, 0.5, 0.1, 40.63, 40.59],
    [16, 0.7, 0.5, 0.5, 40.41, 40.34],
    [128, 0.3, 0.5, 0.5, 40.22, 40.35],
    [128, 0.7, 0.5, 0.1, 40.07, 40.85],
    [16, 0.3, 20, 0.5, 36.11, 40.51],
    [16, 0.7, 20, 0.1, 39.11, 39.88],
    [128, 0.3, 20, 0.1, 39.61, 39.12],
    [128, 0.7, 20, 0.5, 35.36, 39.92],
  ]
)
# Its effects, worked out by hand.
BY_HAND = {
  ("prototypes",): (-0.25, -0.27),
  ("mass",): (-0.41, 0.11),
  ("inverse_temperature",): (-2.79, -0.68),
  ("zero_shot_weight",): (-1.83, 0.17),
  ("prototypes", "mass"): (-1.80, 0.55),
  ("prototypes", "inverse_temperature"): (0.13, -0.41),
  ("prototypes", "zero_shot_weight"): (-0.22, -0.02),
}


def runs_of_design() -> list[tuple]:
  """The eight cells of the two-level design (DML Table 5.4)."""
  design = training.factorial(LEVELS, relation=[tuple(LEVELS)])
  return list(zip(*(column.tolist() for column in design.values()), strict=True))


def published() -> dict[tuple[str, ...], metrics.Effect]:
  """Effects of the paper's table."""
  design = dict(zip(LEVELS, TABLE.T[:4], strict=True))
  return metrics.factorial_effects(design, TABLE[:, 4:])


def screened(scores: dict) -> dict[tuple[str, ...], metrics.Effect]:
  """Effects of our runs, [seeds]."""
  runs = runs_of_design()
  design = {name: [run[i] for run in runs] for i, name in enumerate(LEVELS)}
  return metrics.factorial_effects(design, np.stack([scores[run] for run in runs]))


def strength(values: np.ndarray) -> np.ndarray:
  """[seeds], the size of an effect: along its mean, so that noise has none."""
  return np.sign(values.mean()) * values


def label(word: tuple[str, ...], effect: metrics.Effect) -> str:
  """An effect and what it is confounded with, in the paper's symbols."""
  words = [word, *effect.aliases]
  return " = ".join("*".join(SYMBOLS[name] for name in each) for each in words)


def effect_name(loss: str, word: tuple[str, ...]) -> str:
  """An effect in the table; its confounding is that of the paper's design."""
  return f"{loss}, effect of {label(word, published()[word])}"
