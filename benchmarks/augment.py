"""Times two SimCLR views of a batch, also as a share of a training step.

`spherejax.data.simclr_views` draws views of 512 colour images of 32 x 32, at the
paper's strength and at "large", which does not blur. The peers, if installed, are
kornia, which changes a whole batch, and torchvision, which takes one image after
another. They draw their own random numbers, so pixels differ; their mean and
standard deviation are compared. The floor reads the images and writes two of each.

The second part is a training step of `experiments.projector_collapse` at batch 128
(value and gradient of InfoNCE). The step either draws its views or gets them as inputs.

    python -m benchmarks.augment                  # a minute on 2 cores
    python -m benchmarks.augment --smoke          # seconds
    python -m benchmarks.augment --json FILE
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from experiments.self_supervision import training
from experiments.self_supervision.training import Settings
from spherejax import data, losses
from spherejax.data._views import Views

SIDE, BATCH, STEP_BATCH, SMOKE_BATCH = 32, 512, 128, 32
TEMPERATURE = 0.5
SHARE = 0.1  # largest share of a training step that the views may take
ALIKE = 0.1  # tolerance of the pixels' moments at the full batch; draws differ
PEERS = {"kornia": 2.0, "torchvision": 2.0}


def images(batch: int) -> np.ndarray:
  """Images of smooth colours with noise."""
  rng = np.random.default_rng(0)
  coarse = rng.random([batch, SIDE // 8, SIDE // 8, 3]).repeat(8, 1).repeat(8, 2)
  noise = rng.normal(scale=0.05, size=coarse.shape)
  return np.clip(coarse + noise, 0, 1).astype(np.float32)


def moments(views: Any) -> np.ndarray:
  """Mean and standard deviation of all pixels."""
  pixels = np.asarray(views)
  return np.array([pixels.mean(), pixels.std()])


def kornia(strengths: data.ViewStrengths) -> Callable[..., Any] | None:
  """Returns the peer for whole batches; None where it is missing."""
  if _measure.lacking("kornia", "torch"):
    return None
  torch = importlib.import_module("torch")
  torch.manual_seed(0)
  augmentation = importlib.import_module("kornia.augmentation")
  parts = [
    augmentation.RandomResizedCrop((SIDE, SIDE), scale=strengths.scale),
    augmentation.RandomHorizontalFlip(p=strengths.flip),
    augmentation.ColorJitter(*strengths[2:6], p=strengths.jitter),
    augmentation.RandomGrayscale(p=strengths.grayscale),
  ]
  if strengths.blur:
    parts.append(augmentation.RandomGaussianBlur((3, 3), (0.1, 2.0), p=strengths.blur))
  augment = torch.nn.Sequential(*parts)

  def views(_: jax.Array, pictures: jax.Array) -> Any:
    with torch.inference_mode():
      planes = torch.from_numpy(np.array(pictures)).permute(0, 3, 1, 2)
      return torch.stack([augment(planes), augment(planes)])

  return views


def torchvision(strengths: data.ViewStrengths) -> Callable[..., Any] | None:
  """Returns the peer for single images; None where it is missing."""
  if _measure.lacking("torchvision", "torch"):
    return None
  torch = importlib.import_module("torch")
  # If it was built for another torch, its compiled operators are missing; none of them
  # is an augmentation.
  with mock.patch.object(torch.library, "register_fake", return_value=lambda fn: fn):
    transforms = importlib.import_module("torchvision.transforms.v2")
  parts = [
    transforms.RandomResizedCrop(SIDE, scale=strengths.scale, antialias=True),
    transforms.RandomHorizontalFlip(strengths.flip),
    transforms.RandomApply([transforms.ColorJitter(*strengths[2:6])], strengths.jitter),
    transforms.RandomGrayscale(strengths.grayscale),
  ]
  if strengths.blur:
    blur = transforms.GaussianBlur(3, (0.1, 2.0))
    parts.append(transforms.RandomApply([blur], strengths.blur))
  augment = transforms.Compose(parts)

  def views(_: jax.Array, pictures: jax.Array) -> Any:
    planes = torch.from_numpy(np.array(pictures)).permute(0, 3, 1, 2)
    return torch.stack([torch.stack([augment(x) for x in planes]) for _ in range(2)])

  return views


def floor(key: jax.Array, pictures: jax.Array) -> jax.Array:
  """Reads the images once and writes two views."""
  scale = 1 + jax.random.uniform(key, (2, 1, 1, 1, 1))
  return scale * pictures[None]


def views(name: Views, batch: int, repetitions: int) -> dict[str, Any]:
  """Compares ours, the peers and the floor."""
  strengths = data.view_strengths(name)
  ours = functools.partial(data.simclr_views, size=SIDE, strengths=strengths)
  pictures = images(batch)
  ways = {_measure.OURS: _measure.Contender(ours), "floor": _measure.Contender(floor)}
  # A different function, so that ours is not compiled before its compilation is timed.
  drawn = jax.jit(lambda key, batch_of_images: ours(key, batch_of_images))(
    jax.random.key(1), pictures
  )
  expected = moments(drawn)
  for peer, make in (("kornia", kornia), ("torchvision", torchvision)):
    other = make(strengths)
    if other is None:
      continue
    difference = _measure.relative_difference(moments(other(None, pictures)), expected)
    if difference > ALIKE * (BATCH / batch) ** 0.5:
      raise AssertionError(
        f"{peer}: pixels' moments differ from ours, {difference:.1e}"
      )
    ways[peer] = _measure.Contender(other, compiled=False)
  return _measure.compare(
    f"views of {batch}, {name}",
    (jax.random.key(0), pictures),
    ways,
    tuple(_measure.Target(peer, ratio) for peer, ratio in PEERS.items()),
    repetitions=repetitions,
  )


def step(name: Views, batch: int, repetitions: int) -> dict[str, Any]:
  """Compares a training step that draws its views with a step on given views."""
  strengths = data.view_strengths(name)
  augment = functools.partial(data.simclr_views, size=SIDE, strengths=strengths)
  pictures, network = images(batch), training.network(Settings())
  variables = network.init(jax.random.key(0), jnp.asarray(pictures[:2]))
  drawn = jax.jit(augment)(jax.random.key(1), pictures)

  def learn(params: Any, pair: jax.Array) -> Any:
    def loss(params: Any) -> jax.Array:
      (_, output), _ = network.apply(
        {**variables, "params": params},
        pair.reshape(2 * batch, SIDE, SIDE, 3),
        train=True,
        mutable=["batch_stats"],
      )
      first, second = jnp.split(output, 2)
      return losses.info_nce(first, second, temperature=TEMPERATURE).mean()

    return jax.value_and_grad(loss)(params)

  def whole(params: Any, key: jax.Array, pictures: jax.Array, _: jax.Array) -> Any:
    return learn(params, augment(key, pictures))

  def bare(params: Any, _key: jax.Array, _: jax.Array, pair: jax.Array) -> Any:
    return learn(params, pair)

  row = _measure.compare(
    f"training step of {batch}, {name}",
    (variables["params"], jax.random.key(1), pictures, drawn),
    {
      _measure.OURS: _measure.Contender(whole),
      # The same views, so that the loss and its gradient must agree.
      "views given": _measure.Contender(bare, 1e-3),
    },
    (_measure.Target("views given", 1 - SHARE),),
    repetitions=repetitions,
  )
  row["share"] = 1 - row["ratio"]["views given"]
  return row


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__)
  many, few = (SMOKE_BATCH,) * 2 if options.smoke else (BATCH, STEP_BATCH)
  missing = _measure.lacking(*PEERS)
  works = {
    f"{way.__name__} {name}": functools.partial(way, name, batch, options.repetitions)
    for name in (("large",) if options.smoke else ("large", "simclr"))
    for way, batch in ((views, many), (step, few))
  }

  def note(row: dict[str, Any]) -> str:
    return f", of which views {row['share']:.1%}" if "share" in row else ""

  _measure.run("augment", works, missing, options, note)


if __name__ == "__main__":
  main()
