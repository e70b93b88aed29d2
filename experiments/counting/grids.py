"""Grids of one set of objects under all networks: measures by seed, and figures."""

import functools
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from flax.typing import Collection, VariableDict

from experiments.counting import claims, features, measures, pictures, training
from experiments.counting import settings as checks
from experiments.counting.features import Samples
from experiments.counting.images import AnyArray, Objects
from experiments.counting.measures import Figures
from experiments.counting.settings import Config, Fill
from experiments.frame import at_once
from experiments.frame import images as class_sets
from experiments.frame import kept as finished
from experiments.frame.pictures import Figure
from experiments.frame.study import Table
from spherejax import data, models

_MIXED, _SINGLE, _FITTED = range(3)  # kinds of grids of a seed
_TWO_VIEWS = ("digits", "mnist")  # sets on which Simple-6 also learns without labels
_LONGEST = ("grids", "SimCLR", "supervised")  # methods by the time of a training


class Networks(NamedTuple):
  """Networks of one kind."""

  names: tuple[str, ...]
  variables: tuple[VariableDict, ...]  # [seeds, ...]; [1, ...] if seeds share it
  apply: features.Apply
  accuracies: dict[str, np.ndarray]  # on single objects [seeds], if trained here

  @property
  def fixed(self) -> int:
    """Number of networks that all seeds share; they come first."""
    return sum(len(jax.tree.leaves(x)[0]) == 1 for x in self.variables)


def fills(config: Config, name: str) -> tuple[Fill, ...]:
  """Fills of a set's empty cells; MNIST always has zeros (NCH 4.1)."""
  return ("zeros",) if name == "mnist" else config.fills


def key_of(seed: int, kind: int) -> jax.Array:
  """Key of a seed's grids, the same for all fills and networks."""
  return jax.random.fold_in(jax.random.fold_in(jax.random.key(1), seed), kind)


def check(config: Config, name: str, objects: Objects) -> None:
  """Raises ValueError if the objects or a seed's grids cannot be measured."""
  classes = np.unique(objects.train_labels)
  if len(classes) < 2:
    raise ValueError(
      "networks are trained on two classes or more, but the "
      f"{len(objects.train_labels)} training objects of {name} have {len(classes)}: "
      f"{classes.tolist()}"
    )
  checks.check_classes(objects.held_labels, "held out objects")
  objects = jax.tree.map(jnp.asarray, objects)
  sample = functools.partial(features.counts_and_labels, objects, number=config.grids)
  for seed in range(config.seed, config.seed + config.seeds):
    (mixed, _), (counts, labels), (_, fitted) = (
      map(np.asarray, sample(key_of(seed, kind))) for kind in (_MIXED, _SINGLE, _FITTED)
    )
    checks.check_sample(config, f"{config.grids} grids", mixed, counts, labels, fitted)


def simple_networks(
  config: Config, sets: Mapping[str, Objects], folder: pathlib.Path
) -> dict[str, Networks]:
  """Trains Simple-6 on each set by every method of the settings."""
  # Method, and factor of the biases, by set and name of the network.
  jobs: dict[tuple[str, str], tuple[training.Method, float]] = {}
  for name in sets:
    jobs[name, claims.SUPERVISED] = "supervised", 1.0
    if config.controls:
      jobs[name, claims.UNBIASED] = "supervised", 0.0
    if "SimCLR" in config.methods and name in _TWO_VIEWS:
      jobs[name, claims.SIMCLR] = "SimCLR", 1.0
    if config.controls and name == "digits":
      jobs[name, claims.ON_GRIDS] = "grids", 1.0

  def train(job: tuple[str, str]) -> tuple[Collection, np.ndarray]:
    (name, _), (method, bias) = job, jobs[job]
    return training.train(config, method, sets[name], bias=bias, folder=folder / name)

  # The longest begin first, so that no long one is left to run alone.
  order = sorted(jobs, key=lambda job: _LONGEST.index(jobs[job][0]))
  trained = dict(zip(order, at_once.threaded(train, order), strict=True))
  apply = jax.jit(functools.partial(training.embed, config, "native"))
  networks = {}
  for name, objects in sets.items():
    names = [network for of, network in jobs if of == name]
    variables = {network: trained[name, network][0] for network in names}
    accuracies = {network: trained[name, network][1] for network in names}
    if config.controls:
      variables[claims.RANDOM] = training.untrained(config, objects)
    networks[name] = Networks(
      tuple(variables), tuple(variables.values()), apply, accuracies
    )
  return networks


