"""Poolings with attention, and the head: they call the functions, statistics, masks."""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import models, pooling
from tests import refusals
from tests.models.oracles import init

RNG = np.random.default_rng(0)
FEATURES = jnp.asarray(RNG.normal(size=(3, 2, 3, 4)) + 0.5, jnp.float32)
WHERE = np.array([[[1, 1, 0], [1, 0, 1]], [[1, 1, 1], [0, 1, 0]], [[0] * 3] * 2], bool)
RANDOM = np.random.default_rng(0)
MAPS = jnp.asarray(RANDOM.normal(size=(3, 4, 5, 6)), jnp.float32)
VISIBLE = jnp.asarray(RANDOM.random((3, 4, 5)) < 0.6)


def shapes(tree):
  return jax.tree.map(jnp.shape, tree)


def normalizing(pool):
  """The jitted function with normalisation by what is kept, and new statistics."""

  def call(params, features, where):
    updated = {}

    def normalize(place, x, kept):
      axes = tuple(range(x.ndim - 1))
      mean = jnp.mean(x, axes, where=kept, keepdims=True)
      var = jnp.var(x, axes, where=kept, keepdims=True)
      updated[place] = {"mean": 0.1 * mean.ravel(), "var": 0.9 + 0.1 * var.ravel()}
      return (x - mean) / jnp.sqrt(var + 1e-5)

    arrays = {k: v for k, v in params.items() if not isinstance(v, dict)}
    return pool(features, **arrays, normalize=normalize, where=where), updated

  return jax.jit(call)


def assert_close(actual, expected):
  chex.assert_trees_all_equal_shapes(actual, expected)
  chex.assert_trees_all_close(actual, expected, rtol=1e-5, atol=1e-7)


def trained(module, variables, where):
  """Pooled features, NaN where they are masked, and new statistics."""
  spoilt = jnp.where(WHERE[..., None], FEATURES, jnp.nan)
  train = functools.partial(module.apply, train=True, mutable="batch_stats")
  pooled, updated = jax.jit(train)(variables, spoilt, where=where)
  return pooled, updated["batch_stats"]


def test_cbam_owns_its_kernels_and_normalises_what_is_kept():
  module = models.CBAM(reduction=2, kernel_size=3)
  variables = jax.jit(module.init)(jax.random.key(0), FEATURES)
  params = variables["params"]
  assert shapes(params) == {
    "reduce_kernel": (4, 2),
    "reduce_bias": (2,),
    "expand_kernel": (2, 4),
    "expand_bias": (4,),
    "spatial_kernel": (3, 3, 2),
    "positions": {"scale": (1,), "bias": (1,)},
  }
  size = np.abs(params["spatial_kernel"]).max()
  assert 0.5 * np.sqrt(6 / 27) < size <= np.sqrt(6 / 27)  # Glorot-uniform
  expected = normalizing(pooling.cbam)(params, FEATURES, WHERE)
  assert_close(trained(module, variables, WHERE), expected)


def test_solar_starts_as_gem_and_normalises_what_is_kept():
  module = models.SOLAR(power=2.0)
  variables = jax.jit(module.init)(jax.random.key(0), FEATURES)
  params, apply = variables["params"], jax.jit(module.apply)
  kernels = dict.fromkeys(("query_kernel", "key_kernel", "value_kernel"), (4, 2))
  norms = {name: {"scale": (2,), "bias": (2,)} for name in ("queries", "keys")}
  assert shapes(params) == {**kernels, **norms, "output_kernel": (2, 4), "power": ()}
  gem = np.mean(np.maximum(FEATURES, 1e-6) ** 2, axis=(1, 2)) ** 0.5
  np.testing.assert_allclose(apply(variables, FEATURES), gem, rtol=1e-5)
  params["output_kernel"] = jnp.ones((2, 4))
  expected = normalizing(pooling.solar)(params, FEATURES, WHERE)
  assert_close(trained(module, variables, WHERE), expected)
  # A batch of nothing: finite.
  pooled, updated = trained(module, variables, np.zeros_like(WHERE))
  assert not pooled.any()
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(updated))


