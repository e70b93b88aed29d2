"""Names that differ between the oldest supported jax and the newest.

Remove a line once the versions that it names are no longer supported.
"""

import jax
from jax import Array

try:
  from jax import enable_x64
except ImportError:  # jax < 0.8
  from jax.experimental import enable_x64  # pyright: ignore[reportAttributeAccessIssue]

try:
  from jax.extend.core import get_opaque_trace_state
except ImportError:  # jax < 0.8
  from jax.core import get_opaque_trace_state

__all__ = ["enable_x64", "get_opaque_trace_state", "varying"]


def varying(x: Array, axis_name: str) -> Array:
  """Marks `x` as each device's own value under `jax.shard_map`."""
  if hasattr(jax.lax, "pcast"):
    return jax.lax.pcast(x, axis_name, to="varying")
  return jax.lax.pvary(x, axis_name)  # pyright: ignore[reportAttributeAccessIssue] (jax < 0.8)
