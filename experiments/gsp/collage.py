"""The comparison on collages: settings, trainings, claims and plots (DML 5.3.2)."""

import collections
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.frame import kept, pictures
from experiments.frame.settings import MultipleOf
from experiments.frame.study import Claim, Table
from experiments.gsp import collages, network
from experiments.gsp import training as pooled_training
from spherejax import data, plotting, training


@dataclasses.dataclass(frozen=True)
class Config(network.Settings):
  """Settings of the comparison."""

  images: Literal["omniglot", "cifar100"] = "omniglot"
  """Image set of the tiles."""
  percent: int = 100
  """Share of the image set to read, in percent."""
  image_size: int = 16
  """Side of one tile, in pixels; that of a collage is twice as long."""
  most: int = 200
  """Largest number of images per foreground sub-class; each is in one collage."""
  losses: tuple[Literal["C2", "PNCA"], ...] = ("C2", "PNCA")
  """Losses to train with."""
  seeds: int = 3
  """Runs of each variant."""
  strides: tuple[int, ...] = (1, 2, 1)
  mass: float = 0.25
  """Share of a collage's features that GSP keeps (DML eq. 5.2.1)."""
  inverse_temperature: float = 10.0
  """Inverse temperature of the pooling (DML 5.3.2)."""
  zero_shot_weight: float = 0.5
  """Weight of the zero-shot prediction loss (DML 5.3.2)."""
  pretraining: Annotated[int, MultipleOf("parts")] = 2000
  """Steps that train the backbone to classify single images by sub-class; 0 keeps
  random weights."""
  pretrain_on: Literal["training", "all"] = "training"
  """Sub-classes for pretraining: training (those of the training), or all, as in the
  paper."""
  steps: int = 500
  """Training steps."""
  patience: int = 0
  """Parts without a better validation MAP@R before the learning rate is halved; 0:
  never."""
  parts: int = 5

  def __post_init__(self):
    super().__post_init__()
    if not self.losses:
      names = ", ".join(network.LOSSES)
      raise ValueError(f"losses must have one of {names}, got none")


_ON_COLLAGES = ("GAP", "GAP + ZSP", "GSP", "GSP + ZSP")
WEIGHT = "weight on the labelled image"


class Trained(NamedTuple):
  """Program to train: the variants that share it, and its images."""

  settings: Config
  variants: dict[str, network.Variant]
  alone: bool = False


def plan(config: Config) -> list[Trained]:
  masses = {
    "GAP": network.AVERAGE,
    "GAP + ZSP": network.Variant(1.0, config.zero_shot_weight),
    "GSP": network.Variant(config.mass, 0.0),
    "GSP + ZSP": network.Variant(config.mass, config.zero_shot_weight),
  }
  trained = []
  for loss in config.losses:
    settings = dataclasses.replace(config, loss=network.LOSSES[loss])
    gsp = dataclasses.replace(settings, pooling="gsp")
    variants = {f"{loss}, {name}": variant for name, variant in masses.items()}
    distilled = {f"{loss}, distilled": network.AVERAGE}
    trained += [Trained(gsp, variants), Trained(settings, distilled, alone=True)]
  return trained


def learning_rate_scale(scores: Sequence[float], patience: int) -> float:
  """Halves the scale whenever `patience` scores in a row did not exceed the best."""
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
  pretrained: training.TrainState | None,
  output: pathlib.Path,
) -> kept.Finished:
  """Trains the variants of one program and tests them on unseen sub-classes.

  Returns the figures of each variant, and its weights on the collages of the figure.
  """
  settings = trained.settings
  stem = settings.loss, settings.pooling, "alone" if trained.alone else "on", f"{seed}"
  path = output / "kept" / "-".join(stem)
  # These settings only add other programs, so a change of them keeps the outcome.
  made_with = dataclasses.asdict(settings) | {"seeds": 0, "losses": ()}
  train, validation, test = (
    parts[name].alone if trained.alone else parts[name].collages
    for name in collages.PARTS
  )

  def after(run: pooled_training.Run, variant: network.Variant):
    """Scores a part, and sets the learning rate of the next one."""
    result = network.embed(run.state, validation, settings, mass=variant.mass)
    score = collages.retrieval(result.embeddings, validation.labels)["MAP@R"]
    run = run._replace(scores=(*run.scores, score))
    scale = jnp.float32(learning_rate_scale(run.scores, settings.patience))
    return run._replace(state=run.state.replace(learning_rate_scale=scale))

  def make() -> kept.Finished:
    folder = path.with_name(f"parts-{settings.patience}")
    runs = pooled_training.train(
      settings, seed, trained.variants, train, folder, pretrained=pretrained,
      after=after if settings.patience else None, progress=False,
    )  # fmt: skip
    figures, weights = {}, {}
    for name, run in runs.items():
      mass = trained.variants[name].mass
      result = network.embed(run.state, test, settings, mass=mass)
      figures[name] = collages.retrieval(result.embeddings, test.labels)
      if result.weights is not None:
        figures[name][WEIGHT] = collages.foreground_weight(
          result.weights, parts["test"].foreground
        )
        weights[name] = np.asarray(result.weights)[drawn_rows(test)]
    return kept.Finished(figures, weights)

  return kept.once(path, made_with=made_with, make=make)


