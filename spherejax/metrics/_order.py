"""Exact order of references around queries: distances turned into integer keys.

Integers make the order total: NaN ranks behind every number, an excluded
reference behind NaN, and "closer, or equally close with a lower index" is the
single comparison `key < other + (index < other_index)`.
"""

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import _checks, _numerics

DISTANCES = ("squared_euclidean", "cosine", "dot")
HIGHEST = jax.lax.Precision.HIGHEST
_CENTRAL = 31  # references whose median is the origin


def check(queries: Array, references: Array, distance: str) -> None:
  """Raises unless both are floating matrices of one width and the name is known."""
  _checks.rank("queries", queries, 2)
  _checks.floating("queries", queries)
  _checks.rank("references", references, 2)
  _checks.floating("references", references)
  if references.shape[1] != queries.shape[1]:
    raise ValueError(
      f"references must have the {queries.shape[1]} columns of queries "
      f"{queries.shape}, got shape {references.shape}"
    )
  _checks.one_of("distance", distance, DISTANCES)


def prepare(x: Array, distance: str) -> Array:
  """Upcast rows, on the sphere for the cosine."""
  x = _numerics.upcast(x)
  return _numerics.normalize(x) if distance == "cosine" else x


def centred(
  queries: Array, references: Array, distance: str, kept: np.ndarray | None = None
) -> tuple[Array, Array]:
  """Both from an origin among the references, where only differences count.

  Far from it squares of lengths would drown what sets points apart. Each entry is one
  of a reference's, so that products of whole numbers stay exact and ties ties.
  """
  rows = np.arange(len(references)) if kept is None else np.flatnonzero(kept)
  if distance != "squared_euclidean" or not rows.size:
    return queries, references
  if any(isinstance(x, jax.core.Tracer) for x in (queries, references)):
    return _from_the_middle(queries, references, rows[:_CENTRAL])
  with jax.ensure_compile_time_eval():  # what is known stays so
    return _from_the_middle(queries, references, rows[:_CENTRAL])


@jax.jit
def _from_the_middle(
  queries: Array, references: Array, rows: Array
) -> tuple[Array, Array]:
  queries, references = map(_numerics.upcast, (queries, references))
  # An entry of a row, whatever the number of rows and with NaN among them.
  middle = jnp.nanquantile(references[rows], 0.5, axis=0, keepdims=True, method="lower")
  middle = jnp.where(jnp.isfinite(middle), middle, 0)
  return queries - middle, references - middle


def products(queries: Array, references: Array) -> Array:
  """[block, references]; all that is compared must come from ONE product."""
  return jnp.dot(queries, references.T, precision=HIGHEST)


def squares(x: Array, distance: str) -> Array:
  """[rows], what a distance needs of a row besides its products."""
  return jnp.sum(x**2, axis=1) if distance == "squared_euclidean" else jnp.zeros(len(x))


def last_key(dtype: jnp.dtype) -> int:
  """Key of an excluded reference; that of NaN is one below."""
  return int(jnp.iinfo(jnp.dtype(f"int{8 * dtype.itemsize}")).max)


def keys(product: Array, square: Array, distance: str) -> Array:
  """Signed integers in the order of the distances, NaN last.

  `square` is the sum of both rows' squares, of the shape of `product`.
  """
  apart = (
    jnp.maximum(square - 2 * product, 0)
    if distance == "squared_euclidean"
    else (-product)
  )
  width = 8 * apart.dtype.itemsize
  last = last_key(apart.dtype)
  bits = jax.lax.bitcast_convert_type(
    jnp.where(apart == 0, 0, apart),  # -0 ties with 0
    jnp.dtype(f"int{width}"),
  )
  # A negative float's magnitude bits grow as the float falls: flip them.
  ordered = bits ^ ((bits >> (width - 1)) & last)
  return jnp.where(jnp.isnan(apart), last - 1, ordered)
