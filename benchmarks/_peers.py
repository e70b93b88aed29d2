"""Losses that pytorch-metric-learning also has, and their reduction to its scalar."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import distances, losses


class Peer(NamedTuple):
  """Loss that both libraries have.

  Attributes:
    ours: maps (embeddings, labels, weights) to the scalar that the peer returns.
    name: the peer's class in `pytorch_metric_learning.losses`.
    settings: maps (classes, dim) to the arguments of that class.
    weights: the peer's parameter, or "" for none; ours gets its value.
    differs: reason why the two functions differ; "" if they agree.
    sorts: True if the loss needs a sort, so that products are no floor.
    per_class: examples of each class.
    triplets: True if the peer forms all triplets.
    largest: batch above which the peer needs more than 12 GB.
    tolerance: largest allowed relative difference in float64.
    rounded: largest allowed relative difference in float32, where the peer's arccos and
      probabilities lose digits at sharp scales.
    fixed_norms: True if the peer keeps its weights at norm 1 instead of dividing by
      their norm, so that the gradients differ.
    call: calls the peer's module with embeddings and labels; some modules need a
      special call.
  """

  ours: Callable[[Array, Array, Any], Array]
  name: str
  settings: Callable[[int, int], dict[str, Any]] = lambda classes, dim: {}
  weights: str = ""
  differs: str = ""
  sorts: bool = False
  per_class: int = 4
  triplets: bool = False
  largest: int = 1 << 30
  tolerance: float = 1e-9
  rounded: float = 1e-2
  fixed_norms: bool = False
  call: Callable[[Any, Any, Any], Any] = lambda module, x, labels: module(x, labels)


def _owned(classes: int, dim: int) -> dict[str, Any]:
  return {"num_classes": classes, "embedding_size": dim}


def _cosines(x: Array, weights: Array) -> Array:
  return distances.pairwise_cosine(x, weights.T)


def _norms(x: Array) -> Array:
  return jnp.linalg.norm(x, axis=1)


def _positive_pairs(labels: Array) -> Array:
  """Number of ordered positive pairs."""
  same = labels[:, None] == labels[None]
  return (jnp.sum(same) - len(labels)).astype(jnp.float32)


def _with_positives(labels: Array) -> Array:
  """Number of rows that have a positive."""
  same = labels[:, None] == labels[None]
  return jnp.sum(jnp.sum(same, axis=1) > 1).astype(jnp.float32)


def _over_anchors(loss: Callable[..., Array], **settings: Any):
  return lambda x, y, w: jnp.sum(loss(x, y, **settings)) / _with_positives(y)


def _mean(loss: Callable[..., Array], **settings: Any):
  return lambda x, y, w: jnp.mean(loss(x, y, **settings))


def _over_pairs(loss: Callable[..., Array], **settings: Any):
  return lambda x, y, w: jnp.sum(loss(x, y, **settings)) / _positive_pairs(y)


def _of_cosines(loss: Callable[..., Array], **settings: Any):
  return lambda x, y, w: jnp.mean(loss(_cosines(x, w), y, **settings))


def _of_proxies(loss: Callable[..., Array], **settings: Any):
  return lambda x, y, w: jnp.mean(loss(x, y, w, **settings))


def _classes_with_pairs(labels: Array) -> Array:
  same = labels[:, None] == labels[None]
  first = jnp.argmax(same, axis=1) == jnp.arange(len(labels))
  return jnp.sum(first & (jnp.sum(same, axis=1) > 1)).astype(jnp.float32)


def _sub_centres(x: Array, weights: Array) -> Array:
  cosines = distances.pairwise_cosine(x, weights.T)
  return cosines.reshape(len(x), -1, 3)


def _soft_triple(x: Array, labels: Array, weights: Array) -> Array:
  centres = weights.T.reshape(-1, 10, x.shape[1])
  return jnp.mean(losses.soft_triple(x, labels, centres, regularization=0.0))


def _two_views(x: Array, labels: Array, weights: Any) -> Array:
  del labels, weights  # rows 2 i and 2 i + 1 belong together
  return jnp.mean(losses.nt_xent(x[0::2], x[1::2], temperature=0.07))


def _vicreg(x: Array, labels: Array, weights: Any) -> Array:
  del labels, weights  # as above; at half the size some variances are below 1
  return jnp.mean(losses.vicreg(x[0::2] / 2, x[1::2] / 2, reduction="code"))


PEERS = {
  "contrastive": Peer(_mean(losses.contrastive), "ContrastiveLoss"),
  "multi_similarity": Peer(_mean(losses.multi_similarity), "MultiSimilarityLoss"),
  "triplet": Peer(
    _mean(losses.triplet), "TripletMarginLoss", sorts=True, triplets=True
  ),
  "margin": Peer(_mean(losses.margin, form="triplets"), "MarginLoss", triplets=True),
  "lifted_structure": Peer(
    lambda x, y, w: 2 * jnp.sum(losses.lifted_structure(x, y)) / _positive_pairs(y),
    "LiftedStructureLoss",
    largest=512,
  ),
  "generalized_lifted_structure": Peer(
    _over_anchors(losses.generalized_lifted_structure), "GeneralizedLiftedStructureLoss"
  ),
  "n_pair": Peer(
    lambda x, y, w: (
      jnp.sum(losses.n_pair(x, y, normalize="l2")) / _classes_with_pairs(y)
    ),
    "NPairsLoss",
  ),
  "circle": Peer(_over_anchors(losses.circle), "CircleLoss"),
  "nca": Peer(_over_anchors(losses.nca), "NCALoss"),
  "signal_to_noise_contrastive": Peer(
    _mean(losses.signal_to_noise_contrastive), "SignalToNoiseRatioContrastiveLoss"
  ),
  "intra_pair_variance": Peer(
    _mean(losses.intra_pair_variance), "IntraPairVarianceLoss"
  ),
  "threshold_consistent_margin": Peer(
    _mean(losses.threshold_consistent_margin), "ThresholdConsistentMarginLoss"
  ),
  "sup_con": Peer(_over_anchors(losses.sup_con), "SupConLoss"),
  "nt_xent": Peer(_two_views, "NTXentLoss", per_class=2, largest=512),
  "tuplet_margin": Peer(
    _over_pairs(losses.tuplet_margin, margin=np.deg2rad(5.73)),
    "TupletMarginLoss",
    largest=512,
  ),
  "angular": Peer(
    _over_pairs(losses.angular, angle=np.deg2rad(40)),
    "AngularLoss",
    differs="the peer does not normalise the references",
  ),
  "fast_ap": Peer(_over_anchors(losses.fast_ap), "FastAPLoss"),
  "smooth_ap": Peer(
    _over_anchors(losses.smooth_ap, include_self=True),
    "SmoothAPLoss",
    differs="the peer takes examples a class for the number of classes",
    largest=256,
  ),
  "pnp": Peer(_mean(losses.pnp, include_self=True), "PNPLoss", largest=256),
  "dynamic_soft_margin": Peer(
    lambda x, y, w: jnp.mean(losses.dynamic_soft_margin(x, y, jnp.zeros(11))[0]),
    "DynamicSoftMarginLoss",
    differs="the peer takes all triplets",
    triplets=True,
    # The state that a module keeps from one batch makes the next backward pass fail.
    call=lambda module, x, labels: type(module)()(x, labels),
  ),
  "histogram": Peer(_mean(losses.histogram), "HistogramLoss", triplets=True),
  "ranked_list": Peer(
    _mean(losses.ranked_list, negative_temperature=5.0),
    "RankedListLoss",
    lambda classes, dim: {"margin": 0.4, "Tn": 5},
    tolerance=1e-3,  # the peer adds 1e-5 to sums of weights
  ),
  "p2s_grad": Peer(
    # The peer takes the mean over classes, ours takes half the sum.
    lambda x, y, w: jnp.mean(losses.p2s_grad(_cosines(x, w), y)) * 2 / w.shape[1],
    "P2SGradLoss",
    lambda classes, dim: {"descriptors_dim": dim, "num_classes": classes},
    "weight",
    fixed_norms=True,
    tolerance=1e-5,  # the peer's weights have norm 1 only to float32
  ),
  "large_margin_softmax": Peer(
    lambda x, y, w: jnp.mean(
      losses.large_margin_softmax(
        _cosines(x, w), y, _norms(x)[:, None] * _norms(w.T)[None]
      )
    ),
    "LargeMarginSoftmaxLoss",
    _owned,
    "W",
  ),
  "normface": Peer(
    _of_cosines(losses.normface, scale=20.0), "NormalizedSoftmaxLoss", _owned, "W"
  ),
  "cosface": Peer(_of_cosines(losses.cosface), "CosFaceLoss", _owned, "W"),
  "arcface": Peer(
    _of_cosines(losses.arcface, margin=np.deg2rad(28.6)), "ArcFaceLoss", _owned, "W"
  ),
  "subcentre_arcface": Peer(
    lambda x, y, w: jnp.mean(
      losses.subcentre_arcface(_sub_centres(x, w), y, margin=np.deg2rad(28.6))
    ),
    "SubCenterArcFaceLoss",
    _owned,
    "W",
  ),
  "sphereface": Peer(
    lambda x, y, w: jnp.mean(losses.sphereface(_cosines(x, w), y, _norms(x))),
    "SphereFaceLoss",
    _owned,
    "W",
  ),
  "proxy_anchor": Peer(
    _of_proxies(losses.proxy_anchor), "ProxyAnchorLoss", _owned, "proxies"
  ),
  "proxy_nca_plus_plus": Peer(
    _of_proxies(losses.proxy_nca_plus_plus, temperature=1.0),
    "ProxyNCALoss",
    _owned,
    "proxies",
  ),
  "manifold": Peer(
    _of_proxies(losses.manifold),
    "ManifoldLoss",
    lambda classes, dim: {"l": dim, "K": classes},
    "proxies",
    call=lambda module, x, labels: module(x, indices_tuple=labels),
    tolerance=1e-5,  # the peer inverts in float32
    rounded=0.1,  # the last bit decides if a term 2e-9 from its threshold counts
  ),
  "vicreg": Peer(
    _vicreg,
    "VICRegLoss",
    per_class=2,
    call=lambda module, x, labels: module(x[0::2] / 2, ref_emb=x[1::2] / 2),
  ),
  "soft_triple": Peer(_soft_triple, "SoftTripleLoss", _owned, "fc"),
}


def inputs(batch: int, dim: int, per_class: int) -> tuple[np.ndarray, np.ndarray]:
  """Embeddings in class clusters, so that margins cut through them, and labels."""
  rng = np.random.default_rng(0)
  labels = np.arange(batch) // per_class
  centres = rng.normal(size=(labels[-1] + 1, dim))
  return centres[labels] + rng.normal(size=(batch, dim)), labels.astype(np.int32)


def torch_loss(peer: Peer, classes: int, dim: int):
  """Builds the peer's module; also returns its parameter's value, or None."""
  import torch
  from pytorch_metric_learning import losses as theirs

  torch.manual_seed(0)
  module = getattr(theirs, peer.name)(**peer.settings(classes, dim))
  weights = getattr(module, peer.weights).detach().numpy() if peer.weights else None
  return module, weights
