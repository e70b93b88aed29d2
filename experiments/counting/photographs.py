"""Photographs of several objects under all networks: measures by seed, and figures."""

import functools
import pathlib

import numpy as np
import tqdm
from numpy.typing import ArrayLike

from experiments.counting import claims, features, grids, images, settings
from experiments.counting.images import Photographs
from experiments.counting.settings import Config
from experiments.frame.pictures import Figure
from experiments.frame.study import Table


def check(config: Config, name: str, photographs: Photographs) -> None:
  """Raises ValueError if counts or classes cannot be measured, before any training."""
  del name
  _, counts, labels = photographs
  for seed in range(config.seed, config.seed + config.seeds):
    measured, single, fitted = _split(photographs, seed)
    arrays = counts[measured], counts[single], labels[single], labels[fitted]
    settings.check_sample(config, "photographs", *arrays)


def _split(
  photographs: Photographs, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Rows of the measured half, and rows of single classes in it and in the other half.

  Every seed divides the photographs anew.
  """
  order = np.random.default_rng(seed).permutation(len(photographs.labels))
  halves = np.array_split(order, 2)
  single, fitted = (rows[photographs.labels[rows] >= 0] for rows in halves)
  return halves[0], single, fitted


def _moments(config: Config) -> tuple[ArrayLike, ArrayLike]:
  """Mean and deviation of pixels in [0, 1] for which the network was trained."""
  if settings.files(config):
    return images.IMAGENET
  network = features.pretrained()
  return np.array(network.mean) / 255, np.array(network.deviation) / 255


def study(
  table: Table,
  config: Config,
  name: str,
  photographs: Photographs,
  networks: grids.Networks,
  folder: pathlib.Path,
  bar: tqdm.tqdm,
) -> dict[str, Figure]:
  """Measures all networks; classifiers and episodes use photographs of one class."""
  del folder
  moments, fill = _moments(config), claims.NO_FILL
  arrays: dict[str, np.ndarray] = {}
  see = functools.partial(
    features.of_photographs, networks.apply, photographs=photographs, moments=moments,
    block=config.block,
  )  # fmt: skip
  fixed = see(grids.of_seed(config, networks, config.seed)[: networks.fixed])
  for seed in range(config.seed, config.seed + config.seeds):
    untrained = grids.of_seed(config, networks, seed)[networks.fixed :]
    sample = fixed
    if untrained:
      sample = fixed._replace(z=np.concatenate([fixed.z, see(untrained).z]))
    parts = (sample.at(rows) for rows in _split(photographs, seed))
    samples = features.Samples(*parts)
    figures, drawn_arrays = grids.probe_networks(config, networks, samples, fill, seed)
    claims.add(table, config, name, fill, figures)
    arrays = arrays or drawn_arrays
    bar.update()
  return grids.draw_figures(name, networks.names, (fill,), arrays)