def charts(config: Config, table: Table) -> dict[str, pictures.Figure]:
  """Scores by loss (DML Fig. 5.5(b))."""
  measure, panels = f"MAP@R, {config.images}", collections.defaultdict(dict)
  for name in table.variants(measure):
    loss, _, variant = name.partition(", ")
    panels[loss][variant] = table.values(measure, name)
  return {"scores": pictures.dots(panels, "MAP@R of unseen classes")}


def drawn_rows(test: data.Images) -> np.ndarray:
  """The first collage of each of eight classes."""
  return np.array([np.argmax(test.labels == label) for label in range(8)])


def weights(
  last: dict[str, np.ndarray], test: collages.Part
) -> dict[str, pictures.Figure]:
  """Weights of the last seed on the first collage of each of eight classes.

  A frame marks the labelled tile.
  """
  from matplotlib.patches import Rectangle

  gsp_weights = {name: values for name, values in last.items() if "GSP" in name}
  rows = drawn_rows(test.collages)
  images = np.asarray(test.collages.images)[rows]
  # Without their parentheses, the names fit above their collages.
  names = [
    name.partition("_(")[0].replace("_", " ") for name in test.collages.label_names
  ]
  figure = plotting.weight_maps(images, gsp_weights, names=names[: len(rows)])
  side = images.shape[1] // 2
  for axes, tiles in zip(figure.axes, test.foreground[rows], strict=False):
    ((y, x),) = side * np.argwhere(tiles) - 0.5
    frame = Rectangle((x, y), side, side, fill=False, color=pictures.COLORS[0], lw=2)
    axes.add_patch(frame)
  return {"weights": figure}


def complete(table: Table, config: Config) -> None:
  """Adds the gain of the best variant on collages."""
  measure = f"MAP@R, {config.images}"
  for loss in config.losses:
    average, *others = (f"{loss}, {name}" for name in _ON_COLLAGES)
    best = max(others, key=lambda name: table.values(measure, name).mean())
    title = f"{loss}, best ({best.partition(', ')[2]}) - GAP"
    # DML chapter 6 says 17 points, but not with which loss.
    table.add_gain(measure, best, over=average, paper=0.17, title=title)


def claims(config: Config, _: Table) -> Iterator[Claim]:
  """DML 5.3.2: what GSP, ZSP and the other images of a collage are worth."""
  measure, weight = f"MAP@R, {config.images}", f"{WEIGHT}, {config.images}"
  for loss in config.losses:
    for name, better, other in (
      ("gsp", "GSP", "GAP"),
      ("zsp", "GSP + ZSP", "GSP"),
      ("distilled", "distilled", "GAP"),
    ):
      yield Claim(
        f"collage-{name}-{loss.lower()}",
        f"MAP@R({better}) > MAP@R({other}), {loss}, unseen classes",
        lambda t, a=f"{loss}, {better}", b=f"{loss}, {other}": t.gain(
          measure, a, over=b
        ),
      )
    yield Claim(
      f"collage-attention-{loss.lower()}",
      f"weight on the labelled image under GSP + ZSP > 0.25, {loss}",
      lambda t, a=f"{loss}, GSP + ZSP": t.values(weight, a) - 0.25,
    )
