"""Every loss against its oracle and one contract; prints a table of what was checked.

A new loss needs a row in `tests/losses/cases`.
"""

import functools
import importlib
import inspect
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import _versions, losses
from spherejax.losses import _blocks
from tests.losses.cases._frame import AS_IN_OTHERS, CLASSES, Batch, Case, batches

FOLDER = pathlib.Path(__file__).parent / "cases"
CASES: dict[str, Case] = {}
for path in sorted(FOLDER.glob("[a-z]*.py")):
  CASES |= importlib.import_module(f"tests.losses.cases.{path.stem}").CASES

# Exports that are no losses have tests of their own.
NO_LOSSES = {
  "conditional_log_probabilities", "memory_init", "memory_references", "memory_update",
  "pair_counts", "ridge_attribute_embeddings", "split_by_class",
}  # fmt: skip
# Variances and correlations of single dimensions.
BY_DIMENSION = {"barlow_twins", "signal_to_noise_contrastive", "vicreg"}
KEEP = np.array([True, True, False, True, True, False, True, True, False, True])


@pytest.fixture(autouse=True)
def few_columns(monkeypatch):
  """Sums go over as many as a block has, not over thousands, where there are blocks."""
  monkeypatch.setattr(_blocks, "_COLUMNS", 4)


def test_every_loss_has_a_case():
  functions = {
    name
    for name in losses.__all__
    if not isinstance(getattr(losses, name), type) and not name.startswith("mine_")
  }
  assert functions - {name.split("/")[0] for name in CASES} - NO_LOSSES == set()


def test_defaults_are_the_papers():
  for name, numbers in {
    "contrastive": {"positive_margin": 0, "negative_margin": 1, "average": "nonzero"},
    "cosine_contrastive": {"margin": 0.5},
    "hadsell_contrastive": {"margin": 1},
    "multi_similarity": {"positive_scale": 2, "negative_scale": 50, "threshold": 0.5},
    "circle": {"margin": 0.4, "scale": 80},
    "nca": {"scale": 1, "form": "log"},
    "lifted_structure": {"margin": 1},
    "generalized_lifted_structure": {"positive_margin": 0, "negative_margin": 1},
    "margin": {"boundary": 1.2, "margin": 0.2, "boundary_weight": 0, "form": "pairs"},
    "n_pair": {"norm_weight": 0, "normalize": "none"},
    "threshold_consistent_margin": {"positive_margin": 0.9, "negative_margin": 0.5},
    "intra_pair_variance": {"positive_tolerance": 0.01, "negative_tolerance": 0.01},
    "dynamic_soft_margin": {"momentum": 0.01},
    "normface": {"scale": 64},
    "proxy_anchor": {"scale": 32, "margin": 0.1},
    "proxy_nca_plus_plus": {"temperature": 1 / 9, "logit": "squared_euclidean"},
    "zero_shot_prediction": {"ridge": 0.05, "scale": 1},
  }.items():
    defaults = inspect.signature(getattr(losses, name)).parameters
    assert {key: defaults[key].default for key in numbers} == numbers


