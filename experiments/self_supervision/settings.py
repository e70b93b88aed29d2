"""Settings of `projector_collapse`, and which of them cannot work."""

import dataclasses
import itertools
import os
from collections.abc import Mapping
from typing import Annotated, Literal

import jax

from experiments.frame import command
from experiments.frame.settings import Without
from experiments.self_supervision import lars
from experiments.self_supervision.claims import CROP, LARGE, MODERATE, SIMCLR, SMALL
from spherejax import data

# SSL, table 2.
COLOURED = {name: data.view_strengths(name) for name in (LARGE, MODERATE, SMALL)}
COLOURED[SIMCLR] = data.view_strengths(SIMCLR)  # of its authors, with blur
COLOURED[CROP] = COLOURED[LARGE]._replace(flip=0.0, jitter=0.0, grayscale=0.0)
# Digits have no colours, no mirror images, and are too small to lose much.
GREY = {
  name: data.ViewStrengths((area, 1.0), 0.0, change, change, blur=0.0)
  for name, area, change in (
    (LARGE, 0.3, 0.8),
    (MODERATE, 0.6, 0.4),
    (SMALL, 0.95, 0.08),
  )
}


@dataclasses.dataclass(frozen=True)
class Config(lars.Full):
  """Settings of the study."""

  images: Literal["tiny_imagenet", "cifar100", "digits"] = "tiny_imagenet"
  """What is learned from."""
  at_once: bool = True
  """All networks as one program, by SGD; else one after another, by LARS."""
  image_size: Annotated[int, Without("images", ("cifar100", "digits"))] = 32
  """Side of the photographs, an area average of the stored ones."""
  strengths: tuple[
    Literal["large", "moderate", "small", "large, crops alone", "simclr"], ...
  ] = (LARGE, MODERATE, SMALL, CROP)
  """Augmentations, in this order."""
  projectors: tuple[str, ...] = ("64-32", "256-32", "64-64-32")
  """Outputs of the layers of other projectors, deep ones too, trained with large
  augmentation whatever `strengths` are."""
  toys: tuple[Literal["fixed_features", "depths", "rotations"], ...] = (
    "fixed_features", "depths", "rotations",
  )  # fmt: skip
  """What needs no images."""
  toy_seeds: Annotated[int, Without("toys", ((),))] = 5
  """Of what needs no images."""


PRESETS = {
  "cpu": Config(integer_crops=True),
  "long": Config(
    steps=1600,
    measure_every=40,
    probe_every=200,
    integer_crops=True,
    strengths=(LARGE, MODERATE, SMALL),
    projectors=(),
    toys=(),
  ),
  "smoke": Config(
    images="digits",
    seeds=1,
    steps=60,
    probe_every=60,
    batch=64,
    strides=(1, 2, 1),
    widths=(8, 16, 16),
    projector=(16,),
    strengths=(LARGE, SMALL),
    projectors=(),
    measured=128,
    toys=("rotations",),
    toy_seeds=3,
  ),
  # 500 epochs; the batch is the one that figure 3 states.
  "full": Config(
    images="cifar100",
    at_once=False,
    encoder="resnet18",
    projector=(128,),
    convolution="native",
    steps=195_000,
    measure_every=1950,
    probe_every=1950,
    learning_rate=4.0,
    weight_decay=1e-6,
    integer_crops=True,
    projectors=("512-128", "2048-128", "512-512-128"),
  ),
}


def check(config: Config) -> None:
  """Raises ValueError for settings that cannot work, before anything is read."""
  every, probe = "measure_every", "probe_every"
  command.check_parts(config.steps, config.measure_every, ("steps", every))
  if config.at_once:
    command.check_parts(config.probe_every, config.measure_every, (probe, every))
    # The last probe is what is told of the end.
    command.check_parts(config.steps, config.probe_every, ("steps", probe))
  if len(config.projector) != 1:
    raise ValueError(
      f"projector must be linear, of one layer, got {config.projector}; projectors"
      " names deeper ones"
    )
  if config.batch < 2:
    raise ValueError(
      f"batch must be at least 2 images, got {config.batch}: one has no negatives"
    )
  if config.at_once and config.synchronized:
    raise ValueError(
      "synchronized must be False for networks that are trained at once, each on one"
      " device, got True"
    )
  if not config.at_once and config.warm_up >= config.steps:
    raise ValueError(
      f"warm_up must be below steps = {config.steps}, got {config.warm_up}"
    )
  if not config.inverse_temperature > 0:
    raise ValueError(
      f"inverse_temperature must be above 0, got {config.inverse_temperature}"
    )
  for name in ("widths", "projector", "strides"):
    if min(getattr(config, name)) < 1:
      raise ValueError(f"{name} must be at least 1, got {getattr(config, name)}")
  if not 0 < config.threshold <= 1:
    raise ValueError(f"threshold must be in (0, 1], got {config.threshold}")
  for name in ("image_size", *(["toy_seeds"] if config.toys else [])):
    if getattr(config, name) < 1:
      raise ValueError(f"{name} must be at least 1, got {getattr(config, name)}")
  if config.measured < 2:
    raise ValueError(f"measured must be at least 2 images, got {config.measured}")
  table = strengths_of(config)
  unknown = set(config.strengths) - set(table)
  if unknown:
    raise ValueError(f"strengths of {config.images} are {list(table)}, got {unknown}")
  if len(set(config.strengths)) < max(1, len(config.strengths)):
    raise ValueError(f"strengths must be different ones, got {config.strengths}")
  _check_memory(config)


def _check_memory(config: Config) -> None:
  """Raises ValueError for projectors that cannot be held, with what they need."""
  features = 512 if config.encoder == "resnet18" else config.widths[-1]
  deep = [(widths_of(name), 1) for name in config.projectors]
  for widths, cells in ((config.projector, len(config.strengths)), *deep):
    runs = config.seeds * cells if config.at_once else 1
    needed, here = runs * needs(config, features, widths) / 2**30, _memory() / 2**30
    if needed > here:
      raise ValueError(
        f"projector {'-'.join(map(str, widths))} needs {needed:,.0f} GiB for {runs}"
        f" networks, more than the {here:,.0f} GiB of this machine"
      )


def needs(config: Config, features: int, widths: tuple[int, ...]) -> int:
  """Bytes that a projector takes in a training, in all of its copies."""
  weights = [a * b for a, b in itertools.pairwise((features, *widths))]
  if not config.at_once:
    return 4 * 4 * sum(weights)  # themselves, gradient, momentum, best so far
  # Present, momentum, first and halfway, of the last evaluation and of the best one,
  # the gradient, and the first layer at every measurement, of both.
  measured = 2 * (config.steps // config.measure_every) * weights[0]
  return 4 * (9 * sum(weights) + measured)


def _memory() -> int:
  """Bytes of the first device, or of the machine where it has none of its own."""
  stats = jax.local_devices()[0].memory_stats() or {}
  return stats.get("bytes_limit") or (
    os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
  )


def strengths_of(config: Config) -> Mapping[str, data.ViewStrengths]:
  """Of the images, by name."""
  return GREY if config.images == "digits" else COLOURED


def widths_of(name: str) -> tuple[int, ...]:
  """Outputs of the layers of a projector like 64-32."""
  parts = name.split("-")
  if not all(part.isdecimal() and int(part) for part in parts):
    raise ValueError(f"projectors must be widths like 64-32, got {name!r}")
  return tuple(map(int, parts))
