"""Losses that own parameters: they call the functions, on one device and several."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, losses, models

RNG = np.random.default_rng(0)
EMBEDDINGS = jnp.asarray(RNG.normal(size=(8, 5)), jnp.float32)
ATTRIBUTES = jax.nn.softmax(2 * EMBEDDINGS)
LABELS = jnp.array([0, 0, 3, 3, 1, 1, 5, 5])
WHERE = jnp.array([1, 1, 1, 0, 1, 1, 0, 1], bool)
CLASSES = 6


def proxy_anchor(rows, labels, where, table):
  return losses.proxy_anchor(
    rows, labels, table, scale=8.0, margin=0.2, normalize="unit_ball", where=where
  )


def proxy_nca(rows, labels, where, table):
  return losses.proxy_nca_plus_plus(
    rows,
    labels,
    table,
    temperature=0.3,
    logit="cosine",
    normalize="unit_ball",
    where=where,
  )


def normface(rows, labels, where, table):
  cosines = distances.pairwise_cosine(rows, table)
  return losses.normface(cosines, labels, scale=9.0, where=where)


def zero_shot(rows, labels, where, table):
  """Classes 0 and 3 come first and are the one half, 1 and 5 the other."""
  first = np.isin(labels, (0, 3))
  kept = np.ones(8, bool) if where is None else np.asarray(where)
  both = losses.zero_shot_prediction(
    rows[first],
    labels[first],
    rows[~first],
    labels[~first],
    table,
    ridge=0.2,
    scale=3.0,
    where_a=jnp.asarray(kept[first]),
    where_b=jnp.asarray(kept[~first]),
  )
  return (
    jnp.zeros(8)
    .at[np.flatnonzero(first)]
    .set(both[:4])
    .at[np.flatnonzero(~first)]
    .set(both[4:])
  )


CASES = {
  "proxy_anchor": (
    models.ProxyAnchor(CLASSES, scale=8.0, margin=0.2, normalize="unit_ball"),
    EMBEDDINGS,
    {"proxies": (CLASSES, 5)},
    proxy_anchor,
  ),
  "proxy_nca": (
    models.ProxyNCAPlusPlus(
      CLASSES, temperature=0.3, logit="cosine", normalize="unit_ball"
    ),
    EMBEDDINGS,
    {"proxies": (CLASSES, 5)},
    proxy_nca,
  ),
  "normface": (
    models.NormFace(CLASSES, scale=9.0),
    EMBEDDINGS,
    {"weights": (CLASSES, 5)},
    normface,
  ),
  "zero_shot": (
    models.ZeroShotPrediction(CLASSES, dim=7, ridge=0.2, scale=3.0),
    ATTRIBUTES,
    {"label_embeddings": (CLASSES, 7)},
    zero_shot,
  ),
}
CASE = pytest.mark.parametrize("name", CASES)


@CASE
@pytest.mark.parametrize("where", [None, WHERE])
def test_module_is_the_function_of_its_parameter(name, where):
  module, rows, shapes, function = CASES[name]
  variables = jax.jit(module.init)(jax.random.key(0), rows, LABELS)
  assert jax.tree.map(jnp.shape, variables["params"]) == shapes
  (table,) = variables["params"].values()
  actual = jax.jit(module.apply)(variables, rows, LABELS, where=where)
  expected = function(rows, LABELS, where, table)
  np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6)
  assert np.all(np.asarray(actual)[~WHERE] == 0) == (where is not None)


@CASE
def test_rows_over_devices_equal_the_whole_batch(name):
  module, rows, _, _ = CASES[name]
  variables = jax.jit(module.init)(jax.random.key(0), rows, LABELS)
  if hasattr(module, "axis_name"):
    module = module.clone(axis_name="batch")

  def mean(variables, rows, labels, where):
    values = module.apply(variables, rows, labels, where=where)
    return jnp.sum(values), values

  def mapped(rows, labels, where):
    (_, values), gradient = jax.value_and_grad(mean, has_aux=True)(
      variables, rows, labels, where
    )
    return values, jax.lax.psum(gradient, "batch")

  values, gradient = jax.jit(jax.vmap(mapped, axis_name="batch"))(
    rows.reshape(4, 2, 5), LABELS.reshape(4, 2), WHERE.reshape(4, 2)
  )
  module = CASES[name][0]
  (_, expected), slope = jax.jit(jax.value_and_grad(mean, has_aux=True))(
    variables, rows, LABELS, WHERE
  )
  np.testing.assert_allclose(values.reshape(8), expected, rtol=2e-5, atol=1e-6)
  (table,), (wanted,) = gradient["params"].values(), slope["params"].values()
  assert np.abs(wanted).max() > 1e-3
  np.testing.assert_allclose(table[0], wanted, rtol=1e-4, atol=1e-5)


def test_parameters_at_the_start():
  rows, labels, key = jnp.zeros((2, 400)), jnp.array([0, 1]), jax.random.key(0)

  def start(module):
    (table,) = jax.jit(module.init)(key, rows, labels)["params"].values()
    return table.std()

  np.testing.assert_allclose(start(models.ProxyAnchor(50)), 0.2, rtol=0.02)
  np.testing.assert_allclose(start(models.ProxyNCAPlusPlus(50)), 0.125, rtol=0.02)
  # Glorot-uniform: variance 2 / (50 + 400).
  np.testing.assert_allclose(start(models.NormFace(50)), 1 / 15, rtol=0.02)
  zero_shot = models.ZeroShotPrediction(50, dim=400)
  np.testing.assert_allclose(start(zero_shot), 0.2, rtol=0.02)


def test_mean_of_zero_shot_prediction_is_half_the_papers_sum_of_means():
  module, rows, _, _ = CASES["zero_shot"]
  variables = jax.jit(module.init)(jax.random.key(0), rows, LABELS)
  values = np.asarray(module.apply(variables, rows, LABELS))
  halves = values[[0, 1, 2, 3]].mean() + values[[4, 5, 6, 7]].mean()
  np.testing.assert_allclose(values.mean(), halves / 2, rtol=1e-6)


@CASE
def test_bad_arguments(name, unchecked):
  module, rows, _, _ = CASES[name]
  key = jax.random.key(0)
  what = "attributes" if name == "zero_shot" else "embeddings"
  with pytest.raises(TypeError, match=f"{what} must be floating, got dtype int32"):
    module.init(key, jnp.ones((8, 5), int), LABELS)
  with pytest.raises(ValueError, match=f"{what} must have 2 axes, got shape"):
    module.init(key, rows[0], LABELS)
  with pytest.raises(ValueError, match=r"got \(3,\)"):
    module.init(key, rows, LABELS[:3])
  with pytest.raises(ValueError, match=r"must be in \[0, 6\), got 6"):
    module.init(key, rows, LABELS + 1)