class Runner:
  """The compiled calls of one case, and what they should give."""

  def __init__(self, name: str):
    self.case = case = CASES[name]
    self.name, self.variant = name, "/" in name
    self.batches = batches(case)
    generator = np.random.default_rng(7)
    self.weights = generator.uniform(0.5, 1.5, len(KEEP))
    self.params = {k: np.asarray(v, np.float64) for k, v in case.params.items()}

  def traced(self, rows, labels, params, where, weights, **options):
    """Values [batch], and gradients of their weighted sum."""

    def total(rows, params):
      values = self.case.loss(rows, labels, params, where=where, **options)
      # A cotangent for every row; what is masked has none that counts.
      return jnp.sum(values * weights.astype(values.dtype)), values

    if not self.case.grad:
      return total(rows, params)[1], ({}, {})
    gradients, values = jax.grad(total, (0, 1), has_aux=True)(rows, params)
    return values, gradients

  @functools.cached_property
  def jitted(self):
    return jax.jit(self.traced, static_argnames=("block_size",))

  def arguments(self, batch: Batch, dtype: Any, keep=None, **changed):
    """Arrays of NumPy: every operation of jax on them would be compiled."""

    def cast(tree):
      return {k: np.asarray(v, dtype) for k, v in tree.items()}

    rows, params = batch.rows, self.params | changed
    keep = np.ones(len(KEEP), bool) if keep is None else keep
    rows = {k: np.where(keep[:, None], v, np.nan) for k, v in rows.items()}
    return cast(rows), batch.labels, cast(params), keep, self.weights.astype(dtype)

  def __call__(self, batch: Batch, dtype: Any = np.float64, keep=None, **changed):
    return jax.tree.map(
      np.asarray, self.jitted(*self.arguments(batch, dtype, keep, **changed))
    )

  @functools.cached_property
  def together(self):
    """Float32 calls in one mapped program, and of most what float64 gives for them.

    The batch, the batch and all numbers a little larger, the degenerate batches; then
    the sharp setting, duplicates, zeros and rows that are all the same, which must be
    finite; last a first row that is no number.
    """
    calls, exact = [], []
    first, *degenerate = self.batches
    for k, name in enumerate([first, first, *degenerate]):
      rows, labels, params, *rest = self.arguments(self.batches[name], np.float32)
      if k == 1:
        rows, params = jax.tree.map(lambda x: x * np.float32(1.03), (rows, params))
      calls.append((rows, labels, params))
      rows, params = jax.tree.map(lambda x: np.asarray(x, np.float64), (rows, params))
      exact.append(self(Batch(rows, labels), **params))
    for name in ("mixed", "duplicates", "zeros", "identical"):
      sharp = self.arguments(self.batches[name], np.float32, **self.case.sharp)
      calls.append(sharp[:3])
    broken = self.arguments(self.batches[first], np.float32, np.arange(len(KEEP)) > 0)
    calls.append(broken[:3])
    stacked = jax.tree.map(lambda *x: np.stack(x), *calls)
    mapped = jax.vmap(self.traced, in_axes=(0, 0, 0, None, None))
    return jax.tree.map(np.asarray, jax.jit(mapped)(*stacked, *rest)), exact

  def oracle(self, batch: Batch, params=None, **frozen) -> np.ndarray:
    params = self.params if params is None else params
    return np.asarray(self.case.oracle(batch.rows, batch.labels, params, **frozen))

  def same_values(self, name: str):
    """Returns the gradients."""
    values, gradients = self(self.batches[name])
    _close(values, self.oracle(self.batches[name]), 1e-10)
    return gradients

  def same_slopes(self, gradients, batch: Batch, weights: np.ndarray, moves=None):
    """A derivative by each array, against differences of the oracle's weighted sum.

    Each is along a direction of unit length through all entries of the array, so that
    no entry moves farther than it would alone; of the rows only some may move.
    """
    frozen = {"frozen": (batch.rows, self.params)} if self.case.frozen else {}
    start, tree = jax.tree.flatten((batch.rows, self.params))
    generator = np.random.default_rng(11)
    pairs = zip(start, jax.tree.leaves(gradients), strict=True)
    for k, (entries, gradient) in enumerate(pairs):
      direction = generator.normal(size=entries.shape)
      if moves is not None and k < len(batch.rows):
        direction[~moves] = 0
      direction /= np.sqrt(np.sum(direction**2))

      def values(distance, k=k, direction=direction):
        moved = [*start[:k], start[k] + distance * direction, *start[k + 1 :]]
        rows, params = jax.tree.unflatten(tree, moved)
        return self.oracle(batch._replace(rows=rows), params, **frozen)

      quotient = weights @ _difference(values, self.case.step)
      size = max(1, np.abs(gradient).max(initial=0))
      # What float64 leaves of a difference: 1e-10 for all but the shortest steps.
      atol = 2e-14 / self.case.step * size
      slope = np.vdot(gradient, direction)
      np.testing.assert_allclose(slope, quotient, rtol=0, atol=atol)


def _difference(function, step):
  """The derivative at 0, by central differences of sixth order."""
  parts = ((1, 3 / 4), (2, -3 / 20), (3, 1 / 60))
  return sum(w / step * (function(k * step) - function(-k * step)) for k, w in parts)


def _taken(batch: Batch, index: np.ndarray) -> Batch:
  """Some of the rows, or all in another order."""
  labels = None if batch.labels is None else batch.labels[index]
  return Batch({k: v[index] for k, v in batch.rows.items()}, labels)


def _close(actual, expected, rtol, scale_free: bool = False, beside=None):
  """To rtol of each entry or of the largest one, of `expected` or what is beside it."""
  trees = (actual, expected, expected if beside is None else beside)
  for a, e, other in zip(*map(jax.tree.leaves, trees), strict=True):
    a, e = np.asarray(a, np.float64), np.asarray(e, np.float64)
    size = max(np.abs(e).max(initial=0), np.abs(other).max(initial=0))
    least = rtol * (size if scale_free else min(size, 1))
    np.testing.assert_allclose(a, e, rtol=rtol, atol=max(least, 1e-14))


