"""Lie groups that act on representations: action, estimation and kernel."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics
from spherejax.metrics import _projector, _singular_values


def lie_action(
  generator: Float[ArrayLike, "dim dim"],
  vectors: Float[ArrayLike, "batch dim"],
  scales: Real[ArrayLike, " batch"],
  *,
  linear: bool = False,
) -> Float[Array, "batch dim"]:
  """Moves vectors along a one-parameter group.

      h_i' = exp(scale_i G) h_i,    or h_i + scale_i G h_i

  The error of the linear form is at most (scale |G|)^2 exp(|scale| |G|) |h| / 2, with
  |G| the largest singular value.

  Args:
    generator: [dim, dim], floating, G: [[0, -1], [1, 0]] rotates, the identity scales.
    vectors: [batch, dim], floating.
    scales: [batch], one for each vector.
    linear: static. True stops the exponential at its linear term.

  Returns:
    [batch, dim], dtype of `vectors`. NaN where the largest column sum of |scale_i G|,
    entry by entry, exceeds about 5e5.

  Raises:
    TypeError: generator or vectors not floating, linear not boolean.
    ValueError: shapes do not match.

  Differentiable in: generator, vectors, scales. Cost: O(batch dim^3), one exponential
  at a time; O(batch dim^2) if linear.

  Source: SSL appendix B.

  Example:
    >>> turn = jnp.array([[0.0, -1.0], [1.0, 0.0]])
    >>> x = jnp.array([[1.0, 0.0]])
    >>> spherejax.metrics.lie_action(turn, x, jnp.array([jnp.pi / 2])).round(3)
    Array([[-0.,  1.]], dtype=float32)
  """
  _checks.flag("linear", linear)
  generator = _checks.array("generator", generator, "floating")
  vectors = _checks.array("vectors", vectors, "floating", rank=2)
  batch, dim = vectors.shape
  _checks.shape("generator", generator, (dim, dim), f"vectors {vectors.shape}")
  dtype = _numerics.compute_dtype(jnp.promote_types(generator.dtype, vectors.dtype))
  scales = _checks.array("scales", scales).astype(dtype)
  _checks.shape("scales", scales, (batch,), f"vectors {vectors.shape}")
  matrix, rows = generator.astype(dtype), vectors.astype(dtype)
  if linear:
    moved = rows + scales[:, None] * _numerics.product(rows, matrix.T)
    return moved.astype(vectors.dtype)

  def act(step: tuple[Array, Array]) -> Array:
    scale, row = step
    return _numerics.product(jax.scipy.linalg.expm(scale * matrix), row)

  # Not by vmap: on a CPU, XLA solves many systems at once slowly.
  return jax.lax.map(act, (scales, rows)).astype(vectors.dtype)


def estimate_generator(
  first: Float[ArrayLike, "batch dim"],
  second: Float[ArrayLike, "batch dim"],
  *,
  scales: Real[ArrayLike, " batch"] | None = None,
  ridge: Real[ArrayLike, ""] = 0.0,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, "dim dim"]:
  """Estimates the generator that explains pairs of views best to first order.

      G = argmin sum_i |scale_i G h_i - (h_i' - h_i)|^2 + ridge |G|_F^2

  Among several solutions, G is the one of least norm. Pairs determine G only on the
  span of the first views; with fewer than dim independent views G is 0 on the rest.
  Without scales only the product of scale and generator can be estimated. For views
  exp(e G) h with a common scale e the estimate is exp(e G) - I, which is e G up to
  about (e |G|)^2 / 2.

  Args:
    first: [batch, dim], floating, h.
    second: [batch, dim], floating, h', row by row.
    scales: [batch], the strength of each pair; None takes 1 for all.
    ridge: at least 0; may be traced. A fixed effect needs a ridge proportional to |h|^2
      and to the number of pairs.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    [dim, dim], dtype of `first`; 0 where nothing is kept.

  Raises:
    TypeError: views not floating, where not boolean.
    ValueError: shapes do not match, no row, or a static ridge below 0.

  Differentiable in: nothing. Cost: O(batch dim min(batch, dim)).

  Source: SSL appendix B and D.5 (the linearised action). The estimate is not in the
  paper.

  Example:
    >>> x, turned = jnp.eye(2), jnp.array([[1.0, 0.1], [-0.1, 1.0]])
    >>> spherejax.metrics.estimate_generator(x, turned).round(3)
    Array([[ 0. , -0.1],
           [ 0.1,  0. ]], dtype=float32)
  """
  first = _checks.array("first", first, "floating", rank=2, empty=False)
  second = _checks.array("second", second, "floating")
  _checks.shape("second", second, first.shape, "first")
  _checks.between("ridge", ridge, 0)
  mask = _checks.where_mask(where, (len(first),))
  dtype = _numerics.compute_dtype(jnp.promote_types(first.dtype, second.dtype))
  ridge = _checks.scalar("ridge", ridge, dtype)
  before, after = first.astype(dtype), second.astype(dtype)
  moves = jnp.where(mask[:, None], after - before, 0)
  if scales is not None:
    scales = _checks.array("scales", scales).astype(dtype)
    _checks.shape("scales", scales, (len(first),), "the views")
    before = scales[:, None] * before
  before = jnp.where(mask[:, None], before, 0)
  left, values, right = _singular_values.thin_svd(before)
  noise = max(before.shape) * float(jnp.finfo(dtype).eps) * values[0]
  used = ~(values <= noise)  # this way round, NaN stays NaN
  # s / (s^2 + ridge), without squares of small singular values.
  inverse = _numerics.divide(
    jnp.ones_like(values), values + _numerics.divide(ridge, values)
  )
  factors = jnp.where(used, inverse, 0)
  along = _numerics.product(left.T, moves) * factors[:, None]
  return _numerics.product(along.T, right).astype(first.dtype)


def kernel_overlap(
  directions: Float[ArrayLike, "dim moves"],
  weights: Float[ArrayLike, "dim outputs"],
  *,
  threshold: Real[ArrayLike, ""] | None = None,
) -> Float[Array, ""]:
  """Share of the moves that lies in the kernel of a projector.

      overlap = |(I - Q Q^T) D|_F^2 / |D|_F^2

  where the columns of Q span those of the weights. With a generator G for D, the share
  is 1 iff weights^T G = 0. Then the projector maps exp(scale G) h and h to the same
  vector, for any scale. On given data, weights^T G h_i = 0 suffices to first order:
  take D = G H^T for the rows h_i of H.

  Args:
    directions: [dim, moves], floating: a generator [dim, dim], or moves as columns. The
      columns are weighted by their squared length.
    weights: [dim, outputs], floating, of the projector h -> weights^T h.
    threshold: in [0, 1); may be traced. Singular values of at most this share of the
      largest count as 0. None takes the larger side of the weights times the machine
      epsilon of the calculation (float32 or finer). Set it for weights that were
      rounded to half precision.

  Returns:
    Scalar in [0, 1], dtype of `directions`: 1 if weights^T D = 0, also when either of
    them is 0; 0 if the column space of the weights holds all of D.

  Raises:
    TypeError: arrays not floating.
    ValueError: shapes do not match, an empty axis of the weights, or a static
      threshold outside [0, 1).

  Differentiable in: nothing. Cost: O(dim outputs min(dim, outputs)
  + moves dim min(dim, outputs)).

  Source: SSL propositions 4.1 to 4.3, whose "Ker(W)" is that of weights^T.

  Example:
    >>> turn = jnp.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> w = jnp.array([[0.0], [0.0], [1.0]])
    >>> spherejax.metrics.kernel_overlap(turn, w)
    Array(1., dtype=float32)
  """
  directions = _checks.array("directions", directions, "floating", rank=2)
  weights = _checks.array("weights", weights, "floating", rank=2)
  _checks.shape(
    "weights", weights, (len(directions), weights.shape[1]), "the directions"
  )
  share = _projector.unexplained_variance(directions.T, weights, threshold=threshold)
  return jnp.where(jnp.all(directions == 0), 1, share).astype(directions.dtype)
