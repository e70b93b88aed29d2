"""ProxyNCA and ProxyNCA++ losses: examples choose among the proxies of the classes."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics, distances
from spherejax.losses import _batch, _classes
from spherejax.losses._batch import Normalization

Logit = Literal["squared_euclidean", "cosine"]


def _table(proxies: ArrayLike, rows: Array, normalize: Normalization) -> Array:
  """[classes, dim] or [classes, per_class, dim], checked and normalised."""
  table = _classes.proxies(proxies, rows, 2, 3)
  columns = _batch.normalize_rows(table.reshape(-1, table.shape[-1]), normalize)
  return columns.reshape(table.shape)


def _closeness(rows: Array, table: Array, logit: Logit, scale: Array) -> Array:
  """Closeness [rows, classes] to each class, to be multiplied by the scale.

  The exponentials exp(scale closeness) of a class's proxies are summed.
  """
  columns = table.reshape(-1, table.shape[-1])
  if logit == "cosine":
    close = distances.pairwise_dot(rows, columns)
  else:
    close = -distances.pairwise_squared_euclidean(rows, columns)
  if table.ndim == 2:
    return close
  of_class = scale * close.reshape(len(rows), *table.shape[:2])
  # Not `_numerics.logsumexp`: a backward pass by blocks keeps its sums, which form a
  # matrix here.
  return jax.nn.logsumexp(of_class, axis=-1) / scale


def proxy_nca(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  proxies: Float[ArrayLike, "classes *per_class dim"],
  *,
  scale: Real[ArrayLike, ""] = 1.0,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  block_size: int | None = None,
) -> Float[Array, " batch"]:
  """ProxyNCA loss, whose denominator leaves out the true class.

      d_ic = |scale x_i - scale p_c|
      loss_i = d_iy^2 + log sum_{c != y_i} exp(-d_ic^2)

  The loss is unbounded below: it goes on pushing examples that are classified
  correctly, and is negative there. With p the softmax of the true class, it equals
  `proxy_nca_plus_plus` at temperature 1 / scale^2 plus log(1 - p).

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    proxies: [classes, dim], or [classes, per_class, dim]: then the exponentials of a
      class's proxies are summed.
    scale: positive, multiplies the normalised vectors; may be traced.
    normalize: "l2", "unit_ball" or "none", for embeddings and proxies. Static.
    where: [batch], boolean, True keeps. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x classes per_class. None takes all at once.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows and where there is only one
    class. `loss.mean()` is the paper's scalar. Rows do not depend on each other.

  Raises:
    TypeError: embeddings or proxies are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), an unknown
      `normalize`, or a static scale that is not positive.

  Differentiable in: embeddings, proxies, scale.
  Cost: O(batch classes per_class dim).

  Source: DML 2.1.3; Movshovitz-Attias et al. 2017, "No fuss distance metric learning
  using proxies", eq. 4.

  Example:
    >>> spherejax.losses.proxy_nca(jnp.eye(2), jnp.array([0, 1]), jnp.eye(2))
    Array([-2., -2.], dtype=float32)
  """
  _checks.positive("scale", scale)
  rows, labels, mask, dtype = _batch.rows_and_labels(
    embeddings, labels, where, normalize
  )
  s = _checks.scalar("scale", scale, rows.dtype)
  table = _table(proxies, rows, normalize)

  def terms(rows: Array, class_mask: Array) -> Array:
    close = _closeness(rows, table, "squared_euclidean", s**2)
    lead = s**2 * (close - _numerics.masked_sum(close, class_mask)[:, None])
    used = jnp.any(class_mask & (len(table) > 1), axis=1)
    loss = _numerics.logsumexp(lead, ~class_mask & used[:, None])
    return jnp.where(used, loss, 0)

  loss = _classes.over_rows(terms, rows, labels, mask, len(table), block_size)
  return loss.astype(dtype)


def proxy_nca_plus_plus(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  proxies: Float[ArrayLike, "classes *per_class dim"],
  *,
  temperature: Real[ArrayLike, ""] = 1 / 9,
  logit: Logit = "squared_euclidean",
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  block_size: int | None = None,
) -> Float[Array, " batch"]:
  """ProxyNCA++ loss: cross-entropy of the closeness to the proxies.

      loss_i = -log softmax_c(-|x_i - p_c|^2 / temperature)_{y_i}
      loss_i = -log softmax_c(<x_i, p_c> / temperature)_{y_i}       logit="cosine"

  On unit proxies a temperature t of cosines is a temperature 2 t of squared distances.
  With several proxies per class the softmax runs over all proxies, and the
  probabilities of the true class's proxies are added.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    proxies: [classes, dim], or [classes, per_class, dim] with several per class.
    temperature: positive, divides the logits; may be traced.
    logit: "squared_euclidean" or "cosine" (the dot product of the normalised rows).
      Static.
    normalize: "l2", "unit_ball" (what DML uses) or "none", for embeddings and
      proxies. Static.
    where: [batch], boolean, True keeps. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x classes per_class. None takes all at once.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: embeddings or proxies are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), an unknown
      `logit` or `normalize`, or a static temperature that is not positive.

  Differentiable in: embeddings, proxies, temperature.
  Cost: O(batch classes per_class dim).

  Source: DML 2.1.3; Teh et al. 2020, "ProxyNCA++". The temperatures 0.1 and 0.11 of DML
  3.3.2.1 and 5.3.4.1 are those of logit="cosine".

  Example:
    >>> spherejax.losses.proxy_nca_plus_plus(
    ...   jnp.eye(2), jnp.array([0, 1]), jnp.eye(2), temperature=2.0
    ... )
    Array([0.3132617, 0.3132617], dtype=float32)
  """
  _checks.positive("temperature", temperature)
  _checks.one_of("logit", logit, Logit)
  rows, labels, mask, dtype = _batch.rows_and_labels(
    embeddings, labels, where, normalize
  )
  t = _checks.scalar("temperature", temperature, rows.dtype)
  table = _table(proxies, rows, normalize)

  def terms(rows: Array, class_mask: Array) -> Array:
    close = _closeness(rows, table, logit, 1 / t)
    return _classes.cross_entropy(close, class_mask, 1 / t)

  loss = _classes.over_rows(terms, rows, labels, mask, len(table), block_size)
  return loss.astype(dtype)
