"""One drawn triplet a row: the hinge of DIST, article I, on the unit sphere."""

import jax.numpy as jnp
import numpy as np

from spherejax import distances, losses, prototypes
from tests.losses.slopes import with_slopes

NEAR = np.array([[True, False]] * 8)


@with_slopes
def hinges(raw, margin):
  """[batch], of the rows before l2."""
  a, p, n = distances.l2_normalize(raw)
  squares = [distances.squared_euclidean(a, other) for other in (p, n)]
  return losses.triplet_from_distance(
    jnp.stack(squares, 1), NEAR, ~NEAR, margin=margin, average="all"
  )


def test_at_the_edges():
  e = np.eye(5, dtype=np.float32)
  zero = np.zeros(5)
  rows = [
    (e[0], e[0], e[0]),  # all in one point: the margin, and no way out
    (e[0], e[0], e[1]),  # |a - n|^2 = 2: exactly at a margin of 2
    (zero, e[0], e[1]),  # a zero embedding is 1 away from every unit vector
    *[(e[0], e[1], e[2])] * 5,
  ]
  raw = np.array(rows, np.float32).transpose(1, 0, 2)
  found, grads = hinges(raw, 2.0)
  np.testing.assert_allclose(found[:3], [2, 0, 2], atol=1e-6)
  assert (grads[:, 0] == 0).all()
  assert (grads[:, 1] == 0).all()
  assert (grads[0, 2] == 0).all()
  assert np.isfinite(grads).all()


def test_collapsed_classes_are_free_of_loss_up_to_the_simplex():
  """2 C / (C - 1) is the largest margin that C classes can have (Rankin)."""
  for classes in (2, 3, 5):
    points = np.asarray(prototypes.simplex(None, classes, 5, rotate=False))
    most = 2 * classes / (classes - 1)
    raw = np.stack([points[[0] * 8], points[[0] * 8], points[[1] * 8]])
    assert (hinges(raw, most - 1e-4)[0] == 0).all()
    np.testing.assert_allclose(hinges(raw, most + 1e-3)[0], 1e-3, atol=2e-5)
