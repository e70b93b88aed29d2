"""A network that is not trained, and pictures of digits, to try `embed` with."""

import dataclasses
import pathlib
from typing import Any

import jax
from PIL import Image

from experiments.frame import networks
from spherejax import data

ASKED = 8  # digits that are queries


def fill_in(config: Any, output: pathlib.Path) -> Any:
  """The settings of `embed` with what they leave open.

  The network is made once, and the pictures are as many as the settings ask for.
  """
  digits = data.load_digits()
  for folder, chosen in (
    ("digits", digits[: config.digits]),
    ("asked", digits[-ASKED:]),
  ):
    made = [
      output / folder / str(label) / f"{number:04}.png"
      for number, label in enumerate(chosen.labels)
    ]
    # Of a run that was asked for more digits.
    for path in set((output / folder).glob("[0-9]/[0-9][0-9][0-9][0-9].png")) - {*made}:
      path.unlink()
    for path, pixels in zip(made, chosen.images, strict=True):
      if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[..., 0]).save(path)
  folder = output / "model"
  if not (folder / "network.json").exists():
    # Sharp, so that even a network that is not trained prefers some positions.
    architecture = networks.Architecture(
      strides=(2, 1, 1, 1),
      pooling="gsp",
      prototypes=8,
      inverse_temperature=20.0,
      dim=32,
      image_size=16,
    )
    variables = networks.initial_variables(jax.random.key(0), architecture)
    networks.keep(folder, networks.Model(architecture, variables), 0)
  return dataclasses.replace(
    config,
    model=config.model or str(folder),
    images=config.images or str(output / "digits"),
    queries=config.queries or str(output / "asked"),
  )
