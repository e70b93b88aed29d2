"""Manifold similarity: random walks between embeddings and proxies."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _classes


def manifold(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Int[ArrayLike, " batch"],
  proxies: Float[ArrayLike, "proxies dim"],
  *,
  persistence: Real[ArrayLike, ""] = 0.8,
  temperature: Real[ArrayLike, ""] = 0.5,
  margin: Real[ArrayLike, ""] = 5e-4,
  context_weight: Real[ArrayLike, ""] = 1.0,
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Manifold similarity loss: an embedding's random walk should reach its proxy.

      S_ij = exp([cos(x_i, x_j)]+ / temperature), S_ii = 0    embeddings and proxies
      F    = (1 - a) (I - a D^-1/2 S D^-1/2)^-1,  D_ii = sum_j S_ij
      t_ik = F_ik - F_iy + margin,  c_ik = cos(F_i, F_k) - cos(F_i, F_y) + margin
      loss_i = log(1 + sum_{k: t_ik >= 0} exp t_ik)
               + context_weight log(1 + sum_{k: c_ik >= 0} exp c_ik)

  with a the persistence, y the proxy of example i, and k the other proxies: closeness
  is measured along the data, by walks that go on with probability a.

  Args:
    embeddings: [batch, dim], floating; length does not matter.
    labels: [batch], integer, in [0, proxies): classes, or, without labels, proxies
      drawn at random, as in the paper.
    proxies: [proxies, dim], floating.
    persistence: in (0, 1), may be traced.
    temperature: positive, may be traced.
    margin: unit of F, may be traced.
    context_weight: at least 0, may be traced. 0 leaves the walks themselves.
    where: [batch], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the batch is spread; the walks visit the batch
      of all devices, so each device inverts the matrix of the whole batch.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows, for traced labels outside
    [0, proxies), and with a single proxy. `loss.mean()` is the paper's scalar.

  Raises:
    TypeError: embeddings or proxies not floating, labels not integer.
    ValueError: shapes do not match, a known label outside [0, proxies), a static
      persistence outside (0, 1), temperature not positive or weight below 0.

  Differentiable in: embeddings, proxies and all numbers; the value jumps where a term
  begins to count. Cost: O((batch + proxies)^3) time, one square matrix of memory.

  Source: Aziere and Todorovic 2019, "Ensemble deep manifold similarity learning using
  hard proxies", whose intrinsic and context losses are the two terms.

  Example:
    >>> x, labels, proxies = jnp.eye(2), jnp.array([0, 1]), jnp.eye(2)
    >>> spherejax.losses.manifold(x, labels, proxies, margin=0.0)
    Array([0., 0.], dtype=float32)
  """
  _checks.between("persistence", persistence, 0, 1, low_open=True, high_open=True)
  _checks.positive("temperature", temperature)
  _checks.between("context_weight", context_weight, 0)
  rows, labels, kept, given = _batch.rows_and_labels(embeddings, labels, where, "l2")
  points = _batch.normalize_rows(_classes.proxies(proxies, rows), "l2")
  own = _batch.class_mask(labels, len(points), kept)
  persistence, temperature, margin, context_weight = (
    _checks.scalar(name, value, rows.dtype)
    for name, value in (
      ("persistence", persistence),
      ("temperature", temperature),
      ("margin", margin),
      ("context_weight", context_weight),
    )
  )
  everyone, present = (_batch.gather(array, axis_name) for array in (rows, kept))
  nodes = jnp.concatenate([everyone, points])
  present = jnp.concatenate([present, jnp.ones(len(points), bool)])
  walks = _walks(nodes, present, persistence, temperature)
  first, number = _batch.first_row(len(rows), axis_name), len(everyone)
  mine = jax.lax.dynamic_slice_in_dim(walks, first, len(rows))
  normalize = _numerics.normalize
  context = _batch.dot(normalize(mine), normalize(walks[number:]))
  loss = _excess(mine[:, number:], own, margin)
  loss += context_weight * _excess(context, own, margin)
  return jnp.where(kept, loss, 0).astype(given)


def _walks(
  nodes: Array, present: Array, persistence: Array, temperature: Array
) -> Array:
  """[nodes, nodes]: where walks from each node end."""
  itself = jnp.eye(len(nodes), dtype=bool)
  edges = present[:, None] & present[None] & ~itself
  energies = jax.nn.relu(_batch.dot(nodes, nodes)) / temperature
  degrees = _numerics.logsumexp(energies, edges)  # by logarithms: no overflow
  balanced = energies - (degrees[:, None] + degrees[None]) / 2
  graph = jnp.where(edges, jnp.exp(jnp.where(edges, balanced, 0)), 0)
  identity = itself.astype(nodes.dtype)
  # Positive definite: the eigenvalues of the graph are in [-1, 1].
  walks = _numerics.solve_definite(identity - persistence * graph, identity)
  return (1 - persistence) * walks


def _excess(scores: Array, own: Array, margin: Array) -> Array:
  """[batch]: log(1 + sum of exp over the other proxies that come too near)."""
  terms = scores - _batch.sum_over(scores, own)[:, None] + margin
  counted = jnp.any(own, axis=1)[:, None] & ~own & ~(terms < 0)
  return _numerics.softplus(_numerics.logsumexp(terms, counted))
