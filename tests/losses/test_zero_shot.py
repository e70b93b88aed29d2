"""Zero-shot prediction: the split, the regression and the loss against NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from spherejax import losses

# --- the oracle: normal equations and loops over rows, in float64 ---


def fit(z, y, ridge):
  """The stationary point of |Z A - Y|^2 + ridge |A|^2."""
  return np.linalg.solve(z.T @ z + ridge * np.eye(z.shape[1]), z.T @ y)


def cross_entropy(u, predicted, label, scale):
  """Value, and probabilities of the classes."""
  logits = [scale * (row @ predicted) for row in u]
  total = sum(math.exp(v - max(logits)) for v in logits)
  probabilities = np.array([math.exp(v - max(logits)) / total for v in logits])
  return max(logits) + math.log(total) - logits[label], probabilities


def oracle(a, b, u, ridge, scale):
  """Values; a and b are pairs (attributes, labels)."""
  values = []
  for (z, labels), (other, other_labels) in ((a, b), (b, a)):
    attribute_embeddings = fit(other, u[other_labels], ridge)
    values += [
      cross_entropy(u, row @ attribute_embeddings, label, scale)[0]
      for row, label in zip(z, labels, strict=True)
    ]
  return np.array(values)


def oracle_gradient(a, b, u, ridge, scale, cotangent):
  """Gradient of <cotangent, values> by both attributes, u, ridge and scale."""
  halves = (a, b)
  weights = (cotangent[: len(a[0])], cotangent[len(a[0]) :])
  by_z, by_u = [0 * a[0], 0 * b[0]], 0 * u
  by_ridge = by_scale = 0.0
  for k in (0, 1):
    (z, labels), (other, other_labels) = halves[k], halves[1 - k]
    targets = u[other_labels]
    fitted = fit(other, targets, ridge)
    by_predicted = np.zeros((len(z), u.shape[1]))
    for i, label in enumerate(labels):
      predicted = z[i] @ fitted
      _, slope = cross_entropy(u, predicted, label, scale)
      slope[label] -= 1
      by_predicted[i] = weights[k][i] * scale * (slope @ u)
      by_u += weights[k][i] * scale * np.outer(slope, predicted)
      by_scale += weights[k][i] * (slope @ u) @ predicted
    by_z[k] += by_predicted @ fitted.T
    gram = other.T @ other + ridge * np.eye(other.shape[1])
    w = np.linalg.solve(gram, z.T @ by_predicted)
    for row, label in zip(other @ w, other_labels, strict=True):
      by_u[label] += row
    by_z[1 - k] += (targets - other @ fitted) @ w.T - (other @ w) @ fitted.T
    by_ridge -= (w * fitted).sum()
  return by_z[0], by_z[1], by_u, by_ridge, by_scale


def split_oracle(labels, keep):
  order = []
  for label, kept in zip(labels, keep, strict=True):
    if kept and label not in order:
      order.append(label)
  first = order[: (len(order) + 1) // 2]
  a = [bool(k) and y in first for y, k in zip(labels, keep, strict=True)]
  b = [bool(k) and y not in first for y, k in zip(labels, keep, strict=True)]
  return a, b


# --- data: halves of five and three rows, three attributes or nine ---

LABELS_A = np.array([0, 2, 0, 5, 2], np.int32)
LABELS_B = np.array([1, 4, 1], np.int32)
COTANGENT = np.random.default_rng(7).uniform(0.2, 2, 8)
KEEP_A = np.array([True, False, True, True, True])
KEEP_B = np.array([True, True, False])
ALL_A, ALL_B = np.ones(5, bool), np.ones(3, bool)


def simplex_rows(seed, count, attributes):
  return np.random.default_rng(seed).dirichlet(np.full(attributes, 0.4), count)


def label_embeddings(seed=2):
  return np.random.default_rng(seed).normal(size=(6, 4))


@jax.jit
def call(za, ya, zb, yb, u, ridge, scale, where_a, where_b, cotangent):
  def loss(za, zb, u, ridge, scale):
    return losses.zero_shot_prediction(
      za, ya, zb, yb, u, ridge=ridge, scale=scale, where_a=where_a, where_b=where_b
    )

  values, pull = jax.vjp(loss, za, zb, u, ridge, scale)
  return values, *pull(cotangent)


def run(za, zb, u, ridge=0.05, scale=1.7, dtype=np.float64, **other):
  ya, yb = other.get("labels", (LABELS_A, LABELS_B))
  where_a, where_b = other.get("where", (ALL_A[: len(ya)], ALL_B[: len(yb)]))
  count = len(ya) + len(yb)
  arrays = (x.astype(dtype) for x in (za, zb, u, COTANGENT[:count]))
  za, zb, u, cotangent = arrays
  return call(
    za, ya, zb, yb, u, dtype(ridge), dtype(scale), where_a, where_b, cotangent
  )


# --- values and gradients ---


@pytest.mark.parametrize("attributes", [3, 9])
@pytest.mark.parametrize(("ridge", "scale"), [(0.05, 1.7), (2.0, 9.5)])
def test_values_and_gradients_equal_numpy(attributes, ridge, scale, x64):
  za, zb = simplex_rows(0, 5, attributes), simplex_rows(1, 3, attributes)
  u = label_embeddings()
  a, b = (za, LABELS_A), (zb, LABELS_B)
  values, *gradients = run(za, zb, u, ridge, scale)
  assert values.dtype == jnp.float64
  np.testing.assert_allclose(values, oracle(a, b, u, ridge, scale), rtol=1e-10)
  right = oracle_gradient(a, b, u, ridge, scale, COTANGENT)
  for ours, theirs in zip(gradients, right, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


def test_closed_form_gradients_equal_difference_quotients(slopes):
  """The oracle's own gradient, so that the test above stands on the loss alone."""
  za, zb, u = simplex_rows(0, 5, 3), simplex_rows(1, 3, 3), label_embeddings()

  def scalar(za, zb, u, ridge, scale):
    values = oracle((za, LABELS_A), (zb, LABELS_B), u, float(ridge), float(scale))
    return COTANGENT @ values

  point = [za, zb, u, 0.3, 1.7]
  right = oracle_gradient((za, LABELS_A), (zb, LABELS_B), u, 0.3, 1.7, COTANGENT)
  for k, gradient in enumerate(right):

    def moved(value, k=k):
      return scalar(*point[:k], value, *point[k + 1 :])

    np.testing.assert_allclose(gradient, slopes(moved, point[k]), rtol=1e-6, atol=1e-7)


