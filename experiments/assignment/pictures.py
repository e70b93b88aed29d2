"""Figures of DL2P: prototypes and their classes, cosines, dimensions, matchings."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.assignment import prototypes, tasks, training
from experiments.assignment.photographs import Trained
from experiments.assignment.prototypes import Cosines
from experiments.assignment.settings import Job
from experiments.frame import pictures
from experiments.frame.pictures import Figure
from spherejax import distances, plotting

# Colours that also differ in lightness (Tableau's, as in matplotlib's "tab10").
_COLORS = "tab10"
SHOWN = ("PSC, linear", "PSC, cosine", "DL2P", "Static", "Fixed + CE")
Label = Callable[[Job], str]  # name of a training's curve
Varied = Callable[[Job], float | None]  # its place on the curve; None: on no curve


def on_sphere(panels: Mapping[str, np.ndarray], groups: np.ndarray) -> Figure:
  """Prototypes in three dimensions on a map of the sphere, numbered by class.

  Equal areas of the sphere are equal areas of the map (Mollweide).
  """
  import matplotlib

  figure = pictures.new_figure(3.6 * len(panels), 2.2)
  colors = matplotlib.colormaps[_COLORS]
  for number, (title, points) in enumerate(panels.items(), 1):
    axes = figure.add_subplot(1, len(panels), number, projection="mollweide")
    x, y, z = points.T / np.linalg.norm(points, axis=1)
    places = np.arctan2(y, x), np.arcsin(z)
    # Above the frame, below the numbers.
    axes.scatter(*places, s=170, c=colors(groups), clip_on=False, zorder=2.8)
    for label, place in enumerate(zip(*places, strict=True)):
      axes.text(*place, str(label), ha="center", va="center", fontsize=8, color="white")
    axes.set(xticklabels=[], yticklabels=[])
    axes.grid(color="#D9D9D9", linewidth=0.6)
    axes.set_title(title, fontsize=11)
  return figure


def histograms(cosines: Cosines) -> dict[str, Figure]:
  """Cosines of all pairs of the last three sizes of sets (figure 3a)."""
  if not cosines:
    return {}
  sizes = list(dict.fromkeys(key[1:] for key in cosines))[-3:]
  titles = [f"{classes} in {dim} dimensions" for classes, dim in sizes]
  figure, cells = pictures.panels(titles, 3, 2.9)
  # The constructions that the paper compares.
  names = (prototypes.BEST, prototypes.POTENTIAL, prototypes.HPN)
  for axes, size in zip(cells, sizes, strict=True):
    sets = {name: cosines[name, *size] for name in names if (name, *size) in cosines}
    low = min(values.min() for values in sets.values())
    high = max(values.max() for values in sets.values())
    bins = np.linspace(low - 0.02, high + 0.02, 80)
    for width, (name, values) in zip((3.0, 2.0, 1.0), sets.items(), strict=False):
      # Later lines are thinner, so that equal lines remain visible below each other.
      axes.hist(values, bins, histtype="step", density=True, lw=width, label=name)
    axes.set(yscale="log")
  cells[0].set_ylabel("density")
  figure.supxlabel("cosine of two prototypes", fontsize=9.5)
  pictures.name_curves(figure)
  return {"cosines": figure}


def changes(curves: Mapping[str, np.ndarray], xlabel: str) -> dict[str, Figure]:
  """Shares of the classes that matchings reassign (figure 4b)."""
  if not curves:
    return {}
  ylabel = "share of classes with another prototype"
  return {"changes": plotting.training_curves(curves, xlabel=xlabel, ylabel=ylabel)}


def draw(study: training.Study, cosines: Cosines) -> dict[str, Figure]:
  """Draws every plot; plots of a single run show the first seed."""
  runs, dims = study.runs, study.dims
  groups = np.arange(runs.points.shape[2]) // tasks.PER_GROUP
  low = dims[0]
  ends = {
    title: runs.points[runs.best(low, name)][0][:, :low]
    for title, name in (
      ("before training, and Static", "Static"),
      ("DL2P after training", "DL2P"),
    )
    if study.has(low, name)
  }
  figures = {}
  if ends:
    maps = {x: distances.pairwise_cosine(rows, rows) for x, rows in ends.items()}
    label = "class, by super-class"
    figures["matrix"] = pictures.cosine_maps(maps, groups, label, columns=len(maps))
    if low == 3:
      figures["prototypes"] = on_sphere(ends, groups)
  reassigned = {
    f"D = {dim}": runs.change[runs.best(dim, "DL2P")][:, 1:]
    for dim in dims
    if study.has(dim, "DL2P")
  }
  figures |= histograms(cosines) | by_dimension(study, "accuracy")
  return figures | changes(reassigned, "matching, one after each epoch")


def by_dimension(study: training.Study, file: str) -> dict[str, Figure]:
  """Accuracies against the dimension (figure 4a), of methods in all dimensions."""
  names = [name for name in SHOWN if study.has(study.dims[0], name)]
  steps = [dim for dim in study.dims if study.has(dim, *names)]
  if not names:
    return {}
  curves = {
    name: np.stack([study.runs.accuracy(dim, name) for dim in steps], axis=1)
    for name in names
  }
  data = {"siblings": "overlapping classes", "superclass": "separate classes"}
  xlabel = "dimension of the embedding"
  ylabel = f"accuracy, {data.get(study.data, study.data)}"
  figure = plotting.training_curves(curves, steps=steps, xlabel=xlabel, ylabel=ylabel)
  return {file: figure}


def draw_tables(
  trainings: Mapping[Job, Sequence[Trained]],
  cosines: Cosines,
  seconds: Mapping[int, Sequence[float]],
) -> dict[str, Figure]:
  """The paper's figures 3 and 4, as far as the run has their data."""
  figures = histograms(cosines)  # 3a
  settings: tuple[tuple[str, str, Label, Varied], ...] = (
    ("updates", "matchings an epoch, r", lambda job: job.label,  # 3b
     lambda job: job.updates if job.method == "DL2P" else None),
    ("uniformity", "weight of the uniformity of PSC*", lambda job: job.label,  # 3d
     lambda job: job.uniformity),
    ("accuracy", "dimension", lambda job: f"{job.title}, {job.data}",  # 4a
     lambda job: job.dim if job.uniformity is None else None),
  )  # fmt: skip
  for name, xlabel, label, varied in settings:
    curves, values = accuracies(trainings, label, varied)
    if curves:
      figures[name] = plotting.training_curves(
        _distinguishable(curves), steps=values, xlabel=xlabel, ylabel="accuracy"
      )
      figures[name].axes[0].set_xscale("log")
  if seconds:
    figures["matchings"] = plotting.training_curves(  # 3c
      {"one matching": np.transpose(list(seconds.values()))},
      steps=list(seconds),
      xlabel="classes",
      ylabel="seconds",
    )
    figures["matchings"].axes[0].set(xscale="log", yscale="log")
  reassigned = {
    f"{job.title}, {job.label}": np.stack([run.changes for run in runs])
    for job, runs in trainings.items()
    if job.method == "DL2P"
  }
  return figures | changes(_distinguishable(reassigned), "epoch")  # 4b


