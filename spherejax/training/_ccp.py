"""Chance-constrained training (CCP): a sequence of problems, each with new proxies."""

import reprlib
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks

Restart = Literal["best", "last"]

Tree = Any
"""Any pytree of arrays."""


class CCPState(NamedTuple):
  """State of a training by chance-constrained problems.

  Attributes:
    anchor: the network's parameters that the current problem is projected onto.
    weight: float32 scalar, weight of the squared distance to the anchor.
    problem: int32 scalar, number of the problem, from 1.
    evaluated: boolean scalar, whether the problem has a best evaluation.
    best: float32 scalar, score of the best evaluation; 0 without one.
    stale: int32 scalar, evaluations of the problem since the best one.
    best_params: {"network": ..., "loss": ...} at the best evaluation.
    best_stats: the network's moving statistics there.
  """

  anchor: Tree
  weight: Float[Array, ""]
  problem: Integer[Array, ""]
  evaluated: Bool[Array, ""]
  best: Float[Array, ""]
  stale: Integer[Array, ""]
  best_params: Tree
  best_stats: Tree


class CCPTurn(NamedTuple):
  """Result of `ccp_observe`.

  Attributes:
    state: the `CCPState` after the evaluation.
    params: parameters to continue with: the given ones, or after a switch the best
      ones (with restart "last" only the best proxies). Renew the proxies then.
    batch_stats: moving statistics that belong to these parameters of the network.
    switched: boolean scalar, whether a new problem begins.
  """

  state: CCPState
  params: Tree
  batch_stats: Tree
  switched: Bool[Array, ""]


def ccp_projection(
  batch_stats: Tree = None, *, first_weight: Real[ArrayLike, ""] = 0.0
) -> optax.GradientTransformation:
  """Adds the gradient of the projection onto the weights of the previous problem.

      g <- g + weight (theta - anchor)

  for all of params["network"] and none of params["loss"]. Put it first in a chain,
  before weight decay, clipping and the optimiser. Its state is the `CCPState`, so
  checkpoints hold it: `optax.chain(ccp_projection(), optimizer(...))`.

  Under plain gradient descent keep the weight times the learning rate below 1. Above 1
  a step overshoots the anchor; above 2 the weights diverge from it.

  Args:
    batch_stats: the network's moving statistics before the first step, such as
      `variables["batch_stats"]`; they are stored and restored with the best weights.
      None for a network without statistics.
    first_weight: weight of the first problem, not negative; the anchor of this problem
      is the initial weights. The thesis's text uses the weight of the other problems;
      its released code uses 0.

  Returns:
    An optax transformation of {"network": ..., "loss": ...}.

  Raises:
    TypeError: first_weight not a number.
    ValueError: first_weight is negative; `update` without the parameters.

  Cost: one pass over the parameters; two copies of them in the state.

  Source: DML eq. 3.2.11 and algorithm 1, which prints the difference with the wrong
  sign; see errata.

  Example:
    >>> import optax
    >>> projection = spherejax.training.ccp_projection(first_weight=0.5)
    >>> params = {"network": jnp.zeros(2), "loss": jnp.zeros(1)}
    >>> state = projection.init(params)
    >>> moved = {"network": jnp.array([1.0, 2.0]), "loss": jnp.zeros(1)}
    >>> projection.update(params, state, moved)[0]
    {'network': Array([0.5, 1. ], dtype=float32), 'loss': Array([0.], dtype=float32)}
  """
  _checks.between("first_weight", first_weight, 0)
  _checks.single("first_weight", first_weight)
  stats = {} if batch_stats is None else batch_stats

  def init(params: Tree) -> CCPState:
    # Copies, so that a state can be donated.
    return CCPState(
      anchor=jax.tree.map(jnp.array, params["network"]),
      weight=jnp.float32(first_weight),
      problem=jnp.int32(1),
      evaluated=jnp.zeros((), bool),
      best=jnp.float32(0),
      stale=jnp.int32(0),
      best_params=jax.tree.map(jnp.array, params),
      best_stats=jax.tree.map(jnp.array, stats),
    )

  def update(
    updates: Tree, state: Tree, params: Tree | None = None
  ) -> tuple[Tree, CCPState]:
    if params is None or not isinstance(state, CCPState):
      raise ValueError("ccp_projection needs the parameters and its own state")

    def pull(gradient: Array, weight: Array, anchor: Array) -> Array:
      return gradient + state.weight.astype(gradient.dtype) * (weight - anchor)

    network: Any = params
    pulled = jax.tree.map(pull, updates["network"], network["network"], state.anchor)
    return {**updates, "network": pulled}, state

  return optax.GradientTransformation(init, update)


