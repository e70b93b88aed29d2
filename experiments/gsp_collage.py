"""Collages: which pooling leaves out what the label does not speak of?

A collage is one labelled image among three that say nothing about the label, and test
classes were not seen in training. Generalized sum pooling (GSP) and zero-shot
prediction (ZSP) against global average pooling (GAP), with a contrastive loss (C2) and
ProxyNCA++; "distilled" is the labelled image alone. The backbone begins as a classifier
of single training images. Sections 5.3.2 and 5.3.5 of DML.

    python -m experiments.gsp_collage --seeds 5               # preset cpu: 29 min
    python -m experiments.gsp_collage --preset poolings       # 17 poolings, 45 min
    python -m experiments.gsp_collage --preset poolings-pnca  # ProxyNCA++, 45 min
    python -m experiments.gsp_collage --preset photographs    # 14 min
    python -m experiments.gsp_collage --preset long           # 1,500 steps, 31 min
    python -m experiments.gsp_collage --preset smoke          # seconds
    python -m experiments.gsp_collage --preset full           # CIFAR-100, as the paper

Needs omniglot (for `full` cifar100, for `photographs` tiny_imagenet), prepared by
tensorflow-datasets, in TFDS_DATA_DIR.
"""

import collections
import dataclasses
import functools
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from optax import contrib

from experiments import (
  _at_once,
  _cli,
  _collage,
  _collage_sets,
  _collage_tables,
  _finished,
  _pooled_network,
  _pooled_training,
  _poolings,
  _report,
)
from spherejax import data, plotting, training

LOSSES = _pooled_network.LOSSES
_ALL = (*_poolings.NAMES, *_poolings.WIDE)


@dataclasses.dataclass(frozen=True)
class Config(_pooled_network.Settings):
  """Settings of the comparison."""

  images: Literal["omniglot", "tiny_imagenet", "cifar100"] = "omniglot"
  """Source of the images."""
  percent: int = 100
  """Share of the image set that is read, in percent."""
  image_size: int = 16
  """Side of one tile; a collage has twice that."""
  most: int = 200
  """Images of a foreground sub-class at most; each is in one collage."""
  losses: tuple[Literal["C2", "PNCA"], ...] = ("C2", "PNCA")
  """Losses to train with."""
  poolings: tuple[str, ...] = ()
  """Poolings to compare, or all, without the two long ones; none compares GAP and
  GSP, with ZSP and without."""
  seeds: int = 3
  """Runs of each variant."""
  stem_stride: int = 2
  """Stride of the first convolution."""
  strides: tuple[int, ...] = (1, 2, 1)
  """Stride of each stage."""
  mass: float = 0.25
  """Share of a collage's features that GSP keeps (DML eq. 5.2.1)."""
  inverse_temperature: float = 10.0
  """Sharpness of the pooling (DML 5.3.2)."""
  zero_shot_weight: float = 0.5
  """Weight of the zero-shot prediction loss (DML 5.3.2)."""
  pretraining: int = 2000
  """Steps in which the backbone learns to tell the sub-classes of single images apart;
  0 begins with random weights."""
  pretrain_on: Literal["training", "all"] = "training"
  """Whether these are the sub-classes of the training or all, those of the test among
  them, as in the paper."""
  steps: int = 500
  """Training steps."""
  patience: int = 0
  """Parts without a better MAP@R of validation collages after which the learning rate
  is halved; 0 leaves it."""
  keep: Literal["last", "best"] = "last"
  """Which network is tested: the last one, or the one whose MAP@R of validation
  collages after a part was best."""
  parts: int = 5
  """Parts of the training: after the first one, which pools by averages, the
  prototypes are chosen."""

  def __post_init__(self):
    super().__post_init__()
    _cli.check_parts(self.pretraining, self.parts, ("pretraining", "parts"))
    if not self.losses:
      raise ValueError(f"losses must have one of {', '.join(LOSSES)}, got none")
    if self.poolings == ("all",):
      object.__setattr__(self, "poolings", _poolings.NAMES)
    known = (*_poolings.NAMES, *_poolings.WIDE)
    if unknown := [name for name in self.poolings if name not in known]:
      raise ValueError(
        f"poolings must be all or among {', '.join(known)}, got {unknown}"
      )


PRESETS = {
  "cpu": Config(),
  "poolings": Config(losses=("C2",), poolings=_ALL, seeds=5),
  "poolings-pnca": Config(losses=("PNCA",), poolings=_ALL, seeds=5),
  "photographs": Config(images="tiny_imagenet"),
  "long": Config(steps=1500, parts=10, keep="best"),
  "smoke": Config(
    percent=20,
    seeds=1,
    pretraining=4,
    steps=10,
    parts=2,
    batch_classes=8,
    per_class=2,
    most=2,
    widths=(8,),
    strides=(1,),
    dim=16,
    losses=("C2",),
  ),
  "full": Config(
    images="cifar100",
    image_size=32,
    most=600,
    blocks=3,
    strides=(1, 2, 2),
    stem_stride=1,
    norm="batch",
    convolution="native",
    dim=128,
    mass=0.2,
    pretraining=30_000,
    pretrain_on="all",
    steps=30_000,
    parts=100,  # of 300 steps, which is an epoch
    patience=5,
  ),
}


class Trained(NamedTuple):
  """What is trained: one program, the variants that share it, and on which images."""

  settings: Config
  variants: dict[str, _pooled_network.Variant]
  alone: bool = False


