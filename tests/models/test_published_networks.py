"""Networks whose weights are named as their files name them: Inceptions in NumPy.

`test_torch_weights.py` compares the values of EfficientNet-Lite with torch's.
"""

import functools
import re

import jax
import numpy as np
import pytest

from spherejax import models
from tests.models import oracles

WIDTH = 2  # of the published 64 and 32
NORM = {"scale": "weight", "bias": "bias", "mean": "running_mean"}
NORM["var"] = "running_var"
VALID = (0, 0)


class Network:
  """Units of convolution, BatchNorm and ReLU; weights are drawn at the first use."""

  def __init__(self):
    self.weights = {}
    self.random = np.random.default_rng(1)

  def draw(self, name, shape, low=-0.5):
    value = self.random.uniform(low, low + 1, shape).astype(np.float32)
    self.weights[name] = value
    return np.float64(value)

  def convolve(self, name, x, width, size, stride, pad):
    kernel = self.draw(f"{name}.weight", (width, x.shape[-1], *size))
    return oracles.convolve(x, np.einsum("oihw->hwio", kernel), stride, pad)

  def activate(self, name, x, epsilon):
    """BatchNorm and ReLU."""
    lows = {leaf: 0.5 if leaf in ("scale", "var") else -0.5 for leaf in NORM}
    own = {k: self.draw(f"{name}.{NORM[k]}", x.shape[-1], lows[k]) for k in NORM}
    return np.maximum(oracles.batch_norm(x, own, own, epsilon), 0)


# 1x1, 3x3 after its reduction, two 3x3 after theirs, pooled, channels of the result.
BLOCKS = {
  "3a": (64, (64, 64), (64, 96, 96), 32, 256),
  "3b": (64, (64, 96), (64, 96, 96), 64, 320),
  "3c": (None, (128, 160), (64, 96, 96), None, 576),
  "4a": (224, (64, 96), (96, 128, 128), 128, 576),
  "4b": (192, (96, 128), (96, 128, 128), 128, 576),
  "4c": (160, (128, 160), (128, 160, 160), 128, 608),
  "4d": (96, (128, 192), (160, 192, 192), 128, 608),
  "4e": (None, (128, 192), (192, 256, 256), None, 1056),
  "5a": (352, (192, 320), (160, 224, 224), 128, 1024),
  "5b": (352, (192, 320), (192, 224, 224), 128, 1024),
}


class BNInception(Network):
  """By the names of pretrained-models.pytorch."""

  def unit(self, name, x, channels, size=1, stride=1):
    width = channels * WIDTH // 64
    x = self.convolve(name, x, width, (size, size), stride, None)
    return self.activate(f"{name}_bn", x + self.draw(f"{name}.bias", width), 1e-5)

  def halve(self, x):
    """As many windows as begin within the map, the last cut off at its end."""
    return oracles.pool(x, np.max, 2, (0, 1), -np.inf)

  def block(self, name, x, widths):
    one, three, double, pooled, total = widths
    name, stride = f"inception_{name}", 1 if one else 2
    parts = [self.unit(f"{name}_1x1", x, one)] if one else []
    y = self.unit(f"{name}_3x3_reduce", x, three[0])
    parts.append(self.unit(f"{name}_3x3", y, three[1], 3, stride))
    y = self.unit(f"{name}_double_3x3_reduce", x, double[0])
    y = self.unit(f"{name}_double_3x3_1", y, double[1], 3)
    parts.append(self.unit(f"{name}_double_3x3_2", y, double[2], 3, stride))
    if one:
      y = oracles.pool(x, np.max if name.endswith("5b") else np.mean)
      parts.append(self.unit(f"{name}_pool_proj", y, pooled))
    else:
      parts.append(self.halve(x))
    x = np.concatenate(parts, axis=-1)
    assert x.shape[-1] == total * WIDTH // 64
    return x

  def network(self, x):
    x = self.halve(self.unit("conv1_7x7_s2", x, 64, 7, 2))
    x = self.unit("conv2_3x3_reduce", x, 64)
    x = self.halve(self.unit("conv2_3x3", x, 192, 3))
    for name, widths in BLOCKS.items():
      x = self.block(name, x, widths)
    return x


