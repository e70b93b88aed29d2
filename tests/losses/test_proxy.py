"""Proxy Anchor and ProxyNCA++ against plain loops over rows and proxies."""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses

# --- the oracles, in float64 ---


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


def softplus_of_lse(exponents):
  """log(1 + sum exp) and its derivatives by the exponents; 0 for an empty list."""
  top = max([0.0, *exponents])
  terms = [math.exp(u - top) for u in exponents]
  total = math.exp(-top) + sum(terms)
  return top + math.log(total), [term / total for term in terms]


def proxy_anchor_oracle(s, labels, cotangent, scale=32.0, margin=0.1):
  """Values [n] and the gradient of <cotangent, values> by s [n, classes, each]."""
  n, classes, each = s.shape
  present = sum(any(y == c for y in labels) for c in range(classes))
  values, gradient = np.zeros(n), np.zeros(s.shape)
  for c in range(classes):
    own = [i for i in range(n) if labels[i] == c]
    other = [i for i in range(n) if labels[i] != c]
    for k in range(each):
      for rows, sign, columns in (
        (own, -1, present * each),
        (other, 1, classes * each),
      ):
        column, weights = softplus_of_lse(
          [sign * scale * (s[i, c, k] + sign * margin) for i in rows]
        )
        for i in rows:
          values[i] += n * column / (columns * len(rows))
        shared = sum(n * cotangent[i] / (columns * len(rows)) for i in rows)
        for i, weight in zip(rows, weights, strict=True):
          gradient[i, c, k] += shared * sign * scale * weight
  return values, gradient


def proxy_anchor(x, labels, proxies, cotangent, normalize, **numbers):
  """Values and gradients by the embeddings and the proxies."""
  grouped = proxies.reshape(len(proxies), -1, x.shape[1])
  z = np.array([project(row, normalize) for row in x])
  p = np.array([[project(row, normalize) for row in group] for group in grouped])
  s = np.einsum("id,ckd->ick", z, p)
  values, slope = proxy_anchor_oracle(s, labels, cotangent, **numbers)
  by_z, by_p = np.einsum("ick,ckd->id", slope, p), np.einsum("ick,id->ckd", slope, z)
  by_x = np.array(
    [pull_project(*pair, normalize) for pair in zip(x, by_z, strict=True)]
  )
  by_proxy = np.array(
    [
      pull_project(row, gradient, normalize)
      for row, gradient in zip(
        grouped.reshape(-1, x.shape[1]), by_p.reshape(-1, x.shape[1]), strict=True
      )
    ]
  )
  return values, by_x, by_proxy.reshape(proxies.shape)


def proxy_nca(x, labels, proxies, cotangent, normalize, temperature=1 / 9, logit=None):
  """Values and gradients by the embeddings and the proxies."""
  z = [project(row, normalize) for row in x]
  p = [project(row, normalize) for row in proxies]
  values, by_z, by_p = np.zeros(len(x)), 0 * x, 0 * proxies
  for i, y in enumerate(labels):
    if logit == "cosine":
      u = [z[i] @ row / temperature for row in p]
    else:
      u = [-((z[i] - row) @ (z[i] - row)) / temperature for row in p]
    total = sum(math.exp(v - max(u)) for v in u)
    values[i] = max(u) + math.log(total) - u[y]
    for c, row in enumerate(p):
      weight = cotangent[i] * (math.exp(u[c] - max(u)) / total - (c == y))
      if logit == "cosine":
        by_z[i] += weight * row / temperature
        by_p[c] += weight * z[i] / temperature
      else:
        by_z[i] -= weight * 2 * (z[i] - row) / temperature
        by_p[c] += weight * 2 * (z[i] - row) / temperature
  by_x = [pull_project(*pair, normalize) for pair in zip(x, by_z, strict=True)]
  by_proxy = [
    pull_project(*pair, normalize) for pair in zip(proxies, by_p, strict=True)
  ]
  return values, np.array(by_x), np.array(by_proxy)


# --- the calls: one compilation a variant and dtype ---

