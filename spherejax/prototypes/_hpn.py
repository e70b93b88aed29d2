"""Prototypes by descent on their largest cosines, and from vectors of the classes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Key

from spherejax import _checks, _numerics
from spherejax.prototypes import _closed_forms, _potential

_RATE = 0.1
# Up to _ALL_TRIPLETS classes all triplets are used; for more, _DRAWS C^2 are drawn per
# step.
_ALL_TRIPLETS = 20
_DRAWS = 10


def hpn_prototypes(
  key: Key[Array, ""],
  num_classes: int,
  dim: int,
  *,
  vectors: Float[ArrayLike, "classes size"] | None = None,
  steps: int = 1000,
) -> Float[Array, "num_classes dim"]:
  """Prototypes of hyperspherical prototype networks (HPN).

  Gradient descent at rate 0.1, with rows normalised after each step, minimises

      L = mean_i max_{j != i} <p_i, p_j>

  or, with vectors w of the classes' names or meanings, L plus the ranking loss

      mean over triplets of different classes i, j, k of
        -s log(sigmoid(o)) - (1 - s) log(1 - sigmoid(o)),
      o = <p_i, p_j> - <p_i, p_k>,   s = 1 if cos(w_i, w_j) >= cos(w_i, w_k) else 0

  over all triplets for up to 20 classes; for more classes, over 10 C^2 triplets drawn
  in every step. The prototypes of `uniform_prototypes` are farther apart.

  Args:
    key: typed key of the start, and of the triplets.
    num_classes: C. Static.
    dim: length of a prototype. Static.
    vectors: [classes, size], floating, one for each class; only the order of their
      cosines matters. None uses the first term alone.
    steps: of the descent; 1000 in the paper, 10000 in its released code. Static.

  Returns:
    [num_classes, dim], unit rows, float32 (float64 under x64).

  Raises:
    TypeError: sizes or steps that are not static integers, vectors not floating.
    ValueError: a size or steps below 1, more than 2 classes in one dimension, or not
      one vector per class.

  Not differentiable. Cost: O(steps C^2 dim) time, with drawn triplets O(C^2) memory.

  Source: Mettes et al. 2019, "Hyperspherical prototype networks", eqs. 4 and 6; DL2P
  4.2. The released code ranks differently: by nearest neighbours and far pairs.

  Example:
    >>> points = spherejax.prototypes.hpn_prototypes(
    ...   jax.random.key(0), 4, 3, steps=200
    ... )
    >>> round(float(spherejax.prototypes.prototype_quality(points).max), 1)
    -0.3
  """
  _closed_forms.check_sizes(num_classes, dim)
  _checks.count("steps", steps)
  _checks.key("key", key)
  near = None
  if vectors is not None:
    vectors = _checks.array("vectors", vectors, "floating", rank=2)
    expected = (num_classes, vectors.shape[1])
    _checks.shape("vectors", vectors, expected, f"{num_classes} classes")
    rows = _numerics.normalize(_numerics.upcast(vectors))
    near = _numerics.product(rows, rows.T)
  if num_classes == 1 or dim == 1:
    return _closed_forms.simplex(key, num_classes, dim)
  return _descend(key, num_classes, dim, near, steps)


def vector_prototypes(
  vectors: Float[ArrayLike, "classes size"], dim: int
) -> Float[Array, "classes dim"]:
  """Normalised vectors of the classes, reduced to `dim` components if they have more.

  Vectors with more than `dim` components are centred and projected on their `dim`
  leading principal axes, each oriented so that its largest coefficient is positive.
  Shorter vectors are filled with zeros, and so are components beyond the rank of the
  centred vectors.

  Args:
    vectors: [classes, size], floating, such as word vectors of the classes' names.
    dim: length of a prototype. Static.

  Returns:
    [classes, dim], unit rows, dtype of `vectors`. A zero vector, or one that the
    projection loses, stays zero; equal vectors give equal prototypes.

  Raises:
    TypeError: vectors not floating, dim not a static integer.
    ValueError: vectors not a matrix, dim below 1.

  Not differentiable. Cost: O(classes size min(classes, size)).

  Source: DL2P 4.2, the word-vector baseline; Mettes et al. 2019. Neither says how
  vectors are shortened.

  Example:
    >>> vectors = jnp.array([[2.0, 0.0, 1.0], [0.0, 0.0, 1.0], [-2.0, 0.0, 1.0]])
    >>> spherejax.prototypes.vector_prototypes(vectors, 1)
    Array([[ 1.],
           [ 0.],
           [-1.]], dtype=float32)
  """
  vectors = _checks.array("vectors", vectors, "floating", rank=2)
  _checks.count("dim", dim)
  return _shorten(jax.lax.stop_gradient(vectors), dim)


@functools.partial(jax.jit, static_argnums=1)
def _shorten(vectors: Array, dim: int) -> Array:
  rows = _numerics.upcast(vectors)
  if rows.shape[1] > dim:
    rows = _principal_parts(rows - jnp.mean(rows, axis=0, keepdims=True))[:, :dim]
  rows = jnp.pad(rows, ((0, 0), (0, dim - rows.shape[1])))
  return _numerics.normalize(rows).astype(vectors.dtype)


def _principal_parts(rows: Array) -> Array:
  """[n, min(n, size)]: coordinates along the principal axes, largest first."""
  _, sizes, axes = jnp.linalg.svd(rows, full_matrices=False)
  chosen = jnp.argmax(jnp.abs(axes), axis=1, keepdims=True)
  axes *= jnp.where(jnp.take_along_axis(axes, chosen, axis=1) < 0, -1, 1)
  parts = _numerics.product(rows, axes.T)
  # Normalising would turn coordinates of rounding noise into directions.
  noise = max(rows.shape) * jnp.finfo(rows.dtype).eps * jnp.max(sizes, initial=0)
  flat = (sizes <= noise)[None] | (jnp.abs(parts) <= noise)  # NaN stays NaN
  return jnp.where(flat, 0, parts)


@functools.partial(jax.jit, static_argnums=(1, 2, 4))
def _descend(
  key: Array, num_classes: int, dim: int, near: Array | None, steps: int
) -> Array:
  start, draws = jax.random.split(key)
  everything = num_classes <= _ALL_TRIPLETS

  def loss(rows: Array, number: Array) -> Array:
    products = _numerics.product(rows, rows.T)
    others = jnp.where(jnp.eye(num_classes, dtype=bool), -jnp.inf, products)
    closest = jnp.argmax(jax.lax.stop_gradient(others), axis=1, keepdims=True)
    value = jnp.mean(jnp.take_along_axis(products, closest, axis=1))
    if near is None or num_classes < 3:
      return value
    if everything:
      triplets = _all_triplets(num_classes)
    else:
      triplets = _draw_triplets(jax.random.fold_in(draws, number), num_classes)
    return value + _ranking(products, near, *triplets)

  def step(rows: Array, number: Array) -> tuple[Array, None]:
    gradient = _potential.along_sphere(rows, jax.grad(loss)(rows, number))
    return _numerics.normalize(rows - _RATE * gradient), None

  rows = _numerics.normalize(jax.random.normal(start, (num_classes, dim)))
  return jax.lax.scan(step, rows, jnp.arange(steps))[0]


def _ranking(products: Array, near: Array, i: Array, j: Array, k: Array) -> Array:
  """Mean cross-entropy of the order of two products, over triplets (i, j, k)."""
  lead = products[i, j] - products[i, k]
  sign = jnp.where(near[i, j] >= near[i, k], 1, -1).astype(lead.dtype)
  return jnp.mean(_numerics.softplus(-sign * lead))


def _all_triplets(number: int) -> tuple[Array, Array, Array]:
  """Indices (i, j, k) of all triplets of different entries."""
  i, j, k = (axis.ravel() for axis in np.indices((number,) * 3))
  different = (i != j) & (i != k) & (j != k)
  i, j, k = np.stack([i, j, k])[:, different]
  return jnp.asarray(i), jnp.asarray(j), jnp.asarray(k)


def _draw_triplets(key: Array, number: int) -> tuple[Array, Array, Array]:
  """Uniform (i, j, k) of three different entries."""
  whole, less, least = jax.random.split(key, 3)
  shape = (_DRAWS * number**2,)
  i = jax.random.randint(whole, shape, 0, number)
  j = jax.random.randint(less, shape, 1, number)
  k = jax.random.randint(least, shape, 1, number - 1)
  k += k >= j
  return i, (i + j) % number, (i + k) % number
