"""A network whose outputs are NaN scores nothing, whatever the labels are.

Decisions by index would give it the share of the first class, and a monitor would keep
it as the best.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import metrics, prototypes

LABELS = np.repeat([0, 1, 2], [18, 3, 3])
ROWS = len(LABELS)
APART = jnp.array([[0.0, 1, 2], [1, 0, 2], [2, 2, 0]])
EPISODES = jnp.arange(ROWS).reshape(1, 3, 8)


def _right(found):
  return (np.asarray(found) == LABELS).astype(np.float32)


def _neighbours(x, z, **options):
  sites, labels = jnp.eye(3, x.shape[1]), jnp.arange(3)
  return _right(
    prototypes.nearest_neighbours(x, sites, labels, num_classes=3, **options)
  )


# What is best when it is largest, by the embeddings and by the scores of classes.
SCORES = {
  **{
    name: lambda x, z, name=name: getattr(metrics.retrieval(x, LABELS), name)
    for name in ("precision_at_1", "r_precision", "map_at_r")
  },
  "recall": lambda x, z: metrics.recall_at_k(
    metrics.retrieval(x, LABELS).first_rank, k=ROWS
  ),
  "hierarchical_similarity": lambda x, z: metrics.hierarchical_similarity(
    x, LABELS, 2 - APART
  ).values[:, -1],
  "top_k": lambda x, z: metrics.top_k(z, LABELS),
  "top_k, 2": lambda x, z: metrics.top_k(z, LABELS, k=2),
  "hierarchical_precision": lambda x, z: metrics.hierarchical_precision(
    z, LABELS, APART, k=1
  ),
  "hierarchical distance": lambda x, z: (
    -metrics.average_hierarchical_distance(z, LABELS, APART)
  ),
  "right by severity": lambda x, z: 1.0 - metrics.severity(z, LABELS, APART).mistaken,
  "nearest_neighbours": _neighbours,
  "nearest_neighbours, 3": lambda x, z: _neighbours(x, z, k=3),
  "nearest_neighbours, l1": lambda x, z: _neighbours(x, z, norm="l1"),
  "simple_shot": lambda x, z: _right(prototypes.simple_shot(x, jnp.eye(3, 4)[:, None])),
  "episode_accuracies": lambda x, z: prototypes.episode_accuracies(
    x, EPISODES, num_shots=1
  ),
}


@pytest.mark.parametrize("name", SCORES)
def test_nan_is_never_a_good_score(name):
  alive = jnp.eye(3, 4)[LABELS] + 1e-3 * jnp.arange(4 * ROWS).reshape(ROWS, 4)
  dead = jnp.full((ROWS, 4), jnp.nan)
  score = SCORES[name]
  found = np.asarray(score(dead, dead[:, :3]))
  assert np.all(np.isnan(found) | (found == 0)), found
  # One dead row changes no other one for the better, and is not right itself.
  assert np.mean(np.asarray(score(alive, alive[:, :3]))) > -0.1
  half = alive.at[::2].set(jnp.nan)
  found = np.asarray(score(half, half[:, :3]))
  if found.shape == (ROWS,):
    assert np.all(np.isnan(found[::2]) | (found[::2] == 0)), found