DIVIDES = "reduction must divide 4 channels, got "


@refusals.table(
  [
    (init(models.CBAM(reduction=3), FEATURES), DIVIDES + "3"),
    (init(models.CBAM(reduction=1, kernel_size=2), FEATURES), "odd size, got 2"),
    (init(models.SOLAR(reduction=8), FEATURES), DIVIDES + "8"),
    (
      init(models.EmbeddingHead(2), MAPS, where=np.ones((3, 4), bool)),
      r"where must have shape \(3, 4, 5\), got \(3,",
    ),
    (
      init(models.EmbeddingHead(2, projection="none"), MAPS),
      r"pooled must have shape \(3, 2\) .* \(3, 6\)",
    ),
  ]
)
def test_errors(call, message, unchecked):
  refusals.check(call, message)


def test_defaults_are_those_of_the_papers():
  cbam, solar = models.CBAM(), models.SOLAR()
  assert (cbam.reduction, cbam.kernel_size, cbam.use_bias) == (16, 7, True)
  assert cbam.norm == "batch"
  assert (solar.reduction, solar.init_output) == (2, nn.initializers.zeros)
  assert models.DeLF().reduction == "sum"


def test_mass_may_be_traced():
  variables = jax.jit(models.GSP(4).init)(jax.random.key(0), MAPS)
  masses = np.array([0.2, 0.7], np.float32)
  pool = jax.jit(lambda m: models.GSP(4, mass=m).apply(variables, MAPS).pooled)
  results = jax.jit(jax.vmap(pool))(masses)
  for mass, pooled in zip(masses, results, strict=True):
    np.testing.assert_allclose(pooled, pool(mass), rtol=1e-5, atol=1e-6)


def test_sum_and_maximum_have_projections_of_their_own():
  module = models.GSPGMP(3, models.GSP(5, mass=0.5))
  variables = jax.jit(module.init)(jax.random.key(0), MAPS)
  params = variables["params"]
  assert jax.tree.map(jnp.shape, params) == {
    "gsp": {"prototypes": (5, 3)},
    "max_projection": {"kernel": (6, 3)},
    "projection": {"kernel": (6, 3)},
  }
  head = models.EmbeddingHead(3, module, "none", "none")
  spoilt = jnp.where(VISIBLE[..., None], MAPS, jnp.nan)

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def pooled(features):
    own = {"params": {"pooling": params}}
    result = head.apply(own, features, where=VISIBLE)
    return jnp.sum(result.pooled**2), result

  (_, result), gradient = pooled(spoilt)
  gradient, where = np.asarray(gradient), np.asarray(VISIBLE)
  projected = MAPS @ params["projection"]["kernel"]
  options = {"mass": 0.5, "inverse_temperature": 5.0, "where": VISIBLE}
  summed = pooling.gsp(projected, params["gsp"]["prototypes"], **options)
  features = np.where(where[..., None], MAPS, -np.inf)
  largest = features.max((1, 2))
  kernel = np.asarray(params["max_projection"]["kernel"])
  expected = np.asarray(summed.pooled) + largest @ kernel
  np.testing.assert_allclose(result.pooled, expected, atol=1e-5)
  np.testing.assert_allclose(result.weights, summed.weights, atol=1e-6)
  np.testing.assert_allclose(result.attributes, summed.attributes, atol=1e-6)
  assert np.isfinite(gradient).all()
  assert not gradient[~where].any()
  assert np.abs(gradient[where]).max() > 0.01


