"""Attacks to compare, the peers' counterparts and the sizes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import Array

from spherejax import attacks

FOOLBOX, TORCHATTACKS = "foolbox", "torchattacks"
CLASSES = 10
Weights = list[tuple[Array, Array]]


class Case(NamedTuple):
  """Our attack, and the peers' counterparts.

  Attributes:
    ours: maps (logits_fn, x, labels, size) to an AttackResult; `size` is the number of
      steps.
    foolbox: maps (foolbox.attacks, size) to their attack; None if there is none.
    torchattacks: maps (torchattacks, model, size, epsilon) to their attack; None if
      there is none.
    gradients: maps a size to the number of the model's gradients; None if it depends
      on the data.
    minimal: True if the attack seeks the least l2 distance, not success at epsilon.
    sizes: steps for digits, for images and for the smoke run.
    agrees: largest allowed difference of success rates.
  """

  ours: Callable[..., Any]
  foolbox: Callable[..., Any] | None
  torchattacks: Callable[..., Any] | None
  gradients: Callable[[int], int] | None
  minimal: bool
  sizes: tuple[int, int, int]
  agrees: float


EPSILON = 0.08
CASES = {
  "FGSM": Case(
    lambda f, x, y, n: attacks.fgsm(f, x, y, epsilon=EPSILON, mode="last"),
    lambda them, n: them.LinfFastGradientAttack(),
    lambda them, model, n, e: them.FGSM(model, eps=e),
    lambda n: 1,
    False,
    (1, 1, 1),
    0.01,
  ),
  "PGD": Case(
    lambda f, x, y, n: attacks.bim(f, x, y, epsilon=EPSILON, steps=n, mode="last"),
    lambda them, n: them.LinfProjectedGradientDescentAttack(
      rel_stepsize=2.5 / n, steps=n, random_start=False
    ),
    lambda them, model, n, e: them.PGD(
      model, eps=e, alpha=2.5 * e / n, steps=n, random_start=False
    ),
    lambda n: n,
    False,
    (40, 40, 5),
    0.01,
  ),
  "APGD": Case(
    lambda f, x, y, n: attacks.apgd(
      f, x, y, key=jax.random.key(0), epsilon=EPSILON, steps=n
    ),
    None,
    lambda them, model, n, e: them.APGD(model, eps=e, steps=n, n_restarts=1),
    lambda n: n + 1,
    False,
    (100, 40, 10),
    0.02,
  ),
  "DeepFool": Case(
    lambda f, x, y, n: attacks.deepfool(f, x, y, steps=n),
    lambda them, n: them.L2DeepFoolAttack(steps=n, overshoot=0.02),
    None,  # crosses the decision boundary for only half of the digits
    None,
    True,
    (50, 50, 50),
    0.02,
  ),
  "C&W": Case(
    lambda f, x, y, n: attacks.carlini_wagner(
      f, x, y, steps=n, rounds=9, first_weight=1e-3
    ),
    lambda them, n: them.L2CarliniWagnerAttack(
      binary_search_steps=9, steps=n, stepsize=0.01, initial_const=1e-3
    ),
    None,  # does not search for a weight, so the problem differs
    lambda n: 9 * n,
    True,
    (100, 25, 100),
    0.05,
  ),
  "FAB": Case(
    lambda f, x, y, n: attacks.fab(f, x, y, steps=n),
    None,
    lambda them, model, n, e: them.FAB(
      model, norm="L2", eps=10.0, steps=n, n_restarts=1, n_classes=CLASSES
    ),
    None,
    True,
    (40, 10, 5),
    0.02,
  ),
}
