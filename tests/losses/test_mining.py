"""Miners against loops over the rows; draws against their probabilities."""

import functools
import inspect
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, losses
from spherejax.losses import _blocks
from tests.losses.slopes import with_slopes

GENERATOR = np.random.default_rng(2)
ROLE = GENERATOR.integers(0, 3, (7, 12))
ROLE[0], ROLE[1], ROLE[2] = 2, 0, 1  # no pair, no negative, no positive
ROLE[1, :3] = 2
POSITIVES, NEGATIVES = ROLE == 0, ROLE == 1
# Few different values: many ties.
MATRIX = GENERATOR.integers(1, 8, (7, 12)) / 4.0


def pick(among, value, sign):
  """Lowest index of the largest (1) or smallest (-1)."""
  return max(among, key=lambda j: (sign * value(j), -j))


def multi_similarity(d, near, far, epsilon=0.3):
  return (
    [p for p in near if far and d[p] + epsilon > min(d[q] for q in far)],
    [q for q in far if near and d[q] - epsilon < max(d[p] for p in near)],
  )


def triplets(d, near, far, margin, kind):
  every = [(p, q) for p in near for q in far]
  rules = {
    "all": lambda p, q: d[q] - d[p] <= margin,
    "hard": lambda p, q: d[q] - d[p] <= min(margin, 0),
    "semihard": lambda p, q: 0 < d[q] - d[p] <= margin,
    "easy": lambda p, q: d[q] - d[p] > margin,
  }
  kept = [pair for pair in every if rules[kind](*pair)]
  return [p for p, _ in kept], [q for _, q in kept]


def easy_hard(d, near, far, positive, negative):
  def value(j):
    return d[j]

  def positives(limit=math.inf):
    among = [p for p in near if d[p] < limit]
    if positive == "all":
      return near
    return [pick(among, value, -1 if positive == "easy" else 1)] if among else []

  def negatives(limit=-math.inf):
    among = [q for q in far if d[q] > limit]
    if negative == "all":
      return far
    return [pick(among, value, 1 if negative == "easy" else -1)] if among else []

  if positive == "semihard":
    kept_far = negatives()
    kept_near = positives(d[kept_far[0]]) if kept_far else []
  elif negative == "semihard":
    kept_near = positives()
    kept_far = negatives(d[kept_near[0]]) if kept_near else []
  else:
    kept_near, kept_far = positives(), negatives()
  if "all" not in (positive, negative) and not (kept_near and kept_far):
    return [], []
  return kept_near, kept_far


def hardest_fraction(d, near, far, fraction):
  def hardest(among, sign):
    order = sorted(among, key=lambda j: (sign * d[j], j))
    return order[: math.ceil(fraction * len(among))]

  return hardest(near, -1), hardest(far, 1)


def counts(rule, matrix):
  """[rows, columns] twice: how often the rule lists each column."""
  result = np.zeros((2, *matrix.shape))
  for i, row in enumerate(matrix):
    near, far = np.flatnonzero(POSITIVES[i]), np.flatnonzero(NEGATIVES[i])
    for side, columns in enumerate(rule(row, list(near), list(far))):
      for column in columns:
        result[side, i, column] += 1
  return result


MINERS = {
  multi_similarity: losses.mine_multi_similarity,
  triplets: losses.mine_triplet_margin,
  easy_hard: losses.mine_batch_easy_hard,
  hardest_fraction: losses.mine_hardest_fraction,
}


def by_loops(rule, **settings):
  """The miner of a rule, and the rule, at these settings."""
  return tuple(functools.partial(f, **settings) for f in (MINERS[rule], rule))


STRATEGIES = (
  ("easy", "semihard"), ("semihard", "hard"), ("semihard", "easy"),
  ("hard", "semihard"), ("easy", "easy"), ("all", "hard"), ("easy", "all"),
)  # fmt: skip
BATCH_HARD = functools.partial(easy_hard, positive="hard", negative="hard")
MINERS = [
  by_loops(multi_similarity, epsilon=0.3),
  *(
    by_loops(triplets, margin=margin, kind=kind)
    for margin in (0.5, -0.25)
    for kind in ("all", "hard", "semihard", "easy")
  ),
  *(by_loops(easy_hard, positive=p, negative=n) for p, n in STRATEGIES),
  (losses.mine_batch_hard, BATCH_HARD),
  *(by_loops(hardest_fraction, fraction=share) for share in (0, 0.3, 0.5, 1)),
]


