"""Solvers that report how well they converged.

Roots and fixed points have implicit derivatives; transport is differentiated through
its steps.
"""

from spherejax.solvers._fixed_point import FixedPointResult as FixedPointResult
from spherejax.solvers._fixed_point import fixed_point as fixed_point
from spherejax.solvers._newton import RootResult as RootResult
from spherejax.solvers._newton import newton as newton
from spherejax.solvers._sinkhorn import SinkhornResult as SinkhornResult
from spherejax.solvers._sinkhorn import sinkhorn as sinkhorn

__all__ = [
  "FixedPointResult",
  "RootResult",
  "SinkhornResult",
  "fixed_point",
  "newton",
  "sinkhorn",
]