def _numbers(run: Runner):
  """The arguments of the loss by name."""
  return inspect.signature(getattr(losses, run.name.split("/")[0])).parameters


def _finite(tree):
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


USUAL = ("mixed", "one_class", "all_different", "balanced")


def oracle(run: Runner):
  for name in USUAL:
    run.same_values(name)


def gradient(run: Runner):
  if not run.case.grad:
    return False
  for name in USUAL:
    run.same_slopes(run(run.batches[name])[1], run.batches[name], run.weights)
  return None


def duplicate(run: Runner):
  for name in ("duplicates", "identical"):
    _finite(run.same_values(name))
  if run.case.grad:
    along_others(run, "duplicates")


def zero(run: Runner):
  gradients = run.same_values("zeros")
  _finite(gradients)
  if not run.case.grad:
    return
  along_others(run, "zeros")
  mixed, zeros = run.batches["mixed"], run.batches["zeros"]
  lengths = np.linspace(0.2, 5, len(KEEP))[:, None]
  for name, (kind, _) in run.case.rows.items():
    scaled = mixed._replace(rows=mixed.rows | {name: mixed.rows[name] * lengths})
    # Where only the direction counts, a row without one does nothing.
    if kind == "embedding" and np.allclose(run(scaled)[0], run(mixed)[0], rtol=1e-9):
      empty = ~zeros.rows[name].any(axis=1)
      np.testing.assert_array_equal(gradients[0][name][empty], 0)


def along_others(run: Runner, name: str):
  """The gradient where only rows move that no other row equals, and the numbers."""
  batch = run.batches[name]
  table = np.concatenate(list(batch.rows.values()), axis=1)
  alone = (table[:, None] == table).all(axis=2).sum(axis=1) == 1
  assert alone.sum() > 3
  run.same_slopes(run(batch)[1], batch, run.weights, moves=alone)


def mask(run: Runner):
  mixed = run.batches["mixed"]
  values, (rows, params) = run(mixed, keep=KEEP)
  fewer = _taken(mixed, KEEP)
  _close(values[KEEP], run.oracle(fewer), 1e-10)
  np.testing.assert_array_equal(values[~KEEP], 0)
  if run.case.grad:
    of_rows = {k: v[KEEP] for k, v in rows.items()}
    run.same_slopes((of_rows, params), fewer, run.weights[KEEP])
    for leaf in rows.values():
      np.testing.assert_array_equal(leaf[~KEEP], 0)
  for leaf in jax.tree.leaves(run(mixed, keep=np.zeros(len(KEEP), bool))):
    np.testing.assert_array_equal(leaf, 0)


def permute(run: Runner):
  if run.case.ordered:
    return False
  mixed = run.batches["mixed"]
  order = np.random.default_rng(3).permutation(len(KEEP))
  *arguments, weights = run.arguments(_taken(mixed, order), np.float64)
  values, (rows, params) = run(mixed)
  expected = values[order], ({k: v[order] for k, v in rows.items()}, params)
  _close(run.jitted(*arguments, weights[order]), expected, 1e-12, True)
  by_class = any(np.ndim(v) and len(v) == CLASSES for v in run.params.values())
  if "references" in _numbers(run) and not by_class:
    names = np.random.default_rng(4).permutation(1 + mixed.labels.max()) - 3
    renamed = mixed._replace(labels=names.astype(np.int32)[mixed.labels])
    _close(run(renamed)[0], values, 1e-12)
  if not run.case.devices:
    alone = np.arange(len(KEEP)) == 4
    _close(run(mixed, keep=alone)[0][4], run(mixed)[0][4], 1e-12)
  return None


