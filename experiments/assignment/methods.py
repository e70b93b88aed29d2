"""DL2P and its baselines as numbers, so that one program trains all of them.

Every method has a matrix of prototypes, one row per class, and an assignment of the
classes to its rows. Methods differ in whether the rows are learned, whether the
assignment is matched again, and the loss.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Collection, VariableDict
from jax import Array

from spherejax import data, distances, hierarchy, losses, prototypes, training

# Matchings per epoch of a method that never matches again.
NEVER = 1e-9
Stats = Collection | None  # statistics of a network; None if it has none


class Method(NamedTuple):
  """The numbers of one method; all but `uniformity` and `updates` are switches."""

  softmax: float = 0.0  # 1 for cross-entropy, 0 for the pull loss
  learned: float = 0.0  # 1 if the prototypes have a gradient
  on_sphere: float = 1.0  # 1 if logits are cosines, 0 if they are products
  scale: float = 1.0  # factor of the logits under cross-entropy, of the loss under pull
  uniformity: float = 0.0  # weight of the Gaussian potential of learned prototypes
  updates: float = NEVER  # matchings per epoch
  shuffled: float = 1.0  # 1 for a random first assignment, 0 for row k to class k
  weighted: float = 0.0  # 1 to give every class of a batch equal weight


class Recipe(NamedTuple):
  """A method and where its prototypes come from."""

  method: Method
  source: str


LEARNED, LEARNED_BEFORE, VECTORS = "learned", "learned before", "vectors"
UNIFORM, SIMPLEX, HPN, SEMANTIC_HPN = "uniform", "simplex", "hpn", "semantic hpn"
# Sources that take vectors of the classes' names.
FROM_NAMES = (SEMANTIC_HPN, VECTORS)
# PSC is a softmax over learned prototypes. In "PSC, cosine", logits are cosines without
# a temperature, as in DL2P's section 3 and the released code, which divide all rows by
# their norms. "PSC, linear" has products as logits, like PSC elsewhere, but no biases.
_COSINE = Method(softmax=1.0, learned=1.0, shuffled=0.0)
# rho of maximum separation is 0.1 (Kasarla et al. 2022); HPN has twice the pull loss.
RECIPES = {
  "PSC, cosine": Recipe(_COSINE, LEARNED),
  "PSC, linear": Recipe(_COSINE._replace(on_sphere=0.0), LEARNED),
  "PSC*": Recipe(_COSINE._replace(uniformity=1.0), LEARNED),
  "Word2Vec-like": Recipe(Method(scale=2.0, shuffled=0.0), VECTORS),
  "HPN": Recipe(Method(scale=2.0), HPN),
  "HPN + semantics": Recipe(Method(scale=2.0, shuffled=0.0), SEMANTIC_HPN),
  "ETF": Recipe(Method(), SIMPLEX),
  "maximum separation": Recipe(Method(softmax=1.0, on_sphere=0.0, scale=0.1), SIMPLEX),
  "Fixed + CE": Recipe(Method(softmax=1.0), UNIFORM),
  "Static": Recipe(Method(), UNIFORM),
  "Ours*": Recipe(Method(updates=1.0), LEARNED_BEFORE),
  "DL2P": Recipe(Method(updates=1.0), UNIFORM),
}
# Methods of the small trainings: in every dimension, and only where a simplex exists.
EVERYWHERE = ("PSC, cosine", "PSC, linear", "Fixed + CE", "Static", "DL2P")
SMALL = (*EVERYWHERE, "Word2Vec-like", "HPN", "ETF", "maximum separation")


def word_vectors(tree: hierarchy.ClassTree, key: Array) -> Array:
  """Vectors [classes, 300] of a random walk down the class tree.

  They stand in for word vectors: vectors of related classes are near but differ.
  """
  steps = jax.random.normal(key, (len(tree.names), 300))
  return jnp.asarray(hierarchy.ancestors(tree), steps.dtype) @ steps


def fixed_set(
  source: str,
  key: Array,
  classes: int,
  dim: int,
  vectors: Array | None = None,
  *,
  potential: bool = False,
) -> Array:
  """The fixed prototypes [classes, dim] of one source.

  Uniform prototypes are the best known ones, or with `potential` those of least
  Gaussian potential, as in the paper.
  """
  if source == UNIFORM and potential:
    return prototypes.gaussian_potential_prototypes(key, classes, dim)
  if source == UNIFORM:
    return prototypes.uniform_prototypes(key, classes, dim).prototypes
  if source == SIMPLEX:
    return prototypes.simplex(key, classes, dim)
  if source == HPN:
    return prototypes.hpn_prototypes(key, classes, dim)
  if source == SEMANTIC_HPN and vectors is not None:
    return prototypes.hpn_prototypes(key, classes, dim, vectors=vectors)
  if source == VECTORS and vectors is not None:
    return prototypes.vector_prototypes(vectors, dim)
  raise ValueError(f"no fixed prototypes have the source {source!r}")


def first_matching(
  key: Array, points: Array, *, used: Array | None = None, shuffled: Array | float = 1.0
) -> prototypes.AssignmentState:
  """Random representatives and a random assignment, or that of row k to class k.

  A matching with random representatives would be a random permutation; drawing one
  directly compiles faster. `used` [dim] is 0 for a dimension that is not in use.
  """
  classes, dim = points.shape
  key, order = jax.random.split(key)
  moving = prototypes.ema_init(key, classes, dim)
  rows = moving.prototypes
  if used is not None:
    rows = distances.l2_normalize(rows * used[None])
  numbers = jnp.arange(classes)
  permutation = jax.random.permutation(order, numbers)
  return prototypes.AssignmentState(
    moving._replace(prototypes=rows),
    prototypes.class_sums_init(classes, dim),
    jnp.where(shuffled > 0, permutation, numbers),
    jnp.zeros(classes),
    jnp.zeros(()),
  )


def losses_of(
  method: Method,
  embeddings: Array,
  points: Array,
  assignment: Array,
  targets: Array,
  weights: Array,
) -> Array:
  """Loss of each example [batch], for targets [batch, classes].

  `weights` [classes] apply only if the method is weighted.
  """
  points = jnp.where(method.learned > 0, points, jax.lax.stop_gradient(points))
  assigned = points[assignment]
  weights = jnp.where(method.weighted > 0, weights, 1.0)
  cosines = distances.pairwise_cosine(embeddings, assigned)
  pull = method.scale * losses.pull(cosines, targets, weights=weights)
  logits = jnp.where(method.on_sphere > 0, cosines, embeddings @ assigned.T)
  entropy = losses.softmax(method.scale * logits, targets * weights[None])
  return jnp.where(method.softmax > 0, entropy, pull)


def embed(network: nn.Module, variables: VariableDict, *inputs: Array) -> Array:
  """Embeddings by a network whose statistics stay the same."""
  return cast(Array, network.apply(variables, *inputs))


def predict(
  method: Method, embeddings: Array, points: Array, assignment: Array
) -> Array:
  """The class with the largest logit, for each embedding."""
  on_sphere = distances.l2_normalize(points)
  points = jnp.where(method.on_sphere > 0, on_sphere, points)
  return jnp.argmax(embeddings @ points[assignment].T, axis=1)


def classify(
  method: Method, network: nn.Module, state: training.TrainState, *inputs: Array
) -> Array:
  """The class that a trained network predicts, for each input."""
  embeddings = embed(network, state.variables(), *inputs)
  assignment = state.batch_stats["loss"]["assignment"].assignment
  return predict(method, embeddings, state.params["loss"]["points"], assignment)


def objective(
  params: Collection,
  stats: Collection,
  batch: dict[str, Array],
  *,
  key: Array,
  axis_name: str | None,
  prepare: Callable[[Array, Array], Array],
  network: Callable[[Collection, Stats, Array, Array], tuple[Array, Stats]],
  method: Method,
  mixup: float | None = None,
  skip_mixed: bool = False,
  total: bool = False,
) -> training.Outcome:
  """Loss of one step of Algorithm 1; `training.reassign` adds the matching.

  `prepare(key, images)` augments; `network(params, stats, images, key)` returns
  embeddings and its new statistics. `total` sums over the batch instead of taking the
  mean. A mixed embedding moves the representative of its first label, as in the
  authors' implementation, unless `skip_mixed`.
  """
  augment_key, mixup_key, network_key = jax.random.split(key, 3)
  labels, matching = batch["label"], stats["loss"]["assignment"]
  points = params["loss"]["points"]
  inputs = prepare(augment_key, batch["image"])
  targets = jax.nn.one_hot(labels, len(matching.assignment))
  if mixup is not None:
    inputs, targets = data.mixup(mixup_key, inputs, targets, alpha=mixup)
  embeddings, network_stats = network(
    params["network"], stats.get("network"), inputs, network_key
  )
  weights = losses.inverse_frequency_weights(
    labels, len(matching.assignment), axis_name=axis_name
  )
  values = losses_of(method, embeddings, points, matching.assignment, targets, weights)
  loss = training.global_mean(values, axis_name=axis_name)
  if total:
    devices = 1 if axis_name is None else jax.lax.axis_size(axis_name)
    loss *= len(labels) * devices
  loss += method.uniformity * prototypes.gaussian_potential(points)
  label_weights = jnp.take_along_axis(targets, labels[:, None], axis=1)[:, 0]
  unmixed = label_weights > 1 - 1e-6 if skip_mixed else None  # 1 up to rounding
  ema = prototypes.ema_update(
    matching.representatives, embeddings, labels, where=unmixed, axis_name=axis_name
  )
  new_stats: dict[str, Collection] = {
    "loss": {"assignment": matching._replace(representatives=ema)}
  }
  if network_stats is not None:
    new_stats["network"] = network_stats
  return training.Outcome(loss, new_stats, {"change": matching.change})
