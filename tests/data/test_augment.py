"""Crops, flips, resizing and warps, against Pillow, torchvision's loop and scipy."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from spherejax import data
from spherejax.data import _augment

KEY = jax.random.key(11)
IMAGE = np.random.default_rng(1).random([7, 9, 2]).astype(np.float32)
BATCH = np.stack([IMAGE + number for number in range(64)])


def test_padded_crops_are_shifts():
  crop = jax.jit(functools.partial(data.random_crop, padding=2))
  images = np.asarray(crop(KEY, np.tile(IMAGE + 1, (512, 1, 1, 1))))
  padded = np.pad(IMAGE + 1, ((2, 2), (2, 2), (0, 0)))
  moved = np.stack([padded[i : i + 7, j : j + 9] for i, j in np.ndindex(5, 5)])
  matches = (images[:, None] == moved[None]).all((2, 3, 4))
  np.testing.assert_array_equal(matches.sum(1), 1)
  # All 25 shifts occur: each is missed with probability 0.96^512 = 1e-9.
  assert matches.any(0).all()


def test_crops_of_a_size():
  image = np.arange(7 * 9 * 2, dtype=np.uint8).reshape(7, 9, 2)
  crop = jax.jit(functools.partial(data.random_crop, size=(3, 8)))
  crops = crop(KEY, np.tile(image, (64, 1, 1, 1)))
  assert crops.shape == (64, 3, 8, 2)
  assert crops.dtype == jnp.uint8
  corners = set()
  for piece in np.asarray(crops):
    top, left = divmod(int(piece[0, 0, 0]) // 2, 9)
    np.testing.assert_array_equal(piece, image[top : top + 3, left : left + 8])
    corners.add((top, left))
  assert corners == {(top, left) for top in range(5) for left in range(2)}


def test_flips():
  mirrored = IMAGE[:, ::-1]
  flip = jax.jit(data.random_flip)
  always, never = (flip(KEY, BATCH, probability=p) for p in (1.0, 0.0))
  np.testing.assert_array_equal(never, BATCH)
  np.testing.assert_array_equal(always[0], mirrored)
  np.testing.assert_array_equal(flip(KEY, always, probability=1.0), BATCH)
  some = np.asarray(flip(KEY, np.tile(IMAGE, (400, 1, 1, 1)), probability=0.25))
  flipped, same = ((some == image).all((1, 2, 3)) for image in (mirrored, IMAGE))
  assert (flipped ^ same).all()
  # Standard deviation sqrt(400 x 3/16) = 8.7; five of them.
  assert abs(flipped.sum() - 100) < 44


@pytest.mark.parametrize(("size", "corner"), [(3, (2, 3)), ((7, 4), (0, 2))])
def test_center_crop(size, corner):
  (height, width), (top, left) = np.broadcast_to(size, 2), corner
  expected = BATCH[:, top : top + height, left : left + width]
  np.testing.assert_array_equal(data.center_crop(BATCH, size), expected)


@pytest.mark.parametrize("size", [(7, 4), (14, 27), (3, 20)])
def test_resize_is_pillows(size):
  resized = np.asarray(data.resize(IMAGE, size))
  assert resized.shape == (*size, 2)
  for channel in range(2):
    plane = Image.fromarray(IMAGE[..., channel])
    expected = plane.resize(size[::-1], Image.Resampling.BILINEAR)
    np.testing.assert_allclose(resized[..., channel], expected, rtol=2e-5, atol=1e-6)


def test_resize_keeps_the_aspect_ratio_for_a_single_side(unchecked):
  assert data.resize(np.zeros([30, 40, 1], np.float32), 12).shape == (12, 16, 1)
  images = np.zeros([2, 50, 20, 1], np.float32)
  for size in (8, np.int64(8)):
    assert data.resize(images, size).shape == (2, 20, 8, 1)
  assert data.random_crop(KEY, images, size=np.int32(8)).shape == (2, 8, 8, 1)
  np.testing.assert_allclose(data.resize(IMAGE, 7), IMAGE, rtol=1e-6)


def ramps(height, width):
  """Each pixel's coordinates (of its centre): bilinear values are coordinates."""
  rows, columns = np.mgrid[:height, :width] + 0.5
  return np.stack([rows, columns], -1).astype(np.float32)


def boxes(crops, size):
  """(top, left, height, width) of the boxes, read off the crops of `ramps`."""
  # Pixels at the rim may lie beyond the image's outermost centres: use the middle.
  a, b = size // 4, size - 1 - size // 4
  step = (crops[:, b, b] - crops[:, a, a]) / (b - a)
  return np.concatenate([crops[:, a, a] - (a + 0.5) * step, step * size], -1)


