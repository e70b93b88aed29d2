"""Separation of prototypes, and bounds on how far apart they can be."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from spherejax import _checks, _numerics
from spherejax import distances as _distances


class PrototypeQuality(NamedTuple):
  """Cosines between different prototypes, the result of `prototype_quality`."""

  max: Float[Array, ""]
  """Cosine of the closest pair; the smaller, the better."""
  mean_of_maxima: Float[Array, ""]
  """Mean over the prototypes of the cosine with the closest other prototype."""
  min: Float[Array, ""]
  """Cosine of the farthest pair."""
  mean: Float[Array, ""]
  """Mean over all pairs; -1 / (C - 1) where the unit rows add to 0, never below."""


def prototype_quality(prototypes: Float[ArrayLike, "classes dim"]) -> PrototypeQuality:
  """Largest, mean largest, smallest and mean cosine between prototypes.

  `rankin_bound` and `levenshtein_bound` tell how small the largest cosine can be.

  Args:
    prototypes: [classes, dim], floating; rows are divided by their norm here (a zero
      row has cosine 0 with all).

  Returns:
    PrototypeQuality of scalars, dtype of `prototypes`. NaN for fewer than two rows.

  Raises:
    TypeError: prototypes not floating.
    ValueError: prototypes not a matrix.

  Differentiable in: prototypes; in a tie the first pair gets the gradient. Cost:
  O(classes^2 dim).

  Source: DL2P table 7, which has 0 on the diagonal, so its largest cosine is never
  below 0. Here a prototype is not compared with itself.

  Example:
    >>> square = jnp.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> spherejax.prototypes.prototype_quality(square)
    PrototypeQuality(max=Array(0., dtype=float32),
      mean_of_maxima=Array(0., dtype=float32), min=Array(-1., dtype=float32),
      mean=Array(-0.33333334, dtype=float32))
  """
  prototypes = _checks.array("prototypes", prototypes, "floating", rank=2)
  number = len(prototypes)
  if number < 2:
    nothing = jnp.full((), jnp.nan, prototypes.dtype)
    return PrototypeQuality(nothing, nothing, nothing, nothing)
  cosines = _distances.pairwise_cosine(_numerics.upcast(prototypes))
  pairs = ~jnp.eye(number, dtype=bool)
  # By their indices, so that the first of a tie gets the derivative.
  rivals = jnp.argmax(jnp.where(pairs, cosines, -jnp.inf), axis=1)
  closest = cosines[jnp.arange(number), rivals]
  mean = _numerics.masked_sum(cosines, pairs, None) / (number * (number - 1))
  parts = (
    closest[jnp.argmax(closest)],
    jnp.mean(closest),
    cosines.ravel()[jnp.argmin(jnp.where(pairs, cosines, jnp.inf))],
    mean,
  )
  return PrototypeQuality(*(part.astype(prototypes.dtype) for part in parts))


def rankin_bound(num_classes: int, dim: int) -> float:
  """Lower bound on the largest cosine of unit vectors.

      -1 / (C - 1) for C <= dim + 1,    0 for C >= dim + 2

  Attained for C <= 2 dim: by `simplex` and by `orthogonal_simplices`. For larger C the
  largest cosine is positive; `levenshtein_bound` bounds it from below.

  Args:
    num_classes: C.
    dim: length of a vector.

  Returns:
    A Python number; NaN for one class.

  Raises:
    TypeError: a size that is not an integer.
    ValueError: a size below 1.

  Cost: O(1), on the host.

  Source: Rankin 1955, "The closest packing of spherical caps in n dimensions".

  Example:
    >>> spherejax.prototypes.rankin_bound(5, 10)
    -0.25
  """
  _sizes(num_classes, dim)
  if num_classes == 1:
    return math.nan
  return -1 / (num_classes - 1) if num_classes <= dim + 1 else 0.0


def welch_bound(num_classes: int, dim: int) -> float:
  """Lower bound on the largest absolute cosine of unit vectors.

      sqrt((C - dim) / (dim (C - 1))) for C >= dim, else 0

  This bound is for codes, in which v and -v are alike. It does not hold for the largest
  cosine of prototypes: that of the cross-polytope is 0.

  Args:
    num_classes: C.
    dim: length of a vector.

  Returns:
    A Python number; NaN for one class.

  Raises:
    TypeError: a size that is not an integer.
    ValueError: a size below 1.

  Cost: O(1), on the host.

  Source: Welch 1974, "Lower bounds on the maximum cross correlation of signals".

  Example:
    >>> round(spherejax.prototypes.welch_bound(6, 3), 6)  # the icosahedron's axes
    0.447214
  """
  _sizes(num_classes, dim)
  if num_classes == 1:
    return math.nan
  return math.sqrt(max(num_classes - dim, 0) / (dim * (num_classes - 1)))


def levenshtein_bound(num_classes: int, dim: int) -> float:
  """Lower bound on the largest cosine of unit vectors, sharper for C > 2 dim.

      the least s with C <= dim (1 - s) (2 + (dim + 1) s) / (1 - dim s^2)

  over 0 <= s <= (sqrt(dim + 3) - 1) / (dim + 2), the largest s that the bound reaches;
  this s is the result for C >= dim (dim + 3) / 2. Attained by 5 classes in 2, 16 in 5
  and 27 in 6 dimensions. For C <= 2 dim it is `rankin_bound`.

  Args:
    num_classes: C.
    dim: length of a vector.

  Returns:
    A Python number; NaN for one class.

  Raises:
    TypeError: a size that is not an integer.
    ValueError: a size below 1.

  Cost: O(1), on the host.

  Source: Levenshtein 1979, "On bounds for packings in n-dimensional Euclidean space".

  Example:
    >>> round(spherejax.prototypes.levenshtein_bound(27, 6), 6)
    0.25
  """
  _sizes(num_classes, dim)
  if num_classes <= 2 * dim:
    return rankin_bound(num_classes, dim)
  # C (1 - dim s^2) = dim (1 - s) (2 + (dim + 1) s) as a quadratic in s.
  a = dim * (dim + 1) - num_classes * dim
  b = -dim * (dim - 1)
  c = num_classes - 2 * dim
  end = (math.sqrt(dim + 3) - 1) / (dim + 2)
  roots = [-c / b] if a == 0 and b != 0 else []
  if a != 0 and b * b >= 4 * a * c:
    root = math.sqrt(b * b - 4 * a * c)
    roots = [(-b - root) / (2 * a), (-b + root) / (2 * a)]
  return min([end, *(s for s in roots if 0 <= s <= end)])


def _sizes(num_classes: int, dim: int) -> None:
  _checks.count("num_classes", num_classes)
  _checks.count("dim", dim)