def test_defaults_are_the_papers(x64):
  za, zb, u = simplex_rows(0, 5, 3), simplex_rows(1, 3, 3), label_embeddings()
  right = oracle((za, LABELS_A), (zb, LABELS_B), u, 0.05, 1.0)
  values = jax.jit(losses.zero_shot_prediction)(za, LABELS_A, zb, LABELS_B, u)
  np.testing.assert_allclose(values, right, rtol=1e-10)


def test_printed_equation_counts_the_target_twice(x64):
  """log(1 + sum over the OTHER classes) is the loss; over all it is not."""
  za, zb, u = simplex_rows(0, 5, 3), simplex_rows(1, 3, 3), label_embeddings()
  values, *_ = run(za, zb, u, scale=0.1)
  fitted = fit(zb, u[LABELS_B], 0.05)
  for i, label in enumerate(LABELS_A):
    differences = 0.1 * (u - u[label]) @ (za[i] @ fitted)
    other = np.delete(np.exp(differences), label).sum()
    np.testing.assert_allclose(values[i], math.log(1 + other), rtol=1e-12)
    assert values[i] < math.log(2 + other) - 0.05


# --- the regression ---


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (4, 4), (1, 5)])
def test_regression_is_stationary_and_equals_least_squares(shape, x64):
  z = simplex_rows(3, *shape)
  y = np.random.default_rng(4).normal(size=(shape[0], 2))
  for ridge in (1e-3, 0.05, 4.0):
    fitted = np.asarray(jax.jit(losses.ridge_attribute_embeddings)(z, y, ridge=ridge))
    assert fitted.shape == (shape[1], 2)
    np.testing.assert_allclose(
      z.T @ (z @ fitted - y) + ridge * fitted, 0 * fitted, atol=1e-12
    )
    dual = z.T @ np.linalg.solve(z @ z.T + ridge * np.eye(shape[0]), y)
    np.testing.assert_allclose(fitted, dual, rtol=1e-9, atol=1e-12)
    stacked = np.concatenate([z, math.sqrt(ridge) * np.eye(shape[1])])
    padded = np.concatenate([y, np.zeros((shape[1], 2))])
    least, *_ = scipy.linalg.lstsq(stacked, padded)
    np.testing.assert_allclose(fitted, least, rtol=1e-9, atol=1e-12)


