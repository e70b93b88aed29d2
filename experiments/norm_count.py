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

import dataclasses
import functools
import pathlib
import sys
import time
from typing import Any, Literal

import tqdm

from experiments import (
  _cli,
  _norm_count_checks,
  _norm_count_grids,
  _norm_count_photographs,
  _norm_count_report,
  _norm_count_sets,
  _norm_count_theory,
  _norm_count_training,
  _report,
)

Measure = Literal["slopes", "classifiers", "episodes", "angles"]
Fill = Literal["zeros", "blur", "random"]


@dataclasses.dataclass(frozen=True)
class Config(_norm_count_training.Settings):
  """Settings of the study."""

  sets: tuple[_norm_count_sets.Name, ...] = ("digits", "mnist", "cifar10")
  """Of objects, and voc: photographs."""
  need_all: bool = False
  """Whether a set that is not prepared ends the run; else it is left out."""
  need_weights: bool = False
  """Whether photographs are for ResNet-50 alone; else Simple-6 of CIFAR-10 will do."""
  reduced: bool = True
  """MNIST at 14x14 and CIFAR-10 at 16x16."""
  train_images: int = 5000
  """First objects of a set, to train on."""
  held_images: int = 2000
  """First objects of its test part, to make grids of."""
  fills: tuple[Fill, ...] = ("zeros", "blur", "random")
  """What empty cells hold; MNIST has zeros alone."""
  rows: int = 4
  """Cells down."""
  columns: int = 4
  """Cells across."""
  min_count: int = 1
  """Least number of objects of a grid."""
  grids: int = 1000
  """Grids of one kind: to measure on, and as many to fit classifiers to."""
  block: int = 50
  """Grids or photographs at once."""
  measures: tuple[Measure, ...] = ("slopes", "classifiers", "episodes", "angles")
  """What is measured."""
  episodes: int = 1000
  """Few-shot episodes."""
  ways: int = 5
  """Classes of an episode."""
  shots: tuple[int, ...] = (1, 5)
  """Supports of each class."""
  queries: int = 15
  """Queries of each class."""
  controls: bool = True
  """Whether untrained networks take part, and of digits ones without biases and of
  grids."""
  theory: bool = True
  """Whether the statements that are exact are measured, on a set of objects."""
  supervised_weights: str = ""
  """File of a ResNet-50 trained with labels, for stl10 and voc."""
  simclr_weights: str = ""
  """File of a ResNet-50 trained by SimCLR; its names may begin with "encoder."."""
  resnet_blocks: tuple[int, ...] = (3, 4, 6, 3)
  """Blocks of the stages of that network."""
  resnet_widths: tuple[int, ...] = (64, 128, 256, 512)
  """Their inner channels."""
  stl10_split: str = "test"
  """Of STL-10."""
  voc_folder: str = ""
  """A folder of Pascal VOC, of Annotations and JPEGImages; else voc/2007 is read.
  The paper has 2007 to 2013, so its figures stand beside those of a folder alone."""
  voc_split: str = "train+test"
  """Of voc/2007 in tensorflow-datasets."""
  photograph_size: int = 96
  """Side to which photographs are brought."""


PAPER = Config(
  sets=("mnist", "stl10", "voc"),
  need_all=True,
  need_weights=True,
  reduced=False,
  widths=(32, 32, 64, 64, 128, 128),
  convolution="native",
  train_images=60_000,
  held_images=10_000,
  grids=10_000,
  episodes=10_000,
  theory=False,
  simclr_steps=12_000,  # 100 passes over MNIST
  simclr_batch=512,
  integer_crops=True,
  voc_split="train+validation+test",
  photograph_size=224,
)
PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    sets=("digits",),
    seeds=1,
    epochs=3,
    methods=("supervised",),
    fills=("zeros",),
    grids=200,
    measures=("slopes",),
    controls=False,
  ),
  # Few photographs of a small part of the set show one class alone.
  "voc": Config(sets=("voc",), need_all=True, theory=False, ways=3, queries=10),
  "table-1": dataclasses.replace(PAPER, measures=("slopes",)),
  "table-2": dataclasses.replace(PAPER, measures=("classifiers",)),
  "table-3": dataclasses.replace(PAPER, sets=("stl10", "voc"), measures=("episodes",)),
}


def check(config: Config) -> None:
  """Raises ValueError for what cannot be measured, before anything is trained."""
  _norm_count_checks.settings(config)
  files = [x for x in (config.supervised_weights, config.simclr_weights) if x]
  needs = {"stl10", "voc"} if config.need_weights else {"stl10"}
  if not files and needs & set(config.sets):
    raise ValueError(
      f"{' and '.join(sorted(needs & set(config.sets)))}: name a file of weights of a "
      "ResNet-50 by --supervised-weights or --simclr-weights, or choose other --sets"
    )
  for file in files:
    if not pathlib.Path(file).is_file():
      raise ValueError(f"there is no file of weights at {file}")


def load(config: Config) -> dict[str, Any]:
  """Every set that takes part; says which do not."""
  found = {}
  for name in config.sets:
    read = (
      _norm_count_sets.photographs
      if name == "voc"
      else functools.partial(_norm_count_sets.load, name)
    )
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
  check(config)
  sets = load(config)
  for name, found in sets.items():
    own = _norm_count_photographs if name == "voc" else _norm_count_grids
    own.check(config, name, found)
  rows, claims, pictures = [], [], []
  objects = [found.held for name, found in sets.items() if name != "voc"]
  if config.theory and objects:
    rows, claims = _norm_count_theory.rows_and_claims(config, objects[0])
  with tqdm.tqdm(total=len(sets) * config.seeds, unit="seed", file=sys.stderr) as bar:
    for name, found in sets.items():
      bar.set_postfix(set=name)
      own = _norm_count_photographs if name == "voc" else _norm_count_grids
      figures, drawn = own.study(config, name, found, output, bar)
      beside = comparable(config, preset, name)
      rows += _norm_count_report.rows(name, figures, comparable=beside)
      rows += _norm_count_report.beside_control(name, figures)
      claims += _norm_count_report.claims(name, figures)
      pictures += drawn
  return _report.result(
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
  preset, config, output = _cli.parse(PRESETS, name="norm_count", doc=__doc__)
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
