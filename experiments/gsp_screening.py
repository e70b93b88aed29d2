"""Screening: which of the numbers of generalized sum pooling matter?

A two-level design over the number of prototypes, the mass, the inverse temperature and
the weight of zero-shot prediction, the curve over the mass, and the grid of prototypes
and inverse temperature (DML 5.3.4.5, table 5.4, figures 5.8, 5.10 and 5.11), on frozen
maps of collages of glyphs. MAP@R is of validation collages, whose classes training
does not see. Each seed has a frozen network and backgrounds of its own; all its cells
of one number of prototypes are one vmapped program.

    python -m experiments.gsp_screening                  # 9 min
    python -m experiments.gsp_screening --preset smoke   # seconds
    python -m experiments.gsp_screening --preset full --weights FILE    # accelerators

Needs omniglot, prepared by tensorflow-datasets, in TFDS_DATA_DIR. full trains the
paper's table on CUB, figure-5.8, figure-5.10 and figure-5.11 (SOP; --dataset inshop)
what the figures show, with ImageNet's weights of BN-Inception in FILE.
"""

import collections
import dataclasses
import pathlib
import sys
import time
from typing import Any, Literal

import jax
import numpy as np
import tqdm
from flax import traverse_util

from experiments import (
  _cli,
  _collage_sets,
  _finished,
  _pooled_network,
  _report,
  _screening,
  _screening_design,
  _screening_full,
)
from spherejax import data, plotting, training

# The network of `gsp_collage`: maps of 64 positions.
NETWORK = {"stem_stride": 2, "strides": (1, 2, 1), "loss": "contrastive"}
LOSSES = _pooled_network.LOSSES
Cell = tuple[float, float, float, float]


@dataclasses.dataclass(frozen=True)
class Config(_pooled_network.Settings):
  """Settings of the screening; the network's own are of the frozen part."""

  percent: int = 100
  """Share of the image set that is read, in percent."""
  most: int = 200
  """Images of a foreground sub-class at most; each is in one collage."""
  validation: int = 640
  """Validation collages."""
  losses: tuple[Literal["C2", "PNCA"], ...] = ("C2", "PNCA")
  """Losses to train heads with."""
  seeds: int = 5
  """Runs of each cell, each on a frozen network of its own."""
  at_once: int = 25
  """Cells that are one program: memory is in proportion."""
  pretraining: int = 2000
  """Steps in which the frozen network first learns to tell the sub-classes of single
  training images apart; 0 begins with random weights."""
  screen: bool = True
  """Whether to train the two-level design."""
  head_steps: int = 200
  """Training steps of a head."""
  counts: tuple[int, ...] = (16, 32, 64, 128, 256)
  """Numbers of prototypes; the low and the high level of the design among them."""
  sharpness: tuple[float, ...] = (0.5, 1.0, 5.0, 10.0, 20.0)
  """Inverse temperatures of the grid."""
  masses: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
  """Masses of the curve, which is of 64 prototypes."""
  centre: tuple[float, float, float] = (0.3, 5.0, 0.1)
  """Mass, inverse temperature and weight where they are not varied."""

  def __post_init__(self):
    super().__post_init__()
    _cli.check_parts(self.pretraining, self.parts, ("pretraining", "parts"))
    if self.norm != "group":
      raise ValueError(
        f"norm must be group, got {self.norm}: the frozen network keeps no statistics"
      )


CPU = Config(steps=500, parts=5, **NETWORK)
PRESETS: dict[str, Any] = {
  "cpu": CPU,
  "smoke": dataclasses.replace(
    CPU,
    percent=20,
    pretraining=0,
    steps=5,
    most=6,
    widths=(8,),
    strides=(1,),
    dim=16,
    validation=64,
    losses=("C2",),
    seeds=2,
    head_steps=10,
    screen=False,
    counts=(16,),
    sharpness=(0.5, 20.0),
    masses=(),
  ),
  **_screening_full.PRESETS,
}


