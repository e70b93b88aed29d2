"""Problems inside of a whole training: two patiences, and what is returned."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import training

NAN = float("nan")
LITTLE = 0.8 + 5e-6  # better than 0.8, but within the margin


def objective(params, batch_stats, batch, *, key, axis_name):
  """Both parameters rise by 1 a step where nothing holds them."""
  return training.Outcome(-params["network"]["w"] - params["loss"]["p"])


def weights(state):
  return float(state.params["network"]["w"]), float(state.params["loss"]["p"])


def trained(scores, total):
  """A training whose evaluations have these scores, each after a step."""
  renewals, problems = [], []

  def renew(state):
    renewals.append(weights(state))
    return {"p": state.params["loss"]["p"] + 10}

  def evaluate(state):
    inside = training.ccp_state(state)
    problems.append((int(inside.problem), int(inside.stale)))
    return {"score": scores[int(state.step) - 1]}

  optimizer = optax.chain(training.ccp_projection(), optax.sgd(1.0))
  parts = {"params": {"w": jnp.zeros(())}}, {"params": {"p": jnp.zeros(())}}
  state = training.create_state(jax.random.key(0), optimizer, *parts)
  respond = training.ccp_response(renew, metric="score", weight=0.5, patience=2)
  batch = {"x": np.zeros((1, 1), np.float32)}
  result = training.fit(
    state, training.make_step(objective, optimizer),
    lambda first: [batch] * (100 - first),
    steps=len(scores), evaluate=evaluate, evaluate_every=1, respond=respond,
    monitor=training.Monitor("score", margin=1e-5, patience=total),
    progress=False, devices=jax.local_devices()[:1],
  )  # fmt: skip
  return result, renewals, problems


def test_total_patience_counts_over_problems():
  scores = [
    0.5, 0.7, 0.6, NAN,  # a NaN is no better: the second one ends the problem
    0.4, 0.8, NAN, LITTLE,
    0.1, 0.2, 0.3,  # each the best of its problem, none of the training
    0.9, 0.9,
  ]  # fmt: skip
  result, renewals, problems = trained(scores, total=5)
  assert result.stopped_early
  # From the sixth on five evaluations over two problems, though the last problem has
  # none in vain.
  assert [row["step"] for row in result.evaluations] == list(range(1, 12))
  stale = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]
  assert problems == list(zip([1] * 4 + [2] * 4 + [3] * 3, stale, strict=True))
  # Steps of 1, which the projection shortens: 2, 3, 3.5, 3.75 and so on.
  assert renewals == [(2, 2), (3.5, 14)]
  assert int(result.best.step) == 6
  assert weights(result.best) == (3.5, 14)
  assert weights(result.state) == (3.5 + 1 + 0.5 + 0.25, 24 + 3)


def test_the_best_is_that_of_an_earlier_problem():
  result, renewals, _ = trained([0.9, 0.1, 0.1, 0.5, 0.6, 0.7, 0.8], total=None)
  assert not result.stopped_early
  assert renewals == [(1, 1)]
  assert (int(result.best.step), weights(result.best)) == (1, (1, 1))
  assert int(training.ccp_state(result.state).problem) == 2
  assert float(training.ccp_state(result.state).best) == pytest.approx(0.8)


def test_the_last_evaluation_begins_no_problem():
  result, renewals, _ = trained([0.5, 0.7, 0.6, NAN, 0.9], total=2)
  assert result.stopped_early
  assert len(result.evaluations) == 4
  assert renewals == []
  assert weights(result.state) == (4, 4)  # not those that a problem would begin with
  assert weights(result.best) == (2, 2)


def test_a_training_without_a_score_ends_at_the_total_patience():
  result, renewals, problems = trained([NAN] * 9, total=5)
  assert result.stopped_early
  assert len(result.evaluations) == 5
  assert renewals == []
  assert problems == [(1, n) for n in range(5)]
