"""Defences side by side, votes under noise, training in the combined ball.

DIST 3.2, 6.1 and its appendix A, of which the paper shows no results.
"""

import functools
import math
import pathlib
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from experiments.frame import results
from experiments.frame.digits import Points
from experiments.robustness import networks
from spherejax import attacks, distances, losses, voronoi

STANDARD, FRESH, MIXED = "standard", "attacked", "clean and attacked"
TRADES: dict[str, tuple[str, float]] = {
  "TRADES, ce, weight 1": ("ce", 1.0),
  "TRADES, ce, weight 6": ("ce", 6.0),
  "TRADES, kl, weight 1": ("kl", 1.0),
  "TRADES, kl, weight 6": ("kl", 6.0),
}
CELLS = {"cells of all": False, "cells of other classes": True}
Name = Literal[
  "standard",
  "attacked",
  "clean and attacked",
  "TRADES, ce, weight 1",
  "TRADES, ce, weight 6",
  "TRADES, kl, weight 1",
  "TRADES, kl, weight 6",
  "cells of all",
  "cells of other classes",
]
DEFENCES: tuple[Name, ...] = get_args(Name)
RADII = (0.0, 0.1, 0.25, 0.5)
ALPHA = 0.001


def _neighbours(config, train: Points, *, others: bool) -> distances.Neighbours:
  """The nearest training images of each, of other classes alone if asked for."""
  itself = jnp.arange(len(train.y))
  return distances.k_nearest(
    train.x,
    train.x,
    k=min(config.neighbours, len(itself) - 1),
    exclude=itself,
    apart=(train.y, train.y) if others else None,
  )


def _defences(config, train: Points) -> dict[str, tuple[Any, float]]:
  """How each network is trained, and within which budget."""

  def adversarial(clean_weight):
    return lambda clean, attacked, labels, _: losses.adversarial_training(
      clean, attacked, labels, clean_weight=clean_weight
    )

  def trades(divergence, weight):
    return lambda clean, attacked, labels, _: losses.trades(
      clean, attacked, labels, weight=weight, divergence=divergence
    )

  def within_cells(others: bool):
    nearest = _neighbours(config, train, others=others)

    def attack(scores, points, rows, key, epsilon):
      return voronoi.voronoi_pgd(
        scores,
        points.x[rows],
        points.y[rows],
        rows,
        points.x,
        key=key,
        epsilon=epsilon,
        nearest=jax.tree.map(lambda x: x[rows], nearest),
        site_labels=points.y if others else None,
        steps=config.attack_steps,
        sweeps=0,
        mode="train",
        exact=False,
      ).x_adv

    return attack

  def defence(loss, attack=None):
    return networks.Defence(loss, attack=attack)

  budget, plain = config.proposed_budget, defence(adversarial(0.0))
  found = {
    STANDARD: (plain, 0.0),
    FRESH: (plain, budget),
    MIXED: (defence(adversarial(0.5)), budget),
  }
  own = networks.within_ball(config, plain, loss="kl")
  for name, (divergence, weight) in TRADES.items():
    found[name] = (defence(trades(divergence, weight), own), budget)
  for name, others in CELLS.items():
    if name in config.defences:  # the search for neighbours is not free
      found[name] = (defence(adversarial(0.5), within_cells(others)), math.inf)
  return {name: found[name] for name in config.defences}


def side_by_side(
  config, train: Points, test: Points, classes: int, folder: pathlib.Path
) -> tuple[list[Any], list[Any]]:
  """Accuracy of each defence under the ensemble, and within cells."""
  trained, accuracy = [], []
  defences = _defences(config, train)
  for name, (defence, budget) in defences.items():
    result = networks.train(
      config,
      defence,
      {"epsilon": [budget]},
      lambda key, hyper: train,
      test,
      classes=classes,
      folder=folder / name.replace(", ", "-").replace(" ", "-"),
    )
    trained.append(result.state.params)
    accuracy.append(result.scores[0, :, -1])
  params = jax.tree.map(lambda *x: jnp.concatenate(x), *trained)
  plain = next(iter(defences.values()))[0]
  score = functools.partial(networks.scorer, config, plain, classes)
  key = jax.random.key(config.seed)
  nearest = _neighbours(config, train, others=False)

  def within_ball(test, epsilon, params):
    found = attacks.ensemble(
      score(params),
      test.x,
      test.y,
      key=key,
      epsilon=epsilon,
      norm="l2",
      steps=config.judge_steps,
    )
    return 1 - jnp.mean(found.success)

  def within_cells(train, nearest, params):
    found = voronoi.voronoi_pgd(
      score(params),
      train.x,
      train.y,
      jnp.arange(len(train.y)),
      train.x,
      key=key,
      nearest=nearest,
      steps=config.judge_steps,
      restarts=1,
    )
    return 1 - jnp.mean(found.success)

  budgets = (config.proposed_budget / 2, config.proposed_budget)
  judged = networks.over_models(within_ball)
  figures = {"accuracy": np.array(accuracy)} | {
    f"under the ensemble at l2 {x:g}": judged(params, test, jnp.float32(x))
    for x in budgets
  }
  cells = networks.over_models(within_cells)
  figures["of training images within cells"] = cells(params, train, nearest)
  rows = [
    results.row(f"defence: {name}", measure, values[number])
    for number, name in enumerate(defences)
    for measure, values in figures.items()
  ]
  return rows, _defence_claims(list(defences), figures, budgets)


