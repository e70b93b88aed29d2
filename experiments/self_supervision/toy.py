"""What can be shown without images: fixed features, rotations of a pixel, regions."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import results
from experiments.self_supervision.training import Projector
from spherejax import losses, metrics

PAPER = "SSL"
DIM, OUTPUTS, COUNT = 32, 16, 64
DIRECTIONS = (4, 16, 24)
SCALES = (0.1, 1.0, 4.0)
ANGLES = (0, 5, 15, 45, 90, 180, 360)
_SIDE, _TURNS = 32, 500
_NOTHING = 1e-6  # of the largest eigenvalue of a covariance
DEPTHS = ((OUTPUTS,), (4, OUTPUTS), (8, OUTPUTS), (8, 8, OUTPUTS))
_POINTS = 1000


@functools.partial(jax.jit, static_argnames=("directions", "steps"))
def learned(key: Array, scale: Array, *, directions: int, steps: int = 1500):
  """A linear projector that lowers the bound on fixed features.

  Second views differ from the first ones along some random directions only. Returns
  the weights and how much of the directions they keep, 1 for weights that do not care.
  """
  keys = jax.random.split(key, 4)
  first = jax.random.normal(keys[0], (COUNT, DIM))
  axes = jnp.linalg.qr(jax.random.normal(keys[1], (DIM, directions)))[0]
  second = first + scale * jax.random.normal(keys[2], (COUNT, directions)) @ axes.T
  start = jax.random.normal(keys[3], (DIM, OUTPUTS)) / DIM**0.5

  def objective(weights: Array) -> Array:
    bound = losses.info_nce_bound(first @ weights, second @ weights, temperature=0.5)
    return jnp.mean(bound.value) + 5e-3 / 2 * jnp.sum(weights**2)

  def step(weights: Array, _: None) -> tuple[Array, None]:
    return weights - 0.05 * jax.grad(objective)(weights), None

  weights, _ = jax.lax.scan(step, start, length=steps)
  kept = jnp.sum((weights.T @ axes) ** 2) / jnp.sum(weights**2)
  return weights, jnp.sqrt(kept * DIM / directions)


def fixed_features(seeds: int, first: int) -> tuple[list[Any], list[Any]]:
  """Proposition 4.2 as it can be said: augmented directions are projected away."""
  numbers = jnp.arange(first, first + seeds)
  keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(11), numbers)
  kept, ranks, rows = {}, {}, []
  for directions in DIRECTIONS:
    for scale in SCALES:
      one = functools.partial(learned, directions=directions)
      weights, share = jax.vmap(one, (0, None))(keys, jnp.float32(scale))
      kept[directions, scale] = np.asarray(share)
      ranks[directions, scale] = np.asarray(jax.vmap(metrics.effective_rank)(weights))
      name = f"fixed features, {directions} directions, scale {scale:g}"
      rows += [
        results.row(name, "kept of the directions", kept[directions, scale]),
        results.row(name, "effective rank of W", ranks[directions, scale]),
      ]
  high = SCALES[-1]
  falls = np.min(
    [
      kept[r, a] - kept[r, b] for r in DIRECTIONS for a, b in itertools.pairwise(SCALES)
    ],
    axis=0,
  )
  few = np.minimum(*(0.1 - kept[r, high] for r in DIRECTIONS[:2]))
  many, least = DIRECTIONS[-1], DIRECTIONS[0]
  found = (
    (
      "S10-strength",
      "the directions of stronger augmentations are kept less, each number of them and "
      "each step of strength",
      falls,
    ),
    (
      "S10-few",
      "no more directions than fit in the kernel: < .1 is kept of strong ones",
      few,
    ),
    ("S10-many", "more directions than fit: > .4 is kept", kept[many, high] - 0.4),
    (
      "S10-rank",
      "effective rank of W is smaller for more directions",
      ranks[least, high] - ranks[many, high],
    ),
  )
  return rows, [claim(*each, "Prop. 4.2") for each in found]


def turned(seed: int) -> np.ndarray:
  """Ranks of the covariance of a pixel's rotations, for each range of angles."""
  random = np.random.default_rng(seed)
  place = random.integers(_SIDE, size=2)
  shares = random.uniform(size=_TURNS)
  return np.array([_rank(_rotations(place, shares * angle)) for angle in ANGLES])