@pytest.mark.parametrize("shape", [(40, 40), (24, 60)])
def test_resized_crops_are_boxes_within_bounds(shape):
  # The result is finer than the image, so that interpolation never averages.
  options = {"size": 64, "area": (0.2, 0.5), "aspect": (0.5, 1.5), "integer": False}
  crop = jax.jit(functools.partial(data.random_resized_crop, **options))
  crops = np.asarray(crop(KEY, np.tile(ramps(*shape), (300, 1, 1, 1))))
  assert crops.shape == (300, 64, 64, 2)
  top, left, height, width = boxes(crops, 64).T
  area, aspect = height * width / (shape[0] * shape[1]), width / height
  for values, least in ((top, 0), (left, 0), (area, 0.2), (aspect, 0.5)):
    assert values.min() > least - 1e-3
  limited = top + height, left + width, area, aspect
  for values, most in zip(limited, (*shape, 0.5, 1.5), strict=True):
    assert values.max() < most + 1e-3
  # Every pixel of the crop is where the box says, away from the image's border.
  grid = (np.arange(64) + 0.5) / 64
  rows = (top[:, None] + height[:, None] * grid)[:, :, None]
  rows = np.broadcast_to(rows, crops.shape[:3])
  inside = (rows > 0.5) & (rows < shape[0] - 0.5)
  np.testing.assert_allclose(crops[inside][:, 0], rows[inside], rtol=1e-4, atol=2e-3)
  if shape == (40, 40):
    # All boxes fit: shares and places are uniform, ratios log-uniform. Five
    # standard errors of a mean of 300 draws.
    error = 5 / np.sqrt(12 * 300)
    assert abs(area.mean() - 0.35) < 0.3 * error
    middle, width_of_log = np.log(0.75) / 2, np.log(3)
    assert abs(np.log(aspect).mean() - middle) < width_of_log * error
    for place in (top / (40 - height), left / (40 - width)):
      assert abs(place.mean() - 0.5) < error
      assert abs(place.var() - 1 / 12) < 5 / np.sqrt(180 * 300)


def torchvisions(shares, ratios, place, height, width, aspect):
  """(top, left, height, width) by the loop of torchvision's RandomResizedCrop."""
  for share, ratio in zip(shares, ratios, strict=True):
    w = round(np.sqrt(share * height * width * ratio))
    h = round(np.sqrt(share * height * width / ratio))
    if 0 < w <= width and 0 < h <= height:
      # A uniform number in [0, 1) as a uniform integer in its randint's range.
      top, left = int(place[0] * (height - h + 1)), int(place[1] * (width - w + 1))
      return top, left, h, w
  if width / height < aspect[0]:
    w, h = width, round(width / aspect[0])
  elif width / height > aspect[1]:
    h, w = height, round(height * aspect[1])
  else:
    h, w = height, width
  return (height - h) // 2, (width - w) // 2, h, w


USUAL = (3 / 4, 4 / 3)
BOXES = [((32, 32), (0.08, 1.0), USUAL), ((9, 14), (0.9, 1.0), USUAL)]
BOXES += [((31, 8), (0.8, 1.0), USUAL), ((3, 2), (0.01, 0.2), (0.5, 2.0))]


@pytest.mark.parametrize(("shape", "area", "aspect"), BOXES)
def test_integer_boxes_are_torchvisions(shape, area, aspect):
  keys = jax.random.split(KEY, 500)

  def draw(key):
    parts = jax.random.split(key, 3)
    shares, logs = (
      jax.random.uniform(part, (10,), minval=low, maxval=high)
      for part, (low, high) in zip(parts[:2], (area, np.log(aspect)), strict=True)
    )
    return shares, jnp.exp(logs), jax.random.uniform(parts[2], (2,))

  found = jax.jit(
    jax.vmap(lambda key: _augment.random_box(key, *shape, area, aspect, True))
  )(keys)
  drawn = zip(*(np.asarray(x, np.float64) for x in jax.vmap(draw)(keys)), strict=True)
  expected = [torchvisions(*numbers, *shape, aspect) for numbers in drawn]
  np.testing.assert_array_equal(found, expected)


def test_a_box_that_rounds_to_nothing_has_a_pixel():
  image = np.ones([1, 1, 1], np.float32)
  crop = data.random_resized_crop(KEY, image, size=2, aspect=(4.0, 5.0))
  np.testing.assert_array_equal(crop, np.ones([2, 2, 1]))


