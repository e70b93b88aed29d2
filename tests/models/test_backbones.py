"""Small networks and ResNets against a plain NumPy forward pass in float64."""

import functools

import jax
import numpy as np
import pytest

from spherejax import models
from tests.models.oracles import batch_norm, convolve, halve, pool, random_variables

IMAGES = np.random.default_rng(0).normal(size=(3, 9, 8, 2)).astype(np.float32)


def relu(x):
  return np.maximum(x, 0)


def normalize(x, parameters, groups):
  """GroupNorm, or BatchNorm with the statistics of the batch."""
  if "BatchNorm_0" in parameters:
    return batch_norm(x, parameters["BatchNorm_0"])
  own = parameters["GroupNorm_0"]
  parts = x.reshape(*x.shape[:3], groups, -1)
  mean = parts.mean(axis=(1, 2, 4), keepdims=True)
  variance = parts.var(axis=(1, 2, 4), keepdims=True)
  normal = ((parts - mean) / np.sqrt(variance + 1e-6)).reshape(x.shape)
  return normal * own["scale"] + own["bias"]


def trained_output(network, images, variables=None):
  """Output in training mode, parameters as float64, updated statistics."""
  variables = variables or random_variables(network, images)
  apply = functools.partial(network.apply, train=True, mutable=["batch_stats"])
  output, updates = jax.jit(apply)(variables, images)
  wide = jax.tree.map(np.float64, variables["params"])
  return np.asarray(output), wide, variables, updates


def statistics(variables, layer):
  return variables["batch_stats"][f"_Normalization_{layer}"]["BatchNorm_0"]


def check_moved(new, old, x):
  for name, value in (("mean", x.mean((0, 1, 2))), ("var", x.var((0, 1, 2)))):
    expected = 0.9 * np.asarray(old[name]) + 0.1 * value
    np.testing.assert_allclose(new[name], expected, rtol=1e-4)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("convolution", ["native", "patches"])
def test_conv_net(norm, convolution):
  network = models.ConvNet((4, 6), (2, 1), norm, groups=2, convolution=convolution)
  output, parameters, variables, updates = trained_output(network, IMAGES)
  x = later = IMAGES  # in training, and by the running statistics
  for layer, stride in enumerate((2, 1)):
    kernel = parameters[f"Convolution_{layer}"]["kernel"]
    own = parameters[f"_Normalization_{layer}"]
    x = convolve(x, kernel, stride)
    if norm == "batch":
      old = statistics(variables, layer)
      check_moved(statistics(updates, layer), old, x)
      later = convolve(later, kernel, stride)
      later = relu(batch_norm(later, own["BatchNorm_0"], old))
    x = relu(normalize(x, own, 2))
  assert output.shape == (3, 5, 4, 6)
  np.testing.assert_allclose(output, x, rtol=2e-5, atol=2e-5)
  if norm == "batch":
    output = jax.jit(network.apply)(variables, IMAGES)  # not training
    np.testing.assert_allclose(output, later, rtol=2e-5, atol=2e-5)


def test_conv4():
  images = np.random.default_rng(2).normal(size=(2, 19, 16, 3)).astype(np.float32)
  network = models.Conv4(width=4)
  variables = random_variables(network, images)
  # A negative factor turns the order of a channel's values round.
  signs = np.array([1, -1, 1, -1], np.float32)
  variables = jax.tree.map_with_path(
    lambda path, leaf: leaf * signs if path[-1].key == "scale" else leaf, variables
  )
  output, parameters, _, updates = trained_output(network, images, variables)
  assert output.shape == (2, 1, 1, 4)
  for train in (True, False):
    x = images
    for layer in range(4):
      convolution = parameters[f"Convolution_{layer}"]
      x = convolve(x, convolution["kernel"]) + convolution["bias"]
      old = statistics(variables, layer)
      if train:
        check_moved(statistics(updates, layer), old, x)
      own = parameters[f"_Normalization_{layer}"]["BatchNorm_0"]
      x = halve(relu(batch_norm(x, own, None if train else old)))
    np.testing.assert_allclose(output, x, rtol=1e-4, atol=1e-4)
    output = jax.jit(network.apply)(variables, images)


