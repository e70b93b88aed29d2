"""Minima of each loss, for prototypes in the plane and on the sphere.

DIST, article II: Table 1, figures 1, 7 and 8, appendix E.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame.pictures import Figure, new_figure
from experiments.frame.study import Claim, Table
from spherejax import distances, losses

# Red, green and blue prototypes of figure 1, and on the sphere.
PLANE = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 1.5]], np.float32)
SPHERE = np.eye(3, dtype=np.float32)[::-1]
SCALE, MARGIN, EXPONENT = 2.0, 0.25, 2.0
COLORS = ("#CC3311", "#009E73", "#0072B2")
LEVELS = np.linspace(0, 1, 11)
POINTS = 2_500  # number of points on the sphere that are searched
DEGREES = "degrees from red to the largest"
MODELS = (
  "NormFace", "CosFace", "ArcFace", "SphereFace, cos 2", "SphereFace", "angle, SD",
  "angle, DR", "chord, DR",
)  # fmt: skip
# Table 1: doubling the distances changes SD, not DR.
EXAMPLES = {
  (1.0, 2.0): (0.95257, 0.8, 0.048587, 0.22314),
  (2.0, 4.0): (0.99999, 0.8, 6.1442e-06, 0.22314),
}


@functools.partial(jax.jit, static_argnums=0)
def probability(name: str, points: Array) -> Array:
  """Probability of red at unit vectors [n, 3]."""
  proxies = jnp.asarray(SPHERE)
  red = jnp.zeros(len(points), jnp.int32)
  cosines = distances.pairwise_cosine(points, proxies)
  angles = distances.pairwise_angle(points, proxies)
  chords = distances.pairwise_squared_euclidean(points, proxies, method="difference")
  ratio = functools.partial(losses.distance_ratio, exponent=EXPONENT)
  doubled = cosines.at[:, 0].set(jnp.cos(2 * angles[:, 0]))
  either: dict[str, Callable[[], Array]] = {
    "NormFace": lambda: losses.normface(cosines, red, scale=SCALE),
    "CosFace": lambda: losses.cosface(cosines, red, scale=SCALE, margin=MARGIN),
    "ArcFace": lambda: losses.arcface(cosines, red, scale=SCALE, margin=MARGIN),
    "SphereFace, cos 2": lambda: losses.softmax(SCALE * doubled, red),
    "SphereFace": lambda: losses.sphereface(
      cosines, red, jnp.full(len(points), SCALE), margin=2
    ),
    "angle, SD": lambda: losses.squared_distance_softmax(angles**2, red),
    "angle, DR": lambda: ratio(angles**2, red),
    "chord, DR": lambda: ratio(chords, red),
  }
  return jnp.exp(-either[name]())


def _grid(number: int) -> np.ndarray:
  """The prototypes, their opposites, and points spread evenly on a spiral."""
  place = np.arange(number) + 0.5
  height = 1 - 2 * place / number
  turn = np.pi * (1 + 5**0.5) * place
  ring = np.sqrt(1 - height**2)
  spiral = np.stack([ring * np.cos(turn), ring * np.sin(turn), height], 1)
  return np.concatenate([SPHERE, -SPHERE, spiral]).astype(np.float32)


def _extreme(name: str, sign: int, grid: np.ndarray) -> tuple[float, np.ndarray]:
  """Largest (or least) probability and its point, by successively finer search."""

  def best(points: np.ndarray) -> tuple[float, np.ndarray]:
    values = sign * np.asarray(probability(name, jnp.asarray(points)))
    return float(sign * values.max()), points[np.argmax(values)]

  value, point = best(grid)
  for size in 0.05 / 2.5 ** np.arange(11):
    near = point[None] + size * grid
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    near[0] = point
    value, point = best(near.astype(np.float32))
  return value, point


def in_plane(kind: str, points: np.ndarray) -> np.ndarray:
  """Probability of red at points of the plane; `kind` is SD or an exponent of DR."""
  return np.asarray(_in_plane(kind == "SD", float(kind.replace("SD", "1")), points))


@functools.partial(jax.jit, static_argnums=0)
def _in_plane(squared: bool, exponent: float, points: Array) -> Array:
  squares = distances.pairwise_squared_euclidean(
    points, jnp.asarray(PLANE), method="difference"
  )
  red = jnp.zeros(len(points), jnp.int32)
  if squared:
    return jnp.exp(-losses.squared_distance_softmax(squares, red))
  return jnp.exp(-losses.distance_ratio(squares, red, exponent=exponent))


def add(table: Table) -> None:
  """Adds all exact results; for the sphere the article prints only maps."""
  red = jnp.zeros(1, jnp.int32)
  for pair, printed in EXAMPLES.items():
    squares = jnp.array([pair]) ** 2
    loss = [
      losses.squared_distance_softmax(squares, red)[0],
      losses.distance_ratio(squares, red, exponent=EXPONENT)[0],
    ]
    name = f"distances {pair[0]:g} and {pair[1]:g}"
    measures = "p by SD", "p by DR", "loss by SD", "loss by DR"
    values = [*np.exp(-np.array(loss)), *loss]
    for measure, value, paper in zip(measures, values, printed, strict=True):
      table.add(name, measure, value, paper=paper)
  behind = PLANE[0] - 3 * (PLANE[1:].mean(0) - PLANE[0])
  places = "at red", "at green", "at blue", "behind red"
  for kind in ("SD", "2", "7.389"):
    values = in_plane(kind, np.stack([*PLANE, behind]))
    for place, value in zip(places, values, strict=True):
      table.add(f"plane, {kind}", f"p(red) {place}", value)
  grid = _grid(POINTS)
  for name in MODELS:
    largest, top = _extreme(name, 1, grid)
    # The grid begins with the prototypes.
    probabilities = np.asarray(probability(name, jnp.asarray(grid)))
    # SphereFace with cos 2 has two equal maxima, above and below; take the upper.
    height = abs(top[2]) if name == "SphereFace, cos 2" else top[2]
    table.add_all(f"sphere, {name}", {
      "largest p(red)": largest,
      "p(red) at red": probabilities[0],
      "p(red) at green": probabilities[1],
      "least p(red)": _extreme(name, -1, grid)[0],
      DEGREES: np.degrees(np.arccos(np.clip(height, -1, 1))),
    })  # fmt: skip


def _beyond(table: Table) -> np.ndarray:
  """Tolerance 1e-6 less the largest error of DR's probabilities in the plane."""
  least = []
  for kind in ("2", "7.389"):
    red, green, blue, behind = (
      table.values(f"p(red) {place}", f"plane, {kind}")
      for place in ("at red", "at green", "at blue", "behind red")
    )
    least.append([abs(red - 1), abs(green), abs(blue), behind - red])
  wrong = np.array(least)
  return 1e-6 - wrong[:, :3].max((0, 1)) - wrong[:, 3].max(0).clip(0)


