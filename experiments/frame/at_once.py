"""How many trainings are made at a time."""

import concurrent.futures
import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def pool() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
  """Threads that begin nothing new after an error or an interrupt.

  Two, since a small program keeps no second core busy by itself; with several devices
  one: programs would wait for each other's devices.
  """
  workers = 2 if jax.device_count() == 1 else 1
  threads = concurrent.futures.ThreadPoolExecutor(workers)
  try:
    yield threads
  finally:
    threads.shutdown(cancel_futures=True)


def convolutional() -> int | None:
  """Runs with convolutions that a sweep vmaps at a time.

  One on a CPU, where convolutions with weights of their own for every run are slow.
  """
  return 1 if jax.default_backend() == "cpu" else None
