"""The presets of DL2P's tables and figures, and the accuracies of the paper."""

import functools
import itertools
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from experiments import published
from experiments.assignment import photographs, pictures, prototypes, readers
from experiments.assignment.photographs import Trained
from experiments.assignment.settings import Full, Job, plan
from experiments.frame.study import Claim, Measured, Table

_LONG_TAIL = functools.partial(
  Full, width=32, feature_norm=True, epochs=200, learning_rate=0.1, weight_decay=2e-4,
  drops=(160, 180), warm_up=5, total=False, mixup=1.0, weighted=True,
)  # fmt: skip
_PHOTOGRAPHS = functools.partial(
  Full, network="resnet50", image_size=224, crop="resized", epochs=100, batch=1024,
  learning_rate=0.5, weight_decay=2e-5, drops=(), warm_up=5, total=False, mixup=1.0,
)  # fmt: skip


def _grid(
  images: str, methods: Sequence[str], dims: Sequence[int], **options: Sequence[float]
) -> tuple[Job, ...]:
  """Jobs of all combinations; the options vary fastest."""
  return tuple(
    Job(images, method, dim, **dict(zip(options, values, strict=True)))
    for method, dim in itertools.product(methods, dims)
    for values in itertools.product(*options.values())
  )


_CIFAR, _TINY, _IMAGENET = "cifar100", "tiny_imagenet", "imagenet2012"
_PSC = ("PSC, cosine", "PSC, linear")
_RIVALS = (*_PSC, "Word2Vec-like", "HPN", "HPN + semantics")
_THREE = (*_PSC, "ETF", "DL2P")
_OF_IMAGENET = _grid(_IMAGENET, ("DL2P", *_PSC), (512,))
_NARROW = (16, 32, 64)
_IMBALANCES = (0.005, 0.01, 0.02)
PRESETS = {
  "table-1": Full(jobs=_grid(_CIFAR, (*_RIVALS, "DL2P"), (10, 25, 50, 100))),
  # 64x64 images, so the same network sees four times the positions.
  "table-1-imagenet200": Full(
    jobs=_grid(_TINY, (*_RIVALS, "DL2P"), (25, 50, 100, 200)), image_size=64
  ),
  "table-2": Full(
    jobs=(*_grid(_CIFAR, (*_RIVALS, "ETF"), (100,)), Job(_CIFAR, "DL2P", 50))
  ),
  "table-2-imagenet200": Full(
    jobs=(*_grid(_TINY, (*_RIVALS, "ETF"), (200,)), Job(_TINY, "DL2P", 100)),
    image_size=64,
  ),
  "table-3": _PHOTOGRAPHS(jobs=_OF_IMAGENET),
  "table-3-resnet101": _PHOTOGRAPHS(jobs=_OF_IMAGENET[:1], network="resnet101"),
  "table-3-swin": _PHOTOGRAPHS(
    jobs=_OF_IMAGENET, network="swin_t", optimizer="adamw", learning_rate=1e-3
  ),
  "table-4": _LONG_TAIL(
    jobs=_grid(_CIFAR, _THREE, (128,), imbalance=_IMBALANCES)
    + _grid(_CIFAR, ("DL2P",), (50,), imbalance=_IMBALANCES)
  ),
  # Needs --listing; the paper gives no details but the network.
  "table-5": _PHOTOGRAPHS(
    jobs=_grid(_IMAGENET, _THREE, (2048,)) + _OF_IMAGENET[:1],
    weighted=True, feature_norm=True, needs_listing=True,
  ),
  "table-6": _LONG_TAIL(
    jobs=tuple(
      job
      for images in ("cifar10", "svhn_cropped", "stl10")
      for job in _grid(images, _THREE, (64,), imbalance=_IMBALANCES)
    ),
    width=16,
  ),
  "table-7": Full(prototypes=((100, 100), (100, 50))),
  "table-8": Full(
    jobs=_grid(_CIFAR, (*_PSC, "PSC*", "Ours*"), _NARROW), validation=0.1
  ),
  "table-9": Full(jobs=_grid(_CIFAR, ("DL2P", "Fixed + CE"), _NARROW), seeds=3),
  "figure-3": Full(
    jobs=_grid(_CIFAR, ("DL2P",), (50,), updates=(0.1, 0.2, 0.5, 1, 2, 5, 10))
    + _grid(_CIFAR, ("PSC*",), _NARROW, uniformity=(0.001, 0.01, 0.1, 1, 10)),
    prototypes=((100, 100), (100, 50), (100, 25)),
    matchings=(100, 1000, 2000, 5000, 10_000),
  ),
  "figure-4": Full(
    jobs=_grid(_CIFAR, ("DL2P", "Static"), (3, 5, 10, 25, 50, 100, 200))
  ),
}  # fmt: skip

