"""Networks in torch with the parameter names of torchvision, to compare ours with."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
  """Two 3x3 convolutions, or 1x1, 3x3, 1x1, and the shortcut."""

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
  """As in torchvision, or with the stem and the shortcuts for CIFAR."""

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
    kept = x if self.shortcut is None else self.shortcut(active)
    return kept + self.conv2(functional.relu(self.bn2(self.conv1(active))))


class PreActivationResNet(nn.Module):
  """The network for CIFAR of "Identity mappings in deep residual networks"."""

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


class Unit(nn.Module):
  """Convolution and norm as Inception has them."""

  def __init__(self, old: int, new: int, size: tuple[int, int], stride: int, pad: bool):
    super().__init__()
    padding = (size[0] // 2, size[1] // 2) if pad else 0
    self.conv = nn.Conv2d(old, new, size, stride, padding, bias=False)
    self.bn = nn.BatchNorm2d(new, eps=0.001)

  def forward(self, x: Tensor) -> Tensor:
    return functional.relu(self.bn(self.conv(x)))


class Mixed(nn.Module):
  """A block of Inception v3, from a table of its units.

  A row is (name, name of what it is given or "", width, size, stride); what is given
  "pool" sees the mean of 3x3. `ends` are joined, "max" being the halved map.
  """

  def __init__(self, old: int, rows: Sequence[tuple], ends: Sequence[str]):
    super().__init__()
    self.rows, self.ends = rows, ends
    widths = {"": old, "pool": old, "max": old}
    for name, source, width, size, stride in rows:
      setattr(self, name, Unit(widths[source], width, size, stride, stride == 1))
      widths[name] = width
    self.width = sum(widths[end] for end in ends)

  def forward(self, x: Tensor) -> Tensor:
    found = {"": x, "pool": functional.avg_pool2d(x, 3, 1, 1)}
    if "max" in self.ends:
      found["max"] = functional.max_pool2d(x, 3, 2)
    for name, source, *_ in self.rows:
      found[name] = getattr(self, name)(found[source])
    return torch.cat([found[end] for end in self.ends], 1)


_ONE, _THREE, _WIDE, _HIGH = (1, 1), (3, 3), (1, 7), (7, 1)


def _mixed(old: int, kind: str, c: int, of: Callable[[int], int]) -> Mixed:
  """A block with the names of torchvision; `of` makes widths narrower."""
  doubled = [
    ("branch3x3dbl_1", "", 64, _ONE, 1),
    ("branch3x3dbl_2", "branch3x3dbl_1", 96, _THREE, 1),
  ]
  if kind == "a":
    rows = [
      ("branch1x1", "", 64, _ONE, 1),
      ("branch5x5_1", "", 48, _ONE, 1),
      ("branch5x5_2", "branch5x5_1", 64, (5, 5), 1),
      *doubled,
      ("branch3x3dbl_3", "branch3x3dbl_2", 96, _THREE, 1),
      ("branch_pool", "pool", c, _ONE, 1),
    ]
    ends = ["branch1x1", "branch5x5_2", "branch3x3dbl_3", "branch_pool"]
  elif kind == "b":
    rows = [
      ("branch3x3", "", 384, _THREE, 2),
      *doubled,
      ("branch3x3dbl_3", "branch3x3dbl_2", 96, _THREE, 2),
    ]
    ends = ["branch3x3", "branch3x3dbl_3", "max"]
  elif kind == "c":
    rows = [
      ("branch1x1", "", 192, _ONE, 1),
      ("branch7x7_1", "", c, _ONE, 1),
      ("branch7x7_2", "branch7x7_1", c, _WIDE, 1),
      ("branch7x7_3", "branch7x7_2", 192, _HIGH, 1),
      ("branch7x7dbl_1", "", c, _ONE, 1),
      ("branch7x7dbl_2", "branch7x7dbl_1", c, _HIGH, 1),
      ("branch7x7dbl_3", "branch7x7dbl_2", c, _WIDE, 1),
      ("branch7x7dbl_4", "branch7x7dbl_3", c, _HIGH, 1),
      ("branch7x7dbl_5", "branch7x7dbl_4", 192, _WIDE, 1),
      ("branch_pool", "pool", 192, _ONE, 1),
    ]
    ends = ["branch1x1", "branch7x7_3", "branch7x7dbl_5", "branch_pool"]
  elif kind == "d":
    rows = [
      ("branch3x3_1", "", 192, _ONE, 1),
      ("branch3x3_2", "branch3x3_1", 320, _THREE, 2),
      ("branch7x7x3_1", "", 192, _ONE, 1),
      ("branch7x7x3_2", "branch7x7x3_1", 192, _WIDE, 1),
      ("branch7x7x3_3", "branch7x7x3_2", 192, _HIGH, 1),
      ("branch7x7x3_4", "branch7x7x3_3", 192, _THREE, 2),
    ]
    ends = ["branch3x3_2", "branch7x7x3_4", "max"]
  else:
    rows = [
      ("branch1x1", "", 320, _ONE, 1),
      ("branch3x3_1", "", 384, _ONE, 1),
      ("branch3x3_2a", "branch3x3_1", 384, (1, 3), 1),
      ("branch3x3_2b", "branch3x3_1", 384, (3, 1), 1),
      ("branch3x3dbl_1", "", 448, _ONE, 1),
      ("branch3x3dbl_2", "branch3x3dbl_1", 384, _THREE, 1),
      ("branch3x3dbl_3a", "branch3x3dbl_2", 384, (1, 3), 1),
      ("branch3x3dbl_3b", "branch3x3dbl_2", 384, (3, 1), 1),
      ("branch_pool", "pool", 192, _ONE, 1),
    ]
    ends = [
      "branch1x1", "branch3x3_2a", "branch3x3_2b",
      "branch3x3dbl_3a", "branch3x3dbl_3b", "branch_pool",
    ]  # fmt: skip
  return Mixed(old, [(*row[:2], of(row[2]), *row[3:]) for row in rows], ends)


class Inception(nn.Module):
  """Inception v3 as in torchvision, without the auxiliary classifier's part."""

  def __init__(self, width: int = 32):
    super().__init__()

    def of(channels: int) -> int:
      return channels * width // 32

    self.Conv2d_1a_3x3 = Unit(3, of(32), _THREE, 2, False)
    self.Conv2d_2a_3x3 = Unit(of(32), of(32), _THREE, 1, False)
    self.Conv2d_2b_3x3 = Unit(of(32), of(64), _THREE, 1, True)
    self.Conv2d_3b_1x1 = Unit(of(64), of(80), _ONE, 1, False)
    self.Conv2d_4a_3x3 = Unit(of(80), of(192), _THREE, 1, False)
    channels, self.blocks = of(192), []
    for name, kind, inner in (
      ("5b", "a", 32), ("5c", "a", 64), ("5d", "a", 64), ("6a", "b", 0),
      ("6b", "c", 128), ("6c", "c", 160), ("6d", "c", 160), ("6e", "c", 192),
      ("7a", "d", 0), ("7b", "e", 0), ("7c", "e", 0),
    ):  # fmt: skip
      block = _mixed(channels, kind, inner, of)
      setattr(self, f"Mixed_{name}", block)
      self.blocks.append(f"Mixed_{name}")
      channels = block.width
    self.fc = nn.Linear(channels, 10)

  def forward(self, x: Tensor) -> Tensor:
    x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
    x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(functional.max_pool2d(x, 3, 2)))
    x = functional.max_pool2d(x, 3, 2)
    for block in self.blocks:
      x = getattr(self, block)(x)
    return x


