"""References that are split over devices give the ranks of one device, bit for bit."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, metrics, prototypes
from spherejax.distances import _lp, _order, _split
from spherejax.metrics import _plan, _retrieval

ROWS, DIM = 96, 8
# The slow ones: the code of four devices, with other parts.
DEVICES = pytest.mark.parametrize(
  "devices", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2)), 4]
)


def rows(count=ROWS):
  """With duplicates, which lie on other devices, and a row that has no key."""
  x = np.random.default_rng(0).normal(size=(count, DIM)).astype(np.float32)
  x[60:70] = x[10:20]
  x[33] = np.nan
  return x


def labels():
  # The last class, of whose queries there are some, is on the first device alone.
  y = np.random.default_rng(1).integers(0, 12, ROWS)
  y[y == 11] = 0
  y[3:6] = 11
  return y


def split(x, devices, explicit=False):
  kinds = jax.sharding.AxisType
  kind = kinds.Explicit if explicit else kinds.Auto
  chosen = jax.devices()[:devices]
  mesh = jax.make_mesh((devices,), ("parts",), (kind,), devices=chosen)
  return jax.device_put(x, jax.NamedSharding(mesh, jax.P("parts")))


@DEVICES
def test_retrieval_over_devices(devices):
  x, y = rows(), labels()
  alone = metrics.retrieval(x, y, block_size=32)
  found = metrics.retrieval(split(x, devices, explicit=True), y, block_size=32)
  chex.assert_trees_all_equal(found.first_rank, alone.first_rank)
  chex.assert_trees_all_close(found, alone, rtol=5e-7)


def test_whole_queries_of_split_references():
  x, y = rows(), labels()
  few = np.arange(5, ROWS, 7)
  options = {"exclude": few, "distance": "cosine"}
  alone = metrics.retrieval(x[few], y[few], x, y, **options)
  found = metrics.retrieval(x[few], y[few], split(x, 4), y, **options)
  chex.assert_trees_all_close(found, alone, rtol=5e-7)


def test_rows_that_fill_up_the_last_device_are_left_out():
  x, y = rows(), labels()
  kept = np.arange(ROWS) < ROWS - 3
  alone = metrics.retrieval(x[kept], y[kept])
  found = metrics.retrieval(
    x[kept], y[kept], split(x, 4), y, reference_where=kept, exclude=np.arange(ROWS - 3)
  )
  chex.assert_trees_all_close(found, alone, rtol=5e-7)
  filled = np.where(kept[:, None], x, np.nan)
  for k in (1, 40, ROWS - 4):
    nearest = functools.partial(metrics.nearest, x[:9], k=k, exclude=np.arange(9))
    np.testing.assert_array_equal(nearest(split(filled, 4)), nearest(x[kept]))


@DEVICES
def test_nearest_over_devices(devices):
  x = rows()
  whole = split(x, devices)
  for k, distance in ((1, "cosine"), (7, "dot"), (ROWS - 1, "squared_euclidean")):
    options = {"k": k, "exclude": np.arange(ROWS), "distance": distance}
    alone = metrics.nearest(x, x, **options)
    for queries in (x, whole):
      np.testing.assert_array_equal(metrics.nearest(queries, whole, **options), alone)


def test_a_device_holds_its_rows_and_a_block():
  """No more than a fourth of the row block, and none of the others' rows."""
  count, dim, block = 16_384, 16, 32
  kept, y = np.ones(count, bool), np.arange(count) // 4
  plan = _plan.make_plan(
    y, kept, y, kept, left_out=np.arange(count), block_size=block, least=8
  )
  x = split(np.zeros((count, dim), np.float32), 4)
  by_class, excluded = (_split.put(v, x.sharding) for v in (plan.by_class, ~kept))
  distance = "squared_euclidean"
  proposal = _order.propose(x, x, distance, excluded)
  of_plan = plan.blocks, by_class, excluded, plan.position
  options = {"most": plan.most, "certain": False, "decide": True}
  score = _retrieval._score.lower(
    proposal, x, x, *of_plan, distance=distance, **options
  )
  queries = jnp.zeros((64, dim)), jnp.zeros(64, jnp.int32)
  few, exclude = (_split.whole(v, x.sharding) for v in queries)
  options = {"sharding": x.sharding, "k": 5, "block_size": block}
  search = _split.nearest.lower(few, x, exclude, distance=distance, **options)
  part = 4 * count // 4  # bytes of a column on one device
  for lowered, spare in ((score, 2 * dim), (search, 4 * dim)):
    memory = lowered.compile().memory_analysis()
    assert memory.temp_size_in_bytes < part * (4 * block + spare)


def test_neighbours_of_other_labels_over_devices():
  x, y = rows(), labels()
  options = {"k": ROWS - 4, "exclude": np.arange(ROWS), "apart": (y, y)}
  alone = distances.k_nearest(x, x, **options)
  chex.assert_trees_all_equal(distances.k_nearest(x, split(x, 4), **options), alone)


class _Lowered(Exception):
  pass


def _classes(points, sites):
  each = np.arange(len(sites))
  return prototypes.nearest_neighbours(
    points, sites, each % 7, num_classes=7, k=3, where=each % 5 != 1
  )


@pytest.mark.parametrize(
  "search", [functools.partial(distances.k_nearest, k=3), _classes]
)
def test_sites_stay_on_their_devices(search, monkeypatch):
  """No device has a copy of all rows, which is four times its own."""
  plain = _lp._k_nearest

  def watched(*args, **static):
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
    raise _Lowered(plain.lower(*like, **static))

  monkeypatch.setattr(_lp, "_k_nearest", watched)
  x = split(np.zeros((16_384, 64), np.float32), 4)
  with pytest.raises(_Lowered) as stopped:
    search(np.zeros((16, 64), np.float32), x)
  memory = stopped.value.args[0].compile().memory_analysis()
  assert memory.argument_size_in_bytes < x.nbytes // 3
  assert memory.temp_size_in_bytes < 3 * x.nbytes // 4


def test_more_devices_do_not_make_more_work_for_one():
  """To prepare as many rows on each; a slice of them took all, for each device."""
  work = []
  for devices in (2, 4):
    x = split(np.zeros((512 * devices, DIM), np.float32), devices)
    few = _split.whole(jnp.zeros((9, DIM)), x.sharding)
    program = _order.propose.lower(few, x, "squared_euclidean").compile()
    work.append(program.cost_analysis()["bytes accessed"])
  assert work[1] <= 1.01 * work[0]


def test_other_ways_to_split_are_refused():
  x, y = rows(), labels()
  mesh = jax.make_mesh(
    (2, 2), ("a", "b"), (jax.sharding.AxisType.Auto,) * 2, devices=jax.devices()[:4]
  )
  for spec in (jax.P(("a", "b")), jax.P("a", "b"), jax.P(None, "a")):
    wrong = jax.device_put(x, jax.NamedSharding(mesh, spec))
    with pytest.raises(ValueError, match="references must be split along its rows"):
      metrics.retrieval(x, y, wrong, y)
    with pytest.raises(ValueError, match="references must be split along its rows"):
      metrics.nearest(x, wrong, k=1)
  fine = jax.device_put(x, jax.NamedSharding(mesh, jax.P("b")))
  nearest = (metrics.nearest(x, y, k=2) for y in (fine, x))
  np.testing.assert_array_equal(*nearest)
