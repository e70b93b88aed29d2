"""Processes and devices: spreads rows and states, and maps steps."""

import functools
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import _arguments, _checks
from spherejax.training import _returned

AXIS_NAME = "batch"
"""The mapped device axis of every training step."""

Tree = Any
"""Any pytree of arrays."""

Devices = Sequence[Any] | None
"""This process's devices that take part; None for all."""


def local_devices(devices: Devices) -> list[Any]:
  """Devices that take part; raises for anything else, and for one named twice."""
  known = jax.local_devices()
  if devices is None:
    return known
  _checks.sequence("devices", devices)
  if not len(devices) or not all(isinstance(entry, jax.Device) for entry in devices):
    raise TypeError(f"devices must be some of {known}, got {reprlib.repr(devices)}")
  if len(set(devices)) < len(devices):
    raise ValueError(f"devices must differ, got {reprlib.repr(devices)}")
  return list(devices)


def _rows_of(batch: Tree) -> int:
  shapes = [np.shape(leaf) for leaf in jax.tree.leaves(batch)]
  sizes = {shape[:1] for shape in shapes}
  if len(sizes) != 1 or () in sizes:
    text = "arrays of a batch must have one first axis of the same length, got shapes"
    raise ValueError(f"{text} {shapes}")
  return sizes.pop()[0]


def _sharding(devices: Devices) -> jax.NamedSharding:
  mesh = jax.sharding.Mesh(np.array(local_devices(devices)), (AXIS_NAME,))
  return jax.NamedSharding(mesh, jax.P(AXIS_NAME))


def start_processes(
  coordinator_address: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
) -> int:
  """Joins this process to the others of a run over several hosts.

  Call it before anything else touches jax. Afterwards a mapped step sees the
  devices of all processes, and each process feeds the rows of its own devices.

  Args:
    coordinator_address: "host:port" of process 0. None on clusters that jax
      recognises (SLURM, TPU pods and others).
    num_processes: number of processes, or None where jax finds out.
    process_id: this process's number, or None where jax finds out.

  Returns:
    The number of this process, from 0.

  Raises:
    TypeError: coordinator_address not text, a number not an integer.
    RuntimeError: jax was used before, or the others did not appear.
    ValueError: an argument is None and jax cannot find it out.

  Cost: waits until all processes have called it.

  Source: `jax.distributed.initialize`.

  Example:
    >>> spherejax.training.start_processes(
    ...     "10.0.0.1:1234", num_processes=2, process_id=0
    ... )  # doctest: +SKIP
    0
  """
  if coordinator_address is not None:
    _checks.text("coordinator_address", coordinator_address)
  _checks.count("num_processes", 1 if num_processes is None else num_processes)
  _checks.count("process_id", 0 if process_id is None else process_id, 0)
  jax.distributed.initialize(coordinator_address, num_processes, process_id)
  return jax.process_index()


def process_rows(batch: Tree) -> Tree:
  """Rows of a global batch that belong to this process; all of them for one process.

  Args:
    batch: pytree of arrays [batch, ...] that every process builds alike.

  Returns:
    Pytree of arrays [batch / processes, ...]: consecutive rows.

  Raises:
    ValueError: arrays of several lengths, or a length that the processes do not divide.

  Cost: a view, for NumPy arrays.

  Source: none.

  Example:
    >>> import numpy as np
    >>> spherejax.training.process_rows(np.arange(4))
    array([0, 1, 2, 3])
  """
  processes, index = jax.process_count(), jax.process_index()
  size, rest = divmod(_rows_of(batch), processes)
  if rest:
    rows = size * processes + rest
    raise ValueError(
      f"a batch of {rows} rows cannot be split evenly over {processes} processes"
    )
  return jax.tree.map(lambda leaf: leaf[index * size : (index + 1) * size], batch)


