"""Classes split over devices: values and gradients of all classes on one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, losses

AXIS = "devices"
ROWS, CLASSES, DIM = 8, 12, 5


def of_scores(loss, measure=distances.pairwise_cosine, **options):
  def case(x, weights, labels, margins, **common):
    return loss(measure(x, weights), labels, **options, **common)

  return case


def with_margins(loss, **options):
  def case(x, weights, labels, margins, **common):
    cosines = distances.pairwise_cosine(x, weights)
    return loss(cosines, labels, margin=margins, **options, **common)

  return case


def of_distances(loss, measure):
  def case(x, weights, labels, margins, **common):
    # The classes of margins above a third take part.
    return loss(measure(x, weights), labels, classes=margins > 1 / 3, **common)

  return case


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
  cosines, norms = distances.pairwise_cosine(x, weights), jnp.linalg.norm(x, axis=1)
  return losses.sphereface(cosines, labels, norms, **common)


def large_margin(x, weights, labels, margins, **common):
  cosines = distances.pairwise_cosine(x, weights)
  norms = jnp.outer(jnp.linalg.norm(x, axis=1), jnp.linalg.norm(weights, axis=1))
  return losses.large_margin_softmax(cosines, labels, norms, margin=2, **common)


def distance_ratio(x, weights, labels, margins, **common):
  """The first row lies upon two proxies, its own and one of another device."""
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
  "squared_distance_softmax": of_distances(
    losses.squared_distance_softmax, distances.pairwise_squared_euclidean
  ),
  "distance_softmax": of_distances(
    losses.distance_softmax, distances.pairwise_euclidean
  ),
}


def operands():
  rng = np.random.default_rng(0)
  labels = np.array([0, 11, 5, 5, 3, 12, 7, -1])  # 12 and -1 are of no class
  return (
    rng.normal(size=(ROWS, DIM)),
    rng.normal(size=(CLASSES, DIM)),
    labels,
    np.arange(ROWS) != 4,
    rng.uniform(0.1, 0.6, size=CLASSES),
  )


def spread(step, devices, checked):
  """`step` of this device's parts, over the first axis of all arguments."""
  some = jax.devices()[:devices]
  if not checked:
    return jax.pmap(step, AXIS, devices=some)

  def own(*parts):
    first = step(*(part[0] for part in parts))
    return jax.tree.map(lambda x: x[None], first)

  mesh, over = jax.sharding.Mesh(np.array(some), AXIS), jax.P(AXIS)
  return jax.jit(jax.shard_map(own, mesh=mesh, in_specs=over, out_specs=over))


@functools.cache
def alone(name):
  """The mean of all classes on one device, the values of the rows, and gradients."""
  case = CASES[name]

  def mean(x, weights, margins, labels, where):
    rows = case(x, weights, labels, margins, where=where, class_axis_name=None)
    return jnp.mean(rows), rows

  x, weights, labels, where, margins = operands()
  slopes = jax.value_and_grad(mean, argnums=(0, 1, 2), has_aux=True)
  results = jax.jit(slopes)(x, weights, margins, labels, where)
  (value, each), gradients = jax.tree.map(np.asarray, results)
  return value, each, gradients


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
  x, weights, labels, where, margins = operands()
  case = CASES[name]
  value, each, expected = alone(name)

  def step(x, weights, margins, labels, where):
    """The rows are split too, as in training."""

    def loss(x, weights, margins):
      gathered = (jax.lax.all_gather(v, AXIS, tiled=True) for v in (x, labels, where))
      x, y, kept = gathered
      rows = case(x, weights, y, margins, where=kept, class_axis_name=AXIS)
      return jnp.mean(rows), rows

    (found, rows), gradients = jax.value_and_grad(
      loss, argnums=(0, 1, 2), has_aux=True
    )(x, weights, margins)
    # As the mean over the devices of gradients that the others have as 0.
    return found, rows, jax.tree.map(lambda g: g / jax.lax.axis_size(AXIS), gradients)

  parts = [
    v.reshape(devices, -1, *v.shape[1:]) for v in (x, weights, margins, labels, where)
  ]
  results = spread(step, devices, checked)(*parts)
  found, rows, gradients = jax.tree.map(np.asarray, results)
  assert np.abs(each).max() > 0.1
  np.testing.assert_allclose(found, np.full(devices, value), rtol=1e-12)
  for row in rows:
    np.testing.assert_allclose(row, each, rtol=1e-12, atol=1e-15)
  for got, want in zip(gradients, expected, strict=True):
    np.testing.assert_allclose(
      got.reshape(want.shape), want, rtol=1e-10, atol=1e-14 + 1e-12 * np.abs(want).max()
    )
  assert np.abs(expected[1]).max() > 1e-3


def test_a_small_loss_keeps_its_digits_over_devices():
  logits = np.array([[0.0, -30.0, -31.0, -32.0]], np.float32)
  step = functools.partial(losses.softmax, class_axis_name=AXIS)
  parts = logits.reshape(1, 2, 2).swapaxes(0, 1)
  found = jax.jit(jax.vmap(step, (0, None), axis_name=AXIS))(parts, np.array([0]))
  expected = np.log1p(np.exp(-30.0) + np.exp(-31.0) + np.exp(-32.0))
  np.testing.assert_allclose(found, np.full((2, 1), expected), rtol=1e-6)
  # The same as a distribution, with the largest one on either device.
  run = jax.jit(jax.vmap(step, axis_name=AXIS))
  for way in (1, -1):
    target = np.array([[1, 0, 0, 0]], np.float32)[:, ::way]
    given = (v.reshape(1, 2, 2).swapaxes(0, 1) for v in (logits[:, ::way], target))
    found = run(*given)
    np.testing.assert_allclose(found, np.full((2, 1), expected), rtol=1e-6)


def test_a_row_upon_a_proxy_of_another_device():
  squares = np.array([[0, 4, 2, 0], [4, 1, 0, 2]], np.float32)
  parts = squares.reshape(2, 2, 2).swapaxes(0, 1)

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