def test_miners_equal_the_loops_for_distances_and_similarities():
  @jax.jit
  def mine(matrix):
    d = [miner(matrix, POSITIVES, NEGATIVES, of="distance") for miner, _ in MINERS]
    return d, [
      miner(-matrix, POSITIVES, NEGATIVES, of="similarity") for miner, _ in MINERS
    ]

  for results in mine(MATRIX.astype(np.float32)):
    for (miner, rule), kept in zip(MINERS, results, strict=True):
      expected = counts(rule, MATRIX)
      np.testing.assert_array_equal(kept[0], expected[0], str(miner))
      np.testing.assert_array_equal(kept[1], expected[1], str(miner))


@pytest.mark.parametrize(("options", "sign"), [({}, 1), ({"of": "similarity"}, -1)])
def test_pair_margin_turns_with_the_measure(options, sign):
  kept = losses.mine_pair_margin(
    MATRIX, POSITIVES, NEGATIVES, positive_margin=0.75, negative_margin=1.25, **options
  )
  farther = sign * MATRIX
  np.testing.assert_array_equal(kept[0], POSITIVES & (farther > sign * 0.75))
  np.testing.assert_array_equal(kept[1], NEGATIVES & (farther < sign * 1.25))


def test_weights_are_kept_and_multiply():
  positives, negatives = 2.0 * POSITIVES, 0.5 * NEGATIVES
  kept = losses.mine_batch_hard(MATRIX, positives, negatives)
  masks = losses.mine_batch_hard(MATRIX, POSITIVES, NEGATIVES)
  np.testing.assert_array_equal(kept[0], 2 * masks[0])
  np.testing.assert_array_equal(kept[1], 0.5 * masks[1])
  near, far = losses.mine_triplet_margin(MATRIX, positives, negatives, margin=0.5)
  plain = losses.mine_triplet_margin(MATRIX, POSITIVES, NEGATIVES, margin=0.5)
  np.testing.assert_array_equal(near, plain[0])  # 2 * 0.5
  np.testing.assert_array_equal(far, plain[1])


def test_what_is_no_weight_counts_for_nothing(x64):
  """Negative weights and NaN are left out of the sums, and of the numbers."""
  matrix = np.array([[0.1, 0.4, 0.7, 0.9]])
  positives = np.array([[2.0, -3.0, 0.0, np.nan]])
  negatives = np.array([[0.0, 0.0, 1.0, -1.0]])
  for average in ("nonzero", "all"):
    value = losses.triplet_from_distance(
      matrix, positives, negatives, margin=1.0, average=average
    )
    np.testing.assert_allclose(value, [0.4], rtol=1e-12)  # one triplet, of weight 2
  pair = losses.contrastive_from_distance(matrix, positives, negatives)
  np.testing.assert_allclose(pair, [0.1 + 0.3], rtol=1e-12)


def test_many_positives_are_counted_by_sorting():
  """Past a number of positives the rows are sorted; loops over weights are not."""
  generator = np.random.default_rng(5)
  matrix = generator.integers(0, 30, (3, 80)).astype(np.float32)
  same = generator.random((3, 80)) < 0.5
  for kind in ("all", "hard", "semihard", "easy"):
    mine = functools.partial(losses.mine_triplet_margin, margin=4.0, kind=kind)
    sums = mine(matrix, same, ~same)
    loops = mine(matrix, same.astype(np.float32), (~same).astype(np.float32))
    np.testing.assert_array_equal(sums[0], loops[0])
    np.testing.assert_array_equal(sums[1], loops[1])


