"""Linear probe: a linear classifier on fixed features, to judge a representation."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics


class LinearProbe(NamedTuple):
  """Multinomial logistic regression on standardised features.

  Example:
    >>> x, labels = jnp.array([[-1.0], [-2.0], [1.0], [2.0]]), jnp.array([0, 0, 1, 1])
    >>> probe = spherejax.training.linear_probe(x, labels, num_classes=2)
    >>> probe.logits(jnp.array([[-3.0], [3.0]])).argmax(axis=1)
    Array([0, 1], dtype=int32)
  """

  weights: Array
  """[dim, classes], for standardised features."""
  bias: Array
  """[classes]."""
  mean: Array
  """[dim], mean of the features that the probe was fitted to."""
  scale: Array
  """[dim], standard deviation of these features; 1 where they do not vary."""

  def logits(
    self, features: Float[ArrayLike, "batch dim"]
  ) -> Float[Array, "batch classes"]:
    """Scores of the classes, [batch, classes]."""
    x = _checks.array("features", features, rank=2)
    _checks.shape("features", x, (len(x), len(self.mean)), "those fitted to")
    x = (x - self.mean[None]) / self.scale[None]
    return _numerics.product(x, self.weights) + self.bias[None]


def linear_probe(
  features: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  num_classes: int,
  penalty: Real[ArrayLike, ""] = 1e-4,
  steps: int = 100,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> LinearProbe:
  """Fits a linear classifier to fixed features by L-BFGS on all of them at once.

      min over W, b of  mean_i cross_entropy(W^T x_i + b, y_i) + penalty / 2 |W|^2

  with features standardised over the kept rows. The problem is convex. This is a pure
  function, so you may vmap the probes of many runs.

  Args:
    features: [batch, dim], floating.
    labels: [batch], integer in [0, num_classes). A traced label out of range masks its
      row.
    num_classes: static, at least 2.
    penalty: not negative, may be traced. At penalty 0, separable classes have no
      optimum, and only `steps` ends the fit.
    steps: static. Iterations of L-BFGS.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    `LinearProbe`, float32 or wider.

  Raises:
    TypeError: features not floating.
    ValueError: lengths that differ, num_classes below 2, steps below 1, a negative
      static penalty, static labels out of range.

  Not meant to be differentiated. Cost: O(steps batch dim classes).

  Source: the usual protocol of linear evaluation; SSL figure 1 does not state its own.

  Example:
    >>> x, labels = jnp.array([[-1.0], [1.0]]), jnp.array([0, 1])
    >>> probe = spherejax.training.linear_probe(x, labels, num_classes=2, penalty=0.5)
    >>> probe.weights.round(3)
    Array([[-0.521,  0.521]], dtype=float32)
  """
  x = _checks.array("features", features, "floating", rank=2)
  x = _numerics.upcast(x)
  labels = _checks.integers("labels", labels)
  _checks.labels(labels, x)
  _checks.count("num_classes", num_classes, 2)
  _checks.count("steps", steps)
  _checks.between("penalty", penalty, 0)
  strength = _checks.scalar("penalty", penalty, x.dtype)
  mask = _checks.where_mask(where, x.shape[:1])
  mask &= _checks.inside(labels, num_classes, mask)
  share = mask.astype(x.dtype) / jnp.maximum(mask.sum(), 1)
  x = jnp.where(mask[:, None], x, 0)
  mean = _numerics.product(share, x)
  deviation = _numerics.norm(jnp.sqrt(share)[:, None] * (x - mean[None]), axis=0)
  # A constant feature leaves nothing but rounding.
  varies = deviation > 100 * jnp.finfo(x.dtype).eps * jnp.abs(mean)
  scale = jnp.where(varies, deviation, 1)
  x = jnp.where(varies[None], (x - mean[None]) / scale[None], 0)
  labels = jnp.where(mask, labels, 0)

  def objective(params: tuple[Array, Array]) -> Array:
    weights, bias = params
    entropy = optax.softmax_cross_entropy_with_integer_labels(
      _numerics.product(x, weights) + bias[None], labels
    )
    return jnp.sum(share * entropy) + strength / 2 * jnp.sum(weights**2)

  optimizer = optax.lbfgs(
    linesearch=optax.scale_by_backtracking_linesearch(
      max_backtracking_steps=15, store_grad=True
    )
  )
  value_and_grad = optax.value_and_grad_from_state(objective)

  def step(carry: Any, _: None) -> tuple[Any, None]:
    params, state = carry
    value, grad = value_and_grad(params, state=state)
    updates, state = optimizer.update(
      grad, state, params, value=value, grad=grad, value_fn=objective
    )
    return (optax.apply_updates(params, updates), state), None

  zeros = jnp.zeros((x.shape[1], num_classes), x.dtype), jnp.zeros(num_classes, x.dtype)
  start: Any = (zeros, optimizer.init(zeros))
  fitted: Any = jax.lax.scan(step, start, length=steps)[0][0]
  return LinearProbe(fitted[0], fitted[1], mean, scale)
