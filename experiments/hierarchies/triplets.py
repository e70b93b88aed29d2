"""Training of `plankton`: triplets with a growing margin."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.typing import VariableDict
from jax import Array

from experiments.frame.images import Parts
from experiments.frame.settings import Limited, Within
from experiments.hierarchies import methods
from experiments.hierarchies import training as class_training
from experiments.hierarchies.training import Curves
from spherejax import data, distances, losses, metrics, prototypes, training

MOMENTUM = 0.9  # momentum of SGD in the article's released code
_NEAR = np.array([True, False])  # mask of positives: a positive, then a negative
Report = Callable[[int], object]  # gets the number of finished iterations


@dataclasses.dataclass(frozen=True)
class Settings(methods.Architecture, Limited):
  """Network and training."""

  seed: int = 0
  """Seed of everything random."""
  triplets: Annotated[int, Within(1)] = 48
  """Triplets per step."""
  iterations: Annotated[int, Within(1)] = 8
  """Parts of the training; the embedding is measured after each."""
  steps: Annotated[int, Within(1)] = 100
  """Steps per iteration."""
  margins: Annotated[tuple[float, ...], Within(1e-6, 4)] = (1.0, 1.3)
  """Successive margins between squared distances of unit vectors."""
  raised_after: Annotated[tuple[int, ...], Within(1)] = (5,)
  """Iterations after which the next margin applies."""
  optimizer: Literal["adam", "sgd"] = "adam"
  """Optimiser; SGD has momentum 0.9."""
  learning_rate: Annotated[float, Within(1e-9)] = 1e-3
  """Learning rate of the first iteration."""
  decay: Annotated[float, Within(1e-9)] = 0.9
  """Factor of the learning rate from one iteration to the next."""
  baseline_batch: Annotated[int, Within(1)] = 64
  """Images per step of the softmax classifier."""
  baseline_rate: Annotated[float, Within(1e-9)] = 1e-3
  """Learning rate of the classifier in the first iteration."""
  baseline_decay: Annotated[float, Within(1e-9)] = 0.9
  """Factor of the classifier's learning rate from one iteration to the next."""
  baseline_epochs: int = 0
  """Passes of the classifier over the training images; 0: as many images as in the
  triplets."""


def margin_schedule(settings: Settings, iteration: int) -> float:
  """The margin of an iteration, counted from 1."""
  return settings.margins[sum(iteration > last for last in settings.raised_after)]


def length(settings: Settings) -> int:
  """Number of trained iterations, with those that keep the first margin throughout."""
  return 2 * settings.iterations - unraised(settings)


def unraised(settings: Settings) -> int:
  """Iterations before the margin is raised for the first time."""
  return min([settings.iterations, *settings.raised_after[:1]])


