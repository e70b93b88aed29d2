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


def pair(network, side, torch_alone=None, **settings):
  """A network and torch's by the same settings."""
  theirs = settings | (torch_alone or {})
  return weight_import.Pair(network(**settings), theirs, side)


NARROW = {"widths": (12, 16, 20, 24)}
SMALL = {"blocks": (2, 1, 2), "widths": (8, 12, 16)}
FIFTY = {"blocks": (2, 1, 2, 1), **NARROW}
SHORTCUTS = ("padding", "projection", "projection_3x3")
PAIRS = {
  "ResNet-18": pair(models.ResNet18, 70, {"blocks": (2, 2, 2, 2)}, **NARROW),
  "ResNet-50": pair(models.ResNet50, 70, {"bottleneck": True}, **FIFTY),
  **{
    f"ResNet-32, {name}": pair(
      models.ResNet32, 18, {"small": True}, **SMALL, shortcut=name
    )
    for name in SHORTCUTS
  },
  "ResNet-20": pair(models.ResNet20, 18, {"blocks": 3}, widths=(4, 6, 8)),
  # 13 cells: padded to whole windows; 7 and 4: one window, which does not shift.
  "Swin-T": pair(models.SwinT, 53, depths=(2, 2, 1), heads=(2, 4, 4), width=8),
  "EfficientNet-Lite": pair(models.EfficientNetLite, 45, width=0.1),
  "Inception v3": pair(models.InceptionV3, 123, width=2),
  "BN-Inception": pair(models.BNInception, 69, width=4),
}


@pytest.mark.parametrize("name", PAIRS)
def test_every_activation_equals_torchs(name):
  row = weight_import.measure(name, PAIRS[name], 1, ("float64",))
  assert row["float64"] < 1e-12
  blocks = {"ResNet-18": 8, "ResNet-50": 6}.get(name, 5)
  # Inceptions: convolutions, their norms, what they belong to; blocks.
  least = {"Inception v3": 3 * 94 + 11, "BN-Inception": 3 * 69 + 10}
  assert row["activations"] >= least.get(name, 4 * blocks + 1)
  assert name != "BN-Inception" or row["activations"] == least[name]


def test_names_of_timm_and_of_the_authors_lead_to_the_same():
  swin = PAIRS["Swin-T"]
  state = _torch_swin.Swin(**swin.torch).state_dict()
  weights = {name: value.numpy() for name, value in state.items()}
  shapes = jax.eval_shape(swin.ours.init, jax.random.key(0), jnp.zeros((1, 53, 53, 3)))
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


def of_types(names):
  numbers = torch.tensor([[1, 0, 3]])
  return {name: numbers.to(getattr(torch, name))[:, 1:] for name in names.split()}


NEW_AND_OLD = pytest.mark.parametrize("zipped", [True, False])


@NEW_AND_OLD
def test_reads_what_torch_writes(tmp_path, zipped):
  base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
  content = {
    "whole": base,
    "columns": base[:, 2:5],
    "turned": base.T,
    "parameter": torch.nn.Parameter(base[1]),
    "number": torch.tensor(7),
    "nothing": torch.zeros(3, 0),
    **of_types("float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool"),
  }
  places = {"epoch": 3, "model": {f"module.{k}": v for k, v in content.items()}}
  path = tmp_path / "file.pt"
  torch.save(places, path, _use_new_zipfile_serialization=zipped)
  found = models.read_weights(path)
  assert list(found) == list(content)
  for name, tensor in content.items():
    assert str(found[name].dtype) == str(tensor.dtype).removeprefix("torch.")
    tensor = tensor.detach()
    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    np.testing.assert_array_equal(found[name].astype(tensor.numpy().dtype), tensor)
  assert np.shares_memory(found["whole"], found["columns"])


