"""The encoder of `projector_collapse` and its projector."""

from typing import Any

import flax.linen as nn
from jax import Array

from spherejax import models, pooling


class Network(nn.Module):
  """Features of the encoder and the projector's outputs."""

  settings: Any
  axis_name: str | None = None

  @nn.compact
  def __call__(self, images: Array, *, train: bool = False) -> tuple[Array, Array]:
    """[batch, features] and [batch, outputs] of normalised images."""
    s = self.settings
    shared: dict[str, Any] = {
      "axis_name": self.axis_name,
      "convolution": s.convolution,
      "name": "encoder",
    }
    if s.encoder == "resnet18":
      encoder = models.ResNet18(stem="small", **shared)
    else:
      encoder = models.ConvNet(s.widths, s.strides, norm="batch", **shared)
    features = pooling.gap(encoder(images, train=train))
    return features, Projector(s.projector, name="projector")(features)


class Projector(nn.Module):
  """Linear layers without biases, ReLU between them."""

  widths: tuple[int, ...]

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """[batch, outputs]."""
    for number, width in enumerate(self.widths):
      x = nn.relu(x) if number else x
      x = nn.Dense(width, use_bias=False, name=f"layer{number}")(x)
    return x


def kernel_of(params: Any) -> Array:
  """[features, outputs], of the projector's first layer."""
  return params["projector"]["layer0"]["kernel"]
