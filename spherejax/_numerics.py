"""Derivative-safe elementary functions and masked reductions.

Every function here has a finite value and a finite derivative on its whole
domain. The unsafe branch of a `where` gets a safe input, because the derivative
of the branch that is not taken is multiplied by zero, and 0 * inf is NaN.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.extend.core
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.typing import ArrayLike

_T = TypeVar("_T")

HALF_TYPES = (jnp.bfloat16, jnp.float16)

# Name of the values that a blockwise backward pass keeps: one number per row.
ROW_STATISTIC = "row statistic"


def compute_dtype(dtype: jnp.dtype) -> jnp.dtype:
  """float32 for half-precision types, the type itself otherwise."""
  return jnp.dtype(jnp.float32) if dtype in HALF_TYPES else jnp.dtype(dtype)


def upcast(x: Array) -> Array:
  """Half precision to float32; float32 and float64 stay."""
  return x.astype(compute_dtype(x.dtype))


def row_keys(key: ArrayLike, rows: Array) -> Array:
  """Keys [rows] whose draws depend on the key and the number of their row alone."""
  return jax.vmap(functools.partial(jax.random.fold_in, threefry(jnp.asarray(key))))(
    rows
  )


def threefry(key: Array) -> Array:
  """Converts a key of "rbg", whose draws depend on vmap, to one of threefry."""
  if key.dtype == jnp.uint32:
    words, is_threefry = key, len(key) == 2
  else:
    plain = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
    words = jax.random.key_data(key)
    is_threefry = key.dtype == plain.dtype
  if is_threefry:
    return key
  return jax.random.wrap_key_data(words[:2], impl="threefry2x32")


def rounding(dim: int, dtype: jnp.dtype) -> float:
  """Error of a squared distance computed by a product, relative to |x|^2 + |y|^2.

  For duplicates it grows as the square root of `dim`.
  """
  return (2 + dim**0.5 / 2) * float(jnp.finfo(dtype).eps)


def flat_rows(x: Array) -> Array:
  """Flattens [batch, ...] to [batch, entries], also for an empty batch."""
  return x.reshape(x.shape[0], math.prod(x.shape[1:]))


@jax.jit
def keep(x: Array, where: Array, otherwise: ArrayLike = 0) -> Array:
  """Selects `x` where True and a scalar elsewhere: `jnp.where` for use inside a loop.

  JAX moves loop-invariant values out of a loop, even a scalar broadcast to the shape of
  a block; every operation of every pass then reads it from memory. Here the scalar
  depends on the mask, and the compiler simplifies this away.
  """
  return jnp.where(where, x, (where & False).astype(x.dtype) + otherwise)


def sqrt(x: Array) -> Array:
  """Square root of x >= 0; value and derivative are 0 for x <= 0."""
  above = ~(x <= 0)  # this way round, NaN stays NaN
  return keep(jnp.sqrt(keep(x, above, 1)), above)


def log(x: Array) -> Array:
  """Logarithm of x > 0; -inf with derivative 0 for x <= 0."""
  above = ~(x <= 0)
  return keep(jnp.log(keep(x, above, 1)), above, -jnp.inf)


def power(x: Array, exponent: Array) -> Array:
  """Power x ** exponent for x > 0; value and derivatives are 0 for x <= 0."""
  above = ~(x <= 0)
  return keep(keep(x, above, 1) ** exponent, above)


def divide(numerator: Array, denominator: Array) -> Array:
  """Quotient; value and derivatives are 0 where the denominator is 0."""
  nonzero = denominator != 0
  return keep(numerator / keep(denominator, nonzero, 1), nonzero)


def largest_size(x: Array, axis: int) -> Array:
  """Largest absolute entry, 1 for a zero vector; not differentiated.

  It is bounded so that its reciprocal, by which compilers multiply, is finite.
  """
  largest = jnp.max(jnp.abs(x), axis=axis, keepdims=True, initial=0)
  largest = jnp.minimum(largest, 1 / float(jnp.finfo(x.dtype).tiny))
  return jax.lax.stop_gradient(jnp.where(largest == 0, 1, largest))


def unit(x: Array) -> Array:
  """Power of two about as large as the largest finite entry; 1 for zeros.

  Division by it rounds nothing. Not differentiated.
  """
  largest = largest_size(jnp.ravel(jnp.where(jnp.isfinite(x), x, 0)), 0)[0]
  return jnp.ldexp(jnp.ones_like(largest), jnp.frexp(largest)[1])


def shrinking(*arrays: Array, least: float | None = None, grow: bool = False) -> Array:
  """Power of two whose product with the arrays has finite sums of squares.

  It is 1 for arrays of usual size, so that no bit changes, and not below `least` (2^-46
  in float32), so that usual rows beside huge rows do not vanish. With `grow`, for
  results that are no squares, small arrays grow to about 1. Not differentiated.
  """
  dtype = jnp.result_type(*arrays)
  span = -int(jnp.finfo(dtype).minexp) // 126  # 1 in float32, 8 in float64
  count = sum(array.size for array in arrays)
  bound = (float(jnp.finfo(dtype).max) / (8 * max(count, 1))) ** 0.5
  sizes = [jnp.max(jnp.abs(x), initial=0, where=jnp.isfinite(x)) for x in arrays]
  largest = functools.reduce(jnp.maximum, sizes)
  excess = jnp.maximum(
    largest / bound, jnp.clip(largest, 2.0 ** (-96 * span), 1) if grow else 1
  )
  power = jnp.ldexp(jnp.ones((), dtype), -jnp.ceil(jnp.log2(excess)).astype(jnp.int32))
  least = 2.0 ** (-46 * span) if least is None else least
  return jax.lax.stop_gradient(jnp.maximum(power, least))


def norm(x: Array, axis: int = -1, keepdims: bool = False) -> Array:
  """Euclidean norm with derivative 0 at 0; neither overflows nor underflows."""
  size = largest_size(x, axis)
  scaled = sqrt(jnp.sum((x / size) ** 2, axis=axis, keepdims=True)) * size
  return scaled if keepdims else jnp.squeeze(scaled, axis)


@jax.custom_jvp
def normalize(x: Array) -> Array:
  """Unit vector x / |x|; value and derivative 0 at 0, for norms from 1e-37 to 1e37."""
  return _normalized(x)[0]


def _normalized(x: Array) -> tuple[Array, Array, Array]:
  """Unit vector x / |x|, and two factors of |x|, of which the second is a constant."""
  size = largest_size(x, -1)
  scaled = x / size
  length = sqrt(jnp.sum(scaled**2, axis=-1, keepdims=True))
  return divide(scaled, length), length, size


@normalize.defjvp
def _(primals: tuple[Array], tangents: tuple[ArrayLike]) -> tuple[Array, Array]:
  # Written by hand, since most losses use it: JAX's own derivative takes twice as long
  # to compile.
  unit, length, size = _normalized(*primals)
  change = jnp.asarray(tangents[0]) / size
  along = jnp.sum(unit * change, axis=-1, keepdims=True)
  return unit, divide(change - along * unit, length)


def logsumexp(
  x: Array, where: Array | None = None, axis: int = -1, keepdims: bool = False
) -> Array:
  """Log sum exp over the kept entries; -inf with derivative 0 over none.

  The maximum is taken over the kept entries only: a masked entry that is larger
  than all kept ones would otherwise make every kept exponential underflow.
  """
  mask = jnp.ones_like(x, bool) if where is None else where
  among = keep(x, mask, -jnp.inf)
  largest = jnp.max(among, axis, keepdims=True, initial=-jnp.inf)
  shift = jax.lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0))
  shift = checkpoint_name(shift, ROW_STATISTIC)
  mass = jnp.sum(keep(jnp.exp(keep(x - shift, mask)), mask), axis, keepdims=True)
  mass = checkpoint_name(mass, ROW_STATISTIC)
  total = log(mass) + shift
  return total if keepdims else jnp.squeeze(total, axis)


def log_softmax(x: Array, where: Array | None = None) -> Array:
  """Log-probabilities over the last axis, every entry to full relative accuracy.

  Masked entries are -inf, with derivative 0. The logarithm of the largest probability p
  is computed from the sum of the others. So it keeps its digits, as does its derivative
  1 - p, when p is nearly 1.
  """
  mask = jnp.ones_like(x, bool) if where is None else where
  x = keep(x, mask)
  index = jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
  largest = jnp.argmax(keep(x, mask, -jnp.inf), axis=-1, keepdims=True)
  first = index == largest
  # Exactly 0 at the largest: otherwise its cotangent would swallow those of the others.
  behind = keep(x - masked_sum(x, first)[..., None], ~first)
  rest = softplus(logsumexp(behind, mask & ~first, keepdims=True))
  return keep(behind - rest, mask, -jnp.inf)


def softplus(x: Array) -> Array:
  """log(1 + exp(x)); 0 with derivative 0 at -inf."""
  some = x != -jnp.inf
  return keep(jax.nn.softplus(keep(x, some)), some)


# Products without reduced-precision multiplications.
product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def masked_sum(x: Array, where: Array, axis: int | None = -1) -> Array:
  """Sum over the kept entries; masked entries may be NaN."""
  return jnp.sum(keep(x, where), axis=axis)


class AdamMoments(NamedTuple):
  """Moments of Adam: running means of a gradient and of its square."""

  mean: Array
  square: Array


def adam(
  gradient: Array, moments: AdamMoments, count: Array
) -> tuple[Array, AdamMoments]:
  """Direction of Adam's step number `count`, from 1, and the moments after it.

  The constants are 0.9, 0.999 and 1e-8 (Kingma and Ba 2015). This serves descents
  inside operators, which should not need an optimiser library. The caller subtracts the
  direction.
  """
  mean = 0.9 * moments.mean + (1 - 0.9) * gradient
  square = 0.999 * moments.square + (1 - 0.999) * gradient**2
  size = jnp.sqrt(square / (1 - 0.999**count)) + 1e-8
  return mean / (1 - 0.9**count) / size, AdamMoments(mean, square)


def varying_zero(*sources: Any) -> Array:
  """Returns a zero that varies over all mapped axes of the sources.

  A checked shard_map requires loops to start as they end, and derivatives to vary like
  their primals. The compiler removes the addition of the zero.
  """
  arrays = [x for x in jax.tree.leaves(sources) if isinstance(x, Array)]
  empty = [jnp.sum(jnp.atleast_1d(_numbers(x))[..., :0]) for x in arrays]
  return jax.lax.stop_gradient(functools.reduce(jnp.add, empty))


def _numbers(x: Array) -> Array:
  """The data of random keys; other arrays as they are."""
  is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
  return jax.random.key_data(x) if is_key else x


def varying(tree: _T, *sources: Any) -> _T:
  """Returns the tree; each leaf varies over the mapped axes of all leaves and sources.

  Use it for the start of a loop whose steps use the sources.
  """
  zero = varying_zero(tree, sources)

  def add(x: Any) -> Any:
    if jnp.issubdtype(jnp.result_type(x), jax.dtypes.prng_key):
      return jax.random.wrap_key_data(add(_numbers(x)), impl=jax.random.key_impl(x))
    return x + zero.astype(jnp.result_type(x))

  return jax.tree.map(add, tree)


def replicated(array: Array, axis_name: str | None) -> Array:
  """Tells `jax.shard_map` that all devices computed an equal array."""
  if axis_name is None:
    return array
  if array.dtype == jnp.bool_:
    return jax.lax.pmax(array.astype(jnp.int8), axis_name).astype(bool)
  return jax.lax.pmax(array, axis_name)


def either(
  predicate: Array, first: Callable[..., _T], second: Callable[..., _T], *operands: Any
) -> _T:
  """Returns the first or second function's value, as `jax.lax.cond` does.

  Under vmap, `jax.lax.cond` computes both for every element. Here each is computed only
  if an element needs it. Not differentiable in reverse mode.
  """
  shapes = jax.eval_shape(first, *operands)
  value = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
  for needed, function in ((predicate, first), (~predicate, second)):
    value = replace_if(needed, function, operands, value)
  return value


def replace_if(
  needed: Array, function: Callable[..., _T], operands: Sequence[Any], value: _T
) -> _T:
  """Returns function(*operands) if needed, otherwise the value, of the same shapes.

  Under vmap the function is computed only if an element needs it. Not differentiable in
  reverse mode.
  """
  compute, inputs = _without_closure(function, operands)

  def body(carry: tuple[Array, Array, _T]) -> tuple[Array, Array, _T]:
    needed, turn, _ = carry
    # Otherwise XLA moves the work, which no turn changes, out of the loop. A shared
    # barrier would return arrays that vary over the mapped axes of all inputs.
    barred = jax.tree.map(lambda x: jax.lax.optimization_barrier((turn, x))[1], inputs)
    return ~needed, turn + 1, varying(compute(barred), needed, inputs, value)

  needed, value = varying((needed, value), inputs)
  start = needed, jnp.int32(0), value
  return jax.lax.while_loop(lambda carry: carry[0], body, start)[2]


def _without_closure(
  function: Callable[..., _T], operands: Sequence[Any]
) -> tuple[Callable[[Any], _T], Any]:
  """Returns a function that closes over no traced array, and its argument."""
  closed, shapes = jax.make_jaxpr(function, return_shape=True)(*operands)
  structure = jax.tree.structure(shapes)

  def compute(inputs: Any) -> _T:
    constants, leaves = inputs
    call = jax.extend.core.jaxpr_as_fun(
      jax.extend.core.ClosedJaxpr(closed.jaxpr, constants)
    )
    return jax.tree.unflatten(structure, call(*leaves))

  return compute, (closed.consts, jax.tree.leaves(tuple(operands)))


def solve_definite(matrix: Array, right: Array) -> Array:
  """Solves matrix x = right, [n, k], for a symmetric positive definite [n, n].

  Use vmap for many. The derivative solves once more, and does not differentiate the
  factor.
  """
  matrix, right = varying((matrix, right))
  return jax.lax.custom_linear_solve(
    lambda x: product(matrix, x),
    right,
    lambda _, y: _by_cholesky(jax.lax.stop_gradient(matrix), y),
    symmetric=True,
  )


def solve_ridge(gram: Array, ridge: Array, right: Array) -> Array:
  """Solves (gram + ridge I) x = right, [n, k], for a Gram matrix [n, n].

  A ridge below the rounding errors of the Gram matrix is raised to them: the sum would
  not be positive definite.
  """
  errors = 10 * float(jnp.finfo(gram.dtype).eps) * jnp.trace(gram)
  diagonal = jnp.maximum(ridge, jax.lax.stop_gradient(errors))
  return solve_definite(gram + diagonal * jnp.eye(len(gram), dtype=gram.dtype), right)


def in_turn(function: Callable[..., Array]) -> Callable[..., Array]:
  """Makes `jax.vmap` compute a function of LAPACK element by element on a CPU.

  Two programs at once can deadlock in batched factorisations: each waits for threads
  that the other holds. XLA's batched triangular solver takes a hundred times as long as
  LAPACK's for single systems. Not differentiable in reverse mode.
  """
  single = jax.custom_batching.custom_vmap(function)

  @single.def_vmap
  def _(axis_size: int, batched: list[bool], *operands: Array) -> tuple[Array, bool]:
    arguments = [
      x if has else jnp.broadcast_to(x, (axis_size, *x.shape))
      for x, has in zip(operands, batched, strict=True)
    ]
    solved = jax.lax.platform_dependent(
      *arguments,
      cpu=lambda *batch: jax.lax.map(lambda element: single(*element), batch),
      default=jax.vmap(function),
    )
    return solved, True

  return single


solve = in_turn(jnp.linalg.solve)
triangle = in_turn(lambda matrix: jnp.linalg.qr(matrix, mode="r"))
_by_cholesky = in_turn(
  lambda matrix, right: jax.scipy.linalg.cho_solve(
    jax.scipy.linalg.cho_factor(matrix), right
  )
)
