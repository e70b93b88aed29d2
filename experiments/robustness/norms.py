"""Accuracies of images under attack, norm by norm, for `voronoi`."""

import pathlib

import numpy as np
import tqdm

from experiments.frame import kept
from experiments.frame.digits import Points
from experiments.robustness import curves, draws, images
from experiments.robustness.cell_settings import Config
from spherejax.distances._lp import Norm


def remembering(
  config: Config, folder: pathlib.Path, progress: tqdm.tqdm
) -> curves.Remember:
  """What an earlier run of the same command found is kept, and not made again."""
  settings = {"made with": kept.digest(config)}

  def remember(name, make):
    progress.set_postfix_str(name)
    done = kept.restore(folder / name, settings)
    if done is None:
      done = make()
      kept.keep(folder / name, settings, done)
    progress.update()
    return done

  return remember


def task_of(config: Config, sites: Points, norm: Norm) -> curves.Task:
  """Which sites are attacked in one norm, and how."""
  return curves.Task(
    sites,
    norm,
    images.BUDGETS[config.images][norm],
    config.steps,
    config.neighbours,
    config.batch,
    config.seed,
  )


def of_norm(
  config: Config, sites: Points, tests: Points, norm: Norm, remember
) -> tuple[draws.Part, dict[str, np.ndarray]]:
  """Curves in one norm beside closed forms; rows and claims, and what to draw."""
  task = task_of(config, sites, norm)
  found = curves.curves(task, config.classifiers, remember)
  figures, made = curves.study(config.images, task, tests, found)
  rows, claims = draws.once(figures, made, curves.PAPER)
  count = len(task.finite()) + 1
  lines = {name: values[:count] for name, values in found.accuracy.items()}
  if config.images == "digits" and norm == "l2":
    exact, more = curves.exact_neighbour(task, found)
    rows, claims = rows + more[0], claims + more[1]
    lines["1-NN, SAA, exact"] = np.array([1.0, *exact])
  return (rows, claims), lines
