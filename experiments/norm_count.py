r"""Does the norm of a representation count objects, and does its angle name them?

A network is trained on single objects. Grids with a known number of held out objects
then tell how the norm of its average-pooled features follows the number (slopes of a
quadratic regression, one-sided tests), and what classifiers gain when norms are divided
out. Beside it the same network untrained, and the norm of the image itself: with empty
cells that are 0 these count as well. NCH, tables 1 to 3, figures 1 and 2.

    python -m experiments.norm_count                     # 3 sets, 6 min on 2 cores
    python -m experiments.norm_count --preset smoke      # seconds
    python -m experiments.norm_count --preset voc        # photographs with boxes
    python -m experiments.norm_count --preset table-1 --supervised-weights FILE \
      --simclr-weights FILE                              # accelerators; so are others

table-2 and table-3 measure accuracies and few-shot episodes in place of slopes, of
the untrained network too, and of the norm of the image the correlation with the count.

The weights are those of a ResNet-50 trained on ImageNet, as safetensors or a state_dict
of torch. Sets other than the digits that scikit-learn embeds are read from
TFDS_DATA_DIR; the preset cpu goes without those that are not there. Of Pascal VOC that
is 2007 alone, without the paper's figures beside it: those are of 2007 to 2013, for
which --voc-folder names a folder.
"""

import functools
import pathlib
import sys
import time
from typing import Any

import tqdm

from experiments.counting import claims as norm_count_report
from experiments.counting import grids, images, photographs, settings, theory
from experiments.counting.settings import PRESETS, Config
from experiments.frame import command, results


def load(config: Config) -> dict[str, Any]:
  """Every set that takes part; says which do not."""
  found = {}
  for name in config.sets:
    read = images.photographs if name == "voc" else functools.partial(images.load, name)
    try:
      found[name] = read(config)
    except FileNotFoundError as error:
      if config.need_all:
        raise SystemExit(f"this preset reads the image set {name}: {error}") from error
      tqdm.tqdm.write(f"without {name}: {error}", file=sys.stderr)
  if not found:
    raise SystemExit(f"none of the sets {', '.join(config.sets)} is there")
  return found


def comparable(config: Config, preset: str, name: str) -> bool:
  """Whether a set is the paper's: a table's, and of VOC all years, in a folder."""
  return preset.startswith("table") and (name != "voc" or bool(config.voc_folder))


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """Trains, measures and draws; returns figures and claims."""
  start = time.perf_counter()
  settings.check(config)
  sets = load(config)
  for name, found in sets.items():
    own = photographs if name == "voc" else grids
    own.check(config, name, found)
  rows, claims, pictures = [], [], []
  objects = [found.held for name, found in sets.items() if name != "voc"]
  if config.theory and objects:
    rows, claims = theory.rows_and_claims(config, objects[0])
  with tqdm.tqdm(total=len(sets) * config.seeds, unit="seed", file=sys.stderr) as bar:
    for name, found in sets.items():
      bar.set_postfix(set=name)
      own = photographs if name == "voc" else grids
      figures, drawn = own.study(config, name, found, output, bar)
      beside = comparable(config, preset, name)
      rows += norm_count_report.rows(name, figures, comparable=beside)
      rows += norm_count_report.beside_control(name, figures)
      claims += norm_count_report.claims(name, figures)
      pictures += drawn
  return results.result(
    experiment="norm_count",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=claims,
    pictures=pictures,
  )


def main() -> None:
  """The command line."""
  preset, config, output = command.parse(
    PRESETS, name="norm_count", doc=__doc__, unused=settings.unused
  )
  results.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
