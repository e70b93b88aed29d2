"""Photographs of several objects under all networks: figures of each seed, pictures."""

import functools
import pathlib
from typing import Any

import numpy as np
import tqdm

from experiments.counting import claims, features, grids, images, settings
from experiments.counting.images import Objects, Photographs
from experiments.frame.study import Table

_SMALL = "cifar10"
"""What Simple-6 is trained on, where no weights are named."""


def check(config: Any, name: str, found: Photographs) -> None:
  """Raises ValueError where counts or classes do not suffice, before any training."""
  del name
  single = found.labels >= 0
  for seed in range(config.seed, config.seed + config.seeds):
    _, fitted = _split(found, seed)
    settings.check_sample(
      config,
      "photographs",
      mixed=found.counts,
      counts=found.counts[single],
      labels=found.labels[single],
      fitted=found.labels[fitted],
    )
  if not _named(config):
    settings.check_training(_objects(config).train_labels, _SMALL)


def _split(found: Photographs, seed: int) -> tuple[np.ndarray, np.ndarray]:
  """Rows of one class, to measure on and to fit to."""
  single = np.random.default_rng(seed).permutation(np.flatnonzero(found.labels >= 0))
  half = len(single) // 2
  return single[:half], single[half:]


def _named(config: Any) -> bool:
  return bool(config.supervised_weights or config.simclr_weights)


def _objects(config: Any) -> Objects:
  """What Simple-6 is trained on."""
  try:
    return images.load(_SMALL, config)
  except FileNotFoundError as error:
    raise SystemExit(
      f"without weights of a ResNet-50 Simple-6 is trained on {_SMALL}: {error}"
    ) from error


def _networks(config: Any, output: pathlib.Path) -> tuple[grids.Networks, Any]:
  """ResNet-50 where weights are named, else Simple-6 of CIFAR-10; moments of pixels."""
  if _named(config):
    return grids.residual_networks(config), images.IMAGENET
  objects = _objects(config)
  networks = grids.simple_networks(config, _SMALL, objects, output / "kept")
  return networks, (objects.mean, objects.std)


def study(
  table: Table,
  config: Any,
  name: str,
  found: Photographs,
  output: pathlib.Path,
  bar: tqdm.tqdm,
) -> dict[str, Any]:
  """Measures all networks; classifiers and episodes on photographs of one class."""
  networks, moments = _networks(config, output)
  fill = claims.NO_FILL
  arrays: dict[str, np.ndarray] = {}
  sample: Any = None
  for seed in range(config.seed, config.seed + config.seeds):
    if sample is None or not networks.fixed:
      sample = features.of_photographs(
        networks.apply,
        grids.of_seed(config, networks, seed),
        found,
        moments,
        block=config.block,
      )
    take = functools.partial(features.take, sample)
    asked, fitted = map(take, _split(found, seed))
    single = take(np.flatnonzero(sample.labels >= 0))
    samples = features.Samples(sample, single, fitted, asked)
    figures, own = grids.looked_at(config, networks, samples, fill, seed)
    claims.add(table, config, name, fill, figures)
    arrays = arrays or own
    bar.update()
  return grids.drawn(name, networks.names, (fill,), arrays)
