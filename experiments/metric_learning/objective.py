"""Network, loss, optimiser and measures of `retrieval` and `ccp_proxies`."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.typing import Collection, MutableCollection, VariableDict
from jax import Array
from jax.typing import ArrayLike

from experiments.frame import networks, poolings
from experiments.frame import training as frame_training
from experiments.metric_learning import methods
from experiments.metric_learning.methods import Method
from experiments.metric_learning.settings import Training
from spherejax import data, distances, losses, metrics, models, training

_Settings = TypeVar("_Settings", bound=Training)
MARGIN = 1e-5  # smallest improvement that counts
# Measures by their names in stored files.
NAMES = {"precision": "P@1", "r_precision": "P@R", "map_at_r": "MAP@R"}


def measures(
  points: np.ndarray, labels: np.ndarray, queries: np.ndarray | None = None
) -> dict[str, float]:
  """Retrieval measures of embeddings in the unit ball, over queries with a match.

  By default, each embedding is a query among all others. With the mask `queries`, these
  are queries, and the others are the gallery.
  """
  x = distances.unit_ball(jnp.asarray(points))
  if queries is None:
    result = metrics.retrieval(x, labels)
  else:
    result = metrics.retrieval(
      x[queries], labels[queries], x[~queries], labels[~queries]
    )
  values = (result.precision_at_1, result.r_precision, result.map_at_r)
  return {
    name: float(metrics.mean_where(value, result.counted))
    for name, value in zip(NAMES.values(), values, strict=True)
  }


def best_variables(ccp: training.CCPState) -> VariableDict:
  """The network's variables at the best evaluation of a problem."""
  stats = {"batch_stats": ccp.best_stats} if ccp.best_stats else {}
  return {"params": ccp.best_params["network"]} | stats


def check(
  settings: Training, method: Method, labels: np.ndarray, per_class: int, memory: int
) -> None:
  """Raises ValueError for settings that would end or spoil a training later.

  `per_class` is the number of images of a class in a batch, `memory` the size of the
  memory.
  """
  images, classes, count = len(labels), len({*labels}), settings.batch // per_class
  if count > classes:
    raise ValueError(
      f"a batch of {settings.batch} has {count} classes, but only {classes} are learned"
    )
  if method.refers_to_proxies and min(method.proxies, method.pool) < 1:
    raise ValueError(
      f"{method.name} needs at least one proxy and a pool of one image, got"
      f" {method.proxies} and {method.pool}"
    )
  if method.renews and settings.switch_patience < 1:
    raise ValueError(
      f"switch_patience must be at least 1, got {settings.switch_patience}"
    )
  # The published memory for SOP is slightly larger than three quarters of its images.
  if method.kind == "xbm" and memory > 1.25 * images:
    raise ValueError(
      f"a memory of {memory} embeddings is larger than the {images} images that are"
      " learned"
    )
  for name in ("learning_rate", "proxy_rate", "weight_decay"):
    if not math.isfinite(value := getattr(settings, name)):
      raise ValueError(f"{name} must be finite, got {value}")
  if not 0 <= settings.second_moment < 1:
    raise ValueError(f"second_moment must be in [0, 1), got {settings.second_moment}")


def _head_first(steps: int) -> optax.GradientTransformation:
  """Freezes the backbone for the first steps."""

  def backbone(params: VariableDict) -> dict[str, dict[str, bool]]:
    return {
      part: {name: name == "backbone" for name in tree} for part, tree in params.items()
    }

  learns = optax.scale_by_schedule(lambda taken: jnp.greater_equal(taken, steps))
  return optax.masked(learns, backbone)


def _is_decayed(path: jax.tree_util.KeyPath, _: Array) -> bool:
  """True for a parameter of the network, but not of its norms."""
  name = jax.tree_util.keystr(path, simple=True, separator="/")
  return name.startswith("network") and "norm" not in name.lower()


def optimizer(
  rates: Training,
  method: Method,
  stats: Collection | None = None,
  rate: ArrayLike = 1.0,
) -> optax.GradientTransformation:
  """Projection, weight decay, clipping, Adam: the order of the released code.

  `stats` are the network's initial statistics. If there is a projection, its state
  comes first. The proxies of proxy losses start at random and learn faster than the
  network; until the first evaluation, the backbone is frozen for them. `rate`
  multiplies every learning rate.
  """
  adam = functools.partial(optax.adam, b2=rates.second_moment)
  groups = {"network": adam(rates.learning_rate)}
  if method.learns_proxies:
    fast = rates.learning_rate * (rates.proxy_rate if method.own_proxies else 1)
    groups["loss/proxies"] = adam(fast)
  if rates.zero_shot:
    groups["loss/zero_shot"] = adam(rates.learning_rate)
  parts = []
  if method.renews:
    parts.append(training.ccp_projection(stats))
  decayed = functools.partial(jax.tree_util.tree_map_with_path, _is_decayed)
  parts += [
    optax.add_decayed_weights(rates.weight_decay, mask=decayed),
    training.optimizer(groups, max_norm=10.0, max_value=10.0),
  ]
  if method.own_proxies:
    parts.append(_head_first(rates.evaluate_every))
  parts.append(optax.scale(rate))
  return optax.chain(*parts)


