"""Rows, claims and pictures of the screening."""

import pathlib
from typing import Any

import numpy as np

from experiments.frame import pictures, results
from experiments.gsp import screening_cells, screening_design
from spherejax import plotting


def table(loss: str, effects, scores) -> list[Any]:
  """The effects beside the paper's, and every cell."""
  shown = screening_design.effect_rows(loss, effects, points=100) if effects else []
  return shown + [
    results.row(f"{loss}, {title(cell)}", "MAP@R", values)
    for cell, values in scores.items()
  ]


def title(cell: tuple[float, ...]) -> str:
  """A cell in the paper's symbols."""
  if cell[1] == 1 and not cell[3]:
    return "average pooling"
  return "m {}, mu {:g}, beta {:g}, lambda {:g}".format(*cell)


def design_claim() -> Any:
  """The effects of the paper's table, which it does not print."""
  found = screening_design.published()
  differences = [
    np.abs(found[word].value - x).max() for word, x in screening_design.BY_HAND.items()
  ]
  return results.claim(
    "screen-design",
    "effects of the paper's table within 0.01 of those worked out by hand",
    0.01 - np.array(differences),
    paper="DML Tab. 5.4",
    every_seed=True,
  )


def claims(
  config: screening_cells.Config, loss: str, effects, scores, apart
) -> list[Any]:
  """The claims of DML 5.3.4.5 that the trainings with one loss speak to."""
  suffix, made = loss.lower(), []
  if effects:
    made.append(screening_design.claim(loss, effects))
  _, sharpness, weight = config.centre
  curve = {
    mass: (64, mass, sharpness, weight) for mass in screening_cells.curve_of(config)
  }
  small = [mass for mass in curve if mass <= 0.5]
  if 1.0 in curve:
    if small:
      # One mass for all seeds: a best one for each would gain from noise alone.
      best = max(small, key=lambda x: scores[curve[x]].mean())
      made.append(
        results.claim(
          f"mu-sweep-{suffix}",
          f"MAP@R of the best mass up to 0.5 ({best:g}) > MAP@R of mass 1, {loss}",
          scores[curve[best]] - scores[curve[1.0]],
          paper="DML Fig. 5.8",
        )
      )
    made.append(
      results.claim(
        f"mu-sweep-average-{suffix}",
        "at mass 1 pooled vectors of every step equal the average to 1e-6 of its "
        f"largest entry (1e-6 less the largest difference), {loss}",
        1e-6 - apart[curve[1.0]],
        paper="DML Claim 5.2.1",
        every_seed=True,
      )
    )
  large = [(number, *config.centre) for number in config.counts if number >= 64]
  many = [scores[cell] for cell in large if cell in scores]
  if len(many) > 2:
    spread = np.ptp(np.mean(many, axis=1))
    made.append(
      results.claim(
        f"m-flat-{suffix}",
        f"range of MAP@R over m in 64, 128, 256 < its range over seeds, {loss}",
        np.ptp(many, axis=1) - spread,
        paper="DML Fig. 5.11",
        every_seed=True,
      )
    )
  return made


def draw(
  config: screening_cells.Config, loss: str, scores, output: pathlib.Path
) -> list[str]:
  """The grid of prototypes and sharpness, and curves over the mass and prototypes."""
  mass, sharpness, weight = config.centre
  counts = [number for number in config.counts if number <= 128]
  grid = [
    [scores[number, mass, x, weight].mean() for x in config.sharpness]
    for number in counts
  ]
  figures = {}
  if counts and config.sharpness:
    figures["grid"] = plotting.heat_map(
      np.array(grid),
      rows=counts,
      columns=config.sharpness,
      row_label="prototypes",
      column_label="inverse temperature",
      value_label=f"MAP@R, {loss}, validation classes",
      number_format=".4f",
    )
  # Seeds have networks of their own, whose levels differ by more than the numbers do.
  average = scores.get(screening_cells.average_of(config), 0.0)
  above = " above average pooling" * (screening_cells.average_of(config) in scores)
  ylabel = f"MAP@R{above}, {loss}"
  if masses := screening_cells.curve_of(config):
    curve = [scores[64, x, sharpness, weight] - average for x in masses]
    figures["mass"] = plotting.training_curves(
      {"64 prototypes": np.transpose(curve)},
      steps=masses,
      xlabel="mass",
      ylabel=ylabel,
    )
  if len(config.counts) > 1:
    curve = [scores[number, *config.centre] - average for number in config.counts]
    figures["prototypes"] = plotting.training_curves(
      {f"mass {mass:g}": np.transpose(curve)},
      steps=config.counts,
      xlabel="prototypes",
      ylabel=ylabel,
    )
  return pictures.save(
    {f"{name}-{loss.lower()}": figure for name, figure in figures.items()}, output
  )
