"""Two trainings at a time: a small program keeps no second core busy by itself."""

import concurrent.futures
import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def pool(workers: int = 2) -> Iterator[concurrent.futures.ThreadPoolExecutor]:
  """Threads that begin nothing new after an error or an interrupt."""
  threads = concurrent.futures.ThreadPoolExecutor(workers)
  try:
    yield threads
  finally:
    threads.shutdown(cancel_futures=True)