@pytest.mark.parametrize("normalization", ["l2", "unit_ball", "none"])
def test_head_projects_pools_and_normalises(normalization):
  head = models.EmbeddingHead(2, normalization=normalization)
  variables = jax.jit(head.init)(jax.random.key(0), MAPS)
  kernel = np.asarray(variables["params"]["Dense_0"]["kernel"], np.float64)
  shapes = jax.tree.map(jnp.shape, variables["params"])
  assert shapes == {"Dense_0": {"kernel": (6, 2)}}  # no bias
  sizes = np.array([5, 1, 0.2])[:, None, None, None]
  features = sizes * np.asarray(MAPS, np.float64)
  means = features.reshape(3, 20, 6).mean(axis=1) @ kernel
  norms = np.linalg.norm(means, axis=1, keepdims=True)
  assert norms.min() < 1 < norms.max()
  divisor = {"l2": norms, "unit_ball": np.maximum(norms, 1), "none": 1}[normalization]
  result = jax.jit(head.apply)(variables, features.astype(np.float32))
  np.testing.assert_allclose(result.embeddings, means / divisor, rtol=1e-5)
  assert result.weights is None
  assert result.attributes is None


def test_head_with_a_function_and_tokens():
  tokens = np.asarray(MAPS).reshape(3, 20, 6)
  head = models.EmbeddingHead(2, pooling.gmp, normalization="none")
  variables = jax.jit(head.init)(jax.random.key(0), tokens)

  @jax.jit
  def every(variables, tokens):
    return (
      tokens @ variables["params"]["Dense_0"]["kernel"],
      head.apply(variables, tokens),
      head.clone(projection="after").apply(variables, tokens),
      head.clone(dim=6, projection="none").apply({}, tokens),
    )

  projected, result, after, alone = every(variables, tokens)
  np.testing.assert_allclose(result.embeddings, projected.max(1), rtol=1e-6)
  kernel = np.asarray(variables["params"]["Dense_0"]["kernel"])
  np.testing.assert_allclose(after.embeddings, tokens.max(axis=1) @ kernel, rtol=1e-5)
  np.testing.assert_array_equal(alone.embeddings, tokens.max(axis=1))


@pytest.mark.parametrize(
  "pool",
  [
    models.GSP(4),
    models.GeM(),
    pooling.gap,
    models.CBAM(reduction=1, kernel_size=3),
    models.SOLAR(reduction=1, init_output=nn.initializers.glorot_uniform()),
    functools.partial(pooling.weldon, num_highest=2),
  ],
  ids=["GSP", "GeM", "gap", "CBAM", "SOLAR", "weldon"],
)
def test_masked_positions_may_hold_nan(pool):
  """Every parameter has a gradient, which masked positions do not reach."""
  head = models.EmbeddingHead(4, pool)
  variables = jax.jit(head.init)(jax.random.key(1), MAPS)
  trains = "batch_stats" in variables
  where = VISIBLE.at[2].set(False)

  def loss(params, features):
    state = variables | {"params": params}
    options = {"train": True, "mutable": "batch_stats"} if trains else {}
    result = head.apply(state, features, where=where, **options)
    return jnp.sum((result[0] if trains else result).embeddings[:, 0])

  gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
  expected = gradient(variables["params"], MAPS)
  spoilt = jnp.where(where[..., None], MAPS, jnp.nan)
  chex.assert_trees_all_equal(gradient(variables["params"], spoilt), expected)
  by_params, by_features = expected
  assert all(leaf.any() for leaf in jax.tree.leaves(by_params))
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(expected))
  assert not by_features[~where].any()


def test_training_is_told_to_poolings_that_ask():
  told = []

  def asks(features, *, where=None, train=False):
    told.append(train)
    return pooling.gap(features, where=where)

  for pool in (pooling.gap, pooling.gmp, models.GeM(), asks):
    head = models.EmbeddingHead(2, pool)
    start, key = head.init_with_output, jax.random.key(0)
    jax.eval_shape(functools.partial(start, train=True), key, MAPS)
    jax.eval_shape(start, key, MAPS)
  assert told == [True, False]
