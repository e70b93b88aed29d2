"""Self-supervised losses without negative pairs: alignment, spread, statistics."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics, distances
from spherejax.losses import _batch, _blocks, _views
from spherejax.losses._batch import Normalization

Reduction = Literal["paper", "code"]


def alignment(
  first: Float[ArrayLike, "batch dim"],
  second: Float[ArrayLike, "batch dim"],
  *,
  exponent: Real[ArrayLike, ""] = 2.0,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """Alignment loss: distance between the two views of an example, to a power.

      loss_i = |f_i1 - f_i2|^exponent

  With `uniformity` of both views it makes a loss without negative pairs:
  `alignment(a, b) + (uniformity(a) + uniformity(b)) / 2`.

  Args:
    first: [batch, dim], floating, one view of every example.
    second: [batch, dim], floating, the other view, row by row.
    exponent: positive, may be traced.
    normalize: "l2", "unit_ball" or "none", of the rows. Static.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `first`; 0 for masked rows. `loss.mean()` is the paper's scalar;
    with exponent 2 it is 2 + 2 `info_nce_invariance` of unit rows. Rows do not depend
    on each other.

  Raises:
    TypeError: a view is not floating.
    ValueError: shapes do not match, an unknown `normalize`, or a static exponent that
      is not positive.

  Differentiable in: both views, exponent; derivative 0 where the views agree.
  Cost: O(batch dim).

  Source: Wang and Isola 2020, "Understanding contrastive representation learning
  through alignment and uniformity on the hypersphere".

  Example:
    >>> spherejax.losses.alignment(jnp.eye(2), jnp.array([[1.0, 0.0], [1.0, 0.0]]))
    Array([0., 2.], dtype=float32)
  """
  _checks.positive("exponent", exponent)
  batch = _views.views(first, second, where, normalize)
  squares = jnp.sum((batch.first - batch.second) ** 2, axis=1)
  power = _checks.scalar("exponent", exponent, squares.dtype)
  return _numerics.power(squares, power / 2).astype(batch.dtype)


def uniformity(
  embeddings: Float[ArrayLike, "batch dim"],
  *,
  scale: Real[ArrayLike, ""] = 2.0,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Uniformity loss: logarithm of the mean Gaussian potential of all pairs.

      loss = log mean_{i < j} exp(-scale |f_i - f_j|^2)

  The loss is 0 where all rows coincide, and falls as they fill the sphere more evenly.

  Args:
    embeddings: [batch, dim], floating.
    scale: positive, may be traced.
    normalize: "l2", "unit_ball" or "none", of the rows. Static.
    where: [batch], boolean, True keeps. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread; the loss is that of the
      batch of all devices.

  Returns:
    [batch], dtype of `embeddings`: the same value for every kept row; 0 for masked
    rows, and for all rows if fewer than two are kept. `loss.mean()` is the paper's
    scalar.

  Raises:
    TypeError: embeddings are not floating.
    ValueError: embeddings are not a matrix, an unknown `normalize`, block_size below
      1, or a static scale that is not positive.

  Differentiable in: embeddings, scale. Cost: O(batch^2 dim) time.

  Source: Wang and Isola 2020, "Understanding contrastive representation learning
  through alignment and uniformity on the hypersphere".

  Example:
    >>> x = jnp.array([[1.0, 0.0], [-1.0, 0.0]])
    >>> spherejax.losses.uniformity(x)
    Array([-8., -8.], dtype=float32)
  """
  embeddings = _checks.array("embeddings", embeddings, "floating", rank=2, empty=False)
  _checks.positive("scale", scale)
  mask = _batch.keep_all(where, embeddings)
  rows = jnp.where(mask[:, None], _numerics.upcast(embeddings), 0)
  rows = _batch.normalize_rows(rows, normalize)
  t = _checks.scalar("scale", scale, rows.dtype)
  references, compared = (_batch.gather(array, axis_name) for array in (rows, mask))
  start = _batch.first_row(len(rows), axis_name)
  columns = jnp.arange(len(references), dtype=jnp.int32)

  def potential(block: tuple[Array, Array]) -> Array:
    x, itself = block
    squares = distances.pairwise_squared_euclidean(x, references)
    others = (itself[:, None] != columns[None]) & compared[None]
    return _numerics.logsumexp(-t * squares, others)

  itself = start + jnp.arange(len(rows), dtype=jnp.int32)
  by_row = _blocks.map_rows(potential, (rows, itself), block_size)
  total = _batch.logsumexp(by_row[:, None], mask[:, None], axis_name, 0)[0]
  number = _batch.number(mask[:, None], axis_name, rows.dtype)
  # As floats: the number of pairs of a large batch does not fit into 32 bits.
  pairs = jnp.where(number > 1, number * (number - 1), 1)
  loss = jnp.where(number > 1, total - jnp.log(pairs), 0)
  return jnp.where(mask, loss, 0).astype(embeddings.dtype)


