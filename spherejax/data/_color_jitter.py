"""Colour jitter: saturation, hue, and four colour changes in a random order."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key, Real

from spherejax import _checks, _compiled, _numerics
from spherejax.data._augment import floating_images, per_image
from spherejax.data._color import change, grey, mean_grey

# Internally an image is [height, channels, width], in either order of the sides: loops
# over its last axis then vectorise, unlike loops over three channels.

_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = range(4)
_ORDERS = np.array(list(itertools.permutations(range(4))), np.int32)


class JitterSteps(NamedTuple):
  """Coefficients of the four steps for an image, each [4], in the order of the steps.

  A step is `scale x + grey luma(x) + mean mean(luma(x))`, clipped. Where `turn` is not
  0, the step instead moves the hue by that many sixths of a turn.
  """

  scale: Array
  grey: Array
  mean: Array
  turn: Array


def random_saturation(
  key: Key[Array, ""],
  images: Float[ArrayLike, "*batch height width channels"],
  *,
  strength: Real[ArrayLike, ""] = 0.4,
) -> Float[Array, "*batch height width channels"]:
  """Moves each pixel away from, or towards, its grey by one factor per image.

      luma + factor (pixel - luma),  factor uniform in [1 - strength, 1 + strength]

  Grey pixels stay as they are.

  Args:
    key: draws the factor.
    images: [..., height, width, 3], RGB, floating, in [0, 1].
    strength: in [0, 1], may be traced.

  Returns:
    The shape and dtype of `images`, clipped to [0, 1].

  Raises:
    ValueError: not 3 channels; a strength outside [0, 1].
    TypeError: images not floating.

  Differentiable in: images, strength. Cost: O(pixels).

  Source: as `random_brightness`; grey is that of `random_grayscale`.

  Example:
    >>> grey = jnp.full([1, 1, 3], 0.5)
    >>> spherejax.data.random_saturation(jax.random.key(0), grey).ravel()
    Array([0.5, 0.5, 0.5], dtype=float32)
  """
  _checks.key("key", key)
  images = _colour_images(images)
  _checks.between("strength", strength, 0, 1)

  def saturate(key: Array, image: Array) -> Array:
    planes = _planes(image)
    factor = 1 + change(key, strength, planes.dtype)
    return _images(
      jnp.clip(factor * planes + (1 - factor) * grey(planes, axis=-2), 0, 1), image
    )

  return per_image(saturate, key, images)


def random_hue(
  key: Key[Array, ""],
  images: Float[ArrayLike, "*batch height width channels"],
  *,
  strength: Real[ArrayLike, ""] = 0.1,
) -> Float[Array, "*batch height width channels"]:
  """Moves each image's hue by one angle, uniform in [-strength, strength] turns.

  The hue is that of HSV. The largest and the smallest of the three channels stay. Grey
  pixels stay too; the derivative is finite there although hue has none.

  Args:
    key: draws the angle.
    images: [..., height, width, 3], RGB, floating, in [0, 1].
    strength: largest part of a turn to either side, in [0, 0.5], may be traced.

  Returns:
    The shape and dtype of `images`, in [0, 1].

  Raises:
    ValueError: not 3 channels; a strength outside [0, 0.5].
    TypeError: images not floating.

  Differentiable in: images, strength. Cost: O(pixels).

  Source: Smith 1978, "Color gamut transform pairs" (HSV); the default is that of Chen
  et al. 2020, "A simple framework for contrastive learning", at half strength.

  Example:
    >>> red = jnp.array([1.0, 0.0, 0.0]).reshape(1, 1, 3)
    >>> spherejax.data.random_hue(jax.random.key(0), red, strength=0).ravel()
    Array([1., 0., 0.], dtype=float32)
  """
  _checks.key("key", key)
  images = _colour_images(images)
  _checks.between("strength", strength, 0, 0.5)

  def turn(key: Array, image: Array) -> Array:
    planes = _planes(image)
    return _images(_turn_hue(planes, 6 * change(key, strength, planes.dtype)), image)

  return per_image(turn, key, images)


def color_jitter(
  key: Key[Array, ""],
  images: Float[ArrayLike, "*batch height width channels"],
  *,
  brightness: Real[ArrayLike, ""] = 0.4,
  contrast: Real[ArrayLike, ""] = 0.4,
  saturation: Real[ArrayLike, ""] = 0.4,
  hue: Real[ArrayLike, ""] = 0.1,
  probability: Real[ArrayLike, ""] = 0.8,
) -> Float[Array, "*batch height width channels"]:
  """Changes brightness, contrast, saturation and hue, in a random order per image.

  The changes are `random_brightness`, `random_contrast`, `random_saturation` and
  `random_hue`, each clipped to [0, 1] before the next. All 24 orders are equally
  likely.

  Args:
    key: draws the choice, the order and the strengths.
    images: [..., height, width, 3], RGB, floating, in [0, 1]; or of one channel with
      `saturation=0` and `hue=0`.
    brightness: in [0, 1]; may be traced, as all numbers here.
    contrast: in [0, 1].
    saturation: in [0, 1].
    hue: in [0, 0.5], in turns.
    probability: probability of any change to an image, in [0, 1].

  Returns:
    The shape and dtype of `images`, clipped to [0, 1].

  Raises:
    ValueError: not 3 channels; a number outside its range.
    TypeError: images not floating.

  Differentiable in: images, the four strengths; at 0 the derivative in the hue is given
  as 0. Cost: O(pixels), four passes.

  Source: SSL table 2, strength 0.5; Chen et al. 2020, "A simple framework for
  contrastive learning", appendix A, where strength s stands for 0.8 s three times and
  0.2 s for the hue.

  Example:
    >>> images = jnp.full([8, 32, 32, 3], 0.5)
    >>> spherejax.data.color_jitter(jax.random.key(0), images).shape
    (8, 32, 32, 3)
  """
  _checks.key("key", key)
  images = floating_images(images)
  strengths = (brightness, contrast, saturation, hue)
  check_strengths("", strengths)
  _checks.between("probability", probability, 0, 1)
  _checks.single("probability", probability)
  colourless = all(_compiled.known(is_zero, s) for s in (saturation, hue))
  if images.shape[-1] != 3 and not (images.shape[-1] == 1 and colourless):
    raise ValueError(
      "color_jitter must have images of 3 channels, RGB, or of 1 with saturation=0 and "
      f"hue=0, got shape {images.shape}"
    )

  def jitter(key: Array, image: Array) -> Array:
    planes = _planes(image)
    steps = jitter_steps(key, strengths, probability, planes)
    return _images(jitter_planes(planes, steps), image)

  return per_image(jitter, key, images)


def is_zero(strength: ArrayLike) -> bool:
  """True if a known strength changes nothing."""
  return not np.any(np.asarray(strength))


def check_strengths(prefix: str, strengths: tuple) -> None:
  """Raises ValueError for a number of the jitter outside its range."""
  names = ("brightness", "contrast", "saturation", "hue")
  for name, strength in zip(names, strengths, strict=True):
    _checks.between(f"{prefix}{name}", strength, 0, 0.5 if name == "hue" else 1)
    _checks.single(f"{prefix}{name}", strength)


def jitter_steps(
  key: Array, strengths: tuple, probability: ArrayLike, planes: Array
) -> JitterSteps:
  """Draws the steps for an image; a single channel has no saturation and no hue."""
  order, changes = _draw_jitter(key, strengths, probability, planes.dtype)
  if planes.shape[-2] == 1:
    changes = changes.at[_SATURATION:].set(0)
  step_changes = changes[order]
  zero = jnp.zeros_like(step_changes)
  return JitterSteps(
    scale=1 + jnp.where(order == _HUE, zero, step_changes),
    grey=jnp.where(order == _SATURATION, -step_changes, zero),
    mean=jnp.where(order == _CONTRAST, -step_changes, zero),
    turn=jnp.where(order == _HUE, 6 * step_changes, zero),
  )


def jitter_planes(planes: Array, steps: JitterSteps) -> Array:
  """Applies the four steps to an image [rows, channels, columns]."""

  # A loop, since the compiler would fuse unrolled steps and recompute each for every
  # later read. A step costs one pass in any order: three of the four are a single
  # affine map, and the hue is selected beside it.
  def step(planes: Array, step: JitterSteps) -> tuple[Array, None]:
    shift = step.mean * mean_grey(planes, axis=-2)
    if planes.shape[-2] == 1:
      return jnp.clip(step.scale * planes + shift, 0, 1), None
    changed = step.scale * planes + (step.grey * grey(planes, axis=-2) + shift)
    turned = _turn_hue(planes, step.turn)
    return jnp.where(step.turn != 0, turned, jnp.clip(changed, 0, 1)), None

  return jax.lax.scan(step, planes, steps)[0]


def _draw_jitter(
  key: Array, strengths: tuple, probability: ArrayLike, dtype: jnp.dtype
) -> tuple[Array, Array]:
  """Draws the order [4] of the changes, and their strengths [4], indexed by change."""
  order_key, change_key, chosen_key = jax.random.split(key, 3)
  orders = jnp.asarray(_ORDERS)
  order = orders[jax.random.randint(order_key, (), 0, len(_ORDERS))]
  limits = jnp.stack([jnp.asarray(strength, dtype) for strength in strengths])
  changes = limits * jax.random.uniform(change_key, (4,), dtype, minval=-1)
  chosen = jax.random.uniform(chosen_key) < probability
  return order, jnp.where(chosen, changes, 0)


def _turn_hue(planes: Array, turn: Array) -> Array:
  """Moves the hue of an RGB image [rows, 3, columns] by sixths of a turn.

      channel = min + clip(2 chroma - chroma |hue - centre of the channel|, 0, chroma)

  with the hue in sixths. Only chroma times the hue is needed, so there is no division
  by the chroma, which is 0 at grey pixels.
  """
  red, green, blue = (planes[..., i : i + 1, :] for i in range(3))
  high = jnp.maximum(jnp.maximum(red, green), blue)
  low = jnp.minimum(jnp.minimum(red, green), blue)
  chroma = high - low
  in_red, in_green = high == red, high == green
  rest = jnp.where(in_red, green - blue, jnp.where(in_green, blue - red, red - green))
  sector = jnp.where(in_red, 0.0, jnp.where(in_green, 2.0, 4.0)).astype(planes.dtype)
  centres = jnp.arange(0, 6, 2, dtype=planes.dtype)[:, None]
  centres = jnp.expand_dims(centres, tuple(range(planes.ndim - 2)))
  away = jnp.abs(rest + chroma * (sector + turn - centres))
  # One turn suffices: the hue is within [-1, 5], the turn within [-3, 3].
  away = jnp.minimum(away, jnp.abs(away - 6 * chroma))
  return jnp.clip(low + jnp.clip(2 * chroma - away, 0, chroma), 0, 1)


def _colour_images(images: ArrayLike) -> Array:
  """Checks floating images of three channels."""
  images = floating_images(images)
  if images.shape[-1] != 3:
    raise ValueError(f"images must have 3 channels, RGB, got shape {images.shape}")
  return images


def _planes(image: Array) -> Array:
  """Image as [height, channels, width], at least float32."""
  return _numerics.upcast(jnp.swapaxes(image, -1, -2))


def _images(planes: Array, like: Array) -> Array:
  """Image as [height, width, channels], in the dtype of `like`."""
  return jnp.swapaxes(planes, -1, -2).astype(like.dtype)
