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
  """Source of the images."""
  percent: int = 100
  """Share of the image set that is read, in percent."""
  image_size: int = 16
  """Side of one tile; a collage has twice that."""
  most: int = 200
  """Images of a foreground sub-class at most; each is in one collage."""
  losses: tuple[Literal["C2", "PNCA"], ...] = ("C2", "PNCA")
  """Losses to train with."""
  poolings: tuple[str, ...] = ()
  """Poolings to compare, or all, without the two long ones; none compares GAP and
  GSP, with ZSP and without."""
  seeds: int = 3
  """Runs of each variant."""
  stem_stride: int = 2
  """Stride of the first convolution."""
  strides: tuple[int, ...] = (1, 2, 1)
  """Stride of each stage."""
  mass: float = 0.25
  """Share of a collage's features that GSP keeps (DML eq. 5.2.1)."""
  inverse_temperature: float = 10.0
  """Sharpness of the pooling (DML 5.3.2)."""
  zero_shot_weight: float = 0.5
  """Weight of the zero-shot prediction loss (DML 5.3.2)."""
  pretraining: Annotated[int, MultipleOf("parts")] = 2000
  """Steps in which the backbone learns to tell the sub-classes of single images apart;
  0 begins with random weights."""
  pretrain_on: Literal["training", "all"] = "training"
  """Whether these are the sub-classes of the training or all, those of the test among
  them, as in the paper."""
  steps: int = 500
  """Training steps."""
  patience: int = 0
  """Parts without a better MAP@R of validation collages after which the learning rate
  is halved; 0 leaves it."""
  keep: Literal["last", "best"] = "last"
  """Which network is tested: the last one, or the one whose MAP@R of validation
  collages after a part was best."""
  parts: int = 5
  """Parts of the training: after the first one, which pools by averages, the
  prototypes are chosen."""

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
