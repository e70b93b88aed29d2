"""The poolings that DML 5.3.5 compares, by name and in its form."""

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from flax import traverse_util
from flax.typing import Collection
from jax import Array
from jax.typing import ArrayLike

from spherejax import models, pooling

TITLES = {
  "gap": "GAP", "gmp": "GMP", "gap_gmp": "GAP+GMP", "cbam": "CBAM", "crow": "CroW",
  "delf": "DeLF", "gemax": "GeMax", "gem": "GeM", "gsop": "GSoP", "otp": "OTP",
  "solar": "SOLAR", "tsmk": "T-SMK", "netvlad": "NetVLAD", "weldon": "WELDON",
  "gsp": "GSP", "gsp_gmp": "GSP+GMP",
}  # fmt: skip
NAMES = tuple(name for name in TITLES if name != "gsp_gmp")
"""Poolings to compare; omits the one that combines two of them."""
WIDE = {"otp_wide": "OTP of 64", "netvlad_wide": "NetVLAD of 64"}
"""Poolings with a long embedding: a vector of the usual dimension for each of 64
prototypes. In the paper, 64 x 128 = 8,192 numbers."""
SUMMED = ("gsp", "gsp_gmp")  # poolings with attributes
AVERAGED = 1024
"""Largest number of training images whose averages are candidates for prototypes."""
PROTOTYPES = 8  # prototypes of OTP, centres of NetVLAD: 8 x 16 = 128 in the paper
MANY_PROTOTYPES = 64  # of `WIDE`
_Place = Literal["before", "after", "none"]


class Headed(nn.Module):
  """A backbone's maps, averaged over positions, and the outputs of a head on them."""

  backbone: Callable[[], Callable[..., Array]]
  head: Callable[[], Callable[[Array], Array]]
  pixels: Callable[[Array], Array] = lambda images: images
  """Function from images to the backbone's inputs."""

  @nn.compact
  def __call__(
    self, images: Array, *, train: bool | None = None
  ) -> tuple[Array, Array]:
    """Features and outputs; `train` is for backbones that normalise batches."""
    options = {} if train is None else {"train": train}
    features = pooling.gap(self.backbone()(self.pixels(images), **options))
    return features, self.head()(features)


class Recipe(NamedTuple):
  """A pooling, and the place of the projection to the embedding."""

  pool: Callable[..., object]  # pooling for `models.EmbeddingHead`
  projection: _Place
  dim: int  # dimension of the projection
  prototypes: str = ""
  """Path to the prototypes, which are chosen after the first part of a training."""
  averages: Callable[[Array], Array] = lambda pooled: pooled
  """Function from pooled vectors to the candidates for prototypes."""
  silent: str = ""  # path to a matrix that is set to 0 for these candidates


def recipe(
  name: str, dim: int, *, prototypes: int, mass: ArrayLike, inverse_temperature: float
) -> Recipe:
  """Returns the pooling of a name; its parameters, if any, are called "pooling".

  `dim` is that of the embedding; the other arguments are for the poolings in `SUMMED`.
  """
  if name == "gsp":
    pool = models.GSP(prototypes, mass, inverse_temperature, name="pooling")
    return Recipe(pool, "before", dim, prototypes="pooling/prototypes")
  if name == "gsp_gmp":
    # Its parent is the pooling, not the network that is being built.
    summed = models.GSP(prototypes, mass, inverse_temperature, parent=None)
    return Recipe(
      models.GSPGMP(dim, summed, name="pooling"),
      "none",
      dim,
      prototypes="pooling/gsp/prototypes",
      silent="pooling/max_projection/kernel",
    )
  if name in _DIVIDED:
    return _DIVIDED[name](dim)
  if name not in _POOLS:
    raise ValueError(
      f"pooling must be one of {', '.join([*TITLES, *WIDE])}, got {name!r}"
    )
  place, pool = _POOLS[name]
  return Recipe(pool(dim), place, dim)


def embedding_dim(name: str, dim: int) -> int:
  """Dimension of the embedding with a pooling, where the usual dimension is `dim`."""
  if name in WIDE:
    return MANY_PROTOTYPES * dim
  # One vector per prototype, all of equal length.
  return dim - dim % PROTOTYPES if name in ("otp", "netvlad") else dim


def with_prototypes(
  recipe: Recipe, params: Collection, pooled: Callable[[Collection], ArrayLike]
) -> Collection:
  """Returns the parameters with prototypes that are chosen among averages.

  `pooled(params)` returns vectors [images, dim] that are pooled with all of the mass.
  """
  if not recipe.prototypes:
    return params
  silent = tuple(recipe.silent.split("/"))
  silenced = traverse_util.path_aware_map(
    lambda path, x: jnp.zeros_like(x) if path == silent else x, params
  )
  points = recipe.averages(jnp.asarray(pooled(silenced)))
  return models.replace_prototypes(params, points, path=recipe.prototypes)


def _otp(prototypes: int, dim: int) -> Recipe:
  """OTP, whose sum over the prototypes is the average (Mialon et al. 2021)."""

  def averages(pooled: Array) -> Array:
    blocks = pooled.reshape(len(pooled), prototypes, -1)
    return blocks.sum(axis=1) / prototypes**0.5

  pool = models.OTP(prototypes, name="pooling")
  return Recipe(pool, "before", dim, "pooling/prototypes", averages)


def _netvlad(centres: int, dim: int) -> Recipe:
  return Recipe(models.NetVLAD(centres, name="pooling"), "before", dim)


_DIVIDED: dict[str, Callable[[int], Recipe]] = {
  "otp": lambda dim: _otp(PROTOTYPES, dim // PROTOTYPES),
  "otp_wide": lambda dim: _otp(MANY_PROTOTYPES, dim),
  "netvlad": lambda dim: _netvlad(PROTOTYPES, dim // PROTOTYPES),
  "netvlad_wide": lambda dim: _netvlad(MANY_PROTOTYPES, dim),
}
_POOLS: dict[str, tuple[_Place, Callable[[int], Callable[..., object]]]] = {
  # The average commutes with the projection, which is cheaper after it.
  "gap": ("after", lambda _: pooling.gap),
  "gmp": ("after", lambda _: pooling.gmp),
  "gap_gmp": ("after", lambda _: pooling.gap_gmp),
  "cbam": (
    "after",
    lambda _: models.CBAM(
      reduction=1, kernel_size=3, use_bias=False, norm="none", name="pooling"
    ),
  ),
  "crow": ("after", lambda _: functools.partial(pooling.crow, soft=True)),
  "delf": ("after", lambda _: models.DeLF(reduction="mean", name="pooling")),
  "gemax": ("after", lambda _: pooling.gemax),
  "gem": ("after", lambda _: models.GeM(name="pooling")),
  "gsop": ("before", lambda _: models.GSoP(centred=False, name="pooling")),
  "solar": (
    "after",
    lambda _: models.SOLAR(
      reduction=1, init_output=nn.initializers.glorot_uniform(), name="pooling"
    ),
  ),
  "tsmk": ("none", lambda dim: models.TSMK(dim, name="pooling")),
  "weldon": ("before", lambda _: functools.partial(pooling.weldon, reduction="sum")),
}
