"""Network, augmentation and optimiser of the paper's tables."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments.assignment import methods
from experiments.assignment.jobs import Full
from experiments.assignment.methods import LEARNED
from spherejax import data, models, training


class Network(nn.Module):
  """Backbone, average pooling, linear layer, perhaps BatchNorm."""

  config: Full
  dim: int

  @nn.compact
  def __call__(self, images: Array, *, train: bool = False) -> Array:
    c = self.config
    if c.network == "resnet32":
      widths = (c.width, 2 * c.width, 4 * c.width)
      backbone = models.ResNet32(widths=widths, shortcut="projection_3x3")
    elif c.network == "swin_t":
      backbone = models.SwinT()
    elif c.network == "resnet18":
      backbone = models.ResNet18()
    else:
      backbone = {"resnet50": models.ResNet50, "resnet101": models.ResNet101}[
        c.network
      ]()
    x = nn.Dense(self.dim)(backbone(images, train=train).mean((1, 2)))
    if c.feature_norm:
      x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
    return x


def forward(
  network: Network, params: Any, stats: Any, images: Array, key: Array
) -> tuple[Array, Any]:
  """Embeddings of a training batch and the statistics after it."""
  variables = {"params": params} | ({"batch_stats": stats} if stats else {})
  embeddings, changed = network.apply(
    variables, images, train=True, mutable=["batch_stats"], rngs={"dropout": key}
  )
  return embeddings, changed.get("batch_stats")


def prepare(config: Full, key: Array, images: Array) -> Array:
  """Augmented images of a training batch."""
  crop_key, flip_key = jax.random.split(key)
  x = data.to_float(images)
  if config.crop == "padded":
    x = data.random_crop(crop_key, x, padding=config.image_size // 8)
  else:
    size, area = config.image_size, (0.08, 1.0)
    x = data.random_resized_crop(crop_key, x, size=size, area=area)
  return standard(data.random_flip(flip_key, x))


def standard(images: Array) -> Array:
  return (images - 0.5) / 0.25


def schedule(config: Full, rate: float, per_epoch: int) -> optax.Schedule:
  """The learning rate of each step."""
  steps = config.epochs * per_epoch
  warm_up = config.warm_up * per_epoch

  def value(step: Any) -> Any:
    if config.drops:
      ends = jnp.array(config.drops) * per_epoch
      now = rate * 0.1 ** jnp.sum(step >= ends)
    else:
      done = jnp.clip((step - warm_up) / max(steps - warm_up, 1), 0, 1)
      now = rate * 0.5 * (1 + jnp.cos(jnp.pi * done))
    if config.drops and warm_up:  # by whole epochs: 1/5, 2/5, ... (public code)
      return now * jnp.minimum((step // per_epoch + 1) / config.warm_up, 1)
    return now * jnp.minimum((step + 1) / max(warm_up, 1), 1)

  return value


def make_optimizer(
  config: Full, recipe: methods.Recipe, per_epoch: int
) -> optax.GradientTransformation:
  """One optimiser for the network; prototypes have it where they are learned."""
  softmax = recipe.method.softmax > 0
  rate = config.softmax_rate if softmax else config.learning_rate
  rates = schedule(config, rate, per_epoch)
  if config.optimizer == "adamw":
    own = optax.adamw(rates, weight_decay=config.weight_decay)
  else:
    decay = optax.add_decayed_weights(config.weight_decay)
    own = optax.chain(decay, optax.sgd(rates, momentum=0.9))
  fixed = recipe.source != LEARNED
  return training.optimizer(
    {"network": own, "loss": optax.set_to_zero() if fixed else own}
  )
