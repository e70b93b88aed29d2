"""Ranked list loss: positives inside one boundary, negatives outside another."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Normalization


def ranked_list(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  boundary: Real[ArrayLike, ""] = 1.2,
  margin: Real[ArrayLike, ""] = 0.4,
  positive_temperature: Real[ArrayLike, ""] = 0.0,
  negative_temperature: Real[ArrayLike, ""] = 10.0,
  balance: Real[ArrayLike, ""] = 0.5,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Ranked list loss: weighted means of the violations of two boundaries.

      u_ij = [D_ij - (boundary - margin)]+   positives, weights exp(T+ u_ij)
      v_ij = [boundary - D_ij]+              negatives, weights exp(T- v_ij)
      loss_i = (1 - balance) mean_{j: u > 0} u_ij + balance mean_{j: v > 0} v_ij

  with weighted means, T+ = positive_temperature and T- = negative_temperature. The
  weights are differentiated too.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    boundary: distance beyond which negatives should lie, may be traced.
    margin: how much closer positives should lie, may be traced.
    positive_temperature: at least 0; 0 gives all terms the same weight. May be traced.
    negative_temperature: at least 0; 0 gives all terms the same weight. May be traced.
    balance: share of the negatives in [0, 1], may be traced.
    normalize: "l2", "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the distances. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `normalize`, a static balance outside
      [0, 1], or a static temperature below 0.

  Differentiable in: embeddings, boundary, margin, temperatures, balance.
  Cost: O(batch^2 dim) time.

  Source: Wang et al. 2019, "Ranked list loss for deep metric learning", eqs. 3 to 7;
  the defaults are those of its RLL-Simpler.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.ranked_list(x, jnp.array([0, 0, 1])).round(4)
    Array([0.4599, 0.5909, 0.2749], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  numbers = boundary, margin, positive_temperature, negative_temperature, balance
  terms = _terms(*numbers, batch.anchors.dtype)
  loss = _batch.over_pairs(terms, batch, _batch.euclidean, miner, block_size)
  return loss.astype(batch.dtype)


def _terms(
  boundary: ArrayLike,
  margin: ArrayLike,
  positive_temperature: ArrayLike,
  negative_temperature: ArrayLike,
  balance: ArrayLike,
  dtype: jnp.dtype,
) -> Callable[[_batch.Block], Array]:
  _checks.between("balance", balance, 0, 1)
  outer = _checks.scalar("boundary", boundary, dtype)
  inner = outer - _checks.scalar("margin", margin, dtype)
  _checks.between("positive_temperature", positive_temperature, 0)
  pull = _checks.scalar("positive_temperature", positive_temperature, dtype)
  _checks.between("negative_temperature", negative_temperature, 0)
  push = _checks.scalar("negative_temperature", negative_temperature, dtype)
  share = _checks.scalar("balance", balance, dtype)

  def terms(block: _batch.Block) -> Array:
    beyond = _weighted_mean(block.values - inner, block.positives, pull)
    within = _weighted_mean(outer - block.values, block.negatives, push)
    return (1 - share) * beyond + share * within

  return terms


def _weighted_mean(values: Array, selection: Array, temperature: Array) -> Array:
  """[rows]: mean of the positive values with weights exp(temperature value)."""
  active = _selection.chosen(selection) & ~(values <= 0)
  inside = jnp.where(active, values, 0)
  exponents = jnp.where(active, temperature * inside, -jnp.inf)
  top = jnp.max(exponents, axis=1, keepdims=True, initial=-jnp.inf)
  top = jax.lax.stop_gradient(jnp.where(top == -jnp.inf, 0, top))
  weights = jnp.exp(exponents - top)
  if selection.dtype != jnp.bool_:
    weights = weights * selection.astype(weights.dtype)
  total = jnp.sum(weights, axis=1)
  return _numerics.divide(jnp.sum(weights * inside, axis=1), total)


def ranked_list_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  boundary: Real[ArrayLike, ""] = 1.2,
  margin: Real[ArrayLike, ""] = 0.4,
  positive_temperature: Real[ArrayLike, ""] = 0.0,
  negative_temperature: Real[ArrayLike, ""] = 10.0,
  balance: Real[ArrayLike, ""] = 0.5,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Ranked list loss from a matrix of distances.

  The matrix form of `ranked_list`; a pair in neither mask is ignored.

      loss_i = (1 - balance) mean_{j: u > 0} u_ij + balance mean_{j: v > 0} v_ij

  Args:
    distances: [queries, references], floating.
    positives: [queries, references], boolean, or weights that multiply those of the
      means, not differentiated.
    negatives: [queries, references], boolean or weights.
    boundary: distance beyond which negatives should lie, may be traced.
    margin: how much closer positives should lie, may be traced.
    positive_temperature: at least 0; 0 gives all terms the same weight. May be traced.
    negative_temperature: at least 0; 0 gives all terms the same weight. May be traced.
    balance: share of the negatives in [0, 1], may be traced.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `distances`; 0 for masked rows.

  Raises:
    TypeError: distances are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match, a static balance outside [0, 1], or a static
      temperature below 0.

  Differentiable in: distances, boundary, margin, temperatures, balance.
  Cost: O(queries references).

  Source: Wang et al. 2019, "Ranked list loss for deep metric learning".

  Example:
    >>> same = jnp.array([[True, False]])
    >>> d = jnp.array([[1.0, 1.0]])
    >>> spherejax.losses.ranked_list_from_distance(d, same, ~same)
    Array([0.2], dtype=float32)
  """
  block, dtype = _batch.matrix(distances, positives, negatives, where, "distances")
  numbers = boundary, margin, positive_temperature, negative_temperature, balance
  return _terms(*numbers, block.values.dtype)(block).astype(dtype)
