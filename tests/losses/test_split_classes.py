"""Classes split over devices: values and gradients of all classes on one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, losses

AXIS = "devices"
ROWS, CLASSES, DIM = 8, 12, 5


def of_scores(loss, measure=distances.pairwise_cosine, by_margins=None, **options):
  """A case; `by_margins` makes the options that each class has."""

  def case(x, weights, labels, margins, **common):
    of_classes = by_margins(margins) if by_margins else {}
    return loss(measure(x, weights), labels, **of_classes, **options, **common)

  return case


def with_margins(loss, **options):
  return of_scores(loss, by_margins=lambda margins: {"margin": margins}, **options)


def of_some_classes(loss, measure):
  """The classes of margins above a third take part."""
  return of_scores(loss, measure, lambda margins: {"classes": margins > 1 / 3})


def numbers_here(weights, class_axis_name, **_):
  """Numbers of the classes of this device."""
  axis = class_axis_name
  first = 0 if axis is None else len(weights) * jax.lax.axis_index(axis)
  return first + jnp.arange(len(weights))


def distributions(x, weights, labels, margins, **common):
  """Smoothed labels, of which each device has its own columns."""
  hit = labels[:, None] == numbers_here(weights, **common)[None]
  targets = 0.9 * hit.astype(x.dtype) + 0.1 / CLASSES
  return losses.softmax(x @ weights.T, targets, **common)


def subcentres(cosines, labels, **options):
  several = jnp.stack([cosines, -cosines / 2], axis=2)
  return losses.subcentre_arcface(several, labels, **options)


def sphereface(x, weights, labels, margins, **common):
  cosines = distances.pairwise_cosine(x, weights)
  return losses.sphereface(cosines, labels, jnp.linalg.norm(x, axis=1), **common)


def large_margin(x, weights, labels, margins, **common):
  cosines = distances.pairwise_cosine(x, weights)
  norms = jnp.outer(jnp.linalg.norm(x, axis=1), jnp.linalg.norm(weights, axis=1))
  return losses.large_margin_softmax(cosines, labels, norms, margin=2, **common)


def distance_ratio(x, weights, labels, margins, **common):
  """The first row lies upon two proxies, that of its class and a far device's."""
  squares = distances.pairwise_squared_euclidean(x, weights)
  proxies = numbers_here(weights, **common) % 10 == 0
  upon = (jnp.arange(len(x)) == 0)[:, None] & proxies[None]
  squares, classes = jnp.where(upon, 0, squares), margins > 0.15
  return losses.distance_ratio(squares, labels, exponent=3.0, classes=classes, **common)


CASES = {
  "distance_ratio": distance_ratio,
  "softmax": of_scores(losses.softmax, lambda x, weights: x @ weights.T),
  "softmax, distributions": distributions,
  "normface": of_scores(losses.normface, scale=30.0),
  "p2s_grad": of_scores(losses.p2s_grad),
  "cosface": with_margins(losses.cosface, scale=3.0),
  "arcface": with_margins(losses.arcface, scale=3.0),
  "subcentre_arcface": with_margins(subcentres),
  "sphereface": sphereface,
  "large_margin_softmax": large_margin,
  "squared_distance_softmax": of_some_classes(
    losses.squared_distance_softmax, distances.pairwise_squared_euclidean
  ),
  "distance_softmax": of_some_classes(
    losses.distance_softmax, distances.pairwise_euclidean
  ),
}


RNG = np.random.default_rng(0)
OPERANDS = (
  RNG.normal(size=(ROWS, DIM)),
  RNG.normal(size=(CLASSES, DIM)),
  RNG.uniform(0.1, 0.6, size=CLASSES),
  np.array([0, 11, 5, 5, 3, 12, 7, -1]),  # 12 and -1 are of no class
  np.arange(ROWS) != 4,
)


def spread(step, devices, checked):
  """`step` of this device's parts, over the first axis of all arguments."""
  some = jax.devices()[:devices]
  if not checked:
    return jax.pmap(step, AXIS, devices=some)

  def local(*parts):
    result = step(*(part[0] for part in parts))
    return jax.tree.map(lambda x: x[None], result)

  mesh, over = jax.sharding.Mesh(np.array(some), AXIS), jax.P(AXIS)
  return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=over, out_specs=over))


