"""Number of trainings or rows that run at a time, and their device."""

import concurrent.futures
import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import jax
import jax.experimental
import jax.numpy as jnp
from jax import Array

_TURN = 8
_In = TypeVar("_In")
_Out = TypeVar("_Out")


def mapped(fn: Callable[[Array], _Out], rows: Array, size: int = 256) -> _Out:
  """`fn(rows)`, a pytree of [rows, ...], in equal blocks of at most `size` rows.

  The last block is padded with zero rows, so no row's result may depend on others.
  """
  count = len(rows)
  blocks = -(-count // size)
  block = -(-count // blocks)
  filled = jnp.pad(rows, [(0, blocks * block - count)] + [(0, 0)] * (rows.ndim - 1))
  blockwise = jax.lax.map(fn, filled.reshape(blocks, block, *rows.shape[1:]))
  return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:count], blockwise)


def threaded(fn: Callable[[_In], _Out], items: Iterable[_In]) -> list[_Out]:
  """Results of `fn` in the order of the items; threads compute some at a time.

  There is one thread per core, at most four: a small program keeps no second core busy.
  With several devices there is one thread, as programs would wait for each other's
  devices. Nothing new begins after an error or an interrupt, and an interrupt does not
  wait for what has begun.
  """
  workers = min(os.cpu_count() or 1, 4) if jax.device_count() == 1 else 1
  threads = concurrent.futures.ThreadPoolExecutor(workers)
  wait = True
  try:
    return list(threads.map(fn, items))
  except KeyboardInterrupt:
    wait = False
    raise
  finally:
    threads.shutdown(wait, cancel_futures=True)


def in_turns(fn: Callable[[_In], _Out], items: Iterable[_In]) -> list[_Out]:
  """Results of `threaded`, for items that compile their own programs.

  After every few items the compiled programs are dropped: Linux maps 65,530 pieces of
  memory into a process, and a program for a CPU takes hundreds. A program that another
  thread calls again is compiled again.
  """
  ended = itertools.count(1)

  def run(item: _In) -> _Out:
    result = fn(item)
    if next(ended) % _TURN == 0:
      jax.clear_caches()
    return result

  return threaded(run, items)


@contextlib.contextmanager
def on_host() -> Iterator[None]:
  """Computes in float64 on a CPU, wherever the networks are."""
  host = jax.local_devices(backend="cpu")[0]
  # Older versions of jax have it in jax.experimental.
  where = jax if hasattr(jax, "enable_x64") else jax.experimental
  wide = getattr(where, "enable_x64")  # noqa: B009
  with wide(True), jax.default_device(host):
    yield
