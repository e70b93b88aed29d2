"""Figures of grids, of norms against counts, and of angles and norms."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from experiments.counting.features import drawn
from experiments.counting.images import Objects
from experiments.counting.settings import DIRECTIONS, Fill
from experiments.frame import pictures
from spherejax import metrics

_SHOWN = 4  # grids of each fill: two of mixed classes, two of one class


def grids(objects: Objects, fills: Sequence[Fill], keys: jax.Array) -> pictures.Figure:
  """Examples of each fill: mixed classes on the left, single on the right."""
  figure = pictures.new_figure(2 * _SHOWN, 2.2 * len(fills))
  axes = figure.subplots(len(fills), _SHOWN, squeeze=False)
  std, mean = (np.asarray(x)[None, None] for x in (objects.std, objects.mean))
  for row, fill in zip(axes, fills, strict=True):
    by_kind = [
      jax.tree.map(np.asarray, drawn(objects, keys, fill, single))
      for single in (False, True)
    ]
    for column, panel in enumerate(row):
      single, number = divmod(column, _SHOWN // 2)
      grid = jax.tree.map(lambda x, i=number: x[i], by_kind[single])
      image = np.clip(grid.image * std + mean, 0, 1)
      gray = image.shape[-1] == 1
      panel.imshow(image[..., 0] if gray else image, cmap="gray", vmin=0, vmax=1)
      kind = f"class {grid.label}" if single else "mixed"
      panel.set_title(f"{fill}, {kind}: {grid.num_objects}", fontsize=9)
      panel.set(xticks=[], yticks=[])
  return figure


def norms(
  panels: Mapping[str, tuple[np.ndarray, np.ndarray]], columns: int
) -> pictures.Figure:
  """Box plots of standardised norms for each count, with a parabola and its 95 % band.

  A panel is norms and counts.
  """
  figure, cells = pictures.panels(
    panels, columns, 5.2 / columns, 0.5, size=8.5, sharex="col"
  )
  for axes, values in zip(cells, panels.values(), strict=True):
    _boxes(axes, *values)
  figure.supxlabel("objects", fontsize=9.5)
  figure.supylabel("norm, standardised", fontsize=9.5)
  return figure


def _boxes(axes: pictures.Axes, norms: np.ndarray, counts: np.ndarray) -> None:
  fit = jax.tree.map(np.asarray, metrics.norm_count_regression(norms, counts))
  v = (norms - norms.mean()) / norms.std(ddof=1)
  places = np.unique(counts)
  axes.boxplot(
    [v[counts == c] for c in places],
    positions=places,
    widths=0.6,
    whis=1.5,
    manage_ticks=False,
    flierprops={"marker": ".", "markersize": 2, "markeredgecolor": "#888888"},
    medianprops={"color": "#222222"},
    boxprops={"color": "#0072B2"},
    whiskerprops={"color": "#0072B2"},
    capprops={"color": "#0072B2"},
  )
  at = np.linspace(places[0], places[-1], 100)
  rows = np.stack([np.ones_like(at), at, at**2], axis=1)
  middle = rows @ fit.coefficients
  half = 1.96 * np.sqrt(np.einsum("ij,jk,ik->i", rows, fit.covariance, rows))
  axes.fill_between(at, middle - half, middle + half, color="#D55E00", alpha=0.35, lw=0)
  axes.plot(at, middle, color="#D55E00", lw=1.3)
  axes.set_xticks(places[:: max(1, len(places) // 5)])


def polar(z: np.ndarray, counts: np.ndarray, labels: np.ndarray) -> pictures.Figure:
  """Angles in the plane of the first two discriminant directions; radius is the norm.

  The directions are computed from unit vectors. Colours show classes, then counts.
  """
  import matplotlib
  from matplotlib import ticker
  from sklearn import discriminant_analysis

  lengths = np.linalg.norm(z, axis=1)
  unit = z / np.maximum(lengths, 1e-12)[:, None]
  analysis = discriminant_analysis.LinearDiscriminantAnalysis(n_components=DIRECTIONS)
  plane = analysis.fit(unit.astype(np.float64), labels).transform(unit)
  angle = np.arctan2(plane[:, 1], plane[:, 0])
  figure = pictures.new_figure(7.2, 3.4)
  classes = int(labels.max()) + 1
  colors = matplotlib.colormaps["tab20" if classes > 10 else "tab10"]
  for number, (values, name, cmap) in enumerate(
    ((labels, "class", colors.resampled(classes)), (counts, "objects", "viridis")), 1
  ):
    axes = figure.add_subplot(1, 2, number, projection="polar")
    dots = axes.scatter(angle, lengths, c=values, s=4, alpha=0.8, cmap=cmap)
    ticks = None
    if name == "class":
      dots.set_clim(-0.5, classes - 0.5)
      ticks = range(0, classes, 1 + classes // 11)
    axes.set_xticklabels([])
    # More norms would not fit side by side.
    axes.yaxis.set_major_locator(ticker.MaxNLocator(4))
    axes.tick_params(labelsize=8)
    figure.colorbar(dots, ax=axes, shrink=0.7, label=name, ticks=ticks)
  return figure
