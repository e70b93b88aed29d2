"""FGSM, BIM and MI-FGSM: special cases of PGD that begin at the sample itself."""

from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Integer, Real

from spherejax import _checks
from spherejax.attacks._attempts import Targets
from spherejax.attacks._gradient import pgd
from spherejax.attacks._losses import Loss
from spherejax.attacks._problem import AttackResult, Mode, Model
from spherejax.distances._lp import Norm


def bim(
  logits_fn: Model,
  x: Float[ArrayLike, "batch ..."],
  labels: Integer[ArrayLike, " batch"],
  *,
  epsilon: Real[ArrayLike, "..."],
  key: Array | None = None,
  steps: int = 10,
  norm: Norm = "linf",
  step_size: Real[ArrayLike, "..."] | None = None,
  loss: Loss = "ce",
  targets: Targets = None,
  low: Real[ArrayLike, "..."] = 0.0,
  high: Real[ArrayLike, "..."] = 1.0,
  mode: Mode = "evaluate",
  index: Integer[ArrayLike, " batch"] | None = None,
) -> AttackResult:
  """Basic iterative method (BIM): projected gradient ascent from the sample itself.

      x_0 = x,   x_{i+1} = P(x_i + step_size s(grad loss(x_i)))

  Args:
    logits_fn: maps [batch, ...] to [batch, classes]; or an `Expectation`. A new
      function compiles again: see `spherejax.attacks`.
    x: [batch, ...], floating, in the box.
    labels: [batch], integer in [0, classes).
    epsilon: radius, at least 0, one number or [batch]; may be traced; inf for the box.
    key: only for an `Expectation`.
    steps: static.
    norm: "linf", "l2" or "l1". Static.
    step_size: one number or [batch], may be traced. None is 2.5 epsilon / steps.
    loss: see `attack_loss`; "kl" has no slope at x. Static.
    targets: as in `pgd`.
    low: least value of an entry; broadcasts to x.
    high: largest value; likewise.
    mode: as in `pgd`. Static.
    index: as in `pgd`.

  Returns:
    AttackResult.

  Raises:
    TypeError: as `pgd`.
    ValueError: as `pgd`.

  Verified on: 128 samples of affine models of 3 classes, half of the entries on faces
  of the box, epsilon 1.02 times the least move: the defaults break 76 % (linf), 43 %
  (l2) and 55 % (l1).

  Differentiable in: nothing. Cost: steps gradients and 1 or 2 evaluations.

  Source: DIST eq. 3.2; Kurakin et al. 2017, "Adversarial machine learning at scale".

  Example:
    >>> logits_fn = lambda x: x @ jnp.array([[1.0, -1.0], [0.0, 0.5]])
    >>> x, labels = jnp.array([[0.7, 0.5]]), jnp.array([0])
    >>> found = spherejax.attacks.bim(
    ...   logits_fn, x, labels, epsilon=0.25)
    >>> found.x_adv.round(2)
    Array([[0.45, 0.75]], dtype=float32)
  """
  if key is not None:
    _checks.key("key", key)
  return pgd(
    logits_fn,
    x,
    labels,
    key=key,
    epsilon=epsilon,
    norm=norm,
    steps=steps,
    step_size=step_size,
    random_start=False,
    loss=loss,
    targets=targets,
    low=low,
    high=high,
    mode=mode,
    index=index,
  )


