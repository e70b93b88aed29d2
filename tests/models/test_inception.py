"""Inception v3 against a forward pass by scipy, with weights named by torchvision."""

import jax
import numpy as np
import pytest
from scipy.signal import correlate

from spherejax import models

WIDTH = 2  # of the published 32
IMAGE = np.random.default_rng(0).normal(size=(1, 123, 107, 3)).astype(np.float32)


class Oracle:
  """Units by their names in torchvision; their weights are drawn at the first use."""

  def __init__(self):
    self.weights = {}
    self.random = np.random.default_rng(1)

  def draw(self, name, shape, low):
    value = self.random.uniform(low, low + 1, shape).astype(np.float32)
    self.weights[name] = value
    return np.float64(value)

  def unit(self, name, x, channels, size=(1, 1), stride=1, pad=None):
    width = channels * WIDTH // 32
    kernel = self.draw(f"{name}.conv.weight", (width, x.shape[-1], *size), -0.5)
    high, wide = pad or (0, 0)
    x = np.pad(x, [(0, 0), (high, high), (wide, wide), (0, 0)])
    kernel = kernel.transpose(0, 2, 3, 1)
    maps = [correlate(x, one[None], "valid", method="direct") for one in kernel]
    x = np.concatenate(maps, -1)[:, ::stride, ::stride]
    scale, bias, mean, var = (
      self.draw(f"{name}.bn.{leaf}", width, low)
      for leaf, low in (
        ("weight", 0.5), ("bias", -0.5), ("running_mean", -0.5), ("running_var", 0.5),
      )
    )  # fmt: skip
    return np.maximum((x - mean) / np.sqrt(var + 1e-3) * scale + bias, 0)

  def chain(self, name, x, *layers):
    for number, layer in enumerate(layers, 1):
      x = self.unit(f"{name}_{number}", x, *layer)
    return x

  def a(self, m, x, pooled):
    one = self.unit(f"{m}.branch1x1", x, 64)
    five = self.chain(f"{m}.branch5x5", x, (48,), (64, (5, 5), 1, (2, 2)))
    around = (96, (3, 3), 1, (1, 1))
    three = self.chain(f"{m}.branch3x3dbl", x, (64,), around, around)
    return [one, five, three, self.unit(f"{m}.branch_pool", mean(x), pooled)]

  def b(self, m, x, _):
    half = ((3, 3), 2)
    first = self.unit(f"{m}.branch3x3", x, 384, *half)
    around = (96, (3, 3), 1, (1, 1))
    three = self.chain(f"{m}.branch3x3dbl", x, (64,), around, (96, *half))
    return [first, three, largest(x)]

  def c(self, m, x, c):
    wide, high = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    one = self.unit(f"{m}.branch1x1", x, 192)
    seven = self.chain(f"{m}.branch7x7", x, (c,), (c, *wide), (192, *high))
    twice = self.chain(
      f"{m}.branch7x7dbl", x, (c,), (c, *high), (c, *wide), (c, *high), (192, *wide)
    )
    return [one, seven, twice, self.unit(f"{m}.branch_pool", mean(x), 192)]

  def d(self, m, x, _):
    half, wide, high = ((3, 3), 2), ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    three = self.chain(f"{m}.branch3x3", x, (192,), (320, *half))
    seven = self.chain(
      f"{m}.branch7x7x3", x, (192,), (192, *wide), (192, *high), (192, *half)
    )
    return [three, seven, largest(x)]

  def e(self, m, x, _):
    wide, high = ((1, 3), 1, (0, 1)), ((3, 1), 1, (1, 0))
    one = self.unit(f"{m}.branch1x1", x, 320)
    y = self.unit(f"{m}.branch3x3_1", x, 384)
    three = [
      self.unit(f"{m}.branch3x3_2a", y, 384, *wide),
      self.unit(f"{m}.branch3x3_2b", y, 384, *high),
    ]
    y = self.chain(f"{m}.branch3x3dbl", x, (448,), (384, (3, 3), 1, (1, 1)))
    twice = [
      self.unit(f"{m}.branch3x3dbl_3a", y, 384, *wide),
      self.unit(f"{m}.branch3x3dbl_3b", y, 384, *high),
    ]
    return [one, *three, *twice, self.unit(f"{m}.branch_pool", mean(x), 192)]

  def network(self, x):
    three = (3, 3)
    x = self.unit("Conv2d_1a_3x3", x, 32, three, 2)
    x = self.unit("Conv2d_2a_3x3", x, 32, three)
    x = largest(self.unit("Conv2d_2b_3x3", x, 64, three, 1, (1, 1)))
    x = self.unit("Conv2d_3b_1x1", x, 80)
    x = largest(self.unit("Conv2d_4a_3x3", x, 192, three))
    for name, block, inner in (
      ("5b", self.a, 32), ("5c", self.a, 64), ("5d", self.a, 64), ("6a", self.b, None),
      ("6b", self.c, 128), ("6c", self.c, 160), ("6d", self.c, 160),
      ("6e", self.c, 192), ("7a", self.d, None), ("7b", self.e, None),
      ("7c", self.e, None),
    ):  # fmt: skip
      x = np.concatenate(block(f"Mixed_{name}", x, inner), axis=-1)
    return x


def windows(x, stride):
  rows, columns = ((n - 3) // stride + 1 for n in x.shape[1:3])
  return np.stack(
    [
      x[:, i : i + stride * rows : stride, j : j + stride * columns : stride][
        :, :rows, :columns
      ]
      for i in range(3)
      for j in range(3)
    ]
  )


def largest(x):
  return windows(x, 2).max(0)


def mean(x):
  return windows(np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)]), 1).mean(0)


def test_weights_of_torchvision_give_the_values():
  oracle = Oracle()
  expected = oracle.network(np.float64(IMAGE))
  network = models.InceptionV3(width=WIDTH)
  shapes = jax.eval_shape(network.init, jax.random.key(0), IMAGE)
  head = {"fc.bias": np.ones(3), "AuxLogits.conv0.conv.weight": np.ones((2, 3, 1, 1))}
  variables = models.import_weights(shapes, oracle.weights | head)
  found = jax.jit(network.apply)(variables, IMAGE)
  assert found.shape == (1, 2, 2, 128)
  gap = np.abs(np.asarray(found) - expected).max()
  assert gap < 2e-5 * np.abs(expected).max()


def test_published_size_and_training():
  network = models.InceptionV3()
  images = jax.ShapeDtypeStruct((1, 299, 299, 3), np.float32)
  output, variables = jax.eval_shape(
    network.init_with_output, jax.random.key(0), images
  )
  assert output.shape == (1, 8, 8, 2048)
  size = sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))
  assert size + 2049 * 1000 == 23_834_568  # with the classifier of ImageNet
  _, moved = jax.eval_shape(
    lambda v, x: network.apply(v, x, train=True, mutable=["batch_stats"]),
    variables,
    images,
  )
  assert jax.tree.structure(moved["batch_stats"]) == jax.tree.structure(
    variables["batch_stats"]
  )


def test_errors(unchecked):
  def start(shape=(1, 75, 75, 3), width=2):
    images = jax.ShapeDtypeStruct(shape, np.float32)
    jax.eval_shape(models.InceptionV3(width).init, jax.random.key(0), images)

  start()
  with pytest.raises(ValueError, match=r"at least 75x75, got shape \(1, 75, 74, 3\)"):
    start((1, 75, 74, 3))
  with pytest.raises(ValueError, match="even and positive, got 3"):
    start(width=3)