def _rotations(place: np.ndarray, degrees: np.ndarray) -> np.ndarray:
  """[turns, pixels] of one pixel rotated about the centre, bilinear, 0 outside."""
  centre = (_SIDE - 1) / 2
  cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
  y, x = np.meshgrid(*[np.arange(_SIDE) - centre] * 2, indexing="ij")
  # Where a pixel of the rotated image lies in the old one.
  rows = cos[:, None] * y.ravel() - sin[:, None] * x.ravel() + centre
  columns = sin[:, None] * y.ravel() + cos[:, None] * x.ravel() + centre
  tents = [
    np.maximum(0, 1 - np.abs(found - own))
    for found, own in zip((rows, columns), place, strict=True)
  ]
  return tents[0] * tents[1]


def _rank(images: np.ndarray) -> int:
  images = images[:, images.any(0)]  # pixels that are never met do not matter
  values = np.linalg.svd(images - images.mean(0), compute_uv=False) ** 2
  return int((values > max(_NOTHING * values[0], 1e-20)).sum())


def rotations(seeds: int, first: int) -> tuple[list[Any], list[Any]]:
  """Appendix E."""
  ranks = np.array([turned(first + seed) for seed in range(seeds)])
  rows = [
    results.row("rotations of a pixel", f"rank, up to {angle} degrees", ranks[:, i])
    for i, angle in enumerate(ANGLES)
  ]
  steps = np.diff(ranks, axis=1).min(1)
  text = "the rank of the rotations of a pixel does not fall with their range"
  return rows, [claim("S12", text, steps + 0.5, "figure 10", every=True)]


def regions(widths: tuple[int, ...], key: Array) -> int:
  """Linear regions of a projector as it is drawn in which random features lie."""
  projector = Projector(widths)
  draw_key, key = jax.random.split(key)
  x = jax.random.normal(key, (_POINTS, DIM))
  params = projector.init(draw_key, x)
  return activation_patterns(projector, params, x)


def activation_patterns(projector: Projector, params: Any, x: Array) -> int:
  """Different patterns of active units that rows of x meet; 1 without hidden units."""
  _, kept = projector.apply(params, x, capture_intermediates=True)
  hidden = [
    np.asarray(kept["intermediates"][f"layer{i}"]["__call__"][0]) > 0
    for i in range(len(projector.widths) - 1)
  ]
  return int(metrics.count_regions(np.concatenate(hidden, 1))) if hidden else 1


def depths(seeds: int, first: int) -> tuple[list[Any], list[Any]]:
  """Section 5: more layers and units, more linear regions."""
  keys = [jax.random.key(first + seed) for seed in range(seeds)]
  found = {widths: [regions(widths, key) for key in keys] for widths in DEPTHS}
  rows = [
    results.row(f"projector {'-'.join(map(str, widths))}, drawn", "regions", values)
    for widths, values in found.items()
  ]
  values = np.array(list(found.values()))
  grows = np.diff(values, axis=0)
  texts = (
    ("S11-hidden", "a hidden layer has more"),
    ("S11-wider", "a wider hidden layer has more"),
    ("S11-second", "a second hidden layer has more"),
  )
  claims = [
    claim(key, f"{text} linear regions", more, "section 5", every=True)
    for (key, text), more in zip(texts, grows, strict=True)
  ]
  linear = [0.5 - abs(number - 1) for number in found[DEPTHS[0]]]
  text = "a linear projector has one region"
  return rows, [*claims, claim("S11-linear", text, linear, "section 5", every=True)]


def claim(
  name: str, text: str, values: Any, source: str, *, every: bool = False
) -> dict[str, Any]:
  """Of this paper."""
  return results.claim(name, text, values, paper=f"{PAPER}, {source}", every_seed=every)


TOYS = {"fixed_features": fixed_features, "depths": depths, "rotations": rotations}
