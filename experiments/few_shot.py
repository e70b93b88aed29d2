"""Prototypical networks with the distance ratio: faster, and not by size.

Networks learn from episodes of five classes, with a softmax of squared distances (SD)
or with the distance ratio (DR), on the same episodes. Measured is how soon and how well
they classify new classes, and what every tenth update does: whether it moves embeddings
or only scales them, towards their own class and away from others. Beside it, where each
loss is least, exactly (DIST, article II).

    python -m experiments.few_shot                     # 9 min on 2 cores
    python -m experiments.few_shot --preset smoke      # seconds
    python -m experiments.few_shot --preset full       # CUB, Conv4, 1-shot
    python -m experiments.few_shot --preset full --images mini_imagenet --folder DIR
      --backbone resnet18 --image-size 224 --shots 5

Needs omniglot, for `full` caltech_birds2011, prepared by tensorflow-datasets, in
TFDS_DATA_DIR, or a folder of mini-ImageNet. The article's figures stand beside those of
its protocol alone: Conv4 at 84 pixels, ResNet18 at 224, episodes and queries of `full`.
"""

import pathlib
from typing import Any

import numpy as np

from experiments.episodes import claims, images, pictures, settings, tables
from experiments.episodes.drawn import check_classes
from experiments.episodes.settings import PRESETS, Config, Part, of_part
from experiments.episodes.training import FIRST_LOG_EXPONENT, Trained, train
from experiments.frame import at_once
from experiments.frame.study import Study, Table


def measure(config: Config, output: pathlib.Path) -> tuple[Table, Any]:
  """All trainings, and what is exact."""
  parts, fixed = settings.parts(config), Part(1, "mean")
  own = {part: of_part(config, part.shots) for part in (*parts, fixed)}
  sets = images.load(config)
  count = len(config.exponents)
  check_classes(config, [*parts, fixed] if count else parts, sets)
  learned = {
    "ratio": (0.0, 1.0),
    "log_exponent": (FIRST_LOG_EXPONENT,) * 2,
    "learned": (1.0, 1.0),
  }
  jobs = [(part, learned) for part in parts]
  if count:
    logs = tuple(float(np.log(x)) for x in config.exponents)
    cells = {"ratio": (1.0,) * count, "log_exponent": logs, "learned": (0.0,) * count}
    jobs.append((fixed, cells))

  def one(job: tuple[Part, dict[str, tuple[float, ...]]]) -> Trained:
    part, cells = job
    return train(own[part], part, sets, cells, output / "kept")

  with at_once.pool() as pool:
    done = list(pool.map(one, jobs))
  trained = dict(zip(parts, done, strict=False))
  return tables.tabulate(config, trained, done[-1] if count else None), trained


def draw(table: Table, shown: dict[Part, Trained], config: Config) -> dict[str, Any]:
  """Learning curves, norm ratios, and where each loss is least."""
  del table
  return pictures.draw(config, shown)


STUDY = Study(
  "few_shot", __doc__, "DIST, article II", PRESETS, measure, claims.claims, draw
)

if __name__ == "__main__":
  STUDY.main()
