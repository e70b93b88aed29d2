"""Prototypical networks: two losses on the same episodes, all runs at once."""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.typing import Collection
from jax import Array

from experiments.episodes import settings as few_shot_sets
from experiments.episodes.settings import Config, Part
from experiments.frame import frozen
from experiments.frame import kept as finished
from experiments.frame import training as trainer
from experiments.frame.images import Parts
from spherejax import data, losses, metrics, models, prototypes

SQUARED, RATIO = "SD", "DR"
FIRST_LOG_EXPONENT = 2.0
OFFSET = 1e-10  # added to squared distances, as in the article
MEASURES = (
  "norm_ratio", "scaling", "norm_ratio by features", "scaling by features", "con_alpha",
  "div_alpha", "con_div", "left_out", "exponent",
)  # fmt: skip
FURTHER = ("con_alpha by features", "div_alpha by features", "training accuracy")


class State(NamedTuple):
  """State of one run: network, optimiser, and measures of its updates."""

  params: Collection
  statistics: Collection
  opt_state: optax.OptState
  checks: Array
  series: dict[str, Array]  # [checks]


class Trained(NamedTuple):
  """Outcomes of all runs of a part, [cells, seeds, ...] each."""

  validation: np.ndarray
  test: np.ndarray  # [cells, seeds, episodes]
  series: dict[str, np.ndarray]


def measures(settings: Config) -> tuple[str, ...]:
  """Names of the measures that each check records."""
  return (*MEASURES, *(FURTHER if settings.all_diagnostics else ()))


class Embedding(nn.Module):
  """Network from images to vectors."""

  settings: Config

  @nn.compact
  def __call__(self, images: Array, *, train: bool = False) -> Array:
    settings = self.settings
    if settings.backbone == frozen.NETWORK:
      return nn.Dense(settings.width)(images)
    if settings.backbone == "conv4":
      network = models.Conv4(settings.width, convolution=settings.convolution)
      maps = network(images, train=train)
      return maps.reshape(len(maps), -1)
    network = models.ResNet18(convolution=settings.convolution)
    return jnp.mean(network(images, train=train), axis=(1, 2))


