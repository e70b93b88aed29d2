"""A small residual network under any pooling: what several experiments share.

A convolutional map becomes one normalised vector through a 1x1 convolution and a
pooling, trained with a contrastive loss or ProxyNCA++, and with zero-shot prediction
where the pooling has attributes.
"""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tqdm
import tyro
from jax import Array

from experiments import _cli, _ending, _finished, _poolings
from spherejax import data, losses, models, training

# What the experiment itself varies or fixes is no option of its command line.
Decided = Annotated[str, tyro.conf.Suppress]


@dataclasses.dataclass(frozen=True)
class Settings:
  """Network and training; an experiment adds its own."""

  seed: int = 0
  """Everything random follows from it."""
  image_size: int = 16
  """Side of the images, by area average from 32."""
  blocks: int = 1
  """Basic blocks of each stage of the residual network."""
  widths: tuple[int, ...] = (16, 32, 64)
  """Channels of each stage."""
  strides: tuple[int, ...] = (1, 1, 1)
  """Stride of each stage."""
  stem_stride: int = 2
  """Stride of the first convolution."""
  norm: str = "group"
  """Normalisation inside the network: group or batch."""
  convolution: str = "patches"
  """How convolutions are computed: patches (on a CPU) or native."""
  dim: int = 64
  """Dimension of the local features and of the embedding."""
  pooling: Decided = "gap"
  """How a map becomes a vector: one of `_poolings.NAMES` or `_poolings.WIDE`."""
  prototypes: int = 64
  """Prototypes of generalized sum pooling."""
  inverse_temperature: float = 0.5
  """Sharpness of the pooling (DML 5.2.4, for proxy losses)."""
  normalization: str = "l2"
  """Of the embedding: l2 or unit_ball."""
  steps: int = 400
  """Training steps; 0 leaves the network as it was drawn."""
  parts: int = 4
  """Parts of the training: after the first one, which pools by averages, the
  prototypes are chosen."""
  batch_classes: int = 16
  """Classes in a batch at most."""
  per_class: int = 4
  """Images of each class in a batch."""
  loss: Decided = "proxy_nca"
  """Of the embeddings: contrastive (C2) or proxy_nca (ProxyNCA++)."""
  margin: float = 0.5
  """Distance beyond which C2 leaves different classes alone."""
  temperature: float = 1 / 9
  """Of ProxyNCA++, divides squared distances."""
  zero_shot_scale: float = 1.0
  """Multiplies the logits of zero-shot prediction: 1 in DML eq. 5.2.4, 9.5 in the
  authors' released code."""
  learning_rate: float = 1e-3
  """Learning rate of Adam."""
  proxy_rate: float = 100.0
  """Learning rate of the proxies over that of the network (DML 5.3.4)."""

  def __post_init__(self):
    _cli.check_parts(self.steps, self.parts)


LOSSES = {"C2": "contrastive", "PNCA": "proxy_nca"}
"""By their names in tables."""


class Variant(NamedTuple):
  """What tells one variant from another: two numbers, so one program runs them all."""

  mass: float
  zero_shot_weight: float


AVERAGE = Variant(1.0, 0.0)


def load(name: str, split: str, size: int) -> data.Images:
  """An image set brought to one size; ends with a message where it is missing."""
  try:
    return data.load_tfds(name, split, size=size)
  except FileNotFoundError as error:
    raise SystemExit(f"this experiment reads the image set {name}: {error}") from error


def recipe(
  settings: Settings, mass: Any = 1.0, inverse_temperature: Any = None
) -> _poolings.Recipe:
  """The pooling of the settings; other numbers than theirs may be traced."""
  if inverse_temperature is None:
    inverse_temperature = settings.inverse_temperature
  return _poolings.recipe(
    settings.pooling,
    settings.dim,
    prototypes=settings.prototypes,
    mass=mass,
    inverse_temperature=inverse_temperature,
  )


def _keep_map(features: Array, *, where: Any = None) -> Array:
  del where  # nothing is masked here
  return features


