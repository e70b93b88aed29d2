"""What adversarial training does to features: structure, discriminality, proxies.

Networks are trained on digits with and without attacks of growing budgets. Measured is
how the distances of their features follow those of the images (MC), how far classes
are apart (phi, R2), and how many directions the features use (d_DoV, rho): DIST 2.4
and 5. Then what DIST 5.4 and 6.2 propose: inputs of a known discriminality, losses
that hold attacked images near their proxy, and re-weighted principal directions. And
what it names without results: defences side by side, randomised smoothing (3.2),
training in the combined ball (A), what deviations from a class's mean tell about other
classes (6.2.2), and what re-weighted features tell apart of classes that no training
has seen (6.2.3).

    python -m experiments.robust_features                    # digits, 9 min on one core
    python -m experiments.robust_features --preset smoke     # seconds
    python -m experiments.robust_features --preset cifar10   # accelerators
    python -m experiments.robust_features --preset svhn      # likewise

The first two train on the digits that scikit-learn embeds; `cpu` measures cifar10
beside them where it is there. The others need cifar10 or svhn_cropped, prepared by
tensorflow-datasets, in TFDS_DATA_DIR.
"""

import dataclasses
import functools
import operator
import pathlib
import sys
import time
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from experiments import (
  _cli,
  _digits,
  _report,
  _robust_defences,
  _robust_inputs,
  _robust_networks,
  _robust_photographs,
  _robust_proposals,
  _robust_residuals,
  _robust_reweighting,
  _robust_structure,
  _robust_tables,
)
from spherejax import metrics, plotting

CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Config(_robust_networks.Settings):
  """Settings of the study."""

  images: Literal["digits", "cifar10", "svhn_cropped"] = "digits"
  """What the networks are trained on."""
  photographs: _robust_photographs.Photographs = dataclasses.field(
    default_factory=_robust_photographs.Photographs
  )
  """Networks of photographs and their training, in place of those of the digits."""
  train_images: int = 1297
  """First digits, to train on."""
  test_images: int = 500
  """Last digits, to test on."""
  l2: tuple[float, ...] = (0.15, 0.3, 0.6, 1.0)
  """Budgets in l2; images are in [0, 1]^64."""
  linf: tuple[float, ...] = (0.05, 0.1)
  """Budgets in l-infinity."""
  dims: tuple[int, ...] = (8, 32, 128)
  """Input dimensions of the classes of known discriminality."""
  radii: tuple[float, ...] = (0.3, 1.0, 3.0)
  """Distances of their means from the origin."""
  proposals: tuple[
    Literal["cross-entropy", "NormFace", "negative margin", "proxy cap"], ...
  ] = ("cross-entropy", "NormFace", "negative margin", "proxy cap")
  """Losses to compare."""
  proposed_budget: float = 0.6
  """l2 budget of these losses, and of the defences."""
  studies: tuple[
    Literal["defences", "noise", "combined", "rotation", "reweighting"], ...
  ] = ("defences", "noise", "combined", "rotation", "reweighting")
  """What DIST 3.2, 6.2.2, 6.2.3 and its appendix A name without results."""
  beside: tuple[Literal["cifar10", "svhn_cropped"], ...] = ("cifar10",)
  """Photographs that are measured beside the digits, where they are there."""
  defences: tuple[_robust_defences.Name, ...] = _robust_defences.DEFENCES
  """Trainings to compare."""
  neighbours: int = 32
  """Sites that bound a Voronoi cell during an attack."""
  combined: tuple[float, float] = (1.0, 0.1)
  """Radii of the l1 and the l-infinity ball that the combined ball contains."""
  noise: float = 0.25
  """Deviation of the noise of randomised smoothing."""
  votes: int = 1000
  """Draws that bound the class's probability."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    seeds=1,
    hidden=16,
    dim=8,
    steps=20,
    batch=32,
    attack_steps=2,
    judge_steps=4,
    train_images=200,
    test_images=100,
    l2=(0.3, 1.0),
    linf=(),
    dims=(),
    proposals=(),
    studies=(),
    beside=(),
  ),
  # Budgets of the tables; the attack's and the training's numbers are not in DIST. Of
  # CIFAR-10 they are those of the public networks that have its budgets.
  "cifar10": Config(
    images="cifar10",
    seeds=1,
    clean_weight=0.0,
    l2=(0.25, 0.5, 1.0),
    linf=(8 / 255,),
    dims=(),
    proposals=(),
    studies=(),
  ),
  "svhn": Config(
    images="svhn_cropped",
    seeds=1,
    l2=(0.25, 0.5, 1.0),
    linf=(8 / 255, 12 / 255),
    dims=(),
    proposals=(),
    studies=(),
  ),
}

STUDIES = {
  "defences": _robust_defences.side_by_side,
  "noise": _robust_defences.noisy,
  "combined": _robust_defences.combined,
  "rotation": _robust_residuals.within_classes,
  "reweighting": _robust_reweighting.of_features,
}

Figures = dict[str, dict[str, np.ndarray]]
"""For each network (standard, l2 0.3, ...) and measure a figure for each seed."""


def trained(
  config: Config, train, test, progress: tqdm.tqdm, folder: pathlib.Path
) -> Figures:
  """Networks of all budgets, and what their features look like."""
  figures: Figures = {}
  standard = None
  norms = [("l2", (0.0, *config.l2)), ("linf", config.linf)]
  for norm, budgets in [each for each in norms if each[1]]:
    progress.set_postfix(norm=norm)
    defence = _robust_networks.Defence(_robust_networks.adversarial(config), norm)
    result = _robust_networks.train(
      config,
      defence,
      {"epsilon": budgets},
      functools.partial(_same, train),
      test,
      classes=CLASSES,
      folder=folder / norm,
    )
    params = result.state.params
    found = _robust_structure.of_models(config, defence, params, train, classes=CLASSES)
    found["accuracy"] = result.scores[..., -1]
    judged = _robust_networks.judge(config, defence, test, classes=CLASSES)
    found["accuracy under attack"] = judged(params, jnp.array(budgets))
    names = [_robust_tables.network(norm, x) for x in budgets]
    for number, name in enumerate(names):
      figures[name] = {key: values[number] for key, values in found.items()}
    if standard is None:
      standard = jax.tree.map(lambda x: x[:1], params)
    same = np.zeros(len(budgets), int)
    attacked = judged(
      jax.tree.map(operator.itemgetter(same), standard), jnp.array(budgets)
    )
    for name, values in zip(names, attacked, strict=True):
      figures["standard"][f"accuracy under {name}"] = values
    progress.update()
  return figures


def _same(points: _robust_networks.Points, key, hyper) -> _robust_networks.Points:
  del key, hyper
  return points


def claims_of_training(config: Config, figures: Figures) -> list[Any]:
  """The statements of DIST 5.3 about adversarial training, of the budgets there are."""
  standard = figures["standard"]
  robust = [name for name in figures if name != "standard"]
  growing = [f"l2 {x:g}" for x in config.l2]
  strong = [f"l2 {x:g}" for x in config.l2 if x >= 0.25]

  def column(measure, names):
    return np.stack([figures[name][measure] for name in names])

  def rank(first, second):
    found = metrics.correlation(first, second, method="spearman").value
    return float(np.nan_to_num(found))  # of a constant measure 0

  seeds = range(config.seeds)
  every = list(figures)
  mc, r2, density = (column(name, every) for name in ("MC, l2", "R2", "d_DoV"))
  phi, share = column("phi", every), 2 * CLASSES / (CLASSES - 1)
  # Of which networks each speaks; without them it is not made.
  made = {
    "X8-mc": (
      "MC (l2): every robust network > standard + 0.01",
      robust,
      lambda: (column("MC, l2", robust) - standard["MC, l2"][None]).min(0) - 0.01,
    ),
    "X8-mc-grows": (
      "rank correlation of the l2 budget and MC (l2) >= 0.8",
      growing[1:],
      lambda: [rank(config.l2, column("MC, l2", growing)[:, i]) - 0.799 for i in seeds],
    ),
    "X8-phi": (
      "phi: robust < standard, l2 budgets from 0.25 on",
      strong,
      lambda: (standard["phi"][None] - column("phi", strong)).min(0),
    ),
    "X8-r2": (
      "R2: robust < standard, l2 budgets from 0.25 on",
      strong,
      lambda: (standard["R2"][None] - column("R2", strong)).min(0),
    ),
    "X8-intra": (
      "D_intra: robust > standard, l2 budgets from 0.25 on",
      strong,
      lambda: (column("D_intra", strong) - standard["D_intra"][None]).min(0),
    ),
    "X8-density": (
      "d_DoV: robust >= standard for two thirds of the budgets",
      robust,
      lambda: (
        np.mean(column("d_DoV", robust) >= standard["d_DoV"][None], axis=0) - 0.666
      ),
    ),
    "X8-mc-r2": (
      "over the networks, rank correlation of MC and R2 <= -0.5",
      robust,
      lambda: [-0.499 - rank(mc[:, i], r2[:, i]) for i in seeds],
    ),
    "X8-mc-density": (
      "over the networks, rank correlation of MC and d_DoV > 0",
      robust,
      lambda: [rank(mc[:, i], density[:, i]) for i in seeds],
    ),
    "X8-accuracy": (
      "accuracy under attack of the budget: robust > standard, l2 from 0.25 on",
      strong,
      lambda: np.stack(
        [
          figures[name]["accuracy under attack"] - standard[f"accuracy under {name}"]
          for name in strong
        ]
      ).min(0),
    ),
  }
  claims = [
    _report.claim(name, statement, values(), paper="DIST 5.3")
    for name, (statement, networks, values) in made.items()
    if networks
  ]
  gap = np.abs(r2 - phi / (phi + share)).max(0)
  return [
    *claims,
    _report.claim(
      "X8-identity",
      "R2 = phi / (phi + 20/9) of every network to 1e-4",
      1e-4 - gap,
      paper="DIST 2.4",
      every_seed=True,
    ),
  ]


def figure_rows(config: Config, figures: Figures) -> list[Any]:
  """The figures of all networks, beside the paper's where it has them."""
  return [
    _report.row(
      name,
      measure,
      values,
      paper=_robust_tables.trained(config.images, name, measure),
    )
    for name, found in figures.items()
    for measure, values in found.items()
    if np.isfinite(values).all()  # rho of features that span less is infinite
  ]


