"""Exact retrieval against sorting with plain loops."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import _versions, metrics
from spherejax.distances import _order
from spherejax.metrics import _host_ranks, _plan, _ranks, _retrieval

ROWS, REFERENCES = 24, 20


def oracle(queries, labels, references=None, other_labels=None, distance=None):
  """P@1, P@R, MAP@R, first rank and R of each query, from sorted lists."""
  among = references is None
  if among:
    references, other_labels = queries, labels
  rows = []
  for i in range(len(queries)):
    listed = []
    for j in range(len(references)):
      if among and i == j:
        continue
      known = np.isfinite(queries[i]).all() and np.isfinite(references[j]).all()
      apart = (distance or squared)(queries[i], references[j]) if known else 0
      listed.append((not known, apart, j))
    listed.sort()
    same = [int(other_labels[j]) == int(labels[i]) for _, _, j in listed]
    total = sum(same)
    # What is not finite is never retrieved.
    relevant = [hit and not last for hit, (last, *_) in zip(same, listed, strict=True)]
    if not total:
      rows.append((0, 0, 0, 0, 0))
      continue
    precision = [sum(relevant[:k]) / k for k in range(1, total + 1)]
    at_hits = [p for p, hit in zip(precision, relevant, strict=False) if hit]
    first = 1 + relevant.index(True) if any(relevant) else 0
    shares = relevant[0], sum(relevant[:total]) / total, sum(at_hits) / total
    rows.append((*shares, first, total))
  return np.array(rows, float).reshape(-1, 5).T


def squared(a, b):
  return sum((float(x) - float(y)) ** 2 for x, y in zip(a, b, strict=True))


def assert_equal(result, expected):
  precision, r_precision, map_at_r, first, relevant = expected
  np.testing.assert_allclose(result.map_at_r, map_at_r, rtol=5e-7)
  equal = {
    "precision_at_1": precision,
    # Counts divided once are correctly rounded, so they are equal.
    "r_precision": np.float32(r_precision),
    "first_rank": first,
    "relevant": relevant,
    "counted": relevant > 0,
  }
  for name, values in equal.items():
    np.testing.assert_array_equal(getattr(result, name), values, err_msg=name)
  for k in (1, 4, 100):
    recall = metrics.recall_at_k(result.first_rank, k=k)
    np.testing.assert_array_equal(recall, (first > 0) & (first <= k))


def tied(seed, rows):
  """Coordinates in {0, 1, 2}^2: products are exact and most distances tie."""
  rng = np.random.default_rng(seed)
  points = rng.integers(0, 3, (rows, 2)).astype(np.float32)
  return points, rng.integers(0, rng.integers(1, 9), rows)


@pytest.mark.parametrize("block_size", [1, 7, 128])
def test_counting_equals_sorting_with_many_ties(block_size):
  for seed in range(60 if block_size == 128 else 4):
    x, y = tied(seed, ROWS)
    assert_equal(metrics.retrieval(x, y, block_size=block_size), oracle(x, y))
    r, yr = tied(seed + 1000, REFERENCES)
    result = metrics.retrieval(x, y, r, yr, block_size=block_size)
    assert_equal(result, oracle(x, y, r, yr))


def test_results_do_not_depend_on_the_block_size_bit_for_bit():
  x, y = tied(3, ROWS)
  chex.assert_trees_all_equal(
    *(metrics.retrieval(x, y, block_size=b) for b in (1, 7, 128))
  )


@pytest.fixture
def sorting(monkeypatch):
  """Makes every class large: rows are sorted instead of compared."""
  monkeypatch.setattr(_ranks, "_SORT_COST", 0)
  _retrieval._score.clear_cache()
  yield
  _retrieval._score.clear_cache()


@pytest.mark.parametrize("block_size", [7, 128])
def test_sorting_gives_the_same_integers(sorting, block_size):
  for seed in range(20 if block_size == 128 else 5):
    x, y = tied(seed, ROWS)
    if seed % 4 == 0:
      x[:3] = np.nan
    assert_equal(metrics.retrieval(x, y, block_size=block_size), oracle(x, y))


@pytest.mark.slow
@pytest.mark.parametrize(("block_size", "cores"), [(7, 1), (7, 64), (128, None)])
def test_sorting_on_the_host_gives_the_same_integers(block_size, cores, monkeypatch):
  monkeypatch.setattr(_host_ranks, "_SORT_COST", 0)
  monkeypatch.setattr(_host_ranks.os, "cpu_count", lambda: cores)
  kept, asked = np.arange(ROWS) % 5 != 1, np.arange(ROWS) % 3 != 0
  for seed in range(20):
    x, y = tied(seed, ROWS)
    if seed % 4 == 0:
      x[:3] = np.nan
    assert_equal(metrics.retrieval(x, y, block_size=block_size), oracle(x, y))
    options = {"where": asked, "reference_where": kept, "block_size": block_size}
    for distance in DISTANCES:
      found = metrics.retrieval(x, y, distance=distance, **options)
      with monkeypatch.context() as compared:
        compared.setattr(_host_ranks, "_SORT_COST", 1000)
        expected = metrics.retrieval(x, y, distance=distance, **options)
      chex.assert_trees_all_close(found, expected, rtol=5e-7)


# Labels of a class of 15, and of small ones.
UNEQUAL = np.repeat(np.arange(6), [15, 2, 2, 1, 1, 3])


def test_large_classes_are_ranked_on_the_host_and_small_ones_are_not(monkeypatch):
  ranked = []
  plain = _host_ranks.Ranker.score

  def watched(self, block):
    ranked.append(block.relevant.max())
    return plain(self, block)

  monkeypatch.setattr(_host_ranks.Ranker, "score", watched)
  x, y = tied(0, ROWS)[0], UNEQUAL
  compared = metrics.retrieval(x, y, block_size=7)
  assert not ranked
  monkeypatch.setattr(_host_ranks, "_SORT_COST", 1)  # 5 comparisons cost one sort
  found = metrics.retrieval(x, y, block_size=7)
  chex.assert_trees_all_close(found, compared, rtol=5e-7)
  assert ranked
  assert min(ranked) > 5
  ranked.clear()
  with _versions.enable_x64(True):
    wide = metrics.retrieval(jnp.asarray(x, jnp.float64), y, block_size=7)
  traced = jax.jit(lambda v: metrics.retrieval(v, y).first_rank)(x)
  assert not ranked
  known = jnp.asarray(x)
  closed_over = jax.jit(lambda: metrics.retrieval(known, y, block_size=7).first_rank)()
  assert ranked
  for ranks in (traced, closed_over, wide.first_rank):
    np.testing.assert_array_equal(ranks, compared.first_rank)


def test_large_and_small_classes_in_one_call(monkeypatch):
  x = tied(0, ROWS)[0]
  compared = metrics.retrieval(x, UNEQUAL, block_size=7)
  monkeypatch.setattr(_ranks, "_SORT_COST", 1)  # 5 comparisons cost one sort
  _retrieval._score.clear_cache()
  mixed = metrics.retrieval(x, UNEQUAL, block_size=7)
  _retrieval._score.clear_cache()
  chex.assert_trees_all_equal(mixed, compared)


def cosine_distance(a, b):
  length = np.linalg.norm(a) * np.linalg.norm(b)
  return -float(np.dot(a, b) / length) if length else 0.0


DISTANCES = {
  "squared_euclidean": squared,
  "dot": lambda a, b: -float(np.dot(a, b)),
  "cosine": cosine_distance,
}


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_of_real_embeddings(name):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(ROWS, 2)).astype(np.float32)
  x[3] = 0  # cosine 0 with all
  y = rng.integers(0, 6, ROWS)
  expected = oracle(np.float64(x), y, distance=DISTANCES[name])
  assert_equal(metrics.retrieval(x, y, distance=name), expected)


def test_map_at_r_is_not_the_square_of_r_precision():
  # Ranks of the relevant ones 2 and 3 of R = 4: (1/2 + 2/3) / 4, not (2/4)^2.
  x = np.arange(7, dtype=np.float32)[:, None]
  result = metrics.retrieval(x, np.array([0, 1, 0, 0, 1, 0, 0]))
  np.testing.assert_allclose(result.map_at_r[0], (1 / 2 + 2 / 3) / 4, rtol=1e-7)


def test_float64(x64):
  rng = np.random.default_rng(5)
  x = 1 + 1e-9 * rng.normal(size=(ROWS, 2))  # identical in float32
  y = rng.integers(0, 5, ROWS)
  result = metrics.retrieval(x - 1, y)
  assert result.map_at_r.dtype == jnp.float64
  np.testing.assert_allclose(result.map_at_r, oracle(x - 1, y)[2], rtol=1e-13)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_types_are_ranked_in_float32(dtype):
  x = jnp.asarray(np.random.default_rng(0).normal(size=(ROWS, 2)), dtype)
  y = np.arange(ROWS) // 4
  result = metrics.retrieval(x, y)
  full = metrics.retrieval(x.astype(jnp.float32), y)
  assert result.map_at_r.dtype == dtype
  chex.assert_trees_all_equal(result.first_rank, full.first_rank)
  chex.assert_trees_all_equal(result.map_at_r, full.map_at_r.astype(dtype))


# Labels -----------------------------------------------------------------------


@pytest.mark.parametrize(
  "names",
  [
    np.array([-(2**62), 2**40, 2**40 + 2**32, -1, 5], np.int64),
    np.array([0, 2**64 - 1, 2**64 - 2, 2**63, 1], np.uint64),
    np.array([-128, 127, 3, 0, -1], np.int8),
  ],
)
def test_labels_are_only_compared(names):
  x, y = tied(11, ROWS)
  y = y % 5
  chex.assert_trees_all_equal(metrics.retrieval(x, names[y]), metrics.retrieval(x, y))


def test_signed_labels_meet_unsigned_ones():
  x, y = tied(12, ROWS)
  large = np.int64(2**60) + y
  result = metrics.retrieval(x, large, x, large.astype(np.uint64))
  chex.assert_trees_all_equal(result, metrics.retrieval(x, y, x, y))


# Masks ------------------------------------------------------------------------


def test_masked_rows_are_neither_queries_nor_references():
  x, y = tied(23, ROWS)
  r, yr = tied(24, REFERENCES)
  keep = np.arange(REFERENCES) % 4 != 0
  r[~keep] = np.nan
  result = metrics.retrieval(x, y, r, yr, reference_where=keep)
  assert_equal(result, oracle(x, y, r[keep], yr[keep]))
  keep = np.arange(ROWS) % 3 != 1
  x[~keep] = np.nan
  result = metrics.retrieval(x, y, where=keep)
  assert_equal(jax.tree.map(lambda v: v[keep], result), oracle(x[keep], y[keep]))
  for value in (result.map_at_r, result.r_precision, result.counted, result.first_rank):
    assert not np.any(value[~keep])


def test_rows_may_be_queries_alone_or_references_alone():
  every, first = np.ones(ROWS, bool), np.arange(ROWS) < 6
  x, y = tied(22, ROWS)
  result = metrics.retrieval(x, y, where=first, reference_where=every)
  assert_equal(jax.tree.map(lambda v: v[:6], result), oracle(x, y)[:, :6])
  assert not np.any(result.counted[6:])
  result = metrics.retrieval(x, y, where=every, reference_where=~first)
  expected = oracle(x[:6], y[:6], x[6:], y[6:])
  assert_equal(jax.tree.map(lambda v: v[:6], result), expected)
  assert_equal(jax.tree.map(lambda v: v[6:], result), oracle(x[6:], y[6:]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_never_retrieved(value):
  x, y = tied(31, ROWS)
  x[::5, 1] = value
  assert_equal(metrics.retrieval(x, y), oracle(x, y))


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_dead_network_retrieves_nothing(distance):
  """Ties to the lowest index would give it the share of the first class."""
  x, labels = np.full((20, 3), np.nan, np.float32), np.repeat([0, 1], [18, 2])
  result = metrics.retrieval(x, labels, distance=distance)
  zero, relevant = np.zeros(20), np.repeat([17, 1], [18, 2])
  assert_equal(result, (zero, zero, zero, zero, relevant))


# Edges ------------------------------------------------------------------------


def test_identical_embeddings_follow_the_index():
  result = metrics.retrieval(np.full((4, 2), 3.0, np.float32), np.array([0, 1, 0, 1]))
  for values in result[:3]:
    assert metrics.mean_where(values, result.counted) == 0.25


@pytest.mark.parametrize(("rows", "references"), [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_rank(rows, references):
  x, y = np.zeros((4, 2), np.float32), np.zeros(4, int)
  result = metrics.retrieval(x[:rows], y[:rows], x[:references], y[:references])
  assert not result.counted.any()
  assert all(field.shape == (rows,) for field in result)


# References left out -----------------------------------------------------------


def test_minus_one_leaves_out_nothing():
  """Of `nearest`; `test_exact_order.py` tests its order."""
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  nearest = metrics.nearest(x, x, k=1, block_size=4)
  np.testing.assert_array_equal(nearest[:, 0], np.arange(6))
  nearest = metrics.nearest(x, x, k=1, exclude=np.array([-1, 1, -1, 3, -1, 5]))
  np.testing.assert_array_equal(nearest[:, 0], [0, 0, 2, 2, 4, 4])


@pytest.mark.parametrize("index", [-2, 3])
def test_what_is_excluded_is_a_reference(index):
  x = jnp.eye(3)
  with pytest.raises(ValueError, match=rf"exclude must be in \[-1, 3\), got {index}"):
    metrics.nearest(x, x, k=1, exclude=jnp.array([0, index, -1]))
  nearest = metrics.nearest(x, x, k=1, exclude=jnp.array([0, -1, -1]))
  np.testing.assert_array_equal(nearest, [[1], [1], [2]])


@pytest.mark.parametrize("block_size", [3, 128])
def test_excluded_references_are_those_of_the_query(block_size):
  x, y = tied(7, ROWS)
  rows = np.array([5, 0, 23, 11])
  whole = metrics.retrieval(x, y, block_size=block_size)
  some = metrics.retrieval(x[rows], y[rows], x, y, exclude=rows, block_size=block_size)
  chex.assert_trees_all_equal(some, jax.tree.map(lambda v: v[rows], whole))


def test_any_reference_may_be_excluded_or_none():
  x, y = tied(8, ROWS)
  r, yr = tied(9, REFERENCES)
  exclude = np.random.default_rng(0).integers(-1, REFERENCES, ROWS)  # of any class
  allowed = np.arange(REFERENCES) != 3
  result = metrics.retrieval(x, y, r, yr, exclude=exclude, reference_where=allowed)
  for i, out in enumerate(exclude):
    others = allowed & (np.arange(REFERENCES) != out)
    row = jax.tree.map(lambda v, i=i: v[i : i + 1], result)
    assert_equal(row, oracle(x[[i]], y[[i]], r[others], yr[others]))


# Compilation, transformations, memory -------------------------------------------


def test_compiles_once_for_a_shape():
  _retrieval._score.clear_cache()
  for seed in range(5):
    metrics.retrieval(tied(seed, ROWS)[0], np.roll(np.arange(ROWS) // (3 + seed), seed))
  assert _retrieval._score._cache_size() == 1


def test_embeddings_may_be_traced():
  x, y = tied(5, ROWS)
  z = tied(6, ROWS)[0]

  def run(v):
    return metrics.retrieval(v, y).map_at_r

  mapped = jax.jit(jax.vmap(run))(jnp.stack([x, z]))
  np.testing.assert_array_equal(mapped, [run(x), run(z)])


def test_memory_is_a_few_row_blocks():
  rows, block = 20_000, 64
  labels = np.arange(rows) // 5
  kept = np.ones(rows, bool)
  plan = _plan.make_plan(
    labels, kept, labels, kept, left_out=np.arange(rows), block_size=block, least=8
  )
  x = jax.ShapeDtypeStruct((rows, 32), jnp.float32)
  proposal = jax.eval_shape(_order.propose, x, x, "squared_euclidean")
  of_plan = plan.blocks, plan.by_class, plan.excluded, plan.position
  options = {"distance": "squared_euclidean", "certain": None, "decide": True}
  lowered = _retrieval._score.lower(proposal, x, x, *of_plan, most=plan.most, **options)
  memory = lowered.compile().memory_analysis()
  assert memory.temp_size_in_bytes < 4 * (4 * block * rows) + 3 * 4 * rows * 32