CLAIMS = Claim.of_rows([
  ("F1-beyond",
   "by SD a point behind the red prototype is likelier red than the prototype",
   lambda t: (
     t.values("p(red) behind red", "plane, SD") - t.values("p(red) at red", "plane, SD")
   )),
  ("F1-ratio",
   "by DR p(red) is 1 at its prototype, 0 at the others, and less behind", _beyond),
], "DIST, article II, fig. 1", every_seed=True)  # fmt: skip


def _color_bar(figure: Figure) -> None:
  from matplotlib.cm import ScalarMappable
  from matplotlib.colors import Normalize

  scale = ScalarMappable(Normalize(0, 1), "Reds")
  figure.colorbar(scale, ax=figure.axes, label="p(red)", shrink=0.8)


def draw_plane() -> Figure:
  """Probabilities of red in the plane."""
  axis = np.linspace(-2.5, 4.5, 281, dtype=np.float32)
  grid = np.stack(np.meshgrid(axis, axis - 1), -1).reshape(-1, 2)
  maps = {
    title: in_plane(kind, grid).reshape(281, 281)
    for kind, title in (
      ("SD", "squared distances (SD)"),
      ("1", "distance ratio, exponent 1"),
      ("7.389", "distance ratio, exponent e^2"),
    )
  }
  figure = new_figure(9.0, 3.2)
  for number, (title, values) in enumerate(maps.items()):
    axes = figure.add_subplot(1, 3, number + 1)
    axes.contourf(axis, axis - 1, values, levels=LEVELS, cmap="Reds")
    for point, color in zip(PLANE, COLORS, strict=True):
      axes.scatter(*point, s=50, color=color, edgecolor="white", zorder=3)
    axes.set(title=title, xticks=[], yticks=[], aspect="equal")
  _color_bar(figure)
  return figure


def draw_sphere() -> Figure:
  """Probabilities of red, seen from the side of the three prototypes."""
  axis = np.linspace(-1, 1, 161)
  u, v = np.meshgrid(axis, axis)
  inside = u**2 + v**2 < 1
  w = np.sqrt(np.where(inside, 1 - u**2 - v**2, 0))
  # Towards the viewer: (1, 1, 1); up: the red prototype.
  front = np.ones(3) / 3**0.5
  up = np.array([-1, -1, 2]) / 6**0.5
  right = np.cross(up, front)
  points = u[..., None] * right + v[..., None] * up + w[..., None] * front
  flat = points.reshape(-1, 3).astype(np.float32)
  # Blocks have the size of the search, whose program is already compiled.
  size = len(_grid(POINTS))
  parts = [np.resize(flat[i : i + size], (size, 3)) for i in range(0, len(flat), size)]
  figure = new_figure(9.0, 4.8)
  for number, name in enumerate(MODELS):
    axes = figure.add_subplot(2, 4, number + 1)
    values = np.concatenate([probability(name, part) for part in parts])[: len(flat)]
    values = np.where(inside, values.reshape(inside.shape), np.nan)
    axes.contourf(axis, axis, values, levels=LEVELS, cmap="Reds")
    for point, color in zip(SPHERE, COLORS, strict=True):
      axes.scatter(
        point @ right, point @ up, s=30, color=color, edgecolor="white", zorder=3
      )
    axes.set_title(name, fontsize=9)
    axes.set_aspect("equal")
    axes.axis("off")
  _color_bar(figure)
  return figure
