"""Features of a frozen ImageNet network, which replace the images.

The network sees each image once. Training starts from its features, which is cheap
enough for a CPU.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from spherejax import data, models, training

NETWORK = "efficientnet_lite0"
DIRECTIONS = 512  # principal directions that are kept of the 1280 features


@dataclasses.dataclass(frozen=True, eq=False)
class Features(data.Images):
  """Feature vectors in the place of the images, float32 [count, dim]."""

  images: np.ndarray

  def __post_init__(self) -> None:
    """Checks nothing: features are no pixels."""


def stored(
  path: pathlib.Path,
  network: models.PretrainedNetwork,
  see: Callable[[np.ndarray], ArrayLike],
  images: data.Images,
  **made_with: str,
) -> np.ndarray:
  """Maps all images through the network once, and keeps the result in a file."""

  def see_in_colour(pixels: np.ndarray) -> ArrayLike:
    return see(np.broadcast_to(pixels, (*pixels.shape[:-1], 3)))  # if they are grey

  path.parent.mkdir(parents=True, exist_ok=True)
  inputs = {"network": NETWORK, "variables": network.variables, **made_with}
  return training.keep_features(
    path, see_in_colour, images, made_with=inputs, batch_size=32
  )


def pooled(name: str, images: data.Images, folder: pathlib.Path) -> Features:
  """Means of the network's maps, computed once and kept in the folder."""
  network = models.pretrained(NETWORK)

  def means(pixels: np.ndarray) -> np.ndarray:
    return np.asarray(jnp.mean(network.features(pixels), axis=(1, 2)))

  path = folder / f"{name}-{len(images)}-{NETWORK}.npy"
  features = stored(path, network, means, images, pooling="mean")
  rows = np.asarray(features, np.float32)
  return Features(rows, images.labels, images.label_names, images.extras)


def projected(parts: Sequence[Features]) -> list[Features]:
  """Projects all parts on the first part's principal directions, without centring."""
  first = parts[0].images
  basis = np.linalg.eigh(first.T @ first)[1][:, : -DIRECTIONS - 1 : -1]
  return [dataclasses.replace(part, images=part.images @ basis) for part in parts]
