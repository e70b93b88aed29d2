"""Trains one run of `projector_collapse` and measures it, for vmap."""

import functools
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.typing import VariableDict
from jax import Array

from experiments.frame import at_once, poolings
from experiments.frame import training as trainer
from experiments.frame.training import Hyper, Tree
from experiments.self_supervision.settings import Settings, strengths
from spherejax import data, distances, losses, metrics, models, training

BINS = 40  # bins of the distances to nearest negatives
_BLOCK = 1000  # anchors whose nearest negatives are searched at a time
_SETTLING = 50  # batches; a share of 0.9^50 of the earlier statistics is left
ENCODER, PROJECTOR = "in the encoder", "in the projector"
Variables = tuple[Tree, Tree]  # parameters and running statistics


def network(settings: Settings, axis_name: str | None = None) -> poolings.Headed:
  """Network from normalised images to the features and the projector's outputs."""
  s = settings
  if s.encoder == "resnet18":
    encoder = functools.partial(models.ResNet18, stem="small")
  else:
    encoder = functools.partial(models.ConvNet, s.widths, s.strides, norm="batch")
  shared = {"axis_name": axis_name, "convolution": s.convolution, "name": "encoder"}
  return poolings.Headed(
    functools.partial(encoder, **shared),
    functools.partial(Projector, s.projector, name="projector"),
  )


class Projector(nn.Module):
  """Linear layers without biases, with ReLU between them."""

  widths: tuple[int, ...]

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Outputs [batch, outputs]."""
    for number, width in enumerate(self.widths):
      x = nn.relu(x) if number else x
      x = nn.Dense(width, use_bias=False, name=f"layer{number}")(x)
    return x


def kernel_of(params: Tree) -> Array:
  """Kernel [features, outputs] of the projector's first layer."""
  return params["projector"]["layer0"]["kernel"]


def chance(settings: Settings, kernel: Array) -> Array:
  """Random directions [features, outputs], as many as the projector has outputs."""
  shape = len(kernel), settings.projector[-1]
  key = jax.random.fold_in(jax.random.key(settings.seed), 7)
  return jax.random.normal(key, shape, jnp.float32)  # even inside `on_host`


def alike(first: Array, second: Array) -> dict[str, Array]:
  """Mean cosine of the views of an image, SSL eq. 4 without its sign.

  Also returns the mean cosine after subtracting the mean over all views, which is large
  for features after a ReLU.
  """
  mean = (first.mean(0, keepdims=True) + second.mean(0, keepdims=True)) / 2

  def cosine(x: Array, y: Array) -> Array:
    return jnp.mean(jnp.sum(distances.l2_normalize(x) * distances.l2_normalize(y), 1))

  return {
    "similarity of views": cosine(first, second),
    "centred similarity of views": cosine(first - mean, second - mean),
  }


class Arrays(NamedTuple):
  """Arrays on the device."""

  train: Array  # uint8
  labels: Array
  coarse: Array
  test: Array  # uint8
  test_labels: Array
  mean: Array
  std: Array

  @property
  def everything(self) -> Array:
    """Training images, then test images."""
    return jnp.concatenate([self.train, self.test])

  def normalized(self, images: Array) -> Array:
    """Normalises pixels in [0, 1] for the network."""
    return data.normalize(images, self.mean, self.std)


class State(NamedTuple):
  """State of one run."""

  params: Tree
  stats: Tree
  opt_state: optax.OptState
  taken: Array  # number of steps
  probed: dict[str, Array]  # the newest accuracies
  before: dict[str, Array]  # accuracies before the first step
  kernels: Array  # [measurements, features, outputs], of the projector's first layer
  first: Variables  # before the first step
  half: Variables  # at the last measurement of the first half


