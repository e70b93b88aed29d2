"""Token study: does generalized sum pooling learn to leave the background out?

A sample is a set of 50 tokens, about half of its class and half of a background that
all classes share; tokens are learned points of the plane, their pooled vector is the
embedding (DML 5.3.1, figure 5.4). Average pooling (GAP) mixes the background into
every embedding; generalized sum pooling (GSP) can leave it out, and the hulls of the
classes come apart. The linear program, whose weights do not tell prototypes where to
go, stays with the background that average pooling put near them. All variants and
seeds of one kind of pooling are one vmapped program.

    python -m experiments.gsp_tokens                  # preset cpu: 7 min on 2 cores
    python -m experiments.gsp_tokens --preset smoke   # seconds
    python -m experiments.gsp_tokens --preset full    # the paper's learning rate
"""

import dataclasses
import functools
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import _cli, _figure, _finished, _hulls, _report, _tokens
from spherejax import plotting, training

GAP, GSP = "GAP", "GSP"
TRUE_SHARE, LINEAR_PROGRAM = "GSP, true share", "GSP, linear program"
MAP, HULLS = "MAP@R", "intersecting hulls"
BACKGROUND, SHARE = "weight on background", "share of background"


@dataclasses.dataclass(frozen=True)
class Config(_tokens.Settings):
  """Settings of the study."""

  seed: int = 0
  """Everything random follows from it."""
  seeds: int = 10
  """Runs of each variant."""
  steps: int = 6000
  """Training steps after the warm-up, at most."""
  epoch: int = 100
  """Steps between two evaluations; the paper does not say."""
  patience: int = 30
  """Epochs without a better MAP@R after which a run stops (DML 5.3.1)."""
  mass: float = 0.5
  """Share of the tokens that GSP keeps; not given in the paper."""
  inverse_temperature: float = 20.0
  """Sharpness of the pooling; not given in the paper."""
  linear_program: bool = True
  """Whether to train with the limit of infinite inverse temperature, too."""
  test: int = 100
  """Fresh samples of each class that the figures are of."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    seeds=1, steps=300, warm_up=100, validation=10, test=10, linear_program=False
  ),
  "full": Config(learning_rate=1e-4, warm_up=4096, steps=60_000, validation=100),
}


@functools.cache
def functions(config: Config, pool) -> tuple[Any, Any, Any]:
  """Those of a sweep; the same objects in every call, so that they compile once."""
  return (
    functools.partial(_tokens.init, config),
    functools.partial(_tokens.step, config, pool),
    functools.partial(_tokens.evaluate, config, pool),
  )


def train(
  config: Config, key: jax.Array, pool, cells, output: pathlib.Path
) -> training.SweepResult:
  """All cells with all seeds; each epoch is kept, so a stopped run goes on."""
  what = _finished.digest((config, cells))
  with training.Checkpoints(output / "kept" / f"{pool.__name__}-{what}") as kept:
    return training.sweep(
      key,
      *functions(config, pool),
      cells,
      seeds=config.seeds,
      steps=config.steps,
      evaluate_every=config.epoch,
      patience=config.patience,
      checkpoints=kept,
    )


@functools.partial(jax.jit, static_argnames=("config", "pool"))
def measure(
  key: jax.Array, states: _tokens.State, seeds, cells, *, config: Config, pool
) -> dict[str, jax.Array]:
  """Figures of states on fresh samples, each [cells, seeds, ...]."""

  def one(state: _tokens.State, seed, hyper):
    # All variants of a seed are tested on the same samples.
    samples = _tokens.draw_samples(jax.random.fold_in(key, seed), config.test)
    embeddings, weights = pool(state.params, samples, hyper)
    own = samples.kinds[..., :4].sum(-1)  # the rest is background
    of_kind = jnp.einsum("bn,bnk->bk", weights, samples.kinds)
    number = samples.kinds.sum(1)
    by_class = functools.partial(jnp.reshape, shape=(_tokens.CLASSES, config.test, -1))
    return {
      MAP: _tokens.map_at_r(embeddings, config.test),
      BACKGROUND: (weights * (1 - own)).sum(1).mean(),
      SHARE: 1 - samples.share.mean(),
      # Of a position that holds the token.
      "token weights": by_class(of_kind).sum(1) / by_class(number).sum(1),
      "embeddings": embeddings,
    }

  over_seeds = jax.vmap(one, in_axes=(0, 0, None))
  return jax.vmap(over_seeds, in_axes=(0, None, 0))(states, seeds, cells)


def used_tokens(params: _tokens.Params, token_weights: np.ndarray) -> list[np.ndarray]:
  """Tokens of each class, background too, with over half of an average weight."""
  own, shared = np.asarray(params.own), np.asarray(params.shared)
  used = token_weights > 0.5 / _tokens.TOKENS
  return [
    np.concatenate([tokens, shared])[kept]
    for tokens, kept in zip(own, used, strict=True)
  ]


def held(scores: np.ndarray) -> np.ndarray:
  """Scores [seeds, evaluations], with the last one for all after a run stopped."""
  filled = scores.copy()
  for number in range(1, filled.shape[1]):
    gone = np.isnan(filled[:, number])
    filled[gone, number] = filled[gone, number - 1]
  return filled


def draw(runs: dict[str, dict], curves: dict, config: Config, output) -> list[str]:
  """Tokens of the first seed in the plane, and the validation curves."""
  names = [name for name in (GAP, GSP) if name in runs]
  first = {name: runs[name][0] for name in names}
  planes = plotting.class_hulls(
    {name: run["tokens"] for name, run in first.items()},
    dots={name: run["embeddings"] for name, run in first.items()},
    others={name: run["shared"] for name, run in first.items()},
    other_label="background token",
  )
  steps = config.warm_up + config.epoch * np.arange(1, config.steps // config.epoch + 1)
  chart = plotting.training_curves(curves, steps=steps, ylabel="MAP@R, fresh samples")
  figures = {"tokens": planes, "curves": chart}
  return _figure.save(figures, output)


def collect(
  config: Config, key: jax.Array, output: pathlib.Path
) -> tuple[dict, dict, dict]:
  """Trains everything; figures, what is drawn of each run, and curves by variant."""
  train_key, test_key = jax.random.split(key)
  smoothed = {
    "mass": [1.0, config.mass, 0.0],  # at mass 1 the pooling is exactly the average
    "inverse_temperature": [config.inverse_temperature] * 3,
    "true_share": [0.0, 0.0, 1.0],
  }
  sweeps = [((GAP, GSP, TRUE_SHARE), _tokens.embed, smoothed)]
  if config.linear_program:
    sweeps += [
      ((LINEAR_PROGRAM,), _tokens.embed_by_linear_program, {"mass": [config.mass]})
    ]
  figures, runs, curves = {}, {}, {}
  for names, pool, cells in sweeps:
    result = train(config, train_key, pool, cells, output)
    if result.diverged.any():
      raise FloatingPointError(f"runs diverged: {result.diverged}")
    found = jax.device_get(
      measure(
        test_key,
        result.best_state,
        result.seeds,
        result.cells,
        config=config,
        pool=pool,
      )
    )
    for cell, name in enumerate(names):
      curves[name] = held(result.scores[cell])
      runs[name] = []
      for seed in range(config.seeds):
        params = jax.tree.map(lambda x: x[cell, seed], result.best_state.params)  # noqa: B023
        tokens = used_tokens(params, found["token weights"][cell, seed])
        embeddings = found["embeddings"][cell, seed]
        by_class = embeddings.reshape(_tokens.CLASSES, config.test, -1)
        run = {
          "tokens": tokens,
          "shared": params.shared,
          "embeddings": by_class[:, :20],
        }
        runs[name].append(run)
      figures[name] = {
        MAP: found[MAP][cell],
        BACKGROUND: found[BACKGROUND][cell],
        SHARE: found[SHARE][cell],
        HULLS: np.array([_hulls.intersecting_pairs(r["tokens"]) for r in runs[name]]),
        "best step": config.warm_up + result.best_step[cell],
      }
  return figures, runs, curves


def table(figures: dict[str, dict[str, np.ndarray]]) -> list[dict[str, Any]]:
  """The gain of GSP beside the paper's, and every figure."""
  gain = figures[GSP][MAP] - figures[GAP][MAP]
  return [_report.row(f"{GSP} - {GAP}", MAP, gain, paper=0.70)] + [
    _report.row(name, metric, values)
    for name, measured in figures.items()
    for metric, values in measured.items()
  ]


