"""Frozen maps of collages, from a network that is trained once for a seed."""

import dataclasses
import pathlib
import sys
from typing import Any

import jax
import numpy as np
import tqdm
from flax import traverse_util

from experiments.frame import kept
from experiments.gsp import collages, network, screening, screening_cells, training
from spherejax import data


def frozen_maps(
  config: screening_cells.Config,
  seed: int,
  source: collages.Source,
  output: pathlib.Path,
) -> tuple[screening.Maps, screening.Maps]:
  """Maps of training and validation collages from a network trained with GAP."""
  parts = collages.collages(source, jax.random.key(seed), most=config.most)
  train, validation = parts["train"].collages, parts["validation"].collages
  # The same labels for all seeds, which share compiled programs; backgrounds differ.
  chosen = np.random.default_rng(config.seed).permutation(len(validation))
  validation = validation[np.sort(chosen[: config.validation])]
  params = frozen_network(config, seed, source, train, output)
  backbone = network.backbone(config)

  @jax.jit
  def features(params, pixels):
    return backbone.apply({"params": params}, data.to_float(pixels) - 0.5)

  def maps(images: data.Images, per_class: int) -> screening.Maps:
    blocks = np.array_split(np.asarray(images.images), -(-len(images) // 250))
    found = np.concatenate([np.asarray(features(params, block)) for block in blocks])
    return screening.make_maps(found, images.labels, per_class)

  return maps(train, config.per_class), maps(validation, 1)


def frozen_network(
  config: screening_cells.Config,
  seed: int,
  source: collages.Source,
  train: data.Images,
  output: pathlib.Path,
) -> Any:
  """Parameters of a backbone trained with GAP, or what was kept of it."""
  path = output / "kept" / f"network-{seed}"
  # What changes the network; the rest is of the heads.
  settings = {
    field.name: getattr(config, field.name)
    for field in dataclasses.fields(network.Settings)
  } | {name: getattr(config, name) for name in ("percent", "most", "pretraining")}
  settings["seed"] = seed

  def make() -> kept.Finished:
    total = config.parts * (1 + bool(config.pretraining))
    with tqdm.tqdm(total=total, desc=f"network {seed}", file=sys.stderr) as progress:
      singles = collages.single_images(source, config.per_class)
      begun = training.pretrain(
        config, config.pretraining, seed, singles, progress, kept=path.parent
      )
      average, folder = {"GAP": network.AVERAGE}, path.parent
      run = training.train(
        config, seed, average, train, progress, pretrained=begun, kept=folder
      )["GAP"]
    params = jax.tree.map(np.asarray, run.state.params["network"]["backbone"])
    arrays: Any = traverse_util.flatten_dict(params, sep="/")
    return kept.Finished({}, arrays)

  done = kept.once(path, made_with=settings, make=make)
  return traverse_util.unflatten_dict(done.arrays, sep="/")
