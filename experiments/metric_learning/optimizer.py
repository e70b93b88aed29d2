"""The optimiser of `retrieval` and `ccp_proxies`, on photographs and small images."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments.metric_learning.methods import Method
from experiments.metric_learning.settings import Training
from spherejax import training


def check(rates: Training) -> None:
  """Raises ValueError for rates that Adam cannot have."""
  for name in ("learning_rate", "proxy_rate", "weight_decay"):
    if not math.isfinite(getattr(rates, name)):
      raise ValueError(f"{name} must be finite, got {getattr(rates, name)}")
  if not 0 <= rates.second_moment < 1:
    raise ValueError(f"second_moment must be in [0, 1), got {rates.second_moment}")


class _Taken(NamedTuple):
  taken: Array  # steps


def _head_first(steps: int) -> optax.GradientTransformation:
  """The backbone stays where it is for the first steps."""

  def init(params: Any) -> _Taken:
    del params
    return _Taken(jnp.int32(0))

  def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, _Taken]:
    del params
    learns = state.taken >= steps
    backbone = jax.tree.map(lambda u: u * learns, updates["network"]["backbone"])
    network = {**updates["network"], "backbone": backbone}
    return {**updates, "network": network}, _Taken(state.taken + 1)

  return optax.GradientTransformation(init, update)


def _decayed(params: Any) -> Any:
  """The network's parameters without those of its norms."""

  def is_weight(path: Any, _: Array) -> bool:
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    return name.startswith("network") and "norm" not in name.lower()

  return jax.tree_util.tree_map_with_path(is_weight, params)


def optimizer(
  rates: Training,
  method: Method,
  stats: Any,
  *,
  zero_shot: bool = False,
  first_weight: float = 0.0,
) -> optax.GradientTransformation:
  """Projection, weight decay, clipping, Adam: the order of the released code.

  `stats` are the network's after the step. The projection, where problems follow each
  other, is the first of its states. Proxies that are drawn, those of losses that know
  nothing else, learn faster than the network, and alone with the layer of the embedding
  until the first evaluation.
  """
  adam = functools.partial(optax.adam, b2=rates.second_moment)
  groups = {"network": adam(rates.learning_rate)}
  if method.learns_proxies:
    fast = rates.learning_rate * (rates.proxy_rate if method.draws_proxies else 1)
    groups["loss/proxies"] = adam(fast)
  if zero_shot:
    groups["loss/zero_shot"] = adam(rates.learning_rate)
  parts = []
  if method.renews:
    parts.append(training.ccp_projection(stats, first_weight=first_weight))
  parts += [
    optax.add_decayed_weights(rates.weight_decay, mask=_decayed),
    training.optimizer(groups, max_norm=10.0, max_value=10.0),
  ]
  if method.draws_proxies:
    parts.append(_head_first(rates.evaluate_every))
  return optax.chain(*parts)
