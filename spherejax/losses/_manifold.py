"""Manifold similarity: random walks between embeddings and proxies."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _classes, _selection


def manifold(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
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

  with a the persistence, y the proxy of example i, and k the other proxies. Walks that
  continue with probability `persistence` measure closeness along the data.

  Args:
    embeddings: [batch, dim], floating; length does not matter.
    labels: [batch], integer, in [0, proxies): the classes; for unlabelled data pass
      indices drawn at random, as in the paper.
    proxies: [proxies, dim], floating.
    persistence: in (0, 1), may be traced.
    temperature: positive, may be traced.
    margin: in units of F, may be traced.
    context_weight: at least 0, may be traced. 0 leaves only the first term.
    where: [batch], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the batch is spread; the walks visit the batch of
      all devices; its matrix is spread by rows and the devices invert it together.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows, for traced labels outside
    [0, proxies), and with a single proxy. `loss.mean()` is the paper's scalar.

  Raises:
    TypeError: embeddings or proxies not floating, labels not integer.
    ValueError: shapes do not match, a known label outside [0, proxies), a static
      persistence outside (0, 1), temperature not positive or weight below 0.

  Differentiable in: embeddings, proxies and all numbers; the value jumps where a term
  begins to count. Cost: O((batch + proxies)^3) time and a few square matrices of
  memory; with several devices each does its share and holds its rows.

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
  rows, labels, mask, dtype = _batch.rows_and_labels(embeddings, labels, where, "none")
  points = _classes.proxies(proxies, rows)
  class_mask = _batch.class_mask(labels, len(points), mask)
  persistence, temperature, margin, context_weight = (
    _checks.scalar(name, value, rows.dtype)
    for name, value in (
      ("persistence", persistence),
      ("temperature", temperature),
      ("margin", margin),
      ("context_weight", context_weight),
    )
  )
  # Rows and proxies at once, here and below: a smaller program, faster to compile.
  starts = _batch.normalize_rows(jnp.concatenate([rows, points]), "l2")
  steps = _steps(starts, mask, temperature, axis_name)
  walks = _walks(*steps, persistence, axis_name)
  directions = _numerics.normalize(walks)
  context = _batch.dot(directions[: len(rows)], directions[len(rows) :])
  scores = jnp.stack([walks[: len(rows), -len(points) :], context])
  intrinsic, contextual = jax.vmap(_excess, (0, None, None))(scores, class_mask, margin)
  loss = intrinsic + context_weight * contextual
  return jnp.where(mask, loss, 0).astype(dtype)


def _steps(
  starts: Array, mask: Array, temperature: Array, axis_name: str | None
) -> tuple[Array, Array]:
  """[rows, nodes] and [proxies, nodes] of D^-1/2 S D^-1/2.

  The starts are the rows of this device, then the proxies; the nodes are the rows of
  all devices, then the proxies.
  """
  rows, points = jnp.split(starts, [len(mask)])
  everyone, present = (_batch.gather(x, axis_name) for x in (rows, mask))
  among = jnp.ones(len(points), bool)
  nodes, present = jnp.concatenate([everyone, points]), jnp.append(present, among)
  mask = jnp.append(mask, among)
  number, first = len(rows), _batch.first_row(len(rows), axis_name)
  itself = jnp.append(
    first + jnp.arange(number), len(everyone) + jnp.arange(len(points))
  )
  other = itself[:, None] != jnp.arange(len(nodes))[None]
  edges = mask[:, None] & present[None] & other
  energies = jax.nn.relu(_batch.dot(starts, nodes)) / temperature
  log_degrees = _numerics.logsumexp(energies, edges)  # by logarithms: no overflow
  degrees = jnp.append(
    _batch.gather(log_degrees[:number], axis_name), log_degrees[number:]
  )
  balanced = energies - (log_degrees[:, None] + degrees[None]) / 2
  steps = jnp.where(edges, jnp.exp(jnp.where(edges, balanced, 0)), 0)
  return steps[:number], steps[number:]


def _walks(
  from_rows: Array, from_points: Array, persistence: Array, axis_name: str | None
) -> Array:
  """[rows + proxies, nodes]: where walks of these steps end.

  Several devices solve for it in two blocks: the matrix of the rows, spread over them,
  then the proxies' complement.
  """
  if axis_name is None:  # in one block, which takes less long to compile
    steps = jnp.concatenate([from_rows, from_points])
    identity = jnp.eye(len(steps), dtype=steps.dtype)
    return (1 - persistence) * _inverse(identity - persistence * steps, None)
  number = from_points.shape[1] - len(from_points)
  first = _batch.first_row(len(from_rows), axis_name)
  itself = first + jnp.arange(len(from_rows))[:, None] == jnp.arange(number)[None]
  # Positive definite: the eigenvalues of the steps are in [-1, 1].
  inverse = _inverse(
    itself.astype(from_rows.dtype) - persistence * from_rows[:, :number], axis_name
  )
  reached = _product(inverse, persistence * from_rows[:, number:], axis_name)
  everyone = _batch.gather(reached, axis_name)
  identity = jnp.eye(len(from_points), dtype=reached.dtype)
  rest = persistence * (
    from_points[:, number:] + _numerics.product(from_points[:, :number], everyone)
  )
  of_points = _inverse(identity - rest, None)
  to_points = _numerics.product(reached, of_points)
  to_rows = inverse + _numerics.product(to_points, everyone.T)
  from_points_to_rows = _numerics.product(of_points, everyone.T)
  blocks = [[to_rows, to_points], [from_points_to_rows, of_points]]
  return (1 - persistence) * jnp.block(blocks)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _inverse(matrix: Array, axis_name: str | None) -> Array:
  """[rows, batch]: this device's rows of the inverse of a matrix spread by rows.

  The matrix is symmetric and positive definite, so Gauss-Jordan elimination needs no
  pivoting. It eliminates the rows of one device after another; each device updates its
  own rows.
  """
  size = len(matrix)
  identity = jnp.eye(size, dtype=matrix.dtype)
  if axis_name is None:
    return _numerics.solve_definite(matrix, identity)
  here = jax.lax.axis_index(axis_name)

  def eliminate(device: Array, matrix: Array) -> Array:
    first = device * size

    def columns(of: Array) -> Array:
      return jax.lax.dynamic_slice_in_dim(of, first, size, axis=1)

    def put(of: Array, block: Array) -> Array:
      return jax.lax.dynamic_update_slice_in_dim(of, block, first, axis=1)

    theirs = _of_device(matrix, device, axis_name)
    pivot = _numerics.solve_definite(columns(theirs), identity)
    theirs = put(_numerics.product(pivot, theirs), pivot)
    others = put(matrix, jnp.zeros_like(identity)) - _numerics.product(
      columns(matrix), theirs
    )
    return jnp.where(device == here, theirs, others)

  return jax.lax.fori_loop(0, jax.lax.axis_size(axis_name), eliminate, matrix)


@_inverse.defjvp
def _(
  axis_name: str | None, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
  inverse = _inverse(*primals, axis_name)
  change = _product(_product(inverse, tangents[0], axis_name), inverse, axis_name)
  return inverse, -change


def _product(left: Array, right: Array, axis_name: str | None) -> Array:
  """[rows, columns] of the product of two matrices spread by rows."""
  if axis_name is None:
    return _numerics.product(left, right)
  parts = jnp.split(left, jax.lax.axis_size(axis_name), axis=1)
  terms = [
    _numerics.product(part, _of_device(right, device, axis_name))
    for device, part in enumerate(parts)
  ]
  return jnp.sum(jnp.stack(terms), axis=0)


def _of_device(array: Array, device: Array | int, axis_name: str) -> Array:
  """Gives the array of one device to all devices."""
  mine = device == jax.lax.axis_index(axis_name)
  return jax.lax.psum(jnp.where(mine, array, 0), axis_name)


def _excess(scores: Array, class_mask: Array, margin: Array) -> Array:
  """[batch]: log(1 + sum of exp over the other proxies that come too near)."""
  terms = scores - _selection.sum_over(scores, class_mask)[:, None] + margin
  counted = jnp.any(class_mask, axis=1)[:, None] & ~class_mask & ~(terms < 0)
  return _numerics.softplus(_numerics.logsumexp(terms, counted))
