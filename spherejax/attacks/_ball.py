"""Norm balls: uniform draws, steepest directions, and points certain to be inside."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float, Integer, Real

from spherejax import _checks, _compiled, _numerics
from spherejax.distances._lp import Norm


def uniform_ball(
  key: Array,
  shape: tuple[int, ...],
  *,
  norm: Norm = "l2",
  dtype: DTypeLike = jnp.float32,
) -> Float[Array, "..."]:
  """Draws a point uniformly from the unit ball of a norm.

      linf: u_i          l2: u^(1/n) g / |g|_2          l1: s_i e_i / sum_{j <= n+1} e_j

  with u uniform, g normal, e exponential and s fair signs, n entries.

  Args:
    key: a typed PRNG key; many draws by vmap over keys.
    shape: static. Shape of the point; the norm is over all its entries.
    norm: "linf", "l2" or "l1". Static.
    dtype: floating. Static.

  Returns:
    A point of that shape. |point|^n is uniform on [0, 1].

  Raises:
    TypeError: key not a key of jax.random, shape not integers, dtype not floating.
    ValueError: an unknown norm.

  Differentiable in: nothing. Cost: O(n).

  Source: Barthe et al. 2005, "A probabilistic approach to the geometry of the l_p^n
  ball", theorem 1, for p = 1, 2 and infinity.

  Example:
    >>> draw = spherejax.attacks.uniform_ball(jax.random.key(0), (3,), norm="l1")
    >>> bool(jnp.sum(jnp.abs(draw)) < 1)
    True
  """
  _checks.key("key", key)
  _checks.one_of("norm", norm, Norm)
  _checks.counts("shape", shape, 0)
  _checks.floating_type("dtype", dtype)
  size = math.prod(shape)
  if norm == "linf":
    return jax.random.uniform(key, shape, dtype, -1, 1)
  first, second = jax.random.split(key)
  if norm == "l2":
    direction = _numerics.normalize(jax.random.normal(first, (size,), dtype))
    radius = jax.random.uniform(second, (), dtype) ** (1 / max(size, 1))
    return (radius * direction).reshape(shape)
  pieces = jax.random.exponential(first, (size + 1,), dtype)
  signs = jax.random.rademacher(second, (size,), dtype)
  return (signs * pieces[:-1] / jnp.sum(pieces)).reshape(shape)


def steepest_ascent(
  gradient: Float[ArrayLike, "*shape"],
  *,
  norm: Norm = "l2",
  count: Integer[ArrayLike, ""] = 1,
) -> Float[Array, "*shape"]:
  """Direction of norm 1 with the largest inner product with a gradient.

      linf: sign(g)     l2: g / |g|_2     l1: sign(g_i) / count on the largest |g_i|

  Args:
    gradient: one gradient, floating, of any shape; many by vmap. An entry that is not
      finite counts as 0.
    norm: "linf", "l2" or "l1", over all entries. Static.
    count: for l1, at least 1, may be traced: exactly `count` entries share the step;
      among equal entries the first. 1 is the steepest; attacks take more.

  Returns:
    The direction, shape and dtype of `gradient`; zeros for a zero gradient.

  Raises:
    TypeError: gradient not floating.
    ValueError: an unknown norm, or a static count below 1.

  Differentiable in: nothing. Cost: O(entries).

  Source: the duality of norms; for l1 with more entries Tramèr and Boneh 2019,
  "Adversarial training and robustness for multiple perturbations".

  Example:
    >>> spherejax.attacks.steepest_ascent(jnp.array([3.0, -4.0]), norm="l1")
    Array([ 0., -1.], dtype=float32)
  """
  gradient = _checks.array("gradient", gradient, "floating")
  _checks.one_of("norm", norm, Norm)
  _checks.between("count", count, 1)
  wide = jax.lax.stop_gradient(_numerics.upcast(gradient))
  wide = jnp.where(jnp.isfinite(wide), wide, 0)
  if norm == "linf":
    step = jnp.sign(wide)
  elif norm == "l2":
    step = _numerics.normalize(wide.ravel()).reshape(wide.shape)
  else:
    chosen = largest(jnp.abs(wide).ravel(), _checks.array("count", count)).reshape(
      wide.shape
    )
    step = jnp.where(chosen, jnp.sign(wide), 0) / jnp.asarray(count, wide.dtype)
  return step.astype(gradient.dtype)


def largest(sizes: Array, count: Array) -> Array:
  """Mask of the `count` largest of [n] nonnegative entries; the first among equals.

  The smallest of them is found by bisection over the bits of the floating type, which
  are ordered like the numbers. This is many times faster than sorting.
  """
  width = jnp.finfo(sizes.dtype).bits
  integers = jnp.int64 if width == 64 else jnp.int32
  bits = jax.lax.bitcast_convert_type(sizes, integers)

  def refine(place, threshold):
    raised = threshold | (
      jnp.ones((), integers) << (width - 2 - place).astype(integers)
    )
    return jnp.where(jnp.sum(bits >= raised) >= count, raised, threshold)

  start = _numerics.varying(jnp.zeros((), integers), sizes, count)
  threshold = jax.lax.fori_loop(0, width - 1, refine, start)
  above, equal = bits > threshold, bits == threshold
  return above | (equal & (jnp.cumsum(equal) <= count - jnp.sum(above)))


def safe_norm(delta: Array, norm: Norm) -> Array:
  """Norm with a relative error of at most (log2 n + 8) units of rounding.

  Halves are added until a single number is left; no compiler changes this order.
  """
  sizes = jnp.abs(delta).ravel()
  top = jnp.max(sizes, initial=0)
  if norm == "linf":
    return top
  scale = jnp.where(top > 0, top, 1)
  terms = sizes / scale
  terms = terms**2 if norm == "l2" else terms
  width = 1 << max(0, (len(terms) - 1)).bit_length()
  terms = jnp.pad(terms, (0, width - len(terms)))
  while width > 1:
    width //= 2
    terms = terms[:width] + terms[width:]
  total = jnp.sqrt(terms[0]) if norm == "l2" else terms[0]
  return total * scale


def sizes(moves: Array, norm: Norm) -> Array:
  """[batch]: the norms of moves [batch, n]."""
  return jax.vmap(lambda move: safe_norm(move, norm))(moves)


def toward(start: Array, delta: Array) -> Array:
  """Point start + delta, rounded so that its distance is exactly at most |delta|."""
  end = start + delta
  # The difference rounds to less than |delta| only if it is less.
  sure = jnp.abs(end - start) < jnp.abs(delta)
  return jnp.where(sure | (delta == 0), end, jnp.nextafter(end, start))


def _down(dtype: DTypeLike, value: ArrayLike) -> tuple[np.ndarray]:
  """Converts the values to a type and rounds none of them up."""
  exact = np.asarray(value).astype(np.float64)
  near = exact.astype(dtype)
  return (np.where(near > exact, np.nextafter(near, 0, dtype=dtype), near),)


def radii(
  epsilon: ArrayLike, shape: tuple[int, ...], dtype: DTypeLike, name: str = "epsilon"
) -> Array:
  """Broadcasts radii to a shape; known radii are checked and rounded down.

  A point within the rounded radius is also within the given number, for which float32
  may have only a larger neighbour: 0.1, for example.
  """
  _checks.expect(name, _checks.array(name, epsilon), "real")
  _checks.not_negative(name, epsilon)
  rounded = _compiled.derived(functools.partial(_down, dtype), epsilon)
  epsilon = epsilon if rounded is None else rounded[0]
  radius = jax.lax.stop_gradient(_checks.array(name, epsilon).astype(dtype))
  if radius.ndim:
    _checks.shape(name, radius, shape, "the batch")
  return jnp.broadcast_to(radius, shape)


def seal(
  point: Float[ArrayLike, "*shape"],
  center: Float[ArrayLike, "*shape"],
  epsilon: Real[ArrayLike, ""],
  *,
  norm: Norm = "l2",
  low: Real[ArrayLike, "..."] = -jnp.inf,
  high: Real[ArrayLike, "..."] = jnp.inf,
) -> Float[Array, "*shape"]:
  """Moves a point into ball and box so that it lies there in exact arithmetic.

      |float64(point) - float64(center)|_p <= float64(epsilon),   low <= point <= high

  without tolerance, however entries and sums are rounded, with any compiler. A point
  well inside moves by rounding alone; a point outside is scaled towards the centre (l1,
  l2) or clipped (linf).

  Args:
    point: floating, of any shape; many by vmap.
    center: the shape of `point`, inside the box.
    epsilon: at least 0, may be traced.
    norm: "linf", "l2" or "l1", over all entries. Static.
    low: broadcasts to `center`; may be traced.
    high: likewise.

  Returns:
    The point, shape of `point`, in float32 (float64 for float64). Half precision has
    too few digits to stay near a small ball's surface; use `round_inside` for it. A
    point that is not finite becomes the centre.

  Raises:
    TypeError: point or center not floating.
    ValueError: shapes differ, an unknown norm, or a static epsilon below 0.

  Differentiable in: nothing. Cost: O(entries).

  Source: bounds of pairwise summation, Higham 2002, "Accuracy and stability of
  numerical algorithms", section 4.2.

  Example:
    >>> center = jnp.full(1000, 0.7)
    >>> point = spherejax.attacks.seal(center + 0.1, center, 0.1, norm="linf")
    >>> bool(jnp.all(point - center <= 0.1))
    True
  """
  point = _checks.array("point", point, "floating")
  center = _checks.array("center", center, "floating")
  _checks.limits(low, high, point.shape)
  _checks.shape("center", center, point.shape, "the point")
  _checks.one_of("norm", norm, Norm)
  _checks.between("epsilon", epsilon, 0)
  wide, middle = (jax.lax.stop_gradient(_numerics.upcast(x)) for x in (point, center))
  radius = radii(epsilon, (), wide.dtype)
  wide = jnp.where(jnp.isfinite(wide), wide, middle)
  if norm == "linf":
    least = jnp.minimum(jnp.nextafter(middle - radius, jnp.inf), middle)
    most = jnp.maximum(jnp.nextafter(middle + radius, -jnp.inf), middle)
    return jnp.clip(jnp.clip(wide, least, most), low, high)
  delta = wide - middle
  unit = jnp.finfo(wide.dtype).eps / 2
  slack = 2 * unit * (math.ceil(math.log2(max(wide.size, 2))) + 8)
  size = safe_norm(delta, norm)
  shrink = jnp.minimum(1, _numerics.divide(radius * (1 - slack), size))
  delta = delta * jnp.where(size > 0, shrink, 1)
  return jnp.clip(toward(middle, delta), low, high)


def round_inside(
  point: Float[ArrayLike, "*shape"],
  center: Float[ArrayLike, "*shape"],
  *,
  dtype: DTypeLike,
) -> Float[Array, "*shape"]:
  """Rounds a point to a shorter type, each entry towards a centre of that type.

  The point stays inside balls around the centre and boxes: if they contain a point,
  they contain every point that lies between it and the centre in each entry. Rounding
  costs budget: in 3072 dimensions, bfloat16 leaves about nine tenths of an l2 ball of
  radius 0.5.

  Args:
    point: floating, any shape.
    center: the shape of `point`; must be representable in `dtype`.
    dtype: bfloat16 or float16. Static.

  Returns:
    The point in `dtype`.

  Raises:
    TypeError: point or center not floating.
    ValueError: shapes differ.

  Differentiable in: nothing. Cost: O(entries).

  Source: none.

  Example:
    >>> point, center = jnp.array([1.001]), jnp.array([1.0])
    >>> spherejax.attacks.round_inside(point, center, dtype=jnp.bfloat16)
    Array([1], dtype=bfloat16)
  """
  point = _checks.array("point", point, "floating")
  center = _checks.array("center", center, "floating")
  _checks.shape("center", center, point.shape, "the point")
  _checks.floating_type("dtype", dtype)
  wide, middle = (jax.lax.stop_gradient(_numerics.upcast(x)) for x in (point, center))
  short = wide.astype(dtype)
  outside = jnp.abs(short.astype(wide.dtype) - middle) > jnp.abs(wide - middle)
  return jnp.where(outside, jnp.nextafter(short, middle.astype(dtype)), short)
