"""Times EfficientNet-Lite0 on images of 224 x 224: ours, torch, and bare products.

Two cases are timed: the forward pass as in `models.pretrained`, and the forward pass
with the gradient of all parameters, normalised by the batch's statistics. The floor is
the matrix products of the 1x1 convolutions, and two more of each for the gradient.
Torch has the same weights, with channels last.

    python -m benchmarks.backbones               # a few minutes on 2 cores
    python -m benchmarks.backbones --smoke       # two small images, forward
    python -m benchmarks.backbones --json FILE
"""

import os
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from benchmarks._measure import FLOOR, OURS, Contender, Target
from spherejax import models
from spherejax.models import _pretrained

NAME, PEER = "efficientnet_lite0", "torch"
NETWORK = models.EfficientNetLite()


def forward(variables: Any, images: Any) -> Any:
  return NETWORK.apply(variables, images)


def weights_of(shape: tuple[int, ...]) -> np.ndarray:
  """Weights of the maps in the loss; a mean square hardly depends on the kernels."""
  return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def gradient(variables: Any, images: Any) -> Any:
  """Weighted mean of the maps, and its gradients."""

  def loss(params: Any) -> Any:
    merged = {**variables, "params": params}
    maps, _ = NETWORK.apply(merged, images, train=True, mutable=["batch_stats"])
    return jnp.mean(maps * weights_of(maps.shape))

  return jax.value_and_grad(loss)(variables["params"])


class Torch:
  """Torch's network, as a replacement for both functions."""

  def __init__(self, images: np.ndarray, learns: bool):
    import torch

    from benchmarks import _torch_efficientnet

    torch.set_num_threads(os.cpu_count() or 1)
    self.network: Any = _torch_efficientnet.EfficientNetLite().train(learns)
    self.network.load_state_dict(torch.load(_pretrained.weight_file(NAME)))
    self.network.to(memory_format=torch.channels_last)
    moved = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    self.images = moved.contiguous(memory_format=torch.channels_last)
    side = -(-images.shape[1] // 32)
    weights = weights_of((len(images), side, side, 1280))
    self.weights = torch.from_numpy(weights).permute(0, 3, 1, 2)
    self.call = self.gradient if learns else torch.no_grad()(self.forward)

  def forward(self) -> Any:
    return self.network(self.images).permute(0, 2, 3, 1)

  def gradient(self) -> Any:
    self.network.zero_grad()
    maps = self.network(self.images)
    value = (maps * self.weights).mean()
    value.backward()
    return (value.detach(),)  # the gradients agree in float64, see docs/benchmarks


def shapes(jaxpr: Any) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
  """Yields the shapes of all matrix products in a program."""
  for equation in jaxpr.eqns:
    if equation.primitive.name == "dot_general":
      left, right = (variable.aval.shape for variable in equation.invars)
      yield left, right
    for inner in equation.params.values():
      if hasattr(inner, "jaxpr"):
        yield from shapes(inner.jaxpr)


def products(variables: Any, images: Any, learns: bool) -> tuple[Any, Any]:
  """Returns the bare products as a function, and their factors."""
  rng = np.random.default_rng(0)
  pairs = [
    tuple(rng.normal(size=shape).astype(np.float32) for shape in pair)
    for pair in shapes(jax.make_jaxpr(forward)(variables, images).jaxpr)
  ]

  def run(pairs: Any) -> Any:
    results = []
    for x, kernel in pairs:
      y = x @ kernel
      results.append(y)
      if learns:
        flat = (z.reshape(-1, z.shape[-1]) for z in (x, y))
        results += [y @ kernel.T, jnp.matmul(*(next(flat).T, next(flat)))]
    return results

  return run, jax.device_put(pairs)


def processor_seconds(call: Any, *inputs: Any) -> float:
  """Processor seconds of a call on all cores, which other programs change little."""
  start = time.process_time()
  jax.block_until_ready(call(*inputs))
  return time.process_time() - start


def measure(
  learns: bool, batch: int, side: int, repetitions: int, peer: bool
) -> dict[str, Any]:
  """Row of the table."""
  pixels = np.random.default_rng(0).integers(0, 256, (batch, side, side, 3), np.uint8)
  network = models.pretrained(NAME)
  images = network.scaled(pixels)
  floor, pairs = products(network.variables, images, learns)
  floor = jax.jit(floor).lower(pairs).compile()
  start = time.perf_counter()
  ours = jax.jit(gradient if learns else forward)
  ours = ours.lower(network.variables, images).compile()
  compilation = time.perf_counter() - start
  contenders = {
    OURS: Contender(ours, compiled=False),
    FLOOR: Contender(lambda *_: floor(pairs), compiled=False),
  }
  if peer:
    torch = Torch(np.asarray(images), learns)
    agrees = 1e-3 if learns else 1e-4
    contenders[PEER] = Contender(lambda *_: torch.call(), agrees, compiled=False)
  title = "forward and backward" if learns else "forward"
  row = _measure.compare(
    f"{title}, {batch} x {side} x {side}",
    (network.variables, images),
    contenders,
    () if learns else (Target(PEER, 1.0),),
    repetitions=repetitions,
  )
  row["compile_seconds"][OURS] = compilation
  row["images a second"] = {
    name: 1e3 * batch / milliseconds
    for name, milliseconds in row["milliseconds"].items()
  }
  row["processor seconds"] = {
    name: processor_seconds(contender.call, network.variables, images)
    for name, contender in contenders.items()
  }
  return row


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__)
  missing = _measure.lacking("torch")
  batch, side = (2, 64) if options.smoke else (32, 224)
  rows = [
    measure(learns, batch, side, options.repetitions, not missing)
    for learns in ((False,) if options.smoke else (False, True))
    if options.only in ("forward and backward" if learns else "forward")
  ]
  _measure.report("backbones", rows, missing, options)


if __name__ == "__main__":
  main()