@functools.cache
def alone(name):
  """Mean and values of the rows, and gradients, with all classes on a device."""

  def mean(x, weights, margins, labels, where):
    common = {"where": where, "class_axis_name": None}
    rows = CASES[name](x, weights, labels, margins, **common)
    return jnp.mean(rows), rows

  slopes = jax.value_and_grad(mean, argnums=(0, 1, 2), has_aux=True)
  return jax.tree.map(np.asarray, jax.jit(slopes)(*OPERANDS))


# Every case quickly in one way, and some in a way that sums what devices share.
CHECKED = ("softmax, distributions", "distance_ratio", "arcface")


@pytest.mark.parametrize(
  ("name", "devices", "checked"),
  [
    *((name, 4, False) for name in CASES),
    *(
      pytest.param(name, 2, True, marks=[pytest.mark.slow] * (name not in CHECKED))
      for name in CASES
    ),
  ],
)
def test_split_classes_equal_all_on_one_device(name, devices, checked, x64):
  (value, each), expected = alone(name)

  def step(x, weights, margins, labels, where):
    """The rows are split too, as in training."""

    def loss(x, weights, margins):
      x, y, mask = (jax.lax.all_gather(v, AXIS, tiled=True) for v in (x, labels, where))
      rows = CASES[name](x, weights, y, margins, where=mask, class_axis_name=AXIS)
      return jnp.mean(rows), rows

    slopes = jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)
    values, gradients = slopes(x, weights, margins)
    # As the mean over the devices of gradients that the others have as 0.
    return values, jax.tree.map(lambda g: g / jax.lax.axis_size(AXIS), gradients)

  parts = [v.reshape(devices, -1, *v.shape[1:]) for v in OPERANDS]
  results = spread(step, devices, checked)(*parts)
  (means, rows), gradients = jax.tree.map(np.asarray, results)
  assert np.abs(each).max() > 0.1
  np.testing.assert_allclose(means, np.full(devices, value), rtol=1e-12)
  np.testing.assert_allclose(rows, [each] * devices, rtol=1e-12, atol=1e-15)
  for gradient, want in zip(gradients, expected, strict=True):
    atol = 1e-14 + 1e-12 * np.abs(want).max()
    actual = gradient.reshape(want.shape)
    np.testing.assert_allclose(actual, want, rtol=1e-10, atol=atol)
  assert np.abs(expected[1]).max() > 1e-3


def halves(table):
  """[2, rows, 2] of a table of four classes."""
  return np.float32(table).reshape(-1, 2, 2).swapaxes(0, 1)


def test_a_small_loss_keeps_its_digits_over_devices():
  logits, target = np.array([[0, -30, -31, -32]]), np.array([[1, 0, 0, 0]])
  step = functools.partial(losses.softmax, class_axis_name=AXIS)
  by_label = jax.jit(jax.vmap(step, (0, None), axis_name=AXIS))
  values = by_label(halves(logits), np.array([0]))
  expected = np.full((2, 1), np.log1p(np.exp(-30.0) + np.exp(-31.0) + np.exp(-32.0)))
  np.testing.assert_allclose(values, expected, rtol=1e-6)
  # The same as a distribution, with the largest entry on either device.
  by_shares = jax.jit(jax.vmap(step, axis_name=AXIS))
  for way in (1, -1):
    values = by_shares(halves(logits[:, ::way]), halves(target[:, ::way]))
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_a_row_upon_a_proxy_of_another_device():
  parts = halves([[0, 4, 2, 0], [4, 1, 0, 2]])

  @jax.jit
  @functools.partial(jax.vmap, axis_name=AXIS)
  @functools.partial(jax.grad, has_aux=True)
  def step(part):
    rows = losses.distance_ratio(
      part, np.array([0, 1]), exponent=2.0, class_axis_name=AXIS
    )
    return rows.sum(), rows

  slopes, values = step(parts)
  for rows in np.asarray(values):
    np.testing.assert_allclose(rows, [np.log(2), np.inf], rtol=1e-6)
  np.testing.assert_array_equal(slopes, np.zeros_like(slopes))


def test_a_known_label_beyond_the_classes_of_all_devices_is_refused():
  step = functools.partial(losses.softmax, class_axis_name=AXIS)
  run = jax.vmap(step, (0, None), axis_name=AXIS)
  known = jnp.array([5])
  jax.eval_shape(lambda logits: run(logits, known), np.zeros((2, 1, 3), np.float32))
  with pytest.raises(ValueError, match=r"\[0, 6\), got 6"):
    run(jnp.zeros((2, 1, 3)), np.array([6]))
