"""Batch normalisation inside a pooling, of the positions that are kept."""

from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

Norm = Literal["batch", "none"]


def batch_norm(
  place: str, x: Array, mask: Array, *, train: bool, axis_name: str | None
) -> Array:
  """Normalised x; call it in a compact method, `place` names the submodule.

  Masked positions, which hold 0, do not count in the statistics. Those over nothing
  would be NaN: of a batch without a kept position all count.
  """
  norm = nn.BatchNorm(
    use_running_average=not train, momentum=0.9, axis_name=axis_name, name=place
  )
  return norm(x, mask=mask | ~jnp.any(mask))
