"""Settings of the small study of `dynamic_assignment`."""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

from experiments.assignment import images as dl2p_images
from experiments.assignment import methods as dl2p_methods
from experiments.assignment import tables

if TYPE_CHECKING:
  Method = str
  ImageSet = str
else:
  Method = Literal[tuple(dl2p_methods.RECIPES)]
  ImageSet = Literal[tuple(dl2p_images.READERS)]


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the small study; the paper's tables have their own."""

  seed: int = 0
  """Everything random follows from it."""
  prototypes: tuple[tuple[int, int], ...] = (
    (10, 9), (20, 19), (10, 3), (20, 5), (100, 10), (100, 25), (100, 50), (100, 100)
  )  # fmt: skip
  """Part A: numbers of prototypes and their dimensions."""
  prototype_seeds: int = 3
  """Sets of prototypes of each kind."""
  hpn_long: bool = True
  """Whether HPN is run for 10000 steps, too."""
  matchings: tuple[int, ...] = (500, 1000, 2000)
  """Numbers of classes whose matching is timed."""
  seeds: int = 8
  """Part B: runs of each training."""
  methods: tuple[Method, ...] = (
    "PSC", "PSC*", "Word2Vec-like", "HPN", "ETF", "maximum separation", "Fixed + CE",
    "Static", "Ours*", "DL2P",
  )  # fmt: skip
  """Methods to train, where they exist: a simplex needs D >= C - 1."""
  networks: tuple[Literal["linear", "mlp"], ...] = ("linear", "mlp")
  """Networks for Gaussian super-classes: linear and mlp."""
  dims: tuple[int, ...] = (3, 5, 8, 19)
  """Dimensions of the embedding; a simplex of the 20 classes needs 19."""
  counts: tuple[int, int, int] = (60, 50, 50)
  """Examples of each class for training, validation and tests."""
  epochs: int = 15
  """Passes over the training examples."""
  rates: tuple[float, ...] = (0.05, 0.2, 0.8)
  """Learning rates that validation examples choose from, for each method."""
  uniformities: tuple[float, ...] = (0.1, 1.0, 10.0)
  """Weights of PSC*'s uniformity that they choose from, too."""
  updates: tuple[float, ...] = (0.1, 0.5, 5.0)
  """Matchings an epoch besides 1, in five dimensions with the linear network."""
  tail_epochs: int = 40
  """Passes under a long tail; 0 for no such training."""
  imbalance: float = 0.02
  """The last class's share of the first one's examples under a long tail."""
  digits: tuple[int, ...] = (3, 5, 9)
  """Dimensions for scikit-learn's digits; none leaves them out."""
  images: tuple[tuple[ImageSet, int], ...] = (
    ("tiny_imagenet", 5), ("omniglot", 10), ("ndsb_plankton", 10)
  )  # fmt: skip
  """Sets of images and the dimension for each; none leaves them out."""
  image_methods: tuple[Method, ...] = ("PSC", "Fixed + CE", "Static", "DL2P")
  """Methods for images."""
  image_seeds: int = 5
  """Runs on images."""
  image_epochs: int = 30
  """Passes over images."""
  image_batch: int = 32
  """Images in a batch."""
  image_size: int = 16
  """Side of the images, by area average from larger ones."""

  def __post_init__(self) -> None:
    """Raises ValueError for settings that do not fit each other."""
    sets = [name for name, _ in self.images]
    if len({*sets}) < len(sets):
      raise ValueError(f"images must name each set once, got {sets}")
    for name in ("methods", "image_methods"):
      methods = getattr(self, name)
      if "Ours*" in methods and "PSC*" not in methods:
        raise ValueError(
          f"Ours* takes the prototypes of PSC*, which {name} must have, got {methods}"
        )


SMOKE = Config(
  prototypes=((10, 9), (10, 3)),
  hpn_long=False,
  matchings=(),
  seeds=3,
  methods=("Static", "DL2P"),
  networks=("linear",),
  dims=(3,),
  epochs=8,
  rates=(0.2,),
  updates=(),
  tail_epochs=0,
  digits=(),
  images=(),
)
PRESETS: dict[str, Any] = {"cpu": Config(), "smoke": SMOKE, **tables.PRESETS}