def _sum_of_rows(rows: Array, axis_name: str | None) -> Array:
  """Sum over the rows of all devices, differentiated."""
  local = jnp.sum(rows, axis=0)
  return local if axis_name is None else jax.lax.psum(local, axis_name)


def _product(x: Array, y: Array, axis_name: str | None) -> Array:
  """[columns, columns]: x^T y over the rows of all devices."""
  local = _numerics.product(x.T, y)
  return local if axis_name is None else jax.lax.psum(local, axis_name)


def _centred(
  rows: Array, where: Array, number: Array, axis_name: str | None
) -> tuple[Array, Array]:
  """The rows less the mean of the kept rows of all devices, and that mean."""
  mean = _numerics.divide(_sum_of_rows(rows, axis_name), number)
  return jnp.where(where[:, None], rows - mean[None], 0), mean


def vicreg(
  first: Float[ArrayLike, "batch dim"],
  second: Float[ArrayLike, "batch dim"],
  *,
  invariance_weight: Real[ArrayLike, ""] = 25.0,
  variance_weight: Real[ArrayLike, ""] = 25.0,
  covariance_weight: Real[ArrayLike, ""] = 1.0,
  reduction: Reduction = "paper",
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """VICReg loss: views agree, every dimension varies, dimensions are uncorrelated.

      loss_i = a |z_i - z'_i|^2 + b (v(Z) + v(Z')) + c (k(Z) + k(Z'))
      v(Z) = mean_j [1 - sqrt(Var_j + 1e-4)]+
      k(Z) = sum_{j != l} Cov_jl^2 / dim

  with a, b, c the weights in their order, and the variances and covariances over the
  batch, divided by the number of kept rows minus one.

  Args:
    first: [batch, dim], floating, one view of every example; not normalised.
    second: [batch, dim], floating, the other view, row by row.
    invariance_weight: at least 0, may be traced.
    variance_weight: at least 0, may be traced.
    covariance_weight: at least 0, may be traced.
    reduction: "paper" or "code". "code" divides the first term by dim and halves the
      second, as the released code does; the default weights are from that code. Static.
    where: [batch], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the batch is spread; the statistics are those
      of the batch of all devices.

  Returns:
    [batch], dtype of `first`; 0 for masked rows. `loss.mean()` is the paper's scalar.
    For a single row variances and covariances are 0.

  Raises:
    TypeError: a view is not floating.
    ValueError: shapes do not match, an unknown `reduction`, or a static weight below
      0.

  Differentiable in: both views, weights. Cost: O(batch dim^2).

  Source: Bardes et al. 2022, "VICReg: variance-invariance-covariance regularization for
  self-supervised learning", eqs. 1-6.

  Example:
    >>> x = jnp.array([[2.0, 0.0], [0.0, 2.0]])
    >>> spherejax.losses.vicreg(x, x)
    Array([8., 8.], dtype=float32)
  """
  _checks.one_of("reduction", reduction, Reduction)
  batch = _views.views(first, second, where, "none")
  weights = []
  for name, weight in (
    ("invariance_weight", invariance_weight),
    ("variance_weight", variance_weight),
    ("covariance_weight", covariance_weight),
  ):
    _checks.between(name, weight, 0)
    weights.append(_checks.scalar(name, weight, batch.first.dtype))
  number = _batch.number(batch.where[:, None], axis_name, batch.first.dtype)
  off_diagonal = ~jnp.eye(batch.first.shape[1], dtype=bool)
  variance = covariance = 0
  for rows in (batch.first, batch.second):
    centred, _ = _centred(rows, batch.where, number, axis_name)
    products = _product(centred, centred, axis_name)
    moments = _numerics.divide(products, jax.nn.relu(number - 1))
    spread = _numerics.sqrt(jnp.diagonal(moments) + 1e-4)  # the paper's constant
    variance += jnp.mean(jax.nn.relu(1 - spread))
    squares = _numerics.masked_sum(moments**2, off_diagonal, axis=None)
    covariance += squares / len(off_diagonal)
  invariance = jnp.sum((batch.first - batch.second) ** 2, axis=1)
  if reduction == "code":
    invariance, variance = invariance / len(off_diagonal), variance / 2
  loss = weights[0] * invariance + weights[1] * variance + weights[2] * covariance
  return jnp.where(batch.where, loss, 0).astype(batch.dtype)


def barlow_twins(
  first: Float[ArrayLike, "batch dim"],
  second: Float[ArrayLike, "batch dim"],
  *,
  redundancy_weight: Real[ArrayLike, ""] = 5e-3,
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Barlow twins loss: drives the correlation of the views' dimensions to the identity.

      C_jk = mean_i u_ij u'_ik,    u = (rows - mean) / standard deviation
      loss = sum_j (1 - C_jj)^2 + redundancy_weight sum_{j != k} C_jk^2

  Args:
    first: [batch, dim], floating, one view of every example; not normalised.
    second: [batch, dim], floating, the other view, row by row.
    redundancy_weight: at least 0, may be traced.
    where: [batch], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the batch is spread; the statistics are those
      of the batch of all devices.

  Returns:
    [batch], dtype of `first`: the same value for every kept row, 0 for masked ones.
    `loss.mean()` is the paper's scalar. A dimension that does not vary counts with
    correlation 0.

  Raises:
    TypeError: a view is not floating.
    ValueError: shapes do not match, or a static weight below 0.

  Differentiable in: both views, redundancy_weight. Cost: O(batch dim^2).

  Source: Zbontar et al. 2021, "Barlow twins: self-supervised learning via redundancy
  reduction", eqs. 1 and 2.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    >>> spherejax.losses.barlow_twins(x, x, redundancy_weight=0.5)
    Array([1., 1.], dtype=float32)
  """
  _checks.between("redundancy_weight", redundancy_weight, 0)
  batch = _views.views(first, second, where, "none")
  weight = _checks.scalar("redundancy_weight", redundancy_weight, batch.first.dtype)
  number = _batch.number(batch.where[:, None], axis_name, batch.first.dtype)

  def standardised(rows: Array) -> Array:
    power = _numerics.shrinking(rows, grow=True)
    rows *= power if axis_name is None else jax.lax.pmin(power, axis_name)
    centred, mean = _centred(rows, batch.where, number, axis_name)
    variance = _numerics.divide(_sum_of_rows(centred**2, axis_name), number)
    # Equal entries differ from their mean by rounding only: they do not vary.
    noise = (16 * jnp.finfo(rows.dtype).eps * mean) ** 2
    constant = (variance <= noise) & jnp.isfinite(variance)
    spread = _numerics.sqrt(jnp.where(constant, 0, variance))
    return _numerics.divide(centred, spread[None])

  u, v = standardised(batch.first), standardised(batch.second)
  correlation = _numerics.divide(_product(u, v, axis_name), number)
  on_diagonal = jnp.eye(len(correlation), dtype=bool)
  diagonal = jnp.sum((1 - jnp.diagonal(correlation)) ** 2)
  others = _numerics.masked_sum(correlation**2, ~on_diagonal, axis=None)
  return jnp.where(batch.where, diagonal + weight * others, 0).astype(batch.dtype)
