"""Functions of the user that return the wrong thing: our sentence, not jax's.

Each case is what one function returns in place of a valid one, and what the message
must say of it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import attacks, losses, solvers, training

KEY = jax.random.key(0)
ONE = jax.local_devices()[:1]
OPTIMIZER = optax.sgd(0.1)
Outcome = training.Outcome


def sweep(**changed):
  functions = {
    "init": lambda key, hyper: jnp.float32(1),
    "step": lambda w, key, hyper: (w - hyper["rate"] * w, {}),
    "evaluate": lambda w, key, hyper: w,
  } | changed
  options = {"steps": 2, "evaluate_every": 1, "progress": False}
  training.sweep(KEY, *functions.values(), {"rate": [0.1, 0.2]}, **options)


def objective(params, batch_stats, batch, *, key, axis_name):
  return Outcome(jnp.mean((batch @ params["network"]["w"] - 1) ** 2))


def fit(**changes):
  options = {"steps": 2, "evaluate_every": 1, "progress": False, "devices": ONE}
  options["step"] = training.make_step(changes.pop("objective", objective), OPTIMIZER)
  options["batches"] = lambda first: [np.ones((4, 2), np.float32)] * (100 - first)
  state = training.create_state(KEY, OPTIMIZER, {"params": {"w": jnp.zeros(2)}})
  training.fit(state, **options | changes)


def of_objective(returned):
  def wrong(params, batch_stats, batch, *, key, axis_name):
    return returned(jnp.mean(batch @ params["network"]["w"]))

  fit(objective=wrong)


def renew(returned):
  respond = training.ccp_response(lambda state: returned, metric="score", patience=1)
  parts = {"params": {"w": jnp.ones(2)}}, {"params": {"proxies": jnp.ones((3, 2))}}
  optimizer = optax.chain(training.ccp_projection(), OPTIMIZER)
  state = training.create_state(KEY, optimizer, *parts)
  respond(respond(state, {"score": 0.5}), {"score": 0.5})


def mapped(returned):
  fn = training.parallel_map(lambda factor, rows: returned, batch_size=2, devices=ONE)
  fn(jnp.float32(1), np.arange(4.0, dtype=np.float32))


def pgd(returned):
  x, labels, ball = jnp.ones((2, 4)), jnp.array([0, 1]), {"epsilon": 0.1, "steps": 1}
  attacks.pgd(lambda x: returned, x, labels, key=KEY, norm="linf", **ball)


def miner(returned):
  losses.triplet(jnp.eye(4), jnp.array([0, 0, 1, 1]), miner=lambda *_: returned)


GROUPED = training.optimizer({"network": OPTIMIZER, "loss": OPTIMIZER})
OF_NETWORK = training.optimizer({"network": OPTIMIZER})
PARTS = {"network": {"w": jnp.ones(2)}, "loss": {"proxies": jnp.ones(2)}}
TWICE = {"params": {"a": {"b": jnp.ones(2)}, "a/b": jnp.zeros(2)}}
MINED = r"the miner('s| returns)"
LOGITS = "what logits_fn returns must be"
ROOT = "what fn returns must be an array of numbers"
RESPONSE = "what respond returns must be a TrainState, got"
BATCHES = "batches must return an iterable of batches, got"
STEPPED = r"must return \(state, metrics\), got "
A_VECTOR = r"must be scalars, got shape \(3,\) as metrics\['a'\]"
REPORTED = "must report loss and gradient_norm"
NAMES = "name of a hyperparameter must be text, got 1"
OUTCOME = "must return a training.Outcome, got a "
TAKEN = r"not be named \['gradient_norm', 'loss'\]"
NO_STATE = "the state that step returns must be a TrainState, got None"

CASES = [
  (
    lambda wrong: sweep(step=lambda w, key, hyper: wrong(w)),
    (lambda w: w, r"\(state, metrics\), got float32\[\]; return state"),
    (lambda w: jnp.stack([w, w]), r"got float32\[2\]"),
    (lambda w: (w,), "got a tuple of 1"),
    (lambda w: (w, {}, {}), "got a tuple of 3"),
    (lambda w: None, "got None"),
    (lambda w: {"state": w, "metrics": {}}, "got a dict"),
    (lambda w: ({"a": w}, {}), "like the one that it is given, of"),
    (lambda w: (w[None], {}), r"float32\[\] before and float32\[1\]"),
    (lambda w: (w > 0, {}), r"float32\[\] before and bool\[\] after"),
    (lambda w: ("x", {}), "step must return arrays of numbers, got 'x'"),
    (lambda w: (w, {"a": "b"}), r"got 'b' as \['a'\]"),
    (lambda w: (w, {"a": jnp.ones(3)}), r"scalars, got shape \(3,\)"),
    (lambda w: (w, {1: w, "a": w}), "names of one kind, got {1:"),
  ),
  (
    lambda wrong: sweep(evaluate=lambda w, key, hyper: wrong(w)),
    (lambda w: None, "evaluate must return a real number, got None"),
    (lambda w: "text", "evaluate must return arrays of numbers, got 'text'"),
    (lambda w: {"a": w}, "a real number, got a dict"),
    (lambda w: (w, w), "a real number, got a tuple of 2"),
    (lambda w: jnp.ones(2), r"a scalar, got shape \(2,\)"),
    (lambda w: 1j, "a real number, got 1j"),
  ),
  (
    lambda wrong: sweep(init=lambda key, hyper: wrong(jnp.float32(1))),
    (lambda w: "text", "init must return arrays of numbers, got 'text'"),
    (lambda w: {"a": "b"}, r"got 'b' as \['a'\]"),
    (lambda w: {1: w, "a": w}, "init .* names of one kind"),
    (lambda w: len, "init must return arrays of numbers, got <built-in"),
    (lambda w: 3, r"int32\[\] before and float32\[\] after"),
    (lambda w: np.int64(2**40), "arrays of numbers, got .*1099511627776"),
  ),
  (
    of_objective,
    (lambda x: x, OUTCOME + ".*Tracer"),
    (lambda x: None, OUTCOME + "NoneType"),
    (lambda x: (x, {}), OUTCOME + "tuple"),
    (lambda x: Outcome(None), "loss of the objective .* got None"),
    (lambda x: Outcome("text"), "loss of the objective .* got 'text'"),
    (lambda x: Outcome(x.astype(int)), "floating, got dtype int32"),
    (lambda x: Outcome(x + 1j), "floating, got dtype complex64"),
    (lambda x: Outcome(x[None]), r"a scalar, got shape \(1,\)"),
    (lambda x: Outcome(x, metrics=[x]), "must be a mapping, got"),
    (lambda x: Outcome(x, metrics={"a": jnp.ones(3)}), A_VECTOR),
    (lambda x: Outcome(x, metrics={"a": "b"}), r"got 'b' as \['a'\]"),
    (lambda x: Outcome(x, metrics={"step": x}), "or 'step', got"),
    (lambda x: Outcome(x, metrics={"loss": x}), TAKEN),
    (lambda x: Outcome(x, batch_stats={"network": x}), "laid out as the state's"),
  ),
  (
    lambda wrong: fit(evaluate=lambda state: wrong),
    (None, "evaluate must return numbers by name, got None"),
    (3, "numbers by name, got 3"),
    ([("a", 1)], "numbers by name, got a list of 1"),
    ({"a": "3"}, "'a' that evaluate returns must be real numbers, got '3'"),
    ({"a": None}, "must be real numbers, got None"),
    ({"a": jnp.ones(2)}, r"must be a scalar, got shape \(2,\)"),
    ({"a": 1j}, "must be real numbers, got 1j"),
    ({1: 2.0}, "must be text, got 1"),
    ({"step": 1.0}, "not return a number named 'step'"),
  ),
  (
    lambda wrong: fit(step=lambda state, batch, *, axis_name: wrong(state)),
    (lambda s: s, STEPPED + "a TrainState"),
    (lambda s: None, STEPPED + "None"),
    (lambda s: (s,), "got a tuple of 1"),
    (lambda s: (s, None), REPORTED + ".* got None"),
    (lambda s: (s, {"loss": s.step}), REPORTED),
    (lambda s: (None, {"loss": s.step, "gradient_norm": s.step}), NO_STATE),
  ),
  (
    mapped,
    ("text", "fn must return arrays of numbers, got 'text'"),
    (jnp.float32(1), r"a row for each of the 2 rows that it is given, got shape \(\)"),
    ({"a": jnp.ones(3)}, r"got shape \(3,\) as \['a'\]"),
  ),
  (
    miner,
    *((x, MINED) for x in (None, "text", jnp.ones(3), (None, None), ("text", "more"))),
  ),
  (pgd, *((wrong, LOGITS) for wrong in (None, "text", {"a": 1}))),
]
TYPE_ERRORS = [
  (
    lambda wrong: fit(evaluate=lambda _: {"a": 1.0}, respond=lambda *_: wrong),
    *((wrong, RESPONSE) for wrong in (None, 3, {"a": 1})),
  ),
  (
    lambda wrong: fit(batches=lambda first: wrong),
    *((wrong, BATCHES) for wrong in (None, 3, "ab", {"a": 1})),
  ),
  (
    lambda wrong: training.when(True, lambda x: wrong, jnp.float32(1)),
    (None, "fn must return a value like the one that it is given, of struct"),
    ("text", "fn must return arrays of numbers, got 'text'"),
    (jnp.ones(3), r"float32\[\] before and float32\[3\] after"),
    (jnp.int32(3), r"float32\[\] before and int32\[\] after"),
  ),
  (
    renew,
    (None, r'renew must return a params\["loss"\] like the one that it is given'),
    ("text", "renew must return arrays of numbers, got 'text'"),
    ({"proxies": jnp.ones((2, 2))}, r"float32\[3, 2\] before and float32\[2, 2\]"),
  ),
  (
    lambda wrong: solvers.newton(lambda x: wrong, (0.0, 1.0)),
    *((wrong, ROOT) for wrong in (None, "text", {"a": 1})),
  ),
  (training.grid, *(({1: [0.1]} | more, NAMES) for more in ({}, {"rate": [0.2]}))),
]
VALUE_ERRORS = [
  (
    lambda wrong: training.create_state(KEY, GROUPED, wrong),
    (PARTS, r"got \['loss', 'network'\]; pass both parts apart, create_state"),
    ({"params": PARTS}, r"groups \['loss'\].*pass both parts apart, create_state"),
    ({"params": {"w": jnp.ones(2)}}, "pass both parts apart, create_state.*loss="),
    ({"w": jnp.ones(2)}, r"network may have the collections .* got \['w'\]; {'params'"),
  ),
  (
    lambda wrong: training.create_state(KEY, OF_NETWORK, wrong),
    (TWICE, "'network/a/b' twice"),
  ),
]


BOTH = TypeError, ValueError
BLOCKS = (BOTH, CASES), (TypeError, TYPE_ERRORS), (ValueError, VALUE_ERRORS)


@pytest.mark.parametrize(
  ("kind", "run", "wrong", "message"),
  [
    (kind, run, *case)
    for kind, blocks in BLOCKS
    for run, *cases in blocks
    for case in cases
  ],
)
def test_what_is_returned(kind, run, wrong, message, unchecked):
  with pytest.raises(kind, match=message):
    run(wrong)
