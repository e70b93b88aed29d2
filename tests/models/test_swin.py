"""The Swin transformer, cell by cell from its definition, in float64."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import erf

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
  """Each cell of one padded image asks the cells of its window, by two loops.

  The window of a cell lies where the regular one of the shifted map does; cells that
  the shift brings around the border are in no window with the others.
  """
  height, width, channels = x.shape
  shifts = [shift if extent > window else 0 for extent in (height, width)]
  qkv = dense(p["qkv"], x).reshape(height, width, 3, heads, -1)
  table = np.float64(p["relative_bias"])

  def home(place, extent, offset):
    """Window of a place along one axis; below the shift begins another sheet."""
    return (place - offset) % extent // window, offset > 0 and place < offset

  cells = list(np.ndindex(height, width))
  homes = {
    cell: tuple(home(c, e, s) for c, e, s in zip(cell, x.shape, shifts, strict=False))
    for cell in cells
  }
  out = np.zeros_like(x)
  for a in cells:
    others = [b for b in cells if homes[b] == homes[a]]
    for head in range(heads):
      scores = []
      for b in others:
        row, column = a[0] - b[0] + window - 1, a[1] - b[1] + window - 1
        product = qkv[a][0, head] @ qkv[b][1, head]
        bias = table[row * (2 * window - 1) + column, head]
        scores.append(product / math.sqrt(channels // heads) + bias)
      weights = np.exp(scores - np.max(scores))
      values = np.stack([qkv[b][2, head] for b in others])
      size = channels // heads
      out[a][head * size : (head + 1) * size] = weights @ values / weights.sum()
  return dense(p["out"], out)


def block(p, x, heads, window, shift, keep):
  y = layer_norm(p["norm1"], x)
  height, width = x.shape[1:3]
  y = np.pad(y, [(0, 0), (0, -height % window), (0, -width % window), (0, 0)])
  y = np.stack([attend(p["attention"], one, heads, window, shift) for one in y])
  x = x + keep[0] * y[:, :height, :width]
  y = dense(p["dense1"], layer_norm(p["norm2"], x))
  y = y * (1 + erf(y / math.sqrt(2))) / 2
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