class Run:
  """The pure functions of a training; the strengths of augmentation are traced."""

  def __init__(self, settings: Settings, classes: int, norm_axis: str | None = None):
    self.settings, self.classes = settings, classes
    self.network = network(settings, norm_axis)
    self.optimizer = optax.chain(
      optax.add_decayed_weights(settings.weight_decay),
      optax.sgd(settings.learning_rate, momentum=0.9),
    )

  def init(self, arrays: Arrays, key: Array, hyper: Hyper) -> State:
    """Draws the network; probes its features."""
    variables = self.initial_variables(arrays, key, hyper)
    start = params, stats = variables["params"], variables["batch_stats"]
    probed = self.probed(arrays, params, stats)
    measurements = self.settings.steps // self.settings.measure_every
    kernels = jnp.zeros((measurements, *kernel_of(params).shape))
    opt_state, taken = self.optimizer.init(params), jnp.int32(0)
    return State(*start, opt_state, taken, probed, probed, kernels, start, start)

  def initial_variables(self, arrays: Arrays, key: Array, hyper: Hyper) -> VariableDict:
    """Variables of a network before its training, with settled running statistics."""
    images = jax.ShapeDtypeStruct((2, *arrays.train.shape[1:]), jnp.float32)
    variables = self.network.lazy_init(key, images)
    settle = jax.jit(self.settled)
    stats = settle(arrays, variables, jax.random.fold_in(key, 1), hyper)
    return {**variables, "batch_stats": stats}

  def batch(self, arrays: Arrays, key: Array) -> Array:
    rows = jax.random.choice(
      key, len(arrays.train), (self.settings.batch,), replace=False
    )
    return arrays.train[rows]

  def settled(
    self, arrays: Arrays, variables: VariableDict, key: Array, hyper: Hyper
  ) -> Tree:
    """Computes running statistics of an untrained network from batches of views.

    The initial mean of 0 and variance of 1 normalise nothing, so a measurement before
    the first step would be of a different network.
    """
    params = variables["params"]

    def pass_through(stats: Tree, key: Array) -> tuple[Tree, None]:
      batch_key, view_key = jax.random.split(key)
      images = self.batch(arrays, batch_key)
      return self.terms(arrays, params, stats, images, view_key, hyper)[1], None

    keys = jax.random.split(key, _SETTLING)
    return jax.lax.scan(pass_through, variables["batch_stats"], keys)[0]

  def one_step(self, arrays: Arrays, hyper: Hyper, state: State, key: Array):
    """Trains on a batch; returns the state and the terms of the bound."""
    batch_key, view_key = jax.random.split(key)
    images = self.batch(arrays, batch_key)

    def objective(params: Tree):
      terms, stats = self.terms(arrays, params, state.stats, images, view_key, hyper)
      return jnp.mean(terms["loss"]), (terms, stats)

    (_, (terms, stats)), params, opt_state = trainer.descend(
      objective, self.optimizer, state.params, state.opt_state, has_aux=True
    )
    updates = {"params": params, "opt_state": opt_state, "taken": state.taken + 1}
    return state._replace(stats=stats, **updates), terms

  def terms(
    self,
    arrays: Arrays,
    params: Tree,
    stats: Tree,
    images: Array,
    key: Array,
    hyper: Hyper,
    axis_name: str | None = None,
  ) -> tuple[dict[str, Array], Tree]:
    """InfoNCE on two views of uint8 images, its bound, and the updated statistics.

    Each term has shape [batch] and is averaged over both directions of the loss; the
    gap between InfoNCE and its bound is the smallest over directions.
    """
    views = self.views(key, images, hyper)
    inputs = arrays.normalized(jnp.concatenate(views))
    (_, outputs), stats = trainer.forward(self.network, params, stats, inputs)
    first, second = jnp.split(outputs, 2)
    pairs = (first, second), (second, first)
    temperature = 1 / self.settings.inverse_temperature
    shared: dict[str, Any] = {"temperature": temperature, "axis_name": axis_name}
    sides = [losses.info_nce(a, b, **shared) for a, b in pairs]
    bounds = [losses.info_nce_bound(a, b, **shared) for a, b in pairs]
    gaps = [bound.value - side for bound, side in zip(bounds, sides, strict=True)]
    terms = {"loss": sides, "bound": [bound.value for bound in bounds]}
    for name in ("invariance", "repulsion"):
      terms[name] = [getattr(bound, name) for bound in bounds]
    measures = {name: (forth + back) / 2 for name, (forth, back) in terms.items()}
    measures["least gap"] = jnp.minimum(*gaps)
    return measures, stats

  def views(self, key: Array, images: Array, hyper: Hyper) -> Array:
    """Two views [2, batch, ...] of uint8 images, with pixels in [0, 1]."""
    return data.simclr_views(
      key,
      data.to_float(images),
      size=images.shape[1],
      strengths=strengths(hyper),
      integer=self.settings.integer_crops,
    )

  def features(
    self, arrays: Arrays, params: Tree, stats: Tree, images: Array
  ) -> tuple[Array, Array]:
    """Features and outputs of images, with running statistics, in blocks."""
    variables = {"params": params, "batch_stats": stats}
    images = arrays.normalized(data.to_float(images))

    def apply(block: Array) -> tuple[Array, Array]:
      return cast(tuple[Array, Array], self.network.apply(variables, block))

    return at_once.mapped(apply, images)

  # The inner jit shares one trace between the start and the steps; it is inlined.
  @functools.partial(jax.jit, static_argnums=(0, 5), inline=True)
  def measured(
    self, arrays: Arrays, params: Tree, stats: Tree, hyper: Hyper, count: int = 0
  ) -> tuple[dict[str, Array], dict[str, Array]]:
    """Geometry of features and projector on fixed views of fixed images.

    Returns measures, and arrays for later: distances, features, displacements. They are
    of the first `count` images; 0: the number in the settings.
    """
    count = min(count or self.settings.measured, len(arrays.train))
    views = self.views(jax.random.key(self.settings.seed), arrays.train[:count], hyper)
    images = data.to_float(arrays.train[:count])
    both = self.features(arrays, params, stats, jnp.concatenate([images, *views]))
    (raw, h1, h2), (_, f1, f2) = (jnp.split(x, 3) for x in both)
    near = losses.info_nce_bound(f1, f2, block_size=_BLOCK).nearest
    far = metrics.nearest_negative_distance(h1, h2, near).values
    displacements = h2 - jnp.concatenate([h1, h2])[near]
    view_arrays = {
      "distances": metrics.distance_histogram(far, bins=BINS).shares,
      "features h": raw,
      "features augmented h": h1,
      "displacements": displacements,
      "moves": h2 - h1,
    }
    measures = {
      "nearest distance": jnp.mean(far),
      "sharing": metrics.label_sharing(near, arrays.labels[:count]),
      "coarse sharing": metrics.label_sharing(near, arrays.coarse[:count]),
    }
    for place, pair in ((ENCODER, (h1, h2)), (PROJECTOR, (f1, f2))):
      measures |= {f"{name} {place}": x for name, x in alike(*pair).items()}
    if len(self.settings.projector) == 1:
      measures["unexplained"] = metrics.unexplained_variance(
        displacements, kernel_of(params)
      )
    return {name: x.astype(jnp.float32) for name, x in measures.items()}, view_arrays

  @functools.partial(jax.jit, static_argnums=0, inline=True)
  def probed(self, arrays: Arrays, params: Tree, stats: Tree) -> dict[str, Array]:
    """Accuracies of linear classifiers on features and on outputs."""
    both = self.features(arrays, params, stats, arrays.everything)
    names = "probe", "probe of outputs"
    return {n: self.accuracy(arrays, x) for n, x in zip(names, both, strict=True)}

  @functools.partial(jax.jit, static_argnums=0)
  def probed_by_chance(self, arrays: Arrays, params: Tree, stats: Tree) -> Array:
    """Accuracy of a linear classifier on random projections, as many as outputs."""
    directions = chance(self.settings, kernel_of(params))
    rows, _ = self.features(arrays, params, stats, arrays.everything)
    return self.accuracy(arrays, rows @ directions)

  def accuracy(self, arrays: Arrays, rows: Array) -> Array:
    """Accuracy of a linear classifier; `rows` starts with the training images."""
    number = len(arrays.train)
    probe = training.linear_probe(
      rows[:number], arrays.labels, num_classes=self.classes, penalty=1e-3, steps=60
    )
    right = probe.logits(rows[number:]).argmax(axis=1) == arrays.test_labels
    return jnp.mean(right.astype(jnp.float32))

  def period(self, arrays: Arrays, state: State, key: Array, hyper: Hyper):
    """Trains up to the next measurement, and measures."""
    keys = jax.random.split(key, self.settings.measure_every)
    state, terms = jax.lax.scan(
      functools.partial(self.one_step, arrays, hyper), state, keys
    )
    least = jnp.min(terms.pop("least gap"))
    figures = {name: jnp.mean(x) for name, x in terms.items()} | {"least gap": least}
    measures, _ = self.measured(arrays, state.params, state.stats, hyper)
    probed = training.when(
      state.taken % self.settings.probe_every == 0,
      lambda _: self.probed(arrays, state.params, state.stats),
      state.probed,
    )
    at = state.taken // self.settings.measure_every
    current = state.params, state.stats
    is_half = state.taken == self.settings.halfway
    half = jax.tree.map(functools.partial(jnp.where, is_half), current, state.half)
    kernels = state.kernels.at[at - 1].set(kernel_of(state.params))
    state = state._replace(probed=probed, kernels=kernels, half=half)
    return state, figures | measures | probed
