"""Claims of DIST about images and adversarial training, with their plots."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from experiments.frame import images as class_sets
from experiments.frame import pictures
from experiments.frame.study import Claim, Difference, NotMeasured, Statement, Table
from experiments.robustness import defences, features, proposals, structure
from experiments.robustness import images as voronoi_sets
from experiments.robustness.images import CLASSES, Points
from experiments.robustness.settings import Config
from experiments.robustness.structure import name_of as network
from spherejax import metrics, plotting

COUNT = "training images"


def add_inputs(
  table: Table, title: str, images: str, train: Points, test: Points
) -> None:
  """Adds measures of images, with the paper's if it has these images."""
  levels, printed = 255, structure.printed_inputs(images)
  if images == "digits":
    levels, printed = 16, {}
  measures = structure.of_inputs(train, test, classes=CLASSES, levels=levels)
  table.add_all(title, measures, printed, finite=True)
  table.add(title, COUNT, len(train.y), listed=False)


def add_beside(table: Table, names: Sequence[str]) -> None:
  """Adds measures of photographs, without a training; says which sets are missing."""

  def load(name: str) -> list[Points]:
    return [voronoi_sets.prepared(name, part) for part in ("train", "test")]

  for name, (train, test) in class_sets.available(names, load):
    add_inputs(table, f"{name}, {len(train.y):,} images", name, train, test)


def _over_printed(table: Table, images: str) -> dict[str, np.ndarray]:
  """Measures of the images less the printed ones."""
  printed = structure.printed_inputs(images)
  return {name: table.values(name, "images") - x for name, x in printed.items()}


def _worse(table: Table) -> np.ndarray:
  kinds = itertools.product(("1-NN", "nearest mean"), structure.NORMS)
  return 0.5 - np.max([table.values(", ".join(x), "images") for x in kinds], axis=0)


def _as_printed(table: Table, images: str) -> np.ndarray:
  """1 less the largest deviation from printed values, relative to the tolerance."""
  if table.values(COUNT, "images") != structure.IMAGES.get(images):
    raise NotMeasured("the table is of a whole set")
  errors = _over_printed(table, images).items()
  return 1 - np.max([abs(x) / (0.005 if "1-NN" in y else 0.002) for y, x in errors], 0)


def _below(table: Table, name: str) -> np.ndarray:
  """Margins of 1-NN below 0.5 and nearest mean below 0.4; the smaller one."""
  titles = [x for x in table.variants("1-NN, l2") if x.startswith(f"{name}, ")]
  if not titles:
    raise NotMeasured(f"there was no {name}")
  near, mean = (table.values(f"{x}, l2", titles[0]) for x in ("1-NN", "nearest mean"))
  return np.minimum(0.5 - near, 0.4 - mean)


def of_inputs(images: str, others: Sequence[str]) -> list[Claim]:
  """Claims about the training images, and about the other image sets."""
  text = "neither the nearest neighbour nor the nearest mean is right for half of them"
  rows: list[Statement] = [("X7", text, _worse)]
  if images == "digits":
    text = "the digits tell their classes apart better than CIFAR-10's images, always"
    rows = [("X7", text, lambda t: np.min([*_over_printed(t, images).values()], 0))]
  if images in ("cifar10", "svhn_cropped"):
    text = "phi, R2 and the nearest mean as printed to 0.002, 1-NN to 0.005"
    rows.append(("X7-table", text, lambda t: _as_printed(t, images)))
  rows += [
    (f"X7-{name}",
     f"of {name} the nearest neighbour is right for less than half of the images, the "
     "nearest mean for less than 0.4, l2",
     lambda t, name=name: _below(t, name))
    for name in others
  ]  # fmt: skip
  return Claim.of_rows(rows, "DIST tab. 5.3", every_seed=True)


def names_of(config: Config) -> list[str]:
  """Names of all networks: the standard one, then by growing budget."""
  return list(itertools.starmap(network, config.networks))


def _column(table: Table, measure: str, names: Sequence[str]) -> np.ndarray:
  """Values of a measure, [networks, seeds]."""
  return np.stack([table.values(measure, name) for name in names])


def _ranks(
  names: Sequence[str], first: str | np.ndarray, second: str, sign: int, least: float
) -> Difference:
  """Claims' difference: rank correlation, over networks, of two measures or numbers."""

  def difference(table: Table) -> np.ndarray:
    y = _column(table, second, names)
    x = _column(table, first, names) if isinstance(first, str) else first
    pairs = zip(np.broadcast_to(x, y.shape).T, y.T, strict=True)
    ranks = [float(metrics.correlation(*x, method="spearman").value) for x in pairs]
    return sign * np.nan_to_num(ranks) - least  # 0 for a constant measure

  return difference


