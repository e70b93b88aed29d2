"""Poolings that turn a map or a set of features into one vector.

Features are [batch, tokens, dim] or [batch, height, width, dim]; a mask over the
positions leaves out positions that do not exist.
"""

from spherejax import _compiled, _names
from spherejax.pooling._cbam import cbam as cbam
from spherejax.pooling._costs import dominant_prototypes as dominant_prototypes
from spherejax.pooling._crow import crow as crow
from spherejax.pooling._delf import delf as delf
from spherejax.pooling._gem import gem as gem
from spherejax.pooling._gemax import gemax as gemax
from spherejax.pooling._gsop import GSoPBranch as GSoPBranch
from spherejax.pooling._gsop import gsop as gsop
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
from spherejax.pooling._netvlad import netvlad as netvlad
from spherejax.pooling._netvlad import netvlad_assignment as netvlad_assignment
from spherejax.pooling._otp import otp as otp
from spherejax.pooling._solar import solar as solar
from spherejax.pooling._tsmk import tsmk as tsmk
from spherejax.pooling._weldon import weldon as weldon

__all__ = [
  "GSPResult",
  "GSoPBranch",
  "cbam",
  "crow",
  "delf",
  "dominant_prototypes",
  "gap",
  "gap_gmp",
  "gem",
  "gemax",
  "gmp",
  "gsop",
  "gsp",
  "gsp_fixed_point",
  "gsp_linear_program",
  "gsp_weights",
  "netvlad",
  "netvlad_assignment",
  "otp",
  "solar",
  "tsmk",
  "weldon",
]

_compiled.room(__name__, callbacks=("normalize",))
_names.suggest(__name__)
