"""Settings of `class_hierarchy`: the sets, the ways to train, the presets."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal

from experiments.frame import class_network, images
from experiments.frame.settings import Without
from experiments.hierarchies import exact, methods

if TYPE_CHECKING:
  Name = str
  Data = str
  Tree = str
else:
  Name = Literal[tuple(methods.SETTINGS)]
  Data = Literal[tuple(images.SOURCES)]
  Tree = Literal[tuple(exact.TREES)]
ALL = tuple(methods.SETTINGS)
PREPARED = tuple(name for name in images.SOURCES if name not in images.FOLDERS)
SMALL = (
  "softmax", "normface", "normface-dynamic", "normface-mds",
  "proxydr", "proxydr-dynamic", "proxydr-mds", "corr",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Config(class_network.Settings):
  """Settings of the comparison."""

  data: Data = "ndsb_plankton"
  """Images and their tree."""
  folder: Annotated[str, Without("data", PREPARED)] = ""
  """Where nabirds, micro_s, micro_l and meso_z are."""
  image_size: int = 32
  """Side of the images; 0: the paper's, by the data."""
  percent: Annotated[int, Without("data", tuple(images.FOLDERS))] = 100
  """Share of a prepared image set that is read, in percent."""
  train_images: int = 16_000
  """Drawn for training; 0: 90 %, of sets without a test part 70 %."""
  validation_images: int = 1600
  """Drawn for validation; 0: 10 %."""
  test_images: int = 0
  """Of the test part; 0: all."""
  settings: tuple[Name, ...] = SMALL
  """Ways to train."""
  seeds: int = 3
  """Runs of each, each with another division of the images and another start."""
  mds_steps: int = 1000
  """Steps that lay out the proxies after the tree."""
  trees: tuple[Tree, ...] = tuple(exact.TREES)
  """Of the article's trees those whose proxies are laid out, too."""


FULL = class_network.Rates(learning_rate=1e-4, scale_rate=1e-4)
PRESETS = {
  "cpu": Config(joined=True),
  "tiny_imagenet": Config(data="tiny_imagenet"),
  "omniglot": Config(data="omniglot"),
  "long": Config(
    epochs=20, settings=("normface", "normface-mds", "proxydr", "proxydr-mds")
  ),
  "smoke": Config(
    width=16,
    percent=15,
    train_images=1500,
    validation_images=400,
    test_images=400,
    curve_images=0,
    epochs=1,
    settings=("proxydr", "proxydr-mds"),
    seeds=1,
    mds_steps=200,
    trees=("CIFAR-100",),
  ),
  "full": Config(
    data="cifar100",
    network="paper",
    width=0,
    image_size=0,
    train_images=0,
    validation_images=0,
    batch=32,
    epochs=0,
    augment=True,
    keep_best=True,
    curve_images=0,
    joined=True,
    rates=FULL,
    settings=ALL,
    seeds=5,
  ),
}


def resolved(config: Config) -> Config:
  """The settings with the paper's network and numbers where they leave them open."""
  source = images.SOURCES[config.data]
  network: Any = source.network if config.network == "paper" else config.network
  return dataclasses.replace(
    config,
    network=network,
    width=config.width or class_network.WIDTHS[network],
    image_size=config.image_size or source.side,
    epochs=config.epochs or source.epochs,
  )
