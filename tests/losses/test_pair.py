"""Contrastive and multi-similarity losses against plain loops over the pairs."""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses

# --- the oracle: every formula as a loop over pairs, in float64 ---


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


def pairs(labels, keep):
  n = len(labels)
  positives, negatives = np.zeros((n, n), bool), np.zeros((n, n), bool)
  for i in range(n):
    for j in range(n):
      if keep[i] and keep[j]:
        positives[i, j] = labels[i] == labels[j] and i != j
        negatives[i, j] = labels[i] != labels[j]
  return positives, negatives


def contrastive_oracle(
  d, positives, negatives, n, m, average, positive_margin=0.0, negative_margin=1.0
):
  """Values [rows], slopes d value_i / d d_ij [rows, columns]."""
  counts = {"+": 0, "-": 0}
  for i, j in np.ndindex(*d.shape):
    counts["+"] += bool(positives[i, j] and d[i, j] - positive_margin > 0)
    counts["-"] += bool(negatives[i, j] and negative_margin - d[i, j] > 0)
  if average == "all":
    share = {"+": 1 / max(m, 1), "-": 1 / max(m, 1)}
  else:
    share = {sign: n / count if count else 0.0 for sign, count in counts.items()}
  values, slope = np.zeros(len(d)), np.zeros(d.shape)
  for i, j in np.ndindex(*d.shape):
    if positives[i, j] and d[i, j] - positive_margin > 0:
      values[i] += share["+"] * (d[i, j] - positive_margin)
      slope[i, j] += share["+"]
    if negatives[i, j] and negative_margin - d[i, j] > 0:
      values[i] += share["-"] * (negative_margin - d[i, j])
      slope[i, j] -= share["-"]
  return values, slope


def cosine_contrastive_oracle(s, positives, negatives, n, m, margin=0.5):
  values, slope = np.zeros(len(s)), np.zeros(s.shape)
  for i, j in np.ndindex(*s.shape):
    if positives[i, j] and 1 - s[i, j] > 0:
      values[i] += 1 - s[i, j]
      slope[i, j] -= 1
    if negatives[i, j] and s[i, j] - margin > 0:
      values[i] += s[i, j] - margin
      slope[i, j] += 1
  return values, slope


def multi_similarity_oracle(
  s,
  positives,
  negatives,
  n,
  m,
  positive_scale=2.0,
  negative_scale=50.0,
  threshold=0.5,
):
  values, slope = np.zeros(len(s)), np.zeros(s.shape)
  a, b, t = positive_scale, negative_scale, threshold
  for i in range(len(s)):
    for mask, sign, scale in ((positives, -1, a), (negatives, 1, b)):
      inside = [
        math.exp(sign * scale * (s[i, j] - t)) if mask[i, j] else 0.0
        for j in range(s.shape[1])
      ]
      values[i] += math.log1p(sum(inside)) / scale
      for j, term in enumerate(inside):
        slope[i, j] += sign * term / (1 + sum(inside))
  return values, slope


ORACLES = {
  "contrastive": (contrastive_oracle, "distance"),
  "cosine_contrastive": (cosine_contrastive_oracle, "dot"),
  "multi_similarity": (multi_similarity_oracle, "dot"),
}
MATRIX_FORM = {
  "contrastive": losses.contrastive_from_distance,
  "cosine_contrastive": losses.cosine_contrastive_from_similarity,
  "multi_similarity": losses.multi_similarity_from_similarity,
}


def oracle(name, x, labels, keep, normalize, cotangent=None, **settings):
  """Values, and the gradient of <cotangent, values> where a cotangent is given."""
  matrix_oracle, kind = ORACLES[name]
  n = len(x)
  z = [project(x[i], normalize) if keep[i] else np.zeros(x.shape[1]) for i in range(n)]
  matrix = np.zeros((n, n))
  for i, j in np.ndindex(n, n):
    difference = z[i] - z[j]
    matrix[i, j] = z[i] @ z[j] if kind == "dot" else math.sqrt(difference @ difference)
  kept = int(sum(keep))
  values, slope = matrix_oracle(matrix, *pairs(labels, keep), kept, kept, **settings)
  if cotangent is None:
    return values
  gradient = np.zeros((n, x.shape[1]))
  for i, j in np.ndindex(n, n):
    weight = cotangent[i] * slope[i, j]
    if kind == "dot":
      gradient[i] += weight * z[j]
      gradient[j] += weight * z[i]
    elif matrix[i, j] > 0:
      gradient[i] += weight * (z[i] - z[j]) / matrix[i, j]
      gradient[j] -= weight * (z[i] - z[j]) / matrix[i, j]
  for i in range(n):
    gradient[i] = pull_project(x[i], gradient[i], normalize) if keep[i] else 0
  return values, gradient


