"""One objective trained in two ways, and what a stopped run finds."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.frame import kept
from experiments.frame import training as trainer
from spherejax import training

POINTS = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
OPTIMIZER = optax.sgd(0.1)
SEEN = []


def objective(params, batch_stats, batch, *, key, axis_name):
  del batch_stats, key
  errors = ((batch - params["network"]["w"][None]) ** 2).sum(-1)
  return training.Outcome(training.global_mean(errors, axis_name=axis_name))


def start(key, scale=1.0):
  state = training.create_state(key, OPTIMIZER, {"params": {"w": jnp.zeros(3)}})
  return state.replace(learning_rate_scale=jnp.float32(scale))


def batch(state):
  return jax.lax.dynamic_slice_in_dim(POINTS, 4 * state.step, 4)


def many(folder, rates=(0.5, 1.0), title=""):
  step = training.make_step(objective, OPTIMIZER)
  return trainer.many(
    jax.random.key(0),
    (
      lambda key, hyper: start(key, hyper["rate"]),
      lambda state, key, hyper: (step(state, batch(state))[0], {}),
      lambda state, key, hyper: -jnp.abs(state.params["network"]["w"]).sum(),
    ),
    {"rate": rates}, folder, title=title, seeds=1, steps=6, evaluate_every=2,
    progress=False,
  )  # fmt: skip


def one(folder, scale):
  def batches(first):
    for number in range(first, 6):
      SEEN.append(number)
      yield POINTS[4 * number : 4 * number + 4]

  with training.Checkpoints(folder) as checkpoints:
    return training.fit(
      start(jax.random.key(1), scale), training.make_step(objective, OPTIMIZER),
      batches, checkpoints=checkpoints, steps=6,
      evaluate=lambda state: {"w": float(state.params["network"]["w"][0])},
      evaluate_every=2, checkpoint_every=2, report_every=2,
    )  # fmt: skip


def test_an_objective_ends_alike_as_a_sweep_and_as_a_fit(tmp_path):
  swept = many(tmp_path / "many").state.params["network"]["w"]
  for place, scale in enumerate((0.5, 1.0)):
    fitted = one(tmp_path / f"{place}", scale).state.params["network"]["w"]
    np.testing.assert_allclose(swept[place, 0], fitted, rtol=1e-6)
    expected = np.zeros(3)
    for four in POINTS.reshape(6, 4, 3):
      expected -= scale * 0.2 * (expected - four.mean(0))
    np.testing.assert_allclose(fitted, expected, rtol=1e-5)
    SEEN.clear()
    again = one(tmp_path / f"{place}", scale)  # a finished fit is read
    assert SEEN == []
    np.testing.assert_array_equal(again.state.params["network"]["w"], fitted)


def test_runs_that_diverge_are_named_by_their_cells(tmp_path):
  with pytest.raises(FloatingPointError, match=r"C2: 1 of 2 .* \[\{'rate': inf\}\]"):
    many(tmp_path, (0.5, np.inf), "C2")
  assert many(tmp_path, (0.5, np.inf)).diverged.tolist() == [[False], [True]]


def test_what_is_kept_is_made_once_for_the_same_settings(tmp_path):
  made = []

  def make():
    made.append(kept.Finished({"x": len(made)}, {}))
    return made[-1]

  for steps, expected in ((3, 0), (3, 0), (4, 1)):
    done = kept.once(tmp_path / "a", made_with={"steps": steps}, make=make)
    assert done.figures == {"x": expected}


def test_what_was_kept_comes_back_for_the_same_settings_only(tmp_path):
  path, settings = tmp_path / "kept" / "a-0", {"steps": 3, "sizes": (1, 2)}
  assert kept.restore(path, settings) is None
  arrays = {"C2, GSP": np.arange(3.0), "a/b": np.zeros((0, 2), np.int32)}
  done = kept.Finished({"MAP@R": 0.5, "curve": [1.0, 2.0]}, arrays)
  kept.keep(path, settings, done)
  found = kept.restore(path, settings)
  assert found is not None
  assert found.figures == done.figures
  np.testing.assert_equal(found.arrays, arrays)
  assert kept.restore(path, settings | {"steps": 4}) is None


def test_arrays_without_their_other_half_do_not_count(tmp_path, monkeypatch):
  path = tmp_path / "a"
  kept.keep(path, {"steps": 1}, kept.Finished({"x": 1}, {}))
  stopped = mock.Mock(side_effect=KeyboardInterrupt)
  monkeypatch.setattr(kept.results, "write_json", stopped)
  with pytest.raises(KeyboardInterrupt):
    kept.keep(path, {"steps": 2}, kept.Finished({"x": 2}, {}))
  assert kept.restore(path, {"steps": 1}) is None
  assert kept.restore(path, {"steps": 2}) is None


def test_a_fingerprint_depends_on_values_shapes_and_types():
  x = np.arange(6.0)
  others = [x + 1, x.reshape(2, 3), x.astype("f"), np.zeros(0)]
  found = [kept.fingerprint([array]) for array in (x, *others)]
  found += [kept.fingerprint(pair) for pair in ([x, x], [x[:3], x[3:]])]
  assert len(set(found)) == len(found)
  assert kept.fingerprint([np.asfortranarray(x.reshape(2, 3))]) == found[2]


def test_names_that_end_in_numbers_with_points_are_kept_apart(tmp_path):
  paths = [tmp_path / x for x in ("margin-0.5", "margin-0.7", "margin-0", "a.b.c")]
  for number, path in enumerate(paths):
    kept.keep(path, {}, kept.Finished({"x": number}, {"y": np.ones(number)}))
  for number, path in enumerate(paths):
    done = kept.restore(path, {})
    assert done is not None
    assert done.figures == {"x": number}
    assert len(done.arrays["y"]) == number
