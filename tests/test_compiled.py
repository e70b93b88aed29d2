"""Public functions compile once outside of jit and behave as they do inside of it."""

import concurrent.futures
import functools
import inspect
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spherejax
from benchmarks import calls
from spherejax import _versions, attacks, losses, pooling, prototypes, solvers
from tests.test_wrong_uses import call_of


def normal(seed, *shape):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


X, LABELS = normal(0, 8, 4), jnp.arange(8) % 3
SAME = LABELS[:, None] == LABELS[None]
FUNCTIONS = [name for name in calls.functions() if name not in calls.ELSEWHERE]
# `test_nnx.py` tests the same for some functions of other rooms, with variables in the
# second call; all functions share one wrapper.
SWEEP = [
  pytest.param(
    name, marks=[pytest.mark.slow] * (name.split(".")[0] not in ("data", "training"))
  )
  for name in FUNCTIONS
]
plain = inspect.unwrap


def without_compiling(call):
  with calls.compilations() as programs:
    result = call()
  assert not programs
  return result


# --- The sweep ---


@pytest.mark.parametrize("name", SWEEP)
@pytest.mark.filterwarnings("ignore")
def test_documented_calls_compile_once(name, tmp_path):
  function, call = call_of(name, tmp_path)
  again = functools.partial(function, *call.args, **call.kwargs)
  assert calls.compiled_in(again, 2)[-1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_gradients_of_documented_calls_compile_once(name, unchecked):
  found = calls.gradient(calls.documented(name))
  if found is None:
    pytest.skip("its documentation names nothing to differentiate in")
  gradient, data = found
  assert calls.compiled_in(lambda: gradient(data))[-1] == 0


# --- Nothing else changes ---


SAMPLE = [
  (losses.triplet, (X, LABELS), {}),
  (losses.nt_xent, (X, X + 1), {"temperature": 0.2}),
  (losses.softmax, (X, LABELS), {}),
  (pooling.gsp_weights, (jnp.abs(X),), {"mass": 0.4, "inverse_temperature": 4}),
  (spherejax.distances.pairwise_cosine, (X,), {}),
  (solvers.linear_assignment, (jnp.abs(X.T),), {}),
]


def jaxpr(function, *args):
  return str(jax.make_jaxpr(function)(*args))


@pytest.mark.parametrize(("function", "args", "kwargs"), SAMPLE)
def test_results_and_traced_programs_are_those_of_the_function_itself(
  function, args, kwargs
):
  ours, bare = (functools.partial(f, **kwargs) for f in (function, plain(function)))
  result, expected = ours(*args), jax.jit(bare)(*args)
  assert jax.tree.structure(result) == jax.tree.structure(expected)
  for a, b in zip(*map(jax.tree.leaves, (result, expected)), strict=True):
    assert (a.dtype, a.weak_type, a.shape) == (b.dtype, b.weak_type, b.shape)
    np.testing.assert_allclose(a, b, rtol=1e-6)
  assert jaxpr(ours, *args) == jaxpr(bare, *args)
  many = [jnp.stack([arg, arg]) for arg in args]
  assert jaxpr(jax.vmap(ours), *many) == jaxpr(jax.vmap(bare), *many)


def test_inside_of_a_gradient_of_jit_it_is_the_function_itself():
  ours, bare = (
    jaxpr(jax.grad(lambda x, f=f: f(x, LABELS).sum()), X)
    for f in (losses.contrastive, plain(losses.contrastive))
  )
  assert ours == bare


TRANSFORMED = {
  "grad": lambda: jax.grad(lambda x: losses.multi_similarity(x, LABELS).sum())(X),
  "vmap": lambda: jax.vmap(
    lambda margin: losses.contrastive(X, LABELS, negative_margin=margin)
  )(jnp.array([0.5, 1.0])),
}


@pytest.mark.parametrize("transform", TRANSFORMED)
def test_transforms_outside_of_jit_compile_once(transform):
  first = TRANSFORMED[transform]()
  np.testing.assert_array_equal(first, without_compiling(TRANSFORMED[transform]))


def test_numbers_do_not_compile_again():
  call = functools.partial(losses.triplet, X, LABELS)
  call(margin=0.05)
  for margin in (0.2, 0.7):
    values = without_compiling(functools.partial(call, margin=margin))
    expected = plain(losses.triplet)(X, LABELS, margin=margin)
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_trees_of_arrays_are_data():
  def call(start):
    init = {"a": jnp.float32(start), "b": (np.full(2, start, np.float32),)}
    return solvers.fixed_point(functools.partial(jax.tree.map, jnp.cos), init)

  call(0.5)
  result = without_compiling(lambda: call(0.7))
  np.testing.assert_allclose(result.value["b"][0], 0.739085, atol=1e-4)


def test_settings_of_jax_hold():
  with _versions.enable_x64(True):
    wide = losses.contrastive(np.asarray(X, np.float64), LABELS)
  assert wide.dtype == jnp.float64
  assert losses.contrastive(X, LABELS).dtype == jnp.float32
  with jax.disable_jit():
    np.testing.assert_allclose(
      losses.contrastive(X, LABELS), plain(losses.contrastive)(X, LABELS), rtol=1e-6
    )


def test_threads_share_programs():
  def call(number):
    return losses.circle(X[: 4 + number % 3], LABELS[: 4 + number % 3])

  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    found = list(pool.map(call, range(12)))
  for number, values in enumerate(found):
    np.testing.assert_array_equal(values, call(number))


# --- Checks of values run at every call ---


def wrong_uses():
  good = losses.softmax, (X, LABELS), {}
  yield good, {"labels": LABELS.at[3].set(7)}, r"labels must be in \[0, 4\), got 7"
  good = losses.contrastive, (X, LABELS), {"negative_margin": 1.0}
  yield good, {"negative_margin": -1.0}, "negative_margin must be .* got -1"
  yield good, {"negative_margin": jnp.nan}, "negative_margin must be .* got nan"
  good = losses.nt_xent, (X, X), {"temperature": 0.5}
  yield good, {"temperature": 0.0}, "temperature must be .* got 0"
  good = prototypes.class_means, (X, LABELS), {"num_classes": 3}
  yield good, {"labels": LABELS + 1}, r"labels must be in \[0, 3\), got 3"
  good = losses.mine_distance_weighted, (
    jnp.abs(X @ X.T), SAME, ~SAME
  ), {"key": jax.random.key(0), "dim": 4, "cutoff": 0.5, "limit": 1.4}  # fmt: skip
  yield good, {"cutoff": 1.5}, "cutoff must be .* got 1.5"
  good = attacks.pgd, (logits, *ATTACKED), ATTACK
  yield good, {"epsilon": -0.1}, "epsilon must be .* got -0.1"
  yield good, {"x": jnp.full((2, 4), 2.0)}, "x must be at most high = 1"
  yield good, {"labels": jnp.array([0, 9])}, r"labels must be in \[0, 3\), got 9"


WEIGHTS = normal(1, 4, 3)
ATTACKED = jnp.zeros((2, 4)), jnp.array([0, 1])
ATTACK = {"key": jax.random.key(0), "epsilon": 0.1, "steps": 2, "norm": "linf"}
ATTACK |= {"low": -1.0, "high": 1.0}


def logits(x):
  return x @ WEIGHTS


@pytest.mark.parametrize("case", list(wrong_uses()), ids=lambda case: case[2][:24])
def test_errors_come_at_later_calls_too(case):
  (function, args, kwargs), wrong, message = case
  given = inspect.signature(function).bind(*args, **kwargs).arguments
  function(**given)
  for _ in range(2):
    with calls.compilations() as compiled, pytest.raises(ValueError, match=message):
      function(**given | wrong)
    assert not compiled


def test_warnings_come_at_later_calls_too():
  shares = jax.nn.softmax(X)
  for _ in range(2):
    with warnings.catch_warnings(record=True) as found:
      warnings.simplefilter("always")
      losses.softmax(shares, LABELS)
    assert ["look like probabilities" in str(one.message) for one in found] == [True]
    assert found[0].filename == __file__


def test_a_value_that_decides_about_the_program_is_asked_for_again():
  for temperature in (0.5, np.inf, 2.0, np.inf):
    ours = losses.info_nce(X, X + 1, temperature=temperature)
    expected = plain(losses.info_nce)(X, X + 1, temperature=temperature)
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_radii_keep_the_digits_that_float32_does_not_have():
  for epsilon in (0.1, 0.3, 0.7):  # float32 rounds two of them up
    result = attacks.fgsm(logits, *ATTACKED, epsilon=epsilon, low=-1, high=1)
    assert np.abs(np.asarray(result.x_adv, np.float64)).max() <= epsilon


# --- Functions as arguments ---


def attack(function):
  return attacks.fgsm(function, *ATTACKED, epsilon=0.1, low=-1.0).x_adv


def test_an_attack_compiles_once_for_a_function_and_its_numbers():
  def call(**numbers):
    return attacks.pgd(logits, *ATTACKED, **ATTACK | numbers)

  call(step_size=0.02)
  without_compiling(lambda: call(step_size=0.02))
  without_compiling(lambda: call(epsilon=0.3, step_size=0.01))


class Model:
  def __init__(self, weights):
    self.weights = weights
    self.nested = {"weights": weights}

  def predict(self, x):
    return x @ self.weights

  def nestedly(self, x):
    return x @ self.nested["weights"]

  __call__ = predict


# Ways of a function to hold a model.
HELD = {
  "method": lambda model: model.predict,
  "nested": lambda model: model.nestedly,
  "object": lambda model: model,
  "object in a cell": lambda model: lambda x: model(x),
  "method in a cell": lambda model: lambda x: model.predict(x),
  "partial": lambda model: functools.partial(lambda model, x: model(x), model),
  "decision": lambda model: attacks.with_decision(
    lambda x: model(x), lambda x: model(x).argmax(1)
  ),
}


@pytest.mark.parametrize("kind", HELD)
def test_a_function_whose_weights_change_is_another_one(kind):
  model = Model(WEIGHTS)
  function = HELD[kind](model)
  before = attack(function)
  np.testing.assert_array_equal(before, attack(logits))
  without_compiling(lambda: attack(function))
  model.weights = model.nested["weights"] = -WEIGHTS
  np.testing.assert_array_equal(attack(function), -before)


class Reader:
  def predict(self, x):
    return x @ WEIGHTS


def through(function, helpers):
  for _ in range(helpers):
    function = (lambda inner: lambda x: inner(x))(function)
  return function


READERS = {f"{n} helpers": through(logits, n) for n in (0, 1, 5, 20)}
READERS["method"] = Reader().predict


@pytest.mark.parametrize("reader", READERS)
def test_a_global_name_that_changes_makes_another_function(monkeypatch, reader):
  before = attack(READERS[reader])
  monkeypatch.setitem(globals(), "WEIGHTS", -WEIGHTS)
  np.testing.assert_array_equal(attack(READERS[reader]), -before)


def even_of(weights):
  """Functions that call each other."""

  def even(x, n=2):
    return odd(x, n - 1) if n else x @ weights

  def odd(x, n):
    return even(x, n - 1)

  return even


PARTIAL = functools.partial(jax.tree_util.Partial, lambda weights, x: x @ weights)
MAKERS = {"even": even_of, "lambda": lambda w: lambda x: x @ w, "partial": PARTIAL}


@pytest.mark.parametrize("maker", MAKERS)
def test_functions_are_one_function_only_if_they_hold_the_same(maker):
  def call(weights):
    return attack(MAKERS[maker](weights))

  before, opposite = call(WEIGHTS), -WEIGHTS
  for _ in range(2):
    again = without_compiling(lambda: call(WEIGHTS))
    np.testing.assert_array_equal(again, before)
  # The arrays of a `Partial` are arguments of the program: other ones compile nothing.
  other = functools.partial(call, opposite)
  after = without_compiling(other) if maker == "partial" else other()
  np.testing.assert_array_equal(after, -before)


def test_a_root_has_the_gradient_of_what_its_function_holds():
  def root(a):
    return solvers.newton(lambda x: x**2 - a, (0.0, 4.0)).value

  assert root(4.0) == pytest.approx(2)
  assert root(9.0) == pytest.approx(3)
  assert jax.grad(root)(4.0) == pytest.approx(0.25)
