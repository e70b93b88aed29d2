"""Averages of per-query values over the queries that count."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer

from spherejax import _checks, _numerics


def mean_where(
  values: Float[ArrayLike, "*shape"], where: Bool[ArrayLike, "*shape"]
) -> Float[Array, ""]:
  """Mean of the kept values; NaN if no value is kept.

      mean = sum_{i: where_i} values_i / #{i: where_i}

  Args:
    values: any shape, floating. Masked values may be NaN.
    where: shape of `values`, boolean, True keeps.

  Returns:
    Scalar in the dtype of `values`; float16 and bfloat16 are summed in float32.

  Raises:
    TypeError: values not floating, `where` not boolean.
    ValueError: shapes differ.

  Differentiable in: values. Cost: one read.

  Source: DML 1.2 (averages over the queries that have a relevant reference).

  Example:
    >>> spherejax.metrics.mean_where(jnp.array([1.0, 2.0, 9.0]),
    ...                              jnp.array([True, True, False]))
    Array(1.5, dtype=float32)
  """
  values = _checks.array("values", values, "floating")
  where = _checks.array("where", where)
  _checks.mask(where, values.shape)
  total = _numerics.masked_sum(_numerics.upcast(values), where, axis=None)
  return _quotient(total, jnp.sum(where, dtype=jnp.int32)).astype(values.dtype)


def class_balanced_mean(
  values: Float[ArrayLike, " batch"],
  labels: Integer[ArrayLike, " batch"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, ""]:
  """Mean of the class means: every class has the same weight, whatever its size.

      mean = 1/C sum_c (1/n_c sum_{i: y_i = c} values_i)

  over the C classes with a kept value; n_c counts kept values only.

  Args:
    values: [batch], floating.
    labels: [batch], integer. Only their equality matters.
    where: [batch], boolean, True keeps; for retrieval `result.counted`. None keeps
      all.

  Returns:
    Scalar in the dtype of `values`, NaN when none is kept.

  Raises:
    TypeError: values not floating, labels not integer, `where` not boolean.
    ValueError: shapes do not match.

  Differentiable in: values. Cost: O(batch log batch) time.

  Source: macro average; Manning et al. 2008, "Introduction to information
  retrieval", section 13.6.

  Example:
    >>> spherejax.metrics.class_balanced_mean(jnp.array([1.0, 0.0, 0.0, 0.0]),
    ...                                       jnp.array([7, 7, 7, 3]))
    Array(0.16666667, dtype=float32)
  """
  values = _checks.array("values", values, "floating", rank=1)
  (labels,) = _checks.names(("labels", labels))
  _checks.labels(labels, values)
  where = _checks.where_mask(where, values.shape)
  order = jnp.argsort(labels, stable=True)
  ordered, mask = labels[order], where[order]
  kept_before = jnp.concatenate(
    [jnp.zeros(1, jnp.int32), jnp.cumsum(mask, dtype=jnp.int32)]
  )
  start = jnp.searchsorted(ordered, ordered, side="left")
  stop = jnp.searchsorted(ordered, ordered, side="right")
  size = kept_before[stop] - kept_before[start]
  terms = _numerics.upcast(values)[order] / jnp.maximum(size, 1)
  first_kept = mask & (kept_before[:-1] == kept_before[start])
  classes = jnp.sum(first_kept, dtype=jnp.int32)
  total = _numerics.masked_sum(terms, mask)
  return _quotient(total, classes).astype(values.dtype)


def _quotient(total: Array, count: Array) -> Array:
  some = count > 0
  # The untaken branch divides by 1: 0 / 0 would make gradients NaN.
  return jnp.where(some, total / jnp.where(some, count, 1), jnp.nan)
