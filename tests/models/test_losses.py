"""Losses that own parameters: they call the functions, on one device and several."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, losses, models
from tests import programs, refusals
from tests.models.oracles import init

RNG = np.random.default_rng(0)
ROWS = jnp.asarray(RNG.normal(size=(8, 5)), jnp.float32)
ATTRIBUTES = jax.nn.softmax(2 * ROWS)
LABELS = jnp.array([0, 0, 3, 3, 1, 1, 5, 5])
WHERE = jnp.array([1, 1, 1, 0, 1, 1, 0, 1], bool)
PAIRED = ROWS[:6, :3], jnp.array([0, 0, 2, 2, 1, 1])
CLASSES = 6
TABLE = (CLASSES, 5)
SEVERAL = (CLASSES, 2, 5)


def norm(x):
  return jnp.sqrt(jnp.sum(x * x, axis=-1))


def by_cosines(name, numbers, **more):
  """A case: the loss of that name on the cosines with `weights`."""

  def function(rows, labels, where, weights):
    cosines = distances.pairwise_cosine(rows, weights.reshape(-1, 5))
    cosines = cosines.reshape(8, *weights.shape[:-1])
    return getattr(losses, name)(cosines, labels, where=where, **numbers)

  return numbers | more, {"weights": SEVERAL if more else TABLE}, function


def by_proxies(name, numbers, table="proxies", **more):
  """A case: the loss of that name with the only parameter in its signature."""

  def function(rows, labels, where, **params):
    return getattr(losses, name)(rows, labels, **params, where=where, **numbers)

  return numbers | more, {table: SEVERAL if more else TABLE}, function


def by_distances(name, squared):
  def function(rows, labels, where, proxies):
    gaps = jnp.sum((rows[:, None] - proxies[None]) ** 2, axis=-1)
    gaps = gaps if squared else jnp.sqrt(gaps)
    return getattr(losses, name)(gaps, labels, scale=0.7, where=where)

  return {"scale": 0.7}, {"proxies": TABLE}, function


def by_attacked(name):
  """A case: the loss of that name on the cosines of clean and attacked rows."""

  def function(rows, labels, where, weights):
    cosines = [distances.pairwise_cosine(x, weights) for x in data("ProxyCap", rows)]
    angles = losses.nearest_proxy_angles(weights)
    return getattr(losses, name)(*cosines, labels, angles, where=where, **CLEAN)

  return CLEAN, {"weights": TABLE}, function


def linear(rows, labels, where, weights, biases):
  return losses.softmax(rows @ weights.T + biases[None], labels, where=where)


def learned_scale(rows, labels, where, weights, log_scale):
  cosines = distances.pairwise_cosine(rows, weights)
  return losses.normface(cosines, labels, scale=jnp.exp(log_scale), where=where)


def sphereface(rows, labels, where, weights):
  cosines = distances.pairwise_cosine(rows, weights)
  return losses.sphereface(cosines, labels, norm(rows), margin=3, where=where)


def large_margin(rows, labels, where, weights):
  norms = norm(rows)[:, None] * norm(weights)[None]
  cosines = distances.pairwise_cosine(rows, weights)
  return losses.large_margin_softmax(cosines, labels, norms, margin=3, where=where)


def distance_ratio(rows, labels, where, log_exponent):
  exponent = jnp.exp(log_exponent)
  return losses.distance_ratio(rows, labels, exponent=exponent, where=where)


def zero_shot(rows, labels, where, label_embeddings):
  """Classes 0 and 3 are the half that comes first, 1 and 5 the other."""
  first = np.isin(labels, (0, 3))
  known = np.ones(8, bool) if where is None else np.asarray(where)
  values = losses.zero_shot_prediction(
    rows[first],
    labels[first],
    rows[~first],
    labels[~first],
    label_embeddings,
    ridge=0.2,
    scale=3.0,
    where_a=jnp.asarray(known[first]),
    where_b=jnp.asarray(known[~first]),
  )
  return jnp.zeros(8).at[np.argsort(~first, kind="stable")].set(values)


ARC = {"scale": 9.0, "margin": 0.3, "tail": "continuous", "easy_margin": True}
ANCHOR = {"scale": 8.0, "margin": 0.2, "normalize": "unit_ball"}
COLD = {"temperature": 0.3, "logit": "cosine", "normalize": "unit_ball"}
NCA = {"scale": 1.3, "normalize": "unit_ball"}
WALKS = {"persistence": 0.6, "margin": 0.2, "context_weight": 0.5}
SOFT = {"scale": 9.0, "temperature": 0.2, "margin": 0.1, "regularization": 0.4}
SOFT |= {"normalize": "unit_ball"}
CLEAN = {"clean_weight": 0.3, "scale": 9.0}
ADACOS = {"scale": losses.adacos_scale(CLASSES)}
LEARNED = {"weights": TABLE, "log_scale": ()}
SHOTS = {"dim": 7, "ridge": 0.2, "scale": 3.0}

# Settings of each module, shapes of its parameters, and its function of these.
CASES = {
  "Softmax": ({}, {"weights": TABLE, "biases": (CLASSES,)}, linear),
  "NormFace": by_cosines("normface", {"scale": 9.0}),
  "NormFace/scale": ({"scale": 9.0, "learn_scale": True}, LEARNED, learned_scale),
  "P2SGrad": by_cosines("p2s_grad", {}),
  "AdaCos": ({}, *by_cosines("normface", ADACOS)[1:]),
  "CosFace": by_cosines("cosface", {"scale": 9.0, "margin": 0.2}),
  "ArcFace": by_cosines("arcface", ARC),
  "SubcentreArcFace": by_cosines("subcentre_arcface", ARC, per_class=2),
  "SphereFace": ({"margin": 3}, {"weights": TABLE}, sphereface),
  "LargeMarginSoftmax": ({"margin": 3}, {"weights": TABLE}, large_margin),
  "SquaredDistanceSoftmax": by_distances("squared_distance_softmax", True),
  "DistanceSoftmax": by_distances("distance_softmax", False),
  "DistanceRatio": ({}, {"log_exponent": ()}, distance_ratio),
  "ProxyDistanceRatio": by_proxies(
    "proxy_distance_ratio", {"exponent": 3.0, "offset": 0.01}
  ),
  "ProxyAnchor": by_proxies("proxy_anchor", ANCHOR),
  "ProxyNCA": by_proxies("proxy_nca", NCA),
  "ProxyNCAPlusPlus": by_proxies("proxy_nca_plus_plus", COLD, per_class=2),
  "SoftTriple": by_proxies("soft_triple", SOFT, "centres", per_class=2),
  "Manifold": by_proxies("manifold", WALKS),
  "ProxyCap": by_attacked("proxy_cap"),
  "NormFaceNegativeMargin": by_attacked("normface_negative_margin"),
  "ZeroShotPrediction": (SHOTS, {"label_embeddings": (CLASSES, 7)}, zero_shot),
}
INPUTS = {"ZeroShotPrediction": ATTRIBUTES, "DistanceRatio": jnp.exp(ROWS)}


def data(name, rows):
  """What the loss of that name takes in place of rows: these, or clean and attacked."""
  attacked = name in ("ProxyCap", "NormFaceNegativeMargin")
  return (rows, rows[:, ::-1]) if attacked else (rows,)


@functools.cache
def start(name):
  """The module, its data and its variables."""
  build = getattr(models, name.split("/")[0])
  classes = () if name == "DistanceRatio" else (CLASSES,)
  module, rows = build(*classes, **CASES[name][0]), INPUTS.get(name, ROWS)
  variables = jax.jit(module.init)(jax.random.key(0), *data(name, rows), LABELS)
  return module, rows, variables


@pytest.mark.parametrize("name", CASES)
def test_module_is_the_function_of_its_parameters(name):
  module, rows, variables = start(name)
  _, shapes, function = CASES[name]
  labels = jnp.minimum(LABELS, rows.shape[1] - 1) if name == "DistanceRatio" else LABELS
  params = variables["params"]
  assert jax.tree.map(jnp.shape, params) == shapes

  def called(params, rows):
    every = {**variables, "params": params}
    values = module.apply(every, *data(name, rows), labels, where=WHERE)
    return values.sum(), values

  def expected(params, rows):
    values = function(rows, labels, WHERE, **params)
    return values.sum(), values

  @jax.jit
  def both(params, rows, holed):
    slopes = functools.partial(jax.grad, argnums=(0, 1), has_aux=True)
    return slopes(called)(params, holed), slopes(expected)(params, rows)

  actual, right = both(params, rows, jnp.where(WHERE[:, None], rows, jnp.nan))
  for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(right), strict=True):
    np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)
  assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(actual[0]))
  np.testing.assert_array_equal(actual[1][~WHERE], 0)


SLOWLY = [
  pytest.param(x, marks=pytest.mark.slow) for x in ("Manifold", "ZeroShotPrediction")
]


@pytest.mark.parametrize("name", ["ProxyAnchor", "AdaCos", *SLOWLY])
def test_rows_over_devices_equal_the_whole_batch(name):
  module, rows, variables = start(name)

  def slopes(module, *data):
    def total(variables, rows, labels, where):
      options = {"where": where, "mutable": ["batch_stats"]}
      values, state = module.apply(variables, rows, labels, **options)
      return jnp.sum(values), (values, state)

    return jax.grad(total, has_aux=True)(variables, *data)

  def mapped(*data):
    gradient, (values, state) = slopes(module.clone(axis_name="batch"), *data)
    return values, jax.lax.psum(gradient["params"], "batch"), state

  whole = (rows, LABELS, WHERE)
  parts = [leaf.reshape(4, 2, *leaf.shape[1:]) for leaf in whole]
  values, gradient, state = jax.jit(jax.vmap(mapped, axis_name="batch"))(*parts)
  run = jax.jit(functools.partial(slopes, module))
  slope, (expected, expected_state) = run(*whole)
  np.testing.assert_allclose(values.reshape(8), expected, rtol=2e-5, atol=1e-6)
  (table,), (wanted,) = gradient.values(), slope["params"].values()
  assert np.abs(wanted).max() > 1e-3
  np.testing.assert_allclose(table[0], wanted, rtol=1e-4, atol=1e-5)
  if name == "AdaCos":
    scale = expected_state["batch_stats"]["scale"]
    first = variables["batch_stats"]["scale"]
    cosines = distances.pairwise_cosine(rows, variables["params"]["weights"])
    right = losses.adacos_update(first, cosines, LABELS, where=WHERE)
    np.testing.assert_allclose(scale, right, rtol=1e-5)
    np.testing.assert_allclose(state["batch_stats"]["scale"], right, rtol=1e-5)
    assert abs(right - first) > 0.01


def test_parameters_at_the_start():
  modules = (
    models.ProxyAnchor(50),
    models.ProxyNCAPlusPlus(50),
    models.NormFace(50),
    models.ZeroShotPrediction(50, dim=400),
    models.ProxyDistanceRatio(50),
  )

  @jax.jit
  def start(key, rows, labels):
    exponent = models.DistanceRatio().init(key, jnp.ones((2, 2)), labels)["params"]
    return exponent, [module.init(key, rows, labels)["params"] for module in modules]

  rows = np.zeros((2, 400), np.float32)
  exponent, params = start(jax.random.key(0), rows, np.array([0, 1]))
  tables = [np.asarray(table) for own in params for table in own.values()]
  # Glorot-uniform: variance 2 / (50 + 400).
  for table, deviation in zip(tables[:4], (0.2, 1 / 8, 1 / 15, 0.2), strict=True):
    np.testing.assert_allclose(table.std(), deviation, rtol=0.02)
  (proxies,) = tables[4:]
  np.testing.assert_allclose(np.linalg.norm(proxies, axis=1), np.ones(50), rtol=1e-5)
  assert abs((proxies @ proxies.T - np.eye(50)).mean()) < 0.01
  assert exponent == {"log_exponent": 2.0}


def test_mean_of_zero_shot_prediction_is_half_the_papers_sum_of_means():
  module, rows, variables = start("ZeroShotPrediction")
  values = np.asarray(jax.jit(module.apply)(variables, rows, LABELS))
  halves = values[:4].mean() + values[4:].mean()
  np.testing.assert_allclose(values.mean(), halves / 2, rtol=1e-6)


def test_few_classes_begin_with_the_smallest_scale():
  module, labels = models.AdaCos(2, least=0.5), np.arange(8) % 2
  variables = jax.jit(module.init)(jax.random.key(0), ROWS, labels)
  assert variables["batch_stats"]["scale"] == 0.5
  row = np.asarray(ROWS[:1])
  opposite = {"weights": np.concatenate([row, -row])}
  _, new = jax.jit(functools.partial(module.apply, mutable="batch_stats"))(
    {**variables, "params": opposite}, row, labels[:1]
  )
  assert new["batch_stats"]["scale"] == 0.5


@pytest.mark.parametrize(
  ("module", "scale", "power"),
  [(models.DistanceSoftmax, 1e4, 1), (models.SquaredDistanceSoftmax, 1e8, 2)],
)
def test_proxies_that_are_near_each_other_are_told_apart(module, scale, power):
  proxies = jnp.array([[1.0, 0.0], [1.0, 3e-4]])
  row, label = jnp.array([[1.0, 1e-4]]), jnp.array([0])

  def loss(rows):
    variables = {"params": {"proxies": proxies}}
    return module(2, scale=scale).apply(variables, rows, label)[0]

  value, slope = jax.jit(jax.value_and_grad(loss))(row)
  gap = scale * (2e-4**power - 1e-4**power)
  np.testing.assert_allclose(value, np.log1p(np.exp(-gap)), rtol=1e-3)
  steep = power * scale * (1e-4 ** (power - 1) + 2e-4 ** (power - 1))
  np.testing.assert_allclose(slope[0, 1], steep / (1 + np.exp(gap)), rtol=1e-3)


@pytest.mark.parametrize(
  "module", [models.DistanceSoftmax, models.SquaredDistanceSoftmax]
)
def test_no_array_of_all_differences_to_proxies(module):
  """256 rows of 128 entries, the proxies of Stanford Online Products: 1.4 GiB."""
  rows, proxies = (
    jax.ShapeDtypeStruct((number, 128), jnp.float32) for number in (256, 11318)
  )
  labels = jax.ShapeDtypeStruct((256,), jnp.int32)

  def mean(proxies, rows, labels):
    variables = {"params": {"proxies": proxies}}
    return module(11318).apply(variables, rows, labels).mean()

  used = programs.temporary_bytes(jax.grad(mean, (0, 1)), proxies, rows, labels)
  assert used < 8 * 256 * 11318 * 4


def test_margin_adds_the_boundaries_of_the_class_and_of_the_example():
  settings = {"margin": 0.3, "boundary_weight": 0.1, "form": "triplets"}
  module = models.Margin(num_classes=3, num_examples=9, **settings)
  options = {"examples": jnp.array([7, 0, 3, 4, 2, 8]), "where": WHERE[:6]}
  variables = module.init(jax.random.key(0), *PAIRED, **options)
  zeros = {"class_boundaries": np.zeros(3), "example_boundaries": np.zeros(9)}
  start = {"boundary": np.float32(1.2), **zeros}
  jax.tree.map(np.testing.assert_array_equal, variables["params"], start)
  params = {
    "boundary": jnp.float32(0.9),
    "class_boundaries": jnp.linspace(-0.2, 0.2, 3),
    "example_boundaries": jnp.linspace(-0.3, 0.1, 9),
  }

  def of_module(params):
    return module.apply({"params": params}, *PAIRED, **options).sum()

  def of_function(params):
    chosen = params["example_boundaries"][options["examples"]]
    given = params | {"example_boundaries": chosen, "where": options["where"]}
    return losses.margin(*PAIRED, **given, **settings).sum()

  results = [jax.jit(jax.value_and_grad(f))(params) for f in (of_module, of_function)]
  jax.tree.map(np.testing.assert_array_equal, *results)
  assert (results[0][1]["class_boundaries"] != 0).any()


def test_margin_alone_owns_a_number():
  module = models.Margin()
  variables = module.init(jax.random.key(0), *PAIRED)
  assert list(variables["params"]) == ["boundary"]
  values = module.apply(variables, *PAIRED)
  np.testing.assert_array_equal(values, losses.margin(*PAIRED))


NO_CLASS = r"must be in \[0, 6\), got 6"
NO_BLOCK = "block_size must be at least 1, got 0"
OTHER_SHAPE = "adversarial_embeddings must have shape"
NO_INTEGERS = "TypeError: examples must be integers, got dtype float32"
SHOT = models.ZeroShotPrediction(CLASSES, **SHOTS)


@refusals.table(
  [
    (init(models.CosFace(CLASSES), ROWS, LABELS + 1), NO_CLASS),
    (init(models.SoftTriple(CLASSES), ROWS, LABELS + 1), NO_CLASS),
    # While it is traced this one knows no halves, and so no labels.
    (functools.partial(SHOT.init, jax.random.key(0), ATTRIBUTES, LABELS + 1), NO_CLASS),
    (init(models.SoftTriple(CLASSES, block_size=0), ROWS, LABELS), NO_BLOCK),
    (init(models.AdaCos(2), ROWS, LABELS % 2), "num_classes must be at least 3, got 2"),
    (init(models.ProxyCap(CLASSES), ROWS, ROWS[:7], LABELS), OTHER_SHAPE),
    (init(models.ProxyCap(CLASSES), ROWS, ROWS[:, :4], LABELS), OTHER_SHAPE),
    (init(models.Margin(num_examples=9), *PAIRED), "which of the 9 training examples"),
    (init(models.Margin(num_examples=9), *PAIRED, examples=ROWS[:6, 0]), NO_INTEGERS),
  ]
)
def test_errors(call, message, unchecked):
  refusals.check(call, message)