VARIANTS = {
  "anchor-l2": (losses.proxy_anchor, proxy_anchor, {"normalize": "l2"}),
  "anchor-several-ball": (
    losses.proxy_anchor,
    proxy_anchor,
    {"normalize": "unit_ball"},
  ),
  "nca-squared-l2": (losses.proxy_nca_plus_plus, proxy_nca, {"normalize": "l2"}),
  "nca-squared-ball": (
    losses.proxy_nca_plus_plus,
    proxy_nca,
    {"normalize": "unit_ball", "logit": "squared_euclidean"},
  ),
  "nca-cosine-none": (
    losses.proxy_nca_plus_plus,
    proxy_nca,
    {"normalize": "none", "logit": "cosine"},
  ),
}
NUMBERS = {
  proxy_anchor: {"scale": 6.0, "margin": 0.2},
  proxy_nca: {"temperature": 0.4},
}
COTANGENT = np.random.default_rng(9).uniform(0.2, 2, 10)
KEEP = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1, 1], bool)
ALL = np.ones(10, bool)


@pytest.fixture(scope="module")
def proxies(embeddings):
  """A function of the variant: eleven classes, some of them absent from a batch."""
  return lambda variant: (
    embeddings(2, 22, 4).reshape(11, 2, 4)
    if "several" in variant
    else embeddings(2, 11, 4)
  )


@functools.cache
def compiled(variant):
  loss, _, static = VARIANTS[variant]

  def call(x, labels, proxies, where, cotangent, numbers):
    values, pull = jax.vjp(
      lambda x, proxies, numbers: loss(
        x, labels, proxies, where=where, **static, **numbers
      ),
      x,
      proxies,
      numbers,
    )
    return values, *pull(cotangent)

  return jax.jit(call)


def run(variant, x, labels, proxies, where=ALL, dtype=np.float64, **numbers):
  numbers = numbers or NUMBERS[VARIANTS[variant][1]]
  return compiled(variant)(
    x.astype(dtype),
    labels,
    proxies.astype(dtype),
    where,
    COTANGENT[: len(x)].astype(dtype),
    {key: np.asarray(value, dtype) for key, value in numbers.items()},
  )


def expected(variant, x, labels, proxies, cotangent=COTANGENT, **numbers):
  _, oracle, static = VARIANTS[variant]
  return oracle(x, labels, proxies, cotangent, **static, **(numbers or NUMBERS[oracle]))


# --- values and gradients ---


