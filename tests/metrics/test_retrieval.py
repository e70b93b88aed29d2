"""Exact retrieval against sorting, also where float32 cannot tell the order."""

import functools
import tempfile
import typing

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import _versions, distances, metrics
from spherejax.distances import _order, _tiles
from spherejax.metrics import _host_ranks, _plan, _ranks, _retrieval
from tests.metrics.test_split_references import split

ROWS, REFERENCES = 24, 20
# Keys of pairs of rows; the length of the query does not change the order.
DISTANCES = {
  "squared_euclidean": lambda a, b: ((a[:, None] - b[None]) ** 2).sum(2),
  "dot": lambda a, b: -(a @ b.T),
  "cosine": lambda a, b: -(a @ b.T) / np.maximum(np.linalg.norm(b, axis=1), 1e-99),
}


def ordered(queries, references=None, distance="squared_euclidean"):
  """References of each query, the nearest first, and which of these are finite."""
  among = references is None
  a, b = (np.float64(x) for x in (queries, queries if among else references))
  known = np.isfinite(a).all(1)[:, None] & np.isfinite(b).all(1)[None]
  with np.errstate(invalid="ignore"):
    keys = np.where(known, DISTANCES[distance](a, b), np.inf)
  if among:
    np.fill_diagonal(keys, np.nan)  # behind all others
  order = np.argsort(keys, axis=1, kind="stable")[:, : len(b) - among]
  return order, np.take_along_axis(known, order, axis=1)


def figures(same, known):
  """P@1, P@R, MAP@R, first rank and R; `same` is who has the label, nearest first."""
  relevant, total = same & known, same.sum(1)
  rank = np.arange(1, 1 + same.shape[1])
  hits = relevant & (rank <= total[:, None])
  some = np.maximum(total, 1)
  shares = hits.sum(1) / some, (hits * relevant.cumsum(1) / rank).sum(1) / some
  first = np.where(relevant.any(1), 1 + relevant.argmax(1), 0)
  return np.stack([relevant[:, 0], *shares, first, total])


def oracle(queries, labels, references=None, other_labels=None, **options):
  order, known = ordered(queries, references, **options)
  others = labels if references is None else other_labels
  return figures(others[order] == labels[:, None], known)


def assert_equal(result, expected):
  precision, r_precision, map_at_r, first, relevant = expected
  np.testing.assert_allclose(result.map_at_r, map_at_r, rtol=5e-7)
  np.testing.assert_array_equal(result.precision_at_1, precision)
  # Counts divided once are correctly rounded, so they are equal.
  np.testing.assert_array_equal(result.r_precision, np.float32(r_precision))
  np.testing.assert_array_equal(result.first_rank, first)
  np.testing.assert_array_equal(result.relevant, relevant)
  np.testing.assert_array_equal(result.counted, relevant > 0)
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
  results = (metrics.retrieval(x, y, block_size=b) for b in (1, 7, 128))
  chex.assert_trees_all_equal(*results)


@pytest.fixture
def sorting(monkeypatch):
  """Makes every class large: rows are sorted instead of compared."""
  monkeypatch.setattr(_ranks, "_SORT_COST", 0)
  _retrieval._score.clear_cache()
  yield
  _retrieval._score.clear_cache()


@pytest.mark.usefixtures("sorting")
@pytest.mark.parametrize("block_size", [7, 128])
def test_sorting_gives_the_same_integers(block_size):
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


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_of_real_embeddings(name):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(ROWS, 2)).astype(np.float32)
  x[3] = 0  # cosine 0 with all
  y = rng.integers(0, 6, ROWS)
  expected = oracle(np.float64(x), y, distance=name)
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
  assert_equal(result, oracle(x, labels, distance=distance))
  assert not result.first_rank.any()


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


def test_minus_one_leaves_out_nothing():
  """Of `nearest`; below are tests of its order."""
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


# Below, ranks are those of float64 differences, where a float32 product cannot tell.
MANY, DIM = 200, 16


