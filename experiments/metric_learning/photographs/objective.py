"""Network and loss of `retrieval` on photographs."""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from experiments.frame import networks
from experiments.metric_learning import methods
from experiments.metric_learning.methods import Method
from spherejax import losses, models, training


@dataclasses.dataclass(frozen=True)
class Settings(networks.Architecture):
  """Numbers of one training."""

  metric: str = "MAP@R"
  steps: int = 500_000
  """At most."""
  evaluate_every: int = 25
  patience: int = 60
  batch: int = 32
  per_class: int = 4
  learning_rate: float = 1e-5
  proxy_rate: float = 100.0
  """Learning rate of proxies over that of the network, for losses with proxies only."""
  second_moment: float = 0.999
  """Of Adam."""
  weight_decay: float = 1e-4
  plateau: bool = False
  weight: float = 2e-4
  """Of the projection onto the weights of the problem before."""
  first_weight: float = 0.0
  max_problems: int = 0
  """0: as many as there are."""
  restart: Literal["best", "last"] = "best"
  switch_patience: int = 3
  first_centres: Literal["random", "origin"] = "random"
  pool_space: Literal["raw", "unit_ball"] = "raw"
  fresh_moments: bool = False
  in_batch: float = 0.1
  memory: int = 0
  """Embeddings in the memory."""
  memory_start: int = 1000
  memory_use: Literal["full", "any"] = "full"
  zero_shot: float = 0.0
  """Share of zero-shot prediction in the loss, for a pooling with attributes."""
  bfloat16: bool = False
  crop: Literal["area", "sides"] = "area"
  """Of a training image."""
  checkpoint_every: int = 500
  evaluation_batch: int = 256
  cache_gib: float = 8.0
  """Evaluated images are decoded once where they need no more."""
  workers: int = 0
  prefetch: int = 16


def _halved(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
  """The backbone sees bfloat16; it computes in the dtype of its images."""
  if context.module.name == "backbone" and context.method_name == "__call__":
    args = tuple(x.astype(jnp.bfloat16) for x in args)
  return call(*args, **kwargs)


def forward(
  architecture: networks.Architecture,
  variables: Any,
  images: Array,
  *,
  bfloat16: bool,
  train: bool = False,
  axis_name: str | None = None,
) -> tuple[models.HeadResult, Any]:
  """What the network makes of images, and its statistics after them."""
  network = networks.Network(architecture, axis_name)
  halved = nn.intercept_methods(_halved)
  with halved if bfloat16 else contextlib.nullcontext():
    found, moved = network.apply(
      variables, images, train=train, mutable=["batch_stats"]
    )
  return found, moved.get("batch_stats", {})


def variables(params: Any, stats: Any) -> Any:
  """Of the network."""
  return {"params": params} | ({"batch_stats": stats} if stats else {})


def objective(
  params: Any,
  batch_stats: Any,
  batch: Mapping[str, Array],
  *,
  key: Array,
  axis_name: str | None,
  settings: Settings,
  method: Method,
  classes: int,
) -> training.Outcome:
  """The loss of a batch, zero-shot prediction mixed in, and the memory after it."""
  del key  # pictures are cut on the host
  labels = batch["label"]
  found, network_stats = forward(
    settings.architecture,
    variables(params["network"], batch_stats.get("network", {})),
    batch["image"],
    bfloat16=settings.bfloat16,
    train=True,
    axis_name=axis_name,
  )
  x = found.embeddings.astype(jnp.float32)
  stats = {"network": network_stats} if network_stats else {}
  mean = functools.partial(training.global_mean, axis_name=axis_name)
  remembered, remembers, kept = _remembered(
    settings, method, batch_stats, x, labels, axis_name
  )
  stats |= kept
  own, own_labels, average = x, labels, mean
  if method.own_proxies:  # each device has the loss of all rows
    own, own_labels = training.gather((x, labels), axis_name)
    average = jnp.mean
  value = methods.value(
    method,
    own,
    own_labels,
    params["loss"],
    references(settings, method, params, classes),
    remembered,
    in_batch=settings.in_batch,
    remembers=remembers,
    axis_name=axis_name,
    average=average,
  )
  if settings.zero_shot:
    value = methods.with_zero_shot(
      value,
      settings.zero_shot,
      params["loss"]["zero_shot"],
      found.attributes,
      labels,
      axis_name=axis_name,
      average=mean,
    )
  return training.Outcome(value, stats)


def _remembered(
  settings: Settings,
  method: Method,
  batch_stats: Any,
  x: Array,
  labels: Array,
  axis_name: str | None,
) -> tuple[losses.References, Array, Any]:
  """The memory as references, whether they count, and what is kept of it."""
  if method.kind != "xbm":
    nothing = losses.memory_references(losses.memory_init(1, settings.embedding_dim))
    return nothing, jnp.zeros((), bool), {}
  old = batch_stats["loss"]
  memory, remembered, remembers = methods.remember(
    old["memory"],
    x,
    labels,
    old["taken"],
    start=settings.memory_start,
    use=settings.memory_use,
    axis_name=axis_name,
  )
  kept = {"loss": {"memory": memory, "taken": old["taken"] + 1}}
  return remembered, remembers, kept


def references(
  settings: Settings, method: Method, params: Any, classes: int
) -> losses.References | None:
  """Proxies as what a pair loss compares the batch with."""
  if not method.refers_to_proxies:
    return None
  rows = params["loss"]["proxies"].reshape(-1, settings.embedding_dim)
  labels = jnp.repeat(jnp.arange(classes), method.proxies)
  return losses.References(rows, labels, jnp.ones(len(labels), bool), None)
