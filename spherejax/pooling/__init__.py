"""Poolings: a map or a set of features becomes one vector.

Features are [batch, tokens, dim] or [batch, height, width, dim]; a mask over the
positions leaves out those that are not there.
"""

from spherejax.pooling._cbam import cbam as cbam
from spherejax.pooling._crow import crow as crow
from spherejax.pooling._delf import delf as delf
from spherejax.pooling._gem import gem as gem
from spherejax.pooling._gemax import gemax as gemax
from spherejax.pooling._gsp import GSPResult as GSPResult
from spherejax.pooling._gsp import gsp as gsp
from spherejax.pooling._gsp_linear_program import (
  gsp_linear_program as gsp_linear_program,
)
from spherejax.pooling._gsp_weights import gsp_fixed_point as gsp_fixed_point
from spherejax.pooling._gsp_weights import gsp_weights as gsp_weights
from spherejax.pooling._mean_max import gap as gap
from spherejax.pooling._mean_max import gap_gmp as gap_gmp
from spherejax.pooling._mean_max import gmp as gmp
from spherejax.pooling._solar import solar as solar
from spherejax.pooling._weldon import weldon as weldon

__all__ = [
  "GSPResult",
  "cbam",
  "crow",
  "delf",
  "gap",
  "gap_gmp",
  "gem",
  "gemax",
  "gmp",
  "gsp",
  "gsp_fixed_point",
  "gsp_linear_program",
  "gsp_weights",
  "solar",
  "weldon",
]
