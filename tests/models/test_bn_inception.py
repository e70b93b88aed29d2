"""BNInception against a forward pass by scipy, with weights named as its files do."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import correlate

from spherejax import models
from spherejax.models import _bn_inception, _inception

WIDTH = 2  # of the published 64
# Rows whose halvings meet odd sizes, columns whose halvings meet even ones.
IMAGE = np.random.default_rng(0).normal(size=(1, 69, 31, 3)).astype(np.float32)
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


class Oracle:
  """Units by their names in the file; their weights are drawn at the first use."""

  def __init__(self):
    self.weights = {}
    self.random = np.random.default_rng(1)

  def draw(self, name, shape, low):
    value = self.random.uniform(low, low + 1, shape).astype(np.float32)
    self.weights[name] = value
    return np.float64(value)

  def unit(self, name, x, channels, size=1, stride=1):
    width = channels * WIDTH // 64
    kernel = self.draw(f"{name}.weight", (width, x.shape[-1], size, size), -0.5)
    shift = self.draw(f"{name}.bias", width, -0.5)
    edge = (size // 2, size // 2)
    x = np.pad(x, [(0, 0), edge, edge, (0, 0)])
    kernel = np.einsum("oihw->ohwi", kernel)
    maps = [correlate(x, one[None], "valid", method="direct") for one in kernel]
    x = np.concatenate(maps, -1)[:, ::stride, ::stride] + shift
    scale, bias, mean, var = (
      self.draw(f"{name}_bn.{leaf}", width, low)
      for leaf, low in (
        ("weight", 0.5), ("bias", -0.5), ("running_mean", -0.5), ("running_var", 0.5),
      )
    )  # fmt: skip
    return np.maximum((x - mean) / np.sqrt(var + 1e-5) * scale + bias, 0)

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
      y = pool(x, 1, 1, np.max if name.endswith("5b") else np.mean)
      parts.append(self.unit(f"{name}_pool_proj", y, pooled))
    else:
      parts.append(pool(x, 2, 0, np.max))
    x = np.concatenate(parts, axis=-1)
    assert x.shape[-1] == total * WIDTH // 64
    return x

  def network(self, x):
    x = pool(self.unit("conv1_7x7_s2", x, 64, 7, 2), 2, 0, np.max)
    x = self.unit("conv2_3x3_reduce", x, 64)
    x = pool(self.unit("conv2_3x3", x, 192, 3), 2, 0, np.max)
    for name, widths in BLOCKS.items():
      x = self.block(name, x, widths)
    return x


def pool(x, stride, edge, reduce):
  """Windows of 3x3; as many as begin within the map, the last cut off at its end."""
  # Zeros are as good as -inf for maxima of what is not negative.
  x = np.pad(x, [(0, 0), (edge, edge), (edge, edge), (0, 0)])
  counts = [-(-(size - 3) // stride) + 1 for size in x.shape[1:3]]
  rows = [
    [
      reduce(x[:, i : i + 3, j : j + 3], axis=(1, 2))
      for j in range(0, stride * counts[1], stride)
    ]
    for i in range(0, stride * counts[0], stride)
  ]
  return np.stack([np.stack(row, 1) for row in rows], 1)


@pytest.fixture(scope="module")
def published():
  """Weights by the names of the file, and what they make of the image."""
  oracle = Oracle()
  expected = oracle.network(np.float64(IMAGE))
  return oracle.weights, expected


@functools.cache
def shapes():
  network = models.BNInception(width=WIDTH)
  return jax.eval_shape(network.init, jax.random.key(0), IMAGE)


@pytest.fixture(scope="module")
def variables(published):
  return models.import_weights(shapes(), published[0])


def test_weights_of_the_file_give_the_values(published):
  weights, expected = published
  assert len(weights) == 69 * 6
  head = {"last_linear.weight": np.ones((5, 32)), "last_linear.bias": np.ones(5)}
  counters = {"conv1_7x7_s2_bn.num_batches_tracked": np.array(3)}
  variables = models.import_weights(shapes(), weights | head | counters)
  found = jax.jit(models.BNInception(width=WIDTH).apply)(variables, IMAGE)
  assert found.shape == expected.shape == (1, 2, 1, 32)
  assert (expected > 0).mean() > 0.2
  gap = np.abs(np.asarray(found) - expected).max()
  assert gap < 2e-5 * np.abs(expected).max()


def test_half_precision(published, variables):
  network, expected = models.BNInception(width=WIDTH), published[1]
  found = jax.jit(network.apply)(variables, jnp.asarray(IMAGE, jnp.bfloat16))
  assert found.dtype == jnp.bfloat16
  gap = np.abs(np.asarray(found, np.float64) - expected).max()
  assert gap < 2e-2 * np.abs(expected).max()


def test_rows_for_vectors(published, variables):
  rows = {n: w[None] if "_bn." in n else w for n, w in published[0].items()}
  found = models.import_weights(shapes(), rows)
  jax.tree.map(np.testing.assert_array_equal, found, variables)
  columns = {n: w[:, None] if "2_3x3_bn." in n else w for n, w in published[0].items()}
  with pytest.raises(ValueError, match=r"4 have another shape.*gives \(6, 1\)"):
    models.import_weights(shapes(), columns)


def test_names_that_do_not_fit(published):
  lost = dict(published[0])
  del lost["inception_4e_double_3x3_2_bn.running_var"]
  name = r"inception_4e/double_3x3_2/norm/var \(inception_4e_double_3x3_2_bn"
  with pytest.raises(ValueError, match=f"1 of the network are not.*{name}"):
    models.import_weights(shapes(), lost)
  more = published[0] | {"inception_3c_1x1.weight": np.ones((1, 10, 1, 1))}
  with pytest.raises(ValueError, match=r"1 of the weights are not.*_3c_1x1\.weight"):
    models.import_weights(shapes(), more)


@pytest.mark.parametrize(("side", "cells"), [(224, 7), (223, 7), (230, 7), (31, 1)])
def test_published_size(side, cells):
  images = jax.ShapeDtypeStruct((1, side, side, 3), np.float32)
  output, variables = jax.eval_shape(
    models.BNInception().init_with_output, jax.random.key(0), images
  )
  assert output.shape == (1, cells, cells, 1024)
  size = sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))
  assert size + 1025 * 1000 == 11_295_240  # with the classifier of ImageNet


def random_variables(network, images):
  """Variables whose maps do not vanish in narrow layers."""
  random = np.random.default_rng(2)

  def draw(path, leaf):
    if path[-1].key == "kernel":
      bound = np.sqrt(6 / np.prod(leaf.shape[:3]))
      return jnp.asarray(np.float32(random.uniform(-bound, bound, leaf.shape)))
    low = -0.5 if path[-1].key == "mean" else 0.5
    return jnp.asarray(np.float32(random.uniform(low, low + 1, leaf.shape)))

  structure = jax.eval_shape(network.init, jax.random.key(0), images)
  return jax.tree.map_with_path(draw, structure)


@pytest.mark.parametrize(
  ("kind", "side", "module"),
  [
    (models.BNInception, 31, _bn_inception),
    pytest.param(models.InceptionV3, 75, _inception, marks=pytest.mark.slow),
  ],
)
def test_frozen_norms_and_recomputed_blocks(kind, side, module, monkeypatch):
  # One block of each stride, to compile in less time.
  monkeypatch.setattr(module, "_BLOCKS", module._BLOCKS[2:4])
  images = np.random.default_rng(3).normal(size=(2, side, side, 3)).astype(np.float32)
  plain = kind(width=2)
  frozen = plain.clone(frozen_norm=True)
  again = frozen.clone(remat=True)
  variables = random_variables(plain, images)
  same = jax.eval_shape(again.init, jax.random.key(0), images)
  assert jax.tree.structure(same) == jax.tree.structure(variables)
  for network, count in ((frozen, 0), (again, 2)):
    traced = jax.make_jaxpr(network.apply)(variables, images)
    assert sum("prevent_cse" in equation.params for equation in traced.eqns) == count

  def step(network):
    def loss(params):
      output, updates = network.apply(
        {**variables, "params": params}, images, train=True, mutable=["batch_stats"]
      )
      return (output**2).mean(), updates.get("batch_stats")

    return jax.value_and_grad(loss, has_aux=True)(variables["params"])

  @jax.jit
  def run():
    return step(frozen), step(again), (plain.apply(variables, images) ** 2).mean()

  ((value, kept), gradient), ((_, kept_again), recomputed), expected = run()
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  for stats in (kept, kept_again):
    jax.tree.map(np.testing.assert_array_equal, stats, variables["batch_stats"])
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
  jax.tree.map(close, recomputed, gradient)
  for path, leaf in jax.tree.leaves_with_path(gradient):
    assert np.isfinite(leaf).all()
    assert np.any(np.asarray(leaf)) == (path[-2].key == "conv"), path


def test_statistics_over_devices(monkeypatch):
  # Behind what is compared.
  monkeypatch.setattr(_bn_inception, "_BLOCKS", _bn_inception._BLOCKS[-1:])
  images = np.random.default_rng(4).normal(size=(2, 31, 31, 3)).astype(np.float32)
  network = models.BNInception(width=2)
  variables = random_variables(network, images)

  def train(network, images):
    _, updates = network.apply(variables, images, train=True, mutable=["batch_stats"])
    return updates["batch_stats"]["conv2_3x3"]["norm"]

  @jax.jit
  def run(images):
    apart = functools.partial(train, network.clone(axis_name="batch"))
    return train(network, images), jax.vmap(apart, axis_name="batch")(images[:, None])

  whole, apart = run(images)
  for leaf, expected in whole.items():
    before = variables["batch_stats"]["conv2_3x3"]["norm"][leaf]
    assert not np.isclose(expected, before).any()
    for one in apart[leaf]:
      np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.peer
def test_every_activation_equals_torchs():
  pytest.importorskip("torch", reason="a peer of the extra `bench`")
  from benchmarks import weight_import

  pair = weight_import.Pair(models.BNInception(width=4), {"width": 4}, 69)
  row = weight_import.measure("BN-Inception", pair, 1, ("float64",))
  assert row["float64"] < 1e-12
  assert row["activations"] == 69 * 3 + 10  # convolutions, norms, units; blocks


def test_errors(unchecked):
  def start(shape=(1, 31, 38, 3), width=2, dtype="float32"):
    images = jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))
    jax.eval_shape(models.BNInception(width).init, jax.random.key(0), images)

  for sides in ((30, 31), (31, 39)):
    with pytest.raises(ValueError, match=rf"32 n \+ 6.*\(1, {sides[0]}, {sides[1]}"):
      start((1, *sides, 3))
  with pytest.raises(ValueError, match="even and positive, got 3"):
    start(width=3)
  with pytest.raises(TypeError, match="int32"):
    start(dtype="int32")
  with pytest.raises(ValueError, match=r"\(31, 38, 3\)"):
    start((31, 38, 3))
