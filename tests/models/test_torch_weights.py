"""Imported weights against torch: every activation, and what its files can hold."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("torch", reason="a peer of the extra `bench`")

import torch

from benchmarks import _torch_networks, _torch_swin, weight_import
from spherejax import models

pytestmark = pytest.mark.peer

NARROW = {"widths": (12, 16, 20, 24)}
SMALL = {"blocks": (2, 1, 2), "widths": (8, 12, 16)}
SHORTCUTS = ("padding", "projection", "projection_3x3")
PAIRS = {
  "ResNet-18": weight_import.Pair(
    models.ResNet18(**NARROW), {"blocks": (2, 2, 2, 2), **NARROW}, 70
  ),
  "ResNet-50": weight_import.Pair(
    models.ResNet50(blocks=(2, 1, 2, 1), **NARROW),
    {"blocks": (2, 1, 2, 1), "bottleneck": True, **NARROW},
    70,
  ),
  **{
    f"ResNet-32, {shortcut}": weight_import.Pair(
      models.ResNet32(**SMALL, shortcut=shortcut),
      {**SMALL, "small": True, "shortcut": shortcut},
      18,
    )
    for shortcut in SHORTCUTS
  },
  "ResNet-20": weight_import.Pair(
    models.ResNet20(widths=(4, 6, 8)), {"blocks": 3, "widths": (4, 6, 8)}, 18
  ),
  # 13 cells: padded to whole windows; 7 and 4: one window, which does not shift.
  "Swin-T": weight_import.Pair(
    models.SwinT((2, 2, 1), (2, 4, 4), width=8),
    {"depths": (2, 2, 1), "heads": (2, 4, 4), "width": 8},
    53,
  ),
  "Inception v3": weight_import.Pair(models.InceptionV3(width=2), {"width": 2}, 123),
}


@pytest.mark.parametrize("name", PAIRS)
def test_every_activation_equals_torchs(name):
  row = weight_import.measure(name, PAIRS[name], 1, ("float64",))
  assert row["float64"] < 1e-12
  blocks = {"ResNet-18": 8, "ResNet-50": 6}.get(name, 5)
  # Inception: 94 convolutions, their norms, what they belong to; 11 blocks.
  assert row["activations"] > (3 * 94 + 10 if name == "Inception v3" else 4 * blocks)


def test_names_of_timm_and_of_the_authors_lead_to_the_same():
  pair = PAIRS["Swin-T"]
  weights = {
    name: value.numpy()
    for name, value in _torch_swin.Swin(**pair.torch).state_dict().items()
  }
  shapes = jax.eval_shape(pair.ours.init, jax.random.key(0), jnp.zeros((1, 53, 53, 3)))
  expected = models.import_weights(shapes, weights)

  def renamed(name, later):
    name = name.replace("features.0.0", "patch_embed.proj")
    name = name.replace("features.0.2", "patch_embed.norm")
    name = name.replace("mlp.0", "mlp.fc1").replace("mlp.3", "mlp.fc2")
    name = name.replace("head.", "head.fc.")
    stage = re.match(r"features\.(\d)\.", name)
    if not stage:
      return name
    number, rest = int(stage[1]), name[stage.end() :]
    if number % 2:
      return f"layers.{number // 2}.blocks.{rest}"
    return f"layers.{number // 2 - (0 if later else 1)}.downsample.{rest}"

  for later in (True, False):
    other = {renamed(name, later): value for name, value in weights.items()}
    assert not set(weights) & set(other) - {"norm.weight", "norm.bias"}
    found = models.import_weights(shapes, other)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_reads_what_torch_writes(tmp_path):
  base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
  content = {
    "whole": base,
    "columns": base[:, 2:5],
    "turned": base.T,
    "parameter": torch.nn.Parameter(base[1]),
    "number": torch.tensor(7),
    "nothing": torch.zeros(3, 0),
    **{
      str(dtype): torch.tensor([[1, 0, 3]]).to(dtype)
      for dtype in (
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
      )
    },
  }
  places = {"epoch": 3, "model": {f"module.{k}": v for k, v in content.items()}}
  torch.save(places, tmp_path / "file.pt")
  found = models.read_weights(tmp_path / "file.pt")
  assert list(found) == list(content)
  for name, tensor in content.items():
    assert str(found[name].dtype) == str(tensor.dtype).removeprefix("torch.")
    tensor = tensor.detach()
    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    np.testing.assert_array_equal(found[name].astype(tensor.numpy().dtype), tensor)
  assert np.shares_memory(found["whole"], found["columns"])


def test_refuses_other_things_that_torch_writes(tmp_path):
  file = tmp_path / "file.pt"
  torch.save(torch.nn.Linear(2, 2), file)
  with pytest.raises(ValueError, match=r"torch\.nn\.modules\.linear\.Linear"):
    models.read_weights(file)
  state = {"weight": torch.zeros(2)}
  torch.save(state, file, _use_new_zipfile_serialization=False)
  with pytest.raises(ValueError, match=r"before 1\.6.*makes it a zip"):
    models.read_weights(file)


def test_half_precision_follows_torch():
  pair = PAIRS["ResNet-18"]
  network = _torch_networks.ResNet(**pair.torch)
  _torch_networks.randomize(network, 0)
  weights = {name: value.numpy() for name, value in network.state_dict().items()}
  images = np.random.default_rng(0).normal(size=(1, 70, 70, 3))
  shapes = jax.eval_shape(pair.ours.init, jax.random.key(0), jnp.asarray(images))
  variables = models.import_weights(shapes, weights)
  found = jax.jit(pair.ours.apply)(variables, jnp.asarray(images, jnp.bfloat16))
  expected = _torch_networks.activations(network, images)["layer4"]
  assert found.dtype == jnp.bfloat16
  gap = np.abs(np.asarray(found, np.float64) - expected).max()
  assert gap < 0.05 * np.abs(expected).max()  # 2^-8 in each of 20 layers
