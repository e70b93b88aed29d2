"""The synthetic token study: code that its experiment and its benchmark share.

Local features are tokens, learned points of the plane. Each class has its own tokens;
background tokens belong to all. A sample is a set of 50 tokens of both kinds. Its
embedding is their pooled vector, as if a network had computed them from an image.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.frame import training
from experiments.frame.training import Hyper, State
from spherejax import distances, losses, metrics, pooling, prototypes

CLASSES, OWN, SHARED = 16, 4, 4
TOKENS = 50  # tokens of a sample
BOX = 0.3  # tokens stay in [-BOX, BOX] (DML 5.3.1)
DIM = 2  # the paper's figure is planar; the dimension is not given
MEMORY = 1024  # pooled vectors to choose prototypes from


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the study."""

  prototypes: int = 64
  """Prototypes of the pooling; not given in the paper."""
  margin: float = 0.5
  """Distance beyond which two classes are ignored (C2); not given in the paper."""
  learning_rate: float = 1e-3
  """Learning rate of Adam; 1e-4 in the paper."""
  warm_up: int = 500
  """Steps of average pooling before the prototypes are chosen."""
  per_class: int = 4
  """Samples per class in a batch."""
  validation: int = 25
  """Fresh samples per class at an evaluation."""
  seed: int = 0
  """Seed of everything random."""
  seeds: int = 10
  """Runs of each variant."""
  steps: int = 6000
  """Largest number of training steps after the warm-up."""
  epoch: int = 100
  """Steps between two evaluations; not given in the paper."""
  patience: int = 30
  """Epochs without a better MAP@R before a run stops (DML 5.3.1)."""
  mass: float = 0.5
  """Share of the tokens that GSP keeps; not given in the paper."""
  inverse_temperature: float = 20.0
  """Inverse temperature of the pooling; not given in the paper."""
  linear_program: bool = True
  """Also trains with the limit of infinite inverse temperature."""
  test: int = 100
  """Fresh samples per class for the test."""


class Params(NamedTuple):
  """Learned parameters."""

  own: Array  # [classes, 4, 2]
  shared: Array  # [4, 2]
  prototypes: Array  # [prototypes, 2]


class Samples(NamedTuple):
  """Samples, with the tokens that they consist of."""

  labels: Array  # [batch]
  kinds: Array  # [batch, 50, 8], one-hot: 4 of the class, 4 of the background
  share: Array  # [batch], of the class's tokens


class Pooled(NamedTuple):
  """Embeddings, and the pooling weight of every token of every sample."""

  embeddings: Array  # [batch, 2]
  weights: Array  # [batch, 50]


Pool = Callable[[Params, Samples, Hyper], Pooled]


def draw_samples(key: Array, per_class: int) -> Samples:
  """Samples with a share of class tokens from N(0.5, 0.1), others background."""
  share_key, kind_key = jax.random.split(key)
  labels = jnp.repeat(jnp.arange(CLASSES), per_class)
  share = 0.5 + 0.1 * jax.random.normal(share_key, labels.shape)
  number = jnp.clip(jnp.round(TOKENS * share), 1, TOKENS - 1)
  kinds = jax.random.randint(kind_key, (len(labels), TOKENS), 0, OWN)
  is_own = jnp.arange(TOKENS)[None] < number[:, None]
  one_hot = jax.nn.one_hot(jnp.where(is_own, kinds, OWN + kinds), OWN + SHARED)
  return Samples(labels, one_hot, number / TOKENS)


def of_class(class_tokens: Array, shared: Array) -> Array:
  """Joins the 8 tokens per class: [classes, 4, ...], [4, ...] -> [classes, 8, ...]."""
  shared = jnp.broadcast_to(shared[None], (CLASSES, *shared.shape))
  return jnp.concatenate([class_tokens, shared], axis=1)


def features_of(params: Params, samples: Samples) -> Array:
  """The tokens of each sample as points, [batch, 50, 2]."""
  table = of_class(params.own, params.shared)
  return jnp.einsum("bnk,bkd->bnd", samples.kinds, table[samples.labels])


def token_costs(params: Params, soft_min: Callable[[Array], Array]) -> Array:
  """Cost of each class's 8 tokens, combined over all prototypes, [classes, 8]."""

  def cost(tokens: Array) -> Array:
    rows = distances.unit_ball(tokens.reshape(-1, DIM))
    costs = distances.pairwise_euclidean(distances.unit_ball(params.prototypes), rows)
    return soft_min(costs).reshape(tokens.shape[:-1])

  return of_class(cost(params.own), cost(params.shared))


