"""Pure training step, built from an objective and an optimiser."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from spherejax import _checks
from spherejax.training import _collectives, _returned
from spherejax.training._state import TrainState, check_optimizer, global_norm


class Outcome(NamedTuple):
  """Result of an objective.

  Attributes:
    loss: scalar to be minimised; averaged over the devices by the step.
    batch_stats: BatchNorm statistics and the like after the batch, in the layout of
      `TrainState.batch_stats`; None leaves them as they are.
    metrics: scalars to report, counts and booleans as float32; averaged over the
      devices by the step.
  """

  loss: Array
  batch_stats: Any = None
  metrics: Mapping[str, Array] | None = None


def _step_key(state: TrainState, axis_name: str | None) -> Array:
  key = jax.random.fold_in(state.key, state.step)
  if axis_name is None:
    return key
  return jax.random.fold_in(key, jax.lax.axis_index(axis_name))


def _real(metric: Array) -> Array:
  """Converts a metric to float, since `device_mean` leaves integers as they are."""
  metric = jnp.asarray(metric)
  floating = jnp.issubdtype(metric.dtype, jnp.floating)
  return metric if floating else metric.astype(jnp.float32)


def _checked(outcome: Any, stats: Any) -> Outcome:
  """Checks an outcome of arrays; raises if a step cannot use it."""
  if not isinstance(outcome, Outcome):
    raise TypeError(
      f"objective must return a training.Outcome, got a {type(outcome).__name__}; "
      "training.Outcome(loss) is one"
    )
  loss = _checks.array("the loss of the objective", outcome.loss, "floating")
  if loss.shape:
    raise ValueError(
      f"the objective's loss must be a scalar, got shape {loss.shape}; "
      "training.global_mean averages one value per example"
    )
  metrics = {} if outcome.metrics is None else outcome.metrics
  _checks.mapping("the metrics of the objective", metrics)
  reserved = ["gradient_norm", "loss"]
  if {*reserved, "step"} & metrics.keys():  # "step" would clash in the report
    raise ValueError(
      f"metrics must not be named {reserved} or 'step', got {sorted(metrics, key=str)}"
    )
  metrics = _returned.tree("objective", dict(metrics))
  _returned.scalars("the objective", metrics)
  if outcome.batch_stats is not None:
    structure, wanted = map(jax.tree.structure, (outcome.batch_stats, stats))
    if structure != wanted:
      raise ValueError(
        f"batch_stats of the objective must be laid out as the state's, {wanted}, got "
        f"{structure}; dict(batch_stats, network=...) keeps the rest"
      )
    after = _returned.tree("objective", outcome.batch_stats)
    _returned.alike("objective", after, stats, "batch_stats")
  return Outcome(loss, outcome.batch_stats, metrics)


def make_step(
  objective: Callable[..., Outcome], optimizer: optax.GradientTransformation
) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
  """Builds a pure step `(state, batch, *, axis_name=None) -> (state, metrics)`.

  With an axis the batch is this device's part, and loss, gradients, statistics and
  metrics are averaged over the devices. This equals the step on the whole batch if the
  objective

  * takes its means by `global_mean(values, where, axis_name=axis_name)`, and
  * gives `axis_name` to losses over pairs (or uses `gather`), and to BatchNorm.

  Args:
    objective: `(params, batch_stats, batch, *, key, axis_name) -> Outcome`. `params`
      and `batch_stats` have the layout of `TrainState`; the key differs in every step
      and on every device.
    optimizer: the transformation that made the state's `opt_state`. One that takes
      extra arguments is given the loss as `value`.

  Returns:
    The step. Its metrics are the objective's, "loss" and "gradient_norm" (global
    norm before clipping). It runs under `jax.jit`, `jax.pmap`, `jax.shard_map` and
    `jax.vmap(axis_name=...)`; `parallel_step` maps it over all devices.

  Raises:
    TypeError: objective not a function, optimizer not an
      `optax.GradientTransformation`; on a call, an objective that returns no `Outcome`,
      a loss that is not floating, or statistics of other shapes or types.
    ValueError: on a call, a loss or metric that is no scalar, a metric named
      "step" or like one of the step's own, statistics of another layout.

  Cost: one value and gradient of the objective.

  Source: none.

  Example:
    >>> import optax
    >>> def objective(params, batch_stats, batch, *, key, axis_name):
    ...   errors = (batch @ params["network"]["w"]) ** 2
    ...   mean = spherejax.training.global_mean(errors, axis_name=axis_name)
    ...   return spherejax.training.Outcome(mean)
    >>> optimizer = optax.sgd(0.5)
    >>> state = spherejax.training.create_state(
    ...     jax.random.key(0), optimizer, {"params": {"w": jnp.ones(1)}}
    ... )
    >>> step = spherejax.training.make_step(objective, optimizer)
    >>> state, metrics = jax.jit(step)(state, jnp.ones((4, 1)))
    >>> state.params["network"]["w"], metrics["loss"]
    (Array([0.], dtype=float32), Array(1., dtype=float32))
  """
  _checks.function("objective", objective)
  check_optimizer(optimizer)
  optimizer = optax.with_extra_args_support(optimizer)

  def step(
    state: TrainState, batch: Any, *, axis_name: str | None = None
  ) -> tuple[TrainState, dict[str, Array]]:
    key = _step_key(state, axis_name)
    params, stats = _collectives.per_device(
      (state.params, state.batch_stats), axis_name
    )

    def scalar(params: Any) -> tuple[Array, Outcome]:
      # A variable of flax.nnx may change only in the trace that created it.
      stats_copy = jax.tree.map(lambda leaf: leaf, stats)
      outcome = objective(params, stats_copy, batch, key=key, axis_name=axis_name)
      outcome = _checked(outcome, stats)
      return outcome.loss, outcome

    (loss, outcome), grads = jax.value_and_grad(scalar, has_aux=True)(params)
    new_stats = stats if outcome.batch_stats is None else outcome.batch_stats
    reported = {name: _real(x) for name, x in outcome.metrics.items()}
    loss, grads, new_stats, reported = _collectives.device_mean(
      (loss, grads, new_stats, reported), axis_name
    )
    standard = {"loss": loss, "gradient_norm": global_norm(grads)}
    updates, opt_state = optimizer.update(
      grads, state.opt_state, state.params, value=loss
    )
    updates = jax.tree.map(
      lambda update: update * state.learning_rate_scale.astype(update.dtype), updates
    )
    new_state = state.replace(
      step=state.step + 1,
      params=optax.apply_updates(state.params, updates),
      batch_stats=new_stats,
      opt_state=opt_state,
    )
    return new_state, reported | standard

  return step