def of_digits(
  config: Config, train, test, progress: tqdm.tqdm, folder: pathlib.Path
) -> list[tuple[list[Any], list[Any]]]:
  """What is measured on digits alone."""
  parts = [
    *_robust_inputs.beside(config.beside),
    _robust_reweighting.of_pixels(train, test, CLASSES),
    _robust_proposals.known_discriminality(config, progress, folder),
    _robust_proposals.near_proxies(config, train, test, CLASSES, progress, folder),
  ]
  for study in config.studies:
    progress.set_postfix(study=study)
    parts.append(STUDIES[study](config, train, test, CLASSES, folder))
    progress.update()
  return parts


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """All trainings and measures; returns figures and claims."""
  start = time.perf_counter()
  total = 2 + len(config.dims) + len(config.proposals) + len(config.studies)
  if config.images != "digits":
    total = config.seeds * (1 + len(config.l2) + len(config.linf))
  parts = [_robust_tables.rows_and_claims()]
  with tqdm.tqdm(total=total, unit="program", file=sys.stderr) as progress:
    if config.images == "digits":
      train, test = _digits.load(config.train_images, config.test_images)
      folder = output / "kept"
      figures = trained(config, train, test, progress, folder)
      parts += of_digits(config, train, test, progress, folder)
    else:
      figures, train, test = _robust_photographs.trained(config, output, progress)
  rows, claims = _robust_inputs.inputs(config.images, train, test)
  rows += figure_rows(config, figures)
  claims += claims_of_training(config, figures)
  for part in parts:
    rows, claims = rows + part[0], claims + part[1]
  return _report.result(
    experiment="robust_features",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=claims,
    pictures=draw(config, figures, output),
  )


def draw(config: Config, figures: Figures, output: pathlib.Path) -> list[str]:
  """Measures against the l2 budget, 0 being the standard network."""
  names = ["standard", *(f"l2 {x:g}" for x in config.l2)]
  drawn = {}
  for file, measures, label in (
    ("mc", ("MC, l2", "MC, linf"), "mean correlation of distances"),
    ("variance", ("R2",), "R2 of normalised features"),
    ("density", ("d_DoV",), "directions above the mean (d_DoV)"),
    ("accuracy", ("accuracy", "accuracy under attack"), "share of test images"),
  ):
    curves = {
      measure: np.transpose([figures[name][measure] for name in names])
      for measure in measures
    }
    if file == "accuracy":
      curves["standard network, under the same attack"] = np.transpose(
        [figures["standard"][f"accuracy under {name}"] for name in names]
      )
    drawn[file] = plotting.training_curves(
      curves, steps=(0.0, *config.l2), xlabel="l2 budget in training", ylabel=label
    )
  return [
    plotting.save(figure, output / f"{name}.png").name for name, figure in drawn.items()
  ]


def main() -> None:
  """The command line."""
  preset, config, output = _cli.parse(PRESETS, name="robust_features", doc=__doc__)
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
