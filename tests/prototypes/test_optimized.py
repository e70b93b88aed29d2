"""Optimised prototypes: the recipes step by step, and what they reach."""

import functools
import itertools

import jax
import numpy as np
import pytest

from spherejax import prototypes
from spherejax.prototypes import _hpn

by_gaussian = prototypes.gaussian_potential_prototypes
KEY = jax.random.key(0)


def unit(rows):
  """Of length 1, or 0 where they are 0."""
  return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-30)


def cosines(rows):
  """Cosines of different rows, in float64; also that the rows are unit vectors."""
  rows = np.asarray(rows, np.float64)
  gram = rows @ rows.T
  np.testing.assert_allclose(np.diag(gram), 1, atol=1e-6)
  return gram[~np.eye(len(gram), dtype=bool)]


def force(rows, t):
  """Gradient of the smooth maximum over unordered pairs, along the sphere."""
  kernel = np.exp(2 * t * (rows @ rows.T - 1))
  np.fill_diagonal(kernel, 0)
  gradient = 2 * kernel @ rows / kernel.sum()  # each pair is in the sum twice
  return gradient - np.sum(gradient * rows, axis=1, keepdims=True) * rows


def anneal(rows, end, steps):
  """The annealed recipe, written out."""
  rows, mean, square = unit(rows), 0, 0
  for step in range(steps):
    share = step / (steps - 1)
    t, rate = 2 * (end / 2) ** share, 0.05 * (1e-4 / 0.05) ** share
    gradient = force(rows, t)
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient**2
    first, second = 1 - 0.9 ** (step + 1), 1 - 0.999 ** (step + 1)
    rows = unit(rows - rate * (mean / first) / (np.sqrt(square / second) + 1e-8))
  return rows


def test_annealed_is_the_best_run_of_the_recipe(x64):
  starts = np.asarray(jax.random.normal(KEY, (3, 6, 3)))
  ends = (1000, 1000, 2)
  runs = [anneal(start, end, 4) for start, end in zip(starts, ends, strict=True)]
  best = min(runs, key=lambda rows: cosines(rows).max())
  assert len({cosines(run).max() for run in runs}) == 3
  result = prototypes.annealed_prototypes(KEY, 6, 3, steps=4)
  np.testing.assert_allclose(result, best, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("sizes", "known"), [((7, 3), 0.2101383), ((16, 5), 1 / 5)])
def test_annealed_reaches_known_packings(sizes, known):
  result = prototypes.annealed_prototypes(KEY, *sizes, steps=600, restarts=1)
  assert result.dtype == np.float32
  assert known - 1e-6 <= cosines(result).max() <= known + 2e-3


@pytest.mark.parametrize("preset", ["paper", "scaled"])
def test_gaussian_potential_recipe(preset, x64):
  rows = unit(np.asarray(jax.random.uniform(KEY, (6, 3), minval=-1.0)))
  rate = 0.1 if preset == "paper" else 0.6
  for _ in range(3):
    rows = unit(rows - rate * 2 * 1.5 * force(rows, 1.5))
  result = by_gaussian(KEY, 6, 3, t=1.5, steps=3, preset=preset)
  np.testing.assert_allclose(result, rows, rtol=1e-9, atol=1e-12)


def test_the_printed_rate_is_far_from_converged():
  make = functools.partial(by_gaussian, KEY, 30, 30, steps=300)
  assert cosines(make()).max() < -1 / 29 + 1e-3
  assert cosines(make(preset="paper")).max() > -1 / 29 + 0.05


def test_the_potential_of_the_paper_has_other_minimisers():
  result = by_gaussian(KEY, 7, 3, steps=600, preset="paper")
  np.testing.assert_allclose(cosines(result).max(), 0.3090, atol=5e-4)


def hpn(rows, near, triplets, steps):
  """HPN's descent with its published ranking term, written out."""
  number = len(rows)
  rows = unit(rows)
  for _ in range(steps):
    gradient = np.zeros_like(rows)
    for i in range(number):
      others = [j for j in range(number) if j != i]
      closest = max(others, key=lambda j, i=i: rows[i] @ rows[j])
      gradient[i] += rows[closest] / number
      gradient[closest] += rows[i] / number
    for i, j, k in triplets:
      o = rows[i] @ rows[j] - rows[i] @ rows[k]
      slope = 1 / (1 + np.exp(-o)) - (near[i, j] >= near[i, k])
      moves = [rows[j] - rows[k], rows[i], -rows[i]]
      gradient[[i, j, k]] += slope * np.array(moves) / len(triplets)
    gradient -= np.sum(gradient * rows, axis=1, keepdims=True) * rows
    rows = unit(rows - 0.1 * gradient)
  return rows


