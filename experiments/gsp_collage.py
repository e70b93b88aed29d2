"""Collages: which pooling leaves out what the label does not speak of?

A collage is one labelled image among three that say nothing about the label, and test
classes were not seen in training. Generalized sum pooling (GSP) and zero-shot
prediction (ZSP) against global average pooling (GAP), with a contrastive loss (C2) and
ProxyNCA++; "distilled" is the labelled image alone. The backbone begins as a classifier
of single training images. Sections 5.3.2 and 5.3.5 of DML.

    python -m experiments.gsp_collage --seeds 5               # preset cpu: 29 min
    python -m experiments.gsp_collage --preset poolings       # 17 poolings, 45 min
    python -m experiments.gsp_collage --preset poolings-pnca  # ProxyNCA++, 45 min
    python -m experiments.gsp_collage --preset photographs    # 14 min
    python -m experiments.gsp_collage --preset long           # 1,500 steps, 31 min
    python -m experiments.gsp_collage --preset smoke          # seconds
    python -m experiments.gsp_collage --preset full           # CIFAR-100, as the paper

Needs omniglot (for `full` cifar100, for `photographs` tiny_imagenet), prepared by
tensorflow-datasets, in TFDS_DATA_DIR.
"""

import pathlib
import sys
from typing import Any

import jax
import tqdm

from experiments.frame import at_once, poolings
from experiments.frame.study import Study, Table
from experiments.gsp import collage, collages, training
from experiments.gsp.collage import Config

_ALL = (*poolings.NAMES, *poolings.WIDE)

PRESETS = {
  "cpu": Config(),
  "poolings": Config(losses=("C2",), poolings=_ALL, seeds=5),
  "poolings-pnca": Config(losses=("PNCA",), poolings=_ALL, seeds=5),
  "photographs": Config(images="tiny_imagenet"),
  "long": Config(steps=1500, parts=10, keep="best"),
  "smoke": Config(
    percent=20, seeds=1, pretraining=4, steps=10, parts=2, batch_classes=8, per_class=2,
    most=2, widths=(8,), strides=(1,), dim=16, losses=("C2",),
  ),
  "full": Config(
    images="cifar100", image_size=32, most=600, blocks=3, strides=(1, 2, 2),
    stem_stride=1, norm="batch", convolution="native", dim=128, mass=0.2,
    pretraining=30_000, pretrain_on="all", steps=30_000,
    parts=100,  # of 300 steps, which is an epoch
    patience=5,
  ),
}  # fmt: skip


def measure(config: Config, output: pathlib.Path) -> tuple[Table, Any]:
  """Trains all variants with all seeds; the weights of the last one are drawn."""
  source = collages.load(config.images, config.image_size, config.percent)
  table, last, parts = Table(), {}, {}
  trainings = collage.plan(config)
  with tqdm.tqdm(total=config.seeds * len(trainings), file=sys.stderr) as progress:
    for seed in range(config.seed, config.seed + config.seeds):
      parts = collages.collages(source, jax.random.key(seed), most=config.most)
      everything = config.pretrain_on == "all"
      singles = collages.single_images(source, config.per_class, everything)
      begun = training.pretrain(
        config,
        config.pretraining,
        seed,
        singles,
        output / "kept" / "parts",
        progress=False,
      )

      def outcomes_of(
        trained: collage.Trained, seed=seed, parts=parts, begun=begun
      ) -> Any:
        done = collage.outcomes(trained, seed, parts, begun, output)
        progress.update()
        return done

      last = {}
      with at_once.pool() as pool:
        results = list(pool.map(outcomes_of, trainings))
      for done in results:
        for name, measured in done.figures.items():
          named = {f"{key}, {config.images}": x for key, x in measured.items()}
          table.add_all(name, named)
        last |= done.arrays
  collage.complete(table, config)
  return table, (last, parts["test"].collages)


def draw(_: Table, shown: Any, __: Config) -> dict[str, Any]:
  return collage.weights(*shown)


def charts(config: Config, table: Table) -> dict[str, Any]:
  return {"scores": collage.scores(table, f"MAP@R, {config.images}")}


STUDY = Study(
  "gsp_collage", __doc__, "DML 5.3.2", PRESETS, measure, collage.claims, draw, charts
)

if __name__ == "__main__":
  STUDY.main()
