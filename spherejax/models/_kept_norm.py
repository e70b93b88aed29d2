"""Batch normalisation inside a pooling, over the kept positions."""

from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

Norm = Literal["batch", "none"]


def batch_norm(
  place: str, x: Array, mask: Array, *, train: bool, axis_name: str | None
) -> Array:
  """Normalises x; call it in a compact method, `place` names the submodule.

  Masked positions, which hold 0, do not count in the statistics. Statistics of no
  position would be NaN, so in a batch without a kept position all positions count.
  """
  norm = nn.BatchNorm(
    use_running_average=not train, momentum=0.9, axis_name=axis_name, name=place
  )
  return norm(x, mask=mask | ~jnp.any(mask))
