"""Sweeps: every run as if it were alone, whatever the others do; grids and designs."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import _versions, metrics, training

ONE = jax.devices()[:1]
KEY = jax.random.key(7)


def optimizer(hyper):
  return optax.adam(hyper["learning_rate"])


def init(key, hyper):
  params = {"w": jax.random.normal(key, (3,))}
  # An infinity that is there from the start is no divergence.
  return {"params": params, "opt": optimizer(hyper).init(params), "least": jnp.inf}


def step(state, key, hyper, target=2.0):
  x = jax.random.normal(key, (4, 3))

  def loss(params):
    error = jnp.mean((x @ params["w"] - target * x.sum(axis=1)) ** 2)
    return error + hyper["decay"] * jnp.sum(params["w"] ** 2)

  value, grads = jax.value_and_grad(loss)(state["params"])
  updates, opt = optimizer(hyper).update(grads, state["opt"])
  params = optax.apply_updates(state["params"], updates)
  state = {"params": params, "opt": opt, "least": jnp.minimum(state["least"], value)}
  return state, {"loss": value}


def evaluate(state, key, hyper):
  x = jax.random.normal(key, (5, 3))
  return jnp.mean((x @ state["params"]["w"] - 2 * x.sum(axis=1)) ** 2)


CELLS = {"learning_rate": [0.1, 1e30, 0.4], "decay": [0.0, 0.1, 0.01]}
OPTIONS = {"steps": 12, "evaluate_every": 3, "mode": "min", "progress": False}


def cell(number):
  return {name: values[number : number + 1] for name, values in CELLS.items()}


def trained(cells=CELLS, step=step, **options):
  options = OPTIONS | {"seeds": 2, "devices": ONE} | options
  return training.sweep(KEY, init, step, evaluate, cells, **options)


def small(
  init=lambda key, hyper: jnp.zeros(()),
  step=lambda state, key, hyper: (state + hyper["rate"], {}),
  score=lambda state, key, hyper: state,
  *,
  cells,
  key=KEY,
  **options,
):
  """A sweep of sums, on one device."""
  options = {"steps": 2, "evaluate_every": 1, "progress": False} | options
  return training.sweep(key, init, step, score, cells, **{"devices": ONE} | options)


@pytest.fixture(scope="module")
def together():
  return trained()


def assert_same(a, b, **tolerance):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


def test_every_run_equals_the_same_run_alone(together):
  for number, seed in np.ndindex(3, 2):
    alone = trained(cell(number), seeds=[seed])[3:]
    run = jax.tree.map(
      lambda x, i=number, j=seed: x[i : i + 1, j : j + 1], together[3:]
    )
    assert_same(run, alone, rtol=1e-5, atol=1e-6)


def test_a_run_equals_a_plain_loop(together):
  hyper = {name: jnp.float32(values[2]) for name, values in CELLS.items()}
  init_key, step_key, evaluate_key = jax.random.split(jax.random.fold_in(KEY, 1), 3)
  state = init(init_key, hyper)
  next_step, losses, scores, states = jax.jit(step), [], [], []
  for number in range(12):
    state, reported = next_step(state, jax.random.fold_in(step_key, number), hyper)
    losses.append(float(reported["loss"]))
    if number % 3 == 2:
      scores.append(float(evaluate(state, evaluate_key, hyper)))
      states.append(state)
  np.testing.assert_array_equal(together.steps, [3, 6, 9, 12])
  np.testing.assert_allclose(together.scores[2, 1], scores, rtol=1e-5)
  means = np.reshape(losses, (4, 3)).mean(axis=1)
  np.testing.assert_allclose(together.curves["loss"][2, 1], means, rtol=1e-5)
  best = int(np.argmin(scores))
  assert together.best_step[2, 1] == 3 * (best + 1)
  mine = jax.tree.map(lambda x: x[2, 1], (together.best_state, together.state))
  assert_same(mine, (states[best], state), rtol=1e-5, atol=1e-6)


def test_a_diverged_run_is_marked_and_keeps_its_last_good_state(together):
  assert together.diverged.tolist() == [[False] * 2, [True] * 2, [False] * 2]
  assert not together.stopped.any()
  assert np.isnan(together.scores[1]).all()
  assert np.isnan(together.best_score[1]).all()
  assert (together.best_step[1] == 0).all()
  key = jax.random.split(jax.random.fold_in(KEY, 0), 3)[0]
  start = init(key, {"learning_rate": 1.0})["params"]["w"]
  np.testing.assert_allclose(together.state["params"]["w"][1, 0], start, rtol=1e-6)
  first, diverged, last = together.intervals(confidence=0.9)
  assert math.isnan(diverged.mean)
  assert last == metrics.mean_interval(together.best_score[2], confidence=0.9)
  assert first.n == 2


def test_runs_spread_over_devices_are_the_same(together):
  """Six runs on four devices: two of eight places are filled up."""
  assert_same(trained(devices=None), together, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
  "batch_size", [4, *(pytest.param(x, marks=pytest.mark.slow) for x in (1, 9))]
)
def test_runs_in_batches_are_the_same(batch_size, together):
  assert_same(trained(batch_size=batch_size), together, rtol=1e-5, atol=1e-6)


def test_one_after_the_other_nothing_is_computed_for_what_ended():
  scripts = np.array([[2, 1, 1, 1], [1, 2, 3, 4]])
  taken = []

  def counted(state, key, hyper):
    jax.debug.callback(lambda number: taken.append(int(number)), hyper["number"])
    return state + 1, {}

  result = small(
    lambda key, hyper: jnp.int32(0), counted,
    lambda state, key, hyper: hyper["script"][state - 1],
    cells={"script": scripts, "number": [0, 1]},
    seeds=1, steps=4, patience=1, batch_size=1,
  )  # fmt: skip
  jax.effects_barrier()
  assert np.bincount(taken).tolist() == [2, 4]
  assert result.stopped[:, 0].tolist() == [True, False]


# Scores as a script, one a cell: what a run must do with them is known by hand.
INF, NAN = np.inf, np.nan
SCRIPTS = [
  [1, 2, 3, 4, 5, 6],  # improves to the end
  [3, 2, 3, 4, 5, 6],  # two without a better one (a tie is none): stops at the third
  [1, 3, 2, 4, 3, 3],  # patience begins anew: best at the fourth, stops at the sixth
  [1, 2, NAN, 4, 5, 6],  # diverges after two
  [INF, 2, 3, 4, 5, 6],  # diverges at once
  [5, 4, NAN, 4, 5, 6],
]


def play(scores, patience, margin):
  """Outcome of a run: a loop over its evaluations."""
  best, best_at, stale, last, end = -INF, 0, 0, 0, "steps"
  curve = np.full(len(scores), NAN)
  for number, score in enumerate(scores, start=1):
    if not np.isfinite(score):
      end = "diverged"
      break
    curve[number - 1], last = score, number
    if score > best + margin:
      best, best_at, stale = score, number, 0
    else:
      stale += 1
    if stale == patience:
      end = "stopped"
      break
  return curve, best if best_at else NAN, best_at, last, end


@pytest.mark.parametrize(
  ("mode", "patience", "margin"),
  [("max", 2, 0.0), ("min", None, 0.0), ("min", 2, 1.0), ("max", None, 0.5)],
)
def test_stopping_and_best_states_follow_the_scores(mode, patience, margin):
  sign = 1 if mode == "max" else -1
  scripts = sign * np.array(SCRIPTS)
  result = small(
    lambda key, hyper: jnp.int32(0), lambda state, key, hyper: (state + 1, {}),
    lambda state, key, hyper: hyper["script"][state // 2 - 1],
    cells={"script": scripts},
    seeds=1, steps=12, evaluate_every=2, patience=patience, margin=margin, mode=mode,
  )  # fmt: skip
  for number, script in enumerate(np.array(SCRIPTS)):
    curve, best, best_at, last, end = play(script, patience, margin)
    np.testing.assert_array_equal(result.scores[number, 0], sign * curve)
    np.testing.assert_array_equal(result.best_score[number, 0], sign * best)
    assert result.best_step[number, 0] == result.best_state[number, 0] == 2 * best_at
    assert result.state[number, 0] == 2 * last  # frozen to the step
    assert result.stopped[number, 0] == (end == "stopped")
    assert result.diverged[number, 0] == (end == "diverged")


def test_all_stop_before_the_end_and_resume(tmp_path):
  """Killed after two evaluations and started again: the same bits, no step twice."""

  class Killed(training.Checkpoints):
    def save(self, state, record=None):
      super().save(state, record)
      if int(state.step) == 2:
        raise KeyboardInterrupt

  def run(checkpoints=None, number=2):
    return trained(cell(number), steps=60, patience=1, checkpoints=checkpoints)

  whole = run()
  assert whole.stopped.all()
  assert np.isnan(whole.scores[..., -1]).all()  # ended before
  assert np.isfinite(whole.scores[..., 1]).any()  # and after the kill
  with Killed(tmp_path) as checkpoints, pytest.raises(KeyboardInterrupt):
    run(checkpoints)
  with training.Checkpoints(tmp_path) as checkpoints:
    assert checkpoints.latest_step() == 2
    resumed = run(checkpoints)
    with pytest.raises(ValueError, match="another sweep: of its cells"):
      run(checkpoints, 0)
  jax.tree.map(np.testing.assert_array_equal, whole, resumed)


def test_another_sweep_does_not_go_on_with_these_runs(tmp_path):
  def run(checkpoints, **options):
    return small(
      step=lambda state, key, hyper: (state + 1, {}),
      score=lambda state, key, hyper: state * hyper["a"],
      cells={"a": [1.0, 2.0]}, seeds=1, checkpoints=checkpoints, **options,
    )  # fmt: skip

  with training.Checkpoints(tmp_path) as checkpoints:
    whole = run(checkpoints)
    for changed, message in (
      ({"mode": "min"}, "of its mode it holds max, got min"),
      ({"patience": 2}, "of its patience it holds None, got 2"),
      ({"margin": 0.5}, r"of its margin it holds 0\.0, got 0\.5"),
      ({"key": jax.random.key(8)}, r"of its key it holds \[0, 7\], got \[0, 8\]"),
    ):
      with pytest.raises(ValueError, match=message):
        run(checkpoints, **changed)
    # A checkpoint of before, which did not name these, goes on.
    restore = checkpoints.restore

    def older(state):
      newer = restore(state)
      record = {name: newer.record[name] for name in ("cells", "seeds", "steps")}
      return newer._replace(record=record)

    checkpoints.restore = older
    again = run(checkpoints)
  np.testing.assert_array_equal(again.scores, whole.scores)


def test_bound_arrays_are_operands():
  """Arrays bound by Partial are no constants: another value needs no compilation."""
  traces = []

  def traced(target, state, key, hyper):
    traces.append(None)
    return step(state, key, hyper, target)

  def first_loss(target):
    bound = jax.tree_util.Partial(traced, jnp.float32(target))
    return trained(cell(0), bound, seeds=1).curves["loss"][0, 0, 0], len(traces)

  (loss, before), (other, after) = first_loss(2.0), first_loss(3.0)
  assert loss != other
  assert before == after


def test_a_step_is_traced_and_compiled_once(tmp_path, caplog):
  traces = []

  def counted(state, key, hyper):
    traces.append(None)
    return step(state, key, hyper)

  two = jax.devices()[:2]
  with training.Checkpoints(tmp_path) as checkpoints, jax.log_compiles():
    trained(cell(0), counted, checkpoints=checkpoints, seeds=3, devices=two)
  assert len(traces) == 1
  # What is mapped over devices goes by this name: how runs begin, how they advance.
  compiled = [x for x in caplog.messages if x.startswith("Compiling jit(_fun)")]
  assert len(compiled) == 2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_a_function_reads_is_part_of_the_program(place):
  """The number 2 in init, step or evaluate is changed to 5."""

  class Number:
    value = 2.0

  first, second, third = numbers = [Number(), Number(), Number()]
  functions = (
    lambda key, hyper: first.value * jnp.ones(()),
    lambda state, key, hyper: (state + second.value * hyper["rate"], {}),
    lambda state, key, hyper: third.value * state,
  )

  def score(cells=1):
    result = small(*functions, cells={"rate": [1.0] * cells}, seeds=1, steps=1)
    return result.best_score[0, 0]

  assert score() == 8
  numbers[place].value = 5.0
  assert score() == score(cells=2) == (20 if place == 2 else 14)


def test_equal_functions_are_one():
  traces = []

  def begins_at(start):
    return lambda key, hyper: (traces.append(None), jnp.asarray(start))[1]

  start = 1.0
  assert small(begins_at(start), cells={"rate": [1.0]}).best_score[0, 0] == 3
  traced = len(traces)
  assert small(begins_at(start), cells={"rate": [1.0]}).best_score[0, 0] == 3
  assert len(traces) == traced
  assert small(begins_at(4.0), cells={"rate": [1.0]}).best_score[0, 0] == 6


def test_static_hyperparameters_are_named_with_the_reason(unchecked):
  with pytest.raises(TypeError, match=r"'pool' must hold numbers, got 'gap': a choice"):
    small(cells={"rate": [1.0, 2.0], "pool": ["gap", "gsp"]})
  cells = training.grid({"prototypes": [16, 64], "rate": [1.0]})
  with pytest.raises(TypeError, match=r"'prototypes' cannot be vmapped: .*\[16, 64\]"):
    small(lambda key, hyper: jnp.zeros(hyper["prototypes"]).sum(), cells=cells)
  cells = {"use": [True, False], "rate": [1.0, 2.0]}
  for function in (
    {"init": lambda key, hyper: jnp.zeros(()) if hyper["use"] else jnp.ones(())},
    {"step": lambda state, key, hyper: (state / 2 if hyper["use"] else state, {})},
  ):
    with pytest.raises(TypeError, match=r"'use' cannot be .* a branch.*TracerBool"):
      small(**function, cells=cells)


def test_integers_and_booleans_that_are_only_numbers_are_welcome():
  def chosen(key, hyper):
    return jnp.where(hyper["use"], 10.0, 0.0)

  result = small(chosen, cells={"use": [True, False], "rate": [1, 2]}, seeds=1)
  assert result.best_score.tolist() == [[12.0], [4.0]]


def test_errors(unchecked):
  cells = {"rate": [1.0, 2.0]}
  for changes, message in (
    ({"cells": cells | {"mass": [1, 2, 3]}}, "one length, got {'rate': 2, 'mass': 3}"),
    ({"cells": {}}, "at least one hyperparameter"),
    ({"cells": {"rate": 1.0}}, "one value per cell, got a scalar"),
    ({"steps": 7, "evaluate_every": 3}, "multiple of evaluate_every = 3, got 7"),
    ({"seeds": [1, 1]}, r"different numbers below .* got \[1, 1\]"),
    ({"seeds": [2**32]}, r"below 2\*\*31, got \[4294967296\]"),
    ({"patience": 0}, "patience must be at least 1, got 0"),
    ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
  ):
    with pytest.raises(ValueError, match=message):
      small(**{"cells": cells} | changes)
  # A mistake that has nothing to do with the sweep is left as it is.
  with pytest.raises(KeyError, match="speed"):
    small(lambda key, hyper: hyper["speed"], cells=cells)


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_cells_of_a_seed_are_paired_whatever_the_key(impl):
  scores = small(
    lambda key, hyper: jax.random.normal(key),
    lambda state, key, hyper: (state, {}),
    cells={"rate": [1.0, 2.0, 3.0]}, key=jax.random.key(0, impl=impl), seeds=2, steps=1,
    devices=None,
  ).best_score  # fmt: skip
  assert (scores == scores[0]).all()
  assert scores[0, 0] != scores[0, 1]


def test_a_cell_of_nan_goes_on_and_other_types_are_another_sweep(tmp_path):
  def run(*values):
    with training.Checkpoints(tmp_path / f"{len(values)}") as checkpoints:
      return small(
        step=lambda state, key, hyper: (state + jnp.nan_to_num(hyper["rate"]), {}),
        cells={"rate": values}, seeds=1, checkpoints=checkpoints, devices=None,
      )  # fmt: skip

  first, again = (run(1.0, np.nan).best_score for _ in range(2))
  np.testing.assert_array_equal(first, again)
  with pytest.raises(ValueError, match=r"cells it holds .*1\.0, nan.*got .*1\.0, 2\.0"):
    run(1.0, 2.0)
  run(2, 3, 4)
  with pytest.raises(ValueError, match=r"it holds .*2, 3, 4\].*got .*2\.0, 3\.0"):
    run(2.0, 3.0, 4.0)


# --- Grids and two-level designs ---


def test_grid_is_the_product_with_the_last_name_fastest():
  values = {"mass": [0.1, 0.2, 0.3], "beta": [1, 5]}
  cells = training.grid(values)
  rows = list(zip(*cells.values(), strict=True))
  assert rows == list(itertools.product(*values.values()))
  cells = training.grid({"margins": [[1.0, 2.0], [3.0, 4.0]], "beta": [1, 5]})
  assert cells["margins"].tolist() == [[1, 2], [1, 2], [3, 4], [3, 4]]


LEVELS = {"beta": (0.5, 20), "m": (16, 128), "mu": (0.3, 0.7), "lambda": (0.1, 0.5)}


def test_factorial_is_the_grid_or_its_fraction():
  full = training.factorial(LEVELS)
  rows = set(zip(*full.values(), strict=True))
  assert rows == set(itertools.product(*LEVELS.values()))
  half = training.factorial(LEVELS, relation=[tuple(LEVELS)])
  lows = [pair[0] for pair in LEVELS.values()]
  even = {row for row in rows if np.equal(row, lows).sum() % 2 == 0}
  assert sorted(zip(*half.values(), strict=True)) == sorted(even)
  # Two words leave a quarter.
  levels = dict.fromkeys("abcde", (-1, 1))
  cells = training.factorial(levels, relation=["abd", "ace"])
  assert len(cells["a"]) == 8
  assert (cells["a"] * cells["b"] * cells["d"] == 1).all()
  assert (cells["a"] * cells["c"] * cells["e"] == 1).all()


def test_numbers_that_a_program_could_not_hold_are_refused(x64):
  wide = {"count": [2**40, 3], "rate": [1e39, 1.0]}
  assert training.grid(wide)["count"].tolist() == [2**40, 2**40, 3, 3]
  with _versions.enable_x64(False):
    with pytest.raises(ValueError, match=r"'count' .* int32, got 1099511627776"):
      training.grid({"count": wide["count"]})
    with pytest.raises(ValueError, match=r"'rate' .* float32, got 1e\+39"):
      training.grid({"rate": wide["rate"]})
    assert np.isinf(training.grid({"budget": [1.0, np.inf]})["budget"][1])
