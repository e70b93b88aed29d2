"""Input pipeline on the host by grain, from a plan of indices to batches."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int, Integer, Key

from spherejax import _checks
from spherejax.data import _sampling
from spherejax.data._images import Images

if TYPE_CHECKING:
  import grain


def pipeline(
  images: Images,
  plan: Integer[ArrayLike, "steps batch"],
  *,
  start: int = 0,
  process_index: int | None = None,
  process_count: int | None = None,
  workers: int = 0,
  prefetch: int = 4,
) -> "grain.IterDataset":
  """Iterates over batches of images that are read ahead of their use.

  Use it for images that do not fit into memory or are decoded from files. The plan
  fixes the images of each batch, so the batches do not depend on `workers`, `prefetch`
  or `start`: a run that stopped after step s resumes with `start=s`. The iterator's
  `get_state()` and `set_state()` do the same within one setting of `start` and
  `workers`.

  Args:
    images: in memory or lazy; all of one size.
    plan: [steps, batch], indices of images: a sampler mapped over the steps, or
      `ordered_plan`.
    start: static. First step.
    process_index: static. Number of this host; None asks jax.
    process_count: static. Number of hosts; None asks jax. Host i gets rows
      [i, i + 1) x batch / process_count of each batch, so that the hosts' batches,
      one after another, are the global batch.
    workers: static. Processes that read; 0 reads in this process, by threads. With
      workers a script needs `if __name__ == "__main__":`, and starting takes seconds.
    prefetch: static, at least 1. Number of batches read ahead (by each worker), each by
      its own thread.

  Returns:
    A `grain.IterDataset` of dicts of NumPy arrays: `image`, uint8 [batch, height,
    width, channels]; `label`, int32 [batch]; `index`, int32 [batch].

  Raises:
    ValueError: an index outside the images; a start outside [0, steps]; a batch
      without images, or that the hosts cannot share evenly. While iterating: an
      unreadable image, images of several sizes.
    TypeError: the plan holds no integers.

  Cost: memory for the plan, 4 bytes per image. Each worker holds a copy of the plan,
  and of images that are not lazy.

  Source: none; threads, processes and states are grain's.

  Example:
    >>> digits = spherejax.data.load_digits()
    >>> table = spherejax.data.class_table(digits.labels, per_class=4)
    >>> plan = jax.vmap(
    ...   lambda step: spherejax.data.class_balanced_indices(
    ...     jax.random.key(0), table, step, num_classes=8, per_class=4
    ...   )
    ... )(jnp.arange(100))
    >>> batch = next(iter(spherejax.data.pipeline(digits, plan, start=50)))
    >>> batch["image"].shape, batch["label"].shape
    ((32, 8, 8, 1), (32,))
  """
  _checks.instance("images", images, Images)
  rows = _host_rows(len(images), plan, process_index, process_count)
  _checks.count("start", start, 0)
  _checks.count("workers", workers, 0)
  _checks.count("prefetch", prefetch)
  if start > len(rows):
    raise ValueError(f"start must be at most the plan's {len(rows)} steps, got {start}")
  import grain

  source: Any = rows[start:]
  batches = grain.MapDataset.source(source).map(functools.partial(_read, images))
  options = grain.ReadOptions(num_threads=prefetch, prefetch_buffer_size=prefetch)
  dataset = batches.to_iter_dataset(options)
  if not workers:
    return dataset
  _settle_flags()
  return dataset.mp_prefetch(
    grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=prefetch)
  )


def batches(
  images: Images,
  key: Key[Array, ""],
  *,
  batch_size: int,
  workers: int = 0,
  prefetch: int = 4,
) -> Callable[[int], Iterator[dict[str, np.ndarray]]]:
  """Shuffled batches without an end, as `training.fit` takes them.

  Every epoch is a new shuffle, `shuffled_indices`, read by `pipeline`.

  Args:
    images: in memory or lazy; all of one size.
    key: of the whole run.
    batch_size: static, at most the number of images. Of all hosts together.
    workers: static. As in `pipeline`; they start anew in every epoch.
    prefetch: static. As in `pipeline`.

  Returns:
    `begin(first)`, which iterates over the batches of steps first, first + 1, ... (from
    0): those of `pipeline`, dicts of `image`, `label` and `index`. They depend only on
    the key and the number of the step.

  Raises:
    TypeError: images not `Images`, key not a key of jax.random, a number not an
      integer.
    ValueError: `batch_size` not in [1, number of images]; a negative `workers`, a
      prefetch below 1. While iterating: a negative `first`, and as `pipeline`.

  Cost: a plan of one epoch, 4 bytes per image.

  Source: none.

  Example:
    >>> digits = spherejax.data.load_digits()
    >>> begin = spherejax.data.batches(digits, jax.random.key(0), batch_size=32)
    >>> batch = next(begin(500))
    >>> batch["image"].shape, batch["label"].shape
    ((32, 8, 8, 1), (32,))
  """
  _checks.instance("images", images, Images)
  _checks.key("key", key)
  _checks.count("batch_size", batch_size)
  _checks.count("workers", workers, 0)
  _checks.count("prefetch", prefetch)
  if batch_size > len(images):
    raise ValueError(
      f"batch_size must be at most the {len(images)} images, got {batch_size}"
    )
  per_epoch = len(images) // batch_size

  def begin(first: int) -> Iterator[dict[str, np.ndarray]]:
    _checks.count("first", first, 0)
    for epoch in itertools.count(first // per_epoch):
      steps = jnp.arange(per_epoch) + epoch * per_epoch
      plan = _epoch(key, steps, count=len(images), batch_size=batch_size)
      start = max(first - epoch * per_epoch, 0)
      options = {"start": start, "workers": workers, "prefetch": prefetch}
      yield from pipeline(images, plan, **options)

  return begin


@functools.partial(jax.jit, static_argnames=("count", "batch_size"))
def _epoch(
  key: Array, steps: Array, *, count: int, batch_size: int
) -> Int[Array, "steps batch"]:
  draw = functools.partial(_sampling.shuffled_indices, batch_size=batch_size)
  return jax.vmap(draw, (None, None, 0))(key, count, steps)


def _host_rows(
  count: int, plan: ArrayLike, process_index: int | None, process_count: int | None
) -> np.ndarray:
  """Part of the plan that this host reads."""
  plan = _checks.host("plan", plan)
  _checks.expect("plan", plan, "integer", rank=2)
  if plan.size and (plan.min() < 0 or plan.max() >= count):
    wrong = plan[(plan < 0) | (plan >= count)][0]
    raise ValueError(f"plan must hold indices of the {count} images, got {wrong}")
  process_count = jax.process_count() if process_count is None else process_count
  process_index = jax.process_index() if process_index is None else process_index
  _checks.count("process_count", process_count)
  _checks.count("process_index", process_index, 0)
  if process_index >= process_count:
    raise ValueError(
      f"process_index must be below process_count={process_count}, got {process_index}"
    )
  share, rest = divmod(plan.shape[1], process_count)
  if not plan.shape[1]:
    raise ValueError(f"plan must name an image per step, got shape {plan.shape}")
  if rest:
    raise ValueError(
      f"a batch of {plan.shape[1]} cannot be shared evenly by {process_count} hosts"
    )
  rows = plan[:, process_index * share : (process_index + 1) * share]
  return np.ascontiguousarray(rows, np.int32)


def _read(images: Images, index: np.ndarray) -> dict[str, Any]:
  """Reads a batch."""
  if isinstance(images.images, np.ndarray):
    pixels = images.images[index]
  else:
    chosen = [images.images[row] for row in index]
    shapes = sorted({image.shape for image in chosen})
    if len(shapes) > 1:
      raise ValueError(
        f"images of a batch have different shapes, {shapes[0]} and {shapes[-1]};"
        " give the reader a size"
      )
    pixels = np.stack(chosen)
  labels = images.labels[index].astype(np.int32)
  return {"image": pixels, "label": labels, "index": index}


def _settle_flags():
  """Lets grain read its flags in programs that do not run under `absl.app`."""
  from absl import flags

  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