class Run(Generic[_Settings]):
  """Fixed inputs of one kind of training, and its objective.

  `place` locates its images. In a batch, images at the end without labels represent the
  proxies.
  """

  embed: Callable[..., Array | np.ndarray]
  """Function of variables, rows, a key and the place of images to raw embeddings of
  training images, shifted or cropped at random, in inference mode. With `average`, all
  of the mass is pooled."""

  def __init__(
    self,
    settings: _Settings,
    method: Method,
    labels: np.ndarray,
    names: Sequence[str] = (),
  ):
    self.settings, self.method = settings, method
    # All folds have as many images per class, so one table serves all.
    self.table = data.class_table(labels, per_class=1, label_names=names)
    self.classes, self.images = len(self.table.counts), len(labels)

  def __call__(
    self, params, batch_stats, batch, *, key: Array, axis_name: str | None
  ) -> training.Outcome:
    """The loss with zero-shot prediction, and the updated statistics and memory."""
    del key  # images are already shifted
    settings, method, labels = self.settings, self.method, batch["label"]
    network = networks.Network(settings.architecture, axis_name)
    old_stats = batch_stats.get("network", {})
    outputs, network_stats = frame_training.forward(
      network, params["network"], old_stats, batch["image"]
    )
    points = outputs.embeddings
    x, anchors = points[: len(labels)], points[len(labels) :]
    stats = {"network": network_stats} if network_stats else {}
    mean = functools.partial(training.global_mean, axis_name=axis_name)
    remembered, remembers, memory_stats = self.remembered(
      batch_stats, x, labels, axis_name
    )
    gathered, gathered_labels, average = x, labels, mean
    if method.own_proxies:  # each device computes the loss of all rows
      gathered, gathered_labels = training.gather((x, labels), axis_name)
      average = jnp.mean
    value = methods.value(
      method, gathered, gathered_labels, params["loss"],
      self.references(anchors, params), remembered, remembers=remembers,
      axis_name=axis_name, average=average,
    )  # fmt: skip
    if share := settings.zero_shot:  # DML eq. 5.2.5
      module = models.ZeroShotPrediction(
        self.classes, settings.embedding_dim, axis_name=axis_name
      )
      attributes = jax.tree.map(lambda leaf: leaf[: len(labels)], outputs.attributes)
      label_embeddings = {"params": params["loss"]["zero_shot"]}
      unseen = cast(Array, module.apply(label_embeddings, attributes, labels))
      value = (1 - share) * value + share * mean(unseen.astype(jnp.float32))
    return training.Outcome(value, stats | memory_stats)

  def remembered(
    self,
    batch_stats: VariableDict,
    x: Array,
    labels: Array,
    axis_name: str | None = None,
  ) -> tuple[losses.References | None, Array | bool, dict[str, Collection]]:
    """Updates the memory: references, whether the loss uses them, the new statistics.

    The loss uses the memory once it was refilled after `memory_start` steps.
    """
    if self.method.kind != "xbm":
      return None, False, {}
    old, taken = batch_stats["loss"]["memory"], batch_stats["loss"]["taken"]
    memory, slots = losses.memory_update(old, x, labels, axis_name=axis_name)
    rows = len(x) * (jax.lax.axis_size(axis_name) if axis_name else 1)
    filled = self.settings.memory_start + -(-len(memory.labels) // rows)
    stats: dict[str, Collection] = {"loss": {"memory": memory, "taken": taken + 1}}
    return losses.memory_references(memory, slots=slots), taken >= filled, stats

  def references(
    self, anchors: Array, params: VariableDict
  ) -> losses.References | None:
    """Proxies, or images instead of them, as references for a batch."""
    if not self.method.refers_to_proxies:
      return None
    if self.method.kind != "samples":
      anchors = params["loss"]["proxies"].reshape(-1, self.settings.embedding_dim)
    labels = jnp.repeat(jnp.arange(self.classes), self.method.proxies)
    return losses.References(anchors, labels, jnp.ones(len(labels), bool), None)

  def loss_variables(
    self, loss_key: Array, label_key: Array, proxies: Array | None, memory: int
  ) -> dict[str, Collection]:
    """The loss's initial parameters, and a memory of `memory` embeddings if it has one.

    `proxies` are proxies that start as embeddings, or None.
    """
    settings, method, dim = self.settings, self.method, self.settings.embedding_dim
    params: MutableCollection = {}
    if method.own_proxies:
      params = methods.initial(method, loss_key, self.classes, dim)
    elif method.learns_proxies:
      params["proxies"] = proxies
    if settings.zero_shot:
      init = jax.jit(models.ZeroShotPrediction(self.classes, dim).init)
      attributes = jnp.full((2, settings.prototypes), 1 / settings.prototypes)
      params["zero_shot"] = init(label_key, attributes, jnp.arange(2))["params"]
    if method.kind != "xbm":
      return {"params": params}
    stats = {"memory": losses.memory_init(memory, dim), "taken": jnp.int32(0)}
    return {"params": params, "batch_stats": stats}

  def pool(
    self, variables: VariableDict, key: Array, *place: object
  ) -> tuple[Array, Array]:
    """Embeddings [classes, pool, dim] of some images of each class, and their rows."""
    row_key, move_key = jax.random.split(key)
    rows = data.class_pools(row_key, self.table, size=self.method.pool_size)
    points = self.embed(variables, rows.reshape(-1), move_key, *place)
    return jnp.asarray(points).reshape(*rows.shape, -1), rows

  def with_prototypes(
    self, variables: VariableDict, key: Array, *place: object
  ) -> VariableDict:
    """Sets the pooling's prototypes, chosen among averages of training images."""

    def pooled(params: Collection) -> Array | np.ndarray:
      row_key, move_key = jax.random.split(key)
      rows = jax.random.permutation(row_key, self.images)[: poolings.AVERAGED]
      current = {**variables, "params": params}
      return self.embed(current, rows, move_key, *place, average=True)

    recipe = networks.recipe(self.settings)
    params = poolings.with_prototypes(recipe, variables["params"], pooled)
    return {**variables, "params": params}