def test_regression_defaults_masks_and_precision(x64):
  z, y = simplex_rows(3, 7, 3), np.random.default_rng(4).normal(size=(7, 2))
  keep = np.array([1, 0, 1, 1, 0, 1, 1], bool)
  masked = losses.ridge_attribute_embeddings(
    np.where(keep[:, None], z, np.nan), np.where(keep[:, None], y, np.inf), where=keep
  )
  np.testing.assert_allclose(masked, fit(z[keep], y[keep], 0.05), rtol=1e-10)
  none = losses.ridge_attribute_embeddings(np.nan * z, y, where=~keep & keep)
  np.testing.assert_array_equal(none, np.zeros((3, 2)))
  half = losses.ridge_attribute_embeddings(
    jnp.asarray(z, jnp.bfloat16), jnp.asarray(y, jnp.bfloat16)
  )
  assert half.dtype == jnp.bfloat16
  np.testing.assert_allclose(half.astype(float), fit(z, y, 0.05), rtol=0.02, atol=0.05)


def test_prediction_becomes_exact_on_classes_that_share_attributes(x64):
  """Label embeddings linear in the attributes, both halves spanning them."""
  patterns = np.array(
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0], [0, 0.5, 0.5], [0.2, 0.3, 0.5]]
  )
  u = patterns @ np.random.default_rng(5).normal(size=(3, 4))
  seen, unseen = np.array([0, 1, 2, 0]), np.array([3, 4, 5])
  errors = []
  for ridge in (1e-1, 1e-3, 1e-5):
    fitted = losses.ridge_attribute_embeddings(patterns[seen], u[seen], ridge=ridge)
    errors.append(np.abs(patterns[unseen] @ fitted - u[unseen]).max())
  assert errors[0] > 1e-2 > errors[1] > errors[2]
  assert errors[2] < 1e-4


# --- properties ---


def test_chance_level_rotation_and_scales(x64):
  za, zb, u = simplex_rows(0, 5, 3), simplex_rows(1, 3, 3), label_embeddings()
  values, *_ = run(za, zb, u)
  np.testing.assert_allclose(run(za, zb, 0 * u)[0], math.log(6), rtol=1e-14)
  rotation, _ = np.linalg.qr(np.random.default_rng(6).normal(size=(4, 4)))
  np.testing.assert_allclose(run(za, zb, u @ rotation)[0], values, rtol=1e-11)
  for k in (0.3, 5.0):
    scaled, *_ = run(za, zb, math.sqrt(k) * u, scale=1.7 / k)
    np.testing.assert_allclose(scaled, values, rtol=1e-11)
  far, *_ = run(za, zb, u, ridge=1e12)
  np.testing.assert_allclose(far, math.log(6), rtol=1e-10)


