"""Trainings of the comparison on collages: which there are, and what comes of each."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from optax import contrib

from experiments.frame import kept, poolings
from experiments.gsp import (
  collage_claims,
  collage_measures,
  collages,
  network,
  pictures,
)
from experiments.gsp import training as pooled_training
from experiments.gsp.settings import Config
from spherejax import training


class Trained(NamedTuple):
  """What is trained: one program, the variants that share it, and on which images."""

  settings: Config
  variants: dict[str, network.Variant]
  alone: bool = False


def plan(config: Config) -> list[Trained]:
  """All trainings of one seed."""
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
      own = variant(config.mass if name == "gsp" else 1.0, 0.0)
      named = {f"{loss}, {titles[name]}": own}
      trained.append(Trained(dataclasses.replace(settings, pooling=name), named))
    if not config.poolings:
      gsp = dataclasses.replace(settings, pooling="gsp")
      trained += [
        Trained(gsp, {f"{loss}, {name}": own for name, own in masses.items()}),
        Trained(settings, {f"{loss}, distilled": average}, alone=True),
      ]
  return trained


def kept_path(each: Trained, seed: int, output: pathlib.Path) -> pathlib.Path:
  """Where the outcome of a program is kept."""
  what = [each.settings.loss, each.settings.pooling, "alone" if each.alone else "on"]
  return output / "kept" / "-".join([*what, str(seed)])


def kept_settings(each: Trained) -> dict[str, Any]:
  """What changes a program's outcome; the rest says which others there are."""
  others = {"seeds": 0, "losses": (), "poolings": ()}
  return dataclasses.asdict(each.settings) | others


@functools.cache
def _plateau(patience: int) -> tuple[Any, Callable[[Any, jax.Array], Any]]:
  """The state before any score, and the compiled step to the next one."""
  plateau = contrib.reduce_on_plateau(0.5, patience=patience, rtol=0, atol=1e-6)
  step = jax.jit(lambda state, score: plateau.update({}, state, value=-score)[1])
  return plateau.init(jnp.zeros(())), step


def learning_rate_scale(scores: tuple[float, ...], patience: int) -> jax.Array:
  """Halved whenever so many scores in a row were not above the best one."""
  state, step = _plateau(patience)
  for score in scores:
    state = step(state, jnp.float32(score))
  return jnp.asarray(state.scale, jnp.float32)


def outcomes(
  each: Trained,
  seed: int,
  parts: dict[str, collages.Part],
  begun: training.TrainState | None,
  progress: tqdm.tqdm,
  output: pathlib.Path,
) -> kept.Finished:
  """Trains the variants of one program and looks at unseen sub-classes.

  Figures of each variant, and its weights on the collages that are drawn.
  """
  path, settings = kept_path(each, seed, output), kept_settings(each)
  done = kept.restore(path, settings)
  if done is not None:
    progress.update(1 + len(each.variants) * (each.settings.parts - 1))
    return done
  train, validation, test = (
    parts[name].alone if each.alone else parts[name].collages for name in collages.PARTS
  )

  def after(run: pooled_training.Run, variant: network.Variant):
    """Scores a part, and sets the learning rate of the next one."""
    result = network.embed(run.state, validation, each.settings, mass=variant.mass)
    score = collage_measures.retrieval(result.embeddings, validation.labels)["MAP@R"]
    run = run._replace(scores=(*run.scores, score))
    if not each.settings.patience:
      return run
    scale = learning_rate_scale(run.scores, each.settings.patience)
    return run._replace(state=run.state.replace(learning_rate_scale=scale))

  best = each.settings.keep == "best"
  scored = best or each.settings.patience
  runs = pooled_training.train(
    each.settings,
    seed,
    each.variants,
    train,
    progress,
    pretrained=begun,
    kept=path.with_name(f"parts-{each.settings.patience}{'-best' * best}"),
    after=after if scored else None,
    best=best,
  )
  figures, weights = {}, {}
  for name, trained in runs.items():
    mass = each.variants[name].mass
    result = network.embed(trained.state, test, each.settings, mass=mass)
    figures[name] = collage_measures.retrieval(result.embeddings, test.labels)
    if result.weights is not None:
      figures[name][collage_claims.WEIGHT] = collage_measures.foreground_weight(
        result.weights, parts["test"].foreground
      )
      weights[name] = np.asarray(result.weights)[pictures.drawn_rows(test)]
  done = kept.Finished(figures, weights)
  kept.keep(path, settings, done)
  return done
