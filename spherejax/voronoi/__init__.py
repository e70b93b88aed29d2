"""Voronoi cells of training points, as budgets of an adversary who knows the data.

A point may move as long as its own training point stays the nearest. Cells do not
overlap, so no classifier is asked for two answers at one place.
"""

from spherejax import _compiled, _names
from spherejax.attacks import AttackResult as VoronoiResult
from spherejax.voronoi._attack import voronoi_pgd as voronoi_pgd
from spherejax.voronoi._cells import VoronoiCells as VoronoiCells
from spherejax.voronoi._cells import voronoi_cells as voronoi_cells
from spherejax.voronoi._margin import Confined as Confined
from spherejax.voronoi._margin import cell_margin as cell_margin
from spherejax.voronoi._margin import confine as confine
from spherejax.voronoi._sites import Sites as Sites
from spherejax.voronoi._sites import merge_sites as merge_sites

__all__ = [
  "Confined",
  "Sites",
  "VoronoiCells",
  "VoronoiResult",
  "cell_margin",
  "confine",
  "merge_sites",
  "voronoi_cells",
  "voronoi_pgd",
]

_compiled.room(__name__)
_names.suggest(__name__)
