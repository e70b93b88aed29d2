"""Published figures of DML for retrieval on photographs, from `dml.toml`."""

import types
from collections.abc import Mapping
from typing import NamedTuple

from experiments.published import Tables, figures

# The order of the tables' columns.
SETS = ("sop", "inshop", "cub", "cars")


class Cell(NamedTuple):
  """Figures in percent, with the standard deviation if it is printed."""

  precision: float | None
  map_at_r: float | None = None
  precision_std: float | None = None
  map_at_r_std: float | None = None


Table = Mapping[tuple[str, str, int], Cell]
"""Figures by method, data set and dimension."""


def _fair(lines: Mapping[str, str]) -> Table:
  """Parses P@1 and MAP@R, with or without std, of every set in 512 and 128-D."""
  table = {}
  places = [(name, dim) for name in SETS for dim in (512, 128)]
  for method, text in lines.items():
    pairs = [[float(x) for x in pair.split("+-")] for pair in text.split()]
    for place, first, second in zip(places, pairs[::2], pairs[1::2], strict=True):
      cell = Cell(first[0], second[0], *first[1:], *second[1:])
      table[method, *place] = cell
  return table


def _conventional(backbones: Tables) -> dict[str, Table]:
  """Parses P@1 or P@1/MAP@R by backbone; "-" if nothing is printed."""
  return {
    backbone: {
      (method, name, int(dim)): Cell(*map(float, figure.split("/")))
      for dim, lines in by_dim.items()
      for method, text in lines.items()
      for name, figure in zip(_ORDER_3_2, text.split(), strict=True)
      if figure != "-"
    }
    for backbone, by_dim in backbones.items()
  }


_TABLES = figures("dml")
SIZES: Mapping[str, Mapping[str, int]] = _TABLES["sizes"]
NUMBERS = {
  name: types.SimpleNamespace(
    **numbers | {"losses": _TABLES["losses"] | numbers["losses"]}
  )
  for name, numbers in _TABLES["numbers"].items()
}
"""Hyperparameters that differ from data set to data set."""
_ORDER_3_2 = ("cub", "cars", "sop", "inshop")
TABLE_3_1, TABLE_5_1 = (_fair(_TABLES[x]) for x in ("table_3_1", "table_5_1"))
TABLE_3_2, TABLE_5_2 = (_conventional(_TABLES[x]) for x in ("table_3_2", "table_5_2"))
TABLE_3_3: Mapping[str, Mapping[str, int]] = _TABLES["table_3_3"]
TABLE_5_3: Mapping[str, Mapping[str, tuple[float, float]]] = {
  method: {name: tuple(both) for name, both in sets.items()}
  for method, sets in _TABLES["table_5_3"].items()
}


def cell(
  protocol: str, backbone: str, method: str, dataset: str, dim: int
) -> Cell | None:
  """Published figures of a method in a protocol."""
  key = (method, dataset, dim)
  conventional = {"conventional": TABLE_3_2, "conventional534": TABLE_5_2}
  if protocol in conventional:
    return conventional[protocol].get(backbone, {}).get(key)
  if backbone != "bn_inception":
    return None
  tables = {"fair": TABLE_3_1, "fair534": TABLE_5_1}
  printed = tables.get(protocol, {}).get(key)
  if printed is None and protocol == "fair534" and dim in (512, 128):
    pair = TABLE_5_3.get(method, {}).get(dataset)
    printed = pair and Cell(None, pair[0 if dim == 512 else 1])
  return printed
