"""Networks that embed the images of a page."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import distances, models
from spherejax.training import _manifest


class Outputs(NamedTuple):
  """Outputs of a network for a batch of images.

  Attributes:
    embeddings: [batch, dim], floating.
    weights: [batch, rows, columns], share of a pooling for each place; None where the
      page is to show no weights.
    prototypes: [batch, prototypes], share of each prototype; None where the page is to
      show no prototypes.
  """

  embeddings: Array
  weights: Array | None = None
  prototypes: Array | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Embedder:
  """A network of your own for `main`, with the preparation of its images.

  Attributes:
    name: of the network, for the page's title.
    variables: of the network, any tree of arrays.
    prepare: function from an image, uint8 [height, width, 1 or 3], to uint8 of one
      shape. Called on several threads.
    apply: function from the variables and a batch of prepared images to `Outputs`;
      compiled once.
    settings: text that changes with whatever else changes an embedding. Stored features
      are computed again if the name, the settings or the variables differ.

  Example:
    >>> means = spherejax.explorer.Embedder(
    ...     "mean colours",
    ...     {"scale": jnp.float32(255)},
    ...     lambda image: image[:8, :8],
    ...     lambda variables, images: spherejax.explorer.Outputs(
    ...         images.mean(axis=(1, 2)) / variables["scale"]
    ...     ),
    ... )
    >>> means(np.full((1, 8, 8, 3), 51, np.uint8)).embeddings
    Array([[0.2, 0.2, 0.2]], dtype=float32)
  """

  name: str
  variables: Any = dataclasses.field(repr=False)
  prepare: Callable[[np.ndarray], np.ndarray]
  apply: Callable[[Any, Array], Outputs]
  settings: str = ""

  def __call__(self, images: Any) -> Outputs:
    """Returns the outputs for prepared images."""
    return _apply(self.apply, self.variables, jnp.asarray(images))

  @functools.cached_property
  def identity(self) -> str:
    """Text that changes with whatever changes an embedding."""
    return f"{self.name} {self.settings} {_manifest.digest(self.variables)}"


@functools.partial(jax.jit, static_argnums=0)
def _apply(apply: Callable, variables: Any, images: Array) -> Outputs:
  return apply(variables, images)


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

  def apply(variables: Any, images: Array) -> Outputs:
    maps = dataclasses.replace(network, variables=variables).features(images)
    return Outputs(distances.l2_normalize(jnp.mean(maps, axis=(1, 2))))

  scale = f"{network.side} {network.mean} {network.deviation}"
  return Embedder(name, network.variables, prepare, apply, scale)
