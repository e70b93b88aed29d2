"""`spherejax-explore` for your own network: embeds images, searches, draws a map.

The options and the output are those of `spherejax-explore`; `--model` also takes a
folder that `retrieval` or `ccp_proxies` wrote.

    python -m experiments.embed FOLDER --model MODEL
    python -m experiments.embed FOLDER --model MODEL --queries IMAGE --output out
    python -m experiments.embed tfds:mnist/test --model MODEL
"""

import pathlib

from flax.typing import VariableDict
from jax import Array

from experiments.frame import networks
from spherejax import distances, explorer


def load(folder: pathlib.Path) -> explorer.Embedder:
  """Loads the network in a folder; its embeddings lie in the unit ball."""
  restored = networks.load(folder)
  architecture = restored.architecture

  def apply(variables: VariableDict, images: Array) -> explorer.Outputs:
    outputs = networks.outputs(architecture, variables, images)
    embeddings = distances.unit_ball(outputs.embeddings)
    if architecture.pooling != "gsp":
      return explorer.Outputs(embeddings)
    return explorer.Outputs(embeddings, outputs.weights, outputs.attributes)

  return explorer.Embedder(
    folder.name, restored.variables, restored.prepare(), apply, f"{architecture}"
  )


if __name__ == "__main__":
  explorer.main(load=load)