def prepared(settings: Config, images: Array, key: Array | None = None) -> Array:
  """Converts bytes to the network's inputs; augments them if given a key."""
  images = data.to_float(images)
  if settings.backbone == frozen.NETWORK:
    return images
  if key is not None and settings.augment:
    crop, flip, bright, contrast, saturation = jax.random.split(key, 5)
    images = data.random_resized_crop(crop, images, size=settings.image_size)
    images = data.random_flip(flip, images)
    images = data.random_brightness(bright, images)
    images = data.random_contrast(contrast, images)
    images = data.random_saturation(saturation, images)
  elif images.shape[1] != settings.image_size:
    images = data.center_crop(images, settings.image_size)
  if images.shape[-1] == 3:
    return data.normalize(images, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
  return images


def embed(settings: Config, state: State, images: Array) -> Array:
  """Embeds images, [count, dim], in blocks, with the running statistics."""
  variables = {"params": state.params["network"], "batch_stats": state.statistics}

  def embed_image(image: Array) -> Array:
    return Embedding(settings).apply(variables, prepared(settings, image[None]))[0]

  return jax.lax.map(embed_image, images, batch_size=250)


def _init(settings: Config, shape: Sequence[int], key: Array, hyper) -> State:
  inputs = shape[1:]  # features, or images that the network gets in another size
  if settings.backbone != frozen.NETWORK:
    inputs = settings.image_size, settings.image_size, shape[-1]
  start = {"batch_stats": {}, **Embedding(settings).init(key, jnp.zeros((1, *inputs)))}
  params = {
    "network": start["params"],
    "log_exponent": jnp.asarray(hyper["log_exponent"], jnp.float32),
  }
  number = settings.episodes // settings.check_every
  series = {name: jnp.full(number, jnp.nan) for name in measures(settings)}
  opt_state = optax.adam(settings.learning_rate).init(params)
  return State(params, start["batch_stats"], opt_state, jnp.int32(0), series)


def _embedded(settings: Config, part: Part, params, statistics, inputs):
  """Embeds an episode, [ways, shots + queries, dim]; returns new statistics, too."""
  network = Embedding(settings)
  points, updated = trainer.forward(network, params["network"], statistics, inputs)
  shape = settings.num_ways, part.shots + settings.num_queries, -1
  return points.reshape(shape), updated


def _objective(
  settings: Config, part: Part, labels: Array, hyper, statistics, inputs, params
):
  """The loss of an episode, its points and the statistics after it."""
  points, updated = _embedded(settings, part, params, statistics, inputs)
  squares = prototypes.support_squared_distances(
    points[:, part.shots :].reshape(len(labels), -1),
    points[:, : part.shots],
    representative=part.representative,
  )
  learned = params["log_exponent"]
  fixed = jax.lax.stop_gradient(learned)
  exponent = jnp.exp(jnp.where(hyper["learned"] > 0, learned, fixed))
  both = [
    losses.squared_distance_softmax(squares, labels),
    losses.distance_ratio(squares, labels, exponent=exponent, offset=OFFSET),
  ]
  return jnp.mean(jnp.where(hyper["ratio"] > 0, both[1], both[0])), (points, updated)


def _step(
  settings: Config,
  part: Part,
  images: Array,
  classes: data.ClassTable,
  fixed: tuple[Array, Array] | None,
  state: State,
  key: Array,
  hyper: Mapping[str, Array],
) -> tuple[State, dict[str, Array]]:
  """Trains on some episodes and measures what the last update changed."""
  optimizer = optax.adam(settings.learning_rate)
  ways, queries = settings.num_ways, settings.num_queries
  labels = jnp.repeat(jnp.arange(ways), queries)

  def episode(carry, key):
    params, statistics, opt_state, _ = carry
    draw_key, image_key = jax.random.split(key)
    rows = data.sample_episode(
      draw_key, classes, num_ways=ways, num_shots=part.shots, num_queries=queries
    )
    inputs = prepared(settings, images[rows.reshape(-1)], image_key)
    objective = functools.partial(
      _objective, settings, part, labels, hyper, statistics, inputs
    )
    (loss, (points, updated)), params, opt_state = trainer.descend(
      objective, optimizer, params, opt_state, has_aux=True
    )
    # The last episode is measured again, with the same augmented images.
    return (params, updated, opt_state, (inputs, points, statistics)), loss

  keys = jax.random.split(key, settings.check_every)
  carry = (state.params, state.statistics, state.opt_state)
  # Zeros in place of the last episode, before the first one has run.
  last = jax.eval_shape(episode, (*carry, None), key)[0][-1]
  carry = (*carry, jax.tree.map(jnp.zeros_like, last))
  (params, statistics, opt_state, last), loss = jax.lax.scan(episode, carry, keys)
  inputs, before, old_statistics = last
  after = _embedded(settings, part, params, old_statistics, inputs)[0]
  measures = _looked_at(part, before, after) | {
    "exponent": jnp.exp(params["log_exponent"])
  }
  new_state = State(params, statistics, opt_state, state.checks + 1, state.series)
  if fixed is not None:
    rows, places = fixed
    episode_accuracies = _accuracies(settings, part, images[rows], places, new_state)
    measures["training accuracy"] = jnp.mean(episode_accuracies)
  series = {
    name: values.at[state.checks].set(measures[name].astype(jnp.float32))
    for name, values in state.series.items()
  }
  return new_state._replace(series=series), {"loss": jnp.mean(loss)}


def _looked_at(part: Part, before: Array, after: Array) -> dict[str, Array]:
  change = functools.partial(
    metrics.embedding_change, num_shots=part.shots, representative=part.representative
  )
  measures = change(before, after)._asdict()
  features = change(before, after, centre="features")
  for name in ("norm_ratio", "scaling", "con_alpha", "div_alpha"):
    measures[f"{name} by features"] = getattr(features, name)
  return measures


def _evaluate(settings, part, images, episodes, state, key, hyper) -> Array:
  del key, hyper
  return jnp.mean(_accuracies(settings, part, images, episodes, state))


def _accuracies(settings: Config, part: Part, images, episodes, state) -> Array:
  return prototypes.episode_accuracies(
    embed(settings, state, images),
    episodes,
    num_shots=part.shots,
    representative=part.representative,
  )


def train(
  settings: Config,
  part: Part,
  sets: Parts,
  cells: Mapping[str, Sequence[float]],
  folder: pathlib.Path,
) -> Trained:
  """Trains and tests all cells and seeds at once; resumes from `folder`."""
  classes = few_shot_sets.table(sets.train, part.shots + settings.num_queries)
  drawn = functools.partial(few_shot_sets.fixed_episodes, settings, part)
  sizes = {"queries": settings.num_queries, "number": settings.validation_episodes}
  fixed = None
  if settings.all_diagnostics:  # rows of the images in use, episodes as places in them
    fixed = np.unique(drawn(sets.train, **sizes), return_inverse=True)
  validation = drawn(sets.validation, **sizes)
  test = drawn(sets.test, queries=settings.test_queries, number=settings.test_episodes)
  record = {"made with": finished.digest((settings, part, dict(cells)))}
  path = folder / f"{part.name} {record['made with']}".replace(" ", "-")

  def make() -> finished.Finished:
    images = jnp.asarray(sets.train.images)
    validation_images = jnp.asarray(sets.validation.images)
    step = functools.partial(_step, settings, part)
    evaluate = functools.partial(_evaluate, settings, part)
    result = trainer.many(
      jax.random.key(settings.seed),
      (
        functools.partial(_init, settings, images.shape),
        jax.tree_util.Partial(step, images, jax.tree.map(jnp.asarray, classes), fixed),
        jax.tree_util.Partial(evaluate, validation_images, validation),
      ),
      cells,
      path.with_name(f"{path.name}-checkpoints"),
      convolutional=settings.backbone != frozen.NETWORK,
      seeds=range(settings.seed, settings.seed + settings.seeds),
      steps=settings.episodes // settings.check_every,
      evaluate_every=settings.validate_every // settings.check_every,
    )
    accuracies = functools.partial(_accuracies, settings, part)
    tested = trainer.over_models(
      accuracies, result.best_state, jnp.asarray(sets.test.images), test
    )
    arrays = {"validation": result.scores, "test": tested}
    arrays |= {f"series {name}": x for name, x in result.state.series.items()}
    return finished.Finished({}, {name: np.asarray(x) for name, x in arrays.items()})

  outcome = finished.once(path, made_with=record, make=make)
  series = {name: outcome.arrays[f"series {name}"] for name in measures(settings)}
  return Trained(outcome.arrays["validation"], outcome.arrays["test"], series)