def backbone(settings: Settings, name: str | None = None) -> models.ResNet20:
  """The residual network of the settings."""
  return models.ResNet20(
    blocks=settings.blocks,
    widths=settings.widths,
    strides=settings.strides,
    stem_stride=settings.stem_stride,
    norm=settings.norm,
    convolution=settings.convolution,
    name=name,
  )


class Network(nn.Module):
  """Residual network, 1x1 convolution, pooling, normalisation."""

  settings: Settings
  pooled: bool = True

  @nn.compact
  def __call__(
    self, images: Array, mass: Array | float = 1.0, *, train: bool = False
  ) -> models.HeadResult:
    s = self.settings
    features = backbone(s, name="backbone")(data.to_float(images) - 0.5, train=train)
    pooling = recipe(s, mass)
    pool = pooling.pool if self.pooled else _keep_map
    normalization = s.normalization if self.pooled else "none"
    projection = pooling.projection if self.pooled else "before"
    head = models.EmbeddingHead(
      pooling.dim, pool, normalization, projection, name="head"
    )
    # Only a pooling with a normalisation of its own asks whether it is training.
    return head(features, train=train)


def loss_modules(settings: Settings, classes: int) -> dict[str, nn.Module]:
  """Losses with parameters."""
  found: dict[str, nn.Module] = {}
  if settings.loss == "proxy_nca":
    found["proxies"] = models.ProxyNCAPlusPlus(
      classes, temperature=settings.temperature, normalize=settings.normalization
    )
  if settings.pooling == "gsp":
    found["zero_shot"] = models.ZeroShotPrediction(
      classes, settings.dim, scale=settings.zero_shot_scale
    )
  return found


def mixture(
  settings: Settings,
  classes: int,
  params: dict[str, Any],
  result: models.HeadResult,
  labels: Array,
  zero_shot_weight: Any,
) -> Array:
  """A metric loss and zero-shot prediction, as one number (DML eq. 5.2.5).

  Prediction counts by its mean over the batch, as in the authors' released code: half
  of eq. 5.2.4.
  """
  modules = loss_modules(settings, classes)

  def mean_of(name: str, inputs: Array | None) -> Array:
    values: Any = modules[name].apply({"params": params[name]}, inputs, labels)
    return values.mean()

  if "proxies" in modules:
    loss = mean_of("proxies", result.embeddings)
  else:
    loss = losses.contrastive(
      result.embeddings, labels, negative_margin=settings.margin
    ).mean()
  if "zero_shot" not in modules:
    return loss
  unseen = mean_of("zero_shot", result.attributes)
  return (1 - zero_shot_weight) * loss + zero_shot_weight * unseen


def _objective(params, stats, batch, *, settings: Settings, classes, key, axis_name):
  """The mixture for one batch, and what became of the statistics."""
  del key, axis_name  # nothing is drawn, and one device is enough
  images, labels, variant = batch
  variables = {"params": params["network"]}
  if stats:
    variables["batch_stats"] = stats["network"]
  result, changed = Network(settings).apply(
    variables, images, variant.mass, train=True, mutable=["batch_stats"]
  )
  stats = {"network": changed["batch_stats"]} if stats else None
  loss = mixture(
    settings, classes, params["loss"], result, labels, variant.zero_shot_weight
  )
  return training.Outcome(loss, stats)


@functools.cache
def make_optimizer(settings: Settings, names: tuple[str, ...]):
  """One optimiser object for all runs, so that they share a compiled program."""
  adam = optax.adam(settings.learning_rate)
  fast = optax.adam(settings.proxy_rate * settings.learning_rate)
  own = {name: fast if name == "proxies" else adam for name in names}
  return training.optimizer(
    {"network": adam} | {f"loss/{name}": rate for name, rate in own.items()}
  )


