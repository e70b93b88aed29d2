"""Arguments as arrays of NumPy, for what runs on the host."""

import reprlib
from typing import Any

import jax.core
import jax.numpy as jnp
import numpy as np


def host(name: str, value: Any) -> np.ndarray:
  """The value as an array of NumPy; raises TypeError for a traced one."""
  if isinstance(value, jax.core.Tracer):
    raise TypeError(
      f"{name} must be concrete, got a traced {value.dtype}{list(value.shape)}: inside "
      "jit, vmap or a sweep so is even a slice of a known array of jax; convert or "
      f"slice it outside, with numpy: np.asarray({name})"
    )
  return np.asarray(value)


def numbers_of(name: str, value: object) -> np.ndarray:
  """Real numbers on the host as float64; raises TypeError for anything else."""
  dtype = getattr(value, "dtype", None)
  shown = reprlib.repr(value) if dtype is None else f"dtype {dtype}"
  try:
    array = host(name, value)
  except ValueError:  # rows of different lengths
    array = np.empty(0, object)
  if not is_real(array.dtype):
    raise TypeError(f"{name} must be real numbers, got {shown}")
  return array.astype(np.float64)


def is_real(dtype: Any) -> bool:
  kinds = jnp.floating, jnp.integer, jnp.bool_
  return any(jnp.issubdtype(dtype, kind) for kind in kinds)
