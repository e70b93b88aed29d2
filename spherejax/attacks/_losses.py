"""Losses that attacks ascend: one number per sample, from scores of the classes."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Integer

from spherejax import _checks, _numerics

Loss = Literal["ce", "margin", "dlr", "kl"]
_FLOOR = 1e-12  # least scale that the logits ratio divides by


def attack_loss(
  logits: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  loss: Loss = "ce",
  targets: Integer[ArrayLike, " batch"] | None = None,
  reference: Float[ArrayLike, "batch classes"] | None = None,
) -> Float[Array, " batch"]:
  """Loss that an attack maximises, away from the labels or towards targets.

      ce       log sum_k exp(z_k) - z_y              log p_t
      margin   max_{k != y} z_k - z_y                z_t - max_{k != t} z_k
      dlr      (max_{k != y} z_k - z_y) / (z_(1) - z_(3))
               with targets (z_t - z_y) / (z_(1) - (z_(3) + z_(4)) / 2)
      kl       sum_k p_k (log p_k - log q_k),   p = softmax(reference), q = softmax(z)

  z_(i) is the i-th largest. The cross-entropy has a gradient as long as float32 holds
  the other probabilities, down to exp(-87). The margin and the difference of logits
  ratio always have one; the ratio also ignores shifts and positive factors of the
  logits.

  Args:
    logits: [batch, classes], floating.
    labels: [batch], integer in [0, classes).
    loss: "ce", "margin", "dlr" or "kl". Static.
    targets: [batch], integer, not the labels. None: away from the labels.
    reference: [batch, classes], the logits that "kl" departs from; used with "kl" only.

  Returns:
    [batch], dtype of `logits`. With one class "ce" is 0 and "margin" -inf. A class that
    both logits and reference rule out by -inf adds nothing to "kl".

  Raises:
    TypeError: logits not floating, labels or targets not integers.
    ValueError: shapes do not match, an unknown loss, "dlr" with fewer than 3 classes
      (4 with targets), "kl" with targets or without `reference`, and, where known,
      labels or targets out of range.

  Differentiable in: logits, reference. Cost: O(batch classes).

  Source: Carlini and Wagner 2017, "Towards evaluating the robustness of neural
  networks" (margin); Croce and Hein 2020, "Reliable evaluation of adversarial
  robustness with an ensemble of diverse parameter-free attacks" (dlr); Zhang et al.
  2019, "Theoretically principled trade-off" (kl).

  Example:
    >>> logits = jnp.array([[3.0, 1.0, -1.0]])
    >>> spherejax.attacks.attack_loss(logits, jnp.array([0]), loss="dlr")
    Array([-0.5], dtype=float32)
  """
  logits = _checks.array("logits", logits, "floating", rank=2)
  labels = _checks.integers("labels", labels)
  _checks.labels(labels, logits)
  if targets is not None:
    targets = _checks.integers("targets", targets)
    _checks.labels(targets, logits, "targets")
  check_classes(loss, logits.shape[1], targets is not None)
  _checks.known_labels(labels, logits.shape[1])
  if targets is not None:
    _checks.known_labels(targets, logits.shape[1], name="targets")
  if (loss == "kl") != (reference is not None):
    raise ValueError(f'"kl" and no other loss takes a reference, got loss {loss!r}')
  wide = _numerics.upcast(logits)
  if reference is not None:
    reference = _numerics.upcast(_checks.array("reference", reference))
    _checks.shape("reference", reference, wide.shape, "the logits")
  return of_scores(wide, labels, loss, targets, reference).astype(logits.dtype)


def check_classes(loss: Loss, classes: int, targeted: bool) -> None:
  """Raises for a loss that is undefined for this number of classes, or with targets."""
  _checks.one_of("loss", loss, Loss)
  needed = 4 if targeted else 3
  if loss == "dlr" and classes < needed:
    aim = " with targets" if targeted else ""
    raise ValueError(f'"dlr"{aim} needs at least {needed} classes, got {classes}')
  if loss == "kl" and targeted:
    raise ValueError('"kl" has no targets')


def of_scores(
  z: Array,
  labels: Array,
  loss: Loss,
  targets: Array | None = None,
  reference: Array | None = None,
  *,
  against_label: bool = False,
) -> Array:
  """Loss of checked scores; `against_label` compares targets with the label only.

  The margin towards a target is then z_t - z_y, whatever the other scores.
  """
  if loss == "kl" and reference is not None:
    log_p, log_q = _numerics.log_softmax(reference), _numerics.log_softmax(z)
    p = jnp.exp(log_p)
    # 0 log 0 = 0, also where q is 0.
    return jnp.sum(p * _numerics.keep(log_p - log_q, p != 0), axis=1)
  if loss == "ce":
    reference_class = labels if targets is None else targets
    lead = z - pick(z, reference_class)[:, None]
    entropy = _numerics.softplus(_numerics.logsumexp(lead, ~chosen(z, reference_class)))
    return entropy if targets is None else -entropy
  if loss == "margin":
    if targets is None:
      return best_other(z, labels) - pick(z, labels)
    if against_label:
      return pick(z, targets) - pick(z, labels)
    return pick(z, targets) - best_other(z, targets)
  if targets is None:
    top = jax.lax.top_k(z, 3)[0]
    lead, scale = best_other(z, labels) - pick(z, labels), top[:, 0] - top[:, 2]
  else:
    top = jax.lax.top_k(z, 4)[0]
    lead = pick(z, targets) - pick(z, labels)
    scale = top[:, 0] - (top[:, 2] + top[:, 3]) / 2
  return lead / (scale + _FLOOR)


def chosen(z: Array, index: Array) -> Array:
  """[batch, classes], boolean: True at each row's index."""
  return jnp.arange(z.shape[1])[None] == index[:, None]


def pick(z: Array, index: Array) -> Array:
  """[batch]: the score at each row's index."""
  return _numerics.masked_sum(z, chosen(z, index))


def best_other(z: Array, index: Array) -> Array:
  """[batch]: the largest score at any other index; -inf if there is none."""
  if z.shape[1] == 1:
    return jnp.full(z.shape[:1], -jnp.inf, z.dtype)
  return pick(z, jnp.argmax(jnp.where(chosen(z, index), -jnp.inf, z), axis=1))


def margin_and_success(
  z: Array, labels: Array, targets: Array | None = None
) -> tuple[Array, Array]:
  """Lead of the best wrong class, or of the target, and whether it decides."""
  decision = jnp.argmax(z, axis=1)
  finite = jnp.all(jnp.isfinite(z), axis=1)
  if targets is None:
    margin, success = best_other(z, labels) - pick(z, labels), decision != labels
  else:
    margin, success = pick(z, targets) - best_other(z, targets), decision == targets
  if z.shape[1] == 1:
    success = jnp.zeros_like(success)
  return jnp.where(finite, margin, -jnp.inf), success & finite
