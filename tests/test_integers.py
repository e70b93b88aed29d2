"""Integers of every type, and too large for 32 bits, in every public function.

Each integer array of a function's example is passed in other types, with the same
result. Then one entry becomes a number that JAX would cut to 32 bits: the function
refuses it by name, or returns the same as for another number that does not occur.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import _checks, losses, metrics, training
from tests import wrong_uses
from tests.test_wrong_uses import FUNCTIONS, OWN_CALLS, call_of

TYPES = [np.int64, *(np.dtype(f"uint{bits}").type for bits in (8, 16, 32, 64)), np.int8]
TOO_LARGE = (np.int64(2**32), np.uint64(2**63), np.uint32(2**31))
# Functions whose integers are not labels: numbers that are counted or measured on the
# host, and trees of any data, which stay unchanged.
NUMBERS = {
  "attacks.smoothed_certificate", "attacks.smoothed_prediction",
  "hierarchy.chordal_distances", "hierarchy.chordal_similarities",
  "hierarchy.confusion_distances", "hierarchy.neighbor_joining", "hierarchy.upgma",
  "metrics.class_scores", "metrics.common_confusions", "metrics.conditional_risk",
  "training.pad_rows", "training.process_rows", "training.shard",
}  # fmt: skip
# Functions whose result names the number, or that refuse a label beyond the classes.
BY_NAME = {"data.from_arrays", "metrics.best_accuracy"}

# Other functions that share the check of labels with these always run.
SLOW = {f"attacks.{x}" for x in ("apgd", "diagnose", "ensemble", "fab", "square")}
SLOW |= {"voronoi.voronoi_pgd"}


def integer_arguments(call):
  """Yields each array of integers, and a function that replaces it in the arguments."""
  leaves, tree = jax.tree.flatten((call.args, call.kwargs), is_leaf=_is_state)

  def with_other(number, value):
    return jax.tree.unflatten(tree, [*leaves[:number], value, *leaves[number + 1 :]])

  for number, leaf in enumerate(leaves):
    if wrong_uses.is_array(leaf) and leaf.size and leaf.ndim and leaf.dtype.kind == "i":
      yield np.asarray(leaf), functools.partial(with_other, number)


def _is_state(value):
  """Whether one of our functions returned this, so that its types are known."""
  return hasattr(value, "_fields") and not isinstance(value, losses.References)


def numbers(result):
  if dataclasses.is_dataclass(result):
    result = vars(result)
  return [
    np.asarray(leaf)
    for leaf in jax.tree.leaves(result)
    if isinstance(leaf, (int, float)) or wrong_uses.is_array(leaf)
  ]


def same(first, second):
  pairs = zip(numbers(first), numbers(second), strict=True)
  return all(np.allclose(a, b, 1e-5, 1e-6, equal_nan=True) for a, b in pairs)


def _rows():
  """Parameters: every sixth function with one large number; all, if slow tests run."""
  names = [name for name in FUNCTIONS if name not in OWN_CALLS]
  for k, name in enumerate(names):
    if name not in SLOW and k % 6 == 0:
      # Another type compiles another program, unless labels are renumbered first.
      types = [TYPES[k // 12 % len(TYPES)]] if k % 12 == 0 else []
      one = types, [TOO_LARGE[k // 6 % len(TOO_LARGE)]]
      yield pytest.param(name, *one, id=name)
    yield pytest.param(name, TYPES, TOO_LARGE, id=f"{name}-all", marks=pytest.mark.slow)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "types", "too_large"), [*_rows()])
def test_every_integer_argument(name, types, too_large, unchecked, tmp_path):
  function, call = call_of(name, tmp_path)

  def result(arguments):
    return function(*arguments[0], **arguments[1])

  for values, replaced in integer_arguments(call):
    expected = result(replaced(values)) if types else None
    for dtype in types:
      if np.array_equal(values.astype(dtype), values):
        assert same(result(replaced(values.astype(dtype))), expected), dtype
    if name in NUMBERS or (values < 0).any():
      continue
    other = values.copy()
    other.flat[0] = values.max() + 1
    for shift in too_large:
      wide = values.astype(shift.dtype)
      wide.flat[0] += shift
      try:
        right = same(result(replaced(wide)), result(replaced(other)))
      except ValueError as error:
        right = str(wide.flat[0]) in str(error)
      assert right or name in BY_NAME, shift


FAR = np.array([5, 5 + 2**32, 7, 7 + 2**32])


@pytest.mark.parametrize("labels", [FAR, FAR.astype(np.uint64), FAR - 2**33])
def test_labels_that_32_bits_would_merge_are_four_classes(labels, unchecked):
  rows = jnp.eye(4)
  assert not losses.contrastive(rows, labels).any()
  # Labels of the references are renumbered together with those of the batch.
  found, expected = (
    losses.contrastive(rows, x, references=losses.References(rows, x[::-1].copy()))
    for x in (labels, np.arange(4))
  )
  np.testing.assert_array_equal(found, expected)
  assert metrics.mean_interclass_distance(rows, labels) == pytest.approx(2**0.5)
  assert not metrics.retrieval(rows, labels).counted.any()


def test_minus_one_among_labels_of_64_bits_stays_minus_one():
  (found,) = _checks.names(("labels", np.array([2**40, -1, 3, -(2**40)])))
  assert found[1] == -1
  assert len(set(found.tolist())) == 4
  assert (np.delete(found, 1) >= 0).all()


def test_int64_beside_uint64_is_compared_exactly():
  first, second = np.array([2**63 - 1, 5]), np.array([2**63, 5], np.uint64)
  found, other = _checks.names(("labels", first), ("others", second))
  assert found[0] != other[0]
  assert found[1] == other[1]


def test_integers_of_64_bits_stay_under_x64(x64):
  for value in (FAR, jnp.asarray(FAR)):
    found = _checks.integers("labels", value)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, FAR)
  with pytest.raises(ValueError, match=str(2**63)):
    _checks.integers("labels", np.array([2**63], np.uint64))


@pytest.mark.parametrize("value", [2**32, [1, 2**40], np.uint64(2**63), -(2**31) - 1])
def test_what_does_not_fit_into_32_bits_is_named(value):
  largest = max(np.ravel(value).tolist(), key=abs)
  with pytest.raises(ValueError, match=f"labels must fit into u?int32, got {largest};"):
    _checks.array("labels", value)


def test_traced_unsigned_labels_stay_different():
  labels = jnp.array([1, 2**31 + 1, 2**31 + 1], jnp.uint32)
  found = jax.jit(losses.contrastive)(jnp.eye(3), labels)
  expected = losses.contrastive(jnp.eye(3), jnp.array([0, 1, 1]))
  np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_batch_is_not_cut_on_its_way_to_the_devices():
  for spread, name in ((training.shard, "batch"), (training.replicate, "tree")):
    with pytest.raises(ValueError, match=rf"{name}\['id'\] must fit .* got 4294967296"):
      spread({"id": np.array([2**32])}, devices=jax.devices()[:1])


@pytest.mark.parametrize("convert", [np.int64, np.int32, np.uint64, jnp.int32])
def test_counts_are_summed_without_overflow(convert):
  counts = convert([[1_500_000_000, 0], [1_500_000_000, 1_500_000_000]])
  scores = metrics.class_scores(counts)
  assert scores.accuracy == pytest.approx(2 / 3)
  np.testing.assert_allclose(scores.recall, [1, 0.5], rtol=1e-6)
  assert metrics.common_confusions(counts, k=1).rates[0] == pytest.approx(0.5)
