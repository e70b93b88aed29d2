"""The map is read off an image of coordinates, and then applied by loops."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import data

HEIGHT, WIDTH, COUNT = 24, 32, 256
NOTHING = {"rotation": 0, "translation": 0, "scale": (1, 1), "shear": 0, "flip": 0}
rows, columns = np.mgrid[:HEIGHT, :WIDTH]
# Where each pixel lies, and 1: interpolated, a share of the image and not of outside.
PLACES = np.stack(
  [columns - (WIDTH - 1) / 2, rows - (HEIGHT - 1) / 2, np.ones_like(rows)], -1
).astype(np.float32)
IMAGE = np.random.default_rng(0).random((HEIGHT, WIDTH, 3)).astype(np.float32)
BOTH = np.concatenate([PLACES, IMAGE], -1)


@jax.jit
def warp(key, images, numbers):
  return data.random_affine(key, images, **numbers)


def run(**numbers):
  """Warped images, and the matrices A and shifts t that were drawn."""
  given = jax.tree.map(jnp.float32, NOTHING | numbers)
  warped = np.asarray(warp(jax.random.key(3), np.tile(BOTH, (COUNT, 1, 1, 1)), given))
  matrices, shifts = [], []
  for image in warped:
    inside = image[..., 2] > 1 - 1e-6
    there, came_from = PLACES[inside], image[inside]
    fit = np.linalg.lstsq(there.astype(np.float64), came_from[:, :2], rcond=None)[0]
    # Affine: nothing is left.
    np.testing.assert_allclose(there @ fit, came_from[:, :2], atol=1e-4)
    matrix = np.linalg.inv(fit[:2].T)
    matrices.append(matrix)
    shifts.append(-matrix @ fit[2])
  return warped, np.array(matrices), np.array(shifts)


def spans(values, low, high):
  """Uniform draws reach both ends but for a twentieth, and go no further."""
  part = (high - low) / 20
  assert low - 1e-4 <= values.min() <= low + part
  assert high - part <= values.max() <= high + 1e-4


def test_parts_alone():
  _, turned, shifts = run(rotation=15.0)
  np.testing.assert_allclose(shifts, 0, atol=1e-4)
  np.testing.assert_allclose(np.linalg.det(turned), 1, atol=1e-5)
  np.testing.assert_allclose(turned[:, 0, 1], -turned[:, 1, 0], atol=1e-5)
  spans(np.degrees(np.arctan2(turned[:, 1, 0], turned[:, 0, 0])), -15, 15)
  _, still, shifts = run(translation=0.1)
  np.testing.assert_allclose(still, np.tile(np.eye(2), (COUNT, 1, 1)), atol=1e-5)
  spans(shifts[:, 0], -0.1 * WIDTH, 0.1 * WIDTH)
  spans(shifts[:, 1], -0.1 * HEIGHT, 0.1 * HEIGHT)
  _, scaled, _ = run(scale=(0.9, 1.1))
  np.testing.assert_allclose(scaled[:, 0, 0], scaled[:, 1, 1], atol=1e-5)
  np.testing.assert_allclose(scaled[:, [0, 1], [1, 0]], 0, atol=1e-5)
  spans(scaled[:, 0, 0], 0.9, 1.1)
  _, sheared, _ = run(shear=10.0)
  np.testing.assert_allclose(sheared[:, [0, 1], [0, 1]], 1, atol=1e-5)
  np.testing.assert_allclose(sheared[:, 1, 0], 0, atol=1e-5)
  spans(np.degrees(np.arctan(sheared[:, 0, 1])), -10, 10)
  mirrored, _, _ = run(flip=1.0)
  np.testing.assert_allclose(mirrored[5, :, :, 3:], IMAGE[:, ::-1], atol=1e-6)
  # Standard deviation 8; five of them.
  assert abs((run(flip=0.5)[1][:, 0, 0] < 0).sum() - COUNT / 2) < 40


def test_all_together_against_loops():
  warped, matrices, shifts = run(
    rotation=15.0, translation=0.1, scale=(0.9, 1.1), shear=10.0, flip=0.5
  )
  assert (np.linalg.det(matrices) < 0).any()
  for number in (0, 1):
    inverse = np.linalg.inv(matrices[number])
    expected = np.zeros_like(IMAGE, np.float64)
    for place in np.ndindex(HEIGHT, WIDTH):
      x, y = inverse @ (PLACES[place][:2] - shifts[number])
      x, y = x + (WIDTH - 1) / 2, y + (HEIGHT - 1) / 2
      for i in (math.floor(y), math.floor(y) + 1):
        for j in (math.floor(x), math.floor(x) + 1):
          if 0 <= i < HEIGHT and 0 <= j < WIDTH:
            expected[place] += (1 - abs(y - i)) * (1 - abs(x - j)) * IMAGE[i, j]
    np.testing.assert_allclose(warped[number, ..., 3:], expected, atol=2e-4)
