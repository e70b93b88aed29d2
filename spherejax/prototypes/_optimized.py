"""Prototypes on the sphere by descent on their repulsion."""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Key, Real

from spherejax import _checks, _numerics
from spherejax.prototypes import _closed_forms, _potential

Preset = Literal["scaled", "paper"]

# Annealed descent: inverse squared widths, and Adam's rates.
_SHARPNESS = (2.0, 1000.0)
_RATES = (0.05, 1e-4)
_PAPER_RATE = 0.1


def gaussian_potential_prototypes(
  key: Key[Array, ""],
  num_classes: int,
  dim: int,
  *,
  t: Real[ArrayLike, ""] = 2.0,
  steps: int = 1000,
  preset: Preset = "scaled",
) -> Float[Array, "num_classes dim"]:
  """Prototypes of DL2P: descent on the Gaussian potential from random prototypes.

      p <- normalize(p - rate dL/dp),    L = gaussian_potential(p, t=t)

  Use it to reproduce the paper. `annealed_prototypes` finds larger angles in a tenth of
  the steps, and `uniform_prototypes` has the best set for C <= 2 dim.

  Args:
    key: typed key of the start, uniform in a cube and normalised.
    num_classes: C. Static.
    dim: length of a prototype. Static.
    t: positive, may be traced. 2 in the paper's released code.
    steps: of the descent. Static.
    preset: "paper" has the rate 0.1 as printed, which for some hundred classes is far
      from converged: the gradient of a row is of the order of 1 / C. "scaled" has
      0.1 C, which reaches the minimum there and oscillates below some ten classes.
      Static.

  Returns:
    [num_classes, dim], unit rows, float32 (float64 under x64).

  Raises:
    TypeError: sizes or steps that are not static integers.
    ValueError: a size or steps below 1, more than 2 classes in one dimension, an
      unknown preset, or a static t that is not positive.

  Not differentiable. Cost: O(steps C^2 dim) time, O(C^2) memory.

  Source: DL2P 4.1 and eqs. 3-5; Wang and Isola 2020.

  Example:
    >>> points = spherejax.prototypes.gaussian_potential_prototypes(
    ...   jax.random.key(0), 20, 10
    ... )
    >>> float(spherejax.prototypes.prototype_quality(points).max) < 1e-3
    True
  """
  _checks.key("key", key)
  _closed_forms.check_sizes(num_classes, dim)
  _checks.count("steps", steps)
  _checks.one_of("preset", preset, Preset)
  _checks.positive("t", t)
  if num_classes == 1 or dim == 1:
    return _closed_forms.simplex(key, num_classes, dim)
  rate = _PAPER_RATE * (num_classes if preset == "scaled" else 1)
  start = jax.random.uniform(key, (num_classes, dim), minval=-1.0)
  return _descend(start, _checks.scalar("t", t, start.dtype), rate, steps)


def annealed_prototypes(
  key: Key[Array, ""],
  num_classes: int,
  dim: int,
  *,
  steps: int = 2000,
  restarts: int = 2,
  constant_run: bool = True,
) -> Float[Array, "num_classes dim"]:
  """Prototypes with large angles: descent on the largest cosine, sharpened in steps.

  Adam descends `smooth_max_cosine` along the sphere while t grows from 2 to 1000 and
  the rate falls from 0.05 to 1e-4. Among several runs from random starts, the one with
  the smallest largest cosine is returned.

  Args:
    key: typed key of the starts.
    num_classes: C. Static.
    dim: length of a prototype. Static.
    steps: of each run. 2000 comes within 1e-3 of the best known sets of up to 12
      prototypes in 3 dimensions; 100 are enough to be well ahead of
      `gaussian_potential_prototypes`. Static.
    restarts: runs with growing t, at least 1. Static.
    constant_run: True adds a run that stays at t = 2. It finds very symmetric sets that
      the other runs miss (24 prototypes in 4 dimensions). Static.

  Returns:
    [num_classes, dim], unit rows, float32 (float64 under x64).

  Raises:
    TypeError: sizes, steps or restarts that are not static integers, constant_run not
      boolean.
    ValueError: one of them below 1, or more than 2 classes in one dimension.

  Not differentiable. Cost: O(runs steps C^2 dim) time, O(runs C^2) memory.

  Source: DL2P eq. 3 with one t; the annealing is not in the paper. Adam: Kingma and Ba
  2015.

  Example:
    >>> points = spherejax.prototypes.annealed_prototypes(
    ...   jax.random.key(0), 7, 3, steps=500
    ... )
    >>> round(float(spherejax.prototypes.prototype_quality(points).max), 2)
    0.21
  """
  _checks.flag("constant_run", constant_run)
  _closed_forms.check_sizes(num_classes, dim)
  _checks.count("steps", steps)
  _checks.count("restarts", restarts)
  _checks.key("key", key)
  if num_classes == 1 or dim == 1:
    return _closed_forms.simplex(key, num_classes, dim)
  ends = [_SHARPNESS[1]] * restarts + [_SHARPNESS[0]] * constant_run
  starts = jax.random.normal(key, (len(ends), num_classes, dim))
  return _best_annealed(starts, jnp.asarray(ends, starts.dtype), steps)


@functools.partial(jax.jit, static_argnums=3)
def _descend(start: Array, t: Array, rate: ArrayLike, steps: int) -> Array:
  def step(rows: Array, _: None) -> tuple[Array, None]:
    gradient = 2 * t * _potential.repulsion(rows, t)
    return _numerics.normalize(rows - rate * gradient), None

  return jax.lax.scan(step, _numerics.normalize(start), length=steps)[0]


@functools.partial(jax.jit, static_argnums=2)
def _best_annealed(starts: Array, ends: Array, steps: int) -> Array:
  """Best of the runs from [runs, n, dim] towards [runs] final values of t."""
  results, cosines = jax.vmap(functools.partial(_anneal, steps=steps))(starts, ends)
  return results[jnp.argmin(cosines)]


def _anneal(start: Array, end: Array, *, steps: int) -> tuple[Array, Array]:
  """Rows after one annealing run, and their largest cosine."""

  def step(carry: tuple[Array, _numerics.AdamMoments], done: Array):
    rows, moments = carry
    share = done / max(steps - 1, 1)
    t = _SHARPNESS[0] * (end / _SHARPNESS[0]) ** share
    rate = _RATES[0] * (_RATES[1] / _RATES[0]) ** share
    gradient = _potential.repulsion(rows, t)
    direction, moments = _numerics.adam(gradient, moments, done + 1)
    return (_numerics.normalize(rows - rate * direction), moments), None

  rows = _numerics.normalize(start)
  nothing = jnp.zeros_like(rows)
  times = jnp.arange(steps, dtype=rows.dtype)
  moments = _numerics.AdamMoments(nothing, nothing)
  (rows, _), _ = jax.lax.scan(step, (rows, moments), times)
  return rows, _potential.max_cosine(rows)
