"""Randomised smoothing: votes under noise, predictions and certificates."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int, Integer, Real

from spherejax import _checks, _numerics
from spherejax.attacks import _problem

ABSTAIN = -1


class Certificate(NamedTuple):
  """Classes and radii that hold with the requested confidence; NumPy arrays."""

  label: np.ndarray
  """[batch], the class; -1 where the votes are too even."""
  radius: np.ndarray
  """[batch], float64: no point nearer than this in l2 has another class; 0 for -1."""


def smoothed_votes(
  logits_fn: Callable[[Array], Array],
  x: Float[ArrayLike, "batch ..."],
  *,
  key: Array,
  sigma: Real[ArrayLike, ""],
  draws: int,
  block_size: int = 100,
  index: Integer[ArrayLike, " batch"] | None = None,
) -> Int[Array, "batch classes"]:
  """Counts the decisions for each class under normal noise.

      votes_c = #{j <= draws: argmax_k z_k(x + sigma g_j) = c},    g_j ~ N(0, 1)

  The noisy points are not clipped: the theory covers the whole space.

  Args:
    logits_fn: maps [batch, ...] to [batch, classes], pure, in evaluation mode. A new
      function compiles again: see `spherejax.attacks`.
    x: [batch, ...], floating.
    key: a typed PRNG key. Draw j of sample b has the key
      fold_in(fold_in(key, index[b]), j).
    sigma: standard deviation of the noise, positive, may be traced.
    draws: static; 0 gives no votes.
    block_size: static. Number of draws of each sample that are evaluated at once. The
      votes do not depend on it.
    index: [batch], the samples' numbers, for the keys. None counts from 0.

  Returns:
    [batch, classes], int32. Scores that are not finite vote for no class.

  Raises:
    TypeError: x not floating, draws not a static integer.
    ValueError: shapes do not match, a static sigma not positive.

  Differentiable in: nothing. Cost: `draws` evaluations of each sample.

  Source: Cohen et al. 2019, "Certified adversarial robustness via randomized
  smoothing"; DIST 3.2.

  Example:
    >>> logits_fn = lambda x: jnp.stack([x[:, 0], -x[:, 0]], 1)
    >>> key = jax.random.key(0)
    >>> votes = spherejax.attacks.smoothed_votes(
    ...   logits_fn, jnp.array([[9.0]]), key=key, sigma=1.0, draws=20
    ... )
    >>> votes
    Array([[20,  0]], dtype=int32)
  """
  _checks.key("key", key)
  _checks.function("logits_fn", logits_fn)
  samples = _checks.array("x", x, "floating")
  _checks.batched("x", samples)
  _checks.positive("sigma", sigma)
  _checks.count("draws", draws, 0)
  _checks.count("block_size", block_size)
  samples = _numerics.upcast(samples)
  deviation = _checks.scalar("sigma", sigma, samples.dtype)
  rows = jnp.arange(len(samples)) if index is None else _checks.integers("index", index)
  _checks.labels(rows, samples, "index")
  keys = _numerics.row_keys(key, rows)
  block = max(1, min(block_size, draws))

  def noisy(key, sample, number):
    noise = jax.random.normal(
      jax.random.fold_in(key, number), sample.shape, sample.dtype
    )
    return sample + deviation * noise

  of_block = jax.vmap(noisy, (None, None, 0))

  def decide(numbers):
    points = jax.vmap(of_block, (0, 0, None))(keys, samples, numbers)
    count = math.prod(points.shape[:2])
    z = _problem.logits(logits_fn, points.reshape(count, *samples.shape[1:]))
    counted = jnp.tile(numbers < draws, len(samples)) & jnp.all(jnp.isfinite(z), axis=1)
    decided = jnp.argmax(z, axis=1)[:, None] == jnp.arange(z.shape[1])[None]
    votes = (decided & counted[:, None]).astype(jnp.int32)
    return votes.reshape(len(samples), block, z.shape[1]).sum(1)

  def advance(votes, number):
    return votes + decide(number * block + jnp.arange(block)), None

  votes = jnp.zeros_like(jax.eval_shape(decide, jnp.arange(block)))
  return jax.lax.scan(advance, votes, jnp.arange(-(-draws // block)))[0]


def clopper_pearson(
  count: Integer[ArrayLike, "..."],
  total: Integer[ArrayLike, "..."],
  *,
  alpha: float = 0.001,
) -> tuple[np.ndarray, np.ndarray]:
  """Exact confidence bounds of a probability, from counts, in float64.

      lower: P(at least count of total | lower) = alpha
      upper: P(at most count of total | upper) = alpha

  Each bound alone fails with probability at most alpha.

  Args:
    count: [...], integers between 0 and `total`.
    total: broadcasts to `count`.
    alpha: in (0, 1).

  Returns:
    (lower, upper), NumPy arrays of float64. Lower is 0 for a count of 0; upper is 1
    for a count of `total`.

  Raises:
    TypeError: counts not integers or traced, alpha not a static number.
    ValueError: alpha outside (0, 1), counts outside [0, total], shapes that do not
      broadcast.

  Differentiable in: nothing; runs on the host, in float64 whatever jax's types are:
  in float32 the incomplete beta function is wrong in the second digit. Cost: a root
  for each entry, by scipy.

  Source: Clopper and Pearson 1934, "The use of confidence or fiducial limits".

  Example:
    >>> lower, upper = spherejax.attacks.clopper_pearson(990, 1000, alpha=0.001)
    >>> round(float(lower), 4), round(float(upper), 4)
    (0.976, 0.997)
  """
  from scipy.special import betaincinv

  alpha = _level(alpha)
  k, n = _checks.host("count", count), _checks.host("total", total)
  for name, array in (("count", k), ("total", n)):
    _checks.expect(name, array, "integer")
  try:
    k, n = np.broadcast_arrays(k, n)
  except ValueError as error:
    raise ValueError(
      f"total must broadcast to count, of shape {k.shape}, got shape {n.shape}"
    ) from error
  wrong = (k < 0) | (k > n)
  if wrong.any():
    raise ValueError(f"count must be in [0, {n[wrong][0]}], got {k[wrong][0]}")
  k, n = k.astype(np.float64), n.astype(np.float64)
  inner = betaincinv(np.maximum(k, 1), n - np.minimum(k, n) + 1, alpha)
  outer = betaincinv(k + 1, np.maximum(n - k, 1), 1 - alpha)
  return np.where(k == 0, 0.0, inner), np.where(k == n, 1.0, outer)


def smoothed_prediction(
  votes: Integer[ArrayLike, "batch classes"], *, alpha: float = 0.001
) -> np.ndarray:
  """Class of the smoothed model, or -1 where the votes are inconclusive.

  The class is returned where a two-sided binomial test of the two largest counts
  rejects a probability of one half at level `alpha`.

  Args:
    votes: [batch, classes], integer, from `smoothed_votes`.
    alpha: in (0, 1): the class is wrong with at most this probability.

  Returns:
    [batch], NumPy int64; -1 abstains.

  Raises:
    TypeError: votes not integers, alpha not a static number.
    ValueError: alpha outside (0, 1), votes below 0, not a matrix, or of no class.

  Differentiable in: nothing; runs on the host. Cost: O(batch classes).

  Source: Cohen et al. 2019, "Certified adversarial robustness via randomized
  smoothing", Predict; DIST 3.2.

  Example:
    >>> votes = jnp.array([[90, 10], [55, 45]])
    >>> spherejax.attacks.smoothed_prediction(votes).tolist()
    [0, -1]
  """
  from scipy.special import betainc

  alpha = _level(alpha)
  counts = _counts("votes", votes)
  order = np.argsort(-counts, axis=1, kind="stable")
  first = np.take_along_axis(counts, order[:, :1], 1)[:, 0]
  second = (
    np.take_along_axis(counts, order[:, 1:2], 1)[:, 0]
    if counts.shape[1] > 1
    else 0 * first
  )
  # Twice the tail of a fair coin with `first` of first + second; 1 when they are equal.
  tail = betainc(np.maximum(first, 1), second + 1, 0.5)
  p_value = np.where(first > second, np.minimum(2 * tail, 1), 1)
  return np.where(p_value <= alpha, order[:, 0], ABSTAIN)


def smoothed_certificate(
  selection: Integer[ArrayLike, "batch classes"],
  votes: Integer[ArrayLike, "batch classes"],
  *,
  sigma: float,
  alpha: float = 0.001,
  draws: int | None = None,
  two_sided: bool = False,
) -> Certificate:
  """Class and certified l2 radius of the smoothed model.

      radius = sigma Phi^{-1}(p)      p: lower bound of the class's probability

  The class comes from `selection` and its bound from `votes`, so the bound is valid.
  The label is -1 if p is at most one half. `two_sided` also takes an upper bound q for
  the runner-up, each bound with alpha / 2. The radius is then sigma / 2 (Phi^{-1}(p) -
  Phi^{-1}(q)), and the label -1 if p is at most q.

  Args:
    selection: [batch, classes], integer, a few votes, which choose the class.
    votes: [batch, classes], integer, from other draws.
    sigma: standard deviation of the votes' noise, positive.
    alpha: in (0, 1): the certificate is wrong with at most this probability.
    draws: number of draws behind `votes`, at least the votes of each row. None sums the
      votes, which is the same if all scores were finite.
    two_sided: whether to bound the runner-up.

  Returns:
    Certificate(label, radius), NumPy. The largest possible radius is
    sigma Phi^{-1}(alpha^(1/draws)), with alpha / 2 for alpha if `two_sided`.

  Raises:
    TypeError: votes or draws not integers, sigma or alpha not a static number,
      two_sided not boolean.
    ValueError: sigma not positive, alpha outside (0, 1), votes below 0, of different
      shapes or of no class, draws below the votes of a row.

  Differentiable in: nothing; runs on the host in float64. Cost: O(batch classes).

  Source: Cohen et al. 2019, "Certified adversarial robustness via randomized
  smoothing", theorem 1 and Certify; DIST 3.2.

  Example:
    >>> first, votes = jnp.array([[9, 1]]), jnp.array([[990, 10]])
    >>> found = spherejax.attacks.smoothed_certificate(first, votes, sigma=0.5)
    >>> found.label.tolist(), found.radius.round(3).tolist()
    ([0], [0.989])
  """
  _checks.flag("two_sided", two_sided)
  from scipy.special import ndtri

  _checks.positive("sigma", sigma)
  sigma, alpha = _checks.static("sigma", sigma), _level(alpha)
  chosen, counts = _counts("selection", selection), _counts("votes", votes)
  _checks.shape("votes", counts, chosen.shape, "the selection")
  label = np.argmax(chosen, axis=1)
  total = counts.sum(1)
  if draws is not None:
    _checks.count("draws", draws, 0)
    # A draw votes once at most. Fewer draws would certify too large a radius.
    if (total > draws).any():
      raise ValueError(
        f"draws must be at least {total.max()}, the votes of a row, got {draws}"
      )
    total = np.full(len(counts), draws)
  top_votes = np.take_along_axis(counts, label[:, None], 1)[:, 0]
  share = alpha / 2 if two_sided else alpha
  lower, _ = clopper_pearson(top_votes, total, alpha=share)
  if two_sided:
    others = np.where(np.arange(counts.shape[1]) == label[:, None], 0, counts)
    _, upper = clopper_pearson(others.max(1), total, alpha=share)
    radius = sigma / 2 * (ndtri(lower) - ndtri(upper))
    sure = lower > upper
  else:
    radius, sure = sigma * ndtri(lower), lower > 0.5
  return Certificate(np.where(sure, label, ABSTAIN), np.where(sure, radius, 0.0))


def _counts(name: str, votes: ArrayLike) -> np.ndarray:
  counts = _checks.host(name, votes)
  _checks.expect(name, counts, "integer", rank=2)
  if not counts.shape[1]:
    raise ValueError(f"{name} must have a class, got shape {counts.shape}")
  _checks.not_negative(name, counts)
  return counts.astype(np.int64)


def _level(alpha: float) -> float:
  """Checked probability of an error."""
  _checks.between("alpha", alpha, 0, 1, low_open=True, high_open=True)
  return _checks.static("alpha", alpha)
