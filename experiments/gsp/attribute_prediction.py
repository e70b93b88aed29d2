"""Classes told by what a regression on other classes predicts of their attributes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import distances, losses

SHUFFLED = "attributes shuffled"
CANDIDATES = {"5 classes": False, "10 classes": True}


@functools.partial(jax.jit, static_argnames=("splits",))
def predict_classes(
  key: Array, attributes: Array, embeddings: Array, ridge: float, *, splits: int
) -> dict[tuple[str, str, str], Array]:
  """Shares of held-out classes that are told right, over all splits at once.

  Keys are the distance, the candidates and what was predicted from: the attributes
  of the class, or those of a class drawn at random, the control.
  """
  classes = len(attributes)
  half = classes // 2

  def one_split(key):
    order_key, shuffle_key = jax.random.split(key)
    order = jax.random.permutation(order_key, classes)
    fitted, held = order[:half], order[half:]

    def predict(z):
      predictor = losses.ridge_attribute_embeddings(
        z[fitted], embeddings[fitted], ridge=ridge
      )
      return z[held] @ predictor

    # Both as one batch: two batched factorisations beside each other can wait for
    # each other's threads on a CPU of two cores.
    shuffled = jax.random.permutation(shuffle_key, attributes)
    both = jax.vmap(predict)(jnp.stack([attributes, shuffled]))
    right = {}
    for source, predicted in zip(("own", SHUFFLED), both, strict=True):
      tables = {
        "l2": distances.pairwise_euclidean(predicted, embeddings),
        "cosine": distances.pairwise_cosine_distance(predicted, embeddings),
      }
      for metric, table in tables.items():
        for name, everything in CANDIDATES.items():
          candidates = jnp.arange(classes) if everything else held
          nearest = candidates[jnp.argmin(table[:, candidates], axis=1)]
          right[metric, name, source] = jnp.mean(nearest == held)
    return right

  return jax.tree.map(jnp.mean, jax.vmap(one_split)(jax.random.split(key, splits)))


def class_means(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
  """Mean row of each class."""
  return np.stack([values[labels == label].mean(0) for label in np.unique(labels)])
