"""Second-order pooling module, with its branches and their normalisation."""

import functools
import math
from typing import Literal

import flax.linen as nn
import jax
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from spherejax import _checks, pooling
from spherejax.models import _kept_norm
from spherejax.models._kept_norm import Norm
from spherejax.pooling._gsop import Fuse

Branches = Literal["both", "channel", "spatial"]


class GSoP(nn.Module):
  """Average of a map whose covariances gate its channels and positions (GSoP).

  Owns `channel` and `spatial`, the fields of two `spherejax.pooling.GSoPBranch`, and
  calls `spherejax.pooling.gsop`. The spatial branch has a row for each position of
  the map it was initialised with, or for each of size x size cells.

  Attributes:
    reduced: static. Number of channels whose covariance is taken.
    hidden: static. Hidden numbers per row of a covariance.
    branches: static. "both", "channel" or "spatial".
    fuse: static. "max" or "sum" of both.
    centred: static. True takes covariances, False products as in DML.
    size: static. Cells along a side that the spatial branch sees; None for the
      positions of the map.
    norm: static. "batch" puts a BatchNorm after each reduction and before the rows, as
      in the original; "none" does not.
    axis_name: static. Device axis over which BatchNorm takes its training statistics,
      where each device counts the same; None takes those of this device's rows.

  Call: `(features, *, where=None, train=False)` with the shapes of
  `spherejax.pooling.gsop`. With `train=True` and BatchNorm, the collection
  "batch_stats" must be mutable; masked positions do not count in it.

  Raises:
    TypeError: features not floating.
    ValueError: features without 3 or 4 axes; unknown settings; a map whose number of
      positions differs from the rows of the parameters.

  Differentiable in: parameters, features. Cost: that of `spherejax.pooling.gsop`.

  Source: Gao et al. 2019, "Global second-order pooling convolutional networks", with
  a size of 8; DML 5.3.5, with `centred=False`. Glorot-uniform kernels, as in the
  authors' implementation of the latter.

  Example:
    >>> module = spherejax.models.GSoP(reduced=2, norm="none")
    >>> features = jnp.ones((1, 2, 2, 3))
    >>> pool = jax.jit(module.init_with_output)
    >>> pool(jax.random.key(0), features)[0].shape
    (1, 3)
  """

  reduced: int = 128
  hidden: int = 4
  branches: Branches = "both"
  fuse: Fuse = "max"
  centred: bool = True
  size: int | None = None
  norm: Norm = "batch"
  axis_name: str | None = None

  @nn.compact
  def __call__(
    self,
    features: Float[ArrayLike, "batch *positions channels"],
    *,
    where: Bool[ArrayLike, "batch *positions"] | None = None,
    train: bool = False,
  ) -> Float[Array, "batch channels"]:
    """Pooled features [batch, channels]."""
    features = _checks.array("features", features, rank=(3, 4))
    for name in ("reduced", "hidden"):
      _checks.count(name, getattr(self, name))
    _checks.one_of("norm", self.norm, Norm)
    _checks.one_of("branches", self.branches, Branches)
    if self.size is not None:
      _checks.count("size", self.size)
    *positions, channels = features.shape[1:]
    rows = math.prod(positions) if self.size is None else self.size**2

    def branch(name: str, side: int, gates: int) -> pooling.GSoPBranch | None:
      if self.branches not in ("both", name):
        return None
      shapes = (
        (channels, self.reduced), (self.reduced,), (side, side, self.hidden),
        (side, self.hidden), (side * self.hidden, gates), (gates,),
      )  # fmt: skip
      return pooling.GSoPBranch(**self.param(name, _draw, shapes))

    normalize = functools.partial(
      _kept_norm.batch_norm, train=train, axis_name=self.axis_name
    )
    return pooling.gsop(
      features,
      branch("channel", self.reduced, channels),
      branch("spatial", rows, rows),
      fuse=self.fuse,
      centred=self.centred,
      size=self.size,
      normalize=normalize if self.norm == "batch" else None,
      where=where,
    )


def _draw(key: Array, shapes: tuple[tuple[int, ...], ...]) -> dict[str, Array]:
  """Glorot-uniform kernels, biases 0, by the names of a branch's fields."""
  names, keys = pooling.GSoPBranch._fields, jax.random.split(key, len(shapes))
  grouped = nn.initializers.glorot_uniform(in_axis=-2, out_axis=-1, batch_axis=0)
  draw = {
    "reduce_kernel": nn.initializers.glorot_uniform(),
    "row_kernel": grouped,  # each row has its own kernel
    "out_kernel": nn.initializers.glorot_uniform(),
  }
  return {
    name: draw.get(name, nn.initializers.zeros)(name_key, shape)
    for name, name_key, shape in zip(names, keys, shapes, strict=True)
  }
