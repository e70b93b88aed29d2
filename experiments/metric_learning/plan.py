"""Plan of `retrieval`, settings and methods, and its claims."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

from experiments.frame import poolings
from experiments.frame.settings import Decided, Without
from experiments.frame.study import Claim, Table
from experiments.metric_learning.methods import (
  PAIR_LOSSES,
  PROXY_LOSSES,
  TITLES,
  Method,
)
from experiments.metric_learning.photographs.claims import MAP, map_separates
from experiments.metric_learning.photographs.methods import FullConfig
from experiments.metric_learning.settings import ProxySettings, Settings
from experiments.published import dml

VALIDATION = "MAP@R, validation"
POOLINGS = "DML, tables 5.1 and 5.3"
GSP, ZSP = "GSP", "ZSP"  # generalized sum pooling, zero-shot prediction
BOTH = f"{GSP}+{ZSP}"
_SUMMED = (*PAIR_LOSSES, "proxy_anchor", "proxy_nca", "c1+xbm", "c2+ccp")
POOLED = tuple(name for name in poolings.NAMES if name != "gap")
if TYPE_CHECKING:
  Summed = Pooled = str
else:
  Summed, Pooled = Literal[_SUMMED], Literal[POOLED]
POOLED_LOSSES = ("c2", "proxy_nca")
_CENTRES = {"proxy_anchor": 1, "proxy_nca": 1, "soft_triple": 10}  # of a class
_NAMES = {title: name for name, title in poolings.TITLES.items()}
_T = TypeVar("_T")
Sums = Annotated[_T, Without("gsp_methods", ((),))]
Remembers = Annotated[_T, Without("remembers", False, "without --memory-losses")]
PairLosses = tuple[Literal["c1", "c2", "ms", "triplet"], ...]


class Name(NamedTuple):
  """A training."""

  group: str
  loss: str
  kind: str = "plain"
  parts: str = ""  # what replaces the average: GSP, ZSP or both, or a pooling

  @property
  def title(self) -> str:
    """Title of the training in the table."""
    kind = "" if self.kind == "plain" else self.kind.upper()
    return "+".join(filter(None, (TITLES[self.loss], kind, self.parts)))

  def __str__(self) -> str:
    return f"{self.group}, {self.title}"


@dataclasses.dataclass(frozen=True)
class Config(ProxySettings):
  """Settings of the comparison."""

  data: Literal["cars196", "cub_birds100", "ndsb_plankton", "gaussians"] = "cars196"
  """Data: a pretrained network's features of cars, birds or plankton, or random
  points."""
  losses: PairLosses = PAIR_LOSSES
  """Losses to train with and without chance-constrained proxies."""
  memory_losses: PairLosses = PAIR_LOSSES
  """Losses to train with a memory, too."""
  proxy_losses: tuple[Literal["proxy_anchor", "proxy_nca", "soft_triple"], ...] = (
    PROXY_LOSSES
  )
  """Proxy losses to train."""
  gsp_methods: tuple[Summed, ...] = ()
  """Methods to train with and without generalized sum pooling and zero-shot
  prediction."""
  gsp_parts: tuple[Summed, ...] = ()
  """Methods of `gsp_methods` that are also trained with each of the two alone."""
  poolings: tuple[Pooled, ...] = ()
  """Poolings to compare with the average, for the contrastive loss and ProxyNCA++."""
  zero_shot_share: Sums[float] = 0.1
  """Weight of zero-shot prediction in the loss, from 0 to 1."""
  prototypes: Sums[int] = 64
  mass: Sums[float] = 0.3
  inverse_temperature: Decided[float] = 5.0
  memory: Remembers[int] = 0
  """Embeddings per class in the memory; 0: as many as there are proxies."""
  memory_start: Remembers[int] = 100

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.gsp_methods and self.pooling != "gap":
      raise ValueError(
        f"pooling must be gap, which gsp_methods are compared with, got {self.pooling}"
      )
    if unknown := [x for x in self.gsp_parts if x not in self.gsp_methods]:
      raise ValueError(
        f"gsp_parts must be among gsp_methods, {self.gsp_methods}, got {unknown}"
      )

  @property
  def remembers(self) -> bool:
    return bool(self.memory_losses) or any("xbm" in x for x in self.gsp_methods)

  @property
  def group(self) -> str:
    """Name of the data in tables and files."""
    names = {"cars196": "cars", "cub_birds100": "birds", "ndsb_plankton": "plankton"}
    return names.get(self.data, self.data)


# The tables and figures of the thesis, with real backbones.
_TABLE_3_1 = tuple(dict.fromkeys(key[0] for key in dml.TABLE_3_1))

FULL = {
  "full": FullConfig(),
  "table-3.1": FullConfig(methods=_TABLE_3_1),
  # The text has no figures for its small memories and few proxies.
  "figure-3.4": FullConfig(
    dataset="sop",  # and inshop
    methods=(
      *(name for name in _TABLE_3_1 if name != "soft_triple"),
      *("c1+xbm+s", "c2+xbm+s", "c1+ccp+s", "c2+ccp+s", "ms+ccp+s", "triplet+ccp+s"),
      *("soft_triple+s", "soft_triple+l"),
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
  # Total numbers of steps, for products and clothes only.
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
    methods=("c2+ccp",), protocol="ablation", pool=16, trials=32
  ),
  "table-5.1": FullConfig(
    methods=tuple(dict.fromkeys(key[0] for key in dml.TABLE_5_1)), protocol="fair534"
  ),
}

# A layer and a pooling on maps of a pretrained network.
_FROZEN = Config(
  backbone="maps", channels=128, image_size=5, dim=128, shift=0, seeds=10, steps=2400,
  evaluate_every=50, rates=(0.3, 1.0, 3.0), proxies=8, pool=16, memory=24,
)  # fmt: skip
_NO_LOSSES = dataclasses.replace(_FROZEN, losses=(), memory_losses=(), proxy_losses=())

_SUMMING = dataclasses.replace(_NO_LOSSES, gsp_methods=_SUMMED, gsp_parts=_SUMMED[:6])

PRESETS: dict[str, Any] = {
  "cpu": _FROZEN,
  # 20 images a class instead of 30: the memory holds four fifths of either.
  "plankton": dataclasses.replace(
    _FROZEN, data="ndsb_plankton", image_size=4, memory=16
  ),
  "cars-gsp": _SUMMING,
  "birds-gsp": dataclasses.replace(_SUMMING, data="cub_birds100"),
  "cars-poolings": dataclasses.replace(_NO_LOSSES, poolings=POOLED),
  # Also trains the network's last stage, to see if frozen maps are a special case.
  "cars-tuned": dataclasses.replace(
    _NO_LOSSES, backbone="last_stage", frozen_norm=True, channels=192, seeds=8,
    steps=600, rates=(0.1, 0.3, 1.0), poolings=("gsp",),
  ),
  "smoke": Config(
    data="gaussians", backbone="mlp", width=64, dim=16, image_size=4, shift=0, batch=12,
    steps=150, evaluate_every=10, memory_start=10, seeds=2, losses=("c2",),
    memory_losses=("c1",), proxy_losses=(),
  ),
  **FULL,
}  # fmt: skip


def plan(config: Config) -> dict[Name, Method]:
  """Lists all trainings."""
  texts = [
    *(x for loss in config.losses for x in (loss, f"{loss}+ccp")),
    *(x for loss in config.memory_losses for x in (loss, f"{loss}+xbm")),
    *config.proxy_losses,
  ]
  jobs = [(text, "") for text in texts]
  for text in config.gsp_methods:
    single = (GSP, ZSP) if text in config.gsp_parts else ()
    jobs += [(text, parts) for parts in ("", BOTH, *single)]
  for loss in POOLED_LOSSES if config.poolings else ():
    parts = (GSP if x == "gsp" else poolings.TITLES[x] for x in config.poolings)
    jobs += [(loss, ""), *((loss, x) for x in parts)]
  methods: dict[Name, Method] = {}
  for text, parts in jobs:
    loss, _, kind = text.partition("+")
    if kind == "ccp":
      method = Method(loss, kind, config.proxies, config.pool)
    elif kind == "xbm":
      method = Method(loss, kind, memory=config.memory or config.proxies)
    else:
      method = Method(loss, proxies=_CENTRES.get(loss, 0))
    methods[Name(config.group, loss, method.kind, parts)] = method
  return methods


def settings_of(
  config: Config, shared: Settings, name: Name, method: Method
) -> Settings:
  """Settings of one training, with its pooling."""
  if not name.parts:
    return shared
  if name.parts not in (GSP, ZSP, BOTH):
    return dataclasses.replace(shared, pooling=_NAMES[name.parts])
  return dataclasses.replace(
    shared,
    pooling="gsp",
    # With all of the mass, the sum is the average.
    mass=1.0 if name.parts == ZSP else config.mass,
    inverse_temperature=method.inverse_temperature,
    zero_shot=0.0 if name.parts == GSP else config.zero_shot_share,
  )


def claims(config: Config, table: Table) -> list[Claim]:
  """Lists every claim that the trainings can decide, also on what separates them."""
  group = config.group
  first = [
    _better(
      f"retrieval-{kind}-{TITLES[loss]}",
      text.format(loss),
      Name(group, loss, kind),
      Name(group, loss),
    )
    for kind, losses, text in (
      ("ccp", config.losses, f"MAP@R of unseen {group}: {{}} with CCP > plain"),
      ("xbm", config.memory_losses, "MAP@R: {} with a memory > plain"),
    )
    for loss in losses
  ]
  rest = [*_of_parts(config), *_of_poolings(config, table)]
  names = [x for x in table.variants(MAP) if x != f"{group}, untrained"]
  return [*first, *rest, *map_separates(names, "trainings")]


def _better(key: str, text: str, name: Name, over: Name, source: str = "") -> Claim:
  return Claim(key, text, lambda t: t.gain(MAP, f"{name}", over=f"{over}"), source)


def _of_parts(config: Config) -> Iterator[Claim]:
  """Generalized sum pooling and zero-shot prediction against the average."""
  planned = plan(config)
  for name in planned:
    if name.parts not in (GSP, ZSP, BOTH):
      continue
    without = name._replace(parts="")
    components = f"components-{without.title}"
    plain = name.kind == "plain"
    key = f"retrieval-gsp-{without.title}" if plain else f"{name.kind}-gsp"
    compared = [(f"{components}-{name.parts}", without)]
    if name.parts == BOTH:
      compared = [(key, without)]
      for part in (GSP, ZSP):
        if (other := name._replace(parts=part)) in planned:
          compared.append((f"{components}-both-{part}", other))
    for key, other in compared:
      yield _better(key, f"MAP@R: {name.title} > {other.title}", name, other, POOLINGS)


def _of_poolings(config: Config, table: Table) -> Iterator[Claim]:
  """Generalized sum pooling against the best other pooling by validation.

  If the average is the only other pooling, `_of_parts` makes this claim.
  """
  for loss in POOLED_LOSSES if len(config.poolings) > 1 else ():
    average = f"{Name(config.group, loss)}"
    summed = f"{Name(config.group, loss, parts=GSP)}"
    others = [x for x in table.variants(MAP) if x.startswith(average) and x != summed]
    best = max(others, key=lambda name: table.values(VALIDATION, name).mean())
    yield Claim(
      f"retrieval-poolings-{TITLES[loss]}",
      f"MAP@R: {summed} > {best}, the best other pooling on validation classes",
      lambda t, summed=summed, best=best: t.gain(MAP, summed, over=best),
      "DML, section 5.3.5",
    )
