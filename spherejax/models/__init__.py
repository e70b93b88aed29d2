"""Flax modules with parameters: networks, heads, poolings and losses."""

from spherejax import _names
from spherejax.models._aggregation_poolings import OTP as OTP
from spherejax.models._aggregation_poolings import TSMK as TSMK
from spherejax.models._aggregation_poolings import NetVLAD as NetVLAD
from spherejax.models._attention_poolings import CBAM as CBAM
from spherejax.models._attention_poolings import SOLAR as SOLAR
from spherejax.models._attention_poolings import DeLF as DeLF
from spherejax.models._backbones import Conv4 as Conv4
from spherejax.models._backbones import ConvNet as ConvNet
from spherejax.models._backbones import ResNet20 as ResNet20
from spherejax.models._bn_inception import BNInception as BNInception
from spherejax.models._distance_losses import DistanceRatio as DistanceRatio
from spherejax.models._distance_losses import DistanceSoftmax as DistanceSoftmax
from spherejax.models._distance_losses import ProxyDistanceRatio as ProxyDistanceRatio
from spherejax.models._distance_losses import (
  SquaredDistanceSoftmax as SquaredDistanceSoftmax,
)
from spherejax.models._efficientnet_lite import EfficientNetLite as EfficientNetLite
from spherejax.models._heads import EmbeddingHead as EmbeddingHead
from spherejax.models._heads import HeadResult as HeadResult
from spherejax.models._inception import InceptionV3 as InceptionV3
from spherejax.models._margin_losses import ArcFace as ArcFace
from spherejax.models._margin_losses import CosFace as CosFace
from spherejax.models._margin_losses import LargeMarginSoftmax as LargeMarginSoftmax
from spherejax.models._margin_losses import SphereFace as SphereFace
from spherejax.models._margin_losses import SubcentreArcFace as SubcentreArcFace
from spherejax.models._pair_losses import Margin as Margin
from spherejax.models._poolings import GSP as GSP
from spherejax.models._poolings import GSPGMP as GSPGMP
from spherejax.models._poolings import GeM as GeM
from spherejax.models._pretrained import PretrainedNetwork as PretrainedNetwork
from spherejax.models._pretrained import pretrained as pretrained
from spherejax.models._prototypes import replace_prototypes as replace_prototypes
from spherejax.models._proxy_losses import Manifold as Manifold
from spherejax.models._proxy_losses import ProxyAnchor as ProxyAnchor
from spherejax.models._proxy_losses import ProxyNCA as ProxyNCA
from spherejax.models._proxy_losses import ProxyNCAPlusPlus as ProxyNCAPlusPlus
from spherejax.models._proxy_losses import SoftTriple as SoftTriple
from spherejax.models._resnets import ResNet as ResNet
from spherejax.models._resnets import ResNet18 as ResNet18
from spherejax.models._resnets import ResNet32 as ResNet32
from spherejax.models._resnets import ResNet50 as ResNet50
from spherejax.models._resnets import ResNet101 as ResNet101
from spherejax.models._robust_losses import (
  NormFaceNegativeMargin as NormFaceNegativeMargin,
)
from spherejax.models._robust_losses import ProxyCap as ProxyCap
from spherejax.models._second_order_poolings import GSoP as GSoP
from spherejax.models._simple6 import Simple6 as Simple6
from spherejax.models._softmax_losses import AdaCos as AdaCos
from spherejax.models._softmax_losses import NormFace as NormFace
from spherejax.models._softmax_losses import P2SGrad as P2SGrad
from spherejax.models._softmax_losses import Softmax as Softmax
from spherejax.models._swin import SwinT as SwinT
from spherejax.models._weight_files import read_weights as read_weights
from spherejax.models._weight_import import import_weights as import_weights
from spherejax.models._zero_shot_losses import ZeroShotPrediction as ZeroShotPrediction

__all__ = [
  "CBAM",
  "GSP",
  "GSPGMP",
  "OTP",
  "SOLAR",
  "TSMK",
  "AdaCos",
  "ArcFace",
  "BNInception",
  "Conv4",
  "ConvNet",
  "CosFace",
  "DeLF",
  "DistanceRatio",
  "DistanceSoftmax",
  "EfficientNetLite",
  "EmbeddingHead",
  "GSoP",
  "GeM",
  "HeadResult",
  "InceptionV3",
  "LargeMarginSoftmax",
  "Manifold",
  "Margin",
  "NetVLAD",
  "NormFace",
  "NormFaceNegativeMargin",
  "P2SGrad",
  "PretrainedNetwork",
  "ProxyAnchor",
  "ProxyCap",
  "ProxyDistanceRatio",
  "ProxyNCA",
  "ProxyNCAPlusPlus",
  "ResNet",
  "ResNet18",
  "ResNet20",
  "ResNet32",
  "ResNet50",
  "ResNet101",
  "Simple6",
  "SoftTriple",
  "Softmax",
  "SphereFace",
  "SquaredDistanceSoftmax",
  "SubcentreArcFace",
  "SwinT",
  "ZeroShotPrediction",
  "import_weights",
  "pretrained",
  "read_weights",
  "replace_prototypes",
]

_names.suggest(__name__)
