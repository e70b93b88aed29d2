"""Claims and pictures of `gsp_map`."""

import itertools
import pathlib

import numpy as np

from experiments.frame import pictures, results
from spherejax import plotting

LINEAR_PROGRAM = float("inf")
# Mass, and inverse temperatures from sharp to blurred.
SOLUTIONS = {
  0.2: (LINEAR_PROGRAM, 100.0, 20.0, 5.0, 0.5),
  0.5: (LINEAR_PROGRAM, 20.0, 5.0),
  0.8: (LINEAR_PROGRAM, 20.0, 5.0),
}


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
    results.claim(key, statement, values, paper="DML Fig. 5.2", every_seed=True)
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
  return pictures.save({"weights": sheet, "blur": blur}, output)