def test_angular_pairs_equal_the_loops(x64):
  x = np.random.default_rng(3).normal(size=(8, 3))
  x /= np.linalg.norm(x, axis=1, keepdims=True)
  labels = np.array([0, 0, 0, 1, 1, 2, 2, 3])
  same = (labels[:, None] == labels) & ~np.eye(8, dtype=bool)
  other = labels[:, None] != labels
  right = np.zeros((2, 8, 8))
  for a, p, n in np.ndindex(8, 8, 8):
    if same[a, p] and other[a, n]:
      centre = np.linalg.norm(x[n] - (x[a] + x[p]) / 2)
      if math.atan(np.linalg.norm(x[a] - x[p]) / (2 * centre)) > 0.6:
        right[0, a, p] += 1
        right[1, a, n] += 1
  assert 0 < right[0].sum() < (same.sum(1) * other.sum(1)).sum()
  square = ((x[:, None] - x) ** 2).sum(-1)
  for matrix, of in (
    (square, "squared_distance"), (square**0.5, "distance"), (x @ x.T, "similarity")
  ):  # fmt: skip
    for references in ({"among": matrix}, {"points": x}):
      kept = losses.mine_angular(matrix, same, other, angle=0.6, of=of, **references)
      np.testing.assert_array_equal(kept, right)


def test_distance_weighted_draws_follow_the_density():
  """Counts of 1000 positives against probabilities in float64; up to 512 dimensions."""
  d = np.array([0.3, 0.6, 0.9, 1.2, 1.35, 1.39, 1.4, 1.7])
  row = np.concatenate([d, np.ones(1000)]).astype(np.float32)
  matrix = np.stack([row] * 3)
  positives = np.zeros((3, 1008), bool)
  positives[:2, 8:] = True
  negatives = np.zeros((3, 1008), bool)
  negatives[:, :8] = True
  negatives[1, :6] = False  # nothing below the limit

  @functools.partial(jax.jit, static_argnames=("dim", "fallback", "of"))
  def mine(matrix, **options):
    key = jax.random.key(1)
    return losses.mine_distance_weighted(
      matrix, positives, negatives, key=key, **options
    )

  for dim in (4, 512):
    near, far = mine(matrix, dim=dim)
    clipped = np.maximum(d, 0.5)
    log_weight = -(dim - 2) * np.log(clipped) - (dim - 3) / 2 * np.log(
      1 - clipped**2 / 4
    )
    p = np.where(d < 1.4, np.exp(log_weight - log_weight[0]), 0)
    p /= p.sum()
    assert far[0].sum() == 1000  # one for every positive
    np.testing.assert_array_equal(near[0], positives[0])
    spread = 5 * np.sqrt(1000 * p * (1 - p)) + 1e-3
    assert (np.abs(far[0, :8] - 1000 * p) <= spread).all()
    for row in (1, 2):  # no eligible negative, no positive
      assert not near[row].any()
      assert not far[row].any()
  again = mine(matrix, dim=512, fallback="uniform")
  np.testing.assert_array_equal(again[1][0], far[0])
  assert again[0][1].sum() == 1000
  np.testing.assert_allclose(again[1][1, 6:8], 500, atol=80)
  same = mine(1 - matrix**2 / 2, dim=512, of="similarity")
  np.testing.assert_allclose(same[1], far, atol=3)  # edges of the steps round


def test_uniform_histogram_draws_the_same_number_from_every_bin():
  near, far = losses.mine_uniform_histogram(
    MATRIX.astype(np.float32), POSITIVES, NEGATIVES, key=jax.random.key(0), bins=3,
    positives_per_bin=5, negatives_per_bin=7,
  )  # fmt: skip
  for kept, mask, number in ((near, POSITIVES, 5), (far, NEGATIVES, 7)):
    for row, drawn, among in zip(MATRIX, np.asarray(kept), mask, strict=True):
      if not among.any():
        assert not drawn.any()
        continue
      low, high = row[among].min(), row[among].max()
      bins = np.minimum(np.floor((row - low) / max(high - low, 1e-9) * 3), 2)
      for b in range(3):
        inside = among & (bins == b)
        assert drawn[inside].sum() == (number if inside.any() else 0)
      assert drawn[~among].sum() == 0