def trained_networks(config: Config) -> Networks:
  """Pretrained networks, the same for all seeds, and one with random weights.

  They are ResNet-50 if files of weights are given, otherwise EfficientNet-Lite0.
  """
  files, widths = checks.files(config), config.resnet_widths
  strides = 1, *(2,) * (len(widths) - 1)
  network: nn.Module = models.ResNet50(
    config.resnet_blocks, widths, strides, frozen_norm=True
  )
  if not files:
    network = features.pretrained().module

  def draw(key: jax.Array) -> VariableDict:
    return network.init(key, jnp.zeros((1, 32, 32, 3)))

  shapes = jax.eval_shape(draw, jax.random.key(0))
  variables: dict[str, VariableDict] = {
    name: features.imported(shapes, file) for name, file in files.items()
  } or {claims.SUPERVISED: features.pretrained().variables}
  variables = {
    name: jax.tree.map(lambda x: x[None], tree) for name, tree in variables.items()
  }
  if config.controls:
    numbers = jnp.arange(config.seed, config.seed + config.seeds)
    keys = jax.vmap(jax.random.key)(numbers)
    untrained = jax.jit(jax.vmap(draw))(keys)
    variables[claims.RANDOM] = jax.tree.map(np.asarray, untrained)
  apply = jax.jit(functools.partial(features.pooled, network))
  return Networks(tuple(variables), tuple(variables.values()), apply, {})


def measure(
  config: Config, networks: Networks, samples: Samples, key: jax.Array
) -> dict[str, Figures]:
  """Measures each network, and the norm of the image itself."""
  single, slopes = samples.single, "slopes" in config.measures
  by_network: dict[str, Figures] = {
    name: {} for name in (*networks.names, claims.IMAGE)
  }
  of_norms = measures.slopes if slopes else measures.correlations
  for sample, mode in zip(samples[:2], claims.MODES, strict=True):
    norms = np.vstack([np.linalg.norm(sample.z, axis=2), sample.lengths[None]])
    by_row = of_norms(norms, sample.counts, mode)
    for name, figures in zip(by_network, by_row, strict=True):
      by_network[name] |= figures
  episodes = {}
  if "episodes" in config.measures:
    draw = functools.partial(
      class_sets.episodes, key, data.class_table(single.labels, per_class=1),
      number=config.episodes, ways=config.ways, queries=config.queries,
    )  # fmt: skip
    episodes = {shots: draw(shots=shots) for shots in config.shots}
  # Untrained networks have only slopes, or, without slopes, all other measures.
  full = claims.SUPERVISED, claims.UNBIASED, claims.SIMCLR
  full = full if slopes else (*full, claims.RANDOM)
  for number, name in enumerate(networks.names):
    if name not in full:
      continue
    if "classifiers" in config.measures and samples.fitted:
      by_network[name] |= measures.classifiers(samples.fitted, single, number, key)
    for shots, rows in episodes.items():
      by_network[name] |= measures.episodes(single, number, rows, shots=shots)
    if "angles" in config.measures:
      by_network[name] |= measures.angles(single, number)
  if not slopes:
    for shots, rows in episodes.items():
      within = measures.within(single.lengths, single.counts, rows, shots=shots)
      by_network[claims.IMAGE] |= within
  return by_network


