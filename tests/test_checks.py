"""Numbers outside their range are named, one of an array too; traced ones pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import _checks


@pytest.mark.parametrize("kind", [np.array, jnp.array, jnp.bfloat16])
@pytest.mark.parametrize(
  ("wrong", "shown"), [(1.5, "1.5"), (-2, "-2"), (np.nan, "nan")]
)
def test_one_wrong_number_of_an_array_is_named(kind, wrong, shown):
  for values in (wrong, [0.5, wrong], [[0.5], [wrong]]):
    with pytest.raises(ValueError, match=rf"share must be in \[0, 1\], got {shown}$"):
      _checks.between("share", kind(values), 0, 1)


@pytest.mark.parametrize("values", [np.inf, [0.5, -np.inf]])
def test_numbers_must_be_finite(values):
  with pytest.raises(ValueError, match=r"rate must be in \(-inf, inf\), got -?inf"):
    _checks.between("rate", np.array(values))


def test_open_ends():
  _checks.between("share", np.array([0.0, 1.0]), 0, 1)
  with pytest.raises(ValueError, match=r"\(0, 1\], got 0"):
    _checks.between("share", np.array([1.0, 0.0]), 0, 1, low_open=True)
  with pytest.raises(ValueError, match=r"\[0, 1\), got 1"):
    _checks.between("share", np.array([0.0, 1.0]), 0, 1, high_open=True)


def test_traced_numbers_pass_and_text_does_not():
  jax.jit(lambda x: _checks.between("share", x, 0, 1))(jnp.array([2.0]))
  with pytest.raises(TypeError, match="share must be a number, got 'half'"):
    _checks.between("share", "half", 0, 1)
