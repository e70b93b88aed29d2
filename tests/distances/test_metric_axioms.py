"""The axioms of a metric, and the exported distances that break them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spherejax import _versions, distances

POINTS, DIM = 4, 4
RADII = {"epsilon_1": 2.0, "epsilon_inf": 0.75}


def directions(x):
  return x / np.linalg.norm(x, axis=1, keepdims=True)


def differences(x):
  return x[:, None] - x[None]


# Each with what its points are: those of different values are apart.
METRICS = {
  **{
    norm: (lambda x, norm=norm: distances.pairwise_lp(x, x, norm=norm), np.asarray)
    for norm in ("l1", "l2", "linf")
  },
  "euclidean": (distances.pairwise_euclidean, np.asarray),
  "chordal": (distances.pairwise_chordal, directions),
  "angle": (distances.pairwise_angle, directions),
  "root of cosine": (
    lambda x: jnp.sqrt(jnp.maximum(distances.pairwise_cosine_distance(x), 0)),
    directions,
  ),
  "poincare": (distances.pairwise_poincare, np.asarray),
  "combined norm": (
    lambda x: distances.combined_norm(differences(x), **RADII),
    np.asarray,
  ),
  "hull gauge": (lambda x: distances.hull_gauge(differences(x), **RADII), np.asarray),
}
COMPILED = {name: jax.jit(function) for name, (function, _) in METRICS.items()}
# The third of the four points is the first one, the others may be near or far.
SETS = hnp.arrays(np.float32, (POINTS, DIM), elements=st.floats(-3, 3, width=32))


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=30, derandomize=True, deadline=None)
@given(SETS.filter(lambda x: (np.linalg.norm(x, axis=1) > 0.1).all()))
def test_a_metric(name, points):
  points = points.astype(np.float64)
  points[2] = points[0]
  if name == "poincare":
    points /= 1 + np.linalg.norm(points, axis=1, keepdims=True)
  with _versions.enable_x64(True):
    d = np.asarray(COMPILED[name](points))
  assert (d >= 0).all()
  # Products lose the square root of a rounding.
  np.testing.assert_allclose(np.diagonal(d), 0, atol=3e-7)
  np.testing.assert_allclose(d[0, 2], 0, atol=3e-7)
  far = np.abs(differences(METRICS[name][1](points))).max(2) > 1e-3
  assert (d[far] > 1e-4).all()
  np.testing.assert_allclose(d, d.T, rtol=1e-9, atol=3e-7)
  assert (d[:, None] <= d[:, :, None] + d[None] + 1e-6).all()


@pytest.mark.parametrize(
  ("name", "points"),
  [
    ("cosine_distance", [[1, 0], [1, 1], [0, 1]]),
    ("squared_euclidean", [[0, 0], [1, 0], [2, 0]]),
  ],
)
def test_a_detour_may_be_shorter_than_what_is_no_metric(name, points):
  d = getattr(distances, f"pairwise_{name}")(np.array(points, np.float32))
  assert d[0, 1] + d[1, 2] < 0.6 * d[0, 2]