def of_seed(config: Config, networks: Networks, seed: int) -> list[VariableDict]:
  def of_leaf(leaf: AnyArray) -> jax.Array:
    # Indexing on the host compiles nothing.
    return jnp.asarray(np.asarray(leaf)[min(seed - config.seed, len(leaf) - 1)])

  return [jax.tree.map(of_leaf, tree) for tree in networks.variables]


def probe_networks(
  config: Config, networks: Networks, samples: Samples, fill: str, seed: int
) -> tuple[dict[str, Figures], dict[str, np.ndarray]]:
  """Measures each network; returns the figures and the arrays to draw."""
  single = samples.single
  arrays = {
    f"norms {fill}": np.linalg.norm(samples.mixed.z, axis=2),
    f"counts {fill}": samples.mixed.counts,
    f"z {fill}": single.z[0],
    f"own counts {fill}": single.counts,
    f"labels {fill}": single.labels,
  }
  return measure(config, networks, samples, key_of(seed, 3)), arrays


def _seed(
  config: Config, networks: Networks, objects: Objects, name: str, seed: int
) -> finished.Finished:
  figures, arrays = {}, {}
  draw = functools.partial(
    features.of_grids, networks.apply, of_seed(config, networks, seed), objects,
    number=config.grids, block=min(config.block, config.grids),
  )  # fmt: skip
  kinds = (_MIXED, _SINGLE, _FITTED)
  if "classifiers" not in config.measures:
    kinds = kinds[:_FITTED]
  for fill in fills(config, name):
    samples = Samples(*(draw(fill, x != _MIXED, key_of(seed, x)) for x in kinds))
    figures[fill], drawn_arrays = probe_networks(config, networks, samples, fill, seed)
    arrays |= drawn_arrays
  return finished.Finished(figures, arrays)


def study(
  table: Table,
  config: Config,
  name: str,
  objects: Objects,
  networks: Networks,
  folder: pathlib.Path,
  bar: tqdm.tqdm,
) -> dict[str, Figure]:
  """Adds all measures of the networks; returns the figures."""
  objects = jax.tree.map(jnp.asarray, objects)
  arrays: dict[str, np.ndarray] = {}
  settings = {"of": finished.digest(config)}

  def of(seed: int) -> finished.Finished:
    make = functools.partial(_seed, config, networks, objects, name, seed)
    outcome = finished.once(folder / f"{name}-{seed}", made_with=settings, make=make)
    bar.update()
    # Figures show the first seed only.
    return outcome if seed == config.seed else outcome._replace(arrays={})

  for outcome in at_once.threaded(of, range(config.seed, config.seed + config.seeds)):
    for fill, by_network in outcome.figures.items():
      claims.add(table, config, name, fill, by_network)
    arrays = arrays or outcome.arrays
  for network, values in networks.accuracies.items():
    title = f"{name}, {network}, single objects"
    table.add(title, "nearest mean, accuracy", values)
  # As many as in other blocks, whose programs are already compiled.
  keys = jax.random.split(key_of(config.seed, 4), min(config.block, config.grids))
  examples = {f"grids-{name}": pictures.grids(objects, fills(config, name), keys)}
  return examples | draw_figures(name, networks.names, fills(config, name), arrays)


def draw_figures(
  name: str,
  names: tuple[str, ...],
  fills: tuple[str, ...],
  arrays: dict[str, np.ndarray],
) -> dict[str, Figure]:
  """Draws norms of each network and fill, and angles, of the first seed."""
  panels = {
    f"{network}, {fill}": (arrays[f"norms {fill}"][number], arrays[f"counts {fill}"])
    for number, network in enumerate(names)
    for fill in fills
  }
  columns = max(len(fills), min(2, len(panels)))
  single = (arrays[f"{part} {fills[0]}"] for part in ("z", "own counts", "labels"))
  return {
    f"norms-{name}": pictures.norms(panels, columns),
    f"polar-{name}": pictures.polar(*single),
  }
