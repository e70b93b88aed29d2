"""What DML prints of retrieval on photographs: sizes, hyperparameters, tables.

The tables are in `dml.toml`. Of Omniglot and
Tiny ImageNet it prints nothing: their numbers are those of In-shop and of CUB.
"""

import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

# The order of the tables' columns.
SETS = ("sop", "inshop", "cub", "cars")
TITLES = {
  "sop": "SOP", "inshop": "In-shop", "cub": "CUB", "cars": "Cars196",
  # Small sets that are not in the tables.
  "omniglot": "Omniglot", "tiny_imagenet": "Tiny ImageNet",
}  # fmt: skip


class Size(NamedTuple):
  """Of a data set; learned are the first classes."""

  classes: int
  images: int
  learned_classes: int
  learned_images: int


# Errata: In-shop is printed with 7,986 classes and 72,712 images, which its own split
# does not sum to. Half of SOP's 22,634 classes would be 11,317.
SIZES = {
  "sop": Size(22_634, 120_053, 11_318, 59_551),
  "inshop": Size(7_982, 52_712, 3_997, 25_882),
  "cub": Size(200, 11_788, 100, 5_864),
  "cars": Size(196, 16_185, 98, 8_054),
  # The alphabets of its first part are learned.
  "omniglot": Size(1_623, 32_460, 964, 19_280),
  # All of its images that have labels; half of the classes are learned, as elsewhere.
  "tiny_imagenet": Size(200, 110_000, 100, 55_000),
}


class Numbers(NamedTuple):
  """Hyperparameters that differ from data set to data set."""

  losses: Mapping[str, Mapping[str, float]]
  memory: Mapping[str, int]
  """Batches of 32 in the memory, small and large."""
  centres: Mapping[str, int]
  """Of SoftTriple, for each class."""
  soft_triple: str
  """Which of both the tables have."""
  proxies: Mapping[str, int]
  """Of a class, with chance-constrained proxies."""
  pool: int
  """Images of a class that they are chosen among."""
  prototypes: int
  """Of generalized sum pooling."""
  evaluate_every: int
  """Steps in the protocols of chapter 3; four times as many in those of 5.3.4."""
  learning_rate: float
  """In the conventional protocol."""


def _losses(
  contrastive: tuple[float, float],
  triplet: float,
  similarity: tuple[float, float, float],
  soft_triple: tuple[float, float, float, float],
) -> dict[str, dict[str, float]]:
  """In the order of section 3 of the protocol, what is the same everywhere added."""
  names = ("scale", "temperature", "regularization", "margin")
  return {
    "c1": {"margin": 0.5},
    "c2": dict(zip(("positive_margin", "negative_margin"), contrastive, strict=True)),
    "triplet": {"margin": triplet},
    "ms": dict(
      zip(("positive_scale", "negative_scale", "threshold"), similarity, strict=True)
    ),
    "proxy_anchor": {"margin": 0.1, "scale": 32.0},
    "proxy_nca": {"temperature": 0.1},
    "soft_triple": dict(zip(names, soft_triple, strict=True)),
  }


_BIRDS = Numbers(
  _losses((0.0, 0.3841), 0.0961, (2.0, 40.0, 0.5), (20.0, 0.1, 0.2, 0.01)),
  {"S": 3, "L": 25}, {"S": 1, "L": 10}, "L", {"S": 1, "L": 8}, 12, 64, 25, 1e-5,
)  # fmt: skip
_PRODUCTS = Numbers(
  # A fractional gamma of SoftTriple divides the similarity inside of its softmax.
  _losses((0.2858, 0.5130), 0.0451, (2.0, 40.0, 0.5), (100.0, 47.9, 0.2, 0.3145)),
  {"S": 400, "L": 1400}, {"S": 1, "L": 4}, "S", {"S": 1, "L": 4}, 7, 128, 250, 1e-4,
)  # fmt: skip
NUMBERS = {
  "cub": _BIRDS,
  "cars": _BIRDS._replace(
    losses=_losses(
      (0.2652, 0.5409),
      0.1190,
      (14.35, 75.83, 0.66),
      (17.69, 19.18, 0.0669, 0.3588),
    ),
    learning_rate=1e-4,
  ),
  "inshop": _PRODUCTS._replace(
    losses=_losses(
      (0.2858, 0.5130), 0.0451, (8.49, 57.38, 0.41), (20.0, 0.1, 0.2, 0.01)
    ),
    memory={"S": 100, "L": 400},
  ),
  "sop": _PRODUCTS,
}
# Many small classes are taken for products, a few large ones for birds.
NUMBERS |= {"omniglot": NUMBERS["inshop"], "tiny_imagenet": NUMBERS["cub"]}


class Cell(NamedTuple):
  """Percent, and where it is printed the standard deviation."""

  precision: float | None
  map_at_r: float | None = None
  precision_std: float | None = None
  map_at_r_std: float | None = None


Table = Mapping[tuple[str, str, int], Cell]
"""By method, data set and dimension."""


def _fair(lines: Mapping[str, str]) -> Table:
  """From P@1 and MAP@R, perhaps each +-std, of every set in 512 and 128 dimensions."""
  table = {}
  places = [(name, dim) for name in SETS for dim in (512, 128)]
  for method, text in lines.items():
    figures = [[float(x) for x in figure.split("+-")] for figure in text.split()]
    for place, first, second in zip(places, figures[::2], figures[1::2], strict=True):
      cell = Cell(first[0], second[0], *first[1:], *second[1:])
      table[method, *place] = cell
  return table


def _conventional(backbones: Mapping[str, Any]) -> dict[str, Table]:
  """By backbone, from P@1, or P@1/MAP@R, or "-" where nothing is printed."""
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


_TABLES = tomllib.loads(
  pathlib.Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
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
  """What the thesis has of a method in that protocol."""
  place = (method, dataset, dim)
  conventional = {"conventional": TABLE_3_2, "conventional534": TABLE_5_2}
  if protocol in conventional:
    return conventional[protocol].get(backbone, {}).get(place)
  if backbone != "bn_inception":
    return None
  tables = {"fair": TABLE_3_1, "fair534": TABLE_5_1}
  found = tables.get(protocol, {}).get(place)
  if found is None and protocol == "fair534" and dim in (512, 128):
    both = TABLE_5_3.get(method, {}).get(dataset)
    found = both and Cell(None, both[0 if dim == 512 else 1])
  return found
