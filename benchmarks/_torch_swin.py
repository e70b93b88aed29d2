"""Swin transformers in torch with the parameter names of torchvision."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


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
        regions = region[window].flatten()
        scores = scores - 100.0 * (regions[:, None] != regions[None]).to(scores)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(cells.shape)
        result[:, window[0], window[1]] = y.reshape(len(x), size, size, channels)
    result = torch.roll(self.proj(result), (down, right), (1, 2))
    return result[:, :height, :width]


class SwinBlock(nn.Module):
  """Attention and two layers, each after a norm and with a shortcut."""

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
  """Concatenates four neighbours: down first, then right."""

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
  """Swin as in torchvision; activations are [batch, height, width, channels]."""

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
