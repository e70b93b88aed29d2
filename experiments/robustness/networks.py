"""Small networks trained under attack: all budgets and seeds as one program."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.frame import kept
from experiments.frame import training as trainer
from experiments.frame.settings import Without
from experiments.robustness.images import CLASSES, Points
from spherejax import attacks, distances, losses, training

Norm = Literal["l2", "linf", "l1"]
_T = TypeVar("_T")
OfSmall = Annotated[_T, Without("images", ("cifar10", "svhn_cropped"))]
OfDigits = Annotated[_T, Without("images", ("cifar10_16", "cifar10", "svhn_cropped"))]


@dataclasses.dataclass(frozen=True)
class Settings:
  """Settings of the networks and of their training."""

  seed: int = 0
  """First seed."""
  seeds: int = 3
  """Runs of each training."""
  hidden: OfSmall[int] = 128
  """Units of the first layer."""
  dim: OfSmall[int] = 64
  """Units of the second layer, whose values are the features."""
  steps: OfSmall[int] = 600
  """Training steps: 60 epochs of the digits."""
  batch: OfSmall[int] = 128
  """Images per step."""
  learning_rate: OfSmall[float] = 1e-3
  """Learning rate of Adam."""
  clean_weight: float = 0.5
  """Weight of the clean images in the loss (DIST eq. 3.7)."""
  attack_steps: int = 7
  """Steps of the attack in training, of size 2.5 budget / steps."""
  judge_steps: int = 40
  """Steps of the attack that measures accuracy."""
  scale: OfDigits[float] = 16.0
  """Scale of the cosines, for losses of angles."""


class Network(nn.Module):
  """Network of two layers; returns class scores, or cosines with proxies."""

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
"""Function of clean scores, attacked scores, labels and proxies to one loss per
image."""
Attack = Callable[..., Array]
"""Function of scores, batch, key, budget, all points, and the rows of the batch."""


class Defence(NamedTuple):
  """A network and how it is trained."""

  settings: Settings
  loss: Loss
  norm: Norm = "l2"
  cosine: bool = False
  low: float = 0.0
  high: float = 1.0
  attack: Attack | None = None  # attack in training; None: PGD on the cross-entropy
  classes: int = CLASSES

  @property
  def network(self) -> Network:
    s = self.settings
    return Network(self.classes, s.hidden, s.dim, self.cosine)

  def features(self, params: Any, x: Array) -> Array:
    """Features [batch, dim]."""
    return self.network.apply({"params": params}, x)[0]  # pyright: ignore

  def scores(self, params: Any) -> Callable[[Array], Array]:
    """Returns the function from images to scores that an attacker sees."""
    scale = self.settings.scale if self.cosine else 1.0
    return lambda x: scale * self.network.apply({"params": params}, x)[1]  # pyright: ignore

  def pgd(
    self, scores: Any, points: Points, key: Array, budget: Any, **options: Any
  ) -> attacks.AttackResult:
    """Attacks points by PGD for an evaluation; `options` go to `attacks.pgd`."""
    chosen: Any = {"norm": self.norm, "low": self.low, "high": self.high}
    chosen |= {"steps": self.settings.judge_steps} | options
    return attacks.pgd(scores, *points, key=key, epsilon=budget, **chosen)

  def within_ball(self, scores, batch, key, epsilon, *_, loss="ce") -> Array:
    """PGD as an attack for training."""
    options: Any = {"steps": self.settings.attack_steps, "loss": loss, "mode": "train"}
    return self.pgd(scores, batch, key, epsilon, **options).x_adv


class State(NamedTuple):
  """State of one training, with its training points."""

  params: Any
  opt_state: Any
  points: Points


def adversarial(clean_weight: float) -> Loss:
  """Cross-entropy of clean and attacked images."""
  return lambda clean, attacked, labels, _: losses.adversarial_training(
    clean, attacked, labels, clean_weight=clean_weight
  )


def train(
  defence: Defence,
  columns: Mapping[str, Sequence[float]],
  points: Points | Callable[[Array, Mapping[str, Array]], Points],
  tested: Points,
  folder: pathlib.Path,
) -> training.SweepResult:
  """Trains all cells and seeds at once, on points or on a draw for each run.

  Results in `folder` with the same settings are read instead of trained again.
  """
  s, network = defence.settings, defence.network
  optimizer = optax.adam(s.learning_rate)
  attack = defence.attack or defence.within_ball

  def init(key, hyper):
    # All cells of a seed begin alike.
    params = network.init(key, tested.x[:1])["params"]
    train_points = points(key, hyper) if callable(points) else points
    return State(params, optimizer.init(params), train_points)

  def step(state: State, key: Array, hyper):
    row_key, attack_key = jax.random.split(key)
    train_points = state.points
    rows = jax.random.choice(row_key, len(train_points.y), (s.batch,), replace=False)
    x, y = batch = Points(train_points.x[rows], train_points.y[rows])
    scores = defence.scores(state.params)
    attacked = attack(scores, batch, attack_key, hyper["epsilon"], train_points, rows)

    def objective(params):
      outputs: Any = network.apply({"params": params}, jnp.concatenate([x, attacked]))
      clean, under_attack = jnp.split(outputs[1], 2)
      return jnp.mean(defence.loss(clean, under_attack, y, params.get("proxies")))

    loss, params, opt_state = trainer.descend(objective, optimizer, *state[:2])
    return State(params, opt_state, train_points), {"loss": loss}

  def evaluate(state, key, hyper):
    del key, hyper
    logits = defence.scores(state.params)(tested.x)
    return jnp.mean(jnp.argmax(logits, axis=1) == tested.y)

  return trainer.many(
    jax.random.key(s.seed),
    (init, step, evaluate),
    columns,
    folder.with_name(f"{folder.name}-{kept.digest(s)}"),
    seeds=range(s.seed, s.seed + s.seeds),
    steps=s.steps,
    evaluate_every=s.steps,
    progress=False,
  )


def judge(defence: Defence, tested: Points, params: Any, budgets: Any) -> np.ndarray:
  """Accuracies under attack [cells, seeds], at a budget for each cell."""
  key, seeds = jax.random.key(defence.settings.seed), len(jax.tree.leaves(params)[0][0])

  def accuracy(x, labels, model):
    scores, budget = defence.scores(model[0]), model[1]
    return 1 - jnp.mean(defence.pgd(scores, Points(x, labels), key, budget).success)

  models = params, jnp.repeat(jnp.array(budgets)[:, None], seeds, axis=1)
  return trainer.over_models(accuracy, models, *tested)
