"""Figures of `plankton`, like those of DIST, article I."""

import functools

import numpy as np
from matplotlib.patheffects import withStroke

from experiments.frame import pictures
from experiments.frame.images import Parts
from experiments.frame.pictures import Figure
from experiments.hierarchies import plankton_tables
from experiments.hierarchies.plankton_images import Config
from experiments.hierarchies.plankton_runs import BASELINE, EMBEDDING, SEEN, UNSEEN
from experiments.hierarchies.plankton_tables import Seeds
from spherejax import data, plotting

INK, FAINT, BLUE, ORANGE = "#222222", "#bbbbbb", "#0072B2", "#D55E00"
_HALO = [withStroke(linewidth=2, foreground="white")]
SHOWN = 6  # confusions to show images of
EACH = 4  # images of a class
FEW = 300  # most points for the exact method of t-SNE
NAMED = 12  # classes with a colour in the plane


def draw(
  embedded: Seeds, classified: Seeds, study: Parts, config: Config
) -> dict[str, Figure]:
  """Draws all plots of a run. `study` belongs to the first seed."""
  figures = {
    "training": training(embedded),
    "neighbours": neighbours(embedded),
    "baseline": baseline(classified, config),
  }
  for group, images in ((SEEN, study.test), (UNSEEN, study.unseen)):
    scores = plankton_tables.mean_f1(embedded, classified, group, config)
    figures[f"f1-{group}"] = f1(scores, images.label_names)
    figures[f"tsne-{group}"] = tsne(embedded[0].points[group], images, config)
    place = f"{EMBEDDING}, {group}, {plankton_tables.USUAL}"
    counts = np.sum([run.counts[place] for run in embedded], axis=0)
    if pairs := plankton_tables.commonest(counts)[:SHOWN]:
      figures[f"confused-{group}"] = confused(pairs, counts, images)
  return figures


def training(embedded: Seeds) -> Figure:
  """Radius, drift and accuracy after each iteration."""
  titles = ("cluster radius", "drift of the centroid", "accuracy of centroids")
  figure, panels = pictures.panels(titles, 3, 2.9)
  for axes, name in zip(panels, ("radius", "drift", "accuracy"), strict=True):
    thin = functools.partial(
      axes.plot, color=FAINT, zorder=1, label="classes of seed 1, or seeds"
    )
    first = int(name == "drift")  # the first drift is from the initial weights
    curves = np.array([run.figures["curves"][name] for run in embedded])[:, first:]
    steps = np.arange(1, curves.shape[1] + 1) + first
    for key, values in embedded[0].figures["curves"].items():
      if key.startswith(f"{name} "):
        thin(steps, values[first:], linewidth=0.6)
    margins = [run.figures["kept margin"].get(name) for run in embedded]
    if margins[0] is not None:
      mean = np.mean(margins, axis=0)[first:]
      axes.plot(steps, mean, "--", color=ORANGE, label="first margin throughout")
    if name == "accuracy":
      start = [run.figures["start"]["accuracy"] for run in embedded]
      axes.plot(0, np.mean(start), "o", color=INK, markersize=4, label="untrained")
      thin(steps, curves.T, linewidth=0.8)
    axes.plot(steps, curves.mean(0), "-o", color=INK, markersize=3, label="mean")
    axes.set_xlabel("iteration", fontsize=9)
    axes.locator_params(axis="x", integer=True)
    axes.margins(y=0.08)  # before the lower limit, which keeps the upper one
    axes.set_ylim(bottom=0)
  pictures.name_curves(figure)
  return figure


def neighbours(embedded: Seeds) -> Figure:
  """Accuracy on half of the validation images against the number of neighbours."""
  by_k = [run.figures["by k"] for run in embedded]
  return plotting.training_curves(
    {"embedding": [list(run.values()) for run in by_k]},
    steps=[float(k) for k in by_k[0]],
    xlabel="neighbours k",
    ylabel="accuracy on half of the validation images",
  )


def baseline(classified: Seeds, config: Config) -> Figure:
  """Accuracy of the softmax classifier during training."""
  curves = np.array([run.figures["accuracies"] for run in classified])
  parts = np.arange(1, curves.shape[1] + 1)
  epochs = config.baseline_epochs / config.iterations
  return plotting.training_curves(
    {BASELINE: curves},
    steps=epochs * parts if epochs else parts,
    xlabel="epoch" if epochs else "iteration",
    ylabel="accuracy on validation images",
  )


