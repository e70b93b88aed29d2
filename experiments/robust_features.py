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
import pathlib
import sys
import time
from typing import Any, Literal

import tqdm

from experiments import (
  _cli,
  _digits,
  _report,
  _robust_defences,
  _robust_digits,
  _robust_inputs,
  _robust_networks,
  _robust_photographs,
  _robust_report,
  _robust_tables,
)


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


def unused(config: Config) -> dict[str, tuple[str, ...]]:
  """Settings that do nothing, by the reason."""
  names = ("photographs",)
  if config.images != "digits":
    names = (
      "train_images", "test_images", "hidden", "dim", "steps", "batch", "dims", "radii",
      "proposals", "proposed_budget", "studies", "beside", "defences", "neighbours",
      "combined", "noise", "votes", "scale", "learning_rate",
    )  # fmt: skip
  return {f"with --images {config.images}": names}


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
      figures = _robust_digits.trained(config, train, test, progress, folder)
      parts += _robust_digits.of_digits(config, train, test, progress, folder)
    else:
      figures, train, test = _robust_photographs.trained(config, output, progress)
  rows, claims = _robust_inputs.inputs(config.images, train, test)
  rows += _robust_report.figure_rows(figures, config.images)
  claims += _robust_report.claims_of_training(figures, config.l2)
  for part in parts:
    rows, claims = rows + part[0], claims + part[1]
  return _report.result(
    experiment="robust_features",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=claims,
    pictures=_robust_report.draw(figures, config.l2, output),
  )


def main() -> None:
  """The command line."""
  preset, config, output = _cli.parse(
    PRESETS, name="robust_features", doc=__doc__, unused=unused
  )
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
