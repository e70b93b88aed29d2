"""Simple-6 against loops in NumPy, and what it adds up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import models

WIDTHS = (3, 4, 3, 5, 4, 6)
IMAGES = np.random.default_rng(0).normal(size=(2, 17, 16, 2))


def oracle(params, x):
  """Six layers by their definition; sizes that are odd lose their last row."""
  for number in range(6):
    layer = params[f"Convolution_{number}"]
    kernel = np.asarray(layer["kernel"])
    padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    out = np.zeros((*x.shape[:3], kernel.shape[-1]))
    for row in range(x.shape[1]):
      for column in range(x.shape[2]):
        window = padded[:, row : row + 3, column : column + 3]
        out[:, row, column] = np.einsum("nabc,abcd->nd", window, kernel)
    x = np.maximum(out + np.asarray(layer.get("bias", 0)), 0)
    if number % 2:
      rows, columns = x.shape[1] // 2, x.shape[2] // 2
      x = x[:, : 2 * rows, : 2 * columns]
      x = np.stack([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]).max(0)
  return x


@pytest.mark.parametrize("use_bias", [True, False])
def test_six_layers(use_bias, x64):
  network = models.Simple6(WIDTHS, use_bias, "patches")
  variables = jax.jit(network.init)(jax.random.key(0), IMAGES)
  assert list(variables) == ["params"]  # no statistics
  rng = np.random.default_rng(1)
  params = jax.tree.map(
    lambda leaf: rng.normal(size=leaf.shape), dict(variables["params"])
  )
  assert ("bias" in params["Convolution_0"]) == use_bias
  expected = oracle(params, IMAGES)
  found = jax.jit(network.apply)({"params": params}, IMAGES)
  assert found.shape == (2, 2, 2, 6)
  np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
  if not use_bias:  # homogeneous, and 0 at 0
    doubled = jax.jit(network.apply)({"params": params}, 2 * IMAGES)
    np.testing.assert_allclose(doubled, 2 * expected, rtol=1e-10, atol=1e-10)


def test_maxima_are_taken_after_the_sixth_layer_too():
  network = models.Simple6(WIDTHS)
  images = jnp.zeros((1, 16, 8, 1))
  shape = jax.eval_shape(network.init_with_output, jax.random.key(0), images)[0].shape
  assert shape == (1, 2, 1, 6)  # three halvings


def test_wrong_arguments():
  network = models.Simple6(WIDTHS)
  key = jax.random.key(0)
  with pytest.raises(ValueError, match=r"each of the 6 layers, got \(3, 4\)"):
    models.Simple6((3, 4)).init(key, jnp.ones((1, 8, 8, 1)))
  with pytest.raises(ValueError, match=r"at least 8x8 .* got shape \(1, 7, 8, 1\)"):
    network.init(key, jnp.ones((1, 7, 8, 1)))