def plan(config: Config) -> list[Trained]:
  """All trainings of one seed."""
  variant, weight = _pooled_network.Variant, config.zero_shot_weight
  average = variant(1.0, 0.0)  # at mass 1 GSP is exactly the average
  masses = {
    "GAP": average,
    "GAP + ZSP": variant(1.0, weight),
    "GSP": variant(config.mass, 0.0),
    "GSP + ZSP": variant(config.mass, weight),
  }
  trained = []
  titles = {**_poolings.TITLES, **_poolings.WIDE}
  for loss in config.losses:
    settings = dataclasses.replace(config, loss=LOSSES[loss])
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
  parts: dict[str, _collage_sets.Part],
  begun: training.TrainState | None,
  progress: tqdm.tqdm,
  output: pathlib.Path,
) -> _finished.Finished:
  """Trains the variants of one program and looks at unseen sub-classes.

  Figures of each variant, and its weights on the collages that are drawn.
  """
  path, settings = kept_path(each, seed, output), kept_settings(each)
  done = _finished.restore(path, settings)
  if done is not None:
    progress.update(1 + len(each.variants) * (each.settings.parts - 1))
    return done
  train, validation, test = (
    parts[name].alone if each.alone else parts[name].collages
    for name in _collage_sets.PARTS
  )

  def after(run: _pooled_training.Run, variant: _pooled_network.Variant):
    """Scores a part, and sets the learning rate of the next one."""
    result = _pooled_network.embed(
      run.state, validation, each.settings, mass=variant.mass
    )
    score = _collage.measure(result.embeddings, validation.labels)["MAP@R"]
    run = run._replace(scores=(*run.scores, score))
    if not each.settings.patience:
      return run
    scale = learning_rate_scale(run.scores, each.settings.patience)
    return run._replace(state=run.state.replace(learning_rate_scale=scale))

  best = each.settings.keep == "best"
  scored = best or each.settings.patience
  runs = _pooled_training.train(
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
    result = _pooled_network.embed(trained.state, test, each.settings, mass=mass)
    figures[name] = _collage.measure(result.embeddings, test.labels)
    if result.weights is not None:
      figures[name]["weight on the labelled image"] = _collage.foreground_weight(
        result.weights, parts["test"].foreground
      )
      weights[name] = np.asarray(result.weights)[drawn_rows(test)]
  done = _finished.Finished(figures, weights)
  _finished.keep(path, settings, done)
  return done


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """Trains all variants with all seeds; returns figures and claims."""
  start = time.perf_counter()
  source = _collage_sets.load(config.images, config.image_size, config.percent)
  figures, last, parts = collections.defaultdict(list), {}, {}
  trainings = plan(config)
  total = config.parts * bool(config.pretraining) + sum(
    1 + len(each.variants) * (config.parts - 1) for each in trainings
  )
  with tqdm.tqdm(total=config.seeds * total, unit="part", file=sys.stderr) as progress:
    for seed in range(config.seed, config.seed + config.seeds):
      parts = _collage_sets.collages(source, jax.random.key(seed), most=config.most)
      everything = config.pretrain_on == "all"
      singles = _collage_sets.single_images(source, config.per_class, everything)
      missing = [
        each
        for each in trainings
        if _finished.restore(kept_path(each, seed, output), kept_settings(each)) is None
      ]
      # What all of them begin with is trained again unless none is left to train.
      begun = _pooled_training.pretrain(
        config,
        config.pretraining * bool(missing),
        seed,
        singles,
        progress,
        kept=output / "kept" / "parts",
      )
      of_seed = functools.partial(
        outcomes, seed=seed, parts=parts, begun=begun, progress=progress, output=output
      )
      last = {}
      with _at_once.pool() as pool:
        results = list(pool.map(of_seed, trainings))
      for done in results:
        for name, measured in done.figures.items():
          for metric, value in measured.items():
            figures[name, metric].append(value)
        last |= done.arrays
  return _report.result(
    experiment="gsp_collage",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=_collage_tables.table(figures, config.images),
    claims=_collage_tables.claims(figures),
    pictures=[
      plotting.save(draw_scores(figures), output / "scores.png").name,
      *draw(last, parts["test"].collages, output),
    ],
  )


def draw_scores(figures: _collage_tables.Figures) -> Any:
  """MAP@R of every variant, by loss (DML Fig. 5.5(b) and 5.12(a))."""
  bars = collections.defaultdict(dict)
  for (name, metric), values in figures.items():
    if metric == "MAP@R":
      loss, _, variant = name.partition(", ")
      bars[loss][variant] = values
  return plotting.bars_with_intervals(bars, ylabel="MAP@R, unseen classes")


def drawn_rows(test: data.Images) -> np.ndarray:
  """The first collage of each of eight classes."""
  return np.array([np.argmax(test.labels == label) for label in range(8)])


def draw(
  last: dict[str, np.ndarray], test: data.Images, output: pathlib.Path
) -> list[str]:
  """Weights of the last seed on the first collage of each of eight classes."""
  weights = {name: values for name, values in last.items() if "GSP" in name}
  if not weights:
    return []
  rows = drawn_rows(test)
  names = [test.label_names[label].replace("_", " ")[:12] for label in range(8)]
  figure = plotting.weight_maps(np.asarray(test.images)[rows], weights, names=names)
  return [plotting.save(figure, output / "weights.png").name]


def main() -> None:
  """The command line."""
  preset, config, output = _cli.parse(PRESETS, name="gsp_collage", doc=__doc__)
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
