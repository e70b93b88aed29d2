"""Inception networks in torch with the parameter names of their sources."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class Unit(nn.Module):
  """Convolution and norm, as in Inception."""

  def __init__(self, old: int, new: int, size: tuple[int, int], stride: int, pad: bool):
    super().__init__()
    padding = (size[0] // 2, size[1] // 2) if pad else 0
    self.conv = nn.Conv2d(old, new, size, stride, padding, bias=False)
    self.bn = nn.BatchNorm2d(new, eps=0.001)

  def forward(self, x: Tensor) -> Tensor:
    return functional.relu(self.bn(self.conv(x)))


class Mixed(nn.Module):
  """Block of Inception v3, from a table of its units.

  A row is (name, name of its input or "" for the block's input, width, size, stride).
  The input "pool" is the 3x3 average pooling. `ends` are concatenated; "max" is the 3x3
  max pooling with stride 2.
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
    outputs = {"": x, "pool": functional.avg_pool2d(x, 3, 1, 1)}
    if "max" in self.ends:
      outputs["max"] = functional.max_pool2d(x, 3, 2)
    for name, source, *_ in self.rows:
      outputs[name] = getattr(self, name)(outputs[source])
    return torch.cat([outputs[end] for end in self.ends], 1)


_ONE, _THREE, _WIDE, _HIGH = (1, 1), (3, 3), (1, 7), (7, 1)


def _chain(
  name: str, widths: Sequence[int], sizes: Sequence[tuple], stride: int = 1
) -> list[tuple]:
  """Rows of units, each of which is the input of the next; the last has the stride."""
  names = [f"{name}_{number}" for number in range(1, len(widths) + 1)]
  strides = [1] * (len(widths) - 1) + [stride]
  return list(zip(names, ["", *names[:-1]], widths, sizes, strides, strict=True))


def _mixed(old: int, kind: str, c: int, of: Callable[[int], int]) -> Mixed:
  """Builds a block with the names of torchvision; `of` narrows the widths."""
  doubled = (64, 96, 96), (_ONE, _THREE, _THREE)
  if kind == "a":
    rows = [
      ("branch1x1", "", 64, _ONE, 1),
      *_chain("branch5x5", (48, 64), (_ONE, (5, 5))),
      *_chain("branch3x3dbl", *doubled),
      ("branch_pool", "pool", c, _ONE, 1),
    ]
    ends = ["branch1x1", "branch5x5_2", "branch3x3dbl_3", "branch_pool"]
  elif kind == "b":
    rows = [
      ("branch3x3", "", 384, _THREE, 2),
      *_chain("branch3x3dbl", *doubled, stride=2),
    ]
    ends = ["branch3x3", "branch3x3dbl_3", "max"]
  elif kind == "c":
    rows = [
      ("branch1x1", "", 192, _ONE, 1),
      *_chain("branch7x7", (c, c, 192), (_ONE, _WIDE, _HIGH)),
      *_chain("branch7x7dbl", (c, c, c, c, 192), (_ONE, _HIGH, _WIDE, _HIGH, _WIDE)),
      ("branch_pool", "pool", 192, _ONE, 1),
    ]
    ends = ["branch1x1", "branch7x7_3", "branch7x7dbl_5", "branch_pool"]
  elif kind == "d":
    rows = [
      *_chain("branch3x3", (192, 320), (_ONE, _THREE), stride=2),
      *_chain("branch7x7x3", [192] * 4, (_ONE, _WIDE, _HIGH, _THREE), stride=2),
    ]
    ends = ["branch3x3_2", "branch7x7x3_4", "max"]
  else:
    rows = [
      ("branch1x1", "", 320, _ONE, 1),
      ("branch3x3_1", "", 384, _ONE, 1),
      ("branch3x3_2a", "branch3x3_1", 384, (1, 3), 1),
      ("branch3x3_2b", "branch3x3_1", 384, (3, 1), 1),
      *_chain("branch3x3dbl", (448, 384), (_ONE, _THREE)),
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
  """Inception v3 as in torchvision, without the auxiliary classifier."""

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


# Widths: 1x1, (reduction, 3x3), (reduction, double 3x3), pooling. Stride 2 without 1x1.
_BN_BLOCKS = (
  ("3a", 64, (64, 64), (64, 96), 32), ("3b", 64, (64, 96), (64, 96), 64),
  ("3c", 0, (128, 160), (64, 96), 0), ("4a", 224, (64, 96), (96, 128), 128),
  ("4b", 192, (96, 128), (96, 128), 128), ("4c", 160, (128, 160), (128, 160), 128),
  ("4d", 96, (128, 192), (160, 192), 128), ("4e", 0, (128, 192), (192, 256), 0),
  ("5a", 352, (192, 320), (160, 224), 128), ("5b", 352, (192, 320), (192, 224), 128),
)  # fmt: skip


class BNInception(nn.Module):
  """BN-Inception with the flat layer names of pretrained-models.pytorch.

  Modules without parameters are named after their unit ("_relu") or block ("_output").
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
    for block, single, three, double, pooled in _BN_BLOCKS:
      name, stride = f"inception_{block}", 1 if single else 2
      reduced = add(f"{name}_3x3_reduce", channels, three[0])
      total = add(f"{name}_3x3", reduced, three[1], 3, stride)
      reduced = add(f"{name}_double_3x3_reduce", channels, double[0])
      wider = add(f"{name}_double_3x3_1", reduced, double[1], 3)
      total += add(f"{name}_double_3x3_2", wider, double[1], 3, stride)
      if single:
        total += add(f"{name}_1x1", channels, single)
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
    reduced, pooled = (
      self.unit(f"{name}_1x1", x),
      self.unit(f"{name}_pool_proj", pool(x)),
    )
    return torch.cat([reduced, three, double, pooled], 1)

  def forward(self, x: Tensor) -> Tensor:
    x = self.unit("conv2_3x3_reduce", self.halve(self.unit("conv1_7x7_s2", x)))
    x = self.halve(self.unit("conv2_3x3", x))
    for block, single, *_ in _BN_BLOCKS:
      pool = self.mean if single else self.halve
      pool = self.max if block == "5b" else pool
      x = self.block(f"inception_{block}", x, pool)
      x = getattr(self, f"inception_{block}_output")(x)
    return x