def fgsm(
  logits_fn: Model,
  x: Float[ArrayLike, "batch ..."],
  labels: Integer[ArrayLike, " batch"],
  *,
  epsilon: Real[ArrayLike, "..."],
  key: Array | None = None,
  norm: Norm = "linf",
  loss: Loss = "ce",
  targets: Targets = None,
  low: Real[ArrayLike, "..."] = 0.0,
  high: Real[ArrayLike, "..."] = 1.0,
  mode: Mode = "evaluate",
  index: Integer[ArrayLike, " batch"] | None = None,
) -> AttackResult:
  """Fast gradient (sign) method (FGSM): a single step as long as the radius.

      x' = P(x + epsilon s(grad loss(x)))        linf: s(g) = sign(g)

  Args:
    logits_fn: maps [batch, ...] to [batch, classes]; or an `Expectation`. A new
      function compiles again: see `spherejax.attacks`.
    x: [batch, ...], floating, in the box.
    labels: [batch], integer in [0, classes).
    epsilon: radius, at least 0, one number or [batch]; may be traced; inf for the box.
    key: only for an `Expectation`.
    norm: "linf", "l2" or "l1" (moves the steepest entry only). Static.
    loss: see `attack_loss`; "kl" has no slope at x. Static.
    targets: as in `pgd`.
    low: least value of an entry; broadcasts to x.
    high: largest value; likewise.
    mode: as in `pgd`; with "evaluate" x itself counts as an iterate. Static.
    index: as in `pgd`.

  Returns:
    AttackResult.

  Raises:
    TypeError: as `pgd`.
    ValueError: as `pgd`.

  Verified on: 128 samples of affine models of 3 classes, half of the entries on faces
  of the box, epsilon 1.02 times the least move: the defaults break 66 % (linf), 12 %
  (l2) and 55 % (l1).

  Differentiable in: nothing. Cost: a gradient and 1 or 2 evaluations.

  Source: DIST 3.1, to which the projection onto the box is added; Goodfellow et al.
  2015, "Explaining and harnessing adversarial examples".

  Example:
    >>> logits_fn = lambda x: x @ jnp.array([[1.0, -1.0], [0.0, 0.5]])
    >>> x, labels = jnp.array([[0.7, 0.9]]), jnp.array([0])
    >>> found = spherejax.attacks.fgsm(
    ...   logits_fn, x, labels, epsilon=0.25)
    >>> found.x_adv.round(2)
    Array([[0.45, 1.  ]], dtype=float32)
  """
  if key is not None:
    _checks.key("key", key)
  return pgd(
    logits_fn,
    x,
    labels,
    key=key,
    epsilon=epsilon,
    norm=norm,
    steps=1,
    step_size=epsilon,
    random_start=False,
    loss=loss,
    targets=targets,
    share=0.0,
    low=low,
    high=high,
    mode=mode,
    index=index,
  )


def mi_fgsm(
  logits_fn: Model,
  x: Float[ArrayLike, "batch ..."],
  labels: Integer[ArrayLike, " batch"],
  *,
  epsilon: Real[ArrayLike, "..."],
  key: Array | None = None,
  steps: int = 10,
  decay: Real[ArrayLike, ""] = 1.0,
  norm: Norm = "linf",
  step_size: Real[ArrayLike, "..."] | None = None,
  loss: Loss = "ce",
  targets: Targets = None,
  low: Real[ArrayLike, "..."] = 0.0,
  high: Real[ArrayLike, "..."] = 1.0,
  mode: Mode = "evaluate",
  index: Integer[ArrayLike, " batch"] | None = None,
) -> AttackResult:
  """Momentum iterative method (MI-FGSM): BIM along an accumulated gradient.

      v <- decay v + g / |g|_1,   x <- P(x + step_size s(v))

  Args:
    logits_fn: maps [batch, ...] to [batch, classes]; or an `Expectation`. A new
      function compiles again: see `spherejax.attacks`.
    x: [batch, ...], floating, in the box.
    labels: [batch], integer in [0, classes).
    epsilon: radius, at least 0, one number or [batch]; may be traced; inf for the box.
    key: only for an `Expectation`.
    steps: static.
    decay: at least 0, may be traced. 0 gives `bim`.
    norm: "linf", "l2" or "l1". Static.
    step_size: one number or [batch], may be traced. None is 2.5 epsilon / steps; the
      paper has epsilon / steps.
    loss: see `attack_loss`; "kl" has no slope at x. Static.
    targets: as in `pgd`.
    low: least value of an entry; broadcasts to x.
    high: largest value; likewise.
    mode: as in `pgd`. Static.
    index: as in `pgd`.

  Returns:
    AttackResult.

  Raises:
    TypeError: as `pgd`.
    ValueError: as `pgd`, or a static decay below 0.

  Verified on: 128 samples of affine models of 3 classes, half of the entries on faces
  of the box, epsilon 1.02 times the least move: the defaults break 70 % (linf), 38 %
  (l2) and 55 % (l1).

  Differentiable in: nothing. Cost: steps gradients and 1 or 2 evaluations.

  Source: Dong et al. 2018, "Boosting adversarial attacks with momentum".

  Example:
    >>> logits_fn = lambda x: x @ jnp.array([[1.0, -1.0], [0.0, 0.5]])
    >>> x, labels = jnp.array([[0.7, 0.5]]), jnp.array([0])
    >>> found = spherejax.attacks.mi_fgsm(
    ...   logits_fn, x, labels, epsilon=0.25)
    >>> found.x_adv.round(2)
    Array([[0.45, 0.75]], dtype=float32)
  """
  if key is not None:
    _checks.key("key", key)
  _checks.between("decay", decay, 0)
  _checks.single("decay", decay)
  return pgd(
    logits_fn,
    x,
    labels,
    key=key,
    epsilon=epsilon,
    norm=norm,
    steps=steps,
    step_size=step_size,
    random_start=False,
    loss=loss,
    targets=targets,
    decay=decay,
    low=low,
    high=high,
    mode=mode,
    index=index,
  )
