"""Methods and settings of a run of `retrieval` on photographs."""

import dataclasses
import difflib
import itertools
from typing import Literal, NamedTuple

from experiments.frame import command
from experiments.frame import poolings as frame_poolings
from experiments.frame.settings import Decided, Limited
from experiments.metric_learning.methods import (
  PAIR_LOSSES,
  PROXY_LOSSES,
  TITLES,
  Method,
)
from experiments.metric_learning.photographs import protocols
from experiments.metric_learning.photographs.protocols import Protocol
from experiments.metric_learning.settings import Training
from experiments.published import dml

ZERO_SHOT = 0.1  # share of zero-shot prediction beside generalized sum pooling
MASS = 0.3  # of the features that it keeps
# Generalized sum pooling without zero-shot prediction, and that without the pooling:
# all of the mass is kept, which is the average.
ALONE, PREDICTION = "gsp_alone", "zsp"
_POOLINGS = {
  "": "",
  **frame_poolings.TITLES,
  **frame_poolings.WIDE,
  ALONE: "GSP without zero-shot prediction",
  PREDICTION: "zero-shot prediction",
}
WIDTHS = {"bn_inception": 64, "resnet50": 64, "inception_v3": 32}  # as published
BATCHES = (16, 32, 64, 128)  # of figure 3.8


class Row(NamedTuple):
  """A method of a table or figure."""

  loss: str
  kind: Literal["plain", "proxy", "xbm", "ccp"] = "plain"
  pooling: str = ""  # pooling; empty: the protocol's
  variant: Literal["", "S", "L"] = ""  # variant of the memory or of the proxies
  batch: int = 0  # images per step; 0: the protocol's

  @property
  def name(self) -> str:
    """Name of the method for `--methods` and the published tables."""
    kind = "" if self.kind == "plain" else self.kind
    batch = f"b{self.batch}" if self.batch else ""
    parts = (self.loss, kind, self.pooling, self.variant.lower(), batch)
    return "+".join(filter(None, parts))


def _rows() -> list[Row]:
  """Lists all methods; pure proxy losses have no memory and no batch variants."""
  kinds = dict.fromkeys(PAIR_LOSSES, ("plain", "proxy", "xbm", "ccp"))
  kinds |= dict.fromkeys(PROXY_LOSSES, ("plain", "ccp"))
  return [
    Row(loss, kind, pooling, variant, batch)
    for loss, kinds_of_loss in kinds.items()
    for kind, pooling, batch in itertools.product(
      kinds_of_loss, _POOLINGS, (0, *BATCHES)
    )
    for variant in ("", "S", "L")
    if not variant or kind != "plain" or loss == "soft_triple"
  ]


ROWS = {row.name: row for row in _rows()}


