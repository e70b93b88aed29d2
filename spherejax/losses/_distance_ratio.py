"""Softmax losses on distances: squared, plain, and the distance ratio."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, distances
from spherejax.losses import _batch, _blocks, _classes, _differences


def _closeness_softmax(
  name: str,
  matrix: ArrayLike,
  labels: ArrayLike,
  scale: ArrayLike,
  classes: ArrayLike | None,
  where: ArrayLike | None,
  class_axis_name: str | None,
) -> Array:
  _checks.positive("scale", scale)
  batch = _classes.scores(name, matrix, labels, where, class_axis_name=class_axis_name)
  others = _classes.taking_part(batch, classes)
  multiplier = _checks.scalar("scale", scale, batch.values.dtype)
  values = jnp.where(others, batch.values, 0)
  loss = _classes.cross_entropy(
    values,
    batch.class_mask & others,
    -multiplier,
    others=others,
    axis_name=class_axis_name,
  )
  return loss.astype(batch.dtype)


def squared_distance_softmax(
  squared_distances: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  scale: Real[ArrayLike, ""] = 1.0,
  classes: _classes.Chosen | None = None,
  where: Bool[ArrayLike, " batch"] | None = None,
  class_axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Softmax of negative squared distances to the classes (SD-softmax).

      loss_i = -log softmax_c(-scale d_ic^2)_{y_i}

  This is the loss of prototypical networks. It is convex in the embedding. Its minimum
  is in general away from the class's own representative, often at infinity. On the unit
  sphere it equals `normface` with twice the scale.

  Args:
    squared_distances: [batch, classes], floating.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    scale: positive, multiplies the squares; may be traced.
    classes: [classes] or [batch, classes], boolean, True for classes that take part,
      such as those of an episode. None for all.
    where: [batch], boolean, True keeps. None keeps all.
    class_axis_name: mapped axis over whose devices the classes are split, see
      :ref:`classes-over-devices`. None: all classes are here.

  Returns:
    [batch], dtype of `squared_distances`; 0 for masked rows and for rows whose class
    takes no part. `loss.mean()` is the paper's scalar. Rows do not depend on each
    other.

  Raises:
    TypeError: distances are not floating, labels not integers, a mask not boolean.
    ValueError: shapes do not match, a known label outside [0, classes), or a static
      scale that is not positive.

  Differentiable in: squared_distances, scale. Cost: O(batch classes).

  Source: DIST eq. 2.12; Snell et al. 2017, "Prototypical networks for few-shot
  learning".

  Example:
    >>> squares = jnp.array([[1.0, 4.0]])
    >>> spherejax.losses.squared_distance_softmax(squares, jnp.array([0]))
    Array([0.04858735], dtype=float32)
  """
  return _closeness_softmax(
    "squared_distances",
    squared_distances,
    labels,
    scale,
    classes,
    where,
    class_axis_name,
  )


