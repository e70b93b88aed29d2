"""Every pooling against its oracle and one contract.

A new pooling needs a row in `tests/pooling/cases`.
"""

import importlib
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import _versions, pooling
from tests.pooling.cases._frame import HEIGHT, KEEP, WIDTH, Case, batches

FOLDER = pathlib.Path(__file__).parent / "cases"
CASES: dict[str, Case] = {}
for path in sorted(FOLDER.glob("[a-z]*.py")):
  CASES |= importlib.import_module(f"tests.pooling.cases.{path.stem}").CASES

# Solvers, whose oracles solve as well: tests/pooling/test_gsp*.py.
NO_CASES = {"gsp", "gsp_fixed_point", "gsp_linear_program", "gsp_weights"}
# What belongs to a pooling: tests/pooling/test_identities_transport.py.
NO_CASES |= {"dominant_prototypes", "netvlad_assignment"}
ALL = np.ones_like(KEEP)


def test_every_pooling_has_a_case():
  functions = {
    name
    for name in pooling.__all__
    if not isinstance(getattr(pooling, name), type) and name not in NO_CASES
  }
  assert functions == {name.split("/")[0] for name in CASES}


class Runner:
  """The compiled calls of one case, and what they should give."""

  def __init__(self, name: str):
    self.case = CASES[name]
    self.batches = batches(self.case)
    self.params = {k: np.asarray(v, np.float64) for k, v in self.case.params.items()}
    self.width = self.oracle(self.batches["mixed"][0], ALL[0]).size
    self.weights = np.random.default_rng(7).uniform(0.5, 1.5, (len(KEEP), self.width))
    self.jitted = jax.jit(self.traced)

  def shaped(self, x):
    """One axis of positions as the case wants it."""
    return x.reshape(len(x), HEIGHT, WIDTH, *x.shape[2:]) if self.case.layout else x

  def traced(self, features, params, where):
    """Pooled [batch, d], and gradients of their weighted sum."""

    def total(features, params):
      pooled = self.case.pool(features, params, where=where)
      # Another cotangent for every entry.
      return jnp.sum(pooled * self.weights.astype(pooled.dtype)), pooled

    gradients, pooled = jax.grad(total, (0, 1), has_aux=True)(features, params)
    return pooled, gradients

  def __call__(self, x, keep=ALL, dtype: Any = np.float64, factor=1.0):
    """Pooled and gradients, features [batch, n, D] whatever the case wants."""
    wide = np.float32 if dtype == jnp.bfloat16 else dtype  # as modules own them
    params = {k: jnp.asarray(factor * v, wide) for k, v in self.params.items()}
    features = jnp.asarray(self.shaped(np.where(keep[..., None], x, np.nan)), dtype)
    pooled, (by_features, by_params) = self.jitted(
      features, params, jnp.asarray(self.shaped(keep))
    )
    return pooled, (np.asarray(by_features, np.float64).reshape(x.shape), by_params)

  def arranged(self, image, keep):
    """One image as the oracle wants it."""
    if not self.case.layout:
      return image[keep]
    return np.where(keep[:, None], image, 0).reshape(HEIGHT, WIDTH, -1)

  def oracle(self, image, keep, params=None, before=None):
    """Pooled image, where gradients stop from the image `before`."""
    params = self.params if params is None else params
    mask = [keep.reshape(HEIGHT, WIDTH)] if self.case.layout else []
    frozen = {}
    if self.case.frozen and before is not None:
      frozen = {"frozen": (self.arranged(before, keep), self.params)}
    return np.asarray(
      self.case.oracle(self.arranged(image, keep), params, *mask, **frozen)
    )

  def expected(self, x, keep=ALL, params=None, before=None):
    """The oracle of all images, 0 for an image that is masked."""
    pooled = np.zeros((len(x), self.width))
    for i in np.flatnonzero(keep.any(axis=1)):
      at = x[i] if before is None else before[i]
      pooled[i] = self.oracle(x[i], keep[i], params, at)
    return pooled

  def slope(self, x, keep, moves, changes, step=2e-6):
    """Central difference of the weighted sum, along moves and changed parameters."""

    def total(step):
      params = {k: v + step * changes[k] for k, v in self.params.items()}
      moved = self.expected(x + step * moves, keep, params, x)
      return np.sum(self.weights * moved)

    return (total(step) - total(-step)) / (2 * step)


def _close(actual, expected, rtol):
  for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    a, e = np.asarray(a, np.float64), np.asarray(e, np.float64)
    np.testing.assert_allclose(a, e, rtol=rtol, atol=rtol * np.abs(e).max(initial=0))


def _finite(tree):
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def oracle(run: Runner):
  for x in run.batches.values():
    pooled, gradients = run(x)
    _close(pooled, run.expected(x), 1e-10)
    _finite(gradients)


def mask(run: Runner):
  """Masked positions are deleted; with nothing kept all is 0. Gradients of both."""
  x = run.batches["mixed"]
  pooled, (by_features, by_params) = run(x, KEEP)
  _close(pooled, run.expected(x, KEEP), 1e-10)
  np.testing.assert_array_equal(pooled[~KEEP.any(axis=1)], 0)
  np.testing.assert_array_equal(by_features[~KEEP], 0)
  random = np.random.default_rng(8)
  for _ in range(3):
    # 0 is a kink, or a jump, of poolings of what a relu gives.
    moves = random.normal(size=x.shape) * (x != 0) * KEEP[..., None]
    changes = {k: random.normal(size=v.shape) for k, v in run.params.items()}
    parts = [by_features * moves, *(by_params[k] * d for k, d in changes.items())]
    atol = 1e-7 * sum(np.abs(part).sum() for part in parts)
    slope = run.slope(x, KEEP, moves, changes)
    np.testing.assert_allclose(sum(map(np.sum, parts)), slope, rtol=1e-6, atol=atol)
  for leaf in jax.tree.leaves(run(x, ~ALL)):
    np.testing.assert_array_equal(leaf, 0)


