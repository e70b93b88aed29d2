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

OPTIMIZER = optax.sgd(0.1)
Outcome = training.Outcome

SWEEP = {
  "step": {
    "state alone": (lambda w: w, r"\(state, metrics\), got float32\[\]; return state"),
    "two numbers": (lambda w: jnp.stack([w, w]), r"got float32\[2\]"),
    "one part": (lambda w: (w,), "got a tuple of 1"),
    "three parts": (lambda w: (w, {}, {}), "got a tuple of 3"),
    "nothing": (lambda w: None, "got None"),
    "a mapping of two": (lambda w: {"state": w, "metrics": {}}, "got a dict"),
    "another structure": (
      lambda w: ({"a": w}, {}),
      "like the one that it is given, of",
    ),
    "another shape": (lambda w: (w[None], {}), r"float32\[\] before and float32\[1\]"),
    "another type": (lambda w: (w > 0, {}), r"float32\[\] before and bool\[\] after"),
    "text as state": (
      lambda w: ("x", {}),
      "step must return arrays of numbers, got 'x'",
    ),
    "text as metric": (lambda w: (w, {"a": "b"}), r"got 'b' as \['a'\]"),
    "a vector as metric": (
      lambda w: (w, {"a": jnp.ones(3)}),
      r"scalars, got shape \(3,\)",
    ),
    "names of two kinds": (lambda w: (w, {1: w, "a": w}), "names of one kind, got {1:"),
  },
  "evaluate": {
    "nothing": (lambda w: None, "evaluate must return a real number, got None"),
    "text": (lambda w: "text", "evaluate must return arrays of numbers, got 'text'"),
    "a mapping": (lambda w: {"a": w}, "a real number, got a dict"),
    "a pair": (lambda w: (w, w), "a real number, got a tuple of 2"),
    "a vector": (lambda w: jnp.ones(2), r"a scalar, got shape \(2,\)"),
    "complex": (lambda w: 1j, "a real number, got 1j"),
  },
  "init": {
    "text": (lambda w: "text", "init must return arrays of numbers, got 'text'"),
    "text in it": (lambda w: {"a": "b"}, r"got 'b' as \['a'\]"),
    "a function": (lambda w: len, "init must return arrays of numbers, got <built-in"),
    "names of two kinds": (lambda w: {1: w, "a": w}, "init .* names of one kind"),
    "another type": (lambda w: 3, r"int32\[\] before and float32\[\] after"),
    "64 bits": (lambda w: np.int64(2**40), "arrays of numbers, got .*1099511627776"),
  },
}


@pytest.mark.parametrize(
  ("name", "what"), [(name, what) for name, cases in SWEEP.items() for what in cases]
)
def test_sweep(name, what):
  wrong, message = SWEEP[name][what]
  functions = {
    "init": lambda key, hyper: jnp.float32(1),
    "step": lambda w, key, hyper: (w - hyper["rate"] * w, {}),
    "evaluate": lambda w, key, hyper: w,
  }
  one = jnp.float32(1)
  functions[name] = {
    "init": lambda key, hyper: wrong(one),
    "step": lambda w, key, hyper: wrong(w),
    "evaluate": lambda w, key, hyper: wrong(w),
  }[name]
  with pytest.raises((TypeError, ValueError), match=message):
    training.sweep(
      jax.random.key(0),
      *functions.values(),
      {"rate": [0.1, 0.2]},
      steps=2,
      evaluate_every=1,
      progress=False,
    )


@pytest.mark.parametrize("cells", [{1: [0.1]}, {1: [0.1], "rate": [0.2]}])
def test_names_of_hyperparameters(cells, unchecked):
  with pytest.raises(TypeError, match="name of a hyperparameter must be text, got 1"):
    training.grid(cells)


@pytest.mark.parametrize(
  ("key", "message"),
  [
    (jnp.uint32(0), r"a single key .* got shape \(\)"),
    (jnp.zeros(3, jnp.uint32), r"a single key .* got shape \(3,\)"),
    (jax.random.split(jax.random.key(0), 2), r"a single key .* got shape \(2,\)"),
    (jax.random.split(jax.random.PRNGKey(0), 2), r"a single key .* got shape \(2, 2\)"),
    (0, "a key of jax.random, got 0"),
    (np.uint32(0), "a key of jax.random, got np.uint32"),
  ],
)
def test_keys(key, message, unchecked):
  with pytest.raises((TypeError, ValueError), match=message):
    training.sweep(key, len, len, len, {"a": [1]}, steps=1, evaluate_every=1)


