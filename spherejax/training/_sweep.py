"""Sweeps: many complete trainings as one program, over hyperparameters and seeds."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from jax import Array

from spherejax import _arguments, _checks, _numerics, metrics
from spherejax.training import _cells, _parallel, _sweep_run
from spherejax.training._checkpoints import Checkpoints
from spherejax.training._monitor import Mode

Tree = Any
"""Any pytree of arrays."""


class SweepResult(NamedTuple):
  """Results of a sweep's trainings, for every cell and seed.

  Attributes:
    cells: the hyperparameters, for each name [cells, ...].
    seeds: [seeds].
    steps: [evaluations], steps taken at each evaluation.
    scores: [cells, seeds, evaluations], the results of `evaluate`; NaN after a run
      stopped and from its divergence on.
    curves: the metrics of `step`, each [cells, seeds, evaluations]: means over the
      steps since the previous evaluation.
    best_score: [cells, seeds]; NaN for a run that diverged before any evaluation.
    best_step: [cells, seeds], steps taken at the best evaluation; 0 for none.
    best_state: the state at the best evaluation, each array [cells, seeds, ...]; the
      initial state without one.
    state: the last state, each array [cells, seeds, ...]: at the evaluation at which a
      run stopped, or at the last evaluation before it diverged.
    stopped: [cells, seeds], boolean: patience ended the run.
    diverged: [cells, seeds], boolean: a number became infinite or NaN.
  """

  cells: dict[str, np.ndarray]
  seeds: np.ndarray
  steps: np.ndarray
  scores: np.ndarray
  curves: Tree
  best_score: np.ndarray
  best_step: np.ndarray
  best_state: Tree
  state: Tree
  stopped: np.ndarray
  diverged: np.ndarray

  def intervals(self, *, confidence: float = 0.95) -> list[metrics.Interval]:
    """`metrics.mean_interval` of each cell's best scores over the seeds.

    NaN for a cell with a run that diverged before any evaluation.
    """
    return [
      metrics.mean_interval(row, confidence=confidence) for row in self.best_score
    ]


class _Saved(NamedTuple):
  """Contents of a checkpoint of a sweep."""

  step: Array  # evaluations done
  runs: _sweep_run.Run


def sweep(
  key: Array,
  init: Callable[..., Tree],
  step: Callable[..., tuple[Tree, Tree]],
  evaluate: Callable[..., Array],
  cells: Mapping[str, _cells.Column],
  *,
  seeds: int | Sequence[int] = 3,
  steps: int,
  evaluate_every: int,
  patience: int | None = None,
  margin: float = 0.0,
  mode: Mode = "max",
  checkpoints: Checkpoints | None = None,
  devices: Sequence[Any] | None = None,
  batch_size: int | None = None,
  progress: bool = True,
) -> SweepResult:
  """Trains every cell of an ablation with every seed, as one vmapped program.

  The functions are those of one training, written for one set of numbers:

      init(key, hyper) -> state
      step(state, key, hyper) -> (state, metrics)
      evaluate(state, key, hyper) -> score

  `hyper` holds one cell's numbers by name. They are traced: pass them to losses,
  poolings and optimisers in place of numbers (`optax.adam(hyper["rate"])` in `init` and
  in `step`). All cells of a seed get the same keys, so their runs are paired. The
  key of a step differs in every step; the key of the evaluation stays the same. Runs
  are spread over the devices.

  Every run has its own early stopping and best state. A run whose patience ran out
  stays as it is. A run diverges if a metric, a score, or a finite entry of its state
  becomes infinite or NaN. It returns to its last evaluation and stays there; other runs
  are not affected.

  Args:
    key: PRNG key of the whole sweep; one of "rbg" is converted to threefry.
    init: state is any pytree of arrays.
    step: metrics is a pytree of scalars, `{}` for none.
    evaluate: score is a scalar.
    cells: for each name a column [cells, ...] of numbers: `grid` makes all
      combinations, `factorial` a two-level design.
    seeds: static. The seeds, or their number for the seeds 0, 1, ...
    steps: static. Steps of every training; a multiple of `evaluate_every`.
    evaluate_every: static. Steps between two evaluations.
    patience: static. Number of evaluations without a better one after which a run
      stops; None never stops.
    margin: static, not negative. A score counts as better if it is better by more than
      this.
    mode: static. "max" or "min": which scores are better.
    checkpoints: where every evaluation is recorded; a killed sweep resumes from there.
      None records nothing.
    devices: this process's devices that take part; None takes all.
    batch_size: static. Runs that each device vmaps at a time, as in `jax.lax.map`; None
      vmaps all. 1 takes one run after another and skips ended runs; on a CPU this is
      often faster for networks with convolutions.
    progress: whether to show a bar on stderr.

  Returns:
    `SweepResult`. `result.best_score.mean(1)`, reshaped to the numbers of values of
    a `grid`, is the table of the ablation.

  Raises:
    TypeError: progress not boolean; a hyperparameter that cannot be vmapped: not a
      number, or one that decides a shape or a branch (run one sweep for each value); a
      function that returns something else, or a state that is not like the one before.
    ValueError: columns of different lengths, no seed, `steps` not a multiple of
      `evaluate_every`, a negative margin, a batch size below 1; a score or metric that
      is not a scalar; a checkpoint of a sweep with another key or with other cells,
      seeds, steps, patience, margin or mode.
    OSError, RuntimeError: of checkpoints, as `fit`.

  Cost: one compilation for each shape of the arrays, and for functions that hold or
  read other objects than before (see `spherejax.attacks`). Memory of two states for
  every run. A stopped run costs as much as the other runs of its batch until all have
  stopped. Arrays that the functions close over become constants of the program: bind
  large ones as `jax.tree_util.Partial(step, data)`.

  Source: none.

  Example:
    >>> def init(key, hyper):
    ...   return jax.random.normal(key)
    >>> def step(w, key, hyper):  # gradient descent on (w - 1)^2
    ...   return w - hyper["learning_rate"] * 2 * (w - 1), {}
    >>> def evaluate(w, key, hyper):
    ...   return abs(w - 1)
    >>> result = spherejax.training.sweep(
    ...   jax.random.key(0), init, step, evaluate, {"learning_rate": [0.1, 0.5, 1e9]},
    ...   seeds=2, steps=20, evaluate_every=10, mode="min", progress=False)
    >>> result.best_score.round(2)
    array([[0.02, 0.01],
           [0.  , 0.  ],
           [ nan,  nan]], dtype=float32)
    >>> result.diverged.any(axis=1)
    array([False, False,  True])
  """
  _checks.flag("progress", progress)
  _checks.key("key", key)
  for name, value in (("init", init), ("step", step), ("evaluate", evaluate)):
    _checks.function(name, value)
  if checkpoints is not None:
    _checks.instance("checkpoints", checkpoints, Checkpoints)
  columns, numbers = _columns(cells), _seeds(seeds)
  plan = _plan(steps, evaluate_every, patience, margin, mode)
  init, step, evaluate = map(_arguments.comparable, (init, step, evaluate))
  original = _sweep_run.Functions(init, step, evaluate)
  functions = original._replace(step=_sweep_run.traced_once(step))
  local = tuple(_parallel.local_devices(devices))
  if batch_size is not None:
    _checks.count("batch_size", batch_size)
  begin, advance = _programs(plan, local, batch_size)
  # Run r is seed r % seeds of cell r // seeds.
  number = len(next(iter(columns.values())))
  rows = {name: np.repeat(x, len(numbers), axis=0) for name, x in columns.items()}
  hyper, run_seeds = _spread((rows, np.tile(numbers, number)), devices=local)
  real = functools.partial(_gather, count=number * len(numbers), devices=local)
  record = {"cells": {name: x.tolist() for name, x in columns.items()}}
  record |= {"seeds": numbers.tolist(), "steps": [steps, evaluate_every]}
  record |= {"mode": mode, "patience": patience, "margin": plan.margin}
  record |= {"key": np.asarray(jax.random.key_data(key)).tolist()}
  done, key = 0, _numerics.threefry(key)
  try:
    runs = begin(functions, key, run_seeds, hyper)
    if checkpoints is not None:
      done, restored = _restore(checkpoints, real(runs), record)
      if done:
        runs = _spread(restored, devices=local)
    with tqdm.tqdm(
      total=steps, initial=done * evaluate_every, disable=not progress, unit="step"
    ) as bar:
      while done < plan.evaluations and not _ended(runs):
        runs = advance(functions, jnp.int32(done), key, runs, run_seeds, hyper)
        done += 1
        if checkpoints is not None:
          checkpoints.save(_Saved(jnp.int32(done), real(runs)), record)
        bar.update(evaluate_every)
        bar.set_postfix(_summary(runs, plan))
  except (TypeError, ValueError, IndexError, jax.errors.JAXTypeError):
    _sweep_run.reject_static(original, plan, key, columns)
    raise
  return _result(columns, numbers, plan, real(runs))


def _columns(cells: Mapping[str, _cells.Column]) -> dict[str, np.ndarray]:
  _checks.mapping("cells", cells)
  columns = {name: _cells.column(name, values) for name, values in cells.items()}
  if not columns:
    raise ValueError("cells must name at least one hyperparameter, got none")
  lengths = {name: len(values) for name, values in columns.items()}
  if len(set(lengths.values())) > 1:
    raise ValueError(
      f"the columns of cells must be of one length, got {lengths}; training.grid "
      "makes all combinations"
    )
  return columns


def _seeds(seeds: int | Sequence[int]) -> np.ndarray:
  if isinstance(seeds, (int, np.integer)):
    _checks.count("seeds", seeds)
    return np.arange(seeds, dtype=np.int32)
  if isinstance(seeds, str) or not isinstance(seeds, Sequence):
    raise TypeError(f"seeds must be a number of seeds or a sequence, got {seeds!r}")
  _checks.counts("seeds", seeds, 0)
  if not len(seeds) or len(set(seeds)) != len(seeds) or max(seeds) >= 2**31:
    raise ValueError(f"seeds must be different numbers below 2**31, got {list(seeds)}")
  return np.array(seeds, np.int32)


def _plan(
  steps: int, evaluate_every: int, patience: int | None, margin: float, mode: Mode
) -> _sweep_run.Plan:
  _checks.count("steps", steps)
  _checks.count("evaluate_every", evaluate_every)
  if steps % evaluate_every:
    raise ValueError(
      f"steps must be a multiple of evaluate_every = {evaluate_every}, got {steps}"
    )
  if patience is not None:
    _checks.count("patience", patience)
  _checks.between("margin", margin, 0)
  _checks.single("margin", margin)
  _checks.one_of("mode", mode, Mode)
  sign = 1 if mode == "max" else -1
  return _sweep_run.Plan(
    steps // evaluate_every, evaluate_every, patience, float(margin), sign
  )


@functools.lru_cache(maxsize=16)
def _programs(
  plan: _sweep_run.Plan, devices: tuple[Any, ...], batch_size: int | None
) -> tuple[Callable, Callable]:
  """Returns the programs that begin and advance all runs, spread over the devices."""

  def begin(
    functions: _sweep_run.Functions, key: Array, seeds: Array, hyper: Tree
  ) -> _sweep_run.Run:
    run_cell = functools.partial(_sweep_run.begin, functions, plan, key)
    return jax.vmap(run_cell)(seeds, hyper)

  def advance(
    functions: _sweep_run.Functions,
    number: Array,
    key: Array,
    runs: _sweep_run.Run,
    seeds: Array,
    hyper: Tree,
  ) -> _sweep_run.Run:
    run_cell = functools.partial(_sweep_run.advance, functions, plan, number, key)
    if batch_size is None:
      return jax.vmap(run_cell)(runs, seeds, hyper)

    def unless_ended(row: tuple[_sweep_run.Run, Array, Tree]) -> _sweep_run.Run:
      ended = row[0].stopped | row[0].diverged
      return jax.lax.cond(ended, lambda run, *_: run, run_cell, *row)

    size = None if batch_size == 1 else batch_size
    return jax.lax.map(unless_ended, (runs, seeds, hyper), batch_size=size)

  if len(devices) == 1:
    return jax.jit(begin), jax.jit(advance, donate_argnums=3)
  over = functools.partial(jax.pmap, devices=devices)
  # A single None for all three would do, but jax 0.10 then misplaces the axes if there
  # are as many leaves as arguments (functions have none).
  shared = _sweep_run.Functions(None, None, None)  # pyright: ignore[reportArgumentType]
  return (
    over(begin, in_axes=(shared, None, 0, 0)),
    over(advance, in_axes=(shared, None, None, 0, 0, 0), donate_argnums=3),
  )


def _spread(tree: Tree, *, devices: tuple[Any, ...]) -> Tree:
  """Spreads rows [runs, ...] in equal parts over the devices, padded with the first."""
  if len(devices) == 1:
    return jax.device_put(jax.tree.map(jnp.asarray, tree), devices[0])
  number = len(jax.tree.leaves(tree)[0])
  rows = np.arange(-(-number // len(devices)) * len(devices))
  rows = np.where(rows < number, rows, 0)

  def padded(leaf: Array | np.ndarray) -> Array | np.ndarray:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf[rows] if is_key else np.asarray(leaf)[rows]

  return _parallel.shard(jax.tree.map(padded, tree), devices=devices)


def _gather(tree: Tree, *, count: int, devices: tuple[Any, ...]) -> Tree:
  """Gathers the first rows [runs, ...] from the devices, on the host if several."""
  if len(devices) == 1:
    return tree

  def on_host(leaf: Array) -> Array | np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      data = np.asarray(jax.random.key_data(leaf))
      rows = data.reshape(-1, *data.shape[2:])[:count]
      return jax.random.wrap_key_data(jnp.asarray(rows), impl=jax.random.key_impl(leaf))
    return np.asarray(leaf).reshape(-1, *leaf.shape[2:])[:count]

  return jax.tree.map(on_host, tree)


def _restore(
  checkpoints: Checkpoints, runs: _sweep_run.Run, record: Mapping[str, Any]
) -> tuple[int, _sweep_run.Run]:
  """Number of evaluations and runs from the newest checkpoint, or from the start."""
  try:
    restored = checkpoints.restore(_Saved(jnp.int32(0), runs))
  except ValueError as error:
    raise ValueError(
      f"{error}; a sweep resumes with the same cells, seeds, steps and functions"
    ) from error
  if restored is None:
    return 0, runs
  for name, value in record.items():
    stored = restored.record.get(name, value)  # older checkpoints do not hold all
    # As text, NaN equals itself, and 1 is not 1.0.
    if json.dumps(stored, sort_keys=True) != json.dumps(value, sort_keys=True):
      raise ValueError(
        f"the checkpoint in {checkpoints.directory} belongs to another sweep: of its "
        f"{name} it holds {stored}, got {value}"
      )
  return int(restored.state.step), restored.state.runs


def _ended(runs: _sweep_run.Run) -> bool:
  return bool(np.all(np.asarray(runs.stopped) | np.asarray(runs.diverged)))


def _summary(runs: _sweep_run.Run, plan: _sweep_run.Plan) -> dict[str, Any]:
  """Figures that the progress bar shows."""
  stopped, diverged = int(np.sum(runs.stopped)), int(np.sum(runs.diverged))
  best = plan.sign * np.max(np.asarray(runs.best_score))
  return {"best": f"{best:.4g}", "stopped": stopped, "diverged": diverged}


def _result(
  columns: dict[str, np.ndarray],
  seeds: np.ndarray,
  plan: _sweep_run.Plan,
  runs: _sweep_run.Run,
) -> SweepResult:
  """Arranges the runs by cell and seed."""
  shape = (len(next(iter(columns.values()))), len(seeds))

  def by_cell(leaf: Array | np.ndarray) -> Array:
    # On one device: programs on several that wait for each other would deadlock.
    return jnp.asarray(leaf.reshape(*shape, *leaf.shape[1:]))

  def on_host(leaf: Array | np.ndarray) -> np.ndarray:
    return np.asarray(leaf).reshape(*shape, *leaf.shape[1:])

  best = on_host(runs.best_score)
  return SweepResult(
    cells=columns,
    seeds=seeds,
    steps=plan.evaluate_every * np.arange(1, plan.evaluations + 1),
    scores=on_host(runs.scores),
    curves=jax.tree.map(on_host, runs.metrics),
    best_score=np.where(np.isfinite(best), plan.sign * best, np.nan),
    best_step=on_host(runs.best_step),
    best_state=jax.tree.map(by_cell, runs.best_state),
    state=jax.tree.map(by_cell, runs.state),
    stopped=on_host(runs.stopped),
    diverged=on_host(runs.diverged),
  )
