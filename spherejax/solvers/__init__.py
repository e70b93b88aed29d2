"""Solvers that report how well they converged and have implicit derivatives."""

from spherejax.solvers._fixed_point import FixedPointResult as FixedPointResult
from spherejax.solvers._fixed_point import fixed_point as fixed_point
from spherejax.solvers._newton import RootResult as RootResult
from spherejax.solvers._newton import newton as newton

__all__ = ["FixedPointResult", "RootResult", "fixed_point", "newton"]
