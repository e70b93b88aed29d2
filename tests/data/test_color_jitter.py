import colorsys
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance

from spherejax import data
from spherejax.data import _color_jitter
from tests.data.test_color import LUMA
from tests.data.test_views import within

KEY = jax.random.key(5)
RANDOM = np.random.default_rng(7)
RGB = RANDOM.random([5, 4, 3]).astype(np.float32)
GREY = np.repeat(RANDOM.random([5, 4, 1]).astype(np.float32), 3, -1)
GREYS = GREY, np.zeros_like(RGB), np.ones_like(RGB)
MANY = np.tile(RGB, (2000, 1, 1, 1))
ORDERS = list(itertools.permutations(range(4)))
NOTHING = {"brightness": 0, "contrast": 0, "saturation": 0, "hue": 0}


def turned(image, turns):
  """The hue moved, pixel by pixel, by the standard library."""
  result = np.array(image, np.float64)
  for place in np.ndindex(image.shape[:-1]):
    hue, saturation, value = colorsys.rgb_to_hsv(*map(float, image[place]))
    result[place] = colorsys.hsv_to_rgb((hue + turns) % 1, saturation, value)
  return result


def jittered(image, order, changes):
  """The four operations in an order, in float64."""
  x = np.array(image, np.float64)
  for operation in order:
    factor, grey = 1 + changes[operation], x @ LUMA
    if operation == 0:
      x = factor * x
    elif operation == 1:
      x = factor * x + (1 - factor) * grey.mean()
    elif operation == 2:
      x = factor * x + (1 - factor) * grey[..., None]
    else:
      x = turned(x, changes[3])
    x = np.clip(x, 0, 1)
  return x


def draws(strengths, probability, count):
  """Orders and changes of so many images of a batch, as they are drawn."""

  def draw(key):
    return _color_jitter._draw_jitter(key, strengths, probability, jnp.dtype("f"))

  many = jax.jit(lambda key: jax.vmap(draw)(jax.random.split(key, count)))
  return map(np.asarray, many(KEY))


def test_hue_is_that_of_the_standard_library():
  images = np.tile(RGB, (50, 1, 1, 1))
  result = np.asarray(data.random_hue(KEY, images, strength=0.5))
  turns = []
  for image in result:
    # The turn, from the first pixel.
    new, old = (colorsys.rgb_to_hsv(*map(float, x[0, 0]))[0] for x in (image, RGB))
    np.testing.assert_allclose(image, turned(RGB, new - old), atol=5e-6)
    turns.append((new - old + 0.5) % 1 - 0.5)
  assert min(turns) < -0.4
  assert max(turns) > 0.4
  np.testing.assert_allclose(result.max(-1), images.max(-1), atol=1e-6)
  np.testing.assert_allclose(result.min(-1), images.min(-1), atol=1e-6)


@pytest.mark.parametrize("turns", [-0.5, -0.2, 1 / 6, 0.34, 0.5])
def test_hue_of_pure_colours_and_ties(turns):
  levels = np.array(list(itertools.product([0, 0.5, 1], repeat=3)), np.float32)
  turn = jax.jit(_color_jitter._turn_hue)
  found = np.asarray(turn(levels.T[None], np.float32(6 * turns)))[0].T
  np.testing.assert_allclose(found, turned(levels, turns), atol=2e-6)


@pytest.mark.parametrize("factor", [0.0, 0.6, 1.0, 1.7])
def test_the_operations_are_pillows(factor):
  # Pillow rounds to bytes, and its mean grey to a whole one.
  levels = RANDOM.integers(0, 256, (9, 7, 3), dtype=np.uint8)
  change = np.float32(factor - 1)
  for number, name in enumerate(("Brightness", "Contrast", "Color")):
    change_by = getattr(ImageEnhance, name)(Image.fromarray(levels)).enhance
    expected = np.asarray(change_by(factor)) / 255
    order = [number, *(n for n in range(4) if n != number)]
    changes = np.eye(4, dtype=np.float32)[number] * change
    found = ordered(levels / np.float32(255), np.array(order), changes)
    # A grey, rounded twice, is multiplied by 1 - factor.
    assert np.abs(found - expected).max() < (1.01 + 1.5 * abs(change)) / 255