@pytest.mark.parametrize("size", [(5, 4), (16, 3), (2, 30)])
def test_integer_crops_are_pillows_resize_of_the_cropped_image(size):
  """Pixels outside the box have no part: they may be anything."""
  image = np.random.default_rng(3).random([12, 10]).astype(np.float32)
  area = (0.1, 1.0)

  @jax.jit
  @jax.vmap
  def cropped(key):
    crop = data.random_resized_crop(key, image[..., None], size=size, area=area)
    return crop[..., 0], _augment.random_box(key, 12, 10, area, USUAL, True)

  crops, boxes = map(np.asarray, cropped(jax.random.split(KEY, 40)))
  for crop, (top, left, height, width) in zip(crops, boxes.astype(int), strict=True):
    piece = Image.fromarray(image[top : top + height, left : left + width])
    expected = piece.resize(size[::-1], Image.Resampling.BILINEAR)
    np.testing.assert_allclose(crop, expected, rtol=2e-5, atol=1e-6)


RANDOM = {
  "crop": functools.partial(data.random_crop, padding=3),
  "resized_crop": functools.partial(data.random_resized_crop, size=8),
  "flip": data.random_flip,
  "brightness": data.random_brightness,
  "contrast": data.random_contrast,
  "grayscale": data.random_grayscale,
  "saturation": data.random_saturation,
  "hue": data.random_hue,
  "jitter": data.color_jitter,
  "blur": data.random_blur,
  "affine": data.random_affine,
}


@pytest.mark.parametrize("name", RANDOM)
def test_each_image_of_a_batch_has_its_own_draw(name):
  augment = jax.jit(RANDOM[name])
  images = np.random.default_rng(0).random([64, 8, 8, 3]).astype(np.float32)
  result = augment(KEY, images)
  assert result.shape == images.shape
  assert result.dtype == jnp.float32
  assert (result != augment(jax.random.key(12), images)).any()
  alone = jax.vmap(augment)(jax.random.split(KEY, 64), images)
  np.testing.assert_allclose(result, alone, rtol=1e-6)
  same = np.asarray(augment(KEY, np.broadcast_to(images[:1], images.shape)))
  assert (same != same[0]).any()
  assert result.min() >= 0
  assert result.max() <= 1 + 1e-6


@pytest.mark.parametrize("name", RANDOM)
def test_types_and_shapes_stay_and_half_precision_is_rounded_single_precision(name):
  for shape in ((8, 8, 3), (2, 8, 8, 3)):
    images = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    result = jax.eval_shape(RANDOM[name], KEY, images)
    assert (result.shape, result.dtype) == (shape, jnp.bfloat16)
  if name in ("crop", "flip"):
    whole = jax.ShapeDtypeStruct((8, 8, 3), jnp.uint8)
    assert jax.eval_shape(RANDOM[name], KEY, whole).dtype == jnp.uint8
  else:
    half = np.random.default_rng(3).random([8, 8, 3]).astype(jnp.bfloat16)
    exact = np.asarray(RANDOM[name](KEY, half.astype(np.float32)))
    np.testing.assert_array_equal(RANDOM[name](KEY, half), exact.astype(jnp.bfloat16))


def test_the_whole_image_as_the_box_is_a_resize():
  image = IMAGE[:, :7]
  for size in (7, 4):
    crop = functools.partial(data.random_resized_crop, area=(1, 1), aspect=(1, 1))
    whole = jax.jit(functools.partial(crop, size=size))(KEY, image)
    expected = data.resize(image, (size, size))
    np.testing.assert_allclose(whole, expected, rtol=2e-5, atol=1e-6)


def views(key, images, **number):
  strengths = data.ViewStrengths(**number)
  return data.simclr_views(key, images, size=8, strengths=strengths)


NUMBERS = [
  (augment, x.name, x.default)
  for augment in RANDOM.values()
  for x in inspect.signature(augment).parameters.values()
  if x.name not in ("size", "padding", "integer") and x.default is not x.empty
]
NUMBERS += [(views, *field) for field in data.ViewStrengths()._asdict().items()]


@pytest.mark.parametrize(("augment", "parameter", "default"), NUMBERS)
def test_numbers_are_for_all_images(augment, parameter, default, unchecked):
  images = np.full([10, 10, 10, 3], 0.5, np.float32)  # ten of everything: all broadcast
  pair = isinstance(default, tuple)
  several = np.full(10, default[0] if pair else default)
  for value in [(several, default[1]), (default[0], several)] if pair else [several]:
    with pytest.raises(ValueError, match=r"must be a scalar, got shape \(10,\)"):
      augment(KEY, images, **{parameter: value})


# --- Affine maps, read off an image of coordinates ---

