"""Collages: which pooling leaves out the images that are unrelated to the label?

A collage is one labelled image among three that say nothing about the label. Test
classes do not occur in training. The study compares generalized sum pooling (GSP) and
zero-shot prediction (ZSP) with global average pooling (GAP), under a contrastive loss
(C2) and ProxyNCA++; "distilled" sees the labelled image alone. The backbone is
pretrained as a classifier of single training images. Section 5.3.2 of DML;
`retrieval` compares all poolings.

    python -m experiments.gsp_collage                    # 14 min
    python -m experiments.gsp_collage --preset smoke     # seconds
    python -m experiments.gsp_collage --preset full      # CIFAR-100, as the paper

Needs omniglot (cifar100 for `full`), prepared by tensorflow-datasets in TFDS_DATA_DIR.
"""

import pathlib

import jax
import tqdm

from experiments.frame import at_once, kept
from experiments.frame.study import Measured, Study, Table
from experiments.gsp import collage, collages, training
from experiments.gsp.collage import Config

PRESETS = {
  "cpu": Config(seeds=8),
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


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Trains all variants with all seeds; the weights of the last seed are drawn."""
  source = collages.load(config.images, config.image_size, config.percent)
  table, last, parts = Table(), {}, {}
  trainings = collage.plan(config)
  with tqdm.tqdm(total=config.seeds * len(trainings)) as progress:
    for seed in range(config.seed, config.seed + config.seeds):
      parts = collages.collages(source, jax.random.key(seed), most=config.most)
      everything = config.pretrain_on == "all"
      singles = collages.single_images(source, config.per_class, everything)
      folder, steps = output / "kept" / "parts", config.pretraining
      start = training.pretrain(config, steps, seed, singles, folder, progress=False)

      def outcomes_of(
        trained: collage.Trained, seed=seed, parts=parts, start=start
      ) -> kept.Finished:
        outcome = collage.outcomes(trained, seed, parts, start, output)
        progress.update()
        return outcome

      for outcome in at_once.threaded(outcomes_of, trainings):
        for name, measures in outcome.figures.items():
          by_measure = {f"{key}, {config.images}": x for key, x in measures.items()}
          table.add_all(name, by_measure)
        last |= outcome.arrays
  collage.complete(table, config)
  return table, lambda: collage.weights(last, parts["test"])


STUDY = Study(
  "gsp_collage", __doc__, "DML 5.3.2", PRESETS, measure, collage.claims,
  charts=collage.charts,
  options=(
    "images", "percent", "most", "losses", "image_size", "widths", "dim", "prototypes",
    "mass", "zero_shot_weight", "steps", "batch_classes", "per_class", "learning_rate",
    "seed", "seeds",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
