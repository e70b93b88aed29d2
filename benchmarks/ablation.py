"""Times an ablation as one vmapped program, against its trainings in sequence.

The ablation has sixteen complete trainings of the token study
(`experiments.gsp_tokens`): 4 masses, 2 inverse temperatures, 2 seeds. `training.sweep`
runs them at once, spread over the cores, each of which is a jax device; a second row
uses one device. The comparison calls one compiled training sixteen times; that program
includes its evaluations. Scores at all evaluations and the learned tokens must agree
before a time counts.

    python -m benchmarks.ablation            # minutes on 2 cores
    python -m benchmarks.ablation --smoke    # seconds
    python -m benchmarks.ablation --json FILE
"""

import dataclasses
import functools
import os
from typing import Any, NamedTuple

# Set before jax starts; it has no effect on devices other than the CPU. A flag that the
# user has set comes last and wins.
os.environ["XLA_FLAGS"] = " ".join(
  [
    f"--xla_force_host_platform_device_count={os.cpu_count()}",
    os.environ.get("XLA_FLAGS", ""),
  ]
)

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from experiments.gsp import tokens
from spherejax import _versions, training

SEEDS = 2
VALUES = {
  "mass": [0.3, 0.5, 0.7, 1.0],
  "inverse_temperature": [5.0, 20.0],
  "true_share": [0.0],
}
KEY = jax.random.key(0)
# Rounding grows along a trajectory. So trainings are first compared in float64; the
# comparison in float32, where they are timed, is loose.
SAME, ALIKE = 1e-6, 1e-2


class Work(NamedTuple):
  """Trainings to run."""

  functions: tuple  # `init`, `step` and `evaluate`: the same objects in every call
  cells: dict[str, np.ndarray]
  warm_up: int
  steps: int
  every: int


def make_work(config: tokens.Config, steps: int, every: int, masses: int) -> Work:
  """Sets up the trainings of the first `masses` masses."""
  functions = (
    functools.partial(tokens.init, config),
    functools.partial(tokens.step, config, tokens.embed),
    functools.partial(tokens.evaluate, config, tokens.embed),
  )
  cells = training.grid(VALUES | {"mass": VALUES["mass"][:masses]})
  return Work(functions, cells, config.warm_up, steps, every)


def result(scores: Any, states: Any) -> tuple:
  """Results that must agree: scores at all evaluations, and the tokens at the end."""
  return scores, states.params.own, states.params.shared


def at_once(work: Work, devices: int) -> tuple:
  """Runs all trainings as one program."""
  init, step, evaluate = work.functions
  swept = training.sweep(
    KEY,
    init,
    step,
    evaluate,
    work.cells,
    seeds=SEEDS,
    steps=work.steps,
    evaluate_every=work.every,
    devices=jax.devices()[:devices],
    progress=False,
  )
  return result(swept.scores, swept.state)


def one_training(work: Work):
  """Compiles a whole training as one program, without a sweep."""
  init, step, evaluate = work.functions

  @jax.jit
  def train(seed, hyper):
    keys = jax.random.split(jax.random.fold_in(KEY, seed), 3)
    init_key, step_key, evaluate_key = keys

    def one_step(state, number):
      return step(state, jax.random.fold_in(step_key, number), hyper)[0], None

    def part(state, numbers):
      state = jax.lax.scan(one_step, state, numbers)[0]
      return state, evaluate(state, evaluate_key, hyper)

    numbers = jnp.arange(work.steps).reshape(-1, work.every)
    state, scores = jax.lax.scan(part, init(init_key, hyper), numbers)
    return result(scores, state)

  return train


def one_after_another(train, cells: dict[str, np.ndarray]) -> tuple:
  """Runs the same trainings in a loop."""
  number = len(cells["mass"])
  runs = [
    train(jnp.int32(seed), {name: x[cell] for name, x in cells.items()})
    for cell in range(number)
    for seed in range(SEEDS)
  ]
  return jax.tree.map(
    lambda *leaves: np.stack(leaves).reshape(number, SEEDS, *leaves[0].shape), *runs
  )


def check_in_float64(work: Work) -> float:
  """Largest difference of the two ways in float64; exits if it is above rounding."""
  with _versions.enable_x64(True):
    ours = at_once(work, jax.device_count())
    theirs = one_after_another(one_training(work), work.cells)
  far = np.max(
    [np.abs(np.asarray(a) - b).max() for a, b in zip(ours, theirs, strict=True)]
  )
  if not far <= SAME:
    raise SystemExit(f"the trainings differ by {far:.1g} in float64, above {SAME:g}")
  return far


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__, cases=False)
  config = tokens.Config(warm_up=50, validation=10)
  work = make_work(config, 150, 50, 4)
  if options.smoke:
    work = make_work(dataclasses.replace(config, warm_up=2), 4, 2, 2)
  else:
    print(f"largest difference in float64: {check_in_float64(work):.1g}")
  train = one_training(work)
  alone = functools.partial(one_after_another, train, work.cells)
  ways = {
    _measure.OURS: functools.partial(at_once, work, jax.device_count()),
    "one after another": alone,
  }
  if jax.device_count() > 1 and not options.smoke:
    ways["on one device"] = functools.partial(at_once, work, 1)
  number = len(work.cells["mass"]) * SEEDS
  row = _measure.compare(
    f"tokens, {number} trainings of {work.warm_up} + {work.steps} steps",
    (),
    {
      name: _measure.Contender(way, ALIKE, compiled=False) for name, way in ways.items()
    },
    (_measure.Target("one after another", 2.0),),
    repetitions=options.repetitions,
  )
  _measure.report("ablation", [row], [], options)


if __name__ == "__main__":
  main()
