"""Accuracies of images under attack, norm by norm, for `voronoi`."""

import pathlib

import numpy as np
import tqdm

from experiments import _finished, _voronoi_curves, _voronoi_draws, _voronoi_sets
from experiments._digits import Points
from experiments._voronoi_config import Config
from spherejax.distances._lp import Norm


def remembering(
  config: Config, folder: pathlib.Path, progress: tqdm.tqdm
) -> _voronoi_curves.Remember:
  """What an earlier run of the same command found is kept, and not made again."""
  settings = {"made with": _finished.digest(config)}

  def remember(name, make):
    progress.set_postfix_str(name)
    done = _finished.restore(folder / name, settings)
    if done is None:
      done = make()
      _finished.keep(folder / name, settings, done)
    progress.update()
    return done

  return remember


def task_of(config: Config, sites: Points, norm: Norm) -> _voronoi_curves.Task:
  """Which sites are attacked in one norm, and how."""
  return _voronoi_curves.Task(
    sites,
    norm,
    _voronoi_sets.BUDGETS[config.images][norm],
    config.steps,
    config.neighbours,
    config.batch,
    config.seed,
  )


def of_norm(
  config: Config, sites: Points, tests: Points, norm: Norm, remember
) -> tuple[_voronoi_draws.Part, dict[str, np.ndarray]]:
  """Curves in one norm beside closed forms; rows and claims, and what to draw."""
  task = task_of(config, sites, norm)
  found = _voronoi_curves.curves(task, config.classifiers, remember)
  figures, made = _voronoi_curves.study(config.images, task, tests, found)
  rows, claims = _voronoi_draws.once(figures, made, _voronoi_curves.PAPER)
  count = len(task.finite()) + 1
  lines = {name: values[:count] for name, values in found.accuracy.items()}
  if config.images == "digits" and norm == "l2":
    exact, more = _voronoi_curves.exact_neighbour(task, found)
    rows, claims = rows + more[0], claims + more[1]
    lines["1-NN, SAA, exact"] = np.array([1.0, *exact])
  return (rows, claims), lines
