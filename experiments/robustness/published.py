"""Figures that DIST prints in chapter 5."""

from collections.abc import Mapping

from experiments.published import figures

IMAGES = {"cifar10": 50_000, "svhn_cropped": 73_257}
"""Training images of a whole set, which table 5.3 is of."""


def network(norm: str, budget: float) -> str:
  """The name of a network; a budget of 0 trains without an attack."""
  return f"{norm} {budget:g}" if budget else "standard"


def trained(images: str, name: str) -> Mapping[str, float]:
  """Tables 5.1, 5.2, 5.4 and 5.5 of a network; empty beside digits."""
  return figures("robust_features").get(images, {}).get(name, {})


def inputs(images: str) -> Mapping[str, float]:
  """Table 5.3; beside the digits CIFAR-10's column."""
  known = images if images in IMAGES else "cifar10"
  return figures("robust_features")[known]["images"]
