"""Ranks and spectra of `projector_collapse`, in float64 on the host for all presets.

In float32 singular values below 1e-6 of the first are noise.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.self_supervision.training import Settings
from spherejax import _versions, metrics

HALFWAY = ", halfway"  # behind the names of spectra of that time
_SEEN = 1e-2  # of the largest singular value, that a rank of features counts


@contextlib.contextmanager
def on_host() -> Iterator[None]:
  """Float64 on a CPU, wherever the networks are."""
  host = jax.local_devices(backend="cpu")[0]
  with _versions.enable_x64(True), jax.default_device(host):
    yield


def wide(x: Any) -> Array:
  """In float64, inside `on_host`."""
  return jnp.asarray(np.asarray(x, np.float64))


def plain(tree: Any) -> dict[str, np.ndarray]:
  """What leaves `on_host`."""
  return {name: np.asarray(x) for name, x in tree.items()}


def of_features(
  shown: Mapping[str, Any], kernel: Any
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """Ranks of features as they are and augmented; their logarithmic spectra and W's."""
  ranks, spectra = {}, {}
  with on_host():
    for name in ("h", "augmented h"):
      x = wide(shown[f"features {name}"])
      rank = metrics.relative_rank(x, threshold=_SEEN)
      ranks[f"rank of {name}"] = rank / x.shape[1]
      ranks[f"effective rank of {name}"] = metrics.effective_rank(x)
      spectra[f"spectrum {name}"] = metrics.log_singular_values(x)
    spectra["spectrum W"] = metrics.log_singular_values(wide(kernel))
    return plain(ranks), plain(spectra)


def of_weights(settings: Settings, kernels: Any) -> dict[str, np.ndarray]:
  """Ranks of linear projectors [..., features, outputs]; nothing of deeper ones."""
  if len(settings.projector) > 1:
    return {}
  with on_host():
    x = wide(kernels)
    return plain(
      {
        "effective rank": metrics.effective_rank(x),
        "relative rank": metrics.relative_rank(x, threshold=settings.threshold),
      }
    )