def permute(run: Runner):
  x, others = run.batches["mixed"], np.arange(len(KEEP)) != 1
  order = np.random.default_rng(3).permutation(x.shape[1])
  pooled, _ = run(x, KEEP)
  if run.case.permutes:
    _close(run(x[:, order], KEEP[:, order])[0], pooled, 1e-12)
  spoilt = np.where(others[:, None, None], np.nan, x)
  _close(run(spoilt, KEEP)[0][1], pooled[1], 1e-12)


def degree(run: Runner):
  if run.case.degree is not None:
    x = run.batches["mixed"]
    _close(run(3 * x)[0], 3**run.case.degree * run(x)[0], 1e-9)


def float32(run: Runner):
  x = run.batches["mixed"].astype(np.float32).astype(np.float64)
  pooled, gradients = run(x, KEEP, np.float32)
  expected, slopes = run(x, KEEP)
  assert pooled.dtype == np.float32
  _close(pooled, expected, 2e-5)
  _close(gradients, slopes, 1e-4)
  for scale in (1, 1e4, 1e-20):
    _finite(run(scale * run.batches["degenerate"], dtype=np.float32))


def half(run: Runner):
  x = np.asarray(jnp.asarray(run.batches["mixed"], jnp.bfloat16), np.float64)
  pooled, gradients = run(x, KEEP, jnp.bfloat16)
  assert pooled.dtype == jnp.bfloat16
  _close(pooled, run(x, KEEP)[0], 1e-2)
  _finite(gradients)


def transforms(run: Runner):
  """One trace for all data; vmap over numbers, maps, no mask, forward derivatives."""
  # Float64, float32 and bfloat16.
  assert run.jitted._cache_size() <= 3, "traced more than once"
  x = run.batches["mixed"]
  maps = jnp.asarray(x.reshape(len(x), HEIGHT, WIDTH, -1))
  params = {k: jnp.asarray(v) for k, v in run.params.items()}

  def values(factor):
    scaled = {k: factor * v for k, v in params.items()}
    return run.case.pool(factor * maps, scaled, where=None)

  factors = np.array([1.0, 1.03])
  both = jax.vmap(lambda factor: jax.jvp(values, (factor,), (jnp.ones(()),)))
  pooled, tangents = jax.jit(both)(factors)
  for i, factor in enumerate(factors):
    expected, (by_features, by_params) = run(factor * x, factor=factor)
    _close(pooled[i], expected, 1e-10)
    slope = np.sum(by_features * x)
    slope += sum(np.sum(by_params[k] * params[k]) for k in by_params)
    _close(np.sum(tangents[i] * run.weights), slope, 1e-9)


CHECKS = (oracle, mask, permute, degree, float32, half, transforms)
# What its variants share with the pooling itself.
OF_THE_POOLING = (float32, half, transforms)
# Averages, powers, assignments, gates and correlations; the others are checked slowly.
IN_HALF = {"gap", "gem", "netvlad", "otp", "cbam", "solar"}
# The poolings without their variants.
POOLINGS = [name for name in CASES if "/" not in name]


@pytest.mark.parametrize("name", CASES)
def test_pooling(name, subtests):
  run = Runner(name)
  for check in CHECKS:
    if name not in POOLINGS and check in OF_THE_POOLING:
      continue
    if check is half and name not in IN_HALF:
      continue
    with subtests.test(check.__name__), _versions.enable_x64(True):
      check(run)


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLINGS)
def test_pooling_in_half_precision(name, x64):
  half(Runner(name))


@pytest.mark.parametrize(
  ("height", "width"), [pytest.param(1, 1, marks=pytest.mark.slow), (3, 4)]
)
# GSoP's weights of positions are of a fixed size; those of cells fit every map.
@pytest.mark.parametrize("name", sorted({*POOLINGS, "gsop/cells"} - {"gsop"}))
def test_maps_of_other_sizes(name, height, width, x64):
  """A map whole, and with the last position masked in a second image."""
  case = CASES[name]
  x = np.random.default_rng(2).normal(size=(2, height, width, case.channels))
  x = np.maximum(x, 0) + 0.1 if case.positive else x
  keep = np.ones((2, height, width), bool)
  keep[1, -1, -1] = False
  params = {k: np.asarray(v, np.float64) for k, v in case.params.items()}
  pool = jax.jit(lambda x, keep: case.pool(x, params, where=keep))
  results = pool(np.where(keep[..., None], x, np.nan), keep)
  for pooled, image, mask in zip(results, x, keep, strict=True):
    if not mask.any():
      np.testing.assert_array_equal(pooled, 0)
    elif case.layout:
      whole = np.where(mask[..., None], image, 0)
      _close(pooled, case.oracle(whole, params, mask), 1e-10)
    else:
      _close(pooled, case.oracle(image[mask], params), 1e-10)
