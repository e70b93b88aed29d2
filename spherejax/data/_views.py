"""Pairs of random views of each image, the input of self-supervised learning."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key, Real

from spherejax import _checks, _compiled, _numerics
from spherejax.data import _augment, _color, _color_jitter
from spherejax.data._images import image_size

Views = Literal["simclr", "large", "moderate", "small"]

_ASPECT = (3 / 4, 4 / 3)
_SIGMA = (0.1, 2.0)  # SimCLR appendix A


class ViewStrengths(NamedTuple):
  """Strengths of the changes by which two views differ; all may be traced.

  The defaults are SimCLR's for ImageNet; `view_strengths` has others by name.

  Attributes:
    scale: smallest and largest share of the image's area in a crop, in (0, 1].
    flip: probability of the mirror image.
    brightness: of `color_jitter`, in [0, 1].
    contrast: of `color_jitter`, in [0, 1].
    saturation: of `color_jitter`, in [0, 1].
    hue: of `color_jitter`, in [0, 0.5].
    jitter: probability of the four colour changes.
    grayscale: probability of the grey image.
    blur: probability of the blurred image; a plain 0 costs nothing.
  """

  scale: tuple[Real[ArrayLike, ""], Real[ArrayLike, ""]] = (0.08, 1.0)
  flip: Real[ArrayLike, ""] = 0.5
  brightness: Real[ArrayLike, ""] = 0.8
  contrast: Real[ArrayLike, ""] = 0.8
  saturation: Real[ArrayLike, ""] = 0.8
  hue: Real[ArrayLike, ""] = 0.2
  jitter: Real[ArrayLike, ""] = 0.8
  grayscale: Real[ArrayLike, ""] = 0.2
  blur: Real[ArrayLike, ""] = 0.5


# SSL table 2: area, mirror images, strength of the jitter.
_TABLE = {
  "large": ((0.08, 1.0), 0.5, 0.5),
  "moderate": ((0.5, 1.0), 0.5, 0.25),
  "small": ((0.9, 1.0), 0.0, 0.05),
}


def view_strengths(name: Views) -> ViewStrengths:
  """Strengths from a paper; change single ones by `_replace`.

  Args:
    name: static. "simclr", or "large", "moderate" and "small", which do not blur.

  Returns:
    `ViewStrengths` of plain numbers.

  Raises:
    ValueError: another name.

  Cost: none.

  Source: SSL table 2; Chen et al. 2020, "A simple framework for contrastive learning",
  appendix A, for "simclr" (strength 1, with blur).

  Example:
    >>> spherejax.data.view_strengths("moderate").scale
    (0.5, 1.0)
  """
  _checks.one_of("name", name, Views)
  if name == "simclr":
    return ViewStrengths()
  scale, flip, s = _TABLE[name]
  return ViewStrengths(scale, flip, 0.8 * s, 0.8 * s, 0.8 * s, 0.2 * s, blur=0.0)


def simclr_views(
  key: Key[Array, ""],
  images: Float[ArrayLike, "batch height width channels"],
  *,
  size: int | tuple[int, int],
  strengths: ViewStrengths = ViewStrengths(),  # noqa: B008
  integer: bool = True,
) -> Float[Array, "2 batch new_height new_width channels"]:
  """Draws two independent views of each image: crop, flip, jitter, grayscale, blur.

  A view is the result of `random_resized_crop`, `random_flip`, `color_jitter`,
  `random_grayscale` and `random_blur` one after another, in one pass where possible.
  Normalise the channels afterwards.

      first, second = simclr_views(key, images, size=32)
      losses.info_nce(embed(first), embed(second))

  Args:
    key: draws everything.
    images: [batch, height, width, channels], floating, in [0, 1]; RGB, or of one
      channel, which has no saturation, hue or grayscale.
    size: static. Side length or (height, width) of the views.
    strengths: a `ViewStrengths`; see `view_strengths`.
    integer: static. True crops boxes of whole pixels, see `random_resized_crop`.

  Returns:
    [2, batch, new height, new width, channels], in [0, 1], dtype of `images`.

  Raises:
    ValueError: images without a batch or of neither 1 nor 3 channels; a size below 1;
      a strength outside its range.
    TypeError: images not floating, integer not boolean.

  Differentiable in: images, the strengths of the jitter. Cost: O(pixels (new height +
  new width)).

  Source: SSL table 2; Chen et al. 2020, "A simple framework for
  contrastive learning", appendix A.

  Example:
    >>> images = jnp.full([8, 32, 32, 3], 0.5)
    >>> spherejax.data.simclr_views(jax.random.key(0), images, size=24).shape
    (2, 8, 24, 24, 3)
  """
  _checks.key("key", key)
  _checks.flag("integer", integer)
  _checks.instance("strengths", strengths, ViewStrengths)
  images = _checks.array("images", images, "floating", rank=4)
  if images.shape[-1] not in (1, 3):
    raise ValueError(f"images must have 1 or 3 channels, got shape {images.shape}")
  height, width = image_size(size)
  _check(strengths)

  def view(key: Array, image: Array) -> Array:
    return _view(key, image, (height, width), strengths, integer)

  # In a loop, which needs the memory of one view and is compiled once.
  return jax.lax.map(
    lambda key: _augment.per_image(view, key, images), jax.random.split(key)
  )


def random_blur(
  key: Key[Array, ""],
  images: Float[ArrayLike, "*batch height width channels"],
  *,
  probability: Real[ArrayLike, ""] = 0.5,
  sigma: tuple[Real[ArrayLike, ""], Real[ArrayLike, ""]] = _SIGMA,
) -> Float[Array, "*batch height width channels"]:
  """Blurs each image with a probability, by a Gaussian of a random width.

  The kernel is cut to about a tenth of the shorter side, 2 max(1, side // 20) + 1
  pixels, and sums to 1; beyond the border the image is mirrored.

  Args:
    key: draws the choice and the width.
    images: [..., height, width, channels], floating, sides of at least 2.
    probability: of the blurred image, in [0, 1], may be traced.
    sigma: smallest and largest standard deviation, in pixels, positive, ascending; may
      be traced.

  Returns:
    The shape and dtype of `images`.

  Raises:
    ValueError: sides below 2; a number outside its range.
    TypeError: images not floating.

  Differentiable in: images, sigma. Cost: O(pixels (height + width)).

  Source: Chen et al. 2020, "A simple framework for contrastive learning", appendix A.
  Differs: mirrored at the border, where the authors' program has zeros.

  Example:
    >>> images = jnp.full([2, 8, 8, 3], 0.5)
    >>> spherejax.data.random_blur(jax.random.key(0), images).shape
    (2, 8, 8, 3)
  """
  _checks.key("key", key)
  images = _augment.floating_images(images)
  _checks.between("probability", probability, 0, 1)
  _checks.single("probability", probability)
  low, high = _checks.interval("sigma", sigma)
  _checks.positive("sigma[0]", low)
  _checks.positive("sigma[1]", high)
  _checks.between("sigma[1]", high, low)
  if min(images.shape[-3:-1]) < 2:
    raise ValueError(f"images must have sides of at least 2, got shape {images.shape}")

  def blur(key: Array, image: Array) -> Array:
    planes = _numerics.upcast(jnp.swapaxes(image, -1, -2))
    planes = _blur(key, planes, probability, sigma)
    return jnp.swapaxes(planes, -1, -2).astype(image.dtype)

  return _augment.per_image(blur, key, images)


def _check(strengths: ViewStrengths) -> None:
  """Raises an error for a strength that is no scalar or outside its range."""
  low, high = _checks.interval("strengths.scale", strengths.scale)
  _checks.between("strengths.scale[0]", low, 0, 1, low_open=True)
  _checks.between("strengths.scale[1]", high, 0, 1, low_open=True)
  _checks.between("strengths.scale[1]", high, low, 1)
  _color_jitter.check_strengths("strengths.", strengths[2:6])
  for name in ("flip", "jitter", "grayscale", "blur"):
    strength = getattr(strengths, name)
    _checks.between(f"strengths.{name}", strength, 0, 1)
    _checks.single(f"strengths.{name}", strength)


def _view(
  key: Array,
  image: Array,
  size: tuple[int, int],
  strengths: ViewStrengths,
  integer: bool,
) -> Array:
  """Draws a view [new height, new width, channels] of an image."""
  crop_key, flip_key, jitter_key, grey_key, blur_key = jax.random.split(key, 5)
  box = _augment.random_box(
    crop_key, image.shape[0], image.shape[1], strengths.scale, _ASPECT, integer
  )
  mirror = jax.random.uniform(flip_key) < strengths.flip
  # [new width, channels, new height], the order that two products give at no cost.
  planes = _augment.cut(_numerics.upcast(image), box, size, mirror, inside=integer)
  steps = _color_jitter.jitter_steps(
    jitter_key, strengths[2:6], strengths.jitter, planes
  )
  planes = _color_jitter.jitter_planes(planes, steps)
  if image.shape[-1] == 3:
    chosen = jax.random.uniform(grey_key) < strengths.grayscale
    planes = jnp.where(chosen, _color.grey(planes, axis=-2), planes)
  if not _compiled.known(_color_jitter.is_zero, strengths.blur) and min(size) > 1:
    planes = _blur(blur_key, planes, strengths.blur, _SIGMA)
  return jnp.clip(planes, 0, 1).transpose(2, 0, 1).astype(image.dtype)


def _blur(key: Array, planes: Array, probability: ArrayLike, sigma: tuple) -> Array:
  """Blurs an image [rows, channels, columns] along rows and columns, or not."""
  chosen_key, sigma_key = jax.random.split(key)
  rows, channels, columns = planes.shape
  low, high = (jnp.asarray(limit, planes.dtype) for limit in sigma)
  spread = low + (high - low) * jax.random.uniform(sigma_key, (), planes.dtype)
  radius = max(1, min(rows, columns) // 20)
  chosen = jax.random.uniform(chosen_key) < probability
  down, right = (_gaussian(n, radius, spread) for n in (rows, columns))
  blurred = _augment.product(down, planes.reshape(rows, channels * columns), 1, 0)
  blurred = _augment.product(blurred.reshape(rows * channels, columns), right, 1, 1)
  return jnp.where(chosen, blurred.reshape(planes.shape), planes)


def _gaussian(pixels: int, radius: int, sigma: Array) -> Array:
  """Weights [pixels, pixels] of a cut Gaussian along an axis between two mirrors."""

  def kernel(away: Array) -> Array:
    values = jnp.exp(-0.5 * (away.astype(sigma.dtype) / sigma) ** 2)
    return jnp.where(away <= radius, values, 0)

  total = jnp.sum(kernel(jnp.abs(jnp.arange(-radius, radius + 1))))
  to, source = jnp.arange(pixels)[:, None], jnp.arange(pixels)[None]
  # A source counts directly, and once more in each mirror that it does not lie on.
  straight = kernel(jnp.abs(to - source))
  first = jnp.where(source > 0, kernel(to + source), 0)
  last = pixels - 1
  second = jnp.where(source < last, kernel(2 * last - to - source), 0)
  return (straight + first + second) / total
