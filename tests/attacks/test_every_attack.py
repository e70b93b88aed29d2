"""What holds for every attack: regions, independence of the batch, edges, bad input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import attacks

RANDOM = np.random.default_rng(0)
SHAPE, CLASSES = (4, 4, 3), 5
SIZE = 48
FIRST = (RANDOM.normal(size=(SIZE, 12)) / 4).astype(np.float32)
SECOND = RANDOM.normal(size=(12, CLASSES)).astype(np.float32)
KEY = jax.random.key(0)
ORDER = {"linf": np.inf, "l2": 2, "l1": 1}


def network(x):
  return jnp.tanh(x.reshape(len(x), SIZE) @ FIRST) @ SECOND


def short_network(x):
  """The same in bfloat16."""
  first, second = FIRST.astype(jnp.bfloat16), SECOND.astype(jnp.bfloat16)
  return jnp.tanh(x.reshape(len(x), -1).astype(jnp.bfloat16) @ first) @ second


def images(count, dtype=np.float32):
  random = np.random.default_rng(count)
  x = random.random((count, *SHAPE))
  x[::2] = np.round(x[::2] * 255) / 255  # as from files
  x[1::4] = np.round(x[1::4])  # on the faces of the box
  x = x.astype(dtype)
  labels = np.argmax(np.asarray(network(x.astype(np.float32))), axis=1)
  labels[::10] = (labels[::10] + 1) % CLASSES
  return x, labels


BUDGETED = {
  "fgsm": lambda fn, x, y, key, **more: attacks.fgsm(fn, x, y, **more),
  "pgd": functools.partial(attacks.pgd, steps=3),
  "apgd": functools.partial(attacks.apgd, steps=4),
  "square": functools.partial(attacks.square, queries=3),
  "ensemble": lambda fn, x, y, **more: (
    attacks.ensemble(fn, x, y, steps=3, queries=3, target_count=2, **more).result
  ),
}
MINIMAL = {
  "deepfool": functools.partial(attacks.deepfool, steps=5),
  "fab": functools.partial(attacks.fab, steps=5),
  "carlini_wagner": functools.partial(
    attacks.carlini_wagner, steps=20, rounds=2, first_weight=10.0
  ),
}
CASES = [
  ("fgsm", "linf"),
  ("pgd", "linf"),
  ("pgd", "l2"),
  ("pgd", "l1"),
  ("apgd", "linf"),
  ("apgd", "l2"),
  ("apgd", "l1"),
  ("square", "linf"),
  ("square", "l2"),
]
SHORT = [("pgd", "linf"), ("pgd", "l2"), ("pgd", "l1")]
RARE = [("fgsm", "l2"), ("fgsm", "l1"), *(("ensemble", norm) for norm in ORDER)]
COUNTS = {"linf": 17_500, "l2": 3000, "l1": 500, "ensemble": 200}  # by their cost


@functools.cache
def attack(name, norm, short):
  def run(x, labels, epsilon, key, index):
    if name == "fgsm":
      return attacks.fgsm(network, x, labels, epsilon=epsilon, norm=norm, index=index)
    model = short_network if short else network
    return BUDGETED[name](
      model, x, labels, key=key, epsilon=epsilon, norm=norm, index=index
    )

  return jax.jit(run)


@pytest.mark.parametrize(
  ("name", "norm", "short"),
  [(*case, False) for case in CASES + RARE] + [(*case, True) for case in SHORT],
)
def test_no_point_is_outside_of_its_region(name, norm, short):
  """Float64 arithmetic without tolerance: 105,100 points over all cases."""
  count = COUNTS.get(name, COUNTS[norm])
  x, labels = images(count, jnp.bfloat16 if short else np.float32)
  epsilon = (10 ** np.random.default_rng(1).uniform(-4, 0.7, count)).astype(np.float32)
  epsilon[::50] = 0
  found = attack(name, norm, short)(x, labels, epsilon, KEY, np.arange(count))
  points = np.asarray(found.x_adv)
  assert points.dtype == np.float32
  moved = (points.astype(np.float64) - x.astype(np.float64)).reshape(count, -1)
  sizes = np.linalg.norm(moved, ORDER[norm], axis=1)
  assert np.all(sizes <= epsilon.astype(np.float64))
  assert np.all((points >= 0) & (points <= 1))
  np.testing.assert_allclose(found.norm, sizes, rtol=1e-5, atol=1e-7)
  np.testing.assert_array_equal(points[::50], x[::50].astype(np.float32))
  moves = (epsilon > 0) & (np.asarray(found.norm) > 0)
  assert np.mean(moves) > 0.5
  if short:
    return
  # What is reported is what the model says of the returned point.
  z = np.asarray(network(points))
  own = np.arange(CLASSES) == labels[:, None]
  margin = np.where(own, -np.inf, z).max(1) - z[own]
  np.testing.assert_allclose(found.margin, margin, atol=1e-5)
  clear = np.abs(margin) > 1e-5
  np.testing.assert_array_equal(np.asarray(found.success)[clear], (margin > 0)[clear])


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("norm", ORDER)
def test_points_of_least_norm_are_in_the_box_and_as_far_as_said(norm, short):
  count = 200
  x, labels = images(count, jnp.bfloat16 if short else np.float32)
  model = short_network if short else network
  names = [name for name in MINIMAL if norm == "l2" or name != "carlini_wagner"]
  # Each entry of a point is rounded once, after its size was added up.
  rounding = 2.0**-24 * {"linf": 1, "l2": SIZE**0.5, "l1": SIZE}[norm]

  @jax.jit
  def runs(x):
    return {
      name: MINIMAL[name](
        model, x, labels, **({} if name == "carlini_wagner" else {"norm": norm})
      )
      for name in names
    }

  for name, found in runs(x).items():
    points, success = np.asarray(found.x_adv), np.asarray(found.success)
    assert points.dtype == np.float32
    assert np.all((points >= 0) & (points <= 1)), name
    moved = (points.astype(np.float64) - x.astype(np.float64)).reshape(count, -1)
    sizes = np.linalg.norm(moved, ORDER[norm], axis=1)
    np.testing.assert_allclose(
      found.norm[success], sizes[success], rtol=1e-5, atol=rounding
    )
    np.testing.assert_array_equal(moved[~success], 0)
    assert np.all(np.isinf(np.asarray(found.norm)[~success])), name
    assert np.mean(success & (sizes > 0)) > 0.3, name


@pytest.mark.parametrize(
  ("name", "norm"), [("pgd", "l1"), ("apgd", "l2"), ("square", "l2")]
)
def test_a_sample_does_not_know_its_batch(name, norm):
  """Permuted, and among other company: the same points, but for rounding."""
  count = COUNTS[norm]
  x, labels = images(count)
  epsilon = np.full(count, 0.3, np.float32)
  run = attack(name, norm, False)
  random = np.random.default_rng(2)
  order = random.permutation(count)
  order[count // 2 :] = random.integers(0, 50, count - count // 2)  # padding
  plain = run(x, labels, epsilon, KEY, np.arange(count))
  moved = run(x[order], labels[order], epsilon, KEY, order)
  for field in ("success", "queries"):
    a, b = getattr(plain, field)[order], getattr(moved, field)
    assert np.mean(np.asarray(a) == np.asarray(b)) > 0.999
  same = np.abs(plain.x_adv[order] - moved.x_adv).max((1, 2, 3)) < 1e-4
  assert np.mean(same) > 0.995  # ties of rounding send some another way


def test_draws_belong_to_samples():
  """Other keys give other points, other numbers too; the same ones the same."""
  count = COUNTS["l2"]
  x, labels = images(count)
  epsilon = np.full(count, 0.01, np.float32)
  run = attack("pgd", "l2", False)
  first = run(x, labels, epsilon, KEY, np.arange(count)).x_adv
  again = run(x, labels, epsilon, KEY, np.arange(count)).x_adv
  np.testing.assert_array_equal(first, again)
  for key, index in (
    (jax.random.key(1), np.arange(count)),
    (KEY, np.arange(count) + 1),
  ):
    other = run(x, labels, epsilon, key, index).x_adv
    assert np.mean(np.any(first != other, axis=(1, 2, 3))) > 0.8


def not_finite(x):
  z = network(x)
  return jnp.where(x[:, :1, 0, 0] > 0.5, z.at[:, 0].set(jnp.nan), z)


MODELS = {
  "flat": lambda x: jnp.zeros((len(x), CLASSES)) + jnp.eye(CLASSES)[1:2],
  "saturated": lambda x: 1e4 * network(x),
  "not finite": not_finite,
}


@jax.jit
def on_a_model(which, x, y, key):
  def model(x):
    return jax.lax.switch(which, list(MODELS.values()), x)

  common = {"key": key, "epsilon": 0.1}
  return {
    "pgd": attacks.pgd(model, x, y, steps=2, norm="l2", **common),
    "apgd": attacks.apgd(model, x, y, steps=3, **common),
    "fab": attacks.fab(model, x, y, steps=3, norm="linf"),
    "square": attacks.square(model, x, y, queries=3, **common),
  }


@pytest.mark.parametrize("name", MODELS)
def test_broken_models_have_defined_results(name):
  x, labels = images(20)
  labels[labels == 1] = 2
  labels[5] = 1
  for kind, found in on_a_model(list(MODELS).index(name), x, labels, KEY).items():
    assert np.all(np.isfinite(found.x_adv)), kind
    assert not np.any(np.isnan(found.norm)), kind
    if name == "flat":
      np.testing.assert_array_equal(found.success, labels != 1)
      assert found.zero_gradients[5] == (kind != "square")
    if name == "saturated":
      assert np.mean(found.saturated) > (0 if kind == "fab" else 0.2), kind
    if name == "not finite":
      broken = np.asarray(found.x_adv)[:, 0, 0, 0] > 0.5
      assert np.any(broken), kind
      assert not np.any(np.asarray(found.success) & broken), kind


def test_one_class_is_never_left():
  x, labels = images(6)

  @jax.jit
  def runs(x, key):
    def model(x):
      return network(x)[:, :1]

    return (
      attacks.pgd(model, x, 0 * labels, key=key, epsilon=0.1, steps=2),
      attacks.deepfool(model, x, 0 * labels),
    )

  for found in runs(x, KEY):
    assert not np.any(found.success)
    assert np.all(found.margin == -np.inf)
    assert np.all(np.isfinite(found.x_adv))


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_an_infinite_radius_leaves_the_box(name, norm):
  """As one that reaches beyond the box from everywhere; the box is the bound."""
  count = 40
  x, labels = images(count)
  right = np.argmax(np.asarray(network(x)), axis=1) == labels
  wide = {"linf": 2.0, "l2": 2 * SIZE**0.5, "l1": 2.0 * SIZE}[norm]
  run, rows = attack(name, norm, False), np.arange(count)
  found = run(x, labels, np.full(count, np.inf, np.float32), KEY, rows)
  finite = run(x, labels, np.full(count, wide, np.float32), KEY, rows)
  points = np.asarray(found.x_adv)
  assert np.all((points >= 0) & (points <= 1))
  assert np.all(np.isfinite(found.norm))
  assert np.all(np.asarray(found.norm)[right] > 0)
  # The steps are of other sizes: no sample for sample comparison.
  assert np.mean(found.success) >= np.mean(finite.success) - 0.2
  assert np.mean(np.asarray(found.success)[right]) > 0.5
  mixed = np.where(rows % 2, np.inf, 0.01).astype(np.float32)
  few = run(x, labels, mixed, KEY, rows)
  assert np.all(np.asarray(few.norm)[::2] <= 0.01 * 1.001)
  np.testing.assert_array_equal(few.success[1::2], found.success[1::2])


@pytest.mark.parametrize(
  "name", [*BUDGETED, "bim", "mi_fgsm", "diagnose", *MINIMAL, "region"]
)
def test_an_empty_batch_has_an_empty_result(name):
  x, labels = np.zeros((0, *SHAPE), np.float32), np.zeros(0, np.int32)
  ball = {"epsilon": 0.1, "key": KEY}

  def run(x):
    if name in MINIMAL:
      return MINIMAL[name](network, x, labels)
    if name == "diagnose":
      broken = np.zeros(0, bool)
      return attacks.diagnose(network, x, labels, broken, steps=2, draws=2, **ball)
    if name == "region":
      region = attacks.combined_ball(x, epsilon_1=1.0, epsilon_inf=0.1)
      return attacks.pgd(network, x, labels, key=KEY, region=region, steps=2)
    if name in BUDGETED:
      return BUDGETED[name](network, x, labels, **ball)
    return getattr(attacks, name)(network, x, labels, steps=2, **ball)

  found = jax.jit(run)(x)
  for field, value in found._asdict().items():
    assert value.shape == (x.shape if field == "x_adv" else (0,)), field


def test_diagnosis_sees_a_masked_gradient():
  """A quantised input: no slope anywhere, yet beside many samples a wrong class."""

  def masked(x):
    return network(jnp.round(4 * x) / 4)

  x, _ = images(40)
  labels = np.argmax(np.asarray(masked(x)), axis=1)

  @jax.jit
  def run(which, x, labels, key):
    def model(x):
      return jax.lax.switch(which, [masked, network], x)

    weak = attacks.fgsm(model, x, labels, epsilon=0.3)
    return weak, attacks.diagnose(
      model, x, labels, weak.success, key=key, epsilon=0.3, steps=10, draws=50
    )

  weak, found = run(0, x, labels, KEY)
  assert not np.any(weak.success)
  assert np.all(found.zero_gradients == 1)
  assert np.mean(found.random) > 0.05
  assert np.mean(found.unbounded) < 0.9
  weak, found = run(1, x, np.argmax(np.asarray(network(x)), axis=1), KEY)
  assert np.mean(weak.success) > 0.8
  assert not np.any(found.random)
  assert not np.any(found.stronger & weak.success)
  assert np.all(found.unbounded)
  assert np.all(found.zero_gradients == 0)


def test_bad_input_is_named(unchecked):
  x, labels = images(4)
  outside = x.copy()
  outside[2, 1, 0, 0] = 1.5
  cases = [
    ({"x": outside}, r"x must be at most high = 1\.0, got 1\.5 at \[2, 1, 0, 0\]"),
    ({"x": -outside}, r"x must be at least low = 0\.0, got -"),
    ({"epsilon": -0.5}, r"epsilon must be at least 0, got -0\.5"),
    ({"epsilon": np.array([0.1, -2, 0, 0])}, r"epsilon must be at least 0, got -2"),
    ({"epsilon": np.ones(3)}, r"epsilon must have shape \(4,\)"),
    ({"epsilon": None}, "epsilon must be given"),
    ({"low": 2.0}, r"low must be at most high, got 2\.0 > 1\.0"),
    ({"labels": np.array([0, 1, 5, 2])}, r"labels must be in \[0, 5\), got 5"),
    ({"targets": labels}, "targets must differ from labels"),
    ({"targets": np.full(4, -1)}, r"targets must be in \[0, 5\), got -1"),
    ({"targets": "some"}, "targets must be one of 'all', got 'some'"),
    ({"target_count": 2}, 'target_count is for targets "all", got 2'),
    ({"targets": "all", "target_count": -1}, "target_count must be at least 1, got -1"),
    ({"share": 3.0}, r"share must be in \[0, 1\], got 3"),
    (
      {"epsilon": np.inf, "high": np.inf},
      "epsilon must be finite where the box is not",
    ),
    ({"loss": "kl", "random_start": False}, '"kl" has no slope at x'),
    ({"norm": "l0"}, "got 'l0'"),
    ({"mode": "test"}, "got 'test'"),
    ({"key": None}, "random starts need a key"),
    ({"steps": 0}, "steps must be at least 1, got 0"),
    ({"index": np.arange(3)}, r"index must have shape \(4,\)"),
  ]
  for changed, message in cases:
    given = {"x": x, "labels": labels, "key": KEY, "epsilon": 0.1, **changed}
    with pytest.raises(ValueError, match=message):
      attacks.pgd(network, **given)
  with pytest.raises(ValueError, match='"dlr" needs at least 3 classes, got 2'):
    attacks.pgd(
      lambda x: network(x)[:, :2], x, 0 * labels, key=KEY, epsilon=0.1, loss="dlr"
    )
  with pytest.raises(ValueError, match=r"\[batch, classes\] .* got \(4,\)"):
    attacks.fgsm(lambda x: network(x)[:, 0], x, labels, epsilon=0.1)
  with pytest.raises(TypeError, match="x must be floating, got dtype int32"):
    attacks.fgsm(network, x.astype(np.int32), labels, epsilon=0.1)
  with pytest.raises(ValueError, match="x must have 4 axes"):
    attacks.square(network, x[0], labels, key=KEY, epsilon=0.1)
  for without_start in (attacks.bim, attacks.fgsm, attacks.mi_fgsm):
    with pytest.raises(ValueError, match='"kl" has no slope at x'):
      without_start(network, x, labels, epsilon=0.1, loss="kl")
  for count in (0, 2.0):
    for run in (attacks.apgd, attacks.fab):
      given = {"key": KEY, "epsilon": 0.1, "targets": "all", "target_count": count}
      with pytest.raises((ValueError, TypeError), match="target_count must be"):
        run(network, x, labels, **given)
  with pytest.raises(ValueError, match='target_count is for targets "all", got 2'):
    attacks.fab(network, x, labels, target_count=2)
  with pytest.raises(ValueError, match="random starts need a key"):
    attacks.apgd(network, x, labels, key=None, epsilon=0.1)
  with pytest.raises(ValueError, match="random windows need a key"):
    attacks.square(network, x, labels, key=None, epsilon=0.1)
  broken, given = np.zeros(4, bool), {"key": KEY, "epsilon": 0.1, "high": np.inf}
  with pytest.raises(ValueError, match="high must be finite, got inf"):
    attacks.diagnose(network, x, labels, broken, **given)


def test_known_budgets_are_rounded_down():
  """0.1 in float32 is above the number itself."""
  assert float(np.float32(0.1)) > 0.1
  x, labels = images(8)
  found = jax.jit(lambda x: attacks.fgsm(network, x, labels, epsilon=0.1, mode="last"))(
    x
  )
  moved = np.abs(np.asarray(found.x_adv, np.float64) - x)
  assert moved.max() <= 0.1
