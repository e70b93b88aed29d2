"""Times the classification of thousands of few-shot episodes of precomputed features.

There are 10,000 episodes of 5 ways, 1 or 5 shots and 15 queries of 640-dimensional
features. They are classified by the nearest mean of the supports (as in prototypical
networks) and by SimpleShot. The peer, EasyFSL, classifies the first 1000 of them one
after another from the same features; its accuracy of every episode must equal ours. The
floor reads the features of each episode once.

    python -m benchmarks.episodes                  # minutes on 2 cores
    python -m benchmarks.episodes --smoke          # seconds
    python -m benchmarks.episodes --json FILE
"""

import functools
import importlib
import importlib.util
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from spherejax import data, prototypes
from spherejax.prototypes._few_shot import Transform

CLASSES, PER_CLASS, DIM = 20, 600, 640  # as many as mini-ImageNet's test classes
WAYS, QUERIES = 5, 15
EPISODES, PEER_EPISODES, SMOKE_EPISODES = 10_000, 1000, 50
PEER = "EasyFSL"


def features() -> np.ndarray:
  """Features in overlapping clusters, so that every episode has mistakes."""
  rng = np.random.default_rng(0)
  centres = np.repeat(0.3 * rng.normal(size=(CLASSES, DIM)), PER_CLASS, axis=0)
  return (centres + rng.normal(size=centres.shape)).astype(np.float32)


def draw(episodes: int, shots: int) -> jax.Array:
  """Indices [episodes, ways, shots + queries]."""
  labels = np.repeat(np.arange(CLASSES, dtype=np.int32), PER_CLASS)
  table = data.class_table(labels, per_class=shots + QUERIES)

  @jax.jit
  @jax.vmap
  def sample(key: jax.Array) -> jax.Array:
    return data.sample_episode(
      key, table, num_ways=WAYS, num_shots=shots, num_queries=QUERIES
    )

  return sample(jax.random.split(jax.random.key(shots), episodes))


def easyfsl(shots: int, transform: Transform, rows: np.ndarray) -> Any:
  """Returns the peer as a function of features and episodes; None if missing."""
  spec = importlib.util.find_spec("easyfsl")
  if spec is None or spec.origin is None or not importlib.util.find_spec("torch"):
    return None
  torch = importlib.import_module("torch")
  # Its package imports torchvision for networks that play no part here.
  package = types.ModuleType("easyfsl.methods")
  package.__path__ = [str(pathlib.Path(spec.origin).parent / "methods")]
  sys.modules.setdefault("easyfsl.methods", package)
  methods = importlib.import_module("easyfsl.methods.prototypical_networks")
  options: dict[str, Any] = {}
  if transform != "none":
    centre = torch.from_numpy(rows.mean(0))
    options = {"feature_centering": centre, "feature_normalization": 2.0}
  # Not its SimpleShot, which compares cosines with normalised means.
  method = methods.PrototypicalNetworks(**options).eval()
  support, asked = (torch.arange(WAYS).repeat_interleave(n) for n in (shots, QUERIES))

  def accuracies(rows: jax.Array, episodes: jax.Array) -> np.ndarray:
    known, right = torch.from_numpy(np.array(rows)), []
    with torch.inference_mode():
      for episode in torch.from_numpy(np.array(episodes, np.int64)):
        method.process_support_set(known[episode[:, :shots].reshape(-1)], support)
        scores = method(known[episode[:, shots:].reshape(-1)])
        right.append((scores.argmax(1) == asked).float().mean())
    return np.array(right)

  return accuracies


def floor(rows: jax.Array, episodes: jax.Array) -> jax.Array:
  """Passes once over the rows that the episodes pick."""
  return jax.lax.map(lambda episode: jnp.sum(rows[episode]), episodes)


def compare(
  name: str, shots: int, transform: Transform, number: int, peer: bool, repetitions: int
) -> dict[str, Any]:
  """Compares ours on a number of episodes with the floor and the peer."""
  rows = features()
  ours = functools.partial(
    prototypes.episode_accuracies,
    num_shots=shots,
    transform=transform,
    centre=None if transform == "none" else rows.mean(0),
  )
  ways = {_measure.OURS: _measure.Contender(ours, 0)}
  other = easyfsl(shots, transform, rows) if peer else None
  if other is not None:
    ways[PEER] = _measure.Contender(other, 1e-6, compiled=False)
  ways["floor"] = _measure.Contender(floor)
  return _measure.compare(
    name,
    (rows, draw(number, shots)),
    ways,
    (_measure.Target(PEER, 50),),
    repetitions=repetitions,
  )


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__)
  sizes = ((SMOKE_EPISODES, True),)
  if not options.smoke:
    sizes = ((PEER_EPISODES, True), (EPISODES, False))
  works: dict[str, Callable[[], dict[str, Any]]] = {}
  for shots in (5,) if options.smoke else (1, 5):
    for transform in ("none", "centred_l2"):
      for number, peer in sizes:
        name = f"{number} episodes, {shots}-shot, {transform}"
        works[name] = functools.partial(
          compare, name, shots, transform, number, peer, options.repetitions
        )
  missing = [] if importlib.util.find_spec("easyfsl") else [PEER]
  _measure.run("episodes", works, missing, options)


if __name__ == "__main__":
  main()
