"""Simple-6 trained on single objects, on grids of them, or on two views of each."""

import dataclasses
import functools
import pathlib
from typing import Annotated, Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.counting import features
from experiments.counting.images import Objects
from experiments.frame import kept, poolings
from experiments.frame import training as trainer
from experiments.frame.settings import Limited, Within
from spherejax import data, distances, losses, models, prototypes

Method = Literal["supervised", "SimCLR", "grids"]
Convolution = Literal["native", "patches"]


@dataclasses.dataclass(frozen=True)
class Settings(Limited):
  """Settings of the networks and of their training."""

  seed: int = 0
  """First seed."""
  seeds: int = 8
  """Number of networks per method, each with its own grids."""
  widths: tuple[int, int, int, int, int, int] = (16, 16, 32, 32, 64, 64)
  """Channels of the six layers."""
  convolution: Convolution = "patches"
  """Implementation of convolutions: patches (faster on a CPU) or native."""
  epochs: int = 12
  """Passes over the objects, with cross-entropy."""
  batch: int = 64
  """Objects, or grids, per step."""
  learning_rate: float = 2e-3
  """Learning rate of Adam."""
  methods: tuple[Literal["supervised", "SimCLR"], ...] = ("supervised", "SimCLR")
  """Training methods; cross-entropy always takes part."""
  simclr_steps: Annotated[int, Within(1)] = 400
  """Training steps with NT-Xent."""
  simclr_batch: Annotated[int, Within(2)] = 128
  """Objects per step, with two views each."""
  temperature: Annotated[float, Within(1e-6)] = 0.5
  """Temperature of NT-Xent."""
  projection: int = 64
  """Width of both projection layers, for NT-Xent only."""
  crop: float = 0.3
  """Smallest share of an object's area in a view."""
  jitter: float = 0.8
  """Strength of brightness and contrast changes."""
  integer_crops: bool = False
  """Crops boxes of whole pixels; otherwise boxes lie anywhere."""


def network(settings: Settings, method: str, classes: int) -> poolings.Headed:
  """Average-pooled features, and the input of the loss: scores or a projection."""
  s = settings
  backbone = functools.partial(
    models.Simple6, s.widths, convolution=s.convolution, name="backbone"
  )
  if method != "SimCLR":
    return poolings.Headed(backbone, functools.partial(nn.Dense, classes))
  layers = functools.partial(nn.Dense, s.projection)
  return poolings.Headed(backbone, lambda: nn.Sequential([layers(), nn.relu, layers()]))


def embed(
  settings: Settings, convolution: Convolution, params: Any, images: Array
) -> Array:
  """Features of images, from the backbone's parameters."""
  network = models.Simple6(settings.widths, convolution=convolution)
  return features.pooled(network, {"params": params}, images)


def draw(network: nn.Module, shape: tuple[int, ...], key: Array) -> Any:
  """Draws parameters like `network.init`, but all at once, which compiles faster.

  Kernels have variance 2 / (size^2 outputs) in convolutions and 1 / inputs in dense
  layers.
  """
  shapes = jax.eval_shape(network.init, key, jnp.zeros((1, *shape)))["params"]
  leaves, structure = jax.tree.flatten(shapes)
  numbers = jax.random.normal(key, (sum(leaf.size for leaf in leaves),))
  scaled, start = [], 0
  for leaf in leaves:
    values = numbers[start : start + leaf.size].reshape(leaf.shape)
    start += leaf.size
    if leaf.ndim == 4:
      scale = (2 / (leaf.shape[0] * leaf.shape[1] * leaf.shape[3])) ** 0.5
    else:
      scale = leaf.shape[0] ** -0.5 if leaf.ndim == 2 else 0.0
    scaled.append(scale * values)
  return jax.tree.unflatten(structure, scaled)


def untrained(settings: Settings, objects: Objects) -> Any:
  """Draws backbones [seeds, ...]; their biases are 0."""
  network = models.Simple6(settings.widths)
  numbers = jnp.arange(settings.seed, settings.seed + settings.seeds)
  begin = jax.random.key(settings.seed)

  def draw_seed(number: Array) -> Any:
    return draw(network, objects.held.shape[1:], jax.random.fold_in(begin, number))

  return jax.jit(jax.vmap(draw_seed))(numbers)


def without_biases(params: Any, share: Any) -> Any:
  """Multiplies the backbone's biases by `share`; 0 removes them, also in training."""

  def multiply(path: Any, leaf: Array) -> Array:
    return leaf * share if path[-1].key == "bias" else leaf

  backbone = jax.tree_util.tree_map_with_path(multiply, params["backbone"])
  return {**params, "backbone": backbone}


