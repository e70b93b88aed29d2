"""NetVLAD: locally aggregated descriptors with a learned soft assignment."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics
from spherejax.pooling import _tokens


def netvlad(
  features: Float[ArrayLike, "batch *positions dim"],
  centres: Float[ArrayLike, "centres dim"],
  weights: Float[ArrayLike, "centres dim"],
  biases: Float[ArrayLike, " centres"],
  *,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch centres*dim"]:
  """Sums of the features' differences from the centres they are assigned to (NetVLAD).

      V_k = sum_j softmax_k(w_k . f_j + b_k) (f_j - c_k)
      pooled = l2(concatenation over k of l2(V_k))

  Centres, weights and biases are learned independently; `netvlad_assignment` gives
  the weights and biases that assign to the nearest centre.

  Args:
    features: [batch, tokens, dim] or [batch, height, width, dim], floating; the result
      has `centres` times as many entries as a feature.
    centres: [centres, dim], floating.
    weights: [centres, dim], floating, the rows w_k.
    biases: [centres], floating.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, centres * dim], dtype of `features`, of norm 1. A block V_k that is 0 stays
    0; where no position is kept all blocks are 0.

  Raises:
    TypeError: features, centres, weights or biases not floating, where not boolean.
    ValueError: shapes do not match or have no entries.

  Differentiable in: features, centres, weights, biases. Cost:
  O(batch tokens centres dim), two matrix products.

  Source: Arandjelovic et al. 2016, "NetVLAD: CNN architecture for weakly supervised
  place recognition", equation 4; DML 5.3.5.

  Example:
    >>> features = jnp.array([[[2.0, 0.0], [0.0, 3.0]]])
    >>> centres = jnp.array([[1.0, 0.0], [0.0, 4.0]])
    >>> weights, biases = spherejax.pooling.netvlad_assignment(centres, sharpness=9.0)
    >>> pool = jax.jit(spherejax.pooling.netvlad)
    >>> pool(features, centres, weights, biases)
    Array([[ 0.71,  0.00,  0.00, -0.71]], dtype=float32)
  """
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  points = _tokens.points("centres", centres, tokens)
  rows = _checks.array("weights", weights, "floating")
  offsets = _checks.array("biases", biases, "floating")
  _checks.shape("weights", rows, points.shape, "centres")
  _checks.shape("biases", offsets, points.shape[:1], f"centres {points.shape}")
  scores = _numerics.einsum("bnd,kd->bnk", tokens, rows.astype(tokens.dtype))
  scores += offsets.astype(tokens.dtype)[None, None]
  assigned = jax.nn.softmax(scores, axis=2)
  if mask is not None:
    assigned = jnp.where(mask[..., None], assigned, 0)
  blocks = _numerics.einsum("bnk,bnd->bkd", assigned, tokens)
  blocks -= jnp.sum(assigned, axis=1)[..., None] * points[None]
  blocks = _numerics.normalize(blocks)
  pooled = _numerics.normalize(blocks.reshape(len(tokens), points.size))
  return pooled.astype(features.dtype)


def netvlad_assignment(
  centres: Float[ArrayLike, "centres dim"], *, sharpness: Real[ArrayLike, ""]
) -> tuple[Float[Array, "centres dim"], Float[Array, " centres"]]:
  """Weights and biases of `netvlad` that assign features to the nearest centre.

      w_k = 2 a c_k,   b_k = -a |c_k|^2

  with a the sharpness, so that the assignment is softmax_k(-a |f - c_k|^2).

  Args:
    centres: [centres, dim], floating.
    sharpness: positive, may be traced. Per unit of squared distance.

  Returns:
    weights [centres, dim] and biases [centres], dtype of `centres`.

  Raises:
    TypeError: centres not floating.
    ValueError: centres without 2 axes, static sharpness not positive.

  Differentiable in: centres, sharpness. Cost: O(centres dim).

  Source: Arandjelovic et al. 2016, "NetVLAD", equation 3.

  Example:
    >>> centres = jnp.array([[1.0, 0.0], [0.0, 2.0]])
    >>> weights, biases = spherejax.pooling.netvlad_assignment(centres, sharpness=0.5)
    >>> biases
    Array([-0.5, -2. ], dtype=float32)
  """
  centres = _checks.array("centres", centres, "floating", rank=2)
  _checks.positive("sharpness", sharpness)
  points = _numerics.upcast(centres)
  a = _checks.scalar("sharpness", sharpness, points.dtype)
  weights, biases = 2 * a * points, -a * jnp.sum(points**2, axis=1)
  return weights.astype(centres.dtype), biases.astype(centres.dtype)