def test_swapping_halves_and_permuting_rows_permutes_the_values(x64):
  za, zb, u = simplex_rows(0, 5, 3), simplex_rows(1, 3, 3), label_embeddings()
  values, *_ = run(za, zb, u)
  where = (ALL_B, ALL_A)
  swapped, *_ = run(zb, za, u, labels=(LABELS_B, LABELS_A), where=where)
  np.testing.assert_allclose(swapped, np.roll(values, 3), rtol=1e-12)
  order = np.array([3, 0, 4, 1, 2])
  permuted, *_ = run(za[order], zb, u, labels=(LABELS_A[order], LABELS_B))
  np.testing.assert_allclose(permuted[:5], values[order], rtol=1e-12)
  np.testing.assert_allclose(permuted[5:], values[5:], rtol=1e-12)


def test_a_class_absent_from_the_batch_changes_only_the_normaliser(x64):
  za, zb, u = simplex_rows(0, 5, 3), simplex_rows(1, 3, 3), label_embeddings()
  values, *_ = run(za, zb, u)
  extra = np.concatenate([u, [[1.0, -2.0, 0.5, 0.0]]])
  longer = run(za, zb, extra)[0]
  for half, z, other, labels in (
    (slice(5), za, zb, LABELS_B),
    (slice(5, None), zb, za, LABELS_A),
  ):
    predicted = z @ fit(other, u[labels], 0.05)
    before, after = (np.exp(1.7 * predicted @ v.T).sum(1) for v in (u, extra))
    np.testing.assert_allclose(
      longer[half] - values[half], np.log(after / before), rtol=1e-10
    )


def test_rows_of_one_half_do_not_depend_on_each_other(x64):
  za, zb, u = simplex_rows(0, 5, 3), simplex_rows(1, 3, 3), label_embeddings()
  by_a, by_b = jax.jit(
    jax.jacobian(
      lambda za, zb: losses.zero_shot_prediction(za, LABELS_A, zb, LABELS_B, u), (0, 1)
    )
  )(za, zb)
  for i, j in np.ndindex(5, 5):
    assert (np.abs(by_a[i, j]).max() > 1e-6) == (i == j)
  for i, j in np.ndindex(3, 3):
    assert (np.abs(by_b[5 + i, j]).max() > 1e-6) == (i == j)
  assert (
    np.abs(by_a[5:]).max(-1) > 1e-6
  ).all()  # every row is fitted on the other half
  assert (np.abs(by_b[:5]).max(-1) > 1e-6).all()


# --- masks and edges ---


