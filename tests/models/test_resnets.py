"""ResNets against a forward pass by scipy in float64, and their sizes in print."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import correlate

from spherejax import models

IMAGES = np.random.default_rng(0).normal(size=(2, 14, 11, 3)).astype(np.float32)
SMALL = {"blocks": (2, 1), "widths": (2, 4), "strides": (1, 2)}


def random_variables(network, images):
  """Variables of the right shapes, none of them 0 or 1."""
  shapes = jax.eval_shape(network.init, jax.random.key(0), images)
  rng = np.random.default_rng(1)
  paths, structure = jax.tree.flatten_with_path(shapes)
  leaves = []
  for path, leaf in paths:
    low = -0.5 if path[-1].key in ("kernel", "bias", "mean") else 0.5
    leaves.append(rng.uniform(low, low + 1, leaf.shape).astype(np.float32))
  return jax.tree.unflatten(structure, leaves)


class Oracle:
  """Convolutions and norms with the parameters of one module."""

  def __init__(self, variables, train):
    self.params = variables["params"]
    self.stats = variables["batch_stats"]
    self.train = train

  def within(self, name):
    return Oracle(
      {"params": self.params[name], "batch_stats": self.stats[name]}, self.train
    )

  def convolve(self, name, x, stride=1):
    kernel = np.asarray(self.params[name]["kernel"], np.float64)
    half = kernel.shape[0] // 2
    x = np.pad(x, [(0, 0), (half, half), (half, half), (0, 0)])
    maps = [correlate(x, kernel[None, ..., o], "valid") for o in range(kernel.shape[3])]
    return np.concatenate(maps, axis=-1)[:, ::stride, ::stride]

  def norm(self, name, x):
    scale, bias = (np.float64(self.params[name][key]) for key in ("scale", "bias"))
    if self.train:
      mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    else:
      mean, variance = (np.float64(self.stats[name][key]) for key in ("mean", "var"))
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + bias

  def block(self, x, stride, bottleneck, shortcut):
    strides = (1, stride, 1) if bottleneck else (stride, 1)
    y = x
    for layer, step in enumerate(strides, 1):
      y = np.maximum(y, 0) if layer > 1 else y
      y = self.norm(f"norm{layer}", self.convolve(f"convolution{layer}", y, step))
    if "shortcut" in self.params:
      assert self.params["shortcut"]["kernel"].shape[0] == (
        3 if "3x3" in shortcut else 1
      )
      x = self.norm("shortcut_norm", self.convolve("shortcut", x, stride))
    elif y.shape[-1] != x.shape[-1]:
      new = y.shape[-1] - x.shape[-1]
      x = x[:, ::stride, ::stride]
      x = np.pad(x, [(0, 0)] * 3 + [(new // 2, new - new // 2)])
    return np.maximum(x + y, 0)

  def network(self, x, small, bottleneck, shortcut):
    x = self.convolve("stem", x.astype(np.float64), 1 if small else 2)
    x = np.maximum(self.norm("stem_norm", x), 0)
    if not small:
      x = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=-np.inf)
      rows, columns = (x.shape[1] - 1) // 2, (x.shape[2] - 1) // 2
      shifts = [
        x[:, i : i + 2 * rows - 1 : 2, j : j + 2 * columns - 1 : 2]
        for i in range(3)
        for j in range(3)
      ]
      x = np.max(shifts, axis=0)
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
  variables = random_variables(network, IMAGES)
  run = functools.partial(network.apply, train=train, mutable=["batch_stats"])
  output, updates = jax.jit(run)(variables, IMAGES)
  expected = Oracle(variables, train).network(
    IMAGES, stem == "small", bottleneck, shortcut
  )
  assert output.shape == expected.shape
  assert (expected > 0).mean() > 0.2
  np.testing.assert_allclose(output, expected, rtol=2e-5, atol=2e-5)
  moved = jax.tree.map(
    lambda new, old: bool((new != old).all()),
    updates["batch_stats"],
    variables["batch_stats"],
  )
  assert set(jax.tree.leaves(moved)) == {train}


def count(network, classes):
  """Parameters, with a linear classifier behind the mean of the map."""
  images = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
  output, variables = jax.eval_shape(
    network.init_with_output, jax.random.key(0), images
  )
  size = sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))
  return size + (output.shape[-1] + 1) * classes


def test_published_sizes():
  assert count(models.ResNet18(), 1000) == 11_689_512
  assert count(models.ResNet50(), 1000) == 25_557_032
  assert count(models.ResNet101(), 1000) == 44_549_160
  assert count(models.ResNet32(), 10) == 464_154
  # 1x1 or 3x3 from 16 to 32 and from 32 to 64 channels, with their norms.
  norms = 2 * (32 + 64)
  for shortcut, size in (("projection", 1), ("projection_3x3", 9)):
    extra = size * (16 * 32 + 32 * 64) + norms
    assert count(models.ResNet32(shortcut=shortcut), 10) == 464_154 + extra


def test_training_options():
  images = jnp.asarray(IMAGES)
  plain = models.ResNet(**{**SMALL, "blocks": (1, 1)}, stem="small")
  variables = random_variables(plain, images)

  def step(network):
    def loss(params):
      output, updates = network.apply(
        {**variables, "params": params}, images, train=True, mutable=["batch_stats"]
      )
      return (output**2).sum(), updates.get("batch_stats")

    return jax.value_and_grad(loss, has_aux=True)(variables["params"])

  steps = jax.jit(
    lambda: [
      step(plain.clone(**options))
      for options in ({}, {"remat": True}, {"frozen_norm": True})
    ]
  )()
  ((_, stats), gradient), (_, again), ((_, kept), frozen) = steps
  close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-3)
  jax.tree.map(close, again, gradient)
  jax.tree.map(np.testing.assert_array_equal, kept, variables["batch_stats"])
  assert not np.allclose(stats["stem_norm"]["mean"], kept["stem_norm"]["mean"])
  for grads, norms_move in ((gradient, True), (frozen, False)):
    for path, leaf in jax.tree.leaves_with_path(grads):
      assert np.isfinite(leaf).all()
      expected = norms_move or path[-1].key == "kernel"
      assert bool((leaf != 0).any()) == expected, path


def test_errors(unchecked):
  images = jax.ShapeDtypeStruct((1, 8, 8, 3), jnp.float32)

  def start(images=images, **options):
    network = models.ResNet(**{**SMALL, **options})
    jax.eval_shape(network.init, jax.random.key(0), images)

  with pytest.raises(ValueError, match="strides must have one entry"):
    start(strides=(1, 2, 2))
  with pytest.raises(ValueError, match="blocks must have one entry"):
    start(blocks=(1,))
  with pytest.raises(ValueError, match=r"widths that grow.*\(4, 2\)"):
    start(widths=(4, 2), shortcut="padding")
  with pytest.raises(TypeError, match="int32"):
    start(jax.ShapeDtypeStruct((1, 8, 8, 3), jnp.int32))
  with pytest.raises(ValueError, match=r"\(8, 8, 3\)"):
    start(jax.ShapeDtypeStruct((8, 8, 3), jnp.float32))
