"""Solvers that report how well they converged.

Roots and fixed points have implicit derivatives; transport is differentiated through
its steps; scaling of distances has none. An assignment's duals certify it.
"""

from spherejax.solvers._assignment import Assignment as Assignment
from spherejax.solvers._assignment import (
  host_linear_assignment as host_linear_assignment,
)
from spherejax.solvers._assignment import linear_assignment as linear_assignment
from spherejax.solvers._fixed_point import FixedPointResult as FixedPointResult
from spherejax.solvers._fixed_point import fixed_point as fixed_point
from spherejax.solvers._mds import SphereMDSResult as SphereMDSResult
from spherejax.solvers._mds import sphere_mds as sphere_mds
from spherejax.solvers._newton import RootResult as RootResult
from spherejax.solvers._newton import newton as newton
from spherejax.solvers._sinkhorn import SinkhornResult as SinkhornResult
from spherejax.solvers._sinkhorn import sinkhorn as sinkhorn

__all__ = [
  "Assignment",
  "FixedPointResult",
  "RootResult",
  "SinkhornResult",
  "SphereMDSResult",
  "fixed_point",
  "host_linear_assignment",
  "linear_assignment",
  "newton",
  "sinkhorn",
  "sphere_mds",
]
