"""The loop: what it reports, keeps, stops for, and survives.

Its monitor: the best evaluation, patience and the plateau rule, against plain loops.
"""

import functools
import itertools
import shutil
import signal
import subprocess
import sys
import time
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import training
from spherejax.training import _monitor
from tests.training import resumable_run
from tests.training.test_checkpoints import damage_truncate as cut
from tests.training.trees import assert_same


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
  with training.Checkpoints(tmp_path_factory.mktemp("uninterrupted")) as checkpoints:
    return resumable_run.run(checkpoints)


def assert_same_bits(result, expected):
  assert_same((result.state, result.best), (expected.state, expected.best))
  assert result.curve == expected.curve
  assert result.evaluations == expected.evaluations


def finished_steps(directory):
  names = [entry.name for entry in directory.glob("last/*")]
  return sorted(int(name) for name in names if name.isdigit())


def test_killed_run_resumes_to_identical_bits(tmp_path, uninterrupted):
  """Killed in another process, in the middle of writing a checkpoint."""
  command = [sys.executable, resumable_run.__file__, str(tmp_path)]
  quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
  process = subprocess.Popen(command, env=resumable_run.ENVIRONMENT, **quiet)
  deadline = time.monotonic() + 120
  while finished_steps(tmp_path)[-1:] < [6] or not [*tmp_path.glob("last/*tmp*")]:
    assert process.poll() is None, "the run ended before it could be killed"
    assert time.monotonic() < deadline, "the run made no progress"
    time.sleep(0.001)
  process.send_signal(signal.SIGKILL)
  process.wait()
  assert 6 <= finished_steps(tmp_path)[-1] < 45
  with training.Checkpoints(tmp_path) as checkpoints:
    result = resumable_run.run(checkpoints)
  assert_same_bits(result, uninterrupted)


def test_run_of_many_parts_equals_one(tmp_path, uninterrupted):
  for steps in (20, 45, 45):  # the last time there is nothing left to do
    with training.Checkpoints(tmp_path) as checkpoints:
      result = resumable_run.run(checkpoints, steps=steps)
  assert_same_bits(result, uninterrupted)


def linear(params, batch_stats, batch, *, key, axis_name):
  """|w - 1|^2, times the batch's factor."""
  del batch_stats, key
  loss = jnp.sum((params["network"]["w"] - 1) ** 2) * jnp.mean(batch["factor"])
  return training.Outcome(loss, metrics={"twice": 2 * loss})


LINEAR = training.make_step(linear, optax.sgd(0.125))
PLATEAU = optax.contrib.reduce_on_plateau(0.5, patience=2, rtol=0, atol=1e-3)


def linear_state(seed=0, **collections):
  variables = {"params": {"w": jnp.zeros(2)}, **collections}
  return training.create_state(jax.random.key(seed), optax.sgd(0.125), variables)


def ones(first, number=1000, bad=None, value=np.nan):
  for step in range(first, number):
    yield {"factor": np.full(2, value if step == bad else 1, np.float32)}


def fit_linear(batches=ones, step=LINEAR, state=None, **options):
  options = {"steps": 8, "report_every": 4, "progress": False} | options
  state = linear_state() if state is None else state
  return training.fit(state, step, batches, devices=jax.devices()[:1], **options)


SCORES = {2: 0.1, 4: 0.5, 6: 0.3, 8: 0.5, 10: 0.9}  # an equal score is no better
SCORED = {"evaluate_every": 2, "monitor": training.Monitor("score")}
SCORED["evaluate"] = lambda state: {"score": SCORES[int(state.step)]}


def run_in(folder, **options):
  with training.Checkpoints(folder) as checkpoints:
    return fit_linear(checkpoints=checkpoints, **options)