def train(
  settings: Settings,
  method: Method,
  objects: Objects,
  *,
  bias: float,
  folder: pathlib.Path,
) -> tuple[Any, Any]:
  """Trains backbones [seeds, ...]; returns their accuracies [seeds], too.

  Biases are multiplied by `bias`. Results in `folder` with the same settings are read
  instead of trained again. With the method "grids", the images are grids of one class
  on background 0.
  """
  classes = int(objects.train_labels.max()) + 1
  model = network(settings, method, classes)
  optimizer = optax.adam(settings.learning_rate)
  on_device = jax.tree.map(jnp.asarray, objects)
  loss = _LOSSES[method]

  def init(key: Array, hyper: Any) -> trainer.State:
    # Networks with and without biases begin alike.
    params = draw(model, objects.train.shape[1:], key)
    return trainer.State(params, optimizer.init(params))

  def step(objects: Objects, state: trainer.State, key: Array, hyper: Any) -> Any:
    def objective(params: Any) -> Array:
      variables = {"params": without_biases(params, hyper["bias"])}
      apply = functools.partial(model.apply, variables)
      return jnp.mean(loss(settings, objects, key, apply))

    value, *after = trainer.descend(objective, optimizer, *state)
    return trainer.State(*after), {"loss": value}

  def evaluate(objects: Objects, state: trainer.State, key: Array, hyper: Any) -> Array:
    params = without_biases(state.params, hyper["bias"])["backbone"]
    return _object_accuracy(settings, objects, params, classes)

  number = settings.simclr_steps
  if method != "SimCLR":
    number = max(1, settings.epochs * len(objects.train) // settings.batch)
  made_with = kept.digest((settings, bias, objects.train.shape))
  name = f"{folder.name}-{method}-{made_with}"
  partial = jax.tree_util.Partial
  result = trainer.many(
    jax.random.key(settings.seed),
    (init, partial(step, on_device), partial(evaluate, on_device)),
    {"bias": (bias,)},
    folder.with_name(name),
    convolutional=True,
    seeds=range(settings.seed, settings.seed + settings.seeds),
    steps=number,
    evaluate_every=number,
    progress=False,
  )
  params = jax.tree.map(lambda x: np.asarray(x[0]), result.state.params)
  return without_biases(params, bias)["backbone"], result.scores[0, :, -1]


_KNOWN = 500  # objects for class means, and as many held-out ones to classify


def _object_accuracy(settings, objects: Objects, params: Any, classes: int) -> Array:
  """Share of held-out objects nearest to their own class's mean direction."""
  known, asked = objects.train[:_KNOWN], objects.held[:_KNOWN]
  images = objects.normalized(jnp.concatenate([known, asked]))
  z = distances.l2_normalize(embed(settings, settings.convolution, params, images))
  labels = objects.train_labels[:_KNOWN]
  means = prototypes.class_means(z[: len(known)], labels, classes).means
  right = jnp.argmax(z[len(known) :] @ means.T, axis=1) == objects.held_labels[:_KNOWN]
  return jnp.mean(right)


def _rows(objects: Objects, key: Array, number: int) -> tuple[Array, Array]:
  rows = jax.random.randint(key, (number,), 0, len(objects.train_labels))
  return objects.train[rows], objects.train_labels[rows]


def _supervised(settings, objects: Objects, key: Array, apply) -> Array:
  x, y = _rows(objects, key, settings.batch)
  return losses.softmax(apply(objects.normalized(x))[1], y)


def _grids(settings, objects: Objects, key: Array, apply) -> Array:
  def draw_grid(key: Array) -> data.ImageGrid:
    images, labels = objects.normalized(objects.train), objects.train_labels
    return data.image_grid(key, images, labels, single_label=True)

  grids = jax.vmap(draw_grid)(jax.random.split(key, settings.batch))
  return losses.softmax(apply(grids.image)[1], grids.label)


def _simclr(settings, objects: Objects, key: Array, apply) -> Array:
  row_key, *keys = jax.random.split(key, 3)
  x, _ = _rows(objects, row_key, settings.simclr_batch)
  views = jnp.concatenate([objects.normalized(view(settings, k, x)) for k in keys])
  first, second = jnp.split(apply(views)[1], 2)
  return losses.nt_xent(first, second, temperature=settings.temperature)


def view(settings: Settings, key: Array, images: Array) -> Array:
  """Crops a random box of each image and changes brightness and contrast."""
  crop_key, brightness_key, contrast_key = jax.random.split(key, 3)
  size = images.shape[1], images.shape[2]
  crops = data.random_resized_crop(
    crop_key,
    images,
    size=size,
    area=(settings.crop, 1.0),
    integer=settings.integer_crops,
  )
  crops = jnp.clip(crops, 0, 1)
  crops = data.random_brightness(brightness_key, crops, strength=settings.jitter)
  return data.random_contrast(contrast_key, crops, strength=settings.jitter)


_LOSSES = {"supervised": _supervised, "SimCLR": _simclr, "grids": _grids}
