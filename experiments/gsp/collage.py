"""Trainings of the comparison on collages: which there are, and what comes of each."""

import collections
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.frame import dots, kept, poolings
from experiments.frame.study import Table
from experiments.gsp import (
  collage_claims,
  collage_measures,
  collages,
  network,
)
from experiments.gsp import training as pooled_training
from experiments.gsp.settings import Config
from spherejax import data, plotting, training

_FEW = 8  # variants whose scores are shown instead of their gains


class Trained(NamedTuple):
  """One program to train: the variants that share it, and its images."""

  settings: Config
  variants: dict[str, network.Variant]
  alone: bool = False


def plan(config: Config) -> list[Trained]:
  """Lists all trainings of one seed."""
  variant, weight = network.Variant, config.zero_shot_weight
  average = variant(1.0, 0.0)  # at mass 1 GSP is exactly the average
  masses = {
    "GAP": average,
    "GAP + ZSP": variant(1.0, weight),
    "GSP": variant(config.mass, 0.0),
    "GSP + ZSP": variant(config.mass, weight),
  }
  trained = []
  titles = {**poolings.TITLES, **poolings.WIDE}
  for loss in config.losses:
    settings = dataclasses.replace(config, loss=network.LOSSES[loss])
    for name in config.poolings:
      pooling_variant = variant(config.mass if name == "gsp" else 1.0, 0.0)
      named = {f"{loss}, {titles[name]}": pooling_variant}
      trained.append(Trained(dataclasses.replace(settings, pooling=name), named))
    if not config.poolings:
      gsp = dataclasses.replace(settings, pooling="gsp")
      trained += [
        Trained(
          gsp,
          {
            f"{loss}, {name}": pooling_variant
            for name, pooling_variant in masses.items()
          },
        ),
        Trained(settings, {f"{loss}, distilled": average}, alone=True),
      ]
  return trained


def kept_path(trained: Trained, seed: int, output: pathlib.Path) -> pathlib.Path:
  """Path of a program's stored outcome."""
  what = [
    trained.settings.loss,
    trained.settings.pooling,
    "alone" if trained.alone else "on",
  ]
  return output / "kept" / "-".join([*what, str(seed)])


def kept_settings(trained: Trained) -> dict[str, Any]:
  """Settings that change a program's outcome; drops those that add other programs."""
  others = {"seeds": 0, "losses": (), "poolings": ()}
  return dataclasses.asdict(trained.settings) | others


def learning_rate_scale(scores: Sequence[float], patience: int) -> float:
  """Halved whenever so many scores in a row were not above the best one."""
  best, stale, scale = -np.inf, 0, 1.0
  for score in scores:
    better = score > best + 1e-6
    best, stale = (score, 0) if better else (best, stale + 1)
    if stale == patience:
      scale, stale = scale / 2, 0
  return scale


def outcomes(
  trained: Trained,
  seed: int,
  parts: dict[str, collages.Part],
  begun: training.TrainState | None,
  output: pathlib.Path,
) -> kept.Finished:
  """Trains the variants of one program and looks at unseen sub-classes.

  Figures of each variant, and its weights on the collages that are drawn.
  """
  settings = trained.settings
  path = kept_path(trained, seed, output)
  train, validation, test = (
    parts[name].alone if trained.alone else parts[name].collages
    for name in collages.PARTS
  )

  def after(run: pooled_training.Run, variant: network.Variant):
    """Scores a part, and sets the learning rate of the next one."""
    result = network.embed(run.state, validation, settings, mass=variant.mass)
    score = collage_measures.retrieval(result.embeddings, validation.labels)["MAP@R"]
    run = run._replace(scores=(*run.scores, score))
    if not settings.patience:
      return run
    scale = jnp.float32(learning_rate_scale(run.scores, settings.patience))
    return run._replace(state=run.state.replace(learning_rate_scale=scale))

  def make() -> kept.Finished:
    best = settings.keep == "best"
    scored = best or settings.patience
    runs = pooled_training.train(
      settings,
      seed,
      trained.variants,
      train,
      path.with_name(f"parts-{settings.patience}{'-best' * best}"),
      pretrained=begun,
      after=after if scored else None,
      best=best,
      progress=False,
    )
    figures, weights = {}, {}
    for name, run in runs.items():
      mass = trained.variants[name].mass
      result = network.embed(run.state, test, settings, mass=mass)
      figures[name] = collage_measures.retrieval(result.embeddings, test.labels)
      if result.weights is not None:
        figures[name][collage_claims.WEIGHT] = collage_measures.foreground_weight(
          result.weights, parts["test"].foreground
        )
        weights[name] = np.asarray(result.weights)[drawn_rows(test)]
    return kept.Finished(figures, weights)

  return kept.once(path, made_with=kept_settings(trained), make=make)


def scores(table: Table, measure: str) -> Any:
  """Scores by loss, or gains of many poolings (DML Fig. 5.5(b) and 5.12(a))."""
  panels = collections.defaultdict(dict)
  for name in table.variants(measure):
    loss, _, variant = name.partition(", ")
    panels[loss][variant] = table.values(measure, name)
  if max(map(len, panels.values())) <= _FEW:
    return dots.dots(panels, "MAP@R of unseen classes")
  gains = {}
  for loss, values in panels.items():
    average = values.pop("GAP")
    title = f"{loss}, GAP: {average.mean():.3f}"
    gains[title] = {name: figures - average for name, figures in values.items()}
  label = "MAP@R of unseen classes, gained over average pooling (GAP)"
  return dots.dots(gains, label, gains=True)


def drawn_rows(test: data.Images) -> np.ndarray:
  """The first collage of each of eight classes."""
  return np.array([np.argmax(test.labels == label) for label in range(8)])


def weights(last: dict[str, np.ndarray], test: data.Images) -> dict[str, Any]:
  """Weights of the last seed on the first collage of each of eight classes."""
  shown = {name: values for name, values in last.items() if "GSP" in name}
  if not shown:
    return {}
  images = np.asarray(test.images)[drawn_rows(test)]
  names = [test.label_names[label].replace("_", " ")[:12] for label in range(8)]
  return {"weights": plotting.weight_maps(images, shown, names=names)}