def f1(scores: dict[str, np.ndarray], names: tuple[str, ...]) -> Figure:
  """F1 of every class by every rule, sorted by that of the last k."""
  centroid, *by_k = [way for way in scores if way != BASELINE]
  order = np.argsort(-np.nan_to_num(scores[by_k[-1]]), kind="stable")
  places = np.arange(len(names))[::-1]
  figure, (axes,) = pictures.panels([""], 1, 0.9 + 0.165 * len(names))
  columns = {way: values[order] for way, values in scores.items()}
  for shade, way in zip(np.linspace(0.75, 0.25, len(by_k)), by_k, strict=True):
    axes.plot(columns[way], places, "o", color=f"{shade}", markersize=4, label=way)
  axes.plot(columns[centroid], places, "x", color=BLUE, markersize=5, label=centroid)
  if BASELINE in columns:
    axes.plot(columns[BASELINE], places, "|", color=ORANGE, markersize=8,
              markeredgewidth=2, label=BASELINE)  # fmt: skip
  texts = [names[n].replace("_", " ") for n in order]
  axes.set_yticks(places, texts, fontsize=8)
  axes.set(xlabel="F1", xlim=(-0.02, 1), ylim=(-1, len(names)))
  axes.grid(axis="both", color="#eeeeee", linewidth=0.6)
  axes.set_axisbelow(True)
  pictures.name_curves(figure, 6)
  return figure


def tsne(points: np.ndarray, images: data.Images, config: Config) -> Figure:
  """Test images in a plane by t-SNE, the commonest classes in colour; not measured."""
  from sklearn.manifold import TSNE

  labels, names = images.labels, images.label_names
  rng = np.random.default_rng(config.seed)
  rows = np.sort(rng.permutation(len(points))[: config.drawn])
  centroids = np.stack([points[labels == c].mean(0) for c in range(len(names))])
  points_and_centroids = np.concatenate([points[rows], centroids]).astype(np.float64)
  perplexity = min(30.0, (len(points_and_centroids) - 1) / 3)
  # For few points, the other method's threads mostly wait for each other.
  method = "exact" if len(points_and_centroids) <= FEW else "barnes_hut"
  plane = TSNE(
    init="pca", method=method, perplexity=perplexity, random_state=config.seed
  ).fit_transform(points_and_centroids)
  figure = pictures.new_figure(7.2, 6.4)
  axes = figure.subplots()
  dots, middle, shown = plane[: len(rows)], plane[len(rows) :], labels[rows]
  commonest = np.argsort(-np.bincount(shown, minlength=len(names)), kind="stable")
  others = ~np.isin(shown, commonest[:NAMED])
  axes.plot(*dots[others].T, ".", color=FAINT, markersize=2)
  texts = [names[label].replace("_", " ") for label in commonest[:NAMED]]
  spots = without_overlap(middle[commonest[:NAMED]], texts, np.ptp(plane, axis=0))
  for number, label in enumerate(commonest[:NAMED]):
    color, mark = pictures.COLORS[number % 7], "ov"[number // 7]
    axes.plot(*dots[shown == label].T, mark, color=color, markersize=3)
    axes.annotate(
      texts[number], spots[number], ha="center", fontsize=8, color=color,
      path_effects=_HALO,
    )  # fmt: skip
  note = f"colours: the {NAMED} commonest of {len(names)} classes; grey: the others"
  axes.set(xticks=[], yticks=[])
  axes.set_xlabel(note, fontsize=9)
  axes.spines[:].set_visible(False)
  return figure


def without_overlap(
  spots: np.ndarray, texts: list[str], extent: np.ndarray
) -> np.ndarray:
  """Moves texts up until none covers a text below it."""
  letter, line = extent * (0.012, 0.027)
  positions = spots.copy()
  order = np.argsort(spots[:, 1], kind="stable")
  for count, k in enumerate(order):

    def covers(other: int, k: int = k) -> bool:
      x, y = np.abs(positions[k] - positions[other])
      return x < letter * (len(texts[k]) + len(texts[other])) / 2 and y < line

    while any(covers(other) for other in order[:count]):
      positions[k, 1] += line / 4
  return positions


def confused(
  pairs: list[tuple[int, int]], counts: np.ndarray, images: data.Images
) -> Figure:
  """Images of the most confused classes: the true class and the predicted one."""
  figure = pictures.new_figure(2 * EACH * 0.9 + 0.6, 1.2 * len(pairs))
  figure.set_layout_engine("constrained", h_pad=0.11)  # room for the texts
  # An empty column separates the two classes.
  widths = [1] * EACH + [0.4] + [1] * EACH
  panels = figure.subplots(
    len(pairs), len(widths), squeeze=False, gridspec_kw={"width_ratios": widths}
  )
  for axes in panels.ravel():
    axes.set_axis_off()
  for row, (true, called) in zip(panels, pairs, strict=True):
    rate = counts[true, called] / counts[true].sum()
    for label, first, text in (
      (true, 0, f"{images.label_names[true]}: {rate:.2f} are called"),
      (called, EACH + 1, images.label_names[called]),
    ):
      rows = np.flatnonzero(images.labels == label)[:EACH]
      for axes, number in zip(row[first:], rows, strict=False):
        axes.imshow(images.images[int(number)][..., 0], cmap="gray", vmin=0, vmax=255)
      # A title would push the columns apart.
      axes = row[first]
      above = axes.text(0, 1.04, text, fontsize=8, transform=axes.transAxes)
      above.set_in_layout(False)
  return figure
