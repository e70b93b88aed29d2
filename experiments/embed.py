"""`spherejax-explore` for a network of your own: embeds images, answers queries, shows.

What is written and all options are those of `spherejax-explore`; `--model` also takes a
folder that `retrieval` wrote.

    python -m experiments.embed FOLDER --model MODEL
    python -m experiments.embed FOLDER --model MODEL --queries IMAGE --output out
    python -m experiments.embed tfds:omniglot/test --model MODEL
"""

import pathlib
from typing import Any

from jax import Array

from experiments.frame import networks
from spherejax import distances
from spherejax.explorer import _command, _networks


def load(model: str, weights: pathlib.Path | None = None) -> _networks.Embedder:
  """The network in that folder, to the unit ball; or a pretrained one."""
  folder = pathlib.Path(model)
  if not folder.is_dir():
    return _networks.pretrained(model, weights)
  restored = networks.load(folder)

  def apply(images: Array) -> _networks.Found:
    outputs: Any = networks.Network(restored.architecture).apply(
      restored.variables, images
    )
    embeddings = distances.unit_ball(outputs.embeddings)
    if restored.architecture.pooling != "gsp":
      return _networks.Found(embeddings)
    return _networks.Found(embeddings, outputs.weights, outputs.attributes)

  settings = f"{restored.architecture}"
  return _networks.embedder(
    folder.name, settings, restored.variables, restored.prepare(), apply
  )


if __name__ == "__main__":
  _command.main(load=load)
