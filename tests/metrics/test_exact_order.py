"""Ranks are those of float64 differences, where a float32 product cannot tell."""

import functools
import tempfile
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, metrics
from spherejax.distances import _order, _tiles
from spherejax.metrics import _host_ranks, _ranks, _retrieval
from tests.metrics.test_split_references import split

ROWS, DIM = 200, 16


def _hard():
  """Inputs by name, on which products in float32 tell little."""
  random = np.random.default_rng(0)
  x = random.normal(size=(ROWS, DIM))
  group = random.integers(0, 4, (ROWS, 1))
  towns = np.tile([[52.52, 13.4], [48.14, 11.58]], (1, DIM // 2))
  fourth, broken = np.arange(DIM) == 3, np.arange(ROWS)[:, None] % 9 == 0
  return {
    "ordinary": x,
    "far groups of close points": (
      1e4 * random.normal(size=(4, DIM))[group[:, 0]] + 0.01 * x
    ),
    "places in two towns": towns[group[:, 0] % 2] + 1e-4 * x,
    "a common offset": 1e4 + x,
    "tiny": 1e-25 * x,
    "large": 1e18 * x,
    "near the largest number": 5e37 * x,
    "one huge column": x * np.where(fourth, 1e4, 1),
    "one huge column of two values": np.where(fourth, 1e4 * (group % 2), x),
    "rows of all sizes": x * 10.0 ** random.integers(-6, 6, (ROWS, 1)),
    "duplicates": x[random.integers(0, 12, ROWS)],
    "whole numbers": random.integers(0, 2, (ROWS, DIM)),
    "whole numbers far away": 2.0**20 + random.integers(0, 3, (ROWS, DIM)),
    "whole numbers and what is lost beside them": np.where(
      fourth, 2.0**126 * (group % 2), 1e-3 * x
    ),
    "all the same": np.full((ROWS, DIM), 0.3),
    "large, some not finite": np.where(broken, np.nan, 1e25 * x),
    "some not finite": np.where(broken, np.where(group > 1, np.nan, np.inf), x),
  }


HARD = {name: x.astype(np.float32) for name, x in _hard().items()}


@functools.cache
def _true(name):
  """[rows, rows - 1], the others in exact order; which rows are finite."""
  x = HARD[name].astype(np.float64)
  finite = np.isfinite(x).all(1)
  with np.errstate(invalid="ignore"):
    keys = ((x[:, None] - x[None]) ** 2).sum(2)
  keys[~(finite[:, None] & finite[None])] = np.inf
  np.fill_diagonal(keys, np.nan)
  return np.argsort(keys, axis=1, kind="stable")[:, :-1], finite


def _assert_right(result, labels, order, finite=None):
  """`order` is that of the others of each row."""
  relevant = labels[order] == labels[:, None]
  total = relevant.sum(1)
  if finite is not None:
    relevant &= finite[order] & finite[:, None]
  first = np.where(relevant.any(1), 1 + relevant.argmax(1), 0)
  np.testing.assert_array_equal(result.first_rank, first)
  among = np.arange(order.shape[1])[None] < total[:, None]
  hits = (relevant & among).sum(1)
  np.testing.assert_allclose(result.r_precision, hits / np.maximum(total, 1), rtol=1e-6)
  precision = relevant.cumsum(1) / np.arange(1, len(labels))
  mean = (precision * (relevant & among)).sum(1) / np.maximum(total, 1)
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
  labels = random.integers(0, ROWS // 8, ROWS)
  retrieve = _retriever(way, labels)
  # Large classes, too, which are left to the host as a rule.
  large = random.integers(0, 2, ROWS)
  for name, x in HARD.items():
    _assert_right(retrieve(x), labels, *_true(name))
    if way == "on the host":
      _assert_right(metrics.retrieval(x, large), large, *_true(name))


@pytest.mark.parametrize(
  "k", [5, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, ROWS - 1))]
)
def test_nearest_is_exact(k, monkeypatch):
  monkeypatch.setattr(_tiles, "_BYTES", 72 * 4 * DIM)
  rows = np.arange(ROWS)
  for name, x in HARD.items():
    order = _true(name)[0][:, :k]
    for references in (x, split(x, 4), _in_file(x)):
      nearest = metrics.nearest(x, references, k=k, exclude=rows)
      label = f"{name}, {type(references).__name__}"
      np.testing.assert_array_equal(nearest, order, err_msg=label)
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
    labels = random.integers(0, 4, len(x))
    apart = np.abs(np.subtract.outer(x, x, dtype=np.float64))
    np.fill_diagonal(apart, np.inf)
    order = np.argsort(apart, axis=1, kind="stable")[:, :-1]
    _assert_right(_retriever(way, labels)(x[:, None]), labels, order)


def test_the_smallest_input():
  x = np.array([0, 1, 2.5, 20_000, 20_001, 20_002.5], np.float32)[:, None]
  found = metrics.nearest(x, x, k=1, exclude=np.arange(6))
  assert found[:, 0].tolist() == [1, 0, 1, 4, 3, 4]


@pytest.mark.parametrize("distance", ["cosine", "dot"])
def test_similarities_are_exact(distance, way):
  """Products of integers are exact in float64, and so are their ties."""
  random = np.random.default_rng(2)
  x = random.integers(-3000, 3000, (60, 4)) + random.integers(0, 2, (60, 1)) * 10**6
  x, labels = x.astype(np.float32), random.integers(0, 8, 60)
  wide = x.astype(np.float64)
  keys = -wide @ wide.T
  if distance == "cosine":
    keys /= np.linalg.norm(wide, axis=1)
  keys = np.where(np.eye(60, dtype=bool), np.inf, keys)
  order = np.argsort(keys, axis=1, kind="stable")[:, :-1]
  _assert_right(_retriever(way, labels, distance=distance)(x), labels, order)
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


def test_ordinary_embeddings_are_seldom_looked_at_again():
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

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(_ranks, "_decide", watched)
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
