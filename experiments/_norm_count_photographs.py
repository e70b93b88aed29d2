"""Photographs of several objects under all networks: figures of each seed, pictures."""

import functools
import pathlib
from typing import Any

import numpy as np
import tqdm

from experiments import (
  _figure,
  _norm_count_checks,
  _norm_count_features,
  _norm_count_grids,
  _norm_count_measures,
  _norm_count_pictures,
  _norm_count_report,
  _norm_count_sets,
)
from experiments._norm_count_report import Figures
from experiments._norm_count_sets import Objects, Photographs

_SMALL = "cifar10"
"""What Simple-6 is trained on, where no weights are named."""


def check(config: Any, name: str, found: Photographs) -> None:
  """Raises ValueError where counts or classes do not suffice, before any training."""
  del name
  single = found.labels >= 0
  for seed in range(config.seed, config.seed + config.seeds):
    _, fitted = _split(found, seed)
    _norm_count_checks.sample(
      config,
      "photographs",
      mixed=found.counts,
      counts=found.counts[single],
      labels=found.labels[single],
      fitted=found.labels[fitted],
    )
  if not _named(config):
    _norm_count_checks.training(_objects(config).train_labels, _SMALL)


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
    return _norm_count_sets.load(_SMALL, config)
  except FileNotFoundError as error:
    raise SystemExit(
      f"without weights of a ResNet-50 Simple-6 is trained on {_SMALL}: {error}"
    ) from error


def _networks(
  config: Any, output: pathlib.Path
) -> tuple[_norm_count_grids.Networks, Any]:
  """ResNet-50 where weights are named, else Simple-6 of CIFAR-10; moments of pixels."""
  if _named(config):
    return _norm_count_grids.residual_networks(config), _norm_count_sets.IMAGENET
  objects = _objects(config)
  networks = _norm_count_grids.simple_networks(config, _SMALL, objects, output / "kept")
  return networks, (objects.mean, objects.std)


def study(
  config: Any, name: str, found: Photographs, output: pathlib.Path, bar: tqdm.tqdm
) -> tuple[Figures, list[str]]:
  """Measures all networks; classifiers and episodes on photographs of one class."""
  networks, moments = _networks(config, output)
  fill = _norm_count_report.NO_FILL
  figures: Figures = {}
  panels: dict[str, Any] = {}
  drawn: Any = None
  sample: Any = None
  for seed in range(config.seed, config.seed + config.seeds):
    if sample is None or not networks.fixed:
      sample = _norm_count_features.of_photographs(
        networks.apply,
        _norm_count_grids.of_seed(config, networks, seed),
        found,
        moments,
        block=config.block,
      )
    take = functools.partial(_norm_count_features.take, sample)
    single = take(np.flatnonzero(sample.labels >= 0))
    asked, fitted = map(take, _split(found, seed))
    measured = _norm_count_grids.measure(
      config,
      networks,
      _norm_count_features.Samples(sample, single, fitted, asked),
      _norm_count_grids.key_of(seed, 3),
    )
    _norm_count_grids.add(figures, fill, measured)
    if not panels:
      lengths = np.linalg.norm(sample.z, axis=2)
      lines = _norm_count_measures.parabolas(
        np.vstack([lengths, sample.lengths[None]]), sample.counts
      )
      panels = {
        network: {
          fill: _norm_count_pictures.Norms(
            lengths[i], sample.counts, lines[0][i], lines[1][i]
          )
        }
        for i, network in enumerate(networks.names)
      }
      drawn = single.z[0], single.counts, single.labels
    bar.update()
  pictures = {
    f"norms-{name}": _norm_count_pictures.norms(panels),
    f"polar-{name}": _norm_count_pictures.polar(*drawn),
  }
  return figures, _figure.save(pictures, output)
