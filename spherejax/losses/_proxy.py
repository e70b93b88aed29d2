"""Proxy Anchor loss: the proxies of the classes are anchors for the batch."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics, distances
from spherejax.losses import _batch, _blocks, _classes
from spherejax.losses._batch import Normalization


def proxy_anchor(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  proxies: Float[ArrayLike, "classes *per_class dim"],
  *,
  scale: Real[ArrayLike, ""] = 32.0,
  margin: Real[ArrayLike, ""] = 0.1,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Proxy Anchor loss: uses every proxy as an anchor for the whole batch.

      pull_c = log(1 + sum_{i: y_i = c} exp(-scale (S_ic - margin)))
      push_c = log(1 + sum_{i: y_i != c} exp(scale (S_ic + margin)))
      L = sum_{c present} pull_c / #{c present} + sum_c push_c / #{c}

  With several proxies per class, c runs over the proxies and #{c} counts proxies. Each
  pull_c and push_c is shared equally among the examples in its sum, so that the mean of
  the values below over the n kept examples is L:

      loss_i = n (pull_{y_i} / (#{c present} n_{y_i})
                  + sum_{c != y_i} push_c / (#{c} (n - n_c)))

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer in [0, classes). A row with a traced label out of range is
      an example of no class.
    proxies: [classes, dim], or [classes, per_class, dim] with several per class, each
      of which is a proxy of its own.
    scale: positive, may be traced.
    margin: in units of a cosine, may be traced.
    normalize: "l2", "unit_ball" (S is then the dot product of the projected rows)
      or "none", for embeddings and proxies. Static.
    where: [batch], boolean, True keeps. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x classes per_class. None takes all at once.
    axis_name: mapped axis over which the batch is spread (the proxies are the same
      on all devices); the values are those of the local rows.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar.

  Raises:
    TypeError: embeddings or proxies are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), an unknown
      `normalize`, or a static scale that is not positive.

  Differentiable in: embeddings, proxies, scale, margin.
  Cost: O(batch classes per_class dim).

  Source: DML 2.1.3; Kim et al. 2020, "Proxy Anchor loss for deep metric learning", eq.
  4.

  Example:
    >>> x, proxies = jnp.eye(2), jnp.array([[1.0, 0.0], [0.6, 0.8]])
    >>> spherejax.losses.proxy_anchor(x, jnp.array([0, 1]), proxies)
    Array([22.4 ,  3.24], dtype=float32)
  """
  _checks.positive("scale", scale)
  rows, labels, row_mask, dtype = _batch.rows_and_labels(
    embeddings, labels, where, normalize
  )
  proxies = _classes.proxies(proxies, rows, 2, 3)
  proxies = proxies[:, None] if proxies.ndim == 2 else proxies
  classes = proxies.shape[0]
  per_class = proxies.shape[1]
  columns = _batch.normalize_rows(proxies.reshape(-1, proxies.shape[-1]), normalize)
  _checks.known_labels(labels, classes, row_mask)
  a = _checks.scalar("scale", scale, rows.dtype)
  m = _checks.scalar("margin", margin, rows.dtype)

  def masks(labels: Array, row_mask: Array) -> tuple[Array, Array]:
    """[rows, columns] each: whether a row belongs to a proxy, and whether not."""
    class_mask = _batch.class_mask(labels, classes, row_mask)
    positive = jnp.repeat(class_mask, per_class, axis=1)
    return positive, ~positive & row_mask[:, None]

  def of_columns(block: tuple[Array, Array, Array]) -> tuple[Array, ...]:
    """Sums over a block's rows for each proxy, and the numbers of rows in them."""
    rows, labels, row_mask = block
    similar = distances.pairwise_dot(rows, columns)
    positive, negative = masks(labels, row_mask)
    return (
      _numerics.logsumexp(-a * (similar - m), positive, axis=0),
      _numerics.logsumexp(a * (similar + m), negative, axis=0),
      *(jnp.sum(mask, axis=0, dtype=jnp.int32) for mask in (positive, negative)),
    )

  parts = _blocks.map_blocks(of_columns, (rows, labels, row_mask), block_size)
  pull, push = (
    _batch.logsumexp(part, part != -jnp.inf, axis_name, 0) for part in parts[:2]
  )
  members, others = (
    _batch.total(jnp.sum(part, axis=0, dtype=jnp.int32), axis_name)
    for part in parts[2:]
  )
  n = _batch.number(row_mask[:, None], axis_name, rows.dtype)
  present = jnp.sum(members > 0, dtype=jnp.int32).astype(rows.dtype)

  def share(column: Array, size: Array, count: Array | int) -> Array:
    # As floats: batch size times number of proxies need not fit into 32 bits.
    weight = _numerics.divide(n, size.astype(rows.dtype) * count)
    return (_numerics.softplus(column) * weight)[None]

  pulls, pushes = share(pull, members, present), share(push, others, len(columns))

  def of_rows(block: tuple[Array, Array]) -> Array:
    positive, negative = masks(*block)
    return jnp.sum(
      jnp.where(positive, pulls, 0) + jnp.where(negative, pushes, 0), axis=1
    )

  return _blocks.map_rows(of_rows, (labels, row_mask), block_size).astype(dtype)