def loss_parameters(
  settings: Settings, classes: int, proxy_key: Array, label_key: Array
) -> dict[str, Any]:
  """Proxies and label embeddings at the start, by the name of their loss."""
  even = jnp.ones((2, settings.prototypes)) / settings.prototypes
  embedding = _poolings.embedding_dim(settings.pooling, settings.dim)
  inputs = {
    "proxies": (proxy_key, jnp.ones((2, embedding))),
    "zero_shot": (label_key, even),
  }
  return {
    name: module.lazy_init(*inputs[name], jnp.arange(2))["params"]
    for name, module in loss_modules(settings, classes).items()
  }


@functools.partial(jax.jit, static_argnames=("settings", "classes"))
def _initial_state(key, images, *, settings, classes) -> training.TrainState:
  network_key, proxy_key, label_key, step_key = jax.random.split(key, 4)
  parts = loss_parameters(settings, classes, proxy_key, label_key)
  return training.create_state(
    step_key,
    make_optimizer(settings, tuple(parts)),
    Network(settings).lazy_init(network_key, images[:1]),
    {"params": parts},
  )


@functools.partial(jax.jit, static_argnames=("settings", "classes"))
def _some_steps(state, images, labels, table, key, variant, *, settings, classes):
  """One part of a training as one compiled program."""
  objective = functools.partial(_objective, settings=settings, classes=classes)
  optimizer = make_optimizer(settings, tuple(loss_modules(settings, classes)))
  step = training.make_step(objective, optimizer)
  drawn = min(classes, settings.batch_classes)
  sizes = {"num_classes": drawn, "per_class": settings.per_class}

  def one_step(state, _):
    rows = data.class_balanced_indices(key, table, state.step, **sizes)
    state, values = step(state, (images[rows], labels[rows], variant))
    return state, values["loss"]

  return jax.lax.scan(one_step, state, length=settings.steps // settings.parts)


@functools.partial(jax.jit, static_argnames=("settings", "pooled"))
def _apply(variables, images, mass, *, settings, pooled):
  return Network(settings, pooled).apply(variables, images, mass)


def embed(
  state: training.TrainState,
  images: data.Images,
  settings: Settings,
  *,
  mass: float = 1.0,
  pooled: bool = True,
  batch: int = 250,
) -> models.HeadResult:
  """What the network makes of images; `pooled=False` gives maps as `pooled`.

  By batches of one size, so that one program serves sets of any size.
  """
  pixels = np.asarray(images.images)
  padding = -len(images) % batch
  rows = np.arange(len(images) + padding) % len(images)
  results = [
    _apply(state.variables(), pixels[chosen], mass, settings=settings, pooled=pooled)
    for chosen in np.split(rows, len(rows) // batch)
  ]
  return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(images)], *results)


# With pooled features that cover the others best (DML Algorithm 2).
_choose_prototypes = jax.jit(models.replace_prototypes, static_argnames=("path",))


