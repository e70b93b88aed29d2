"""Defences side by side, votes under noise, training in the combined ball.

DIST 3.2, 6.1 and its appendix A, of which the paper shows no results.
"""

import functools
import math
import pathlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.frame import training as trainer
from experiments.frame.study import Claim, Statement, Table
from experiments.robustness import networks
from experiments.robustness.images import Points
from experiments.robustness.settings import DEFENCES, Ball, Config
from spherejax import attacks, distances, losses, voronoi

STANDARD, FRESH, MIXED = "standard", "attacked", "clean and attacked"
TRADES = {
  f"TRADES, {name}, weight {weight:g}": (name, weight)
  for name in ("ce", "kl")
  for weight in (1.0, 6.0)
}
CELLS = {"cells of all": False, "cells of other classes": True}
RADII = (0.0, 0.1, 0.25, 0.5)
ALPHA = 0.001
WITHIN = "of training images within cells"


def _neighbours(config: Config, train: Points, *, others: bool) -> distances.Neighbours:
  """The nearest training images of each; with `others`, only of other classes."""
  rows, labels = jnp.arange(len(train.y)), (train.y, train.y) if others else None
  k = min(config.neighbours, len(rows) - 1)
  return distances.k_nearest(train.x, train.x, k=k, exclude=rows, apart=labels)


def _defences(
  config: Config, train: Points
) -> dict[str, tuple[networks.Defence, float]]:
  """Defence and budget of each network."""

  def trades(divergence, weight):
    return lambda clean, attacked, labels, _: losses.trades(
      clean, attacked, labels, weight=weight, divergence=divergence
    )

  def within_cells(others: bool):
    nearest = _neighbours(config, train, others=others)

    def attack(scores, batch, key, epsilon, points, rows):
      near = jax.tree.map(lambda x: x[rows], nearest)
      site_labels = points.y if others else None
      attacked = voronoi.voronoi_pgd(
        scores, batch.x, batch.y, rows, points.x, key=key, epsilon=epsilon,
        nearest=near, site_labels=site_labels, steps=config.attack_steps, sweeps=0,
        mode="train", exact=False,
      )  # fmt: skip
      return attacked.x_adv

    return attack

  budget = config.proposed_budget
  plain, mixed = (
    networks.Defence(config, networks.adversarial(weight)) for weight in (0.0, 0.5)
  )
  by_name = {STANDARD: (plain, 0.0), FRESH: (plain, budget), MIXED: (mixed, budget)}
  within_kl = plain._replace(attack=functools.partial(plain.within_ball, loss="kl"))
  for name, (divergence, weight) in TRADES.items():
    by_name[name] = (within_kl._replace(loss=trades(divergence, weight)), budget)
  for name, others in CELLS.items():
    if name in config.defences:  # the search for neighbours is not free
      by_name[name] = (mixed._replace(attack=within_cells(others)), math.inf)
  return {name: by_name[name] for name in config.defences}


def add_side_by_side(
  table: Table, config: Config, train: Points, test: Points, folder: pathlib.Path
) -> None:
  """Adds the accuracy of each defence under the ensemble, and within cells."""
  defences = _defences(config, train)
  results = [
    networks.train(x, {"epsilon": [budget]}, train, test, folder / _hyphened(name))
    for name, (x, budget) in defences.items()
  ]
  trained = (result.state.params for result in results)
  params = jax.tree.map(lambda *x: jnp.concatenate(x), *trained)
  score = next(iter(defences.values()))[0].scores
  key, steps = jax.random.key(config.seed), config.judge_steps
  nearest, rows = _neighbours(config, train, others=False), jnp.arange(len(train.y))

  def within_ball(test, epsilon, params):
    result = attacks.ensemble(
      score(params), *test, key=key, epsilon=epsilon, norm="l2", steps=steps
    )
    return 1 - jnp.mean(result.success)

  def within_cells(train, nearest, params):
    result = voronoi.voronoi_pgd(
      score(params), train.x, train.y, rows, train.x, key=key, nearest=nearest,
      steps=steps, restarts=1,
    )  # fmt: skip
    return 1 - jnp.mean(result.success)

  figures = {"accuracy": np.array([x.scores[0, :, -1] for x in results])} | {
    measure: trainer.over_models(within_ball, params, test, jnp.float32(budget))
    for budget, measure in _measures(config).items()
  }
  figures[WITHIN] = trainer.over_models(within_cells, params, train, nearest)
  for number, name in enumerate(defences):
    measures = {key: x[number] for key, x in figures.items()}
    table.add_all(f"defence: {name}", measures, finite=True)


def _hyphened(name: str) -> str:
  return name.replace(", ", "-").replace(" ", "-")


def _measures(config: Config) -> dict[float, str]:
  budgets = config.proposed_budget / 2, config.proposed_budget
  return {x: f"under the ensemble at l2 {x:g}" for x in budgets}


