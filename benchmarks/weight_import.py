"""Compares every activation of our networks with torch's after importing weights.

Random weights, statistics, scales and shifts go from torch through a file into our
networks, at full size; the last rows have the weights of `models.pretrained`. An
activation is the output of a convolution, a norm, a linear layer or a block. Its
difference is the largest difference of an entry, divided by the largest entry.
Torch's float64 is the reference; torch's own float32 is the floor of ours.

    python -m benchmarks.weight_import               # a minute or two on 2 cores
    python -m benchmarks.weight_import --json FILE
"""

import pathlib
import re
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from spherejax import _versions, models
from spherejax.models import _pretrained, _weight_names

FLOOR = "torch's float32"


class Pair(NamedTuple):
  """Our network, the settings of torch's, and the side of an image.

  The weights are random, or those of `models.pretrained` under the name `weights`.
  """

  ours: nn.Module
  torch: dict[str, Any]
  side: int
  weights: _pretrained.Name | None = None


_PHOTO = {"widths": (64, 128, 256, 512)}
_CIFAR = {"blocks": (5, 5, 5), "widths": (16, 32, 64), "small": True}
PAIRS = {
  "ResNet-32": Pair(models.ResNet32(), {"shortcut": "padding", **_CIFAR}, 32),
  "ResNet-20, pre-activation": Pair(
    models.ResNet20(), {"blocks": 3, "widths": (16, 32, 64)}, 32
  ),
  "ResNet-18": Pair(models.ResNet18(), {"blocks": (2, 2, 2, 2), **_PHOTO}, 64),
  "ResNet-50": Pair(
    models.ResNet50(), {"blocks": (3, 4, 6, 3), "bottleneck": True, **_PHOTO}, 64
  ),
  "ResNet-101": Pair(
    models.ResNet101(), {"blocks": (3, 4, 23, 3), "bottleneck": True, **_PHOTO}, 64
  ),
  "ResNet-32, 3x3 shortcuts": Pair(
    models.ResNet32(shortcut="projection_3x3"),
    {"shortcut": "projection_3x3", **_CIFAR},
    32,
  ),
  "Swin-T": Pair(
    models.SwinT(), {"depths": (2, 2, 6, 2), "heads": (3, 6, 12, 24)}, 224
  ),
  "Inception v3": Pair(models.InceptionV3(), {}, 96),
  "BN-Inception": Pair(models.BNInception(), {}, 96),
  "EfficientNet-Lite0, ImageNet's weights": Pair(
    models.EfficientNetLite(), {}, 224, "efficientnet_lite0"
  ),
  "EfficientNet-Lite1, ImageNet's weights": Pair(
    models.EfficientNetLite(depth=1.1), {"depth": 1.1}, 240, "efficientnet_lite1"
  ),
  "EfficientNet-Lite2, ImageNet's weights": Pair(
    models.EfficientNetLite(1.1, 1.2),
    {"width": 1.1, "depth": 1.2},
    260,
    "efficientnet_lite2",
  ),
}


def torch_module(path: str, network: nn.Module) -> str:
  """Name in torch's network of our module at `path`."""
  if isinstance(network, models.BNInception):
    if re.fullmatch(r"inception_\w\w", path):
      return f"{path}_output"
    path += "" if path.endswith(("/conv", "/norm")) else "_relu"
    return path.replace("/conv", "").replace("/norm", "_bn").replace("/", "_")
  if isinstance(network, models.InceptionV3):
    path = path.replace("stem_3b", "Conv2d_3b_1x1").replace("mixed", "Mixed")
    path = re.sub(r"stem_(\w\w)", r"Conv2d_\1_3x3", path)
    return path.replace("norm", "bn").replace("/", ".")
  if isinstance(network, models.ResNet20):
    return _pre_activation_module(path)
  if isinstance(network, models.EfficientNetLite):
    table = "EfficientNet-Lite0" if network.depth <= 1 else "EfficientNet-Lite1 and 2"
    path += "/"
    for pattern, replacement in _weight_names.TABLES[table]:
      path = re.sub(pattern, replacement, path)
    return path.removesuffix(".")
  if not isinstance(network, models.SwinT):
    path = re.sub(r"stage(\d)_(\d+)", r"layer\1.\2", path)
    path = path.replace("shortcut_norm", "downsample.1")
    path = path.replace("shortcut", "downsample.0")
    path = re.sub("^stem_norm", "bn1", re.sub("^stem$", "conv1", path))
    return path.replace("convolution", "conv").replace("norm", "bn").replace("/", ".")
  path = {"embed_norm": "features.0.2"}.get(path, path)
  path = re.sub(r"stage(\d)_", lambda match: f"features.{2 * int(match[1]) - 1}.", path)
  path = re.sub(r"merge(\d)", lambda match: f"features.{2 * int(match[1]) - 2}", path)
  path = path.replace("attention/out", "attn.proj").replace("attention", "attn")
  return path.replace("dense1", "mlp.0").replace("dense2", "mlp.3").replace("/", ".")


