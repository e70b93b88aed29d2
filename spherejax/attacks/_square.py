"""Square attack: random search over windows of an image, without gradients."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.attacks import _problem, _track
from spherejax.attacks._problem import AttackResult, Problem
from spherejax.attacks._region import Ball
from spherejax.attacks._track import Aim, Track, where

SquareNorm = Literal["linf", "l2"]

_HALVED_AFTER = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # per 10,000


def window_sides(queries: int, height: int, width: int, share: float, norm: SquareNorm):
  """Side of the window at each query, odd for l2."""
  place = np.arange(queries) * 10_000 // queries
  part = share / 2.0 ** np.searchsorted(_HALVED_AFTER, place, side="left")
  side = np.round(np.sqrt(part * height * width)).astype(np.int32)
  largest = min(height, width)
  if norm == "linf":
    return np.clip(side, 1, largest)
  side = np.maximum(side, 3)
  return np.minimum(side + 1 - side % 2, largest - 1 + largest % 2)


def square(
  logits_fn: Callable[[Array], Array],
  x: Float[ArrayLike, "batch height width channels"],
  labels: Integer[ArrayLike, " batch"],
  *,
  key: Array,
  epsilon: Real[ArrayLike, "..."],
  norm: SquareNorm = "linf",
  queries: int = 5000,
  share: float = 0.8,
  targets: Integer[ArrayLike, " batch"] | None = None,
  low: Real[ArrayLike, "..."] = 0.0,
  high: Real[ArrayLike, "..."] = 1.0,
  index: Integer[ArrayLike, " batch"] | None = None,
) -> AttackResult:
  """Square attack: changes random windows of an image where this raises the margin.

  linf: starts with random columns of +-epsilon; each query sets a window to +-epsilon,
    one sign per channel. l2: starts with a grid of small pyramids; each query moves the
    budget of one window, and any unused budget, into a pyramid in another. The windows
    shrink as queries go by. Each sample has its own windows and signs, and a broken
    sample makes no further queries.

  Args:
    logits_fn: maps [batch, height, width, channels] to [batch, classes], pure. A new
      function compiles again: see `spherejax.attacks`.
    x: [batch, height, width, channels], floating, in the box.
    labels: [batch], integer in [0, classes).
    key: a typed PRNG key.
    epsilon: radius, at least 0, one number or [batch]; may be traced; inf for the box.
    norm: "linf" or "l2". Static.
    queries: static. Largest number of queries, besides those of x and the start.
    share: share of the image that the first windows cover, in (0, 1]. Static.
    targets: [batch], integer, the classes to reach, not the labels. None: any wrong
      class.
    low: least value of an entry; broadcasts to x.
    high: largest value; likewise.
    index: [batch], the samples' numbers, for the keys.

  Returns:
    AttackResult of the first success, else of the largest margin. More queries never
    lower the margin.

  Raises:
    TypeError: x not floating, labels or targets not integers, no key, or an
      `Expectation`.
    ValueError: shapes do not match, an unknown norm, share outside (0, 1], and, where
      known, epsilon below 0, or inf in an infinite box, x outside the box,
      labels or targets out of range.

  Verified on: no exact answer. Tests check that its moves are the paper's and that the
  margin never falls. `converged` is often false: a random search improves while it goes
  on.

  Differentiable in: nothing; the model need not be differentiable. Cost: `queries`
  evaluations.

  Source: Andriushchenko et al. 2020, "Square attack: a query-efficient black-box
  adversarial attack via random search". Their code never reaches the last row and
  column and shares windows and signs over a batch.

  Example:
    >>> logits_fn = lambda x: jnp.stack([x.mean((1, 2, 3)), 1 - x.mean((1, 2, 3))], 1)
    >>> x, labels = jnp.full((1, 8, 8, 1), 0.6), jnp.array([0])
    >>> found = spherejax.attacks.square(
    ...   logits_fn, x, labels, key=jax.random.key(0), epsilon=0.2, queries=50)
    >>> found.success
    Array([ True], dtype=bool)
  """
  _checks.key("key", key)
  _problem.deterministic("square", logits_fn)
  images = _checks.array("x", x, rank=4)
  _checks.one_of("norm", norm, SquareNorm)
  _checks.count("queries", queries, 0)
  _checks.between("share", share, 0, 1, low_open=True)
  _checks.single("share", share)
  problem = _problem.setup(
    logits_fn, images, labels, key=key, index=index, low=low, high=high
  )
  region = _problem.ball(problem, epsilon, norm)
  aim = Aim("margin")
  if targets is not None:
    aim = aim._replace(targets=_problem.targets_of(problem, targets))
  _, height, width, _ = images.shape
  sides = jnp.asarray(window_sides(queries, height, width, share, norm))
  begin, move = (_stripes, _recolour) if norm == "linf" else (_grid, _shift_budget)
  clean = _track.value(problem, aim, problem.clean)
  track = _track.first_track(problem)
  start = _move(problem, region, begin, problem.clean, -1)
  track = _take(problem, aim, track, start, ~clean.success, jnp.asarray(False))

  def advance(state):
    step, track = state
    points = _move(problem, region, move, track.point, step, sides[step])
    running = ~clean.success & ~track.success
    late = _track.late(step + 1, queries)
    return step + 1, _take(problem, aim, track, points, running, late)

  def unfinished(state):
    return (state[0] < queries) & jnp.any(~clean.success & ~state[1].success)

  if queries:
    _, track = jax.lax.while_loop(unfinished, advance, (0, track))
  return _track.finish(problem, track, region.size, clean)


def _take(
  problem: Problem, aim: Aim, track: Track, points: Array, running: Array, late: Array
) -> Track:
  """Keeps the points where the attack still runs and the margin is larger."""
  evaluation = _track.value(problem, aim, points)
  taken = _track.keep(track, points, evaluation, mode="evaluate", late=late)
  return Track(*(where(running, a, b) for a, b in zip(taken, track, strict=True)))


def _move(problem: Problem, region: Ball, change, points: Array, step, *side) -> Array:
  """Applies a change of one image to all of them and returns to the region."""
  shape = problem.shape[1:]

  def move_sample(key, point, clean, epsilon):
    key = jax.random.fold_in(key, step + 1)
    delta = (point - clean).reshape(shape)
    return clean + change(key, delta, epsilon, *side).ravel()

  moved = jax.vmap(move_sample)(problem.keys, points, problem.clean, region.epsilon)
  if region.norm == "linf":
    return region.project(moved, problem.clean)
  moved = jnp.clip(moved, problem.low, problem.high)  # the norm is epsilon already
  return region.seal(moved, problem.clean)


def _signs(key: Array, shape: tuple[int, ...], delta: Array) -> Array:
  return jax.random.rademacher(key, shape, delta.dtype)


def _stripes(key: Array, delta: Array, epsilon: Array) -> Array:
  _, width, channels = delta.shape
  signs = epsilon * _signs(key, (1, width, channels), delta)
  return jnp.broadcast_to(signs, delta.shape)


def _window(key: Array, delta: Array, side: Array) -> tuple[Array, Array, Array]:
  """Rows and columns counted from a random corner, and whether they are inside."""
  height, width, _ = delta.shape
  first, second = jax.random.split(key)
  top = jax.random.randint(first, (), 0, height - side + 1)
  left = jax.random.randint(second, (), 0, width - side + 1)
  row, column = jnp.arange(height)[:, None] - top, jnp.arange(width)[None] - left
  inside = (row >= 0) & (row < side) & (column >= 0) & (column < side)
  return row, column, inside[..., None]


def _recolour(key: Array, delta: Array, epsilon: Array, side: Array) -> Array:
  first, second = jax.random.split(key)
  *_, inside = _window(first, delta, side)
  signs = _signs(second, (1, 1, delta.shape[-1]), delta)
  return jnp.where(inside, epsilon * signs, delta)


def _pyramids(row: Array, column: Array, side, extent: int) -> Array:
  """Pyramids of norm 1: up over the upper half of a square, down under the lower.

  Each is a sum of nested rectangles r with height 1 / (r + 1)^2.
  """
  row, column = jnp.broadcast_arrays(row, column)
  terms = 1.0 / np.arange(1, extent + 2) ** 2
  sums = jnp.asarray(np.concatenate([[0], np.cumsum(terms)]), jnp.float32)
  upper = side // 2
  total = 0.0
  for sign, top, height in ((1, 0, upper), (-1, upper, side - upper)):
    ring = jnp.maximum(jnp.abs(row - top - height // 2), jnp.abs(column - side // 2))
    rings = jnp.maximum(height // 2, side // 2) + 1
    inside = (row >= top) & (row < top + height) & (column >= 0) & (column < side)
    high = sums[rings] - sums[jnp.clip(ring, 0, extent + 1)]
    total = total + sign * _numerics.normalize(jnp.where(inside, high, 0).ravel())
  return _numerics.normalize(total).reshape(row.shape)


def _grid(key: Array, delta: Array, epsilon: Array) -> Array:
  """Grid of pyramids, a fifth of the image wide, with random signs and directions."""
  height, width, channels = delta.shape
  side = max(min(height, width) // 5, 1)
  tiles = (height // side, width // side)
  first, second = jax.random.split(key)
  place = jnp.arange(side)
  upright = _pyramids(place[:, None], place[None], side, side)
  turned = jax.random.bernoulli(first, 0.5, (*tiles, 1, 1))
  pattern = jnp.where(turned, upright.T, upright)[..., None]
  pattern = pattern * _signs(second, (*tiles, 1, 1, channels), delta)
  covered = (tiles[0] * side, tiles[1] * side)
  pattern = pattern.transpose(0, 2, 1, 3, 4).reshape(*covered, channels)
  before = [
    (full - part) // 2 for full, part in zip(delta.shape, covered, strict=False)
  ]
  after = [delta.shape[i] - covered[i] - before[i] for i in range(2)]
  pattern = jnp.pad(pattern, (*zip(before, after, strict=True), (0, 0)))
  return epsilon * _numerics.normalize(pattern.ravel()).reshape(delta.shape)


def _shift_budget(key: Array, delta: Array, epsilon: Array, side: Array) -> Array:
  """Moves the budget of one window, and the unused budget, into another."""
  keys = jax.random.split(key, 4)
  row, column, inside = _window(keys[0], delta, side)
  *_, emptied = _window(keys[1], delta, side)
  extent = max(delta.shape[:2])
  upright = _pyramids(row, column, side, extent)
  across = _pyramids(column, row, side, extent)
  pattern = jnp.where(jax.random.bernoulli(keys[2]), across, upright)[..., None]
  pattern = pattern * _signs(keys[3], (1, 1, delta.shape[-1]), delta)

  def size(part):  # of each channel
    return jnp.sqrt(jnp.sum(part**2, axis=(0, 1), keepdims=True))

  old = jnp.where(inside, delta, 0)
  mixed = jnp.where(inside, pattern + _numerics.divide(old, size(old)), 0)
  left = jnp.maximum(epsilon**2 - jnp.sum(delta**2), 0) / delta.shape[-1]
  budget = left + size(jnp.where(inside | emptied, delta, 0)) ** 2
  filled = _numerics.divide(mixed, size(mixed)) * jnp.sqrt(budget)
  moved = jnp.where(inside, filled, jnp.where(emptied, 0, delta))
  return epsilon * _numerics.normalize(moved.ravel()).reshape(delta.shape)
