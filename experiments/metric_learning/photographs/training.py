"""Trains one method of `retrieval` on photographs, on all devices.

The train state holds everything that changes between steps, such as the
chance-constrained problem and the memory of earlier batches. A killed run therefore
resumes inside its problem with the same bits.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.typing import Collection, VariableDict
from jax import Array
from optax import contrib

from experiments.frame import kept, networks, results
from experiments.metric_learning import objective
from experiments.metric_learning.methods import Method
from experiments.metric_learning.photographs import batches, protocols
from experiments.metric_learning.photographs.methods import FullConfig
from spherejax import data, prototypes, training

_MARGIN = 100 * objective.MARGIN  # figures are percent


class Run(objective.Run[FullConfig]):
  """Fixed inputs of one training."""

  def __init__(
    self,
    settings: FullConfig,
    method: Method,
    pictures: data.Images,
    renewal_key: Array,
  ):
    super().__init__(settings, method, pictures.labels, pictures.label_names)
    self.pictures, self.renewal_key = pictures, renewal_key

  def embed(
    self, variables: VariableDict, rows: Array, key: Array, *, average: bool = False
  ) -> np.ndarray:
    settings = self.settings
    images = batches.augmented(settings, self.pictures, np.asarray(rows), key)
    settings = dataclasses.replace(settings, mass=1.0) if average else settings
    return batches.embed(settings, variables, images)

  def renew(self, state: training.TrainState) -> Collection:
    """The loss's parameters for a new problem."""
    best = objective.best_variables(training.ccp_state(state))
    key = jax.random.fold_in(self.renewal_key, state.step)
    loss = state.params["loss"]
    new = prototypes.renew_proxies(self.pool(best, key)[0], loss["proxies"])
    return {**loss, "proxies": new}

  def start(self, key: Array, fresh: bool) -> training.TrainState:
    """Initial state; only its shapes are right unless the training is fresh."""
    settings, method = self.settings, self.method
    network_key, loss_key, pool_key, label_key, step_key = jax.random.split(key, 5)
    variables = networks.initial_variables(network_key, settings.architecture)
    pool_key, prototype_key = jax.random.split(pool_key)
    if fresh:
      variables = self.with_prototypes(variables, prototype_key)
    proxies = jnp.zeros((self.classes, method.proxies, settings.embedding_dim))
    if method.refers_to_proxies and fresh:  # they cover a pool better than random ones
      random_key, pool_key = jax.random.split(pool_key)
      first = self.pool(variables, random_key)[0][:, : method.proxies]
      proxies = prototypes.renew_proxies(self.pool(variables, pool_key)[0], first)
    loss = self.loss_variables(loss_key, label_key, proxies, settings.places)
    # The projection keeps statistics beside the best weights.
    chain = objective.optimizer(settings, method, variables.get("batch_stats"))
    return training.create_state(step_key, chain, variables, loss)


def log(path: pathlib.Path, figures: Mapping[str, float]) -> None:
  """Adds an evaluation to a file; replaces evaluations of this step and later ones.

  These are from a stopped run, which evaluates them again.
  """
  if jax.process_index() != 0:
    return
  earlier = []
  if path.is_file():
    record = kept.read_record(path, "evaluations", remedy="delete it")
    earlier = [row for row in record["evaluations"] if row["step"] < figures["step"]]
  results.write_json(results.standard({"evaluations": [*earlier, figures]}), path)


def check(settings: FullConfig, method: Method, pictures: data.Images) -> None:
  """Raises ValueError for settings that would end or spoil a training later."""
  for name in ("evaluate_every", "checkpoint_every", "evaluation_batch", "prefetch"):
    if (value := getattr(settings, name)) < 1:
      raise ValueError(f"{name} must be at least 1, got {value}")
  batch, per_class, places = settings.batch, settings.per_class, settings.places
  if batch % per_class or batch < 2 * per_class:
    raise ValueError(
      f"batch must be several classes of {per_class} images, got {batch}"
    )
  if 0 < settings.shorter_side < settings.image_size:
    raise ValueError(
      f"shorter_side must be at least image_size = {settings.image_size}, or 0, got"
      f" {settings.shorter_side}"
    )
  objective.check(settings, method, pictures.labels, per_class, places)
  if method.kind == "xbm" and places < batch:
    raise ValueError(f"a memory must hold the {batch} images of a batch, got {places}")


def monitor(settings: FullConfig) -> training.Monitor:
  """Monitor that picks the best evaluation and lowers the learning rate."""
  plateau = None
  if settings.metric == "P@1":
    plateau = contrib.reduce_on_plateau(
      0.5,
      patience=4,
      rtol=0,
      atol=0.1,  # percent, too
      cooldown=2,
      min_scale=min(1e-6 / settings.learning_rate, 1.0),
    )
  return training.Monitor(
    settings.metric, margin=_MARGIN, patience=settings.patience, plateau=plateau
  )


def train(
  settings: FullConfig,
  method: Method,
  pictures: data.Images,
  watched: data.Images,
  key: Array,
  folder: pathlib.Path,
  evaluations: pathlib.Path,
) -> tuple[VariableDict, dict[str, Any]]:
  """Trains a network; resumes from a checkpoint in the folder, if any.

  Returns the best variables, and figures: "best" evaluation, and "steps" of the whole.
  """
  data_key, start_key = jax.random.split(key)
  run = Run(settings, method, pictures, jax.random.fold_in(key, 2))
  respond = None
  if method.kind == "ccp":
    respond = training.ccp_response(
      run.renew, metric=settings.metric, weight=settings.weight,
      patience=settings.switch_patience, margin=_MARGIN,
    )  # fmt: skip

  def evaluate(state: training.TrainState) -> dict[str, float]:
    points = batches.embed(settings, state.variables(), watched)
    scores = protocols.measures(points, watched)
    problem = 0
    if method.kind == "ccp":
      problem = int(training.ccp_state(state).problem)
    log(evaluations, {"step": int(state.step), "problem": problem, **scores})
    return {**scores, "problem": problem}

  with training.Checkpoints(folder) as checkpoints:
    result = training.fit(
      run.start(start_key, checkpoints.latest_step() is None),
      training.make_step(run, objective.optimizer(settings, method)),
      batches.batches(settings, pictures, run.table, data_key),
      checkpoints=checkpoints, steps=settings.steps, evaluate=evaluate,
      evaluate_every=settings.evaluate_every, monitor=monitor(settings),
      respond=respond, checkpoint_every=settings.checkpoint_every,
      report_every=settings.evaluate_every,
    )  # fmt: skip
  rows = {row["step"]: row for row in result.evaluations}
  best = rows.get(int(result.best.step), result.evaluations[-1])
  return result.best.variables(), {"best": best, "steps": int(result.state.step)}