def test_curve_holds_the_means_between_reports():
  result = fit_linear(steps=6)
  # w_t - 1 = -(3/4)^t, loss_t = 2 (9/16)^t before step t + 1.
  losses = [2 * (9 / 16) ** t for t in range(6)]
  assert [row["step"] for row in result.curve] == [4, 6]
  for row, part in zip(result.curve, (losses[:4], losses[4:]), strict=True):
    np.testing.assert_allclose(row["loss"], np.mean(part), rtol=1e-6)
    np.testing.assert_allclose(row["twice"], 2 * np.mean(part), rtol=1e-6)
    # |2 (w - 1)| = 2 sqrt(loss)
    norm = np.mean([2 * np.sqrt(loss) for loss in part])
    np.testing.assert_allclose(row["gradient_norm"], norm, rtol=1e-6)
  np.testing.assert_allclose(result.state.params["network"]["w"], 1 - 0.75**6)
  assert int(result.state.step) == 6
  assert not result.stopped_early


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nonfinite_loss_names_the_step_and_the_last_good_checkpoint(tmp_path, value):
  batches = functools.partial(ones, bad=6, value=value)
  message = r"loss is (nan|inf) at step 7; the last good.* step 5 "
  with pytest.raises(FloatingPointError, match=message):
    run_in(tmp_path, batches=batches, checkpoint_every=5)
  with training.Checkpoints(tmp_path) as checkpoints:
    assert checkpoints.latest_step() == 5
    state = checkpoints.restore(linear_state()).state
  np.testing.assert_allclose(state.params["network"]["w"], 1 - 0.75**5)


def test_bad_state_is_never_written(tmp_path):
  # The loss is finite, its update is not: a huge rate overflows the parameters.
  def objective(params, batch_stats, batch, *, key, axis_name):
    return training.Outcome(jnp.sum(params["network"]["w"] * 1e15))

  step = training.make_step(objective, optax.sgd(1e30))
  message = r"network\.w is -inf at step 1; no checkpoint"
  with pytest.raises(FloatingPointError, match=message):
    run_in(tmp_path, steps=2, step=step, checkpoint_every=1)
  assert finished_steps(tmp_path) == []


def test_a_bad_state_is_never_the_best(tmp_path):
  def broken(state, batch, *, axis_name=None):
    state, metrics = LINEAR(state, batch, axis_name=axis_name)
    w = jnp.where(state.step < 6, state.params["network"]["w"], jnp.nan)
    return state.replace(params={"network": {"w": w}, "loss": {}}), metrics

  options = {"evaluate": lambda state: {"score": int(state.step)}, "evaluate_every": 2}
  options |= {"monitor": training.Monitor("score"), "checkpoint_every": 100}
  message = r"network\.w is nan at step 6; no checkpoint but the best one, of step 4"
  with pytest.raises(FloatingPointError, match=message):
    run_in(tmp_path, steps=8, step=broken, **options)
  with training.Checkpoints(tmp_path) as checkpoints:
    assert checkpoints.best_step() == 4


def test_what_is_not_finite_is_never_returned_without_checkpoints():
  with pytest.raises(FloatingPointError, match=r"at step 1; the run keeps no checkp"):
    fit_linear(functools.partial(ones, bad=0))
  with pytest.raises(FloatingPointError, match=r"w is inf at step 1; the run keeps"):
    fit_linear(steps=1, step=training.make_step(linear, optax.sgd(3e38)))


def test_lost_process_is_explained(tmp_path, monkeypatch):
  every_batch = resumable_run.batches

  def batches(first):
    yield from itertools.islice(every_batch(first), 7)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    raise jax.errors.JaxRuntimeError("connection reset")

  monkeypatch.setattr(resumable_run, "batches", batches)
  message = "process 0 of 2 cannot go on after step 7.*step 6.*connection reset"
  ends = pytest.raises(RuntimeError, match=message)
  with training.Checkpoints(tmp_path) as checkpoints, ends:
    resumable_run.run(checkpoints)