@pytest.mark.parametrize("variant", VARIANTS)
def test_values_and_gradients_equal_the_loops(variant, batch, proxies, x64):
  x, labels = batch
  p = proxies(variant)
  p[3] = 0
  p[4] = x[0]
  values, by_x, by_proxy, _ = run(variant, x, labels, p)
  right = expected(variant, x, labels, p)
  assert values.dtype == jnp.float64
  np.testing.assert_allclose(values, right[0], rtol=1e-10, atol=1e-12)
  np.testing.assert_allclose(by_x, right[1], rtol=1e-9, atol=1e-11)
  np.testing.assert_allclose(by_proxy, right[2], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("variant", VARIANTS)
def test_float32_equals_the_loops(variant, batch, proxies):
  x, labels = batch[0].astype(np.float32), batch[1]
  p = proxies(variant).astype(np.float32)
  values, by_x, by_proxy, _ = run(variant, x, labels, p, dtype=np.float32)
  right = expected(variant, x.astype(np.float64), labels, p.astype(np.float64))
  assert values.dtype == jnp.float32
  np.testing.assert_allclose(values, right[0], rtol=2e-5, atol=2e-6)
  np.testing.assert_allclose(by_x, right[1], rtol=1e-4, atol=1e-4)
  np.testing.assert_allclose(by_proxy, right[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_equal_difference_quotients(variant, mixed, proxies, slopes, x64):
  x, labels = mixed
  p = proxies(variant)
  _, by_x, by_proxy, by_number = run(variant, x, labels, p)

  def by_rows(first):  # all coordinates are compared with the loops above
    return COTANGENT @ expected(variant, np.concatenate([first, x[3:]]), labels, p)[0]

  np.testing.assert_allclose(by_x[:3], slopes(by_rows, x[:3]), rtol=1e-6, atol=1e-7)

  def by_first(first):
    return COTANGENT @ expected(variant, x, labels, np.concatenate([first, p[2:]]))[0]

  np.testing.assert_allclose(
    by_proxy[:2], slopes(by_first, p[:2]), rtol=1e-6, atol=1e-7
  )
  numbers = NUMBERS[VARIANTS[variant][1]]
  for key, number in numbers.items():

    def moved(value, key=key):
      changed = numbers | {key: float(value)}
      return COTANGENT @ expected(variant, x, labels, p, **changed)[0]

    np.testing.assert_allclose(by_number[key], slopes(moved, number), rtol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_masked_rows_are_as_if_deleted(variant, mixed, proxies, x64):
  x, labels = mixed
  p = proxies(variant)
  holed = np.where(KEEP[:, None], x, np.nan)
  values, by_x, by_proxy, by_number = run(variant, holed, labels, p, KEEP)
  right = expected(variant, x[KEEP], labels[KEEP], p, COTANGENT[KEEP])
  np.testing.assert_allclose(values[KEEP], right[0], rtol=1e-10)
  np.testing.assert_allclose(by_x[KEEP], right[1], rtol=1e-9, atol=1e-12)
  np.testing.assert_allclose(by_proxy, right[2], rtol=1e-9, atol=1e-12)
  np.testing.assert_array_equal(values[~KEEP], 0)
  np.testing.assert_array_equal(by_x[~KEEP], 0)
  assert all(np.isfinite(slope) for slope in by_number.values())
  for result in jax.tree.leaves(run(variant, np.nan * x, labels, p, ~ALL)):
    np.testing.assert_array_equal(result, np.zeros(result.shape))


@pytest.mark.parametrize("variant", VARIANTS)
def test_permutation_relabelling_rotation_and_scaling(variant, mixed, proxies, x64):
  x, labels = mixed
  p = proxies(variant)
  values, *_ = run(variant, x, labels, p)
  order = np.random.default_rng(4).permutation(10)
  shuffled, *_ = run(variant, x[order], labels[order], p)
  np.testing.assert_allclose(shuffled, values[order], rtol=1e-12)
  renamed = np.random.default_rng(5).permutation(11)
  result, *_ = run(variant, x, np.argsort(renamed).astype(np.int32)[labels], p[renamed])
  np.testing.assert_allclose(result, values, rtol=1e-12)
  rotation, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(4, 4)))
  result, *_ = run(variant, x @ rotation, labels, p @ rotation)
  np.testing.assert_allclose(result, values, rtol=1e-11)
  if VARIANTS[variant][2]["normalize"] == "l2":
    lengths = np.geomspace(1e-6, 1e6, 11)[:, None]
    result, *_ = run(variant, x * lengths[:10], labels, p * lengths[::-1])
    np.testing.assert_allclose(result, values, rtol=1e-11)


@pytest.mark.parametrize("variant", ["anchor-several-ball", "nca-squared-l2"])
def test_a_batch_of_one(variant, mixed, proxies):
  x, labels = mixed[0][:1], mixed[1][:1]
  p = proxies(variant)
  values, by_x, *_ = run(variant, x, labels, p, ALL[:1], np.float32)
  right = expected(variant, x, labels, p, COTANGENT[:1])
  np.testing.assert_allclose(values, right[0], rtol=2e-5)
  np.testing.assert_allclose(by_x, right[1], rtol=1e-4, atol=1e-4)


def test_labels_outside(mixed, proxies, x64):
  """ProxyNCA++ masks the row; for Proxy Anchor it is a negative of every proxy."""
  x, labels = mixed
  outside = np.where(KEEP, labels, np.where(labels == 0, -1, 11)).astype(np.int32)
  p = proxies("nca-squared-l2")
  values, by_x, by_proxy, _ = run("nca-squared-l2", x, outside, p)
  right = run("nca-squared-l2", x, labels, p, KEEP)
  np.testing.assert_allclose(values, right[0], rtol=1e-12)
  np.testing.assert_allclose(by_x, right[1], rtol=1e-12)
  np.testing.assert_allclose(by_proxy, right[2], rtol=1e-12)
  np.testing.assert_array_equal(by_x[~KEEP], 0)
  values, by_x, by_proxy, _ = run("anchor-l2", x, outside, p)
  right = expected("anchor-l2", x, outside, p)
  np.testing.assert_allclose(values, right[0], rtol=1e-10)
  np.testing.assert_allclose(by_x, right[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("variant", ["anchor-several-ball", "nca-squared-l2"])
def test_half_precision_is_float32_cast_back(variant, mixed, proxies):
  x, labels = mixed
  loss, oracle, static = VARIANTS[variant]
  half, p = jnp.asarray(x, jnp.bfloat16), jnp.asarray(proxies(variant), jnp.bfloat16)
  function = jax.jit(
    lambda x, p: loss(x, labels, p, where=KEEP, **static, **NUMBERS[oracle])
  )
  values = function(half, p)
  assert values.dtype == jnp.bfloat16
  single = function(half.astype(jnp.float32), p.astype(jnp.float32))
  np.testing.assert_allclose(
    values.astype(jnp.float32), single.astype(jnp.bfloat16).astype(jnp.float32), 2**-7
  )


def test_defaults_are_the_papers(mixed, proxies, x64):
  x, labels = mixed
  p = proxies("anchor-l2")
  right, *_ = proxy_anchor(x, labels, p, COTANGENT, "l2", scale=32.0, margin=0.1)
  values = jax.jit(losses.proxy_anchor)(x, labels, p)
  np.testing.assert_allclose(values, right, rtol=1e-10)
  right, *_ = proxy_nca(x, labels, p, COTANGENT, "l2", temperature=1 / 9)
  values = jax.jit(losses.proxy_nca_plus_plus)(x, labels, p)
  np.testing.assert_allclose(values, right, rtol=1e-10)


# --- the papers' scalars and identities ---


@pytest.mark.parametrize("variant", ["anchor-l2", "anchor-several-ball"])
@pytest.mark.parametrize("one_class", [False, True])
def test_proxy_anchor_mean_is_the_papers_scalar(
  variant, one_class, mixed, proxies, x64
):
  x, labels = mixed
  if one_class:
    labels = 0 * labels + 3
  p = proxies(variant)
  scale, margin = 6.0, 0.2
  normalize = VARIANTS[variant][2]["normalize"]
  z = [project(row, normalize) for row in x]
  total, columns, present = 0.0, p.size // 4, len(set(labels.tolist()))
  for c in range(11):
    for row in p[c].reshape(-1, 4):
      s = [project(row, normalize) @ z[i] for i in range(10)]
      pull = sum(
        math.exp(-scale * (s[i] - margin)) for i in range(10) if labels[i] == c
      )
      push = sum(math.exp(scale * (s[i] + margin)) for i in range(10) if labels[i] != c)
      total += math.log1p(pull) / (present * columns / 11) + math.log1p(push) / columns
  np.testing.assert_allclose(run(variant, x, labels, p)[0].mean(), total, rtol=1e-12)


def test_proxy_anchor_is_multi_similarity_with_proxies_as_queries(mixed, proxies, x64):
  x, labels = mixed
  p = proxies("anchor-l2")
  scale, margin = 6.0, 0.2
  z, q = (np.array([project(row, "l2") for row in rows]) for rows in (x, p))
  own = np.arange(11)[:, None] == labels
  none = np.zeros_like(own)
  loss = functools.partial(
    losses.multi_similarity_from_similarity,
    q @ z.T,
    positive_scale=scale,
    negative_scale=scale,
  )
  pull = scale * loss(own, none, threshold=margin)
  push = scale * loss(none, ~own, threshold=-margin)
  total = pull.sum() / len(set(labels.tolist())) + push.sum() / 11
  values, *_ = run("anchor-l2", x, labels, p)
  np.testing.assert_allclose(values.mean(), total, rtol=1e-12)


def test_coincident_proxies_are_one(mixed, proxies, x64):
  x, labels = mixed
  p = proxies("anchor-l2")
  loss = jax.jit(losses.proxy_anchor)
  several = loss(x, labels, np.stack([p, 3 * p, p / 2], 1))
  np.testing.assert_allclose(several, loss(x, labels, p), rtol=1e-11)


def test_squared_temperature_is_twice_the_cosine_temperature_for_unit_proxies(
  mixed, proxies, x64
):
  """The length of the embedding cancels, that of the proxies does not."""
  x, labels = mixed
  p = proxies("nca-cosine-none")
  for unit in (True, False):
    q = p / np.linalg.norm(p, axis=1, keepdims=True) if unit else p
    loss = jax.jit(losses.proxy_nca_plus_plus, static_argnames=("logit", "normalize"))
    squared = loss(x, labels, q, temperature=0.6, normalize="none")
    cosine = loss(x, labels, q, temperature=0.3, logit="cosine", normalize="none")
    difference = np.abs(squared - cosine).max()
    assert difference < 1e-12 if unit else difference > 0.1


# --- transformations and extreme numbers ---


@pytest.mark.parametrize("variant", ["anchor-l2", "nca-squared-l2"])
def test_vmap_over_each_number_equals_the_loop(variant, mixed, proxies):
  x, labels = mixed[0].astype(np.float32), mixed[1]
  p = proxies(variant).astype(np.float32)
  loss, oracle, static = VARIANTS[variant]
  numbers = NUMBERS[oracle]
  for key, number in numbers.items():

    def call(value, key=key):
      return loss(x, labels, p, **static, **(numbers | {key: value}))

    grid = jnp.array([0.5, 1.0, 1.5]) * number
    for value, row in zip(grid, jax.jit(jax.vmap(call))(grid), strict=True):
      changed = numbers | {key: value}
      right = run(variant, x, labels, p, dtype=np.float32, **changed)[0]
      np.testing.assert_allclose(row, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", ["anchor-several-ball"])
def test_jit_equals_eager_and_traces_once(variant, mixed, proxies):
  x, labels = mixed[0].astype(np.float32), mixed[1]
  p = proxies(variant).astype(np.float32)
  loss, oracle, static = VARIANTS[variant]

  @jax.jit
  @chex.assert_max_traces(n=1)
  def call(x, labels, p, where, numbers):
    return loss(x, labels, p, where=where, **static, **numbers)

  chex.clear_trace_counter()
  for factor in (1.0, 0.9):
    numbers = {key: factor * value for key, value in NUMBERS[oracle].items()}
    values = call(x, labels, p, KEEP, numbers)
  eager = loss(x, labels, p, where=KEEP, **static, **numbers)
  np.testing.assert_allclose(values, eager, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [1e-30, 1e4])
def test_finite_for_large_and_small_entries(variant, size, mixed, proxies):
  x, labels = mixed
  x = x * size
  x[3] = 0
  p = proxies(variant) * size
  numbers = {"temperature": 1e-3}
  if VARIANTS[variant][1] is proxy_anchor:
    numbers = {"scale": 256.0, "margin": 0.1}
  results = run(variant, x, labels, p, ALL, np.float32, **numbers)
  for result in jax.tree.leaves(results):
    assert np.isfinite(result).all()
  if VARIANTS[variant][2]["normalize"] == "l2":
    right = expected(variant, x, labels, p, **numbers)
    # a squared distance is known to a few 2**-24, and divided by 1e-3
    np.testing.assert_allclose(results[0], right[0], rtol=1e-4)
    np.testing.assert_array_equal(results[1][3], np.zeros(4))


def test_low_temperature_in_float32():
  x, p = (
    np.array([[1, 0]], np.float32),
    np.array([[-1, 0], [0, 1], [0, -1]], np.float32),
  )
  loss = jax.jit(losses.proxy_nca_plus_plus, static_argnames="logit")
  values = loss(x, np.array([0]), p, temperature=0.005, logit="cosine")
  np.testing.assert_allclose(values, [200.69314718], rtol=1e-6)
  values = loss(x, np.array([0]), p, temperature=0.01)
  np.testing.assert_allclose(values, [200.69314718], rtol=1e-6)
  loss = jax.jit(losses.proxy_anchor)
  values = loss(x, np.array([0]), p[:1], scale=256.0, margin=0.1)
  np.testing.assert_allclose(values, [256 * 1.1], rtol=1e-6)
