"""Every attack: regions, independence of the batch, edges, bad input."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from spherejax import attacks, voronoi
from tests import balls, refusals

RANDOM = np.random.default_rng(0)
SHAPE, CLASSES = (4, 4, 3), 5
SIZE, FEW = 48, 16
FIRST = (RANDOM.normal(size=(SIZE, 12)) / 4).astype(np.float32)
SECOND = RANDOM.normal(size=(12, CLASSES)).astype(np.float32)
KEY = jax.random.key(0)


def network(x):
  return jnp.tanh(x.reshape(len(x), SIZE) @ FIRST) @ SECOND


def scores(x):
  """The scores in NumPy."""
  return np.tanh(x.astype(np.float64).reshape(len(x), SIZE) @ FIRST) @ SECOND


def short_network(x):
  """Scores in bfloat16."""
  first, second = FIRST.astype(jnp.bfloat16), SECOND.astype(jnp.bfloat16)
  z = jnp.tanh(x.reshape(len(x), -1).astype(jnp.bfloat16) @ first) @ second
  return z.astype(jnp.float32)


KINDS = ("plain", "bfloat16", "flat", "saturated", "not finite")


def one_of_the_models(kind, x):
  """A network, the same in bfloat16, and three that are broken."""
  z = jax.lax.cond(kind == 1, short_network, network, x)
  z *= jnp.array([1, 1, 0, 1e4, 1])[kind]
  z += (kind == 2) * jnp.eye(CLASSES)[1:2]
  lost = (kind == 4) & (x[:, 0, 0, :1] > 0.5) & (jnp.arange(CLASSES) == 0)[None]
  return jnp.where(lost, jnp.nan, z)


def images(count, seed=None):
  random = np.random.default_rng(count if seed is None else seed)
  x = random.random((count, *SHAPE))
  x[::2] = np.round(x[::2] * 255) / 255  # as from files
  x[1::4] = np.round(x[1::4])  # on the faces of the box
  x[::3] = x[::3].astype(jnp.bfloat16)
  x[:FEW] = x[:FEW].astype(jnp.bfloat16)
  x = x.astype(np.float32)
  labels = np.argmax(scores(x), axis=1)
  labels[::10] = (labels[::10] + 1) % CLASSES
  return x, labels


def without_key(function):
  return lambda fn, x, y, key, **more: function(fn, x, y, **more)


BUDGETED = {
  "fgsm": without_key(attacks.fgsm),
  "mi_fgsm": without_key(functools.partial(attacks.mi_fgsm, steps=3)),
  "pgd": functools.partial(attacks.pgd, steps=3),
  "apgd": functools.partial(attacks.apgd, steps=4),
  "square": functools.partial(attacks.square, queries=3),
  "ensemble": functools.partial(attacks.ensemble, steps=3, queries=3, target_count=2),
}
MINIMAL = {
  "deepfool": functools.partial(attacks.deepfool, steps=5),
  "fab": functools.partial(attacks.fab, steps=5),
  "carlini_wagner": functools.partial(
    attacks.carlini_wagner, steps=20, rounds=2, first_weight=10.0
  ),
}
RANDOM_STARTS = ("pgd", "apgd", "square")


def pairs(text):
  """Names and norms of attacks."""
  return [tuple(pair.split("-")) for pair in text.split()]


CASES = pairs(
  "fgsm-linf mi_fgsm-l2 pgd-linf pgd-l2 pgd-l1 apgd-linf apgd-l2 apgd-l1 square-linf "
  "square-l2 ensemble-l2"
)
# All of it at once takes long to compile; its parts are tested one by one. Steps of one
# attack in a ball are those of another one in it.
SLOW = functools.partial(pytest.param, marks=pytest.mark.slow)
REPEATED = pairs("ensemble-l2 pgd-l2 apgd-linf apgd-l2 pgd-l1")
CASE_PARAMS = [SLOW(*case) if case in REPEATED else case for case in CASES]
COUNTS = {"linf": 2000, "l2": 1000, "l1": 500, "ensemble": 200}  # by their cost
ENDLESS = 40
# The ensemble is without the square attack in l1.
SMALL = pairs(
  "fgsm-linf mi_fgsm-l2 pgd-linf apgd-l2 apgd-l1 square-l2 ensemble-l1 deepfool-l2 "
  "fab-l1 carlini_wagner-l2"
)
LONG = pairs("ensemble-l1 apgd-l1")
SMALL_PARAMS = [SLOW(case) if case in LONG else case for case in SMALL]


def data(name, norm):
  """Samples, budgets and numbers; behind them some thrice, for infinite budgets."""
  count = COUNTS.get(name, COUNTS[norm])
  x, labels = images(count)
  epsilon = (10 ** np.random.default_rng(1).uniform(-4, 0.7, count)).astype(np.float32)
  epsilon[::50] = 0
  wide = {"linf": 2.0, "l2": 2 * SIZE**0.5, "l1": 2.0 * SIZE}[norm]
  again = np.tile(np.arange(ENDLESS), 3)
  mixed = np.where(np.arange(ENDLESS) % 2, np.inf, 0.01)
  endless = np.concatenate([np.full(ENDLESS, np.inf), np.full(ENDLESS, wide), mixed])
  more, others = images(ENDLESS)
  return (
    np.concatenate([x, more[again]]),
    np.concatenate([labels, others[again]]),
    np.concatenate([epsilon, endless]).astype(np.float32),
    np.concatenate([np.arange(count), again]),
  )


@functools.cache
def many(name, norm):
  """Samples with what an attack of a budget finds; in float32, on one device."""
  x, labels, epsilon, index = data(name, norm)

  @jax.jit  # where radii beyond the box are not known
  def run(x, labels, epsilon, index, key):
    common = {"key": key, "epsilon": epsilon, "norm": norm, "index": index}
    return BUDGETED[name](network, x, labels, **common)

  found = jax.tree.map(np.asarray, run(x, labels, epsilon, index, KEY))
  return x, labels, epsilon, found


@functools.cache
def nearest(norm):
  """Samples with what the attacks of least norm find."""
  x, labels = images(200)
  names = [name for name in MINIMAL if norm == "l2" or name != "carlini_wagner"]
  found = {name: least(name, norm, network, x, labels) for name in names}
  return x, labels, jax.tree.map(np.asarray, found)


def least(name, norm, model, x, labels):
  given = {} if name == "carlini_wagner" else {"norm": norm}
  return MINIMAL[name](model, x, labels, **given)


@pytest.fixture(scope="module", params=SMALL_PARAMS, ids="-".join)
def small(request):
  """An attack of 16 samples in bfloat16 on two devices, on any of the models."""
  name, norm = request.param
  mesh = Mesh(np.array(jax.devices()[:2]), "batch")
  rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["batch"], []))

  @functools.partial(
    jax.jit, in_shardings=(rows, rows, rows, rows, whole, whole), out_shardings=rows
  )
  def run(x, labels, epsilon, index, key, kind):
    model = functools.partial(one_of_the_models, kind)
    if name in MINIMAL:
      return least(name, norm, model, x, labels)
    common = {"key": key, "epsilon": epsilon, "norm": norm, "index": index}
    return BUDGETED[name](model, x, labels, **common)

  def call(x, labels, epsilon, index=None, key=KEY, kind="plain"):
    index = np.arange(FEW) if index is None else index
    short = x.astype(jnp.bfloat16)
    np.testing.assert_array_equal(short.astype(np.float32), x)
    found = run(short, labels, epsilon, index, key, KINDS.index(kind))
    return jax.tree.map(np.asarray, found)

  return name, norm, call


def moves(x, norm, points):
  """Sizes of the moves in float64, all of which end in the box."""
  assert points.dtype == np.float32
  assert np.all((points >= 0) & (points <= 1))
  return balls.sizes(points.astype(np.float64) - x, norm)


def check_points(x, norm, epsilon, found):
  """In ball and box in float64 without tolerance, and as far as said."""
  sizes = moves(x, norm, found.x_adv)
  assert np.all(sizes <= epsilon.astype(np.float64))
  np.testing.assert_allclose(found.norm, sizes, rtol=1e-5, atol=1e-7)


def check_nearest(x, norm, found):
  """In the box and as far as said, or not moved at all."""
  sizes, success = moves(x, norm, found.x_adv), found.success
  # Each entry of a point is rounded once, after its size was added up.
  rounding = 2.0**-24 * {"linf": 1, "l2": SIZE**0.5, "l1": SIZE}[norm]
  np.testing.assert_allclose(
    found.norm[success], sizes[success], rtol=1e-5, atol=rounding
  )
  np.testing.assert_array_equal(sizes[~success], 0)
  assert np.all(np.isinf(found.norm[~success]))
  assert np.mean(success & (sizes > 0)) > 0.3


@pytest.mark.parametrize(("name", "norm"), CASE_PARAMS)
def test_no_point_is_outside_of_its_region(name, norm):
  """13,000 points over all cases, a third of them from bfloat16."""
  x, labels, epsilon, found = many(name, norm)
  check_points(x, norm, epsilon, found)
  still, moved = epsilon == 0, (epsilon > 0) & (found.norm > 0)
  np.testing.assert_array_equal(found.x_adv[still], x[still])
  assert np.mean(moved) > 0.5
  # What is reported is what the model says of the returned point.
  margin = balls.margins(scores(found.x_adv), labels)
  np.testing.assert_allclose(found.margin, margin, atol=1e-5)
  clear = np.abs(margin) > 1e-5
  np.testing.assert_array_equal(found.success[clear], (margin > 0)[clear])


@pytest.mark.parametrize(("name", "norm"), CASE_PARAMS)
def test_an_infinite_radius_leaves_the_box(name, norm):
  """It acts like a radius that reaches beyond the box from everywhere."""
  x, labels, _, found = many(name, norm)
  rows = np.arange(ENDLESS)
  endless, finite, mixed = (take(found, rows - k * ENDLESS) for k in (3, 2, 1))
  right = (np.argmax(scores(x), axis=1) == labels)[-ENDLESS:]
  assert np.all(np.isfinite(endless.norm))
  assert np.all(endless.norm[right] > 0)
  # The steps are of other sizes: no sample for sample comparison.
  assert np.mean(endless.success) >= np.mean(finite.success) - 0.2
  assert np.mean(endless.success[right]) > 0.5
  assert np.all(mixed.norm[::2] <= 0.01 * 1.001)
  np.testing.assert_array_equal(mixed.success[1::2], endless.success[1::2])


@pytest.mark.parametrize("norm", balls.NORMS)
def test_points_of_least_norm_are_in_the_box_and_as_far_as_said(norm):
  x, _, found = nearest(norm)
  for result in found.values():
    check_nearest(x, norm, result)


WITHIN = {"key": KEY, "epsilon": 0.1}  # as far as the box goes
IN_A_BOX = {
  "fgsm": functools.partial(attacks.fgsm, epsilon=0.1),
  "pgd": functools.partial(attacks.pgd, steps=3, norm="l1", **WITHIN),
  "apgd": functools.partial(attacks.apgd, steps=3, norm="l2", **WITHIN),
  "square": functools.partial(attacks.square, queries=3, **WITHIN),
  "deepfool": functools.partial(attacks.deepfool, steps=3),
  "fab": functools.partial(attacks.fab, steps=3, norm="linf"),
}


@pytest.mark.parametrize(
  "names",
  [("apgd", "deepfool"), SLOW(("fgsm", "pgd", "square", "fab"))],
  ids=lambda names: names[0],
)
def test_numbers_that_float32_does_not_have_bound_a_box(names):
  """0.7 is less in float32 and 0.8 is more; samples there stay in place."""
  low, high = 0.7, 0.8
  x = np.random.default_rng(0).uniform(low, high, (FEW, SIZE)).astype(np.float32)
  x[:, 0], x[:, 1] = low, high
  x[:4] = np.where(RANDOM.random((4, SIZE)) < 0.5, low, high)
  x = x.reshape(FEW, *SHAPE)
  labels = np.argmax(scores(x), axis=1)
  lowest = np.minimum(low, x.astype(np.float64))
  highest = np.maximum(high, x.astype(np.float64))
  inside = np.nextafter(np.float32([low, high]), np.float32([1, 0]))
  box = {"low": low, "high": high}
  ends = jnp.tile(jnp.float32([0, 1]), (FEW, SIZE // 2))

  @jax.jit  # where it is not known that some of x are beyond
  def run(x):
    points = {n: IN_A_BOX[n](network, x, labels, **box).x_adv for n in names}
    region = attacks.combined_ball(x, epsilon_1=9.0, epsilon_inf=0.9, **box)
    points["region"] = region.project(ends, x.reshape(FEW, SIZE)).reshape(x.shape)
    return points

  for name, moved in jax.tree.map(np.float64, run(x)).items():
    assert (moved >= lowest).all(), name
    assert (moved <= highest).all(), name
    if name == "fgsm":
      assert (moved[..., None] == inside).any(axis=(0, 1, 2, 3)).all()


def test_a_sample_does_not_know_its_batch(small):
  """Permuted, in halves beside others, alone, and on one device among many others."""
  name, norm, run = small
  if name in MINIMAL:
    x, labels, found = nearest(norm)
    epsilon, found = np.zeros(FEW, np.float32), found[name]
  elif (name, norm) in CASES:
    x, labels, epsilon, found = many(name, norm)
  else:
    (x, labels, epsilon, _), found = data(name, norm), None
  x, others = x[:FEW], x[FEW : 2 * FEW].astype(jnp.bfloat16).astype(np.float32)
  labels, epsilon = labels[:FEW], epsilon[:FEW]
  plain = run(x, labels, epsilon)
  order = np.random.default_rng(2).permutation(FEW)
  permuted = run(x[order], labels[order], epsilon[order], order)
  jax.tree.map(np.testing.assert_array_equal, permuted, take(plain, order))
  for half in (np.arange(FEW) < FEW // 2, np.arange(FEW) >= FEW // 2):
    beside = np.where(half[:, None, None, None], x, others)
    padded = run(beside, np.where(half, labels, 0), np.where(half, epsilon, 0.1))
    check_same(take(padded, half), take(plain, half))
  for row in range(0, FEW, 3):
    copies = np.full(FEW, row)  # what any and all of a batch say is then its own
    alone = run(x[copies], labels[copies], epsilon[copies], copies)
    check_same(alone, take(plain, copies))
  if found is not None:
    check_same(plain, take(found, slice(FEW)))
  if name in RANDOM_STARTS and norm != "linf":
    # Draws belong to samples and keys.
    small_ball = np.full(FEW, 0.01, np.float32)
    first = run(x, labels, small_ball)
    for other in (
      run(x, labels, small_ball, key=jax.random.key(1)),
      run(x, labels, small_ball, np.arange(FEW) + 1),
    ):
      assert np.mean(np.any(first.x_adv != other.x_adv, axis=(1, 2, 3))) > 0.7


def take(found, rows):
  return jax.tree.map(lambda v: v[rows], found)


def check_same(one, other):
  np.testing.assert_allclose(one.x_adv, other.x_adv, rtol=0, atol=1e-5)
  np.testing.assert_array_equal(one.success, other.success)
  np.testing.assert_array_equal(one.queries, other.queries)
  np.testing.assert_allclose(one.norm, other.norm, rtol=1e-5, atol=1e-5)


def test_bfloat16_has_the_same_regions(small):
  name, norm, run = small
  for seed in range(4):
    x, labels = images(FEW, seed)
    random = np.random.default_rng(seed)
    epsilon = (10 ** random.uniform(-3, 0.5, FEW)).astype(np.float32)
    found = run(x, labels, epsilon, kind="bfloat16")
    if name in MINIMAL:
      check_nearest(x, norm, found)
    else:
      check_points(x, norm, epsilon, found)
    assert np.any(found.norm > 0)


@pytest.mark.parametrize("kind", KINDS[2:])
def test_broken_models_have_defined_results(small, kind):
  name, _, run = small
  x, labels = images(FEW)
  labels[labels == 1] = 2
  labels[5] = 1
  found = run(x, labels, np.full(FEW, 0.1, np.float32), kind=kind)
  assert np.all(np.isfinite(found.x_adv))
  assert not np.any(np.isnan(found.norm))
  if kind == "flat":
    np.testing.assert_array_equal(found.success, labels != 1)
    assert found.zero_gradients[5] == (name != "square")
  if kind == "saturated":
    assert np.mean(found.saturated) > (0 if name in MINIMAL else 0.2)
  if kind == "not finite":
    broken = found.x_adv[:, 0, 0, 0] > 0.5
    assert np.any(broken)
    assert not np.any(found.success & broken)


def test_one_class_is_never_left():
  x, labels = images(6)[0], np.zeros(6, int)

  def model(x):
    return network(x)[:, :1]

  aimed = attacks.pgd(model, x, labels, key=KEY, epsilon=0.1, steps=2)
  for found in (aimed, attacks.deepfool(model, x, labels)):
    assert not np.any(found.success)
    assert np.all(found.margin == -np.inf)
    assert np.all(np.isfinite(found.x_adv))


@pytest.mark.parametrize("name", [*BUDGETED, "bim", "diagnose", *MINIMAL, "region"])
def test_an_empty_batch_has_an_empty_result(name):
  x, labels = np.zeros((0, *SHAPE), np.float32), np.zeros(0, np.int32)

  def run(x):
    function = attacks.pgd if name == "region" else getattr(attacks, name)
    given = arguments(function, x, labels)
    if name == "region":
      given["region"] = attacks.combined_ball(x, epsilon_1=1.0, epsilon_inf=0.1)
      del given["epsilon"]
    return function(**given)

  for field, value in jax.eval_shape(run, x)._asdict().items():
    if value is not None:
      assert value.shape == (x.shape if field == "x_adv" else (0,)), field


def test_diagnosis_sees_a_masked_gradient():
  """A quantised input: no slope anywhere, yet beside many samples a wrong class."""

  def masked(x):
    return network(jnp.round(4 * x) / 4)

  x, _ = images(40)
  labels = np.argmax(scores(np.round(4 * x) / 4), axis=1)

  def run(model, labels):
    weak = attacks.fgsm(model, x, labels, epsilon=0.3)
    options = {"key": KEY, "epsilon": 0.3, "steps": 10, "draws": 50}
    return weak, attacks.diagnose(model, x, labels, weak.success, **options)

  weak, found = run(masked, labels)
  assert not np.any(weak.success)
  assert np.all(found.zero_gradients == 1)
  assert np.mean(found.random) > 0.05
  assert np.mean(found.unbounded) < 0.9
  weak, found = run(network, np.argmax(scores(x), axis=1))
  assert np.mean(weak.success) > 0.8
  assert not np.any(found.random)
  assert not np.any(found.stronger & weak.success)
  assert np.all(found.unbounded)
  assert np.all(found.zero_gradients == 0)


def arguments(function, x, labels):
  """Arguments that a function needs, for short runs."""
  known = {"logits_fn": network, "x": x, "sites": x, "labels": labels}
  known |= {"own_index": np.arange(len(x)), "success": np.zeros(len(x), bool)}
  known |= {"key": KEY, "epsilon": 0.1, "steps": 2, "queries": 2}
  options = inspect.signature(function).parameters
  return {option: value for option, value in known.items() if option in options}


FOUR, OF_FOUR = images(4)
OUT = FOUR.copy()
OUT[2, 1, 0, 0] = 1.5
BELOW = np.array([0.1, -2, 0, 0])
NO_SLOPE, NOT_ALL = '"kl" has no slope at x', 'target_count is for targets "all", got 2'
AVERAGE = {"logits_fn": attacks.Expectation(network, lambda key, x: x)}
NO_AVERAGE = "TypeError: logits_fn of {} .* got an Expectation"
EXACT = ("deepfool", "fab", "carlini_wagner", "square", "ensemble", "diagnose")
FLAT = {"logits_fn": lambda x: network(x)[:, 0]}
ALL, ENDS = {"targets": "all"}, {"epsilon": np.inf, "high": np.inf}


@pytest.mark.parametrize(
  ("name", "changed", "message"),
  [
    ("pgd", {"x": OUT}, r"x must be at most high = 1\.0, got 1\.5 at \[2, 1, 0, 0\]"),
    ("pgd", {"x": -OUT}, r"x must be at least low = 0\.0, got -"),
    ("pgd", {"epsilon": BELOW}, "epsilon must be at least 0, got -2"),
    ("pgd", {"epsilon": np.ones(3)}, r"epsilon must have shape \(4,\)"),
    ("pgd", {"epsilon": None}, "epsilon must be given"),
    ("pgd", {"low": 2.0}, r"low must be at most high, got 2\.0 > 1\.0"),
    ("pgd", {"targets": OF_FOUR}, "targets must differ from labels"),
    ("pgd", {"targets": np.full(4, -1)}, r"targets must be in \[0, 5\), got -1"),
    ("pgd", {"target_count": 2}, NOT_ALL),
    ("pgd", ALL | {"target_count": -1}, "target_count must be at least 1, got -1"),
    ("pgd", ENDS, "epsilon must be finite where the box is not"),
    ("pgd", {"loss": "kl", "random_start": False}, NO_SLOPE),
    ("pgd", {"key": None}, "random starts need a key"),
    ("pgd", {"step_size": -0.1}, r"step_size must be at least 0, got -0\.1"),
    ("pgd", {"index": np.arange(3)}, r"index must have shape \(4,\)"),
    ("fgsm", FLAT, r"\[batch, classes\] .* got \(4,\)"),
    *((name, {"loss": "kl"}, NO_SLOPE) for name in ("bim", "fgsm", "mi_fgsm")),
    *(
      (name, ALL | {"target_count": count}, f"{kind}target_count must be")
      for name in ("apgd", "fab")
      for count, kind in ((0, ""), (2.0, "TypeError: "))
    ),
    ("fab", {"target_count": 2}, NOT_ALL),
    ("diagnose", {"high": np.inf}, "high must be finite, got inf"),
    *((name, AVERAGE, NO_AVERAGE.format(name)) for name in EXACT),
  ],
)
def test_bad_input_is_named(name, changed, message, unchecked):
  function = getattr(attacks, name)
  given = arguments(function, FOUR, OF_FOUR) | changed
  refusals.check(functools.partial(function, **given), message)


def test_a_radius_beyond_the_box_is_refused():
  """8 for 8/255; in l1 and l2 the box is wider, and infinity asks for all of it."""
  x, labels = images(4)

  def taken(x, **options):
    """Refused or not is known when it is traced."""
    jax.eval_shape(lambda: attacks.fgsm(network, x, labels, **options))

  for norm, extent in (("linf", 1.0), ("l2", SIZE**0.5), ("l1", float(SIZE))):
    for run in (attacks.fgsm, functools.partial(attacks.apgd, key=KEY)):
      with pytest.raises(ValueError, match=r"epsilon must be at most .* got 50"):
        run(network, x, labels, epsilon=50.0, norm=norm)
    for epsilon in (extent, np.inf):
      taken(x, epsilon=epsilon, norm=norm)
  with pytest.raises(ValueError, match=r"at most 1, the extent .* got 8;"):
    attacks.fgsm(network, x, labels, epsilon=np.array([0.1, 8, 0, 0]))
  taken(255 * x, epsilon=8.0, high=255.0)
  taken(x, epsilon=8.0, high=np.inf)
  taken(x, epsilon=2.0, high=np.full(SHAPE, 2.0))


def test_results_say_whether_more_steps_promise_more():
  """A climb that goes on has not converged; nor one that saw no gradient."""
  x, labels = np.full((3, 2), 0.5, np.float32), np.zeros(3, int)

  def slope(x):  # rises along the first entry, to a border at 0.9
    return jnp.stack([0.9 - x[:, 0], jnp.zeros(len(x))], axis=1)

  def flat(x):
    return jnp.stack([jnp.ones(len(x)), jnp.zeros(len(x))], axis=1) + 0 * x

  common = {"epsilon": np.float32([0.2, 0.3, 0.45]), "loss": "margin"}
  short = attacks.bim(slope, x, labels, step_size=1e-3, **common)
  far = attacks.bim(slope, x, labels, **common)
  level = attacks.bim(flat, x, labels, **common)
  np.testing.assert_array_equal(short.success, False)
  np.testing.assert_array_equal(short.converged, False)
  np.testing.assert_array_equal(far.success, [False, False, True])
  np.testing.assert_array_equal(far.converged, True)
  np.testing.assert_array_equal(level.converged, False)


RESULTS = {"x_adv": ((4, *SHAPE), "float32"), "queries": ((4,), "int32")}
RESULTS |= dict.fromkeys(("success", "converged"), ((4,), "bool"))
REALS = ("loss", "margin", "norm", "zero_gradients", "saturated")
RESULTS |= dict.fromkeys(REALS, ((4,), "float32"))
OWN = {
  "ensemble": {"stage": ((4,), "int32")},
  "voronoi_pgd": {"cell_margin": ((4,), "float32"), "complete": ((4,), "bool")},
}
ATTACKS = {
  name: function
  for room in (attacks, voronoi)
  for name in room.__all__
  if (function := getattr(room, name)) and not isinstance(function, type)
  if inspect.signature(function).return_annotation is attacks.AttackResult
}


def test_every_attack_is_here():
  assert {*BUDGETED, *MINIMAL, "bim", "voronoi_pgd"} == set(ATTACKS)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_returns_a_result_of_one_shape(name):
  """Fields, shapes and types agree under jit, under vmap and for bfloat16."""
  x, labels = images(4)

  def attack(x):
    return ATTACKS[name](**arguments(ATTACKS[name], x, labels))

  def kinds(found):
    known = {field: each for field, each in found._asdict().items() if each is not None}
    return {field: (each.shape, each.dtype.name) for field, each in known.items()}

  expected = RESULTS | OWN.get(name, {})
  stacked = {k: ((2, *shape), dtype) for k, (shape, dtype) in expected.items()}
  short = np.stack([x, x]).astype(jnp.bfloat16)
  assert kinds(jax.eval_shape(jax.jit(jax.vmap(attack)), short)) == stacked
  assert "AttackResult" in inspect.getdoc(ATTACKS[name]).partition("Returns:")[2]


@pytest.mark.parametrize("name", ATTACKS)
def test_no_gradient_reaches_the_parameters(name):
  taken = arguments(ATTACKS[name], *images(2))

  @jax.grad
  def slope(second):
    def logits_fn(x):
      return jnp.tanh(x.reshape(len(x), SIZE) @ FIRST) @ second

    found = ATTACKS[name](**taken | {"logits_fn": logits_fn})
    real = [each for each in found if each is not None and each.dtype == jnp.float32]
    return sum(jnp.sum(jnp.where(jnp.isfinite(each), each, 0)) for each in real)

  np.testing.assert_array_equal(jax.jit(slope)(SECOND), 0)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_draws_belong_to_samples_whatever_the_key(impl):
  x, labels = images(4)
  key = jax.random.key(0, impl=impl)

  def starts(rows):
    ball = {"epsilon": 1.0, "norm": "l2", "steps": 1, "step_size": 0.0, "share": 1.0}
    return attacks.pgd(network, x[rows], labels[rows], key=key, index=rows, **ball)

  together, alone = starts(np.arange(4)), starts(np.array([2]))
  assert (together.x_adv[2] != x[2]).any()
  np.testing.assert_array_equal(alone.x_adv[0], together.x_adv[2])


def test_results_have_their_earlier_names():
  found = attacks.AttackResult(*range(len(RESULTS)))
  assert found.result is found.attack is found
  assert attacks.EnsembleResult is voronoi.VoronoiResult is attacks.AttackResult


def test_known_budgets_are_rounded_down():
  """0.1 in float32 is above the number itself."""
  x, labels = images(8)
  attack = functools.partial(attacks.fgsm, network, epsilon=0.1, mode="last")
  found = jax.jit(attack)(x, labels)
  moved = np.abs(np.asarray(found.x_adv, np.float64) - x)
  assert moved.max() <= 0.1