def objective(params, batch_stats, batch, *, key, axis_name):
  return Outcome(jnp.mean((batch @ params["network"]["w"] - 1) ** 2))


def batches(first):
  for _ in range(first, 100):
    yield np.ones((4, 2), np.float32)


def fit(**changes):
  made = changes.pop("objective", objective)
  options = {
    "step": training.make_step(made, OPTIMIZER),
    "batches": batches,
    "steps": 2,
    "evaluate_every": 1,
    "progress": False,
    "devices": jax.local_devices()[:1],
  } | changes
  variables = {"params": {"w": jnp.zeros(2)}}
  state = training.create_state(jax.random.key(0), OPTIMIZER, variables)
  return training.fit(state, **options)


OBJECTIVE = {
  "the loss alone": (lambda x: x, "must return a training.Outcome, got a .*Tracer"),
  "nothing": (lambda x: None, "must return a training.Outcome, got a NoneType"),
  "a pair": (lambda x: (x, {}), "must return a training.Outcome, got a tuple"),
  "no loss": (lambda x: Outcome(None), "loss of the objective .* got None"),
  "text as loss": (lambda x: Outcome("text"), "loss of the objective .* got 'text'"),
  "an integer as loss": (lambda x: Outcome(x.astype(int)), "floating, got dtype int32"),
  "a complex loss": (lambda x: Outcome(x + 1j), "floating, got dtype complex64"),
  "a vector as loss": (lambda x: Outcome(x[None]), r"a scalar, got shape \(1,\)"),
  "a list of metrics": (lambda x: Outcome(x, metrics=[x]), "must be a mapping, got"),
  "a vector as metric": (
    lambda x: Outcome(x, metrics={"a": jnp.ones(3)}),
    r"must be scalars, got shape \(3,\) as metrics\['a'\]",
  ),
  "text as metric": (lambda x: Outcome(x, metrics={"a": "b"}), r"got 'b' as \['a'\]"),
  "a metric named step": (lambda x: Outcome(x, metrics={"step": x}), "or 'step', got"),
  "other statistics": (
    lambda x: Outcome(x, batch_stats={"network": x}),
    "laid out as the state's",
  ),
}


@pytest.mark.parametrize("what", OBJECTIVE)
def test_objective(what):
  wrong, message = OBJECTIVE[what]

  def returns(params, batch_stats, batch, *, key, axis_name):
    return wrong(jnp.mean(batch @ params["network"]["w"]))

  with pytest.raises((TypeError, ValueError), match=message):
    fit(objective=returns)


EVALUATE = {
  "nothing": (None, "evaluate must return numbers by name, got None"),
  "a number": (3, "numbers by name, got 3"),
  "pairs": ([("a", 1)], "numbers by name, got a list of 1"),
  "text": ({"a": "3"}, "'a' that evaluate returns must be real numbers, got '3'"),
  "nothing by name": ({"a": None}, "must be real numbers, got None"),
  "a vector": ({"a": jnp.ones(2)}, r"must be a scalar, got shape \(2,\)"),
  "a complex number": ({"a": 1j}, "must be real numbers, got 1j"),
  "a name that is a number": ({1: 2.0}, "must be text, got 1"),
  "the step": ({"step": 1.0}, "not return a number named 'step'"),
}


@pytest.mark.parametrize("what", EVALUATE)
def test_evaluate(what):
  wrong, message = EVALUATE[what]
  with pytest.raises((TypeError, ValueError), match=message):
    fit(evaluate=lambda state: wrong)


@pytest.mark.parametrize("wrong", [None, 3, {"a": 1}])
def test_respond(wrong):
  with pytest.raises(TypeError, match="what respond returns must be a TrainState, got"):
    fit(evaluate=lambda state: {"a": 1.0}, respond=lambda state, values: wrong)


@pytest.mark.parametrize("wrong", [None, 3, "ab", {"a": 1}])
def test_batches(wrong):
  with pytest.raises(
    TypeError, match="batches must return an iterable of batches, got"
  ):
    fit(batches=lambda first: wrong)


STEP = {
  "state alone": (lambda s: s, r"must return \(state, metrics\), got a TrainState"),
  "nothing": (lambda s: None, r"must return \(state, metrics\), got None"),
  "one part": (lambda s: (s,), "got a tuple of 1"),
  "no metrics": (lambda s: (s, None), "must report loss and gradient_norm.* got None"),
  "no norm": (lambda s: (s, {"loss": s.step}), "must report loss and gradient_norm"),
  "no state": (
    lambda s: (None, {"loss": s.step, "gradient_norm": s.step}),
    "the state that step returns must be a TrainState, got None",
  ),
}


