"""Pictures of the few-shot study."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.episodes import toy
from experiments.episodes.settings import Config, Part
from experiments.episodes.tables import LOSSES
from experiments.episodes.training import Trained
from spherejax import plotting


def draw(config: Config, results: Mapping[Part, Trained]) -> dict[str, Any]:
  """Learning curves, norm ratios, and where each loss is least."""
  drawn: dict[str, Any] = {
    "plane": toy.draw_plane(),
    "sphere": toy.draw_sphere(),
  }
  for part, found in results.items():
    name = part.name.replace(", ", "-").replace(" ", "-").lower()
    times = config.validate_every * np.arange(1, found.validation.shape[-1] + 1)
    curves: dict[str, np.ndarray] = dict(zip(LOSSES, found.validation, strict=True))
    shown = "validation "
    if "training accuracy" in found.series:
      each = config.validate_every // config.check_every
      own = found.series["training accuracy"][..., each - 1 :: each]
      curves = {f"{loss}, validation": values for loss, values in curves.items()}
      curves |= {f"{x}, training": y for x, y in zip(LOSSES, own, strict=True)}
      shown = ""
    drawn[f"accuracy-{name}"] = plotting.training_curves(
      curves,
      steps=times,
      xlabel="episodes",
      ylabel=f"{shown}accuracy",
      title=part.name,
    )
    checks = config.check_every * np.arange(1, found.series["norm_ratio"].shape[-1] + 1)
    drawn[f"norm-ratio-{name}"] = plotting.training_curves(
      dict(zip(LOSSES, found.series["norm_ratio"], strict=True)),
      steps=checks,
      xlabel="episodes",
      ylabel="norm ratio of the update",
      title=part.name,
    )
  return drawn
