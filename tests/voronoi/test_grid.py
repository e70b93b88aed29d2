"""The adversary without a budget, beside an exact grid of the plane."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import voronoi

SITES, CLASSES, WIDTH, GAIN = 12, 3, 16, 3.0
AXIS = np.linspace(0, 1, 201)
GRID = np.stack(np.meshgrid(AXIS, AXIS), -1).reshape(-1, 2)


def drawn(seed):
  """Layers of a network whose borders curve within the unit square, and sites."""
  random = np.random.default_rng(seed)
  sizes = (2, WIDTH, WIDTH, CLASSES)
  layers = [
    (
      (GAIN * random.normal(size=(rows, columns)) / rows**0.5).astype(np.float32),
      random.normal(size=(1, columns)).astype(np.float32),
    )
    for rows, columns in itertools.pairwise(sizes)
  ]
  return layers, random.random((SITES, 2)).astype(np.float32)


def scores(layers, x, tanh):
  for weights, offset in layers[:-1]:
    x = tanh(x @ weights + offset)
  return x @ layers[-1][0] + layers[-1][1]


def on_the_grid(layers, sites):
  """Labels of the sites, and whether a point of the grid in a cell is decided wrong."""
  labels = scores(layers, sites.astype(np.float64), np.tanh).argmax(1)
  away = np.linalg.norm(GRID[:, None] - sites[None], axis=2)
  nearest, second = np.sort(away, axis=1)[:, :2].T
  own, clear = away.argmin(1), second - nearest > 1e-4
  wrong = clear & (scores(layers, GRID, np.tanh).argmax(1) != labels[own])
  return labels, np.bincount(own[wrong], minlength=SITES) > 0


@jax.jit
@jax.vmap
def attack(layers, sites, labels):
  def network(x):
    return scores(layers, x, jnp.tanh)

  own, key = jnp.arange(SITES), jax.random.key(0)
  return voronoi.voronoi_pgd(network, sites, labels, own, sites, key=key)


@pytest.mark.parametrize("number", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_the_defaults_find_what_an_exact_grid_finds(number):
  """Random networks; the attack may break sites that the grid is too coarse for."""
  networks = [drawn(seed) for seed in range(number)]
  layers, sites = jax.tree.map(lambda *leaves: np.stack(leaves), *networks)
  labels, broken = map(np.stack, zip(*(on_the_grid(*n) for n in networks), strict=True))
  found = jax.tree.map(np.asarray, attack(layers, sites, labels))
  missed = broken & ~found.success
  assert not missed.any(), np.argwhere(missed)
  # What is found beyond the grid is in its cell, and decided wrong.
  points = found.x_adv.astype(np.float64)
  away = np.linalg.norm(points[:, :, None] - sites[:, None], axis=3)
  assert (away.argmin(2) == np.arange(SITES)).all()
  pairs = zip(networks, points, strict=True)
  decided = np.stack([scores(n, row, np.tanh).argmax(1) for (n, _), row in pairs])
  np.testing.assert_array_equal(decided != labels, found.success)
  assert (found.success & ~broken).mean() < 0.02
  assert 0.2 < broken.mean() < 0.5
