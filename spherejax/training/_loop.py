"""Training loop: steps, reports, evaluations, checkpoints."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from spherejax import _checks
from spherejax.training import _manifest, _monitor, _parallel, _returned
from spherejax.training._checkpoints import Checkpoints
from spherejax.training._monitor import Monitor, MonitorState
from spherejax.training._state import TrainState

_logger = logging.getLogger(__name__)

Evaluate = Callable[[TrainState], Mapping[str, Any]]
Respond = Callable[[TrainState, Mapping[str, float]], TrainState]


class FitResult(NamedTuple):
  """Result of `fit`.

  Attributes:
    state: after the last step.
    best: the state of the best evaluation. Without a monitor, the last state; the first
      state if the monitor saw no finite number.
    curve: one dict per report: "step", and the means of the step's metrics since the
      previous report.
    evaluations: one dict per evaluation: "step", and the result of `evaluate`.
    stopped_early: True if the monitor's patience ended the run.
  """

  state: TrainState
  best: TrainState
  curve: list[dict[str, Any]]
  evaluations: list[dict[str, Any]]
  stopped_early: bool


def fit(
  state: TrainState,
  step: Callable[..., tuple[TrainState, dict[str, jax.Array]]],
  batches: Callable[[int], Iterable[Any]],
  *,
  steps: int,
  evaluate: Evaluate | None = None,
  evaluate_every: int = 500,
  monitor: Monitor | None = None,
  respond: Respond | None = None,
  checkpoints: Checkpoints | None = None,
  checkpoint_every: int = 500,
  report_every: int = 50,
  devices: Sequence[Any] | None = None,
  progress: bool = True,
) -> FitResult:
  """Trains until `steps` steps are done, on all devices.

  With `checkpoints` the run resumes from its newest checkpoint, if any. A run that is
  killed at any moment and started again ends with the same bits as an uninterrupted
  run. A loss, gradient or parameter that is not finite stops the run before it reaches
  a checkpoint. If the best checkpoint is lost, the log warns, and the best of the later
  evaluations takes its place.

  Args:
    state: the state before the first step, on one device.
    step: what `make_step` built.
    batches: `batches(first)` yields the batches of steps first, first + 1, ... (from
      0), pytrees of host arrays [batch, ...]; in a run of several processes, this
      process's rows. They may depend only on the step's number, as `data.batches` do.
    steps: static. Total number of steps, including steps before a resumption.
    evaluate: `evaluate(state)` returns numbers by name; called every
      `evaluate_every` steps and after the last.
    evaluate_every: static. In steps.
    monitor: decides which evaluation is the best, when to stop, and when to lower the
      learning rate.
    respond: `respond(state, values)` returns the state to continue with after each
      evaluation, given the result of `evaluate`; `ccp_response` makes one. The monitor
      keeps the evaluated state.
    checkpoints: where to write checkpoints; None writes nothing.
    checkpoint_every: static. In steps; the last step is always written.
    report_every: static. Steps between two reports of the losses, which wait for the
      devices.
    devices: devices that take part, in a run of one process only; None takes all.
    progress: True shows a bar on stderr.

  Returns:
    `FitResult`. After a resumption its curve and evaluations cover the whole run.

  Raises:
    TypeError: an argument, or what a function returns, has the wrong type.
    FloatingPointError: a loss, gradient norm or parameter is not finite; the message
      names the step and the last checkpoint before it.
    ValueError: batches ran out; the devices do not divide a batch; a checkpoint not of
      `fit`, of another model or key, or of a run whose monitor differs in its
      metric, its mode or the use of a plateau rule; a monitor or `respond` without
      `evaluate`, or a monitor for a metric that `evaluate` does not return.
    OSError: a checkpoint could not be written; earlier ones are intact.
    RuntimeError: another process of the run ended; no checkpoint can be read.

  Cost: one compilation of the step for each batch shape.

  Source: none.

  Example:
    >>> import numpy as np
    >>> import optax
    >>> def objective(params, batch_stats, batch, *, key, axis_name):
    ...   errors = (batch["x"] @ params["network"]["w"] - batch["y"]) ** 2
    ...   mean = spherejax.training.global_mean(errors, axis_name=axis_name)
    ...   return spherejax.training.Outcome(mean)
    >>> def batches(first):
    ...   for number in range(first, 100):
    ...     x = np.random.default_rng(number).normal(size=(8, 2)).astype(np.float32)
    ...     yield {"x": x, "y": x @ np.array([1, 2], np.float32)}
    >>> optimizer = optax.sgd(0.1)
    >>> state = spherejax.training.create_state(
    ...     jax.random.key(0), optimizer, {"params": {"w": jnp.zeros(2)}}
    ... )
    >>> step = spherejax.training.make_step(objective, optimizer)
    >>> result = spherejax.training.fit(
    ...     state, step, batches, steps=100, progress=False
    ... )
    >>> result.state.params["network"]["w"].round(3)
    Array([1., 2.], dtype=float32)
  """
  _checks.flag("progress", progress)
  for name, value in (
    ("steps", steps),
    ("evaluate_every", evaluate_every),
    ("checkpoint_every", checkpoint_every),
    ("report_every", report_every),
  ):
    _checks.count(name, value)
  _checks.instance("state", state, TrainState)
  _checks.function("step", step)
  _checks.function("batches", batches)
  for name, value in (("evaluate", evaluate), ("respond", respond)):
    if value is not None:
      _checks.function(name, value)
  if monitor is not None:
    _monitor.check(monitor)
  if checkpoints is not None:
    _checks.instance("checkpoints", checkpoints, Checkpoints)
  for name, value in (("a monitor", monitor), ("respond", respond)):
    if value is not None and evaluate is None:
      raise ValueError(f"{name} needs evaluate, got None")
  run = _Run.start(state, monitor, evaluate, respond, checkpoints, devices)
  mapped = _parallel.parallel_step(step, devices=devices)
  first = run.step
  rows = iter(()) if first >= steps else _returned.batches(batches(first))
  hidden = not progress or jax.process_index() != 0
  bar = tqdm.tqdm(total=steps, initial=first, disable=hidden, unit="step")
  with bar, run.lost_process_explained():
    while run.step < steps and not run.stopped:
      batch = next(rows, None)
      if batch is None:
        raise ValueError(f"batches ran out after step {run.step} of {steps}")
      part = _parallel.shard(batch, devices=devices)
      run.replicated, metrics = mapped(run.replicated, part)
      _checks.instance("the state that step returns", run.replicated, TrainState)
      run.advance(metrics)
      bar.update()
      evaluating = run.due(evaluate_every, steps) and evaluate is not None
      saving = run.due(checkpoint_every, steps) and checkpoints is not None
      if run.due(report_every, steps) or evaluating or saving:
        bar.set_postfix(run.report())
      if evaluating:
        bar.set_postfix(run.evaluate_now())
      if saving or (run.stopped and checkpoints is not None):
        run.save()
  return run.result()


@dataclasses.dataclass
class _Run:
  """State of `fit` that changes while it runs."""

  replicated: TrainState
  step: int
  best: TrainState
  monitor_state: MonitorState
  curve: list[dict[str, Any]]
  evaluations: list[dict[str, Any]]
  monitor: Monitor | None
  evaluate: Evaluate | None
  respond: Respond | None
  checkpoints: Checkpoints | None
  devices: Sequence[Any] | None
  pending: list[Any] = dataclasses.field(default_factory=list)
  responded: bool = False  # since the last evaluation

  @classmethod
  def start(
    cls,
    state: TrainState,
    monitor: Monitor | None,
    evaluate: Evaluate | None,
    respond: Respond | None,
    checkpoints: Checkpoints | None,
    devices: Sequence[Any] | None,
  ) -> "_Run":
    """Starts a run at the given state, or at its newest checkpoint."""
    monitor_state = MonitorState() if monitor is None else _monitor.start(monitor)
    # Without a finite evaluation the best state is the first one.
    best, record = state, {"curve": [], "evaluations": []}
    like = jax.eval_shape(lambda: state)  # of the types that the devices will hold
    restored = None if checkpoints is None else checkpoints.restore(like)
    if checkpoints is not None and restored is not None:
      _check_key(state, restored.state, checkpoints)
      state = restored.state
      record = restored.record
      if "seen" not in record:
        raise ValueError(f"the checkpoint in {checkpoints.directory} is not one of fit")
      _logger.info("resuming at step %d from %s", state.step, checkpoints.directory)
      _monitor.check_record(record, monitor, checkpoints.directory)
      monitor_state = MonitorState(**record["seen"])
      if monitor_state.best_step is not None:
        best, monitor_state = _restored_best(state, monitor_state, checkpoints)
    return cls(
      replicated=_parallel.replicate(state, devices=devices),
      step=int(state.step),
      best=best,
      monitor_state=monitor_state._replace(plateau=tuple(monitor_state.plateau)),
      curve=record["curve"],
      evaluations=record["evaluations"],
      monitor=monitor,
      evaluate=evaluate,
      respond=respond,
      checkpoints=checkpoints,
      devices=devices,
    )

  @property
  def stopped(self) -> bool:
    """True once patience has run out."""
    return self.monitor is not None and _monitor.should_stop(
      self.monitor, self.monitor_state
    )

  def due(self, every: int, steps: int) -> bool:
    """True if a periodic action happens after this step."""
    return self.step % every == 0 or self.step == steps

  def advance(self, metrics: Any):
    """Counts a step; its metrics stay on the devices until the next report."""
    self.step += 1
    self.pending.append(metrics)

  def report(self) -> dict[str, float]:
    """Reports means since the previous report; raises if a loss is not finite."""
    _returned.reported(self.pending)
    rows = [
      {
        name: float(np.asarray(value.addressable_shards[0].data).reshape(()))
        for name, value in metrics.items()
      }
      for metrics in self.pending
    ]
    for number, row in enumerate(rows, start=self.step - len(rows) + 1):
      for name in ("loss", "gradient_norm"):
        if not np.isfinite(row[name]):
          raise self._not_finite(name, row[name], number)
    self.pending = []
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    self.curve.append({"step": self.step} | means)
    return means

  def evaluate_now(self) -> dict[str, float]:
    """Evaluates the state, keeps it if it is the best, and calls `respond`."""
    if self.evaluate is None:
      return {}
    state, self.responded = _parallel.unreplicate(self.replicated), False
    values = _returned.numbers("evaluate", self.evaluate(state))
    self.evaluations.append({"step": self.step} | values)
    if self.monitor is not None:
      self._watch(self.monitor, state, values)
    if self.respond is not None and not self.stopped:
      before = _parallel.unreplicate(self.replicated)
      after = self.respond(before, values)
      _checks.instance("what respond returns", after, TrainState)
      self.responded = after is not before
      if self.responded:
        self.replicated = _parallel.replicate(after, devices=self.devices)
    return values

  def _watch(self, monitor: Monitor, state: TrainState, values: dict[str, float]):
    """Keeps the state if it is the best; sets the learning rate."""
    if monitor.metric not in values:
      raise ValueError(
        f"evaluate must return the monitored metric {monitor.metric!r}, got "
        f"{sorted(values)}"
      )
    value = values[monitor.metric]
    self.monitor_state, improved = _monitor.observe(
      monitor, self.monitor_state, self.step, value
    )
    if monitor.plateau is not None:
      scale = jnp.float32(_monitor.learning_rate_scale(self.monitor_state))
      self.replicated = self.replicated.replace(
        learning_rate_scale=_parallel.replicate(scale, devices=self.devices)
      )
    if improved:
      self.best = state
      if self.checkpoints is not None:
        self._check_parameters(state)
        self.checkpoints.save_best(state, self._record())

  def save(self):
    """Writes a checkpoint, unless the parameters are not finite."""
    if self.checkpoints is not None:
      state = _parallel.unreplicate(self.replicated)
      self._check_parameters(state)
      self.checkpoints.save(state, self._record())

  def result(self) -> FitResult:
    """Result of `fit`."""
    state = _parallel.unreplicate(self.replicated)
    self._check_parameters(state)
    best = state if self.monitor is None else self.best
    return FitResult(state, best, self.curve, self.evaluations, self.stopped)

  def _record(self) -> dict[str, Any]:
    return {
      "curve": self.curve,
      "evaluations": self.evaluations,
      "seen": self.monitor_state._asdict(),
      "monitor": _monitor.watched(self.monitor),
      "responded": self.responded,
    }

  def _check_parameters(self, state: TrainState):
    leaves = jax.tree_util.tree_leaves_with_path((state.params, state.batch_stats))
    for path, leaf in leaves:
      if _manifest.is_key(leaf):
        continue
      finite = np.isfinite(np.asarray(leaf, np.float64))
      if not finite.all():
        name = jax.tree_util.keystr(path[1:], simple=True, separator=".")
        raise self._not_finite(name, np.asarray(leaf)[~finite][0], self.step)

  def _not_finite(self, name: str, value: Any, step: int) -> FloatingPointError:
    return FloatingPointError(f"{name} is {value} at step {step}; {self._last()}")

  def _last(self) -> str:
    if self.checkpoints is None:
      return "the run keeps no checkpoints"
    directory, saved = self.checkpoints.directory, self.checkpoints.latest_step()
    if saved is None and (best := self.checkpoints.best_step()) is not None:
      return (
        f"no checkpoint but the best one, of step {best}, was written to {directory}"
      )
    if saved is None:
      return f"no checkpoint was written to {directory} before it"
    return f"the last good checkpoint is that of step {saved} in {directory}"

  @contextlib.contextmanager
  def lost_process_explained(self) -> Iterator[None]:
    """Explains the likely cause when a run of several processes fails."""
    try:
      yield
    except jax.errors.JaxRuntimeError as error:
      if jax.process_count() == 1:
        raise
      raise RuntimeError(
        f"process {jax.process_index()} of {jax.process_count()} cannot go on after "
        f"step {self.step}, most likely because another one ended; {self._last()}; "
        f"start all of them again ({error})"
      ) from error


def _check_key(state: TrainState, restored: TrainState, checkpoints: Checkpoints):
  """Raises for a checkpoint of another seed."""
  now, stored = (
    np.asarray(jax.random.key_data(one_state.key)).tolist()
    for one_state in (state, restored)
  )
  if stored != now:
    raise ValueError(
      f"the checkpoint in {checkpoints.directory} belongs to a run with another key "
      f"(another seed): {stored}, got {now}; go on with the same one, or write to "
      "another folder"
    )


def _restored_best(
  state: TrainState, monitor_state: MonitorState, checkpoints: Checkpoints
) -> tuple[TrainState, MonitorState]:
  """Restores the best state; if it is lost, no evaluation counts as the best."""
  restored = checkpoints.restore_best(state, step=monitor_state.best_step)
  if restored is not None and not restored.record.get("responded"):
    return restored.state, monitor_state
  _logger.warning(
    "the best checkpoint, of step %d, is lost from %s; until the next evaluation the "
    "state of step %d counts as the best",
    monitor_state.best_step,
    checkpoints.directory,
    state.step,
  )
  return state, monitor_state._replace(best=None, best_step=None)