@dataclasses.dataclass(frozen=True)
class FullConfig(Training):
  """Settings of a comparison; 0 and "" stand for what the protocol has."""

  dataset: Literal["cub", "cars", "inshop", "sop", "omniglot", "tiny_imagenet"] = "cub"
  """Data set, with its split and hyperparameters. The last two are small and not in the
  thesis: omniglot trains on the 964 classes of its first part with the hyperparameters
  of inshop, tiny_imagenet on the first 100 of 200 classes with those of cub."""
  folder: str = ""
  """Folder with a sub-folder of images per class, instead of the prepared set; for
  inshop, the folder of list_eval_partition.txt."""
  learned_classes: int = 0
  """Number of learned classes, the first ones; the others are for testing."""
  skip_unreadable: bool = False
  """Skips unreadable images; otherwise the run ends with a list of them."""
  methods: tuple[str, ...] = ("c2", "c2+ccp")
  """Methods to train, such as c1+xbm+gsp: a loss (c1, c2, ms, triplet, proxy_anchor,
  proxy_nca, soft_triple), optionally with +ccp, for the first four +proxy or +xbm, and
  a pooling. +s or +l sets the variant of one method, +b16, +b32, +b64 or +b128 its
  batch."""
  protocol: protocols.Name = "fair"
  """Protocol: that of chapter 3, that of section 5.3.4, the conventional one (one
  training, or the best of three), or those of ablations and of hyperparameters."""
  folds: tuple[int, ...] = ()
  """Models of the protocol to train, from 1; none: all."""
  repeats: int = 0
  """Trainings of each model."""
  seed: int = 0
  """Seed of everything random."""
  backbone: Literal["bn_inception", "resnet50", "inception_v3"] = "bn_inception"
  """Backbone."""
  weights: str = ""
  """File of ImageNet weights for the backbone; none: random weights."""
  width: int = 0
  """Channels of the backbone's first convolution; 0: as published."""
  pooling: str = ""
  """Pooling of methods that name none: gap; in the conventional protocols gap_gmp."""
  dim: int = 0
  image_size: int = 227
  """Side of the network's input, in pixels."""
  shorter_side: int = 256
  """Shorter side of evaluated images before the centre is cut, in pixels."""
  crop: Literal["area", "sides"] = "area"
  """Random crops for training: boxes of 0.16 to 1 of the area, as for the tables, or
  with sides of 40 to 256 after scaling the shorter side to 256, as in the text."""
  frozen_norm: bool | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
  """Freezes batch-norm layers; none: freezes those of weights from a file."""
  bfloat16: bool = False
  """Computes the backbone in bfloat16."""
  second_moment: float = 0.999
  """Second-moment decay of Adam; the thesis prints 0.99."""
  variant: Literal["S", "L"] = "L"
  """Small or large memory and proxies of chance-constrained problems. soft_triple has
  the variant of the tables, unless its name ends in +s or +l."""
  learning_rate: float = 0.0
  weight_decay: float = 0.0
  numbers: tuple[tuple[str, float], ...] = ()
  """Hyperparameters that replace the thesis's, such as negative_margin 0.4, in all
  losses that have them."""
  search: tuple[tuple[str, float, float], ...] = ()
  """Settings or hyperparameters to search, each with its range: weight 1e-6 1 proxies 1
  16. Needs a single method and validation classes."""
  trials: int = 0
  """Trials of the search."""
  batch: int = 0
  steps: int = 500_000
  evaluate_every: int = 0
  patience: int = 0
  weight: float = 2e-4
  """Weight of the projection onto the weights of the previous problem."""
  first_weight: float = 0.0
  """Weight of the first problem's projection, onto the initial weights; in the thesis's
  text, equal to the others."""
  max_problems: int = 0
  """Largest number of problems; the last one runs to the end. 0: no limit."""
  pool_space: Literal["raw", "unit_ball"] = "raw"
  """Space in which new proxies are far from old ones: raw embeddings, as in the
  released code, or those that the losses get."""
  proxies: int = 0
  """Proxies per class."""
  pool: int = 0
  """Images per class among which new proxies are chosen. With fewer than the proxies,
  that many per proxy; with 1, all are used."""
  memory: int = 0
  """Batches in the cross-batch memory; the thesis counts batches of 32 images."""
  memory_start: int = 1000
  prototypes: int = 0
  mass: float = 0.0
  inverse_temperature: float = 0.0
  zero_shot: float | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
  """Weight of zero-shot prediction in the loss, from 0 to 1; none: as in the thesis."""
  checkpoint_every: int = 500
  """Steps between two checkpoints."""
  evaluation_batch: int = 256
  """Images per batch of an evaluation."""
  cache_gib: float = 8.0
  """Memory for decoded test images, in GiB; if they need more, each evaluation decodes
  them again."""
  workers: int = 0
  """Processes that read images; 0: threads of this process."""
  prefetch: int = 16
  """Batches to read ahead, per worker."""
  # What is seen, and what a job fills in.
  strides: Decided[tuple[int, int, int, int]] = (1, 2, 2, 2)
  convolution: Decided[Literal["patches", "native"]] = "patches"
  channels: Decided[Literal[1, 3]] = 3
  per_class: Decided[int] = 4
  proxy_rate: Decided[float] = 100.0
  metric: Decided[str] = "MAP@R"
  plateau: Decided[bool] = False
  places: Decided[int] = 0
  """Embeddings in the memory."""

  def __post_init__(self) -> None:
    Limited.__post_init__(self)  # a network has its numbers once they are filled in


class Job(NamedTuple):
  """A row of the table; nothing of its settings is left open."""

  name: str
  title: str
  method: Method
  settings: FullConfig


_OF_PROTOCOL = ("batch", "evaluate_every", "patience", "dim", "weight_decay")


def protocol_of(config: FullConfig) -> Protocol:
  """The protocol with what the settings change."""
  protocol = protocols.protocol(config.protocol, config.dataset, config.backbone)
  names = (*_OF_PROTOCOL, "repeats", "learning_rate", "pooling")
  overrides = {name: getattr(config, name) for name in names}
  return protocol._replace(**{name: x for name, x in overrides.items() if x})


def hyperparameters(config: FullConfig) -> list[str]:
  """Hyperparameters of the losses of the methods."""
  names = {name.lower().partition("+")[0] for name in config.methods}
  known = dml.NUMBERS[config.dataset].losses
  return sorted({key for name in names for key in known.get(name, ())})


def check_numbers(config: FullConfig) -> None:
  """Raises ValueError for a hyperparameter that no loss of the methods has."""
  has = hyperparameters(config)
  if unknown := [key for key, _ in config.numbers if key not in has]:
    raise ValueError(f"numbers must name some of {', '.join(has)}, got {unknown[0]!r}")
  if config.search or config.trials:
    raise ValueError(
      "trials are of a search, and a search is of `retrieval`: got search"
      f" {config.search} and trials {config.trials}"
    )


