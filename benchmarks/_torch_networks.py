"""Residual networks in torch, named as in torchvision, and shared helpers."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import _torch_swin


class Block(nn.Module):
  """Residual block: two 3x3 convolutions, or 1x1, 3x3, 1x1, and the shortcut."""

  def __init__(
    self, old: int, width: int, stride: int, bottleneck: bool, shortcut: str
  ):
    super().__init__()
    new = 4 * width if bottleneck else width
    self.depth = 3 if bottleneck else 2
    if bottleneck:
      self.conv1 = nn.Conv2d(old, width, 1, bias=False)
      self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
      self.conv3 = nn.Conv2d(width, new, 1, bias=False)
      self.bn3 = nn.BatchNorm2d(new)
    else:
      self.conv1 = nn.Conv2d(old, width, 3, stride, 1, bias=False)
      self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
    self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
    self.stride, self.extra = stride, new - old
    self.downsample = None
    if (stride != 1 or self.extra) and shortcut != "padding":
      size = 3 if shortcut == "projection_3x3" else 1
      self.downsample = nn.Sequential(
        nn.Conv2d(old, new, size, stride, size // 2, bias=False), nn.BatchNorm2d(new)
      )

  def forward(self, x: Tensor) -> Tensor:
    y = x
    for layer in range(1, self.depth + 1):
      y = getattr(self, f"bn{layer}")(getattr(self, f"conv{layer}")(y))
      y = functional.relu(y) if layer < self.depth else y
    if self.downsample is not None:
      x = self.downsample(x)
    elif self.extra:
      x = x[:, :, :: self.stride, :: self.stride]
      x = functional.pad(x, (0, 0, 0, 0, self.extra // 2, self.extra // 2))
    return functional.relu(x + y)


class ResNet(nn.Module):
  """ResNet as in torchvision, or with the stem and the shortcuts for CIFAR."""

  def __init__(
    self,
    blocks: Sequence[int],
    widths: Sequence[int],
    *,
    bottleneck: bool = False,
    small: bool = False,
    shortcut: str = "projection",
  ):
    super().__init__()
    self.conv1 = (
      nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
      if small
      else nn.Conv2d(3, widths[0], 7, 2, 3, bias=False)
    )
    self.bn1 = nn.BatchNorm2d(widths[0])
    self.pool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
    channels, self.stages = widths[0], []
    for stage, (count, width) in enumerate(zip(blocks, widths, strict=True), 1):
      layer = nn.Sequential()
      for block in range(count):
        stride = 2 if stage > 1 and block == 0 else 1
        layer.append(Block(channels, width, stride, bottleneck, shortcut))
        channels = 4 * width if bottleneck else width
      setattr(self, f"layer{stage}", layer)
      self.stages.append(f"layer{stage}")
    self.fc = nn.Linear(channels, 10)

  def forward(self, x: Tensor) -> Tensor:
    x = self.pool(functional.relu(self.bn1(self.conv1(x))))
    for stage in self.stages:
      x = getattr(self, stage)(x)
    return x


class PreActivationBlock(nn.Module):
  """Norm, ReLU and a 3x3 convolution, twice; a shortcut begins after the first ReLU."""

  def __init__(self, old: int, width: int, stride: int):
    super().__init__()
    self.bn1, self.bn2 = nn.BatchNorm2d(old), nn.BatchNorm2d(width)
    self.conv1 = nn.Conv2d(old, width, 3, stride, 1, bias=False)
    self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
    self.shortcut = None
    if stride != 1 or old != width:
      self.shortcut = nn.Sequential(nn.Conv2d(old, width, 1, stride, bias=False))

  def forward(self, x: Tensor) -> Tensor:
    active = functional.relu(self.bn1(x))
    residual = x if self.shortcut is None else self.shortcut(active)
    return residual + self.conv2(functional.relu(self.bn2(self.conv1(active))))


class PreActivationResNet(nn.Module):
  """Network for CIFAR of "Identity mappings in deep residual networks"."""

  def __init__(self, blocks: int, widths: Sequence[int]):
    super().__init__()
    self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
    channels, self.stages = widths[0], []
    for stage, width in enumerate(widths, 1):
      layer = nn.Sequential()
      for block in range(blocks):
        stride = 2 if stage > 1 and block == 0 else 1
        layer.append(PreActivationBlock(channels, width, stride))
        channels = width
      setattr(self, f"layer{stage}", layer)
      self.stages.append(f"layer{stage}")
    self.bn = nn.BatchNorm2d(channels)
    self.fc = nn.Linear(channels, 10)

  def forward(self, x: Tensor) -> Tensor:
    x = self.conv1(x)
    for stage in self.stages:
      x = getattr(self, stage)(x)
    return functional.relu(self.bn(x))


def randomize(network: nn.Module, seed: int) -> None:
  """Sets random statistics, scales and shifts, so that none of them is 0 or 1."""
  generator = torch.Generator().manual_seed(seed)

  def uniform(tensor: Tensor, low: float, high: float) -> None:
    tensor.uniform_(low, high, generator=generator)

  with torch.no_grad():
    for module in network.modules():
      if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
        uniform(module.weight, 0.5, 1.5)
        uniform(module.bias, -0.5, 0.5)
      if isinstance(module, nn.BatchNorm2d):
        assert module.running_mean is not None
        assert module.running_var is not None
        uniform(module.running_mean, -0.5, 0.5)
        uniform(module.running_var, 0.5, 1.5)
      if isinstance(module, nn.Linear) and module.bias is not None:
        uniform(module.bias, -0.5, 0.5)


def activations(network: nn.Module, images: np.ndarray) -> dict[str, np.ndarray]:
  """Outputs of all modules by name, channels last, in the precision of the images."""
  outputs: dict[str, np.ndarray] = {}
  handles = []
  for name, module in network.named_modules():

    def keep(_: nn.Module, __: object, output: Tensor, name: str = name) -> None:
      outputs[name] = output.detach().numpy()

    handles.append(module.register_forward_hook(keep))
  inputs = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
  network = network.to(inputs.dtype).eval()
  with torch.no_grad():
    network(inputs)
  for handle in handles:
    handle.remove()
  if not isinstance(network, _torch_swin.Swin):
    outputs = {name: value.transpose(0, 2, 3, 1) for name, value in outputs.items()}
  return outputs
