"""Settings of the comparison of poolings on collages."""

import dataclasses
from typing import Annotated, Literal

from experiments.frame import poolings as frame_poolings
from experiments.frame.settings import MultipleOf
from experiments.gsp import network


@dataclasses.dataclass(frozen=True)
class Config(network.Settings):
  """Settings of the comparison."""

  images: Literal["omniglot", "tiny_imagenet", "cifar100"] = "omniglot"
  """Image set of the tiles."""
  percent: int = 100
  """Share of the image set to read, in percent."""
  image_size: int = 16
  """Side of one tile, in pixels; a collage has twice that."""
  most: int = 200
  """Largest number of images per foreground sub-class; each is in one collage."""
  losses: tuple[Literal["C2", "PNCA"], ...] = ("C2", "PNCA")
  """Losses to train with."""
  poolings: tuple[str, ...] = ()
  """Poolings to compare; all omits the two long ones; none compares GAP and GSP, each
  with and without ZSP."""
  seeds: int = 3
  """Runs of each variant."""
  stem_stride: int = 2
  """Stride of the first convolution."""
  strides: tuple[int, ...] = (1, 2, 1)
  """Stride of each stage."""
  mass: float = 0.25
  """Share of a collage's features that GSP keeps (DML eq. 5.2.1)."""
  inverse_temperature: float = 10.0
  """Inverse temperature of the pooling (DML 5.3.2)."""
  zero_shot_weight: float = 0.5
  """Weight of the zero-shot prediction loss (DML 5.3.2)."""
  pretraining: Annotated[int, MultipleOf("parts")] = 2000
  """Steps that train the backbone to classify single images by sub-class; 0 keeps
  random weights."""
  pretrain_on: Literal["training", "all"] = "training"
  """Sub-classes of this pretraining: those of the training, or all, as in the paper."""
  steps: int = 500
  """Training steps."""
  patience: int = 0
  """Parts without a better validation MAP@R before the learning rate is halved; 0:
  never."""
  keep: Literal["last", "best"] = "last"
  """Network to test: the last one, or the one with the best validation MAP@R."""
  parts: int = 5
  """Parts of the training. The first one pools by averages; then the prototypes are
  chosen."""

  def __post_init__(self):
    super().__post_init__()
    if not self.losses:
      known = ", ".join(network.LOSSES)
      raise ValueError(f"losses must have one of {known}, got none")
    if self.poolings == ("all",):
      object.__setattr__(self, "poolings", frame_poolings.NAMES)
    known = (*frame_poolings.NAMES, *frame_poolings.WIDE)
    if unknown := [name for name in self.poolings if name not in known]:
      raise ValueError(
        f"poolings must be all or among {', '.join(known)}, got {unknown}"
      )
