"""Episodes of few-shot learning: pure functions of a key."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int, Key

from spherejax import _checks, _compiled
from spherejax.data._sampling import ClassTable, distinct


def sample_episode(
  key: Key[Array, ""],
  table: ClassTable,
  *,
  num_ways: int,
  num_shots: int,
  num_queries: int,
) -> Int[Array, "ways rows"]:
  """Samples an episode: classes, and for each its supports and then its queries.

  Classes are drawn uniformly without replacement from all classes with enough images;
  then images of each class uniformly without replacement. The label of a class within
  the episode is its row. Use `jax.vmap` over keys for thousands of episodes.

  Args:
    key: of this episode.
    table: from `class_table`; closed over, or an argument under jit.
    num_ways: static. Classes of an episode (N).
    num_shots: static. Supports of each class (K).
    num_queries: static. Queries of each class (Q).

  Returns:
    [ways, rows], int32, rows = num_shots + num_queries: the supports of a class are
    [:, :num_shots]. Where the table is traced and fewer than `num_ways` classes have
    enough images, some indices are wrong.

  Raises:
    TypeError: key not a key of jax.random, table not a `ClassTable`, a number not an
      integer.
    ValueError: fewer than `num_ways` classes have num_shots + num_queries images (where
      the table is not traced); a number below 1.

  Cost: O(classes + num_ways^2 + num_ways rows^2), whatever the number of images.

  Source: Vinyals et al. 2016, "Matching networks for one shot learning"; DIST II 3.1.

  Example:
    >>> table = spherejax.data.class_table(jnp.repeat(jnp.arange(3), 4), per_class=2)
    >>> keys = jax.random.split(jax.random.key(0), 1000)
    >>> jax.vmap(lambda key: spherejax.data.sample_episode(
    ...   key, table, num_ways=2, num_shots=1, num_queries=3))(keys).shape
    (1000, 2, 4)
  """
  _checks.key("key", key)
  numbers = {"num_ways": num_ways, "num_shots": num_shots, "num_queries": num_queries}
  for name, value in numbers.items():
    _checks.count(name, value)
  _checks.instance("table", table, ClassTable)
  rows = num_shots + num_queries
  _compiled.known(functools.partial(_enough, num_ways, rows), table.counts)
  order, starts, counts = map(jnp.asarray, table)
  enough = counts >= rows
  class_key, image_key = jax.random.split(key)
  drawn = distinct(class_key, jnp.sum(enough, dtype=jnp.int32), num_ways)
  # The r-th class that has enough images.
  classes = jnp.nonzero(enough, size=len(counts), fill_value=0)[0][drawn]
  draw = jax.vmap(distinct, (0, 0, None))
  chosen = draw(jax.random.split(image_key, num_ways), counts[classes], rows)
  return order[starts[classes][:, None] + chosen]


def _enough(num_ways: int, rows: int, table_counts: ArrayLike) -> None:
  counts = np.asarray(table_counts)
  large = int(np.sum(counts >= rows))
  if large < num_ways:
    smallest = int(np.argmin(counts))
    raise ValueError(
      f"an episode takes num_shots + num_queries = {rows} images of num_ways ="
      f" {num_ways} classes, but {large} of the {len(counts)} classes have so many;"
      f" class {smallest} of the table has {counts[smallest]}"
    )