@pytest.mark.parametrize(
  ("number", "ranked", "steps"), [(5, False, 4), (5, True, 4), (21, True, 1)]
)
def test_hpn_recipe(number, ranked, steps, x64):
  start, draws = jax.random.split(KEY)
  rows = np.asarray(jax.random.normal(start, (number, 3)))
  vectors = np.random.default_rng(0).normal(size=(number, 7))
  near, triplets = unit(vectors) @ unit(vectors).T, []
  if number > 20:
    drawn = _hpn._draw_triplets(jax.random.fold_in(draws, 0), number)
    triplets = np.stack(drawn, axis=1).tolist()
    assert len(triplets) == 10 * number**2
  elif ranked:
    triplets = list(itertools.permutations(range(number), 3))
  given = {"vectors": vectors if ranked else None, "steps": steps}
  result = prototypes.hpn_prototypes(KEY, number, 3, **given)
  expected = hpn(rows, near, triplets, steps)
  np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


def test_drawn_triplets_are_different_and_uniform():
  drawn = np.stack(_hpn._draw_triplets(KEY, 12), axis=1)
  assert (drawn != np.roll(drawn, 1, axis=1)).all()
  # 1440 draws of 1320 triplets, 120 of a number at each place.
  for place in drawn.T:
    assert (np.abs(np.bincount(place, minlength=12) - 120) < 45).all()
  assert len(np.unique(drawn, axis=0)) > 800


def test_vectors_are_projected_on_their_principal_axes(x64):
  vectors = np.random.default_rng(2).normal(size=(6, 5)) + 3
  centred = vectors - vectors.mean(0)
  axes = np.linalg.eigh(centred.T @ centred)[1][:, :-3:-1]  # of the largest values
  axes = axes * np.sign(axes[np.abs(axes).argmax(0), range(2)])
  result = prototypes.vector_prototypes(vectors, 2)
  np.testing.assert_allclose(result, unit(centred @ axes), rtol=1e-9)


def test_short_vectors_are_filled_and_lost_ones_are_zero():
  vectors = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]], np.float32)
  result = prototypes.vector_prototypes(vectors, 3)
  np.testing.assert_allclose(result, [[0.6, 0.8, 0], [0, 0, 0], [0, -1, 0]], rtol=1e-6)
  # Two centred vectors have one direction, whatever the number of axes.
  pair = np.random.default_rng(3).normal(size=(2, 9)).astype(np.float32)
  result = np.asarray(prototypes.vector_prototypes(pair, 4))
  np.testing.assert_allclose(np.abs(result[:, 0]), 1, rtol=1e-6)
  np.testing.assert_array_equal(result[:, 1:], 0)
  same = np.asarray(prototypes.vector_prototypes(np.ones((3, 9), np.float32), 4))
  np.testing.assert_array_equal(same, 0)


@pytest.mark.parametrize(
  ("number", "dim", "construction", "largest"),
  [
    (1, 3, "simplex", None),
    (2, 1, "simplex", -1),
    (5, 4, "simplex", -1 / 4),
    (6, 4, "orthogonal_simplices", 0),
    (8, 4, "orthogonal_simplices", 0),
    (4, 2, "orthogonal_simplices", 0),
    (5, 2, "circle", np.cos(2 * np.pi / 5)),
    (7, 3, "annealed_prototypes", 0.2101383),
  ],
)
def test_the_choice_by_sizes(number, dim, construction, largest):
  options = {"steps": 600, "restarts": 1, "constant_run": True}
  result = prototypes.uniform_prototypes(KEY, number, dim, **options)
  assert result.construction == construction
  assert result.prototypes.shape == (number, dim)
  if largest is not None:
    tolerance = 2e-3 if construction == "annealed_prototypes" else 1e-6
    assert abs(cosines(result.prototypes).max() - largest) < tolerance
