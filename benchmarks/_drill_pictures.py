"""Makes a network and images of digits for `benchmarks.drill`, in its own process."""

import pathlib
import sys

import jax
from PIL import Image

from experiments.frame import networks
from spherejax import data

_COUNT = 200


def main(model: pathlib.Path, images: pathlib.Path) -> None:
  """Writes both folders; a class is a sub-folder."""
  architecture = networks.Architecture(dim=32, image_size=16)
  variables = networks.initial_variables(jax.random.key(0), architecture)
  networks.keep(model, networks.Model(architecture, variables), 0)
  digits = data.load_digits()[:_COUNT]
  for row, (pixels, label) in enumerate(zip(digits.images, digits.labels, strict=True)):
    path = images / f"{label}" / f"{row:04}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels[..., 0]).save(path)


if __name__ == "__main__":
  main(*map(pathlib.Path, sys.argv[1:]))
