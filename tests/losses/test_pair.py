"""Losses of pairs and of lists: references, miners, weights, limits and edges."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, losses
from tests.losses.cases._frame import LABELS
from tests.losses.cases._parts import distance, matrix_of, project
from tests.losses.slopes import values_of, with_slopes

# What the matrix of each loss holds.
OF_DISTANCES = (
  "contrastive", "hadsell_contrastive", "lifted_structure", "margin",
  "generalized_lifted_structure", "dynamic_soft_margin",
)  # fmt: skip
OF_PRODUCTS = (
  "cosine_contrastive", "threshold_consistent_margin", "intra_pair_variance",
  "multi_similarity", "circle",
)  # fmt: skip
FORMS = {"nca": "squared_euclidean"} | dict.fromkeys(OF_PRODUCTS, "dot")
FORMS |= dict.fromkeys(OF_DISTANCES, "euclidean")


def matrix_form(name):
  return f"{name}_from_{'similarity' if FORMS[name] == 'dot' else 'distance'}"


# Every distance once, and the loss that has a histogram.
QUICK = ("contrastive", "multi_similarity", "nca", "dynamic_soft_margin")


@pytest.mark.parametrize(
  "name",
  [pytest.param(x, marks=[pytest.mark.slow] * (x not in QUICK)) for x in FORMS],
)
def test_a_mined_memory_in_blocks_is_the_matrix_form_of_the_same_pairs(
  name, mixed, x64
):
  x, labels = mixed
  call = functools.partial(values_of, histogram=jnp.linspace(0.2, 1.0, 12))
  memory = np.random.default_rng(2).normal(size=(6, 4))
  memory = np.concatenate([memory, x[[4]]])
  memory_labels = np.array([0, 1, 3, 0, 5, 3, 0], np.int32)
  memory_where = np.array([1, 1, 1, 1, 0, 1, 1], bool)
  itself = np.where(np.arange(10) == 4, 6, -1)

  def miner(matrix, positives, negatives):
    return positives & (matrix > 0.1), negatives & (matrix < 1.9)

  def of_labels(x):
    references = losses.References(memory, memory_labels, memory_where, itself)
    return call(name, x, labels, references=references, miner=miner, block_size=3)

  def of_matrix(x):
    rows, columns = map(distances.l2_normalize, (x, jnp.asarray(memory)))
    matrix = getattr(distances, f"pairwise_{FORMS[name]}")(rows, columns)
    same = labels[:, None] == memory_labels[None]
    others = memory_where[None] & (itself[:, None] != np.arange(7)[None])
    masks = miner(matrix, same & others, ~same & others)
    return call(matrix_form(name), matrix, *masks)

  @functools.partial(jax.jit, static_argnums=1)
  def values_and_slopes(x, function):
    values, pull = jax.vjp(function, x)
    return values, *pull(jnp.linspace(0.5, 1.5, 10))

  results = (values_and_slopes(x, function) for function in (of_labels, of_matrix))
  for result, expected in zip(*results, strict=True):
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(FORMS) - {"dynamic_soft_margin"}))
def test_a_weight_is_a_number_of_copies_of_the_pair(name, x64):
  generator = np.random.default_rng(3)
  matrix = generator.uniform(0.05, 0.95, (4, 6))
  kinds, copies = generator.integers(0, 3, (4, 6)), generator.integers(1, 4, 6)
  form = jax.jit(getattr(losses, matrix_form(name)))
  weighted = form(matrix, *((kinds == k) * copies.astype(float) for k in (0, 1)))
  repeated = np.repeat(np.arange(6), copies)
  masks = ((kinds == k)[:, repeated] for k in (0, 1))
  np.testing.assert_allclose(weighted, form(matrix[:, repeated], *masks), rtol=1e-12)


def test_copies_may_be_numbered_by_a_narrow_type():
  """The 257th of 300 references is not the first one."""
  generator = np.random.default_rng(4)
  rows = generator.normal(size=(300, 4)).astype(np.float32)
  labels = generator.integers(0, 3, 300)
  labels[:2] = labels[256:258] = [0, 1]

  @functools.partial(jax.jit, static_argnames="kind")
  def values(kind):
    references = losses.References(rows, labels, itself=np.array([0, -1], kind))
    return losses.cosine_contrastive(rows[:2], labels[:2], references=references)

  np.testing.assert_array_equal(values(np.int8), values(np.int32))


# --- edges ---


KINKS = [
  ("cosine_contrastive", [1.0, 0.5, 0.5, 0.25], {"margin": 0.5}, [0, -1, 0, 0]),
  ("contrastive", [0.5, 1.0, 1.5, 2.0],
   {"positive_margin": 0.5, "negative_margin": 1.5}, [0, 1, 0, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "row", "numbers", "right"), KINKS)
def test_at_a_kink_the_term_is_inactive(name, row, numbers, right):
  """A pair exactly at its margin adds neither to the value nor to any count."""
  positives = jnp.array([[True, True, False, False]])
  loss = functools.partial(getattr(losses, matrix_form(name)), **numbers)
  gradient = jax.grad(lambda m: loss(m, positives, ~positives).sum())(jnp.array([row]))
  np.testing.assert_array_equal(gradient, [right])


def test_multi_similarity_takes_the_maximum_after_masking():
  """The ignored pair is the most similar: its exponential must not drown the rest."""
  s = jnp.array([[1.0, -1.0, 0.0, 0.0]])
  positives = jnp.array([[False, True, False, False]])
  negatives = jnp.array([[False, False, True, True]])
  numbers = {"positive_scale": 1.0, "negative_scale": 200.0, "threshold": -1.0}
  value = losses.multi_similarity_from_similarity(s, positives, negatives, **numbers)
  # log(1 + 2 exp(200)) = 200.693...
  np.testing.assert_allclose(value, [math.log(2) + 200.69314718 / 200], rtol=1e-6)


@pytest.mark.parametrize("dim", [16, 512])
def test_duplicates_are_at_distance_zero_whatever_the_order_of_summation(dim):
  """The rounding of a product of long rows must not pass for a distance."""
  x = np.random.default_rng(dim).normal(size=(20, dim)).astype(np.float32)
  labels = np.tile(np.arange(20), 2)  # every row has a single positive, its duplicate
  loss = with_slopes(lambda x: losses.contrastive(x, labels, negative_margin=0.1))
  values, slopes = loss(np.concatenate([x, x]))
  np.testing.assert_array_equal(values, np.zeros(40))
  np.testing.assert_array_equal(slopes, np.zeros((40, dim)))


def test_a_distant_positive_pair_counts_once(x64):
  """DML eq. 2.1.1 as printed adds d and [d - margin]+ of a positive pair."""
  near = np.array([[True, False]])
  options = {"positive_margin": 0.0, "negative_margin": 0.5, "average": "all"}
  value = losses.contrastive_from_distance(
    np.array([[1.0, 0.2]]), near, ~near, **options
  )
  np.testing.assert_allclose(value, (1.0 + (0.5 - 0.2)) / 2, rtol=1e-12)


# --- identities and edges of single losses ---


def test_lifted_structure_of_a_pair_with_negatives_at_one_end():
  x, labels = np.float32([[1, 0], [0.6, 0.8], [0, 1]]), np.array([0, 0, 1])

  def miner(values, positives, negatives):
    return positives, negatives.at[0].set(False)

  d = matrix_of(distance, x, x)
  of_pair = (1 - d[1, 2] + d[0, 1]) ** 2 / 4
  loss = losses.lifted_structure(x, labels, miner=miner)
  np.testing.assert_allclose(loss, [of_pair, of_pair, 0], rtol=1e-5)


def test_nca_of_hopeless_and_of_certain_rows():
  d = jnp.array([[4.0, 0.0], [0.0, 4.0]])
  positives = jnp.array([[True, False], [True, False]])
  loss = losses.nca_from_distance(d, positives, ~positives, scale=10.0)
  np.testing.assert_allclose(loss, [40, math.exp(-40)], rtol=1e-5, atol=0)


def test_margin_of_a_traced_label_without_a_boundary_is_that_of_a_masked_row(mixed):
  x, others = mixed[0].astype(np.float32), np.arange(10) != 4
  boundaries = jnp.linspace(-0.2, 0.2, 10)
  loss = jax.jit(lambda y, w: losses.margin(x, y, class_boundaries=boundaries, where=w))
  labels = np.where(others, LABELS, 77).astype(np.int32)
  np.testing.assert_allclose(loss(labels, np.ones(10, bool)), loss(LABELS, others))


def test_n_pair_takes_the_first_two_rows_of_a_class_whatever_its_label(mixed):
  x, labels = mixed[0].astype(np.float32), LABELS
  loss = jax.jit(losses.n_pair)
  values = loss(x, labels)
  assert set(np.flatnonzero(values)) == {0, 1, 3}
  names = np.array([2**31 - 1, -(2**31), 0, 7, 0, -1], np.int32)
  np.testing.assert_allclose(loss(x, names[labels]), values, rtol=1e-6)
  np.testing.assert_array_equal(loss(x, np.where(labels == 0, 0, np.arange(10) + 1)), 0)


def test_matrices_without_a_column_have_no_loss():
  nothing, before = np.zeros((2, 0), bool), np.float32([0.25, 0.75])
  empty = np.zeros((2, 0), np.float32), nothing, nothing
  np.testing.assert_array_equal(losses.n_pair_from_similarity(*empty), [0, 0])
  values, after = losses.dynamic_soft_margin_from_distance(*empty, before)
  np.testing.assert_array_equal(values, [0, 0])
  np.testing.assert_array_equal(after, before)


def test_signal_to_noise_without_a_signal_and_the_pull_of_the_mean(mixed, x64):
  x, labels = np.concatenate([mixed[0], np.full((1, 4), 0.1)]), np.append(LABELS, 0)
  options = {"negative_margin": 0.0, "normalize": "none"}
  loss = functools.partial(losses.signal_to_noise_contrastive, **options)
  plain, centred = (jax.jit(loss)(x, labels, mean_weight=w) for w in (0.0, 0.3))
  assert plain[10] == 0
  np.testing.assert_allclose(centred - plain, 0.3 * np.abs(x.sum(1)), rtol=1e-10)


def test_dynamic_soft_margin_ranks_by_its_running_histogram(x64):
  same = np.array([[True, False]] * 4)
  d = np.array([[1.0, 1.5], [1.0, 1.5], [0.75, 0.25], [0.5, 0.5]])
  form = jax.jit(losses.dynamic_soft_margin_from_distance, static_argnames="axis_name")
  loss, first = form(d[:2], same[:2], ~same[:2], np.zeros(5))
  np.testing.assert_allclose(first, [0, 0.5, 0.5, 0, 0])  # t = -1/2, bins one apart
  np.testing.assert_allclose(loss, [-0.25, -0.25])
  loss, second = form(d[2:], same[2:], ~same[2:], first, momentum=0.4)
  np.testing.assert_allclose(second, [0, 0.3, 0.6, 0.1, 0])  # t = 1/2 and 0
  np.testing.assert_allclose(loss, [0.9 * 0.5, 0])
  _, third = form(d, same, same & False, second)
  np.testing.assert_array_equal(third, second)
  spread = jax.vmap(
    lambda d: form(d, same[:2], ~same[:2], first, momentum=0.4, axis_name="batch"),
    axis_name="batch",
  )
  _, shared = spread(d.reshape(2, 2, 2))
  np.testing.assert_allclose(shared, [form(d, same, ~same, first, momentum=0.4)[1]] * 2)


# --- each positive against a list ---


def above(similarities, columns):
  """[rows, entries]: how many of the columns are more similar than each entry."""
  return (columns[:, None] & (similarities[:, None] > similarities[..., None])).sum(2)


def mean(values, positives):
  return (positives * values).sum(1) / np.maximum(positives.sum(1), 1)


def average_precision(similarities, positives, negatives):
  """One minus the average precision of each row, by counting; no ties."""
  near, far = (above(similarities, mask) for mask in (positives, negatives))
  return mean(far / (1 + near + far), positives)


def test_fast_and_smooth_ap_tend_to_average_precision(x64):
  """Of rows whose entries are 31 different squared distances in steps of 0.125."""
  generator = np.random.default_rng(4)
  matrix = np.stack([generator.permutation(31) for _ in range(6)]) * 0.125
  role = generator.integers(0, 3, (6, 31))
  role[4] = 1  # no positive
  role[5] = 0  # no negative
  masks = role == 0, role == 1
  right = average_precision(-matrix, *masks)
  fast = jax.jit(functools.partial(losses.fast_ap_from_distance, bins=32))
  np.testing.assert_allclose(fast(matrix, *masks), right, rtol=1e-12)
  gradient = jax.grad(lambda d: fast(d, *masks).sum())(matrix)
  np.testing.assert_array_equal(gradient, np.zeros(matrix.shape))  # 0 at every node
  smooth = jax.jit(losses.smooth_ap_from_similarity)
  values = smooth(-matrix, *masks, temperature=1e-3)
  np.testing.assert_allclose(values, right, atol=1e-15)
  assert right[4] == right[5] == 0
  warm = smooth(-matrix, *masks, temperature=1.0)
  assert (warm >= 0).all()
  assert (warm < 1).all()
  # With exponent 1, one negative in the list, PNP "Dq" differs only by its own ranks.
  counts = losses.pnp_from_similarity(-matrix, *masks, temperature=1e-3)
  before = mean(above(-matrix, masks[1]), masks[0])
  np.testing.assert_allclose(counts, before, atol=1e-12)


def test_angular_against_references_takes_partners_there(x64):
  generator = np.random.default_rng(3)
  x, memory = generator.normal(size=(4, 3)), generator.normal(size=(7, 3))
  labels, classes = np.array([0, 1, 0, 4]), np.array([0, 0, 1, 2, 2, 0, 1])
  references = losses.References(memory, classes)
  x, z, right = project(x), project(memory), np.zeros((2, 4))
  for i in range(4):
    for p in np.flatnonzero(classes == labels[i]):
      terms = 4 * z[classes != labels[i]] @ (x[i] + z[p]) - 4 * x[i] @ z[p]
      right[:, i] += np.log(1 + np.exp(terms).sum()), np.maximum(terms - 4, 0).sum()

  @jax.jit
  def both(x):
    call = functools.partial(losses.angular, references=references, block_size=3)
    return call(x, labels), call(x, labels, form="hinge")

  assert right.all(axis=0).sum() > 1
  np.testing.assert_allclose(both(x), right, rtol=1e-12)


def test_histogram_of_separated_and_of_mixed_pairs(x64):
  same = np.array([[True, True, False, False]])
  loss = functools.partial(losses.histogram_from_similarity, bins=4)
  assert loss(np.array([[1.0, 0.5, 0.0, -1.0]]), same, ~same) == 0
  assert loss(np.array([[-1.0, -0.5, 0.5, 1.0]]), same, ~same) == 1
  # Equal histograms: half of the pairs before, and those on the same node.
  np.testing.assert_allclose(loss(np.array([[0.0, 0.5, 0.0, 0.5]]), same, ~same), 0.75)


def test_ranked_list_at_temperature_0_is_a_mean(x64):
  d = np.array([[1.0, 1.4, 0.2, 0.9, 1.1]])
  same = np.array([[True, True, True, False, False]])
  loss = functools.partial(losses.ranked_list_from_distance, d, same, ~same)
  values = loss(negative_temperature=0.0, balance=0.25)
  np.testing.assert_allclose(values, 0.75 * 0.4 + 0.25 * 0.2)
  hot = loss(negative_temperature=1e3, balance=1.0)
  np.testing.assert_allclose(hot, 0.3)  # the nearest negative alone
