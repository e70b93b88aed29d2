"""Mixup: blends pairs of examples into one."""

from typing import NamedTuple

import jax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key, Real

from spherejax import _checks


class Mixed(NamedTuple):
  """Result of `mixup`."""

  inputs: Float[Array, "batch *shape"]
  """Blended inputs."""
  targets: Float[Array, "batch classes"]
  """Blended label distributions."""


def mixup(
  key: Key[Array, ""],
  inputs: Float[ArrayLike, "batch *shape"],
  targets: Float[ArrayLike, "batch classes"],
  *,
  alpha: Real[ArrayLike, ""] = 1.0,
) -> Mixed:
  """Blends every example with another of its batch, and their label distributions.

      x~_i = s x_i + (1 - s) x_{p_i},    q~_i = s q_i + (1 - s) q_{p_i}

  with one share s ~ Beta(alpha, alpha) and one permutation p for the whole batch. For a
  loss that is linear in the distributions, such as cross-entropy or `losses.pull`, the
  loss of q~ is s times the loss of q plus (1 - s) times the loss of q_p.

  Args:
    key: draws share and permutation.
    inputs: [batch, ...], floating.
    targets: [batch, classes], floating: `jax.nn.one_hot` of the labels.
    alpha: positive, may be traced. 1 draws the share uniformly; a small alpha draws it
      near 0 or 1.

  Returns:
    Mixed, of the shapes and dtypes of `inputs` and `targets`.

  Raises:
    TypeError: inputs or targets not floating.
    ValueError: shapes do not match, a static alpha that is not positive.

  Differentiable in: inputs, targets. Cost: O(inputs).

  Source: Zhang et al. 2018, "mixup: beyond empirical risk minimization"; DL2P 7.1 and
  7.2.

  Example:
    >>> x, q = jnp.zeros((4, 8, 8, 3)), jnp.eye(4)
    >>> mixed = spherejax.data.mixup(jax.random.key(0), x, q)
    >>> mixed.inputs.shape, mixed.targets.sum(1)
    ((4, 8, 8, 3), Array([1., 1., 1., 1.], dtype=float32))
  """
  _checks.key("key", key)
  inputs = _checks.array("inputs", inputs, "floating")
  targets = _checks.array("targets", targets, "floating", rank=2)
  if not inputs.ndim or len(inputs) != len(targets):
    raise ValueError(
      f"targets must have a row for each of the inputs {inputs.shape}, got "
      f"{targets.shape}"
    )
  _checks.positive("alpha", alpha)
  _checks.single("alpha", alpha)
  share_key, partner_key = jax.random.split(key)
  share = jax.random.beta(share_key, alpha, alpha)
  partners = jax.random.permutation(partner_key, len(inputs))

  def blend(values: Array) -> Array:
    weight = share.astype(values.dtype)
    return weight * values + (1 - weight) * values[partners]

  return Mixed(blend(inputs), blend(targets))
