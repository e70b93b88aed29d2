"""Triplet loss against plain loops over the triplets."""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses

# --- the oracle: loops over anchor, positive and negative, in float64 ---


def project(row, normalize):
  length = math.sqrt(sum(entry * entry for entry in row))
  if normalize == "l2":
    return row / length if length > 0 else row
  return row / max(length, 1.0) if normalize == "unit_ball" else row


def pull_project(row, gradient, normalize):
  """The transposed Jacobian of `project` times a vector."""
  length = math.sqrt(sum(entry * entry for entry in row))
  if normalize == "none" or (normalize == "unit_ball" and length <= 1):
    return gradient
  if length == 0:
    return 0 * gradient
  unit = row / length
  return (gradient - unit * (unit @ gradient)) / length


def triplet_matrix_oracle(d, positives, negatives, n, margin=0.05, average="nonzero"):
  """Values [rows], slopes d value_a / d d_aj [rows, columns]."""
  sums, slope, active, formed = np.zeros(len(d)), np.zeros(d.shape), 0, 0
  for a in range(len(d)):
    for p in np.flatnonzero(positives[a]):
      for q in np.flatnonzero(negatives[a]):
        formed += 1
        if d[a, p] - d[a, q] + margin > 0:
          active += 1
          sums[a] += d[a, p] - d[a, q] + margin
          slope[a, p] += 1
          slope[a, q] -= 1
  count = active if average == "nonzero" else formed
  share = n / count if count else 0.0
  return share * sums, share * slope


def oracle(
  x, labels, keep, cotangent=None, *, squared=False, normalize="l2", **settings
):
  """Values, and the gradient of <cotangent, values> where a cotangent is given."""
  n = len(x)
  z = [project(x[i], normalize) if keep[i] else 0 * COTANGENT[:4] for i in range(n)]
  d = np.zeros((n, n))
  positives, negatives = np.zeros((n, n), bool), np.zeros((n, n), bool)
  for i, j in np.ndindex(n, n):
    d[i, j] = math.sqrt((z[i] - z[j]) @ (z[i] - z[j]))
    positives[i, j] = keep[i] and keep[j] and i != j and labels[i] == labels[j]
    negatives[i, j] = keep[i] and keep[j] and labels[i] != labels[j]
  matrix = d**2 if squared else d
  values, slope = triplet_matrix_oracle(
    matrix, positives, negatives, int(sum(keep)), **settings
  )
  if cotangent is None:
    return values
  gradient = np.zeros((n, 4))
  for i, j in np.ndindex(n, n):
    if d[i, j] > 0:
      step = (z[i] - z[j]) * (2 if squared else 1 / d[i, j])
      gradient[i] += cotangent[i] * slope[i, j] * step
      gradient[j] -= cotangent[i] * slope[i, j] * step
  for i in range(n):
    gradient[i] = pull_project(x[i], gradient[i], normalize) if keep[i] else 0
  return values, gradient


# --- the calls: one compilation a variant and dtype ---

VARIANTS = {
  "plain-nonzero-l2": {"squared": False, "average": "nonzero", "normalize": "l2"},
  "plain-nonzero-ball": {
    "squared": False,
    "average": "nonzero",
    "normalize": "unit_ball",
  },
  "squared-all-l2": {"squared": True, "average": "all", "normalize": "l2"},
  "squared-nonzero-none": {"squared": True, "average": "nonzero", "normalize": "none"},
}
MARGIN = 0.37
COTANGENT = np.random.default_rng(9).uniform(0.2, 2, 10)
KEEP = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1, 1], bool)
ALL = np.ones(10, bool)


@functools.cache
def compiled(variant):
  def call(x, labels, where, cotangent, margin):
    def loss(x, margin):
      return losses.triplet(x, labels, where=where, margin=margin, **VARIANTS[variant])

    values, pull = jax.vjp(loss, x, margin)
    return values, *pull(cotangent)

  return jax.jit(call)