def frozen_maps(
  config: Config, seed: int, source: _collage_sets.Source, output: pathlib.Path
) -> tuple[_screening.Maps, _screening.Maps]:
  """Maps of training and validation collages from a network trained with GAP."""
  parts = _collage_sets.collages(source, jax.random.key(seed), most=config.most)
  train, validation = parts["train"].collages, parts["validation"].collages
  # The same labels for all seeds, which share compiled programs; backgrounds differ.
  chosen = np.random.default_rng(config.seed).permutation(len(validation))
  validation = validation[np.sort(chosen[: config.validation])]
  params = frozen_network(config, seed, source, train, output)
  backbone = _pooled_network.backbone(config)

  @jax.jit
  def features(params, pixels):
    return backbone.apply({"params": params}, data.to_float(pixels) - 0.5)

  def maps(images: data.Images, per_class: int) -> _screening.Maps:
    blocks = np.array_split(np.asarray(images.images), -(-len(images) // 250))
    found = np.concatenate([np.asarray(features(params, block)) for block in blocks])
    return _screening.make_maps(found, images.labels, per_class)

  return maps(train, config.per_class), maps(validation, 1)


def frozen_network(
  config: Config,
  seed: int,
  source: _collage_sets.Source,
  train: data.Images,
  output: pathlib.Path,
) -> Any:
  """Parameters of a backbone trained with GAP, or what was kept of it."""
  path = output / "kept" / f"network-{seed}"
  # What changes the network; the rest is of the heads.
  settings = {
    field.name: getattr(config, field.name)
    for field in dataclasses.fields(_pooled_network.Settings)
  } | {name: getattr(config, name) for name in ("percent", "most", "pretraining")}
  settings["seed"] = seed
  done = _finished.restore(path, settings)
  if done is not None:
    return traverse_util.unflatten_dict(done.arrays, sep="/")
  average = {"GAP": _pooled_network.AVERAGE}
  total = config.parts * (1 + bool(config.pretraining))
  with tqdm.tqdm(total=total, desc=f"network {seed}", file=sys.stderr) as progress:
    singles = _collage_sets.single_images(source, config.per_class)
    begun = _pooled_network.pretrain(
      config, config.pretraining, seed, singles, progress, kept=path.parent
    )
    run = _pooled_network.train(
      config,
      seed,
      average,
      train,
      progress,
      pretrained=begun,
      kept=path.parent,
    )["GAP"]
  params = jax.tree.map(np.asarray, run.state.params["network"]["backbone"])
  arrays: Any = traverse_util.flatten_dict(params, sep="/")
  _finished.keep(path, settings, _finished.Finished({}, arrays))
  return params


def cells_of(config: Config) -> dict[int, list[Cell]]:
  """For each number of prototypes all mass, inverse temperature, weight to train."""
  mass, sharpness, weight = config.centre
  cells = collections.defaultdict(list)
  for number, *rest in _screening_design.runs_of_design() if config.screen else ():
    cells[number].append(tuple(rest))
  for number in config.counts:
    row = config.sharpness if number <= 128 else (sharpness,)
    cells[number] += [(mass, x, weight) for x in row]
  if masses := curve_of(config):
    cells[64] += [(x, sharpness, weight) for x in masses]
  if 64 in config.counts:
    cells[64].append(average_of(config)[1:])
  return {number: list(dict.fromkeys(found)) for number, found in cells.items()}


def average_of(config: Config) -> tuple[int, float, float, float]:
  """The cell of average pooling alone: all of the mass, nothing predicted."""
  return 64, 1.0, config.centre[1], 0.0


def curve_of(config: Config) -> tuple[float, ...]:
  """Masses of the curve, where its number of prototypes is one of them."""
  return config.masses if 64 in config.counts else ()


def train(
  config: Config,
  loss: str,
  seed: int,
  maps: _screening.Maps,
  validation: _screening.Maps,
  output: pathlib.Path,
) -> dict[tuple[float, ...], tuple[float, float]]:
  """MAP@R of each cell, and how far pooled vectors were from the average.

  A cell is prototypes, mass, inverse temperature and weight.
  """
  trained = {}
  programs = [
    (number, cells[first : first + config.at_once])
    for number, cells in cells_of(config).items()
    for first in range(0, len(cells), config.at_once)
  ]
  made_of = _finished.digest(dataclasses.replace(config, seeds=1))
  for part, (number, cells) in enumerate(programs):
    settings = dataclasses.replace(
      config, pooling="gsp", loss=LOSSES[loss], prototypes=number
    )
    columns = dict(
      zip(list(_screening_design.LEVELS)[1:], np.transpose(cells), strict=True)
    )
    init, step, evaluate = _screening.functions(settings, maps, validation)
    folder = output / "kept" / f"{loss}-{seed}-{part}-{made_of}"
    with training.Checkpoints(folder) as checkpoints:
      result = training.sweep(
        jax.random.key(seed),
        init,
        step,
        evaluate,
        columns,
        seeds=1,
        steps=config.head_steps,
        evaluate_every=config.head_steps // 2,
        checkpoints=checkpoints,
      )
    if result.diverged.any():
      gone = [(number, *cells[i]) for i in np.flatnonzero(result.diverged)]
      raise FloatingPointError(f"seed {seed} of {loss} diverged in the cells {gone}")
    # The end of the training: choosing the best would be fitting the validation set.
    score, apart = result.scores[:, 0, -1], np.asarray(result.state.apart)[:, 0]
    for cell, *found in zip(cells, score, apart, strict=True):
      trained[number, *cell] = tuple(found)
  return trained


def run(
  config: Config | _screening_full.FullScreening,
  output: pathlib.Path,
  preset: str = "cpu",
) -> dict[str, Any]:
  """Trains all cells; returns figures and claims."""
  if isinstance(config, _screening_full.FullScreening):
    return _screening_full.run(config, output, preset)
  start = time.perf_counter()
  source = _collage_sets.load("omniglot", config.image_size, config.percent)
  trained: dict[str, list[dict]] = {loss: [] for loss in config.losses}
  for seed in range(config.seed, config.seed + config.seeds):
    maps, validation = frozen_maps(config, seed, source, output)
    for loss, runs in trained.items():
      runs.append(train(config, loss, seed, maps, validation, output))
  rows, made, pictures = [], [design_claim()], []
  for loss, runs in trained.items():
    scores, apart = (
      {cell: np.array([run[cell][part] for run in runs]) for cell in runs[0]}
      for part in (0, 1)
    )
    effects = _screening_design.screened(scores) if config.screen else {}
    rows += table(loss, effects, scores)
    made += claims(config, loss, effects, scores, apart)
    pictures += draw(config, loss, scores, output)
  return _report.result(
    experiment="gsp_screening",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=made,
    pictures=pictures,
  )


def table(loss: str, effects, scores) -> list[Any]:
  """The effects beside the paper's, and every cell."""
  column = tuple(LOSSES).index(loss)
  return [
    _report.row(
      f"{loss}, effect of {_screening_design.label(word, effect)}",
      "points of MAP@R",
      100 * effect.value,
      paper=_screening_design.BY_HAND[word][column],
    )
    for word, effect in effects.items()
    if word in _screening_design.BY_HAND
  ] + [
    _report.row(f"{loss}, {title(cell)}", "MAP@R", values)
    for cell, values in scores.items()
  ]


def title(cell: tuple[float, ...]) -> str:
  """A cell in the paper's symbols."""
  if cell[1] == 1 and not cell[3]:
    return "average pooling"
  return "m {}, mu {:g}, beta {:g}, lambda {:g}".format(*cell)


def design_claim() -> Any:
  """The effects of the paper's table, which it does not print."""
  found = _screening_design.published()
  differences = [
    np.abs(found[word].value - x).max() for word, x in _screening_design.BY_HAND.items()
  ]
  return _report.claim(
    "screen-design",
    "effects of the paper's table within 0.01 of those worked out by hand",
    0.01 - np.array(differences),
    paper="DML Tab. 5.4",
    every_seed=True,
  )


def claims(config: Config, loss: str, effects, scores, apart) -> list[Any]:
  """The claims of DML 5.3.4.5 that the trainings with one loss speak to."""
  suffix, made = loss.lower(), []
  if effects:
    strong, weak = (
      _screening_design.strength(effects[(name,)])
      for name in ("inverse_temperature", "prototypes")
    )
    made.append(
      _report.claim(
        f"screen-beta-{suffix}",
        f"|effect of beta| > |effect of m|, {loss}",
        strong - weak,
        paper="DML Tab. 5.4",
      )
    )
  _, sharpness, weight = config.centre
  curve = {mass: (64, mass, sharpness, weight) for mass in curve_of(config)}
  small = [mass for mass in curve if mass <= 0.5]
  if 1.0 in curve:
    if small:
      # One mass for all seeds: a best one for each would gain from noise alone.
      best = max(small, key=lambda x: scores[curve[x]].mean())
      made.append(
        _report.claim(
          f"mu-sweep-{suffix}",
          f"MAP@R of the best mass up to 0.5 ({best:g}) > MAP@R of mass 1, {loss}",
          scores[curve[best]] - scores[curve[1.0]],
          paper="DML Fig. 5.8",
        )
      )
    made.append(
      _report.claim(
        f"mu-sweep-average-{suffix}",
        "at mass 1 pooled vectors of every step equal the average to 1e-6 of its "
        f"largest entry (1e-6 less the largest difference), {loss}",
        1e-6 - apart[curve[1.0]],
        paper="DML Claim 5.2.1",
        every_seed=True,
      )
    )
  large = [(number, *config.centre) for number in config.counts if number >= 64]
  many = [scores[cell] for cell in large if cell in scores]
  if len(many) > 2:
    spread = np.ptp(np.mean(many, axis=1))
    made.append(
      _report.claim(
        f"m-flat-{suffix}",
        f"range of MAP@R over m in 64, 128, 256 < its range over seeds, {loss}",
        np.ptp(many, axis=1) - spread,
        paper="DML Fig. 5.11",
        every_seed=True,
      )
    )
  return made


def draw(config: Config, loss: str, scores, output: pathlib.Path) -> list[str]:
  """The grid of prototypes and sharpness, and curves over the mass and prototypes."""
  mass, sharpness, weight = config.centre
  counts = [number for number in config.counts if number <= 128]
  grid = [
    [scores[number, mass, x, weight].mean() for x in config.sharpness]
    for number in counts
  ]
  figures = {}
  if counts and config.sharpness:
    figures["grid"] = plotting.heat_map(
      np.array(grid),
      rows=counts,
      columns=config.sharpness,
      row_label="prototypes",
      column_label="inverse temperature",
      value_label=f"MAP@R, {loss}, validation classes",
      number_format=".4f",
    )
  # Seeds have networks of their own, whose levels differ by more than the numbers do.
  average = scores.get(average_of(config), 0.0)
  above = " above average pooling" * (average_of(config) in scores)
  ylabel = f"MAP@R{above}, {loss}"
  if masses := curve_of(config):
    curve = [scores[64, x, sharpness, weight] - average for x in masses]
    figures["mass"] = plotting.training_curves(
      {"64 prototypes": np.transpose(curve)},
      steps=masses,
      xlabel="mass",
      ylabel=ylabel,
    )
  if len(config.counts) > 1:
    curve = [scores[number, *config.centre] - average for number in config.counts]
    figures["prototypes"] = plotting.training_curves(
      {f"mass {mass:g}": np.transpose(curve)},
      steps=config.counts,
      xlabel="prototypes",
      ylabel=ylabel,
    )
  return [
    plotting.save(figure, output / f"{name}-{loss.lower()}.png").name
    for name, figure in figures.items()
  ]


def main() -> None:
  """The command line."""
  preset, config, output = _cli.parse(PRESETS, name="gsp_screening", doc=__doc__)
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
