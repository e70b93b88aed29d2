"""Moving prototypes of classes that follow the embeddings, without a gradient."""

from typing import Literal, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Integer, Key, Real

from spherejax import _checks, _numerics

Normalization = Literal["l2", "none"]
BatchMean = Literal["mean", "direction"]


class ClassMeans(NamedTuple):
  """Result of `class_means`."""

  means: Float[Array, "classes dim"]
  """A zero row where there is no embedding of the class, or their mean is 0."""
  counts: Int[Array, " classes"]
  """Number of embeddings of each class; where it is 0, the row has no meaning.

  On the sphere it is also 0 where the embeddings add up to 0, without a direction.
  """


class MovingPrototypes(NamedTuple):
  """Representatives that `ema_update` moves."""

  prototypes: Float[Array, "classes dim"]
  """Unit rows."""
  seen: Bool[Array, " classes"]
  """True once the class was in a batch with a mean that is not 0."""


class ClassSums(NamedTuple):
  """Sums of embeddings over batches, from `class_sums_update`."""

  sums: Float[Array, "classes dim"]
  """Sums of the normalised embeddings."""
  counts: Int[Array, " classes"]
  """Number of added embeddings."""


def class_means(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  num_classes: int,
  *,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> ClassMeans:
  """Mean of the embeddings of each class, on the sphere or off it.

      means_c = l2(sum_{i: y_i = c} x_i / |x_i|)     "l2"
      means_c = mean of x_i over y_i = c             "none"

  Args:
    embeddings: [batch, dim], floating. Not differentiated.
    labels: [batch], integer in [0, num_classes). A traced label out of range masks its
      row.
    num_classes: static.
    normalize: "l2" or "none". Static.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.
    axis_name: mapped axis over which the batch is spread; every device gets the means
      over all devices.

  Returns:
    ClassMeans: means [num_classes, dim], dtype of `embeddings`. A row is zero for a
      class without an embedding, and on the sphere for a class with a mean of 0; it is
      NaN for a class with an embedding that is not finite. Also counts [num_classes],
      int32, 0 for a class that has no mean: without an embedding, and on the sphere
      with a mean of 0.

  Raises:
    TypeError: embeddings not floating, labels not integers, where not boolean.
    ValueError: shapes do not match, a known label outside [0, num_classes), or an
      unknown `normalize`.

  Not differentiable. Cost: O((batch + num_classes) dim).

  Source: DIST eq. 2.4; Snell et al. 2017, "Prototypical networks for few-shot
  learning".

  Example:
    >>> x = jnp.array([[2.0, 0.0], [0.0, 1.0], [5.0, 0.0]])
    >>> means, counts = spherejax.prototypes.class_means(x, jnp.array([0, 0, 1]), 3)
    >>> means, counts
    (Array([[0.70710677, 0.70710677],
           [1.        , 0.        ],
           [0.        , 0.        ]], dtype=float32), Array([2, 1, 0], dtype=int32))
  """
  _checks.one_of("normalize", normalize, Normalization)
  on_sphere = normalize == "l2"
  sums, counts, dtype = _sums(
    embeddings, labels, num_classes, on_sphere, where, axis_name
  )
  if on_sphere:
    means = _numerics.normalize(sums)
    counts = jnp.where(jnp.any(sums != 0, axis=1), counts, 0)
  else:
    means = _numerics.divide(sums, counts[:, None].astype(sums.dtype))
  return ClassMeans(means.astype(dtype), counts)


def ema_init(key: Key[Array, ""], num_classes: int, dim: int) -> MovingPrototypes:
  """Random representatives, so that the first matching with prototypes is random too.

  Args:
    key: typed key.
    num_classes: static.
    dim: static.

  Returns:
    MovingPrototypes: unit rows, uniform on the sphere, float32 (float64 under x64),
      none seen. To start from other rows use `state._replace(prototypes=x)`.

  Raises:
    TypeError: a size that is not a static integer.
    ValueError: a size below 1.

  Not differentiable. Cost: O(num_classes dim).

  Source: DL2P algorithm 1.

  Example:
    >>> spherejax.prototypes.ema_init(jax.random.key(0), 3, 2).seen
    Array([False, False, False], dtype=bool)
  """
  _checks.key("key", key)
  _checks.count("num_classes", num_classes)
  _checks.count("dim", dim)
  rows = _numerics.normalize(jax.random.normal(key, (num_classes, dim)))
  return MovingPrototypes(rows, jnp.zeros(num_classes, bool))


def ema_update(
  state: MovingPrototypes,
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  decay: Real[ArrayLike, ""] = 0.9,
  batch_mean: BatchMean = "mean",
  start_at_first: bool = False,
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> MovingPrototypes:
  """Exponential moving average of the embeddings of each class, on the sphere.

      m_c <- l2(decay m_c + (1 - decay) mean_c)    for the classes of the batch

  with the mean of all normalised embeddings of class c in the batch. Call it after the
  optimiser's step, with the embeddings of the forward pass.

  Args:
    state: from `ema_init` or the last update.
    embeddings: [batch, dim], floating. Not differentiated; rows are divided by their
      norm here (a zero row stays zero, and counts).
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    decay: in [0, 1], may be traced: share of the old row that stays.
    batch_mean: "mean", which is shorter than 1 where embeddings of a class differ, or
      "direction", the mean divided by its norm. Static.
    start_at_first: True gives a class that was not seen before the direction of its
      first mean, in place of its random row. Static.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.
    axis_name: mapped axis over which the batch is spread; every device gets the state
      from the whole batch.

  Returns:
    MovingPrototypes. Classes that are not in the batch, and classes whose new row would
    be 0, keep their old row exactly. An embedding that is not finite makes only the row
    of its class NaN.

  Raises:
    TypeError: embeddings not floating, labels not integers, where not boolean,
      start_at_first not boolean.
    ValueError: shapes do not match, a known label outside [0, classes), a static decay
      outside [0, 1], or an unknown `batch_mean`.

  Not differentiable. Cost: O((batch + classes) dim).

  Source: DL2P algorithm 1 (decay 0.9 and "mean"); DIST 2.2; DIST IV eqs. 9 and 12
  (decay 0.999, "direction" and `start_at_first`, as in the released code). DL2P's
  released code uses one of several embeddings of a class; here all count.

  Example:
    >>> state = spherejax.prototypes.ema_init(jax.random.key(0), 2, 2)
    >>> state = state._replace(prototypes=jnp.eye(2))
    >>> x = jnp.array([[0.0, 3.0], [0.0, 1.0]])
    >>> spherejax.prototypes.ema_update(state, x, jnp.array([0, 0]), decay=0.5)
    MovingPrototypes(prototypes=Array([[0.70710677, 0.70710677],
           [0.        , 1.        ]], dtype=float32),
      seen=Array([ True, False], dtype=bool))
  """
  _checks.flag("start_at_first", start_at_first)
  _checks.instance("state", state, MovingPrototypes)
  _checks.between("decay", decay, 0, 1)
  _checks.one_of("batch_mean", batch_mean, BatchMean)
  old = state.prototypes
  sums, counts, _ = _sums(
    embeddings, labels, len(old), True, where, axis_name, old.shape[1]
  )
  direction = _numerics.normalize(sums)
  if batch_mean == "mean":
    new = _numerics.divide(sums, counts[:, None].astype(sums.dtype))
  else:
    new = direction
  share = _checks.scalar("decay", decay, sums.dtype)
  moved = _numerics.normalize(share * old.astype(sums.dtype) + (1 - share) * new)
  if start_at_first:
    moved = jnp.where(state.seen[:, None], moved, direction)
  present = jnp.any(sums != 0, axis=1)
  changed = present & jnp.any(moved != 0, axis=1)
  rows = jnp.where(changed[:, None], moved.astype(old.dtype), old)
  return jax.lax.stop_gradient(MovingPrototypes(rows, state.seen | present))


def class_sums_init(num_classes: int, dim: int) -> ClassSums:
  """Empty sums for the beginning of an epoch.

  Args:
    num_classes: static.
    dim: static.

  Returns:
    ClassSums of zeros, float32 (float64 under x64).

  Raises:
    TypeError: a size that is not a static integer.
    ValueError: a size below 1.

  Not differentiable. Cost: O(num_classes dim).

  Source: DL2P 3.2.3, which averages with momentum instead of summing over an epoch.

  Example:
    >>> spherejax.prototypes.class_sums_init(3, 2).counts
    Array([0, 0, 0], dtype=int32)
  """
  _checks.count("num_classes", num_classes)
  _checks.count("dim", dim)
  return ClassSums(jnp.zeros((num_classes, dim)), jnp.zeros(num_classes, jnp.int32))


def class_sums_update(
  state: ClassSums,
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> ClassSums:
  """Adds a batch's normalised embeddings to the sums of their classes.

  Args:
    state: from `class_sums_init` or the last update.
    embeddings: [batch, dim], floating. Not differentiated; rows are divided by their
      norm here (a zero row stays zero, and counts).
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.
    axis_name: mapped axis over which the batch is spread; every device gets the sums
      over all devices.

  Returns:
    ClassSums. An embedding that is not finite makes the sum of its class NaN, and no
    other.

  Raises:
    TypeError: embeddings not floating, labels not integers, where not boolean.
    ValueError: shapes do not match, or a known label outside [0, classes).

  Not differentiable. Cost: O((batch + classes) dim).

  Source: DL2P 3.2.3, which averages with momentum instead of summing over an epoch.

  Example:
    >>> state = spherejax.prototypes.class_sums_init(2, 2)
    >>> x = jnp.array([[0.0, 3.0], [1.0, 0.0]])
    >>> spherejax.prototypes.class_sums_update(state, x, jnp.array([1, 1]))
    ClassSums(sums=Array([[0., 0.], [1., 1.]], dtype=float32),
      counts=Array([0, 2], dtype=int32))
  """
  _checks.instance("state", state, ClassSums)
  classes, dim = state.sums.shape
  sums, counts, _ = _sums(embeddings, labels, classes, True, where, axis_name, dim)
  return ClassSums(state.sums + sums.astype(state.sums.dtype), state.counts + counts)


def class_sums_directions(
  state: ClassSums, previous: Float[ArrayLike, "classes dim"]
) -> Float[Array, "classes dim"]:
  """Representatives of an epoch: directions of the sums.

      m_c = l2(sum_c), or previous_c where the sum is 0

  Args:
    state: from `class_sums_update`.
    previous: [classes, dim], floating: rows for classes that had no embedding, or whose
      embeddings add to 0; for example from `ema_init`.

  Returns:
    [classes, dim], dtype of `previous`.

  Raises:
    TypeError: previous not floating.
    ValueError: shapes do not match.

  Not differentiable. Cost: O(classes dim).

  Source: DL2P 3.2.3, which averages with momentum instead of summing over an epoch.

  Example:
    >>> state = spherejax.prototypes.class_sums_init(2, 2)
    >>> state = spherejax.prototypes.class_sums_update(
    ...   state, jnp.array([[0.0, 3.0]]), jnp.array([1])
    ... )
    >>> spherejax.prototypes.class_sums_directions(state, jnp.array([[1.0, 0.0]] * 2))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
  """
  _checks.instance("state", state, ClassSums)
  previous = _checks.array("previous", previous, "floating")
  _checks.shape("previous", previous, state.sums.shape, "the sums")
  directions = _numerics.normalize(state.sums).astype(previous.dtype)
  zero = jnp.all(state.sums == 0, axis=1, keepdims=True)
  return jnp.where(zero, previous, directions)


def _sums(
  embeddings: ArrayLike,
  labels: ArrayLike,
  num_classes: int,
  on_sphere: bool,
  where: ArrayLike | None,
  axis_name: str | None,
  dim: int | None = None,
) -> tuple[Array, Array, jnp.dtype]:
  """Sums [classes, dim] and counts [classes] over all devices, and the type."""
  embeddings = _checks.array("embeddings", embeddings, "floating", rank=2)
  labels = _checks.integers("labels", labels)
  if dim is not None:
    expected = (len(embeddings), dim)
    _checks.shape("embeddings", embeddings, expected, "the state")
  _checks.labels(labels, embeddings)
  _checks.count("num_classes", num_classes)
  mask = _checks.where_mask(where, labels.shape)
  mask &= _checks.inside(labels, num_classes, mask)
  rows = _numerics.upcast(jax.lax.stop_gradient(embeddings))
  rows = jnp.where(mask[:, None], rows, 0)
  if on_sphere:
    rows = _numerics.normalize(rows)
  # A row with an infinite entry has no direction: the whole sum of its class is NaN.
  finite = jnp.all(jnp.isfinite(rows), axis=1, keepdims=True)
  rows = jnp.where(finite, rows, jnp.nan)
  index = jnp.where(mask, labels, 0)
  sums = jax.ops.segment_sum(rows, index, num_classes)
  counts = jax.ops.segment_sum(mask.astype(jnp.int32), index, num_classes)
  if axis_name is not None:
    sums, counts = jax.lax.psum((sums, counts), axis_name)
  return sums, counts, embeddings.dtype