def run(variant, x, labels, where, dtype=np.float64, margin=MARGIN):
  return compiled(variant)(
    x.astype(dtype), labels, where, COTANGENT[: len(x)].astype(dtype), dtype(margin)
  )


def expected(variant, x, labels, where, cotangent=None, margin=MARGIN):
  return oracle(x, labels, where, cotangent, margin=margin, **VARIANTS[variant])


# --- values and gradients ---


@pytest.mark.parametrize("variant", VARIANTS)
def test_values_and_gradients_equal_the_loops(variant, batch, x64):
  x, labels = batch
  values, gradient, _ = run(variant, x, labels, ALL)
  right, right_gradient = expected(variant, x, labels, ALL, COTANGENT)
  assert values.dtype == jnp.float64
  np.testing.assert_allclose(values, right, rtol=1e-10, atol=1e-12)
  np.testing.assert_allclose(gradient, right_gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("variant", VARIANTS)
def test_float32_equals_the_loops(variant, batch):
  x, labels = batch
  values, gradient, _ = run(variant, x, labels, ALL, np.float32)
  right, right_gradient = expected(
    variant, x.astype(np.float32).astype(np.float64), labels, ALL, COTANGENT
  )
  assert values.dtype == jnp.float32
  np.testing.assert_allclose(values, right, rtol=2e-5, atol=2e-6)
  np.testing.assert_allclose(gradient, right_gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_equal_difference_quotients(variant, mixed, slopes, x64):
  x, labels = mixed
  _, gradient, by_margin = run(variant, x, labels, KEEP)

  def by_first(first):
    return COTANGENT @ expected(variant, np.concatenate([first, x[4:]]), labels, KEEP)

  right = slopes(by_first, x[:4])  # all coordinates are compared with the loops above
  np.testing.assert_allclose(gradient[:4], right, rtol=1e-6, atol=1e-7)
  assert np.abs(right).max() > 0.1
  right = slopes(
    lambda margin: COTANGENT @ expected(variant, x, labels, KEEP, margin=float(margin)),
    MARGIN,
  )
  np.testing.assert_allclose(by_margin, right, rtol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_masked_rows_are_as_if_deleted(variant, mixed, x64):
  x, labels = mixed
  holed = np.where(KEEP[:, None], x, np.nan)
  values, gradient, by_margin = run(variant, holed, labels, KEEP)
  right, right_gradient = expected(
    variant, x[KEEP], labels[KEEP], ALL[KEEP], COTANGENT[KEEP]
  )
  np.testing.assert_allclose(values[KEEP], right, rtol=1e-10, atol=1e-12)
  np.testing.assert_allclose(gradient[KEEP], right_gradient, rtol=1e-9, atol=1e-11)
  np.testing.assert_array_equal(values[~KEEP], 0)
  np.testing.assert_array_equal(gradient[~KEEP], 0)
  assert np.isfinite(by_margin)
  for result in run(variant, np.nan * x, labels, ~ALL):
    np.testing.assert_array_equal(result, 0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_permutation_relabelling_rotation_and_scaling(variant, mixed, x64):
  x, labels = mixed
  values, *_ = run(variant, x, labels, KEEP)
  order = np.random.default_rng(4).permutation(10)
  shuffled, *_ = run(variant, x[order], labels[order], KEEP[order])
  np.testing.assert_allclose(shuffled, values[order], rtol=1e-12)
  renamed = np.array([-7, 10**9, 0, 2, 0, -(2**31)], np.int32)[labels]
  np.testing.assert_array_equal(run(variant, x, renamed, KEEP)[0], values)
  rotation, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(4, 4)))
  np.testing.assert_allclose(
    run(variant, x @ rotation, labels, KEEP)[0], values, rtol=1e-11
  )
  if VARIANTS[variant]["normalize"] == "l2":
    lengths = np.geomspace(1e-6, 1e6, 10)[:, None]
    np.testing.assert_allclose(
      run(variant, x * lengths, labels, KEEP)[0], values, rtol=1e-11
    )


def test_batches_without_a_triplet_have_no_loss(mixed):
  x, labels = mixed
  for size, classes in ((1, labels[:1]), (10, 0 * labels), (10, np.arange(10))):
    values, gradient, by_margin = run(
      "plain-nonzero-l2", x[:size], classes.astype(np.int32), ALL[:size], np.float32
    )
    np.testing.assert_array_equal(values, np.zeros(size))
    np.testing.assert_array_equal(gradient, np.zeros((size, 4)))
    assert by_margin == 0


def test_half_precision_is_float32_cast_back(mixed):
  x, labels = mixed
  half = jnp.asarray(x, jnp.bfloat16)
  function = jax.jit(lambda x: losses.triplet(x, labels, where=KEEP))
  values = function(half)
  assert values.dtype == jnp.bfloat16
  single = function(half.astype(jnp.float32))
  np.testing.assert_allclose(
    values.astype(jnp.float32), single.astype(jnp.bfloat16).astype(jnp.float32), 2**-7
  )
  gradient = jax.grad(lambda x: function(x).astype(jnp.float32).sum())(half)
  assert gradient.dtype == jnp.bfloat16
  assert np.isfinite(gradient.astype(np.float32)).all()


def test_defaults_are_the_papers(mixed, x64):
  x, labels = mixed
  right = oracle(
    x, labels, ALL, margin=0.05, squared=False, average="nonzero", normalize="l2"
  )
  np.testing.assert_allclose(jax.jit(losses.triplet)(x, labels), right, rtol=1e-10)


@pytest.mark.parametrize(
  ("variant", "divisor"), [("plain-nonzero-ball", "active"), ("squared-all-l2", "all")]
)
def test_the_mean_averages_over_active_or_all_triplets(variant, divisor, mixed, x64):
  x, labels = mixed
  static = VARIANTS[variant]
  terms = []
  for a, p, q in np.ndindex(10, 10, 10):
    if a != p and labels[a] == labels[p] and labels[a] != labels[q]:
      u, v, w = (project(x[k], static["normalize"]) for k in (a, p, q))
      power = 2 if static["squared"] else 1
      terms.append(
        np.linalg.norm(u - v) ** power - np.linalg.norm(u - w) ** power + MARGIN
      )
  hinged = [max(0, term) for term in terms]
  count = sum(term > 0 for term in terms) if divisor == "active" else len(terms)
  assert 0 < sum(term > 0 for term in terms) < len(terms)
  np.testing.assert_allclose(
    run(variant, x, labels, ALL)[0].mean(), sum(hinged) / count, rtol=1e-12
  )


# --- the matrix form ---


@pytest.mark.parametrize("average", ["nonzero", "all"])
def test_the_matrix_form_with_ties_equals_the_loops(average, x64):
  """Small integers: many triplets lie exactly on the margin and are inactive."""
  generator = np.random.default_rng(12)

  @jax.jit
  def call(matrix, positives, negatives, where, cotangent):
    values, pull = jax.vjp(
      lambda matrix: losses.triplet_from_distance(
        matrix, positives, negatives, margin=1.0, average=average, where=where
      ),
      matrix,
    )
    return values, *pull(cotangent)

  keep = np.array([True, True, False, True, True])
  for _ in range(10):
    matrix = generator.integers(0, 4, (5, 9)).astype(np.float64)
    role = generator.integers(0, 3, (5, 9))
    role[3] = 2  # no pair
    positives, negatives = role == 0, role == 1
    matrix[2] = np.nan
    values, gradient = call(matrix, positives, negatives, keep, COTANGENT[:5])
    right, slope = triplet_matrix_oracle(
      matrix[keep], positives[keep], negatives[keep], 4, 1.0, average
    )
    np.testing.assert_allclose(values[keep], right, rtol=1e-12)
    np.testing.assert_allclose(
      gradient[keep], COTANGENT[:5][keep, None] * slope, rtol=1e-12, atol=1e-12
    )
    assert values[2] == 0
    np.testing.assert_array_equal(gradient[2], np.zeros(9))


def test_ignored_pairs_may_hold_anything(x64):
  matrix = np.array([[0.5, np.nan, 0.25, np.inf]])
  positives = np.array([[True, False, False, False]])
  negatives = np.array([[False, False, True, False]])
  value, gradient = jax.value_and_grad(
    jax.jit(
      lambda d: losses.triplet_from_distance(d, positives, negatives, margin=0.1).sum()
    )
  )(matrix)
  np.testing.assert_allclose(value, 0.35, rtol=1e-12)
  np.testing.assert_array_equal(gradient, [[1, 0, -1, 0]])


@pytest.mark.parametrize("squared", [False, True])
def test_the_label_form_is_the_matrix_form_of_the_batch_with_itself(
  squared, mixed, x64
):
  x, labels = mixed
  z = np.array([project(row, "unit_ball") for row in x])
  matrix = ((z[:, None] - z) ** 2).sum(-1)
  if not squared:
    matrix = np.sqrt(matrix)
  same = labels[:, None] == labels
  values = jax.jit(losses.triplet_from_distance)(
    matrix, same & ~np.eye(10, dtype=bool), ~same, margin=MARGIN
  )
  right = oracle(x, labels, ALL, margin=MARGIN, squared=squared, normalize="unit_ball")
  np.testing.assert_allclose(values, right, rtol=1e-10)


# --- transformations and extreme numbers ---


def test_vmap_over_the_margin_equals_the_loop(mixed):
  x, labels = mixed[0].astype(np.float32), mixed[1]
  grid = jnp.array([0.0, 0.2, 1.0, 3.0])
  loss = functools.partial(losses.triplet, x, labels)
  values = jax.jit(jax.vmap(lambda margin: loss(margin=margin)))(grid)
  for margin, row in zip(grid, values, strict=True):
    right, *_ = run("plain-nonzero-l2", x, labels, ALL, np.float32, margin)
    np.testing.assert_allclose(row, right, rtol=1e-5, atol=1e-6)


def test_jit_equals_eager_and_traces_once(mixed):
  x, labels = mixed[0].astype(np.float32), mixed[1]

  @jax.jit
  @chex.assert_max_traces(n=1)
  def call(x, labels, where, margin):
    return losses.triplet(x, labels, where=where, margin=margin)

  chex.clear_trace_counter()
  for margin in (0.1, 0.2):
    values = call(x, labels, KEEP, margin)
  eager = losses.triplet(x, labels, where=KEEP, margin=0.2)
  np.testing.assert_allclose(values, eager, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [1e-30, 1e4])
def test_finite_for_large_and_small_entries(variant, size, mixed):
  x, labels = mixed
  x = x * size
  x[3] = 0
  values, gradient, _ = run(variant, x, labels, ALL, np.float32)
  assert np.isfinite(values).all()
  assert np.isfinite(gradient).all()
  if VARIANTS[variant]["normalize"] == "l2":
    right = expected(variant, x, labels, ALL)
    np.testing.assert_allclose(values, right, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(gradient[3], np.zeros(4))


def test_not_a_number_is_not_repaired():
  """A kept NaN reaches the mean, as a positive and as a negative."""
  x = np.eye(3, dtype=np.float32)
  x[0, 0] = np.nan
  for labels in ([0, 1, 1], [0, 0, 1]):
    values = jax.jit(losses.triplet)(x, np.array(labels))
    assert np.isnan(values.mean())


def test_small_hinges_among_large_distances_keep_their_digits():
  """Late in training all distances are alike; steps of 2**-13 are exact in float32."""
  generator = np.random.default_rng(13)
  matrix = (1 + generator.integers(0, 9, (3, 150)) * 2.0**-13).astype(np.float32)
  positives = generator.random((3, 150)) < 0.3
  values = jax.jit(losses.triplet_from_distance)(
    matrix, positives, ~positives, margin=2.0**-12
  )
  right, _ = triplet_matrix_oracle(
    matrix.astype(np.float64), positives, ~positives, 3, 2.0**-12
  )
  np.testing.assert_allclose(values, right, rtol=1e-6)
