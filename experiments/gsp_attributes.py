"""Attributes of sum pooling: do they predict classes that they were not fitted on?

A network with eight prototypes is trained on photographs of ten classes, with and
without zero-shot prediction. Each class then has attributes (the mean share of its
images' features on each prototype) and a mean embedding. A ridge regression from
attributes to embeddings is fitted on five classes and predicts the other five. A
prediction is correct if the nearest true mean is that of its class (section 5.3.3 of
DML).

    python -m experiments.gsp_attributes                    # 5 min
    python -m experiments.gsp_attributes --preset smoke     # seconds

Needs the images of CIFAR-10, prepared by tensorflow-datasets, in TFDS_DATA_DIR.
"""

import dataclasses
import pathlib

import jax
import numpy as np

from experiments.frame import images as class_sets
from experiments.frame.settings import Decided
from experiments.frame.study import Claim, Measured, Study, Table
from experiments.gsp import attributes, network, training

WITHOUT, WITH = "PNCA", "PNCA + ZSP"


@dataclasses.dataclass(frozen=True)
class Config(network.Settings):
  """Settings of the study."""

  seeds: int = 8
  """Runs of each variant."""
  strides: tuple[int, ...] = (1, 2, 1)
  pooling: Decided[str] = "gsp"
  prototypes: int = 8
  """Prototypes of the pooling."""
  mass: float = 0.2
  """Share of an image's features to pool (as in DML for such images)."""
  inverse_temperature: float = 10.0
  """Inverse temperature of the pooling (as in DML for such images)."""
  zero_shot_weight: float = 0.5
  """Weight of the zero-shot prediction loss (as in DML for such images)."""
  steps: int = 1600
  """Training steps. After 400, the additional loss did not yet help on held-out
  images."""
  ridge: float = 0.05
  """Ridge of the regression from attributes to embeddings (DML 5.2.4)."""
  splits: int = 1000
  """Random splits of the ten classes into halves."""
  train_split: str = "train"
  """Split with the training images."""
  test_split: str = "test"
  """Split with the images whose classes are predicted."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    seeds=1, steps=8, widths=(8,), strides=(1,), dim=16, parts=2, splits=50,
    train_split="train[:10%]", test_split="test[:24%]",
  ),
  "full": Config(**network.PUBLISHED, dim=128),
}  # fmt: skip


def unseen(metric: str) -> str:
  """Name of the claimed measure: accuracy among the five classes outside the fit."""
  return f"accuracy, {metric}, 5 classes"


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Trains both variants with all seeds; the last seed is drawn."""
  images = class_sets.read("cifar10", config.train_split, size=config.image_size)
  tested = class_sets.read("cifar10", config.test_split, size=config.image_size)
  variants = {
    WITHOUT: network.Variant(config.mass, 0.0),
    WITH: network.Variant(config.mass, config.zero_shot_weight),
  }
  table, last = Table(), {}
  for metric in attributes.METRICS:
    # DML chapter 6 says more than 30 points, but not by which distance.
    table.add_gain(unseen(metric), WITH, over=WITHOUT, paper=0.30)
  for seed in range(config.seed, config.seed + config.seeds):
    runs = training.train(config, seed, variants, images, output / "kept")
    split_key = jax.random.fold_in(jax.random.key(seed), 1)
    for name, run in runs.items():
      result = network.embed(run.state, tested, config, mass=config.mass)
      probabilities, embeddings = (
        attributes.class_means(np.asarray(values), tested.labels)
        for values in (result.attributes, result.embeddings)
      )
      shares = attributes.predict_classes(
        split_key, probabilities, embeddings, config.ridge, splits=config.splits
      )
      for (metric, candidates, source), share in shares.items():
        label = name if source == "own" else f"{name}, {source}"
        table.add(label, f"accuracy, {metric}, {candidates}", share)
      spread = np.abs(probabilities - probabilities.mean(0)).sum(1).mean() / 2
      table.add(name, "variation of class attributes", spread)
      last[name] = (run.state, result, probabilities)
  return table, lambda: {
    "attributes": attributes.class_attributes(last, tested.label_names),
    "dominant": attributes.dominant(last, tested, config),
  }


CLAIMS = Claim.of_rows([
  row
  for metric in attributes.METRICS
  for row in (
    (f"attributes-zsp-{metric}",
     f"accuracy on unseen classes, {metric}: with ZSP > without",
     lambda t, metric=metric: t.gain(unseen(metric), WITH, over=WITHOUT)),
    (f"attributes-chance-{metric}",
     f"accuracy on unseen classes, {metric}, with ZSP > 0.20 (chance)",
     lambda t, metric=metric: t.values(unseen(metric), WITH) - 0.2),
  )
])  # fmt: skip
STUDY = Study(
  "gsp_attributes", __doc__, "DML 5.3.3", PRESETS, measure, CLAIMS,
  charts=attributes.charts,
  options=(
    "image_size", "widths", "normalization", "dim", "prototypes", "mass",
    "inverse_temperature", "zero_shot_weight", "ridge", "steps", "parts",
    "batch_classes", "per_class", "learning_rate", "seed", "seeds",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