def variants():
  """Every way in which torch writes a tensor otherwise than number by number."""
  base = torch.arange(1, 25, dtype=torch.float32).reshape(4, 6)
  complex_ = torch.complex(base, -2 * base)
  parameter = torch.nn.Parameter(base)
  parameter.axis = 3
  grown = base.clone().requires_grad_()
  return {
    "negated": torch._neg_view(base),
    "negated part": torch._neg_view(base)[1:, ::2].T,
    "conjugated": complex_.conj(),
    "imaginary of conjugated": complex_.conj().imag,
    "conjugated transpose": complex_.mH,
    "negated and conjugated": torch._neg_view(complex_.conj()),
    "complex": complex_.to(torch.complex128),
    "parameter with attributes": parameter,
    "negated parameter": torch.nn.Parameter(torch._neg_view(base)),
    "of a gradient": 2 * grown.detach(),
    "buffer": torch.nn.Buffer(base),
    "permuted": base.reshape(2, 2, 6).permute(2, 0, 1),
    "channels last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded row": base[:1].expand(1, 6),
    "empty": base[:0],
    "view of bits": base.view(torch.int32).clone(),
    **of_types("uint16 uint32 uint64 float8_e4m3fn float8_e5m2 bfloat16"),
    "expanded": base[0, :1].expand(1000),
    "quantised": torch.quantize_per_tensor(base, 0.1, 3, torch.qint8),
    "sparse": base.to_sparse(),
    "sparse rows": base.to_sparse_csr(),
    "meta": base.to("meta"),
    "attributes": _with_attribute(base.clone()),
    "complex of two halves": torch.zeros(2, dtype=torch.complex32),
    "nested": torch.nested.nested_tensor([base[0], base[1, :2]]),
    "subclass": base.as_subclass(Marked),
  }


class Marked(torch.Tensor):
  """A subclass of tensors."""


def _with_attribute(tensor):
  tensor.axis = 3
  return tensor


REFUSED = {
  "expanded", "quantised", "sparse", "sparse rows", "meta", "attributes",
  "complex of two halves", "nested", "subclass", "buffer",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of torch, on what is in development
@NEW_AND_OLD
def test_every_kind_of_tensor_is_right_or_refused(tmp_path, zipped):
  file = tmp_path / "file.pt"
  for name, tensor in variants().items():
    torch.save({"weight": tensor}, file, _use_new_zipfile_serialization=zipped)
    if name in REFUSED:
      with pytest.raises(ValueError, match=r"file\.pt is (refused|truncated or dam)"):
        models.read_weights(file)
      continue
    array = models.read_weights(file)["weight"]
    assert str(array.dtype) == str(tensor.dtype).removeprefix("torch."), name
    plain = tensor.detach().resolve_conj().resolve_neg()
    if array.dtype.name.startswith(("float8", "bfloat")):
      array, plain = array.astype(np.float32), plain.float()
    np.testing.assert_array_equal(array, plain.numpy(), err_msg=name)


def test_refuses_other_things_that_torch_writes(tmp_path):
  file = tmp_path / "file.pt"
  torch.save(torch.nn.Linear(2, 2), file)
  with pytest.raises(ValueError, match=r"torch\.nn\.modules\.linear\.Linear"):
    models.read_weights(file)


def test_half_precision_follows_torch():
  ours, settings, *_ = PAIRS["ResNet-18"]
  network = _torch_networks.ResNet(**settings)
  _torch_networks.randomize(network, 0)
  weights = {name: value.numpy() for name, value in network.state_dict().items()}
  images = np.random.default_rng(0).normal(size=(1, 70, 70, 3))
  shapes = jax.eval_shape(ours.init, jax.random.key(0), jnp.asarray(images))
  variables = models.import_weights(shapes, weights)
  found = jax.jit(ours.apply)(variables, jnp.asarray(images, jnp.bfloat16))
  expected = _torch_networks.activations(network, images)["layer4"]
  assert found.dtype == jnp.bfloat16
  gap = np.abs(np.asarray(found, np.float64) - expected).max()
  assert gap < 0.05 * np.abs(expected).max()  # 2^-8 in each of 20 layers
