"""Numbers outside their range are named, also inside an array; traced ones pass."""

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


def test_what_is_no_real_number_is_named():
  for check in (_checks.known_finite, lambda name, x: _checks.not_negative(name, x)):
    with pytest.raises(TypeError, match="rate must be a number, got 1j"):
      check("rate", 1j)
    with pytest.raises(TypeError, match="rate must be real numbers, got dtype complex"):
      check("rate", np.complex64(1))
  with pytest.raises(TypeError, match="share must be a static number, got array"):
    _checks.share("share", np.ones(2))


def test_sequences(unchecked):
  _checks.counts("widths", (8, 16))
  for wrong, message in (
    ("ab", r"widths must be a sequence, got 'ab'"),
    (3, r"widths must be a sequence, got 3"),
    ((8, 2.5), r"widths\[1\] must be a static integer, got 2\.5"),
  ):
    with pytest.raises(TypeError, match=message):
      _checks.counts("widths", wrong)


@pytest.mark.parametrize("wrong", ["ab", 3, (), (1, 2, 3), np.float32(1)])
def test_ranges_have_two_ends(wrong):
  with pytest.raises(TypeError, match=r"scale must be a pair \(low, high\), got "):
    _checks.interval("scale", wrong)


def test_ends_of_ranges_may_be_traced():
  jax.jit(lambda x: _checks.interval("scale", x))(jnp.ones(2))
  jax.jit(lambda x: _checks.interval("scale", (x, 2 * x)))(1.0)


def test_boxes_may_be_infinite():
  _checks.limits(-np.inf, jnp.array([1.0, jnp.inf]))
  with pytest.raises(ValueError, match="high must be a number, got nan"):
    _checks.limits(0, np.array([1.0, np.nan]))
  with pytest.raises(TypeError, match="low must be a number, got 'none'"):
    _checks.limits("none", 1)


def test_functions_and_instances():
  with pytest.raises(TypeError, match="fn must be a function, got 3"):
    _checks.function("fn", 3)
  with pytest.raises(TypeError, match="tree must be a dict, got 'animals'"):
    _checks.instance("tree", "animals", dict)
