"""Methods and settings of a run of `retrieval` on photographs."""

import dataclasses
import difflib
import itertools
from collections.abc import Callable
from typing import Literal, NamedTuple

from experiments.frame import command
from experiments.frame import poolings as frame_poolings
from experiments.frame.settings import Decided
from experiments.metric_learning.methods import PAIR_LOSSES, TITLES, Method
from experiments.metric_learning.photographs import protocols
from experiments.metric_learning.photographs.protocols import Protocol
from experiments.metric_learning.settings import Training
from experiments.published import dml

ZERO_SHOT = 0.1  # share of zero-shot prediction beside generalized sum pooling
MASS = 0.3  # share of the features that it keeps
# Generalized sum pooling without zero-shot prediction, and prediction without the
# pooling: all of the mass is kept, which gives the average.
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
  kind: Literal["", "proxy", "xbm", "ccp"] = ""
  pooling: str = ""  # pooling; empty: the protocol's
  variant: str = ""
  """Small or large memory and number of proxies; empty: large, or for soft_triple the
  variant in the tables."""
  batch: str = ""  # images per step; empty: the protocol's


_PARTS = (
  TITLES, ("", "proxy", "xbm", "ccp"), _POOLINGS, ("", "s", "l"),
  ("", *(f"b{x}" for x in BATCHES)),
)  # fmt: skip
ROWS = {
  "+".join(filter(None, row)): row
  for row in itertools.starmap(Row, itertools.product(*_PARTS))
  if (not row.kind or row.loss in PAIR_LOSSES)
  and (not row.variant or row.kind or row.loss == "soft_triple")
}
"""All methods by name; proxy losses have no kind."""


@dataclasses.dataclass(frozen=True)
class FullConfig(Training):
  """Settings of a comparison; 0 and "" stand for the protocol's values."""

  dataset: Literal["cub", "cars", "inshop", "sop"] = "cub"
  """Data set, with its split and hyperparameters."""
  folder: str = ""
  """Folder with a sub-folder of images per class, instead of the prepared set; for
  inshop, the folder of list_eval_partition.txt."""
  learned_classes: int = 0
  """Number of learned classes, the first ones; the others are for testing."""
  skip_unreadable: bool = False
  """Skips unreadable images; otherwise the run ends with a list of them."""
  methods: tuple[str, ...] = ("c2", "c2+ccp")
  """Methods to train, such as c1+xbm+gsp: a loss (c1, c2, ms, triplet, proxy_anchor,
  proxy_nca, soft_triple), optionally for the first four +proxy, +xbm or +ccp, and a
  pooling. +s or +l sets the variant of one method, +b16, +b32, +b64 or +b128 its
  batch."""
  protocol: protocols.Name = "fair"
  """Protocol: that of chapter 3, that of section 5.3.4, the conventional one (one
  training, or the best of three), or those of ablations and of hyperparameters."""
  folds: tuple[int, ...] = ()
  """Models of the protocol to train, numbered from 1; none: all."""
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
  """Pooling of methods that name none; empty: gap, or gap_gmp if conventional."""
  dim: int = 0
  image_size: int = 227
  """Side of the network's input, in pixels."""
  shorter_side: int = 256
  """Shorter side of evaluated images before the centre is cut, in pixels."""
  frozen_norm: bool | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
  """Freezes batch-norm layers; none: freezes those of weights from a file."""
  second_moment: float = 0.999
  """Second-moment decay of Adam; the thesis prints 0.99."""
  learning_rate: float = 0.0
  weight_decay: float = 0.0
  trials: int = 0
  """Trials of one method with ccp, each with another weight and number of proxies."""
  batch: int = 0
  steps: int = 500_000
  evaluate_every: int = 0
  patience: int = 0
  weight: float = 2e-4
  """Weight of the projection onto the weights of the previous problem."""
  proxies: int = 0
  """Proxies per class."""
  pool: int = 0
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
  # Fixed for photographs, or filled in by a job.
  strides: Decided[tuple[int, int, int, int]] = (1, 2, 2, 2)
  convolution: Decided[Literal["patches", "native"]] = "patches"
  channels: Decided[Literal[1, 3]] = 3
  per_class: Decided[int] = 4
  proxy_rate: Decided[float] = 100.0
  metric: Decided[str] = "MAP@R"
  places: Decided[int] = 0
  """Embeddings in the memory."""

  def __post_init__(self) -> None:
    """Checks nothing: the network's numbers are still open."""


class Job(NamedTuple):
  """A row of the table; all of its settings are filled in."""

  name: str
  title: str
  method: Method
  settings: FullConfig


