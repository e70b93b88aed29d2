"""Trains one run of `retrieval` or `ccp_proxies` on images in memory, for vmap."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax.typing import Collection, VariableDict
from jax import Array

from experiments.frame import networks
from experiments.frame.training import Hyper
from experiments.metric_learning import objective
from experiments.metric_learning.images import Study
from experiments.metric_learning.methods import Method
from experiments.metric_learning.settings import Settings
from spherejax import data, distances, metrics, prototypes, training

_Renewed = tuple[Collection, Array, dict[str, Array]]
_COVERED = 1200  # largest number of training images whose cover is measured


class State(NamedTuple):
  """State of one run."""

  train: training.TrainState
  rows: Array  # [classes, proxies], images from which the proxies started
  score: Array  # score of the last evaluation
  first_spread: Array  # spread of the proxies before the first step


class Data(NamedTuple):
  """Arrays on the device."""

  images: Array
  train: Array  # [folds, rows], like `held` and `test`
  held: Array
  test: Array


def on_device(study: Study) -> Data:
  """Moves images to the device, with the rows that train and validate."""
  return Data(*map(jnp.asarray, (study.images, *study[:3])))


def of_fold(rows: Array, hyper: Hyper) -> Array:
  """Selects the rows of the run's fold."""
  return rows[hyper["fold"].astype(int)]


