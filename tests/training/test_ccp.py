"""Chance-constrained training: its algebra, its decisions, whole trainings."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import _versions, distances, losses, prototypes, training
from tests.training.trees import assert_same

TOY = {"network": {"w": jnp.array([1.0, -2.0])}, "loss": {"proxies": jnp.zeros(2)}}


def descended(weight, rate, anchor, params, grads):
  """Weights of the network after a step of plain descent."""
  chain = optax.chain(training.ccp_projection(first_weight=weight), optax.sgd(rate))
  anchor, params, grads = (
    {"network": jnp.asarray(x), "loss": jnp.zeros(0)} for x in (anchor, params, grads)
  )
  updates, _ = chain.update(grads, chain.init(anchor), params)
  return optax.apply_updates(params, updates)["network"]


def scripted(scores, **options):
  """Problems and parameters after each of the scores; the network is the number."""
  state = training.ccp_projection().init({"network": jnp.float32(0), "loss": 0.0})
  turns = []
  for number, score in enumerate(scores, start=1):
    params = {"network": jnp.float32(number), "loss": jnp.float32(-number)}
    turns.append(training.ccp_observe(state, params, score, **options))
    state = turns[-1].state
  return turns


def test_a_problem_ends_when_its_patience_does():
  turns = scripted([1, 2, 3, 3, 3, 3, 0, 1], weight=0.5)
  assert [bool(t.switched) for t in turns] == [False] * 5 + [True, False, False]
  last = turns[5]
  # The best is the third: the weights, the anchor and the proxies are those.
  assert last.params == {"network": 3, "loss": -3}
  assert last.state.anchor == 3
  assert [float(t.state.weight) for t in turns] == [0] * 5 + [0.5] * 3
  assert [int(t.state.problem) for t in turns] == [1] * 5 + [2] * 3
  # A new problem's first evaluation is its best, however bad.
  assert turns[6].state.best_params["network"] == 7
  assert turns[7].state.best == 1


def test_decisions_at_the_margin_without_a_score_and_at_the_last_problem():
  margin = scripted([1, 1 + 1e-5, 1 + 1e-5, 1.1], patience=2, margin=2e-5)
  assert [bool(t.switched) for t in margin] == [False, False, True, False]
  # A problem without a score has nothing to go back to: what was learned stays.
  lost = scripted([np.nan] * 5 + [0.1] + [np.nan] * 2, patience=2)
  assert [bool(t.switched) for t in lost] == [False] * 7 + [True]
  assert [float(t.params["network"]) for t in lost] == [1, 2, 3, 4, 5, 6, 7, 6]
  # Infinity is no score either: nothing could be better.
  infinite = scripted([0.1, np.inf, -np.inf, 0.2, np.inf], patience=3)
  assert [float(t.state.best) for t in infinite] == pytest.approx([0.1] * 3 + [0.2] * 2)
  ended = scripted([1, 1, 1, 1, 1, 1], patience=1, max_problems=2)
  assert [int(t.state.problem) for t in ended] == [1, 2, 2, 2, 2, 2]
  # The released restart keeps the weights and takes the best proxies.
  turn = scripted([2, 1], patience=1, restart="last")[-1]
  assert turn.params == {"network": 2, "loss": -1}
  assert turn.state.anchor == 1


def test_a_state_can_be_donated():
  projection, params = training.ccp_projection(), {"network": jnp.ones(2)}
  state = jax.jit(lambda *x: x, donate_argnums=(0, 1))(params, projection.init(params))
  np.testing.assert_array_equal(state[1].anchor, 1)


def test_statistics_return_with_the_best_weights():
  state = training.ccp_projection({"mean": jnp.zeros(1)}).init(TOY)
  for number, score in ((1, 3), (2, 1)):
    stats = {"mean": jnp.full(1, number)}
    turn = training.ccp_observe(state, TOY, score, patience=1, batch_stats=stats)
    state = turn.state
  assert turn.switched
  assert turn.batch_stats["mean"] == 1


def test_decisions_compile_and_vmap_over_scores_and_weights():
  state = training.ccp_projection().init(TOY)

  @jax.jit
  @functools.partial(jax.vmap, in_axes=(None, 0, 0))
  def after(state, scores, weight):
    def one(carry, score):
      state, params = carry
      turn = training.ccp_observe(state, params, score, weight=weight, patience=1)
      return (turn.state, turn.params), turn.switched

    return jax.lax.scan(one, (state, TOY), scores)

  scores = jnp.array([[1.0, 2.0, 1.0], [1.0, 0.0, 0.0]])
  (states, _), switched = after(state, scores, jnp.array([0.1, 0.2]))
  np.testing.assert_array_equal(switched, [[False, False, True], [False, True, False]])
  np.testing.assert_allclose(states.weight, [0.1, 0.2], rtol=1e-6)


def test_the_projection_is_the_gradient_of_the_squared_distance():
  projection = training.ccp_projection(first_weight=0.3)
  moved = {"network": {"w": jnp.array([0.5, 4.0])}, "loss": {"proxies": jnp.ones(2)}}
  zero = jax.tree.map(jnp.zeros_like, moved)
  pull = projection.update(zero, projection.init(TOY), moved)[0]
  # Of 0.3 / 2 |w - anchor|^2, from the anchor (1, -2).
  np.testing.assert_allclose(pull["network"]["w"], [0.3 * -0.5, 0.3 * 6], rtol=1e-6)
  np.testing.assert_array_equal(pull["loss"]["proxies"], 0)


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_a_quadratic_problem_ends_at_its_minimiser(weight):
  w, target = np.float32([1, -2]), np.float32([3, 0.5])
  end = descended(weight, 1 / (1 + weight), w, w, w - target)
  np.testing.assert_allclose(end, (weight * w + target) / (1 + weight), rtol=1e-6)


@pytest.mark.parametrize(("rate", "weight"), [(0.3, 0.1), (1.0, 0.25), (0.5, 1.5)])
def test_a_step_is_a_moving_average_of_shorter_steps(rate, weight, x64):
  """DML 3.2.3: plain descent at the rate r moves to a mean of the anchor and a step."""
  weight = float(np.float32(weight))  # as the state has it
  anchor, w, gradient = np.random.default_rng(0).normal(size=(3, 7))
  end = descended(weight, rate, anchor, w, gradient)
  assert end.dtype == np.float64
  share = rate * weight
  step = w - rate / (1 - share) * gradient
  wanted = (1 - share) * step + share * anchor
  np.testing.assert_allclose(end, wanted, rtol=1e-14, atol=1e-14)
  # As it is printed the step has the rate itself, which is off by this.
  printed = (1 - share) * (w - rate * gradient) + share * anchor
  gap = -rate * share * gradient
  np.testing.assert_allclose(end - printed, gap, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_problems_in_turn_reach_the_intersection_of_their_sets(weight):
  """Half-spaces a w <= b, the loss half of the squared violation: DML eq. 3.2.9."""
  weight = float(np.float32(weight))  # as the state has it
  random = np.random.default_rng(5)
  normals, feasible = random.normal(size=(4, 6)), random.normal(size=6)
  bounds = normals @ feasible + 0.1

  def problem(anchor, half):
    a, b = half
    w = anchor
    for _ in range(2):  # the first step reaches the minimiser, the second stays
      grads = a * jnp.maximum(a @ w - b, 0)
      w = descended(weight, 1 / (weight + a @ a), anchor, w, grads)
    return w, w

  with _versions.enable_x64(True):
    solve = jax.jit(lambda w: jax.lax.scan(problem, w, (normals, bounds)))
    w = feasible + np.linalg.pinv(normals) @ np.array([5.0, 8.0, 3.0, 6.0])
    assert (normals @ w - bounds).min() > 1  # outside of each
    moves = np.zeros(4, int)
    for _ in range(500):
      before, (w, path) = w, solve(w)
      path = np.asarray(path)
      moves += np.abs(np.diff([before, *path], axis=0)).max(1) > 1e-9
      for a, b, after in zip(normals, bounds, path, strict=True):
        exact = before - a * max(a @ before - b, 0) / (weight + a @ a)
        np.testing.assert_allclose(after, exact, rtol=1e-12, atol=1e-12)
        old, new = (np.linalg.norm(x - feasible) for x in (before, after))
        assert new <= old + 1e-13
        before = after
    assert (normals @ np.asarray(w) - bounds).max() < 1e-12
    assert moves.min() >= 1  # each half-space has been projected onto
    assert moves.max() >= 7  # and one cycle was not enough


def test_proxies_that_are_the_batch_give_its_loss_and_half_its_gradient():
  x = np.random.default_rng(2).normal(size=(8, 3)).astype(np.float32)
  labels = np.repeat(np.arange(4), 2)

  @jax.value_and_grad
  def mean(x, references):
    options = {"normalize": "unit_ball", "negative_margin": 2.0}
    return losses.contrastive(x, labels, references=references, **options).mean()

  value, gradient = mean(x, None)
  references = losses.References(x, labels, jnp.ones(8, bool), None)
  proxied, half = mean(x, references)
  assert proxied == pytest.approx(float(value), rel=1e-6)
  np.testing.assert_allclose(half, gradient / 2, rtol=1e-4)


POINTS = np.random.default_rng(3).normal(size=(12, 4)).astype(np.float32)
LABELS = np.repeat(np.arange(3), 4).astype(np.int32)


def embed(w, x):
  return distances.unit_ball(x @ w)


def objective(params, batch_stats, batch, *, key, axis_name):
  proxies = params["loss"]["proxies"].reshape(-1, 2)
  references = losses.References(proxies, jnp.repeat(jnp.arange(3), 2))
  z = embed(params["network"]["w"], batch["x"])
  options = {"references": references, "normalize": "unit_ball"}
  each = losses.cosine_contrastive(z, batch["y"], **options)
  return training.Outcome(training.global_mean(each, axis_name=axis_name))


def renew(state):
  key = jax.random.fold_in(jax.random.key(6), state.step)
  rows = jax.vmap(lambda k, c: c * 4 + jax.random.permutation(k, 4)[:3])(
    jax.random.split(key, 3), jnp.arange(3)
  )
  pools = embed(state.params["network"]["w"], POINTS)[rows]
  return {"proxies": prototypes.renew_proxies(pools, state.params["loss"]["proxies"])}


def start(fresh=False):
  groups = {"network": optax.adam(0.05), "loss": optax.adam(0.1)}
  optimizer = optax.chain(training.ccp_projection(), training.optimizer(groups))
  key = jax.random.key(5)
  network = {"params": {"w": jax.random.normal(key, (4, 2))}}
  loss = {"params": {"proxies": jax.random.normal(key, (3, 2, 2))}}
  state = training.create_state(key, optimizer, network, loss)
  options = {"metric": "score", "patience": 2, "weight": 0.01}
  options |= {"fresh_moments": optimizer} if fresh else {}
  respond = training.ccp_response(renew, **options)
  return state, training.make_step(objective, optimizer), respond


def batches(first):
  for number in range(first, 60):
    rows = np.random.default_rng(number).permutation(12)[:8]
    yield {"x": POINTS[rows], "y": LABELS[rows]}


def evaluate(state):
  """The score is rounded, so that it stops to improve."""
  z = np.asarray(embed(state.params["network"]["w"], POINTS))
  far = np.linalg.norm(z[:, None] - z[None], axis=-1)
  other = LABELS[:, None] != LABELS[None]
  score = float(np.round(far[other].mean() - far[~other].mean(), 1))
  return {"score": score, "problem": int(training.ccp_state(state).problem)}


def run(checkpoints=None, source=batches):
  state, step, respond = start()
  return training.fit(
    state, step, source, steps=60, evaluate=evaluate, evaluate_every=4,
    respond=respond, checkpoints=checkpoints, checkpoint_every=3, progress=False,
    devices=jax.local_devices()[:2],
  )  # fmt: skip


@pytest.mark.slow
def test_a_run_that_is_stopped_inside_of_a_problem_goes_on_with_the_same_bits(tmp_path):
  whole = run()
  lengths = np.bincount([int(row["problem"]) for row in whole.evaluations])[1:]
  assert len(lengths) >= 3
  assert (lengths[:-1] >= 3).all()  # the first evaluation and the patience

  def cut(first):
    yield from itertools.islice(batches(first), stop - first)
    raise KeyboardInterrupt

  for stop in (20, 41):
    folder = tmp_path / str(stop)
    with training.Checkpoints(folder) as checkpoints, pytest.raises(KeyboardInterrupt):
      run(checkpoints, cut)
    with training.Checkpoints(folder) as checkpoints:
      resumed = run(checkpoints)
    assert resumed.evaluations == whole.evaluations
    assert_same(resumed.state, whole.state)


def test_a_switch_renews_the_proxies_and_on_request_their_moments():
  state, _, respond = start(fresh=True)
  moments = jax.tree.map(jnp.ones_like, state.opt_state[1])
  state = state.replace(opt_state=(state.opt_state[0], moments))
  for _ in range(3):
    state = respond(state, {"score": 1.0})
  assert int(training.ccp_state(state).problem) == 2
  for path, leaf in jax.tree_util.tree_leaves_with_path(state.opt_state[1]):
    fresh = "'loss'" in jax.tree_util.keystr(path)
    np.testing.assert_array_equal(leaf, 0 if fresh else 1)
  pool = np.asarray(embed(state.params["network"]["w"], POINTS))
  for c, proxies in enumerate(np.asarray(state.params["loss"]["proxies"])):
    for proxy in proxies:  # each is an embedding of its class
      assert np.abs(pool[4 * c : 4 * c + 4] - proxy).sum(1).min() < 1e-6


def test_a_layer_called_loss_keeps_its_moments():
  optimizer = optax.chain(training.ccp_projection(), optax.sgd(0.1, momentum=0.9))
  parts = {"params": {"loss": jnp.ones(2)}}, {"params": {"proxies": jnp.ones(2)}}
  state = training.create_state(jax.random.key(0), optimizer, *parts)
  ones = jax.tree.map(jnp.ones_like, state.opt_state[1])
  state = state.replace(opt_state=(state.opt_state[0], ones))
  options = {"metric": "score", "patience": 1, "fresh_moments": optimizer}
  respond = training.ccp_response(lambda state: state.params["loss"], **options)
  for score in (1.0, 0.0):
    state = respond(state, {"score": score})
  trace = state.opt_state[1][0].trace
  np.testing.assert_array_equal(trace["network"]["loss"], 1)
  np.testing.assert_array_equal(trace["loss"]["proxies"], 0)


def test_bad_input(unchecked):
  state, step, respond = start()
  with pytest.raises(ValueError, match=r"'score'.*\['loss'\]"):
    respond(state, {"loss": 1.0})
  plain = state.replace(opt_state=state.opt_state[1])
  with pytest.raises(ValueError, match="one ccp_projection in its chain, got 0"):
    training.ccp_state(plain)
  with pytest.raises(ValueError, match="respond needs evaluate"):
    training.fit(state, step, batches, steps=1, respond=respond)


# --- Problems inside of a whole training: two patiences, and what is returned ---

NAN = float("nan")
LITTLE = 0.8 + 5e-6  # better than 0.8, but within the margin


def rising(params, batch_stats, batch, *, key, axis_name):
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
    state, training.make_step(rising, optimizer),
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


def test_pools_may_be_split_over_devices():
  rng = np.random.default_rng(0)
  pools = rng.normal(size=(6, 9, 3)).astype(np.float32)  # does not divide by devices
  old = rng.normal(size=(6, 2, 3)).astype(np.float32)
  renew = training.parallel_map(lambda _, x: prototypes.renew_proxies(*x), batch_size=4)
  alone = prototypes.renew_proxies(pools, old)
  np.testing.assert_array_equal(renew((), (pools, old)), alone)
