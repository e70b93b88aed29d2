"""Swin transformer: attention within windows that shift from block to block."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from spherejax import _checks, _numerics
from spherejax.models._backbones import as_images, same_length

_SMALL = nn.initializers.truncated_normal(0.02)


def _relative_positions(window: int) -> np.ndarray:
  """Index [window^2, window^2] of each pair's bias among (2 window - 1)^2."""
  cells = np.indices((window, window)).reshape(2, -1)
  rows, columns = cells[:, :, None] - cells[:, None] + window - 1
  return rows * (2 * window - 1) + columns


def _regions(shape: tuple[int, int], window: int, shifts: tuple[int, int]) -> Array:
  """Region number of each cell of a shifted map: only equal regions see each other."""
  parts = []
  for extent, shift in zip(shape, shifts, strict=True):
    cell = jnp.arange(extent)
    part = jnp.where(cell < extent - window, 0, jnp.where(cell < extent - shift, 1, 2))
    parts.append(part if shift else jnp.zeros_like(part))
  return 3 * parts[0][:, None] + parts[1][None]


def _split(x: Array, window: int) -> Array:
  """Splits [batch, height, width, ...] into [batch, windows, window^2, ...]."""
  batch, height, width, *rest = x.shape
  grid = (height // window, window, width // window, window)
  cut = x.reshape(batch, *grid, *rest).swapaxes(2, 3)
  return cut.reshape(batch, -1, window * window, *rest)


def _join(x: Array, window: int, shape: tuple[int, int]) -> Array:
  """Inverts `_split`."""
  height, width = shape
  grid = (height // window, width // window, window, window)
  return (
    x.reshape(len(x), *grid, x.shape[-1])
    .swapaxes(2, 3)
    .reshape(len(x), height, width, x.shape[-1])
  )


class _WindowAttention(nn.Module):
  """Attention among the cells of a window, with a bias for relative positions."""

  heads: int
  window: int
  shift: int

  @nn.compact
  def __call__(self, x: Array) -> Array:
    height, width, channels = x.shape[1:]
    missing = [-extent % self.window for extent in (height, width)]
    x = jnp.pad(x, [(0, 0), (0, missing[0]), (0, missing[1]), (0, 0)])
    shape = (x.shape[1], x.shape[2])
    shifts = (
      self.shift if shape[0] > self.window else 0,
      self.shift if shape[1] > self.window else 0,
    )
    x = jnp.roll(x, (-shifts[0], -shifts[1]), axis=(1, 2))
    cells = _split(x, self.window)
    qkv = nn.Dense(3 * channels, kernel_init=_SMALL, dtype=x.dtype, name="qkv")(cells)
    query, key, value = jnp.moveaxis(
      qkv.reshape(*cells.shape[:3], 3, self.heads, channels // self.heads), 3, 0
    )
    scores = jnp.einsum(
      "bwihd,bwjhd->bwhij",
      query * (channels // self.heads) ** -0.5,
      key,
      preferred_element_type=_numerics.compute_dtype(x.dtype),
    )
    cells_apart = (2 * self.window - 1) ** 2
    table = self.param("relative_bias", _SMALL, (cells_apart, self.heads))
    bias = jnp.moveaxis(table[_relative_positions(self.window)], -1, 0)
    scores += bias.astype(scores.dtype)[None, None]
    if any(shifts):
      regions = _split(
        _regions(shape, self.window, shifts)[None, ..., None], self.window
      )
      together = regions == jnp.swapaxes(regions, 2, 3)  # [1, windows, cells, cells]
      scores = jnp.where(together[:, :, None], scores, -jnp.inf)
    weights = jax.nn.softmax(scores).astype(x.dtype)
    cells = jnp.einsum("bwhij,bwjhd->bwihd", weights, value).reshape(cells.shape)
    cells = nn.Dense(channels, kernel_init=_SMALL, dtype=x.dtype, name="out")(cells)
    x = jnp.roll(_join(cells, self.window, shape), shifts, axis=(1, 2))
    return x[:, :height, :width]


def _layer_norm(x: Array, name: str) -> Array:
  return nn.LayerNorm(epsilon=1e-5, dtype=x.dtype, name=name)(x)


class _Block(nn.Module):
  """Transformer block: attention, then two layers per cell, each with a shortcut."""

  heads: int
  window: int
  shift: int
  drop: float

  @nn.compact
  def __call__(self, x: Array, train: bool) -> Array:
    def dropped(y: Array) -> Array:
      # One draw per image keeps or drops the whole branch.
      dropout = nn.Dropout(self.drop, broadcast_dims=(1, 2, 3))
      return dropout(y, deterministic=not train)

    attention = _WindowAttention(self.heads, self.window, self.shift, name="attention")
    x += dropped(attention(_layer_norm(x, "norm1")))
    y = _layer_norm(x, "norm2")
    width = x.shape[-1]
    y = nn.Dense(4 * width, kernel_init=_SMALL, dtype=x.dtype, name="dense1")(y)
    y = nn.gelu(y, approximate=False)
    return x + dropped(
      nn.Dense(width, kernel_init=_SMALL, dtype=x.dtype, name="dense2")(y)
    )


class _Merge(nn.Module):
  """Merges each block of 2x2 cells into one cell of twice the channels."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    height, width, channels = x.shape[1:]
    x = jnp.pad(x, [(0, 0), (0, height % 2), (0, width % 2), (0, 0)])
    corners = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
    x = _layer_norm(jnp.concatenate(corners, axis=-1), "norm")
    dense = nn.Dense(
      2 * channels, use_bias=False, kernel_init=_SMALL, dtype=x.dtype, name="reduction"
    )
    return dense(x)


class SwinT(nn.Module):
  """Feature maps of the tiny Swin transformer.

  Patches of 4x4 pixels become cells of `width` channels. In each stage blocks attend
  within windows of 7x7 cells, every second block in windows shifted by half a window;
  between stages each block of 2x2 cells merges and channels double. A 224x224 image
  gives a 7x7 map of 768 channels. No pooling and no classifier: put `EmbeddingHead` or
  a pooling and a linear layer after it. `import_weights` fills it from files.

  Attributes:
    depths: static. Blocks of each stage.
    heads: static. Heads of the attention of each stage; must divide its channels.
    width: static. Channels of the first stage.
    patch: static. Pixels along a side of a patch.
    window: static. Cells along a side of a window.
    stochastic_depth: static. Probability that the last block's branches are left out
      for an image in training; the probability grows linearly from 0 at the first
      block.
    remat: static. Recomputes the inside of a block for the gradient: memory of one map
      per block, a third more time.

  Call: `(images [batch, height, width, channels], *, train=False)` gives
  [batch, height / (patch 2^(stages - 1)), ..., width 2^(stages - 1)], sizes rounded
  down for patches and up after them. Computes in the dtype of the images: bfloat16
  images give bfloat16 activations, softmax and statistics in float32; the parameters
  stay float32. With `train=True` and stochastic depth a key named "dropout" is
  needed in `rngs`.

  Raises:
    TypeError: images not floating.
    ValueError: images without 4 axes or smaller than a patch, heads not as many as
      depths or not dividing the channels, a probability outside of [0, 1).

  Differentiable in: parameters, images. Cost: 4.5 billion multiplications for a
  224x224 image; 27.5 million parameters.

  Source: Liu et al. 2021, "Swin Transformer: hierarchical vision transformer using
  shifted windows"; DL2P table 3. Any size of image is padded to whole windows with
  zeros that are attended to, as in torchvision.

  Example:
    >>> network = spherejax.models.SwinT()
    >>> images = jnp.zeros((1, 224, 224, 3))
    >>> variables = jax.eval_shape(network.init, jax.random.key(0), images)
    >>> jax.eval_shape(network.apply, variables, images).shape
    (1, 7, 7, 768)
  """

  depths: Sequence[int] = (2, 2, 6, 2)
  heads: Sequence[int] = (3, 6, 12, 24)
  width: int = 96
  patch: int = 4
  window: int = 7
  stochastic_depth: float = 0.2
  remat: bool = False

  @nn.compact
  def __call__(
    self,
    images: Float[ArrayLike, "batch height width channels"],
    *,
    train: bool = False,
  ) -> Float[Array, "batch rows columns features"]:
    """Feature maps of the images."""
    _checks.flag("remat", self.remat)
    x = as_images(images)
    for name in ("width", "patch", "window"):
      _checks.count(name, getattr(self, name))
    _checks.counts("depths", self.depths)
    same_length("heads", self.heads, "depths", len(self.depths))
    if min(x.shape[1:3]) < self.patch:
      raise ValueError(
        f"images must be at least {self.patch}x{self.patch}, got shape {x.shape}"
      )
    _checks.between("stochastic_depth", self.stochastic_depth, 0, 1, high_open=True)
    for stage, heads in enumerate(self.heads):
      if (self.width << stage) % heads:
        raise ValueError(
          f"heads must divide the stages' channels, got {heads} for "
          f"{self.width << stage} channels"
        )
    embed = nn.Conv(
      self.width,
      (self.patch, self.patch),
      strides=self.patch,
      padding="VALID",
      dtype=x.dtype,
      name="embed",
    )
    x = _layer_norm(embed(x), "embed_norm")
    block_class = nn.remat(_Block, static_argnums=(2,)) if self.remat else _Block
    drops = iter(np.linspace(0, self.stochastic_depth, sum(self.depths)).tolist())
    for stage, (depth, heads) in enumerate(
      zip(self.depths, self.heads, strict=True), 1
    ):
      if stage > 1:
        x = _Merge(name=f"merge{stage}")(x)
      for number in range(depth):
        shift = self.window // 2 if number % 2 else 0
        name = f"stage{stage}_{number}"
        x = block_class(heads, self.window, shift, next(drops), name=name)(x, train)
    return _layer_norm(x, "norm")
