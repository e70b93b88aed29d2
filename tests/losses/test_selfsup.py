"""Self-supervised losses: bounds, identities, optima, sharp temperatures, memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import losses

BETA = 2.5
FIRST, SECOND = np.random.default_rng(0).normal(size=(2, 6, 3))
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


def test_chain_of_bounds(x64):
  values = everything(FIRST, SECOND)
  unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (FIRST, SECOND)]
  similar = unit[0] @ np.concatenate(unit).T
  negatives = np.array([[j % 6 != i for j in range(12)] for i in range(6)])
  own = (unit[0] * unit[1]).sum(1)
  for i in range(6):
    s = similar[i][negatives[i]]
    weights = np.exp(BETA * s) / np.exp(BETA * s).sum()
    entropy = -(weights * np.log(weights)).sum()
    value = values["info_nce"][i]
    np.testing.assert_allclose(
      value, -BETA * own[i] + BETA * (weights @ s) + entropy, rtol=1e-10
    )
    constant = np.log(10)
    assert value <= constant + BETA * (weights @ s) - BETA * own[i]
    assert value >= constant + BETA * s.mean() - BETA * own[i]
    assert 0 <= values["bound"].value[i] - value <= constant
  bound = values["bound"]
  nearest = np.where(negatives, similar, -np.inf).argmax(1)
  np.testing.assert_array_equal(bound.nearest, nearest)
  np.testing.assert_allclose(bound.constant, np.log(10), rtol=1e-14)
  np.testing.assert_array_equal(bound.repulsion, values["repulsion"])
  np.testing.assert_array_equal(bound.invariance, values["invariance"])
  assert values["repulsion"].mean() >= -1 / 5


def test_the_sum_of_exponentials_answers_by_the_mean_similarity(x64):
  """d log Z_i / d beta = E_i(beta), the mean of the similarities at beta, which rises.

  From the mean at beta = 0 to the largest one.
  """
  one, other = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (FIRST, SECOND))
  own = (one * other).sum(axis=1)
  beta = np.geomspace(0.01, 60, 30)
  step = 1e-3 * beta
  moved = beta + np.array([-2, -1, 1, 2])[:, None] * step

  @jax.jit
  def losses_at(temperatures):
    call = functools.partial(losses.info_nce, FIRST, SECOND)
    return jax.vmap(lambda t: call(temperature=t))(temperatures)

  log_z = losses_at(1 / moved.reshape(-1)).reshape(4, 30, 6) + moved[..., None] * own
  slopes = (log_z[0] - 8 * log_z[1] + 8 * log_z[2] - log_z[3]) / (12 * step[:, None])
  for i in range(6):
    s = np.array([one[i] @ x[j] for x in (one, other) for j in range(6) if j != i])
    weights = np.exp(beta[:, None] * (s - s.max()))
    mean = weights @ s / weights.sum(axis=1)
    np.testing.assert_allclose(slopes[:, i], mean, rtol=1e-7, atol=1e-8)
    assert (np.diff(slopes[:, i]) > -1e-9).all()
    np.testing.assert_allclose(mean[[0, -1]], [s.mean(), s.max()], atol=2e-2)


def test_of_equal_negatives_the_first_is_the_nearest(x64):
  """First views come before second ones."""
  bound = everything(np.ones((6, 3)), np.ones((6, 3)))["bound"]
  np.testing.assert_array_equal(bound.nearest, [1, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("number", [2, 5])
def test_descent_ends_at_the_simplex(number, x64):
  """The least value for as many points as one more than there are dimensions."""
  dim = number - 1 if number > 2 else 2

  def mean(views):
    found = losses.info_nce(*views, temperature=1 / BETA)
    return jnp.mean(found)

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
  first = np.eye(4, dtype=np.float32)
  second = np.eye(4, dtype=np.float32)
  second[2] = np.nan
  call = jax.jit(functools.partial(losses.info_nce_bound, normalize="none"))
  bound = call(first, second)
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

  slopes = jax.jit(jax.jacrev(values))(*VIEWS)
  found = jax.jit(values)(*VIEWS)
  expected = {"info_nce": np.log(8), "nt_xent": np.log(9), "bound": np.log(8)}
  for name, value in expected.items():
    np.testing.assert_allclose(found[name], where * value, rtol=1e-6)
    np.testing.assert_array_equal(slopes[name], np.zeros_like(slopes[name]))


KEPT = np.array([1, 1, 0, 1, 0, 0, 1, 1], bool)  # one of four devices keeps nothing


@pytest.mark.parametrize("block_size", [None, 1])
@pytest.mark.parametrize("where", [np.ones(8, bool), KEPT])
def test_nearest_negatives_of_all_devices(block_size, where):
  """First views of all devices from 0, then all second ones."""
  first, second = np.random.default_rng(2).normal(size=(2, 8, 3)).astype(np.float32)
  call = functools.partial(
    losses.info_nce_bound, block_size=block_size, axis_name="all"
  )
  parts = [x.reshape(4, 2, *x.shape[1:]) for x in (first, second, where)]
  mapped = jax.vmap(lambda a, b, kept: call(a, b, where=kept), axis_name="all")
  bound = jax.jit(mapped)(*parts)
  unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second)]
  references = np.concatenate(unit)
  for i in range(8):
    nearest, largest = -1, -np.inf
    for j in range(16) if where[i] else ():
      similar = unit[0][i] @ references[j]
      if where[j % 8] and j % 8 != i and similar > largest:
        nearest, largest = j, similar
    assert bound.nearest.ravel()[i] == nearest
    if where[i]:
      np.testing.assert_allclose(bound.repulsion.ravel()[i], largest, rtol=1e-5)
  np.testing.assert_allclose(bound.constant, np.log(2 * (where.sum() - 1)), rtol=1e-6)


def test_an_example_alone():
  values = everything(VIEWS[0][:1], VIEWS[1][:1])
  alone = values["bound"]
  for name in ("info_nce", "symmetric", "nt_xent", "repulsion", "uniformity"):
    assert values[name][0] == 0
  assert (alone.value[0], alone.constant, alone.nearest[0]) == (0, 0, -1)
  loss = jax.jit(losses.vicreg)(VIEWS[0][:1], VIEWS[0][:1])
  np.testing.assert_allclose(loss, 25 * 2 * 0.99, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_sharp_temperatures(dtype):
  first = jnp.eye(2, 3, dtype=dtype)
  second = jnp.array([[-1, 0, 0], [0, 0, 1]], dtype)

  @jax.jit
  def sharp(first, second):
    def total(first, second):
      values = jnp.stack(
        [
          losses.info_nce(first, second, temperature=0.005),
          losses.nt_xent(first, second, temperature=0.005),
          losses.sup_con(
            jnp.stack([first, second], 1), jnp.arange(2), temperature=0.005
          ),
        ]
      )
      return values.astype(jnp.float32).sum(), values

    return jax.grad(total, (0, 1), has_aux=True)(first, second)

  slopes, values = sharp(first, second)
  np.testing.assert_allclose(
    values[:, 0].astype(np.float32), 200 + np.log(2), rtol=float(jnp.finfo(dtype).eps)
  )
  assert all(np.isfinite(slope.astype(np.float32)).all() for slope in slopes)


def test_statistics_have_their_optima(x64):
  # Unit variance (ddof 1 for VICReg, by the scale) and no correlation.
  z = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
  np.testing.assert_allclose(jax.jit(losses.vicreg)(z, z), 0, atol=1e-14)
  np.testing.assert_allclose(jax.jit(losses.barlow_twins)(z, 5 * z), 0, atol=1e-14)