def _pre_activation_module(path: str) -> str:
  """Name in torch for `ResNet20`, whose modules are numbered in order of use."""
  block, _, part = path.removesuffix("/BatchNorm_0").rpartition("/")
  kind, _, number = part.rpartition("_")
  place = int(number)
  if kind == "_PreActivationBlock":
    return f"layer{place // 3 + 1}.{place % 3}"
  if not block:
    return "conv1" if kind == "Convolution" else "bn"
  # In a block that widens, the shortcut's convolution comes first.
  widens = block.endswith(("_3", "_6"))
  if kind == "Convolution":
    name = f"conv{place + 1 - widens}" if place or not widens else "shortcut.0"
  else:
    name = f"bn{place + 1}"
  return f"{_pre_activation_module(block)}.{name}"


def differences(
  network: nn.Module, weights: dict[str, np.ndarray], images: Any, theirs: dict
) -> dict[str, float]:
  """Distances of our modules' outputs from torch's, for each module that torch has."""
  shapes = jax.eval_shape(network.init, jax.random.key(0), images)
  shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, images.dtype), shapes)
  variables = models.import_weights(shapes, weights)

  def run(variables: Any, images: Any) -> Any:
    return network.apply(variables, images, capture_intermediates=True)[1]

  captured = jax.jit(run)(variables, images)["intermediates"]
  result = {}
  for path, value in jax.tree.leaves_with_path(captured):
    place = "/".join(str(entry.key) for entry in path[:-2])
    # Within windows torch's cells and ours differ only in their order.
    if place and not re.search(r"Dropout|attention/(qkv|out)$|^embed$", place):
      name = torch_module(place, network)
      result[name] = _gap(value, theirs[name])
  return result


def _gap(value: Any, reference: np.ndarray) -> float:
  """Largest difference, relative to the largest entry of the reference."""
  gap = np.abs(np.asarray(value, np.float64) - reference).max()
  return float(gap / (np.abs(reference).max() or 1))


def measure(
  name: str, pair: Pair, seed: int = 0, dtypes: Sequence[str] = ("float32", "float64")
) -> dict[str, Any]:
  """Row of the table; weights pass through a file of each kind."""
  import torch
  from safetensors.torch import save_file

  from benchmarks import (
    _torch_efficientnet,
    _torch_inception,
    _torch_networks,
    _torch_swin,
  )

  torch.manual_seed(seed)
  kind: Any = _torch_networks.ResNet
  if isinstance(pair.ours, models.SwinT):
    kind = _torch_swin.Swin
  elif isinstance(pair.ours, models.ResNet20):
    kind = _torch_networks.PreActivationResNet
  elif isinstance(pair.ours, models.InceptionV3):
    kind = _torch_inception.Inception
  elif isinstance(pair.ours, models.BNInception):
    kind = _torch_inception.BNInception
  elif isinstance(pair.ours, models.EfficientNetLite):
    kind = _torch_efficientnet.EfficientNetLite
  network = kind(**pair.torch)
  if pair.weights:
    network.load_state_dict(torch.load(_pretrained.weight_file(pair.weights)))
  else:
    _torch_networks.randomize(network, seed)
  images = np.random.default_rng(seed).normal(size=(1, pair.side, pair.side, 3))
  row: dict[str, Any] = {"network": name}
  with tempfile.TemporaryDirectory() as folder:
    paths = [pathlib.Path(folder) / f"weights.{end}" for end in ("pth", "safetensors")]
    torch.save(network.state_dict(), paths[0])
    save_file(network.state_dict(), paths[1])
    weights = [models.read_weights(path) for path in paths]
  for array, other in zip(
    weights[0].values(), [weights[1][key] for key in weights[0]], strict=True
  ):
    np.testing.assert_array_equal(array, other)
  theirs = _torch_networks.activations(network, images)
  errors: dict[str, float] = {}
  for dtype in dtypes:
    with _versions.enable_x64(dtype == "float64"):
      errors = differences(pair.ours, weights[0], jnp.asarray(images, dtype), theirs)
    row["activations"] = len(errors)
    row[dtype] = float(np.max([*errors.values()]))
  if "float32" in dtypes:
    rounded = _torch_networks.activations(network, images.astype(np.float32))
    row[FLOOR] = max(_gap(rounded[name], theirs[name]) for name in errors)
  return row


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__, timed=False)
  missing = _measure.lacking("torch", "safetensors")
  rows = [
    measure(name, PAIRS[name])
    for name in (list(PAIRS)[:1] if options.smoke else PAIRS)
    if options.only in name and not missing
  ]
  if rows:
    _measure.show("largest relative difference of an activation", rows)
  for peer in missing:
    print(f"skipped: {peer} is not installed")
  _measure.save("weight_import", rows, missing, options)


if __name__ == "__main__":
  main()
