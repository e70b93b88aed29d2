"""Where each loss is least: prototypes in the plane and on the sphere.

DIST, article II: Table 1, figures 1, 7 and 8, appendix E.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import results
from spherejax import distances, losses
from spherejax.plotting import _figure

if TYPE_CHECKING:
  import matplotlib.figure

PAPER = "DIST, article II"
# Red, green and blue of figure 1, and on the sphere.
PLANE = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 1.5]], np.float32)
SPHERE = np.eye(3, dtype=np.float32)[::-1]
SCALE, MARGIN, EXPONENT = 2.0, 0.25, 2.0
COLORS = ("#CC3311", "#009E73", "#0072B2")
LEVELS = np.linspace(0, 1, 11)
HALF = 0.5e-5  # of the last digit that is compared
POINTS = 2_500  # of the sphere that are searched


class Known(NamedTuple):
  """What is known of a model on the sphere, of red: five digits, two of positions."""

  largest: float
  argmax: tuple[float, ...] | None
  at_red: float
  at_green: float
  argmin: tuple[float, ...] | None


KNOWN = {
  "NormFace": Known(
    0.85275, (-0.408, -0.408, 0.816), 0.78699, 0.10651, (0.408, 0.408, -0.816)
  ),
  "CosFace": Known(
    0.77840, (-0.408, -0.408, 0.816), 0.69144, 0.06743, (0.408, 0.408, -0.816)
  ),
  "ArcFace": Known(
    0.81026, (-0.303, -0.303, 0.904), 0.77638, 0.06775, (0.496, 0.496, -0.712)
  ),
  # Two maxima, above and below, and a least value on the whole equator.
  "SphereFace, cos 2": Known(0.80719, None, 0.78699, 0.01588, None),
  "SphereFace": Known(
    0.80719, (-0.125, -0.125, 0.984), 0.78699, 0.01588, (0.125, 0.125, -0.984)
  ),
  "angle, SD": Known(0.96021, (-0.604, -0.604, 0.520), 0.85499, 0.07251, (0, 0, -1)),
  "angle, DR": Known(1.0, (0, 0, 1), 1.0, 0.0, None),
  "chord, DR": Known(1.0, (0, 0, 1), 1.0, 0.0, None),
}


@functools.partial(jax.jit, static_argnums=0)
def probability(name: str, points: Array) -> Array:
  """[n]: of red, at unit vectors [n, 3]."""
  proxies = jnp.asarray(SPHERE)
  red = jnp.zeros(len(points), jnp.int32)
  cosines = distances.pairwise_cosine(points, proxies)
  angles = distances.pairwise_angle(points, proxies)
  chords = distances.pairwise_squared_euclidean(points, proxies, method="difference")
  ratio = functools.partial(losses.distance_ratio, exponent=EXPONENT)
  margin: dict[str, Any] = {"scale": SCALE, "margin": MARGIN}
  doubled = cosines.at[:, 0].set(jnp.cos(2 * angles[:, 0]))
  either: dict[str, Callable[[], Array]] = {
    "NormFace": lambda: losses.normface(cosines, red, scale=SCALE),
    "CosFace": lambda: losses.cosface(cosines, red, **margin),
    "ArcFace": lambda: losses.arcface(cosines, red, **margin),
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
  """Points of a spiral, evenly over the sphere, and the prototypes."""
  place = np.arange(number) + 0.5
  height = 1 - 2 * place / number
  turn = np.pi * (1 + 5**0.5) * place
  ring = np.sqrt(1 - height**2)
  spiral = np.stack([ring * np.cos(turn), ring * np.sin(turn), height], 1)
  return np.concatenate([SPHERE, -SPHERE, spiral]).astype(np.float32)


def _extreme(name: str, sign: int, grid: np.ndarray) -> tuple[float, np.ndarray]:
  """Largest (or least) probability and where, by search finer and finer."""

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


def sphere() -> tuple[list[Any], list[Any]]:
  """All models of the sphere against what is known of them."""
  grid, rows, wrong = _grid(POINTS), [], {}
  for name, known in KNOWN.items():
    largest, top = _extreme(name, 1, grid)
    least, bottom = _extreme(name, -1, grid)
    here = np.asarray(probability(name, jnp.asarray(grid)))  # it begins with them
    away = [largest - known.largest, here[0] - known.at_red, here[1] - known.at_green]
    off = [0.0]
    for place, expected in ((top, known.argmax), (bottom, known.argmin)):
      if expected is not None:
        off.append(np.abs(place - np.array(expected)).max())
    if name == "SphereFace, cos 2":
      off = [abs(abs(top[2]) - 0.984), abs(bottom[2])]
    wrong[name] = max(np.abs(away).max() / HALF, max(off) / 6e-3)
    # Of two maxima, above and below, the upper one.
    height = abs(top[2]) if known.argmax is None else top[2]
    angle = float(np.degrees(np.arccos(np.clip(height, -1, 1))))
    rows += [
      results.row(f"sphere, {name}", text, [value])  # the article prints maps alone
      for text, value in (
        ("largest p(red)", largest),
        ("p(red) at red", here[0]),
        ("p(red) at green", here[1]),
        ("least p(red)", least),
        ("degrees from red to the largest", angle),
      )
    ]
  claim = results.claim(
    "F1-sphere",
    "largest values and their places, values at the prototypes: as computed from the "
    "equations, to five digits",
    [1.5 - max(wrong.values())],
    paper=f"{PAPER}, app. E",
    every_seed=True,
  )
  return rows, [claim]


def examples() -> tuple[list[Any], list[Any]]:
  """Table 1: twice the distance changes SD, not DR."""
  known = {
    (1.0, 2.0): (0.95257, 0.8, 0.048587, 0.22314),
    (2.0, 4.0): (0.99999, 0.8, 6.1442e-06, 0.22314),
  }
  rows, worst = [], 0.0
  red = jnp.zeros(1, jnp.int32)
  for apart, expected in known.items():
    squares = jnp.array([apart]) ** 2
    loss = np.array(
      [
        losses.squared_distance_softmax(squares, red)[0],
        losses.distance_ratio(squares, red, exponent=EXPONENT)[0],
      ]
    )
    found = np.concatenate([np.exp(-loss), loss])
    worst = max(worst, np.abs(found / np.array(expected) - 1).max())
    rows += [
      results.row(f"distances {apart[0]:g} and {apart[1]:g}", text, [value], paper=x)
      for text, value, x in zip(
        ("p by SD", "p by DR", "loss by SD", "loss by DR"), found, expected, strict=True
      )
    ]
  return rows, [
    results.claim(
      "F1-table",
      "probabilities and losses of Table 1, to four digits",
      [1e-4 - worst],
      paper=f"{PAPER}, tab. 1",
      every_seed=True,
    )
  ]


def in_plane(kind: str, points: np.ndarray) -> np.ndarray:
  """[n]: probability of red at points of the plane; kind is SD or an exponent of DR."""
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


def plane() -> tuple[list[Any], list[Any]]:
  """Figure 1: where red is likeliest."""
  behind = PLANE[0] - 3 * (PLANE[1:].mean(0) - PLANE[0])
  points = np.stack([*PLANE, behind])
  found = {kind: in_plane(kind, points) for kind in ("SD", "2", "7.389")}
  rows = [
    results.row(f"plane, {kind}", f"p(red) {place}", [value])
    for kind, values in found.items()
    for place, value in zip(
      ("at red", "at green", "at blue", "behind red"), values, strict=True
    )
  ]
  ratio = [found[kind] for kind in ("2", "7.389")]
  made = {
    "F1-beyond": (
      "by SD a point behind the red prototype is likelier red than the prototype",
      float(found["SD"][3] - found["SD"][0]),
    ),
    "F1-ratio": (
      "by DR p(red) is 1 at its prototype, 0 at the others, and less behind",
      1e-6
      - max(max(abs(x[0] - 1), abs(x[1]), abs(x[2])) for x in ratio)
      - max(0.0, *(float(x[3] - x[0]) for x in ratio)),
    ),
  }
  return rows, [
    results.claim(key, text, [value], paper=f"{PAPER}, fig. 1", every_seed=True)
    for key, (text, value) in made.items()
  ]


def _color_bar(figure: "matplotlib.figure.Figure") -> None:
  from matplotlib.cm import ScalarMappable
  from matplotlib.colors import Normalize

  scale = ScalarMappable(Normalize(0, 1), "Reds")
  figure.colorbar(scale, ax=figure.axes, label="p(red)", shrink=0.8)


def draw_plane() -> "matplotlib.figure.Figure":
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
  figure = _figure.new_figure(9.0, 3.2)
  for number, (title, values) in enumerate(maps.items()):
    axes = figure.add_subplot(1, 3, number + 1)
    axes.contourf(axis, axis - 1, values, levels=LEVELS, cmap="Reds")
    for point, color in zip(PLANE, COLORS, strict=True):
      axes.scatter(*point, s=50, color=color, edgecolor="white", zorder=3)
    axes.set(title=title, xticks=[], yticks=[], aspect="equal")
  _color_bar(figure)
  return figure


def draw_sphere() -> "matplotlib.figure.Figure":
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
  # As many at once as are searched, which is compiled.
  size = len(_grid(POINTS))
  parts = [np.resize(flat[i : i + size], (size, 3)) for i in range(0, len(flat), size)]
  figure = _figure.new_figure(9.0, 4.8)
  for number, name in enumerate(KNOWN):
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


def rows_and_claims() -> tuple[list[Any], list[Any]]:
  """All that is exact."""
  parts = [examples(), plane(), sphere()]
  return [row for part in parts for row in part[0]], [
    claim for part in parts for claim in part[1]
  ]