# --- the calls: one compilation a variant and dtype ---

VARIANTS = {
  "contrastive-nonzero-l2": ("contrastive", {"average": "nonzero", "normalize": "l2"}),
  "contrastive-nonzero-ball": (
    "contrastive",
    {"average": "nonzero", "normalize": "unit_ball"},
  ),
  "contrastive-all-ball": ("contrastive", {"average": "all", "normalize": "unit_ball"}),
  "contrastive-all-none": ("contrastive", {"average": "all", "normalize": "none"}),
  "cosine-l2": ("cosine_contrastive", {"normalize": "l2"}),
  "cosine-ball": ("cosine_contrastive", {"normalize": "unit_ball"}),
  "cosine-none": ("cosine_contrastive", {"normalize": "none"}),
  "ms-l2": ("multi_similarity", {"normalize": "l2"}),
  "ms-ball": ("multi_similarity", {"normalize": "unit_ball"}),
  "ms-none": ("multi_similarity", {"normalize": "none"}),
}
NUMBERS = {
  "contrastive": {"positive_margin": 0.23, "negative_margin": 1.17},
  "cosine_contrastive": {"margin": 0.31},
  "multi_similarity": {"positive_scale": 3.0, "negative_scale": 12.0, "threshold": 0.4},
}
COTANGENT = np.random.default_rng(9).uniform(0.2, 2, 10)
KEEP = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1, 1], bool)
ALL = np.ones(10, bool)


@functools.cache
def compiled(variant):
  name, static = VARIANTS[variant]

  def call(x, labels, where, cotangent, numbers):
    def loss(x, numbers):
      return getattr(losses, name)(x, labels, where=where, **static, **numbers)

    values, pull = jax.vjp(loss, x, numbers)
    return values, *pull(cotangent)

  return jax.jit(call)


def run(variant, x, labels, where, dtype=np.float64, **numbers):
  name, _ = VARIANTS[variant]
  numbers = numbers or NUMBERS[name]
  numbers = {key: np.asarray(value, dtype) for key, value in numbers.items()}
  return compiled(variant)(
    x.astype(dtype), labels, where, COTANGENT[: len(x)].astype(dtype), numbers
  )


