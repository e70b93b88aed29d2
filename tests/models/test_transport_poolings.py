"""Modules of poolings: they call the functions; their life cycle."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, losses, models, pooling, prototypes
from tests.pooling.cases._parts import call

RANDOM = np.random.default_rng(0)
FEATURES = jnp.asarray(RANDOM.normal(size=(4, 2, 3, 5)), jnp.float32)
WHERE = jnp.asarray(RANDOM.random((4, 2, 3)) < 0.7).at[3].set(False)
POINTS = RANDOM.normal(size=(9, 5)).astype(np.float32)


def gsop(features, params, where):
  branches = (pooling.GSoPBranch(**params[name]) for name in ("channel", "spatial"))
  return pooling.gsop(features, *branches, centred=False, size=2, where=where)


def branch(rows, gates):
  """Shapes of the parameters of a branch of `gsop`."""
  shapes = (5, 2), (2,), (rows, rows, 4), (rows, 4), (4 * rows, gates), (gates,)
  return dict(zip(pooling.GSoPBranch._fields, shapes, strict=True))


def case(module, name, shapes, *sizes, **options):
  return module(*sizes, **options), call(name, **options), shapes


GSP = {"mass": 0.4, "inverse_temperature": 8.0}
FIXED = GSP | {"solver": "fixed_point", "steps": 3}
OF_GSP, OF_TSMK = {"prototypes": (7, 5)}, {"kernel": (5, 2), "bias": (2,)}
OF_DELF = {
  "hidden_kernel": (5, 5), "hidden_bias": (5,), "score_kernel": (5,), "score_bias": (),
}  # fmt: skip
# Each with its function and the shapes of its parameters.
MODULES = {
  "GeM": (models.GeM(power=2.0), call("gem"), {"power": ()}),
  "GeM, channels": (models.GeM(2.0, per_channel=True), call("gem"), {"power": (5,)}),
  "OTP": case(models.OTP, "otp", {"prototypes": (3, 5)}, 3, cost="gaussian", steps=2),
  "NetVLAD": (
    models.NetVLAD(3, sharpness=2.0),
    call("netvlad"),
    {"centres": (3, 5), "weights": (3, 5), "biases": (3,)},
  ),
  "TSMK": case(models.TSMK, "tsmk", OF_TSMK, 2, reduction="sum"),
  "GSoP": (
    models.GSoP(2, norm="none", centred=False, size=2),
    gsop,
    {"channel": branch(2, 5), "spatial": branch(4, 4)},
  ),
  "CBAM as released for DML": (
    models.CBAM(reduction=1, kernel_size=3, use_bias=False, norm="none"),
    call("cbam"),
    {"reduce_kernel": (5, 5), "expand_kernel": (5, 5), "spatial_kernel": (3, 3, 2)},
  ),
  "DeLF": case(models.DeLF, "delf", OF_DELF, 5),
  "DeLF, mean": case(models.DeLF, "delf", OF_DELF, 5, reduction="mean"),
  "GSP": case(models.GSP, "gsp", OF_GSP, 7, **GSP),
  "GSP, fixed point": case(models.GSP, "gsp", OF_GSP, 7, **FIXED),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_calls_its_function(name):
  module, function, shapes = MODULES[name]

  @jax.jit
  def both(key):
    variables = module.init(key, FEATURES)
    pooled = module.apply(variables, FEATURES, where=WHERE)
    return variables, pooled, function(FEATURES, variables["params"], WHERE)

  variables, result, expected = both(jax.random.key(0))
  assert jax.tree.map(jnp.shape, variables) == {"params": shapes}
  # The solver of GSP is compiled with different things around it.
  tolerance = {"rtol": 0, "atol": 1e-6} if "GSP" in name else {"rtol": 1e-6}
  chex.assert_trees_all_close(result, expected, **tolerance)
  pooled = getattr(result, "pooled", result)
  assert not pooled[3].any()
  assert np.abs(pooled[:3]).max() > 1e-3
  params = variables["params"]
  if "GeM" in name:
    np.testing.assert_array_equal(params["power"], np.full(shapes["power"], 2))
  if name == "NetVLAD":
    np.testing.assert_allclose(params["weights"], 4 * params["centres"], rtol=1e-6)
    np.testing.assert_allclose(
      params["biases"], -2 * np.sum(params["centres"] ** 2, axis=1), rtol=1e-5
    )
  if "GSP" in name:  # Glorot-uniform: bounds sqrt(6 / (7 + 5))
    largest = np.abs(params["prototypes"]).max()
    assert 0.8 * np.sqrt(6 / 12) < largest <= np.sqrt(6 / 12)
  if "DeLF" in name:  # Glorot-uniform: bounds sqrt(6 / (5 + 1))
    assert np.abs(params["score_kernel"]).max() <= 1
    assert not params["hidden_bias"].any()
    assert params["score_bias"] == 0


def test_batch_norm_of_the_second_order_pooling_counts_what_is_kept():
  module = models.GSoP(2)

  @jax.jit
  def train(key, where):
    variables = module.init(key, FEATURES)

    def loss(params, features):
      given = {**variables, "params": params}
      options = {"where": where, "train": True, "mutable": "batch_stats"}
      pooled, updated = module.apply(given, features, **options)
      return jnp.sum(pooled**2), updated["batch_stats"]

    spoilt = jnp.where(where[..., None], FEATURES, jnp.nan)
    gradient = jax.grad(loss, (0, 1), has_aux=True)
    (by_params, by_features), stats = gradient(variables["params"], spoilt)
    return variables["params"], stats, by_params, by_features

  params, stats, by_params, by_features = train(jax.random.key(0), WHERE)
  assert set(stats) == {"channel_map", "channel_rows", "spatial_map", "spatial_rows"}
  leaves = jax.tree.leaves((stats, by_params, by_features))
  assert all(np.isfinite(leaf).all() for leaf in leaves)
  assert not by_features[~WHERE].any()
  kernel = params["channel"]["reduce_kernel"]
  kept = np.maximum(FEATURES[WHERE], 0) @ kernel
  np.testing.assert_allclose(
    stats["channel_map"]["mean"], 0.1 * kept.mean(axis=0), rtol=1e-4
  )
  _, stats, *rest = train(jax.random.key(0), jnp.zeros_like(WHERE))
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((stats, rest)))


def test_prototypes_are_replaced_by_points_that_cover_the_memory():
  """Average first, then choose among what a memory holds, then pool by prototypes."""
  head = models.EmbeddingHead(5, models.GSP(3, mass=1.0))
  few = np.arange(9) == 4

  @jax.jit
  def cycle(key):
    params = head.init(key, FEATURES)["params"]
    memory = losses.memory_init(12, 5)
    memory, _ = losses.memory_update(memory, POINTS, jnp.zeros(9, jnp.int32))
    stored = losses.memory_references(memory)
    place = {"path": "pooling/prototypes", "where": stored.where}
    new = models.replace_prototypes(params, stored.embeddings, **place)
    inside = distances.unit_ball(POINTS)
    sevens = {"a": jnp.full((3, 5), 7.0)}
    raw = models.replace_prototypes(sevens, POINTS, path="a", project=False)
    missing = models.replace_prototypes(sevens, POINTS, path="a", where=few)
    sharp: Any = models.EmbeddingHead(5, models.GSP(3)).apply({"params": new}, FEATURES)
    expected = (
      inside[prototypes.greedy_k_centre(inside, 3).indices],
      jnp.asarray(POINTS)[prototypes.greedy_k_centre(POINTS, 3).indices],
      sevens["a"].at[0].set(inside[4]),
    )
    actual = (new["pooling"]["prototypes"], raw["a"], missing["a"])
    return params["Dense_0"], new["Dense_0"], sharp.weights, actual, expected

  before, after, weights, actual, expected = cycle(jax.random.key(0))
  np.testing.assert_array_equal(before["kernel"], after["kernel"])
  for a, e in zip(actual, expected, strict=True):
    np.testing.assert_allclose(a, e, rtol=1e-6)
  assert np.std(weights) > 1e-3


@pytest.mark.parametrize(
  ("points", "options", "message"),
  [
    (POINTS, {"path": "GSP_0"}, r"one of \['GSP_0/prototypes'\], got 'GSP_0'"),
    (POINTS[:3], {}, "4 prototypes need as many points, got 3"),
    (POINTS, {"where": np.arange(9) < 2}, "4 prototypes need as many points, got 2"),
    (POINTS[:, :4], {}, r"points must have shape \(9, 5\).*\(9, 4\)"),
  ],
)
def test_errors(points, options, message, unchecked):
  params = {"GSP_0": {"prototypes": jnp.ones((4, 5))}}
  with pytest.raises(ValueError, match=message):
    models.replace_prototypes(params, points, **{"path": "GSP_0/prototypes"} | options)


def test_defaults_are_those_of_the_papers_but_for_two():
  assert models.GSoP().centred
  otp, tsmk = models.OTP(), models.TSMK()
  assert (otp.cost, otp.steps, otp.inverse_temperature) == ("distance", 10, 2)
  assert (tsmk.reduction, tsmk.stop_attention_gradient) == ("mean", True)
