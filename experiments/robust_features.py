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

import tqdm

from experiments.frame import digits
from experiments.frame.study import Study, Table
from experiments.robustness import claims, inputs, photographs
from experiments.robustness import digits as robust_digits
from experiments.robustness.settings import PRESETS, Config


def measure(config: Config, output: pathlib.Path) -> tuple[Table, None]:
  """All trainings and measures."""
  total = 2 + len(config.dims) + len(config.proposals) + len(config.studies)
  if config.images != "digits":
    total = config.seeds * (1 + len(config.l2) + len(config.linf))
  table = Table()
  with tqdm.tqdm(total=total, unit="program", file=sys.stderr) as progress:
    if config.images == "digits":
      train, test = digits.load(config.train_images, config.test_images)
      robust_digits.add(table, config, train, test, progress, output / "kept")
    else:
      train, test = photographs.trained(table, config, output, progress)
  inputs.add(table, "images", config.images, train, test)
  return table, None


STUDY = Study(
  "robust_features",
  __doc__,
  "DIST 5.3",
  PRESETS,
  measure,
  claims.claims,
  claims.draw,
)

if __name__ == "__main__":
  STUDY.main()
