r"""Norms and counts: does a feature's norm count objects, and its angle name them?

A network is trained on single objects and sees grids of known numbers of held-out
objects. Slopes of a quadratic regression, with one-sided tests, show how the norm of
its average-pooled features follows the number. The study also measures how much
classifiers gain when norms are divided out. Controls are the untrained network and the
norm of the image itself; both count just as well where empty cells are 0. NCH, tables 1
to 3, figures 1 and 2.

    python -m experiments.norm_count                    # 3 sets, 8 seeds, 11 min
    python -m experiments.norm_count --preset long      # 12 further seeds, 50 min
    python -m experiments.norm_count --preset smoke     # seconds
    python -m experiments.norm_count --preset voc       # photographs, 31 min on a core
    python -m experiments.norm_count --preset table-1 --supervised-weights FILE \
      --simclr-weights FILE                             # accelerators

table-2 and table-3, also for accelerators, measure accuracies and few-shot episodes
instead of slopes, also those of the untrained network. For the norm of the image, they
measure the correlation with the count.

The weights are those of a ResNet-50 trained on ImageNet, as safetensors or a state_dict
of torch; without them, EfficientNet-Lite0 embeds the photographs. All sets but the
digits of scikit-learn are read from TFDS_DATA_DIR; the preset cpu skips sets that are
not there. Pascal VOC is that of 2007, voc/2007. The paper uses 2007 to 2013, so its
numbers are shown only for a folder of these years, given by --voc-folder.
"""

import pathlib
from typing import Any

import tqdm

from experiments.counting import claims, grids, images, photographs, settings
from experiments.counting.settings import PRESETS, Config
from experiments.frame import images as class_sets
from experiments.frame.study import Measured, Study, Table


def load(config: Config) -> dict[str, Any]:
  """Reads the sets that are there; says which are not."""

  def read(name: str) -> images.Objects | images.Photographs:
    try:
      return images.photographs(config) if name == "voc" else images.load(name, config)
    except FileNotFoundError as error:
      if config.need_all:
        raise SystemExit(f"this preset reads the image set {name}: {error}") from error
      raise

  sets = dict(class_sets.available(config.sets, read))
  if not sets:
    raise SystemExit(f"none of the sets {', '.join(config.sets)} is in TFDS_DATA_DIR")
  return sets


def measure(config: Config, output: pathlib.Path) -> Measured:
  settings.check(config)
  table, figures = Table(), {}
  sets = load(config)
  studies = {name: photographs if name == "voc" else grids for name in sets}
  for name, images_of_set in sets.items():
    studies[name].check(config, name, images_of_set)
  folder = output / "kept"
  small = {name: x for name, x in sets.items() if name not in ("stl10", "voc")}
  trained = grids.simple_networks(config, small, folder)
  with tqdm.tqdm(total=len(sets) * config.seeds, unit="seed") as bar:
    for name, objects in sets.items():
      bar.set_postfix(set=name)
      networks = trained.pop(name, None) or grids.trained_networks(config)
      study = studies[name].study
      figures |= study(table, config, name, objects, networks, folder, bar)
      claims.add_verdicts(table, config, name)
  return table, lambda: figures


STUDY = Study(
  "norm_count", __doc__, "NCH 4", PRESETS, measure, claims.claims,
  options=(
    "sets", "voc_folder", "methods", "supervised_weights", "simclr_weights",
    "train_images", "held_images", "fills", "grids", "measures", "shots", "epochs",
    "simclr_steps", "batch", "seed", "seeds",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
