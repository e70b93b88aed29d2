"""Chance-constrained problems within a training: the response to its evaluations."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from spherejax import _checks
from spherejax.training import _returned
from spherejax.training._ccp import CCPState, Restart, Tree, ccp_observe, ccp_projection
from spherejax.training._state import TrainState, check_optimizer


def ccp_state(state: TrainState) -> CCPState:
  """Finds the `CCPState` inside the optimiser's state.

  Args:
    state: a train state.

  Returns:
    `CCPState`.

  Raises:
    TypeError: state not a `TrainState`.
    ValueError: no `CCPState`, or more than one.

  Cost: none.

  Source: none.

  Example:
    >>> import optax
    >>> optimizer = optax.chain(spherejax.training.ccp_projection(), optax.sgd(0.1))
    >>> state = spherejax.training.create_state(
    ...     jax.random.key(0), optimizer, {"params": {"w": jnp.ones(2)}}
    ... )
    >>> int(spherejax.training.ccp_state(state).problem)
    1
  """
  _checks.instance("state", state, TrainState)
  states = [
    leaf
    for leaf in jax.tree.leaves(state.opt_state, is_leaf=_is_ccp)
    if isinstance(leaf, CCPState)
  ]
  if len(states) != 1:
    raise ValueError(
      f"the optimizer must have one ccp_projection in its chain, got {len(states)}"
    )
  return states[0]


def ccp_response(
  renew: Callable[[TrainState], Tree],
  *,
  metric: str,
  weight: float = 2e-4,
  patience: int = 3,
  margin: float = 1e-5,
  restart: Restart = "best",
  max_problems: int | None = None,
  fresh_moments: optax.GradientTransformation | None = None,
) -> Callable[[TrainState, Mapping[str, float]], TrainState]:
  """Returns the `respond` argument of `fit` for chance-constrained training.

  After each evaluation `ccp_observe` decides; where a new problem begins, its proxies
  come from `renew`. Everything is in the train state, so a killed run resumes within
  its problem, with the same bits.

  Args:
    renew: `renew(state)` returns the new params["loss"]; the state has the weights that
      the problem begins with and the converged proxies. It embeds pools of images
      (`data.class_pools`) and calls `prototypes.renew_proxies`. With restart "last"
      embed with the best weights, `ccp_state(state).best_params["network"]`, not with
      the state's. Random draws must follow from the state, for example from
      `jax.random.fold_in(key, state.step)`, with a key other than `state.key`, which
      the next step uses.
    metric: name of the score in what `evaluate` returns.
    weight: this and the next four arguments are those of `ccp_observe`.
    patience: static.
    margin: static.
    restart: static.
    max_problems: static.
    fresh_moments: the state's optimiser, to start every problem with new moments for
      the proxies; None keeps the moments, as in the released code.

  Returns:
    `(state, values) -> state`.

  Raises:
    TypeError: renew not a function, metric not text, a number of the wrong type.
    ValueError: as `ccp_observe`; on a call, an evaluation without the metric, a state
      without `ccp_projection`.

  Cost: that of `renew`, once per problem.

  Source: DML algorithms 1 and 2.

  Example:
    >>> import optax
    >>> def renew(state):
    ...   return state.params["loss"]
    >>> respond = spherejax.training.ccp_response(renew, metric="MAP@R")
    >>> optimizer = optax.chain(spherejax.training.ccp_projection(), optax.sgd(0.1))
    >>> state = spherejax.training.create_state(
    ...     jax.random.key(0),
    ...     optimizer,
    ...     {"params": {"w": jnp.ones(2)}},
    ...     {"params": {"proxies": jnp.ones((3, 2))}},
    ... )
    >>> for _ in range(4):
    ...   state = respond(state, {"MAP@R": 0.5})
    >>> int(spherejax.training.ccp_state(state).problem)
    2
  """
  _checks.function("renew", renew)
  _checks.text("metric", metric)
  if fresh_moments is not None:
    check_optimizer(fresh_moments, "fresh_moments")
  options: dict[str, Any] = {
    "weight": weight,
    "patience": patience,
    "margin": margin,
    "restart": restart,
    "max_problems": max_problems,
  }
  nothing = {"network": jnp.zeros(0), "loss": jnp.zeros(0)}
  start: Any = ccp_projection().init(nothing)
  ccp_observe(start, nothing, 0.0, **options)  # the checks, before training

  def respond(state: TrainState, values: Mapping[str, float]) -> TrainState:
    if metric not in values:
      raise ValueError(
        f"evaluate must return the metric {metric!r} of ccp_response, got"
        f" {sorted(values)}"
      )
    ccp = ccp_state(state)
    stats = state.batch_stats.get("network", {})
    turn = ccp_observe(ccp, state.params, values[metric], batch_stats=stats, **options)
    batch_stats = dict(state.batch_stats)
    if turn.batch_stats:
      batch_stats["network"] = turn.batch_stats
    opt_state = jax.tree.map(
      lambda leaf: turn.state if _is_ccp(leaf) else leaf,
      state.opt_state,
      is_leaf=_is_ccp,
    )
    state = state.replace(
      params=turn.params, batch_stats=batch_stats, opt_state=opt_state
    )
    if not turn.switched:
      return state
    renewed = _returned.tree("renew", renew(state))
    _returned.alike("renew", renewed, state.params["loss"], 'params["loss"]')
    state = state.replace(params={**state.params, "loss": renewed})
    if fresh_moments is None:
      return state
    fresh = ccp_fresh_moments(fresh_moments, state.opt_state, state.params)
    return state.replace(opt_state=fresh)

  return respond


def ccp_fresh_moments(
  optimizer: optax.GradientTransformation, opt_state: Tree, params: Tree
) -> Tree:
  """Resets the proxies' part of the optimiser's state to that of the first step.

  The network's part and the `CCPState` stay. Use it in your own training loop;
  `ccp_response` has an argument for it.

  Args:
    optimizer: the optimiser that made the state.
    opt_state: its state.
    params: {"network": ..., "loss": ...}, the parameters that the state belongs to.

  Returns:
    A state of the same structure.

  Raises:
    TypeError: optimizer not an `optax.GradientTransformation`, params not a mapping.
    ValueError: the state does not belong to the optimizer and the parameters.

  Cost: that of the optimizer's first state.

  Source: none; nothing in DML algorithm 1 resets the moments.

  Example:
    >>> import optax
    >>> params = {"network": jnp.ones(1), "loss": jnp.ones(1)}
    >>> optimizer = optax.trace(0.9)
    >>> _, state = optimizer.update(params, optimizer.init(params))
    >>> spherejax.training.ccp_fresh_moments(optimizer, state, params).trace
    {'loss': Array([0.], dtype=float32), 'network': Array([1.], dtype=float32)}
  """
  check_optimizer(optimizer)
  _checks.mapping("params", params)
  first = optimizer.init(params)
  structure, wanted = (
    jax.tree.structure(tree, is_leaf=_is_ccp) for tree in (opt_state, first)
  )
  if structure != wanted:
    raise ValueError(
      "opt_state must have the structure of optimizer.init(params), of"
      f" {wanted.num_leaves} leaves, got one of {structure.num_leaves} leaves"
    )

  def choose(path: Any, old: Any, new: Any) -> Any:
    if _is_ccp(old):
      return old
    names = jax.tree_util.keystr(path, simple=True, separator="/").split("/")
    # Only the outermost: a layer of the network may have the same name.
    group = next((name for name in names if name in ("network", "loss")), "")
    return new if group == "loss" else old

  return jax.tree_util.tree_map_with_path(choose, opt_state, first, is_leaf=_is_ccp)


def _is_ccp(leaf: Any) -> bool:
  return isinstance(leaf, CCPState)
