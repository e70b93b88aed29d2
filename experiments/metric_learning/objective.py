"""Network and loss of `retrieval` and `ccp_proxies`, whatever the images."""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments.frame import networks
from experiments.metric_learning import methods
from experiments.metric_learning import optimizer as optimizers
from experiments.metric_learning.methods import Method
from experiments.metric_learning.settings import Training
from spherejax import losses, models, training


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


@dataclasses.dataclass(frozen=True)
class Objective:
  """The loss of a batch, zero-shot prediction mixed in, and the memory after it.

  Images without a label, behind the others, stand for the proxies.
  """

  settings: Training
  method: Method
  classes: int
  bfloat16: bool = False

  def __call__(
    self,
    params: Any,
    batch_stats: Any,
    batch: Mapping[str, Array],
    *,
    key: Array,
    axis_name: str | None,
  ) -> training.Outcome:
    del key  # images are moved before
    settings, method, labels = self.settings, self.method, batch["label"]
    found, network_stats = forward(
      settings.architecture,
      variables(params["network"], batch_stats.get("network", {})),
      batch["image"],
      bfloat16=self.bfloat16,
      train=True,
      axis_name=axis_name,
    )
    points = found.embeddings.astype(jnp.float32)
    x, anchors = points[: len(labels)], points[len(labels) :]
    stats = {"network": network_stats} if network_stats else {}
    mean = functools.partial(training.global_mean, axis_name=axis_name)
    remembered, remembers, kept = self._remembered(batch_stats, x, labels, axis_name)
    own, own_labels, average = x, labels, mean
    if method.own_proxies:  # each device has the loss of all rows
      own, own_labels = training.gather((x, labels), axis_name)
      average = jnp.mean
    value = methods.value(
      method,
      own,
      own_labels,
      params["loss"],
      self.references(anchors, params),
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
        jax.tree.map(lambda each: each[: len(labels)], found.attributes),
        labels,
        axis_name=axis_name,
        average=mean,
      )
    return training.Outcome(value, stats | kept)

  def _remembered(
    self, batch_stats: Any, x: Array, labels: Array, axis_name: str | None
  ) -> tuple[losses.References, Array, Any]:
    """The memory as references, whether they count, and what is kept of it."""
    if self.method.kind != "xbm":
      nothing = losses.memory_init(1, self.settings.embedding_dim)
      return losses.memory_references(nothing), jnp.zeros((), bool), {}
    old = batch_stats["loss"]
    memory, remembered, remembers = methods.remember(
      old["memory"],
      x,
      labels,
      old["taken"],
      start=self.settings.memory_start,
      use=self.settings.memory_use,
      axis_name=axis_name,
    )
    kept = {"loss": {"memory": memory, "taken": old["taken"] + 1}}
    return remembered, remembers, kept

  def references(self, anchors: Array, params: Any) -> losses.References | None:
    """Proxies, or images in their place, as what a batch is compared with."""
    if not self.method.refers_to_proxies:
      return None
    if self.method.kind != "samples":
      anchors = params["loss"]["proxies"].reshape(-1, self.settings.embedding_dim)
    labels = jnp.repeat(jnp.arange(self.classes), self.method.proxies)
    return losses.References(anchors, labels, jnp.ones(len(labels), bool), None)

  def optimizer(
    self, stats: Any = None, first_weight: float = 0.0
  ) -> optax.GradientTransformation:
    """Of the settings and the method; `stats` are the network's before the steps."""
    return optimizers.optimizer(
      self.settings,
      self.method,
      {} if stats is None else stats,
      zero_shot=self.settings.zero_shot > 0,
      first_weight=first_weight,
    )

  def loss_variables(
    self, loss_key: Array, label_key: Array, proxies: Array | None, memory: int
  ) -> dict[str, Any]:
    """The loss's parameters before the first step, and a memory of so many places.

    `proxies` are those that begin as embeddings, None where there are none.
    """
    settings, method, dim = self.settings, self.method, self.settings.embedding_dim
    params: dict[str, Any] = {}
    if method.draws_proxies:
      params = methods.initial(method, loss_key, self.classes, dim)
    elif method.learns_proxies:
      params["proxies"] = proxies
    if settings.zero_shot:
      params["zero_shot"] = methods.zero_shot_params(
        label_key, settings.prototypes, self.classes, dim
      )
    if method.kind != "xbm":
      return {"params": params}
    stats = {"memory": losses.memory_init(memory, dim), "taken": jnp.int32(0)}
    return {"params": params, "batch_stats": stats}
