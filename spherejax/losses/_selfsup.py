"""Contrastive losses between two views of every example."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _compiled, _numerics
from spherejax.losses import _batch, _extremes, _views
from spherejax.losses._batch import Normalization


def _divisor(temperature: ArrayLike, dtype: jnp.dtype) -> Array:
  """Checked positive temperature; at infinity all candidates weigh the same."""
  if _compiled.known(_is_infinite, temperature):
    return jnp.asarray(jnp.inf, dtype)
  _checks.positive("temperature", temperature)
  return _checks.scalar("temperature", temperature, dtype)


def _is_infinite(value: ArrayLike) -> bool:
  return _checks.static_number(value) == np.inf


def _lead_of_negatives(
  temperature: ArrayLike, dtype: jnp.dtype
) -> Callable[[Array, Array, Array], Array]:
  """Terms log sum_negatives exp((s - s_own) / temperature); -inf over none."""
  t = _divisor(temperature, dtype)

  def terms(similar: Array, negatives: Array, positive: Array) -> Array:
    return _numerics.logsumexp((similar - positive) / t, negatives)

  return terms


def info_nce(
  first: Float[ArrayLike, "batch dim"],
  second: Float[ArrayLike, "batch dim"],
  *,
  temperature: Real[ArrayLike, ""] = 0.5,
  symmetric: bool = False,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """InfoNCE with both views of all other examples as negatives.

      loss_i = log sum_{j != i, k = 1, 2} exp(<f_i1, f_jk> / temperature)
               - <f_i1, f_i2> / temperature

  The positive pair is not in the sum, so the loss can be negative. The loss is not
  symmetric in the views; `symmetric` averages it with the loss of the exchanged views.

  Args:
    first: [batch, dim], floating, one view of every example.
    second: [batch, dim], floating, the other view, row by row.
    temperature: positive, divides the similarities; may be traced. At infinity, the
      paper's beta = 0, all similarities count as equal.
    symmetric: mean over both views as anchors. Static.
    normalize: "l2", "unit_ball" or "none", of the rows. Static.
    where: [batch], boolean, True keeps. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x 2 batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `first`; 0 for masked rows, and for an example that is alone.
    `loss.mean()` is the paper's scalar. With n kept unit rows a value is within
    2 / temperature of log(2 (n - 1)).

  Raises:
    TypeError: a view is not floating, symmetric not boolean.
    ValueError: shapes do not match, an unknown `normalize`, block_size below 1, or a
      static temperature that is not positive.

  Differentiable in: both views, temperature. Cost: O(batch^2 dim) time.

  Source: SSL eq. 1, whose beta is 1 / temperature; van den Oord et al. 2018,
  "Representation learning with contrastive predictive coding".

  Example:
    >>> x = jnp.eye(2)
    >>> spherejax.losses.info_nce(x, x)
    Array([-1.3068528, -1.3068528], dtype=float32)
  """
  _checks.flag("symmetric", symmetric)
  batch = _views.views(first, second, where, normalize)
  terms = _lead_of_negatives(temperature, batch.first.dtype)
  sides = _views.over_negatives(terms, batch, axis_name, block_size, both=symmetric)
  loss = jnp.mean(jnp.stack(sides), axis=0)
  return jnp.where(loss == -jnp.inf, 0, loss).astype(batch.dtype)


def nt_xent(
  first: Float[ArrayLike, "batch dim"],
  second: Float[ArrayLike, "batch dim"],
  *,
  temperature: Real[ArrayLike, ""] = 0.5,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """NT-Xent loss (SimCLR): cross-entropy of telling the other view from all other rows.

      l_a = -log( exp(<z_a, z_p> / t) / sum_{b != a} exp(<z_a, z_b> / t) )
      loss_i = (l of the first view + l of the second) / 2

  over the 2 n rows z of both views, with t the temperature and p the other view of a.
  The loss is the mean of the softplus of `info_nce` in both directions: at least 0, and
  at least `info_nce` with `symmetric`.

  Args:
    first: [batch, dim], floating, one view of every example.
    second: [batch, dim], floating, the other view, row by row.
    temperature: positive, divides the similarities; may be traced. At infinity, the
      paper's beta = 0, all similarities count as equal.
    normalize: "l2", "unit_ball" or "none", of the rows. Static.
    where: [batch], boolean, True keeps. None keeps all.
    block_size: static. Rows of either view per block, recomputed for the
      gradient; memory is block_size x 2 batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `first`; 0 for masked rows. `loss.mean()` is the paper's scalar.

  Raises:
    TypeError: a view is not floating.
    ValueError: shapes do not match, an unknown `normalize`, block_size below 1, or a
      static temperature that is not positive.

  Differentiable in: both views, temperature. Cost: O(batch^2 dim) time.

  Source: Chen et al. 2020, "A simple framework for contrastive learning of visual
  representations", eq. 1; SSL 2.

  Example:
    >>> x = jnp.eye(2)
    >>> spherejax.losses.nt_xent(x, x)
    Array([0.23954476, 0.23954476], dtype=float32)
  """
  batch = _views.views(first, second, where, normalize)
  terms = _lead_of_negatives(temperature, batch.first.dtype)
  first_lead, second_lead = _views.over_negatives(
    terms, batch, axis_name, block_size, both=True
  )
  loss = (_numerics.softplus(first_lead) + _numerics.softplus(second_lead)) / 2
  return loss.astype(batch.dtype)


class InfoNCEBound(NamedTuple):
  """Upper bound of InfoNCE, and its parts.

  Example:
    >>> spherejax.losses.info_nce_bound(jnp.eye(2), jnp.eye(2)).nearest
    Array([1, 0], dtype=int32)
  """

  value: Array
  """[batch], (invariance + repulsion) / temperature + constant; 0 for masked rows."""
  invariance: Array
  """[batch], minus the similarity of the two views."""
  repulsion: Array
  """[batch], largest similarity of the first view to another example."""
  nearest: Array
  """[batch], index of that row: first views from 0, second views after all first views
  of all devices; the lowest in a tie, -1 where there is none."""
  constant: Array
  """Scalar, log of the number of negatives; 0 without any."""


def info_nce_bound(
  first: Float[ArrayLike, "batch dim"],
  second: Float[ArrayLike, "batch dim"],
  *,
  temperature: Real[ArrayLike, ""] = 0.5,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> InfoNCEBound:
  """Upper bound of `info_nce` that depends on the nearest negative only.

      invariance_i = -<f_i1, f_i2>
      repulsion_i  = max_{j != i, k = 1, 2} <f_i1, f_jk>
      value_i = (invariance_i + repulsion_i) / temperature + log(2 (n - 1))

  for n kept examples. The bound exceeds the loss by at most log(2 (n - 1)) and
  touches it where all negatives are equally near.

  Args:
    first: [batch, dim], floating, one view of every example.
    second: [batch, dim], floating, the other view, row by row.
    temperature: positive, divides the similarities; may be traced. At infinity, the
      paper's beta = 0, all similarities count as equal.
    normalize: "l2", "unit_ball" or "none", of the rows. Static.
    where: [batch], boolean, True keeps. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient. None takes
      all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    `InfoNCEBound`, whose floating fields have the dtype of `first`. A masked row has
    nearest -1 and 0 in the other [batch] fields. The value of an example that is alone
    is 0. `value.mean()` is the paper's bound.

  Raises:
    TypeError: a view is not floating.
    ValueError: shapes do not match, an unknown `normalize`, block_size below 1, or a
      static temperature that is not positive.

  Differentiable in: both views, temperature. Cost: O(batch^2 dim) time.

  Source: SSL proposition 3.1, eqs. 3-5. SSL table 1 looks for the nearest negative with
  products that are not normalised; the bound then fails.

  Example:
    >>> x = jnp.eye(2)
    >>> spherejax.losses.info_nce_bound(x, x).value
    Array([-1.3068528, -1.3068528], dtype=float32)
  """
  batch = _views.views(first, second, where, normalize)
  t = _divisor(temperature, batch.first.dtype)
  largest, nearest, positive = _nearest(batch, axis_name, block_size)
  number = 2 * (_batch.number(batch.where[:, None], axis_name, t.dtype) - 1)
  constant = jnp.where(number > 0, jnp.log(jnp.where(number > 0, number, 1)), 0)
  value = jnp.where(nearest >= 0, (largest - positive) / t + constant, 0)
  return InfoNCEBound(
    value.astype(batch.dtype),
    -positive.astype(batch.dtype),
    largest.astype(batch.dtype),
    nearest,
    constant.astype(batch.dtype),
  )


def _nearest(
  batch: _views.Views, axis_name: str | None, block_size: int | None
) -> tuple[Array, Array, Array]:
  """[rows] each: nearest negative's similarity, its index, the views' similarity."""

  def terms(similar: Array, negatives: Array, positive: Array) -> tuple[Array, ...]:
    size = similar.shape[1]
    chosen = _extremes.where_largest(similar, negatives)
    largest = _numerics.masked_sum(similar, _extremes.one_hot(chosen, size))
    return largest, jnp.where(chosen < size, chosen, -1), positive[:, 0]

  return _views.over_negatives(terms, batch, axis_name, block_size)[0]


def info_nce_invariance(
  first: Float[ArrayLike, "batch dim"],
  second: Float[ArrayLike, "batch dim"],
  *,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """Invariance term of the bound of InfoNCE: makes the views of an example agree.

      loss_i = -<f_i1, f_i2>

  Args:
    first: [batch, dim], floating, one view of every example.
    second: [batch, dim], floating, the other view, row by row.
    normalize: "l2", "unit_ball" or "none", of the rows. Static.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `first`, in [-1, 1] for unit rows; 0 for masked rows.
    `loss.mean()` is the paper's scalar. Rows do not depend on each other.

  Raises:
    TypeError: a view is not floating.
    ValueError: shapes do not match, or an unknown `normalize`.

  Differentiable in: both views. Cost: O(batch dim).

  Source: SSL eq. 4. With a linear projector W the term is least where W^T f_i2 is a
  positive multiple of W^T f_i1; the paper states this for equality only.

  Example:
    >>> spherejax.losses.info_nce_invariance(jnp.eye(2), jnp.ones((2, 2)))
    Array([-0.70710677, -0.70710677], dtype=float32)
  """
  batch = _views.views(first, second, where, normalize)
  return -jnp.sum(batch.first * batch.second, axis=1).astype(batch.dtype)


def info_nce_repulsion(
  first: Float[ArrayLike, "batch dim"],
  second: Float[ArrayLike, "batch dim"],
  *,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Repulsion term of the bound of InfoNCE: pushes the nearest negative away.

      loss_i = max_{j != i, k = 1, 2} <f_i1, f_jk>

  Args:
    first: [batch, dim], floating, one view of every example.
    second: [batch, dim], floating, the other view, row by row.
    normalize: "l2", "unit_ball" or "none", of the rows. Static.
    where: [batch], boolean, True keeps. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient. None takes
      all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `first`; 0 for masked rows, and for an example that is alone.
    `loss.mean()` is the paper's scalar, at least -1 / (n - 1) for n unit rows.

  Raises:
    TypeError: a view is not floating.
    ValueError: shapes do not match, an unknown `normalize`, or block_size below 1.

  Differentiable in: both views; ties go to the lowest index. Cost: O(batch^2 dim) time.

  Source: SSL eq. 5.

  Example:
    >>> spherejax.losses.info_nce_repulsion(jnp.eye(2), jnp.ones((2, 2)))
    Array([0.70710677, 0.70710677], dtype=float32)
  """
  batch = _views.views(first, second, where, normalize)
  return _nearest(batch, axis_name, block_size)[0].astype(batch.dtype)
