"""Two trainings at a time: a small program keeps no second core busy by itself."""

import concurrent.futures
import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def pool() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
  """Threads that begin nothing new after an error or an interrupt.

  Two; with several devices one, since programs would wait for each other's devices.
  """
  workers = 2 if jax.device_count() == 1 else 1
  threads = concurrent.futures.ThreadPoolExecutor(workers)
  try:
    yield threads
  finally:
    threads.shutdown(cancel_futures=True)
