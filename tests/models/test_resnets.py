"""ResNets against a forward pass by NumPy in float64."""

import functools

import jax
import numpy as np
import pytest

from spherejax import models
from tests.models import oracles

IMAGES = np.random.default_rng(0).normal(size=(2, 14, 11, 3)).astype(np.float32)
SMALL = {"blocks": (2, 1), "widths": (2, 4), "strides": (1, 2)}


class Oracle:
  """Convolutions and norms with the parameters of one module."""

  def __init__(self, variables, train):
    self.params = variables["params"]
    self.stats = variables["batch_stats"]
    self.train = train

  def within(self, name):
    part = {"params": self.params[name], "batch_stats": self.stats[name]}
    return Oracle(part, self.train)

  def convolve(self, name, x, stride=1):
    return oracles.convolve(x, self.params[name]["kernel"], stride)

  def norm(self, name, x):
    stats = None if self.train else self.stats[name]
    return oracles.batch_norm(x, self.params[name], stats)

  def block(self, x, stride, bottleneck, shortcut):
    strides = (1, stride, 1) if bottleneck else (stride, 1)
    y = x
    for layer, step in enumerate(strides, 1):
      y = np.maximum(y, 0) if layer > 1 else y
      y = self.norm(f"norm{layer}", self.convolve(f"convolution{layer}", y, step))
    if "shortcut" in self.params:
      size = 3 if "3x3" in shortcut else 1
      assert self.params["shortcut"]["kernel"].shape[0] == size
      x = self.norm("shortcut_norm", self.convolve("shortcut", x, stride))
    elif y.shape[-1] != x.shape[-1]:
      new = y.shape[-1] - x.shape[-1]
      x = x[:, ::stride, ::stride]
      x = np.pad(x, [(0, 0)] * 3 + [(new // 2, new - new // 2)])
    return np.maximum(x + y, 0)

  def network(self, x, small, bottleneck, shortcut):
    x = self.convolve("stem", x, 1 if small else 2)
    x = np.maximum(self.norm("stem_norm", x), 0)
    if not small:
      x = oracles.pool(x, np.max, 2, value=-np.inf)
    for name, stride in (("stage1_0", 1), ("stage1_1", 1), ("stage2_0", 2)):
      x = self.within(name).block(x, stride, bottleneck, shortcut)
    return x


@pytest.mark.parametrize(
  ("stem", "bottleneck", "shortcut", "train"),
  [
    ("small", False, "padding", True),
    ("small", False, "projection_3x3", False),
    ("photograph", False, "projection", True),
    ("photograph", True, "projection", False),
  ],
)
def test_resnet(stem, bottleneck, shortcut, train):
  network = models.ResNet(**SMALL, stem=stem, bottleneck=bottleneck, shortcut=shortcut)
  variables = oracles.random_variables(network, IMAGES)
  run = functools.partial(network.apply, train=train, mutable=["batch_stats"])
  output, updates = jax.jit(run)(variables, IMAGES)
  oracle = Oracle(variables, train)
  expected = oracle.network(IMAGES, stem == "small", bottleneck, shortcut)
  assert output.shape == expected.shape
  assert (expected > 0).mean() > 0.2
  np.testing.assert_allclose(output, expected, rtol=2e-5, atol=2e-5)
  new, old = (jax.tree.leaves(x["batch_stats"]) for x in (updates, variables))
  assert {bool((a != b).all()) for a, b in zip(new, old, strict=True)} == {train}
