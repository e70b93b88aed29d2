"""Softmax losses with margins on the angle to the true class."""

import math
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks
from spherejax.losses import _classes, _turned

Tail = Literal["linear", "continuous"]


def cosface(
  cosines: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  scale: Real[ArrayLike, ""] = 64.0,
  margin: _classes.Margin = 0.35,
  where: Bool[ArrayLike, " batch"] | None = None,
  class_axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """CosFace loss: cross-entropy of scaled cosines, less a margin for the true class.

      z_ic = scale (cos_ic - margin 1[c = y_i])
      loss_i = -log softmax_c(z_ic)_{y_i}

  Args:
    cosines: [batch, classes], floating; `distances.pairwise_cosine` makes them.
      Known values must be in [-1, 1] up to rounding; traced values are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    scale: positive, multiplies the cosines; may be traced.
    margin: in units of a cosine, of any sign, may be traced; [classes] for one per
      class.
    where: [batch], boolean, True keeps. None keeps all.
    class_axis_name: mapped axis over whose devices the classes are split, see
      :ref:`classes-over-devices`. None: all classes are here.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: cosines are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), or a static
      scale that is not positive.

  Differentiable in: cosines, scale, margin. Cost: O(batch classes).

  Source: DIST 2.2; Wang et al. 2018, "CosFace", eq. 4.

  Example:
    >>> cosines, labels = jnp.eye(2), jnp.array([0, 1])
    >>> spherejax.losses.cosface(cosines, labels, scale=1.0, margin=1.0)
    Array([0.6931472, 0.6931472], dtype=float32)
  """
  _checks.positive("scale", scale)
  batch = _classes.scores(
    "cosines", cosines, labels, where, class_axis_name=class_axis_name
  )
  target = _classes.own_score(batch) - _classes.own_margin(batch, margin)
  multiplier = _checks.scalar("scale", scale, batch.values.dtype)
  loss = _classes.cross_entropy(
    batch.values, batch.class_mask, multiplier, target=target, axis_name=batch.axis_name
  )
  return loss.astype(batch.dtype)


def _shifted(cosine: Array, margin: Array, tail: Tail) -> Array:
  """cos(angle + margin), continued so that it decreases with the angle."""
  cos, sin = jnp.cos(margin), jnp.sin(margin)
  turned = _turned.turned(cosine, margin)
  beyond = cosine - margin * sin if tail == "linear" else cosine + cos - 1
  positive = jnp.where(cosine >= -cos, turned, beyond)
  negative = jnp.where(cosine <= cos, turned, cosine + 1 - cos)
  return jnp.where(margin >= 0, positive, negative)


def arcface(
  cosines: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  scale: Real[ArrayLike, ""] = 64.0,
  margin: _classes.Margin = 0.5,
  tail: Tail = "linear",
  easy_margin: bool = False,
  where: Bool[ArrayLike, " batch"] | None = None,
  class_axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """ArcFace loss: cross-entropy of scaled cosines, with the true class's angle widened.

      z_ic = scale cos(angle_ic + margin 1[c = y_i])
      loss_i = -log softmax_c(z_ic)_{y_i}

  cos(angle + margin) is continued where it would rise with the angle: with
  c = cos(angle),

      margin >= 0, angle > pi - margin:  c - margin sin(margin)      "linear"
                                         c + cos(margin) - 1         "continuous"
      margin < 0,  angle < -margin:      c + 1 - cos(margin)

  The linear tail, that of the released code, jumps down by 0.117 at margin 0.5.

  Args:
    cosines: [batch, classes], floating; `distances.pairwise_cosine` makes them.
      Known values must be in [-1, 1] up to rounding; traced values are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    scale: positive, multiplies the cosines; may be traced.
    margin: radians in [-pi/2, pi/2], may be traced; [classes] for one per class. A
      traced margin outside this range is used as it is; the loss is then not monotone.
    tail: "linear" or "continuous". Static.
    easy_margin: apply the margin only to rows within a right angle of their class.
      Static.
    where: [batch], boolean, True keeps. None keeps all.
    class_axis_name: mapped axis over whose devices the classes are split, see
      :ref:`classes-over-devices`. None: all classes are here.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: cosines are not floating, labels not integers, easy_margin not boolean.
    ValueError: shapes do not match, a known label outside [0, classes), a known
      margin outside [-pi/2, pi/2], an unknown `tail`, or a static scale that is not
      positive.

  Differentiable in: cosines, scale, margin. At a cosine of exactly 1 or -1 with the
  true class the derivative is cos(margin). Cost: O(batch classes).

  Source: DIST 2.2; Deng et al. 2019, "ArcFace", eq. 3. The continuous tail and the tail
  of negative margins are not in the paper.

  Example:
    >>> cosines, labels = jnp.eye(2), jnp.array([0, 1])
    >>> spherejax.losses.arcface(cosines, labels, scale=1.0, margin=jnp.pi / 2)
    Array([0.6931472, 0.6931472], dtype=float32)
  """
  _checks.flag("easy_margin", easy_margin)
  _checks.positive("scale", scale)
  batch = _classes.scores(
    "cosines", cosines, labels, where, class_axis_name=class_axis_name
  )
  return _arcface(batch, scale, margin, tail, easy_margin)


def _arcface(
  batch: _classes.Scores,
  scale: ArrayLike,
  margin: ArrayLike,
  tail: Tail,
  easy_margin: bool,
) -> Array:
  _checks.one_of("tail", tail, Tail)
  margins = _classes.own_margin(batch, margin, -math.pi / 2, math.pi / 2)
  cosine = _classes.own_score(batch)
  target = _shifted(cosine, margins, tail)
  if easy_margin:
    target = jnp.where(cosine > 0, target, cosine)
  multiplier = _checks.scalar("scale", scale, batch.values.dtype)
  loss = _classes.cross_entropy(
    batch.values, batch.class_mask, multiplier, target=target, axis_name=batch.axis_name
  )
  return loss.astype(batch.dtype)


def subcentre_arcface(
  cosines: Float[ArrayLike, "batch classes centres"],
  labels: Integer[ArrayLike, " batch"],
  *,
  scale: Real[ArrayLike, ""] = 64.0,
  margin: _classes.Margin = 0.5,
  tail: Tail = "linear",
  easy_margin: bool = False,
  where: Bool[ArrayLike, " batch"] | None = None,
  class_axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Sub-centre ArcFace: ArcFace on the nearest of several centres of each class.

      cos_ic = max_k cos(x_i, w_ck)
      loss_i = ArcFace of cos_i

  Wrongly labelled examples and sub-groups gather at centres of their own. With one
  centre per class the loss is `arcface`.

  Args:
    cosines: [batch, classes, centres], floating. Among equal cosines of a class the
      lowest index takes the gradient. Known values must be in [-1, 1] up to rounding;
      traced values are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    scale: positive, multiplies the cosines; may be traced.
    margin: radians in [-pi/2, pi/2], may be traced; [classes] for one per class.
    tail: "linear" or "continuous", as in `arcface`. Static.
    easy_margin: apply the margin only to rows within a right angle of their class.
      Static.
    where: [batch], boolean, True keeps. None keeps all.
    class_axis_name: mapped axis over whose devices the classes are split, see
      :ref:`classes-over-devices`. None: all classes are here.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: cosines are not floating, labels not integers, easy_margin not boolean.
    ValueError: shapes do not match, a known label outside [0, classes), a known
      margin outside [-pi/2, pi/2], an unknown `tail`, or a static scale that is not
      positive.

  Differentiable in: cosines, scale, margin. Cost: O(batch classes centres).

  Source: Deng et al. 2020, "Sub-center ArcFace" (three centres per class).

  Example:
    >>> cosines, labels = jnp.stack([jnp.zeros((2, 2)), jnp.eye(2)], 2), jnp.arange(2)
    >>> spherejax.losses.subcentre_arcface(cosines, labels, scale=1.0, margin=0.0)
    Array([0.3132617, 0.3132617], dtype=float32)
  """
  _checks.flag("easy_margin", easy_margin)
  _checks.positive("scale", scale)
  batch = _classes.scores(
    "cosines", cosines, labels, where, axes=3, class_axis_name=class_axis_name
  )
  centres = range(batch.values.shape[-1])
  nearest = batch._replace(
    values=_classes.highest([batch.values[..., k] for k in centres])
  )
  return _arcface(nearest, scale, margin, tail, easy_margin)


def sphereface(
  cosines: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  norms: Float[ArrayLike, " batch"],
  *,
  margin: int = 4,
  annealing: Real[ArrayLike, ""] = 0.0,
  where: Bool[ArrayLike, " batch"] | None = None,
  class_axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """SphereFace loss: multiplies the true class's angle, keeps the embedding's length.

      z_ic = |x_i| cos_ic                                          c != y_i
      z_iy = |x_i| (annealing cos_iy + psi(cos_iy)) / (1 + annealing)
      psi(cos a) = (-1)^k cos(margin a) - 2 k,    k = floor(margin a / pi)
      loss_i = -log softmax_c(z_ic)_{y_i}

  The paper's implementation sets `annealing` to max(5, 1000 / (1 + 0.12 step)).

  Args:
    cosines: [batch, classes], floating; `distances.pairwise_cosine` makes them.
      Known values must be in [-1, 1] up to rounding; traced values are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    norms: [batch], floating, lengths |x_i| of the embeddings.
    margin: factor of the angle, at least 1. Static.
    annealing: weight of the plain cosine, at least 0, may be traced.
    where: [batch], boolean, True keeps. None keeps all.
    class_axis_name: mapped axis over whose devices the classes are split, see
      :ref:`classes-over-devices`. None: all classes are here.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: cosines or norms are not floating, labels not integers, margin not a
      static integer.
    ValueError: shapes do not match, a known label outside [0, classes), a margin
      below 1, or a static annealing below 0.

  Differentiable in: cosines, norms, annealing. Cost: O(batch classes).

  Source: DIST II appendix E; Liu et al. 2017, "SphereFace", eq. 7.

  Example:
    >>> cosines, labels = jnp.eye(2), jnp.array([0, 1])
    >>> spherejax.losses.sphereface(cosines, labels, jnp.ones(2))
    Array([0.3132617, 0.3132617], dtype=float32)
  """
  cosines = _checks.array("cosines", cosines, rank=2)
  lengths = _checks.array("norms", norms)
  _checks.shape("norms", lengths, cosines.shape[:1], "the cosines")
  return large_margin_softmax(
    cosines,
    labels,
    lengths[:, None],
    margin=margin,
    annealing=annealing,
    where=where,
    class_axis_name=class_axis_name,
  )


def large_margin_softmax(
  cosines: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  norms: Float[ArrayLike, "batch classes"] | Float[ArrayLike, "batch 1"],
  *,
  margin: int = 4,
  annealing: Real[ArrayLike, ""] = 0.0,
  where: Bool[ArrayLike, " batch"] | None = None,
  class_axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Large-margin softmax: multiplies the true class's angle and keeps all lengths.

      z_ic = |x_i| |w_c| cos_ic                                        c != y_i
      z_iy = |x_i| |w_y| (annealing cos_iy + psi(cos_iy)) / (1 + annealing)
      psi(cos a) = (-1)^k cos(margin a) - 2 k,    k = floor(margin a / pi)
      loss_i = -log softmax_c(z_ic)_{y_i}

  Args:
    cosines: [batch, classes], floating; `distances.pairwise_cosine` makes them.
      Known values must be in [-1, 1] up to rounding; traced values are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    norms: [batch, classes], floating, |x_i| |w_c|; or [batch, 1] where all weights
      have one length.
    margin: factor of the angle, at least 1. Static.
    annealing: weight of the plain cosine, at least 0, may be traced.
    where: [batch], boolean, True keeps. None keeps all.
    class_axis_name: mapped axis over whose devices the classes are split, see
      :ref:`classes-over-devices`. None: all classes are here.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: cosines or norms are not floating, labels not integers, margin not a
      static integer.
    ValueError: shapes do not match, a known label outside [0, classes), a margin
      below 1, or a static annealing below 0.

  Differentiable in: cosines, norms, annealing. Cost: O(batch classes).

  Source: Liu et al. 2016, "Large-margin softmax loss for convolutional neural
  networks", eq. 4-6.

  Example:
    >>> cosines, labels = jnp.eye(2), jnp.array([0, 1])
    >>> spherejax.losses.large_margin_softmax(cosines, labels, jnp.ones((2, 2)))
    Array([0.3132617, 0.3132617], dtype=float32)
  """
  _checks.count("margin", margin)
  _checks.between("annealing", annealing, 0)
  batch = _classes.scores(
    "cosines", cosines, labels, where, class_axis_name=class_axis_name
  )
  lengths = _checks.array("norms", norms, "floating")
  columns = 1 if lengths.shape[1:] == (1,) else batch.class_mask.shape[1]
  _checks.shape("norms", lengths, (len(batch.class_mask), columns), "the cosines")
  mask = _classes.has_class(batch.class_mask, class_axis_name)[:, None]
  lengths = jnp.where(mask, lengths.astype(batch.values.dtype), 0)
  plain = _checks.scalar("annealing", annealing, batch.values.dtype)
  cosine = _classes.own_score(batch)
  lengths = jnp.broadcast_to(lengths, batch.class_mask.shape)
  own_length = _classes.own_score(batch._replace(values=lengths))
  mixed = (plain * cosine + _multiplied(cosine, margin)) / (1 + plain)
  loss = _classes.cross_entropy(
    lengths * batch.values,
    batch.class_mask,
    target=own_length * mixed,
    axis_name=class_axis_name,
  )
  return loss.astype(batch.dtype)


def _multiplied(cosine: Array, factor: int) -> Array:
  """(-1)^k cos(factor angle) - 2 k, from the cosine by Chebyshev's recurrence."""
  before, polynomial = jnp.ones_like(cosine), cosine
  for _ in range(factor - 1):
    before, polynomial = polynomial, 2 * cosine * polynomial - before
  turns = [cosine < math.cos(j * math.pi / factor) for j in range(1, factor)]
  k = sum(turn.astype(cosine.dtype) for turn in turns) if turns else 0 * cosine
  return (1 - 2 * (k % 2)) * polynomial - 2 * k
