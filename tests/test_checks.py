"""Numbers outside their range are named, also inside an array; traced ones pass."""

from functools import partial as call

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import _checks
from tests import refusals

share = call(_checks.between, "share", low=0, high=1)
rate = call(_checks.between, "rate")
widths = call(_checks.counts, "widths")
PAIR = r"TypeError: scale must be a pair \(low, high\), got "


@pytest.mark.parametrize("kind", [np.array, jnp.array, jnp.bfloat16])
@pytest.mark.parametrize(
  ("wrong", "shown"), [(1.5, "1.5"), (-2, "-2"), (np.nan, "nan")]
)
def test_one_wrong_number_of_an_array_is_named(kind, wrong, shown):
  message = rf"share must be in \[0, 1\], got {shown}$"
  for values in (wrong, [0.5, wrong], [[0.5], [wrong]]):
    refusals.check(call(share, kind(values)), message)


WRONG = [
  (call(rate, np.array(np.inf)), r"rate must be in \(-inf, inf\), got -?inf"),
  (call(rate, np.array([0.5, -np.inf])), r"rate must be in \(-inf, inf\), got -?inf"),
  (call(share, np.array([1.0, 0.0]), low_open=True), r"\(0, 1\], got 0"),
  (call(share, np.array([0.0, 1.0]), high_open=True), r"\[0, 1\), got 1"),
  (call(share, "half"), "TypeError: share must be a number, got 'half'"),
  *(
    (call(check, "rate", value), f"TypeError: rate must be {message}")
    for check in (_checks.known_finite, _checks.not_negative)
    for value, message in (
      (1j, "a number, got 1j"),
      (np.complex64(1), "real numbers, got dtype complex"),
    )
  ),
  (call(_checks.share, "share", np.ones(2)),
   "TypeError: share must be a static number, got array"),
  (call(widths, "ab"), "TypeError: widths must be a sequence, got 'ab'"),
  (call(widths, 3), "TypeError: widths must be a sequence, got 3"),
  (call(widths, (8, 2.5)),
   r"TypeError: widths\[1\] must be a static integer, got 2\.5"),
  *(
    (call(_checks.interval, "scale", values), PAIR)
    for values in ("ab", 3, (), (1, 2, 3), np.float32(1))
  ),
  (call(_checks.limits, 0, np.array([1.0, np.nan])), "high must be a number, got nan"),
  (call(_checks.limits, "none", 1), "TypeError: low must be a number, got 'none'"),
  (call(_checks.function, "fn", 3), "TypeError: fn must be a function, got 3"),
  (call(_checks.instance, "tree", "animals", dict),
   "TypeError: tree must be a dict, got 'animals'"),
]  # fmt: skip


@refusals.table(WRONG)
def test_what_is_refused(call, message, unchecked):
  refusals.check(call, message)


def test_what_passes():
  share(np.array([0.0, 1.0]))
  widths((8, 16))
  _checks.limits(-np.inf, jnp.array([1.0, jnp.inf]))
  # Traced numbers have no values yet.
  jax.jit(share)(jnp.array([2.0]))
  jax.jit(lambda x: _checks.interval("scale", x))(jnp.ones(2))
  jax.jit(lambda x: _checks.interval("scale", (x, 2 * x)))(1.0)
