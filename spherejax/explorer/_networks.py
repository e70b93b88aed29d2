"""Networks that embed the images of a page."""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import distances, models
from spherejax.training import _manifest


class Found(NamedTuple):
  """Output of a network for a batch; weights and prototypes as in `write_page`."""

  embeddings: Array
  weights: Array | None = None
  prototypes: Array | None = None


class Embedder(NamedTuple):
  """Network, and the preparation of its images."""

  name: str
  identity: str
  """Changes with whatever changes an embedding."""
  prepare: Callable[[np.ndarray], np.ndarray]
  """From an image, uint8 [height, width, channels], to uint8 of one shape."""
  apply: Callable[[Array], Found]
  """Embeds prepared images; compiled once."""


def embedder(
  name: str,
  settings: str,
  variables: Any,
  prepare: Callable[[np.ndarray], np.ndarray],
  apply: Callable[[Array], Found],
) -> Embedder:
  """Builds an embedder from settings and variables; compiled at the first call."""
  identity = f"{name} {settings} {_manifest.digest(variables)}"
  return Embedder(name, identity, prepare, jax.jit(apply))


def pretrained(name: str, weights: pathlib.Path | None = None) -> Embedder:
  """Embedder of a network trained on ImageNet: its averaged maps, of norm 1."""
  network = models.pretrained(cast(Any, name), path=weights)

  def prepare(pixels: np.ndarray) -> np.ndarray:
    """Crops the middle of the image."""
    from PIL import Image, ImageOps

    single = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    side = network.side, network.side
    fitted = ImageOps.fit(single.convert("RGB"), side, Image.Resampling.BICUBIC)
    return np.asarray(fitted)

  def apply(images: Array) -> Found:
    means = jnp.mean(network.features(images), axis=(1, 2))
    return Found(distances.l2_normalize(means))

  scale = f"{network.side} {network.mean} {network.deviation}"
  return embedder(name, scale, network.variables, prepare, apply)
