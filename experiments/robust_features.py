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

import pathlib
import sys
import time
from typing import Any

import tqdm

from experiments.frame import command, digits, results
from experiments.robustness import claims as robust_report
from experiments.robustness import digits as robust_digits
from experiments.robustness import inputs, photographs, tables
from experiments.robustness.settings import PRESETS, Config


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """All trainings and measures; returns figures and claims."""
  start = time.perf_counter()
  total = 2 + len(config.dims) + len(config.proposals) + len(config.studies)
  if config.images != "digits":
    total = config.seeds * (1 + len(config.l2) + len(config.linf))
  parts = [tables.rows_and_claims()]
  with tqdm.tqdm(total=total, unit="program", file=sys.stderr) as progress:
    if config.images == "digits":
      train, test = digits.load(config.train_images, config.test_images)
      folder = output / "kept"
      figures = robust_digits.trained(config, train, test, progress, folder)
      parts += robust_digits.of_digits(config, train, test, progress, folder)
    else:
      figures, train, test = photographs.trained(config, output, progress)
  rows, claims = inputs.inputs(config.images, train, test)
  rows += robust_report.figure_rows(figures, config.images)
  claims += robust_report.claims_of_training(figures, config.l2)
  for part in parts:
    rows, claims = rows + part[0], claims + part[1]
  return results.result(
    experiment="robust_features",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=claims,
    pictures=robust_report.draw(figures, config.l2, output),
  )


def main() -> None:
  """The command line."""
  preset, config, output = command.parse(PRESETS, name="robust_features", doc=__doc__)
  results.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