def ccp_observe(
  state: CCPState,
  params: Tree,
  score: Real[ArrayLike, ""],
  *,
  weight: Real[ArrayLike, ""] = 2e-4,
  patience: int = 3,
  margin: Real[ArrayLike, ""] = 1e-5,
  restart: Restart = "best",
  max_problems: int | None = None,
  batch_stats: Tree = None,
) -> CCPTurn:
  """Updates the state after an evaluation, which may end the problem.

  A score that exceeds the problem's best so far by more than `margin` is the new best,
  as is the first finite score; the evaluated weights are then stored. After
  `patience` evaluations without a better score the best weights become the anchor. The
  next problem begins with the best weights and proxies (but see `restart`); renew the
  proxies then (`prototypes.renew_proxies`). So a problem lasts at least 1 + patience
  evaluations. This is a pure function, for jit and vmap.

  Args:
    state: the state of `ccp_projection`.
    params: {"network": ..., "loss": ...} that were evaluated.
    score: larger is better; NaN and infinities never count as better, and a problem
      without a finite score does not end.
    weight: not negative, may be traced: weight of the projection from the second
      problem on. 1e-5 to 1e-1 works (DML figure 3.5).
    patience: static, at least 1. Number of evaluations.
    margin: not negative, may be traced.
    restart: static. "best" continues with the best weights, as in the text; "last" with
      the current weights, as in the released code. Both take the best weights as the
      anchor, and continue with the proxies of the best weights.
    max_problems: static. The last problem does not switch; None for no limit.
    batch_stats: the network's moving statistics that were evaluated, laid out as in
      `ccp_projection`; None for none.

  Returns:
    `CCPTurn`.

  Raises:
    TypeError: state not a `CCPState`, a number of the wrong type.
    ValueError: patience or max_problems below 1, an unknown restart, a weight or margin
      that is negative (where static).

  Cost: one pass over the parameters.

  Source: DML algorithm 1; patience, margin and the first problem's weight are those
  of the released code.

  Example:
    >>> params = {"network": jnp.zeros(2), "loss": jnp.zeros(1)}
    >>> state = spherejax.training.ccp_projection().init(params)
    >>> for score in [0.1, 0.2, 0.2, 0.1]:
    ...   turn = spherejax.training.ccp_observe(state, params, score, patience=2)
    ...   state, params = turn.state, turn.params
    >>> int(state.problem), bool(turn.switched)
    (2, True)
  """
  _checks.instance("state", state, CCPState)
  _checks.between("weight", weight, 0)
  _checks.between("margin", margin, 0)
  _checks.count("patience", patience)
  _checks.one_of("restart", restart, Restart)
  if max_problems is not None:
    _checks.count("max_problems", max_problems)
  _checks.single("margin", margin)
  stats = {} if batch_stats is None else batch_stats
  for name, new, stored in (
    ("params", params, state.best_params),
    ("batch_stats", stats, state.best_stats),
  ):
    wanted = jax.tree.structure(stored)
    if jax.tree.structure(new) != wanted:
      raise ValueError(
        f"{name} must have the structure of the state's, {wanted}, got "
        f"{reprlib.repr(new)}"
      )
  _checks.number("score", score)
  score = jnp.asarray(score, jnp.float32)
  bar = jnp.where(state.evaluated, state.best + jnp.float32(margin), -jnp.inf)
  improved = jnp.isfinite(score) & (score > bar)  # infinity would stay the best
  best_params = optax.tree.where(improved, params, state.best_params)
  best_stats = optax.tree.where(improved, stats, state.best_stats)
  stale = jnp.where(improved, 0, state.stale + 1)
  # Without an evaluation that counted there are no weights to go back to.
  switched = (stale >= patience) & (state.evaluated | improved)
  if max_problems is not None:
    switched &= state.problem < max_problems
  back = switched if restart == "best" else jnp.zeros_like(switched)
  after = CCPState(
    anchor=optax.tree.where(switched, best_params["network"], state.anchor),
    weight=jnp.where(switched, jnp.float32(weight), state.weight),
    problem=(state.problem + switched).astype(jnp.int32),
    evaluated=(state.evaluated | improved) & ~switched,
    best=jnp.where(switched, 0, jnp.where(improved, score, state.best)),
    stale=jnp.where(switched, 0, stale).astype(jnp.int32),
    best_params=best_params,
    best_stats=best_stats,
  )
  going_on = {
    "network": optax.tree.where(back, best_params["network"], params["network"]),
    "loss": optax.tree.where(switched, best_params["loss"], params["loss"]),
  }
  return CCPTurn(after, going_on, optax.tree.where(back, best_stats, stats), switched)
