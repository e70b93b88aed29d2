"""Effect of a network's updates on its embeddings."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from spherejax import _checks, _numerics

Centre = Literal["points", "features"]
Representative = Literal["mean", "nearest"]


class EmbeddingChange(NamedTuple):
  """Diagnostics of an update; NaN where undefined.

  Attributes:
    norm_ratio: phi in [0, 1], the share of the change that no scaling explains; 1 where
      `scaling` is 1.
    scaling: alpha, the best factor from the old embedding to the new one.
    own_ratio: psi_con, geometric mean of the new over the old distance from a query to
      its class.
    other_ratio: psi_div, the same for the distances to the other classes.
    con_alpha: psi_con / alpha; proper below 1.
    div_alpha: psi_div / alpha; proper above 1.
    con_div: psi_con / psi_div; proper below 1.
    left_out: number of pairs of a query and a class with a distance of 0 before or
      after; the geometric means leave them out.
  """

  norm_ratio: Float[Array, ""]
  scaling: Float[Array, ""]
  own_ratio: Float[Array, ""]
  other_ratio: Float[Array, ""]
  con_alpha: Float[Array, ""]
  div_alpha: Float[Array, ""]
  con_div: Float[Array, ""]
  left_out: Int[Array, ""]


def embedding_change(
  before: Float[ArrayLike, "ways rows dim"],
  after: Float[ArrayLike, "ways rows dim"],
  *,
  num_shots: int,
  centre: Centre = "points",
  representative: Representative = "mean",
) -> EmbeddingChange:
  """Measures how an update scales an episode, contracts classes and separates them.

      alpha = <X, X'> / |X|^2,    phi = |X' - alpha X| / |X' - X|    (centred X, X')
      psi_yj = d(z'_j, p'_y) / d(z_j, p_y)    (p from the old, p' from the new supports)
      psi_con: geometric mean over the pairs with y = y_j;    psi_div: over the others

  Args:
    before: [ways, rows, dim], floating: the supports of each class, then its queries,
      embedded before the update.
    after: the same images, embedded after it.
    num_shots: static, below rows. Supports of each class.
    centre: "points" subtracts the mean of all points, as the article defines phi and
      alpha; "features" subtracts from each point the mean of its own entries, as in the
      released code that made the article's tables. Static.
    representative: "mean" of the supports, or the "nearest" support, which is chosen
      before the update and used after it too. Static.

  Returns:
    EmbeddingChange of scalars. phi is NaN if the centred embeddings did not move or
    were all 0; con_alpha and div_alpha are NaN if alpha is not positive.

  Raises:
    TypeError: an array is not floating.
    ValueError: shapes do not match, no query is left, or an unknown name.

  Differentiable in: nothing (diagnostics). Cost: O(queries ways dim).

  Source: DIST II appendix C. There p_y has no time index; here p_y is recomputed after
  the update, since otherwise a mere scaling would not give con_alpha = div_alpha = 1.

  Example:
    >>> before = jnp.array([[[0.0], [2.0]], [[6.0], [5.0]]])
    >>> change = spherejax.metrics.embedding_change(before, 2 * before, num_shots=1)
    >>> change.scaling, change.con_alpha, change.norm_ratio
    (Array(2., dtype=float32), Array(1., dtype=float32), Array(0., dtype=float32))
  """
  old, new = _pair(before, after, num_shots)
  _checks.one_of("centre", centre, Centre)
  _checks.one_of("representative", representative, Representative)
  origin = (0, 1) if centre == "points" else 2
  x, y = (points - jnp.mean(points, origin, keepdims=True) for points in (old, new))
  moved = y - x
  size = jnp.sum(x**2)
  # alpha - 1 and X' - alpha X are computed from the move: near 1 their digits cancel.
  excess = _numerics.divide(jnp.sum(x * moved), size)
  ratio = _numerics.divide(_size(moved - excess * x), _size(moved))
  scaling = jnp.where(size > 0, 1 + excess, jnp.nan)
  norm_ratio = jnp.where((size > 0) & (_size(moved) > 0), ratio, jnp.nan)

  first, second = _distances(old, new, num_shots, representative)
  defined = ~((first <= 0) | (second <= 0))  # NaN stays NaN
  logs = jnp.log(jnp.where(defined, second, 1)) - jnp.log(jnp.where(defined, first, 1))
  same_class = jnp.eye(len(old), dtype=bool)[:, None, :]
  means = [_geometric_mean(logs, defined & mask) for mask in (same_class, ~same_class)]
  positive = jnp.where(scaling > 0, scaling, jnp.nan)
  ratios = (means[0] / positive, means[1] / positive, means[0] / means[1])
  dtype = _checks.array("before", before).dtype
  figures = [figure.astype(dtype) for figure in (norm_ratio, scaling, *means, *ratios)]
  return EmbeddingChange._make([*figures, jnp.sum(~defined, dtype=jnp.int32)])


def embedding_drift(
  before: Float[ArrayLike, "batch dim"],
  after: Float[ArrayLike, "batch dim"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, ""]:
  """Mean squared distance by which embeddings of the same images have moved.

      mean_i |f(x_i; theta_t) - f(x_i; theta_{t - steps})|^2

  A cross-batch memory (`losses.memory_update`) uses embeddings of earlier weights as
  current ones. This drift tells how far they are off: measure it on a few fixed images,
  over as many steps as the memory is old.

  Args:
    before: [batch, dim], floating; normalise it first where the loss does.
    after: [batch, dim], floating, of the same images.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    Scalar, dtype of `before`; NaN where nothing is kept.

  Raises:
    TypeError: an array is not floating, where not boolean.
    ValueError: shapes do not match.

  Differentiable in: before, after. Cost: O(batch dim).

  Source: Wang et al. 2020, "Cross-batch memory for embedding learning", its feature
  drift.

  Example:
    >>> before = jnp.array([[0.0, 0.0], [1.0, 0.0]])
    >>> after = jnp.array([[3.0, 4.0], [1.0, 1.0]])
    >>> spherejax.metrics.embedding_drift(before, after)
    Array(13., dtype=float32)
  """
  old, new = _checks.array("before", before), _checks.array("after", after)
  for name, array in (("before", old), ("after", new)):
    _checks.expect(name, array, "floating", rank=2)
  _checks.shape("after", new, old.shape, "before")
  mask = _checks.where_mask(where, (len(old),))
  wide = _numerics.upcast(old)
  moved = jnp.where(mask[:, None], new.astype(wide.dtype) - wide, 0)
  return (jnp.sum(moved**2) / jnp.sum(mask)).astype(old.dtype)


def _pair(before: ArrayLike, after: ArrayLike, num_shots: int) -> list[Array]:
  old, new = _checks.array("before", before), _checks.array("after", after)
  for name, array in (("before", old), ("after", new)):
    _checks.expect(name, array, "floating", rank=3)
  _checks.shape("after", new, old.shape, "before")
  _checks.count("num_shots", num_shots)
  if num_shots >= old.shape[1]:
    raise ValueError(
      f"num_shots must leave a query of the {old.shape[1]} rows of a class in before"
      f" {old.shape}, got {num_shots}"
    )
  wide = _numerics.upcast(old)
  unit = _numerics.unit(wide)  # no figure depends on it
  return [wide / unit, new.astype(wide.dtype) / unit]


def _size(x: Array) -> Array:
  return jnp.sqrt(jnp.sum(x**2))


def _distances(
  old: Array, new: Array, num_shots: int, representative: Representative
) -> list[Array]:
  """Distances [ways, queries, ways] of each query to each class, before and after."""
  pairs = []
  for points in (old, new):
    supports, queries = points[:, :num_shots], points[:, num_shots:]
    if representative == "mean":
      supports = jnp.mean(supports, axis=1, keepdims=True)
    differences = queries[:, :, None, None] - supports[None, None]
    pairs.append(jnp.sqrt(jnp.sum(differences**2, axis=-1)))
  nearest = jnp.argmin(pairs[0], axis=3, keepdims=True)
  return [jnp.take_along_axis(values, nearest, axis=3)[..., 0] for values in pairs]


def _geometric_mean(logs: Array, where: Array) -> Array:
  """Geometric mean; NaN of no values."""
  number = jnp.sum(where)
  mean = jnp.sum(jnp.where(where, logs, 0)) / jnp.maximum(number, 1)
  return jnp.where(number > 0, jnp.exp(mean), jnp.nan)