LABELS = np.array([0, 3, 0, 1, 0, 1, 5, 0, 1, 3, 0, 3], np.int32)
DRAWN = functools.partial(losses.mine_distance_weighted, key=jax.random.key(3), dim=4)
BINS = functools.partial(losses.mine_uniform_histogram, key=jax.random.key(4), bins=3)


@pytest.mark.parametrize(
  "miner",
  [
    DRAWN,
    losses.mine_batch_hard,
    pytest.param(BINS, marks=pytest.mark.slow),
    pytest.param(losses.mine_angular, marks=pytest.mark.slow),
  ],
  ids=range(4),
)
def test_blocks_and_devices_mine_the_same_pairs(embeddings, miner, x64):
  x = embeddings(1, 12, 4)
  if miner is losses.mine_angular:
    points = x / np.linalg.norm(x, axis=1, keepdims=True)
    miner = functools.partial(miner, points=points, angle=0.6)
    mined = jax.jit(functools.partial(losses.pair_counts, miner=miner))(x, LABELS)
    assert np.any(np.asarray(mined.negatives) > 0)

  def run(x, labels, **options):
    def loss(x):
      values = losses.contrastive(x, labels, miner=miner, **options)
      return values.sum(), values

    gradient, values = jax.grad(loss, has_aux=True)(x)
    return values, gradient

  values, gradient = jax.jit(run)(x, LABELS)
  assert np.abs(gradient).max() > 0
  blocked = jax.jit(functools.partial(run, block_size=5))(x, LABELS)
  mapped = jax.pmap(functools.partial(run, axis_name="i", block_size=2), "i")(
    x.reshape(4, 3, 4), LABELS.reshape(4, 3)
  )
  for other in (blocked, [part.reshape(-1, *part.shape[2:]) for part in mapped]):
    np.testing.assert_allclose(other[0], values, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(other[1], gradient, rtol=1e-12, atol=1e-14)


def nobody(matrix, positives, negatives):
  return jnp.zeros_like(positives), jnp.zeros_like(negatives)


MINED = [
  name
  for name in losses.__all__
  if not inspect.isclass(getattr(losses, name))
  and {"embeddings", "miner"}
  <= set(inspect.signature(getattr(losses, name)).parameters)
]


# The other losses of pairs are given their counts in the same place.
@pytest.mark.parametrize(
  "name",
  [
    pytest.param(name, marks=[pytest.mark.slow] * (k % 3 > 0))
    for k, name in enumerate(sorted({*MINED} - {"pair_counts"}))
  ],
)
def test_a_miner_that_leaves_nothing(name, embeddings):
  x = embeddings(1, 12, 4).astype(np.float32)
  rest = (jnp.zeros(9),) if name == "dynamic_soft_margin" else ()

  def loss(x):
    values = getattr(losses, name)(x, LABELS, *rest, miner=nobody)
    return values[0] if rest else values

  values, gradient = with_slopes(loss)(x)
  np.testing.assert_array_equal(values, 0)
  np.testing.assert_array_equal(gradient, 0)


def test_counts_of_pairs(embeddings):
  x = embeddings(1, 12, 4)
  kept = np.arange(12) % 5 != 3
  every = jax.tree.map(np.asarray, losses.pair_counts(x, LABELS, where=kept))
  for of, near, far in (
    ("distance", 0.9, 1.1), ("squared_distance", 0.9, 1.1), ("similarity", 0.4, 0.2),
  ):  # fmt: skip
    mine = functools.partial(
      losses.mine_pair_margin, positive_margin=near, negative_margin=far
    )
    z = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = np.zeros((2, 12))
    for i, j in itertools.permutations(np.flatnonzero(kept), 2):
      apart, cosine = np.linalg.norm(z[i] - z[j]), z[i] @ z[j]
      value = {"distance": apart, "squared_distance": apart**2}.get(of, -cosine)
      sign = -1 if of == "similarity" else 1
      if LABELS[i] == LABELS[j]:
        expected[0, i] += value > sign * near
      else:
        expected[1, i] += value < sign * far
    assert 0 < expected[0].sum() < np.sum(every.positives)
    assert 0 < expected[1].sum() < np.sum(every.negatives)
    np.testing.assert_array_equal(every.positives + every.negatives, 9 * kept)
    for block_size in (None, 5):
      found = losses.pair_counts(
        x, LABELS, of=of, where=kept, miner=mine, block_size=block_size
      )
      np.testing.assert_array_equal(found, expected)
  np.testing.assert_array_equal(losses.pair_counts(x, LABELS, miner=nobody), 0)


def test_counts_of_weights_columns_and_devices(embeddings, monkeypatch):
  x = embeddings(1, 12, 4)

  def lighter(matrix, positives, negatives):
    return 0.25 * positives, 0.5 * negatives * (matrix < 1.2)

  monkeypatch.setattr(_blocks, "_COLUMNS", 4)
  for miner in (None, lighter):
    of_rows = functools.partial(losses.pair_counts, miner=miner)
    of_shards = jax.vmap(functools.partial(of_rows, axis_name="i"), axis_name="i")
    every = jax.jit(
      lambda x, of_rows=of_rows, of_shards=of_shards: (
        of_rows(x, LABELS),
        of_rows(x, LABELS, block_size=5),
        of_shards(x.reshape(4, 3, 4), LABELS.reshape(4, 3)),
      )
    )
    whole, blocked, spread = jax.tree.map(np.asarray, every(x))
    assert np.all(np.sum(whole, axis=1) > 0)
    for other in (blocked, [part.ravel() for part in spread]):
      np.testing.assert_array_equal(other, whole)
  same = LABELS[:, None] == LABELS
  np.testing.assert_array_equal(whole.positives, (same.sum(1) - 1) / 4)


def test_losses_say_what_their_matrix_holds():
  seen = []

  def miner(matrix, positives, negatives, *, of, rows):
    seen.append((of, rows.shape))
    return positives, jnp.zeros_like(negatives)

  x = np.eye(3, dtype=np.float32)
  labels = np.array([0, 1, 2])
  zero = losses.multi_similarity(x, labels, miner=miner)
  losses.contrastive(x, labels, miner=miner)
  losses.triplet(x, labels, squared=True, miner=miner)
  assert seen == [
    ("similarity", (3,)), ("distance", (3,)), ("squared_distance", (3,))
  ]  # fmt: skip
  np.testing.assert_array_equal(zero, 0)  # nothing is left


def test_batch_hard_mines_pairs_or_sums_triplets(embeddings, x64):
  loss = functools.partial(losses.triplet, embeddings(1, 12, 4), LABELS, margin=0.3)
  values, expected = loss(miner=losses.mine_batch_hard), loss(mining="batch_hard")
  np.testing.assert_allclose(values, expected, rtol=1e-10)


@pytest.mark.parametrize(
  "miner",
  [
    *(rule for rule, _ in MINERS[::6]),
    functools.partial(losses.mine_distance_weighted, key=jax.random.key(1), dim=4),
    functools.partial(losses.mine_uniform_histogram, key=jax.random.key(1)),
    lambda d, *pairs: losses.mine_angular(d, *pairs, among=d),
  ],
)
def test_gradients_of_mined_pairs_take_the_pairs_as_constants(miner):
  x = jax.random.normal(jax.random.key(0), (8, 4))
  labels = np.arange(8) // 2
  near = (labels[:, None] == labels) & ~np.eye(8, dtype=bool)
  far = labels[:, None] != labels

  def total(x, among=None):
    unit = distances.l2_normalize(x)
    d = distances.pairwise_euclidean(unit, unit)
    pairs = miner(d if among is None else among, near, far)
    return losses.contrastive_from_distance(d, *pairs).sum()

  unit = distances.l2_normalize(x)
  fixed = distances.pairwise_euclidean(unit, unit)
  slope = jax.grad(total)(x)
  np.testing.assert_allclose(slope, jax.grad(total)(x, fixed), atol=1e-5)
  along = jax.jvp(total, (x,), (x + 1,))[1]
  np.testing.assert_allclose(along, jnp.vdot(slope, x + 1), rtol=1e-3, atol=1e-4)
  jax.eval_shape(jax.jacfwd(jax.grad(total)), x)