def test_patience_ends_the_run_and_the_best_state_is_kept(tmp_path):
  options = SCORED | {"evaluate": mock.Mock(wraps=SCORED["evaluate"]), "steps": 20}
  options |= {"monitor": training.Monitor("score", patience=2), "checkpoint_every": 100}
  result, again = (run_in(tmp_path, **options) for _ in range(2))
  assert options["evaluate"].call_count == 4
  for run in (result, again):  # the finished run stays finished
    assert run.stopped_early
    assert int(run.state.step) == 8
    assert int(run.best.step) == 4
    np.testing.assert_allclose(run.best.params["network"]["w"], 1 - 0.75**4)
    assert run.evaluations == [{"step": s, "score": SCORES[s]} for s in (2, 4, 6, 8)]


def test_another_monitor_does_not_go_on_with_what_this_one_saw(tmp_path):
  options = {"evaluate_every": 2, "checkpoint_every": 2}
  options["evaluate"] = lambda state: {"score": 1.0, "loss": 2.0}
  with training.Checkpoints(tmp_path) as checkpoints:
    options["checkpoints"] = checkpoints
    fit_linear(steps=2, monitor=training.Monitor("score", patience=9), **options)
    others = [training.Monitor("loss"), training.Monitor("score", mode="min"), None]
    for other in (*others, training.Monitor("score", plateau=PLATEAU)):
      with pytest.raises(ValueError, match=r"another monitor: .*'score'.*, got "):
        fit_linear(steps=4, monitor=other, **options)
    # Patience and margin are no matter of what was seen.
    fit_linear(steps=4, monitor=training.Monitor("score", patience=3), **options)
    assert checkpoints.latest_step() == 4


def resume(folder, steps, **options):
  return run_in(folder, steps=steps, **SCORED, **options)


def test_a_damaged_best_state_is_found_among_the_newest(tmp_path, caplog):
  resume(tmp_path, 6, checkpoint_every=2)
  cut(tmp_path / "best" / "4")
  again = resume(tmp_path, 8, checkpoint_every=2)
  assert "best of step 4 is unreadable" in caplog.text
  assert int(again.best.step) == 4
  np.testing.assert_allclose(again.best.params["network"]["w"], 1 - 0.75**4)


@pytest.mark.parametrize("lose", [shutil.rmtree, cut])
def test_a_lost_best_state_is_told_of_and_replaced(tmp_path, caplog, lose):
  resume(tmp_path, 6, checkpoint_every=6)
  lose(tmp_path / "best")
  for _ in range(2):  # at each start
    caplog.clear()
    assert int(resume(tmp_path, 6).best.step) == 6
    assert "best checkpoint, of step 4, is lost" in caplog.text
  again = resume(tmp_path, 8, checkpoint_every=8)
  assert int(again.best.step) == 8  # though 0.4 is below 0.5
  assert int(resume(tmp_path, 8).best.step) == 8
  assert int(resume(tmp_path, 10).best.step) == 10


def test_what_a_response_made_of_the_best_state_is_not_the_best(tmp_path, caplog):
  def respond(state, values):
    moved = jax.tree.map(lambda w: w + 100, state.params)
    return state.replace(params=moved) if int(state.step) == 4 else state

  resume(tmp_path, 4, checkpoint_every=2, respond=respond)
  cut(tmp_path / "best" / "4")
  again = resume(tmp_path, 6, checkpoint_every=2, respond=respond)
  assert "best checkpoint, of step 4, is lost" in caplog.text
  assert int(again.best.step) == 6


def test_a_checkpoint_of_another_kind_is_refused(tmp_path):
  with training.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(fit_linear(steps=2).state, {"note": "mine"})
    with pytest.raises(ValueError, match="is not one of fit"):
      fit_linear(steps=4, checkpoints=checkpoints)