def rotate(run: Runner):
  """Embeddings and what lies beside them, turned together."""
  if any(kind != "embedding" for kind, _ in run.case.rows.values()):
    return False
  mixed = run.batches["mixed"]
  dim = next(iter(mixed.rows.values())).shape[1]
  turn, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(dim, dim)))
  points = {k: v for k, v in run.params.items() if v.ndim > 1 and v.shape[-1] == dim}
  if {"normalize", "embeddings"} <= set(_numbers(run)) and not run.variant:
    lengths = np.linspace(0.2, 5, len(KEEP))[:, None]
    scaled = mixed._replace(rows={k: v * lengths for k, v in mixed.rows.items()})
    same = np.allclose(run(scaled)[0], run(mixed)[0], rtol=1e-9)
    assert same == (_numbers(run)["normalize"].default == "l2")
  turned = mixed._replace(rows={k: v @ turn for k, v in mixed.rows.items()})
  values = run(turned, **{k: v @ turn for k, v in points.items()})[0]
  if run.name.split("/")[0] in BY_DIMENSION:
    assert np.abs(values - run(mixed)[0]).max() > 1e-3
  else:
    _close(values, run(mixed)[0], 1e-9, True)
  return None


def blocks(run: Runner):
  """Blocks that do not divide the rows, on two devices where the loss has an axis."""
  if not run.case.blocks or run.variant:
    return False
  if run.case.devices:
    return spread(run, 2, block_size=4)
  arguments = run.arguments(run.batches["mixed"], np.float64, KEEP)
  blocked = run.jitted(*arguments, block_size=3)
  _close(blocked, run.jitted(*arguments), 1e-12, True)
  return None


def devices(run: Runner):
  """Two; `blocks` has been on them where there are blocks."""
  if not run.case.devices or run.variant:
    return False
  return None if run.case.blocks else spread(run, 2)


def spread(
  run: Runner, number: int, checked: bool = False, dtype=np.float64, **options: Any
) -> None:
  """The rows of all devices, unequal numbers of them kept, against one in float64.

  Under `shard_map` if it is checked, which sums derivatives of what devices share.
  """
  arguments = run.arguments(run.batches["mixed"], dtype, KEEP)
  rows, labels, params, keep, weights = arguments
  right, (right_rows, right_params) = run.jitted(
    *jax.tree.map(lambda x: x.astype(float) if x.dtype == dtype else x, arguments)
  )
  rtol = 1e-12 if dtype == np.float64 else 1e-5

  def split(x):
    padded = np.pad(x, [(0, 2)] + [(0, 0)] * (x.ndim - 1))
    return padded if checked else padded.reshape(number, -1, *x.shape[1:])

  def step(rows, labels, params, keep, weights):
    values, (by_rows, by_params) = run.traced(
      rows, labels, params, keep, weights, axis_name="batch", **options
    )
    summed = by_params if checked else jax.lax.psum(by_params, "batch")
    return values, (by_rows, summed)

  devices = jax.devices()[:number]
  if checked:
    each, shared = jax.P("batch"), jax.P()
    mesh = jax.sharding.Mesh(devices, ("batch",))
    into, out = (each, each, shared, each, each), (each, (each, shared))
    mapped = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=into, out_specs=out))
  else:
    mapped = jax.pmap(step, "batch", in_axes=(0, 0, None, 0, 0), devices=devices)
  data = jax.tree.map(split, (rows, labels, keep, weights))
  values, (by_rows, by_params) = mapped(data[0], data[1], params, *data[2:])

  def joined(x):
    x = np.asarray(x)
    return (x if checked else x.reshape(-1, *x.shape[2:]))[: len(KEEP)]

  _close(jax.tree.map(joined, (values, by_rows)), (right, right_rows), rtol, True)
  for k in range(1 if checked else number):
    of_device = by_params if checked else jax.tree.map(lambda x, k=k: x[k], by_params)
    _close(of_device, right_params, rtol, True)


def float32(run: Runner):
  results, exact = run.together
  assert results[0].dtype == np.float32
  for k, expected in enumerate(exact):
    of_call = jax.tree.map(lambda x, k=k: x[k], results)
    # What cancels in a degenerate batch leaves the rounding of what it cancels in.
    beside = exact[0] if k > 1 else expected
    _close(of_call, expected, 2e-5, scale_free=True, beside=beside)
  _finite(jax.tree.map(lambda x: x[:-1], results))
  # A miner that asks how far a pair is leaves out a distance of NaN.
  if {"embeddings", "labels"} <= {*_numbers(run)} and "/mined" not in run.name:
    assert np.isnan(results[0][-1, 0])


def bfloat16(run: Runner):
  if run.name in IN_BFLOAT16:
    return _half(run, jnp.bfloat16, 4.5e-3)
  rows, labels, params, keep, _ = run.arguments(run.batches["mixed"], jnp.bfloat16)
  loss = functools.partial(run.case.loss, where=keep)
  assert jax.eval_shape(loss, rows, labels, params).dtype == jnp.bfloat16
  return None


