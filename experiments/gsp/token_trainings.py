"""Trainings on tokens: their settings and measures."""

import dataclasses
import functools
import itertools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.frame import kept as finished
from experiments.frame import training as frame_training
from experiments.gsp import tokens as gsp_tokens
from spherejax import metrics, training

GAP, GSP = "GAP", "GSP"
TRUE_SHARE, LINEAR_PROGRAM = "GSP, true share", "GSP, linear program"
MAP, HULLS = "MAP@R", "intersecting hulls"
BACKGROUND, SHARE = "weight on background", "share of background"


@dataclasses.dataclass(frozen=True)
class Config(gsp_tokens.Settings):
  """Settings of the study."""

  seed: int = 0
  """Seed of everything random."""
  seeds: int = 10
  """Runs of each variant."""
  steps: int = 6000
  """Largest number of training steps after the warm-up."""
  epoch: int = 100
  """Steps between two evaluations; not given in the paper."""
  patience: int = 30
  """Epochs without a better MAP@R before a run stops (DML 5.3.1)."""
  mass: float = 0.5
  """Share of the tokens that GSP keeps; not given in the paper."""
  inverse_temperature: float = 20.0
  """Inverse temperature of the pooling; not given in the paper."""
  linear_program: bool = True
  """Also trains with the limit of infinite inverse temperature."""
  test: int = 100
  """Fresh samples per class for the test."""


@functools.cache
def functions(config: Config, pool) -> tuple[Any, Any, Any]:
  """Functions of a sweep; caches them, so that a second call compiles nothing."""
  return (
    functools.partial(gsp_tokens.init, config),
    functools.partial(gsp_tokens.step, config, pool),
    functools.partial(gsp_tokens.evaluate, config, pool),
  )


def train(
  config: Config, key: jax.Array, pool, cells, output: pathlib.Path
) -> training.SweepResult:
  """Trains all cells with all seeds; stores each epoch and resumes from the last."""
  digest = finished.digest((config, cells))
  return frame_training.many(
    key,
    functions(config, pool),
    cells,
    output / "kept" / f"{pool.__name__}-{digest}",
    seeds=config.seeds,
    steps=config.steps,
    evaluate_every=config.epoch,
    patience=config.patience,
  )


@functools.partial(jax.jit, static_argnames=("config", "pool"))
def measure(
  key: jax.Array, states: gsp_tokens.State, seeds, cells, *, config: Config, pool
) -> dict[str, jax.Array]:
  """Measures states on fresh samples; each measure is [cells, seeds, ...]."""

  def measure_seed(state: gsp_tokens.State, seed, hyper):
    # All variants of a seed are tested on the same samples.
    samples = gsp_tokens.draw_samples(jax.random.fold_in(key, seed), config.test)
    embeddings, weights = pool(state.params, samples, hyper)
    class_tokens = samples.kinds[..., :4].sum(-1)  # the rest is background
    of_kind = jnp.einsum("bn,bnk->bk", weights, samples.kinds)
    number = samples.kinds.sum(1)
    by_class = functools.partial(
      jnp.reshape, shape=(gsp_tokens.CLASSES, config.test, -1)
    )
    return {
      MAP: gsp_tokens.map_at_r(embeddings, config.test),
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
  used = token_weights > 0.5 / gsp_tokens.TOKENS
  return [
    np.concatenate([tokens, shared])[mask]
    for tokens, mask in zip(class_tokens, used, strict=True)
  ]


def intersecting_pairs(sets: list[np.ndarray]) -> int:
  """Number of pairs of point sets whose hulls intersect."""
  return sum(metrics.hulls_intersect(*x) for x in itertools.combinations(sets, 2))


def hold_last(scores: np.ndarray) -> np.ndarray:
  """Scores [seeds, evaluations]; a stopped run keeps its last score."""
  filled = scores.copy()
  for number in range(1, filled.shape[1]):
    stopped = np.isnan(filled[:, number])
    filled[stopped, number] = filled[stopped, number - 1]
  return filled


def collect(
  config: Config, key: jax.Array, output: pathlib.Path
) -> tuple[dict, dict, dict]:
  """Trains everything; returns measures, plot data of the first seed, and curves."""
  train_key, test_key = jax.random.split(key)
  smoothed = {
    "mass": [1.0, config.mass, 0.0],  # at mass 1 the pooling is exactly the average
    "inverse_temperature": [config.inverse_temperature] * 3,
    "true_share": [0.0, 0.0, 1.0],
  }
  sweeps = [((GAP, GSP, TRUE_SHARE), gsp_tokens.embed, smoothed)]
  if config.linear_program:
    sweeps += [
      ((LINEAR_PROGRAM,), gsp_tokens.embed_by_linear_program, {"mass": [config.mass]})
    ]
  figures, first, curves = {}, {}, {}
  for names, pool, cells in sweeps:
    result = train(config, train_key, pool, cells, output)
    if result.diverged.any():
      raise FloatingPointError(
        f"{result.diverged.sum()} of {result.diverged.size} runs diverged"
      )
    measures = jax.device_get(
      measure(
        test_key,
        result.best_state,
        result.seeds,
        result.cells,
        config=config,
        pool=pool,
      )
    )
    class_tokens, shared = map(np.asarray, result.best_state.params[:2])
    for cell, name in enumerate(names):
      curves[name] = hold_last(result.scores[cell])
      weights = measures["token weights"][cell]
      tokens = list(map(used_tokens, class_tokens[cell], shared[cell], weights))
      embeddings = measures["embeddings"][cell, 0]
      first[name] = {
        "tokens": tokens[0],
        "shared": shared[cell, 0],
        "embeddings": embeddings.reshape(gsp_tokens.CLASSES, config.test, -1)[:, :20],
      }
      figures[name] = {
        **{x: measures[x][cell] for x in (MAP, BACKGROUND, SHARE)},
        HULLS: [intersecting_pairs(sets) for sets in tokens],
        "best step": config.warm_up + result.best_step[cell],
      }
  return figures, first, curves
