"""Small networks trained under attack: all budgets and seeds as one program."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.typing import Collection, VariableDict
from jax import Array
from jax.typing import ArrayLike

from experiments.frame import kept
from experiments.frame import training as trainer
from experiments.robustness.images import CLASSES, Gaussian, Points
from experiments.robustness.settings import Config, Norm
from spherejax import attacks, distances, losses, training


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


def outputs(
  network: nn.Module, variables: VariableDict, x: Array
) -> tuple[Array, Array]:
  """Features and scores of [batch, ...]."""
  return cast(tuple[Array, Array], network.apply(variables, x))


Scores = Callable[[Array], Array]
"""Function of images to scores, which an attacker sees."""
Loss = Callable[[Array, Array, Array, Array | None], Array]
"""Function of clean scores, attacked scores, labels and proxies to losses [batch]."""
Attack = Callable[..., Array]
"""Function of scores, batch, key, budget, all points, and the rows of the batch."""


class Defence(NamedTuple):
  """A network and how it is trained."""

  settings: Config
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

  def features(self, params: Collection, x: Array) -> Array:
    """Features [batch, dim]."""
    return outputs(self.network, {"params": params}, x)[0]

  def scores(self, params: Collection) -> Scores:
    scale = self.settings.scale if self.cosine else 1.0
    return lambda x: scale * outputs(self.network, {"params": params}, x)[1]

  def pgd(
    self,
    scores: Scores,
    points: Points,
    key: Array,
    budget: ArrayLike,
    *,
    mode: Literal["evaluate", "train"] = "evaluate",
    loss: Literal["ce", "kl"] = "ce",
  ) -> attacks.AttackResult:
    """Attacks points by PGD, with the steps of an evaluation or of a training."""
    s = self.settings
    steps = s.attack_steps if mode == "train" else s.judge_steps
    return attacks.pgd(
      scores, *points, key=key, epsilon=budget, norm=self.norm, steps=steps, loss=loss,
      low=self.low, high=self.high, mode=mode,
    )  # fmt: skip

  def within_ball(
    self, scores, batch, key, epsilon, *_, loss: Literal["ce", "kl"] = "ce"
  ) -> Array:
    """PGD as an attack for training."""
    return self.pgd(scores, batch, key, epsilon, mode="train", loss=loss).x_adv


class State(NamedTuple):
  """State of one training, with its training points."""

  params: Collection
  opt_state: optax.OptState
  points: Points | Gaussian


def adversarial(clean_weight: float) -> Loss:
  """Cross-entropy of clean and attacked images."""
  return lambda clean, attacked, labels, _: losses.adversarial_training(
    clean, attacked, labels, clean_weight=clean_weight
  )


def train(
  defence: Defence,
  columns: Mapping[str, Sequence[float] | np.ndarray],
  points: Points | Callable[[Array, Mapping[str, Array]], Gaussian],
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

    def objective(params: Collection) -> Array:
      both = jnp.concatenate([x, attacked])
      clean, under_attack = jnp.split(outputs(network, {"params": params}, both)[1], 2)
      return jnp.mean(defence.loss(clean, under_attack, y, params.get("proxies")))

    loss, params, opt_state = trainer.descend(objective, optimizer, *state[:2])
    return State(params, opt_state, train_points), {"loss": loss}

  def evaluate(state: State, key, hyper):
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


def judge(
  defence: Defence, tested: Points, params: Collection, budgets: Sequence[float]
) -> np.ndarray:
  """Accuracies under attack [cells, seeds], at a budget for each cell."""
  key, seeds = jax.random.key(defence.settings.seed), len(jax.tree.leaves(params)[0][0])

  def accuracy(x, labels, model):
    scores, budget = defence.scores(model[0]), model[1]
    return 1 - jnp.mean(defence.pgd(scores, Points(x, labels), key, budget).success)

  models = params, jnp.repeat(jnp.array(budgets)[:, None], seeds, axis=1)
  return trainer.over_models(accuracy, models, *tested)
