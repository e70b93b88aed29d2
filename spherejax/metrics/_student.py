"""Upper tails of Student's and the normal distribution, on a logarithmic scale."""

import jax
import jax.numpy as jnp
from jax import Array

# Levels of the continued fraction. It needs about the root of half the degrees of
# freedom; this is enough for a million of them.
_LEVELS = 1000


def log_normal_survival(t: Array) -> Array:
  """Log P(Z > t) of a standard normal Z."""
  return jax.scipy.special.log_ndtr(-t)


def log_student_survival(t: Array, freedom: Array) -> Array:
  """Log P(T > t) of Student's T; exact where the probability itself underflows.

  With x = freedom / (freedom + t^2) both tails together have the probability
  I_x(freedom / 2, 1 / 2). Its factor is written without differences of large
  logarithms. The continued fraction is taken of I_x or I_{1 - x}, whichever converges.
  """
  size = jnp.minimum(jnp.abs(t), jnp.finfo(t.dtype).max ** 0.5)
  ratio = size**2 / freedom
  a, half = freedom / 2, jnp.full_like(t, 0.5)
  # y = 1 - x; log(x^a y^(1/2) / B(a, 1/2)) without its y^(1/2).
  x, y = 1 / (1 + ratio), ratio / (1 + ratio)
  log_factor = -a * jnp.log1p(ratio) + _log_gamma_step(a) - jnp.log(jnp.pi) / 2
  far = x < (a + 1) / (a + 2.5)
  safe_x, safe_y = jnp.where(far, x, 0), jnp.where(far, 0, y)
  outer = log_factor + jnp.log(y) / 2 - jnp.log(a) - jnp.log(_fraction(a, half, safe_x))
  inner = 2 * jnp.exp(log_factor) * jnp.sqrt(y) / _fraction(half, a, safe_y)
  one_tail = jnp.where(far, outer - jnp.log(2), jnp.log((1 - inner) / 2))
  one_tail = jnp.where(jnp.isposinf(jnp.abs(t)), -jnp.inf, one_tail)
  return jnp.where(t >= 0, one_tail, jnp.log1p(-jnp.exp(one_tail)))


def _log_gamma_step(a: Array) -> Array:
  """log(Gamma(a + 1/2) / Gamma(a)); lgamma's difference loses digits for large a."""
  large = jnp.maximum(a, 8)
  series = jnp.log(large) / 2 - (
    (1 / 8 - (1 / 192 - (1 / 640 - 17 / 14336 / large**2) / large**2) / large**2)
    / large
  )
  small = jnp.minimum(a, 8)
  exact = jax.scipy.special.gammaln(small + 0.5) - jax.scipy.special.gammaln(small)
  return jnp.where(a > 8, series, exact)


def _fraction(a: Array, b: Array, x: Array) -> Array:
  """1 + d_1 / (1 + d_2 / ...) of the incomplete beta function, from its end.

  Abramowitz and Stegun 26.5.8.
  """

  def level(number: Array, below: Array) -> Array:
    m = jnp.asarray(_LEVELS - number, x.dtype)
    even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
    odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
    return 1 + even / (1 + odd / below)

  below = jax.lax.fori_loop(0, _LEVELS, level, jnp.ones_like(x))
  return 1 - (a + b) / (a + 1) * x / below