def _with_backbone(tree: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
  """Parameters or statistics with the backbone's from another network."""
  if "backbone" not in tree.get("network", {}):
    return tree
  network = tree["network"] | {"backbone": other["network"]["backbone"]}
  return tree | {"network": network}


class Run(NamedTuple):
  """A trained network, and of each part of its training the mean loss and the score."""

  state: training.TrainState
  curve: tuple[float, ...]
  scores: tuple[float, ...] = ()


def pretrain(
  settings: Settings,
  steps: int,
  seed: int,
  images: data.Images,
  progress: tqdm.tqdm,
  kept: pathlib.Path | None = None,
) -> training.TrainState | None:
  """A network that classifies single images, as DML's begins with; None in no steps."""
  if not steps:
    return None
  settings = dataclasses.replace(settings, loss="proxy_nca", pooling="gap", steps=steps)
  return train(settings, seed, {"": AVERAGE}, images, progress, kept=kept)[""].state


def _in_parts(
  run: Run,
  parts: int,
  one_part: Callable[[Run], Run],
  folder: pathlib.Path | None,
  progress: tqdm.tqdm,
  best: bool,
) -> Run:
  """Trains until so many parts are done, from the last one that a folder keeps.

  The folder has the state of the highest score too; with `best` it is returned.
  """
  with contextlib.ExitStack() as stack:
    kept = stack.enter_context(training.Checkpoints(folder)) if folder else None
    found = kept.restore(run.state) if kept else None
    if found is not None:
      curve, scores = (tuple(found.record[name]) for name in ("curve", "scores"))
      progress.update(len(curve) - len(run.curve))
      run = Run(found.state, curve, scores)
    while len(run.curve) < parts:
      run = one_part(run)
      if kept:
        if run.scores and run.scores[-1] > max(run.scores[:-1], default=-np.inf):
          kept.save_best(run.state)
        kept.save(run.state, {"curve": run.curve, "scores": run.scores})
    if best and run.scores and kept and (found := kept.restore_best(run.state)):
      run = run._replace(state=found.state)
  return run


def train(
  settings: Settings,
  seed: int,
  variants: dict[str, Variant],
  images: data.Images,
  progress: tqdm.tqdm,
  *,
  pretrained: training.TrainState | None = None,
  memory: int = 1000,
  kept: pathlib.Path | None = None,
  after: Callable[[Run, Variant], Run] | None = None,
  best: bool = False,
) -> dict[str, Run]:
  """All variants from one seed.

  They share the first part, which pools by averages: prototypes are chosen among
  `memory` features that mean something already. They begin with the backbone of
  `pretrained`, where that is given, and with random weights otherwise. Each part is
  kept below a folder, where one is given: a run that was stopped goes on from there.
  What `after` makes of a run after each of its own parts goes on; with `best`, the
  state with the highest of the scores that it gives is returned, and not the last one.
  """
  if best and kept is None:
    raise ValueError("the best state is kept in a folder, got kept=None")
  init_key, data_key = jax.random.split(jax.random.key(seed))
  classes = len(images.label_names)
  pixels, labels = jnp.asarray(images.images), jnp.asarray(images.labels)
  table = data.class_table(
    images.labels, per_class=settings.per_class, label_names=images.label_names
  )
  state = _initial_state(init_key, pixels, settings=settings, classes=classes)
  if pretrained is not None:
    state = state.replace(
      params=_with_backbone(state.params, pretrained.params),
      batch_stats=_with_backbone(state.batch_stats, pretrained.batch_stats),
    )
  if not settings.steps:
    return {name: Run(state, ()) for name in variants}

  begun = jax.tree.leaves((state.params, state.batch_stats))
  made_of = _finished.fingerprint([images.images, images.labels, *begun])

  def until(run: Run, parts: int, variant: Variant, name: str) -> Run:
    batches = (pixels, labels, table, data_key, Variant(*map(jnp.float32, variant)))
    some_steps = functools.partial(_some_steps, settings=settings, classes=classes)

    def one_part(run: Run) -> Run:
      before, title = int(run.state.step), f"seed {seed} of {settings.pooling}"
      state, values = some_steps(run.state, *batches)
      loss = _ending.mean_loss(values, before, title, folder)
      progress.set_postfix(loss=f"{loss:.3f}")
      progress.update()
      done = Run(state, (*run.curve, loss), run.scores)
      return after(done, variant) if after and run.curve else done

    # What else an experiment is asked for, such as more seeds, changes no training.
    own = _cli.only(Settings, settings)
    what = _finished.digest((own, seed, variant, memory, made_of))
    folder = None if kept is None else kept / f"{name}-{what}"
    return _in_parts(run, parts, one_part, folder, progress, best)

  start = until(Run(state, ()), 1, AVERAGE, "start")
  pooling = recipe(settings)
  if pooling.prototypes:
    pooled = embed(start.state, images[:memory], settings).pooled
    network = _choose_prototypes(
      start.state.params["network"], pooling.averages(pooled), path=pooling.prototypes
    )
    params = start.state.params | {"network": network}
    start = start._replace(state=start.state.replace(params=params))
  return {
    name: until(start, settings.parts, variant, "on")
    for name, variant in variants.items()
  }