def add_noisy(
  table: Table, config: Config, train: Points, test: Points, folder: pathlib.Path
) -> None:
  """Tests if training under noise lets votes under noise certify more images."""

  def add(_, batch, key, epsilon, *__):
    return batch.x + epsilon * jax.random.normal(key, batch.x.shape)

  defence = networks.Defence(config, networks.adversarial(0.0), attack=add)
  columns = {"epsilon": [0.0, config.noise]}
  result = networks.train(defence, columns, train, test, folder / "noise")

  def votes(test, params):
    keys = jax.random.split(jax.random.key(config.seed))
    score = defence.scores(params)
    return [
      attacks.smoothed_votes(score, test.x, key=key, sigma=config.noise, draws=draws)
      for key, draws in zip(keys, (100, config.votes), strict=True)
    ]

  chosen, counts = trainer.over_models(votes, result.state.params, test)
  for cell, seed in np.ndindex(*chosen.shape[:2]):
    certificate = attacks.smoothed_certificate(
      chosen[cell, seed], counts[cell, seed], sigma=config.noise, alpha=ALPHA
    )
    right = certificate.label == np.asarray(test.y)
    for radius in RADII:
      share = np.mean(right & (certificate.radius >= radius))
      table.add(_votes(config)[cell], f"certified at l2 {radius:g}", share)


def _votes(config: Config) -> list[str]:
  """Names of the rows of votes, for networks trained with and without noise."""
  name = f"votes under noise {config.noise:g}, trained"
  return [f"{name} without noise", f"{name} under it"]


def add_combined(
  table: Table, config: Config, train: Points, test: Points, folder: pathlib.Path
) -> None:
  """Tests if training in the combined ball helps in every norm (DIST appendix A)."""
  first, last = config.combined
  plain = networks.Defence(config, networks.adversarial(config.clean_weight), "linf")

  def attack(scores, batch, key, epsilon, *_):
    region = attacks.combined_ball(batch.x, epsilon_1=first, epsilon_inf=epsilon)
    return attacks.pgd(
      scores, *batch, key=key, region=region, steps=config.attack_steps, mode="train"
    ).x_adv

  combined = plain._replace(attack=attack)
  for name, defence in (("l-infinity", plain), ("combined ball", combined)):
    run_folder, title = folder / _hyphened(name), f"trained in the {name}"
    result = networks.train(defence, {"epsilon": [last]}, train, test, run_folder)
    table.add(title, "accuracy", result.scores[0, :, -1])
    for measure, (norm, budget) in _balls(config).items():
      judge = plain._replace(norm=norm)
      accuracies = networks.judge(judge, test, result.state.params, [budget])
      table.add(title, measure, accuracies[0])


def _least_gain(table: Table, measures: Sequence[str], name: str) -> np.ndarray:
  """Smallest gain of a defence over the standard one."""
  ours, theirs = f"defence: {name}", f"defence: {STANDARD}"
  return np.min([table.gain(x, ours, over=theirs) for x in measures], axis=0)


def _balls(config: Config) -> dict[str, Ball]:
  first, last = config.combined
  balls: list[Ball] = [("l1", first), ("l2", 0.5), ("linf", last)]
  return {f"accuracy under {norm} {x:g}": (norm, x) for norm, x in balls}


def _worst(table: Table, config: Config, name: str) -> np.ndarray:
  title = f"trained in the {name}"
  return np.min([table.values(x, title) for x in _balls(config)], axis=0)


def claims(config: Config) -> list[Claim]:
  """Claims about defences, votes under noise, and the combined ball."""
  measures = list(_measures(config).values())
  without, under = _votes(config)
  certified = f"certified at l2 {RADII[2]:g}"
  rows: list[Statement] = [
    (f"X14-robust-{name}",
     f"accuracy under the ensemble, both budgets: {name} > standard",
     lambda t, name=name: _least_gain(t, measures, name))
    for name in DEFENCES if name != STANDARD
  ] + [
    ("X14-mixed",
     "clean accuracy: half of the loss on clean images >= none of it, to 0.02",
     lambda t: t.gain("accuracy", f"defence: {MIXED}", over=f"defence: {FRESH}") + 0.02)
  ] + [
    (f"X14-{name}",
     f"accuracy of training images within their cells: {name} > standard",
     lambda t, name=name: _least_gain(t, [WITHIN], name))
    for name in CELLS
  ] + [
    ("X13-noise",
     f"certified accuracy at {RADII[2]:g}: trained under noise > without",
     lambda t: t.gain(certified, under, over=without))
  ]  # fmt: skip
  return [
    *Claim.of_rows(((_hyphened(key), text, x) for key, text, x in rows), "DIST 3.2"),
    Claim(
      "X6-training",
      "least accuracy under l1, l2 and l-infinity: trained in the combined ball > in "
      "the l-infinity ball alone",
      lambda t: _worst(t, config, "combined ball") - _worst(t, config, "l-infinity"),
      "DIST appendix A",
    ),
  ]
