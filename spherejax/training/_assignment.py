"""Dynamic assignment of classes to prototypes during training."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from spherejax import _checks, prototypes
from spherejax.training._state import TrainState
from spherejax.training._when import when

ASSIGNMENT = "assignment"
# Largest number of steps between two matchings; exact in float32 and int32.
_LONGEST = 2**30


def reassign(
  step: Callable[..., tuple[TrainState, dict[str, Array]]],
  points: Float[ArrayLike, "prototypes dim"],
  *,
  steps_per_epoch: int,
  updates_per_epoch: Real[ArrayLike, ""] = 1,
  host: bool = False,
) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
  """Wraps a training step so that it matches classes and prototypes again when due.

      before step s:  a <- match(representatives, points)   for s = n, 2 n, 3 n, ...
      n = max(1, round(steps_per_epoch / updates_per_epoch))

  Steps count from 0. So an evaluation after s steps uses the assignment that the
  network was trained with; a matching due at step s comes afterwards. The state of the
  assignment, `prototypes.AssignmentState`, is in
  `state.batch_stats["loss"]["assignment"]`, and so in checkpoints. The objective moves
  its representatives with the embeddings of the same forward pass and returns the state
  in `Outcome.batch_stats`:

      matching = batch_stats["loss"]["assignment"]
      losses = pull(cosines with points[matching.assignment], labels)
      moved = ema_update(matching.representatives, z, labels, axis_name=axis_name)
      Outcome(..., {"loss": {"assignment": matching._replace(representatives=moved)}})

  Predictions are `metrics.nearest(z, points[matching.assignment], k=1,
  distance="cosine")`.

  Args:
    step: the result of `make_step`.
    points: [prototypes, dim], floating: the fixed prototypes.
    steps_per_epoch: static.
    updates_per_epoch: positive, may be traced; a number below 1 matches every few
      epochs.
    host: static; True matches on the host, as in `solvers.linear_assignment`.

  Returns:
    The wrapped step, used like `step`. Under vmap and jit a matching takes time only in
    the steps in which it is due.

  Raises:
    TypeError: points not floating, steps_per_epoch not an integer, host not boolean.
    ValueError: steps_per_epoch below 1, a static updates_per_epoch not positive; on a
      call, a state without an assignment.

  Cost: that of `prototypes.assignment_update` in every n-th step.

  Source: DL2P algorithm 1; the order of evaluation and matching follows the authors'
  implementation.

  Example:
    >>> import optax
    >>> points = jnp.eye(2)
    >>> def objective(params, batch_stats, batch, *, key, axis_name):
    ...   matching = batch_stats["loss"]["assignment"]
    ...   z = batch["x"] @ params["network"]["w"]
    ...   cosines = spherejax.distances.pairwise_cosine(z, points[matching.assignment])
    ...   losses = spherejax.losses.pull(cosines, batch["label"])
    ...   moved = spherejax.prototypes.ema_update(
    ...     matching.representatives, z, batch["label"], axis_name=axis_name
    ...   )
    ...   stats = {"assignment": matching._replace(representatives=moved)}
    ...   mean = spherejax.training.global_mean(losses, axis_name=axis_name)
    ...   return spherejax.training.Outcome(mean, batch_stats | {"loss": stats})
    >>> optimizer = optax.sgd(0.5)
    >>> matching = spherejax.prototypes.assignment_init(jax.random.key(1), points)
    >>> state = spherejax.training.create_state(
    ...     jax.random.key(0),
    ...     optimizer,
    ...     {"params": {"w": jnp.array([[1.0, 0.5], [0.5, 1.0]])}},
    ...     {"batch_stats": {"assignment": matching}},
    ... )
    >>> step = spherejax.training.make_step(objective, optimizer)
    >>> step = jax.jit(spherejax.training.reassign(step, points, steps_per_epoch=1))
    >>> batch = {"x": jnp.eye(2), "label": jnp.array([1, 0])}
    >>> for _ in range(30):
    ...   state, metrics = step(state, batch)
    >>> state.batch_stats["loss"]["assignment"].assignment
    Array([1, 0], dtype=int32)
  """
  _checks.flag("host", host)
  _checks.function("step", step)
  _checks.count("steps_per_epoch", steps_per_epoch)
  _checks.positive("updates_per_epoch", updates_per_epoch)
  _checks.expect("points", _checks.array("points", points), "floating")
  period = _period(steps_per_epoch, updates_per_epoch)

  def reassigning(
    state: TrainState, batch: Any, *, axis_name: str | None = None
  ) -> tuple[TrainState, dict[str, Array]]:
    stats = dict(state.batch_stats.get("loss", {}))
    matching = stats.get(ASSIGNMENT)
    if not isinstance(matching, prototypes.AssignmentState):
      raise ValueError(
        'the state must have an AssignmentState in batch_stats["loss"]'
        f'["{ASSIGNMENT}"], got {type(matching).__name__}'
      )
    due = (state.step > 0) & (state.step % period == 0)
    stats[ASSIGNMENT] = when(
      due, lambda old: prototypes.assignment_update(old, points, host=host), matching
    )
    batch_stats = {**state.batch_stats, "loss": stats}
    return step(state.replace(batch_stats=batch_stats), batch, axis_name=axis_name)

  return reassigning


def _period(steps_per_epoch: int, updates_per_epoch: ArrayLike) -> int | Array:
  """Number of steps from one matching to the next."""
  known = _checks.static_number(updates_per_epoch)
  if known is not None:
    return min(max(1, round(steps_per_epoch / known)), _LONGEST)
  steps = jnp.round(steps_per_epoch / jnp.asarray(updates_per_epoch))
  return jnp.clip(steps, 1, _LONGEST).astype(jnp.int32)