ACCURACIES: list[dict[str, Any]] = published.figures("dl2p")["accuracy"]


def reported(config: Full, job: Job) -> float | None:
  """The paper's accuracy, from 0 to 1; None if it has none for this training."""
  if job.updates != 1 or job.uniformity is not None:
    return None
  if job.images == _IMAGENET and config.weighted and config.listing is None:
    return None
  method = job.method.removesuffix(", cosine").removesuffix(", linear")
  for block in ACCURACIES:
    dims, tails = block["dims"], block.get("imbalances", [1.0])
    matches = job.dim in dims and job.imbalance in tails and method in block
    if job.images == _IMAGENET:
      matches &= block.get("network", config.network) == config.network
      matches &= block.get("listing", False) == (config.listing is not None)
    if matches and job.images == block["images"]:
      # One of the two lists has a single entry, whose index is 0.
      index = dims.index(job.dim) + tails.index(job.imbalance)
      value = block[method][index] / 100
      return None if math.isnan(value) else value
  return None


def measure(config: Full, output: pathlib.Path) -> Measured:
  """Runs all trainings of a table or plot; lists the paper's figures with them."""
  jobs = plan(config)
  if config.needs_listing and config.listing is None:
    raise SystemExit("table-5 needs --listing, the list of the images of ImageNet-LT")
  key = jax.random.key(config.seed)
  # Everything is read and checked before the first training.
  vectors = None
  if any(classes == 100 for classes, _ in config.prototypes):
    vectors = readers.cifar100_vectors(config.vectors, key)
  read: dict[tuple[str, float], readers.Sets] = {}
  for job in jobs:
    where = job.images, job.imbalance
    if where not in read:
      read[where] = photographs.read_sets(config, job)
    photographs.fixed_points(config, job, read[where])
  trainings: dict[Job, list[Trained]] = {}
  for seed in range(config.seeds):
    earlier: dict[str, Trained] = {}
    for job in jobs:
      sets = read[job.images, job.imbalance]
      trained = photographs.run_job(config, job, sets, seed, output, earlier)
      if job.method == "PSC*":
        earlier[job.label] = trained
      trainings.setdefault(job, []).append(trained)
  # The mean of four, as in figure 3c.
  seconds = prototypes.matching_seconds(key, config.matchings, 4)
  table = Table()
  for job, runs in trainings.items():
    accuracies = [run.accuracy for run in runs]
    paper = reported(config, job)
    table.add(job.title, f"accuracy, {job.label}", accuracies, paper=paper)
  cosines = prototypes.study(table, key, config.prototypes, 3, vectors=vectors)
  prototypes.tabulate_matchings(table, seconds)
  return table, functools.partial(pictures.draw_tables, trainings, cosines, seconds)


def claims(config: Full, _: Table) -> Iterator[Claim]:
  """Claims that DL2P beats every other method on the same images and dimension."""
  ours = {x.label: x for x in plan(config) if x.method == "DL2P" and x.updates == 1}
  for label, job in itertools.product(ours, plan(config)):
    if job.label == label and job.method != "DL2P":
      parts = [job.images, job.method, f"d{job.dim}"]
      parts += [f"imbalance{job.imbalance:g}"] if job.imbalance < 1 else []
      weight = job.uniformity
      parts += [] if weight is None else [f"uniformity{weight:g}"]
      yield Claim(
        "-".join(parts),
        f"accuracy(DL2P) > accuracy({job.title}), {label}",
        lambda t, job=job: t.gain(f"accuracy, {job.label}", "DL2P", over=job.title),
      )
  yield from prototypes.growth_claims(config.matchings)