def _off_identity(table: Table, names: Sequence[str]) -> np.ndarray:
  phi, r2 = (_column(table, measure, names) for measure in ("phi", "R2"))
  return np.abs(r2 - phi / (phi + 2 * CLASSES / (CLASSES - 1))).max(0)


def _of_budget(name: str, weak: bool) -> Iterator[Statement]:
  """Claims that compare a robust network with the standard one; fewer if `weak`."""
  place, attack = name.replace(" ", "-"), f"accuracy under {name}"
  measures = [("mc", "MC, l2", 1, 0.01)]
  if not weak:
    measures += [("phi", "phi", -1, 0), ("r2", "R2", -1, 0), ("intra", "D_intra", 1, 0)]
    measures.append(("tradeoff", "accuracy", -1, 0))
  for key, measure, sign, least in measures:
    yield (
      f"X8-{key}-{place}",
      f"{measure}: {name} {'>' if sign > 0 else '<'} standard"
      + (f" + {least:g}" if least else ""),
      lambda t, m=measure, s=sign, least=least: (
        s * t.gain(m, name, over="standard") - least
      ),
    )
  if not weak:
    yield (
      f"X8-accuracy-{place}",
      f"accuracy under attack of the budget: {name} > standard",
      lambda t: t.values("accuracy under attack", name) - t.values(attack, "standard"),
    )


def of_training(config: Config) -> list[Claim]:
  """Statements of DIST 5.3 about adversarial training, for the budgets of the run."""
  names = names_of(config)
  robust = [name for name in names if name != "standard"]
  growing = [f"l2 {x:g}" for x in config.l2]
  strong = {f"l2 {x:g}" for x in config.l2 if x >= 0.25}
  rows = [row for name in robust for row in _of_budget(name, name not in strong)]
  # The third entry names a claim's networks; without them the claim is left out.
  parts = [
    ("mc-grows", growing[1:], "rank correlation of the l2 budget and MC (l2) >= 0.8",
     _ranks(growing, np.reshape(config.l2, (-1, 1)), "MC, l2", 1, 0.799)),
    ("density", robust, "d_DoV: robust >= standard for two thirds of the budgets",
     lambda t: np.mean(_column(t, "d_DoV", robust) >= t.values("d_DoV", "standard"), 0)
     - 0.666),
    ("mc-r2", robust, "over the networks, rank correlation of MC and R2 <= -0.5",
     _ranks(names, "MC, l2", "R2", -1, 0.499)),
    ("mc-density", robust, "over the networks, rank correlation of MC and d_DoV > 0",
     _ranks(names, "MC, l2", "d_DoV", 1, 0)),
  ]  # fmt: skip
  rows += [(f"X8-{key}", text, difference) for key, of, text, difference in parts if of]
  text = "R2 = phi / (phi + 20/9) of every network to 1e-4"
  exact = [("X8-identity", text, lambda t: 1e-4 - _off_identity(t, names))]
  return Claim.of_rows(rows, "DIST 5.3") + Claim.of_rows(
    exact, "DIST 2.4", every_seed=True
  )


def claims(config: Config, table: Table) -> list[Claim]:
  """Lists all claims; photographs omit those about digits."""
  del table
  statements = of_inputs(config.images, config.beside) + of_training(config)
  if config.images != "digits":
    return statements
  statements += [*features.WEIGHT_CLAIMS, *proposals.of_radii(config)]
  statements += [*proposals.of_losses(config), *defences.claims(config)]
  return [*statements, *features.RESIDUAL_CLAIMS]


def draw(table: Table, config: Config) -> dict[str, pictures.Figure]:
  """Plots measures against the l2 budget; 0 is the standard network."""
  if not config.l2:
    return {}
  names = ["standard", *(f"l2 {x:g}" for x in config.l2)]
  plots = {}
  for file, measures, label in (
    ("mc", ("MC, l2", "MC, linf"), "mean correlation of distances"),
    ("variance", ("R2",), "R2 of normalised features"),
    ("density", ("d_DoV",), "directions above the mean (d_DoV)"),
    ("accuracy", ("accuracy", "accuracy under attack"), "share of test images"),
  ):
    curves = {measure: _column(table, measure, names).T for measure in measures}
    if file == "accuracy":
      curves["standard network, under the same attack"] = np.transpose(
        [table.values(f"accuracy under {name}", "standard") for name in names]
      )
    plots[file] = plotting.training_curves(
      curves, steps=(0.0, *config.l2), xlabel="l2 budget in training", ylabel=label
    )
  return plots