def _half(run: Runner, dtype: Any, rtol: float):
  mixed = run.batches["mixed"]
  rows, _, params, *_ = run.arguments(mixed, dtype)
  rows, params = jax.tree.map(lambda x: np.asarray(x, float), (rows, params))
  rounded = Batch(rows, mixed.labels)
  values, gradients = run(rounded, dtype)
  assert values.dtype == dtype
  expected, slopes = run(rounded, **params)
  _close(values, expected, rtol, scale_free=True)
  # Their cotangents are rounded, too, and what a case computes of its parameters.
  _close(gradients, slopes, 3 * rtol, scale_free=True)
  _finite(run(mixed, dtype, **run.case.sharp))


def vmap(run: Runner):
  """Other data and numbers for each, and a single trace for all data."""
  results, exact = run.together
  in_blocks = run.case.blocks and not run.case.devices
  _close(jax.tree.map(lambda x: x[1], results), exact[1], 2e-5, scale_free=True)
  assert run.jitted._cache_size() <= 1 + 1 + in_blocks, "traced more than once"


CHECKS = {
  check.__name__: check
  for check in (
    oracle, gradient, mask, duplicate, zero, permute, rotate, blocks, devices, float32,
    bfloat16, vmap,
  )
}  # fmt: skip


LOSSES = [name for name in CASES if "/" not in name]
# What its variants share with the loss itself, but for those that are about it.
OF_THE_LOSS = ("float32", "bfloat16", "vmap")
# What a loss of a batch has from that of its matrix, which it calls.
OF_THE_MATRIX = (*OF_THE_LOSS, "devices")
# One way to each half precision: pairs, lists, proxies, angles, views and a tree. The
# others have their type checked quickly, their numbers slowly.
IN_BFLOAT16 = {
  "contrastive", "smooth_ap", "proxy_anchor", "arcface", "nt_xent", "vicreg",
  "conditional_softmax",
}  # fmt: skip

IN_CHECKED = ("contrastive", "proxy_anchor", "zero_shot_prediction")


def is_left_out(run: Runner, check: str) -> bool:
  """Whether another case of the quick ones shows the same of the same code."""
  if run.name in AS_IN_OTHERS and check == "blocks":
    return True
  whole, matrix, _ = run.name.partition("_from_")
  if run.variant:
    return check in OF_THE_LOSS and not run.name.endswith("/cold")
  return bool(matrix) and whole in CASES and check in OF_THE_MATRIX


@pytest.mark.parametrize("name", CASES)
def test_loss(name, subtests, record_property):
  run = Runner(name)
  for check, function in CHECKS.items():
    if is_left_out(run, check):
      continue
    outcome = "FAILED"
    with subtests.test(check), _versions.enable_x64(True):
      outcome = "-" if function(run) is False else "ok"
    record_property(f"loss:{check}", outcome)


@pytest.mark.parametrize(
  "name",
  [
    # What is gathered and what is summed, quickly.
    pytest.param(name, marks=[pytest.mark.slow] * (name not in IN_CHECKED))
    for name in LOSSES
    if CASES[name].devices
  ],
)
def test_loss_on_four_devices_whose_types_are_checked(name, x64):
  blocks = {"block_size": 1} if CASES[name].blocks else {}
  spread(Runner(name), 4, checked=True, **blocks)


def halves(run: Runner):
  _half(run, jnp.bfloat16, 4.5e-3)
  _half(run, jnp.float16, 6e-4)


def on_two(run: Runner):
  spread(run, 2)


def on_two_in_float32(run: Runner):
  spread(run, 2, dtype=np.float32)


VARIANTS = [name for name in CASES if name not in LOSSES]
SLOW = [
  ((float32,), VARIANTS),
  ((on_two,), [name for name in VARIANTS if CASES[name].devices]),
  ((on_two_in_float32,), [name for name in LOSSES if CASES[name].devices]),
  ((halves,), LOSSES + [name for name in CASES if name.endswith("/cold")]),
  ((float32, vmap, devices), [name for name in LOSSES if "_from_" in name]),
  ((blocks,), sorted(AS_IN_OTHERS)),
]


@pytest.mark.slow
@pytest.mark.parametrize(
  ("checks", "name"),
  [
    pytest.param(checks, name, id=f"{checks[-1].__name__}-{name}")
    for checks, names in SLOW
    for name in names
  ],
)
def test_loss_slowly(checks, name, x64):
  run = Runner(name)
  for check in checks:
    check(run)
