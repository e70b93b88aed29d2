"""Losses of `retrieval` by name, against the batch, proxies or a memory."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Literal

import jax
import jax.numpy as jnp
from flax.typing import Collection
from jax import Array

from spherejax import losses

Numbers = Mapping[str, float]

# The losses that DML compares, and the hyperparameters of its small set-ups.
TITLES = {
  "c1": "C1", "c2": "C2", "ms": "MS", "triplet": "Triplet",
  "proxy_anchor": "ProxyAnchor", "proxy_nca": "ProxyNCA++", "soft_triple": "SoftTriple",
}  # fmt: skip
PAIR_LOSSES = ("c1", "c2", "ms", "triplet")
PROXY_LOSSES = ("proxy_anchor", "proxy_nca", "soft_triple")
NUMBERS: dict[str, Numbers] = {
  "c1": {"margin": 0.5},
  "c2": {"positive_margin": 0.0, "negative_margin": 0.5},
  "ms": {"positive_scale": 2.0, "negative_scale": 40.0, "threshold": 0.5},
  "triplet": {"margin": 0.1},
  "proxy_anchor": {"margin": 0.1, "scale": 32.0},
  "proxy_nca": {"temperature": 0.1},
  "soft_triple": {
    "scale": 20.0,
    "temperature": 0.1,
    "margin": 0.01,
    "regularization": 0.2,
  },
}
_LOSSES: dict[str, Callable[..., Array]] = {
  "c1": losses.cosine_contrastive,
  "c2": losses.contrastive,
  "ms": losses.multi_similarity,
  "triplet": losses.triplet,
  "proxy_anchor": losses.proxy_anchor,
  "proxy_nca": functools.partial(losses.proxy_nca_plus_plus, logit="cosine"),
  "soft_triple": losses.soft_triple,
}


@dataclasses.dataclass(frozen=True)
class Method:
  """A loss, and the references for a batch.

  "plain" compares the batch with itself, "xbm" also with a memory of earlier batches,
  "proxy" with proxies that are trained once, and "ccp" with proxies that every problem
  renews. "samples" is like "ccp", with images instead of proxies. Proxy losses are
  "plain".
  """

  loss: str
  kind: Literal["plain", "xbm", "proxy", "ccp", "samples"] = "plain"
  proxies: int = 0  # per class
  pool: int = 8  # images per class among which new proxies are chosen
  memory: int = 0  # embeddings in the memory, per class
  numbers: tuple[tuple[str, float], ...] = ()  # what differs from `NUMBERS`

  @property
  def name(self) -> str:
    kind = {"plain": "", "proxy": "-Proxy"}.get(self.kind, f"+{self.kind.upper()}")
    return TITLES[self.loss] + kind

  @property
  def own_proxies(self) -> bool:
    """True if this is a proxy loss, whose proxies start at random."""
    return self.loss in PROXY_LOSSES

  @property
  def refers_to_proxies(self) -> bool:
    """True if the representatives of classes start as embeddings of images."""
    return self.kind in ("proxy", "ccp", "samples")

  @property
  def renews(self) -> bool:
    """True if training is a sequence of problems with new representatives."""
    return self.kind in ("ccp", "samples")

  @property
  def learns_proxies(self) -> bool:
    """True if proxies are parameters."""
    return self.own_proxies or self.kind in ("proxy", "ccp")

  @property
  def inverse_temperature(self) -> float:
    """Inverse temperature of generalized sum pooling with this loss (DML 5.3.4)."""
    return 0.5 if self.own_proxies else 5.0

  @property
  def pool_size(self) -> int:
    """Images of a class's pool; a `pool` below `proxies` counts per proxy."""
    return self.pool if self.pool >= self.proxies else self.pool * self.proxies

  def settings(self) -> dict[str, float]:
    return {**NUMBERS[self.loss], **dict(self.numbers)}


def initial(method: Method, key: Array, classes: int, dim: int) -> dict[str, Array]:
  """Draws the proxies of a proxy loss, as in its paper's code."""
  if method.loss == "soft_triple":
    shape, scale = (classes, method.proxies or 10, dim), (1 / 3 / dim) ** 0.5
  else:
    shape = (classes, dim)
    scale = (2 / classes) ** 0.5 if method.loss == "proxy_anchor" else 0.125
  return {"proxies": scale * jax.random.normal(key, shape)}


def value(
  method: Method,
  x: Array,
  labels: Array,
  loss_params: Collection,
  proxies: losses.References | None = None,
  memory: losses.References | None = None,
  *,
  remembers: Array | bool = False,
  axis_name: str | None = None,
  average: Callable[[Array], Array] = jnp.mean,
) -> Array:
  """The loss of a batch of raw embeddings, reduced to a scalar by `average`."""
  loss = functools.partial(_LOSSES[method.loss], x, labels, **method.settings())
  if method.own_proxies:
    return average(loss(loss_params["proxies"]))
  pairs = functools.partial(loss, normalize="unit_ball", axis_name=axis_name)
  if method.kind == "xbm":
    memory_term = average(pairs(references=memory))
    return average(pairs()) + jnp.where(remembers, memory_term, 0.0)
  return average(pairs(references=proxies))
