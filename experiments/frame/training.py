"""Shuffled batches for `training.fit`, an epoch's plan at a time."""

import functools
from collections.abc import Callable, Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import data


def shuffled(
  images: data.Images,
  key: Array,
  *,
  batch: int,
  epochs: int,
  per_epoch: int,
  beside: Mapping[str, np.ndarray] | None = None,
) -> Callable[[int], Iterator[dict[str, np.ndarray]]]:
  """Batches from the first step asked for: "image", "label" and rows of `beside`."""
  at = functools.partial(data.shuffled_indices, key, len(images), batch_size=batch)
  epoch_plan = jax.jit(jax.vmap(at))

  def batches(first: int) -> Iterator[dict[str, np.ndarray]]:
    for epoch in range(first // per_epoch, epochs):
      steps = jnp.arange(per_epoch) + epoch * per_epoch
      begin = max(first - epoch * per_epoch, 0)
      for rows in data.pipeline(images, np.asarray(epoch_plan(steps)), start=begin):
        more = {name: table[rows["index"]] for name, table in (beside or {}).items()}
        yield {"image": rows["image"], "label": rows["label"], **more}

  return batches
