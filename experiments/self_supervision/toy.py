"""Results without images: fixed features, rotations of a pixel, regions."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from flax.typing import VariableDict
from jax import Array
from scipy import ndimage

from experiments.frame.study import Claim, Table
from experiments.self_supervision.training import Projector
from spherejax import losses, metrics

DIM, OUTPUTS, COUNT = 32, 16, 64
DIRECTIONS = (4, 16, 24)
SCALES = (0.1, 1.0, 4.0)
ANGLES = (0, 5, 15, 45, 90, 180, 360)
_SIDE, _TURNS = 32, 500
_NEGLIGIBLE = 1e-6  # relative to the largest eigenvalue of a covariance
DEPTHS = ((OUTPUTS,), (4, OUTPUTS), (8, OUTPUTS), (8, 8, OUTPUTS))
_POINTS = 1000
KEPT, REGIONS, PIXEL = "kept of the directions", "regions", "rotations of a pixel"
RANKS = [f"rank, up to {angle} degrees" for angle in ANGLES]


@functools.partial(jax.jit, static_argnames=("directions", "steps"))
def learned(key: Array, scale: Array, *, directions: int, steps: int = 1500):
  """Trains a linear projector to lower the bound on fixed features.

  Second views differ from first views only along some random directions. Returns the
  weights, and how much of these directions they keep: 1 for random weights.
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
  within_axes = jnp.sum((weights.T @ axes) ** 2) / jnp.sum(weights**2)
  return weights, jnp.sqrt(within_axes * DIM / directions)


def _fixed(directions: int, scale: float) -> str:
  return f"fixed features, {directions} directions, scale {scale:g}"


def fixed_features(table: Table, seeds: int, first: int) -> None:
  """Tests a weak form of proposition 4.2: augmented directions are projected away."""
  numbers = jnp.arange(first, first + seeds)
  keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(11), numbers)
  for directions, scale in itertools.product(DIRECTIONS, SCALES):
    learned_share = functools.partial(learned, directions=directions)
    weights, share = jax.vmap(learned_share, (0, None))(keys, jnp.float32(scale))
    ranks = jax.vmap(metrics.effective_rank)(weights)
    measures = {KEPT: share, "effective rank of W": ranks}
    table.add_all(_fixed(directions, scale), measures)


def rotation_ranks(seed: int) -> np.ndarray:
  """Ranks of the covariance of a pixel's rotations, for each range of angles."""
  random = np.random.default_rng(seed)
  image = np.zeros((_SIDE, _SIDE))
  image[tuple(random.integers(_SIDE, size=2))] = 1
  shares = random.uniform(size=_TURNS)
  turn = functools.partial(
    ndimage.rotate, image, reshape=False, order=1, mode="grid-constant"
  )
  ranges = (np.array([turn(-x * angle).ravel() for x in shares]) for angle in ANGLES)
  return np.array([*map(_rank, ranges)])


def _rank(images: np.ndarray) -> int:
  images = images[:, images.any(0)]  # pixels that are always 0 do not matter
  values = np.linalg.svd(images - images.mean(0), compute_uv=False) ** 2
  return int((values > max(_NEGLIGIBLE * values[0], 1e-20)).sum())


def rotations(table: Table, seeds: int, first: int) -> None:
  for seed in range(first, first + seeds):
    table.add_all(PIXEL, dict(zip(RANKS, rotation_ranks(seed), strict=True)))


def regions(widths: tuple[int, ...], key: Array) -> int:
  """Number of linear regions of an untrained projector that random features meet."""
  projector = Projector(widths)
  draw_key, key = jax.random.split(key)
  x = jax.random.normal(key, (_POINTS, DIM))
  params = projector.init(draw_key, x)
  return activation_patterns(projector, params, x)


def activation_patterns(projector: Projector, params: VariableDict, x: Array) -> int:
  """Number of different patterns of active units over rows of x; 1 without any."""
  _, captured = projector.apply(params, x, capture_intermediates=True)
  hidden = [
    np.asarray(captured["intermediates"][f"layer{i}"]["__call__"][0]) > 0
    for i in range(len(projector.widths) - 1)
  ]
  return int(metrics.count_regions(np.concatenate(hidden, 1))) if hidden else 1


def _name(widths: tuple[int, ...]) -> str:
  return f"projector {'-'.join(map(str, widths))}, drawn"


def depths(table: Table, seeds: int, first: int) -> None:
  """Adds numbers of linear regions; they grow with layers and units (SSL section 5)."""
  for widths, seed in itertools.product(DEPTHS, range(first, first + seeds)):
    table.add(_name(widths), REGIONS, regions(widths, jax.random.key(seed)))


TOYS = {toy.__name__: toy for toy in (fixed_features, depths, rotations)}


def _kept_share(table: Table, directions: int, scale: float) -> np.ndarray:
  return table.values(KEPT, _fixed(directions, scale))


FEW, SOME, MANY = DIRECTIONS
_, NARROW, WIDE, SECOND = map(_name, DEPTHS)
CLAIMS = Claim.of_rows([
  ("S10-strength",
   "the directions of stronger augmentations are kept less, each number of them and "
   "each step of strength",
   lambda t: np.min(
     [
       _kept_share(t, r, a) - _kept_share(t, r, b)
       for r in DIRECTIONS
       for a, b in itertools.pairwise(SCALES)
     ],
     axis=0,
   ), "Prop. 4.2"),
  ("S10-few",
   "no more directions than fit in the kernel: < .1 is kept of strong ones",
   lambda t: np.minimum(*(0.1 - _kept_share(t, r, SCALES[-1]) for r in (FEW, SOME))),
   "Prop. 4.2"),
  ("S10-many", "more directions than fit: > .4 is kept",
   lambda t: _kept_share(t, MANY, SCALES[-1]) - 0.4, "Prop. 4.2"),
  ("S10-rank", "effective rank of W is smaller for more directions",
   lambda t: t.gain(
     "effective rank of W", _fixed(FEW, SCALES[-1]), over=_fixed(MANY, SCALES[-1])
   ), "Prop. 4.2"),
  ("S11-wider", "a wider hidden layer has more linear regions",
   lambda t: t.gain(REGIONS, WIDE, over=NARROW), "section 5"),
  ("S11-second", "a second hidden layer has more linear regions",
   lambda t: t.gain(REGIONS, SECOND, over=WIDE), "section 5"),
  ("S12",
   "the rank of the rotations of a pixel grows with their range, at every step of it",
   lambda t: np.diff([t.values(measure, PIXEL) for measure in RANKS], axis=0).min(0),
   "figure 10"),
], "SSL,")  # fmt: skip
