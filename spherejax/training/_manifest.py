"""Contents of a checkpoint: arrays by name, their shapes, types and checksums."""

import collections
import functools
import hashlib
import json
import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import _checks
from spherejax.training import _array_file

State = Any
"""A `TrainState`, or another pytree of arrays with a scalar named step at its top."""


def named_leaves(state: State) -> dict[str, Any]:
  """Leaves by path, in the order of the tree.

  Raises ValueError if no name distinguishes two leaves.
  """
  leaves = list(_leaves(state))
  plain = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
  counts = collections.Counter(plain)
  # {"a": {"b": ...}, "a.b": ...} has a.b twice; all other names stay short.
  names = [
    name if counts[name] == 1 else jax.tree_util.keystr(path)
    for name, (path, _) in zip(plain, leaves, strict=True)
  ]
  if repeated := [
    name for name, count in collections.Counter(names).items() if count > 1
  ]:
    raise ValueError(
      f"state must have a name of its own for each array, got {repeated[0]!r} twice; "
      "rename an entry"
    )
  return {name: leaf for name, (_, leaf) in zip(names, leaves, strict=True)}


def _leaves(state: State, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any]]:
  """Paths and leaves; a variable of flax.nnx has the name of its value."""
  wrapped = jax.tree_util.tree_leaves_with_path(
    state, is_leaf=lambda node: _checks.unwrapped(node) is not node
  )
  for path, leaf in wrapped:
    inside = _checks.unwrapped(leaf)
    if inside is leaf:
      yield (*above, *path), leaf
    else:
      yield from _leaves(inside, (*above, *path))


def check(state: State, record: Mapping[str, Any] | None = None):
  """Raises for values that a checkpoint cannot hold."""
  leaves = named_leaves(state)
  for name, leaf in leaves.items():
    if not (hasattr(leaf, "dtype") and hasattr(leaf, "shape")):
      raise TypeError(
        f"state must be a tree of arrays, got {reprlib.repr(leaf)} as {name or 'all'}; "
        "np.asarray(...) turns a number into an array"
      )
    _check_type(name, leaf)
  step = leaves.get("step")
  if step is None or step.shape or not jnp.issubdtype(step.dtype, jnp.integer):
    shapes = {name: tuple(leaf.shape) for name, leaf in leaves.items()}
    text = f"an integer named step at its top, got arrays of shapes {shapes}"
    raise ValueError(f"state must have {text}")
  if record is None:
    return
  _checks.mapping("record", record)
  try:
    json.dumps(dict(record))
  except (TypeError, ValueError) as error:
    text = f"record must hold JSON values only, got {reprlib.repr(record)}"
    raise TypeError(f"{text}: {error}") from error
  _check_names(record)


def _check_type(name: str, leaf: Any):
  """Raises TypeError for an array of text, objects or a type without plain bytes."""
  if is_key(leaf):
    if leaf.dtype not in _key_names():
      raise TypeError(f"state must hold keys of jax's own kinds, got {leaf.dtype}")
    return
  dtype = np.dtype(leaf.dtype)
  numeric = jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool_
  if not numeric or dtype.char in "mgG":  # time spans, and types that differ by machine
    raise TypeError(f"state must hold arrays of numbers, got {dtype} as {name}")


def _check_names(record: Any):
  """Raises ValueError for names that JSON does not distinguish: 1 and "1"."""
  if isinstance(record, Mapping):
    # As JSON writes names: a name other than text becomes its literal.
    names = [key if isinstance(key, str) else json.dumps(key) for key in record]
    if repeated := [name for name, n in collections.Counter(names).items() if n > 1]:
      raise ValueError(
        f"record must not have two names that JSON writes as {repeated[0]!r}, got "
        f"{reprlib.repr(list(record))}"
      )
    record = list(record.values())
  if isinstance(record, (list, tuple)):
    for value in record:
      _check_names(value)


def is_key(leaf: Any) -> bool:
  """True for a typed PRNG key, whose bits are stored."""
  return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def describe(state: State) -> dict[str, dict[str, Any]]:
  """Shape and type of each array as stored; keys are stored as their bits."""

  def entry(leaf: Any) -> dict[str, Any]:
    stored = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
    key = {"key": _key_names()[leaf.dtype]} if is_key(leaf) else {}
    return {"shape": list(stored.shape), "dtype": np.dtype(stored.dtype).name} | key

  return {name: entry(leaf) for name, leaf in named_leaves(state).items()}


@functools.cache
def _key_names() -> dict[Any, str]:
  return {
    jax.random.key(0, impl=name).dtype: name
    for name in ("threefry2x32", "rbg", "unsafe_rbg")
  }


def to_host(state: State) -> dict[str, np.ndarray]:
  """Copies arrays to the host, so that a later step cannot change them.

  The copies have this machine's byte order, which the name of a type does not include.
  """

  def copied(leaf: Any) -> np.ndarray:
    array = np.array(jax.random.key_data(leaf) if is_key(leaf) else leaf)
    return array.astype(array.dtype.newbyteorder("="), copy=False)

  return {name: copied(leaf) for name, leaf in named_leaves(state).items()}


def from_host(array: np.ndarray, like: Any, key: str | None) -> Any:
  """Restores what `to_host` stored: a key, an array on the device, or one of NumPy.

  NumPy keeps 64-bit types, which jax would cut without x64.
  """
  if is_key(like):
    return jax.random.wrap_key_data(jnp.asarray(array), impl=key)
  whole = jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype
  return jnp.asarray(array) if whole else array


def checksum(arrays: Iterable[tuple[str, np.ndarray]]) -> str:
  """Checksum of names and arrays, in the order of the names."""
  digest = hashlib.blake2b(digest_size=16)
  for name, array in arrays:
    digest.update(name.encode(errors="surrogatepass"))
    digest.update(_array_file.raw(array).data)
  return digest.hexdigest()


def digest(tree: Any) -> str:
  """Checksum of the names, types, shapes and values of a tree of arrays."""
  arrays = to_host(tree)
  shapes = {name: f"{array.dtype} {array.shape}" for name, array in arrays.items()}
  return seal(shapes | {"": checksum(arrays.items())})


def seal(manifest: Mapping[str, Any]) -> str:
  """Checksum of the manifest beside the arrays, as it is read back from JSON."""
  unsealed = {name: value for name, value in manifest.items() if name != "seal"}
  plain = json.loads(json.dumps(unsealed))  # names that are numbers become text
  text = json.dumps(plain, sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_same(
  path: os.PathLike[str], stored: Mapping[str, Any], wanted: Mapping[str, Any]
):
  """Raises if a checkpoint does not hold the arrays of the state."""
  if dict(stored) == dict(wanted):
    return

  def text(entry: Mapping[str, Any] | None) -> str:
    return "absent" if entry is None else f"{entry['dtype']}{entry['shape']}"

  names = [*stored, *(name for name in wanted if name not in stored)]
  different = [name for name in names if stored.get(name) != wanted.get(name)]
  shown = "; ".join(
    f"{name} is {text(stored.get(name))} there and {text(wanted.get(name))} here"
    for name in different[:3]
  )
  more = f"; and {len(different) - 3} more" if len(different) > 3 else ""
  raise ValueError(
    f"the checkpoint {os.fspath(path)} belongs to another model or optimizer: "
    f"{shown}{more}"
  )