# 1x1, 3x3 after its reduction, two 3x3 after theirs, what is pooled; no 1x1: halved.
_BN_BLOCKS = (
  ("3a", 64, (64, 64), (64, 96), 32), ("3b", 64, (64, 96), (64, 96), 64),
  ("3c", 0, (128, 160), (64, 96), 0), ("4a", 224, (64, 96), (96, 128), 128),
  ("4b", 192, (96, 128), (96, 128), 128), ("4c", 160, (128, 160), (128, 160), 128),
  ("4d", 96, (128, 192), (160, 192), 128), ("4e", 0, (128, 192), (192, 256), 0),
  ("5a", 352, (192, 320), (160, 224), 128), ("5b", 352, (192, 320), (192, 224), 128),
)  # fmt: skip


class BNInception(nn.Module):
  """With the names of pretrained-models.pytorch, where all layers lie side by side.

  What has no parameters is called after its unit ("_relu") or its block ("_output").
  """

  def __init__(self, width: int = 64):
    super().__init__()

    def add(name: str, old: int, channels: int, size: int = 1, stride: int = 1) -> int:
      new = channels * width // 64
      setattr(self, name, nn.Conv2d(old, new, size, stride, size // 2))
      setattr(self, f"{name}_bn", nn.BatchNorm2d(new))
      setattr(self, f"{name}_relu", nn.ReLU())
      return new

    self.halve = nn.MaxPool2d(3, 2, ceil_mode=True)
    self.mean = nn.AvgPool2d(3, 1, 1, ceil_mode=True, count_include_pad=True)
    self.max = nn.MaxPool2d(3, 1, 1, ceil_mode=True)
    channels = add("conv1_7x7_s2", 3, 64, 7, 2)
    channels = add("conv2_3x3_reduce", channels, 64)
    channels = add("conv2_3x3", channels, 192, 3)
    for block, one, three, double, pooled in _BN_BLOCKS:
      name, stride = f"inception_{block}", 1 if one else 2
      reduced = add(f"{name}_3x3_reduce", channels, three[0])
      total = add(f"{name}_3x3", reduced, three[1], 3, stride)
      reduced = add(f"{name}_double_3x3_reduce", channels, double[0])
      wider = add(f"{name}_double_3x3_1", reduced, double[1], 3)
      total += add(f"{name}_double_3x3_2", wider, double[1], 3, stride)
      if one:
        total += add(f"{name}_1x1", channels, one)
        total += add(f"{name}_pool_proj", channels, pooled)
      else:
        total += channels
      setattr(self, f"{name}_output", nn.Identity())
      channels = total
    self.last_linear = nn.Linear(channels, 10)

  def unit(self, name: str, x: Tensor) -> Tensor:
    for layer in (name, f"{name}_bn", f"{name}_relu"):
      x = getattr(self, layer)(x)
    return x

  def block(self, name: str, x: Tensor, pool: nn.Module) -> Tensor:
    three = self.unit(f"{name}_3x3", self.unit(f"{name}_3x3_reduce", x))
    double = self.unit(f"{name}_double_3x3_reduce", x)
    for number in (1, 2):
      double = self.unit(f"{name}_double_3x3_{number}", double)
    if pool is self.halve:
      return torch.cat([three, double, pool(x)], 1)
    one, pooled = self.unit(f"{name}_1x1", x), self.unit(f"{name}_pool_proj", pool(x))
    return torch.cat([one, three, double, pooled], 1)

  def forward(self, x: Tensor) -> Tensor:
    x = self.unit("conv2_3x3_reduce", self.halve(self.unit("conv1_7x7_s2", x)))
    x = self.halve(self.unit("conv2_3x3", x))
    for block, one, *_ in _BN_BLOCKS:
      pool = self.mean if one else self.halve
      pool = self.max if block == "5b" else pool
      x = self.block(f"inception_{block}", x, pool)
      x = getattr(self, f"inception_{block}_output")(x)
    return x


class Attention(nn.Module):
  """Attention within windows, by a loop over them."""

  relative_position_index: Tensor

  def __init__(self, width: int, heads: int, window: int, shift: int):
    super().__init__()
    self.heads, self.window, self.shift = heads, window, shift
    self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
    side = 2 * window - 1
    self.relative_position_bias_table = nn.Parameter(torch.randn(side * side, heads))
    index = torch.zeros(window * window, window * window, dtype=torch.int64)
    for i in range(window * window):
      for j in range(window * window):
        rows = i // window - j // window + window - 1
        columns = i % window - j % window + window - 1
        index[i, j] = rows * side + columns
    self.register_buffer("relative_position_index", index.flatten())

  def forward(self, x: Tensor) -> Tensor:
    size, (height, width, channels) = self.window, x.shape[1:]
    x = functional.pad(x, (0, 0, 0, -width % size, 0, -height % size))
    rows, columns = x.shape[1:3]
    down = self.shift if rows > size else 0
    right = self.shift if columns > size else 0
    x = torch.roll(x, (-down, -right), (1, 2))
    region = torch.zeros(rows, columns)
    if down:
      region[-size:-down] += 1
      region[-down:] += 2
    if right:
      region[:, -size:-right] += 3
      region[:, -right:] += 6
    bias = self.relative_position_bias_table[self.relative_position_index]
    bias = bias.reshape(size * size, size * size, self.heads).permute(2, 0, 1)
    result = torch.zeros_like(x)
    for top in range(0, rows, size):
      for left in range(0, columns, size):
        window = (slice(top, top + size), slice(left, left + size))
        cells = x[:, window[0], window[1]].reshape(len(x), size * size, channels)
        parts = self.qkv(cells).chunk(3, -1)
        q, k, v = (
          part.reshape(len(x), size * size, self.heads, -1).transpose(1, 2)
          for part in parts
        )
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1) + bias
        own = region[window].flatten()
        scores = scores - 100.0 * (own[:, None] != own[None]).to(scores)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(cells.shape)
        result[:, window[0], window[1]] = y.reshape(len(x), size, size, channels)
    result = torch.roll(self.proj(result), (down, right), (1, 2))
    return result[:, :height, :width]


class SwinBlock(nn.Module):
  """Attention and two layers, each after a norm and added."""

  def __init__(self, width: int, heads: int, window: int, shift: int):
    super().__init__()
    self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
    self.attn = Attention(width, heads, window, shift)
    self.mlp = nn.Sequential(
      nn.Linear(width, 4 * width),
      nn.GELU(),
      nn.Dropout(0.0),
      nn.Linear(4 * width, width),
      nn.Dropout(0.0),
    )

  def forward(self, x: Tensor) -> Tensor:
    x = x + self.attn(self.norm1(x))
    return x + self.mlp(self.norm2(x))


class Merging(nn.Module):
  """Four neighbours beside each other: down first, then right."""

  def __init__(self, width: int):
    super().__init__()
    self.reduction = nn.Linear(4 * width, 2 * width, bias=False)
    self.norm = nn.LayerNorm(4 * width)

  def forward(self, x: Tensor) -> Tensor:
    x = functional.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
    top, bottom = x[:, 0::2], x[:, 1::2]
    left, right = slice(0, None, 2), slice(1, None, 2)
    parts = (top[:, :, left], bottom[:, :, left], top[:, :, right], bottom[:, :, right])
    return self.reduction(self.norm(torch.cat(parts, -1)))


class _ChannelsLast(nn.Module):
  def forward(self, x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


class Swin(nn.Module):
  """As in torchvision; activations are [batch, height, width, channels]."""

  def __init__(
    self, depths: Sequence[int], heads: Sequence[int], width: int = 96, window: int = 7
  ):
    super().__init__()
    self.features = nn.Sequential(
      nn.Sequential(nn.Conv2d(3, width, 4, 4), _ChannelsLast(), nn.LayerNorm(width))
    )
    for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
      if stage:
        self.features.append(Merging(width))
        width *= 2
      self.features.append(
        nn.Sequential(
          *(
            SwinBlock(width, count, window, window // 2 * (i % 2)) for i in range(depth)
          )
        )
      )
    self.norm = nn.LayerNorm(width)
    self.head = nn.Linear(width, 10)

  def forward(self, x: Tensor) -> Tensor:
    return self.norm(self.features(x))


def randomize(network: nn.Module, seed: int) -> None:
  """Random statistics, scales and shifts, so that none of them is 0 or 1."""
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
  """The output of every module by its name, channels last; images are float64."""
  found: dict[str, np.ndarray] = {}
  handles = []
  for name, module in network.named_modules():

    def keep(_: nn.Module, __: object, output: Tensor, name: str = name) -> None:
      found[name] = output.detach().numpy()

    handles.append(module.register_forward_hook(keep))
  network = network.double().eval()
  with torch.no_grad():
    network(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
  for handle in handles:
    handle.remove()
  if isinstance(network, (ResNet, PreActivationResNet, Inception, BNInception)):
    found = {name: value.transpose(0, 2, 3, 1) for name, value in found.items()}
  return found