HEIGHT, WIDTH, COUNT = 24, 32, 256
NOTHING = {"rotation": 0, "translation": 0, "scale": (1, 1), "shear": 0, "flip": 0}
rows, columns = np.mgrid[:HEIGHT, :WIDTH]
# Where each pixel lies, and 1: interpolated, a share of the image and not of outside.
PLACES = np.stack(
  [columns - (WIDTH - 1) / 2, rows - (HEIGHT - 1) / 2, np.ones_like(rows)], -1
).astype(np.float32)
PICTURE = np.random.default_rng(0).random((HEIGHT, WIDTH, 3)).astype(np.float32)
BOTH = np.concatenate([PLACES, PICTURE], -1)


@jax.jit
def warp(key, images, numbers):
  return data.random_affine(key, images, **numbers)


def run(**numbers):
  """Warped images, and the matrices A and shifts t that were drawn."""
  given = jax.tree.map(jnp.float32, NOTHING | numbers)
  warped = np.asarray(warp(jax.random.key(3), np.tile(BOTH, (COUNT, 1, 1, 1)), given))
  matrices, shifts = [], []
  for image in warped:
    inside = image[..., 2] > 1 - 1e-6
    there, came_from = PLACES[inside], image[inside]
    fit = np.linalg.lstsq(there.astype(np.float64), came_from[:, :2], rcond=None)[0]
    # Affine: nothing is left.
    np.testing.assert_allclose(there @ fit, came_from[:, :2], atol=1e-4)
    matrix = np.linalg.inv(fit[:2].T)
    matrices.append(matrix)
    shifts.append(-matrix @ fit[2])
  return warped, np.array(matrices), np.array(shifts)


def spans(values, low, high):
  """Uniform draws reach both ends but for a twentieth, and go no further."""
  part = (high - low) / 20
  assert low - 1e-4 <= values.min() <= low + part
  assert high - part <= values.max() <= high + 1e-4


def test_parts_alone():
  _, turned, shifts = run(rotation=15.0)
  np.testing.assert_allclose(shifts, 0, atol=1e-4)
  np.testing.assert_allclose(np.linalg.det(turned), 1, atol=1e-5)
  np.testing.assert_allclose(turned[:, 0, 1], -turned[:, 1, 0], atol=1e-5)
  spans(np.degrees(np.arctan2(turned[:, 1, 0], turned[:, 0, 0])), -15, 15)
  _, still, shifts = run(translation=0.1)
  np.testing.assert_allclose(still, np.tile(np.eye(2), (COUNT, 1, 1)), atol=1e-5)
  spans(shifts[:, 0], -0.1 * WIDTH, 0.1 * WIDTH)
  spans(shifts[:, 1], -0.1 * HEIGHT, 0.1 * HEIGHT)
  _, scaled, _ = run(scale=(0.9, 1.1))
  np.testing.assert_allclose(scaled[:, 0, 0], scaled[:, 1, 1], atol=1e-5)
  np.testing.assert_allclose(scaled[:, [0, 1], [1, 0]], 0, atol=1e-5)
  spans(scaled[:, 0, 0], 0.9, 1.1)
  _, sheared, _ = run(shear=10.0)
  np.testing.assert_allclose(sheared[:, [0, 1], [0, 1]], 1, atol=1e-5)
  np.testing.assert_allclose(sheared[:, 1, 0], 0, atol=1e-5)
  spans(np.degrees(np.arctan(sheared[:, 0, 1])), -10, 10)
  mirrored, _, _ = run(flip=1.0)
  np.testing.assert_allclose(mirrored[5, :, :, 3:], PICTURE[:, ::-1], atol=1e-6)
  # Standard deviation 8; five of them.
  assert abs((run(flip=0.5)[1][:, 0, 0] < 0).sum() - COUNT / 2) < 40


def test_all_together_are_scipys():
  warped, matrices, shifts = run(
    rotation=15.0, translation=0.1, scale=(0.9, 1.1), shear=10.0, flip=0.5
  )
  assert (np.linalg.det(matrices) < 0).any()
  for number in (0, 1):
    inverse = np.linalg.inv(matrices[number])
    x, y = np.moveaxis((PLACES[..., :2] - shifts[number]) @ inverse.T, -1, 0)
    places = [y + (HEIGHT - 1) / 2, x + (WIDTH - 1) / 2]
    for channel in range(3):
      plane = PICTURE[..., channel].astype(float)
      expected = ndimage.map_coordinates(plane, places, order=1, mode="grid-constant")
      np.testing.assert_allclose(warped[number, ..., 3 + channel], expected, atol=2e-4)