_OF_PROTOCOL = ("batch", "evaluate_every", "patience", "dim", "weight_decay")


def protocol_of(config: FullConfig) -> Protocol:
  """The protocol with the changes of the settings."""
  protocol = protocols.protocol(config.protocol, config.dataset, config.backbone)
  names = (*_OF_PROTOCOL, "repeats", "learning_rate", "pooling")
  overrides = {name: getattr(config, name) for name in names}
  return protocol._replace(**{name: x for name, x in overrides.items() if x})


def job(config: FullConfig, protocol: Protocol, name: str) -> Job:
  """Returns the job of a method's name; ValueError for an unknown one lists similar."""
  row = ROWS.get(name.lower())
  if row is None:
    near = ", ".join(difflib.get_close_matches(name.lower(), ROWS, 3, 0.0))
    losses, poolings = (", ".join(filter(None, x)) for x in (TITLES, _POOLINGS))
    raise ValueError(
      f"methods has no {name!r}, near which are {near}: a loss ({losses}), perhaps a"
      f" kind (proxy, xbm, ccp), a pooling ({poolings}), a variant (s, l) and a batch"
      f" ({', '.join(f'b{x}' for x in BATCHES)}), in this order"
    )
  protocol = protocol._replace(
    batch=int(row.batch[1:] or protocol.batch), pooling=row.pooling or protocol.pooling
  )
  method = _method(config, row)
  title = method.name + (f"-{row.variant.upper()}" if row.variant else "")
  title += f"+{_POOLINGS[row.pooling]}" if row.pooling else ""
  title += f", batch {row.batch[1:]}" if row.batch else ""
  return Job(name.lower(), title, method, _settings(config, protocol, method, row))


def _method(config: FullConfig, row: Row) -> Method:
  published = dml.NUMBERS[config.dataset]
  numbers = dict(published.losses[row.loss])
  if row.loss == "proxy_nca" and config.protocol in ("fair534", "tuning"):
    numbers["temperature"] = 0.11
  proxies = 1
  if row.loss == "soft_triple":
    centres = published.centres[row.variant.upper() or published.soft_triple]
    proxies = config.proxies or centres
  elif row.kind in ("proxy", "ccp"):
    proxies = config.proxies or published.proxies[row.variant.upper() or "L"]
  pool = config.pool or published.pool
  numbers = tuple(numbers.items())
  return Method(row.loss, row.kind or "plain", proxies, pool, numbers=numbers)


def _settings(
  config: FullConfig, protocol: Protocol, method: Method, row: Row
) -> FullConfig:
  """Settings of one training, filled in from its protocol and method."""
  published = dml.NUMBERS[config.dataset]
  rate, pooling = protocol.learning_rate, protocol.pooling
  newer = config.protocol in ("fair534", "tuning")
  if method.loss == "proxy_anchor" and config.dataset == "sop" and newer:
    rate = config.learning_rate or 5e-6
  # A batch of the conventional protocols may have more images than there are classes.
  single = method.own_proxies and config.protocol not in protocols.CONVENTIONAL
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
    places=config.memory * protocol.batch
    or 32 * published.memory[row.variant.upper() or "L"],
    metric=protocol.metric,
    **{name: getattr(protocol, name) for name in _OF_PROTOCOL},
  )


def _summed(job: Job) -> bool:
  return job.settings.pooling in frame_poolings.SUMMED


# Settings that only some methods have, with the condition for a job to have them.
_SPECIAL: tuple[tuple[Callable[[Job], bool], tuple[str, ...]], ...] = (
  (lambda job: job.method.refers_to_proxies, ("pool",)),
  (
    lambda job: job.method.loss == "soft_triple" or job.method.refers_to_proxies,
    ("proxies",),
  ),
  (lambda job: job.method.renews, ("weight", "switch_patience")),
  (lambda job: job.method.kind == "xbm", ("memory", "memory_start")),
  (_summed, ("prototypes", "mass", "inverse_temperature")),
  (lambda job: _summed(job) and ALONE not in job.name.split("+"), ("zero_shot",)),
)


def unused(config: FullConfig) -> dict[str, tuple[str, ...]]:
  """Settings that no method has, or that trials replace."""
  protocol = protocol_of(config)
  jobs = [job(config, protocol, name) for name in config.methods]
  names = (x for has, x in _SPECIAL if not any(map(has, jobs)))
  reasons = {
    f"with --methods {' '.join(config.methods)}": tuple(itertools.chain(*names))
  }
  return reasons | ({"with --trials": ("weight", "proxies")} if config.trials else {})
