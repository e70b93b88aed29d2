"""Generalized sum pooling: values, derivatives, masks, devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import special

from benchmarks import gsp_accuracy
from spherejax import losses, pooling
from spherejax.pooling import _costs, _gsp_solver, _gsp_weights
from tests.losses.cases._parts import distance, matrix_of, project
from tests.losses.slopes import with_slopes

pool = jax.jit(pooling.gsp, static_argnames=("solver", "steps"))
FIELDS = ("pooled", "weights", "attributes", "residual")


def data(seed, batch=2, n=6, m=4, dtype=np.float64):
  """Features and prototypes of three channels, of norms on both sides of 1."""
  random = np.random.default_rng(seed)
  arrays = random.normal(size=(batch, n, 3)), random.normal(size=(m, 3))
  return [x.astype(dtype) for x in arrays]


def in_ball(features, prototypes):
  """[prototypes, features] of an image: the costs."""
  return matrix_of(distance, prototypes, features, "unit_ball")


def solved(costs, mass, beta):
  """p by bisection, and Q, of an image."""
  p = gsp_accuracy.reference(costs[None], np.array([mass]), np.array([beta]))[0]
  return p, special.softmax(-beta * costs, axis=0)


def reference(features, prototypes, mass, beta):
  """pooled, p, z, residual of an image."""
  p, share = solved(in_ball(features, prototypes), mass, beta)
  return p @ features, p, share @ p, 1 / len(features) - mass * p


SETTINGS = [(0.3, 5.0), (0.3, 0.5), (0.9, 20.0), (1.0, 5.0)]


@pytest.mark.parametrize(("mass", "beta"), SETTINGS)
def test_equals_the_loop(mass, beta, x64):
  features, prototypes = data(0)
  result = pool(features, prototypes, mass=mass, inverse_temperature=beta)
  for i, image in enumerate(features):
    expected = reference(image, prototypes, mass, beta)
    for name, value in zip(FIELDS, expected, strict=True):
      np.testing.assert_allclose(getattr(result, name)[i], value, atol=1e-12)
  assert result.converged.all()
  assert (result.mass_error <= 1e-12).all()


def test_corrected_proposition_of_the_paper(x64):
  """DML Proposition 5.2.2 with its matrix products put right, in the plan and rho."""
  features, prototypes = data(2, batch=1)
  mass, beta, n = 0.4, 6.0, 6
  random = np.random.default_rng(6)
  to_weights, to_attributes = random.normal(size=6), random.normal(size=4)

  def of_costs(costs):
    p = pooling.gsp_weights(costs, mass=mass, inverse_temperature=beta)
    return p @ to_weights + (jax.nn.softmax(-beta * costs, 0) @ p) @ to_attributes

  costs = in_ball(features[0], prototypes)
  p, share = solved(costs, mass, beta)
  rho, plan = 1 / n - mass * p, mass * p * share
  by_rho, by_plan = -to_weights / mass, to_attributes[:, None] / mass * np.ones((4, n))
  q = rho * by_rho + (plan * by_plan).sum(0)
  eta = rho @ by_rho - n * (q @ rho)
  k = 1 - mass - n * (rho @ rho)
  expected = -beta * (plan * by_plan - n * plan * (q - eta / k * rho))
  np.testing.assert_allclose(jax.jit(jax.grad(of_costs))(costs), expected, atol=1e-12)


def test_derivatives_of_both_modes_and_orders_with_a_mask(x64):
  """Of the whole mass, which can only fall, another test has the derivative."""
  where = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 1]], bool)

  @jax.jit
  def fields(features, prototypes, beta, mass=1.0):
    return pooling.gsp(
      features, prototypes, mass=mass, inverse_temperature=beta, where=where
    )[:4]

  for mass, beta in SETTINGS:
    point = (*data(3, n=5), beta, *[mass] * (mass < 1))
    check_grads(fields, point, 1 + (mass < 1), rtol=1e-5, atol=1e-5, eps=1e-5)


def test_derivative_at_all_mass_is_one_sided(x64):
  features, prototypes = data(4, batch=1)

  def weight(mass):
    return pool(features, prototypes, mass=mass).weights[0, 2]

  below = (1 / 6 - weight(1 - 1e-6)) / 1e-6
  np.testing.assert_allclose(jax.grad(weight)(1.0), below, rtol=1e-5)


def test_all_mass_is_average_pooling():
  features, prototypes = data(5, dtype=np.float32)
  pooled = with_slopes(
    lambda x, o, beta: pooling.gsp(x, o, mass=1.0, inverse_temperature=beta).pooled,
    (0, 1),
  )
  for beta in (0.0, 0.5, 5.0, 1e4):
    value, (by_feature, by_prototype) = pooled(features, prototypes, beta)
    np.testing.assert_allclose(value, features.mean(1), atol=1e-6)
    np.testing.assert_allclose(by_feature, np.full((2, 6, 3), 1 / 6), rtol=1e-6)
    np.testing.assert_array_equal(by_prototype, np.zeros((4, 3)))


def test_all_mass_sharply_is_the_histogram_of_nearest_prototypes():
  features, prototypes = (project(x, "unit_ball") for x in data(6, n=40))
  features, prototypes = np.float32(features), np.float32(prototypes)
  result = pool(features, prototypes, mass=1.0, inverse_temperature=1e5)
  for image, attributes in zip(features, result.attributes, strict=True):
    nearest = matrix_of(distance, image, prototypes, "none").argmin(1)
    histogram = np.bincount(nearest, minlength=4) / 40
    np.testing.assert_allclose(attributes, histogram, atol=1e-5)


@pytest.mark.parametrize(("mass", "beta"), SETTINGS)
def test_pooled_is_near_the_combination_of_prototypes(mass, beta, x64):
  """|pooled - sum_i z_i o_i| <= transport cost / mass when all norms are at most 1."""
  features, prototypes = data(7, n=8)
  features /= np.linalg.norm(features, axis=-1).max()
  prototypes /= np.linalg.norm(prototypes, axis=-1).max()
  result = pool(features, prototypes, mass=mass, inverse_temperature=beta)
  errors = np.linalg.norm(result.pooled - result.attributes @ prototypes, axis=1)
  for image, weights, error in zip(features, result.weights, errors, strict=True):
    costs = matrix_of(distance, prototypes, image, "none")
    plan = special.softmax(-beta * costs, axis=0) * np.asarray(weights)
    assert error <= (costs * plan).sum() + 1e-12


def test_map_and_tokens_agree_and_layouts_stay():
  features, prototypes = data(8, dtype=np.float32)
  where = np.random.default_rng(0).random((2, 6)) < 0.7
  tokens = pool(features, prototypes, where=where)
  image = pool(features.reshape(2, 2, 3, 3), prototypes, where=where.reshape(2, 2, 3))
  assert image.weights.shape == image.residual.shape == (2, 2, 3)
  for name, value in tokens._asdict().items():  # two programs, rounded differently
    same = np.asarray(getattr(image, name), float).reshape(value.shape)
    np.testing.assert_allclose(same, np.asarray(value, float), rtol=1e-6, atol=1e-7)


def test_invariances(x64):
  features, prototypes = data(9)
  random = np.random.default_rng(0)
  pooled, weights, attributes, *_ = pool(features, prototypes)
  positions, order = random.permutation(6), random.permutation(4)
  moved = pool(features[:, positions], prototypes[order])
  np.testing.assert_allclose(moved.pooled, pooled, atol=1e-13)
  np.testing.assert_allclose(moved.weights, weights[:, positions], atol=1e-13)
  np.testing.assert_allclose(moved.attributes, attributes[:, order], atol=1e-13)
  rotation, _ = np.linalg.qr(random.normal(size=(3, 3)))
  turned = pool(features @ rotation, prototypes @ rotation)
  np.testing.assert_allclose(turned.pooled, pooled @ rotation, atol=1e-13)
  np.testing.assert_allclose(turned.weights, weights, atol=1e-13)
  # Copies of a prototype share its attribute.
  twice = pool(features, np.concatenate([prototypes, prototypes]))
  np.testing.assert_allclose(twice.weights, weights, atol=1e-13)
  np.testing.assert_allclose(twice.attributes, np.tile(attributes, 2) / 2, atol=1e-13)


def value_and_gradients(features, prototypes, where=None, **setting):
  def loss(features, prototypes):
    result = pooling.gsp(features, prototypes, where=where, **setting)
    return sum(jnp.sum(jnp.cos(x)) for x in result[:4]), result

  return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(features, prototypes)


def test_mask_equals_deletion_and_poison_does_not_spread():
  features, prototypes = data(11, batch=3, dtype=np.float32)
  row = np.array([1, 0, 1, 1, 0, 1], bool)
  where = np.outer([True, True, False], row)
  poisoned = np.where(where[..., None], features, np.nan)
  poisoned[0, 1] = np.inf
  (_, result), (by_feature, by_prototype) = value_and_gradients(
    poisoned, prototypes, where
  )
  (_, short), slopes = value_and_gradients(features[:2, row], prototypes)
  parts = result.pooled[:2], result.weights[:2, row], result.attributes[:2]
  for value, expected in zip(parts, short[:3], strict=True):
    np.testing.assert_allclose(value, expected, atol=5e-7)
  np.testing.assert_allclose(by_feature[:2, row], slopes[0], atol=2e-6)
  np.testing.assert_allclose(by_prototype, slopes[1], atol=2e-6)
  assert (by_feature[~where] == 0).all()
  for name in (*FIELDS, "mass_error"):
    assert (getattr(result, name)[2] == 0).all()
  assert result.converged.all()


def test_all_fields_of_the_papers_iteration(x64):
  features, prototypes = data(0)
  numbers = {"mass": 0.3, "inverse_temperature": 5.0}
  exact = pool(features, prototypes, **numbers)
  late, early = (
    pool(features, prototypes, **numbers, solver="fixed_point", steps=steps)
    for steps in (1500, 4)
  )
  for name, value, expected in zip(FIELDS, late, exact, strict=False):
    np.testing.assert_allclose(value, expected, atol=1e-9, err_msg=name)
  np.testing.assert_allclose(early.attributes.sum(1), 1, rtol=1e-12)
  assert (np.abs(early.weights.sum(1) - 1) > 1e-4).all()
  np.testing.assert_allclose(early.residual, 1 / 6 - 0.3 * early.weights, rtol=1e-12)
  assert not early.converged.any()


def test_the_derivative_of_the_sharpness_where_it_is_0(x64):
  features, prototypes = data(2)

  def total(beta):
    result = pool(features, prototypes, mass=0.3, inverse_temperature=beta)
    return (result.pooled * np.arange(6).reshape(2, 3)).sum()

  h = 1e-4
  difference = (-3 * total(0.0) + 4 * total(h) - total(2 * h)) / (2 * h)
  np.testing.assert_allclose(jax.grad(total)(0.0), difference, rtol=1e-6)


@pytest.mark.parametrize("solver", ["newton", "fixed_point"])
def test_singular_inputs_have_finite_gradients(solver):
  """Zero features and prototypes, features on prototypes, on the sphere, masked out."""
  features = np.zeros((3, 4, 3), np.float32)
  features[1] = [[1, 0, 0], [0, 1, 0], [0.5, 0, 0], [1e4, -1e4, 1e4]]
  features[2] = 0.25
  where = np.array([[True] * 4, [True] * 4, [False] * 4])
  prototypes = np.array([[1, 0, 0], [0, 0, 0], [0.5, 0, 0], [1, 0, 0]], np.float32)

  @jax.jit
  def run(mass, beta):
    return value_and_gradients(
      features, prototypes, where, mass=mass, inverse_temperature=beta, solver=solver
    )

  for beta in (1e-3, 5.0, 1e4):
    for mass in (0.25, 0.3, 1.0):
      (_, result), gradients = run(mass, beta)
      for leaf in jax.tree.leaves((result, gradients)):
        assert np.isfinite(leaf).all()
      if solver == "newton":
        np.testing.assert_allclose(result.weights[:2].sum(1), 1, rtol=1e-6)
      assert (gradients[0][2] == 0).all()


def test_gradient_through_a_cost_of_zero_is_zero(x64):
  """One feature on the one prototype it sees: only the direct path remains."""
  features = np.array([[[0.5, 0.25], [0.0, 1.0], [-1.0, 0.0]]])
  prototypes = np.array([[0.5, 0.25]])
  gradient = jax.grad(lambda x: pool(x, prototypes, mass=0.4).weights[0, 1])(features)
  assert (gradient[0, 0] == 0).all()
  assert (gradient[0, 1] != 0).any()


@pytest.mark.parametrize("length", [0.5, 3.0])
def test_features_that_are_prototypes_cost_nothing_and_draw_nothing(length):
  """Also where float32 rounds their products, in any order of summation."""
  rows = project(np.random.default_rng(0).normal(size=(30, 128)))
  prototypes = np.float32(length * rows)

  def to_itself(features):
    pairs = _costs.to_prototypes(features, prototypes)[0]
    return jnp.diagonal(pairs).sum(), pairs

  gradient, costs = jax.jit(jax.grad(to_itself, has_aux=True))(prototypes[None])
  np.testing.assert_array_equal(jnp.diagonal(costs), 0)
  np.testing.assert_array_equal(gradient, 0)
  assert np.all(costs[~np.eye(30, dtype=bool)] > 0.1)


def test_sharp_cut_has_zero_gradient_in_the_costs():
  features, prototypes = data(12, dtype=np.float32)

  def weights(prototypes):
    result = pooling.gsp(features, prototypes, mass=0.5, inverse_temperature=1e4)
    return result.weights[0, 0], result.weights

  gradient, every = jax.jit(jax.grad(weights, has_aux=True))(prototypes)
  assert (np.minimum(every, np.abs(every - 1 / 3)) < 1e-6).all()
  assert (gradient == 0).all()


def test_mass_and_temperature_of_each_image_equal_single_calls():
  features, prototypes = data(13, batch=3, dtype=np.float32)
  mass, beta = jnp.array([0.2, 0.7, 1.0]), jnp.array([0.5, 5.0, 50.0])
  together = pool(features, prototypes, mass=mass, inverse_temperature=beta)

  @jax.jit
  @jax.vmap
  def each(image, mass, beta):
    return pooling.gsp(image[None], prototypes, mass=mass, inverse_temperature=beta)

  alone = each(features, mass, beta)
  for name in (*FIELDS, "steps"):
    single = getattr(alone, name)[:, 0]
    np.testing.assert_allclose(getattr(together, name), single, atol=1e-6)


def test_memory_of_the_backward_pass_does_not_depend_on_the_steps(monkeypatch):
  """The paper's iteration stores every step; the solver stores none."""
  features, prototypes = data(14, batch=8, n=32, dtype=np.float32)

  def compiled(**setting):
    loss = lambda f, o: pooling.gsp(f, o, **setting).pooled.sum()  # noqa: E731
    lowered = jax.jit(jax.grad(loss, (0, 1))).lower(features, prototypes)
    return lowered.as_text(), lowered.compile().memory_analysis().temp_size_in_bytes

  one_step = 4 * 8 * 32  # bytes of one number a feature
  (_, few), (_, many) = (compiled(solver="fixed_point", steps=k) for k in (10, 110))
  assert many - few >= 100 * one_step
  # Traced anew for each limit.
  transport = _gsp_weights.transport.__wrapped__
  monkeypatch.setattr(_gsp_weights, "transport", transport)
  programs = []
  for limit in (2, 1000):
    monkeypatch.setattr(_gsp_solver, "_MAX_STEPS", limit)
    programs.append(compiled())
  assert programs[0][0] != programs[1][0]
  assert programs[0][1] == programs[1][1] < few + 10 * one_step