def embed(params: Params, samples: Samples, hyper: Hyper) -> Pooled:
  """Generalized sum pooling; no normalisation (DML 5.3.1).

  If `hyper["true_share"]` is 1, the mass is each sample's share of class tokens; if it
  is 0, the mass is `hyper["mass"]`. Weights depend on the prototypes only through

      -1/b log sum_i exp(-b c_ij)

  which acts as the cost to a single prototype. It is computed once for each of the 68
  tokens instead of for each of the 50 x batch features; `pooling.gsp` of the features
  gives the same result.
  """
  sharpness = hyper["inverse_temperature"]
  table = token_costs(
    params, lambda c: -jax.nn.logsumexp(-sharpness * c, axis=0) / sharpness
  )
  true_share = hyper["true_share"]
  mass = true_share * samples.share + (1 - true_share) * hyper["mass"]
  weights = pooling.gsp_weights(
    per_position(table, samples), mass=mass, inverse_temperature=sharpness
  )
  return pooled_by(weights, params, samples)


def embed_by_linear_program(params: Params, samples: Samples, hyper: Hyper) -> Pooled:
  """`embed` in the limit of infinite inverse temperature, with the least cost."""
  costs = per_position(token_costs(params, lambda c: c.min(axis=0)), samples)
  weights = pooling.gsp_linear_program(costs, mass=hyper["mass"])
  return pooled_by(weights, params, samples)


def per_position(table: Array, samples: Samples) -> Array:
  """Costs of positions [batch, 1, 50] from the costs of tokens [classes, 8]."""
  return jnp.einsum("bnk,bk->bn", samples.kinds, table[samples.labels])[:, None]


def pooled_by(weights: Array, params: Params, samples: Samples) -> Pooled:
  """Returns the weighted sum of the features, with the weights."""
  pooled = jnp.einsum("bn,bnd->bd", weights, features_of(params, samples))
  return Pooled(pooled, weights)


def average(params: Params, samples: Samples) -> Array:
  """Average pooling, for the warm-up."""
  return pooling.gap(features_of(params, samples))


def update(
  config: Config, state: State, key: Array, pool: Callable[[Params, Samples], Array]
) -> tuple[State, Array]:
  """Runs one Adam step on the contrastive loss of a batch pooled by `pool`."""
  samples = draw_samples(key, config.per_class)

  def objective(params: Params) -> Array:
    z, labels = pool(params, samples), samples.labels
    return losses.contrastive(
      z, labels, negative_margin=config.margin, normalize="none"
    ).mean()

  optimizer = optax.adam(config.learning_rate)
  loss, params, opt_state = training.descend(objective, optimizer, *state)
  params = jax.tree.map(lambda x: jnp.clip(x, -BOX, BOX), params)
  return State(params, opt_state), loss


def init(config: Config, key: Array, hyper: Hyper) -> State:
  """Warms up the tokens; chooses prototypes among pooled vectors (DML Algorithm 2)."""
  del hyper  # all variants of a seed begin alike
  token_key, step_key, memory_key = jax.random.split(key, 3)
  points = jax.random.uniform(
    token_key, (CLASSES * OWN + SHARED, DIM), minval=-BOX, maxval=BOX
  )
  class_tokens, shared = jnp.split(points, [CLASSES * OWN])
  none = jnp.zeros((config.prototypes, DIM))
  params = Params(class_tokens.reshape(CLASSES, OWN, DIM), shared, none)
  state = State(params, optax.adam(config.learning_rate).init(params))  # pyright: ignore[reportArgumentType]
  state, _ = jax.lax.scan(
    lambda state, key: update(config, state, key, average),
    state,
    jax.random.split(step_key, config.warm_up),
  )
  memory = average(state.params, draw_samples(memory_key, MEMORY // CLASSES))
  rows = prototypes.greedy_k_centre(memory, config.prototypes).indices
  return state._replace(params=state.params._replace(prototypes=memory[rows]))


def step(
  config: Config, pool: Pool, state: State, key: Array, hyper: Hyper
) -> tuple[State, dict[str, Array]]:
  state, loss = update(
    config, state, key, lambda params, samples: pool(params, samples, hyper).embeddings
  )
  return state, {"loss": loss}


def evaluate(
  config: Config, pool: Pool, state: State, key: Array, hyper: Hyper
) -> Array:
  """MAP@R among fresh samples of the same classes."""
  samples = draw_samples(key, config.validation)
  return map_at_r(pool(state.params, samples, hyper).embeddings, config.validation)


def map_at_r(embeddings: Array, per_class: int) -> Array:
  """MAP@R of embeddings ordered by class."""
  labels = np.repeat(np.arange(CLASSES), per_class)  # constant in the compiled program
  return metrics.retrieval(embeddings, labels).map_at_r.mean()