class Run(objective.Run[Settings]):
  """The pure functions of one kind of training; `fold` and `weight` are traced."""

  def __init__(self, settings: Settings, method: Method, study: Study):
    super().__init__(settings, method, study.train_labels)
    self.study = study

  def run_key(self, key: Array, hyper: Hyper) -> Array:
    """The key of a run; if each fold belongs to a seed, it depends on the fold."""
    if not self.study.by_seed:
      return key
    return jax.random.fold_in(key, hyper["fold"].astype(int))

  def apply(self, variables: VariableDict, images: Array) -> Array:
    """Raw embeddings with the running statistics."""
    return networks.Model(self.settings, variables).embed_blocks(images)

  def augmented(self, key: Array, images: Array) -> Array:
    """Shifts training images at random."""
    if not self.settings.shift:
      return images
    return data.random_crop(key, images, padding=self.settings.shift)

  def embed(
    self,
    variables: VariableDict,
    rows: Array,
    key: Array,
    arrays: Data,
    hyper: Hyper,
    *,
    average: bool = False,
  ) -> Array:
    settings = self.settings
    settings = dataclasses.replace(settings, mass=1.0) if average else settings
    images = self.augmented(key, arrays.images[of_fold(arrays.train, hyper)[rows]])
    return networks.Model(settings, variables).embed_blocks(images)

  def picked(self, points: Array, rows: Array, old: Array) -> tuple[Array, Array]:
    """Picks the pool's points that become the new proxies; returns their rows, too."""
    choose = functools.partial(prototypes.greedy_k_centre, k=self.method.proxies)
    picks = jax.vmap(lambda x, y: choose(x, initial=y).indices)(points, old)
    new = jnp.take_along_axis(points, picks[..., None], axis=1)
    return new, jnp.take_along_axis(rows, picks, axis=1)

  def init(self, arrays: Data, key: Array, hyper: Hyper) -> State:
    """Draws the network and picks the first proxies."""
    key = self.run_key(key, hyper)
    network_key, loss_key, first_key, pool_key = jax.random.split(key, 4)
    network = networks.initial_variables(network_key, self.settings)
    extra_key = functools.partial(jax.random.fold_in, key)
    network = self.with_prototypes(network, extra_key(0), arrays, hyper)
    rows = jnp.zeros((self.classes, max(self.method.proxies, 1)), jnp.int32)
    proxies = None
    if self.method.refers_to_proxies:
      first, _ = self.pool(network, first_key, arrays, hyper)
      points, pool_rows = self.pool(network, pool_key, arrays, hyper)
      first = first[:, : self.method.proxies]
      proxies, rows = self.picked(points, pool_rows, first)
    memory = max(self.method.memory * self.classes, self.settings.batch)
    loss = self.loss_variables(loss_key, extra_key(1), proxies, memory)
    stats = network.get("batch_stats")
    optimizer = objective.optimizer(self.settings, self.method, stats)
    state = training.create_state(key, optimizer, network, loss)  # steps draw nothing
    spread = jnp.float32(0) if proxies is None else _spread(proxies)
    return State(state, rows, jnp.float32(0), spread)

  def batch(
    self, arrays: Data, hyper: Hyper, rows: Array, key: Array
  ) -> dict[str, Array]:
    """Training images of some classes; "samples" appends the images of `rows`."""
    batch_key, shift_key = jax.random.split(key)
    per_class = 1 if self.method.own_proxies else self.settings.per_class
    classes = self.settings.batch // per_class
    batch_rows = data.class_balanced_indices(
      batch_key, self.table, 0, num_classes=classes, per_class=per_class
    )
    train = of_fold(arrays.train, hyper)
    images = self.augmented(shift_key, arrays.images[train[batch_rows]])
    if self.method.kind == "samples":
      images = jnp.concatenate([images, arrays.images[train[rows.reshape(-1)]]])
    return {"image": images, "label": jnp.asarray(self.study.train_labels)[batch_rows]}

  def evaluated(self, arrays: Data, hyper: Hyper, state: State) -> dict[str, Array]:
    """MAP@R of the validation images, with spread and cover of the proxies."""
    held = arrays.images[of_fold(arrays.held, hyper)]
    network = state.train.variables()
    points = distances.unit_ball(self.apply(network, held))
    result = metrics.retrieval(points, self.study.held_labels)
    figures = {"score": metrics.mean_where(result.map_at_r, result.counted)}
    proxies = state.train.params["loss"].get("proxies")
    if proxies is not None and self.method.kind in ("ccp", "proxy"):
      figures["spread"] = _spread(proxies)
    if self.study.watched and self.method.refers_to_proxies:
      figures |= self.covers(arrays, hyper, state, points)
    return figures

  def covers(
    self, arrays: Data, hyper: Hyper, state: State, held: Array
  ) -> dict[str, Array]:
    """Covering radius of the proxies, and width of classes relative to separation."""
    stride = max(1, len(self.study.train_labels) // _COVERED)
    labels = self.study.train_labels[::stride]
    images = arrays.images[of_fold(arrays.train, hyper)[::stride]]
    network, loss = state.train.variables(), state.train.params["loss"]
    points = distances.unit_ball(self.apply(network, images))
    proxies = distances.unit_ball(
      self.representatives(network, loss, state.rows, arrays, hyper)
    )
    radii = prototypes.class_covering_radii(points, labels, proxies)
    wide = prototypes.mean_covering_radius(held, self.study.held_labels)
    distance = metrics.mean_interclass_distance(held, self.study.held_labels)
    return {"radius": jnp.mean(radii), "cover": wide / distance}

  def representatives(
    self,
    network: VariableDict,
    loss: Collection,
    rows: Array,
    arrays: Data,
    hyper: Hyper,
  ) -> Array:
    """Proxies [classes, proxies, dim], or embeddings of the images in their place."""
    if self.method.kind != "samples":
      return loss["proxies"]
    images = arrays.images[of_fold(arrays.train, hyper)[rows.reshape(-1)]]
    return self.apply(network, images).reshape(*rows.shape, -1)

  def switched(
    self, arrays: Data, hyper: Hyper, state: State, key: Array
  ) -> tuple[State, dict[str, Array]]:
    """Starts the next problem after an evaluation, if the current one has ended."""
    if not self.method.renews:
      return state, {}
    train = state.train
    ccp, *other_states = train.opt_state
    turn = training.ccp_observe(
      ccp,
      train.params,
      state.score,
      weight=hyper["weight"],
      patience=self.settings.switch_patience,
      batch_stats=train.batch_stats.get("network", {}),
    )
    stats = {"network": turn.batch_stats} if turn.batch_stats else {}
    anchor_shift = optax.tree.norm(optax.tree.sub(turn.state.anchor, ccp.anchor))
    nothing = {"greedy": jnp.float32(0), "random": jnp.float32(0)}

    def renew(value: _Renewed) -> _Renewed:
      loss, rows, _ = value
      pool_key, random_key = jax.random.split(key)
      best = objective.best_variables(turn.state)
      points, pool_rows = self.pool(best, pool_key, arrays, hyper)
      old_proxies = self.representatives(best, loss, rows, arrays, hyper)
      new_proxies, new_rows = self.picked(points, pool_rows, old_proxies)
      order = jax.random.permutation(random_key, points.shape[1])
      random_centres = points[:, order[: self.method.proxies]]
      radii = {
        name: jnp.mean(jax.vmap(prototypes.covering_radius)(points, centres))
        for name, centres in (("greedy", new_proxies), ("random", random_centres))
      }
      loss = {**loss, "proxies": new_proxies} if self.method.learns_proxies else loss
      return loss, new_rows, radii

    value: _Renewed = (turn.params["loss"], state.rows, nothing)
    loss, rows, radii = training.when(turn.switched, renew, value)
    train = train.replace(
      params={**turn.params, "loss": loss},
      opt_state=(turn.state, *other_states),
      batch_stats=train.batch_stats | stats,
    )
    figures = {"problem": turn.state.problem - turn.switched, "moved": anchor_shift}
    return state._replace(train=train, rows=rows), figures | radii

  def steps(
    self, arrays: Data, state: State, key: Array, hyper: Hyper
  ) -> tuple[State, Array]:
    """Trains up to the next evaluation; returns the mean loss."""
    optimizer = objective.optimizer(self.settings, self.method, rate=hyper["rate"])
    step = training.make_step(self, optimizer)
    train, reported = jax.lax.scan(
      lambda train, key: step(train, self.batch(arrays, hyper, state.rows, key)),
      state.train,
      jax.random.split(key, self.settings.evaluate_every),
    )
    return state._replace(train=train), jnp.mean(reported["loss"])

  def period(
    self, arrays: Data, state: State, key: Array, hyper: Hyper
  ) -> tuple[State, dict[str, Array]]:
    """Trains up to the next evaluation, evaluates, and switches problems if needed."""
    step_key, switch_key = jax.random.split(self.run_key(key, hyper))
    state, loss = self.steps(arrays, state, step_key, hyper)
    figures = self.evaluated(arrays, hyper, state)
    state = state._replace(score=figures["score"])
    state, problem = self.switched(arrays, hyper, state, switch_key)
    return state, {"loss": loss, **figures, **problem}


def _spread(proxies: Array) -> Array:
  if proxies.shape[1] < 2:
    return jnp.float32(0)
  return prototypes.proxy_spread(distances.unit_ball(proxies))
