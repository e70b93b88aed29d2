"""Solvers that report their convergence.

Roots, fixed points and projections onto balls have implicit derivatives; transport is
differentiated through its steps; k-means and distance scaling have no derivatives. The
duals of an assignment certify that it is optimal.
"""

from spherejax import _compiled, _names
from spherejax.solvers._assignment import Assignment as Assignment
from spherejax.solvers._assignment import (
  host_linear_assignment as host_linear_assignment,
)
from spherejax.solvers._assignment import linear_assignment as linear_assignment
from spherejax.solvers._fixed_point import FixedPointResult as FixedPointResult
from spherejax.solvers._fixed_point import fixed_point as fixed_point
from spherejax.solvers._k_means import KMeansResult as KMeansResult
from spherejax.solvers._k_means import k_means as k_means
from spherejax.solvers._mds import SphereMDSResult as SphereMDSResult
from spherejax.solvers._mds import sphere_mds as sphere_mds
from spherejax.solvers._newton import RootResult as RootResult
from spherejax.solvers._newton import newton as newton
from spherejax.solvers._nonnegative import (
  host_nonnegative_least_squares as host_nonnegative_least_squares,
)
from spherejax.solvers._projection import HalfspaceResult as HalfspaceResult
from spherejax.solvers._projection import project_ball as project_ball
from spherejax.solvers._projection import project_halfspace as project_halfspace
from spherejax.solvers._sinkhorn import SinkhornResult as SinkhornResult
from spherejax.solvers._sinkhorn import sinkhorn as sinkhorn

__all__ = [
  "Assignment",
  "FixedPointResult",
  "HalfspaceResult",
  "KMeansResult",
  "RootResult",
  "SinkhornResult",
  "SphereMDSResult",
  "fixed_point",
  "host_linear_assignment",
  "host_nonnegative_least_squares",
  "k_means",
  "linear_assignment",
  "newton",
  "project_ball",
  "project_halfspace",
  "sinkhorn",
  "sphere_mds",
]

_compiled.room(__name__, host=("host_linear_assignment",))
_names.suggest(__name__)
