"""Miners against their rules in NumPy; draws against their probabilities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, losses
from spherejax.losses import _blocks
from tests.losses.cases._frame import draw_embeddings
from tests.losses.cases._parts import project
from tests.losses.slopes import losses_of, values_of, with_slopes

GENERATOR = np.random.default_rng(2)
ROLE = GENERATOR.integers(0, 3, (7, 12))
ROLE[0], ROLE[1], ROLE[2] = 2, 0, 1  # no pair, no negative, no positive
ROLE[1, :3] = 2
POSITIVES, NEGATIVES = ROLE == 0, ROLE == 1
# Few different values: many ties.
MATRIX = GENERATOR.integers(1, 8, (7, 12)) / 4.0
X = draw_embeddings(1, 12, 4)
LABELS = np.array([0, 3, 0, 1, 0, 1, 5, 0, 1, 3, 0, 3], np.int32)


def multi_similarity(d, near, far, epsilon):
  closest = np.where(far, d, np.inf).min(1, keepdims=True)
  farthest = np.where(near, d, -np.inf).max(1, keepdims=True)
  return near & (d + epsilon > closest), far & (d - epsilon < farthest)


def triplets(d, near, far, margin, kind):
  gaps = d[:, None] - d[..., None]  # [anchors, positives, negatives]
  rules = {
    "all": gaps <= margin,
    "hard": gaps <= min(margin, 0),
    "semihard": (gaps > 0) & (gaps <= margin),
    "easy": gaps > margin,
  }
  chosen = near[..., None] & far[:, None] & rules[kind]
  return chosen.sum(2), chosen.sum(1)


def easy_hard(d, near, far, positive, negative):
  def some(among, strategy, hardest):
    """All, or the lowest index of the largest (1) or smallest (-1)."""
    sign = -hardest if strategy == "easy" else hardest
    chosen = np.where(among, sign * d, -np.inf).argmax(1)
    return among & ((strategy == "all") | (np.arange(12) == chosen[:, None]))

  if positive == "semihard":
    far = some(far, negative, -1)
    near = near & (d < np.where(far, d, -np.inf).max(1, keepdims=True))
  near = some(near, positive, 1)
  if negative == "semihard":
    far = far & (d > np.where(near, d, np.inf).min(1, keepdims=True))
  far = some(far, negative, -1)
  both = near.any(1, keepdims=True) & far.any(1, keepdims=True)
  both = both | ("all" in (positive, negative))
  return near & both, far & both


def hardest_fraction(d, near, far, fraction):
  def hardest(among, sign):
    order = np.argsort(np.where(among, sign * d, np.inf), axis=1, kind="stable")
    return among & (np.argsort(order) < np.ceil(fraction * among.sum(1))[:, None])

  return hardest(near, -1), hardest(far, 1)


def by_rule(miner, rule, **settings):
  return tuple(functools.partial(f, **settings) for f in (miner, rule))


STRATEGIES = (
  ("easy", "semihard"), ("semihard", "hard"), ("semihard", "easy"),
  ("hard", "semihard"), ("easy", "easy"), ("all", "hard"), ("easy", "all"),
)  # fmt: skip
BATCH_HARD = functools.partial(easy_hard, positive="hard", negative="hard")
KINDS = ("all", "hard", "semihard", "easy")
MINERS = [
  by_rule(losses.mine_multi_similarity, multi_similarity, epsilon=0.3),
  *(
    by_rule(losses.mine_triplet_margin, triplets, margin=margin, kind=kind)
    for margin in (0.5, -0.25)
    for kind in KINDS
  ),
  *(
    by_rule(losses.mine_batch_easy_hard, easy_hard, positive=p, negative=n)
    for p, n in STRATEGIES
  ),
  (losses.mine_batch_hard, BATCH_HARD),
  *(
    by_rule(losses.mine_hardest_fraction, hardest_fraction, fraction=share)
    for share in (0, 0.3, 0.5, 1)
  ),
]


def test_miners_follow_their_rules_for_distances_and_similarities():
  @functools.partial(jax.jit, static_argnames="of")
  def mine(matrix, of):
    return [miner(matrix, POSITIVES, NEGATIVES, of=of) for miner, _ in MINERS]

  for sign, of in ((1, "distance"), (-1, "similarity")):
    results = mine(np.float32(sign * MATRIX), of)
    for (miner, rule), pairs in zip(MINERS, results, strict=True):
      right = rule(MATRIX, POSITIVES, NEGATIVES)
      np.testing.assert_array_equal(pairs, right, str(miner))
  # Strictly beyond the margins, which some entries equal; distances by default.
  right = POSITIVES & (MATRIX > 0.75), NEGATIVES & (MATRIX < 1.25)
  for sign, options in ((1, {}), (-1, {"of": "similarity"})):
    pairs = losses.mine_pair_margin(
      sign * MATRIX, POSITIVES, NEGATIVES, positive_margin=sign * 0.75,
      negative_margin=sign * 1.25, **options,
    )  # fmt: skip
    np.testing.assert_array_equal(pairs, right)


def test_weights_stay_and_multiply():
  masks, weights = (POSITIVES, NEGATIVES), (2.0 * POSITIVES, 0.5 * NEGATIVES)
  weighted = losses.mine_batch_hard(MATRIX, *weights)
  near, far = losses.mine_batch_hard(MATRIX, *masks)
  np.testing.assert_array_equal(weighted, (2 * near, 0.5 * far))
  weighted, plain = (
    losses.mine_triplet_margin(MATRIX, *pair, margin=0.5) for pair in (weights, masks)
  )
  np.testing.assert_array_equal(weighted, plain)  # 2 * 0.5


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
  matrix = generator.integers(0, 30, (3, 240)).astype(np.float32)
  same = generator.random((3, 240)) < 0.5
  assert same.sum(1).max() > 96
  for kind in KINDS:
    mine = functools.partial(losses.mine_triplet_margin, margin=4.0, kind=kind)
    loops = mine(matrix, np.float32(same), np.float32(~same))
    np.testing.assert_array_equal(mine(matrix, same, ~same), loops)


def test_angular_pairs_are_those_of_wide_angles(x64):
  x = project(np.random.default_rng(3).normal(size=(8, 3)))
  labels = np.array([0, 0, 0, 1, 1, 2, 2, 3])
  same = (labels[:, None] == labels) & ~np.eye(8, dtype=bool)
  other = labels[:, None] != labels
  square = ((x[:, None] - x) ** 2).sum(-1)
  to_middle = np.linalg.norm(x - (x[:, None] + x)[:, :, None] / 2, axis=-1)
  wide = np.arctan2(np.sqrt(square)[..., None], 2 * to_middle) > 0.6
  wide &= same[..., None] & other[:, None]  # [anchors, positives, negatives]
  right = wide.sum(2), wide.sum(1)
  assert 0 < wide.sum() < (same.sum(1) * other.sum(1)).sum()
  for matrix, of in (
    (square, "squared_distance"), (square**0.5, "distance"), (x @ x.T, "similarity")
  ):  # fmt: skip
    for references in ({"among": matrix}, {"points": x}):
      pairs = losses.mine_angular(matrix, same, other, angle=0.6, of=of, **references)
      np.testing.assert_array_equal(pairs, right)


def test_distance_weighted_draws_follow_the_density():
  """Counts of 1000 positives against probabilities in float64; up to 512 dimensions."""
  d = np.array([0.3, 0.6, 0.9, 1.2, 1.35, 1.39, 1.4, 1.7])
  matrix = np.tile(np.float32([*d, *[1] * 1000]), (3, 1))
  positives, negatives = np.zeros((2, 3, 1008), bool)
  positives[:2, 8:] = negatives[:, :8] = True
  negatives[1, :6] = False  # nothing below the limit

  @functools.partial(jax.jit, static_argnames=("dim", "fallback", "of"))
  def mine(matrix, **options):
    options["key"] = jax.random.key(1)
    return losses.mine_distance_weighted(matrix, positives, negatives, **options)

  for dim in (4, 512):
    near, far = mine(matrix, dim=dim)
    clipped = np.maximum(d, 0.5)
    log_weight = -(dim - 2) * np.log(clipped)
    log_weight -= (dim - 3) / 2 * np.log(1 - clipped**2 / 4)
    p = np.where(d < 1.4, np.exp(log_weight - log_weight[0]), 0)
    p /= p.sum()
    assert far[0].sum() == 1000  # as many as there are positives
    np.testing.assert_array_equal(near[0], positives[0])
    spread = 5 * np.sqrt(1000 * p * (1 - p)) + 1e-3
    assert (np.abs(far[0, :8] - 1000 * p) <= spread).all()
    # no eligible negative, no positive
    assert not near[1:].any()
    assert not far[1:].any()
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
  for draws, mask, number in ((near, POSITIVES, 5), (far, NEGATIVES, 7)):
    for row, drawn, among in zip(MATRIX, np.asarray(draws), mask, strict=True):
      if not among.any():
        assert not drawn.any()
        continue
      low, high = row[among].min(), row[among].max()
      bins = np.minimum(np.floor((row - low) / max(high - low, 1e-9) * 3), 2)
      for b in range(3):
        inside = among & (bins == b)
        assert drawn[inside].sum() == (number if inside.any() else 0)
      assert drawn[~among].sum() == 0


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
def test_blocks_and_devices_mine_the_same_pairs(miner, x64):
  if miner is losses.mine_angular:
    miner = functools.partial(miner, points=project(X), angle=0.6)
    mined = jax.jit(functools.partial(losses.pair_counts, miner=miner))(X, LABELS)
    assert np.any(np.asarray(mined.negatives) > 0)

  def run(x, labels, **options):
    loss = functools.partial(losses.contrastive, miner=miner, **options)
    return with_slopes(loss)(x, labels)

  values, gradient = run(X, LABELS)
  assert np.abs(gradient).max() > 0
  blocked = run(X, LABELS, block_size=5)
  mapped = jax.pmap(functools.partial(run, axis_name="i", block_size=2), "i")(
    X.reshape(4, 3, 4), LABELS.reshape(4, 3)
  )
  for other in (blocked, [part.reshape(-1, *part.shape[2:]) for part in mapped]):
    np.testing.assert_allclose(other[0], values, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(other[1], gradient, rtol=1e-12, atol=1e-14)


def nobody(matrix, positives, negatives):
  return jnp.zeros_like(positives), jnp.zeros_like(negatives)


MINED = sorted({*losses_of("embeddings", "miner")} - {"pair_counts"})


# The other losses of pairs are given their counts in the same place.
@pytest.mark.parametrize(
  "name",
  [
    pytest.param(name, marks=[pytest.mark.slow] * (k % 3 > 0))
    for k, name in enumerate(MINED)
  ],
)
def test_a_miner_that_leaves_nothing(name):
  loss = with_slopes(lambda x: values_of(name, x, LABELS, miner=nobody))
  for leaf in loss(np.float32(X)):
    np.testing.assert_array_equal(leaf, 0)


def test_counts_of_pairs():
  keep, z = np.arange(12) % 5 != 3, project(X)
  every = jax.tree.map(np.asarray, losses.pair_counts(X, LABELS, where=keep))
  np.testing.assert_array_equal(every.positives + every.negatives, 9 * keep)
  squares, same = ((z[:, None] - z) ** 2).sum(2), LABELS[:, None] == LABELS
  others = np.outer(keep, keep) & ~np.eye(12, dtype=bool)
  for of, matrix, sign, near, far in (
    ("distance", np.sqrt(squares), 1, 0.9, 1.1),
    ("squared_distance", squares, 1, 0.9, 1.1),
    ("similarity", z @ z.T, -1, 0.4, 0.2),
  ):
    farther, nearer = sign * matrix > sign * near, sign * matrix < sign * far
    masks = others & same & farther, others & ~same & nearer
    expected = np.sum(masks, axis=2)
    assert 0 < expected[0].sum() < np.sum(every.positives)
    assert 0 < expected[1].sum() < np.sum(every.negatives)
    mine = functools.partial(
      losses.mine_pair_margin, positive_margin=near, negative_margin=far
    )
    count = functools.partial(losses.pair_counts, of=of, where=keep, miner=mine)
    for block_size in (None, 5):
      np.testing.assert_array_equal(count(X, LABELS, block_size=block_size), expected)
  np.testing.assert_array_equal(losses.pair_counts(X, LABELS, miner=nobody), 0)


def test_counts_of_weights_columns_and_devices(monkeypatch):
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
    whole, blocked, spread = jax.tree.map(np.asarray, every(X))
    assert np.all(np.sum(whole, axis=1) > 0)
    for other in (blocked, [part.ravel() for part in spread]):
      np.testing.assert_array_equal(other, whole)
  same = LABELS[:, None] == LABELS
  np.testing.assert_array_equal(whole.positives, (same.sum(1) - 1) / 4)


def test_losses_say_what_their_matrix_holds():
  said = []

  def miner(matrix, positives, negatives, *, of, rows):
    said.append((of, rows.shape))
    return positives, jnp.zeros_like(negatives)

  x, labels = np.eye(3, dtype=np.float32), np.arange(3)
  zero = losses.multi_similarity(x, labels, miner=miner)
  losses.contrastive(x, labels, miner=miner)
  losses.triplet(x, labels, squared=True, miner=miner)
  measures = "similarity", "distance", "squared_distance"
  assert said == [(measure, (3,)) for measure in measures]
  np.testing.assert_array_equal(zero, 0)  # nothing is left


def test_batch_hard_mines_pairs_or_sums_triplets(x64):
  loss = functools.partial(losses.triplet, X, LABELS, margin=0.3)
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

  def matrix(x):
    return distances.pairwise_euclidean(distances.l2_normalize(x))

  def total(x, among=None):
    pairs = miner(matrix(x) if among is None else among, near, far)
    return losses.contrastive_from_distance(matrix(x), *pairs).sum()

  slope = jax.grad(total)(x)
  np.testing.assert_allclose(slope, jax.grad(total)(x, matrix(x)), atol=1e-5)
  along = jax.jvp(total, (x,), (x + 1,))[1]
  np.testing.assert_allclose(along, jnp.vdot(slope, x + 1), rtol=1e-3, atol=1e-4)
  jax.eval_shape(jax.jacfwd(jax.grad(total)), x)
