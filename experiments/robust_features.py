"""Structure of features under adversarial training: discriminality, proxies.

Networks are trained with and without attacks of growing budgets. The study measures how
the distances of their features follow those of the images (MC), how far classes are
apart (phi, R2), and how many directions the features use (d_DoV, rho): DIST 2.4 and 5.
It tests what DIST 5.4 and 6.2 propose: inputs of a known discriminality, losses that
hold attacked images near their proxy, and re-weighted principal directions. It also
tests what DIST names without results: defences side by side, randomised smoothing
(3.2), training in the combined ball (A), residuals that tell the angle to other classes
(6.2.2), and re-weighted features of classes that no training has seen (6.2.3).

    python -m experiments.robust_features        # CIFAR-10 at 16 x 16: 14 min, 1 core
    python -m experiments.robust_features --preset long      # 20 further seeds, 19 min
    python -m experiments.robust_features --preset digits    # proposals: 46 min, 1 core
    python -m experiments.robust_features --preset smoke     # seconds
    python -m experiments.robust_features --preset cifar10   # accelerators
    python -m experiments.robust_features --preset svhn      # likewise

`digits` and `smoke` train on the digits of scikit-learn; `digits` also measures cifar10
if it is in TFDS_DATA_DIR. The pixels of digits already separate the classes, so
training under attack is studied on photographs. The other presets need cifar10 or
svhn_cropped, prepared by tensorflow-datasets in TFDS_DATA_DIR.
"""

import functools
import operator
import pathlib
from collections.abc import Callable

import jax
import numpy as np
import tqdm

from experiments.frame.study import Measured, Study, Table
from experiments.robustness import (
  claims,
  defences,
  features,
  images,
  networks,
  photographs,
  proposals,
  structure,
)
from experiments.robustness.images import Points
from experiments.robustness.settings import PRESETS, Config

STUDIES = {
  "defences": defences.add_side_by_side,
  "noise": defences.add_noisy,
  "combined": defences.add_combined,
  "rotation": features.add_residuals,
  "reweighting": features.add_features,
}


def trained(
  table: Table, config: Config, train: Points, test: Points, folder: pathlib.Path
) -> None:
  """Trains networks for all budgets; adds measures of their features."""
  standard, loss = None, networks.adversarial(config.clean_weight)
  for norm, budgets in config.budgets.items():
    defence = networks.Defence(config, loss, norm)
    params, measures = structure.trained(
      defence, budgets, train, test, folder / norm, structure.MEASURED
    )
    standard = params if standard is None else standard
    same = jax.tree.map(operator.itemgetter(np.zeros(len(budgets), int)), standard)
    attacked = networks.judge(defence, test, same, budgets)
    for number, budget in enumerate(budgets):
      name = structure.name_of(norm, budget)
      of_network = {key: x[number] for key, x in measures.items()}
      table.add_all(name, of_network, finite=True)
      table.add("standard", f"accuracy under {name}", attacked[number])


def jobs(config: Config) -> dict[str, Callable[..., None]]:
  """Parts of the study on small networks, which take the same arguments, by name."""
  if config.images == "cifar10_16":
    return {"budgets": trained}
  partial = functools.partial
  return {
    "budgets": trained,
    "other images": lambda table, config, *_: claims.add_beside(table, config.beside),
    "pixels": lambda table, _, *points: features.add_pixels(table, *points[:2]),
    **{f"{dim} dimensions": partial(proposals.add_radius, dim) for dim in config.dims},
    **{loss: partial(proposals.add_loss, loss) for loss in config.proposals},
    **{study: STUDIES[study] for study in config.studies},
  }


def measure(config: Config, output: pathlib.Path) -> Measured:
  table = Table()
  if config.images in ("cifar10", "svhn_cropped"):
    train, test = photographs.trained(table, config, output)
  else:
    train, test = images.small(config)
    progress = tqdm.tqdm(jobs(config).items(), unit="program")
    for name, job in progress:
      progress.set_postfix_str(name)
      job(table, config, train, test, output / "kept")
  claims.add_inputs(table, "images", config.images, train, test)
  return table, lambda: claims.draw(table, config)


STUDY = Study(
  "robust_features", __doc__, "DIST 5.3", PRESETS, measure, claims.claims,
  options=(
    "images", "train_images", "test_images", "hidden", "dim", "steps", "batch",
    "learning_rate", "attack_steps", "l2", "linf", "proposals", "studies", "defences",
    "seed", "seeds",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
