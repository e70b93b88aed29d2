"""Training a pooling head on frozen maps: what the screening varies, written once.

The maps come from one network. What is learned is the 1x1 convolution, the prototypes
and the label embeddings of zero-shot prediction.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from spherejax import data, distances, losses, metrics, models, pooling, prototypes


@dataclasses.dataclass(frozen=True)
class Head:
  """What is the same in all runs of a sweep."""

  prototypes: int
  dim: int
  classes: int
  per_class: int
  margin: float
  learning_rate: float


class Params(NamedTuple):
  """What is learned."""

  kernel: Array  # [channels, dim]
  prototypes: Array  # [prototypes, dim]
  zero_shot: Any  # label embeddings


class State(NamedTuple):
  """One training."""

  params: Params
  opt_state: Any
  number: Array  # steps taken, which names the batch


class Maps(NamedTuple):
  """Feature maps of labelled collages, and the rows of each class."""

  features: Array  # [count, positions, channels]
  labels: Array  # [count]
  table: data.ClassTable


def make_maps(features: np.ndarray, labels: np.ndarray, per_class: int) -> Maps:
  """Maps with their positions in one axis."""
  flat = jnp.asarray(features).reshape(len(features), -1, features.shape[-1])
  return Maps(flat, jnp.asarray(labels), data.class_table(labels, per_class=per_class))


def pool(kernel: Array, vectors: Array, features: Array, hyper) -> pooling.GSPResult:
  """Generalized sum pooling of the projected maps."""
  return pooling.gsp(
    jnp.einsum("bnc,cd->bnd", features, kernel),
    vectors,
    mass=hyper["mass"],
    inverse_temperature=hyper["inverse_temperature"],
  )


def init(head: Head, maps: Maps, key: Array, hyper) -> State:
  """A drawn projection, and prototypes among its averages (DML Algorithm 2)."""
  del hyper  # all cells of a seed begin alike
  kernel_key, row_key, label_key = jax.random.split(key, 3)
  channels = maps.features.shape[-1]
  kernel = jax.nn.initializers.lecun_normal()(kernel_key, (channels, head.dim))
  rows = jax.random.permutation(row_key, len(maps.labels))[:1024]
  averages = distances.unit_ball(pooling.gap(maps.features[rows]) @ kernel)
  chosen = averages[prototypes.greedy_k_centre(averages, head.prototypes).indices]
  even = jnp.ones((2, head.prototypes)) / head.prototypes
  zero_shot = models.ZeroShotPrediction(head.classes, head.dim)
  learned: Any = zero_shot.init(label_key, even, jnp.arange(2))
  params = Params(kernel, chosen, learned)
  optimizer = optax.adam(head.learning_rate)
  return State(params, optimizer.init(params), jnp.int32(0))  # pyright: ignore[reportArgumentType]


def step(head: Head, maps: Maps, state: State, key: Array, hyper):
  """One step on a mixture of C2 and zero-shot prediction (DML eq. 5.2.5)."""
  rows = data.class_balanced_indices(
    key,
    maps.table,
    state.number,
    num_classes=head.classes,
    per_class=head.per_class,
  )
  features, labels = maps.features[rows], maps.labels[rows]

  def objective(params: Params):
    result = pool(params.kernel, params.prototypes, features, hyper)
    embeddings = distances.l2_normalize(result.pooled)
    pairs = losses.contrastive(embeddings, labels, negative_margin=head.margin)
    zero_shot = models.ZeroShotPrediction(head.classes, head.dim)
    unseen: Any = zero_shot.apply(params.zero_shot, result.attributes, labels)
    weight = hyper["zero_shot_weight"]
    average = pooling.gap(features) @ params.kernel
    apart = jnp.abs(result.pooled - average).max()
    return (1 - weight) * pairs.mean() + weight * unseen.mean(), apart

  (loss, apart), grads = jax.value_and_grad(objective, has_aux=True)(state.params)
  updates, opt_state = optax.adam(head.learning_rate).update(grads, state.opt_state)
  params: Any = optax.apply_updates(state.params, updates)
  reported = {"loss": loss, "distance to the average": apart}
  return State(params, opt_state, state.number + 1), reported


def evaluate(labels: tuple[int, ...], features: Array, state: State, key, hyper):
  """MAP@R among the validation collages."""
  del key  # always the same collages
  params = state.params
  pooled = pool(params.kernel, params.prototypes, features, hyper).pooled
  embeddings = distances.l2_normalize(pooled)
  result = metrics.retrieval(embeddings, np.array(labels))
  return metrics.mean_where(result.map_at_r, result.counted)


def functions(head: Head, train: Maps, validation: Maps) -> tuple:
  """The three functions of a sweep, with the maps bound as operands."""
  bound = jax.tree_util.Partial
  labels = tuple(np.asarray(validation.labels).tolist())
  return (
    bound(functools.partial(init, head), train),
    bound(functools.partial(step, head), train),
    bound(functools.partial(evaluate, labels), validation.features),
  )