def test_half_precision_is_the_rounded_float32_result():
  features, prototypes = map(jnp.bfloat16, data(15))
  result = pool(features, prototypes)
  wide = pool(features.astype(jnp.float32), prototypes.astype(jnp.float32))
  for name in FIELDS:
    value = getattr(result, name)
    assert value.dtype == jnp.bfloat16
    np.testing.assert_array_equal(value, getattr(wide, name).astype(jnp.bfloat16))


def mean_loss(prototypes, features, labels, axis_name=None):
  pooled = pooling.gsp(features, prototypes, mass=0.4, inverse_temperature=8.0).pooled
  options = {"negative_margin": 0.5, "axis_name": axis_name}
  return losses.contrastive(pooled, labels, **options).mean()


WAYS = ("pmap", "checked shard_map", "shard_map", "vmap")


@pytest.mark.parametrize(
  "mapped", [pytest.param(x, marks=[pytest.mark.slow] * (x != "pmap")) for x in WAYS]
)
def test_gradient_on_four_devices_equals_one(mapped):
  rng = np.random.default_rng(0)
  features = jnp.asarray(rng.normal(size=(8, 6, 4)), jnp.float32)
  prototypes = jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)
  labels = jnp.repeat(jnp.arange(4), 2)
  expected = jax.jit(jax.grad(mean_loss))(prototypes, features, labels)

  def local(prototypes, features, labels):
    gradient = jax.grad(mean_loss)(prototypes, features, labels, "batch")
    if mapped == "checked shard_map":  # replicated inputs: summed already
      return gradient / 4
    return jax.lax.pmean(gradient, "batch")

  if mapped.endswith("shard_map"):
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((4,), ("batch",), axis_types=auto)
    rows, shared, check = jax.P("batch"), jax.P(), mapped == "checked shard_map"
    spread = functools.partial(jax.shard_map, mesh=mesh, check_vma=check)
    run = spread(local, in_specs=(shared, rows, rows), out_specs=shared)
    gradient = jax.jit(run)(prototypes, features, labels)
  else:
    run = jax.pmap if mapped == "pmap" else jax.vmap
    run = run(local, axis_name="batch", in_axes=(None, 0, 0))
    run = run if mapped == "pmap" else jax.jit(run)
    shards = features.reshape(4, 2, 6, 4), labels.reshape(4, 2)
    gradient = run(prototypes, *shards)[0]
  np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
