"""Layers of networks in NumPy and float64, and variables to compute with."""

import functools

import jax
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def random_variables(network, images):
  """Variables of the network's shapes, none of them 0 or 1."""
  shapes = jax.eval_shape(network.init, jax.random.key(0), images)
  rng = np.random.default_rng(1)

  def draw(path, leaf):
    low = 0.5 if path[-1].key in ("scale", "var") else -0.5
    return rng.uniform(low, low + 1, leaf.shape).astype(np.float32)

  return jax.tree.map_with_path(draw, shapes)


def convolve(x, kernel, stride=1, pad=None):
  """Windows [b, h, w, channels] times the kernel [h, w, channels, out], added up.

  Around the map lie as many zeros as half of the kernel's sizes, or as `pad` says.
  """
  sizes = kernel.shape[:2]
  pad = [size // 2 for size in sizes] if pad is None else pad
  x = np.pad(x, [(0, 0), *((n, n) for n in pad), (0, 0)])
  windows = sliding_window_view(x, sizes, (1, 2))[:, ::stride, ::stride]
  return np.tensordot(windows, np.float64(kernel), ((4, 5, 3), (0, 1, 2)))


def pool(x, reduce, stride=1, edges=(1, 1), value=0.0):
  """`reduce` of windows of 3x3; `value` lies before and behind the map."""
  x = np.pad(x, [(0, 0), edges, edges, (0, 0)], constant_values=value)
  return reduce(sliding_window_view(x, (3, 3), (1, 2))[:, ::stride, ::stride], (4, 5))


def halve(x):
  """Largest of each 2x2 positions; an odd row or column at the end is left out."""
  rows, columns = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
  x = x[:, :rows, :columns]
  return np.max([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], axis=0)


def batch_norm(x, params, stats=None, epsilon=1e-5):
  """BatchNorm by given statistics, or by the batch's."""
  mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
  if stats is not None:
    mean, var = np.float64(stats["mean"]), np.float64(stats["var"])
  normal = (x - mean) / np.sqrt(var + epsilon)
  return normal * np.float64(params["scale"]) + np.float64(params["bias"])


def init(module, *data, **options):
  """A call that traces the `init` of the module, but not its data."""

  def run():
    start = functools.partial(module.init, **options)
    return jax.eval_shape(lambda key: start(key, *data), jax.random.key(0))

  run.__name__ = type(module).__name__  # for the name of the case
  return functools.partial(run)
