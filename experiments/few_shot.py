"""Prototypical networks with the distance ratio: faster, and not by size.

Networks learn from episodes of five classes, with a softmax of squared distances (SD)
or with the distance ratio (DR), on the same episodes. Measured is how soon and how well
they classify new classes, and what every tenth update does: whether it moves embeddings
or only scales them, towards their own class and away from others. Beside it, where each
loss is least, exactly, and the exact tests of the published proportions (DIST,
article II).

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
import time
from typing import Any

import numpy as np

from experiments.episodes import claims, images, published, toy
from experiments.episodes.drawn import check_classes
from experiments.episodes.settings import Config, Part, check, of_part
from experiments.episodes.training import FIRST_LOG_EXPONENT, Trained, train
from experiments.frame import at_once, command, pictures
from experiments.frame import results as report

PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    percent=20,
    seeds=1,
    width=8,
    num_queries=2,
    test_queries=2,
    episodes=20,
    check_every=5,
    validate_every=10,
    validation_episodes=20,
    test_episodes=50,
    shots=(1,),
    nearest_shots=(),
    exponents=(),
  ),
  "full": Config(
    images="cub",
    seeds=1,
    width=64,
    convolution="native",
    image_size=84,
    augment=True,
    num_queries=16,
    test_queries=15,
    episodes=0,
    check_every=100,
    validate_every=100,
    all_diagnostics=True,
    shots=(1,),
    nearest_shots=(),
    exponents=(),
  ),
}


def load(config: Config) -> Any:
  """Training, validation and test images."""
  if config.images == "omniglot":
    rows = max(*config.shots, *config.nearest_shots, 0) + max(
      config.num_queries, config.test_queries
    )
    return images.omniglot(config.image_size, config.percent, rows)
  if config.images == "cub":
    return images.cub(config.image_size)
  return images.mini_imagenet(config.image_size, pathlib.Path(config.folder))


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """What is exact, then all trainings; returns figures and claims."""
  start = time.perf_counter()
  for shots in (1, *config.shots, *config.nearest_shots):
    check(of_part(config, shots))
  parts = [Part(shots, "mean") for shots in config.shots]
  parts += [Part(shots, "nearest") for shots in config.nearest_shots]
  sets = load(config)
  fixed_too = [Part(1, "mean")] if config.exponents else []
  check_classes(config, [*parts, *fixed_too], sets)
  table = [toy.rows_and_claims(), published.rows_and_claims()]
  learned = {
    "ratio": (0.0, 1.0),
    "log_exponent": (FIRST_LOG_EXPONENT,) * 2,
    "learned": (1.0, 1.0),
  }
  jobs = [(part, learned) for part in parts]
  if config.exponents:
    fixed = {
      "ratio": (1.0,) * len(config.exponents),
      "log_exponent": tuple(float(np.log(x)) for x in config.exponents),
      "learned": (0.0,) * len(config.exponents),
    }
    jobs.append((Part(1, "mean"), fixed))

  def one(job: tuple[Part, dict[str, tuple[float, ...]]]) -> Trained:
    part, cells = job
    return train(of_part(config, part.shots), part, sets, cells, output / "kept")

  with at_once.pool() as pool:
    done = list(pool.map(one, jobs))
  results = dict(zip(parts, done, strict=False))
  for part, found in results.items():
    own = of_part(config, part.shots)
    table.append(
      (
        claims.rows(own, part, found),
        claims.claims(own, part, found),
      )
    )
  if config.exponents:
    table.append((claims.of_exponents(config, done[-1]), []))
  return report.result(
    experiment="few_shot",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=[row for part in table for row in part[0]],
    claims=[claim for part in table for claim in part[1]],
    pictures=pictures.save(claims.draw(config, results), output),
  )


def main() -> None:
  """The command line."""
  preset, config, output = command.parse(PRESETS, name="few_shot", doc=__doc__)
  report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