def _hard():
  """Inputs by name, on which products in float32 tell little."""
  random = np.random.default_rng(0)
  x = random.normal(size=(MANY, DIM))
  group = random.integers(0, 4, (MANY, 1))
  towns = np.tile([[52.52, 13.4], [48.14, 11.58]], (1, DIM // 2))
  fourth, broken = np.arange(DIM) == 3, np.arange(MANY)[:, None] % 9 == 0
  far = 1e4 * random.normal(size=(4, DIM))[group[:, 0]]
  return {
    "ordinary": x,
    "far groups of close points": far + 0.01 * x,
    "places in two towns": towns[group[:, 0] % 2] + 1e-4 * x,
    "a common offset": 1e4 + x,
    "tiny": 1e-25 * x,
    "large": 1e18 * x,
    "near the largest number": 5e37 * x,
    "one huge column": x * np.where(fourth, 1e4, 1),
    "one huge column of two values": np.where(fourth, 1e4 * (group % 2), x),
    "rows of all sizes": x * 10.0 ** random.integers(-6, 6, (MANY, 1)),
    "duplicates": x[random.integers(0, 12, MANY)],
    "whole numbers": random.integers(0, 2, (MANY, DIM)),
    "whole numbers far away": 2.0**20 + random.integers(0, 3, (MANY, DIM)),
    "whole numbers and lost ones": np.where(fourth, 2.0**126 * (group % 2), 1e-3 * x),
    "all the same": np.full((MANY, DIM), 0.3),
    "large, some not finite": np.where(broken, np.nan, 1e25 * x),
    "some not finite": np.where(broken, np.where(group > 1, np.nan, np.inf), x),
  }


HARD = {name: x.astype(np.float32) for name, x in _hard().items()}
_true = functools.cache(lambda name: ordered(HARD[name]))


def _assert_right(result, labels, order, known):
  """`order` is that of the others of each row."""
  _, shares, mean, first, _ = figures(labels[order] == labels[:, None], known)
  np.testing.assert_array_equal(result.first_rank, first)
  np.testing.assert_allclose(result.r_precision, shares, rtol=1e-6)
  np.testing.assert_allclose(result.map_at_r, mean, rtol=1e-5)


WAYS = "counted", "in order", "over devices", "in tiles", "in doubt", "on the host"


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
  """The ways to the same ranks; the first three are those of a program."""
  _retrieval._score.clear_cache()
  monkeypatch.setattr(_host_ranks, "_SORT_COST", 1000)
  settings = {
    "in tiles": (_tiles, "_BYTES", 640),  # of 10 or 40 rows
    "in order": (_ranks, "_SORT_COST", 0),
    "on the host": (_host_ranks, "_SORT_COST", 0),
  }
  if request.param in settings:
    monkeypatch.setattr(*settings[request.param])
  yield request.param
  _retrieval._score.clear_cache()


def _in_file(x):
  with tempfile.NamedTemporaryFile() as file:
    file.write(x.tobytes())
    file.flush()
    return np.memmap(file.name, np.float32, "r", shape=x.shape)


def _retriever(way, labels, **options):
  def retrieve(x):
    return metrics.retrieval(x, labels, **options)

  if way in ("counted", "in order"):
    return jax.jit(retrieve)
  if way == "in tiles":
    each = np.arange(len(labels))
    return lambda x: metrics.retrieval(
      x, labels, _in_file(x), labels, exclude=each, **options
    )
  return (lambda x: retrieve(split(x, 4))) if way == "over devices" else retrieve


def test_retrieval_is_exact(way):
  random = np.random.default_rng(1)
  labels = random.integers(0, MANY // 8, MANY)
  retrieve = _retriever(way, labels)
  # Large classes, too, which are left to the host as a rule.
  large = random.integers(0, 2, MANY)
  for name, x in HARD.items():
    _assert_right(retrieve(x), labels, *_true(name))
    if way == "on the host":
      _assert_right(metrics.retrieval(x, large), large, *_true(name))


@pytest.mark.parametrize(
  "k", [5, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, MANY - 1))]
)
def test_nearest_is_exact(k, monkeypatch):
  monkeypatch.setattr(_tiles, "_BYTES", 72 * 4 * DIM)
  rows = np.arange(MANY)
  for name, x in HARD.items():
    order = _true(name)[0][:, :k]
    for references in (x, split(x, 4), _in_file(x)):
      nearest = metrics.nearest(x, references, k=k, exclude=rows)
      np.testing.assert_array_equal(nearest, order, err_msg=name)
    near = distances.k_nearest(x, x, k=k, exclude=rows)
    np.testing.assert_array_equal(near.indices, order, err_msg=name)


def test_keys_that_round_to_one_whole_number_are_compared_again(monkeypatch):
  """Two relevant and two others whose keys differ by less than the host's units."""
  monkeypatch.setattr(_host_ranks, "_SORT_COST", 0)
  away = 1 + np.array([3, 1, 2, 0]) * np.finfo(np.float32).eps
  x = np.array([0, *away, 1e5, -1e5], np.float32)[:, None]
  labels = np.array([1, 1, 0, 1, 0, 0, 1])
  result = metrics.retrieval(x[:1], labels[:1], x, labels, exclude=np.array([0]))
  # In order: 4 (other), 2 (other), 3 (relevant), 1 (relevant).
  assert (np.argsort(x[1:5, 0]) + 1).tolist() == [4, 2, 3, 1]
  assert result.first_rank.tolist() == [3]
  np.testing.assert_allclose(result.r_precision, 1 / 3, rtol=1e-6)


@pytest.mark.parametrize("way", ["counted", "on the host"], indirect=True)
def test_near_ties_across_units(way):
  """Groups of several sizes in doubt, the last reference nearest to the queries."""
  random = np.random.default_rng(3)
  for _ in range(4):
    ties = [at + np.spacing(np.float32(at)) * random.integers(0, 300, 30)
            for at in (1e3, 2e3)]  # fmt: skip
    x = np.concatenate([np.zeros(5), *ties, [1e5, -1e5, 0.5]]).astype(np.float32)
    x, labels = x[:, None], random.integers(0, 4, len(x))
    _assert_right(_retriever(way, labels)(x), labels, *ordered(x))


def test_fewer_references_than_candidates_are_in_exact_order_too():
  x = np.array([0, 1, 2.5, 20_000, 20_001, 20_002.5], np.float32)[:, None]
  found = metrics.nearest(x, x, k=1, exclude=np.arange(6))
  assert found[:, 0].tolist() == [1, 0, 1, 4, 3, 4]


@pytest.mark.parametrize("distance", ["cosine", "dot"])
def test_similarities_are_exact(distance, way):
  """Products of integers are exact in float64, and so are their ties."""
  random = np.random.default_rng(2)
  x = random.integers(-3000, 3000, (60, 4)) + random.integers(0, 2, (60, 1)) * 10**6
  x, labels = x.astype(np.float32), random.integers(0, 8, 60)
  order, known = ordered(x, distance=distance)
  result = _retriever(way, labels, distance=distance)(x)
  _assert_right(result, labels, order, known)
  found = metrics.nearest(x, x, k=9, exclude=np.arange(60), distance=distance)
  np.testing.assert_array_equal(found, order[:, :9])


@pytest.mark.parametrize("distance", typing.get_args(_order.Distance))
def test_bounds_hold(distance):
  """Each key lies between its bounds, for every kind of input."""
  for name, x in HARD.items():
    proposal = _order.propose(jnp.asarray(x), jnp.asarray(x), distance)
    # In the units of the proposal, in which all was scaled by powers of two.
    y, q = (np.float64(v) for v in (proposal.references, proposal.queries))
    product = np.float64(_order.products(proposal.queries, proposal.references))
    slack = np.float64(proposal.slack)[:, None]
    low = np.float64(proposal.low) - product - slack
    high = np.float64(proposal.high) - product + slack
    key = -q @ y.T
    if distance == "squared_euclidean":
      key = key + (y**2).sum(1) / 2
    known = ~np.isnan(low)
    finite = np.isfinite(x).all(1)
    np.testing.assert_array_equal(known, finite[:, None] & finite[None])
    assert np.all((low <= key)[known]), name
    assert np.all((key <= high)[known]), name
    # And no wider than rounding asks for.
    width = (high - low)[known].max()
    size = max((y**2).sum(1).max(), (q**2).sum(1).max())
    assert width <= 4 * (DIM + 16) * np.finfo(np.float32).eps * max(size, 1), name


@pytest.mark.parametrize("distance", typing.get_args(_order.Distance))
def test_whole_numbers_need_no_second_look(distance):
  """Binary codes, pixels and collapsed networks, where nearly all distances tie."""

  def certain(x):
    return bool(_order.propose(jnp.asarray(x), jnp.asarray(x), distance).certain)

  exact = distance != "cosine"
  for name in ("whole numbers", "whole numbers far away"):
    # Without an origin nearby, the squares of the far ones round.
    near = distance == "squared_euclidean" or name == "whole numbers"
    assert certain(HARD[name]) == (exact and near), name
    assert certain(HARD[name] * np.float32(2.0**-70)) == (exact and near), name
  assert certain(HARD["all the same"]) == (distance == "squared_euclidean")
  for name in set(HARD) - {"whole numbers", "whole numbers far away", "all the same"}:
    assert not certain(HARD[name]), name
  assert not certain(HARD["whole numbers"] * np.float32(0.1) + np.float32(1e-7))


def test_ordinary_embeddings_are_seldom_looked_at_again(monkeypatch):
  """The second look would else cost more than the product."""
  random = np.random.default_rng(0)
  labels = np.repeat(np.arange(400), 5)
  x = 0.7 * random.normal(size=(400, 64))[labels] + random.normal(size=(2000, 64))
  x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
  doubts = []
  plain = _ranks._decide

  def watched(rows, index, low, high, found, doubt, distance):
    jax.debug.callback(lambda d: doubts.append(np.asarray(d) > 0), doubt)
    return plain(rows, index, low, high, found, doubt, distance)

  monkeypatch.setattr(_ranks, "_decide", watched)
  _retrieval._score.clear_cache()
  jax.block_until_ready(_retriever("counted", labels)(x))
  jax.effects_barrier()
  _retrieval._score.clear_cache()
  assert np.mean(np.concatenate(doubts).any(1)) < 0.02


def test_the_next_unit_of_the_keys_is_put_in_order_too():
  # Rounding may put the nearer of two references one unit behind.
  ranker = object.__new__(_host_ranks.Ranker)
  ranker._columns, ranker._exact = np.arange(4), True
  keys = np.array([[0, 3, 4, 5]], np.int32)  # odd keys are relevant
  row, relevant = ranker._in_order(keys, np.zeros(1, np.int32), np.zeros(1, int))
  np.testing.assert_array_equal(row, [0, 0])
  np.testing.assert_array_equal(relevant, [False, True])
