"""Simple-6 trained on single objects, on grids of them, or on two views of each."""

import functools
import pathlib
from collections.abc import Callable
from typing import Literal, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.typing import Collection
from jax import Array

from experiments.counting import features
from experiments.counting.images import Objects
from experiments.counting.settings import Config, Convolution
from experiments.frame import kept, poolings
from experiments.frame import training as trainer
from experiments.frame.training import Hyper
from spherejax import data, distances, losses, models, prototypes

Method = Literal["supervised", "SimCLR", "grids"]
_Apply = Callable[[Array], tuple[Array, Array]]
"""Function of images to features and the input of the loss."""


def network(config: Config, method: str, classes: int) -> poolings.Headed:
  """Average-pooled features, and the input of the loss: scores or a projection."""
  backbone = functools.partial(
    models.Simple6, config.widths, convolution=config.convolution, name="backbone"
  )
  if method != "SimCLR":
    return poolings.Headed(backbone, functools.partial(nn.Dense, classes))
  layers = functools.partial(nn.Dense, config.projection)
  return poolings.Headed(backbone, lambda: nn.Sequential([layers(), nn.relu, layers()]))


def embed(
  config: Config, convolution: Convolution, params: Collection, images: Array
) -> Array:
  """Features of images, from the backbone's parameters."""
  network = models.Simple6(config.widths, convolution=convolution)
  return features.pooled(network, {"params": params}, images)


def draw(network: nn.Module, shape: tuple[int, ...], key: Array) -> Collection:
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


def untrained(config: Config, objects: Objects) -> Collection:
  """Draws backbones [seeds, ...]; their biases are 0."""
  network = models.Simple6(config.widths)
  numbers = jnp.arange(config.seed, config.seed + config.seeds)
  begin = jax.random.key(config.seed)

  def draw_seed(number: Array) -> Collection:
    return draw(network, objects.held.shape[1:], jax.random.fold_in(begin, number))

  return jax.jit(jax.vmap(draw_seed))(numbers)


def without_biases(params: Collection, share: float | Array) -> Collection:
  """Multiplies the backbone's biases by `share`; 0 removes them, also in training."""

  def multiply(path: jax.tree_util.KeyPath, leaf: Array) -> Array:
    return leaf * share if path[-1].key == "bias" else leaf

  backbone = jax.tree_util.tree_map_with_path(multiply, params["backbone"])
  return {**params, "backbone": backbone}


def train(
  config: Config, method: Method, objects: Objects, *, bias: float, folder: pathlib.Path
) -> tuple[Collection, np.ndarray]:
  """Trains backbones [seeds, ...]; returns their accuracies [seeds], too.

  Biases are multiplied by `bias`. Results in `folder` with the same settings are read
  instead of trained again. With the method "grids", the images are grids of one class
  on background 0.
  """
  classes = int(objects.train_labels.max()) + 1
  model = network(config, method, classes)
  optimizer = optax.adam(config.learning_rate)
  on_device = jax.tree.map(jnp.asarray, objects)
  loss = _LOSSES[method]

  def init(key: Array, hyper: Hyper) -> trainer.State:
    # Networks with and without biases begin alike.
    params = draw(model, objects.train.shape[1:], key)
    return trainer.State(params, optimizer.init(params))

  def step(
    objects: Objects, state: trainer.State, key: Array, hyper: Hyper
  ) -> tuple[trainer.State, dict[str, Array]]:
    def objective(params: Collection) -> Array:
      variables = {"params": without_biases(params, hyper["bias"])}
      apply = cast(_Apply, functools.partial(model.apply, variables))
      return jnp.mean(loss(config, objects, key, apply))

    value, *after = trainer.descend(objective, optimizer, *state)
    return trainer.State(*after), {"loss": value}

  def evaluate(
    objects: Objects, state: trainer.State, key: Array, hyper: Hyper
  ) -> Array:
    params = without_biases(state.params, hyper["bias"])["backbone"]
    return _object_accuracy(config, objects, params, classes)

  number = config.simclr_steps
  if method != "SimCLR":
    number = max(1, config.epochs * len(objects.train) // config.batch)
  made_with = kept.digest((config, bias, objects.train.shape))
  name = f"{folder.name}-{method}-{made_with}"
  partial = jax.tree_util.Partial
  result = trainer.many(
    jax.random.key(config.seed),
    (init, partial(step, on_device), partial(evaluate, on_device)),
    {"bias": (bias,)},
    folder.with_name(name),
    convolutional=True,
    seeds=range(config.seed, config.seed + config.seeds),
    steps=number,
    evaluate_every=number,
    progress=False,
  )
  params = jax.tree.map(lambda x: np.asarray(x[0]), result.state.params)
  return without_biases(params, bias)["backbone"], result.scores[0, :, -1]


_KNOWN = 500  # objects for class means, and as many held-out ones to classify


def _object_accuracy(
  config: Config, objects: Objects, params: Collection, classes: int
) -> Array:
  """Share of held-out objects nearest to their own class's mean direction."""
  known, asked = objects.train[:_KNOWN], objects.held[:_KNOWN]
  images = objects.normalized(jnp.concatenate([known, asked]))
  z = distances.l2_normalize(embed(config, config.convolution, params, images))
  labels = objects.train_labels[:_KNOWN]
  means = prototypes.class_means(z[: len(known)], labels, classes).means
  right = jnp.argmax(z[len(known) :] @ means.T, axis=1) == objects.held_labels[:_KNOWN]
  return jnp.mean(right)


def _rows(objects: Objects, key: Array, number: int) -> tuple[Array, Array]:
  rows = jax.random.randint(key, (number,), 0, len(objects.train_labels))
  return objects.train[rows], objects.train_labels[rows]


def _supervised(config: Config, objects: Objects, key: Array, apply: _Apply) -> Array:
  x, y = _rows(objects, key, config.batch)
  return losses.softmax(apply(objects.normalized(x))[1], y)


def _grids(config: Config, objects: Objects, key: Array, apply: _Apply) -> Array:
  def draw_grid(key: Array) -> data.ImageGrid:
    images, labels = objects.normalized(objects.train), objects.train_labels
    return data.image_grid(key, images, labels, single_label=True)

  grids = jax.vmap(draw_grid)(jax.random.split(key, config.batch))
  return losses.softmax(apply(grids.image)[1], grids.label)


def _simclr(config: Config, objects: Objects, key: Array, apply: _Apply) -> Array:
  row_key, *keys = jax.random.split(key, 3)
  x, _ = _rows(objects, row_key, config.simclr_batch)
  views = jnp.concatenate([objects.normalized(view(config, k, x)) for k in keys])
  first, second = jnp.split(apply(views)[1], 2)
  return losses.nt_xent(first, second, temperature=config.temperature)


def view(config: Config, key: Array, images: Array) -> Array:
  """Crops a random box of each image and changes brightness and contrast."""
  crop_key, brightness_key, contrast_key = jax.random.split(key, 3)
  size = images.shape[1], images.shape[2]
  crops = data.random_resized_crop(
    crop_key, images, size=size, area=(config.crop, 1.0), integer=config.integer_crops
  )
  crops = jnp.clip(crops, 0, 1)
  crops = data.random_brightness(brightness_key, crops, strength=config.jitter)
  return data.random_contrast(contrast_key, crops, strength=config.jitter)


_LOSSES = {"supervised": _supervised, "SimCLR": _simclr, "grids": _grids}
