"""The Voronoi-epsilon adversary: robustness that does not ask two answers of a point.

Points may be moved as far as they stay nearest to where they came from. Measured are
accuracies within balls (SAA) and within balls and cells (VAA) of the nearest neighbour
and of a linear classifier, on eight points in the plane and on images, beside closed
forms and what no classifier can exceed; and what DIST 1 and 3.3 say of distances of
images and of trade-offs (DIST, article III). Then attacks, the combined ball and
randomised smoothing where a closed form says what they should find (3.1, 3.2, A).

    python -m experiments.voronoi                    # digits, 12 min on one core
    python -m experiments.voronoi --preset smoke     # seconds
    python -m experiments.voronoi --preset full      # all of CIFAR-10, accelerators
    python -m experiments.voronoi --preset full --images mnist

The first two need no data but the digits that scikit-learn embeds; the first also
shifts the images of cifar10 where they are in TFDS_DATA_DIR, prepared by
tensorflow-datasets, as the last two need them. Random starts, noise and samples are
drawn anew for each seed in the studies of attacks, certificates and trade-offs; what
has no randomness, and the curves of images with their one start, is made once.
"""

import math
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import tqdm

from experiments.frame import command, results
from experiments.frame import pictures as figure
from experiments.frame.digits import Points
from experiments.robustness import (
  combined,
  curves,
  draws,
  norms,
  plane,
  statements,
  suite,
)
from experiments.robustness import images as voronoi_sets
from experiments.robustness.cell_settings import PRESETS, Config
from experiments.robustness.images import Images
from spherejax import plotting


def shifted(names: Sequence[str]) -> list[draws.Part]:
  """What shifts do to other images; says which are not there."""
  parts = []
  for name in names:
    try:
      images = voronoi_sets.prepared(name, "train")
    except FileNotFoundError as error:
      tqdm.tqdm.write(f"without {name}: {error}", file=sys.stderr)
    else:
      parts.append(statements.shifts(name, *images))
  return parts


def of_digits(config: Config, train: Images, test: Images) -> list[draws.Part]:
  """What is measured on digits, in the plane and on draws alone."""
  seeds = range(config.seed, config.seed + config.seeds)
  keys = [jax.random.key(seed) for seed in seeds]
  every = Images(*map(np.concatenate, zip(train, test, strict=True)))
  parts = [
    plane.rows_and_claims(keys[0], config.toy_norms),
    statements.shifts("digits", *every),
  ]
  parts += [
    *shifted(config.shifted),
    statements.trade_offs(seeds, config.samples),
    combined.smoothing(keys, config.votes),
  ]
  if config.suite_images:
    attacked = Points(*(v[: config.suite_images] for v in test.points()))
    parts += suite.against_closed_forms(
      keys, train.points(), attacked, config.suite_steps, config.suite_norms
    )
  figures = statements.best_binary(train.points())
  for norm in set(config.toy_norms).difference(config.norms):
    figures |= curves.apart("digits", train.points(), norm)[1]
  return [*parts, draws.once(figures, {}, "")]


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """All parts; returns figures and claims."""
  start = time.perf_counter()
  train, test = voronoi_sets.load(config)
  sites, tests = train.sites(), test.points()
  drawn = {}
  if config.images == "digits":
    parts = of_digits(config, train, test)
    drawn["toy"] = plane.draw()
  else:
    parts = [statements.shifts(config.images, *train)]
    number = {(config.images, "sites, each place once"): float(len(sites.y))}
    parts.append(draws.once(number, {}, ""))
  budgets = voronoi_sets.BUDGETS[config.images]
  # Beside the budgets: without an attack, and 1-NN with a wrong label.
  each = len(config.classifiers) + (curves.NEIGHBOUR in config.classifiers)
  total = sum(len(budgets[x]) * len(config.classifiers) + each for x in config.norms)
  with tqdm.tqdm(total=total, unit="attack", file=sys.stderr) as progress:
    remember = norms.remembering(config, output / "kept", progress)
    for norm in config.norms:
      part, lines = norms.of_norm(config, sites, tests, norm, remember)
      parts.append(part)
      drawn[f"curves-{norm}"] = plotting.robust_accuracy(
        lines,
        [0.0, *(x for x in budgets[norm] if math.isfinite(x))],
        xlabel=f"{norm} budget",
      )
  pictures = figure.save(drawn, output)
  return results.result(
    experiment="voronoi",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=[row for part in parts for row in part[0]],
    claims=[claim for part in parts for claim in part[1]],
    pictures=pictures,
  )


def main() -> None:
  """The command line."""
  preset, config, output = command.parse(PRESETS, name="voronoi", doc=__doc__)
  results.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
