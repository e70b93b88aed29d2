"""Peers' attacks on the same weights, and torch's own gradients."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array

from benchmarks import _attack_cases


def in_torch(weights: _attack_cases.Weights):
  """Rebuilds the network in torch, for images [batch, channels, height, width]."""
  import torch

  layers: list[Any] = []
  for place, (kernel, bias) in enumerate(weights):
    array, last = np.asarray(kernel), place == len(weights) - 1
    if array.ndim == 4:
      layer = torch.nn.Conv2d(array.shape[2], array.shape[3], 3, 1 + (place > 0), 1)
      array = array.transpose(3, 2, 0, 1)
    else:
      layer = torch.nn.Linear(*array.shape)
      array = array.T
    layer.weight.data = torch.tensor(np.ascontiguousarray(array))
    assert layer.bias is not None
    layer.bias.data = torch.tensor(np.array(bias))
    convolved = np.asarray(weights[0][0]).ndim == 4
    if last and convolved:
      layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    elif place == 0 and not convolved:
      layers.append(torch.nn.Flatten())
    layers += [layer] if last else [layer, torch.nn.ReLU()]
  return torch.nn.Sequential(*layers).eval()


def _operands(weights: _attack_cases.Weights, x: Array, y: Array) -> tuple[Any, ...]:
  """Network, images and labels in torch."""
  import torch

  images = torch.tensor(np.array(x).transpose(0, 3, 1, 2).copy())
  return in_torch(weights), images, torch.tensor(np.array(y), dtype=torch.int64)


def theirs(
  name: str,
  case: _attack_cases.Case,
  weights: _attack_cases.Weights,
  x: Array,
  y: Array,
  size: int,
) -> Callable[..., Any]:
  """Returns a peer's attack, which returns success rate and median l2 distance."""
  import torch

  network, images, labels = _operands(weights, x, y)
  if name == _attack_cases.FOOLBOX and case.foolbox is not None:
    import foolbox

    model = foolbox.PyTorchModel(  # pyright: ignore[reportPrivateImportUsage]
      network, bounds=(0, 1), device="cpu"
    )
    attack = case.foolbox(foolbox.attacks, size)

    def run():
      epsilon = None if case.minimal else _attack_cases.EPSILON
      return attack(model, images, labels, epsilons=epsilon)[1]

  else:
    assert case.torchattacks is not None
    # Imported by name: in no extra, as its requirements conflict with newer libraries.
    peer = importlib.import_module(_attack_cases.TORCHATTACKS)
    attack = case.torchattacks(peer, network, size, _attack_cases.EPSILON)

    def run():
      return attack(images, labels)

  def measure(*_):
    points = run().detach()
    with torch.no_grad():
      # Where foolbox's Carlini-Wagner fails, it returns an image of zeros.
      nonzero = points.flatten(1).any(1)
      success = (network(points).argmax(1) != labels) & nonzero
    moved = (points - images).flatten(1).norm(dim=1)
    broken = moved[success].numpy()
    distance = np.median(broken) if len(broken) else np.nan
    return success.float().mean().numpy()[None], np.asarray([distance])

  return measure


def torch_floor(weights: _attack_cases.Weights, x: Array, y: Array, count: int):
  """Computes `count` gradients of the model in torch."""
  import torch

  network, images, labels = _operands(weights, x, y)

  def run(*_):
    point = images.clone().requires_grad_()
    for _ in range(count):
      loss = torch.nn.functional.cross_entropy(network(point), labels, reduction="sum")
      (gradient,) = torch.autograd.grad(loss, point)
      point = (point + 1e-9 * gradient).detach().requires_grad_()
    return point.detach().numpy()

  return run
