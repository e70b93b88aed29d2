"""Networks against a plain NumPy forward pass in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import models

IMAGES = np.random.default_rng(0).normal(size=(3, 9, 8, 2)).astype(np.float32)


def convolve(x, kernel, stride, bias=0.0):
  """Zero padding of half the kernel's size; output (i, j) is centred on input i s."""
  batch, height, width, _ = x.shape
  size, _, _, channels = kernel.shape
  margin = size // 2
  padded = np.pad(x, [(0, 0), (margin, margin), (margin, margin), (0, 0)])
  out = np.zeros((batch, -(-height // stride), -(-width // stride), channels))
  for i in range(out.shape[1]):
    for j in range(out.shape[2]):
      top, left = i * stride, j * stride
      window = padded[:, top : top + size, left : left + size]
      out[:, i, j] = np.tensordot(window, kernel, axes=3) + bias
  return out


def batch_norm(x, parameters, mean, variance):
  return (x - mean) / np.sqrt(variance + 1e-5) * parameters["scale"] + parameters[
    "bias"
  ]


def group_norm(x, parameters, groups):
  parts = x.reshape(*x.shape[:3], groups, -1)
  mean = parts.mean(axis=(1, 2, 4), keepdims=True)
  variance = parts.var(axis=(1, 2, 4), keepdims=True)
  normal = ((parts - mean) / np.sqrt(variance + 1e-6)).reshape(x.shape)
  return normal * parameters["scale"] + parameters["bias"]


def relu(x):
  return np.where(x > 0, x, 0)


def normalize(x, parameters, groups):
  """GroupNorm, or BatchNorm with the statistics of the batch."""
  if "GroupNorm_0" in parameters:
    return group_norm(x, parameters["GroupNorm_0"], groups)
  mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
  return batch_norm(x, parameters["BatchNorm_0"], mean, variance)


def random_variables(network, images):
  """Variables of the right shapes, none of them 0 or 1."""
  shapes = jax.eval_shape(network.init, jax.random.key(0), images)
  rng = np.random.default_rng(1)
  return jax.tree.map(
    lambda leaf: jnp.asarray(rng.uniform(0.2, 0.8, leaf.shape), jnp.float32), shapes
  )


def trained_output(network, images, variables=None):
  """Output in training mode, parameters as float64, updated statistics."""
  variables = variables or random_variables(network, images)
  output, updates = jax.jit(
    functools.partial(network.apply, train=True, mutable=["batch_stats"])
  )(variables, images)
  wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables["params"])
  return np.asarray(output), wide, variables, updates


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("convolution", ["native", "patches"])
def test_conv_net(norm, convolution):
  network = models.ConvNet((4, 6), (2, 1), norm, groups=2, convolution=convolution)
  output, parameters, _, _ = trained_output(network, IMAGES)
  x = IMAGES.astype(np.float64)
  for layer, stride in enumerate((2, 1)):
    x = convolve(x, parameters[f"Convolution_{layer}"]["kernel"], stride)
    x = relu(normalize(x, parameters[f"_Normalization_{layer}"], 2))
  assert output.shape == (3, 5, 4, 6)
  np.testing.assert_allclose(output, x, rtol=2e-5, atol=2e-5)


def test_running_statistics_are_used_and_moved():
  network = models.ConvNet((4,), (1,), "batch")
  _, parameters, variables, updates = trained_output(network, IMAGES)
  x = convolve(IMAGES.astype(np.float64), parameters["Convolution_0"]["kernel"], 1)
  old = variables["batch_stats"]["_Normalization_0"]["BatchNorm_0"]
  new = updates["batch_stats"]["_Normalization_0"]["BatchNorm_0"]
  for name, value in (("mean", x.mean(axis=(0, 1, 2))), ("var", x.var(axis=(0, 1, 2)))):
    expected = 0.9 * np.asarray(old[name]) + 0.1 * value
    np.testing.assert_allclose(new[name], expected, rtol=1e-5)
  output = network.apply(variables, IMAGES)  # not training: the running statistics
  expected = batch_norm(
    x, parameters["_Normalization_0"]["BatchNorm_0"], *map(np.asarray, old.values())
  )
  assert list(old) == ["mean", "var"]
  np.testing.assert_allclose(output, relu(expected), rtol=2e-5, atol=2e-5)


def test_frozen_batch_norm_stays_as_it_is():
  network = models.ConvNet((4,), (1,), "batch", frozen_norm=True)
  variables = network.init(jax.random.key(0), IMAGES)
  variables["batch_stats"] = jax.tree.map(lambda x: x + 0.5, variables["batch_stats"])

  def loss(params, train):
    given = {**variables, "params": params}
    return (network.apply(given, IMAGES, train=train) ** 2).sum()

  value, gradient = jax.value_and_grad(loss)(variables["params"], True)
  np.testing.assert_allclose(value, loss(variables["params"], False), rtol=1e-6)
  for path, leaf in jax.tree.leaves_with_path(gradient):
    assert bool((leaf != 0).any()) == ("Convolution" in jax.tree_util.keystr(path))


def test_conv4():
  images = np.random.default_rng(2).normal(size=(2, 19, 16, 3)).astype(np.float32)
  network = models.Conv4(width=4)
  variables = random_variables(network, images)
  # A negative factor turns the order of a channel's values round.
  signs = jnp.array([1.0, -1.0, 1.0, -1.0])
  variables = jax.tree_util.tree_map_with_path(
    lambda path, leaf: leaf * signs if path[-1].key == "scale" else leaf, variables
  )
  output, parameters, _, updates = trained_output(network, images, variables)
  assert output.shape == (2, 1, 1, 4)
  for train in (True, False):
    x = images.astype(np.float64)
    for layer in range(4):
      convolution = parameters[f"Convolution_{layer}"]
      x = convolve(x, convolution["kernel"], 1, convolution["bias"])
      own = parameters[f"_Normalization_{layer}"]
      old, new = (
        tree["batch_stats"][f"_Normalization_{layer}"]["BatchNorm_0"]
        for tree in (variables, updates)
      )
      if train:
        moments = {"mean": x.mean(axis=(0, 1, 2)), "var": x.var(axis=(0, 1, 2))}
        for name, value in moments.items():
          expected = 0.9 * np.asarray(old[name]) + 0.1 * value
          np.testing.assert_allclose(new[name], expected, rtol=1e-4)
        x = relu(normalize(x, own, None))
      else:
        moments = (np.asarray(old[name], np.float64) for name in ("mean", "var"))
        x = relu(batch_norm(x, own["BatchNorm_0"], *moments))
      rows, columns = x.shape[1] // 2, x.shape[2] // 2
      x = x[:, : 2 * rows, : 2 * columns].reshape(2, rows, 2, columns, 2, 4)
      x = x.max(axis=(2, 4))
    np.testing.assert_allclose(output, x, rtol=1e-4, atol=1e-4)
    output = jax.jit(network.apply)(variables, images)


def test_conv4_takes_its_statistics_over_all_devices():
  images = np.random.default_rng(3).normal(size=(4, 16, 16, 1)).astype(np.float32)
  network = models.Conv4(width=4)
  variables = random_variables(network, images)
  whole, _, _, _ = trained_output(network, images, variables)
  spread = models.Conv4(width=4, axis_name="batch")
  apply = functools.partial(spread.apply, train=True, mutable=["batch_stats"])
  parts, _ = jax.jit(jax.vmap(apply, (None, 0), axis_name="batch"))(
    variables, images.reshape(2, 2, 16, 16, 1)
  )
  np.testing.assert_allclose(parts.reshape(whole.shape), whole, rtol=1e-4, atol=1e-4)


def test_resnet20():
  # Blocks whose shortcut is the input, changes width and stride, or stride alone.
  network = models.ResNet20(
    blocks=2, widths=(4, 6), strides=(2, 2), stem_stride=1, norm="group", groups=2
  )
  output, parameters, _, _ = trained_output(network, IMAGES)
  x = convolve(IMAGES.astype(np.float64), parameters["Convolution_0"]["kernel"], 1)
  for block, (width, stride) in enumerate([(4, 2), (4, 1), (6, 2), (6, 1)]):
    own = parameters[f"_PreActivationBlock_{block}"]
    kernels = [own[name]["kernel"] for name in sorted(own) if "Convolution" in name]
    active = relu(normalize(x, own["_Normalization_0"], 2))
    if stride != 1 or x.shape[-1] != width:
      assert kernels[0].shape[:2] == (1, 1)
      x = convolve(active, kernels.pop(0), stride)
    inner = convolve(active, kernels[0], stride)
    inner = relu(normalize(inner, own["_Normalization_1"], 2))
    x = x + convolve(inner, kernels[1], 1)
  x = relu(normalize(x, parameters["_Normalization_0"], 2))
  assert output.shape == (3, 3, 2, 6)
  np.testing.assert_allclose(output, x, rtol=1e-4, atol=1e-4)


def shapes_of(network, size, channels=3):
  images = jax.ShapeDtypeStruct((1, size, size, channels), jnp.float32)
  variables = jax.eval_shape(network.init, jax.random.key(0), images)
  return variables, jax.eval_shape(network.apply, variables, images).shape


def test_published_sizes():
  variables, output = shapes_of(models.ResNet20(), 32)
  kernels = [
    leaf.shape
    for leaf in jax.tree.leaves(variables["params"])
    if leaf.ndim == 4 and leaf.shape[0] == 3
  ]
  assert len(kernels) == 19  # and the classifier makes 20 layers
  assert output == (1, 8, 8, 64)
  size = sum(np.prod(leaf.shape) for leaf in jax.tree.leaves(variables["params"]))
  assert 0.265e6 < size < 0.275e6
  assert shapes_of(models.ResNet20(), 64)[1] == (1, 16, 16, 64)
  small = models.ResNet20(blocks=1, strides=(1, 2, 1), stem_stride=2)
  assert shapes_of(small, 32)[1] == (1, 8, 8, 64)
  variables, output = shapes_of(models.Conv4(), 84)
  assert output == (1, 5, 5, 64)
  assert len(jax.tree.leaves(variables["params"])) == 16
  assert shapes_of(models.ConvNet(), 16, 1)[1] == (1, 8, 8, 32)


def test_initial_kernels_have_the_variance_of_he():
  # fan out: 9 * 64 terms reach every input, so the deviation is sqrt(2 / 576).
  images = jnp.zeros((1, 16, 16, 3))
  parameters = models.Conv4().init(jax.random.key(0), images)["params"]
  kernel = parameters["Convolution_1"]["kernel"]
  np.testing.assert_allclose(kernel.std(), np.sqrt(2 / 576), rtol=0.02)
  assert not np.any(parameters["Convolution_1"]["bias"])


def test_statistics_of_all_devices():
  images = np.random.default_rng(3).normal(size=(4, 2, 6, 6, 1)).astype(np.float32)
  whole, _, variables, updates = trained_output(
    models.ConvNet((4,), (1,), "batch"), images.reshape(8, 6, 6, 1)
  )
  network = models.ConvNet((4,), (1,), "batch", axis_name="batch")
  parts, statistics = jax.jit(
    jax.vmap(
      lambda rows: network.apply(variables, rows, train=True, mutable=["batch_stats"]),
      axis_name="batch",
    )
  )(images)
  np.testing.assert_allclose(parts.reshape(whole.shape), whole, rtol=1e-4, atol=1e-5)
  for new, expected in zip(
    jax.tree.leaves(statistics), jax.tree.leaves(updates), strict=True
  ):
    np.testing.assert_allclose(new, np.broadcast_to(expected, new.shape), rtol=1e-5)


@pytest.mark.parametrize(
  ("network", "settings", "images", "error", "message"),
  [
    (
      models.ConvNet,
      {"widths": (8, 8), "strides": (1,)},
      IMAGES,
      ValueError,
      r"each of the 2 widths, got \(",
    ),
    (models.ConvNet, {"groups": 5}, IMAGES, ValueError, "divide 16 channels, got 5"),
    (
      models.ConvNet,
      {"frozen_norm": True},
      IMAGES,
      ValueError,
      "norm 'batch', got 'group'",
    ),
    (
      models.Conv4,
      {},
      jnp.zeros((1, 15, 32, 1)),
      ValueError,
      r"16x16 .*\(1, 15, 32, 1",
    ),
    (models.ResNet20, {"strides": (1,)}, IMAGES, ValueError, "each of the 3 widths"),
  ],
)
def test_bad_arguments(unchecked, network, settings, images, error, message):
  with pytest.raises(error, match=message):
    jax.eval_shape(network(**settings).init, jax.random.key(0), images)


@pytest.mark.parametrize(
  "network",
  [models.ConvNet((4, 4), (1, 2), norm=norm, groups=2) for norm in ("batch", "group")]
  + [models.Conv4(4), models.ResNet20(blocks=1, widths=(2, 4, 4))],
  ids=["ConvNet, batch", "ConvNet, group", "Conv4", "ResNet20"],
)
def test_half_precision_stays_half(network):
  images = jax.random.normal(jax.random.key(0), (2, 16, 16, 3))
  variables = jax.jit(network.init)(jax.random.key(1), images)

  @jax.jit
  def both(images):
    apply = functools.partial(
      network.apply, variables, train=True, mutable="batch_stats"
    )
    return apply(images)[0], apply(images.astype(jnp.bfloat16))[0]

  full, half = both(images)
  assert (full.dtype, half.dtype) == (jnp.float32, jnp.bfloat16)
  np.testing.assert_allclose(half.astype(jnp.float32), full, atol=0.08)
