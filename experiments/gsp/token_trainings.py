"""Trainings on tokens and their measures."""

import functools
import itertools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import kept, training
from experiments.gsp import tokens
from experiments.gsp.tokens import Config
from spherejax import metrics

GAP, GSP = "GAP", "GSP"
TRUE_SHARE, LINEAR_PROGRAM = "GSP, true share", "GSP, linear program"
MAP, HULLS = "MAP@R", "intersecting hulls"
BACKGROUND, SHARE = "weight on background", "share of background"


@functools.partial(jax.jit, static_argnames=("config", "pool"))
def measure(
  key: Array,
  states: training.State,
  seeds: Array,
  cells: tokens.Hyper,
  *,
  config: Config,
  pool: tokens.Pool,
) -> dict[str, Array]:
  """Measures states on fresh samples; each measure is [cells, seeds, ...]."""

  def measure_seed(state: training.State, seed: Array, hyper: tokens.Hyper):
    # All variants of a seed are tested on the same samples.
    samples = tokens.draw_samples(jax.random.fold_in(key, seed), config.test)
    embeddings, weights = pool(state.params, samples, hyper)
    class_tokens = samples.kinds[..., :4].sum(-1)  # the rest is background
    of_kind = jnp.einsum("bn,bnk->bk", weights, samples.kinds)
    number = samples.kinds.sum(1)
    by_class = functools.partial(jnp.reshape, shape=(tokens.CLASSES, config.test, -1))
    return {
      MAP: tokens.map_at_r(embeddings, config.test),
      BACKGROUND: (weights * (1 - class_tokens)).sum(1).mean(),
      SHARE: 1 - samples.share.mean(),
      # Mean weight of a position that holds the token.
      "token weights": by_class(of_kind).sum(1) / by_class(number).sum(1),
      "embeddings": embeddings,
    }

  over_seeds = jax.vmap(measure_seed, in_axes=(0, 0, None))
  return jax.vmap(over_seeds, in_axes=(0, None, 0))(states, seeds, cells)


def used_tokens(
  class_tokens: np.ndarray, shared: np.ndarray, token_weights: np.ndarray
) -> list[np.ndarray]:
  """Tokens of each class, background included, with over half of an average weight."""
  used = token_weights > 0.5 / tokens.TOKENS
  return [
    np.concatenate([rows, shared])[mask]
    for rows, mask in zip(class_tokens, used, strict=True)
  ]


def hold_last(scores: np.ndarray) -> np.ndarray:
  """Scores [seeds, evaluations]; a stopped run keeps its last score."""
  last = np.isfinite(scores).sum(axis=1, keepdims=True) - 1
  columns = np.minimum(np.arange(scores.shape[1]), last)
  return np.take_along_axis(scores, columns, axis=1)


def collect(config: Config, output: pathlib.Path) -> tuple[dict, dict, dict]:
  """Trains everything; returns measures, plot data of the first seed, and curves."""
  train_key, test_key = jax.random.split(jax.random.key(config.seed))
  smoothed = {
    "mass": [1.0, config.mass, 0.0],  # at mass 1 the pooling is exactly the average
    "inverse_temperature": [config.inverse_temperature] * 3,
    "true_share": [0.0, 0.0, 1.0],
  }
  sweeps = [((GAP, GSP, TRUE_SHARE), tokens.embed, smoothed)]
  if config.linear_program:
    by_program = tokens.embed_by_linear_program
    sweeps += [((LINEAR_PROGRAM,), by_program, {"mass": [config.mass]})]
  figures, first, curves = {}, {}, {}
  for names, pool, cells in sweeps:
    result = training.many(
      train_key,
      (
        functools.partial(tokens.init, config),
        functools.partial(tokens.step, config, pool),
        functools.partial(tokens.evaluate, config, pool),
      ),
      cells,
      output / "kept" / f"{pool.__name__}-{kept.digest((config, cells))}",
      title="tokens",
      seeds=config.seeds,
      steps=config.steps,
      evaluate_every=config.epoch,
      patience=config.patience,
    )
    trained = result.best_state, result.seeds, result.cells
    measures = jax.device_get(measure(test_key, *trained, config=config, pool=pool))
    class_tokens, shared = map(np.asarray, result.best_state.params[:2])
    for cell, name in enumerate(names):
      curves[name] = hold_last(result.scores[cell])
      weights = measures["token weights"][cell]
      used = list(map(used_tokens, class_tokens[cell], shared[cell], weights))
      pairs = (itertools.combinations(sets, 2) for sets in used)
      embeddings = measures["embeddings"][cell, 0]
      first[name] = {
        "tokens": used[0],
        "shared": shared[cell, 0],
        "embeddings": embeddings.reshape(tokens.CLASSES, config.test, -1)[:, :20],
      }
      figures[name] = {
        **{x: measures[x][cell] for x in (MAP, BACKGROUND, SHARE)},
        HULLS: [sum(itertools.starmap(metrics.hulls_intersect, x)) for x in pairs],
        "best step": config.warm_up + result.best_step[cell],
      }
  return figures, first, curves