@pytest.mark.parametrize("what", STEP)
def test_step(what):
  wrong, message = STEP[what]
  with pytest.raises((TypeError, ValueError), match=message):
    fit(step=lambda state, batch, *, axis_name: wrong(state))


GROUPED = training.optimizer({"network": OPTIMIZER, "loss": OPTIMIZER})
PARTS = {"network": {"w": jnp.ones(2)}, "loss": {"proxies": jnp.ones(2)}}


@pytest.mark.parametrize(
  ("network", "message"),
  [
    (PARTS, r"got \['loss', 'network'\]; pass both parts apart, create_state"),
    ({"params": PARTS}, r"groups \['loss'\].*pass both parts apart, create_state"),
    ({"params": {"w": jnp.ones(2)}}, "pass both parts apart, create_state.*loss="),
    ({"w": jnp.ones(2)}, r"network may have the collections .* got \['w'\]; {'params'"),
  ],
)
def test_both_parts_as_one_tree(network, message):
  with pytest.raises(ValueError, match=message):
    training.create_state(jax.random.key(0), GROUPED, network)


def test_two_parameters_of_one_path():
  params = {"a": {"b": jnp.ones(2)}, "a/b": jnp.zeros(2)}
  optimizer = training.optimizer({"network": OPTIMIZER})
  with pytest.raises(ValueError, match="'network/a/b' twice"):
    training.create_state(jax.random.key(0), optimizer, {"params": params})


WHEN = {
  "nothing": (None, "fn must return a value like the one that it is given, of struct"),
  "text": ("text", "fn must return arrays of numbers, got 'text'"),
  "a vector": (jnp.ones(3), r"float32\[\] before and float32\[3\] after"),
  "another type": (jnp.int32(3), r"float32\[\] before and int32\[\] after"),
}


@pytest.mark.parametrize("what", WHEN)
def test_when(what):
  wrong, message = WHEN[what]
  with pytest.raises(TypeError, match=message):
    training.when(True, lambda x: wrong, jnp.float32(1))


@pytest.mark.parametrize(
  ("wrong", "message"),
  [
    ("text", "fn must return arrays of numbers, got 'text'"),
    (jnp.float32(1), r"a row for each of the 2 rows that it is given, got shape \(\)"),
    ({"a": jnp.ones(3)}, r"got shape \(3,\) as \['a'\]"),
  ],
)
def test_parallel_map(wrong, message):
  one = jax.local_devices()[:1]
  mapped = training.parallel_map(lambda factor, rows: wrong, batch_size=2, devices=one)
  with pytest.raises((TypeError, ValueError), match=message):
    mapped(jnp.float32(1), np.arange(4.0, dtype=np.float32))


@pytest.mark.parametrize(
  ("wrong", "message"),
  [
    (None, r'renew must return a params\["loss"\] like the one that it is given'),
    ("text", "renew must return arrays of numbers, got 'text'"),
    ({"proxies": jnp.ones((2, 2))}, r"float32\[3, 2\] before and float32\[2, 2\]"),
  ],
)
def test_renew(wrong, message):
  respond = training.ccp_response(lambda state: wrong, metric="score", patience=1)
  optimizer = optax.chain(training.ccp_projection(), OPTIMIZER)
  state = training.create_state(
    jax.random.key(0),
    optimizer,
    {"params": {"w": jnp.ones(2)}},
    {"params": {"proxies": jnp.ones((3, 2))}},
  )
  state = respond(state, {"score": 0.5})
  with pytest.raises(TypeError, match=message):
    respond(state, {"score": 0.5})


@pytest.mark.parametrize(
  "wrong", [None, "text", jnp.ones(3), (None, None), ("text", "more")]
)
def test_miners(wrong):
  with pytest.raises((TypeError, ValueError), match=r"the miner('s| returns)"):
    losses.triplet(jnp.eye(4), jnp.array([0, 0, 1, 1]), miner=lambda *_: wrong)


@pytest.mark.parametrize("wrong", [None, "text", {"a": 1}])
def test_logits_and_functions_with_a_root(wrong):
  with pytest.raises((TypeError, ValueError), match="what logits_fn returns must be"):
    attacks.pgd(
      lambda x: wrong,
      jnp.ones((2, 4)),
      jnp.array([0, 1]),
      key=jax.random.key(0),
      epsilon=0.1,
      norm="linf",
      steps=1,
    )
  with pytest.raises(TypeError, match="what fn returns must be an array of numbers"):
    solvers.newton(lambda x: wrong, (0.0, 1.0))