def test_resnet20():
  # Blocks whose shortcut is the input, changes width and stride, or stride alone.
  network = models.ResNet20(
    blocks=2, widths=(4, 6), strides=(2, 2), stem_stride=1, norm="group", groups=2
  )
  output, parameters, _, _ = trained_output(network, IMAGES)
  x = convolve(IMAGES, parameters["Convolution_0"]["kernel"])
  for block, (width, stride) in enumerate([(4, 2), (4, 1), (6, 2), (6, 1)]):
    own = parameters[f"_PreActivationBlock_{block}"]
    kernels = [own[name]["kernel"] for name in sorted(own) if "Convolution" in name]
    active = relu(normalize(x, own["_Normalization_0"], 2))
    if stride != 1 or x.shape[-1] != width:
      assert kernels[0].shape[:2] == (1, 1)
      x = convolve(active, kernels.pop(0), stride)
    inner = convolve(active, kernels[0], stride)
    inner = relu(normalize(inner, own["_Normalization_1"], 2))
    x = x + convolve(inner, kernels[1])
  x = relu(normalize(x, parameters["_Normalization_0"], 2))
  assert output.shape == (3, 3, 2, 6)
  np.testing.assert_allclose(output, x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("use_bias", [True, False])
def test_simple6(use_bias, x64):
  images = np.random.default_rng(0).normal(size=(2, 17, 16, 2))
  network = models.Simple6((3, 4, 3, 5, 4, 6), use_bias, "patches")
  variables = random_variables(network, images)
  assert list(variables) == ["params"]  # no statistics
  x, params = images, variables["params"]
  assert ("bias" in params["Convolution_0"]) == use_bias
  for number in range(6):
    layer = params[f"Convolution_{number}"]
    x = relu(convolve(x, layer["kernel"]) + np.float64(layer.get("bias", 0)))
    x = halve(x) if number % 2 else x
  apply = functools.partial(jax.jit(network.apply), jax.tree.map(np.float64, variables))
  found = apply(images)
  assert found.shape == (2, 2, 2, 6)
  np.testing.assert_allclose(found, x, rtol=1e-10, atol=1e-10)
  if not use_bias:  # homogeneous, and 0 at 0
    np.testing.assert_allclose(apply(2 * images), 2 * x, rtol=1e-10, atol=1e-10)


PHOTOS = np.random.default_rng(0).normal(size=(2, 14, 11, 3)).astype(np.float32)


def unit(params, stats, convolution, norm, x, stride):
  """A convolution and its norm, by given statistics, or by the batch's if None."""
  x = convolve(x, params[convolution]["kernel"], stride)
  return batch_norm(x, params[norm], stats and stats[norm])


def block(params, stats, x, stride, bottleneck, shortcut):
  y = x
  for layer, step in enumerate((1, stride, 1) if bottleneck else (stride, 1), 1):
    y = relu(y) if layer > 1 else y
    y = unit(params, stats, f"convolution{layer}", f"norm{layer}", y, step)
  if "shortcut" in params:
    assert params["shortcut"]["kernel"].shape[0] == (3 if "3x3" in shortcut else 1)
    x = unit(params, stats, "shortcut", "shortcut_norm", x, stride)
  elif y.shape[-1] != x.shape[-1]:
    new = y.shape[-1] - x.shape[-1]
    x = x[:, ::stride, ::stride]
    x = np.pad(x, [(0, 0)] * 3 + [(new // 2, new - new // 2)])
  return relu(x + y)


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
  settings = {"stem": stem, "bottleneck": bottleneck, "shortcut": shortcut}
  network = models.ResNet((2, 1), (2, 4), (1, 2), **settings)
  variables = random_variables(network, PHOTOS)
  run = functools.partial(network.apply, train=train, mutable=["batch_stats"])
  output, updates = jax.jit(run)(variables, PHOTOS)
  params, stats = variables["params"], None if train else variables["batch_stats"]
  small = stem == "small"
  x = relu(unit(params, stats, "stem", "stem_norm", PHOTOS, 1 if small else 2))
  x = x if small else pool(x, np.max, 2, value=-np.inf)
  for name, step in (("stage1_0", 1), ("stage1_1", 1), ("stage2_0", 2)):
    x = block(params[name], stats and stats[name], x, step, bottleneck, shortcut)
  assert output.shape == x.shape
  assert (x > 0).mean() > 0.2
  np.testing.assert_allclose(output, x, rtol=2e-5, atol=2e-5)
  new, old = (jax.tree.leaves(x["batch_stats"]) for x in (updates, variables))
  assert {bool((a != b).all()) for a, b in zip(new, old, strict=True)} == {train}