def test_the_best_state_is_that_of_the_checkpoint_that_the_run_goes_on_from(tmp_path):
  class KilledError(Exception):
    """Between the best checkpoint of step 10 and the newest one of that step."""

  def die(state, values):
    if int(state.step) == 10:
      raise KilledError
    return state

  with pytest.raises(KilledError):
    resume(tmp_path, 10, checkpoint_every=3, respond=die)
  assert {path.name for path in (tmp_path / "best").iterdir()} == {"4", "10"}
  cut(tmp_path / "last" / "9")
  again = resume(tmp_path, 6)  # goes back to the sixth step
  assert int(again.state.step) == 6
  assert int(again.best.step) == 4
  assert int(resume(tmp_path, 10).best.step) == 10


def test_a_response_that_changes_nothing_copies_nothing(monkeypatch):
  copy = mock.Mock(wraps=training.replicate)
  monkeypatch.setattr(training._loop._parallel, "replicate", copy)

  def respond(state, values):
    moved = {"network": {"w": jnp.ones(2)}, "loss": {}}
    return state.replace(params=moved) if int(state.step) == 4 else state

  options = {"evaluate": lambda _: {"a": 1.0}, "evaluate_every": 2}
  result = fit_linear(steps=6, respond=respond, **options)
  assert copy.call_count == 2  # at the start and after step 4
  np.testing.assert_array_equal(result.state.params["network"]["w"], 1)


def test_rate_falls_on_a_plateau():
  options = {"evaluate": lambda _: {"score": 1.0}, "evaluate_every": 1}
  monitor = training.Monitor("score", plateau=PLATEAU)
  result = fit_linear(steps=5, monitor=monitor, **options)
  # Improvement at 1; stale at 2 and 3: halved after step 3, again after step 5.
  expected = 1 - 0.75**3 * (1 - 0.125) ** 2
  np.testing.assert_allclose(result.state.params["network"]["w"], expected, rtol=1e-6)
  assert float(result.state.learning_rate_scale) == 0.25


def test_settings_that_cannot_work():
  with pytest.raises(ValueError, match="ran out after step 3 of 8"):
    fit_linear(functools.partial(ones, number=3))
  with pytest.raises(ValueError, match="a monitor needs evaluate"):
    fit_linear(monitor=training.Monitor("score"))
  options = {"evaluate": lambda _: {"accuracy": 1.0}, "evaluate_every": 1}
  with pytest.raises(ValueError, match=r"metric 'score', got \['accuracy'\]"):
    fit_linear(monitor=training.Monitor("score"), **options)


def test_bar_goes_to_stderr(capsys):
  fit_linear(progress=True)
  out, err = capsys.readouterr()
  assert out == ""
  assert "8/8" in err
  assert "loss=" in err
  fit_linear(progress=False)
  assert capsys.readouterr().err == ""


def test_a_state_of_numpy_goes_on_from_what_the_devices_held(tmp_path):
  """Types of 64 bits among it, of which the devices hold 32."""
  counted = {"count": np.int64(3), "mean": np.float64(0.5)}
  start = linear_state(params={"w": np.zeros(2)}, batch_stats=counted)
  for steps in (1, 2):
    result = run_in(tmp_path, steps=steps, state=start)
    assert result.state.step == steps
  assert result.state.batch_stats["network"]["count"] == 3


def test_another_seed_in_the_same_folder_is_refused(tmp_path):
  first, again = (run_in(tmp_path, steps=1) for _ in range(2))
  assert_same_bits(again, first)
  with pytest.raises(ValueError, match=r"another key \(another seed\): \[0, 0\], got"):
    run_in(tmp_path, steps=1, state=linear_state(1))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_without_a_finite_evaluation_the_first_state_is_the_best(tmp_path, bad):
  """This also holds for a run that was stopped and resumed."""
  options = {"monitor": training.Monitor("score"), "evaluate_every": 1}
  for steps in (2, 4):
    result = run_in(tmp_path, steps=steps, evaluate=lambda _: {"score": bad}, **options)
    assert result.state.step == steps
    assert result.best.step == 0
    np.testing.assert_array_equal(result.best.params["network"]["w"], [0, 0])


