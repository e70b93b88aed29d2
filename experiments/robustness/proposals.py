"""What DIST 5.4 and 6.2.1 propose: known inputs, and losses near proxies."""

import functools
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from jax import Array

from experiments.frame import results
from experiments.robustness import networks, structure
from spherejax import attacks, distances, losses, metrics

GAUSSIAN_CLASSES = 5
GAUSSIAN_POINTS = 1000

NORMFACE, NEGATIVE, CAP = "NormFace", "negative margin", "proxy cap"
LOSSES = ("cross-entropy", NORMFACE, NEGATIVE, CAP)


class Gaussian(NamedTuple):
  """Points to train on, their labels, and others with the same labels."""

  x: Array
  y: Array
  unseen: Array


def gaussian(dim: int, key: Array, hyper) -> Gaussian:
  """Five classes of unit variance about means at a distance: phi = 2 radius^2."""
  mean_key, point_key = jax.random.split(jax.random.fold_in(key, 0))
  means, _ = jnp.linalg.qr(jax.random.normal(mean_key, (dim, GAUSSIAN_CLASSES)))
  labels = jnp.arange(GAUSSIAN_POINTS) % GAUSSIAN_CLASSES
  around = hyper["radius"] * means.T[labels]
  noise = jax.random.normal(point_key, (2, *around.shape)) / dim**0.5
  return Gaussian(around + noise[0], labels, around + noise[1])


def _gaussian_budgets(config, dim: int) -> np.ndarray:
  """A quarter of the median distance to another class, for each radius (DIST 5.4)."""
  found = []
  for radius in config.radii:
    own = gaussian(dim, jax.random.key(config.seed), {"radius": radius})
    found.append(jnp.median(metrics.separation(own.x, own.y).nearest_other_class))
  return 0.25 * np.array(found)


def _gaussian_figures(config, defence, state) -> dict[str, Array]:
  own = state.points
  built = networks.network(config, defence, GAUSSIAN_CLASSES)
  seen: Any = built.apply({"params": state.params}, own.x)
  unseen: Any = built.apply({"params": state.params}, own.unseen)
  moments = structure.moments(own.x, own.y, GAUSSIAN_CLASSES)
  found = structure.of_features(own.x, seen[0], own.y, classes=GAUSSIAN_CLASSES)
  return found | {
    "phi of the inputs": metrics.class_variance(moments).phi,
    "training accuracy": jnp.mean(jnp.argmax(seen[1], axis=1) == own.y),
    "accuracy": jnp.mean(jnp.argmax(unseen[1], axis=1) == own.y),
  }


def known_discriminality(
  config, progress: tqdm.tqdm, folder: pathlib.Path
) -> tuple[list[Any], list[Any]]:
  """Does training under attack cost less where the inputs are far apart?

  DIST 5.4.
  """
  loss = networks.adversarial(config)
  defence = networks.Defence(loss, low=-np.inf, high=np.inf)
  radii, half = np.array(config.radii), len(config.radii)
  rows, costs, added, gaps = [], {}, {}, []
  for dim in config.dims:
    progress.set_postfix(dim=dim)
    points: Any = functools.partial(gaussian, dim)
    columns = {
      "radius": np.concatenate([radii, radii]),
      "epsilon": np.concatenate([np.zeros(half), _gaussian_budgets(config, dim)]),
    }
    drawn: Any = points(jax.random.key(config.seed), {"radius": 1.0})
    result = networks.train(
      config,
      defence,
      columns,
      points,
      drawn,
      classes=GAUSSIAN_CLASSES,
      folder=folder / f"gaussian-{dim}",
    )
    figures = functools.partial(_gaussian_figures, config, defence)
    found = networks.over_models(figures)(result.state)
    for cell, radius in enumerate(columns["radius"]):
      label = "standard" if cell < half else "robust"
      name = f"{GAUSSIAN_CLASSES} classes in {dim}, radius {radius:g}, {label}"
      rows += [
        results.row(name, key, values[cell])
        for key, values in found.items()
        if np.isfinite(values[cell]).all()
      ]
    costs[dim] = {
      name: found[name][:half] - found[name][half:] for name in ("R2", "accuracy")
    }
    added[dim] = found["d_DoV"][half:] - found["d_DoV"][:half]
    # The means of a sample lie further apart than those of the population.
    expected = 2 * radii[:, None] ** 2 + 2 * GAUSSIAN_CLASSES / GAUSSIAN_POINTS
    gaps.append(np.abs(found["phi of the inputs"][:half] / expected - 1).max(0))
    progress.update()
  return rows, _gaussian_claims(costs, added, np.max(gaps, axis=0)) if costs else []


def _gaussian_claims(costs, added, gaps) -> list[Any]:
  claims = [
    results.claim(
      "X9-inputs",
      "phi of the inputs within 15 % of twice the squared radius",
      0.15 - gaps,
      paper="DIST 5.4",
      every_seed=True,
    )
  ]
  claims += [
    results.claim(
      f"X9-{key}-{dim}",
      f"{text} that training under attack costs, {dim} dimensions: less at the largest "
      "radius than at the smallest",
      cost[name][0] - cost[name][-1],
      paper="DIST 5.4",
    )
    for key, name, text in (
      ("cost", "R2", "R2"),
      ("accuracy", "accuracy", "accuracy on points that were not trained on"),
    )
    for dim, cost in costs.items()
  ]
  few, many = min(costs), max(costs)
  if few < many:
    claims.append(
      results.claim(
        "X9-density",
        f"d_DoV that it adds at the largest radius, where it is near the number of "
        f"classes: {many} dimensions >= {few}",
        added[many][-1] - added[few][-1] + 1e-3,
        paper="DIST 5.4",
      )
    )
  return claims


