"""Classifiers that decide by one function and take gradients from another."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from spherejax import _checks, _numerics


def with_decision(
  logits_fn: Callable[[Array], Array], decide: Callable[[Array], Array]
) -> Callable[[Array], Array]:
  """Returns scores that guide an attack while another function decides.

      z_c(x) = logits_fn(x)_c    except for c = decide(x), where it is the next number
                                 above all others if it is not above them already

  So the exact classifier, for instance the votes of k nearest neighbours, decides about
  success, while gradients come from its smooth scores: the amount by which the decided
  class's score is raised counts as a constant. Every attack takes the result as its
  model.

  Args:
    logits_fn: [batch, ...] to [batch, classes], differentiable. A score of +inf cannot
      be exceeded; NaN stays NaN.
    decide: [batch, ...] to [batch], integer in [0, classes); not differentiated.

  Returns:
    The function [batch, ...] -> [batch, classes], dtype of `logits_fn`.

  Raises:
    TypeError: (by the returned function) scores not floating, decisions not integers.
    ValueError: their shapes do not match.

  Differentiable as `logits_fn`. Cost: the cost of both functions.

  Source: the nearest-neighbour classifier of DIST III theorem 1; smooth scores as in
  Sitawarin and Wagner 2020, "Minimum-norm adversarial examples on KNN and KNN-based
  models".

  Example:
    >>> scores, decide = lambda x: jnp.hstack([x, -x]), lambda x: jnp.int32(x[:, 0] < 2)
    >>> model = spherejax.attacks.with_decision(scores, decide)
    >>> jnp.argmax(model(jnp.array([[1.0], [3.0]])), axis=1)
    Array([1, 0], dtype=int32)
  """
  _checks.function("logits_fn", logits_fn)
  _checks.function("decide", decide)

  def scores(x: Array) -> Array:
    z, decided = jnp.asarray(logits_fn(x)), jnp.asarray(decide(x))
    _checks.expect("logits", z, "floating", rank=2)
    _checks.labels(decided, z)
    is_decided = decided[:, None] == jnp.arange(z.shape[1])[None]
    known = jax.lax.stop_gradient(z)
    others = jnp.max(
      _numerics.keep(known, ~is_decided, -jnp.inf), axis=1, keepdims=True
    )
    least = jnp.nextafter(others, jnp.full_like(others, jnp.inf))
    tiny = jnp.finfo(z.dtype).tiny  # smaller numbers may be flushed to 0
    least = jnp.where(jnp.abs(others) < tiny, tiny, least)
    raised = is_decided & (known < least)
    # The value is `least`; the derivative is that of the score it replaces.
    return jnp.where(raised, least + _numerics.keep(z - known, jnp.isfinite(known)), z)

  return scores
