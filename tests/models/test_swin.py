"""The Swin transformer from its definition, in float64."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from spherejax import models
from tests.models.oracles import convolve, random_variables

# 7x5 cells of 2x2 pixels: padded to 9x6, shifted both ways, then 4x3 and one row.
IMAGES = np.random.default_rng(0).normal(size=(2, 15, 11, 3)).astype(np.float32)
NETWORK = models.SwinT((2, 2), (2, 2), width=4, patch=2, window=3, stochastic_depth=0.5)


def dense(p, x):
  return x @ np.float64(p["kernel"]) + np.float64(p.get("bias", 0))


def layer_norm(p, x):
  variance = x.var(-1, keepdims=True)
  normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + 1e-5)
  return normal * np.float64(p["scale"]) + np.float64(p["bias"])


def attend(p, x, heads, window, shift):
  """Each cell of one padded image asks the cells of its window.

  The window of a cell lies where the regular one of the shifted map does; cells that
  the shift brings around the border are in no window with the others.
  """
  extents, size = np.array(x.shape[:2]), x.shape[2] // heads
  shifts = np.where(extents > window, shift, 0)
  cells = np.array(list(np.ndindex(*x.shape[:2])))
  # Windows along both axes; below the shift begins another sheet.
  homes = np.hstack([(cells - shifts) % extents // window, cells < shifts])
  together = (homes[:, None] == homes).all(axis=-1)
  row, column = np.moveaxis(cells[:, None] - cells + window - 1, -1, 0)
  places = np.where(together, row * (2 * window - 1) + column, 0)
  q, k, v = np.moveaxis(dense(p["qkv"], x).reshape(len(cells), 3, heads, size), 1, 0)
  scores = np.einsum("ahc,bhc->abh", q, k) / math.sqrt(size)
  scores = scores + np.float64(p["relative_bias"])[places]
  weights = special.softmax(np.where(together[..., None], scores, -np.inf), axis=1)
  out = np.einsum("abh,bhc->ahc", weights, v)
  return dense(p["out"], out.reshape(x.shape))


def block(p, x, heads, window, shift, keep):
  y = layer_norm(p["norm1"], x)
  height, width = x.shape[1:3]
  y = np.pad(y, [(0, 0), (0, -height % window), (0, -width % window), (0, 0)])
  y = np.stack([attend(p["attention"], one, heads, window, shift) for one in y])
  x = x + keep[0] * y[:, :height, :width]
  y = dense(p["dense1"], layer_norm(p["norm2"], x))
  y = y * (1 + special.erf(y / math.sqrt(2))) / 2
  return x + keep[1] * dense(p["dense2"], y)


def embedded(params, images):
  x = convolve(np.float64(images), params["embed"]["kernel"], 2, (0, 0))
  x += params["embed"]["bias"]
  return layer_norm(params["embed_norm"], x)


def stage(params, number, x, keeps):
  for i, keep in enumerate(keeps):
    x = block(params[f"stage{number}_{i}"], x, 2, 3, i % 2, keep)
  return x


def oracle(params, images):
  x = stage(params, 1, embedded(params, images), [(1, 1)] * 2)
  x = np.pad(x, [(0, 0), (0, x.shape[1] % 2), (0, x.shape[2] % 2), (0, 0)])
  corners = [(0, 0), (1, 0), (0, 1), (1, 1)]  # down first
  merged = np.concatenate([x[:, a::2, b::2] for a, b in corners], -1)
  merge = params["merge2"]
  x = dense(merge["reduction"], layer_norm(merge["norm"], merged))
  return layer_norm(params["norm"], stage(params, 2, x, [(1, 1)] * 2))


def test_values():
  variables = random_variables(NETWORK, IMAGES)
  output = jax.jit(NETWORK.apply)(variables, IMAGES)
  assert output.shape == (2, 4, 3, 8)
  expected = oracle(variables["params"], IMAGES)
  np.testing.assert_allclose(output, expected, rtol=2e-5, atol=2e-5)


def test_stochastic_depth_and_gradients():
  """In training a branch is left out for an image, or stands for those left out."""
  network = NETWORK.clone(depths=(3,), heads=(2,))  # probabilities 0, 1/4 and 1/2
  images = IMAGES[:1, :8, :8]
  params = random_variables(network, images)["params"]

  def run(params, key, remat):
    output = network.clone(remat=remat).apply(
      {"params": params}, images, train=True, rngs={"dropout": key}
    )
    return (output * jnp.arange(64.0).reshape(output.shape)).sum(), output

  @jax.jit
  def both(params, key):
    step = jax.value_and_grad(run, has_aux=True)
    return step(params, key, False), step(params, key, True)

  start = embedded(params, images)
  expected = {
    keeps: layer_norm(
      params["norm"], stage(params, 1, start, [(1, 1), keeps[:2], keeps[2:]])
    )
    for keeps in itertools.product((0, 4 / 3), (0, 4 / 3), (0, 2), (0, 2))
  }
  met = set()
  for seed in range(6):
    ((_, output), gradient), ((_, again), same) = both(params, jax.random.key(seed))
    gaps = {keeps: np.abs(output - value).max() for keeps, value in expected.items()}
    nearest = min(gaps, key=gaps.__getitem__)
    assert gaps[nearest] < 1e-3
    met.add(nearest)
    np.testing.assert_allclose(again, output, rtol=1e-3, atol=1e-3)
    for leaf, other in zip(*map(jax.tree.leaves, (gradient, same)), strict=True):
      assert np.isfinite(leaf).all()
      np.testing.assert_allclose(leaf, other, rtol=1e-3, atol=1e-3 * np.abs(leaf).max())
  assert len(met) > 2
