"""Small networks trained under attack: all budgets and seeds as one program."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.frame import kept as finished
from experiments.frame.digits import Points
from experiments.frame.settings import Without
from spherejax import attacks, distances, losses, training

Norm = Literal["l2", "linf", "l1"]
_T = TypeVar("_T")
OfDigits = Annotated[_T, Without("images", ("cifar10", "svhn_cropped"))]


@dataclasses.dataclass(frozen=True)
class Settings:
  """Settings of the networks and of their training."""

  seed: int = 0
  """First seed."""
  seeds: int = 3
  """Runs of each training."""
  hidden: OfDigits[int] = 128
  """Units of the first layer."""
  dim: OfDigits[int] = 64
  """Units of the second layer, whose values are the features."""
  steps: OfDigits[int] = 600
  """Training steps: 60 epochs of the digits."""
  batch: OfDigits[int] = 128
  """Images of a step."""
  learning_rate: OfDigits[float] = 1e-3
  """Of Adam."""
  clean_weight: float = 0.5
  """Share of the clean images in the loss (DIST eq. 3.7)."""
  attack_steps: int = 7
  """Steps of the attack in training, each of 2.5 budget / steps."""
  judge_steps: int = 40
  """Steps of the attack that decides about accuracy."""
  scale: OfDigits[float] = 16.0
  """Of the cosines, where the loss is of angles."""


class Network(nn.Module):
  """Two layers; scores of the classes, or cosines with their proxies."""

  classes: int
  hidden: int
  dim: int
  cosine: bool = False

  @nn.compact
  def __call__(self, x: Array) -> tuple[Array, Array]:
    """Features and scores of [batch, ...]."""
    hidden = nn.relu(nn.Dense(self.hidden)(x.reshape(len(x), -1)))
    features = nn.relu(nn.Dense(self.dim)(hidden))
    if not self.cosine:
      return features, nn.Dense(self.classes)(features)
    shape = (self.classes, self.dim)
    proxies = self.param("proxies", nn.initializers.normal(1.0), shape)
    return features, distances.pairwise_cosine(features, proxies)


Loss = Callable[[Array, Array, Array, Array | None], Array]
"""Of clean scores, attacked scores, labels and proxies; one value an image."""


Attack = Callable[..., Array]
"""Of scores, the training set, the rows of the batch, key and budget."""


class Defence(NamedTuple):
  """How a network is trained."""

  loss: Loss
  norm: Norm = "l2"
  cosine: bool = False
  low: float = 0.0
  high: float = 1.0
  attack: Attack | None = None
  """In training; None is PGD on the cross-entropy."""


class State(NamedTuple):
  """One training, with the points that it is of."""

  params: Any
  opt_state: Any
  points: Points


def adversarial(settings: Settings) -> Loss:
  """Cross-entropy of clean and attacked images."""
  return lambda clean, attacked, labels, _: losses.adversarial_training(
    clean, attacked, labels, clean_weight=settings.clean_weight
  )


def within_ball(
  settings: Settings, defence: Defence, loss: Literal["ce", "kl"] = "ce"
) -> Attack:
  """PGD for training."""

  def attack(scores, points, rows, key, epsilon):
    return attacks.pgd(
      scores,
      points.x[rows],
      points.y[rows],
      key=key,
      epsilon=epsilon,
      norm=defence.norm,
      steps=settings.attack_steps,
      loss=loss,
      low=defence.low,
      high=defence.high,
      mode="train",
    ).x_adv

  return attack


def network(settings: Settings, defence: Defence, classes: int) -> Network:
  """The network of a defence."""
  return Network(classes, settings.hidden, settings.dim, defence.cosine)


def scorer(settings: Settings, defence: Defence, classes: int, params: Any):
  """Images to scores, as an attacker sees them."""
  built = network(settings, defence, classes)
  scale = settings.scale if defence.cosine else 1.0

  def scores(x):
    found: Any = built.apply({"params": params}, x)
    return scale * found[1]

  return scores


def train(
  settings: Settings,
  defence: Defence,
  columns: Mapping[str, Sequence[float]],
  points: Points | Callable[[Array, Mapping[str, Array]], Points],
  tested: Points,
  *,
  classes: int,
  folder: pathlib.Path,
) -> training.SweepResult:
  """All cells and seeds at once, of points or of what a function draws for a run.

  What was trained under a path of `folder` with the same settings is read from there.
  """

  def init(key, hyper):
    # All cells of a seed begin alike.
    drawn: Any = network(settings, defence, classes).init(key, tested.x[:1])
    params = drawn["params"]
    optimizer = optax.adam(settings.learning_rate)
    own = points(key, hyper) if callable(points) else points
    return State(params, optimizer.init(params), own)

  def evaluate(state, key, hyper):
    del key, hyper
    found = scorer(settings, defence, classes, state.params)(tested.x)
    return jnp.mean(jnp.argmax(found, axis=1) == tested.y)

  step = functools.partial(_step, settings, defence, classes)
  kept = folder.with_name(f"{folder.name}-{finished.digest(settings)}")
  with training.Checkpoints(kept) as checkpoints:
    return training.sweep(
      jax.random.key(settings.seed),
      init,
      step,
      evaluate,
      columns,
      seeds=range(settings.seed, settings.seed + settings.seeds),
      steps=settings.steps,
      evaluate_every=settings.steps,
      checkpoints=checkpoints,
      progress=False,
    )


def _step(settings, defence, classes, state: State, key: Array, hyper):
  row_key, attack_key = jax.random.split(key)
  own = state.points
  rows = jax.random.choice(row_key, len(own.y), (settings.batch,), replace=False)
  x, y = own.x[rows], own.y[rows]
  attack = defence.attack or within_ball(settings, defence)
  scores = scorer(settings, defence, classes, state.params)
  attacked = attack(scores, own, rows, attack_key, hyper["epsilon"])
  built = network(settings, defence, classes)

  def objective(params):
    both: Any = built.apply({"params": params}, jnp.concatenate([x, attacked]))
    clean, under_attack = jnp.split(both[1], 2)
    return jnp.mean(defence.loss(clean, under_attack, y, params.get("proxies")))

  loss, grads = jax.value_and_grad(objective)(state.params)
  optimizer = optax.adam(settings.learning_rate)
  updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
  params: Any = optax.apply_updates(state.params, updates)
  return State(params, opt_state, own), {"loss": loss}


def over_models(function: Callable) -> Callable:
  """Of models, [cells, seeds, ...] each, and arrays: function(*arrays, model)."""

  @jax.jit
  def compiled(models, shared):
    def cell(models):
      return jax.lax.map(lambda model: function(*shared, model), models)

    return jax.lax.map(cell, models)

  return lambda models, *shared: jax.tree.map(np.asarray, compiled(models, shared))


def judge(
  settings: Settings, defence: Defence, tested: Points, *, classes: int
) -> Callable[[Any, Array], np.ndarray]:
  """Of parameters and budgets [cells]: the share right under attack, [cells, seeds]."""

  def one(model):
    params, budget = model
    found = attacks.pgd(
      scorer(settings, defence, classes, params),
      tested.x,
      tested.y,
      key=jax.random.key(settings.seed),
      epsilon=budget,
      norm=defence.norm,
      steps=settings.judge_steps,
      low=defence.low,
      high=defence.high,
    )
    return 1 - jnp.mean(found.success)

  judged = over_models(one)

  def accuracy(params, budgets):
    seeds = jax.tree.leaves(params)[0].shape[1]
    return judged((params, jnp.repeat(budgets[:, None], seeds, axis=1)))

  return accuracy