def make_optimizer(
  settings: Settings, rate: float, decay: float, decay_steps: int
) -> optax.GradientTransformation:
  """Optimiser of the settings' kind, with a stepwise decay of the learning rate."""

  def schedule(count):
    return rate * decay ** (count // decay_steps)

  if settings.optimizer == "sgd":
    return optax.sgd(schedule, momentum=MOMENTUM)
  return optax.adam(schedule)


def triplet_objective(params, batch_stats, batch, *, key, axis_name, settings):
  """Mean hinge of the batch's triplets, including those with zero loss."""
  del key
  images = jax.lax.collapse(batch["image"], 0, 2)
  features, updated = methods.forward(settings, params, batch_stats, images, axis_name)
  points = distances.l2_normalize(features).reshape(-1, 3, settings.dim)
  squares = [distances.squared_euclidean(points[:, 0], points[:, k]) for k in (1, 2)]
  near = jnp.broadcast_to(_NEAR, (len(points), 2))
  hinges = losses.triplet_from_distance(
    jnp.stack(squares, 1), near, ~near, margin=batch["margin"][0], average="all"
  )
  mean = training.global_mean(hinges, axis_name=axis_name)
  active = training.global_mean((hinges > 0).astype(jnp.float32), axis_name=axis_name)
  return training.Outcome(mean, updated, {"active": active})


def triplet_batches(
  images: data.Images, key: Array, settings: Settings, margin_of: Callable[[int], float]
) -> Callable[[int], Iterator[dict[str, np.ndarray]]]:
  """Batches for `training.fit`: triplets, uniform over the classes, and the margin."""
  table = data.class_table(images.labels, per_class=2, label_names=images.label_names)

  def draw(step):
    triplet_rows = data.sample_triplets(
      jax.random.fold_in(key, step), table, batch_size=settings.triplets
    )
    return jnp.stack(triplet_rows[:3], axis=1).reshape(-1)

  plan = jax.jit(jax.vmap(draw))

  def begin(first: int) -> Iterator[dict[str, np.ndarray]]:
    for iteration in range(first // settings.steps, settings.iterations):
      start = iteration * settings.steps
      rows = np.asarray(plan(jnp.arange(settings.steps) + start))
      margin = np.float32(margin_of(iteration + 1))
      for batch in data.pipeline(images, rows, start=max(first - start, 0)):
        triplets = batch["image"].reshape(-1, 3, *batch["image"].shape[1:])
        yield {"image": triplets, "margin": np.full(len(triplets), margin)}

  return begin


def embed(
  variables: VariableDict, images: data.Images, settings: Settings
) -> np.ndarray:
  """Embeds images as unit rows [count, dim]."""
  rows = class_training.embed(variables, images, settings)
  lengths = np.linalg.norm(rows, axis=1, keepdims=True)
  return rows / np.where(lengths > 0, lengths, 1)


def nearest_centroids(means: prototypes.ClassMeans, points: Array) -> Array:
  """The class whose mean is nearest to each point, among those that have images."""
  classes = len(means.means)
  labels, there = jnp.arange(classes), means.counts > 0
  return prototypes.nearest_neighbours(
    points, means.means, labels, num_classes=classes, where=there
  )


@functools.partial(jax.jit, static_argnames=("classes",))
def _distribution(
  points: Array, labels: Array, *, classes: int
) -> tuple[Array, Array, Array]:
  means = prototypes.class_means(points, labels, classes, normalize="none")
  radii = metrics.cluster_radii(points, labels, means.means)
  right = nearest_centroids(means, points) == labels
  return means.means, radii, jnp.mean(right)


def distribution(
  variables: VariableDict, images: data.Images, settings: Settings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Centroids and radii of classes, and the accuracy of the nearest centroid.

  The accuracy is on the same images that gave the centroids.
  """
  points = embed(variables, images, settings)
  result = _distribution(points, images.labels, classes=len(images.label_names))
  return jax.device_get(result)


def _stretch(settings, study: Parts, step, state, end, margin_of, key, folder, report):
  """Trains up to an iteration; resumes a stopped run."""
  validation = study.validation
  with training.Checkpoints(folder) as checkpoints:
    restored = checkpoints.restore(state)
    start = state if restored is None else restored.state
    previous = distribution(start.variables(), validation, settings)[0]
    report((int(start.step) - int(state.step)) // settings.steps)

    def evaluate(state: training.TrainState) -> dict[str, float]:
      nonlocal previous
      centroids, radii, accuracy = distribution(state.variables(), validation, settings)
      drift = np.linalg.norm(centroids - previous, axis=1)
      previous = centroids
      report(1)
      figures = {"radius": radii.mean(), "drift": drift.mean(), "accuracy": accuracy}
      for c in range(len(radii)):
        figures |= {f"radius {c}": radii[c], f"drift {c}": drift[c]}
      return {name: float(value) for name, value in figures.items()}

    return training.fit(
      state,
      step,
      triplet_batches(study.train, key, settings, margin_of),
      steps=end * settings.steps,
      evaluate=evaluate,
      evaluate_every=settings.steps,
      checkpoints=checkpoints,
      checkpoint_every=settings.steps,
      report_every=settings.steps,
      progress=False,
    )


def train_embedding(
  settings: Settings, study: Parts, key: Array, folder: pathlib.Path, report: Report
) -> tuple[VariableDict, VariableDict, Curves, Curves]:
  """Trains the embedding; shares the iterations before the margin is raised.

  Returns the variables before the first step and after the last one. Curves after every
  iteration follow, whose first drift is from the initial weights. The last entry has
  these with the first margin throughout, or none if the margin is never raised.
  """
  network_key, step_key, data_key = jax.random.split(key, 3)
  shapes = methods.shapes(study.train)
  start = methods.initial_variables(
    network_key, settings=settings, shapes=shapes, fresh=False
  )
  optimizer = make_optimizer(
    settings, settings.learning_rate, settings.decay, settings.steps
  )
  state = training.create_state(step_key, optimizer, start)
  objective = functools.partial(triplet_objective, settings=settings)
  # Traces the step once for all segments.
  step = jax.jit(
    training.make_step(objective, optimizer), static_argnames="axis_name", inline=True
  )
  run = functools.partial(_stretch, settings, study, step, key=data_key, report=report)
  raised = functools.partial(margin_schedule, settings)
  common = unraised(settings)
  first = run(state, common, raised, folder=folder / "first")
  if common == settings.iterations:
    curves = class_training.curves(first.evaluations)
    return start, first.state.variables(), curves, {}
  branches = [
    run(first.state, settings.iterations, margin_of, folder=folder / name)
    for name, margin_of in (("raised", raised), ("kept", lambda _: settings.margins[0]))
  ]
  curves = [class_training.curves(first.evaluations + x.evaluations) for x in branches]
  return start, branches[0].state.variables(), curves[0], curves[1]