@jax.jit
def ordered(image, order, changes):
  """The image after given changes in a given order, by the steps of a draw."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(_color_jitter, "_draw_jitter", lambda *_: (order, changes))
    steps = _color_jitter.jitter_steps(KEY, (), 1.0, jnp.zeros([1, 3, 1]))
  planes = _color_jitter.jitter_planes(jnp.swapaxes(image, -1, -2), steps)
  return jnp.swapaxes(planes, -1, -2)


@pytest.mark.parametrize("order", ORDERS)
def test_every_order(order):
  changes = np.array([0.5, -0.4, 0.7, 0.2], np.float32)
  result = np.asarray(ordered(RGB, np.array(order), changes))
  np.testing.assert_allclose(result, jittered(RGB, order, changes), atol=5e-6)
  for other in {*ORDERS} - {order}:
    assert np.abs(result - jittered(RGB, other, changes)).max() > 1e-4


def test_jitter_draws_orders_and_changes_uniformly():
  limits = (0.4, 0.3, 0.6, 0.1)
  orders, changes = draws(limits, 0.7, 2000)
  for order in ORDERS:
    # Standard deviation 8.9; of 24 orders one may well be off by three, none by five.
    assert abs((orders == order).all(-1).sum() - 2000 / 24) < 45
  changed = (changes != 0).any(-1)
  assert within(changed, 0.7)
  shares = changes[changed] / np.array(limits)
  assert np.abs(shares).max() <= 1
  assert (np.abs(shares.mean(0)) < 4 / np.sqrt(3 * changed.sum())).all()
  assert (np.abs(shares.var(0) - 1 / 3) < 0.05).all()


def test_jitter_of_a_batch_is_the_oracles():
  images = RANDOM.random([32, 5, 4, 3]).astype(np.float32)
  strengths = {"brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.2}
  result = data.color_jitter(KEY, images, **strengths, probability=0.8)
  drawn = draws(tuple(strengths.values()), 0.8, 32)
  expected = [jittered(*numbers) for numbers in zip(images, *drawn, strict=True)]
  np.testing.assert_allclose(result, expected, atol=1e-5)


def test_nothing_changes_at_zero_strength_and_some_as_often_as_asked():
  images = MANY[:20]
  for changed in (NOTHING, {"probability": 0}):
    np.testing.assert_array_equal(data.color_jitter(KEY, images, **changed), images)
  for augment in (data.random_saturation, data.random_hue):
    np.testing.assert_allclose(augment(KEY, images, strength=0), images, atol=2e-7)
  result = np.asarray(data.color_jitter(KEY, MANY, probability=0.8))
  assert within((result != RGB).any((1, 2, 3)), 0.8)


@pytest.mark.parametrize("augment", [data.random_saturation, data.random_hue])
def test_grey_stays_grey(augment):
  for image in GREYS:
    images = np.tile(image, (20, 1, 1, 1))
    np.testing.assert_allclose(augment(KEY, images, strength=0.5), images, atol=2e-7)


def test_one_channel_is_refused_unless_colours_are_left_alone():
  one = RGB[..., :1]
  result = data.color_jitter(KEY, one, saturation=0, hue=0, contrast=0, probability=1)
  ratios = np.asarray(result) / one
  np.testing.assert_allclose(ratios, ratios[:1, :1] + 0 * ratios, rtol=1e-5)
  assert abs(ratios[0, 0, 0] - 1) > 1e-3
  for saturation in (0.4, 0):
    with pytest.raises(ValueError, match=r"3 channels, RGB, or of 1 .*\(5, 4, 1\)"):
      data.color_jitter(KEY, one, saturation=saturation)
  for augment in (data.random_saturation, data.random_hue):
    with pytest.raises(ValueError, match=r"3 channels, RGB, got shape \(5, 4, 1\)"):
      augment(KEY, one)


@pytest.mark.parametrize(
  "augment", [data.random_saturation, data.random_hue, data.color_jitter]
)
def test_gradients_are_finite(augment):
  gradient = jax.jit(jax.grad(lambda image: (augment(KEY, image) ** 2).sum()))
  for image in (RGB, *GREYS):
    assert np.isfinite(gradient(image)).all()


@pytest.mark.usefixtures("x64")
def test_hue_gradient_is_that_of_differences():
  key, image = jax.random.key(5), RGB.astype(np.float64)

  @jax.jit
  def total(image):
    return (data.random_hue(key, image, strength=0.3) * image[::-1]).sum()

  direction = RANDOM.normal(size=RGB.shape)
  _, slope = jax.jvp(total, (image,), (direction,))
  below, above = (float(total(image + h * direction)) for h in (-1e-6, 1e-6))
  np.testing.assert_allclose(slope, (above - below) / 2e-6, rtol=1e-6)


def test_strengths_may_be_traced():
  def jitter(s):
    numbers = {"brightness": s, "contrast": s, "saturation": s, "hue": s / 2}
    return data.color_jitter(KEY, RGB, **numbers, probability=1)

  together = jax.jit(jax.vmap(jitter))(np.float32([0, 0.2, 0.5]))
  alone = jax.jit(lambda: [jitter(strength) for strength in (0.0, 0.2, 0.5)])()
  np.testing.assert_allclose(together, alone, atol=1e-6)