# --- The monitor ---

VALUES = [0.1, 0.2, 0.2, 0.2004, 0.19, 0.25, np.nan, 0.25, 0.24, 0.1, *[0.3] * 4]


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("margin", [0.0, 1e-3])
def test_best_and_patience(mode, margin):
  sign = 1 if mode == "max" else -1
  values = [sign * value for value in VALUES]
  monitor = training.Monitor("score", mode=mode, margin=margin, patience=3)
  state = _monitor.start(monitor)
  best, since = None, 0
  for index, value in enumerate(values):
    since += 1
    if best is None or sign * (value - values[best]) > margin:
      best, since = index, 0
    state, improved = _monitor.observe(monitor, state, index, value)
    assert state.best_step == best
    assert state.best == values[best]
    assert state.stale == since
    assert improved == (since == 0)
    assert _monitor.should_stop(monitor, state) == (since >= 3)


def test_scale_of_a_metric_that_is_to_rise():
  rule = optax.contrib.reduce_on_plateau(0.5, patience=2, rtol=0, atol=1e-3, cooldown=1)
  monitor = training.Monitor("score", plateau=rule)
  _monitor.check(monitor)
  state = _monitor.start(monitor)
  assert _monitor.learning_rate_scale(state) == 1
  scale, best, bad, wait = 1.0, -np.inf, 0, 0
  for index, value in enumerate(VALUES):
    state, _ = _monitor.observe(monitor, state, index, value)
    bad += 1
    if value > best + 1e-3:
      best, bad = value, 0
    if wait:
      wait, bad = wait - 1, 0
    elif bad == 2:
      scale, bad, wait = scale * 0.5, 0, 1
    assert _monitor.learning_rate_scale(state) == scale
  assert scale < 1


def test_monitors_that_cannot_work():
  # With a relative tolerance, an equal value of a negative cost counts as better.
  rule = optax.contrib.reduce_on_plateau(0.5, patience=2)
  for wrong, message in (
    ({"plateau": rule}, "rtol=0"),
    ({"mode": "up"}, "mode must be one of 'max', 'min', got 'up'"),
    ({"margin": -1.0}, "margin must be in"),
    ({"patience": 0}, "patience must be at least 1, got 0"),
  ):
    with pytest.raises(ValueError, match=message):
      _monitor.check(training.Monitor("score", **wrong))
  _monitor.check(training.Monitor("score", mode="min", plateau=rule))


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 2, 3])
def test_what_is_no_finite_number_is_never_the_best(mode, bad, place):
  values = [0.1, 0.3, 0.2] if mode == "max" else [-0.1, -0.3, -0.2]
  values.insert(place, bad)
  rule = optax.contrib.reduce_on_plateau(0.5, patience=9, rtol=0, atol=1e-3)
  monitor = training.Monitor("score", mode=mode, plateau=rule)
  state = _monitor.start(monitor)
  for index, value in enumerate(values):
    state, improved = _monitor.observe(monitor, state, index, value)
    assert not (improved and not np.isfinite(value))
  best = next(i for i, value in enumerate(values) if abs(value) == 0.3)
  assert (state.best, state.best_step) == (values[best], best)
  assert _monitor.learning_rate_scale(state) == 1
  # The rule, too, waits for a value better than 0.3, and not than infinity.
  assert abs(state.plateau[1]) == np.float32(0.3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nothing_is_the_best_of_no_finite_number(bad):
  monitor = training.Monitor("score", patience=3)
  state = _monitor.start(monitor)
  assert _monitor.learning_rate_scale(state) == 1  # without a rule
  for index in range(3):
    assert not _monitor.should_stop(monitor, state)
    state, improved = _monitor.observe(monitor, state, index, bad)
    assert not improved
  assert state.best is None
  assert state.best_step is None
  assert _monitor.should_stop(monitor, state)
