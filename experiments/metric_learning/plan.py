"""Plan of `retrieval`: settings, methods, and the images of each group."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from experiments.frame import networks, poolings
from experiments.frame.settings import Without
from experiments.metric_learning import images, maps, tables
from experiments.metric_learning.methods import PAIR_LOSSES, PROXY_LOSSES, Method
from experiments.metric_learning.photographs.methods import FullConfig
from experiments.metric_learning.settings import ProxySettings, Settings
from experiments.metric_learning.tables import BOTH, GSP, ZSP, Name
from experiments.published import dml

_SUMMED = (*PAIR_LOSSES, "proxy_anchor", "proxy_nca", "c1+xbm", "c2+ccp")
POOLED = tuple(name for name in poolings.NAMES if name != "gap")
if TYPE_CHECKING:
  Summed = Pooled = str
else:
  Summed, Pooled = Literal[_SUMMED], Literal[POOLED]
POOLED_LOSSES = ("c2", "proxy_nca")
_NAMES = {title: name for name, title in poolings.TITLES.items()}
_T = TypeVar("_T")
Sums = Annotated[_T, Without("gsp_methods", ((),))]
Remembers = Annotated[_T, Without("remembers", False, "without --memory-losses")]


@dataclasses.dataclass(frozen=True)
class Config(ProxySettings):
  """Settings of the comparison."""

  data: Literal["images", "gaussians", "cars196", "cub_birds100", "collages"] = "images"
  """Data: characters and plankton, random points, or a pretrained network's features of
  cars, birds or collages."""
  losses: tuple[Literal["c1", "c2", "ms", "triplet"], ...] = PAIR_LOSSES
  """Losses to train with and without chance-constrained proxies."""
  memory_losses: tuple[Literal["c1", "c2", "ms", "triplet"], ...] = ("c1",)
  """Losses to train with a memory, too, of as many vectors as there are proxies."""
  proxy_losses: tuple[Literal["proxy_anchor", "proxy_nca", "soft_triple"], ...] = (
    PROXY_LOSSES
  )
  """Proxy losses to train."""
  second_losses: tuple[Literal["c1", "c2", "ms", "triplet"], ...] = ("c2",)
  """Losses to train on plankton, with and without chance-constrained proxies."""
  plankton_size: Annotated[int, Without("second_losses", ((),))] = 32
  """Side of the plankton images, in pixels."""
  folds: int = 4
  """Networks whose embeddings are concatenated, each trained on another share of the
  classes."""
  gsp_methods: tuple[Summed, ...] = ()
  """Methods to train with and without generalized sum pooling and zero-shot
  prediction."""
  gsp_parts: tuple[Summed, ...] = ()
  """Methods, among these, to train with each of the two alone as well."""
  poolings: tuple[Pooled, ...] = ()
  """Poolings to compare with the average, for the contrastive loss and ProxyNCA++."""
  rates: tuple[float, ...] = (1.0,)
  """Multiples of `learning_rate`; validation with two seeds chooses one per method."""
  zero_shot_share: Sums[float] = 0.1
  """Weight of zero-shot prediction in the loss, from 0 to 1."""
  prototypes: Sums[int] = 64
  mass: Sums[float] = 0.3
  inverse_temperature: Sums[float] = 5.0
  memory: Remembers[int] = 0
  """Embeddings per class in the memory; 0: as many as there are proxies."""
  memory_start: Remembers[int] = 100
  memory_use: Remembers[Literal["full", "any"]] = "full"

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.gsp_methods and self.pooling != "gap":
      raise ValueError(
        f"pooling must be gap, which gsp_methods are compared with, got {self.pooling}"
      )
    if not self.rates or min(self.rates) <= 0:
      raise ValueError(f"rates must be positive, at least one, got {self.rates}")
    if unknown := [x for x in self.gsp_parts if x not in self.gsp_methods]:
      raise ValueError(
        f"gsp_parts must be among gsp_methods, {self.gsp_methods}, got {unknown}"
      )
    if self.folds and (self.data != "images" or images.FOLDED % self.folds):
      raise ValueError(
        f"folds must be equal parts of the {images.FOLDED} characters, got"
        f" {self.folds} of {self.data}"
      )

  @property
  def remembers(self) -> bool:
    """Returns whether any method has a memory."""
    return bool(self.memory_losses) or any("xbm" in x for x in self.gsp_methods)

  @property
  def group(self) -> str:
    """Group of most trainings."""
    names = {"cars196": "cars", "cub_birds100": "birds", "collages": "collages"}
    return names.get(self.data, "characters")


# The tables and figures of the thesis, with real backbones.
_TABLE_3_1 = tuple(dict.fromkeys(key[0] for key in dml.TABLE_3_1))

FULL = {
  "full": FullConfig(),
  "table-3.1": FullConfig(methods=_TABLE_3_1),
  # Its small memories and few proxies have no figures in the text.
  "figure-3.4": FullConfig(
    dataset="sop",  # and inshop
    methods=(
      *(name for name in _TABLE_3_1 if name != "soft_triple"),
      "c1+xbm+s",
      "c2+xbm+s",
      "c1+ccp+s",
      "c2+ccp+s",
      "ms+ccp+s",
      "triplet+ccp+s",
      "soft_triple+s",
      "soft_triple+l",
    ),
  ),
  "figure-3.8": FullConfig(
    methods=tuple(
      f"{name}+b{batch}" for batch in (16, 32, 64, 128) for name in ("c2", "c2+ccp")
    )
  ),
  "table-3.2": FullConfig(
    methods=("c1+ccp", "c2+ccp", "ms+ccp"), protocol="conventional"
  ),
  # Total steps, of products and clothes alone.
  "table-3.3": FullConfig(dataset="sop", methods=tuple(dml.TABLE_3_3)),
  "table-5.2": FullConfig(methods=("c1+xbm", "c1+xbm+gsp"), protocol="conventional534"),
  "table-5.3": FullConfig(methods=tuple(dml.TABLE_5_3), protocol="fair534"),
  "figure-5.12": FullConfig(
    methods=tuple(
      f"{loss}+{name}"
      for loss in ("c2", "proxy_nca")
      for name in (*poolings.TITLES, *poolings.WIDE)
    ),
    protocol="fair534",
    zero_shot=0.0,  # poolings alone are compared
  ),
  "figure-3.5": FullConfig(
    methods=("c2+ccp",),
    protocol="ablation",
    pool=16,
    search=(("weight", 1e-6, 1.0), ("proxies", 1, 16)),
    trials=32,
  ),
  "table-5.1": FullConfig(
    methods=tuple(dict.fromkeys(key[0] for key in dml.TABLE_5_1)),
    protocol="fair534",
  ),
}

# A layer and a pooling on maps of a pretrained network.
_FROZEN = Config(
  data="cars196",
  backbone="maps",
  channels=128,
  image_size=5,
  dim=128,
  shift=0,
  pretraining=0,
  seeds=10,
  steps=2400,
  evaluate_every=50,
  rates=(0.1, 0.3, 1.0),
  in_batch=0.0,  # as in the text
  memory_losses=PAIR_LOSSES,
  proxies=8,
  pool=16,
  memory=24,
  second_losses=(),
  folds=0,
  gsp_methods=_SUMMED,
  gsp_parts=_SUMMED[:6],
)
# The last stage, too, and the norms as they are.
_FINE_TUNED = dataclasses.replace(
  _FROZEN,
  backbone="last_stage",
  channels=192,
  seeds=8,
  steps=600,
  rates=(0.03, 0.1, 0.3),
  losses=(),
  memory_losses=(),
  proxy_losses=(),
  gsp_methods=("ms", "proxy_anchor"),
  gsp_parts=("ms", "proxy_anchor"),
)

PRESETS: dict[str, Any] = {
  "cpu": Config(),
  "cars": _FROZEN,
  "birds": dataclasses.replace(_FROZEN, data="cub_birds100"),
  "collages": dataclasses.replace(_FROZEN, data="collages", image_size=4, batch=20),
  "cars-poolings": dataclasses.replace(
    _FROZEN,
    rates=(0.3, 1.0, 3.0),
    losses=(),
    memory_losses=(),
    proxy_losses=(),
    gsp_methods=(),
    gsp_parts=(),
    poolings=POOLED,
  ),
  "cars-fine-tuned": _FINE_TUNED,
  "smoke": Config(
    data="gaussians",
    backbone="mlp",
    width=64,
    dim=16,
    image_size=4,
    shift=0,
    batch=12,
    steps=150,
    evaluate_every=10,
    memory_start=10,
    pretraining=0,
    seeds=2,
    losses=("c2",),
    memory_losses=("c1",),
    proxy_losses=(),
    second_losses=(),
    folds=0,
  ),
  **FULL,
}


def plan(config: Config) -> dict[Name, Method]:
  """Lists all trainings."""
  number, pool = config.proxies, config.pool
  remembered = config.memory or number
  first, second = config.group, "plankton"
  methods: dict[Name, Method] = {}
  for loss in config.losses:
    # The conventional protocol stops by what the fair one does not look at.
    watched = loss == "c2" and config.backbone not in networks.MAPS
    methods[Name(first, loss)] = Method(loss, watch_test=watched)
    methods[Name(first, loss, "ccp")] = Method(loss, "ccp", number, pool)
  for loss in config.memory_losses:
    methods.setdefault(Name(first, loss), Method(loss))
    methods[Name(first, loss, "xbm")] = Method(loss, "xbm", memory=remembered)
  for loss in config.proxy_losses:
    centres = 10 if loss == "soft_triple" else 1
    methods[Name(first, loss)] = Method(loss, "plain", centres)
  for loss in config.second_losses:
    methods[Name(second, loss)] = Method(loss)
    methods[Name(second, loss, "ccp")] = Method(loss, "ccp", number, pool)
  if config.folds:
    methods[Name(tables.FOLDS, "c2")] = Method("c2")
  options: dict[str, dict[str, Any]] = {
    "": {},
    "ccp": {"kind": "ccp", "proxies": number, "pool": pool},
    "xbm": {"kind": "xbm", "memory": remembered},
  }
  for text in config.gsp_methods:
    loss, _, kind = text.partition("+")
    proxies = {"proxies": 1} if loss in PROXY_LOSSES else {}
    method = Method(loss, **proxies, **options[kind])
    for parts in ("", BOTH, *((GSP, ZSP) if text in config.gsp_parts else ())):
      methods.setdefault(Name(first, loss, method.kind, parts), method)
  for loss in POOLED_LOSSES if config.poolings else ():
    method = Method(loss, proxies=int(loss in PROXY_LOSSES))
    methods[Name(first, loss)] = method
    for name in config.poolings:
      parts = GSP if name == "gsp" else poolings.TITLES[name]
      methods[Name(first, loss, parts=parts)] = method
  return methods


def settings_of(
  config: Config, shared: Settings, name: Name, method: Method
) -> Settings:
  """Settings of one training, with its group's images and its pooling."""
  if name.group == "plankton":
    shared = dataclasses.replace(shared, image_size=config.plankton_size, channels=1)
  if not name.parts:
    return shared
  if name.parts not in (GSP, ZSP, BOTH):
    return dataclasses.replace(shared, pooling=_NAMES[name.parts])
  return dataclasses.replace(
    shared,
    pooling="gsp",
    # Of all of the mass the sum is the average.
    mass=1.0 if name.parts == ZSP else config.mass,
    inverse_temperature=method.inverse_temperature,
    zero_shot=0.0 if name.parts == GSP else config.zero_shot_share,
  )


def study(config: Config, group: str, folder: pathlib.Path) -> images.Study:
  """The images of a group of trainings, or their maps, which the folder keeps."""
  if config.data in maps.SETS:
    seeds = range(config.seed, config.seed + config.seeds)
    if config.backbone == "last_stage":
      return maps.before_last_stage(config.data, seeds, folder)
    return maps.study(config.data, config.channels, seeds, folder)
  if config.data == "gaussians":
    return images.gaussians(config.seed)._replace(watched=False)
  if group == "plankton":
    return images.plankton(config.plankton_size)
  number = config.folds if group == tables.FOLDS else 1
  return images.omniglot(config.image_size, number)
