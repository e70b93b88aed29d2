"""A single training of a sweep: how it begins, advances, stops and diverges."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from spherejax.training import _returned

Tree = Any
"""Any pytree of arrays."""


class Run(NamedTuple):
  """A training in progress."""

  state: Tree
  best_state: Tree
  best_score: Array  # larger is better
  best_step: Array
  taken: Array  # steps
  stale: Array  # evaluations since the best
  stopped: Array
  diverged: Array
  scores: Array  # [evaluations]
  metrics: Tree  # each [evaluations]


class Functions(NamedTuple):
  """User's functions; arrays bound by `jax.tree_util.Partial` are operands."""

  init: Callable[..., Tree]
  step: Callable[..., tuple[Tree, Tree]]
  evaluate: Callable[..., Array]


@functools.lru_cache(maxsize=16)
def _inlined(fn: Callable[..., Any]) -> Callable[..., Any]:
  @functools.wraps(fn)
  def checked(*args: Any, **kwargs: Any) -> tuple[Tree, Tree]:
    return step_checked(fn(*args, **kwargs))

  return jax.jit(checked, inline=True)


def traced_once(step: jax.tree_util.Partial) -> jax.tree_util.Partial:
  """Jits the step once, so that its metrics and the scan share one trace."""
  return jax.tree_util.Partial(_inlined(step.func), *step.args, **step.keywords)


class Plan(NamedTuple):
  """Settings that are fixed when the program is compiled."""

  evaluations: int
  evaluate_every: int
  patience: int | None
  margin: float
  sign: int


def begin(
  functions: Functions, plan: Plan, key: Array, seed: Array | int, hyper: Tree
) -> Run:
  """State of a run before its first step."""
  init_key, step_key, _ = _keys(key, seed)
  state = _returned.tree("init", functions.init(init_key, hyper))
  state = jax.tree.map(_strong, state)
  # Known values of `hyper` stay known, as `reject_static` needs.
  after, reported = jax.eval_shape(
    lambda state, key: step_checked(functions.step(state, key, hyper)), state, step_key
  )
  _returned.alike("step", after, state)
  _returned.scalars("step", reported)
  zero = jnp.zeros((), jnp.int32)
  unknown = jnp.full(plan.evaluations, jnp.nan, jnp.float32)
  return Run(
    state=state,
    best_state=state,
    best_score=jnp.float32(-jnp.inf),
    best_step=zero,
    taken=zero,
    stale=zero,
    stopped=jnp.zeros((), bool),
    diverged=jnp.zeros((), bool),
    scores=unknown,
    metrics=jax.tree.map(lambda _: unknown, reported),
  )


def advance(
  functions: Functions,
  plan: Plan,
  number: Array,
  key: Array,
  run: Run,
  seed: Array | int,
  hyper: Tree,
) -> Run:
  """Advances a run to the end of its next evaluation; an ended run stays as it is."""
  _, step_key, evaluate_key = _keys(key, seed)

  def one_step(state: Tree, taken: Array) -> tuple[Tree, Tree]:
    key = jax.random.fold_in(step_key, taken)
    return step_checked(functions.step(state, key, hyper))

  taken = run.taken + jnp.arange(plan.evaluate_every, dtype=jnp.int32)
  state, reported = jax.lax.scan(one_step, run.state, taken)
  score = _returned.score(functions.evaluate(state, evaluate_key, hyper))
  means = jax.tree.map(lambda x: jnp.mean(x.astype(jnp.float32), axis=0), reported)

  finite = jnp.isfinite(score) & _all_finite(means) & _still_finite(run.state, state)
  running = ~(run.stopped | run.diverged)
  going = running & finite
  better = going & (plan.sign * score > run.best_score + plan.margin)
  stale = jnp.where(better, 0, run.stale + going)
  out_of_patience = going & (stale >= (plan.patience or jnp.inf))

  def noted(history: Array, value: Array) -> Array:
    return history.at[number].set(jnp.where(going, value, jnp.nan))

  return Run(
    state=optax.tree.where(going, state, run.state),
    best_state=optax.tree.where(better, state, run.best_state),
    best_score=jnp.where(better, plan.sign * score, run.best_score),
    best_step=jnp.where(better, taken[-1] + 1, run.best_step),
    taken=jnp.where(going, taken[-1] + 1, run.taken),
    stale=stale,
    stopped=run.stopped | out_of_patience,
    diverged=run.diverged | (running & ~finite),
    scores=noted(run.scores, score),
    metrics=jax.tree.map(noted, run.metrics, means),
  )


def step_checked(result: Any) -> tuple[Tree, Tree]:
  """Checks the result of `step` before jit does, whose messages are harder to read."""
  state, metrics = _returned.pair(result)
  return _returned.tree("step", state), _returned.tree("step", metrics)


def _strong(leaf: Array) -> Array:
  """Array of a strong type, which steps keep; the type of a Python number is weak."""
  return jnp.asarray(leaf, leaf.dtype)


def _keys(key: Array, seed: Array | int) -> Array:
  """Keys of one seed: of `init`, of the steps, of the evaluations."""
  return jax.random.split(jax.random.fold_in(key, seed), 3)


def _floating(tree: Tree) -> list[Array]:
  leaves = jax.tree.leaves(tree)
  return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def _all_finite(tree: Tree) -> Array:
  checks = [jnp.isfinite(leaf).all() for leaf in _floating(tree)]
  return functools.reduce(jnp.logical_and, checks, jnp.bool_(True))


def _still_finite(old: Tree, new: Tree) -> Array:
  """True if every finite entry of `old` is finite in `new`; infinities may stay."""
  checks = [
    (jnp.isfinite(after) | ~jnp.isfinite(before)).all()
    for before, after in zip(_floating(old), _floating(new), strict=True)
  ]
  return functools.reduce(jnp.logical_and, checks, jnp.bool_(True))


def reject_static(
  functions: Functions, plan: Plan, key: Array, columns: Mapping[str, np.ndarray]
) -> None:
  """Raises for hyperparameters that must be known when the functions are traced.

  A hyperparameter is at fault if tracing fails while all others are known.
  """
  cell = {name: values[0] for name, values in columns.items()}

  def failure(*traced: str) -> Exception | None:
    known = {name: value for name, value in cell.items() if name not in traced}

    def trace(hyper: Tree) -> Tree:
      run = begin(functions, plan, key, 0, known | hyper)
      return advance(functions, plan, jnp.int32(0), key, run, 0, known | hyper)

    try:
      jax.eval_shape(trace, {name: jnp.asarray(cell[name]) for name in traced})
    except Exception as error:
      return error
    return None

  if failure() is not None:  # not the hyperparameters' fault
    return
  static = {name: failed for name in cell if (failed := failure(name)) is not None}
  if not static:
    return
  name, reason = next(iter(static.items()))
  raise TypeError(
    f"hyperparameter {' and '.join(map(repr, static))} cannot be vmapped: its value "
    "decides a shape or a branch, so each value needs a program of its own; run one "
    f"sweep for each, {name} = {np.unique(columns[name]).tolist()} "
    f"({type(reason).__name__}: {str(reason).splitlines()[0]})"
  ) from reason