def _defence_claims(names: list[str], figures: dict[str, np.ndarray], budgets):
  at = {name: number for number, name in enumerate(names)}
  attacked = [figures[f"under the ensemble at l2 {x:g}"] for x in budgets]
  clean, cells = figures["accuracy"], figures["of training images within cells"]
  if set(names) != set(DEFENCES):
    return []
  made = {
    f"X14-robust-{name}": (
      f"accuracy under the ensemble, both budgets: {name} > standard",
      np.min([x[number] - x[at[STANDARD]] for x in attacked], axis=0),
    )
    for name, number in at.items()
    if name != STANDARD
  }
  made["X14-mixed"] = (
    "clean accuracy: half of the loss on clean images >= none of it, to 0.02",
    clean[at[MIXED]] - clean[at[FRESH]] + 0.02,
  )
  made |= {
    f"X14-{name}": (
      f"accuracy of training images within their cells: {name} > standard",
      cells[at[name]] - cells[at[STANDARD]],
    )
    for name in CELLS
  }
  return [
    results.claim(
      key.replace(", ", "-").replace(" ", "-"), text, values, paper="DIST 3.2"
    )
    for key, (text, values) in made.items()
  ]


def noisy(
  config, train: Points, test: Points, classes: int, folder: pathlib.Path
) -> tuple[list[Any], list[Any]]:
  """Does training under noise let votes under noise certify more?"""

  def add(scores, points, rows, key, epsilon):
    del scores
    x = points.x[rows]
    return x + epsilon * jax.random.normal(key, x.shape)

  def on_noise(clean, attacked, labels, _):
    return losses.adversarial_training(clean, attacked, labels, clean_weight=0.0)

  defence = networks.Defence(on_noise, attack=add)
  result = networks.train(
    config,
    defence,
    {"epsilon": [0.0, config.noise]},
    lambda key, hyper: train,
    test,
    classes=classes,
    folder=folder / "noise",
  )

  def votes(test, params):
    keys = jax.random.split(jax.random.key(config.seed))
    score = networks.scorer(config, defence, classes, params)
    return [
      attacks.smoothed_votes(score, test.x, key=key, sigma=config.noise, draws=draws)
      for key, draws in zip(keys, (100, config.votes), strict=True)
    ]

  chosen, counts = networks.over_models(votes)(result.state.params, test)
  certified = np.zeros((len(RADII), *chosen.shape[:2]))
  for cell, seed in np.ndindex(*chosen.shape[:2]):
    found = attacks.smoothed_certificate(
      chosen[cell, seed], counts[cell, seed], sigma=config.noise, alpha=ALPHA
    )
    right = found.label == np.asarray(test.y)
    for number, radius in enumerate(RADII):
      certified[number, cell, seed] = np.mean(right & (found.radius >= radius))
  rows = [
    results.row(
      f"votes under noise {config.noise:g}, trained {how}",
      f"certified at l2 {radius:g}",
      certified[number, cell],
    )
    for cell, how in enumerate(("without noise", "under it"))
    for number, radius in enumerate(RADII)
  ]
  claim = results.claim(
    "X13-noise",
    f"certified accuracy at {RADII[2]:g}: trained under noise > without",
    certified[2, 1] - certified[2, 0],
    paper="DIST 3.2",
  )
  return rows, [claim]


def combined(
  config, train: Points, test: Points, classes: int, folder: pathlib.Path
) -> tuple[list[Any], list[Any]]:
  """Does training in the combined ball help in every norm?

  DIST, appendix A.
  """
  loss = networks.adversarial(config)
  first, last = config.combined
  plain = networks.Defence(loss, "linf")

  def attack(scores, points, rows, key, epsilon):
    x = points.x[rows]
    region = attacks.combined_ball(x, epsilon_1=first, epsilon_inf=epsilon)
    return attacks.pgd(
      scores,
      x,
      points.y[rows],
      key=key,
      region=region,
      steps=config.attack_steps,
      mode="train",
    ).x_adv

  # Both networks have the same judges.
  judges = {
    (norm, budget): networks.judge(
      config, plain._replace(norm=norm), test, classes=classes
    )
    for norm, budget in (("l1", first), ("l2", 0.5), ("linf", last))
  }
  figures = {}
  for name, defence in (
    ("l-infinity", plain),
    ("combined ball", plain._replace(attack=attack)),
  ):
    result = networks.train(
      config,
      defence,
      {"epsilon": [last]},
      lambda key, hyper: train,
      test,
      classes=classes,
      folder=folder / name.replace(" ", "-"),
    )
    found = {"accuracy": result.scores[0, :, -1]}
    for (norm, budget), judged in judges.items():
      under = judged(result.state.params, jnp.array([budget]))
      found[f"accuracy under {norm} {budget:g}"] = under[0]
    figures[name] = found
  rows = [
    results.row(f"trained in the {name}", measure, values)
    for name, found in figures.items()
    for measure, values in found.items()
  ]
  worst = [np.min(list(found.values())[1:], axis=0) for found in figures.values()]
  claim = results.claim(
    "X6-training",
    "least accuracy under l1, l2 and l-infinity: trained in the combined ball > in the "
    "l-infinity ball alone",
    worst[1] - worst[0],
    paper="DIST appendix A",
  )
  return rows, [claim]