def distance_softmax(
  distances: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  scale: Real[ArrayLike, ""] = 1.0,
  classes: _classes.Chosen | None = None,
  where: Bool[ArrayLike, " batch"] | None = None,
  class_axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Softmax of negative distances to the classes.

      loss_i = -log softmax_c(-scale d_ic)_{y_i}

  The loss is smallest at the class's own representative, for every metric, but not 0:
  there it is log(1 + sum over the other classes of exp(-scale times their distance from
  the representative)).

  Args:
    distances: [batch, classes], floating.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    scale: positive, multiplies the distances; may be traced.
    classes: [classes] or [batch, classes], boolean, True for classes that take part.
      None for all.
    where: [batch], boolean, True keeps. None keeps all.
    class_axis_name: mapped axis over whose devices the classes are split, see
      :ref:`classes-over-devices`. None: all classes are here.

  Returns:
    [batch], dtype of `distances`; 0 for masked rows and for rows whose class takes no
    part. `loss.mean()` is the paper's scalar. Rows do not depend on each other.

  Raises:
    TypeError: distances are not floating, labels not integers, a mask not boolean.
    ValueError: shapes do not match, a known label outside [0, classes), or a static
      scale that is not positive.

  Differentiable in: distances, scale. Cost: O(batch classes).

  Source: DIST eq. 2.13.

  Example:
    >>> apart = jnp.array([[1.0, 2.0]])
    >>> spherejax.losses.distance_softmax(apart, jnp.array([0]))
    Array([0.3132617], dtype=float32)
  """
  return _closeness_softmax(
    "distances", distances, labels, scale, classes, where, class_axis_name
  )


def distance_ratio(
  squared_distances: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  exponent: Real[ArrayLike, ""],
  offset: Real[ArrayLike, ""] = 0.0,
  classes: _classes.Chosen | None = None,
  where: Bool[ArrayLike, " batch"] | None = None,
  class_axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Distance-ratio loss (DR): softmax of the negative logarithms of distances.

      loss_i = -log( d_iy^(-exponent) / sum_c d_ic^(-exponent) )

  The loss stays the same when all distances are multiplied by a factor, and is exactly
  0 at the class's own representative.

  Args:
    squared_distances: [batch, classes], floating, d^2. They should come from
      differences, not from a product of matrices, since small distances matter most.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    exponent: positive, may be traced and learned (as the exponential of a number
      that starts at 2 in the paper).
    offset: added to the squared distances, at least 0; may be traced. 0 is exact;
      the papers' implementations use 1e-10 and 1e-12.
    classes: [classes] or [batch, classes], boolean, True for classes that take part,
      such as those of an episode. None for all.
    where: [batch], boolean, True keeps. None keeps all.
    class_axis_name: mapped axis over whose devices the classes are split, see
      :ref:`classes-over-devices`. None: all classes are here.

  Returns:
    [batch], dtype of `squared_distances`; 0 for masked rows and for rows whose class
    takes no part. A row at distance 0 from m classes has the value log m if its own
    class is among them, else inf; both have gradient 0. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other. Small values keep their digits.

  Raises:
    TypeError: distances are not floating, labels not integers, a mask not boolean.
    ValueError: shapes do not match, a known label outside [0, classes), or a static
      exponent or offset out of range.

  Differentiable in: squared_distances, exponent, offset. Cost: O(batch classes).

  Source: DIST II eq. 5.

  Example:
    >>> squares = jnp.array([[1.0, 4.0], [0.0, 4.0]])
    >>> spherejax.losses.distance_ratio(squares, jnp.array([0, 0]), exponent=2.0)
    Array([0.22314355, 0.        ], dtype=float32)
  """
  _checks.positive("exponent", exponent)
  _checks.between("offset", offset, 0)
  batch = _classes.scores(
    "squared_distances",
    squared_distances,
    labels,
    where,
    class_axis_name=class_axis_name,
  )
  others = _classes.taking_part(batch, classes)
  class_mask = batch.class_mask & others
  power = _checks.scalar("exponent", exponent, batch.values.dtype)
  known = _classes.has_class(class_mask, class_axis_name)
  squares = jnp.where(known[:, None], batch.values, 1)
  squares = squares + _checks.scalar("offset", offset, squares.dtype)
  zero = others & (squares < jnp.finfo(squares.dtype).tiny)
  zeros = _classes.over_classes(jnp.sum(zero, axis=1, dtype=jnp.int32), class_axis_name)
  loss = _classes.cross_entropy(
    jnp.log(jnp.where(others & ~zero, squares, 1)),
    class_mask,
    -power / 2,
    others=others,
    axis_name=class_axis_name,
  )
  among = _classes.has_class(class_mask & zero, class_axis_name)
  shared = jnp.where(among, jnp.log(jnp.maximum(zeros, 1).astype(loss.dtype)), jnp.inf)
  return jnp.where(zeros > 0, shared, loss).astype(batch.dtype)


def proxy_distance_ratio(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  proxies: Float[ArrayLike, "classes dim"],
  *,
  exponent: Real[ArrayLike, ""] = 10.0,
  offset: Real[ArrayLike, ""] = 0.0,
  where: Bool[ArrayLike, " batch"] | None = None,
  block_size: int | None = None,
) -> Float[Array, " batch"]:
  """Distance-ratio loss on the sphere, with a proxy for each class (ProxyDR).

      d_ic = |x_i / |x_i| - p_c / |p_c||
      loss_i = -log( d_iy^(-exponent) / sum_c d_ic^(-exponent) )

  Args:
    embeddings: [batch, dim], floating; divided by their lengths here. A zero row is
      at distance 1 from every proxy.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    proxies: [classes, dim], floating; divided by their lengths here.
    exponent: positive, may be traced.
    offset: added to the squared distances, at least 0; may be traced. The paper's
      implementation adds 1e-12.
    where: [batch], boolean, True keeps. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x classes. None takes all at once.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: embeddings or proxies are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), or a static
      exponent or offset out of range.

  Differentiable in: embeddings, proxies, exponent, offset.
  Cost: O(batch classes dim). The distances are sums of squared differences, so small
  distances keep their digits. Their derivatives are matrix products, except for the
  nearest proxy of each row.

  Source: DIST IV eq. 8.

  Example:
    >>> x, proxies = jnp.eye(2), jnp.array([[1.0, 0.0], [0.6, 0.8]])
    >>> labels = jnp.array([0, 1])
    >>> spherejax.losses.proxy_distance_ratio(x, labels, proxies, exponent=2.0)
    Array([0.       , 0.1823216], dtype=float32)
  """
  rows, labels, mask, dtype = _batch.rows_and_labels(embeddings, labels, where, "l2")
  columns = distances.l2_normalize(_classes.proxies(proxies, rows))
  _checks.known_labels(labels, len(columns), mask)

  def of_rows(block: tuple[Array, Array, Array]) -> Array:
    rows, labels, mask = block
    squares = _differences.squared_distances(rows, columns)
    return distance_ratio(squares, labels, exponent=exponent, offset=offset, where=mask)

  return _blocks.map_rows(of_rows, (rows, labels, mask), block_size).astype(dtype)