def make_claims(figures: dict[str, dict[str, np.ndarray]]) -> list[dict[str, Any]]:
  """The statements of DML 5.3.1, as differences that should be positive."""
  gap, gsp = figures[GAP], figures[GSP]
  claims = [
    ("tokens-map", "MAP@R(GSP) > MAP@R(GAP)", gsp[MAP] - gap[MAP]),
    (
      "tokens-background",
      "weight on background under GSP < half of its share",
      0.5 * gsp[SHARE] - gsp[BACKGROUND],
    ),
    (
      "tokens-hulls",
      "fewer of the 120 pairs of class hulls intersect under GSP than under GAP",
      gap[HULLS] - gsp[HULLS],
    ),
  ]
  return [
    _report.claim(name, statement, values, paper="DML 5.3.1, Fig. 5.4")
    for name, statement, values in claims
  ]


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """Trains all variants with all seeds; returns figures and claims."""
  start = time.perf_counter()
  figures, runs, curves = collect(config, jax.random.key(config.seed), output)
  return _report.result(
    experiment="gsp_tokens",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=table(figures),
    claims=make_claims(figures),
    pictures=draw(runs, curves, config, output),
  )


def main() -> None:
  """The command line."""
  preset, config, output = _cli.parse(PRESETS, name="gsp_tokens", doc=__doc__)
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
