"""Self-supervised losses: bounds, identities, optima, sharp temperatures, memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import losses
from tests.losses.cases._parts import project
from tests.losses.slopes import with_slopes

BETA = 2.5
STACKED = np.random.default_rng(0).normal(size=(2, 6, 3))
FIRST, SECOND = STACKED
VIEWS = jnp.float32(FIRST), jnp.float32(SECOND)


@jax.jit
def everything(first, second):
  """All contrastive losses of two views, at one temperature."""
  t = 1 / BETA
  return {
    "info_nce": losses.info_nce(first, second, temperature=t),
    "symmetric": losses.info_nce(first, second, temperature=t, symmetric=True),
    "nt_xent": losses.nt_xent(first, second, temperature=t),
    "bound": losses.info_nce_bound(first, second, temperature=t),
    "repulsion": losses.info_nce_repulsion(first, second),
    "invariance": losses.info_nce_invariance(first, second),
    "uniformity": losses.uniformity(first),
  }


def test_parts_of_the_bound(x64):
  values, unit = everything(FIRST, SECOND), project(STACKED)
  bound, negatives = values["bound"], ~np.tile(np.eye(6, dtype=bool), 2)
  nearest = np.where(negatives, unit[0] @ np.concatenate(unit).T, -np.inf).argmax(1)
  np.testing.assert_array_equal(bound.nearest, nearest)
  np.testing.assert_allclose(bound.constant, np.log(10), rtol=1e-14)
  np.testing.assert_array_equal(bound.repulsion, values["repulsion"])
  np.testing.assert_array_equal(bound.invariance, values["invariance"])


def test_of_equal_negatives_the_first_is_the_nearest(x64):
  """First views come before second ones."""
  bound = everything(np.ones((6, 3)), np.ones((6, 3)))["bound"]
  np.testing.assert_array_equal(bound.nearest, [1, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("number", [2, 5])
def test_descent_ends_at_the_simplex(number, x64):
  """The least value for as many points as one more than there are dimensions."""
  dim = number - 1 if number > 2 else 2

  def mean(views):
    return losses.info_nce(*views, temperature=1 / BETA).mean()

  views = jnp.asarray(np.random.default_rng(number).normal(size=(2, number, dim)))
  optimizer = optax.adam(optax.cosine_decay_schedule(0.1, 2000))

  def step(carry, _):
    views, state = carry
    update, state = optimizer.update(jax.grad(mean)(views), state)
    return (optax.apply_updates(views, update), state), None

  start = views, optimizer.init(views)
  views = jax.jit(lambda c: jax.lax.scan(step, c, None, length=2000)[0][0])(start)
  optimum = -BETA - BETA / (number - 1) + np.log(2 * (number - 1))
  assert float(mean(views)) == pytest.approx(optimum, abs=1e-6)
  rows = np.asarray(views / jnp.linalg.norm(views, axis=-1, keepdims=True))
  np.testing.assert_allclose(rows[0], rows[1], atol=1e-2)  # the views coincide


def test_a_negative_that_is_not_a_number_is_the_nearest():
  first = jnp.eye(4)
  bound = losses.info_nce_bound(first, first.at[2].set(jnp.nan), normalize="none")
  np.testing.assert_array_equal(bound.nearest[:2], [4 + 2, 4 + 2])
  assert np.isnan(bound.repulsion[:2]).all()


@pytest.mark.parametrize("infinity", [np.inf, jnp.float32(jnp.inf)])
def test_at_infinite_temperature_all_candidates_count_the_same(infinity):
  """The paper's beta = 0: the logarithm of their number, and no gradient."""
  where = np.array([1, 1, 0, 1, 1, 1], bool)
  options = {"temperature": infinity, "where": where}

  def values(first, second):
    return {
      "info_nce": losses.info_nce(first, second, **options),
      "nt_xent": losses.nt_xent(first, second, **options),
      "bound": losses.info_nce_bound(first, second, **options).value,
    }

  result, slopes = jax.jit(values)(*VIEWS), jax.jit(jax.jacrev(values))(*VIEWS)
  expected = {"info_nce": np.log(8), "nt_xent": np.log(9), "bound": np.log(8)}
  for name, value in expected.items():
    np.testing.assert_allclose(result[name], where * value, rtol=1e-6)
    np.testing.assert_array_equal(slopes[name], 0)


SOME = np.array([1, 1, 0, 1, 0, 0, 1, 1], bool)  # a device of four has nothing


@pytest.mark.parametrize("block_size", [None, 1])
@pytest.mark.parametrize("where", [np.ones(8, bool), SOME])
def test_nearest_negatives_of_all_devices(block_size, where):
  """First views of all devices from 0, then all second ones."""
  views = np.random.default_rng(2).normal(size=(2, 8, 3)).astype(np.float32)

  @jax.jit
  @functools.partial(jax.vmap, axis_name="all")
  def mapped(first, second, where):
    options = {"block_size": block_size, "axis_name": "all"}
    return losses.info_nce_bound(first, second, where=where, **options)

  bound = mapped(*views.reshape(2, 4, 2, 3), where.reshape(4, 2))
  unit, others = project(views), np.tile(where & ~np.eye(8, dtype=bool), 2)
  similar = np.where(others, unit[0] @ np.concatenate(unit).T, -np.inf)
  nearest = np.where(where, similar.argmax(axis=1), -1)
  np.testing.assert_array_equal(bound.nearest.ravel(), nearest)
  largest = similar.max(axis=1)[where]
  np.testing.assert_allclose(bound.repulsion.ravel()[where], largest, rtol=1e-5)
  np.testing.assert_allclose(bound.constant, np.log(2 * (where.sum() - 1)), rtol=1e-6)


def test_an_example_alone():
  values = everything(VIEWS[0][:1], VIEWS[1][:1])
  bound = values["bound"]
  for name in ("info_nce", "symmetric", "nt_xent", "repulsion", "uniformity"):
    assert values[name][0] == 0
  assert (bound.value[0], bound.constant, bound.nearest[0]) == (0, 0, -1)
  loss = losses.vicreg(VIEWS[0][:1], VIEWS[0][:1])
  np.testing.assert_allclose(loss, 25 * 2 * 0.99, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_sharp_temperatures(dtype):
  first = jnp.eye(2, 3, dtype=dtype)
  second = jnp.array([[-1, 0, 0], [0, 0, 1]], dtype)

  @functools.partial(with_slopes, argnums=(0, 1))
  def sharp(first, second):
    both = jnp.stack([first, second], 1)
    values = [
      losses.info_nce(first, second, temperature=0.005),
      losses.nt_xent(first, second, temperature=0.005),
      losses.sup_con(both, jnp.arange(2), temperature=0.005),
    ]
    return jnp.stack(values).astype(jnp.float32)

  values, slopes = sharp(first, second)
  rtol = float(jnp.finfo(dtype).eps)
  np.testing.assert_allclose(values[:, 0], 200 + np.log(2), rtol=rtol)
  assert all(np.isfinite(slope.astype(np.float32)).all() for slope in slopes)


def test_statistics_have_their_optima(x64):
  # Unit variance (ddof 1 for VICReg, by the scale) and no correlation.
  z = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
  np.testing.assert_allclose(jax.jit(losses.vicreg)(z, z), 0, atol=1e-14)
  np.testing.assert_allclose(jax.jit(losses.barlow_twins)(z, 5 * z), 0, atol=1e-14)