class InceptionV3(Network):
  """By the names of torchvision."""

  def unit(self, name, x, channels, size=(1, 1), stride=1, pad=None):
    x = self.convolve(f"{name}.conv", x, channels * WIDTH // 32, size, stride, pad)
    return self.activate(f"{name}.bn", x, 1e-3)

  def chain(self, name, x, *layers):
    for number, layer in enumerate(layers, 1):
      x = self.unit(f"{name}_{number}", x, *layer)
    return x

  def pooled(self, m, x, channels):
    return self.unit(f"{m}.branch_pool", oracles.pool(x, np.mean), channels)

  def largest(self, x):
    return oracles.pool(x, np.max, 2, VALID)

  def a(self, m, x, pooled):
    one = self.unit(f"{m}.branch1x1", x, 64)
    five = self.chain(f"{m}.branch5x5", x, (48,), (64, (5, 5)))
    three = self.chain(f"{m}.branch3x3dbl", x, (64,), (96, (3, 3)), (96, (3, 3)))
    return [one, five, three, self.pooled(m, x, pooled)]

  def b(self, m, x, _):
    half = ((3, 3), 2, VALID)
    first = self.unit(f"{m}.branch3x3", x, 384, *half)
    three = self.chain(f"{m}.branch3x3dbl", x, (64,), (96, (3, 3)), (96, *half))
    return [first, three, self.largest(x)]

  def c(self, m, x, c):
    wide, high = (1, 7), (7, 1)
    one = self.unit(f"{m}.branch1x1", x, 192)
    seven = self.chain(f"{m}.branch7x7", x, (c,), (c, wide), (192, high))
    twice = self.chain(
      f"{m}.branch7x7dbl", x, (c,), (c, high), (c, wide), (c, high), (192, wide)
    )
    return [one, seven, twice, self.pooled(m, x, 192)]

  def d(self, m, x, _):
    half = ((3, 3), 2, VALID)
    three = self.chain(f"{m}.branch3x3", x, (192,), (320, *half))
    seven = self.chain(
      f"{m}.branch7x7x3", x, (192,), (192, (1, 7)), (192, (7, 1)), (192, *half)
    )
    return [three, seven, self.largest(x)]

  def e(self, m, x, _):
    def pair(y, stem):
      names = ((f"{m}.{stem}a", (1, 3)), (f"{m}.{stem}b", (3, 1)))
      return [self.unit(name, y, 384, size) for name, size in names]

    one = self.unit(f"{m}.branch1x1", x, 320)
    y = self.unit(f"{m}.branch3x3_1", x, 384)
    three = pair(y, "branch3x3_2")
    y = self.chain(f"{m}.branch3x3dbl", x, (448,), (384, (3, 3)))
    twice = pair(y, "branch3x3dbl_3")
    return [one, *three, *twice, self.pooled(m, x, 192)]

  def network(self, x):
    three = (3, 3)
    x = self.unit("Conv2d_1a_3x3", x, 32, three, 2, VALID)
    x = self.unit("Conv2d_2a_3x3", x, 32, three, 1, VALID)
    x = self.largest(self.unit("Conv2d_2b_3x3", x, 64, three))
    x = self.unit("Conv2d_3b_1x1", x, 80)
    x = self.largest(self.unit("Conv2d_4a_3x3", x, 192, three, 1, VALID))
    for name, block, inner in (
      ("5b", self.a, 32), ("5c", self.a, 64), ("5d", self.a, 64), ("6a", self.b, None),
      ("6b", self.c, 128), ("6c", self.c, 160), ("6d", self.c, 160),
      ("6e", self.c, 192), ("7a", self.d, None), ("7b", self.e, None),
      ("7c", self.e, None),
    ):  # fmt: skip
      x = np.concatenate(block(f"Mixed_{name}", x, inner), axis=-1)
    return x


# Images, the output's shape, and what files hold beside the network. For BNInception
# rows whose halvings meet odd sizes, columns whose halvings meet even ones.
NETWORKS = {
  "bn": (
    models.BNInception(WIDTH), BNInception, (69, 31), (2, 1, 32),
    {"last_linear.weight": np.ones((5, 32)), "last_linear.bias": np.ones(5),
     "conv1_7x7_s2_bn.num_batches_tracked": np.array(3)},
  ),
  "v3": (
    models.InceptionV3(WIDTH), InceptionV3, (123, 107), (2, 2, 128),
    {"fc.bias": np.ones(3), "AuxLogits.conv0.conv.weight": np.ones((2, 3, 1, 1))},
  ),
}  # fmt: skip


@functools.cache
def published(name):
  """An image, weights by their names in the file, the result, and shapes of ours."""
  ours, oracle, sides, _, _ = NETWORKS[name]
  image = np.random.default_rng(0).normal(size=(1, *sides, 3)).astype(np.float32)
  theirs = oracle()
  expected = theirs.network(np.float64(image))
  shapes = jax.eval_shape(ours.init, jax.random.key(0), image)
  return image, theirs.weights, expected, shapes


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_of_the_file_give_the_values(name):
  network, _, _, shape, more = NETWORKS[name]
  image, weights, expected, shapes = published(name)
  assert len(weights) == {"bn": 69 * 6, "v3": 94 * 5}[name]
  variables = models.import_weights(shapes, weights | more)
  found = jax.jit(network.apply)(variables, image)
  assert found.shape == expected.shape == (1, *shape)
  assert (expected > 0).mean() > 0.2
  assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()


def test_rows_for_vectors():
  _, weights, _, shapes = published("bn")
  rows = {n: w[None] if "_bn." in n else w for n, w in weights.items()}
  found, expected = (models.import_weights(shapes, w) for w in (rows, weights))
  jax.tree.map(np.testing.assert_array_equal, found, expected)
  columns = {n: w[:, None] if "2_3x3_bn." in n else w for n, w in weights.items()}
  with pytest.raises(ValueError, match=r"4 have another shape.*gives \(6, 1\)"):
    models.import_weights(shapes, columns)


IMAGES = np.random.default_rng(0).normal(size=(2, 37, 34, 3)).astype(np.float32)
NARROW = models.EfficientNetLite(width=0.1, depth=0.3)
CONVOLUTIONS = {"expand": "conv_pw", "depthwise": "conv_dw", "project": "conv_pwl"}


def file_name(path, timm, blocks):
  """Name of a module in a file; `blocks` lists our blocks in order."""
  part = path[-1]
  kind, norm = part.removesuffix("_norm"), part.endswith("_norm")
  if kind in ("stem", "head"):
    part = f"bn{(kind == 'head') + timm}" if norm else f"conv_{kind}"
    return part if timm else f"_{part}"
  stage, block = map(int, re.findall(r"\d+", path[0]))
  number = [*CONVOLUTIONS].index(kind)
  if not timm:
    part = f"_bn{number}" if norm else f"_{kind}_conv"
    return f"_blocks.{blocks.index(path[0])}.{part}"
  # The first stage has nothing to expand, and its last convolution the first's name.
  names = ["", "conv_dw", "conv_pw"] if stage == 1 else [*CONVOLUTIONS.values()]
  part = f"bn{number + (stage > 1)}" if norm else names[number]
  return f"blocks.{stage - 1}.{block}.{part}"


@pytest.mark.parametrize("timm", [False, True])
def test_names_of_files_lead_to_the_same(timm):
  network = models.EfficientNetLite(0.1, 1.1)
  variables = oracles.random_variables(network, IMAGES)
  blocks = sorted(name for name in variables["params"] if name.startswith("stage"))
  weights, leaves = {}, NORM | {"kernel": "weight"}
  for path, leaf in jax.tree.leaves_with_path(variables):
    *modules, last = [entry.key for entry in path[1:]]
    array = leaf.transpose(3, 2, 0, 1) if leaf.ndim == 4 else leaf
    weights[f"{file_name(modules, timm, blocks)}.{leaves[last]}"] = array
  heads = {"classifier.weight" if timm else "_fc.weight": np.ones((9, 1280))}
  found = models.import_weights(variables, weights | heads)
  jax.tree.map(np.testing.assert_array_equal, found, variables)


def test_statistics_move_by_a_hundredth():
  variables = oracles.random_variables(NARROW, IMAGES)

  @jax.jit
  def run(variables):  # compiles the first convolution alone
    _, moved = NARROW.apply(variables, IMAGES, train=True, mutable="batch_stats")
    return moved["batch_stats"]["stem_norm"]["var"]

  step = np.abs(run(variables) / variables["batch_stats"]["stem_norm"]["var"] - 0.99)
  assert np.all((step > 0) & (step < 0.5))


def test_parts_one_after_another_are_the_network():
  variables = oracles.random_variables(NARROW, IMAGES)
  expected = jax.jit(NARROW.apply)(variables, IMAGES)
  x, names = IMAGES, []
  for parts in ((0, 1), (1, 7), (7, 9)):
    part = NARROW.clone(parts=parts)
    names += jax.eval_shape(part.init, jax.random.key(0), x)["params"]
    x = jax.jit(part.apply)(variables, x)
  np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
  assert sorted(names) == sorted(variables["params"])  # each once