def accuracies(
  trainings: Mapping[Job, Sequence[Trained]], label: Label, varied: Varied
) -> tuple[dict[str, np.ndarray], list[float]]:
  """Accuracy curves [seeds, values] by label, and the values of the varied setting.

  `varied` returns a job's value, or None to leave the job out. Labels with a single
  value are left out; values that were not trained are NaN.
  """
  by_label: dict[str, dict[float, list[float]]] = {}
  for job, runs in trainings.items():
    if (value := varied(job)) is not None:
      by_label.setdefault(label(job), {})[value] = [run.accuracy for run in runs]
  several = {name: by_value for name, by_value in by_label.items() if len(by_value) > 1}
  values = sorted({value for by_value in several.values() for value in by_value})
  curves = {}
  for name, by_value in several.items():
    missing = [np.nan] * len(next(iter(by_value.values())))
    curves[name] = np.transpose([by_value.get(value, missing) for value in values])
  return curves, values


def _distinguishable(curves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """The first seven curves: colours distinguish no more."""
  return dict(list(curves.items())[:7])


def draw_images(studies: Sequence[training.Study]) -> dict[str, Figure]:
  """Accuracies of all methods on each set of images; empty if none was trained."""
  values = {
    f"{study.data}, D = {dim}": {
      name: study.runs.accuracy(dim, name)
      for name, dimension in study.methods()
      if dimension == dim
    }
    for study in studies
    if study.of_images
    for dim in study.dims
  }
  if not values:
    return {}
  label = "mean accuracy of the classes"
  return {"images": plotting.bars_with_intervals(values, ylabel=label)}