def expected(variant, x, labels, where, cotangent=None, **numbers):
  name, static = VARIANTS[variant]
  return oracle(
    name, x, labels, where, cotangent=cotangent, **static, **(numbers or NUMBERS[name])
  )


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
  # the gradient of a distance is a unit vector, whose error grows as 1 / distance
  np.testing.assert_allclose(gradient, right_gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_equal_difference_quotients(variant, mixed, slopes, x64):
  x, labels = mixed
  name, _ = VARIANTS[variant]
  _, gradient, by_number = run(variant, x, labels, KEEP)

  def by_first(first):
    return COTANGENT @ expected(variant, np.concatenate([first, x[4:]]), labels, KEEP)

  right = slopes(by_first, x[:4])  # all coordinates are compared with the loops above
  np.testing.assert_allclose(gradient[:4], right, rtol=1e-6, atol=1e-7)
  assert np.abs(right).max() > 0.1
  for key, number in NUMBERS[name].items():

    def moved(value, key=key):
      numbers = NUMBERS[name] | {key: float(value)}
      return COTANGENT @ expected(variant, x, labels, KEEP, **numbers)

    np.testing.assert_allclose(
      by_number[key], slopes(moved, number), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_masked_rows_are_as_if_deleted(variant, mixed, x64):
  x, labels = mixed
  holed = np.where(KEEP[:, None], x, np.nan)
  values, gradient, by_number = run(variant, holed, labels, KEEP)
  right, right_gradient = expected(
    variant, x[KEEP], labels[KEEP], ALL[KEEP], COTANGENT[KEEP]
  )
  np.testing.assert_allclose(values[KEEP], right, rtol=1e-10, atol=1e-12)
  np.testing.assert_allclose(gradient[KEEP], right_gradient, rtol=1e-9, atol=1e-11)
  np.testing.assert_array_equal(values[~KEEP], 0)
  np.testing.assert_array_equal(gradient[~KEEP], 0)
  assert all(np.isfinite(slope) for slope in by_number.values())
  values, gradient, by_number = run(variant, np.nan * x, labels, ~ALL)
  np.testing.assert_array_equal(values, 0)
  np.testing.assert_array_equal(gradient, 0)
  assert all(slope == 0 for slope in by_number.values())


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
  if VARIANTS[variant][1]["normalize"] == "l2":
    lengths = np.geomspace(1e-6, 1e6, 10)[:, None]
    np.testing.assert_allclose(
      run(variant, x * lengths, labels, KEEP)[0], values, rtol=1e-11
    )


@pytest.mark.parametrize(
  "variant", ["contrastive-nonzero-l2", "cosine-ball", "ms-none"]
)
def test_a_batch_of_one_has_no_loss(variant, mixed):
  x, labels = mixed
  values, gradient, _ = run(variant, x[:1], labels[:1], ALL[:1], np.float32)
  np.testing.assert_array_equal(values, [0])
  np.testing.assert_array_equal(gradient, np.zeros((1, 4)))


@pytest.mark.parametrize(
  "variant", ["contrastive-nonzero-l2", "cosine-ball", "ms-none"]
)
def test_half_precision_is_float32_cast_back(variant, mixed):
  x, labels = mixed
  half = jnp.asarray(x, jnp.bfloat16)
  name, static = VARIANTS[variant]
  function = jax.jit(
    lambda x: getattr(losses, name)(x, labels, where=KEEP, **static, **NUMBERS[name])
  )
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
  for name, settings in (
    ("contrastive", {"average": "nonzero", "positive_margin": 0, "negative_margin": 1}),
    ("cosine_contrastive", {"margin": 0.5}),
    (
      "multi_similarity",
      {"positive_scale": 2, "negative_scale": 50, "threshold": 0.5},
    ),
  ):
    right = oracle(name, x, labels, ALL, "l2", **settings)
    values = jax.jit(getattr(losses, name))(x, labels)
    np.testing.assert_allclose(values, right, rtol=1e-10)


# --- the papers' scalars and identities ---


@pytest.mark.parametrize("average", ["nonzero", "all"])
def test_contrastive_mean_is_the_generalised_form_with_boundary(average, mixed, x64):
  """[iota (D - beta) + alpha]+, averaged as the paper writes it."""
  x, labels = mixed
  low, high = 0.23, 1.17
  beta, alpha = (low + high) / 2, (high - low) / 2
  parts = {1: [], -1: []}
  for i, j in np.ndindex(10, 10):
    if i != j:
      iota = 1 if labels[i] == labels[j] else -1
      u, v = (project(x[k], "unit_ball") for k in (i, j))
      parts[iota].append(max(0, iota * (np.linalg.norm(u - v) - beta) + alpha))
  if average == "all":
    right = (sum(parts[1]) + sum(parts[-1])) / 10**2
  else:
    right = sum(sum(part) / sum(term > 0 for term in part) for part in parts.values())
  variant = {"nonzero": "contrastive-nonzero-ball", "all": "contrastive-all-ball"}
  values, *_ = run(variant[average], x, labels, ALL)
  np.testing.assert_allclose(values.mean(), right, rtol=1e-12)


def test_cosine_contrastive_mean_divides_sums_by_the_number_of_anchors(mixed, x64):
  x, labels = mixed
  total = 0
  for i, j in np.ndindex(10, 10):
    if i != j:
      s = project(x[i], "l2") @ project(x[j], "l2")
      total += max(0, 1 - s) if labels[i] == labels[j] else max(0, s - 0.31)
  np.testing.assert_allclose(
    run("cosine-l2", x, labels, ALL)[0].mean(), total / 10, rtol=1e-12
  )


def test_multi_similarity_tends_to_the_hardest_negative(mixed, x64):
  x, labels = mixed
  labels = np.arange(10) // 9  # the tenth row has no positive
  values, *_ = run(
    "ms-l2", x, labels, ALL, positive_scale=1.0, negative_scale=1e5, threshold=-1.0
  )
  hardest = max(project(x[9], "l2") @ project(x[j], "l2") for j in range(9))
  np.testing.assert_allclose(values[9], hardest + 1, atol=3e-5)


# --- matrix forms ---


def matrix_settings(name):
  return {"average": "nonzero"} if name == "contrastive" else {}


@pytest.mark.parametrize("name", ORACLES)
def test_the_matrix_form_serves_other_references_and_mined_pairs(name, x64):
  """Four queries, seven references; some pairs are positive, negative, or neither."""
  generator = np.random.default_rng(11)
  matrix = generator.uniform(0.05, 0.95, (4, 7))
  role = generator.integers(0, 3, (4, 7))
  role[2] = 2  # no pair
  role[3] = np.where(role[3] == 0, 2, role[3])  # no positive
  positives, negatives = role == 0, role == 1
  settings = [matrix_settings(name)]
  if name == "contrastive":
    settings.append({"average": "all"})
  for setting in settings:
    numbers = NUMBERS[name] | setting

    @jax.jit
    def loss(matrix, where, cotangent, numbers=numbers):
      def call(matrix):
        return MATRIX_FORM[name](matrix, positives, negatives, where=where, **numbers)

      values, pull = jax.vjp(call, matrix)
      return values, *pull(cotangent)

    right, slope = ORACLES[name][0](matrix, positives, negatives, 4, 7, **numbers)
    weights = COTANGENT[:4]
    values, gradient = loss(matrix, np.ones(4, bool), weights)
    np.testing.assert_allclose(values, right, rtol=1e-10)
    np.testing.assert_allclose(gradient, weights[:, None] * slope, rtol=1e-10)
    assert values[2] == 0
    keep = np.array([True, False, True, True])
    right, slope = ORACLES[name][0](
      matrix[keep], positives[keep], negatives[keep], 3, 7, **numbers
    )
    holed = np.where(keep[:, None], matrix, np.nan)
    values, gradient = loss(holed, keep, weights)
    np.testing.assert_allclose(values[keep], right, rtol=1e-10)
    np.testing.assert_allclose(gradient[keep], weights[keep, None] * slope, rtol=1e-10)
    np.testing.assert_array_equal(gradient[1], np.zeros(7))


@pytest.mark.parametrize("variant", ["contrastive-nonzero-l2", "cosine-l2", "ms-l2"])
def test_the_label_form_is_the_matrix_form_of_the_batch_with_itself(
  variant, mixed, x64
):
  x, labels = mixed
  name, static = VARIANTS[variant]
  z = np.array([project(row, "l2") for row in x])
  matrix = z @ z.T
  if name == "contrastive":
    matrix = np.sqrt(((z[:, None] - z) ** 2).sum(-1))
  settings = {key: value for key, value in static.items() if key == "average"}
  form = jax.jit(MATRIX_FORM[name], static_argnames="average" if settings else ())
  values = form(matrix, *pairs(labels, ALL), **settings, **NUMBERS[name])
  np.testing.assert_allclose(values, run(variant, x, labels, ALL)[0], rtol=1e-10)


@pytest.mark.parametrize("name", ["contrastive", "cosine_contrastive"])
def test_at_a_kink_the_term_is_inactive(name):
  """A pair exactly at its margin adds neither to the value nor to any count."""
  matrix = jnp.array([[1.0, 0.5, 0.5, 0.25]])
  if name == "contrastive":
    matrix = jnp.array([[0.5, 1.0, 1.5, 2.0]])  # margins 0.5 and 1.5
  positives = jnp.array([[True, True, False, False]])
  numbers = {"margin": 0.5}
  if name == "contrastive":
    numbers = {"positive_margin": 0.5, "negative_margin": 1.5}
  loss = functools.partial(MATRIX_FORM[name], **numbers)
  gradient = jax.jit(
    jax.grad(lambda matrix: loss(matrix, positives, ~positives).sum())
  )(matrix)
  right = [[0, -1, 0, 0]] if name == "cosine_contrastive" else [[0, 1, 0, 0]]
  np.testing.assert_array_equal(gradient, right)


# --- transformations ---


@pytest.mark.parametrize("name", ORACLES)
def test_vmap_over_each_number_equals_the_loop(name, mixed):
  x, labels = mixed[0].astype(np.float32), mixed[1]
  for key, number in NUMBERS[name].items():

    def loss(value, key=key):
      return getattr(losses, name)(x, labels, **(NUMBERS[name] | {key: value}))

    grid = jnp.array([0.5, 1.0, 1.5]) * number
    rows = jax.jit(jax.vmap(loss))(grid)
    one = jax.jit(loss)
    np.testing.assert_allclose(rows, [one(value) for value in grid], rtol=1e-5)


@pytest.mark.parametrize("name", ["contrastive", "multi_similarity"])
def test_jit_equals_eager_and_traces_once(name, mixed):
  x, labels = mixed[0].astype(np.float32), mixed[1]

  @jax.jit
  @chex.assert_max_traces(n=1)
  def call(x, labels, where, numbers):
    return getattr(losses, name)(x, labels, where=where, **numbers)

  chex.clear_trace_counter()
  for scale in (1.0, 0.9):
    numbers = {key: scale * value for key, value in NUMBERS[name].items()}
    values = call(x, labels, KEEP, numbers)
  eager = getattr(losses, name)(x, labels, where=KEEP, **numbers)
  np.testing.assert_allclose(values, eager, rtol=1e-5, atol=1e-6)


# --- extreme numbers ---


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [1e-30, 1e4])
def test_finite_for_large_and_small_entries(variant, size, mixed):
  x, labels = mixed
  x = x * size
  x[3] = 0
  values, gradient, _ = run(variant, x, labels, ALL, np.float32)
  assert np.isfinite(values).all()
  assert np.isfinite(gradient).all()
  if VARIANTS[variant][1]["normalize"] == "l2":
    right = expected(variant, x, labels, ALL)
    np.testing.assert_allclose(values, right, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(gradient[3], np.zeros(4))


def test_multi_similarity_takes_the_maximum_after_masking():
  """The ignored pair is the most similar: its exponential must not drown the rest."""
  similarities = jnp.array([[1.0, -1.0, 0.0, 0.0]])
  positives = jnp.array([[False, True, False, False]])
  negatives = jnp.array([[False, False, True, True]])
  loss = functools.partial(losses.multi_similarity_from_similarity, threshold=-1.0)

  @jax.jit
  @jax.value_and_grad
  def call(s):
    numbers = {"positive_scale": 1.0, "negative_scale": 200.0}
    return loss(s, positives, negatives, **numbers).sum()

  value, gradient = call(similarities)
  right = math.log(2) + 200.69314718055995 / 200  # log(1 + 2 exp(200)) = 200.693...
  np.testing.assert_allclose(value, right, rtol=1e-6)
  np.testing.assert_allclose(gradient, [[0, -0.5, 0.5, 0.5]], rtol=1e-6)


def test_multi_similarity_with_scales_of_256_and_logits_of_1e4():
  similarities = jnp.array([[-39.0, 39.0, 39.0]])
  positives = jnp.array([[True, False, False]])

  @jax.jit
  @jax.value_and_grad
  def call(s):
    return losses.multi_similarity_from_similarity(
      s, positives, ~positives, positive_scale=256.0, negative_scale=256.0
    ).sum()

  value, gradient = call(similarities)
  np.testing.assert_allclose(value, 39.5 + 38.5 + math.log(2) / 256, rtol=1e-6)
  np.testing.assert_allclose(gradient, [[-1, 0.5, 0.5]], rtol=1e-6)


# --- regressions ---


@pytest.mark.parametrize("dim", [16, 512])
def test_duplicates_are_at_distance_zero_whatever_the_order_of_summation(dim):
  """The rounding of a product of long rows must not pass for a distance."""
  x = np.random.default_rng(dim).normal(size=(20, dim)).astype(np.float32)
  x = np.concatenate([x, x])
  labels = np.tile(np.arange(20), 2)  # every row has one positive, its duplicate
  values, pull = jax.jit(
    lambda x: jax.vjp(lambda x: losses.contrastive(x, labels, negative_margin=0.1), x)
  )(x)
  np.testing.assert_array_equal(values, np.zeros(40))
  np.testing.assert_array_equal(pull(jnp.ones(40))[0], np.zeros((40, dim)))


@pytest.mark.parametrize("name", ORACLES)
def test_not_a_number_is_not_repaired(name):
  """A kept NaN reaches the mean, even where nothing else is active."""
  x = np.eye(3, dtype=np.float32)
  x[0, 0] = np.nan
  for labels in ([0, 1, 1], [0, 0, 1]):
    values = jax.jit(getattr(losses, name))(x, np.array(labels))
    assert np.isnan(values[0])
    assert np.isnan(values.mean())
