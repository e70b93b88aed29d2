"""Closed forms against the published recursion, their Gram matrices and potentials."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import _versions, prototypes
from tests.prototypes.test_optimized import cosines

KEY = jax.random.key(0)


def recursion(last):
  """Columns of the simplex of last + 1 points, by Kasarla's recursion."""
  if last == 1:
    return np.array([[1.0, -1.0]])
  below = np.sqrt(1 - 1 / last**2) * recursion(last - 1)
  top = np.concatenate([[1.0], np.full(last, -1 / last)])
  return np.concatenate([top[None], np.pad(below, ((0, 0), (1, 0)))])


def potential(points, t=2.0):
  """Equation 5, written out."""
  return np.log(np.mean(np.exp(2 * t * (cosines(points) - 1))))


def test_simplex_is_the_recursion(x64):
  for number in (2, 3, 5, 10, 100):
    result = prototypes.simplex(None, number, number - 1, rotate=False)
    np.testing.assert_allclose(result, recursion(number - 1).T, atol=2e-15)
    padded = prototypes.simplex(None, number, number + 4, rotate=False)
    np.testing.assert_array_equal(padded[:, : number - 1], result)
    np.testing.assert_array_equal(padded[:, number - 1 :], 0)


def test_turned_simplex_keeps_all_angles_and_adds_to_zero(x64):
  for dim in (9, 64):
    result = np.asarray(prototypes.simplex(KEY, 10, dim))
    assert result.shape == (10, dim)
    np.testing.assert_allclose(cosines(result), -1 / 9, atol=1e-14)
    np.testing.assert_allclose(result.sum(0), 0, atol=1e-13)
    assert np.abs(result).min() > 0
  with _versions.enable_x64(False):
    result = prototypes.simplex(KEY, 100, 99)
  assert result.dtype == np.float32
  np.testing.assert_allclose(cosines(result), -1 / 99, atol=1e-6)


def test_orientation_is_uniform():
  turned = jax.vmap(lambda key: prototypes.simplex(key, 3, 2))
  points = np.asarray(jax.jit(turned)(jax.random.split(KEY, 1000)))
  angles = np.arctan2(points[:, 0, 1], points[:, 0, 0])
  for order in (1, 2, 3):  # 1000 uniform angles have mean sizes of about 0.03
    assert abs(np.exp(1j * order * angles).mean()) < 0.1
  reflected = np.linalg.det(points[:, :2]) < 0
  assert 0.44 < reflected.mean() < 0.56


@pytest.mark.parametrize("split", ["balanced", "one_large"])
def test_orthogonal_simplices(split, x64):
  for number, dim in ((5, 3), (7, 4), (8, 5), (20, 12), (12, 6), (4, 3)):
    blocks = number - dim
    smallest = dim // blocks if split == "balanced" or blocks == 1 else 1
    turn = (number, dim) == (8, 5)
    result = prototypes.orthogonal_simplices(KEY, number, dim, split=split, rotate=turn)
    assert result.shape == (number, dim)
    found = cosines(result)
    assert found.max() <= (1e-15 if blocks > 1 else -1 / dim + 1e-12)
    np.testing.assert_allclose(found.min(), -1 / smallest, atol=1e-12)
    np.testing.assert_allclose(np.asarray(result).sum(0), 0, atol=1e-12)


def test_potentials_of_eight_in_five_dimensions(x64):
  balanced, large = (
    prototypes.orthogonal_simplices(None, 8, 5, split=split, rotate=False)
    for split in ("balanced", "one_large")
  )
  plain = prototypes.cross_polytope(None, 8, 5, rotate=False)
  for points, value in ((balanced, -4.249), (large, -4.259), (plain, -4.111)):
    np.testing.assert_allclose(potential(points), value, atol=5e-4)
  # At small t it is the other way round.
  assert potential(balanced, 0.5) < potential(large, 0.5)


def test_cross_polytope_is_orthogonal_or_opposite(x64):
  points = np.asarray(prototypes.cross_polytope(KEY, 7, 4))
  expected = np.eye(7) - np.eye(7, k=4) - np.eye(7, k=-4)
  np.testing.assert_allclose(points @ points.T, expected, atol=1e-14)
  plain = prototypes.cross_polytope(None, 7, 4, rotate=False)
  np.testing.assert_array_equal(plain, np.concatenate([np.eye(4), -np.eye(4)])[:7])


def test_circle_has_equal_angles_in_order(x64):
  plain = np.asarray(prototypes.circle(None, 7, rotate=False))
  expected = np.exp(2j * np.pi * np.arange(7) / 7)
  np.testing.assert_allclose(plain @ [1, 1j], expected, atol=1e-15)
  turned = np.asarray(prototypes.circle(KEY, 7))
  np.testing.assert_allclose(turned @ turned.T, plain @ plain.T, atol=1e-14)
  assert np.abs(turned - plain).max() > 1e-3


def test_one_class_and_one_dimension():
  for dim in (1, 3):
    alone = prototypes.simplex(KEY, 1, dim)
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, rtol=1e-6)
  two = np.asarray(prototypes.simplex(KEY, 2, 1))
  np.testing.assert_allclose(np.sort(two.ravel()), [-1, 1], rtol=1e-6)
  np.testing.assert_array_equal(prototypes.simplex(None, 1, 2, rotate=False), [[1, 0]])


def test_sizes_are_static_and_the_key_is_traced():
  made = jax.jit(prototypes.cross_polytope, static_argnums=(1, 2))(KEY, 5, 3)
  np.testing.assert_allclose(made, prototypes.cross_polytope(KEY, 5, 3), atol=1e-6)
  assert made.dtype == jnp.float32
