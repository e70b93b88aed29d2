"""Attacks on classifiers: pure functions of a model's logits, per sample, in any norm.

Every returned point lies in its region in exact arithmetic. The result of a sample
depends on no other sample of its batch.

An attack is compiled once for each combination of model function, shapes and static
options; numbers such as `epsilon` are data. A function that holds other objects than
before, or reads other objects by a global name, counts as a new function. So a function
that closes over a network's variables is compiled again after every step of training.
Pass the variables as data instead:

    logits_fn = jax.tree_util.Partial(model.apply, variables)

Three kinds of changes go unnoticed: a NumPy array that is changed in place, a change
inside an object that an object of the function holds, and another object under a global
name that only a function of another module reads.
"""

from spherejax import _compiled, _names
from spherejax.attacks._auto import apgd as apgd
from spherejax.attacks._ball import round_inside as round_inside
from spherejax.attacks._ball import seal as seal
from spherejax.attacks._ball import steepest_ascent as steepest_ascent
from spherejax.attacks._ball import uniform_ball as uniform_ball
from spherejax.attacks._carlini_wagner import carlini_wagner as carlini_wagner
from spherejax.attacks._combined_ball import CombinedBall as CombinedBall
from spherejax.attacks._combined_ball import combined_ball as combined_ball
from spherejax.attacks._decision import with_decision as with_decision
from spherejax.attacks._deepfool import deepfool as deepfool
from spherejax.attacks._ensemble import Diagnosis as Diagnosis
from spherejax.attacks._ensemble import diagnose as diagnose
from spherejax.attacks._ensemble import ensemble as ensemble
from spherejax.attacks._fab import fab as fab
from spherejax.attacks._gradient import pgd as pgd
from spherejax.attacks._iterative import bim as bim
from spherejax.attacks._iterative import fgsm as fgsm
from spherejax.attacks._iterative import mi_fgsm as mi_fgsm
from spherejax.attacks._losses import attack_loss as attack_loss
from spherejax.attacks._problem import AttackResult as AttackResult
from spherejax.attacks._problem import AttackResult as EnsembleResult
from spherejax.attacks._problem import Expectation as Expectation
from spherejax.attacks._region import Ball as Ball
from spherejax.attacks._region import Region as Region
from spherejax.attacks._smoothing import Certificate as Certificate
from spherejax.attacks._smoothing import clopper_pearson as clopper_pearson
from spherejax.attacks._smoothing import smoothed_certificate as smoothed_certificate
from spherejax.attacks._smoothing import smoothed_prediction as smoothed_prediction
from spherejax.attacks._smoothing import smoothed_votes as smoothed_votes
from spherejax.attacks._square import square as square

__all__ = [
  "AttackResult",
  "Ball",
  "Certificate",
  "CombinedBall",
  "Diagnosis",
  "EnsembleResult",
  "Expectation",
  "Region",
  "apgd",
  "attack_loss",
  "bim",
  "carlini_wagner",
  "clopper_pearson",
  "combined_ball",
  "deepfool",
  "diagnose",
  "ensemble",
  "fab",
  "fgsm",
  "mi_fgsm",
  "pgd",
  "round_inside",
  "seal",
  "smoothed_certificate",
  "smoothed_prediction",
  "smoothed_votes",
  "square",
  "steepest_ascent",
  "uniform_ball",
  "with_decision",
]

_compiled.room(__name__)
_names.suggest(__name__)
