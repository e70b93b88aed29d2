"""Angular loss: each positive pair against all negatives, by one angle."""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _positives, _selection
from spherejax.losses._batch import Normalization

Form = Literal["log", "hinge"]


def angular(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  angle: Real[ArrayLike, ""] = 0.7853981633974483,
  form: Form = "log",
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Angular loss: pushes negatives out of the cone around a positive pair.

  With t = tan(angle)^2, and sums over p with y_p = y_a, p != a, and n with y_n != y_a,

      f_apn = 4 t <x_a + x_p, x_n> - 2 (1 + t) <x_a, x_p>
      loss_a = sum_p log(1 + sum_n exp(f_apn))                                  "log"
      loss_a = sum_p sum_n max(|x_a - x_p|^2 - 4 t |x_n - (x_a + x_p) / 2|^2, 0)
                                                                              "hinge"

  On the sphere the argument of "hinge" is f + 2 - 6 t. The paper's form for batches,
  "log", drops the constant, and so does this function.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    angle: radians in (0, pi / 2), may be traced; 45 degrees by default.
    form: "log" or "hinge". Static.
    normalize: "l2", "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the similarities. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows and rows without a positive or
    without a negative. `loss.sum()` divided by the number of ordered positive pairs
    ("log") or of triplets ("hinge") is the paper's scalar.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `form` or `normalize`, or a static angle
      outside (0, pi / 2).

  Differentiable in: embeddings, angle; in reverse mode, once.
  Cost: O(batch^2 (dim + largest class)) time; with blocks, devices or references
  O(batch^2 dim largest class): one matrix product for each positive of a row, none of
  which is stored. O(batch^2) memory.

  Source: Wang et al. 2017, "Deep metric learning with angular loss", eq. 8 ("log"), and
  its loss of single triplets ("hinge").

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.angular(x, jnp.array([0, 0, 1]))
    Array([5.6036916, 5.6036916, 0.       ], dtype=float32)
  """
  _checks.between("angle", angle, 0, jnp.pi / 2, low_open=True, high_open=True)
  _checks.one_of("form", form, Form)
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  t = jnp.tan(_checks.scalar("angle", angle, batch.anchors.dtype)) ** 2
  # The matrix of a batch with itself already holds the rows of the positives.
  whole = references is None and block_size is None and axis_name is None
  rows = None if whole else batch.references
  if form == "hinge":
    terms = _terms(_hinged_pair, rows, t, _squared_norms(batch.references))
    squares = (_squared_norms(batch.anchors),)
  else:
    terms, squares = _terms(_pair, rows, t), ()
  loss = _batch.over_pairs(terms, batch, _batch.dot, miner, block_size, squares)
  return loss.astype(batch.dtype)


def _squared_norms(rows: Array) -> Array:
  return jnp.sum(rows**2, axis=1)


def _terms(
  pair: Callable[..., Array], references: Array | None, t: Array, *squares: Array
) -> Callable[..., Array]:
  def terms(block: _batch.Block, *of_anchors: Array) -> Array:
    near = _selection.chosen(block.positives)
    masks = block.positives, block.negatives
    operands = (block.values, references, t), *of_anchors, *squares
    return _positives.sum_over(pair, near, masks, operands)

  return terms


def _pair(index: Array, masks: tuple[Array, Array], operands: tuple) -> Array:
  """[rows]: the loss of one positive pair of each row."""
  against = _against(index, *operands)
  loss = _numerics.softplus(_selection.logsumexp_over(against, masks[1]))
  return _weighted(loss, index, masks[0])


def _hinged_pair(index: Array, masks: tuple[Array, Array], operands: tuple) -> Array:
  """[rows]: the sum of the hinges of one positive pair of each row."""
  operands, of_anchors, squares = operands
  t = operands[2]
  of_partners = _batch.take_rows(squares, jnp.minimum(index, len(squares) - 1))
  constant = (1 - t) * (of_anchors + of_partners)[:, None] - 4 * t * squares[None]
  loss, _ = _selection.hinges(_against(index, operands) + constant, masks[1])
  return _weighted(loss, index, masks[0])


def _against(index: Array, operands: tuple) -> Array:
  """[rows, references]: f of one positive of each row and every negative."""
  values, references, t = operands
  partners = jnp.minimum(index, values.shape[1] - 1)
  if references is None:
    of_partners = _batch.take_rows(values, partners)
  else:
    of_partners = _batch.dot(_batch.take_rows(references, partners), references)
  near = _positives.pick(values, index)
  return 4 * t * (values + of_partners) - 2 * (1 + t) * near


def _weighted(loss: Array, index: Array, positives: Array) -> Array:
  """[rows]: the weighted loss of the pair; 0 where a row has no positive left."""
  weight = _positives.pick(positives.astype(loss.dtype), index)[:, 0]
  return jnp.where(_positives.exists(index, positives), weight * loss, 0)
