"""Classes assigned to prototypes: does it pay to match them during training?

Prototypes on the sphere are fixed before training. DL2P matches classes and prototypes
repeatedly, so that related classes get neighbouring prototypes. Part A measures the
prototypes alone. Part B trains DL2P and its baselines: learned prototypes with a
softmax of cosines or of products (PSC), word vectors, HPN, a simplex (ETF, maximum
separation), fixed prototypes with cross-entropy, and a control without matching
(Static). All dimensions, methods, rates and seeds of one network and data set are one
vmapped program.

    python -m experiments.dynamic_assignment                   # 15 min on two cores
    python -m experiments.dynamic_assignment --preset long     # photographs, plankton
    python -m experiments.dynamic_assignment --preset smoke    # seconds
    python -m experiments.dynamic_assignment --preset table-1  # as in the paper

The paper's presets are table-1 to table-9, figure-3 and figure-4. They and `long` read
images that tensorflow-datasets prepared in TFDS_DATA_DIR.
"""

import functools
import pathlib
from typing import Any

import jax

from experiments.assignment import cells as dl2p_small
from experiments.assignment import claims, pictures, prototypes, tables, tasks
from experiments.assignment.settings import Config, Full, ImageSet
from experiments.assignment.training import Study
from experiments.frame import at_once, study
from experiments.frame.pictures import Figure
from experiments.frame.study import Measured, Table

PRESETS: dict[str, Any] = {
  "cpu": Config(),
  "long": Config(
    prototypes=(), matchings=(), methods=(), siblings=(), digits=(), updates=(),
    tail_epochs=0,
    images=(("tiny_imagenet", 5), ("omniglot", 10), ("ndsb_plankton", 10)),
  ),
  "smoke": Config(
    prototypes=((10, 9), (10, 3)), matchings=(), seeds=3, methods=("Static", "DL2P"),
    networks=("linear",), dims=(3,), siblings=(), epochs=8, rates=(0.2,), updates=(),
    tail_epochs=0, digits=(), images=(),
  ),
  **tables.PRESETS,
}  # fmt: skip


def part_b(config: Config, output: pathlib.Path) -> list[Study]:
  """Runs all trainings on images."""
  key = jax.random.key(config.seed)
  task = tasks.superclass(key, config.seeds, counts=config.counts)
  balanced = functools.partial(
    dl2p_small.conduct, config, output=output, epochs=config.epochs, seeds=config.seeds
  )
  jobs = [(task, network, config.dims) for network in config.networks]
  jobs.append((tasks.siblings(key, config.seeds), "mlp", config.siblings))
  jobs.append((tasks.digits(key, config.seeds), "mlp", config.digits))
  studies: list[Study] = []
  for drawn, network, dims in jobs:
    cells = dl2p_small.make_cells(config, config.methods, dims, drawn)
    if network == "linear":
      cells += dl2p_small.more_matchings(config)
    if cells:
      studies.append(balanced(drawn, network, cells))
  if config.tail_epochs:
    tailed, cells = tasks.long_tailed(task, config.imbalance), []
    # C - 1 dimensions, where a simplex exists, and half as many as classes.
    for dim in (task.classes - 1, task.classes // 2):
      psc = ("PSC, cosine", "PSC, linear")
      cells += dl2p_small.make_cells(config, psc, (dim,), task)
      cells += dl2p_small.weighted_cells(config, dim)
    studies += [
      balanced(tailed, network, cells, epochs=config.tail_epochs)
      for network in config.networks
    ]

  def of_images(image_set: tuple[ImageSet, int]) -> Study:
    name, dim = image_set
    image_task = tasks.READERS[name](config.image_size)
    cells = dl2p_small.image_cells(config, image_task, dim)
    return balanced(
      image_task, "resnet", cells, epochs=config.image_epochs, seeds=config.image_seeds,
      batch=config.image_batch,
    )  # fmt: skip

  return [*studies, *at_once.threaded(of_images, config.images)]


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Measures prototypes and trains everything; returns the table and a plotter."""
  key = jax.random.fold_in(jax.random.key(config.seed), 2)
  studies = part_b(config, output)
  seconds = prototypes.matching_seconds(key, config.matchings, config.prototype_seeds)
  table = Table()
  claims.tabulate(table, studies)
  cosines = prototypes.study(table, key, config.prototypes, config.prototype_seeds)
  prototypes.tabulate_piles(table)
  prototypes.tabulate_matchings(table, seconds)
  claims.time_matchings(table, studies)

  def draw() -> dict[str, Figure]:
    first = pictures.draw(studies[0], cosines) if studies else {}
    for studied in studies:
      if studied.data == "siblings":
        first |= pictures.by_dimension(studied, "siblings")
    return first | pictures.draw_images(studies)

  return table, draw


OF_TABLES = study.Study(
  "dynamic_assignment", __doc__, "DL2P", {}, tables.measure, tables.claims,
  options=(
    "trainings", "prototypes", "matchings", "uniformities", "network", "width",
    "image_size", "epochs", "batch", "optimizer", "learning_rate", "validation",
    "listing", "vectors", "seed", "seeds",
  ),
)  # fmt: skip
STUDY = study.Study(
  "dynamic_assignment", __doc__, "DL2P", PRESETS, measure, claims.claims,
  others={Full: OF_TABLES},
  options=(
    "methods", "prototypes", "matchings", "networks", "dims", "epochs", "rates",
    "updates", "siblings", "imbalance", "digits", "images", "image_size",
    "image_epochs", "seed", "seeds",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