@pytest.mark.parametrize("attributes", [3, 9])
def test_masked_rows_are_as_if_deleted(attributes, x64):
  za, zb = simplex_rows(0, 5, attributes), simplex_rows(1, 3, attributes)
  u = label_embeddings()
  a, b = (za[KEEP_A], LABELS_A[KEEP_A]), (zb[KEEP_B], LABELS_B[KEEP_B])
  keep = np.concatenate([KEEP_A, KEEP_B])
  right = oracle(a, b, u, 0.05, 1.7)
  by_za, by_zb, *rest = oracle_gradient(a, b, u, 0.05, 1.7, COTANGENT[keep])
  holed = [
    np.where(mask[:, None], z, np.nan) for mask, z in ((KEEP_A, za), (KEEP_B, zb))
  ]
  outside = (np.where(KEEP_A, LABELS_A, -1), np.where(KEEP_B, LABELS_B, 6))
  for result in (
    run(*holed, u, where=(KEEP_A, KEEP_B)),
    run(za, zb, u, labels=outside),  # a label outside masks its row
  ):
    values, *gradients = result
    np.testing.assert_allclose(values[keep], right, rtol=1e-10)
    np.testing.assert_array_equal(values[~keep], 0)
    np.testing.assert_allclose(gradients[0][KEEP_A], by_za, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradients[1][KEEP_B], by_zb, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(gradients[0][~KEEP_A], 0)
    np.testing.assert_array_equal(gradients[1][~KEEP_B], 0)
    for ours, theirs in zip(gradients[2:], rest, strict=True):
      np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_an_empty_half_leaves_chance_level_without_gradient(x64):
  za, zb, u = simplex_rows(0, 5, 3), simplex_rows(1, 3, 3), label_embeddings()
  values, *gradients = run(za, np.nan * zb, u, where=(ALL_A, ~ALL_B))
  np.testing.assert_allclose(values[:5], math.log(6), rtol=1e-14)
  np.testing.assert_array_equal(values[5:], 0)
  for gradient in gradients:
    np.testing.assert_array_equal(gradient, np.zeros(gradient.shape))
  for result in run(np.nan * za, np.nan * zb, u, where=(~ALL_A, ~ALL_B)):
    np.testing.assert_array_equal(result, np.zeros(result.shape))


def test_degenerate_halves(x64):
  u = label_embeddings()
  same = np.tile(simplex_rows(0, 1, 3), (5, 1))
  one = simplex_rows(1, 1, 3)
  a, b = (same, LABELS_A), (one, LABELS_B[:1])
  values = jax.jit(losses.zero_shot_prediction)(*a, *b, u)
  np.testing.assert_allclose(values, oracle(a, b, u, 0.05, 1.0), rtol=1e-10)
  shared = np.zeros(3, np.int32)  # a class in both halves: allowed
  zb = simplex_rows(1, 3, 3)
  np.testing.assert_allclose(
    run(same, zb, u, scale=1.0, labels=(LABELS_A, shared))[0],
    oracle(a, (zb, shared), u, 0.05, 1.0),
    rtol=1e-10,
  )


# --- the split ---


def test_split_deals_classes_in_order_of_first_appearance():
  generator = np.random.default_rng(8)
  split = jax.jit(lambda labels, where: losses.split_by_class(labels, where=where))
  for _ in range(30):
    labels = generator.integers(-3, generator.integers(-2, 8), 9).astype(np.int32)
    keep = generator.random(9) < 0.8
    a, b = split(labels, keep)
    right = split_oracle(labels.tolist(), keep)
    np.testing.assert_array_equal(a, right[0])
    np.testing.assert_array_equal(b, right[1])
  a, b = losses.split_by_class(np.array([10**9, 4, 10**9]))
  np.testing.assert_array_equal(a, [True, False, True])
  np.testing.assert_array_equal(b, [False, True, False])
  a, b = losses.split_by_class(np.full(3, 7))
  np.testing.assert_array_equal(a, [True, True, True])
  np.testing.assert_array_equal(b, [False, False, False])
  for half in split(labels, np.zeros(9, bool)):
    np.testing.assert_array_equal(half, np.zeros(9, bool))


def test_two_masks_of_one_batch_equal_two_slices(x64):
  z = simplex_rows(0, 8, 3)
  labels = np.array([0, 0, 2, 2, 1, 1, 4, 4], np.int32)
  u = label_embeddings()
  a, b = losses.split_by_class(labels)
  loss = jax.jit(losses.zero_shot_prediction)
  masked = loss(z, labels, z, labels, u, where_a=a, where_b=b)
  sliced = loss(z[:4], labels[:4], z[4:], labels[4:], u)
  np.testing.assert_allclose(masked[:4], sliced[:4], rtol=1e-12)
  np.testing.assert_allclose(masked[12:], sliced[4:], rtol=1e-12)
  np.testing.assert_array_equal(masked[4:12], 0)


# --- transformations ---


def test_many_regressions_are_solved_one_after_another_on_a_cpu():
  # Batched, they take a hundred times as long; two batched factorisations beside each
  # other each block a thread of XLA's pool until the others have done its share.
  z, table = np.eye(3, 4, dtype=np.float32), np.ones((5, 2), np.float32)

  def loss(z):
    labels = np.arange(3, dtype=np.int32)
    return losses.zero_shot_prediction(z, labels, z[:2], labels[:2] + 3, table).sum()

  program = jax.jit(jax.vmap(jax.grad(loss))).lower(np.stack([z, z])).as_text()
  assert "lapack_spotrf" in program
  assert "triangular_solve" not in program  # but LAPACK's or BLAS's trsm
  assert 'num_batch_dims = "1"' not in program
