"""Losses of adversarial training, from scores of clean and of attacked examples."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics, distances
from spherejax.losses import _classes, _extremes, _turned

Divergence = Literal["ce", "kl"]
SLACK = 1e-6  # radians by which an angle stays below half the angle to the next proxy


def _both(
  name: str,
  clean: ArrayLike,
  adversarial: ArrayLike,
  labels: ArrayLike,
  where: ArrayLike | None,
) -> tuple[_classes.Scores, _classes.Scores]:
  """Checked scores of the clean and of the adversarial examples, of one shape."""
  first = _classes.scores(name, clean, labels, where)
  attacked = _checks.array(f"adversarial_{name}", adversarial)
  # The shape is checked first: otherwise a missing class would be reported as a label.
  _checks.shape(f"adversarial_{name}", attacked, first.values.shape, f"the {name}")
  return first, _classes.scores(f"adversarial_{name}", attacked, labels, where)


def _mix(clean: Array, adversarial: Array, weight: ArrayLike) -> Array:
  share = _checks.scalar("clean_weight", weight, clean.dtype)
  return share * clean + (1 - share) * adversarial


def adversarial_training(
  logits: Float[ArrayLike, "batch classes"],
  adversarial_logits: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  clean_weight: Real[ArrayLike, ""] = 0.5,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """Adversarial training: weighted cross-entropies of clean and adversarial examples.

      loss_i = a ce(z(x_i), y_i) + (1 - a) ce(z(x*_i), y_i),    a = clean_weight

  x* is the result of an attack on x with the current parameters, held constant.

  Args:
    logits: [batch, classes], floating, of the clean examples.
    adversarial_logits: [batch, classes], floating, of the attacked ones. Neither may be
      probabilities: known rows that look like probabilities cause a warning; traced
      rows are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    clean_weight: a in [0, 1), may be traced. 0.5 is Goodfellow's mix; with 0 the loss
      is `softmax` of the adversarial logits alone (Madry).
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `logits`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: logits are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), or a static
      clean_weight outside [0, 1).

  Differentiable in: both logits, clean_weight. Cost: O(batch classes).

  Source: DIST eq. 3.7, whose second line lacks both logarithms; Goodfellow et al. 2015,
  "Explaining and harnessing adversarial examples"; Madry et al. 2018, "Towards deep
  learning models resistant to adversarial attacks".

  Example:
    >>> clean, attacked = jnp.array([[2.0, 0.0]]), jnp.array([[0.0, 2.0]])
    >>> spherejax.losses.adversarial_training(clean, attacked, jnp.array([0]))
    Array([1.126928], dtype=float32)
  """
  _checks.between("clean_weight", clean_weight, 0, 1, high_open=True)
  clean, attacked = _both("logits", logits, adversarial_logits, labels, where)
  on_clean = _classes.cross_entropy(clean.values, clean.class_mask)
  on_attacked = _classes.cross_entropy(attacked.values, attacked.class_mask)
  return _mix(on_clean, on_attacked, clean_weight).astype(clean.dtype)


def trades(
  logits: Float[ArrayLike, "batch classes"],
  adversarial_logits: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  weight: Real[ArrayLike, ""] = 6.0,
  divergence: Divergence = "ce",
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """TRADES: cross-entropy plus the divergence of the attacked prediction.

      loss_i = ce(z(x_i), y_i) + weight D(p(x_i), p(x*_i)),    p = softmax(z)
      D(p, q) = -sum_c p_c log q_c           "ce"
      D(p, q) = sum_c p_c log(p_c / q_c)     "kl"

  The two divergences differ by the entropy of p(x): "ce" also sharpens the clean
  prediction. x* maximises D and is held constant; both predictions are differentiated.
  At x* = x the gradient through x* is 0, so an attack has to begin elsewhere.

  Args:
    logits: [batch, classes], floating, of the clean examples.
    adversarial_logits: [batch, classes], floating, of the attacked ones. Neither may be
      probabilities: known rows that look like probabilities cause a warning; traced
      rows are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    weight: at least 0, may be traced. The inverse of the paper's lambda.
    divergence: "ce" or "kl". Static.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `logits`; 0 for masked rows. `loss.mean()` is the paper's scalar.
    Rows do not depend on each other. A class that both logits rule out by -inf adds
    nothing. A class that only the attacked logits rule out makes the row inf.

  Raises:
    TypeError: logits are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), an unknown
      `divergence`, or a static weight below 0.

  Differentiable in: both logits, weight. Cost: O(batch classes).

  Source: Zhang et al. 2019, "Theoretically principled trade-off between robustness and
  accuracy", eq. 5, whose released code has "kl"; DIST 3.2, whose second line lacks the
  logarithm of the first term.

  Example:
    >>> clean, attacked = jnp.array([[2.0, 0.0]]), jnp.array([[0.0, 0.0]])
    >>> spherejax.losses.trades(clean, attacked, jnp.array([0]), weight=1.0)
    Array([0.8200752], dtype=float32)
  """
  _checks.one_of("divergence", divergence, Divergence)
  _checks.between("weight", weight, 0)
  clean, attacked = _both("logits", logits, adversarial_logits, labels, where)
  log_p = _numerics.log_softmax(clean.values)
  log_q = _numerics.log_softmax(attacked.values)
  surprise = log_p - log_q if divergence == "kl" else -log_q
  p = jnp.exp(log_p)
  # A class of probability 0 adds nothing: 0 log 0 = 0, and 0 log q = 0.
  possible = p > 0
  mean_divergence = _numerics.masked_sum(
    p * _numerics.keep(surprise, possible), possible
  )
  strength = _checks.scalar("weight", weight, mean_divergence.dtype)
  loss = (
    _classes.cross_entropy(clean.values, clean.class_mask) + strength * mean_divergence
  )
  return jnp.where(jnp.any(clean.class_mask, axis=1), loss, 0).astype(clean.dtype)


def nearest_proxy_angles(
  proxies: Float[ArrayLike, "classes dim"], *, stop_gradient: bool = True
) -> Float[Array, " classes"]:
  """Angle from each proxy to the nearest other proxy.

      angle_c = min_{k != c} angle(w_c, w_k)

  `proxy_cap` and `normface_negative_margin` use these angles as widths of the classes.

  Args:
    proxies: [classes, dim], floating.
    stop_gradient: True treats the angles as constants, so they do not move the proxies;
      False differentiates them. Static.

  Returns:
    [classes], dtype of `proxies`, radians in [0, pi]; pi for a single class. Among
    proxies nearer than 1e-3 in float32, any may count as the nearest.

  Raises:
    TypeError: proxies are not floating, stop_gradient not boolean.
    ValueError: proxies are not a matrix.

  Differentiable in: proxies, with `stop_gradient=False`; ties go to the first proxy,
  and the derivative is 0 at the angles 0 and pi. Cost: O(classes^2 dim).

  Source: DIST 6.2.1.

  Example:
    >>> proxies = jnp.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> spherejax.losses.nearest_proxy_angles(proxies)
    Array([1.5707964, 1.5707964, 1.5707964], dtype=float32)
  """
  _checks.flag("stop_gradient", stop_gradient)
  proxies = _checks.array("proxies", proxies, "floating", rank=2)
  if stop_gradient:
    proxies = jax.lax.stop_gradient(proxies)
  classes = len(proxies)
  others = ~jnp.eye(classes, dtype=bool)
  # The matrix rounds angles below 1e-3 to 0: it only finds the pairs.
  angles = distances.pairwise_angle(jax.lax.stop_gradient(proxies))
  nearest = _extremes.where_smallest(angles, others)
  exact = distances.angle(proxies, proxies[jnp.minimum(nearest, classes - 1)])
  return jnp.where(nearest < classes, exact, jnp.pi)


def _half_angles(nearest_angles: ArrayLike, scores: _classes.Scores) -> Array:
  """[batch, 1]: half the angle from the own proxy to the nearest, less the slack."""
  angles = _checks.array("nearest_angles", nearest_angles, "floating")
  _checks.shape("nearest_angles", angles, scores.class_mask.shape[1:], "the classes")
  wide = angles.astype(scores.values.dtype)
  return _numerics.masked_sum(wide[None], scores.class_mask)[:, None] / 2 - SLACK


def proxy_cap(
  cosines: Float[ArrayLike, "batch classes"],
  adversarial_cosines: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  nearest_angles: Float[ArrayLike, " classes"],
  *,
  clean_weight: Real[ArrayLike, ""] = 0.5,
  scale: Real[ArrayLike, ""] = 64.0,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """NormFace loss on clean examples, plus a cap around the proxy for attacked ones.

      loss_i = a normface(cos(x_i), y_i)
               + (1 - a) log(1 + exp(scale (cos(w - 1e-6) - cos(x*_i, w_{y_i}))))

  with w = nearest_angles[y_i] / 2 and a = clean_weight. The second term sets in at the
  angle w. Within this angle the own proxy is nearer than any other, and a move of the
  embedding by less than the remaining angle does not change the class.

  Args:
    cosines: [batch, classes], floating, of the clean examples with the proxies.
    adversarial_cosines: [batch, classes], floating, of the attacked ones.
      Known cosines must be in [-1, 1] up to rounding; traced ones are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    nearest_angles: [classes], radians; `nearest_proxy_angles` of the proxies.
    clean_weight: a in [0, 1), may be traced.
    scale: positive, may be traced.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: cosines or angles are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), a static
      clean_weight outside [0, 1) or a static scale that is not positive.

  Differentiable in: both cosines, nearest_angles, clean_weight, scale.
  Cost: O(batch classes).

  Source: DIST 6.2.1, which wants attacked examples within half the angle to the next
  proxy. Differs from DIST: its printed margin, `normface_negative_margin`, does not
  enforce this bound; this loss does.

  Example:
    >>> cosines, labels = jnp.eye(2), jnp.array([0, 1])
    >>> angles = spherejax.losses.nearest_proxy_angles(jnp.eye(2))
    >>> spherejax.losses.proxy_cap(cosines, 0.7 * cosines, labels, angles, scale=1.0)
    Array([0.5049845, 0.5049845], dtype=float32)
  """
  _checks.between("clean_weight", clean_weight, 0, 1, high_open=True)
  _checks.positive("scale", scale)
  clean, attacked = _both("cosines", cosines, adversarial_cosines, labels, where)
  multiplier = _checks.scalar("scale", scale, clean.values.dtype)
  limit = jnp.cos(_half_angles(nearest_angles, clean))
  excess = multiplier * (limit - _classes.own_score(attacked))
  cap = jnp.where(
    jnp.any(clean.class_mask, axis=1), _numerics.softplus(excess)[:, 0], 0
  )
  normface = _classes.cross_entropy(clean.values, clean.class_mask, multiplier)
  return _mix(normface, cap, clean_weight).astype(clean.dtype)


def normface_negative_margin(
  cosines: Float[ArrayLike, "batch classes"],
  adversarial_cosines: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  nearest_angles: Float[ArrayLike, " classes"],
  *,
  clean_weight: Real[ArrayLike, ""] = 0.5,
  scale: Real[ArrayLike, ""] = 64.0,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """NormFace loss on clean examples, ArcFace with a negative margin on attacked ones.

      loss_i = a normface(cos(x_i), y_i) + (1 - a) l_i,    a = clean_weight
      l_i = -log softmax_c(scale cos(x*_i, w_c))_{y_i}, the cosine of the own class
            replaced by cos([theta_i - w]+)

  with theta_i the angle of x*_i and its proxy, w = nearest_angles[y_i] / 2 - 1e-6.

  Args:
    cosines: [batch, classes], floating, of the clean examples with the proxies.
    adversarial_cosines: [batch, classes], floating, of the attacked ones.
      Known cosines must be in [-1, 1] up to rounding; traced ones are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    nearest_angles: [classes], radians; `nearest_proxy_angles` of the proxies.
    clean_weight: a in [0, 1), may be traced.
    scale: positive, may be traced.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: cosines or angles are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), a static
      clean_weight outside [0, 1) or a static scale that is not positive.

  Differentiable in: both cosines, nearest_angles, clean_weight, scale.
  Cost: O(batch classes).

  Source: DIST 6.2.1, as printed except for the positive part, without which an example
  nearer than w to its proxy is pushed away from it. Contrary to the claim there, the
  margin does not keep attacked examples within w of their proxy; they may even be
  nearer to another. `proxy_cap` keeps them there.

  Example:
    >>> cosines, labels = jnp.eye(2), jnp.array([0, 1])
    >>> angles = spherejax.losses.nearest_proxy_angles(jnp.eye(2))
    >>> spherejax.losses.normface_negative_margin(
    ...   cosines, 0.7 * cosines, labels, angles, scale=1.0
    ... )
    Array([0.31326842, 0.31326842], dtype=float32)
  """
  _checks.between("clean_weight", clean_weight, 0, 1, high_open=True)
  _checks.positive("scale", scale)
  clean, attacked = _both("cosines", cosines, adversarial_cosines, labels, where)
  multiplier = _checks.scalar("scale", scale, clean.values.dtype)
  width = _half_angles(nearest_angles, clean)
  cosine = _classes.own_score(attacked)
  turned = _turned.turned(cosine, -width)
  # An angle below the width becomes 0; a negative width, from coinciding proxies,
  # widens the angle.
  turned = jnp.where((width > 0) & (cosine > jnp.cos(width)), 1, turned)
  arcface = _classes.cross_entropy(
    attacked.values, attacked.class_mask, multiplier, target=turned
  )
  normface = _classes.cross_entropy(clean.values, clean.class_mask, multiplier)
  return _mix(normface, arcface, clean_weight).astype(clean.dtype)