def _normface(config):
  def loss(clean, attacked, labels, proxies):
    del proxies
    weight = config.clean_weight
    own = losses.normface(clean, labels, scale=config.scale)
    other = losses.normface(attacked, labels, scale=config.scale)
    return weight * own + (1 - weight) * other

  return loss


def _near_proxy(config, name):
  function = losses.proxy_cap if name == CAP else losses.normface_negative_margin

  def loss(clean, attacked, labels, proxies):
    angles = losses.nearest_proxy_angles(proxies)
    return function(
      clean,
      attacked,
      labels,
      angles,
      clean_weight=config.clean_weight,
      scale=config.scale,
    )

  return loss


def near_proxies(
  config, train, test, classes: int, progress: tqdm.tqdm, folder: pathlib.Path
) -> tuple[list[Any], list[Any]]:
  """Which losses hold attacked images within half the angle of their proxy?

  DIST 6.2.1.
  """
  figures = {}
  for name in config.proposals:
    progress.set_postfix(loss=name)
    if name == LOSSES[0]:
      defence = networks.Defence(networks.adversarial(config))
    else:
      loss = _normface(config) if name == NORMFACE else _near_proxy(config, name)
      defence = networks.Defence(loss, cosine=True)
    result = networks.train(
      config,
      defence,
      {"epsilon": [config.proposed_budget]},
      lambda key, hyper: train,
      test,
      classes=classes,
      folder=folder / f"proposal-{name.replace(' ', '-')}",
    )
    params = result.state.params
    found = structure.of_models(config, defence, params, train, classes=classes)
    budget = jnp.array([config.proposed_budget])
    found["accuracy"] = result.scores[..., -1]
    judged = networks.judge(config, defence, test, classes=classes)
    found["accuracy under attack"] = judged(params, budget)
    if defence.cosine:
      found |= _caps(config, defence, params, train, classes)
    figures[name] = {measure: values[0] for measure, values in found.items()}
    progress.update()
  rows = [
    results.row(f"{name}, l2 {config.proposed_budget:g}", measure, values)
    for name, found in figures.items()
    for measure, values in found.items()
    if np.isfinite(values).all()
  ]
  return rows, _proxy_claims(figures) if set(LOSSES) <= set(figures) else []


def _proxy_claims(figures: dict[str, dict[str, np.ndarray]]) -> list[Any]:
  negative, cap = figures[NEGATIVE], figures[CAP]
  own = [figures[name] for name in LOSSES[1:]]
  made = {
    "X10-cap": (
      "attacked images within half the angle: proxy cap > negative margin",
      cap["share in the cap"] - negative["share in the cap"],
    ),
    "X10-r2": (
      "R2 of networks of angles >= that of cross-entropy, all three losses",
      np.min([x["R2"] for x in own], axis=0) - figures[LOSSES[0]]["R2"],
    ),
  }
  exact = {
    "X10-inside": (
      "no attacked image within half the angle is classified wrongly or beyond the "
      "printed boundary, all three losses; only the proxy cap holds many there",
      0.5 - np.max([x["in the cap, but wrong or beyond"] for x in own], axis=0),
    ),
    "X10-outside": (
      "with the negative margin some satisfy the printed boundary only, some of "
      "those are classified wrongly",
      negative["of these wrong"],
    ),
  }
  return [
    results.claim(key, text, values, paper="DIST 6.2.1", every_seed=key in exact)
    for key, (text, values) in (made | exact).items()
  ]


def _caps(config, defence, params, train, classes) -> dict[str, np.ndarray]:
  """Attacked training images, their proxies, and the boundary that DIST prints."""

  def one(params):
    scores = networks.scorer(config, defence, classes, params)
    attacked = attacks.pgd(
      scores,
      train.x,
      train.y,
      key=jax.random.key(config.seed),
      epsilon=config.proposed_budget,
      norm=defence.norm,
      steps=config.judge_steps,
    ).x_adv
    built = networks.network(config, defence, classes)
    seen: Any = built.apply({"params": params}, attacked)
    angles = distances.pairwise_angle(seen[0], params["proxies"])
    itself = jax.nn.one_hot(train.y, classes, dtype=bool)
    own = jnp.sum(jnp.where(itself, angles, 0), axis=1)
    next_one = jnp.min(jnp.where(itself, jnp.inf, angles), axis=1)
    width = losses.nearest_proxy_angles(params["proxies"])[train.y] / 2
    inside, right = own < width - 1e-5, own < next_one
    printed = jnp.maximum(own - width, 0) < next_one
    only = printed & ~(own < width)
    return {
      "share in the cap": jnp.mean(inside),
      "in the cap, but wrong or beyond": jnp.sum(inside & ~(right & printed)),
      "satisfy the printed boundary only": jnp.sum(only),
      "of these wrong": jnp.sum(only & ~right),
    }

  return networks.over_models(one)(params)
