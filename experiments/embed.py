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
from spherejax import distances, explorer


def load(model: str, weights: pathlib.Path | None = None) -> Any:
  """The network in that folder, to the unit ball; None for names of pretrained ones."""
  del weights  # a folder has its own
  folder = pathlib.Path(model)
  if not folder.is_dir():
    return None
  restored = networks.load(folder)

  def apply(images: Array) -> tuple[Array, Array | None, Array | None]:
    network = networks.Network(restored.architecture)
    outputs: Any = network.apply(restored.variables, images)
    embeddings = distances.unit_ball(outputs.embeddings)
    if restored.architecture.pooling != "gsp":
      return embeddings, None, None
    return embeddings, outputs.weights, outputs.attributes

  settings, prepare = f"{restored.architecture}", restored.prepare()
  return explorer.embedder(folder.name, settings, restored.variables, prepare, apply)


if __name__ == "__main__":
  explorer.run_command(load)
