"""Flax modules that own parameters: networks, heads, poolings, losses."""

from spherejax.models._backbones import Conv4 as Conv4
from spherejax.models._backbones import ConvNet as ConvNet
from spherejax.models._backbones import ResNet20 as ResNet20
from spherejax.models._heads import EmbeddingHead as EmbeddingHead
from spherejax.models._heads import HeadResult as HeadResult
from spherejax.models._losses import NormFace as NormFace
from spherejax.models._losses import ProxyAnchor as ProxyAnchor
from spherejax.models._losses import ProxyNCAPlusPlus as ProxyNCAPlusPlus
from spherejax.models._losses import ZeroShotPrediction as ZeroShotPrediction
from spherejax.models._poolings import GSP as GSP
from spherejax.models._poolings import GeM as GeM

__all__ = [
  "GSP",
  "Conv4",
  "ConvNet",
  "EmbeddingHead",
  "GeM",
  "HeadResult",
  "NormFace",
  "ProxyAnchor",
  "ProxyNCAPlusPlus",
  "ResNet20",
  "ZeroShotPrediction",
]
