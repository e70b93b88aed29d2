"""What a checkpoint holds: arrays by name, their shapes, types and checksums."""

import hashlib
import json
import os
import reprlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import _checks

State = Any
"""A `TrainState`, or another pytree of arrays with a scalar named step at its top."""


def named_leaves(state: State) -> dict[str, Any]:
  """Leaves by path, in the order of the tree."""
  return {
    jax.tree_util.keystr(path, simple=True, separator="."): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(state)
  }


def check(state: State, record: Mapping[str, Any] | None = None):
  """Raises for what a checkpoint cannot hold."""
  leaves = named_leaves(state)
  for name, leaf in leaves.items():
    if not (hasattr(leaf, "dtype") and hasattr(leaf, "shape")):
      raise TypeError(
        f"state must be a tree of arrays, got {reprlib.repr(leaf)} as {name or 'all'}"
      )
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


def is_key(leaf: Any) -> bool:
  """Whether it is a typed PRNG key, of which the bits are stored."""
  return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def describe(state: State) -> dict[str, dict[str, Any]]:
  """Shape and type of each array as it is stored; keys as the bits they hold."""

  def entry(leaf: Any) -> dict[str, Any]:
    stored = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
    key = {"key": _key_name(leaf)} if is_key(leaf) else {}
    return {"shape": list(stored.shape), "dtype": np.dtype(stored.dtype).name} | key

  return {name: entry(leaf) for name, leaf in named_leaves(state).items()}


def _key_name(leaf: Any) -> str:
  names = {
    jax.random.key(0, impl=name).dtype: name
    for name in ("threefry2x32", "rbg", "unsafe_rbg")
  }
  return names[leaf.dtype]


def to_host(state: State) -> dict[str, np.ndarray]:
  """Copies that a later step, which reuses the state's memory, does not change."""
  return {
    name: np.array(jax.random.key_data(leaf) if is_key(leaf) else leaf)
    for name, leaf in named_leaves(state).items()
  }


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
  digest = hashlib.blake2b(digest_size=16)
  for name in sorted(arrays):
    digest.update(name.encode())
    digest.update(np.ascontiguousarray(arrays[name]).view(np.uint8).data)
  return digest.hexdigest()


def seal(manifest: Mapping[str, Any]) -> str:
  """Checksum of what stands beside the arrays, as it is read back from JSON."""
  plain = json.loads(json.dumps(manifest))  # names that are numbers become text
  text = json.dumps(plain, sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_same(
  path: os.PathLike[str], stored: Mapping[str, Any], wanted: Mapping[str, Any]
):
  """Raises when a checkpoint does not hold the arrays of the state."""
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
