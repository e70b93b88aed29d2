"""Settings of `plankton` and its presets."""

import dataclasses
import pathlib
from typing import Annotated

from experiments.frame.settings import Within
from experiments.hierarchies import plankton_claims, plankton_images, triplet_settings


@dataclasses.dataclass(frozen=True)
class Config(triplet_settings.Settings, plankton_images.Selection):
  """Settings of the comparison."""

  seeds: int = 3
  """Divisions of the images, each with another start."""
  neighbours: Annotated[tuple[int, ...], Within(1)] = (1, 5, 10)
  """Neighbours that vote; among them 10, which the claims are about."""
  curve: Annotated[tuple[int, ...], Within(1)] = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)
  """Neighbours that vote on validation images, to choose their number."""
  drawn: Annotated[int, Within(1)] = 2500
  """Images of each group of classes in the pictures of the plane."""
  need_weights: bool = False
  """Whether a run without ImageNet's weights ends; else it begins with random ones."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    percent=12,
    seen_from=60,
    unseen_from=12,
    test_images=20,
    validation_images=10,
    unseen_images=20,
    width=8,
    dim=32,
    triplets=32,
    iterations=3,
    steps=8,
    raised_after=(2,),
    neighbours=(10,),
    curve=(10,),
    seeds=1,
    baseline_batch=128,
    drawn=40,
  ),
  # Networks after 30 iterations of triplets and 200 epochs of the softmax classifier.
  # Its batch is not printed, nor an iteration's steps: those of the released code.
  "full": Config(
    data="folder",
    canvas=299,
    shrink=1,
    inverted=False,
    seen="article",
    validation_images=100,
    network="inception_v3",
    triplets=20,
    iterations=30,
    steps=5000,
    margins=(1.0, 1.3, 1.5),
    raised_after=(20, 30),
    optimizer="sgd",
    learning_rate=0.01,
    baseline_batch=32,
    baseline_rate=1e-4,
    baseline_decay=1.0,
    baseline_epochs=200,
    neighbours=(1, 5, 10, 25),
    need_weights=True,
    seeds=1,
  ),
}


def check(config: Config) -> None:
  """Raises ValueError for settings that do not fit together, before data are read."""
  later = config.raised_after
  if len(config.margins) != len(later) + 1 or list(later) != sorted({*later}):
    raise ValueError(
      "raised_after must grow and be one less than margins, got"
      f" {config.margins} and {later}"
    )
  if plankton_claims.USUAL not in config.neighbours or not config.curve:
    raise ValueError(
      f"neighbours must contain {plankton_claims.USUAL}, which the claims are about,"
      f" and curve some, got {config.neighbours} and {config.curve}"
    )
  if config.need_weights and not config.weights:
    raise ValueError(
      f"name a file of ImageNet's weights for {config.network} by --weights, or begin "
      "with random ones by --no-need-weights"
    )
  if config.weights and not pathlib.Path(config.weights).is_file():
    raise ValueError(f"there is no file of weights at {config.weights}")
