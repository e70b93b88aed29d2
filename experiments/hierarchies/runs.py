"""Settings of `class_hierarchy`, and the trainings of one seed."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated, Literal

import jax
from tqdm import tqdm

from experiments.frame import frozen, images
from experiments.frame import kept as finished
from experiments.frame.settings import Without
from experiments.hierarchies import measures, methods, training
from experiments.hierarchies.training import SharedInputs
from spherejax import prototypes

if TYPE_CHECKING:
  Name = str
  Data = str
else:
  Name = Literal[tuple(methods.SETTINGS)]
  Data = Literal[tuple(images.SOURCES)]
PREPARED = tuple(name for name in images.SOURCES if name not in images.FOLDERS)


@dataclasses.dataclass(frozen=True)
class Config(methods.Settings):
  """Settings of the comparison."""

  data: Data = "ndsb_plankton"
  """Image set, with its class tree."""
  folder: Annotated[str, Without("data", PREPARED)] = ""
  """Folder that holds nabirds, micro_s, micro_l and meso_z."""
  image_size: int = 32
  """Side of the images, in pixels; 0: the paper's for the data."""
  percent: Annotated[int, Without("data", tuple(images.FOLDERS))] = 100
  """Share of a prepared image set to read, in percent."""
  train_images: int = 16_000
  """Training images to draw; 0: 90 %, or 70 % for sets without a test part."""
  validation_images: int = 1600
  """Validation images to draw; 0: 10 %."""
  test_images: int = 0
  """Images of the test part; 0: all."""
  settings: tuple[Name, ...] = tuple(methods.SETTINGS)
  """Methods to train."""
  seeds: int = 8
  """Runs of each method, each with another division of the images and other weights."""
  mds_steps: int = 1000
  """Steps that lay out the proxies to follow the class tree."""


FROZEN = Config(
  data="tiny_imagenet", network=frozen.NETWORK, image_size=128, train_images=0,
  validation_images=0, test_images=3000, keep_best=True,
)  # fmt: skip
PHOTOGRAPHS = dataclasses.replace(FROZEN, image_size=160, test_images=0, epochs=24)
PRESETS = {
  "cpu": dataclasses.replace(FROZEN, seeds=24),
  "cub_birds100": dataclasses.replace(PHOTOGRAPHS, data="cub_birds100", seeds=16),
  "cars196": dataclasses.replace(PHOTOGRAPHS, data="cars196"),
  "ndsb_plankton": dataclasses.replace(FROZEN, data="ndsb_plankton", image_size=96),
  "smoke": Config(
    width=16, percent=15, train_images=1500, validation_images=400, test_images=400,
    curve_images=0, epochs=1, settings=("proxydr", "proxydr-mds"), seeds=1,
    mds_steps=200,
  ),
  "full": Config(
    data="cifar100", network="paper", width=0, image_size=0, train_images=0,
    validation_images=0, batch=32, epochs=0, augment=True, keep_best=True,
    curve_images=0, joined=True, seeds=5,
    rates=methods.Rates(learning_rate=1e-4, scale_rate=1e-4),
  ),
}  # fmt: skip


def resolved(config: Config) -> Config:
  """Fills in open settings with the paper's network and numbers."""
  source = images.SOURCES[config.data]
  network = source.network if config.network == "paper" else config.network
  return dataclasses.replace(
    config,
    network=network,
    width=config.width or methods.WIDTHS[network],
    image_size=config.image_size or source.side,
    epochs=config.epochs or source.epochs,
  )


def as_network_input(
  config: Config, whole: images.Whole, folder: pathlib.Path
) -> images.Whole:
  """The set's features from a frozen network, computed once; otherwise its images."""
  if config.network != frozen.NETWORK:
    return whole
  name = f"{config.data}-{config.image_size}"
  parts = {"images": whole.images, "tested": whole.tested}
  features = {
    part: frozen.pooled(f"{name}-{part}", images, folder)
    for part, images in parts.items()
    if images is not None
  }
  return whole._replace(**features)


def shared_inputs(config: Config, whole: images.Whole, seed: int) -> SharedInputs:
  """Divides the images and lays out the proxies."""
  key = jax.random.key(seed)
  study = images.divide(
    whole, jax.random.fold_in(key, 0), config.train_images, config.validation_images
  )
  if features := [part for part in study[:3] if isinstance(part, frozen.Features)]:
    train, held, tested = frozen.projected(features)
    study = study._replace(train=train, validation=held, test=tested)
  if config.test_images:
    study = study._replace(test=study.test[: config.test_images])
  related = training.relations(whole.tree, whole.living)
  mds_key = jax.random.fold_in(key, 1)
  fixed = prototypes.hierarchical_prototypes(
    related.similarities, config.dim, key=mds_key, steps=config.mds_steps
  )
  return SharedInputs(study, related, fixed.prototypes, key)


def train(
  name: str, shared: SharedInputs, config: Config, path: pathlib.Path, progress: tqdm
) -> finished.Finished:
  """Runs one training with its measures, or reads its stored outcome."""
  # Settings of this training; those in `others` only add other trainings.
  others = {"settings": (), "seeds": 0}
  made_with = dataclasses.asdict(config) | others
  augment = config.augment and images.SOURCES[config.data].augmented
  settings = dataclasses.replace(config, augment=augment)
  setting = methods.SETTINGS[name]

  def report(figures: dict[str, float]) -> None:
    progress.set_postfix(last=f"{name}: {figures['validation top-1']:.3f}")
    progress.update()

  def make() -> finished.Finished:
    checkpoints = path.with_name(f"{path.name}-{finished.digest(made_with)}")
    state, curves = training.train(settings, setting, shared, checkpoints, report)
    tested = measures.test(settings, setting, shared, state)
    return tested._replace(figures={"test": tested.figures, "curves": curves})

  def restored() -> None:
    progress.update(config.epochs)

  return finished.once(path, made_with=made_with, make=make, restored=restored)