def job(config: FullConfig, protocol: Protocol, name: str) -> Job:
  """A method by its name; ValueError names those that are like an unknown one."""
  row = ROWS.get(name.lower())
  if row is None:
    near = ", ".join(difflib.get_close_matches(name.lower(), ROWS, 3, 0.0))
    losses, poolings = (", ".join(filter(None, x)) for x in (TITLES, _POOLINGS))
    raise ValueError(
      f"methods has no {name!r}, near which are {near}: a loss ({losses}), perhaps a"
      f" kind (proxy, xbm, ccp), a pooling ({poolings}), a variant (s, l) and a batch"
      f" ({', '.join(f'b{x}' for x in BATCHES)}), in this order"
    )
  if row.variant:
    config = dataclasses.replace(config, variant=row.variant)
  protocol = protocol._replace(
    batch=row.batch or protocol.batch, pooling=row.pooling or protocol.pooling
  )
  method = _method(config, row)
  title = method.name + (f"-{row.variant}" if row.variant else "")
  title += f"+{_POOLINGS[row.pooling]}" if row.pooling else ""
  title += f", batch {row.batch}" if row.batch else ""
  return Job(row.name, title, method, _settings(config, protocol, method))


def _method(config: FullConfig, row: Row) -> Method:
  published = dml.NUMBERS[config.dataset]
  numbers = dict(published.losses[row.loss])
  if row.loss == "proxy_nca" and config.protocol in ("fair534", "tuning"):
    numbers["temperature"] = 0.11
  numbers |= {key: value for key, value in config.numbers if key in numbers}
  proxies = 1
  if row.loss == "soft_triple":
    centres = published.centres[row.variant or published.soft_triple]
    proxies = config.proxies or centres
  elif row.kind in ("proxy", "ccp") and row.loss in PAIR_LOSSES:
    proxies = config.proxies or published.proxies[config.variant]
  return Method(
    row.loss,
    row.kind,
    proxies,
    config.pool or published.pool,
    numbers=tuple(numbers.items()),
  )


def _settings(config: FullConfig, protocol: Protocol, method: Method) -> FullConfig:
  """Settings of one training, with those of its protocol and method."""
  published = dml.NUMBERS[config.dataset]
  rate, pooling = protocol.learning_rate, protocol.pooling
  newer = config.protocol in ("fair534", "tuning")
  if method.loss == "proxy_anchor" and config.dataset == "sop" and newer:
    rate = config.learning_rate or 5e-6
  # A batch of the conventional protocols may have more images than there are classes.
  usual = config.protocol in protocols.CONVENTIONAL
  single = method.own_proxies and not usual
  mass = config.mass or (1.0 if pooling == PREDICTION else MASS)
  zero_shot = ZERO_SHOT if config.zero_shot is None else config.zero_shot
  if pooling in (ALONE, PREDICTION):
    zero_shot = 0.0 if pooling == ALONE else zero_shot
    pooling = "gsp"
  fresh = config.weights == "none"
  return dataclasses.replace(
    command.only(FullConfig, config),
    width=config.width or WIDTHS[config.backbone],
    weights="" if fresh else config.weights,
    frozen_norm=not fresh if config.frozen_norm is None else config.frozen_norm,
    pooling=pooling,
    prototypes=config.prototypes or published.prototypes,
    mass=mass,
    inverse_temperature=config.inverse_temperature or method.inverse_temperature,
    zero_shot=zero_shot if pooling in frame_poolings.SUMMED else 0.0,
    per_class=1 if single else 4,
    learning_rate=rate,
    places=config.memory * protocol.batch or 32 * published.memory[config.variant],
    metric=protocol.metric,
    plateau=protocol.plateau,
    **{name: getattr(protocol, name) for name in _OF_PROTOCOL},
  )


def _depends(job: Job) -> dict[str, bool]:
  """Dependence of a method on the settings that only some methods have."""
  method, pair = job.method, not job.method.own_proxies
  summed = job.settings.pooling in frame_poolings.SUMMED
  parts = (
    (method.refers_to_proxies, ("pool", "first_centres", "pool_space")),
    (method.loss == "soft_triple" or (method.refers_to_proxies and pair), ("proxies",)),
    (method.refers_to_proxies and pair, ("in_batch",)),
    (method.renews, ("weight", "switch_patience", "first_weight", "max_problems")),
    (method.renews, ("restart", "fresh_moments")),
    (method.kind == "xbm", ("memory", "memory_start", "memory_use")),
    (summed, ("prototypes", "mass", "inverse_temperature")),
    (summed and ALONE not in job.name.split("+"), ("zero_shot",)),
  )
  return {name: has for has, names in parts for name in names}


def searched(job: Job) -> list[str]:
  """Numbers of the method that may be searched, beside those of every training."""
  numbers = {"zero_shot"} | {
    field.name
    for field in dataclasses.fields(FullConfig)
    if type(field.default) in (int, float)
  }
  return [name for name, has in _depends(job).items() if has and name in numbers]


def unused(config: FullConfig) -> dict[str, tuple[str, ...]]:
  """Settings that no method has."""
  protocol = protocol_of(config)
  methods = [_depends(job(config, protocol, name)) for name in config.methods]
  if not methods:
    return {}
  names = [name for name in methods[0] if not any(x[name] for x in methods)]
  return {f"with --methods {' '.join(config.methods)}": tuple(names)}