def pad_rows(batch: Tree, multiple: int) -> tuple[Tree, np.ndarray]:
  """Pads a batch to a multiple, and returns the mask of its real rows.

  Padding repeats the first row, so that computing on it is harmless. Pass the mask on
  as `where`.

  Args:
    batch: pytree of arrays [batch, ...], at least one row.
    multiple: static; the padded length is the next multiple of it.

  Returns:
    The padded pytree and a boolean mask [padded batch], True for real rows.

  Raises:
    TypeError: multiple not an integer.
    ValueError: arrays of different lengths, or no row.

  Cost: one copy when padding is needed.

  Source: none.

  Example:
    >>> import numpy as np
    >>> spherejax.training.pad_rows(np.array([5, 6, 7]), 2)
    (array([5, 6, 7, 5]), array([ True,  True,  True, False]))
  """
  _checks.count("multiple", multiple)
  size = _rows_of(batch)
  if size == 0:
    raise ValueError("batch must have at least one row, got 0")
  rows = np.arange(-(-size // multiple) * multiple)
  where = rows < size
  batch = jax.tree.map(functools.partial(_checks.host, "batch"), batch)
  if where.all():
    return batch, where
  chosen = np.where(where, rows, 0)
  return jax.tree.map(lambda leaf: leaf[chosen], batch), where


def shard(batch: Tree, *, devices: Devices = None) -> Tree:
  """Spreads a batch on the host in equal parts over this process's devices.

  Args:
    batch: pytree of arrays [batch, ...]; the rows of this process.
    devices: this process's devices that take part; None takes all.

  Returns:
    Pytree of arrays [devices, batch / devices, ...], one part on each device.

  Raises:
    TypeError: devices not devices, an array that holds no numbers.
    ValueError: the number of devices does not divide the batch (`pad_rows` helps), a
      device named twice, arrays have different lengths, or an integer does not fit into
      32 bits while JAX's 64-bit types are off.

  Cost: one transfer to each device.

  Source: none.

  Example:
    >>> import numpy as np
    >>> one = jax.local_devices()[:1]
    >>> spherejax.training.shard(np.arange(4), devices=one).shape
    (1, 4)
  """
  sharding, count = _sharding(devices), len(local_devices(devices))
  size = _rows_of(batch)
  if size % count or size == 0:
    raise ValueError(
      f"a batch of {size} rows cannot be split evenly over {count} devices; change its "
      "size, or pad it with training.pad_rows and pass the mask on as `where`"
    )

  def split(path: Any, leaf: Any) -> Array:
    name = f"batch{jax.tree_util.keystr(path)}"
    _checks.whole(name, leaf)
    parts = np.reshape(leaf, (count, size // count, *np.shape(leaf)[1:]))
    try:
      return jax.device_put(parts, sharding)
    except TypeError as error:
      text = f"{name} must be an array of numbers, got {reprlib.repr(leaf)}"
      raise TypeError(text) from error

  return jax.tree_util.tree_map_with_path(split, batch)


def replicate(tree: Tree, *, devices: Devices = None) -> Tree:
  """Copies every array to each of this process's devices.

  Args:
    tree: pytree of arrays, typed keys included.
    devices: this process's devices that take part; None takes all.

  Returns:
    Pytree of arrays [devices, ...].

  Raises:
    TypeError: devices not devices.
    ValueError: a device named twice, or an integer does not fit into 32 bits while
      JAX's 64-bit types are off.

  Cost: one transfer to each device.

  Source: none.

  Example:
    >>> one = jax.local_devices()[:1]
    >>> spherejax.training.replicate(jnp.ones(3), devices=one).shape
    (1, 3)
  """
  sharding, local = _sharding(devices), local_devices(devices)

  def copies(path: Any, leaf: Any) -> Array:
    _checks.whole(f"tree{jax.tree_util.keystr(path)}", leaf)
    row = jnp.asarray(leaf)[None]
    parts = [jax.device_put(row, device) for device in local]
    shape = (len(local), *row.shape[1:])
    return jax.make_array_from_single_device_arrays(shape, sharding, parts)

  return jax.tree_util.tree_map_with_path(copies, tree)


def unreplicate(tree: Tree) -> Tree:
  """Takes the first device's copy of a result of `replicate` or a mapped step.

  Args:
    tree: pytree of arrays [devices, ...].

  Returns:
    Pytree of arrays [...], on one device.

  Raises:
    TypeError: a leaf of tree is not an array.

  Cost: no communication.

  Source: none.

  Example:
    >>> one = jax.local_devices()[:1]
    >>> tree = spherejax.training.replicate(jnp.ones(3), devices=one)
    >>> spherejax.training.unreplicate(tree).shape
    (3,)
  """

  def first(leaf: Any) -> Array:
    if not isinstance(leaf, jax.Array) or not leaf.ndim:
      kind = f"{type(leaf).__name__} of shape {np.shape(leaf)}"
      raise TypeError(f"tree must be a result of replicate, got a {kind}")
    return leaf.addressable_shards[0].data[0]

  return jax.tree.map(first, tree)


def parallel_step(
  step: Callable[..., tuple[Tree, Tree]], *, devices: Devices = None
) -> Callable[[Tree, Tree], tuple[Tree, Tree]]:
  """Maps a training step over all devices of all processes.

  Args:
    step: `(state, batch, *, axis_name) -> (state, metrics)`, as `make_step` builds.
    devices: devices that take part, in a run of one process only; None takes all.

  Returns:
    Function of a replicated state and a sharded batch. It reuses the memory of its
    state argument, which must not be used again.

  Raises:
    TypeError: step not a function, devices not devices; on a call, a step that does not
      return a pair of trees of arrays.
    ValueError: a device named twice.

  Cost: one compilation for each batch shape.

  Source: none.

  Example:
    >>> import numpy as np
    >>> def step(state, batch, *, axis_name):
    ...   return state + jax.lax.pmean(batch.mean(), axis_name), {}
    >>> one = jax.local_devices()[:1]
    >>> mapped = spherejax.training.parallel_step(step, devices=one)
    >>> state = spherejax.training.replicate(jnp.zeros(()), devices=one)
    >>> batch = spherejax.training.shard(np.arange(3.0), devices=one)
    >>> spherejax.training.unreplicate(mapped(state, batch)[0])
    Array(1., dtype=float32)
  """
  _checks.function("step", step)

  taking_part = None if devices is None else tuple(local_devices(devices))
  return _parallel(_arguments.Function(step), taking_part)


@functools.lru_cache(16)
def _parallel(
  step: _arguments.Function, devices: tuple[Any, ...] | None
) -> Callable[[Tree, Tree], tuple[Tree, Tree]]:
  """Maps a step; cached, because mapping the same step again would compile it again."""

  def mapped(state: Tree, batch: Tree) -> tuple[Tree, Tree]:
    state, metrics = _returned.pair(step(state, batch, axis_name=AXIS_NAME))
    return _returned.tree("step", state), _returned.tree("step", metrics)

  return jax.pmap(mapped, axis_name=AXIS_NAME, devices=devices, donate_argnums=0)


def parallel_map(
  fn: Callable[[Tree, Tree], Tree], *, batch_size: int, devices: Devices = None
) -> Callable[[Tree, Tree], Tree]:
  """Applies a function of rows to a whole data set, in batches on all devices.

  The last batch is padded and its padding removed from the result, so one shape is
  compiled.

  Args:
    fn: `(variables, rows [n, ...]) -> [n, ...]`, pytrees; each row's result may
      depend on that row alone.
    batch_size: static. Rows at once over all devices; rounded up to a multiple of
      their number.
    devices: this process's devices that take part; None takes all.

  Returns:
    Function `(variables, rows) -> results` of pytrees of host arrays [n, ...]. In a run
    of several processes each process computes its own rows.

  Raises:
    TypeError: fn not a function, batch_size not an integer, devices not devices; on a
      call, a function that does not return arrays.
    ValueError: a device named twice; on a call, arrays of different lengths or no row,
      or a result without one row for each input row.

  Cost: one compilation.

  Source: none.

  Example:
    >>> import numpy as np
    >>> one = jax.local_devices()[:1]
    >>> double = spherejax.training.parallel_map(
    ...     lambda factor, rows: factor * rows, batch_size=2, devices=one)
    >>> double(jnp.float32(2), np.arange(3.0, dtype=np.float32))
    array([0., 2., 4.], dtype=float32)
  """
  _checks.function("fn", fn)
  _checks.count("batch_size", batch_size)
  local = local_devices(devices)
  batch_size = -(-batch_size // len(local)) * len(local)

  def with_leaf(operands: tuple[Tree, Array], rows: Tree) -> Tree:
    return _returned.rows("fn", fn(operands[0], rows), _rows_of(rows))

  mapped = jax.pmap(with_leaf, axis_name=AXIS_NAME, in_axes=(None, 0), devices=local)

  def apply(variables: Tree, rows: Tree) -> Tree:
    size, rows = _rows_of(rows), jax.tree.map(np.asarray, rows)
    parts = []
    for start in range(0, max(size, 1), batch_size):
      part = jax.tree.map(lambda leaf: leaf[start : start + batch_size], rows)  # noqa: B023
      part, _ = pad_rows(part, batch_size)
      # If an argument has no leaf, pmap confuses the axes of the next one.
      inputs = variables, np.float32(0)
      parts.append(jax.device_get(mapped(inputs, shard(part, devices=local))))
    return jax.tree.map(
      lambda *leaves: np.concatenate(
        [leaf.reshape(-1, *leaf.shape[2:]) for leaf in leaves]
      )[:size],
      *parts,
    )

  return apply
