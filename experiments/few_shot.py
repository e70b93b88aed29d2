"""Few-shot learning: does the distance ratio learn faster, and not by rescaling?

Networks learn from the same episodes of five classes, with a softmax of squared
distances (SD) or with the distance ratio (DR). The study measures how fast and how well
they classify new classes. For every tenth update it measures whether embeddings move or
are only scaled, and whether they move towards their class and away from others. It also
computes exactly where each loss is smallest (DIST, article II).

    python -m experiments.few_shot                     # birds: 13 min on one core
    python -m experiments.few_shot --preset tiny_imagenet   # 14 min
    python -m experiments.few_shot --preset omniglot   # Conv4, from scratch: 53 min
    python -m experiments.few_shot --preset smoke      # seconds
    python -m experiments.few_shot --preset full       # CUB, Conv4, 1-shot
    python -m experiments.few_shot --preset full --images mini_imagenet --folder DIR
      --backbone resnet18 --image-size 224 --shots 5

The first two train a linear layer on features of a frozen EfficientNet-Lite0, which was
trained on ImageNet. The sets omniglot, cub_birds100, tiny_imagenet and, for `full`,
caltech_birds2011 are prepared by tensorflow-datasets in TFDS_DATA_DIR; mini-ImageNet is
a folder. The article's numbers are shown only for runs of its protocol: Conv4 at 84
pixels, ResNet18 at 224, with the episodes and queries of `full`.
"""

import pathlib
from collections.abc import Mapping

import numpy as np

from experiments.episodes import claims, settings, toy
from experiments.episodes.claims import LOSSES
from experiments.episodes.settings import PRESETS, Config, Part, check_classes, of_part
from experiments.episodes.training import FIRST_LOG_EXPONENT, Trained, train
from experiments.frame import at_once, pictures
from experiments.frame.study import Measured, Study
from spherejax import plotting


def draw(runs: Mapping[Part, Trained], config: Config) -> dict[str, pictures.Figure]:
  """Learning curves, norm ratios, and where each loss is least."""
  figures = {"plane": toy.draw_plane(), "sphere": toy.draw_sphere()}
  for part, trained in runs.items():
    name = part.name.replace(", ", "-").replace(" ", "-").lower()
    curves: dict[str, np.ndarray] = dict(zip(LOSSES, trained.validation, strict=True))
    label = "validation accuracy"
    if "training accuracy" in trained.series:
      stride = config.validate_every // config.check_every
      training_accuracy = trained.series["training accuracy"][..., stride - 1 :: stride]
      curves = {f"{loss}, validation": values for loss, values in curves.items()}
      curves |= {
        f"{x}, training": y for x, y in zip(LOSSES, training_accuracy, strict=True)
      }
      label = "accuracy"
    ratio_rows = zip(LOSSES, trained.series["norm_ratio"], strict=True)
    ratios: dict[str, np.ndarray] = dict(ratio_rows)
    for file, lines, every, ylabel in (
      ("accuracy", curves, config.validate_every, label),
      ("norm-ratio", ratios, config.check_every, "norm ratio of the update"),
    ):
      steps = every * np.arange(1, next(iter(lines.values())).shape[-1] + 1)
      figures[f"{file}-{name}"] = plotting.training_curves(
        lines, steps=steps, xlabel="episodes", ylabel=ylabel, title=part.name
      )
  return figures


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Runs all trainings and adds the exact results."""
  parts, fixed = settings.parts(config), Part(1, "mean")
  configs = {part: of_part(config, part.shots) for part in (*parts, fixed)}
  sets = settings.load(config, output / "kept")
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

  def train_job(job: tuple[Part, dict[str, tuple[float, ...]]]) -> Trained:
    part, cells = job
    return train(configs[part], part, sets, cells, output / "kept")

  results = at_once.threaded(train_job, jobs)
  trained = dict(zip(parts, results, strict=False))
  table = claims.tabulate(config, trained, results[-1] if count else None)
  return table, lambda: draw(trained, config)


STUDY = Study(
  "few_shot", __doc__, "DIST, article II", PRESETS, measure, claims.claims,
  options=(
    "images", "percent", "folder", "backbone", "width", "image_size", "augment",
    "shots", "exponents", "num_ways", "num_queries", "episodes", "test_episodes",
    "learning_rate", "seed", "seeds",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
